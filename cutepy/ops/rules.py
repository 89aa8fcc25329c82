"""What torch is told of an operation beside its kernel and derivative: writing, autocast, vmap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.utils._pytree import tree_leaves

from cutepy.ops.distributed import tell_dtensor
from cutepy.ops.operation import Operation

_AUTOCAST_KEYS = {"cuda": "AutocastCUDA", "cpu": "AutocastCPU"}
_LOWER = (torch.float32, torch.float16, torch.bfloat16)


def register_mutation(operation: Operation[Any, Any]) -> None:
    """Let autograd know of the writing: it is refused where a derivative is asked for, else counted."""
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
    """Tell whether a tensor requires grad, or one in a list of them."""
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
    """Say what to do instead of asking for a forward derivative."""
    return (
        f"{op} has no forward derivative; use reverse mode, such as torch.autograd.grad or torch.func.grad, "
        "and torch.func.jacrev(torch.func.jacrev(f)) for a Hessian"
    )


def register_autocast(operation: Operation[Any, Any]) -> None:
    """Have arguments cast to autocast's dtype, but for those that are written to."""

    def casting(device: str, key: str) -> Callable[..., Any]:
        guard = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

        def implementation(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401
            arguments, named = _lowered(operation, torch.get_autocast_dtype(device), arguments, named)
            with torch._C._ExcludeDispatchKeyGuard(guard):
                return operation.op(*arguments, **named)

        return implementation

    for device, key in _AUTOCAST_KEYS.items():
        operation.library.impl(operation.op._opname, casting(device, key), key)


def lowered_within_autocast(
    operation: Operation[Any, Any], arguments: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Cast arguments as autocast would, if it is on for their device."""
    for device in _AUTOCAST_KEYS:
        if torch.is_autocast_enabled(device) and any(
            isinstance(leaf, torch.Tensor) and leaf.device.type == device
            for leaf in tree_leaves((arguments, tuple(named.values())))
        ):
            return _lowered(operation, torch.get_autocast_dtype(device), arguments, named)
    return arguments, named


def _lowered(
    operation: Operation[Any, Any], dtype: torch.dtype, arguments: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    def cast(value: Any) -> Any:  # noqa: ANN401
        if isinstance(value, (list, tuple)):
            return [cast(item) for item in value]
        if isinstance(value, torch.Tensor) and value.dtype in _LOWER:
            return value.to(dtype)
        return value

    positions = {n for n, _ in operation.mutated}
    names = {name for _, name in operation.mutated}
    lowered = tuple(a if n in positions else cast(a) for n, a in enumerate(arguments))
    return lowered, {name: v if name in names else cast(v) for name, v in named.items()}


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
