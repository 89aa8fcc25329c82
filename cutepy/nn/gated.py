"""`GatedMLP`: the feed-forward layer of Llama and its kin, whose gate is one kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cutepy.nn.adjoining_weights import AdjoiningLayers, join_weights
from cutepy.nn.linear import Linear
from cutepy.nn.shared_products import joinable, tensors_of
from cutepy.ops.gated import geglu, swiglu
from cutepy.ops.joined_linears import joined_linear


class GatedMLP(AdjoiningLayers):
    """Compute down_proj(f(gate_proj(x)) * up_proj(x)), f by `cutepy.ops.swiglu` or `geglu`.

    The weights of gate_proj and up_proj adjoin in memory, so that both are one product, whose halves the activation
    reads. Where something parts them, such as an adapter or a hook of one of them, each is a product of its own.

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
        self.joined_layers = (GATED,)
        join_weights(self, GATED)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the layer: (..., hidden) -> (..., hidden)."""
        activation, layers = ACTIVATIONS[self.activation], (self.gate_proj, self.up_proj)
        if self.joined_layers and joinable(Linear, layers, x):
            gated = activation(joined_linear(x, *tensors_of(layers)))
        else:
            gated = activation(self.gate_proj(x), self.up_proj(x))
        result: torch.Tensor = self.down_proj(gated)
        return result


GATED = ("gate_proj", "up_proj")
"""Names of the layers that are one product."""
ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "silu": swiglu,
    "gelu": geglu,
    "gelu_tanh": lambda gate, up=None: geglu(gate, up, approximate="tanh"),
}
"""Gated activations by the names of their functions."""
