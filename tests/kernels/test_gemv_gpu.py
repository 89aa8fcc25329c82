"""Products of few rows without tensor cores on a Hopper GPU: exact, the same bits in any batch, streams and graphs."""

import random

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.gpu

from cutepy import epilogues  # noqa: E402
from cutepy.epilogues import Row, Tile, epilogue, silu  # noqa: E402
from cutepy.epilogues.reference import compute  # noqa: E402
from cutepy.kernels.gemm import GemmSignature  # noqa: E402
from cutepy.kernels.gemm.reference import gemm_reference  # noqa: E402
from cutepy.kernels.gemv import gemv, select_gemv  # noqa: E402
from cutepy.testing.numerics import gemm_tolerance, relative_error  # noqa: E402

F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
SHAPES = [(4096, 7168), (7168, 2048), (8192, 8192), (14336, 4096), (4096, 14336), (6144, 6144)]


@epilogue
def layer(acc, bias: Row, residual: Tile):
    return silu(acc + bias) + residual


def integers(*shape, dtype=BF16):
    return torch.randint(-2, 3, shape, device="cuda").to(dtype)


def random_cases(count, seed):
    draw = random.Random(seed)
    for index in range(count):
        m, n = draw.randint(1, 12), draw.randint(1, draw.choice([30, 300, 9000]))
        k = draw.randint(1, draw.choice([40, 400, 9000]))
        dtypes = draw.choice([(F16, F16), (BF16, BF16), (E4M3, E4M3), (E4M3, E5M2), (F32, F32)])
        settings = {"tile_m": draw.choice([1, 2, 4, 8]), "unroll": draw.choice([1, 2, 4]), "warps": draw.choice([4, 8])}
        settings["columns"] = draw.choice([each for each in (1, 2, 4) if settings["unroll"] * each <= 8])
        settings["k_warps"] = draw.choice([1, 2, 4])
        yield pytest.param(m, n, k, dtypes, settings, id=f"{index}-{m}x{n}x{k}")


@pytest.mark.parametrize(("m", "n", "k", "dtypes", "settings"), [*random_cases(100, seed=20261124)])
def test_random_problems_are_exact(m, n, k, dtypes, settings):
    torch.manual_seed(m * n * k)
    a, b = integers(m, k, dtype=dtypes[0]), integers(n, k, dtype=dtypes[1])
    assert torch.equal(gemv(a, b, out_dtype=F32, settings=settings).double(), gemm_reference(a, b))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [F16, BF16, E4M3], ids=str)
def test_rows_are_within_the_bound_and_have_the_same_bits_in_any_batch(shape, dtype):
    n, k = shape
    torch.manual_seed(n + k)
    a, b = (torch.randn(rows, k, device="cuda").to(dtype) for rows in (8, n))
    whole = gemv(a, b, out_dtype=F32)
    assert relative_error(whole, gemm_reference(a, b)) <= gemm_tolerance(k, 8 * dtype.itemsize, "float32")
    for m in (1, 2, 5):
        assert torch.equal(gemv(a[:m], b, out_dtype=F32), whole[:m])


def test_epilogues():
    torch.manual_seed(1)
    a, b, bias = integers(4, 4096), integers(1024, 4096), torch.randn(1024, device="cuda")
    residual = integers(4, 1024, dtype=F16)
    found = gemv(a, b, epilogue=layer, out_dtype=F32, bias=bias, residual=residual)
    (expected,) = compute(layer.graph, gemm_reference(a, b), {"bias": bias, "residual": residual}, torch.float64)
    torch.testing.assert_close(found.double(), expected, rtol=2**-15, atol=2**-15)
    gated = gemv(a, b, epilogue=epilogues.reglu, out_dtype=F32)
    assert torch.equal(gated.double(), compute(epilogues.reglu.graph, gemm_reference(a, b), {}, torch.float64)[0])


def test_launches_that_overlap_and_graphs_give_the_same_bits():
    torch.manual_seed(2)
    x, weight = torch.randn(4, 4096, device="cuda").half(), (torch.randn(4096, 4096, device="cuda") / 64).half()

    def layers():
        y = x
        for _ in range(20):
            y = gemv(y, weight)
        return y

    expected = layers().clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = layers()
    for _ in range(50):
        captured.fill_(torch.nan)
        graph.replay()
        assert torch.equal(captured, expected)
        assert torch.equal(layers(), expected)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
@pytest.mark.parametrize("m", [1, 4, 8])
def test_as_many_ctas_are_resident_as_the_configuration_counts_on(m, dtype):
    from cutepy.kernels.gemm import compile_gemm

    kind = GemmSignature(a_dtype=dtype, b_dtype=dtype, out_dtype="bfloat16")
    config = select_gemv(kind, m, 8192, 8192)
    (resources,) = compile_gemm(config).resources
    assert resources.occupancy.ctas_per_sm >= config.ctas_per_sm
    assert resources.spill_store_bytes == 0
