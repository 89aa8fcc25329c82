"""float32 by way of tf32, and 8-bit integers, on a Hopper GPU: integers bit for bit, floats within the tolerance."""

import itertools
import random

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.gpu

import cutepy  # noqa: E402
from cutepy.epilogues import Column, Row  # noqa: E402
from cutepy.kernels.gemm import GemmConfig, GemmSignature, compile_gemm  # noqa: E402
from cutepy.kernels.gemm.reference import gemm_reference  # noqa: E402
from cutepy.ops import gemm  # noqa: E402
from cutepy.testing.numerics import UNIT_ROUNDOFF, gemm_tolerance, relative_error  # noqa: E402

F16, BF16, F32, I8, U8, I32 = (
    *(torch.float16, torch.bfloat16, torch.float32),
    *(torch.int8, torch.uint8, torch.int32),
)
PAIRS = [(F32, F32), *itertools.product((I8, U8), repeat=2)]


@pytest.fixture(autouse=True)
def tf32():
    """Let float32 be rounded, within a test."""
    torch.manual_seed(20261123)
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision("highest")


def drawn(rows, columns, dtype, contiguous_mode=1):
    """Draw all integers of a type, or normal values."""
    shape = (rows, columns) if contiguous_mode == 1 else (columns, rows)
    if dtype == F32:
        values = torch.randn(shape, device="cuda")
    else:
        info = torch.iinfo(dtype)
        values = torch.randint(info.min, info.max + 1, shape, device="cuda", dtype=dtype)
    return values if contiguous_mode == 1 else values.t()


def off_integers(rows, columns):
    """Draw integers, and such values beside them as only rounding to the nearest tf32 makes the same of."""
    exact = torch.randint(-64, 65, (rows, columns), device="cuda").double()
    return (exact * (1 + torch.randint(-1, 2, exact.shape, device="cuda") * 2.0**-13)).float(), exact


def check(a, b, out_dtype=None, **options):
    result, reference = gemm(a, b, out_dtype=out_dtype, **options), gemm_reference(a, b)
    assert result.dtype == (out_dtype or (F32 if a.dtype == F32 else I32))
    if a.dtype != F32 and out_dtype in (None, F32):
        assert torch.equal(result, reference.to(result.dtype)), (a.shape, b.shape)
        return
    name = str(result.dtype).removeprefix("torch.")
    bound = gemm_tolerance(a.shape[1], 32, name) if a.dtype == F32 else UNIT_ROUNDOFF[name]
    assert relative_error(result, reference) <= bound, (a.shape, b.shape)


def random_cases(count, seed):
    draw = random.Random(seed)
    for index in range(count):
        largest = draw.choice([64, 300, 1200, 5000])
        m, n, k = (draw.randint(1, largest) for _ in range(3))
        a_dtype, b_dtype = draw.choice(PAIRS)
        out_dtype = draw.choice([None, None, F32, BF16])
        modes = [draw.choice([1, 1, 0]) for _ in range(2)]
        case = (m, n, k, a_dtype, b_dtype, out_dtype, modes, draw.choice(["row", "col"]))
        yield pytest.param(*case, id=f"{index}-{m}x{n}x{k}")


@pytest.mark.parametrize(
    ("m", "n", "k", "a_dtype", "b_dtype", "out_dtype", "modes", "out_major"), list(random_cases(60, seed=20261123))
)
def test_random_problems(m, n, k, a_dtype, b_dtype, out_dtype, modes, out_major):
    """Of any extents and strides: what TMA or wgmma don't take is copied."""
    check(drawn(m, k, a_dtype, modes[0]), drawn(n, k, b_dtype, modes[1]), out_dtype, out_major=out_major)


@pytest.mark.parametrize("shape", [(64, 64, 8), (300, 200, 72), (1024, 1536, 2048), (8192, 4096, 64), (16, 4096, 8192)])
def test_float32_is_rounded_to_the_nearest(shape):
    m, n, k = shape
    (a, exact_a), (b, exact_b) = off_integers(m, k), off_integers(n, k)
    assert torch.equal(gemm(a, b).double(), exact_a @ exact_b.t())


@pytest.mark.parametrize(("dtypes", "k"), [((I8, I8), 131071), ((I8, U8), 65793), ((U8, U8), 33025)])
def test_the_longest_sums_of_the_largest_products_are_exact(dtypes, k):
    """Copied, since K is no multiple of 16; few tiles, so that K is split."""
    for largest in (torch.iinfo(dtypes[0]).min or 255, torch.iinfo(dtypes[0]).max):
        a = torch.full((72, k), largest, device="cuda", dtype=dtypes[0])
        b = torch.full((40, k), -128 if dtypes[1] == I8 else 255, device="cuda", dtype=dtypes[1])
        check(a, b)


@pytest.mark.parametrize("k", [14336, 65536])
@pytest.mark.parametrize("dtypes", [(F32, F32), (I8, I8)])
def test_long_sums(dtypes, k):
    check(drawn(264, k, dtypes[0]), drawn(520, k, dtypes[1]))


@pytest.mark.parametrize(("m", "n", "k"), [(17, 8, 8), (256, 512, 1024), (4096, 4096, 4096)])
def test_integers_are_what_torch_gives(m, n, k):
    a, b = drawn(m, k, I8), drawn(n, k, I8)
    assert torch.equal(gemm(a, b), torch._int_mm(a, b.t()))


@pytest.mark.parametrize(("cluster_m", "cluster_n", "split_k"), [(1, 1, 1), (2, 1, 1), (1, 2, 1), (2, 1, 2), (1, 1, 4)])
@pytest.mark.parametrize(
    ("tile_m", "tile_n", "warpgroups", "consumers"),
    [(128, 256, 2, 1), (128, 160, 1, 2), (64, 96, 1, 1), (64, 16, 1, 1), (192, 128, 3, 1)],
)
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_every_kind_of_tile_and_cluster(dtype, tile_m, tile_n, warpgroups, consumers, cluster_m, cluster_n, split_k):
    """Ragged problems whose last clusters lie partly or wholly outside, with more tiles than SMs."""
    signature = GemmSignature(a_dtype=dtype, b_dtype=dtype, out_dtype="int32" if dtype == "int8" else "float32")
    tile = {"tile_m": tile_m, "tile_n": tile_n, "warpgroups": warpgroups, "consumers": consumers}
    cluster = {"cluster_m": cluster_m, "cluster_n": cluster_n, "split_k": split_k}
    try:
        config = GemmConfig(signature=signature, **tile, **cluster, epi_n=32 if tile_n % 32 == 0 else 16)
    except ValueError as refusal:
        pytest.skip(str(refusal))
    kernel = compile_gemm(config)
    for m, n, k in ((tile_m * 9 + 8, tile_n * 31 + 8, 16 * 41), (8, 8, 16), (2000, 24, 1008)):
        if dtype == "int8":
            (a, exact_a), (b, exact_b) = ((x, x.double()) for x in (drawn(m, k, I8), drawn(n, k, I8)))
        else:
            (a, exact_a), (b, exact_b) = off_integers(m, k), off_integers(n, k)
        out = torch.full((m, n), -1, device="cuda", dtype=I32 if dtype == "int8" else F32)
        kernel(a, b, None, out, 132, None)
        assert torch.equal(out.double(), exact_a @ exact_b.t()), (m, n, k)


@cutepy.epilogue
def dequantised(acc, rows: Column, columns: Row, bias: Row):
    return acc * rows * columns + bias


@pytest.mark.parametrize("m", [3, 64, 1000, 4096])
def test_dequantised_products(m):
    a, b = drawn(m, 1024, I8), drawn(2048, 1024, I8)
    rows, columns, bias = (torch.rand(extent, device="cuda") / 64 for extent in (m, 2048, 2048))
    found = gemm(a, b, epilogue=dequantised, rows=rows, columns=columns, bias=bias)
    wanted = gemm_reference(a, b) * rows.unsqueeze(1) * columns + bias
    assert found.dtype == BF16
    assert relative_error(found, wanted) <= UNIT_ROUNDOFF["bfloat16"]


def test_layers_of_float32_learn_as_torchs():
    """Gradients of a layer, beside float64."""
    layer, x = torch.nn.Linear(300, 520, device="cuda"), torch.randn(264, 300, device="cuda", requires_grad=True)
    weights = torch.randn(264, 520, device="cuda")

    def gradients(result):
        return torch.autograd.grad((result * weights).sum(), (x, layer.weight, layer.bias))

    expected = gradients(x.double() @ layer.weight.double().t() + layer.bias)
    found = gradients(gemm(x, layer.weight, bias=layer.bias))
    for ours, wanted in zip(found, expected, strict=True):
        assert relative_error(ours, wanted) <= gemm_tolerance(520, 32, "float32")


def test_batches():
    for flat in ((off_integers(432, 80)[0], off_integers(288, 80)[0]), (drawn(432, 80, I8), drawn(288, 80, U8))):
        a, b = (each.view(6, -1, 80) for each in flat)
        expected = torch.stack([gemm(x, y) for x, y in zip(a, b, strict=True)])
        assert torch.equal(gemm(a, b), expected)
        out = torch.zeros_like(expected)
        assert torch.equal(gemm(a, b, out=out), expected)
