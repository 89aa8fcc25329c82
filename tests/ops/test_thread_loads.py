"""Products whose operands threads load as they lie: right whatever their extents, strides and addresses, and clean."""

from unittest import mock

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = [pytest.mark.integration, pytest.mark.dsl]

from hypothesis import HealthCheck, given, settings, strategies as st  # noqa: E402

import cutepy  # noqa: E402
from cutepy.epilogues import Column, Tile, amax  # noqa: E402
from cutepy.host.launches import Launches  # noqa: E402
from cutepy.kernels.gemm import copies, op  # noqa: E402
from cutepy.kernels.gemm.operands import Description, matrix  # noqa: E402
from cutepy.kernels.gemm.reference import gemm_reference  # noqa: E402
from cutepy.ops import gemm, multiply, scaled_gemm  # noqa: E402

F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
PAIRS = [(F16, F16), (BF16, BF16), (E4M3, E5M2), (torch.int8, torch.uint8), (F32, F32)]


@pytest.fixture(autouse=True)
def tf32():
    """Let float32 be rounded, within a test."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision(before)


def numbers(shape, dtype, seed=0):
    """Whole numbers, small enough for all sums to be exact in float32."""
    least = 0 if dtype == torch.uint8 else -3
    return torch.randint(least, 4, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def laid_out(shape, dtype, major, gap, begin, seed=0):
    """Give matrices with so many elements between rows, and so many before the first."""
    *batch, rows, columns = shape if major == "k" else (*shape[:-2], shape[-1], shape[-2])
    whole = (*batch, rows, columns + gap)
    held = numbers((begin + torch.Size(whole).numel(),), dtype, seed)
    found = held[begin:].view(whole)[..., :columns]
    return found if major == "k" else found.mT


@st.composite
def products(draw):
    """Draw operands of which one at least lies in units of 4 or 8 bytes."""
    dtypes = draw(st.sampled_from(PAIRS))
    size = dtypes[0].itemsize
    unit = draw(st.sampled_from([4, 8])) // size
    batch = draw(st.sampled_from([(), (), (2,)]))
    m, n = draw(st.integers(1, 70)), draw(st.integers(1, 40))
    k = unit * draw(st.integers(1, 160 // unit))
    drawn = []
    for rows, dtype in zip((m, n), dtypes, strict=True):
        major = draw(st.sampled_from("km")) if size == 2 else "k"
        rows = rows if major == "k" else -(-rows // unit) * unit
        gap, begin = (unit * draw(st.integers(0, 3)) for _ in "ab")
        drawn.append(laid_out((*batch, rows, k), dtype, major, gap, begin, seed=len(drawn)))
    return drawn


def by_threads_of(a, b):
    """Tell which of two operands threads can load, and TMA can't."""
    return [
        matrix(Description.at(each), by_threads=True) is not None
        and matrix(Description.at(each), is_operand=True) is None
        for each in (a, b)
    ]


@pytest.fixture
def loaded():
    """Have threads load all that they can; tell the signatures of what is compiled."""
    with (
        mock.patch.object(copies, "loads_pay", return_value=True),
        mock.patch.object(multiply, "_launches", Launches()),
        mock.patch.object(op, "compile_gemm", wraps=op.compile_gemm) as compiled,
        mock.patch.object(op, "compile_fused", wraps=op.compile_fused) as compiled_fused,
    ):
        yield lambda: [call.args[0].signature for each in (compiled, compiled_fused) for call in each.call_args_list]


@pytest.mark.deep
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(drawn=products(), added=st.booleans(), given_out=st.booleans())
def test_sums_are_float64s(loaded, drawn, added, given_out):
    a, b = drawn
    multiply._launches.clear()
    before = len(loaded())
    shape = (*a.shape[:-1], b.shape[-2])
    c = numbers(shape, F16) if added else None
    out = laid_out(shape, F32, "k", 3, 1) if given_out else None
    how = {"out": out} if given_out else {"out_dtype": F32}
    with cutepy.simulate(sanitize=True) as run:
        found = gemm(a, b, c=c, **how)
    assert not run.hazards, run.report()
    assert torch.equal(found.double(), gemm_reference(a, b, c))
    assert given_out == (found is out)
    (signature,) = loaded()[before:]
    assert sorted(signature.by_threads) == sorted(by_threads_of(a, b)), "of the transposed product, perhaps"


@cutepy.epilogue
def finished(acc, scale: Column, tile: Tile):
    result = acc * scale + tile
    return result, amax(result)


@pytest.mark.parametrize("batch", [(), (2,)])
def test_with_an_epilogue(loaded, batch):
    a, b = laid_out((*batch, 70, 90), BF16, "k", 2, 6), laid_out((*batch, 42, 90), BF16, "m", 0, 2)
    scale, tile = numbers((*batch, 70), F32), numbers((*batch, 70, 42), F16)
    with cutepy.simulate(sanitize=True) as run:
        found, largest = gemm(a, b, epilogue=finished, out_dtype=F32, scale=scale, tile=tile)
    exact = gemm_reference(a, b) * scale.double().unsqueeze(-1) + tile
    assert not run.hazards, run.report()
    assert torch.equal(found.double(), exact)
    assert torch.equal(largest.double(), exact.abs().amax((-2, -1)))
    (signature,) = loaded()
    assert signature.by_threads == (True, True)


def test_one_by_threads_beside_a_copy(loaded):
    """A begins at 2 bytes, so it is copied, and padded; B isn't."""
    a, b = laid_out((20, 90), F16, "k", 1, 1), laid_out((40, 90), F16, "k", 0, 2)
    tile = numbers((20, 40), F16)
    with cutepy.simulate(sanitize=True) as run:
        found, _ = gemm(a, b, epilogue=finished, out_dtype=F32, scale=torch.ones(20), tile=tile)
    assert not run.hazards, run.report()
    assert torch.equal(found.double(), gemm_reference(a, b) + tile)
    (signature,) = loaded()
    assert sorted(signature.by_threads) == [False, True]


def test_sums_that_are_promoted(loaded):
    a, b = laid_out((20, 388), E4M3, "k", 4, 8), laid_out((40, 388), E4M3, "k", 0, 4)
    scale_a, scale_b = (2.0 ** numbers((rows, 1), F32) for rows in (20, 40))
    with cutepy.simulate(sanitize=True) as run:
        found = scaled_gemm(a, b, scale_a, scale_b, out_dtype=F32)
    assert not run.hazards, run.report()
    assert torch.equal(found.double(), (a.double() * scale_a) @ (b.double() * scale_b).T)
    (signature,) = loaded()
    assert signature.by_threads == (True, True)
    assert signature.scale_rows is not None


def test_gradients_and_compiled_code(loaded):
    a, b = (laid_out((rows, 90), F16, "k", 0, 2).requires_grad_() for rows in (6, 42))
    reference = gemm_reference(a, b)
    with cutepy.simulate():
        found = torch.compile(gemm, backend="aot_eager")(a, b)
        assert torch.equal(found.double(), reference)
        found.sum().backward()
    assert torch.equal(a.grad.double(), b.detach().double().sum(0).expand(6, 90))
    assert torch.equal(b.grad.double(), a.detach().double().sum(0).expand(42, 90))
    assert any(any(signature.by_threads) for signature in loaded())


def test_what_no_kernel_has_is_refused_as_before(loaded):
    big = torch.empty(2, dtype=F16).as_strided((2**31, 10), (0, 0))
    with cutepy.simulate(), refuses(ValueError):
        gemm(big, numbers((4, 10), F16))
