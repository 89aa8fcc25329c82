"""`quantise` and `dequantise` over floats of all magnitudes: the format's bound, denormal scales, inf and NaN."""

import math

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")

from hypothesis import example, given, strategies as st  # noqa: E402

from cutepy.ops import dequantise, quantise  # noqa: E402

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
BLOCKS = {"tensor": (0, 0), "row": (1, 0), "1x128": (1, 128), "128x128": (128, 128)}
LARGEST = torch.finfo(torch.float32).max
INF, NAN = math.inf, math.nan

ROUNDOFF = {E4M3: (2.0**-4, 2.0**-10), E5M2: (2.0**-3, 2.0**-17)}
"""Half of the last bit, relative to the number, and half of the smallest denormal: 2**-9 and 2**-16."""
MAGNITUDES = st.tuples(st.floats(-1, 1, width=32), st.integers(-149, 127))


def spread(scale, kind, shape):
    """Give each element the scale of its block."""
    if kind == "tensor":
        return scale.expand(shape)
    if kind == "row":
        return scale.expand(shape)
    rows = 128 if kind == "128x128" else 1
    return scale.repeat_interleave(rows, 0)[: shape[0]].repeat_interleave(128, 1)[:, : shape[1]]


def check_bound(x, kind, dtype):
    q, scale = quantise(x, BLOCKS[kind], dtype)
    assert scale.dtype == torch.float32
    assert (scale > 0).all()
    assert scale.isfinite().all()
    relative, smallest = ROUNDOFF[dtype]
    error = (dequantise(q, scale, torch.float64) - x.double()).abs()
    bound = relative * x.double().abs() + smallest * spread(scale.double(), kind, x.shape)
    assert (error <= bound * (1 + 2.0**-20)).all()  # x / scale is rounded in float32
    # No scale is larger than it must be, but for a rounding and a step of denormals; that of a block of zeros is 1.
    needed = x.double().abs().amax() / torch.finfo(dtype).max
    assert ((scale == 1) | (scale <= needed * (1 + 2.0**-22) + 2.0**-148)).all()
    assert dequantise(q, scale).isfinite().all()


@pytest.mark.parametrize("kind", BLOCKS)
@pytest.mark.parametrize("dtype", [E4M3, E5M2])
@pytest.mark.parametrize("value", [1e-44, 2e-43, 3.2e-43, 1e-42, 6e-40, 5e-36, 2.0**-149, 2.0**-126, LARGEST])
def test_a_single_number_of_any_magnitude_is_found_again(kind, dtype, value):
    x = torch.zeros(3, 200)
    x[1, 130] = value
    q, scale = quantise(x, BLOCKS[kind], dtype)
    found = dequantise(q, scale, torch.float64)
    assert found[1, 130].item() == pytest.approx(x[1, 130].item(), rel=2.0**-3)
    found[1, 130] = 0
    assert (found == 0).all()


@given(st.sampled_from(sorted(BLOCKS)), st.sampled_from((E4M3, E5M2)), st.lists(MAGNITUDES, min_size=1, max_size=40))
@example("tensor", E4M3, [(1.0, -148)])
@example("row", E5M2, [(1.0, 127), (1.0, -149)])
def test_finite_floats_are_within_the_bound_of_the_format(kind, dtype, numbers):
    values = [math.ldexp(fraction, exponent) for fraction, exponent in numbers]
    x = torch.tensor(values, dtype=torch.float64).float().reshape(1, -1).repeat(2, 4)
    check_bound(x, kind, dtype)


@pytest.mark.parametrize("kind", BLOCKS)
@pytest.mark.parametrize("dtype", [E4M3, E5M2])
def test_blocks_of_any_magnitude_are_within_the_bound(kind, dtype):
    chance = torch.Generator().manual_seed(0)
    x = torch.rand(130, 132, generator=chance, dtype=torch.float64) * 2 - 1
    for exponent in (*range(-149, -124, 4), *range(-124, 128, 36), 127):
        check_bound((x * 2.0**exponent).float(), kind, dtype)


@pytest.mark.parametrize("kind", BLOCKS)
@pytest.mark.parametrize("given_in", [torch.float16, torch.bfloat16])
def test_numbers_of_16_bits_come_back_in_their_dtype(kind, given_in):
    """Scales lie far below float16's range, in which nothing is computed."""
    chance = torch.Generator().manual_seed(0)
    x = (torch.randn(4, 256, generator=chance) * 2.0**-17).to(given_in)
    q, scale = quantise(x, BLOCKS[kind])
    back = dequantise(q, scale, given_in)
    assert back.dtype == given_in
    assert torch.equal(back, dequantise(q, scale, torch.float64).float().to(given_in))
    largest = torch.full((1, 128), torch.finfo(given_in).max, dtype=given_in)
    assert torch.equal(dequantise(*quantise(largest, BLOCKS[kind]), given_in), largest)


@pytest.mark.parametrize("kind", BLOCKS)
@pytest.mark.parametrize("dtype", [E4M3, E5M2])
def test_inf_and_nan_leave_the_numbers_beside_them(kind, dtype):
    x = torch.full((2, 256), 3.0)
    x[0, :3] = torch.tensor([INF, -INF, NAN])
    q, scale = quantise(x, BLOCKS[kind], dtype)
    assert (scale * torch.finfo(dtype).max == 3).all()
    found = dequantise(q, scale)
    expected = x.clone()
    if dtype == E4M3:  # has no infinity
        expected[0, :2] = NAN
    torch.testing.assert_close(found, expected, equal_nan=True, rtol=1e-6, atol=0)


@pytest.mark.parametrize("kind", BLOCKS)
@pytest.mark.parametrize("nothing", [0.0, -0.0, INF, NAN])
def test_a_block_without_a_finite_number_has_scale_1(kind, nothing):
    q, scale = quantise(torch.full((2, 128), nothing), BLOCKS[kind], E5M2)
    assert (scale == 1).all()
    torch.testing.assert_close(q.float(), torch.full((2, 128), nothing), equal_nan=True)


def test_a_float64_beyond_float32_counts_as_inf():
    q, scale = quantise(torch.tensor([[1e300, 2.0, 1e-300]], dtype=torch.float64))
    assert scale.item() == pytest.approx(2 / 448)
    assert dequantise(q, scale)[0, 1:].tolist() == [2.0, 0.0]
    assert q.float()[0, 0].isnan()


def test_flushed_denormals_make_no_nan():
    if not torch.set_flush_denormal(True):
        pytest.skip("needs a processor that flushes denormals")
    try:
        for value in (1e-44, 1e-40, 1e-37, 1e-36):
            x = torch.zeros(1, 128)
            x[0, 0] = value
            for dtype in (E4M3, E5M2):
                q, scale = quantise(x, (1, 128), dtype)
                assert q.float().isfinite().all()
                assert scale.item() >= 2.0**-126
    finally:
        torch.set_flush_denormal(False)


def test_what_is_no_tensor_or_block_is_refused():
    x = torch.ones(2, 4)
    for call in (lambda: quantise([1.0]), lambda: dequantise([1.0], x), lambda: dequantise(x, 2)):
        with refuses(TypeError):
            call()
    for block in ((1.0, 128), (True, 0)):
        with refuses(ValueError):
            quantise(x, block)
