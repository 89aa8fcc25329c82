"""`swiglu` and `geglu` in the simulator, sanitized, against float64; and as operations of torch."""

import math

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

from hypothesis import given, settings, strategies as st  # noqa: E402
from torch.nn.functional import gelu, silu  # noqa: E402

import cutepy  # noqa: E402
from cutepy.ops import batch_invariant, geglu, swiglu  # noqa: E402
from tests.ops.rows import DTYPES, WIDTHS, check_close, rows  # noqa: E402


def approximated(gate, up=None):
    return geglu(gate, up, approximate="tanh")


FUNCTIONS = {
    "swiglu": (swiglu, silu),
    "geglu": (geglu, gelu),
    "approximated": (approximated, lambda x: gelu(x, approximate="tanh")),
}


def check(name, x, ways):
    """Compare results and gradients of halves of rows with float64's, of the kernel and of plain torch."""
    function, reference = FUNCTIONS[name]
    wide = x.double().requires_grad_()
    gate, up = wide.chunk(2, -1)
    want = reference(gate) * up
    dy = rows(*want.shape, x.dtype, seed=1)
    want.backward(dy.double())
    for simulates in (False, True):
        own = x.detach().requires_grad_()
        halves = {"one": (own,), "views": own.chunk(2, -1), "two": [each.clone() for each in own.chunk(2, -1)]}[ways]
        with cutepy.simulate(sanitize=True) if simulates else batch_invariant() as run:
            y = function(*halves)
            y.backward(dy)
        if simulates:
            assert not run.hazards
        assert y.is_contiguous()
        check_close(y, want)
        check_close(own.grad, wide.grad)


@pytest.mark.integration
@pytest.mark.first(6)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(
    ("count", "columns", "dtype", "apart", "ways"),
    [
        pytest.param(5, 320, torch.bfloat16, 8, "one", id="halves"),
        pytest.param(3, 77, torch.float16, 1, "views", id="odd"),
        pytest.param(2, 5000, torch.float32, 0, "two", id="several CTAs"),
    ],
)
def test_results_and_gradients_are_those_of_float64(name, count, columns, dtype, apart, ways):
    check(name, rows(count, 2 * columns, dtype, apart=apart) * 3, ways)


@pytest.mark.deep
@settings(max_examples=20, deadline=None)
@given(
    name=st.sampled_from(sorted(FUNCTIONS)),
    count=st.integers(1, 20),
    columns=WIDTHS,
    dtype=st.sampled_from(DTYPES),
    apart=st.sampled_from([0, 1, 8]),
    shift=st.sampled_from([0, 1, 8]),
    ways=st.sampled_from(["one", "views", "two"]),
)
def test_any_rows(name, count, columns, dtype, apart, shift, ways):
    check(name, rows(count, 2 * columns, dtype, apart=apart, shift=shift), ways)


@pytest.mark.integration
@pytest.mark.parametrize("name", FUNCTIONS)
def test_nan_infinities_and_large_numbers_are_as_torchs(name):
    function, reference = FUNCTIONS[name]
    special = torch.tensor([math.inf, -math.inf, math.nan, 0.0, -0.0, 1e4, -1e4, 60.0, -60.0, 20.0, -20.0, 1e-30])
    gate, up = special[:, None].expand(-1, 12).contiguous(), special.expand(12, -1).contiguous()
    plain = [gate.double().requires_grad_(), up.double().requires_grad_()]  # of float32, torch's gelu of inf is NaN
    want = reference(plain[0]) * plain[1]
    want.sum().backward()
    own = [gate.clone().requires_grad_(), up.clone().requires_grad_()]
    with cutepy.simulate(sanitize=True):
        y = function(*own)
        y.sum().backward()
    torch.testing.assert_close(y, want.float(), equal_nan=True)
    # A slope that is 0 in float32 is none in float64, and makes a product with inf NaN.
    for one, other in zip(own, plain, strict=True):
        torch.testing.assert_close(one.grad[2:, 2:], other.grad[2:, 2:].float(), equal_nan=True)


@pytest.mark.parametrize("shape", [(0, 6), (3, 0), (2, 0, 4)])
def test_without_elements_nothing_is_launched(shape):
    x = torch.ones(shape, requires_grad=True)
    with cutepy.simulate() as run:
        swiglu(x).sum().backward()
        assert geglu(x, x).shape == shape
    assert x.grad.shape == shape
    assert not run.launches


def test_it_is_an_operation_of_torch():
    x = rows(4, 12, torch.float32).requires_grad_()
    for given_up in (None, rows(4, 12, torch.float32, seed=3).requires_grad_()):
        for activation in ("silu", "gelu", "gelu_tanh"):
            torch.library.opcheck(torch.ops.cutepy.gated.default, (x, given_up, activation))
            y = torch.ops.cutepy.gated(x, given_up, activation).detach()
            up = None if given_up is None else given_up.detach()
            torch.library.opcheck(torch.ops.cutepy.gated_backward.default, (y, x.detach(), up, activation))
    mapped = torch.func.vmap(torch.func.grad(lambda row: swiglu(row).square().sum()))(x.detach())
    (want,) = torch.autograd.grad(swiglu(x).square().sum(), x)
    torch.testing.assert_close(mapped, want)


def test_what_it_does_not_take_is_refused():
    x = torch.ones(2, 4)
    for call in (
        lambda: swiglu(torch.ones(2, 5)),
        lambda: swiglu(x, x[:, :2]),
        lambda: swiglu(x, x.bfloat16()),
        lambda: swiglu(torch.tensor(1.0)),
        lambda: geglu(x, x, "sigmoid"),
        lambda: geglu(torch.empty(1, 2**18 + 1, device="meta"), torch.empty(1, 2**18 + 1, device="meta")),
    ):
        with refuses(ValueError):
            call()
    for call in (lambda: swiglu(x.double()), lambda: swiglu([1.0])):
        with refuses(TypeError):
            call()


@pytest.mark.parametrize("shape", [(8,), (3, 8), (2, 3, 8)])
def test_halves_of_rows_of_any_dimensions(shape):
    x = torch.randn(shape)
    gate, up = x.chunk(2, -1)
    for result in (swiglu(x), swiglu(gate, up), swiglu(x.to("meta")).new_empty(0)):
        assert result.numel() == 0 or torch.allclose(result, silu(gate) * up, atol=1e-5)
    assert swiglu(x.to("meta")).shape == gate.shape
