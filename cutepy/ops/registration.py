"""`register`: make an operation of PyTorch from a function that launches kernels, and tell torch all of it.

The derivative is reverse mode by a formula, under any transform; forward mode is refused. torch.library's own
registration of a derivative is not one that torch.func can transform, drops tangents without a word, and takes no
tensors by keyword. So a `torch.autograd.Function` stands for the operation, in both places where torch asks for its
derivative: at autograd's key, and where transforms of torch.func begin.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.utils import _pytree as pytree
from torch.utils._pytree import tree_leaves

from cutepy.ops.distributed import Rule, holds_distributed, tell_dtensor
from cutepy.ops.operation import AUTOCAST_KEYS, FORMULAS, Formula, Operation, P, R
from cutepy.ops.schemas import schema_of_function
from cutepy.runtime.invariance import batch_invariant

Arguments = Sequence[Any]
Named = Mapping[str, Any]

SUFFIX = "_invariant"
"""Of the names of operations that enter `batch_invariant`."""

# torch asks `inspect` where each operation is registered, which resolves the files of all modules unless this is known.
inspect.modulesbyfile.setdefault(__file__, __name__)

_registered: dict[str, Operation[Any, Any]] = {}


def register(
    schema: str,
    *,
    reference: Callable[..., Any],
    fake: Callable[..., Any] | None = None,
    setup_context: Callable[..., None] | None = None,
    backward: Callable[..., Any] | None = None,
    autocast: str | Sequence[str] | None = None,
    vmap: Callable[..., Any] | None = None,
    flops: Formula | None = None,
) -> Callable[[Callable[P, R]], Operation[P, R]]:
    """Make an operation of PyTorch from the function below: a decorator.

    The function takes CUDA tensors, allocates the result, and launches compiled kernels (`cutepy.compile`) on
    them. On CPU tensors the operation computes the reference, except within
    `cutepy.simulate()`, where the function runs too, and its kernels in the simulator.

    Parameters
    ----------
    schema : str
        As torch.library has it: "mylib::scale(Tensor x, float factor) -> Tensor". Of a function that writes to an
        argument, "Tensor(a!) out", and returns nothing, "-> ()".
    reference : callable
        The same computation in plain torch, on tensors of any device.
    fake : callable, optional
        Gives empty results of the right shapes, strides, dtypes and devices for tensors without data. The reference
        if not given: its results must then have the strides of the function's.
    setup_context, backward : callable, optional
        The derivative, as `torch.library.register_autograd` takes it: `setup_context(ctx, inputs, output)` keeps what
        `backward(ctx, *grads)` needs to give a gradient, or None, for each argument; both see `ctx.needs_input_grad`.
        Made of differentiable operations it can be differentiated again. Without it, differentiating raises.
    autocast : "lower", sequence of str, or None
        "lower": within `torch.autocast`, arguments of 16 or 32-bit floats are cast to its dtype, but for those that are
        written to. Names: of these arguments only.
    vmap : callable, optional
        As `torch.library.register_vmap` takes it: `vmap(info, in_dims, *args)` gives (output, out_dims). By default the
        operation runs once for each example.
    flops : callable, optional
        As `torch.utils.flop_counter.register_flop_formula` takes it: `flops(*shapes, out_shape)` counts the
        floating-point operations of a call.

    Returns
    -------
    callable
        Makes an `Operation` of a function. A second one of a name and schema replaces the first.

    Raises
    ------
    ValueError
        If the schema has no namespace, or cutepy's own; the options contradict it; its results share memory with
        arguments; its name is registered with another schema; or the function has other defaults.

    Examples
    --------
    >>> import torch
    >>> @register("doctest::double(Tensor x) -> Tensor", reference=lambda x: 2 * x)
    ... def double(x):
    ...     raise NotImplementedError("launch a kernel here")
    >>> double(torch.ones(2)), double.op
    (tensor([2., 2.]), <OpOverload(op='doctest.double', overload='default')>)
    """
    name, _, _ = schema.partition("(")
    if name.count("::") != 1 or "->" not in schema:
        raise ValueError(f'schema must be "namespace::name(arguments) -> results", got {schema!r}')
    if "." in name:
        raise ValueError(
            f"schema must name an operation without an overload, got {name}; leave out what follows the dot"
        )
    if "!" in schema and (backward or vmap):
        raise ValueError(f"{name} writes to an argument, which has neither a derivative nor a vmap rule")

    declared = torch._C.parse_schema(schema)
    lowers = _lowered_names(autocast, declared.arguments)
    if any(result.alias_info is not None for result in declared.returns):
        raise ValueError(
            f"{name} must give new tensors, got {schema!r}, whose results share memory with arguments; return nothing, "
            '"-> ()", of what is written to an argument'
        )
    if name in _registered and str(declared) != str(_registered[name].op._schema):
        raise ValueError(
            f"{name} is registered as {_registered[name].op._schema}, which its callers rely on, and can be replaced "
            f"by an operation of that schema only, got {declared}; use another name"
        )

    def decorate(kernel: Callable[P, R]) -> Operation[P, R]:
        _check_kernel(name, kernel, declared.arguments)
        if backward and any(a.kwarg_only and "Tensor" in str(a.type) for a in declared.arguments):
            raise ValueError(f"{name} has a backward, which gives none to a tensor by keyword only; make it positional")
        if name in _registered:
            _registered[name].library._destroy()
        operation = Operation(schema, kernel, reference)
        _registered[name] = operation
        if flops:
            FORMULAS[operation.op.overloadpacket] = flops
        torch.library.register_fake(operation.op, operation.completed(fake or reference), lib=operation.library)
        if operation.mutated:
            register_mutation(operation)
        else:
            rule = vmap or one_by_one(operation)
            register_derivative(operation, setup_context, backward, rule)
            if not operation.has_tensors_by_keyword:
                torch.library.register_vmap(name, rule, lib=operation.library)
        if lowers:
            operation.lowers = lowers
            register_autocast(operation)
        return operation

    return decorate


def _lowered_names(autocast: str | Sequence[str] | None, arguments: Sequence[Any]) -> frozenset[str]:
    """List the arguments that autocast casts: all that are not written to, or those that are named."""
    if autocast is None:
        return frozenset()
    free = [each.name for each in arguments if each.alias_info is None or not each.alias_info.is_write]
    if autocast == "lower":
        return frozenset(free)
    if isinstance(autocast, str) or not set(autocast) <= set(free):
        raise ValueError(
            f'autocast must be "lower", None, or names of arguments that are not written to, {", ".join(free)}, got '
            f"{autocast!r}"
        )
    return frozenset(autocast)


def _check_kernel(name: str, kernel: Callable[..., Any], arguments: Sequence[Any]) -> None:
    """Refuse a function under a name that is cutepy's, and one whose defaults are others than the schema's."""
    if name.startswith("cutepy::") and not str(kernel.__module__).startswith("cutepy."):
        raise ValueError(f"{name} is in the namespace of cutepy's own operations; use one of yours")
    taken = inspect.signature(kernel).parameters
    for argument in arguments:
        parameter = taken.get(argument.name)
        if parameter is None or parameter.default is parameter.empty or not isinstance(parameter.default, _PLAIN):
            continue
        if not argument.has_default_value() or argument.default_value != parameter.default:
            stated = argument.default_value if argument.has_default_value() else "none"
            raise ValueError(
                f"{name} has the default {parameter.default!r} for {argument.name} in its function, and {stated} in "
                "its schema, which is what callers get; let them be equal, or leave out the function's"
            )


_PLAIN = (bool, int, float, str)


def register_both(
    schema: str,
    *,
    sharding: Rule,
    vmap: Callable[..., Any] | None = None,
    is_invariant: bool = False,
    touches_all: bool = True,
    **options: Any,  # noqa: ANN401
) -> Callable[[Callable[P, R]], Operation[P, R]]:
    """Make an operation as `register` does, and the one that stands for it where it is called within the context.

    A schema without arguments is completed from the function's annotations. With `is_invariant` there is one operation:
    its kernels are the same within the context. `touches_all` is the operation's. Both are sharded alike, and their
    results are trusted: they are operations of this package. The mode is one of the process, which a traced program
    knows nothing of when it runs.
    """

    def decorate(kernel: Callable[P, R]) -> Operation[P, R]:
        written = schema if "(" in schema else schema_of_function(schema, kernel)
        operation = register(written, vmap=vmap, **options)(kernel)
        operation.trust()
        operation.touches_all = touches_all
        if is_invariant:
            operation.shard_by(sharding)
            return operation
        name, _, rest = written.partition("(")
        within = batch_invariant()
        rule = None if vmap is None else within(vmap)
        invariant = register(f"{name}{SUFFIX}({rest}", vmap=rule, **options)(within(kernel))
        operation.invariant, invariant.touches_all = invariant.op, touches_all
        for each in (operation, invariant):
            each.shard_by(sharding)
        return operation

    return decorate


_LOWER = (torch.float32, torch.float16, torch.bfloat16)


def register_mutation(operation: Operation[Any, Any]) -> None:
    """Register the writes with autograd: a write is refused where a derivative is needed, and otherwise counted."""
    op = operation.op

    def below_autograd(keys: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        tell_dtensor()
        refuse_tangents(op, (arguments, tuple(named.values())))
        if torch.is_grad_enabled() and requires_grad((arguments, tuple(named.values()))):
            raise RuntimeError(
                f"{op} writes its result to an argument, which has no derivative, but an argument requires grad; "
                "use torch.no_grad(), or the form that returns its result"
            )
        with torch._C._AutoDispatchBelowAutograd():
            return op.redispatch(keys & torch._C._after_autograd_keyset, *arguments, **named)

    def counting(keys: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        with torch._C._AutoDispatchBelowADInplaceOrView():
            result = op.redispatch(keys & torch._C._after_ADInplaceOrView_keyset, *arguments, **named)
        operation.count_writing(arguments, named)
        return result

    def refuse(*_: Any, **__: Any) -> None:  # noqa: ANN401
        raise NotImplementedError(
            f"{op} writes its result to an argument, which torch.vmap can't map; use the form that returns its result"
        )

    name = op._opname
    operation.library.impl(name, refuse, "FuncTorchBatched")
    operation.library.impl(name, below_autograd, "Autograd", with_keyset=True)
    operation.library.impl(name, counting, "ADInplaceOrView", with_keyset=True)


def requires_grad(value: Any) -> bool:  # noqa: ANN401
    """Return whether a tensor, or one of a list of tensors, requires grad."""
    if isinstance(value, (tuple, list)):
        return any(map(requires_grad, value))
    return isinstance(value, torch.Tensor) and value.requires_grad


def refuse_tangents(op: Any, value: Any) -> None:  # noqa: ANN401
    """Refuse forward derivatives, which torch's dispatcher would drop without a word."""
    if forward_ad._current_level < 0 and torch._C._functorch.peek_interpreter_stack() is None:
        return
    for tensor in tree_leaves(value):
        if isinstance(tensor, torch.Tensor) and forward_ad.unpack_dual(tensor, level=0).tangent is not None:
            raise NotImplementedError(no_forward_derivative(op))


def no_forward_derivative(op: Any) -> str:  # noqa: ANN401
    """Return the remedy for a call that asks for a forward derivative."""
    return (
        f"{op} has no forward derivative; use reverse mode, such as torch.autograd.grad or torch.func.grad, "
        "and torch.func.jacrev(torch.func.jacrev(f)) for a Hessian"
    )


def register_autocast(operation: Operation[Any, Any]) -> None:
    """Cast arguments to the dtype of autocast, except those that the operation writes to."""

    def casting(device: str) -> Callable[..., Any]:
        def implementation(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401
            arguments, named = _lowered(operation, torch.get_autocast_dtype(device), arguments, named)
            with torch._C._ExcludeDispatchKeyGuard(AUTOCAST_KEYS[device]):
                return operation.op(*arguments, **named)

        return implementation

    indices = [n for n, each in enumerate(operation.op._schema.arguments) if each.name in operation.lowers]

    def lowered(dtype: torch.dtype, arguments: Sequence[Any]) -> tuple[Any, ...]:
        values = [*arguments]
        for place in indices:
            if place < len(values):
                values[place] = _cast(values[place], dtype)
        return tuple(values)

    operation.lowered = lowered
    for device in AUTOCAST_KEYS:
        operation.library.impl(operation.op._opname, casting(device), f"Autocast{device.upper()}")


def lowered_tensors(tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Cast floats of 16 and 32 bits to autocast's dtype, where it is on for their device."""
    return tuple(
        tensor.to(torch.get_autocast_dtype(tensor.device.type))
        if tensor.dtype in _LOWER
        and tensor.device.type in AUTOCAST_KEYS
        and torch.is_autocast_enabled(tensor.device.type)
        else tensor
        for tensor in tensors
    )


def lowered_within_autocast(
    operation: Operation[Any, Any], arguments: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Cast arguments as autocast would, if it is on for their device."""
    for device in AUTOCAST_KEYS:
        if torch.is_autocast_enabled(device) and any(
            isinstance(leaf, torch.Tensor) and leaf.device.type == device
            for leaf in tree_leaves((arguments, tuple(named.values())))
        ):
            return _lowered(operation, torch.get_autocast_dtype(device), arguments, named)
    return arguments, named


def _lowered(
    operation: Operation[Any, Any], dtype: torch.dtype, arguments: Sequence[Any], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    assert operation.lowered is not None, "is registered with what is cast"
    by_name = {name: _cast(value, dtype) if name in operation.lowers else value for name, value in named.items()}
    return operation.lowered(dtype, arguments), by_name


def _cast(value: Any, dtype: torch.dtype) -> Any:  # noqa: ANN401
    """Cast a tensor of 16 or 32-bit floats, or those in a list."""
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if value.dtype in _LOWER and value.dtype != dtype else value
    return [_cast(item, dtype) for item in value] if isinstance(value, (list, tuple)) else value


def one_by_one(operation: Callable[..., Any]) -> Callable[..., Any]:
    """Make the vmap rule that calls an operation for each example, and stacks the results."""

    def vmap(info: Any, in_dims: Sequence[Any], *arguments: Any, **named: Any) -> tuple[Any, Any]:  # noqa: ANN401
        count = info.batch_size
        # Of no examples, one that is made up tells what results look like; none of it is kept.
        example = _example if count else _made_up
        results = [
            operation(*(example(a, d, n) for a, d in zip(arguments, in_dims, strict=True)), **named)
            for n in range(count or 1)
        ]
        if isinstance(results[0], torch.Tensor):
            return torch.stack(results)[:count], 0
        if not isinstance(results[0], (tuple, list)):
            return _shared(results), None
        stacked = [torch.stack(part)[:count] for part in zip(*results, strict=True)]
        return type(results[0])(stacked), 0

    return vmap


def _shared(results: Sequence[Any]) -> Any:  # noqa: ANN401
    """Give the result of all examples, where it is no tensor."""
    if any(result != results[0] for result in results):
        raise ValueError(f"a result that is no tensor must be the same for all examples, got {results}")
    return results[0]


def _example(argument: Any, dim: Any, n: int) -> Any:  # noqa: ANN401
    """Take one example of an argument, whose examples are along a dimension, or None where all share it."""
    if isinstance(dim, (list, tuple)):
        return [_example(a, d, n) for a, d in zip(argument, dim, strict=True)]
    return argument if dim is None else argument.select(dim, n)


def _made_up(argument: Any, dim: Any, _: int) -> Any:  # noqa: ANN401
    if isinstance(dim, (list, tuple)):
        return [_made_up(a, d, _) for a, d in zip(argument, dim, strict=True)]
    if dim is None:
        return argument
    return argument.new_zeros([e for n, e in enumerate(argument.shape) if n != dim % argument.dim()])


class Call:
    """One call of an operation, whose tensors are also listed flat: autograd sees none in lists, and costs by argument.

    Parameters
    ----------
    compute : callable
        Computes the results below autograd.
    arguments, named
        All that the schema has.
    has_lists : bool
        True if the schema has lists of tensors.

    Attributes
    ----------
    flat : list
        The tensors, those of lists too.
    results_type : type, TreeSpec or None
        How the flat results are put together, known from the forward on: None of a tensor, the type of several tensors,
        or torch's description of others.
    """

    def __init__(self, compute: Callable[..., Any], arguments: Arguments, named: Named, *, has_lists: bool) -> None:
        self.compute, self.positional, self.names = compute, len(arguments), tuple(named)
        self._values = [*arguments, *named.values()]
        self._places: list[tuple[int, int | None]] = []
        self.flat: list[Any] = []
        for place, value in enumerate(self._values):
            if isinstance(value, torch.Tensor):
                self._places.append((place, None))
                self.flat.append(value)
            elif has_lists and isinstance(value, (list, tuple)) and any(isinstance(n, torch.Tensor) for n in value):
                self._places.append((place, len(value)))
                self.flat += value
        for place, _ in self._places:
            self._values[place] = None
        self.results_type: Any = None

    def nested(self, flat: Arguments) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Put tensors in their places among the arguments, by position and by name."""
        return self._nested(flat, self._values.copy())

    def nested_like(self, flat: Arguments, others: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:  # noqa: ANN401
        """Put the values of the tensors in their places, and one value in those of other arguments."""
        return self._nested(flat, [others] * len(self._values))

    def _nested(self, flat: Arguments, values: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        items = iter(flat)
        for place, count in self._places:
            values[place] = next(items) if count is None else [next(items) for _ in range(count)]
        if not self.names:
            return tuple(values), {}
        return tuple(values[: self.positional]), dict(zip(self.names, values[self.positional :], strict=True))

    def flat_gradients(self, op: Any, gradients: Arguments) -> list[Any]:  # noqa: ANN401
        """List one gradient for each tensor: those of the positional arguments, and None for keyword arguments."""
        complete = [*gradients, *[None] * len(self.names)]
        flat: list[Any] = []
        for place, count in self._places:
            gradient = complete[place]
            if count is None:
                flat.append(gradient)
            else:
                flat += _of_list(op, place, gradient, count)
        return flat

    def flat_results(self, results: Any) -> tuple[Any, ...]:  # noqa: ANN401
        """List results flat, and keep how they were."""
        if isinstance(results, torch.Tensor):
            return (results,)
        if type(results) in (tuple, list) and all(isinstance(each, torch.Tensor) for each in results):
            self.results_type = type(results)
            return tuple(results)
        flat, self.results_type = pytree.tree_flatten(results)
        return tuple(flat)

    def nested_results(self, flat: Arguments) -> Any:  # noqa: ANN401
        """Put flat results, or their gradients, together as the results were."""
        if self.results_type is None:
            return flat[0]
        if self.results_type in (tuple, list):
            return self.results_type(flat)
        return pytree.tree_unflatten(list(flat), self.results_type)


def register_derivative(
    operation: Operation[Any, Any],
    setup_context: Callable[..., None] | None,
    backward: Callable[..., Any] | None,
    vmap: Callable[..., Any],
) -> None:
    """Register the derivative, or its refusal, and the rules of torch.func's transforms."""
    op = operation.op
    transformable: Any = _transformable(operation, setup_context, backward, vmap)

    def by_call(compute: Callable[..., Any], arguments: Arguments, named: Named) -> Any:  # noqa: ANN401
        call = Call(compute, arguments, named, has_lists=operation.has_lists)
        flat, call.flat = call.flat, []  # autograd keeps the call, and of the tensors those that the derivative needs
        return call.nested_results(transformable.apply(call, *flat))

    def autograd(keys: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        refuse_tangents(op, (arguments, tuple(named.values())))
        if operation.sharding is not None and holds_distributed((*arguments, *named.values())):
            tell_dtensor()
            return operation.on_shards(arguments, named)  # whose local computation has the derivative

        def compute(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401
            with torch._C._AutoDispatchBelowAutograd():
                return op.redispatch(keys & torch._C._after_autograd_keyset, *arguments, **named)

        if torch.is_grad_enabled() and requires_grad((arguments, tuple(named.values()))):
            return by_call(compute, *operation.complete(arguments, named))
        return compute(*arguments, **named)

    def transformed(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        complete, by_name = operation.complete(arguments, named)
        if operation.lowers:  # transforms come before autocast
            complete, by_name = lowered_within_autocast(operation, complete, by_name)
        return by_call(op, complete, by_name)

    if not any(each.kwarg_only for each in op._schema.arguments) and (
        operation.gives_list or not any("List[" in str(each.type) for each in op._schema.returns)
    ):
        operation.differentiated = eager(operation, setup_context, backward)
    operation.library.impl(op._opname, autograd, "Autograd", with_keyset=True)
    operation.library.impl(op._opname, transformed, "FuncTorchDynamicLayerFrontMode")


def _no_derivative(op: Any) -> NotImplementedError:  # noqa: ANN401
    return NotImplementedError(f"{op} has no derivative; give cutepy.ops.register a backward, or detach its arguments")


def _as_many(op: Any, given: Any, count: int) -> tuple[Any, ...]:  # noqa: ANN401
    """Check that a backward gives a gradient, or None, for each positional argument."""
    gradients = given if isinstance(given, tuple) else (given,)
    if len(gradients) != count:
        raise ValueError(
            f"the backward of {op} must give a gradient, or None, for each of its {count} positional arguments, got "
            f"{len(gradients)}"
        )
    return gradients


def _of_list(op: Any, place: int, gradients: Any, count: int) -> Sequence[Any]:  # noqa: ANN401
    """Check that a backward gives a gradient, or None, for each tensor of a list, or None for all."""
    if gradients is None:
        return [None] * count
    if not isinstance(gradients, (list, tuple)) or len(gradients) != count:
        got = f"{len(gradients)}" if isinstance(gradients, (list, tuple)) else type(gradients).__name__
        raise ValueError(
            f"the backward of {op} must give a list of {count} gradients, or None, for its list "
            f"{op._schema.arguments[place].name}, got {got}"
        )
    return gradients


def eager(
    operation: Operation[Any, Any],
    setup_context: Callable[..., None] | None,
    backward: Callable[..., Any] | None,
) -> Callable[..., Any]:
    """Make the function of calls past the dispatcher: of an implementation, and of all arguments by position.

    It costs the host 10 us, and one that torch.func can transform 40 (torch 2.13): autograd sees the arguments as they
    are. It does not see tensors in lists, so that these follow once more, one by one.
    """
    op, gives_list = operation.op, operation.gives_list
    count = len(op._schema.arguments)
    kinds = [str(each.type) for each in op._schema.arguments]
    lists = [n for n, kind in enumerate(kinds) if "List[" in kind and "Tensor" in kind]

    class Eager(torch.autograd.Function):
        """Function of all arguments, its computation, and then the tensors of lists."""

        @staticmethod
        def forward(ctx: Any, *given: Any) -> Any:  # noqa: ANN401
            arguments = given[:count]
            results = given[count](*arguments)
            if lists:
                ctx.lengths = [len(arguments[n] or ()) for n in lists]
            if setup_context is not None:
                needed = ctx.needs_input_grad
                ctx.needs_input_grad = _listed(needed, count, lists, ctx.lengths) if lists else needed[:count]
                setup_context(ctx, arguments, results)
            return tuple(results) if isinstance(results, list) else results

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:  # noqa: ANN401
            if backward is None:
                raise _no_derivative(op)
            gradients = backward(ctx, grads) if gives_list else backward(ctx, *grads)
            if type(gradients) is not tuple or len(gradients) != count:
                gradients = _as_many(op, gradients, count)
            if not lists:
                return (*gradients, None)
            values: list[Any] = [*gradients, None]
            items: list[Any] = []
            for n, length in zip(lists, ctx.lengths, strict=True):
                items += _of_list(op, n, values[n], length)
                values[n] = None
            return (*values, *items)

    # torch.autograd.Function's own binds defaults too, and unwraps what has left a transform of torch.func.
    apply: Callable[..., Any] = super(torch.autograd.Function, Eager).apply

    def differentiated(compute: Callable[..., Any], arguments: Arguments) -> Any:  # noqa: ANN401
        given = [*arguments, compute]
        for n in lists:
            given += arguments[n] or ()
        results = apply(*given)
        return [*results] if gives_list else results

    return differentiated


def _listed(needed: Sequence[bool], count: int, lists: Sequence[int], lengths: Sequence[int]) -> tuple[Any, ...]:
    """Put which tensors of lists need gradients, told behind those of all arguments, in the places of the lists.

    Between them is what computes.
    """
    values, items = [*needed[:count]], iter(needed[count + 1 :])
    if len(needed) == count + 1:
        for n in lists:
            values[n] = []  # type: ignore[call-overload]
        return tuple(values)
    for n, length in zip(lists, lengths, strict=True):
        values[n] = [next(items) for _ in range(length)]  # type: ignore[call-overload]
    return tuple(values)


def _transformable(
    operation: Operation[Any, Any],
    setup_context: Callable[..., None] | None,
    backward: Callable[..., Any] | None,
    vmap: Callable[..., Any],
) -> type[torch.autograd.Function]:
    """Make the function of calls at the dispatcher, which torch.func can transform; its first argument is the call."""
    op = operation.op

    class Transformable(torch.autograd.Function):
        @staticmethod
        def forward(call: Call, *flat: Any) -> Any:  # noqa: ANN401
            arguments, named = call.nested(flat)
            return call.flat_results(call.compute(*arguments, **named))

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: ANN401
            ctx.call, *flat = inputs
            if setup_context is None:
                return
            call, needed = ctx.call, ctx.needs_input_grad
            arguments, named = call.nested(flat)
            results = call.nested_results(output)
            ctx.needs_input_grad = call.nested_like(needed[1:], others=False)[0]
            try:
                if named:
                    setup_context(ctx=ctx, inputs=arguments, keyword_only_inputs=named, output=results)
                else:
                    setup_context(ctx, arguments, results)
            finally:
                ctx.needs_input_grad = needed

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:  # noqa: ANN401
            if backward is None:
                raise _no_derivative(op)
            call, needed = ctx.call, ctx.needs_input_grad
            results = call.nested_results(grads)
            ctx.needs_input_grad = call.nested_like(needed[1:], others=False)[0]
            try:
                given = backward(ctx, *(results if isinstance(results, tuple) else (results,)))
            finally:
                ctx.needs_input_grad = needed
            return (None, *call.flat_gradients(op, _as_many(op, given, call.positional)))

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> Any:  # noqa: ANN401
            raise NotImplementedError(no_forward_derivative(op))

        @staticmethod
        def vmap(info: Any, in_dims: tuple[Any, ...], call: Call, *flat: Any) -> Any:  # noqa: ANN401
            arguments, named = call.nested(flat)
            dims, dims_by_name = call.nested_like(in_dims[1:], others=None)
            if any(dim is not None for dim in pytree.tree_leaves(list(dims_by_name.values()))):
                raise NotImplementedError(
                    f"{op} has a tensor by keyword only, which torch.vmap can't map; make it positional"
                )
            results, out_dims = vmap(info, dims, *arguments, **named)
            flat_dims = pytree._broadcast_to_and_flatten(out_dims, pytree.tree_structure(results))
            return call.flat_results(results), tuple(flat_dims or ())

    return Transformable
