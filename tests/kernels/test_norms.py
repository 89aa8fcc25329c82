"""Normalisations in the simulator: results and gradients against float64, sanitized and certified."""

import math

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

from hypothesis import given, settings, strategies as st  # noqa: E402

import cutepy  # noqa: E402
from cutepy.kernels.rows.compilation import as_rows, elems_of  # noqa: E402
from cutepy.kernels.rows.norm_plans import compile_norm, compile_norm_backward  # noqa: E402
from cutepy.kernels.rows.tiling import (  # noqa: E402
    NORM,
    NORM_GRADIENT,
    SOFTMAX,
    SOFTMAX_GRADIENT,
    NormConfig,
    RowTiling,
    staged_bytes,
    tile_rows,
)
from cutepy.ops import batch_invariant, layer_norm, rms_norm  # noqa: E402

pytestmark = pytest.mark.usefixtures("complete_launches")

F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32
ROUNDOFF = {F16: 2.0**-11, BF16: 2.0**-8, F32: 2.0**-20}
"""Of a result's dtype; of float32 that of sums of some thousands in an order of their own."""


def drawn(*shape, dtype=BF16):
    return torch.randn(*shape, dtype=F32).to(dtype)


def apart(found, wanted, least=1e-9):
    """Return the norm of the difference, relative to that of what is wanted, or to the least."""
    return float((found.double() - wanted.double()).norm() / max(float(wanted.double().norm()), least))


def expected(x, weight, bias, residual, eps, centres):
    """Compute a norm and the sum with a residual."""
    total = x if residual is None else x + residual
    normal = total - total.mean(-1, keepdim=True) if centres else total
    normal = normal / (normal.square().mean(-1, keepdim=True) + eps).sqrt()
    normal = normal if weight is None else normal * weight
    return normal if bias is None else normal + bias, total


def check(x, weight=None, bias=None, residual=None, *, centres=False, gradients=True, out_dtype=None, policy="late"):
    """Compare with float64 in the simulator, sanitized; also the gradients, of the sum too. Return the run."""
    eps, tensors = 1e-5, (x, weight, bias, residual)
    wide = [None if each is None else each.double().requires_grad_() for each in tensors]
    wanted, total = expected(*wide, eps, centres)
    leaves = [None if each is None else each.detach().requires_grad_(gradients) for each in tensors]
    with cutepy.simulate(sanitize=True, policy=policy) as run:
        given = {"residual": leaves[3], "out_dtype": out_dtype}
        shape = x.shape[-1:]
        if centres:
            found = layer_norm(leaves[0], shape, leaves[1], leaves[2], eps, **given)
        else:
            found = rms_norm(leaves[0], shape, leaves[1], eps, **given)
        found = (found,) if residual is None else found
        grads = [torch.randn_like(each) for each in found]
        if gradients:
            own = torch.autograd.grad(found, [each for each in leaves if each is not None], grads)
    assert not run.hazards
    assert not run.advisories
    assert all(certificate.is_certified for certificate in run.certificates), run.report()
    assert found[0].dtype == (out_dtype or x.dtype)
    for each, want in zip(found, (wanted, total), strict=False):
        assert apart(each.detach(), want.detach()) < ROUNDOFF[each.dtype]
    if gradients:
        theirs = torch.autograd.grad(
            (wanted, total)[: len(found)],
            [each for each in wide if each is not None],
            [each.double() for each in grads],
        )
        # In rows of one or two elements all terms but a rest cancel out, whose sums are not exact.
        least = float(grads[0].norm() * 1000) if x.shape[-1] < 3 else 0.0
        for grad, want, leaf in zip(own, theirs, [each for each in leaves if each is not None], strict=True):
            assert grad.dtype == leaf.dtype
            loosest = max(ROUNDOFF[leaf.dtype], ROUNDOFF[x.dtype] if residual is not None else 0)
            assert apart(grad, want, least) < 2 * loosest
    return run


@pytest.mark.first(4)
@pytest.mark.parametrize(
    ("shape", "dtype", "centres"),
    [
        ((3, 5, 96), BF16, False),
        ((2, 1000), F16, True),
        ((4, 7), F32, True),
        ((2, 4096), BF16, True),
        ((5,), F32, False),
        ((3, 1), F32, False),
        ((40, 33), F16, False),
        ((2, 1, 3, 2048), BF16, False),
        ((2, 9001), BF16, True),
        ((2, 16384), F16, False),
    ],
)
def test_norms_and_gradients_are_those_of_float64(shape, dtype, centres):
    torch.manual_seed(0)
    columns = shape[-1]
    bias = drawn(columns, dtype=dtype) if centres else None
    check(drawn(*shape, dtype=dtype), drawn(columns, dtype=dtype), bias, centres=centres)
    residual = drawn(*shape, dtype=dtype)
    run = check(drawn(*shape, dtype=dtype), drawn(columns, dtype=dtype), bias, residual, centres=centres)
    assert len(run.launches) == 2 + 1 + centres  # the norm, its gradients, and a sum for the weight and the bias


def test_a_cta_sums_the_gradients_of_many_rows(monkeypatch):
    """Rows come through two stages in turn."""
    monkeypatch.setattr("cutepy.kernels.rows.norm_plans.groups_of_sums", lambda rows, tiling, gpu: 1)
    torch.manual_seed(0)
    check(drawn(7, 2048), drawn(2048))


@pytest.mark.first(2)
@pytest.mark.parametrize(
    ("dtype", "of_weight", "of_residual", "out_dtype"),
    [(BF16, F32, F32, None), (F32, BF16, F16, BF16), (F16, BF16, BF16, F32), (BF16, F32, None, F32)],
)
def test_dtypes_may_differ(dtype, of_weight, of_residual, out_dtype):
    torch.manual_seed(1)
    x, weight, bias = drawn(3, 264, dtype=dtype), drawn(264, dtype=of_weight), drawn(264, dtype=dtype)
    residual = None if of_residual is None else drawn(3, 264, dtype=of_residual)
    check(x, weight, bias, residual, centres=True, out_dtype=out_dtype)


@pytest.mark.first(3)
@pytest.mark.parametrize(
    "view",
    [
        pytest.param(lambda x: x[:, 3:103], id="columns within"),
        pytest.param(lambda x: x[::2, :96], id="rows apart"),
        pytest.param(lambda x: x[:, ::2], id="columns apart"),
        pytest.param(lambda x: x.t(), id="transposed"),
        pytest.param(lambda x: x.view(2, 3, -1).transpose(0, 1), id="rows of two strides"),
        pytest.param(lambda x: x[:1].expand(4, -1), id="one row"),
        pytest.param(lambda x: x[:, 5:6], id="one column"),
    ],
)
def test_rows_of_any_strides(view):
    torch.manual_seed(2)
    x = view(drawn(6, 208))
    # Rows without variance have gradients that a rounded sum with a residual spoils.
    residual = view(drawn(6, 208)) if x.shape[-1] > 1 else None
    check(x, drawn(x.shape[-1] * 2)[::2], drawn(x.shape[-1]), residual, centres=True)


@pytest.mark.parametrize("numbers", [(3, 32, 1, 1), (8, 0, 1, 1), (8, 32, 1, 2)])
def test_tilings_that_are_refused(numbers):
    with refuses(ValueError):
        RowTiling(*numbers)


@pytest.mark.deep
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_any_extents_dtypes_and_operands(data):
    torch.manual_seed(data.draw(st.integers(0, 99)))
    columns = data.draw(st.one_of(st.integers(1, 300), st.integers(1, 6000)))
    leading = data.draw(st.lists(st.integers(1, 4), min_size=0, max_size=2))
    dtypes = st.sampled_from([F16, BF16, F32])
    centres = data.draw(st.booleans())
    columns = max(columns, 16) if centres else columns  # fewer may have hardly any variance

    def maybe(*shape):
        return drawn(*shape, dtype=data.draw(dtypes)) if data.draw(st.booleans()) else None

    room = data.draw(st.integers(0, 9))
    x = drawn(*leading, columns + room, dtype=data.draw(dtypes))[..., :columns]
    check(
        x,
        maybe(columns),
        maybe(columns) if centres else None,
        maybe(*leading, columns),
        centres=centres,
        out_dtype=data.draw(st.none() | dtypes),
        policy=data.draw(st.sampled_from(["late", "youngest", "schedule:1"])),
    )


def launch(tiling, centres, x, weight, dy):
    """Launch the kernels of a tiling: the norm, the gradient of x, and that of the weight by groups of rows."""
    rows, columns = x.shape
    config = NormConfig(tiling, centres)
    forward = compile_norm(config, tiling.elems, x=x, residual=None, weight=weight, bias=None, y=x, total=None)
    backward = compile_norm_backward(config, (True, False), dy=dy, dtotal=None, x=x, weight=weight, dx=x)
    y, dx, factors = torch.empty_like(x), torch.empty_like(x), torch.empty(rows)
    means, sums = torch.empty(rows) if centres else None, torch.empty(2, columns)
    forward(x, None, weight, None, y, None, factors, means, None, None, None, 1e-5)
    backward(dy, None, x, weight, factors, means, dx, sums, None, 2)
    return y, dx, sums.sum(0)


@pytest.mark.first(1)
@pytest.mark.parametrize("centres", [True, False])
@pytest.mark.parametrize(
    ("tiling", "columns"),
    [(RowTiling(8, 64, 1, 2), 1000), (RowTiling(4, 64, 2, 4), 1500), (RowTiling(1, 128, 4, 2), 1023)],
)
def test_rows_that_a_cluster_parts(tiling, columns, centres):
    torch.manual_seed(3)
    x, dy, weight = drawn(3, columns), drawn(3, columns), drawn(columns, dtype=F32)
    wide = [each.double().requires_grad_() for each in (x, weight)]
    wanted, _ = expected(*wide, None, None, 1e-5, centres)
    theirs = torch.autograd.grad(wanted, wide, dy.double())
    with cutepy.simulate(sanitize=True) as run:
        found = launch(tiling, centres, x, weight, dy)
    assert not run.hazards
    for each, want in zip(found, (wanted.detach(), *theirs), strict=True):
        assert apart(each, want) < ROUNDOFF[BF16]


E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def check_quantised(function, x, *vectors, residual=None, scale, dtype=E4M3):
    """Compare with the norm in fp32, quantised by torch, in the simulator, sanitized: at most a step apart."""
    columns, limit = x.shape[-1:], torch.finfo(dtype).max
    wanted = function(x, columns, *vectors, residual=residual, out_dtype=dtype, scale=scale)
    with cutepy.simulate(sanitize=True) as run:
        found = function(x, columns, *vectors, residual=residual, out_dtype=dtype, scale=scale)
    assert not run.hazards
    assert not run.advisories
    assert all(certificate.is_certified for certificate in run.certificates), run.report()
    assert len(run.launches) == 1
    found, wanted = ((each,) if isinstance(each, torch.Tensor) else each for each in (found, wanted))
    assert len(found) == len(wanted) == 1 + isinstance(scale, tuple) + (residual is not None)
    for own, other in zip(found, wanted, strict=True):
        assert own.stride() == other.stride()
        assert own.dtype == other.dtype
        step = 2.0 * torch.finfo(dtype).eps if own.dtype == dtype else 2.0**-20 if own.dtype == F32 else 2.0**-7
        torch.testing.assert_close(own.float(), other.float(), rtol=step, atol=limit * 2.0**-20, equal_nan=True)
        assert (own.float() != other.float()).logical_and(
            ~own.float().isnan()
        ).float().mean() < 0.02 or own.dtype == F32


@pytest.mark.first(4)
@pytest.mark.parametrize(
    ("shape", "dtype", "scale", "out_dtype"),
    [
        ((3, 200), BF16, (1, 128), E4M3),
        ((2, 4096), BF16, (1, 128), E4M3),
        ((2, 2, 1024), F32, (1, 0), E5M2),
        ((4, 7), F16, (1, 128), E4M3),
        ((3, 130), BF16, 0.02, E4M3),
        ((2, 999), F32, (1, 128), E5M2),
        ((1, 12288), BF16, (1, 0), E4M3),
        ((5, 1), BF16, (1, 128), E4M3),
        ((5, 3), F32, (1, 0), E4M3),
    ],
)
def test_norms_of_8_bits_with_scales(shape, dtype, scale, out_dtype):
    torch.manual_seed(6)
    scale = torch.tensor(scale) if isinstance(scale, float) else scale
    x, vectors = drawn(*shape, dtype=dtype), [drawn(shape[-1], dtype=dtype) for _ in range(2)]
    check_quantised(rms_norm, x, vectors[0], residual=drawn(*shape, dtype=dtype), scale=scale, dtype=out_dtype)
    check_quantised(layer_norm, x, *vectors, scale=scale, dtype=out_dtype)


@pytest.mark.parametrize("scale", [(1, 0), (1, 128)])
def test_scales_of_rows_that_are_not_finite_or_zero(scale):
    x, weight = drawn(5, 200, dtype=F32), torch.ones(200)
    x[0, 3], x[1], x[2] = math.nan, 0.0, 1e-30
    weight[150] = math.nan
    check_quantised(rms_norm, x, weight, scale=scale)
    check_quantised(rms_norm, x[2:], torch.full((200,), 1e-38), scale=scale)
    with cutepy.simulate():
        y, scales = rms_norm(torch.zeros(1, 200), (200,), out_dtype=E4M3, scale=scale)
    assert (scales == 1).all()
    assert not y.float().any()


def check_amax(function, x, *vectors, eps=0.0, residual=None, dtype=E4M3, policy="late"):
    """Compare the largest magnitude with torch's, in the simulator, sanitized; and all else with the call without."""
    total = x if residual is None else x + residual
    wanted = function(total.float(), x.shape[-1:], *(each.float() for each in vectors), eps=eps).abs()
    given = {"residual": residual, "out_dtype": dtype, "scale": torch.tensor(0.02), "eps": eps}
    with cutepy.simulate():
        without = function(x, x.shape[-1:], *vectors, **given)
    with cutepy.simulate(sanitize=True, policy=policy) as run:
        y, amax, *rest = function(x, x.shape[-1:], *vectors, return_amax=True, **given)
    assert not run.hazards
    assert not run.advisories
    assert all(certificate.is_certified for certificate in run.certificates), run.report()
    assert amax.shape == ()
    most = wanted.amax() if wanted.numel() else torch.zeros(())
    torch.testing.assert_close(amax, most, rtol=ROUNDOFF[F32] if residual is None else 2.0**-7, atol=0, equal_nan=True)
    for one, other in zip((y, *rest), without if isinstance(without, tuple) else (without,), strict=True):
        assert torch.equal(one.view(torch.uint8), other.view(torch.uint8))
    return amax, run


@pytest.mark.first(4)
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((3, 200), BF16),
        ((2, 3, 7), F32),
        ((1, 16384), BF16),
        ((33, 99), F16),
        ((2, 4096), BF16),
        ((5, 1), F32),
        ((2, 9001), F32),
        ((130, 40), BF16),
    ],
)
def test_the_largest_magnitude_of_a_norm_of_8_bits(shape, dtype):
    """Rows beyond the last have no part in it: with eps of 0 they are NaN."""
    torch.manual_seed(7)
    x, vectors = drawn(*shape, dtype=dtype), [drawn(shape[-1], dtype=dtype) for _ in range(2)]
    check_amax(rms_norm, x, vectors[0])
    check_amax(layer_norm, x, *vectors, eps=1e-5, residual=drawn(*shape, dtype=dtype), dtype=E5M2)
    far = torch.zeros(shape[-1], dtype=dtype), torch.full(shape[-1:], -3.0, dtype=dtype)
    assert check_amax(layer_norm, x, *far, eps=1e-5)[0] == 3


def test_the_largest_magnitude_is_nan_infinite_or_zero_as_torchs():
    x, weight = drawn(5, 200, dtype=F32), torch.ones(200)
    x[3, 7] = math.nan
    assert check_amax(rms_norm, x, weight)[0].isnan()
    assert check_amax(rms_norm, x[:3], -weight)[0].isfinite()
    weight[199] = -math.inf
    assert check_amax(rms_norm, x[:3], weight)[0] == math.inf
    weight[0] = -math.nan
    assert check_amax(rms_norm, x[:3], weight)[0].isnan()
    # Squares of 1e-30 are zero: a column beyond the last is 0 * inf, which has no part in it.
    assert check_amax(rms_norm, torch.full((2, 200), 1e-30))[0] == math.inf
    assert check_amax(layer_norm, torch.zeros(2, 40), eps=1e-5)[0] == 0
    for shape in ((0, 8), (3, 0), (0,)):
        amax, run = check_amax(rms_norm, torch.empty(shape), eps=1e-5)
        assert amax == 0
        assert not run.launches


def test_the_largest_magnitude_has_the_same_bits_in_any_order():
    x, weight = drawn(300, 96), drawn(96)
    found = [check_amax(rms_norm, x, weight, policy=policy)[0] for policy in ("late", "youngest", "schedule:1")]
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


@pytest.mark.deep
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_norms_of_8_bits_of_any_extents(data):
    torch.manual_seed(data.draw(st.integers(0, 99)))
    columns = data.draw(st.one_of(st.integers(1, 300), st.integers(1, 5000)))
    x = drawn(data.draw(st.integers(1, 5)), columns + data.draw(st.integers(0, 9)))[:, :columns]
    scale = data.draw(st.sampled_from([(1, 0), (1, 128), 0.03]))
    scale = torch.tensor(scale) if isinstance(scale, float) else scale
    residual = drawn(*x.shape) if data.draw(st.booleans()) else None
    dtype = data.draw(st.sampled_from([E4M3, E5M2]))
    check_quantised(layer_norm, x, drawn(columns), drawn(columns), residual=residual, scale=scale, dtype=dtype)
    check_amax(layer_norm, x, drawn(columns), drawn(columns), eps=1e-5, dtype=dtype)


def test_nan_and_infinity_are_as_torchs():
    x = drawn(4, 40, dtype=F32)
    x[0, 3], x[1, 5], x[2] = math.nan, math.inf, 0.0
    weight, bias = drawn(40, dtype=F32), drawn(40, dtype=F32)
    with cutepy.simulate():
        found = rms_norm(x, (40,), weight), layer_norm(x, (40,), weight, bias)
    wanted = (
        torch.nn.functional.rms_norm(x, (40,), weight),
        torch.nn.functional.layer_norm(x, (40,), weight, bias),
    )
    for each, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(each, want, equal_nan=True)


@pytest.mark.parametrize("shape", [(0, 8), (3, 0), (0,), (2, 0, 8)])
def test_tensors_without_elements(shape):
    with cutepy.simulate() as run:
        y, scales = rms_norm(torch.randn(shape), shape[-1:], out_dtype=E4M3, scale=(1, 128))
        assert y.shape == shape
        assert scales.shape == (*shape[:-1], 1)
    assert not run.launches
    x = torch.randn(shape, requires_grad=True)
    weight, bias = (torch.randn(shape[-1], requires_grad=True) for _ in range(2))
    with cutepy.simulate() as run:
        y, total = layer_norm(x, shape[-1:], weight, bias, residual=x)
        (y.sum() + total.sum()).backward()
    assert y.shape == total.shape == x.grad.shape == shape
    assert not weight.grad.any()
    assert not bias.grad.any()
    assert not run.launches


def test_a_row_has_the_same_bits_alone_and_from_run_to_run():
    torch.manual_seed(4)
    x, weight = drawn(9, 1500), drawn(1500)
    with cutepy.simulate(), batch_invariant():
        among, alone = layer_norm(x, (1500,), weight), layer_norm(x[4:5], (1500,), weight)
    assert torch.equal(among[4:5], alone)
    leaf = weight.requires_grad_()
    found = []
    for policy in ("late", "schedule:1"):
        with cutepy.simulate(policy=policy):
            found.append(torch.autograd.grad(rms_norm(x, (1500,), leaf), leaf, x)[0])
    assert torch.equal(*found)


def test_a_norm_waits_for_the_one_before_it():
    x = drawn(3, 96)
    with cutepy.simulate(sanitize=True) as run:
        y = rms_norm(rms_norm(x, (96,)), (96,), out_dtype=E4M3, scale=(1, 0))
    assert not run.hazards
    assert y[0].shape == x.shape


def test_vmap_folds_examples_into_rows():
    torch.manual_seed(5)
    x, residual, weight = drawn(3, 2, 64), drawn(2, 3, 64), drawn(64)
    with cutepy.simulate() as run:
        found = torch.vmap(lambda a, b: rms_norm(a, (64,), weight, residual=b), in_dims=(0, 1))(x, residual)
    assert len(run.launches) == 1
    wanted = rms_norm(x, (64,), weight, residual=residual.transpose(0, 1))
    for each, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(each, want)


def test_a_launch_is_planned_once():
    x, weight = drawn(4, 64), drawn(64).requires_grad_()
    with cutepy.simulate():
        torch.autograd.grad(rms_norm(x, (64,), weight), weight, x)
        from cutepy.kernels.rows import norm_plans

        def refuse(*_, **__):
            raise AssertionError("a launch is planned again")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(norm_plans, "tile_rows", refuse)
            torch.autograd.grad(rms_norm(x.clone(), (64,), weight), weight, x)


def test_vectors_are_as_wide_as_all_rows_allow():
    x = torch.empty(4, 72, dtype=BF16)
    assert elems_of(x, torch.empty(72)) == 8
    assert elems_of(x[:, 1:]) == 1
    assert elems_of(x[:, 2:66]) == 2
    assert elems_of(torch.empty(1, 100, dtype=BF16)) == elems_of(torch.empty(5, 100, dtype=BF16)) == 4
    assert elems_of(torch.empty(4, 72), x) == 4


def test_rows_are_views_where_their_columns_are_contiguous():
    x = torch.empty(4, 6, 10)
    assert as_rows(x).data_ptr() == x.data_ptr()
    assert as_rows(x[:, 1:, :7]).is_contiguous()
    assert as_rows(x[:, 1, :7]).stride() == (60, 1)


@settings(max_examples=200)
@given(
    st.integers(1, 262144),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([NORM, NORM_GRADIENT, SOFTMAX, SOFTMAX_GRADIENT]),
    st.sampled_from([(2,), (4,), (2, 4), (2, 2, 2, 2)]),
)
def test_every_row_fits_into_its_tiling(columns, elems, fit, sizes):
    staged = staged_bytes(columns, elems, *sizes)
    tiling = tile_rows(columns, elems, fit, staged)
    assert tiling.columns >= columns
    assert tiling.columns < 2 * columns + tiling.elems * tiling.threads * tiling.ctas
    assert tiling.cta <= 1024
    assert tiling.summed <= 8192
    names = {f"m{n}": (8 * size, 1) for n, size in enumerate(sizes)} if staged else {}
    assert tiling.plan(**names).fits
