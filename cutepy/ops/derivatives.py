"""The derivative of an operation: reverse mode by its formula, under any transform, and forward mode refused.

torch.library's own registration of a derivative is not one that torch.func can transform, drops tangents without a
word, and takes no tensors by keyword. So a `torch.autograd.Function` stands for the operation, in both places where
torch asks for its derivative: at autograd's key, and where transforms of torch.func begin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from cutepy.ops.distributed import holds_distributed, tell_dtensor
from cutepy.ops.operation import Operation
from cutepy.ops.rules import lowered_within_autocast, no_forward_derivative, refuse_tangents, requires_grad

Arguments = Sequence[Any]
Named = Mapping[str, Any]


class Call:
    """One call of an operation, whose arguments are also listed flat: autograd sees no tensors in lists.

    Parameters
    ----------
    arguments, named
        All that the schema has.
    keys : torch._C.DispatchKeySet, optional
        Where the dispatcher stands, if it is at autograd's key.

    Attributes
    ----------
    flat : list
        The arguments, and in the place of each list of tensors, its tensors.
    output : TreeSpec or None
        How the flat results are put together, known from the forward on.
    """

    def __init__(self, arguments: Arguments, named: Named, keys: Any = None) -> None:  # noqa: ANN401
        values = [*arguments, *named.values()]
        self.keys = keys
        self.positional, self.names = len(arguments), tuple(named)
        self.lengths = [len(value) if _has_tensors(value) else None for value in values]
        self.flat = [
            item for value, n in zip(values, self.lengths, strict=True) for item in ((value,) if n is None else value)
        ]
        self.output: Any = None

    def nested(self, flat: Arguments) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Put what belongs to the flat arguments in their places, by position and by name."""
        items = iter(flat)
        values = [next(items) if n is None else [next(items) for _ in range(n)] for n in self.lengths]
        return tuple(values[: self.positional]), dict(zip(self.names, values[self.positional :], strict=True))

    def flat_gradients(self, gradients: Arguments) -> list[Any]:
        """List gradients of the positional arguments flat, and None for those by name."""
        flat: list[Any] = []
        for n, gradient in zip(self.lengths, [*gradients, *[None] * len(self.names)], strict=True):
            if n is None:
                flat.append(gradient)
            else:
                flat += [None] * n if gradient is None else [*gradient]
        return flat

    def flat_results(self, results: Any) -> tuple[Any, ...]:  # noqa: ANN401
        """List results flat, and keep how they were."""
        flat, self.output = pytree.tree_flatten(results)
        return tuple(flat)


def _has_tensors(value: object) -> bool:
    return isinstance(value, (list, tuple)) and any(isinstance(item, torch.Tensor) for item in value)


def register_derivative(
    operation: Operation[Any, Any],
    setup_context: Callable[..., None] | None,
    backward: Callable[..., Any] | None,
    vmap: Callable[..., Any],
) -> None:
    """Register the derivative, or its refusal, and what transforms of torch.func do."""
    op = operation.op
    function: Any = _function(operation, setup_context, backward, vmap)

    def differentiated(arguments: Arguments, named: Named, keys: Any = None) -> Any:  # noqa: ANN401
        call = Call(arguments, named, keys)
        return pytree.tree_unflatten(list(function.apply(call, *call.flat)), call.output)

    def autograd(keys: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        refuse_tangents(op, (arguments, tuple(named.values())))
        if operation.sharding is not None and holds_distributed((*arguments, *named.values())):
            tell_dtensor()
            return operation.on_shards(arguments, named)  # whose local computation has the derivative
        if torch.is_grad_enabled() and requires_grad((arguments, tuple(named.values()))):
            return differentiated(*operation.complete(arguments, named), keys)
        with torch._C._AutoDispatchBelowAutograd():
            return op.redispatch(keys & torch._C._after_autograd_keyset, *arguments, **named)

    def transformed(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        complete, by_name = operation.complete(arguments, named)
        if operation.lowers:  # transforms come before autocast
            complete, by_name = lowered_within_autocast(operation, complete, by_name)
        return differentiated(complete, by_name)

    operation.library.impl(op._opname, autograd, "Autograd", with_keyset=True)
    operation.library.impl(op._opname, transformed, "FuncTorchDynamicLayerFrontMode")


def _function(
    operation: Operation[Any, Any],
    setup_context: Callable[..., None] | None,
    backward: Callable[..., Any] | None,
    vmap: Callable[..., Any],
) -> type:
    """Make the function that stands for an operation; its first argument is the call."""
    op = operation.op

    class Differentiated(torch.autograd.Function):
        @staticmethod
        def forward(call: Call, *flat: Any) -> Any:  # noqa: ANN401
            arguments, named = call.nested(flat)
            if call.keys is None:
                return call.flat_results(op(*arguments, **named))
            with torch._C._AutoDispatchBelowAutograd():
                keys = call.keys & torch._C._after_autograd_keyset
                return call.flat_results(op.redispatch(keys, *arguments, **named))

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: ANN401
            ctx.call, *flat = inputs
            arguments, named = ctx.call.nested(flat)
            results = pytree.tree_unflatten(list(output), ctx.call.output)
            if setup_context and named:
                setup_context(ctx=ctx, inputs=arguments, keyword_only_inputs=named, output=results)
            elif setup_context:
                setup_context(ctx, arguments, results)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:  # noqa: ANN401
            if backward is None:
                raise NotImplementedError(
                    f"{op} has no derivative; give cutepy.ops.register a backward, or detach its arguments"
                )
            call, needed = ctx.call, ctx.needs_input_grad
            results = pytree.tree_unflatten(list(grads), call.output)
            ctx.needs_input_grad = call.nested(needed[1:])[0]
            try:
                given = backward(ctx, *(results if isinstance(results, tuple) else (results,)))
            finally:
                ctx.needs_input_grad = needed
            gradients = given if isinstance(given, tuple) else (given,)
            if len(gradients) != call.positional:
                raise ValueError(
                    f"the backward of {op} must give a gradient, or None, for each of its {call.positional} "
                    f"positional arguments, got {len(gradients)}"
                )
            return (None, *call.flat_gradients(gradients))

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> Any:  # noqa: ANN401
            raise NotImplementedError(no_forward_derivative(op))

        @staticmethod
        def vmap(info: Any, in_dims: tuple[Any, ...], call: Call, *flat: Any) -> Any:  # noqa: ANN401
            arguments, named = call.nested(flat)
            dims, dims_by_name = call.nested(in_dims[1:])
            if any(dim is not None for dim in pytree.tree_leaves(list(dims_by_name.values()))):
                raise NotImplementedError(
                    f"{op} has a tensor by keyword only, which torch.vmap can't map; make it positional"
                )
            results, out_dims = vmap(info, dims, *arguments, **named)
            outputs = call.flat_results(results)
            return outputs, tuple(pytree._broadcast_to_and_flatten(out_dims, call.output) or ())

    return Differentiated
