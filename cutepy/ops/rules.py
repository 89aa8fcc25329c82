"""What torch is told of an operation beside its kernel: derivative, writing, autocast, vmap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from cutepy.ops.registration import Operation

_AUTOCAST_KEYS = {"cuda": "AutocastCUDA", "cpu": "AutocastCPU"}
_LOWER = (torch.float32, torch.float16, torch.bfloat16)


def register_derivative(
    operation: Operation[Any, Any], setup_context: Callable[..., None] | None, backward: Callable[..., Any] | None
) -> None:
    """Register the derivative, or its refusal."""

    def refuse(_: object, *__: object) -> None:
        raise NotImplementedError(
            f"{operation.op} has no derivative; give cutepy.ops.register a backward, or detach its arguments"
        )

    count = len(operation.op._schema.arguments)

    def for_all_arguments(ctx: Any, *grads: Any) -> Any:  # noqa: ANN401
        """Let `backward` see all arguments: torch leaves out the last ones that have their default values."""
        needed = ctx.needs_input_grad
        ctx.needs_input_grad = (*needed, *[False] * (count - len(needed)))
        try:
            result = (backward or refuse)(ctx, *grads)
        finally:
            ctx.needs_input_grad = needed
        return result[: len(needed)] if isinstance(result, tuple) else result

    torch.library.register_autograd(operation.op, for_all_arguments, setup_context=setup_context, lib=operation.library)


def differentiated(
    operation: Operation[Any, Any],
    setup_context: Callable[..., None] | None,
    backward: Callable[..., Any],
    vmap: Callable[..., Any],
) -> type:
    """Make the same derivative in the form that torch.func transforms."""

    class Differentiated(torch.autograd.Function):
        @staticmethod
        def forward(*arguments: Any) -> Any:  # noqa: ANN401
            return operation.op(*arguments)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: ANN401
            if setup_context:
                setup_context(ctx, inputs, output)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:  # noqa: ANN401
            return backward(ctx, *grads)

        @staticmethod
        def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:  # noqa: ANN401
            return vmap(info, in_dims, *arguments)

    return Differentiated


def register_mutation(operation: Operation[Any, Any]) -> None:
    """Let autograd know of the writing: it is refused where a derivative is asked for, else counted."""
    op, mutated = operation.op, operation.mutated

    def below_autograd(keys: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        if torch.is_grad_enabled() and _requires_grad((arguments, tuple(named.values()))):
            raise RuntimeError(
                f"{op} writes its result to an argument, which has no derivative, but an argument requires grad; "
                "use torch.no_grad(), or the form that returns its result"
            )
        with torch._C._AutoDispatchBelowAutograd():
            return op.redispatch(keys & torch._C._after_autograd_keyset, *arguments, **named)

    def counting(keys: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        with torch._C._AutoDispatchBelowADInplaceOrView():
            result = op.redispatch(keys & torch._C._after_ADInplaceOrView_keyset, *arguments, **named)
        for n in mutated:
            torch.autograd.graph.increment_version(arguments[n])
        return result

    def refuse(*_: Any, **__: Any) -> None:  # noqa: ANN401
        raise NotImplementedError(
            f"{op} writes its result to an argument, which torch.vmap can't map; use the form that returns its result"
        )

    name = op._opname
    operation.library.impl(name, refuse, "FuncTorchBatched")
    operation.library.impl(name, below_autograd, "Autograd", with_keyset=True)
    operation.library.impl(name, counting, "ADInplaceOrView", with_keyset=True)


def _requires_grad(value: Any) -> bool:  # noqa: ANN401
    """Tell whether a tensor requires grad, or one in a list of them."""
    if isinstance(value, (tuple, list)):
        return any(map(_requires_grad, value))
    return isinstance(value, torch.Tensor) and value.requires_grad


def register_autocast(operation: Operation[Any, Any]) -> None:
    """Have arguments cast to autocast's dtype, but for those that are written to."""
    written = {operation.op._schema.arguments[n].name for n in operation.mutated}

    def casting(device: str, key: str) -> Callable[..., Any]:
        guard = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

        def cast(value: Any, dtype: torch.dtype) -> Any:  # noqa: ANN401
            if isinstance(value, torch.Tensor) and value.dtype in _LOWER:
                return value.to(dtype)
            return value

        def implementation(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401
            dtype = torch.get_autocast_dtype(device)
            lowered = [a if n in operation.mutated else cast(a, dtype) for n, a in enumerate(arguments)]
            others = {name: v if name in written else cast(v, dtype) for name, v in named.items()}
            with torch._C._ExcludeDispatchKeyGuard(guard):
                return operation.op(*lowered, **others)

        return implementation

    for device, key in _AUTOCAST_KEYS.items():
        operation.library.impl(operation.op._opname, casting(device, key), key)


def one_by_one(operation: Callable[..., Any]) -> Callable[..., Any]:
    """Make the vmap rule that calls an operation for each example, and stacks the results."""

    def vmap(info: Any, in_dims: Sequence[int | None], *arguments: Any) -> tuple[Any, Any]:  # noqa: ANN401
        count = info.batch_size
        if count == 0:  # One example that is made up tells what results look like; none of it is kept.
            arguments = tuple(
                a if d is None else a.new_zeros([1 if n == d % a.dim() else e for n, e in enumerate(a.shape)])
                for a, d in zip(arguments, in_dims, strict=True)
            )
        results = [
            operation(*(a if d is None else a.select(d, n) for a, d in zip(arguments, in_dims, strict=True)))
            for n in range(count or 1)
        ]
        if isinstance(results[0], torch.Tensor):
            return torch.stack(results)[:count], 0
        stacked = tuple(torch.stack(part)[:count] for part in zip(*results, strict=True))
        return stacked, (0,) * len(stacked)

    return vmap
