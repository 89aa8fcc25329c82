"""`joined_linear`: products of one input side by side, of weights that adjoin in memory or do not."""

import pytest
from hypothesis import given, strategies as st

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

import cutepy  # noqa: E402
from cutepy.ops import batch_invariant, joined_linear  # noqa: E402
from cutepy.ops.joined_linears import adjoining  # noqa: E402

linear = torch.nn.functional.linear
SIZES = (24, 8, 16)


def made(adjoin=True, bias=False, rows=(2, 5), k=32, sizes=SIZES, dtype=torch.bfloat16, grad=True):
    """Make an input, weights and biases."""
    chance = torch.Generator().manual_seed(1)

    def parts(*rest):
        whole = torch.randn(sum(sizes), *rest, generator=chance).to(dtype)
        return [each.detach() if adjoin else each.clone() for each in whole.split([*sizes])]

    x = torch.randn(*rows, k, generator=chance).to(dtype)
    weights, biases = parts(k), parts() if bias else []
    for each in (x, *weights, *biases):
        each.requires_grad_(grad)
    return x, weights, biases


def apart(x, weights, biases):
    """Compute by torch, in the dtype that is given."""
    biases = biases or [None] * len(weights)
    return torch.cat([linear(x, *each) for each in zip(weights, biases, strict=True)], -1)


def step(function, x, weights, biases):
    """Give the result, and all gradients."""
    y = function(x, weights, biases)
    dy = torch.cos(torch.arange(y.numel())).view(y.shape).bfloat16().to(y.dtype)
    return [y.detach(), *torch.autograd.grad(y, [x, *weights, *biases], dy)]


def near(found, exact, roundings=1):
    """Compare bfloat16 with float64: each rounding to 8 bits is off by 2**-9 of the largest summands at most."""
    for ours, truth in zip(found, exact, strict=True):
        assert ours.shape == truth.shape
        assert (ours.double() - truth).abs().max() <= roundings * 2.0**-8 * truth.abs().max()


@pytest.mark.integration
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("adjoin", [False, True])
def test_launches_results_and_gradients(adjoin, bias):
    tensors = made(adjoin, bias)
    exact = step(apart, tensors[0].double(), *([each.double() for each in some] for some in tensors[1:]))
    with cutepy.simulate() as run:
        found = step(joined_linear, *tensors)
    assert len(run.launches) == (1 + 1 + 1 if adjoin else 3 + 3 + 1)  # forward, by x, by the weights
    near(found, exact, 1 if adjoin else 3)
    near(step(joined_linear, *tensors), exact, 1 if adjoin else 3)


@pytest.mark.integration
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
    st.integers(1, 20),
    st.lists(st.integers(0, 3), max_size=2),
    st.booleans(),
    st.booleans(),
)
def test_any_sizes(sizes, k, rows, adjoin, bias):
    tensors = made(adjoin, bias, rows, k, sizes)
    exact = step(apart, tensors[0].double(), *([each.double() for each in some] for some in tensors[1:]))
    found = step(joined_linear, *tensors)
    for ours, truth in zip(found, exact, strict=True):
        assert ours.shape == truth.shape
        torch.testing.assert_close(ours.double(), truth, rtol=2**-6, atol=2**-4)


def test_gradients_of_some_weights_are_computed_for_these():
    x, weights, _ = made()
    weights[1].requires_grad_(False)
    y = joined_linear(x, weights)
    assert y.grad_fn.saved_tensors[0] is not None
    found = torch.autograd.grad(y.sum(), [x, weights[0], weights[2]])
    wanted = torch.autograd.grad(apart(x, weights, []).sum(), [x, weights[0], weights[2]])
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2**-6, atol=2**-6)
    x, weights, _ = made(grad=False)
    weights[0].requires_grad_()
    joined_linear(x, weights).sum().backward()
    assert weights[0].grad.shape == weights[0].shape


def test_weights_that_are_parted_after_the_forward_pass_have_their_gradients():
    x, weights, _ = made()
    want = torch.autograd.grad(joined_linear(x, weights).sum(), [x, *weights])
    y = joined_linear(x, weights)
    for each in weights:
        each.data = each.data.clone()
    for ours, theirs in zip(torch.autograd.grad(y.sum(), [x, *weights]), want, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2**-6, atol=2**-5)


def test_second_derivatives():
    x, weights, biases = made(dtype=torch.float32, bias=True, rows=(2,), k=8, sizes=(3, 2))
    torch.set_float32_matmul_precision("high")
    found = []
    try:
        for function in (joined_linear, apart):
            y = function(x, weights, biases).pow(2).sum()
            first = torch.autograd.grad(y, [x, *weights], create_graph=True)
            found.append(torch.autograd.grad(sum(each.square().sum() for each in first), [x, *weights, *biases]))
    finally:
        torch.set_float32_matmul_precision("highest")
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-3)


def test_views_are_found_to_adjoin():
    whole = torch.arange(24.0).view(6, 4)
    parts = whole.split((3, 1, 2))
    assert adjoining(parts).data_ptr() == whole.data_ptr()
    assert torch.equal(adjoining(parts), whole)
    assert torch.equal(adjoining(parts[1:]), whole[3:])
    assert torch.equal(adjoining([each.flatten() for each in parts]), whole.flatten())
    for other in (
        (parts[1], parts[0]),
        (parts[0], parts[2]),
        (parts[0], parts[0]),
        (parts[0], parts[1].clone()),
        (parts[0], whole.view(torch.int32)[3:4]),
        (whole[:, :2], whole[:, 2:]),
        (parts[0], parts[1]._neg_view()),
        (parts[0], whole.view(12, 2)[6:]),
    ):
        assert adjoining(other) is None


@pytest.mark.integration
@pytest.mark.parametrize("adjoin", [False, True])
def test_opcheck(adjoin):
    x, weights, biases = made(adjoin, bias=True)
    torch.library.opcheck(torch.ops.cutepy.joined_linear.default, (x, weights, biases))
    torch.library.opcheck(
        torch.ops.cutepy.joined_linear_gradient.default, (joined_linear(x, weights).detach(), weights)
    )


@pytest.mark.integration
def test_traced_and_mapped_and_cast():
    x, weights, biases = made(bias=True)
    eager = step(joined_linear, x, weights, biases)
    compiled = torch.compile(joined_linear, backend="aot_eager", fullgraph=True)
    for ours, theirs in zip(step(compiled, x, weights, biases), eager, strict=True):
        assert torch.equal(ours, theirs)
    mapped = torch.vmap(lambda x: joined_linear(x, weights, biases))(x)
    assert torch.equal(mapped, eager[0])
    wide = [x.detach().float(), [each.detach().float() for each in weights], [each.detach().float() for each in biases]]
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(joined_linear(*wide), eager[0])


@pytest.mark.integration
def test_within_batch_invariant_rows_have_the_bits_of_products_apart():
    x, weights, _ = made(grad=False)
    with cutepy.simulate(), batch_invariant():
        assert torch.equal(joined_linear(x, weights), torch.cat([cutepy.ops.gemm(x, each) for each in weights], -1))


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda x, w, b: (x, [], b), ValueError),
        (lambda x, w, b: (x, w, b[:1]), ValueError),
        (lambda x, w, b: (x.double(), w, b), TypeError),
        (lambda x, w, b: (x, [w[0], w[1][:, :8]], []), ValueError),
        (lambda x, w, b: (x, w, [b[0], b[1], b[1]]), ValueError),
        (lambda x, w, b: (x, [w[0].half(), *w[1:]], []), TypeError),
        (lambda x, w, b: (x, w, [b[0], b[1], b[2].half()]), TypeError),
    ],
)
def test_refusals(change, error):
    with refuses(error):
        joined_linear(*change(*made(bias=True, grad=False)))
