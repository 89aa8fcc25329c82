"""`scaled_gemm` on a Hopper GPU: whole numbers bit for bit, normal ones within the derived bound, and torch's own."""

import math
import random

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.gpu

from cutepy.ops import dequantise, quantise, scaled_gemm  # noqa: E402
from cutepy.testing.numerics import gemm_tolerance, promoted_tolerance, relative_error  # noqa: E402

E4M3 = torch.float8_e4m3fn
BLOCKS = {"tensor": (0, 0), "row": (1, 0), "1x128": (1, 128), "128x128": (128, 128)}
COMMON = (("1x128", "128x128"), ("row", "row"), ("tensor", "tensor"), ("1x128", "1x128"))


def exact(a, b, scale_a, scale_b):
    return dequantise(a, scale_a, torch.float64) @ dequantise(b, scale_b, torch.float64).mT


def drawn(count, seed, largest=4096):
    """Draw extents, log-uniform and ragged, and kinds of scales: four pairs of them."""
    chance = random.Random(seed)
    for _ in range(count):
        m, n, k = (round(math.exp(chance.uniform(0, math.log(largest)))) for _ in "mnk")
        yield m, n, 16 * max(1, k // 16), *chance.choice(COMMON)


def test_whole_numbers_are_exact():
    """Sums of 128 products of up to 4 stay below 2**9, and all of them, times powers of two, below 2**24."""
    torch.manual_seed(1)
    for m, n, k, of_a, of_b in drawn(100, seed=1):
        made = []
        for rows, kind in ((m, of_a), (n, of_b)):
            x = torch.randint(-2, 3, (rows, k), device="cuda").to(E4M3)
            _, scale = quantise(torch.zeros(rows, k, device="cuda"), BLOCKS[kind])
            made.append((x, 2.0 ** torch.randint(-1, 2, scale.shape, device="cuda")))
        (a, scale_a), (b, scale_b) = made
        got = scaled_gemm(a, b, scale_a, scale_b, out_dtype=torch.float32)
        assert torch.equal(got, exact(a, b, scale_a, scale_b).float()), (m, n, k, of_a, of_b)


def test_normal_numbers_are_within_the_bound():
    torch.manual_seed(2)
    for m, n, k, of_a, of_b in drawn(100, seed=2):
        if m * n * k < 2**16:  # the bound is one of averages
            continue
        x, weight = torch.randn(m, k, device="cuda"), torch.randn(n, k, device="cuda")
        (a, scale_a), (b, scale_b) = quantise(x, BLOCKS[of_a]), quantise(weight, BLOCKS[of_b])
        got = scaled_gemm(a, b, scale_a, scale_b)
        error = relative_error(got, exact(a, b, scale_a, scale_b))
        assert error <= promoted_tolerance("bfloat16"), (error, m, n, k, of_a, of_b)


@pytest.mark.parametrize("kinds", [("128x128", "1x128"), ("row", "1x128"), ("128x128", "tensor")])
def test_other_kinds_go_together(kinds):
    torch.manual_seed(3)
    (a, scale_a), (b, scale_b) = (
        quantise(torch.randn(rows, 1040, device="cuda"), BLOCKS[kind])
        for rows, kind in zip((300, 520), kinds, strict=True)
    )
    got = scaled_gemm(a, b, scale_a, scale_b, out_dtype=torch.float32)
    assert relative_error(got, exact(a, b, scale_a, scale_b)) <= promoted_tolerance("float32")


def test_promoted_sums_are_better_than_fast_ones():
    torch.manual_seed(4)
    (a, scale_a), (b, scale_b) = (quantise(torch.randn(256, 16384, device="cuda"), (1, 0)) for _ in "ab")
    expected = exact(a, b, scale_a, scale_b)
    promoted, fast = (
        relative_error(scaled_gemm(a, b, scale_a, scale_b, out_dtype=torch.float32, use_fast_accum=each), expected)
        for each in (False, True)
    )
    assert promoted <= promoted_tolerance("float32")
    assert 2 * promoted < fast <= gemm_tolerance(16384, 8, "float32")


def test_8_bit_results_are_torchs():
    """Of sums that both have exactly: saturated, NaN kept."""
    torch.manual_seed(5)
    a, b = (torch.randint(-2, 3, (256, 256), device="cuda").to(E4M3) for _ in "ab")
    one, large = torch.ones((), device="cuda"), torch.full((), 64.0, device="cuda")
    for scale in (one, large, one * float("inf"), one * float("nan")):
        ours = scaled_gemm(a, b, one, scale, out_dtype=E4M3)
        theirs = torch._scaled_mm(a, b.t(), one, scale, out_dtype=E4M3, scale_result=one)
        torch.testing.assert_close(ours.float(), theirs.float(), rtol=0, atol=0, equal_nan=True)


def test_results_are_the_same_from_run_to_run_and_in_graphs():
    torch.manual_seed(6)
    (a, scale_a), (b, scale_b) = (
        quantise(torch.randn(64, 7168, device="cuda")),
        quantise(torch.randn(2048, 7168, device="cuda"), (128, 128)),
    )
    first = scaled_gemm(a, b, scale_a, scale_b)
    assert all(torch.equal(first, scaled_gemm(a, b, scale_a, scale_b)) for _ in range(20))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = scaled_gemm(a, b, scale_a, scale_b)
    graph.replay()
    assert torch.equal(captured, first)
