"""Gated activations as operations of PyTorch: `swiglu` and `geglu`, and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.functional import gelu, silu

from cutepy.host.launches import Launches, OptionalTensor, described, maker_of
from cutepy.kernels.rows.plans import plan_gated, plan_gated_backward
from cutepy.ops import shardings
from cutepy.ops.checking import as_tensor
from cutepy.ops.registration import register_both
from cutepy.ops.row_tensors import check_row_tensors, to_rows
from cutepy.runtime.execution import EXECUTION

REFERENCES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": silu,
    "gelu": gelu,
    "gelu_tanh": lambda x: gelu(x, approximate="tanh"),
}
SLOPES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "silu": torch.ops.aten.silu_backward,
    "gelu": torch.ops.aten.gelu_backward,
    "gelu_tanh": lambda grad, x: torch.ops.aten.gelu_backward(grad, x, approximate="tanh"),
}
"""Activations, and what multiplies gradients by their derivatives."""

Gradients = tuple[torch.Tensor, torch.Tensor]

_launches: Launches[Callable[..., torch.Tensor]] = Launches()
_backward_launches: Launches[Callable[..., Gradients]] = Launches()


def swiglu(gate: torch.Tensor, up: torch.Tensor | None = None) -> torch.Tensor:
    """Compute silu(gate) * up.

    Parameters
    ----------
    gate : Tensor (..., columns)
        float16, bfloat16 or float32, of any strides; rows that are not contiguous are copied. If `up` is not given,
        the first half of each row is the gate, and the second half is multiplied by its activation. The gradient is one
        tensor then, where halves that are passed as two views have theirs joined.
    up : Tensor, as gate, optional

    Returns
    -------
    Tensor, as gate, or of half its columns
        Contiguous. Differentiable. All is computed in fp32, and rounded once.

    Raises
    ------
    TypeError, ValueError
        If dtypes or shapes are others.

    Examples
    --------
    >>> import torch
    >>> swiglu(torch.tensor([0.0, 20.0]), torch.tensor([3.0, 2.0])), swiglu(torch.tensor([20.0, 2.0]))
    (tensor([ 0., 40.]), tensor([40.]))
    """
    return _gated(as_tensor("gate", gate), up, "silu")


def geglu(gate: torch.Tensor, up: torch.Tensor | None = None, approximate: str = "none") -> torch.Tensor:
    """Compute gelu(gate) * up: as `swiglu`, and `torch.nn.functional.gelu`, which is approximated by "none" or "tanh".

    Examples
    --------
    >>> import torch
    >>> geglu(torch.tensor([1.0]), torch.tensor([2.0])), geglu(torch.tensor([1.0, 2.0]), approximate="tanh")
    (tensor([1.6827]), tensor([1.6824]))
    """
    if approximate not in ("none", "tanh"):
        raise ValueError(f'approximate must be "none" or "tanh", got {approximate!r}')
    return _gated(as_tensor("gate", gate), up, "gelu_tanh" if approximate == "tanh" else "gelu")


def _columns(gate: torch.Tensor, up: OptionalTensor) -> int:
    return gate.shape[-1] if up is not None else gate.shape[-1] // 2


def _halves(gate: torch.Tensor, up: OptionalTensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gate and its factor; views if they are halves of one tensor."""
    if up is not None:
        return gate, up
    columns = _columns(gate, up)
    return gate[..., :columns], gate[..., columns:]


def _empty(gate: torch.Tensor, up: OptionalTensor, activation: str) -> torch.Tensor:
    if not gate.dim():
        raise ValueError("gate must have at least one dimension, got shape ()")
    if up is None and gate.shape[-1] % 2:
        raise ValueError(f"without up, gate must have two halves, got {gate.shape[-1]} columns")
    if up is not None and (as_tensor("up", up).shape != gate.shape or up.dtype != gate.dtype):
        raise ValueError(
            f"up must be of gate's shape {tuple(gate.shape)} and {gate.dtype}, got {tuple(up.shape)} of {up.dtype}"
        )
    check_row_tensors(activation, None, gate=_halves(gate, up)[0], up=up)
    return gate.new_empty((*gate.shape[:-1], _columns(gate, up)))


def _reference(gate: torch.Tensor, up: OptionalTensor, activation: str) -> torch.Tensor:
    y = _empty(gate, up, activation)
    gate, up = _halves(gate, up)
    return (REFERENCES[activation](gate.float()) * up.float()).to(y.dtype).contiguous()


def _keep(ctx: Any, inputs: Sequence[Any], output: torch.Tensor) -> None:  # noqa: ANN401
    gate, up, ctx.activation = inputs
    ctx.save_for_backward(gate, up)


def _backward(ctx: Any, dy: torch.Tensor) -> tuple[Any, ...]:  # noqa: ANN401
    gate, up = ctx.saved_tensors
    dgate, dup = _gated_backward(dy, gate, up, ctx.activation)
    return dgate, None if up is None else dup, None


@register_both(
    "cutepy::gated",
    reference=_reference,
    fake=_empty,
    setup_context=_keep,
    backward=_backward,
    sharding=shardings.of_gated,
    is_invariant=True,
)
def _gated(gate: torch.Tensor, up: OptionalTensor, activation: str) -> torch.Tensor:
    key = (activation, EXECUTION.backend is None, *described(gate, up))
    launch = _launches.get(key)
    if launch is None:
        launch = _launches.keep(key, _find_launch(gate, up, activation))
    return launch(gate, up)


def _find_launch(gate: torch.Tensor, up: OptionalTensor, activation: str) -> Callable[..., torch.Tensor]:
    """Plan the launch for tensors of this description, and compile the kernel."""
    y, (first, second) = _empty(gate, up, activation), _halves(gate, up)
    make = maker_of(gate, y.shape)
    if not y.numel():
        return lambda *_: make()
    to_first, to_second, to_y = map(to_rows, (first, second, y))
    function = plan_gated(to_first(first), to_second(second), to_y(y), activation=activation)

    def run(gate: torch.Tensor, up: OptionalTensor) -> torch.Tensor:
        y = make()
        first, second = _halves(gate, up)
        function(to_first(first), to_second(second), to_y(y))
        return y

    return run


def _empty_gradients(
    dy: torch.Tensor, gate: torch.Tensor, up: OptionalTensor, activation: str
) -> tuple[torch.Tensor, torch.Tensor]:
    return gate.new_empty(gate.shape), gate.new_empty(0 if up is None else up.shape)


def _reference_backward(
    dy: torch.Tensor, gate: torch.Tensor, up: OptionalTensor, activation: str
) -> tuple[torch.Tensor, torch.Tensor]:
    results = _empty_gradients(dy, gate, up, activation)
    wide, ups = (each.float() for each in _halves(gate, up))
    dgate, dup = SLOPES[activation](dy.float() * ups, wide), dy.float() * REFERENCES[activation](wide)
    if up is None:
        return torch.cat((dgate, dup), -1).to(gate.dtype), results[1]
    return dgate.to(gate.dtype).contiguous(), dup.to(gate.dtype).contiguous()


@register_both(
    "cutepy::gated_backward",
    reference=_reference_backward,
    fake=_empty_gradients,
    sharding=shardings.of_gated_backward,
    is_invariant=True,
)
def _gated_backward(
    dy: torch.Tensor, gate: torch.Tensor, up: OptionalTensor, activation: str
) -> tuple[torch.Tensor, torch.Tensor]:
    key = (activation, EXECUTION.backend is None, *described(dy, gate, up))
    launch = _backward_launches.get(key)
    if launch is None:
        launch = _backward_launches.keep(key, _find_backward_launch(dy, gate, up, activation))
    return launch(dy, gate, up)


def _find_backward_launch(
    dy: torch.Tensor, gate: torch.Tensor, up: OptionalTensor, activation: str
) -> Callable[..., Gradients]:
    """Plan the launch for gradients of tensors of this description, and compile the kernel."""
    results = _empty_gradients(dy, gate, up, activation)
    make_dgate, make_dup = (maker_of(gate, each.shape) for each in results)
    if not dy.numel():
        return lambda *_: (make_dgate(), make_dup())

    def parted(
        dy: torch.Tensor, gate: torch.Tensor, up: OptionalTensor, results: Gradients
    ) -> tuple[torch.Tensor, ...]:
        return dy, *_halves(gate, up), *_halves(results[0], None if up is None else results[1])

    like = parted(dy, gate, up, results)
    to_dy, to_first, to_second, to_dfirst, to_dsecond = ways = [*map(to_rows, like)]
    seen = (way(each) for way, each in zip(ways, like, strict=True))
    function = plan_gated_backward(*seen, activation=activation)

    def run(dy: torch.Tensor, gate: torch.Tensor, up: OptionalTensor) -> Gradients:
        results = make_dgate(), make_dup()
        dy, first, second, dfirst, dsecond = parted(dy, gate, up, results)
        function(to_dy(dy), to_first(first), to_second(second), to_dfirst(dfirst), to_dsecond(dsecond))
        return results

    return run
