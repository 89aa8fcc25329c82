"""Groups of 8-bit floats with scales on a Hopper GPU: whole numbers bit for bit, normal ones near, graphs."""

import random

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.gpu

from cutepy.kernels.grouped.reference import grouped_reference  # noqa: E402
from cutepy.ops import dequantise, quantise, scaled_grouped_gemm  # noqa: E402
from cutepy.testing.numerics import promoted_tolerance, relative_error  # noqa: E402

E4M3 = torch.float8_e4m3fn
BLOCKS = {"tensor": (0, 0), "row": (1, 0), "1x128": (1, 128), "128x128": (128, 128)}
PAIRS = {
    "m": [("1x128", "128x128"), ("row", "row"), ("tensor", "tensor"), ("1x128", "1x128")],
    "n": [("128x128", "1x128"), ("row", "row")],
    "padded": [("1x128", "128x128"), ("row", "row"), ("128x128", "1x128")],
    "k": [("1x128", "1x128"), ("tensor", "tensor"), ("128x128", "1x128")],
}


def drawn(*shape):
    """Draw whole numbers: sums of 128 products of up to 4 stay below 2**9, and all, times scales, below 2**24."""
    return torch.randint(-2, 3, shape, device="cuda").to(E4M3)


def made(kind, x):
    """Draw powers of two as scales, of each matrix if there are several; and what all stands for."""
    if x.dim() == 3:
        scales, wide = zip(*(made(kind, each) for each in x), strict=True)
        if kind == "tensor":
            scales = [scale.reshape(1, 1) for scale in scales]
        return torch.stack(scales), torch.stack(wide)
    _, like = quantise(torch.zeros(x.shape, device="cuda"), BLOCKS[kind])
    scale = torch.empty_like(like).copy_(2.0 ** torch.randint(-1, 2, like.shape, device="cuda"))  # laid out as those
    return scale, dequantise(x, scale, torch.float64)


def ends(draw, total, groups, unit=1):
    """Cut so many rows, or units of K, into groups, some of them empty."""
    cuts = [draw.choice([0, total, draw.randint(0, total), int(total * draw.random() ** 4)]) for _ in range(groups)]
    return unit * torch.tensor(sorted(cuts), dtype=torch.int32, device="cuda")


def random_cases(count, seed):
    draw = random.Random(seed)
    for index in range(count):
        along = draw.choice(list(PAIRS))
        kinds = draw.choice(PAIRS[along])
        groups, rows = draw.choice([1, 2, 5, 8, 33, 64]), draw.choice([1, 7, 64, 300, 1000, 4096])
        n, k = 16 * draw.randint(1, draw.choice([4, 16, 40])), 16 * draw.randint(1, draw.choice([8, 16, 60]))
        name = f"{index}-{along}-{'-'.join(kinds)}-{groups}x{rows}x{n}x{k}"
        yield pytest.param(draw.random(), along, kinds, (groups, rows, n, k), id=name)


@pytest.mark.parametrize(("seed", "along", "kinds", "extents"), [*random_cases(150, seed=20261124)])
def test_random_problems(seed, along, kinds, extents):
    draw = random.Random(seed)
    torch.manual_seed(int(seed * 2**32))
    groups, rows, n, k = extents
    if along == "padded":
        rows = min(rows, 300)
        counts = [draw.choice([0, 1, rows // 2, rows]) for _ in range(groups)]
        where = {"counts": torch.tensor(counts, dtype=torch.int32, device="cuda")}
        a, b = drawn(groups, rows, k), drawn(groups, n, k)
    elif along == "k":
        units = -(-k // 128)
        where = {"offs": ends(draw, units, groups, 128)}
        a, b = drawn(min(rows, 1000), k), drawn(n, k)
    else:
        where = {"offs": ends(draw, rows, groups)}
        a, b = drawn(rows, k), drawn(groups, n, k)
        a, b = (a, b) if along == "m" else (b, a)
    (scale_a, wide_a), (scale_b, wide_b) = made(kinds[0], a), made(kinds[1], b)
    got = scaled_grouped_gemm(a, b, scale_a, scale_b, out_dtype=torch.float32, **where)
    (given,) = where.values()
    form = "m" if along == "padded" else along
    terms = grouped_reference(torch.ones_like(wide_a), torch.ones_like(wide_b), given, torch.zeros_like(got), form)
    owned = (terms != 0) | (along == "k")
    expected = grouped_reference(wide_a, wide_b, given, torch.zeros_like(got), form)
    assert torch.equal(torch.where(owned, got, 0), expected)


@pytest.fixture
def layer():
    """Give tokens and experts, with scales, and what they stand for."""
    torch.manual_seed(1)
    a, scale_a = quantise(torch.randn(512, 1024, device="cuda"))
    experts = [quantise(torch.randn(256, 1024, device="cuda"), (128, 128)) for _ in range(8)]
    b, scale_b = (torch.stack(each) for each in zip(*experts, strict=True))
    wide = dequantise(a, scale_a), torch.stack([dequantise(*each) for each in experts])
    return (a, b, scale_a, scale_b), wide, ends(random.Random(3), 512, 8)


def test_normal_numbers_are_within_the_bound_and_runs_are_equal(layer):
    operands, wide, where = layer
    where[-1] = 512
    got = scaled_grouped_gemm(*operands, offs=where)
    exact = grouped_reference(*wide, where, torch.empty(512, 256, device="cuda", dtype=torch.float64), "m")
    assert relative_error(got, exact) <= promoted_tolerance("bfloat16")
    assert all(torch.equal(scaled_grouped_gemm(*operands, offs=where), got) for _ in range(10))


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_groups_may_change_between_replays_of_a_graph_and_the_host_waits_for_nothing(layer):
    operands, wide, where = layer
    scaled_grouped_gemm(*operands, offs=where)
    torch.cuda.set_sync_debug_mode("error")
    try:
        scaled_grouped_gemm(*operands, offs=where)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph, draw = torch.cuda.CUDAGraph(), random.Random(5)
    with torch.cuda.graph(graph):
        got = scaled_grouped_gemm(*operands, offs=where)
    for _ in range(10):
        where.copy_(ends(draw, 512, 8))
        where[-1] = 512
        graph.replay()
        exact = grouped_reference(*wide, where, torch.empty(512, 256, device="cuda", dtype=torch.float64), "m")
        assert relative_error(got, exact) <= promoted_tolerance("bfloat16")


def test_torch_gives_nearly_the_same():
    if not hasattr(torch, "_scaled_grouped_mm"):
        pytest.skip("torch has no scaled grouped product")
    torch.manual_seed(2)
    a, scale_a = quantise(torch.randn(512, 1024, device="cuda"), (1, 0))
    b, scale_b = (
        torch.stack(each)
        for each in zip(*(quantise(torch.randn(256, 1024, device="cuda"), (1, 0)) for _ in range(8)), strict=True)
    )
    where = torch.arange(64, 513, 64, dtype=torch.int32, device="cuda")
    ours = scaled_grouped_gemm(a, b, scale_a, scale_b, offs=where)
    theirs = torch._scaled_grouped_mm(
        a, b.mT, scale_a.squeeze(-1), scale_b.squeeze(-1), offs=where, out_dtype=torch.bfloat16
    )
    assert relative_error(ours, theirs.double()) < 1e-2
