"""The GEMM on a Hopper GPU, against float64: within the tolerance for normal values, bit for bit for small integers."""

import itertools
import random

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.gpu

from cutepy.kernels.gemm import GemmConfig, GemmSignature, compile_gemm  # noqa: E402
from cutepy.kernels.gemm.reference import gemm_reference  # noqa: E402
from cutepy.ops import gemm  # noqa: E402
from cutepy.testing.numerics import gemm_tolerance, relative_error  # noqa: E402

F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
LLAMA_3_8B = {"qkv": (6144, 4096), "out": (4096, 4096), "gate_up": (28672, 4096), "down": (4096, 14336)}


def normal(rows, columns, dtype, contiguous_mode=1):
    """Draw normal values."""
    shape = (rows, columns) if contiguous_mode == 1 else (columns, rows)
    values = torch.randn(shape, device="cuda").to(dtype)
    return values if contiguous_mode == 1 else values.t()


def integers(rows, columns, dtype, contiguous_mode=1):
    """Draw from -2 to 2: sums of up to 65536 products stay below 2**12, so that even 14 bits hold them exactly."""
    shape = (rows, columns) if contiguous_mode == 1 else (columns, rows)
    values = torch.randint(-2, 3, shape, device="cuda").to(dtype)
    return values if contiguous_mode == 1 else values.t()


@pytest.fixture(params=[normal, integers], ids=["normal", "integers"])
def matrix(request):
    """Draw matrices of one kind."""
    torch.manual_seed(20261121)
    return request.param


def assert_right(result, a, b, c=None, *, exact):
    """Compare with float64: exact sums leave one rounding, that of the result, which must be right in every bit."""
    reference = gemm_reference(a, b, c)
    name = str(result.dtype).removeprefix("torch.")
    if exact:
        assert torch.equal(result, reference.to(result.dtype)), (a.shape, b.shape, a.dtype)
    else:
        error = relative_error(result, reference)
        assert error <= gemm_tolerance(a.shape[1], 8 * a.dtype.itemsize, name), (error, a.shape, b.shape, a.dtype)


def poisoned(rows, columns, dtype, contiguous_mode=1):
    """Make an output inside a larger NaN-filled buffer; gives (out, buffer)."""
    shape = (rows, columns) if contiguous_mode == 1 else (columns, rows)
    unit = 16 // dtype.itemsize
    pitch = aligned(shape[1], dtype) + 2 * unit
    buffer = torch.full((shape[0] + 2, pitch), float("nan"), dtype=dtype, device="cuda")
    out = buffer[1:-1, unit : unit + shape[1]]
    return (out if contiguous_mode == 1 else out.t()), buffer


def check(a, b, c=None, out_dtype=None, out_mode=1, *, exact):
    """Run into poisoned memory; compare, and see that nothing around the output changed."""
    dtype = out_dtype or (BF16 if a.dtype.itemsize == 1 else a.dtype)
    out, buffer = poisoned(a.shape[0], b.shape[0], dtype, out_mode)
    returned = gemm(a, b, c=c, out=out)
    assert returned is out
    assert_right(out, a, b, c, exact=exact)
    assert int(buffer.isnan().sum()) == buffer.numel() - out.numel()


def aligned(extent, dtype):
    """Round an extent up to whole 16 bytes."""
    unit = 16 // dtype.itemsize
    return -(-extent // unit) * unit


def random_cases(count, seed):
    draw = random.Random(seed)
    for index in range(count):
        a_dtype = draw.choice([F16, BF16, E4M3, E5M2])
        b_dtype = draw.choice([E4M3, E5M2]) if a_dtype.itemsize == 1 else a_dtype
        a_mode, b_mode = (1, 1) if a_dtype.itemsize == 1 else (draw.randint(0, 1), draw.randint(0, 1))
        largest = draw.choice([64, 300, 1200, 5000])
        m, n, k = (draw.randint(1, largest) for _ in range(3))
        out_dtype, out_mode = draw.choice([F16, BF16, F32]), draw.randint(0, 1)
        if E5M2 in (a_dtype, b_dtype):
            out_dtype = draw.choice([BF16, F32])
        c = draw.choice([None, None, (F16, 0), (F16, 1), (BF16, 1), (F32, 0), (F32, 1)])
        c_mode = c[1] if c else out_mode
        k = k if (a_mode, b_mode) == (0, 0) else aligned(k, a_dtype)
        m = max(
            m,
            aligned(m, a_dtype) if a_mode == 0 else 0,
            aligned(m, out_dtype) if out_mode == 0 else 0,
            aligned(m, F16) if c_mode == 0 else 0,
        )
        n = max(
            n,
            aligned(n, b_dtype) if b_mode == 0 else 0,
            aligned(n, out_dtype) if out_mode == 1 else 0,
            aligned(n, F16) if c_mode == 1 else 0,
        )
        yield pytest.param(m, n, k, a_dtype, b_dtype, a_mode, b_mode, out_dtype, out_mode, c, id=f"{index}-{m}x{n}x{k}")


@pytest.mark.parametrize(
    ("m", "n", "k", "a_dtype", "b_dtype", "a_mode", "b_mode", "out_dtype", "out_mode", "c"),
    list(random_cases(40, seed=20261121)),
)
def test_random_problems(matrix, m, n, k, a_dtype, b_dtype, a_mode, b_mode, out_dtype, out_mode, c):
    addend = matrix(m, n, *c) if c else None
    check(
        matrix(m, k, a_dtype, a_mode),
        matrix(n, k, b_dtype, b_mode),
        addend,
        out_dtype,
        out_mode,
        exact=matrix is integers,
    )


@pytest.mark.parametrize(("a_mode", "b_mode", "out_mode"), list(itertools.product((0, 1), repeat=3)))
@pytest.mark.parametrize("dtype", [F16, BF16])
def test_every_combination_of_majors(matrix, dtype, a_mode, b_mode, out_mode):
    check(matrix(392, 264, dtype, a_mode), matrix(520, 264, dtype, b_mode), out_mode=out_mode, exact=matrix is integers)


@pytest.mark.parametrize("dtypes", list(itertools.product((E4M3, E5M2), repeat=2)))
def test_every_pair_of_8_bit_floats(matrix, dtypes):
    check(matrix(200, 1040, dtypes[0]), matrix(400, 1040, dtypes[1]), exact=matrix is integers)


@pytest.mark.parametrize("out_mode", [0, 1])
@pytest.mark.parametrize("out_dtype", [F16, BF16, F32])
@pytest.mark.parametrize(("c_dtype", "c_mode"), list(itertools.product((F16, BF16, F32), (0, 1))))
def test_every_kind_of_c(matrix, c_dtype, c_mode, out_dtype, out_mode):
    a, b, c = matrix(264, 136, F16), matrix(328, 136, F16), matrix(264, 328, c_dtype, c_mode)
    check(a, b, c, out_dtype, out_mode, exact=matrix is integers)


@pytest.mark.parametrize(("cluster_m", "cluster_n"), [(1, 1), (2, 1), (1, 2), (2, 2), (4, 1)])
@pytest.mark.parametrize(
    ("tile_m", "tile_n", "stages"),
    [(128, 256, 0), (128, 256, 2), (256, 128, 0), (128, 96, 3), (64, 256, 0), (64, 64, 8), (192 * 2, 64, 0)],
)
def test_every_kind_of_tile_and_cluster(tile_m, tile_n, stages, cluster_m, cluster_n):
    """Ragged problems whose last clusters lie partly or wholly outside, with more tiles than SMs."""
    signature = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16", a_major="mn")
    config = GemmConfig(
        signature=signature,
        tile_m=tile_m,
        tile_n=tile_n,
        warpgroups=1 if tile_m == 64 else 2,
        stages=stages,
        cluster_m=cluster_m,
        cluster_n=cluster_n,
        band_rows=3,
    )
    kernel = compile_gemm(config)
    sm_count = torch.cuda.get_device_properties(0).multi_processor_count
    extents = ((tile_m * 9 + 8, tile_n * 31 + 8, 8 * 41), (8, 8, 8), (2000, 24, 1000))
    for (m, n, k), matrix in itertools.product(extents, (normal, integers)):
        a, b = matrix(m, k, F16, 0), matrix(n, k, F16)
        out, buffer = poisoned(m, n, F16)
        kernel(a, b, None, out, sm_count, None)
        assert_right(out, a, b, exact=matrix is integers)
        assert int(buffer.isnan().sum()) == buffer.numel() - out.numel()


@pytest.mark.parametrize("k", [14336, 65536])
@pytest.mark.parametrize(("a_dtype", "b_dtype"), [(F16, F16), (BF16, BF16), (E4M3, E4M3), (E5M2, E4M3)])
def test_long_sums(matrix, a_dtype, b_dtype, k):
    """With integers, one lost term changes most elements."""
    check(matrix(264, k, a_dtype), matrix(520, k, b_dtype), out_dtype=F32, exact=matrix is integers)


@pytest.mark.parametrize("layer", LLAMA_3_8B)
@pytest.mark.parametrize("dtype", [F16, BF16, E4M3])
def test_llama_3_8b_layers(matrix, layer, dtype):
    n, k = LLAMA_3_8B[layer]
    check(matrix(4096, k, dtype), matrix(n, k, dtype), exact=matrix is integers)


@pytest.mark.parametrize("shape", [(1, 8, 8), (8, 1, 8), (1, 4096, 4096), (4096, 1, 4096), (129, 8, 16), (7, 16, 1024)])
def test_thin_extents(matrix, shape):
    m, n, k = shape
    a, b = matrix(m, k, F16), matrix(n, k, F16)
    result = gemm(a, b)
    assert result.shape == (m, n)
    assert_right(result, a, b, exact=matrix is integers)


def test_k_of_any_size_when_both_are_mn_major(matrix):
    for k in (1, 2, 63, 65):
        check(matrix(72, k, BF16, 0), matrix(80, k, BF16, 0), exact=matrix is integers)


def test_strides_may_be_padded(matrix):
    wide = torch.full((100, 96), float("nan"), dtype=F16, device="cuda")
    wide[:, :40] = matrix(100, 40, F16)
    check(wide[:, :40], wide[:56, :40], exact=matrix is integers)
    check(wide[:96, :40].t().contiguous().t(), wide[:56, :40], exact=matrix is integers)


def test_c_may_be_overwritten_by_the_result(matrix):
    a, b, c = matrix(512, 256, BF16), matrix(768, 256, BF16), matrix(512, 768, BF16)
    addend = c.clone()
    assert gemm(a, b, c=c, out=c) is c
    assert_right(c, a, b, addend, exact=matrix is integers)


@pytest.mark.parametrize("shape", [(0, 16, 16), (16, 0, 16), (0, 0, 0), (16, 24, 0), (5, 7, 0), (0, 7, 13)])
@pytest.mark.parametrize("with_c", [False, True])
def test_empty_extents_give_what_torch_gives(shape, with_c):
    m, n, k = shape
    a, b = normal(m, k, F16), normal(n, k, F16)
    c = normal(m, n, F16) if with_c else None
    expected = torch.mm(a, b.t()) if c is None else torch.addmm(c, a, b.t())
    result = gemm(a, b, c=c)
    assert result.shape == expected.shape
    assert result.dtype == expected.dtype
    assert torch.equal(result, expected)


def test_defaults_of_the_result():
    a = normal(16, 32, F16)
    result = gemm(a, a)
    assert (result.dtype, result.stride(), result.device) == (F16, (16, 1), a.device)
    assert gemm(a, a, out_major="col").stride() == (1, 16)
    assert gemm(a, a, out_dtype=F32).dtype == F32
    assert gemm(a.to(E4M3), a.to(E4M3)).dtype == BF16


def test_runs_on_the_current_stream_and_in_a_graph():
    a, b = normal(1024, 512, F16), normal(1024, 512, F16)
    expected = gemm(a, b)
    out = torch.zeros_like(expected)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(10_000_000)  # a launch on another stream would overtake this
        out.zero_()
        gemm(a, b, out=out)
    torch.cuda.current_stream().wait_stream(stream)
    assert torch.equal(out, expected)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        gemm(a, b, out=out)
    out.zero_()
    graph.replay()
    assert torch.equal(out, expected)


def test_the_same_inputs_give_the_same_bits():
    a, b = normal(2000, 1000, BF16), normal(3000, 1000, BF16)
    first = gemm(a, b)
    for _ in range(20):
        assert torch.equal(gemm(a, b), first)


def test_neighbouring_blocks_of_one_matrix_may_be_input_and_output():
    both = torch.randn((256, 512), device="cuda").half()
    a, out = both[:, :256], both[:, 256:]
    expected = gemm_reference(a, a)
    gemm(a, a, out=out)
    assert relative_error(out, expected) <= gemm_tolerance(256, 16, "float16")


def test_wrong_gpu_memory_is_refused_before_anything_launches():
    a = normal(64, 64, F16)
    with pytest.raises(ValueError, match="b must be on a's device"):
        gemm(a, a.cpu())
    with pytest.raises(ValueError, match="out must share no memory with a"):
        gemm(a, a, out=a)
    c = normal(64, 128, F16)
    with pytest.raises(ValueError, match="out must share no memory with c"):
        gemm(a, a, c=c[:, :64], out=c[:, 32:96])
