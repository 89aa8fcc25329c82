"""Grouped products on a Hopper GPU: bit for bit for small integers, no host synchronisation, graphs, gradients."""

import random

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.gpu

from cutepy.kernels.grouped.reference import grouped_reference  # noqa: E402
from cutepy.ops import grouped_gemm  # noqa: E402
from cutepy.testing.numerics import gemm_tolerance, relative_error  # noqa: E402

F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32
UNTOUCHED = 77.0


def integers(*shape, dtype=BF16):
    return torch.randint(-2, 3, shape, device="cuda").to(dtype)


def ends(draw, total, groups):
    """Cut rows into groups: evenly, at random, most in a few groups, or most groups empty."""
    cuts = {
        "even": lambda: [total * (group + 1) // groups for group in range(groups)],
        "random": lambda: [draw.randint(0, total) for _ in range(groups)],
        "skewed": lambda: [int(total * draw.random() ** 4) for _ in range(groups)],
        "empty": lambda: [draw.choice([0, total // 3, total]) for _ in range(groups)],
    }[draw.choice(["even", "random", "skewed", "empty"])]()
    return torch.tensor(sorted(cuts), dtype=torch.int32, device="cuda")


def random_cases(count, seed):
    draw = random.Random(seed)
    for index in range(count):
        along = draw.choice(["m", "n", "k", "padded"])
        dtype = draw.choice([F16, BF16])
        out_dtype = draw.choice([dtype, F32])
        groups, rows = draw.choice([1, 2, 5, 8, 33, 64, 100]), draw.choice([1, 7, 64, 300, 1000, 4096])
        n, k = (8 * draw.randint(1, draw.choice([4, 16, 60])) for _ in range(2))
        name = f"{index}-{along}-{groups}x{rows}x{n}x{k}"
        yield pytest.param(draw.random(), along, (groups, rows, n, k), dtype, out_dtype, id=name)


@pytest.mark.parametrize(("seed", "along", "extents", "dtype", "out_dtype"), [*random_cases(300, seed=20261123)])
def test_random_problems(seed, along, extents, dtype, out_dtype):
    draw = random.Random(seed)
    torch.manual_seed(int(seed * 2**32))
    groups, rows, n, k = extents
    matrices = integers(groups, k, n, dtype=dtype).mT if draw.random() < 0.4 else integers(groups, n, k, dtype=dtype)
    if along == "padded":
        rows = min(rows, 300)
        counts = [draw.choice([0, 1, rows // 2, rows]) for _ in range(groups)]
        where = {"counts": torch.tensor(counts, dtype=torch.int32, device="cuda")}
        a, b, shape = integers(groups, rows, k, dtype=dtype), matrices, (groups, rows, n)
    else:
        where = {"offs": ends(draw, rows, groups)}
        a, b, shape = {
            "m": lambda: (integers(rows, k, dtype=dtype), matrices, (rows, n)),
            "n": lambda: (matrices, integers(rows, k, dtype=dtype), (rows, n)),
            "k": lambda: (integers(rows, n, dtype=dtype).mT, integers(rows, k, dtype=dtype).mT, (groups, n, k)),
        }[along]()
    out = torch.full(shape, UNTOUCHED, dtype=out_dtype, device="cuda")
    out = out.mT if along == "n" else out
    (given,) = where.values()
    expected = grouped_reference(a, b, given, out.clone(), "m" if along == "padded" else along)
    assert torch.equal(grouped_gemm(a, b, out=out, **where), expected)


@pytest.mark.parametrize("dtype", [F16, BF16])
def test_random_values_are_within_the_bound(dtype):
    a, b = torch.randn(1000, 4096, device="cuda").to(dtype), torch.randn(8, 512, 4096, device="cuda").to(dtype)
    where = ends(random.Random(1), 1000, 8)
    where[-1] = 1000
    exact = grouped_reference(a, b, where, torch.empty(1000, 512, device="cuda", dtype=torch.float64), "m")
    name = str(dtype).removeprefix("torch.")
    assert relative_error(grouped_gemm(a, b, offs=where), exact) <= gemm_tolerance(4096, 16, name)


def test_runs_are_equal_bit_for_bit():
    a, b = torch.randn(1000, 4096, device="cuda").bfloat16(), torch.randn(8, 512, 4096, device="cuda").bfloat16()
    where = torch.arange(125, 1001, 125, device="cuda").int()
    first = grouped_gemm(a, b, offs=where)
    assert all(torch.equal(grouped_gemm(a, b, offs=where), first) for _ in range(10))


@pytest.fixture
def layer():
    torch.manual_seed(1)
    return integers(512, 256), integers(8, 128, 256), ends(random.Random(3), 512, 8)


def test_the_host_waits_for_nothing(layer):
    a, b, where = layer
    out = torch.full((512, 128), UNTOUCHED, dtype=BF16, device="cuda")
    grouped_gemm(a, b, offs=where, out=out)
    torch.cuda.set_sync_debug_mode("error")
    try:
        grouped_gemm(a, b, offs=where, out=out)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_groups_may_change_between_replays_of_a_graph(layer):
    a, b, where = layer
    out = torch.full((512, 128), UNTOUCHED, dtype=BF16, device="cuda")
    grouped_gemm(a, b, offs=where, out=out)
    graph, draw = torch.cuda.CUDAGraph(), random.Random(5)
    with torch.cuda.graph(graph):
        grouped_gemm(a, b, offs=where, out=out)
    for _ in range(10):
        where.copy_(ends(draw, 512, 8))
        out.fill_(UNTOUCHED)
        graph.replay()
        assert torch.equal(out, grouped_reference(a, b, where, torch.full_like(out, UNTOUCHED), "m"))


def test_gradients(layer):
    a, b, where = layer
    x, w = a.clone().requires_grad_(), b.clone().requires_grad_()
    grad = integers(512, 128)
    grouped_gemm(x, w, offs=where).backward(grad)
    last = int(where[-1])
    expected = grouped_reference(grad, b.mT, where, torch.zeros_like(a), "m")
    assert torch.equal(x.grad, expected)
    assert (x.grad[last:] == 0).all()
    assert torch.equal(w.grad, grouped_reference(grad.mT, a.mT, where, torch.zeros_like(b), "k"))


def test_compiled(layer):
    a, b, where = layer
    compiled = torch.compile(lambda a, b, where: grouped_gemm(a, b, offs=where) * 2, fullgraph=True)
    last = int(where[-1])
    assert torch.equal(compiled(a, b, where)[:last], (grouped_gemm(a, b, offs=where) * 2)[:last])
