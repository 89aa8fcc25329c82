"""`GatedMLP`: the feed-forward layer of Llama and its kin, whose gate is one kernel."""

from __future__ import annotations

import torch

from cutepy.nn.linear import Linear
from cutepy.ops.gated import geglu, swiglu


class GatedMLP(torch.nn.Module):
    """Compute down_proj(f(gate_proj(x)) * up_proj(x)), f by `cutepy.ops.swiglu` or `geglu`.

    Parameters
    ----------
    hidden, intermediate : int
        Features of the input and the result, and within.
    activation : "silu", "gelu" or "gelu_tanh"
    bias : bool
        Of the linear layers.
    device, dtype
        Of the parameters.

    Attributes
    ----------
    gate_proj, up_proj, down_proj : torch.nn.Linear
    activation : str

    Examples
    --------
    >>> import torch
    >>> GatedMLP(16, 32, dtype=torch.bfloat16)(torch.zeros(2, 3, 16).bfloat16()).shape
    torch.Size([2, 3, 16])
    """

    def __init__(
        self,
        hidden: int,
        intermediate: int,
        activation: str = "silu",
        *,
        bias: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation must be {', '.join(ACTIVATIONS)}, got {activation!r}")
        self.activation = activation
        self.gate_proj = Linear(hidden, intermediate, bias, device, dtype)
        self.up_proj = Linear(hidden, intermediate, bias, device, dtype)
        self.down_proj = Linear(intermediate, hidden, bias, device, dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the layer: (..., hidden) -> (..., hidden)."""
        result: torch.Tensor = self.down_proj(ACTIVATIONS[self.activation](self.gate_proj(x), self.up_proj(x)))
        return result


ACTIVATIONS = {
    "silu": swiglu,
    "gelu": geglu,
    "gelu_tanh": lambda gate, up: geglu(gate, up, approximate="tanh"),
}
"""Gated activations by the names of their functions."""
