"""`cross_entropy` in the simulator, sanitized, against float64; in place of the logits; and as operations of torch."""

import math

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

from hypothesis import given, settings, strategies as st  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import cutepy  # noqa: E402
from cutepy.ops import batch_invariant, cross_entropy, linear_cross_entropy  # noqa: E402
from tests.ops.rows import DTYPES, WIDTHS, check_close, cuda_autocast, rows  # noqa: E402

FLOAT = torch.float32


def labels_of(count, classes, seed=0, dtype=torch.int64):
    """Draw labels, every fourth of which doesn't count."""
    labels = torch.randint(classes, (count,), generator=torch.Generator().manual_seed(seed)).to(dtype)
    labels[3::4] = -100
    return labels


def expected(x, labels, weight, reduction, label_smoothing, z_loss):
    """Compute the loss in float64."""
    wide = None if weight is None else weight.double()
    options = {"label_smoothing": label_smoothing, "reduction": reduction}
    loss = torch.nn.functional.cross_entropy(x, labels.long(), wide, **options)
    counts = labels != -100
    z = z_loss * x.logsumexp(1).square().masked_fill(~counts, 0)
    if reduction == "none":
        return loss + z
    counted = counts.sum() if weight is None else wide[labels.long()[counts]].sum()
    return loss + z.sum() / (counted if reduction == "mean" else 1)


def check(logits, labels, weight=None, *, reduction="mean", label_smoothing=0.0, z_loss=0.0, inplace=False):
    """Compare the loss, and the gradient, with float64's, of a kernel and of plain torch."""
    options = {"reduction": reduction, "label_smoothing": label_smoothing, "z_loss": z_loss}
    wide = logits.double().requires_grad_()
    want = expected(wide, labels, weight, **options)
    dloss = torch.randn(want.shape, generator=torch.Generator().manual_seed(0)) if reduction == "none" else 1.0
    (want * dloss).sum().backward()
    for simulates in (False, True):
        store = torch.full((logits.shape[0], logits.stride(0)), 7.0, dtype=logits.dtype)
        x = (store[:, : logits.shape[1]].copy_(logits) if inplace else logits.detach()).requires_grad_()
        context = cutepy.simulate(sanitize=True) if simulates else batch_invariant()
        with context as run:
            loss = cross_entropy(x, labels, weight, inplace_backward=inplace, out_dtype=FLOAT, **options)
            (loss * dloss).sum().backward()
        if simulates:
            assert not run.hazards
        check_close(loss, want)
        check_close(x.grad, wide.grad)
        assert (x.grad[labels == -100] == 0).all()
        if inplace:
            assert torch.equal(x.detach(), x.grad)
            assert (store[:, logits.shape[1] :] == 7).all()


@pytest.mark.integration
@pytest.mark.first(5)
@pytest.mark.parametrize("inplace", [False, True], ids=["new", "in place"])
@pytest.mark.parametrize(
    ("count", "classes", "dtype", "apart", "options"),
    [
        pytest.param(5, 300, torch.bfloat16, 4, {}, id="several rows of a CTA"),
        pytest.param(4, 77, torch.float16, 1, {"label_smoothing": 0.1, "z_loss": 1e-2}, id="odd, smoothed"),
        pytest.param(700, 3, FLOAT, 0, {}, id="more rows than threads that sum them"),
        pytest.param(2, 5000, FLOAT, 0, {"reduction": "none", "z_loss": 0.1}, id="several warps"),
        pytest.param(2, 33000, torch.bfloat16, 0, {"reduction": "sum", "label_smoothing": 0.3}, id="a cluster"),
    ],
)
def test_losses_and_gradients_are_those_of_float64(count, classes, dtype, apart, options, inplace):
    logits = rows(count, classes, dtype, apart=apart) * 3
    weight = None if "z_loss" in options else rows(1, classes, FLOAT, seed=2)[0].abs()
    check(rows(count, classes, dtype, apart=apart), labels_of(count, classes), weight, inplace=inplace, **options)
    check(logits, labels_of(count, classes, dtype=torch.int32), weight, inplace=inplace, **options)


@pytest.mark.deep
@settings(max_examples=20, deadline=None)
@given(
    count=st.integers(1, 20),
    classes=WIDTHS,
    dtype=st.sampled_from(DTYPES),
    apart=st.sampled_from([0, 1, 8]),
    weighs=st.booleans(),
    smoothing=st.sampled_from([0.0, 0.1, 1.0]),
    z_loss=st.sampled_from([0.0, 0.01]),
    reduction=st.sampled_from(["none", "sum", "mean"]),
    inplace=st.booleans(),
)
def test_any_rows(count, classes, dtype, apart, weighs, smoothing, z_loss, reduction, inplace):
    weight = rows(1, classes, FLOAT, seed=2)[0].abs() + 0.1 if weighs else None
    options = {"reduction": reduction, "label_smoothing": smoothing, "z_loss": z_loss, "inplace": inplace}
    check(rows(count, classes, dtype, apart=apart), labels_of(count, classes), weight, **options)


@pytest.mark.integration
@pytest.mark.parametrize("simulates", [False, True], ids=["torch", "kernel"])
def test_nan_infinities_and_labels_that_are_no_class(simulates):
    inf, nan = math.inf, math.nan
    x = torch.tensor([[0, nan], [inf, 0], [-inf, 0], [-inf, -inf], [0, 1], [0, 1], [nan, inf], [-inf, 0], [3e38, 0]])
    labels = torch.tensor([0, 0, 0, 0, 2, -1, -100, 1, 0])
    x.requires_grad_()
    with cutepy.simulate(sanitize=True) if simulates else batch_invariant():
        loss = cross_entropy(x, labels, reduction="none")
        loss.sum().backward()
    want = torch.tensor([nan, nan, inf, nan, nan, nan, 0, 0, 0])
    assert torch.equal(loss.detach().nan_to_num(nan=5.0), want.nan_to_num(nan=5.0))
    wide = x.detach()[[0, 1, 2, 3, 7, 8]].requires_grad_()
    torch.nn.functional.cross_entropy(wide, labels[[0, 1, 2, 3, 7, 8]], reduction="sum").backward()
    torch.testing.assert_close(x.grad[[0, 1, 2, 3, 7, 8]], wide.grad, equal_nan=True)
    assert x.grad[[4, 5]].isnan().all()
    assert (x.grad[6] == 0).all()


def test_shapes_and_reductions_as_torch():
    reference = torch.nn.functional.cross_entropy
    for shape, labels in (((5,), ()), ((4, 5), (4,)), ((2, 5, 3), (2, 3)), ((2, 5, 3, 2), (2, 3, 2)), ((0, 5), (0,))):
        x, target = rows(1, math.prod(shape), FLOAT).reshape(shape), torch.ones(labels, dtype=torch.int64)
        for reduction in ("none", "sum", "mean"):
            for weight in (None, torch.arange(5.0)):
                want = reference(x, target, weight, reduction=reduction)
                torch.testing.assert_close(cross_entropy(x, target, weight, reduction=reduction), want, equal_nan=True)
    x, target = rows(4, 5, torch.bfloat16), torch.full((4,), 3)
    assert cross_entropy(x, target).dtype == torch.bfloat16
    assert cross_entropy(x, target, ignore_index=3).isnan()
    wide = rows(5, 4, FLOAT).mT.requires_grad_()  # classes that are not contiguous are copied
    cross_entropy(wide, target, inplace_backward=True).backward()
    assert torch.equal(wide.detach(), rows(5, 4, FLOAT).mT)
    with cutepy.simulate() as run:
        empty = torch.ones(0, 5, requires_grad=True)
        cross_entropy(empty, target[:0], reduction="sum").backward()
    assert empty.grad.shape == (0, 5)
    assert not run.launches


def test_a_gradient_that_takes_the_logits_place_is_computed_once():
    x = rows(4, 8, FLOAT).requires_grad_()
    logits = x * 1
    loss = cross_entropy(logits, labels_of(4, 8), inplace_backward=True)
    loss.backward(retain_graph=True)
    first = x.grad.clone()
    assert torch.equal(logits.detach(), first)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    again = x.detach().requires_grad_()
    cross_entropy(again, labels_of(4, 8)).backward()
    assert torch.equal(first, again.grad)


@pytest.mark.parametrize("simulates", [False, True])
def test_logits_that_share_memory_keep_it(simulates):
    one, labels = rows(1, 8, FLOAT), labels_of(3, 8)
    found, wanted = one.clone().requires_grad_(), one.clone().requires_grad_()
    logits = (found * 1).expand(3, 8)
    with cutepy.simulate() if simulates else batch_invariant():
        cross_entropy(logits, labels, inplace_backward=True).backward()
    torch.nn.functional.cross_entropy(wanted.expand(3, 8), labels).backward()
    torch.testing.assert_close(found.grad, wanted.grad)
    assert torch.equal(logits.detach(), one.expand(3, 8))


def test_autocast_gives_float32_as_torchs():
    reference = torch.nn.functional
    for device, on in (("cpu", torch.autocast("cpu", torch.bfloat16)), ("cuda", cuda_autocast())):
        with on:
            x, labels = (torch.ones(2, 8, device=device, dtype=torch.bfloat16), torch.ones(2, device=device).long())
            given = torch.ones(5, 8, device=device, dtype=torch.bfloat16)
            for reduction in ("mean", "none"):
                found = cross_entropy(x, labels, reduction=reduction)
                assert found.dtype == reference.cross_entropy(x, labels, reduction=reduction).dtype == FLOAT
            found = linear_cross_entropy(x, given, labels)
            assert found.dtype == reference.linear_cross_entropy(x, given, labels).dtype == FLOAT
            assert cross_entropy(x, labels, out_dtype=torch.float16).dtype == torch.float16


def test_no_zeros_are_made_for_what_has_no_gradient():
    class Calls(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), options=None):
            seen.append(str(function))
            return function(*arguments, **options or {})

    x, seen = rows(4, 8, FLOAT).requires_grad_(), []
    for reduction in ("none", "mean"):
        loss = cross_entropy(x, labels_of(4, 8), reduction=reduction).sum()
        with Calls():
            loss.backward()
    assert "cutepy.cross_entropy_backward.default" in seen
    assert not [each for each in seen if "zeros" in each]


class Undefined(torch.autograd.Function):
    """The same, without a gradient."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return None


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_an_undefined_gradient_is_handed_on(reduction):
    x, labels = rows(4, 8, torch.bfloat16).requires_grad_(), labels_of(4, 8)
    matrix = torch.randn(8, 8).bfloat16().requires_grad_()
    for loss in (
        cross_entropy(x, labels, reduction=reduction),
        linear_cross_entropy(x, matrix, labels, reduction=reduction),
    ):
        Undefined.apply(loss).sum().backward()
    assert all(each.grad is None or not each.grad.any() for each in (x, matrix))


@pytest.mark.integration
def test_it_compiles_and_maps_as_operations_of_torch():
    x, labels, weight = rows(4, 6, FLOAT).requires_grad_(), labels_of(4, 6), torch.rand(6)
    options = (-100, 0.1, 0.01)
    torch.library.opcheck(torch.ops.cutepy.cross_entropy.default, (x, labels, weight, *options, False))
    loss, lse = torch.ops.cutepy.cross_entropy(x.detach(), labels, weight, *options, False)
    given = (torch.ones_like(loss), x.detach().clone(), labels, weight, lse, *options)
    torch.library.opcheck(torch.ops.cutepy.cross_entropy_backward.default, given)
    torch.library.opcheck(torch.ops.cutepy.cross_entropy_backward_.default, given)
    gradient = torch.func.grad(lambda row, label: cross_entropy(row, label))
    mapped = torch.func.vmap(gradient)(x.detach(), labels.abs() % 6)
    wide = x.detach().requires_grad_()
    torch.nn.functional.cross_entropy(wide, labels.abs() % 6, reduction="sum").backward()
    torch.testing.assert_close(mapped, wide.grad)

    def whole(x):
        return cross_entropy(x * 2, labels, weight, inplace_backward=True)

    (eager,) = torch.autograd.grad(whole(x), x)
    (compiled,) = torch.autograd.grad(torch.compile(whole, backend="aot_eager", fullgraph=True)(x), x)
    assert torch.equal(eager, compiled)


def test_what_it_does_not_take_is_refused():
    x, labels = torch.ones(2, 3), torch.zeros(2, dtype=torch.int64)
    for bad in (
        {"target": labels[:1]},
        {"input": torch.tensor(1.0)},
        {"weight": torch.ones(2)},
        {"reduction": "batchmean"},
        {"label_smoothing": 1.5},
        {"z_loss": -1.0},
        {"ignore_index": 2**31},
        {"input": torch.ones(2, 0)},
    ):
        with refuses(ValueError):
            cross_entropy(**{"input": x, "target": labels, **bad})
    for bad in ({"target": labels.float()}, {"input": x.double()}, {"weight": torch.ones(3, dtype=torch.int32)}):
        with refuses(TypeError):
            cross_entropy(**{"input": x, "target": labels, **bad})
