"""`cutepy.ops.register` with a user's own kernel."""

import contextlib
import copy
import pickle
import weakref
from types import SimpleNamespace

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

import cutepy  # noqa: E402
from cutepy.ops import register, registration  # noqa: E402
from cutepy.ops.registration import one_by_one  # noqa: E402
from tests.ops import scaled_add  # noqa: E402
from tests.profiling.fake_source import fake_source  # noqa: E402


@pytest.mark.dsl
def test_a_users_kernel_is_an_operation():
    x, y = torch.randn(3, 50), torch.randn(3, 50)
    expected = x + 2.5 * y
    assert torch.equal(scaled_add.scaled_add(x, y, 2.5), expected)
    with cutepy.simulate() as run:
        assert torch.allclose(scaled_add.scaled_add(x, y, 2.5), expected, rtol=1e-6, atol=1e-6)
        assert torch.allclose(torch.ops.cutepy_tests.scaled_add(x, y, 2.5), expected, rtol=1e-6, atol=1e-6)
    assert len(run.launches) == 2


def test_opcheck():
    torch.library.opcheck(scaled_add.scaled_add.op, (torch.randn(6), torch.randn(6), 2.0))
    arguments = (torch.randn(6, requires_grad=True), torch.randn(6, requires_grad=True), 2.0)
    torch.library.opcheck(scaled_add.scaled_add.op, arguments)
    torch.library.opcheck(scaled_add.scale_into.op, (torch.randn(6), 2.0, torch.randn(6)))


@pytest.mark.dsl
def test_opcheck_of_transposed_tensors():
    arguments = (torch.randn(4, 3).t(), torch.randn(4, 3).t(), 2.0)
    torch.library.opcheck(scaled_add.scaled_add.op, arguments)
    with cutepy.simulate():
        torch.library.opcheck(scaled_add.scaled_add.op, arguments)


def test_derivatives_compile_and_vmap():
    x, y = torch.randn(6, dtype=torch.float64, requires_grad=True), torch.randn(6, dtype=torch.float64)
    y.requires_grad_()
    torch.autograd.gradcheck(lambda x, y: scaled_add.scaled_add(x, y, 3.0), (x, y))
    torch.autograd.gradgradcheck(lambda x, y: scaled_add.scaled_add(x, y, 3.0), (x, y))
    compiled = torch.compile(lambda x, y: scaled_add.scaled_add(x, y, 3.0) * 2, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x, y), 2 * (x + 3 * y))
    found = torch.vmap(scaled_add.scaled_add.op, in_dims=(1, None, None))(torch.ones(6, 4), torch.ones(6), 2.0)
    assert torch.equal(found, torch.full((4, 6), 3.0))
    assert torch.vmap(scaled_add.scaled_add, in_dims=(1, None, None))(torch.ones(6, 0), y.float(), 2.0).shape == (0, 6)
    with refuses(NotImplementedError):
        torch.vmap(scaled_add.scale_into.op, in_dims=(0, None, 0))(torch.ones(4, 6), 2.0, torch.ones(4, 6))


def test_autocast_lowers():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert scaled_add.scaled_add(torch.ones(4), torch.ones(4), 1.0).dtype == torch.bfloat16


def test_writing_to_an_argument_counts_and_has_no_derivative():
    out, x = torch.zeros(4), torch.ones(4)
    for call in (scaled_add.scale_into, scaled_add.scale_into.op):
        before = out._version
        call(x, 2.0, out)
        assert out._version > before
        assert torch.equal(out, torch.full((4,), 2.0))
        before = out._version
        with pytest.raises(RuntimeError):
            call(torch.ones(3), 2.0, out)
        assert out._version == before, "what was refused was not written to"
    with refuses(RuntimeError):
        scaled_add.scale_into(x.requires_grad_(), 2.0, out)


def test_forward_derivatives_are_refused_rather_than_dropped():
    x = torch.ones(4)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, x)
        with refuses(NotImplementedError):
            scaled_add.scaled_add(x, dual, 2.0)
        assert torch.equal(scaled_add.scaled_add(x, x, 2.0), 3 * x)


def test_autograd_alone_needs_no_dispatcher():
    """A call of attention whose arguments require grad cost 187 us of the host by way of it, and costs 38."""
    x = torch.randn(6, requires_grad=True)
    assert type(scaled_add.scaled_add(x, x, 2.0).grad_fn).__name__ == "EagerBackward"
    assert type(scaled_add.scaled_add.op(x, x, 2.0).grad_fn).__name__ == "TransformableBackward"
    with torch.no_grad():
        assert scaled_add.scaled_add(x, x, 2.0).grad_fn is None


def test_tensors_that_hold_others_take_the_dispatcher():
    """Those of autograd's batched gradients, and those that have left a transform, whose gradient goes on."""
    x, left = torch.randn(6, requires_grad=True), []
    torch.func.grad(lambda z: (left.append(z), z.sum())[1])(x)
    (grad,) = torch.autograd.grad(scaled_add.scaled_add(left[0], torch.ones(6), 2.0).sum(), x)
    assert torch.equal(grad, torch.ones(6))
    rows = torch.eye(6)[:2]
    (grads,) = torch.autograd.grad(scaled_add.scaled_add(x, x, 2.0), x, rows, is_grads_batched=True)
    assert torch.equal(grads, 3 * rows)


@pytest.mark.parametrize("count", [1, 3])
def test_a_list_has_as_many_gradients_as_tensors(count):
    doubled = register(
        f"cutepy_tests::doubled_{count}(Tensor[] parts) -> Tensor",
        reference=lambda parts: 2 * sum(parts),
        setup_context=lambda ctx, inputs, output: None,
        backward=lambda ctx, grad: [2 * grad] * count,
    )(lambda parts: None)
    parts = [torch.ones(3, requires_grad=True) for _ in range(2)]
    for call in (doubled, doubled.op):
        with refuses(ValueError):
            torch.autograd.grad(call(parts).sum(), parts)


@pytest.mark.parametrize("operation", [scaled_add.scaled_add, scaled_add.scaled_add.op], ids=["short", "dispatched"])
def test_tensors_that_the_derivative_does_not_need_are_not_kept(operation):
    x = torch.randn(6, requires_grad=True) * 2
    alive, result = weakref.ref(x), operation(x, torch.randn(6), 2.0)
    del x
    assert result.requires_grad
    assert alive() is None


def test_without_a_backward_differentiating_says_so():
    operation = register("cutepy_tests::plain(Tensor x) -> Tensor", reference=lambda x: 2 * x)(lambda x: None)
    result = operation(torch.ones(2, requires_grad=True))
    with refuses(NotImplementedError):
        result.sum().backward()


SHARING = {
    "an argument": ("Tensor", lambda x, y: y),
    "a view of one": ("Tensor", lambda x, y: x[1:]),
    "what is contiguous already": ("Tensor", lambda x, y: x.contiguous()),
    "in a list": ("Tensor[]", lambda x, y: [x + y, y[:2]]),
    "each other": ("(Tensor, Tensor)", lambda x, y: (z := x + y, z[:1])),
}


@pytest.mark.parametrize("simulated", [False, pytest.param(True, marks=pytest.mark.dsl)])
@pytest.mark.parametrize("name", SHARING)
def test_results_that_share_memory_are_refused(name, simulated):
    """Compiled code takes results to be new, and would give others than eager code once one is edited in place."""
    results, given = SHARING[name]
    operation = register(
        f"cutepy_tests::sharing_{name.replace(' ', '_')}(Tensor x, Tensor y) -> {results}",
        reference=given,
        backward=lambda ctx, *grads: (None, None),
    )(given)
    x, y = torch.ones(4), torch.ones(4)
    with cutepy.simulate() if simulated else contextlib.nullcontext():
        for call in (
            lambda: operation(x, y),
            lambda: operation.op(x, y),
            lambda: operation(x.clone().requires_grad_(), y),
            lambda: torch.vmap(operation)(torch.ones(2, 4), torch.ones(2, 4)),
            lambda: operation(x.to("meta"), y.to("meta")),
        ):
            with refuses(ValueError):
                call()


OTHER_RESULTS = {
    "(Tensor, Tensor)": lambda x: x * 1,
    "(Tensor, Tensor, Tensor)": lambda x: (x * 1, x * 2),
    "Tensor": lambda x: None,
    "Tensor[]": lambda x: x * 1,
    "(Tensor, Tensor[])": lambda x: (x * 1, [x * 1, None]),
    "()": lambda x: x * 1,
}


@pytest.mark.parametrize("simulated", [False, pytest.param(True, marks=pytest.mark.dsl)])
@pytest.mark.parametrize("schema", OTHER_RESULTS)
def test_results_that_are_not_the_schemas_are_refused(schema, simulated):
    function = OTHER_RESULTS[schema]
    name = f"cutepy_tests::other_results_{list(OTHER_RESULTS).index(schema)}"
    operation = register(f"{name}(Tensor x) -> {schema}", reference=function)(function)
    with cutepy.simulate() if simulated else contextlib.nullcontext():
        for call in (operation, operation.op):
            with refuses(TypeError):
                call(torch.ones(2))


def test_what_needs_gradients_has_an_entry_an_argument_on_all_roads():
    def keep(ctx, inputs, output):
        ctx.factor, ctx.seen = inputs[1], ctx.needs_input_grad

    def backward(ctx, grad):
        seen.append((ctx.seen, ctx.needs_input_grad))
        return grad * ctx.factor, None

    seen, x = [], torch.ones(3, requires_grad=True)
    made = register(
        "cutepy_tests::scaled(Tensor x, float factor) -> Tensor",
        reference=lambda x, factor: x * factor,
        setup_context=keep,
        backward=backward,
    )
    scaled = made(lambda x, factor: x * factor)
    for call in (scaled, torch.ops.cutepy_tests.scaled):
        (grad,) = torch.autograd.grad(call(x, 2.0).sum(), x)
        assert grad.tolist() == [2, 2, 2]
    assert seen == [((True, False), (True, False))] * 2


def test_results_may_be_lists_and_none_where_the_schema_says_so():
    function = lambda x: [[x * 1], None, 3]  # noqa: E731
    schema = "cutepy_tests::mixed_results(Tensor x) -> (Tensor[], Tensor?, int)"
    (ones,), nothing, three = register(schema, reference=function)(function)(torch.ones(2))
    assert (ones.tolist(), nothing, three) == ([1, 1], None, 3)


def test_what_is_written_to_may_not_be_a_result():
    with refuses(ValueError):
        register("a::b(Tensor(a!) x) -> Tensor(a!)", reference=lambda x: x)
    with refuses(ValueError):
        register("a::b(Tensor(a) x) -> Tensor(a)", reference=lambda x: x)


@pytest.mark.parametrize("simulated", [False, pytest.param(True, marks=pytest.mark.dsl)])
def test_defaults_of_the_schema_need_none_in_python(simulated):
    """Torch leaves out arguments that have their default, whoever gave them."""
    scale = register(
        "cutepy_tests::scale_by(Tensor x, float factor=2.0, *, float offset=1.0) -> Tensor",
        reference=lambda x, factor, *, offset: factor * x + offset,
        setup_context=lambda ctx, inputs, keyword_only_inputs, output: setattr(ctx, "factor", inputs[1]),
        backward=lambda ctx, grad: (ctx.factor * grad, None),
        autocast="lower",
    )(lambda x, factor, *, offset: factor * x.detach() + offset)
    x = torch.ones(3)

    def lowered():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return scale(x, 2.0).float()

    from torch.fx.experimental.proxy_tensor import make_fx

    with cutepy.simulate() if simulated else contextlib.nullcontext():
        for call in (
            lambda: scale(x),
            lambda: scale(x, 2.0),
            lambda: scale(x, factor=2.0, offset=1.0),
            lambda: scale.op(x, 2.0),
            lowered,
            lambda: scale(torch.nn.Parameter(x.clone()), 2.0).detach(),
            lambda: make_fx(lambda x: scale(x, 2.0))(x)(x),
            lambda: torch.compile(lambda x: scale(x, 2.0), backend="aot_eager", fullgraph=True)(x),
            lambda: torch.vmap(lambda x: scale(x, 2.0))(x[None])[0],
        ):
            assert torch.equal(call(), torch.full((3,), 3.0))
    grad = torch.func.grad(lambda x: scale(x, 2.0).sum())(x)
    assert torch.equal(grad, torch.full((3,), 2.0))
    with pytest.raises(RuntimeError, match="missing value for argument 'x'"):
        scale()


def test_a_name_keeps_its_schema():
    """Under another one the first operation would break."""
    first = register("cutepy_tests::kept(Tensor x) -> Tensor", reference=lambda x: x + 1)(lambda x: None)
    with refuses(ValueError):
        register("cutepy_tests::kept(Tensor x, float f) -> Tensor", reference=lambda x, f: x + f)
    assert torch.equal(first.op(torch.zeros(1)), torch.ones(1))
    assert first(torch.zeros(1, requires_grad=True)).item() == 1


def test_stand_ins_for_tensors_see_the_operation():
    traced = torch.fx.symbolic_trace(lambda x, y: scaled_add.scaled_add(x, y, 2.0))
    assert [str(node.target) for node in traced.graph.nodes][2] == "cutepy_tests.scaled_add.default"
    assert torch.equal(traced(torch.ones(2), torch.ones(2)), torch.full((2,), 3.0))


def test_a_second_registration_replaces_the_first():
    for factor in (2, 3):
        register("cutepy_tests::again(Tensor x) -> Tensor", reference=lambda x, f=factor: f * x)(lambda x: None)
    assert torch.ops.cutepy_tests.again(torch.ones(1)).item() == 3


@pytest.mark.parametrize(
    ("schema", "options"),
    [
        ("nameless(Tensor x) -> Tensor", {}),
        ("a::b(Tensor x)", {}),
        ("a::b(Tensor x) -> Tensor", {"autocast": "higher"}),
        ("a::b(Tensor(a!) x) -> ()", {"backward": lambda ctx: None}),
        ("a::b.Tensor(Tensor x) -> Tensor", {}),
    ],
)
def test_contradictions_are_refused(schema, options):
    with refuses(ValueError):
        register(schema, reference=lambda x: x, **options)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_forward_derivatives_are_refused_by_compiled_code_too(backend):
    x = torch.ones(4)

    def tangent(x, t):
        return torch.func.jvp(lambda x: scaled_add.scaled_add(x, x, 2.0), (x,), (t,))[1]

    with pytest.raises(Exception, match=r"scaled_add.* has no forward derivative"):
        torch.compile(tangent, fullgraph=True, backend=backend)(x, x)
    torch._dynamo.reset()


def test_forward_derivatives_are_refused_on_every_road():
    x = torch.ones(4)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, x)
        for call in (
            lambda: torch.ops.cutepy_tests.scaled_add(x, dual, 2.0),
            lambda: sum_of([x, dual]),
            lambda: scaled_add.scale_into(dual, 2.0, torch.ones(4)),
        ):
            with refuses(NotImplementedError):
                call()
    with refuses(NotImplementedError):
        torch.func.hessian(lambda x: scaled_add.scaled_add(x, x, 2.0).sum())(x)


def test_transforms_compile():
    x, y = torch.randn(5, 4), torch.randn(5, 4)

    def square(x, y):
        return (scaled_add.scaled_add(x, y, 3.0) ** 2).sum()

    for function, expected in (
        (torch.func.grad(square, argnums=1), 6 * (x + 3 * y)),
        (torch.vmap(torch.func.grad(square, argnums=1)), 6 * (x + 3 * y)),
        (torch.func.grad(lambda x, y: torch.vmap(square)(x, y).sum()), 2 * (x + 3 * y)),
    ):
        torch.testing.assert_close(function(x, y), expected)
        torch.testing.assert_close(torch.compile(function, fullgraph=True, backend="aot_eager")(x, y), expected)
        torch._dynamo.reset()


def test_transforms_come_before_autocast():
    """The gradient has the dtype of the argument, not of what autocast made of it."""
    x = torch.ones(4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = torch.func.grad(lambda x: scaled_add.scaled_add(x, x, 2.0).sum().float())(x)
    assert found.dtype == torch.float32
    assert torch.equal(found, torch.full((4,), 3.0))


@register(
    "cutepy_tests::sum_of(Tensor[] parts) -> Tensor",
    reference=lambda parts: torch.stack(parts).sum(0),
    setup_context=lambda ctx, inputs, output: None,
    backward=lambda ctx, grad: [grad if needed else None for needed in ctx.needs_input_grad[0]],
    autocast="lower",
)
def sum_of(parts):
    """As its kernel would be, unseen by autograd."""
    return torch.stack([part.detach() for part in parts]).sum(0)


@pytest.mark.parametrize("simulated", [False, pytest.param(True, marks=pytest.mark.dsl)])
def test_tensors_in_lists_are_seen(simulated):
    parts = [torch.ones(4, requires_grad=True), torch.ones(4), torch.ones(4, requires_grad=True)]
    with cutepy.simulate() if simulated else contextlib.nullcontext():
        for call in (sum_of, torch.ops.cutepy_tests.sum_of):
            grads = torch.autograd.grad(call(parts).sum(), parts[::2])
            assert torch.equal(torch.stack(grads), torch.ones(2, 4))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert sum_of([part.detach() for part in parts]).dtype == torch.bfloat16
        assert torch.equal(
            torch.vmap(lambda x, y: sum_of([x, y]), (0, None))(torch.ones(3, 4), torch.ones(4)), torch.full((3, 4), 2.0)
        )
        assert torch.equal(
            torch.func.grad(lambda x: sum_of([x, x, torch.ones(4)]).sum())(torch.ones(4)), torch.full((4,), 2.0)
        )
        torch.library.opcheck(sum_of.op, (parts,))


def test_arguments_by_keyword_only():
    def into(x, *, out=None):
        if out is not None:
            out.copy_(2 * x)

    write = register(
        "cutepy_tests::write(Tensor x, *, Tensor(a!)? out=None) -> ()", reference=into, fake=lambda x, *, out=None: None
    )(into)
    out = torch.zeros(2)
    for call in (write, write.op):
        before = out._version
        call(torch.ones(2), out=out)
        assert out._version > before
        assert torch.equal(out, torch.full((2,), 2.0))
        call(torch.ones(2))
        call(torch.ones(2), out=None)

    def keep(ctx, inputs, keyword_only_inputs, output):
        ctx.factor = keyword_only_inputs["factor"]

    scale = register(
        "cutepy_tests::scale(Tensor x, *, float factor=2.0) -> Tensor",
        reference=lambda x, *, factor=2.0: factor * x,
        setup_context=keep,
        backward=lambda ctx, grad: ctx.factor * grad,
    )(lambda x, *, factor=2.0: factor * x)
    x = torch.ones(3, 2)
    assert torch.equal(torch.vmap(lambda x: scale(x, factor=5.0))(x), 5 * x)
    assert torch.equal(torch.func.grad(lambda x: scale(x, factor=5.0).sum())(x), 5 * x)
    x.requires_grad_()
    assert torch.equal(torch.autograd.grad(scale(x).sum(), x)[0], torch.full((3, 2), 2.0))
    torch.library.opcheck(scale.op, (torch.ones(2, requires_grad=True),), {"factor": 3.0})


def test_lists_that_are_written_to():
    def fill(x, outs):
        for out in outs:
            out.copy_(x)

    spread = register(
        "cutepy_tests::spread(Tensor x, Tensor(a!)[] outs) -> ()", reference=fill, fake=lambda x, outs: None
    )(fill)
    outs = [torch.zeros(2), torch.zeros(2)]
    before = outs[1]._version
    spread(torch.ones(2), outs)
    assert outs[1]._version > before
    assert torch.equal(torch.stack(outs), torch.ones(2, 2))


def test_results_that_are_several_or_a_list():
    for results, kind in (("(Tensor, Tensor)", tuple), ("Tensor[]", list)):
        split = register(
            f"cutepy_tests::split_{kind.__name__}(Tensor x) -> {results}",
            reference=lambda x, kind=kind: kind((x + 1, 2 * x)),
            backward=lambda ctx, *grads: grads[0] + 2 * grads[1] if len(grads) == 2 else grads[0][0] + 2 * grads[0][1],
        )(lambda x: None)
        x = torch.ones(3, requires_grad=True)
        found = split(x)
        assert isinstance(found, kind)
        (grad,) = torch.autograd.grad(found[0].sum() + found[1].sum(), x)
        assert torch.equal(grad, torch.full((3,), 3.0))
        found = torch.vmap(split)(torch.ones(4, 3))
        assert isinstance(found, kind)
        assert [tuple(part.shape) for part in found] == [(4, 3), (4, 3)]
        torch.library.opcheck(split.op, (x,))


def test_a_tensor_by_keyword_only_has_no_gradient():
    with refuses(ValueError):
        register(
            "cutepy_tests::shifted(Tensor x, *, Tensor by) -> Tensor",
            reference=lambda x, *, by: x + by,
            backward=lambda ctx, grad: grad,
        )(lambda x, *, by: x + by)


def test_a_result_that_is_no_tensor_is_that_of_all_examples():
    count = register("cutepy_tests::count(Tensor x) -> int", reference=lambda x: int(x[0]), fake=lambda x: 0)(
        lambda x: int(x[0])
    )
    for values, counted in (([[3.0]], 3), ([[3.0], [3.0]], 3)):
        found = one_by_one(count.op)(SimpleNamespace(batch_size=len(values)), (0,), torch.tensor(values))
        assert found == (counted, None)
    with refuses(ValueError):
        one_by_one(count.op)(SimpleNamespace(batch_size=2), (0,), torch.tensor([[3.0], [4.0]]))


def test_a_backward_with_too_few_gradients_is_told():
    short = register(
        "cutepy_tests::short(Tensor x, Tensor y) -> Tensor",
        reference=lambda x, y: x + y,
        backward=lambda ctx, grad: (grad,),
    )(lambda x, y: None)
    with refuses(ValueError):
        short(torch.ones(2, requires_grad=True), torch.ones(2)).sum().backward()


def test_an_operation_is_copied_and_pickled_by_name():
    layer = torch.nn.Linear(2, 2)
    layer.act = sum_of
    assert copy.deepcopy(layer).act is sum_of
    assert pickle.loads(pickle.dumps(sum_of)) is sum_of
    local = register("cutepy_tests::local(Tensor x) -> Tensor", reference=lambda x: x + 1)(lambda x: None)
    with pytest.raises((pickle.PicklingError, AttributeError), match="local"):
        pickle.dumps(local)


def test_defaults_of_a_function_are_those_of_its_schema():
    schema = "cutepy_tests::with_default(Tensor x, float f=2.0, int n=1) -> Tensor"
    for wrong in (lambda x, f=3.0, n=1: x, lambda x, f=2.0, n=True + 1: x):
        with refuses(ValueError):
            register(schema, reference=lambda x, f, n: x * f)(wrong)
    with refuses(ValueError):
        register("cutepy_tests::without(Tensor x, float f) -> Tensor", reference=lambda x, f: x)(lambda x, f=1.0: x)


def test_the_namespace_of_cutepys_own_operations_is_refused():
    with refuses(ValueError):
        register("cutepy::mine(Tensor x) -> Tensor", reference=lambda x: x)(lambda x: x)


@pytest.mark.parametrize(
    ("dim", "shape"), [(None, (4, 0, 8)), (1, (4, 8)), (-2, (4, 8)), (0, (0, 8)), (2, (4, 0)), (-1, (4, 0))]
)
def test_an_example_is_made_up_of_what_the_others_would_have(dim, shape):
    """Of no examples, along a dimension counted from either end; each tensor of a list along its own."""
    given = torch.ones(4, 0, 8, dtype=torch.float16)
    made = registration._made_up(given, dim, 0)
    assert (tuple(made.shape), made.dtype) == (shape, torch.float16)
    listed = registration._made_up([given, given, 3], [dim, 1, None], 0)
    assert [tuple(each.shape) for each in listed[:2]] == [shape, (4, 8)]
    assert listed[2] == 3


def test_launches_are_in_a_scope_of_the_operation_and_the_reference_in_none():
    @register("cutepy_tests::profiled(Tensor x, float by=2.0) -> Tensor", reference=lambda x, by: by * x)
    def profiled(x, by):
        return by * x + 1

    x = torch.ones(4, 8)
    with cutepy.profile(source=fake_source()) as profile:
        assert torch.equal(profiled(x), 2 * x)
        with cutepy.simulate():
            assert torch.equal(profiled(x, 3.0), 3 * x + 1)
    (call,) = profile.recording.scopes
    assert (call.name, call.flops, call.bytes, call.precision) == (
        "cutepy_tests::profiled",
        None,
        2 * 4 * 8 * 4,
        "tf32",
    )
    assert torch.equal(profiled(x, 3.0), 3 * x)
