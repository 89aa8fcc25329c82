"""Triton's kernels in which elements meet, against torch."""

import functools
import operator

import pytest

from tests.messages import refuses

pytest.importorskip("triton", reason="needs triton: make check installs it, or pip install 'cutepy[triton]'")
torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.dsl,
    pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION is unset"),
]


@pytest.fixture(scope="module")
def kernels():
    from tests.frontends.triton import collectives

    return collectives


def test_moments(run, kernels):
    x, out = torch.randn(512), torch.empty(2)
    kernels.moments[(1,)](x, out, 512)
    torch.testing.assert_close(out, torch.stack([x.mean(), x.var(unbiased=False)]))


def test_a_recurrence_is_a_scan(run, kernels):
    scale, shift, out = torch.rand(256), torch.randn(256), torch.empty(256)
    kernels.recurrence[(1,)](scale, shift, out, 256)
    state, expected = 0.0, []
    for a, b in zip(scale.tolist(), shift.tolist(), strict=True):
        state = state * a + b
        expected.append(state)
    torch.testing.assert_close(out, torch.tensor(expected), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("m", "n", "warps"), [(4, 128, 1), (32, 64, 8)])
def test_places(run, kernels, m, n, warps):
    x, largest = torch.randn(m, n), torch.empty(m, dtype=torch.int32)
    sums, ranked = torch.empty(m, n), torch.empty(m, n)
    kernels.places[(1,)](x, largest, sums, ranked, m, n, num_warps=warps)
    assert torch.equal(largest.long(), x.argmax(1))
    torch.testing.assert_close(sums, x.flip(1).cumsum(1).flip(1), atol=1e-4, rtol=1e-4)
    assert torch.equal(ranked, x.sort(1, descending=True).values)


@pytest.mark.parametrize("axis", [0, 1])
def test_gather(run, kernels, axis):
    x, out = torch.randn(32, 64), torch.empty(32, 64)
    index = torch.randint(0, x.shape[axis], (32, 64), dtype=torch.int32)
    kernels.gathered[(1,)](x, index, out, axis, 32, 64)
    assert torch.equal(out, x.gather(axis, index.long()))


def test_histogram(run, kernels):
    x, bins = torch.randint(0, 32, (900,), dtype=torch.int32), torch.zeros(32, dtype=torch.int32)
    kernels.counted[(1,)](x, bins, 900, 1024, 32)
    assert torch.equal(bins.long(), torch.bincount(x, minlength=32))


def test_atomics_of_many_programs(run, kernels):
    x = torch.randint(-1000, 1000, (1024,), dtype=torch.int32)
    sums, halves, bits = torch.zeros(8), torch.zeros(8, dtype=torch.float16), torch.zeros(8, dtype=torch.int32)
    most, least = torch.full((8,), -9999, dtype=torch.int32), torch.full((8,), 9999, dtype=torch.int32)
    kernels.scattered[(4,)](x, sums, most, least, bits, halves, 256)
    for bin in range(8):
        own = x[(x & 7) == bin].tolist()
        got = sums[bin], most[bin], least[bin], bits[bin], halves[bin]
        assert got == (sum(own), max(own), min(own), functools.reduce(operator.xor, own), len(own))


def test_inline_assembly_of_packed_bytes(run, kernels):
    x = torch.randint(-128, 127, (512,)).to(torch.int8)
    out, inverted = torch.empty_like(x), torch.empty_like(x)
    kernels.reversed_bytes[(1,)](x, out, inverted, 512)
    assert torch.equal(out.view(-1, 4), x.view(-1, 4).flip(1))
    assert torch.equal(out, ~inverted)


# A product of K terms differs by the rounding of its inputs: of tf32 to 11 bits, in each of both.
PRODUCTS = [
    (torch.float16, torch.float16, None, 64, 4, 2**-10),
    (torch.bfloat16, torch.float32, None, 64, 4, 2**-20),
    (torch.float32, torch.float32, "tf32", 64, 4, 2**-10),
    (torch.float32, torch.float32, "tf32x3", 64, 4, 2**-18),
    (torch.float32, torch.float32, "ieee", 32, 4, 2**-20),
    (torch.float8_e5m2, torch.float32, None, 64, 4, 2**-8),
    (torch.float16, torch.float32, None, 16, 1, 2**-20),
    (torch.int8, torch.int32, None, 64, 4, 0),
    (torch.int8, torch.int32, None, 16, 1, 0),
]


@pytest.mark.parametrize(("dtype", "out", "precision", "m", "warps", "error"), PRODUCTS)
def test_products(run, kernels, dtype, out, precision, m, warps, error):
    k = 64
    a, b = (torch.randint(-16, 16, s) if dtype == torch.int8 else torch.randn(s) for s in ((m, k), (k, m)))
    a, b, c = a.to(dtype), b.to(dtype), torch.empty(m, m, dtype=out)
    kernels.product[(1,)](a, b, c, m, m, k, precision, num_warps=warps)
    bound = error * (a.double().abs() @ b.double().abs())
    assert ((c.double() - a.double() @ b.double()).abs() <= bound).all()
    assert (run.stats["wgmma"] > 0) == (m == 64)


def test_products_of_scaled_blocks(run, kernels):
    m, n, k = 64, 64, 128
    a, b = (torch.randn(s).to(torch.float8_e4m3fn) for s in ((m, k), (k, n)))
    scale_a, scale_b = (torch.randint(120, 132, (e, k // 32), dtype=torch.uint8) for e in (m, n))
    c = torch.empty(m, n)
    kernels.scaled_product[(1,)](a, scale_a, b, scale_b, c, m, n, k)
    left, right = (torch.exp2(s.double() - 127).repeat_interleave(32, 1) for s in (scale_a, scale_b))
    torch.testing.assert_close(c.double(), (a.double() * left) @ (b.double() * right.T), atol=0.1, rtol=1e-2)


def test_pointers_within_memory_are_made_known(run, kernels):
    from cutepy.sim import MemoryAccessError

    sources, out = [torch.randn(n) for n in (100, 7, 128)], torch.empty(3)
    pointers = torch.tensor([x.data_ptr() for x in sources])
    extents = torch.tensor([len(x) for x in sources], dtype=torch.int32)
    with pytest.raises(MemoryAccessError):
        kernels.of_groups[(1,)](pointers, extents, out, 3, 128)
    for x in sources:
        run.register(x)
    kernels.of_groups[(1,)](pointers, extents, out, 3, 128)
    torch.testing.assert_close(out, torch.stack([x.sum() for x in sources]), atol=1e-5, rtol=1e-5)


def test_a_cooperative_grid_waits_for_all_of_it(run, kernels):
    counter, out = torch.zeros(1, dtype=torch.int32), torch.zeros(6, dtype=torch.int32)
    kernels.cooperating[(6,)](counter, out, 6, launch_cooperative_grid=True)
    assert out.tolist() == [6] * 6


def test_prints_and_assertions(run, kernels):
    from cutepy.sim import SimulationError

    kernels.checked[(1,)](torch.arange(8), 8, num_warps=1)
    assert "value: 7" in run.printf
    with refuses(SimulationError):
        kernels.checked[(1,)](torch.arange(16), 16, num_warps=1)


@pytest.mark.parametrize("ctas", [2, 4])
def test_reductions_over_a_cluster(run, kernels, ctas):
    x, out = torch.randn(1024), torch.empty(1)
    kernels.sum_of_a_cluster[(1,)](x, out, 1024, num_ctas=ctas)
    torch.testing.assert_close(out[0], x.sum(), atol=1e-4, rtol=1e-4)
    assert run.launches[0].grid == (ctas, 1, 1)
