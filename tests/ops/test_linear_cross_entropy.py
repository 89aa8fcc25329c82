"""`linear_cross_entropy` in the simulator, sanitized, against float64; its memory; and as operations of torch."""

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

from hypothesis import given, settings, strategies as st  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import cutepy  # noqa: E402
from cutepy.ops import batch_invariant, linear_cross_entropy  # noqa: E402
from cutepy.ops.linear_cross_entropies import _linear_cross_entropy, rows_of_chunk  # noqa: E402
from tests.ops.rows import check_close, rows  # noqa: E402
from tests.ops.test_cross_entropy import expected, labels_of  # noqa: E402

BF16, FLOAT = torch.bfloat16, torch.float32


def tensors(count, features, classes, dtype, *, has_bias=False, weighs=False):
    """Draw input, linear_weight, labels, linear_bias and weight."""
    x, matrix = rows(count, features, dtype), (rows(classes, features, FLOAT, seed=1) / features**0.5).to(dtype)
    bias = rows(1, classes, dtype, seed=2)[0].clone() if has_bias else None
    weight = rows(1, classes, FLOAT, seed=3)[0].abs() + 0.1 if weighs else None
    return x, matrix, labels_of(count, classes), bias, weight


def own(tensor):
    return None if tensor is None else tensor.detach().clone().requires_grad_()


def check(count, features, classes, dtype, *, has_bias=False, weighs=False, chunk_rows=None, frozen=(), **options):
    """Compare the loss and the gradients with float64's, of kernels and of plain torch."""
    x, matrix, labels, bias, weight = tensors(count, features, classes, dtype, has_bias=has_bias, weighs=weighs)
    chunks = -(-count // (chunk_rows or rows_of_chunk(count, features)))
    chosen = {"reduction": "mean", "label_smoothing": 0.0, "z_loss": 0.0} | options
    wide = [None if each is None else each.double().requires_grad_() for each in (x, matrix, bias)]
    logits = torch.nn.functional.linear(*wide)
    logits = logits + (logits.to(dtype).double() - logits).detach()  # logits are rounded
    want = expected(logits, labels, weight, **chosen)
    dloss = torch.randn(want.shape, generator=torch.Generator().manual_seed(0)) if want.dim() else torch.tensor(3.0)
    (want * dloss).sum().backward()
    for context in (cutepy.simulate(sanitize=True), batch_invariant()):
        given = [own(each) for each in (x, matrix, bias)]
        for n in frozen:
            given[n].requires_grad_(False)
        with context as run:
            loss = linear_cross_entropy(
                *given[:2],
                labels,
                linear_bias=given[2],
                weight=weight,
                chunk_rows=chunk_rows,
                out_dtype=FLOAT,
                **chosen,
            )
            (loss * dloss).sum().backward()
        assert run is None or not run.hazards
        check_close(loss, want, dtype)
        for n, (each, exact) in enumerate(zip(given, wide, strict=True)):
            if n in frozen:
                assert each.grad is None
            elif each is not None:
                check_close(each.grad, exact.grad, roundings=chunks if n == 1 else 1)


@pytest.mark.integration
@pytest.mark.first(4)
@pytest.mark.parametrize(
    ("shape", "dtype", "options"),
    [
        pytest.param((20, 64, 72), BF16, {"chunk_rows": 8}, id="chunks"),
        pytest.param((9, 32, 50), torch.float16, {"has_bias": True, "label_smoothing": 0.1, "z_loss": 1e-2}, id="odd"),
        pytest.param((12, 24, 40), BF16, {"reduction": "none", "weighs": True, "chunk_rows": 8}, id="none"),
        pytest.param((12, 24, 40), BF16, {"reduction": "sum", "frozen": (1,)}, id="frozen"),
    ],
)
def test_losses_and_gradients_are_those_of_float64(shape, dtype, options):
    check(*shape, dtype, **options)


@pytest.mark.deep
@settings(max_examples=3, deadline=None)
@given(
    count=st.integers(1, 70),
    features=st.sampled_from([8, 16, 24, 64, 100]),
    classes=st.integers(1, 300),
    dtype=st.sampled_from([torch.float16, BF16]),
    has_bias=st.booleans(),
    weighs=st.booleans(),
    smoothing=st.sampled_from([0.0, 0.1]),
    z_loss=st.sampled_from([0.0, 0.01]),
    reduction=st.sampled_from(["none", "sum", "mean"]),
    chunk_rows=st.sampled_from([None, 1, 8, 32]),
)
def test_any_extents(count, features, classes, dtype, has_bias, weighs, smoothing, z_loss, reduction, chunk_rows):
    options = {"reduction": reduction, "label_smoothing": smoothing, "z_loss": z_loss, "chunk_rows": chunk_rows}
    check(count, features, classes, dtype, has_bias=has_bias, weighs=weighs, **options)


class Allocated(TorchDispatchMode):
    """Counts the bytes of all tensors that are made, as if none were freed."""

    def __init__(self):
        super().__init__()
        self.storages = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        results = func(*args, **(kwargs or {}))
        for each in (results,) if isinstance(results, torch.Tensor) else results or ():
            storage = each.untyped_storage()
            self.storages[storage.data_ptr()] = storage
        return results

    def bytes_but(self, *tensors):
        known = {each.untyped_storage().data_ptr() for each in tensors}
        return sum(each.nbytes() for place, each in self.storages.items() if place not in known)


@pytest.mark.integration
@pytest.mark.dsl
def test_it_takes_no_more_memory_than_gradients_and_the_logits_of_a_chunk():
    count, features, classes = 256, 64, 1000
    x, matrix, labels, _, _ = tensors(count, features, classes, BF16)
    chunk = 16
    options = (-100, 0.0, 0.0, chunk, None, True, True, False, True)
    with Allocated() as made, cutepy.simulate():
        total, dx, dmatrix, _ = _linear_cross_entropy.kernel(x, matrix, labels, None, None, *options)
    whole = 2 * (dx.numel() + dmatrix.numel() + chunk * classes)
    assert made.bytes_but(x, matrix, labels) <= whole + 64 * count
    assert total.isfinite()


def test_the_backward_pass_gives_what_the_forward_pass_computed():
    x, matrix, labels, _, _ = tensors(8, 16, 12, BF16)
    given, kept = (own(x), own(matrix)), []
    with torch.autograd.graph.saved_tensors_hooks(lambda each: kept.append(each.data_ptr()) or each, lambda each: each):
        loss = linear_cross_entropy(*given, labels)
    loss.backward()
    assert {each.grad.data_ptr() for each in given} <= set(kept)


def test_gradients_are_scaled_in_place_once():
    x, matrix, labels, _, _ = tensors(8, 16, 12, BF16)
    given = own(x), own(matrix)
    loss = linear_cross_entropy(*given, labels)
    loss.backward(retain_graph=True)
    first = [each.grad.clone() for each in given]
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    again = own(x), own(matrix)
    loss = linear_cross_entropy(*again, labels, inplace_backward=False)
    loss.backward(retain_graph=True)
    loss.backward()
    for each, one in zip(again, first, strict=True):
        assert torch.equal(each.grad, 2 * one)
    with torch.no_grad():
        assert torch.equal(linear_cross_entropy(*given, labels), loss)


@pytest.mark.integration
def test_shapes_and_reductions_as_torch():
    reference = torch.nn.functional.cross_entropy
    for shape in ((), (4,), (2, 3), (0,)):
        x, target = (
            rows(1, 8 * 12, BF16).reshape(12, 8)[: torch.Size(shape).numel()].reshape(*shape, 8),
            torch.ones(shape),
        )
        matrix, target = rows(5, 8, BF16), target.long()
        logits = (x.float() @ matrix.float().t()).bfloat16().reshape(-1, 5)
        for reduction in ("none", "sum", "mean"):
            for weight in (None, torch.arange(5.0)):
                want = reference(logits.float(), target.reshape(-1), weight, reduction=reduction)
                found = linear_cross_entropy(x, matrix, target, weight=weight, reduction=reduction, out_dtype=FLOAT)
                torch.testing.assert_close(found, want.reshape(found.shape), equal_nan=True)
    assert linear_cross_entropy(x, matrix, target).dtype == BF16
    x = rows(2, 8, BF16).clone().requires_grad_()
    loss = linear_cross_entropy(x, matrix, torch.tensor([3, 3]), ignore_index=3)
    loss.backward()
    assert loss.isnan()
    assert (x.grad == 0).all()


@pytest.mark.integration
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_it_compiles_and_maps_as_operations_of_torch(reduction):
    x, matrix, labels, bias, _ = tensors(6, 16, 10, BF16, has_bias=True)
    given = own(x), own(matrix), own(bias)
    options = (-100, 0.1, 0.01, 4)
    torch.library.opcheck(
        torch.ops.cutepy.linear_cross_entropy.default,
        (given[0], given[1], labels, given[2], None, *options, None, True, True, True, False),
    )
    torch.library.opcheck(torch.ops.cutepy.linear_losses.default, (*given[:2], labels, given[2], None, *options))

    def loss(x, matrix, bias):
        return linear_cross_entropy(x, matrix, labels, linear_bias=bias, reduction=reduction).sum()

    eager = torch.autograd.grad(loss(*given), given)
    compiled = torch.autograd.grad(torch.compile(loss, backend="aot_eager", fullgraph=True)(*given), given)
    transformed = torch.func.grad(loss, argnums=(0, 1, 2))(x, matrix, bias)
    for want, *found in zip(eager, compiled, transformed, strict=True):
        assert all(torch.equal(want, each) for each in found)

    def of_row(row, label):
        return linear_cross_entropy(row, matrix, label, reduction="sum")

    mapped = torch.func.vmap(torch.func.grad(of_row))(x, labels.abs() % 10)
    x = own(x)
    linear_cross_entropy(x, matrix, labels.abs() % 10, reduction="sum").backward()
    torch.testing.assert_close(mapped, x.grad, atol=2**-7, rtol=2**-7)


@pytest.mark.integration
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_one_program_is_for_any_number_of_rows(reduction):
    from torch._dynamo.testing import CompileCounterWithBackend

    counter = CompileCounterWithBackend("aot_eager")

    def loss(x, matrix, labels):
        return linear_cross_entropy(x, matrix, labels, reduction=reduction).sum()

    torch._dynamo.reset()
    compiled, counts = torch.compile(loss, backend=counter, fullgraph=True, dynamic=True), set()
    for count in (6, 9, 300):
        x, matrix, labels, _, _ = tensors(count, 16, 10, BF16)
        torch.testing.assert_close(compiled(x, matrix, labels), loss(x, matrix, labels))
        counts.add(counter.frame_count)
    assert len(counts) == 1

    class Loss(torch.nn.Module):
        def forward(self, x, matrix, labels):
            return loss(x, matrix, labels)

    rows = torch.export.Dim("rows", min=2)
    shapes = {"x": {0: rows}, "matrix": None, "labels": {0: rows}}
    program = torch.export.export(Loss(), (x[:4], matrix, labels[:4]), dynamic_shapes=shapes)
    torch.testing.assert_close(program.module()(x, matrix, labels), loss(x, matrix, labels))


def test_autocast_casts_the_product():
    x, matrix, labels, _, _ = tensors(4, 8, 5, FLOAT)
    given = own(x), own(matrix)
    with torch.autocast("cpu", torch.bfloat16):
        linear_cross_entropy(*given, labels).backward()
    assert given[1].grad.dtype == FLOAT


def test_what_it_does_not_take_is_refused():
    x, matrix, labels, bias, weight = tensors(4, 8, 5, BF16, has_bias=True, weighs=True)
    good = {"input": x, "linear_weight": matrix, "target": labels}
    for bad in (
        {"target": labels[:1]},
        {"linear_weight": matrix[:, :4]},
        {"linear_weight": matrix[0]},
        {"linear_weight": matrix.half()},
        {"linear_weight": matrix[:0]},
        {"linear_bias": bias[:2]},
        {"weight": weight[:2]},
        {"reduction": "batchmean"},
        {"chunk_rows": 0},
    ):
        with refuses(ValueError):
            linear_cross_entropy(**(good | bad))
    for bad in (
        {"target": labels.float()},
        {"input": x.double()},
        {"input": x.float(), "linear_weight": matrix.float()},
    ):
        with refuses(TypeError):
            linear_cross_entropy(**(good | bad))
