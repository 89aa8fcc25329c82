"""Batches on a Hopper GPU: bit for bit for small integers, whatever the strides, and the bits of single products."""

import random

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.gpu

from cutepy.kernels.gemm.reference import gemm_reference  # noqa: E402
from cutepy.ops import gemm  # noqa: E402

F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(20261121)


def stored(draw, shape, dtype, major, shared, fill):
    """Make (batch..., rows, columns) of `fill`'s values, its modes but the contiguous one anywhere in memory."""
    rank = len(shape)
    contiguous = rank - 1 if major == 1 else rank - 2
    unit = 16 // dtype.itemsize
    extents = [1 if n in shared else extent for n, extent in enumerate(shape)]
    order = [n for n in range(rank) if n != contiguous]
    draw.shuffle(order)
    order.append(contiguous)
    memory = [extents[n] + draw.choice([0, 0, 1, 2]) for n in order]
    memory[-1] = -(-extents[contiguous] // unit) * unit + draw.choice([0, unit])
    whole = fill(memory).to(dtype).permute([order.index(n) for n in range(rank)])
    return whole[tuple(slice(0, extent) for extent in extents)].expand(shape), whole


def integers(shape):
    return torch.randint(-2, 3, shape, device="cuda").float()


def nothing(shape):
    return torch.full(shape, float("nan"), device="cuda")


def random_cases(count, seed):
    draw = random.Random(seed)
    for index in range(count):
        dtype = draw.choice([F16, BF16, E4M3, E5M2])
        out_dtype = draw.choice([BF16, F32] if dtype.itemsize == 1 else [dtype, F32])
        majors = [draw.randint(0, 1) if dtype.itemsize > 1 else 1 for _ in range(2)] + [draw.randint(0, 1)]
        batch = [draw.randint(1, draw.choice([3, 12, 40])) for _ in range(draw.randint(1, 3))]
        while torch.Size(batch).numel() > 200:
            batch[batch.index(max(batch))] //= 2
        # What may be contiguous must be in whole units, of 16 bytes of the narrowest.
        m, n, k = (16 * draw.randint(1, draw.choice([4, 12, 40])) for _ in range(3))
        m -= 3 if majors[0] == 1 and majors[2] == 1 else 0
        n -= 3 if majors[1] == 1 and majors[2] == 0 else 0
        yield pytest.param(draw.random(), batch, (m, n, k), dtype, out_dtype, majors, id=f"{index}-{batch}x{m}x{n}x{k}")


@pytest.mark.parametrize(
    ("number", "batch", "mnk", "dtype", "out_dtype", "majors"), list(random_cases(60, seed=20261121))
)
def test_random_batches(number, batch, mnk, dtype, out_dtype, majors):
    draw, (m, n, k) = random.Random(number), mnk
    shared = [{d for d in range(len(batch)) if draw.random() < 0.3} for _ in range(3)]
    a, _ = stored(draw, (*batch, m, k), dtype, majors[0], shared[0], integers)
    b, _ = stored(draw, (*batch, n, k), dtype, majors[1], shared[1], integers)
    c = None
    if draw.random() < 0.4:
        c, _ = stored(draw, (*batch, m, n), F32, majors[2], shared[2], integers)
    bias = torch.arange(n, device="cuda").float() % 5 - 2 if draw.random() < 0.4 else None
    out, buffer = stored(draw, (*batch, m, n), out_dtype, majors[2], set(), nothing)
    assert gemm(a, b, c=c, out=out, bias=bias) is out
    assert torch.equal(out, gemm_reference(a, b, c, bias).to(out_dtype))
    assert int(buffer.isnan().sum()) == buffer.numel() - out.numel()


@pytest.mark.parametrize("shape", [(1, 300, 520, 272), (40, 300, 520, 272), (132, 64, 64, 128), (7, 70, 4096, 192)])
@pytest.mark.parametrize("dtype", [F16, BF16, E4M3])
def test_a_batch_has_the_bits_of_its_products(shape, dtype):
    """Each sum runs over K in one order, whatever tile is taken, but where K is split or threads multiply."""
    batch, m, n, k = shape
    a, b = torch.randn(batch, m, k, device="cuda").to(dtype), torch.randn(batch, n, k, device="cuda").to(dtype)
    assert torch.equal(gemm(a, b), torch.stack([gemm(x, y) for x, y in zip(a, b, strict=True)]))


def test_a_hundred_thousand_small_products():
    a, b = integers((100_000, 8, 16)).half(), integers((100_000, 8, 16)).half()
    assert torch.equal(gemm(a, b), (a.float() @ b.float().mT).half())


def test_products_beyond_32_bit_offsets():
    step = 2**31 + 8
    memory = torch.zeros(step + 64 * 64, dtype=F16, device="cuda")
    a = memory.as_strided((2, 64, 64), (step, 64, 1))
    a.copy_(integers((2, 64, 64)))
    b = integers((2, 64, 64)).half()
    assert torch.equal(gemm(a, b), (a.float() @ b.float().mT).half())
    expected = (b.float() @ b.float().mT).half()
    gemm(b, b, out=a)
    assert torch.equal(a, expected)


def test_the_product_that_a_batch_shares_is_read_through_a_stride_of_zero():
    a, b = integers((304, 264)).half(), integers((50, 136, 264)).half()
    for left, right in ((a.expand(50, 304, 264), b), (b, a.expand(50, 304, 264))):
        assert left.stride(0) * right.stride(0) == 0
        assert torch.equal(gemm(left, right), (left.float() @ right.float().mT).half())


def test_batches_in_a_graph():
    a, b = integers((6, 200, 64)).half(), integers((6, 136, 64)).half()
    out = gemm(a, b)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        gemm(a, b, out=out)
    a.copy_(integers((6, 200, 64)))
    graph.replay()
    assert torch.equal(out, (a.float() @ b.float().mT).half())
