"""What the public GEMM refuses, and how it says so: all before anything is compiled or launched."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

import cutepy  # noqa: E402
from cutepy.kernels.gemm import gemm, op, operands  # noqa: E402
from cutepy.kernels.gemm.operands import (  # noqa: E402
    Description,
    check_address,
    check_device,
    check_overlap,
    matrix,
    may_overlap,
)
from cutepy.kernels.gemm.reference import gemm_reference  # noqa: E402


@pytest.fixture(autouse=True)
def nothing_compiles(monkeypatch):
    """Turn every attempt to compile into a failure."""

    class Refusing:
        def function(self, *_arguments):
            raise AssertionError("reached the compiler")

    monkeypatch.setattr(op, "FAMILY", Refusing())


def half(*shape):
    return torch.zeros(shape, dtype=torch.float16)


F16 = torch.float16
A, B = half(64, 32), half(48, 32)

CASES = {
    "a list": (lambda: gemm([[1.0]], B), TypeError, "a must be a torch.Tensor, got list"),
    "b none": (lambda: gemm(A, None), TypeError, "b must be a torch.Tensor, got NoneType"),
    "c number": (lambda: gemm(A, B, 1.0), TypeError, "c must be a torch.Tensor, got float"),
    "a dtype": (lambda: gemm(A.float(), B), TypeError, "a must have dtype float16, .* got float32"),
    "b dtype": (lambda: gemm(A, B.double()), TypeError, "b must have dtype float16, .* got float64"),
    "mixed": (lambda: gemm(A, B.bfloat16()), TypeError, "b must have a's dtype float16"),
    "mixed widths": (lambda: gemm(A.to(torch.float8_e4m3fn), B), TypeError, "b must have a's dtype float8_e4m3fn"),
    "c dtype": (lambda: gemm(A, B, torch.zeros(64, 48).int()), TypeError, "c must have dtype float16, .* got int32"),
    "a sparse": (lambda: gemm(A.to_sparse(), B), TypeError, r"a must be a dense .*to_dense"),
    "a rank": (lambda: gemm(half(2, 1, 1, 1, 64, 32), B), ValueError, "a must have 2 dimensions, and up to 3 .* got 6"),
    "b rank": (lambda: gemm(A, half(32)), ValueError, "b must have 2 dimensions, .* got 1 in shape"),
    "b no batch": (
        lambda: gemm(half(2, 64, 32), B),
        ValueError,
        r"b must have the batch of a, shape \(2, 48, 32\), got \(48, 32\); .* may be expanded",
    ),
    "b batch": (lambda: gemm(half(2, 64, 32), half(3, 48, 32)), ValueError, r"the batch of a, shape \(2, 48, 32\)"),
    "a no batch": (lambda: gemm(A, half(3, 48, 32)), ValueError, r"the batch of a, shape \(48, 32\)"),
    "k of a batch": (
        lambda: gemm(half(2, 64, 32), half(2, 32, 48)),
        ValueError,
        r"b must be \(batch, N, K\) with a's K = 32, .* computes a @ b.mT",
    ),
    "c batch": (
        lambda: gemm(half(2, 64, 32), half(2, 48, 32), half(64, 48)),
        ValueError,
        r"c must have shape \(batch, M, N\) = \(2, 64, 48\), got \(64, 48\); expand a smaller one",
    ),
    "out batch": (
        lambda: gemm(half(2, 64, 32), half(2, 48, 32), out=half(3, 64, 48)),
        ValueError,
        r"out must have shape \(batch, M, N\) = \(2, 64, 48\)",
    ),
    "out expanded": (
        lambda: gemm(half(2, 64, 32), half(2, 48, 32), out=half(1, 64, 48).expand(2, 64, 48)),
        ValueError,
        r"out must not overlap itself, got shape \(2, 64, 48\) with strides \(0, 48, 1\)",
    ),
    "batch stride": (
        lambda: gemm(half(2, 64 * 32 + 4)[:, : 64 * 32].view(2, 64, 32), half(2, 48, 32)),
        ValueError,
        r"a must have matrices that are multiples of 8 elements apart \(16 bytes of float16, .* call a.contiguous",
    ),
    "strides in a batch": (
        lambda: gemm(half(2, 64, 64)[..., ::2], half(2, 48, 32)),
        ValueError,
        "a must have stride 1 along one of the last two dimensions",
    ),
    "k": (lambda: gemm(A, half(32, 48)), ValueError, "b must be .* a's K = 32, got shape .32, 48.*transpose"),
    "c shape": (lambda: gemm(A, B, half(48, 64)), ValueError, r"c must have shape .* \(64, 48\), got \(48, 64\)"),
    "grad": (lambda: gemm(A.clone().requires_grad_(), B), ValueError, "a requires grad"),
    "stride": (lambda: gemm(half(64, 64)[:, ::2], B), ValueError, "a must have stride 1 along one dimension"),
    "expanded": (lambda: gemm(A, half(1, 32).expand(48, 32)), ValueError, "b must not overlap itself"),
    "a alignment": (
        lambda: gemm(half(64, 33), half(48, 33)),
        ValueError,
        "a must have a contiguous extent .* 8 .* pad K",
    ),
    "b mn alignment": (
        lambda: gemm(A, half(32, 49).t(), out_major="col"),
        ValueError,
        "b must have a contiguous extent .* 8 .* pad N",
    ),
    "8-bit major": (
        lambda: gemm(half(32, 64).to(torch.float8_e4m3fn).t(), B.to(torch.float8_e4m3fn)),
        ValueError,
        "a must be K-major",
    ),
    "out_major": (lambda: gemm(A, B, out_major="k"), ValueError, 'out_major must be "row" or "col"'),
    "out_major list": (lambda: gemm(A, B, out_major=["row"]), ValueError, "out_major must be .* got .'row'."),
    "out_dtype list": (lambda: gemm(A, B, out_dtype=[F16]), TypeError, "out_dtype must be a torch.dtype .* got .torch"),
    "out_dtype name": (lambda: gemm(A, B, out_dtype="float16"), TypeError, "a torch.dtype .* got 'float16'"),
    "out_dtype": (lambda: gemm(A, B, out_dtype=torch.int32), TypeError, "out_dtype must have dtype .* got int32"),
    "new out": (lambda: gemm(A, half(41, 32)), ValueError, "out must have a contiguous extent .*pad N"),
    "new col": (lambda: gemm(half(7, 32), B, out_major="col"), ValueError, "out must have a contiguous .*pad M"),
    "c": (lambda: gemm(A, half(41, 32), half(64, 41), out=half(64, 48)[:, :41]), ValueError, "c must have a con"),
    "a pitch": (lambda: gemm(half(64, 36)[:, :32], B), ValueError, "a must have a leading stride .* 8 .* pad K"),
    "out kind": (lambda: gemm(A, B, out=1), TypeError, "out must be a torch.Tensor"),
    "out type": (lambda: gemm(A, B, out=half(64, 48).double()), TypeError, "out must have dtype"),
    "out clash": (
        lambda: gemm(A, B, out=half(64, 48), out_dtype=torch.float32),
        TypeError,
        "out_dtype must be out's dtype float16 or be left out, got float32",
    ),
    "out shape": (lambda: gemm(A, B, out=half(48, 64)), ValueError, "out must have shape"),
    "out stride": (lambda: gemm(A, B, out=half(64, 49)[:, :48]), ValueError, "out must have a leading stride"),
    "out is a": (lambda: gemm(half(64, 64), half(64, 64), out=half(1)), ValueError, "out must have 2 dimensions"),
    "bias kind": (lambda: gemm(A, B, bias=1), TypeError, "bias must be a torch.Tensor, got int"),
    "bias dtype": (lambda: gemm(A, B, bias=torch.zeros(48).int()), TypeError, "bias must have dtype float16, .* int32"),
    "bias shape": (
        lambda: gemm(A, B, bias=half(64)),
        ValueError,
        r"bias must have shape \(N,\) = \(48,\), got \(64,\)",
    ),
    "bias stride": (lambda: gemm(A, B, bias=half(96)[::2]), ValueError, "bias must be contiguous, got stride 2"),
    "activation": (lambda: gemm(A, B, activation="swish"), ValueError, "activation must be relu, .* got 'swish'"),
    "cpu": (lambda: gemm(A, B), ValueError, r'a must be on a CUDA device, got cpu; move it with a.to\("cuda"\)'),
    "cpu empty": (lambda: gemm(half(0, 13), half(7, 13)), ValueError, "a must be on a CUDA device"),
    "meta": (lambda: gemm(A.to("meta"), B.to("meta")), ValueError, "a must be on a CUDA device, got meta"),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_refused_with_an_error_that_names_the_argument(name):
    call, error, message = CASES[name]
    with pytest.raises(error, match=message):
        call()


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_a_nested_tensor_is_refused(layout):
    with pytest.raises(TypeError, match="a must be a dense tensor, got a nested one"):
        gemm(torch.nested.nested_tensor([A, A], layout=layout), B)


def test_an_address_within_a_16_byte_unit_is_refused():
    assert check_address("a", 4096) == 4096
    with pytest.raises(ValueError, match=r"a must start at a multiple of 16 bytes, got address 0x1002; call a.clone"):
        check_address("a", 4098)


def test_out_that_overlaps_an_input_is_refused():
    shared, wide = half(64, 64), half(64, 128)
    check_overlap(shared, "a", half(64, 64))
    check_overlap(shared, "c", shared)
    with pytest.raises(ValueError, match=r"out must share no memory with a: .*pass a new tensor$"):
        check_overlap(shared, "a", shared)
    with pytest.raises(ValueError, match="out must share no memory with b"):
        check_overlap(shared.t(), "b", shared)
    with pytest.raises(ValueError, match=r"out must share no memory with c.*or c itself"):
        check_overlap(wide[:, 32:96], "c", wide[:, :64])


@pytest.mark.parametrize("turned", [False, True])
def test_overlap_is_exact_for_blocks_of_one_matrix(turned):
    def overlap(x, y):
        return may_overlap(x.t(), y.t()) if turned else may_overlap(x, y)

    whole = half(16, 64)
    for first in range(0, 48, 8):
        for second in range(0, 48, 8):
            x, y = whole[2:9, first : first + 16], whole[3:8, second : second + 16]
            assert overlap(x, y) == (abs(first - second) < 16)
    assert not overlap(whole[:4], whole[4:])
    assert overlap(whole[:5], whole[4:])
    assert overlap(whole, whole[3:4, 5:6])
    assert not overlap(whole[:0], whole)
    assert overlap(whole, whole.view(32, 32))


@pytest.mark.parametrize(
    ("capability", "devices", "message"),
    [
        ((8, 0), {}, r"a must be on a Hopper GPU \(compute capability 9.0\), got cuda:0 with 8.0"),
        ((10, 0), {}, "got cuda:0 with 10.0"),
        ((9, 0), {"b": 1}, "b must be on a's device cuda:0, got cuda:1"),
        ((9, 0), {"out": 1}, "out must be on a's device cuda:0, got cuda:1"),
    ],
)
def test_other_gpus_are_refused(monkeypatch, capability, devices, message):
    def description(index):
        return Description((8, 8), (8, 1), torch.float16, torch.device("cuda", index))

    operands._capability.cache_clear()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _index: capability)
    with pytest.raises(ValueError, match=message):
        check_device(description(0), **{name: description(devices.get(name, 0)) for name in ("b", "out")})
    operands._capability.cache_clear()


@pytest.mark.parametrize(
    ("shape", "stride", "mode", "pitch"),
    [
        ((16, 24), (24, 1), 1, 24),
        ((16, 24), (1, 16), 0, 16),
        ((16, 24), (1, 32), 0, 32),
        ((1, 24), (5, 1), 1, 24),
        ((24, 1), (1, 5), 0, 24),
        ((24, 1), (1, 1), 0, 24),
        ((8, 8), (8, 1), 1, 8),
    ],
)
def test_majors_are_read_from_the_strides(shape, stride, mode, pitch):
    """The stride of an extent of 1 never matters."""
    form = matrix("a", Description(shape, stride, torch.float16, torch.device("cuda", 0)), "KM")
    assert form == ("float16", mode, pitch, ())


@pytest.mark.parametrize(
    ("shape", "stride", "expected"),
    [
        ((4, 16, 24), (384, 24, 1), (384,)),
        ((4, 16, 24), (0, 24, 1), (0,)),
        ((4, 16, 24), (24, 96, 1), (24,)),
        ((1, 16, 24), (5, 24, 1), (0,)),
        ((2, 4, 16, 24), (384, 0, 24, 1), (384, 0)),
    ],
)
def test_batch_strides_are_whole_units_or_open(shape, stride, expected):
    form = matrix("a", Description(shape, stride, torch.float16, torch.device("cuda", 0)), "KM")
    assert form.batch_strides == expected
    assert form.strides[-2:] == stride[-2:]


def test_more_tiles_than_a_kernel_counts_are_refused():
    def described(*shape):
        return Description((2**30, *shape), (shape[0] * shape[1], shape[1], 1), F16, torch.device("cpu"))

    arguments = described(1024, 8), described(1024, 8), None, None, None, None, "row", None
    with cutepy.simulate(), pytest.raises(ValueError, match=r"fewer than 2147418112 tiles.* 1024x1024 .*split it"):
        op.plan_gemm(*arguments)


def test_overlap_of_batches_is_told_by_their_rows():
    buffer = half(3, 16, 64)
    for first in range(0, 48, 8):
        x, y = buffer[..., :16], buffer[..., first : first + 16]
        assert may_overlap(x, y) == (first < 16)
    assert not may_overlap(buffer[:1], buffer[1:])
    assert may_overlap(buffer[:2], buffer[1:])
    assert may_overlap(buffer[..., :16].transpose(0, 1), buffer[..., 16:32].transpose(0, 1))  # no view joins their rows


def test_what_was_planned_for_the_simulator_is_refused_outside(monkeypatch):
    class Doing:
        def function(self, *_arguments):
            return lambda *_arguments: None

    monkeypatch.setattr(op, "FAMILY", Doing())
    op.plan_gemm.cache_clear()
    with cutepy.simulate():
        assert gemm(A, B).shape == (64, 48)
    with pytest.raises(ValueError, match="a must be on a CUDA device, got cpu"):
        gemm(A, B)
    op.plan_gemm.cache_clear()


def test_the_reference_is_exact():
    a, b = torch.randn(5, 7).half(), torch.randn(3, 7).half()
    expected = [[sum(float(x) * float(y) for x, y in zip(row, column, strict=True)) for column in b] for row in a]
    assert torch.allclose(gemm_reference(a, b), torch.tensor(expected, dtype=torch.float64), rtol=1e-15, atol=1e-15)
    assert torch.equal(gemm_reference(a, b, torch.ones(5, 3)), gemm_reference(a, b) + 1)
