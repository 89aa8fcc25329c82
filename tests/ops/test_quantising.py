"""`quantise` and `dequantise` over floats of all magnitudes: the format's bound, denormal scales, inf and NaN."""

import math

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")

from hypothesis import example, given, settings, strategies as st  # noqa: E402

import cutepy  # noqa: E402
from cutepy.ops import dequantise, quantise  # noqa: E402
from cutepy.ops.quantising import by_torch  # noqa: E402
from tests.ops.rows import DTYPES, WIDTHS, rows  # noqa: E402

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


def equal_bits(found, wanted):
    # NaN has two signs, which nobody asks for.
    found, wanted = (each.float().masked_fill(each.float().isnan(), 1000).view(torch.int32) for each in (found, wanted))
    return torch.equal(found, wanted)


def check_kernel(x, block, dtype):
    """Compare the kernel with plain torch, bit by bit."""
    with cutepy.simulate(sanitize=True) as run:
        q, scale = quantise(x, block, dtype)
    want, want_scale = by_torch(x, block, dtype)
    assert not run.hazards
    assert all(each.is_certified for each in run.certificates)
    assert len(run.launches) == (1 if block[0] else 2)
    assert equal_bits(q, want)
    assert torch.equal(scale, want_scale)
    assert scale.stride() == want_scale.stride()


@pytest.mark.integration
@pytest.mark.first(2)
@pytest.mark.parametrize("dtype", [E4M3, torch.int8])
@pytest.mark.parametrize(
    ("kind", "shape", "given_in"),
    [
        ("row", (2, 3, 300), torch.bfloat16),
        ("1x128", (5, 1000), torch.float16),
        ("tensor", (3, 77), torch.float32),
        ("row", (1, 33000), torch.bfloat16),
    ],
)
def test_the_kernel_computes_the_same_bits(kind, shape, given_in, dtype):
    x = rows(math.prod(shape[:-1]), shape[-1], torch.float32).clone()
    x[-1, :5] = torch.tensor([INF, -INF, NAN, 1e-42, 3e38])
    x[0] *= 2.0**-140
    check_kernel(x.to(given_in).view(shape), BLOCKS[kind], dtype)


@pytest.mark.deep
@settings(max_examples=20, deadline=None)
@given(
    kind=st.sampled_from(["tensor", "row", "1x128"]),
    count=st.integers(1, 40),
    columns=WIDTHS,
    given_in=st.sampled_from(DTYPES),
    dtype=st.sampled_from([E4M3, torch.int8]),
    apart=st.sampled_from([0, 1, 4, 8]),
    shift=st.sampled_from([0, 1, 8]),
)
def test_any_rows(kind, count, columns, given_in, dtype, apart, shift):
    check_kernel(rows(count, columns, given_in, apart=apart, shift=shift), BLOCKS[kind], dtype)


@pytest.mark.parametrize("kind", BLOCKS)
def test_integers_are_within_half_a_scale(kind):
    x = rows(130, 132, torch.float32)
    q, scale = quantise(x, BLOCKS[kind], torch.int8)
    assert q.dtype == torch.int8
    assert int(q.abs().max()) == 127
    error = (dequantise(q, scale) - x).abs()
    assert (error <= spread(scale, kind, x.shape) * (0.5 + 2.0**-16)).all()
    nothing, _ = quantise(torch.tensor([[INF, -INF, NAN, 2.0]]), (1, 0), torch.int8)
    assert nothing.tolist() == [[127, -127, 0, 127]]


@pytest.mark.integration
@pytest.mark.parametrize("block", [(0, 0), (1, 0), (1, 128)])
def test_it_is_an_operation_of_torch(block):
    x = rows(6, 200, torch.float32).reshape(2, 3, 200)
    torch.library.opcheck(torch.ops.cutepy.quantise.default, (x, *block, E4M3))
    torch.library.opcheck(torch.ops.cutepy.quantise.default, (x[0], *block, torch.int8))
    torch.compiler.reset()  # a block of another case would be taken for extents that change
    compiled = torch.compile(lambda x: quantise(x * 2, block), backend="aot_eager", fullgraph=True)(x)
    for found, wanted in zip(compiled, quantise(x * 2, block), strict=True):
        assert equal_bits(found.contiguous(), wanted.contiguous())
    mapped = torch.func.vmap(lambda x: quantise(x, block))(x)
    for n in range(2):
        for found, wanted in zip(mapped, quantise(x[n], block), strict=True):
            assert equal_bits(found[n].contiguous(), wanted.contiguous())


def test_gradients_pass_through_plain_torch():
    x = rows(2, 8, torch.float32).clone().requires_grad_()
    assert quantise(x)[1].requires_grad


@pytest.mark.parametrize("kind", ["tensor", "row", "1x128"])
@pytest.mark.parametrize("dtype", [E4M3, E5M2, torch.int8])
def test_a_row_without_a_matrix_has_the_scales_of_one_row(kind, dtype):
    x, block = rows(1, 300, torch.float32)[0], BLOCKS[kind]
    of_row, of_matrix = (quantise(each, block, dtype) for each in (x, x[None]))
    assert of_row[1].shape == (() if kind == "tensor" else of_matrix[1].shape[1:])
    assert torch.equal(of_row[1], of_matrix[1] if kind == "tensor" else of_matrix[1][0])
    assert torch.equal(of_row[0].view(torch.int8), of_matrix[0][0].view(torch.int8))
    assert torch.equal(dequantise(*of_row), dequantise(*of_matrix)[0])
    if dtype != E5M2:
        assert quantise(x.to("meta"), block, dtype)[1].shape == of_row[1].shape
        with cutepy.simulate():
            simulated = quantise(x, block, dtype)
        assert torch.equal(simulated[1], of_row[1])
