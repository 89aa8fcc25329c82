"""`gemm(out=)` in the simulator: the short way that later calls take, and what they are still asked."""

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

import cutepy  # noqa: E402
from cutepy.host.launches import Launches  # noqa: E402
from cutepy.ops import gemm, multiply  # noqa: E402

pytestmark = pytest.mark.dsl

OUTS = {
    "contiguous": lambda: torch.zeros(24, 40).half(),
    "columns of a wider one": lambda: torch.zeros(24, 64).half()[:, 16:56],
    "of another dtype": lambda: torch.zeros(24, 40),
    "a column-major one": lambda: torch.zeros(40, 24).half().T,
}


@pytest.fixture
def operands():
    torch.manual_seed(0)
    return torch.randn(24, 32).half(), torch.randn(40, 32).half(), torch.randn(40)


@pytest.fixture
def launches(monkeypatch):
    monkeypatch.setattr(multiply, "_launches", Launches())
    return multiply._launches


@pytest.mark.parametrize("name", OUTS)
def test_later_calls_launch_at_once(name, operands, launches, monkeypatch):
    a, b, bias = operands
    out = OUTS[name]()
    with cutepy.simulate() as run:
        gemm(a, b, bias=bias, out=out)
        first = out.clone()
        assert len(launches) == 1
        monkeypatch.delattr(multiply, "_find_launch")
        out.zero_()
        before = out._version
        assert gemm(a, b, bias=bias, out=out) is out
    assert len(run.launches) == 2
    assert torch.equal(out, first)
    assert out._version > before
    torch.testing.assert_close(out.float(), a.float() @ b.float().T + bias, rtol=1e-2, atol=1e-2)


def test_a_batch_is_written_to_as_it_lies(launches, operands, monkeypatch):
    a, b, _ = operands
    a, b, out = a.view(3, 8, 32), b[None].repeat(3, 1, 1), torch.zeros(3, 8, 64).half()[..., :40]
    with cutepy.simulate():
        gemm(a, b, out=out)
        first = out.clone()
        monkeypatch.delattr(multiply, "_find_launch")
        out.zero_()
        gemm(a, b, out=out)
    assert torch.equal(out, first)
    torch.testing.assert_close(out, a @ b.mT, rtol=1e-2, atol=1e-2)


def test_with_and_without_out_are_told_apart(launches, operands):
    a, b, _ = operands
    out = torch.zeros(24, 40).half()
    with cutepy.simulate():
        for _ in range(2):
            assert gemm(a, b).data_ptr() != out.data_ptr()
            gemm(a, b, out=out)
    assert len(launches) == 2


def test_the_short_way_is_checked_too(launches):
    """Tensors of the same description may lie elsewhere the next time."""
    a, b, out = torch.ones(16, 32).half(), torch.ones(32, 32).half(), torch.zeros(16, 32).half()
    wrong = (
        lambda: gemm(out, b, out=out),
        lambda: gemm(a, b, out=b[:16]),
        lambda: gemm(a, b, out=out[:8]),
        lambda: gemm(a, b[:, :16], out=out),
    )
    with cutepy.simulate():
        gemm(a, b, out=out)
        for call in wrong:
            with refuses(ValueError):
                call()
        gemm(a, b, out=out)
        assert (out == 32).all()


def test_an_address_that_tma_cannot_reach_goes_the_long_way(launches):
    a, b = torch.ones(16, 32).half(), torch.ones(32, 32).half()
    memory = torch.zeros(16 * 32 + 8).half()
    aligned, odd = memory[: 16 * 32].view(16, 32), memory[1 : 1 + 16 * 32].view(16, 32)
    with cutepy.simulate():
        gemm(a, b, out=aligned)
        memory.zero_()
        gemm(a, b, out=odd)
    assert (odd == 32).all()
    assert memory[0] == 0


def test_the_package_remembers_its_functions():
    """To find them anew would cost each call a microsecond."""
    assert cutepy.ops.gemm is vars(cutepy.ops)["gemm"]
