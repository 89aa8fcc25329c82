"""`softmax` and `log_softmax` in the simulator, sanitized, against float64; and as operations of torch."""

import math

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

from hypothesis import given, settings, strategies as st  # noqa: E402

import cutepy  # noqa: E402
from cutepy.kernels.rows.compilation import check_rows  # noqa: E402
from cutepy.kernels.rows.plans import plan_sample, plan_topk  # noqa: E402
from cutepy.ops import log_softmax, softmax  # noqa: E402
from tests.ops.rows import BOUND, DTYPES, WIDTHS, check_close, cuda_autocast, rows  # noqa: E402

BOTH = {"softmax": (softmax, torch.softmax), "log_softmax": (log_softmax, torch.log_softmax)}


def check(name, x, dtype=None):
    """Compare the result and the gradient of rows with float64's."""
    function, reference = BOTH[name]
    x = x.detach().requires_grad_()
    wide = x.detach().double().requires_grad_()
    dy = rows(*x.shape, dtype or x.dtype, seed=1)
    with cutepy.simulate(sanitize=True) as run:
        y = function(x, dtype=dtype)
        y.backward(dy)
    assert not run.hazards
    want = reference(wide, -1)
    want.backward(dy.double())
    assert y.dtype == (dtype or x.dtype)
    check_close(y, want)
    check_close(x.grad, wide.grad, max((x.dtype, y.dtype), key=BOUND.get))


@pytest.mark.integration
@pytest.mark.first(5)
@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize(
    ("count", "columns", "dtype", "apart", "shift"),
    [
        pytest.param(5, 300, torch.bfloat16, 4, 0, id="several rows of a CTA"),
        pytest.param(3, 77, torch.float16, 1, 1, id="odd"),
        pytest.param(2, 5000, torch.float32, 0, 0, id="several warps"),
        pytest.param(1, 33000, torch.bfloat16, 0, 0, id="a cluster"),
    ],
)
def test_rows_and_their_gradients_are_those_of_float64(name, count, columns, dtype, apart, shift):
    check(name, rows(count, columns, dtype, apart=apart, shift=shift) * 4)


@pytest.mark.deep
@settings(max_examples=20, deadline=None)
@given(
    name=st.sampled_from(sorted(BOTH)),
    count=st.integers(1, 40),
    columns=WIDTHS,
    dtype=st.sampled_from(DTYPES),
    out=st.sampled_from([None, *DTYPES]),
    apart=st.sampled_from([0, 1, 4, 8]),
    shift=st.sampled_from([0, 1, 2, 8]),
)
def test_any_rows(name, count, columns, dtype, out, apart, shift):
    check(name, rows(count, columns, dtype, apart=apart, shift=shift), out)


@pytest.mark.integration
@pytest.mark.parametrize("name", BOTH)
def test_nan_infinities_and_large_numbers_are_as_torchs(name):
    function, reference = BOTH[name]
    inf, nan = math.inf, math.nan
    x = torch.tensor([[0, nan, 1], [inf, 0, 1], [-inf, 0, 1], [-inf, -inf, -inf], [3e38, 3e38, -3e38], [inf, inf, nan]])
    with cutepy.simulate(sanitize=True):
        y = function(x)
    torch.testing.assert_close(y, reference(x, -1), equal_nan=True)
    torch.testing.assert_close(function(x), reference(x, -1), equal_nan=True)


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (2, 0, 4)])
def test_without_elements_nothing_is_launched(name, shape):
    x = torch.ones(shape, requires_grad=True)
    with cutepy.simulate() as run:
        y = BOTH[name][0](x)
        y.sum().backward()
    assert y.shape == x.grad.shape == shape
    assert not run.launches


@pytest.mark.parametrize("name", BOTH)
def test_any_dimension_and_dtype_as_torch(name):
    function, reference = BOTH[name]
    x = rows(6, 20, torch.float32).view(2, 3, 20)
    for dim in (0, 1, 2, -2):
        torch.testing.assert_close(function(x, dim), reference(x, dim))
    for dim in (3, -4):
        with pytest.raises(IndexError):
            function(x, dim)
    assert function(x.bfloat16(), dtype=torch.float32).dtype == torch.float32
    torch.testing.assert_close(function(torch.tensor(3.0), 0), reference(torch.tensor(3.0), 0))
    torch.testing.assert_close(function(x.mT), reference(x.mT, -1))


@pytest.mark.integration
def test_a_row_has_the_same_bits_in_any_batch():
    x = rows(65, 16384, torch.bfloat16)
    with cutepy.simulate() as run:
        many, few, one = (softmax(each) for each in (x, x[:33], x[4:5]))
    assert torch.equal(many[:33], few)
    assert torch.equal(many[4:5], one)
    assert [launch.cluster[0] for launch in run.launches] == [1, 2, 4]


@pytest.mark.parametrize("name", BOTH)
def test_it_is_an_operation_of_torch(name):
    x = rows(4, 6, torch.float32).requires_grad_()
    torch.library.opcheck(torch.ops.cutepy.softmax.default, (x, name == "log_softmax", None))
    y = BOTH[name][0](x)
    given = (torch.ones_like(y), y.detach(), name == "log_softmax", torch.float32)
    torch.library.opcheck(torch.ops.cutepy.softmax_backward.default, given)
    mapped = torch.func.vmap(torch.func.grad(lambda row: BOTH[name][0](row).square().sum()))(x.detach())
    wide = x.detach().requires_grad_()
    BOTH[name][1](wide, -1).square().sum().backward()
    torch.testing.assert_close(mapped, wide.grad)


def test_what_it_does_not_take_is_refused():
    with refuses(TypeError):
        softmax(torch.ones(2, 3, dtype=torch.float64))
    with refuses(TypeError):
        log_softmax(torch.ones(2, 3), dtype=torch.int32)
    with refuses(ValueError):
        softmax(torch.empty(1, 2**18 + 1, device="meta"))
    with refuses(TypeError):
        softmax([1.0])


def test_more_rows_than_a_launch_has_indices_for_are_refused():
    for count in (0, 1, 2**30):
        check_rows(count)
    for count in (2**30 + 1, 2**31, 2**40):
        with refuses(ValueError):
            check_rows(count)


def test_parts_of_rows_that_a_launch_has_no_indices_for_are_refused():
    x = torch.zeros(1, 1).expand(2**28, 2**18)  # parted over 16 CTAs by topk, over 8 by sample
    one = torch.zeros(1, 1, dtype=torch.int64).expand(2**28, 1)
    with refuses(ValueError):
        plan_topk(x, x[:, :1], one, largest=True)
    with refuses(ValueError):
        plan_sample(x, None, one[:, 0], k=0, cuts=False, greedy=True)


@pytest.mark.parametrize("name", BOTH)
def test_autocast_gives_float32_on_the_gpu_as_torchs(name):
    function, _ = BOTH[name]
    reference = getattr(torch.nn.functional, name)
    with cuda_autocast():
        x = torch.empty(2, 8, device="cuda", dtype=torch.bfloat16)
        for dtype in (None, torch.float16):
            assert function(x, dtype=dtype).dtype == reference(x, -1, dtype=dtype).dtype == (dtype or torch.float32)
    x = torch.ones(2, 8, dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert function(x).dtype == reference(x, -1).dtype == torch.bfloat16
