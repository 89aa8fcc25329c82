"""`scaled_gemm`: every kind of scales by the kernel as by float64, what torch sees, and what is refused."""

import itertools

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

from hypothesis import given, settings, strategies as st  # noqa: E402

import cutepy  # noqa: E402
from cutepy.epilogues import Row, Tile, amax, silu  # noqa: E402
from cutepy.ops import dequantise, quantise, scaled_gemm  # noqa: E402
from cutepy.testing.numerics import gemm_tolerance, promoted_tolerance, relative_error  # noqa: E402

DEEP = pytest.mark.deep
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
BLOCKS = {"tensor": (0, 0), "row": (1, 0), "1x128": (1, 128), "128x128": (128, 128)}


def operand(rows, k, kind, dtype=E4M3, seed=0):
    """Draw normal numbers, some rows and spans of which are much larger than others, and quantise them."""
    chance = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, k, generator=chance)
    x = x * 2.0 ** torch.randint(-4, 5, (rows, 1), generator=chance)
    x = x * (2.0 ** torch.randint(-4, 5, (1, -(-k // 128)), generator=chance)).repeat_interleave(128, 1)[:, :k]
    return quantise(x, BLOCKS[kind], dtype)


def exact(a, b, scale_a, scale_b):
    """Multiply what the operands stand for in float64."""
    return dequantise(a, scale_a, torch.float64) @ dequantise(b, scale_b, torch.float64).mT


def whole(rows, k, kind, seed):
    """Draw small whole numbers, and powers of two as scales: all sums are exact."""
    chance = torch.Generator().manual_seed(seed)
    x = torch.randint(-3, 4, (rows, k), generator=chance).to(E4M3)
    _, scale = quantise(torch.zeros(rows, k), BLOCKS[kind])
    return x, 2.0 ** torch.randint(-2, 3, scale.shape, generator=chance)


PAIRS = list(itertools.product(BLOCKS, BLOCKS))
USUAL = [("1x128", "128x128")]
INTEGRATION = pytest.mark.integration
MORE = [("row", "row"), ("1x128", "1x128")]


@pytest.mark.parametrize(
    ("of_a", "of_b"),
    [
        *USUAL,
        *(pytest.param(*pair, marks=INTEGRATION) for pair in MORE),
        *(pytest.param(*pair, marks=DEEP) for pair in PAIRS if pair not in USUAL + MORE),
    ],
)
def test_all_kinds_go_together_and_whole_numbers_are_exact(of_a, of_b):
    (a, scale_a), (b, scale_b) = whole(20, 144, of_a, 1), whole(144, 144, of_b, 2)
    with cutepy.simulate(sanitize=True) as run:
        got = scaled_gemm(a, b, scale_a, scale_b, out_dtype=torch.float32)
    assert torch.equal(got, exact(a, b, scale_a, scale_b).float())
    assert not run.hazards
    assert all(certificate.reasons == () for certificate in run.certificates)


@DEEP
@settings(deadline=None, max_examples=20)
@given(
    st.integers(1, 300), st.integers(1, 200), st.integers(1, 600),
    st.sampled_from(list(BLOCKS)), st.sampled_from(list(BLOCKS)), st.integers(0, 3),
)  # fmt: skip
def test_any_extents(m, n, k, of_a, of_b, seed):
    (a, scale_a), (b, scale_b) = whole(m, k, of_a, seed), whole(n, k, of_b, seed + 1)
    with cutepy.simulate(sanitize=True):
        got = scaled_gemm(a, b, scale_a, scale_b, out_dtype=torch.float32)
    assert torch.equal(got, exact(a, b, scale_a, scale_b).float())


@pytest.mark.parametrize(
    ("m", "n", "k"), [(24, 32, 640), pytest.param(256, 128, 640, marks=DEEP), pytest.param(16, 256, 4096, marks=DEEP)]
)
def test_values_are_within_the_bound_of_promoted_sums(m, n, k):
    (a, scale_a), (b, scale_b) = operand(m, k, "1x128"), operand(n, k, "128x128", seed=1)
    with cutepy.simulate(sanitize=True, exact_mma=True) as run:
        got = scaled_gemm(a, b, scale_a, scale_b, out_dtype=torch.float32)
    assert not run.hazards
    expected = exact(a, b, scale_a, scale_b)
    assert relative_error(got, expected) <= promoted_tolerance("float32")


@pytest.mark.integration
def test_promotion_is_more_accurate_than_fast_accumulation():
    (a, scale_a), (b, scale_b) = operand(16, 4096, "row"), operand(16, 4096, "row", seed=1)
    expected, errors = exact(a, b, scale_a, scale_b), []
    for fast in (False, True):
        with cutepy.simulate(exact_mma=True):
            got = scaled_gemm(a, b, scale_a, scale_b, out_dtype=torch.float32, use_fast_accum=fast)
        errors.append(relative_error(got, expected))
    assert errors[0] <= promoted_tolerance("float32")
    assert errors[1] <= gemm_tolerance(4096, 8, "float32")
    assert 2 * errors[0] < errors[1]


@cutepy.epilogue
def added(acc, residual: Tile):
    return acc + residual


@pytest.mark.parametrize(
    ("of_a", "of_b"), [pytest.param("row", "row", marks=DEEP), pytest.param("1x128", "128x128", marks=INTEGRATION)]
)
def test_a_float32_tile_is_added_where_k_is_in_eight_parts(of_a, of_b):
    (a, scale_a), (b, scale_b) = whole(64, 8192, of_a, 1), whole(64, 8192, of_b, 2)
    residual = torch.randint(-9, 10, (64, 64)).float()
    with cutepy.simulate(sanitize=True) as run:
        got = scaled_gemm(a, b, scale_a, scale_b, epilogue=added, residual=residual, out_dtype=torch.float32)
    assert [launch.grid[2] for launch in run.launches] == [8]
    assert torch.equal(got, exact(a, b, scale_a, scale_b).float() + residual)
    assert not run.hazards


@pytest.mark.integration
@pytest.mark.parametrize("k_major", [False, pytest.param(True, marks=DEEP)])
def test_scales_of_any_strides(k_major):
    (a, scale_a), (b, scale_b) = whole(20, 400, "1x128", 1), whole(144, 400, "128x128", 2)
    scale_a = scale_a.contiguous() if k_major else scale_a.mT.contiguous().mT
    padded = torch.full((4, 8), float("nan"))  # K's blocks filled up to a multiple of 4, as torch wants them
    padded[:, :2] = scale_b.t()
    with cutepy.simulate(sanitize=True):
        got = scaled_gemm(a, b, scale_a, padded.t()[:2], out_dtype=torch.float32)
    assert torch.equal(got, exact(a, b, scale_a, scale_b).float())


@pytest.mark.integration
def test_leading_dimensions_are_rows():
    x, weight = torch.randn(2, 3, 300), torch.randn(40, 300)
    (a, scale_a), (b, scale_b) = quantise(x), quantise(weight, (128, 128))
    got = scaled_gemm(a, b, scale_a, scale_b, bias=torch.arange(40.0))
    flat = scaled_gemm(a.view(6, 300), b, scale_a.reshape(6, 3), scale_b, bias=torch.arange(40.0))
    assert torch.equal(got, flat.view(2, 3, 40))
    with cutepy.simulate():
        launched = scaled_gemm(a, b, scale_a, scale_b, bias=torch.arange(40.0))
    torch.testing.assert_close(launched, got)
    one = scaled_gemm(a[0, 0], b, scale_a[0, 0], scale_b, bias=torch.arange(40.0))
    assert torch.equal(one, got[0, 0])


@pytest.mark.parametrize("dtype", [E4M3, pytest.param(E5M2, marks=DEEP)])
def test_8_bit_results_saturate_and_keep_nan(dtype):
    a, b = torch.eye(16, 128).to(E4M3), torch.zeros(16, 128)
    b[0, :6] = torch.tensor([448.0, -448.0, 1.0, 0.0, 2.0, 3.0])
    scale = torch.ones(16, 1)
    scale[1], scale[4], scale[5] = 1e6, float("nan"), float("inf")
    with cutepy.simulate():
        got = scaled_gemm(a, b.to(E4M3), scale, torch.full((), 256.0), out_dtype=dtype)
    on_cpu = scaled_gemm(a, b.to(E4M3), scale, torch.full((), 256.0), out_dtype=dtype)
    largest = torch.finfo(dtype).max
    expected = torch.tensor([min(448.0 * 256, largest), -largest, 256.0, 0.0, float("nan"), largest])
    torch.testing.assert_close(got[:6, 0].float(), expected, equal_nan=True, rtol=0, atol=0)
    torch.testing.assert_close(got.float(), on_cpu.float(), equal_nan=True, rtol=0, atol=0)


@pytest.mark.parametrize("kind", ["row", pytest.param("1x128", marks=INTEGRATION)])
def test_the_kernel_multiplies_by_scales_that_are_denormal(kind):
    chance = torch.Generator().manual_seed(0)
    x = torch.randn(16, 256, generator=chance) * 1e-38
    x[3] *= 1e-6  # whose largest over 448 is no float32
    (a, scale_a), (b, scale_b) = quantise(x, BLOCKS[kind]), operand(32, 256, "128x128", seed=1)
    assert 0 < scale_a.min() < 2.0**-140
    with cutepy.simulate():
        got = scaled_gemm(a, b, scale_a, 1e6 * scale_b, out_dtype=torch.float32)
    assert relative_error(got, exact(a, b, scale_a, 1e6 * scale_b)) < promoted_tolerance("float32")
    assert relative_error(got[3], exact(a, b, scale_a, 1e6 * scale_b)[3]) < 2.0**-7


def test_an_infinite_scale_makes_no_nan_of_what_lies_beyond_k():
    """With 128 of K more in a stage than there are, zeros are multiplied, whose scale is the last one's."""
    a, b = torch.ones(64, 384).to(E4M3), torch.ones(64, 384).to(E4M3)
    scale_a, scale_b = torch.ones(64, 3), torch.ones(1, 3)
    scale_a[5, 2] = float("inf")
    with cutepy.simulate():
        got = scaled_gemm(a, b, scale_a, scale_b)
    assert not got.isnan().any()
    assert got[5].isinf().all()
    assert not got[6].isinf().any()


@cutepy.epilogue
def gated(acc, bias: Row, residual: Tile):
    gate, up = acc.interleaved(2)
    y = silu(gate + bias) * up + residual
    return {"y": y.to(torch.float8_e4m3fn), "amax": amax(y)}


def test_an_epilogue_follows_the_scales():
    (a, scale_a), (b, scale_b) = operand(20, 256, "1x128"), operand(32, 256, "row", seed=1)
    operands = {"bias": torch.randn(16), "residual": torch.randn(20, 16).bfloat16()}
    with cutepy.simulate(sanitize=True) as run:
        got = scaled_gemm(a, b, scale_a, scale_b, epilogue=gated, **operands)
    assert not run.hazards
    expected = gated(exact(a, b, scale_a, scale_b).float(), **operands)
    torch.testing.assert_close(got["amax"], expected["amax"], rtol=1e-3, atol=0)
    torch.testing.assert_close(got["y"].float(), expected["y"].float(), rtol=2**-3, atol=2**-6)


@pytest.mark.integration
def test_compiled_code_and_exported_programs():
    (a, scale_a), (b, scale_b) = operand(16, 256, "1x128"), operand(32, 256, "128x128", seed=1)
    bias = torch.randn(32)

    class Model(torch.nn.Module):
        def forward(self, a, scale_a):
            return scaled_gemm(a, b, scale_a, scale_b, bias=bias)

    expected = Model()(a, scale_a)
    compiled = torch.compile(Model(), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(a, scale_a), expected)
    assert torch.equal(torch.export.export(Model(), (a, scale_a)).module()(a, scale_a), expected)


@cutepy.epilogue
def squared(acc, bias: Row):
    return (acc + bias) ** 2


def test_a_bias_has_a_gradient_and_8_bit_operands_have_none():
    (a, scale_a), (b, scale_b) = operand(16, 256, "1x128"), operand(32, 256, "row", seed=1)
    bias = torch.zeros(32, requires_grad=True)
    scaled_gemm(a, b, scale_a, scale_b, bias=bias, epilogue=squared, out_dtype=torch.float32).sum().backward()
    expected = 2 * exact(a, b, scale_a, scale_b).sum(0).float()
    torch.testing.assert_close(bias.grad, expected, rtol=1e-4, atol=1e-4 * expected.abs().max().item())
    with refuses(NotImplementedError):
        scaled_gemm(a, b, scale_a.clone().requires_grad_(), scale_b)


def test_empty_products():
    (a, scale_a), (b, scale_b) = operand(0, 256, "1x128"), operand(32, 256, "128x128", seed=1)
    assert scaled_gemm(a, b, scale_a, scale_b).shape == (0, 32)
    a, b = torch.zeros(4, 0).to(E4M3), torch.zeros(8, 0).to(E4M3)
    with cutepy.simulate() as run:
        got = scaled_gemm(a, b, torch.ones(4, 1), torch.ones(8, 1), bias=torch.arange(8.0))
    assert torch.equal(got, torch.arange(8.0).bfloat16().expand(4, 8))
    assert not run.launches


def test_torch_finds_nothing_amiss():
    (a, scale_a), (b, scale_b) = operand(16, 256, "1x128"), operand(32, 256, "128x128", seed=1)
    text = cutepy.epilogues.identity.text
    arguments = (a, b, [], [], "", text, torch.bfloat16, "row", scale_a, scale_b, [1, 128, 128, 128], True)
    tests = "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"  # that of schemas multiplies a
    torch.library.opcheck(torch.ops.cutepy.gemm.default, arguments, test_utils=tests)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"a": torch.ones(16, 256)}, TypeError),
        ({"scale_a": torch.ones(16, 2).half()}, TypeError),
        ({"scale_a": torch.ones(16, 3)}, ValueError),
        ({"scale_b": torch.ones(1, 32)}, ValueError),
        ({"b": torch.ones(32, 128).to(E4M3)}, ValueError),
        ({"use_fast_accum": True}, ValueError),
        ({"out_dtype": torch.int8}, TypeError),
        ({"epilogue": gated, "out_dtype": E4M3}, ValueError),
        ({"epilogue": lambda acc: acc}, TypeError),
        ({"shift": 1.0}, TypeError),
    ],
)
def test_what_does_not_fit_is_refused(change, error):
    (a, scale_a), (b, scale_b) = operand(16, 256, "1x128"), operand(32, 256, "128x128", seed=1)
    arguments = {"a": a, "b": b, "scale_a": scale_a, "scale_b": scale_b} | change
    with refuses(error):
        scaled_gemm(**arguments)


@pytest.mark.parametrize("kind", BLOCKS)
@pytest.mark.parametrize("dtype", [E4M3, E5M2])
def test_quantised_values_stand_for_what_they_were(kind, dtype):
    x = torch.randn(2, 200, 300)
    q, scale = quantise(x, BLOCKS[kind], dtype)
    assert q.dtype == dtype
    bits = 4 if dtype == E4M3 else 3
    largest = scale.amax() * torch.finfo(dtype).max
    error = (dequantise(q, scale) - x).abs()
    assert scale.stride(-1 if kind != "1x128" else -2) == 1 if scale.dim() else kind == "tensor"
    assert (error <= 2.0**-bits * x.abs() + largest * 2.0**-17).all()
    zero, one = quantise(torch.zeros(2, 4), BLOCKS[kind])
    assert (one == 1).all()
    assert (zero.float() == 0).all()


def test_quantise_refuses_what_it_cannot():
    with refuses(ValueError):
        quantise(torch.ones(4, 4), (2, 2))
    with refuses(TypeError):
        quantise(torch.ones(4, 4), (1, 128), torch.int16)
