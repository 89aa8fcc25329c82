"""`Linear`: torch.nn.Linear by `cutepy.ops.gemm`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cutepy.kernels.gemm.operands import OPERAND_DTYPES
from cutepy.nn.shared_products import CURRENT
from cutepy.ops.dense_gemm import gemm
from cutepy.ops.operation import past_modes


class Linear(torch.nn.Linear):
    """Compute input @ weight.T + bias by `cutepy.ops.gemm`: a function (..., in_features) -> (..., out_features).

    It is a `torch.nn.Linear`: made by the same arguments, initialised alike, with the same parameters and state dict.
    Weight and input must have 16 bits when it is called, or be cast by `torch.autocast`.

    Attributes
    ----------
    in_features, out_features : int
        K and N.
    weight : Parameter, (out_features, in_features)
    bias : Parameter, (out_features,), or None

    Examples
    --------
    >>> import torch
    >>> layer = Linear(16, 8, dtype=torch.bfloat16)
    >>> layer(torch.zeros(2, 3, 16, dtype=torch.bfloat16)).shape
    torch.Size([2, 3, 8])
    """

    @past_modes
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Multiply by the weight and add the bias.

        Parameters
        ----------
        input : Tensor, (..., in_features), of the weight's dtype

        Returns
        -------
        Tensor, (..., out_features)
        """
        if not torch.compiler.is_compiling() and (share := CURRENT.share) is not None:
            part = share.part(self, input)
            if part is not None:
                return part
        return gemm(input, self.weight, bias=self.bias)

    @classmethod
    def from_linear(cls, linear: torch.nn.Linear) -> Linear:
        """Make a layer that shares the parameters of another.

        Parameters
        ----------
        linear : torch.nn.Linear
        """
        made = cls(linear.in_features, linear.out_features, bias=linear.bias is not None, device="meta")
        made.weight, made.bias = linear.weight, linear.bias
        return made.train(linear.training)


def replace_linears(model: torch.nn.Module, filter: Callable[[str, torch.nn.Linear], Any] | None = None) -> int:
    """Replace a model's linear layers by `Linear`, in place.

    Every `torch.nn.Linear` becomes a `Linear`: the same object, with its parameters, hooks and names. Layers of other
    classes, also of classes derived from `torch.nn.Linear`, stay as they are, and so do those whose weight has a type
    that `gemm` does not multiply: float64 and complex numbers. Layers in float32 are replaced, and multiply under
    `torch.autocast` or where torch's settings let them be rounded to tf32; elsewhere they raise.

    Parameters
    ----------
    model : torch.nn.Module
        May be a linear layer itself.
    filter : callable, optional
        Tells by name, such as "layers.0.mlp.up_proj", and layer whether to replace it.

    Returns
    -------
    int
        How many layers were replaced; one that several names share counts once.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    >>> replace_linears(model, lambda name, layer: layer.out_features == 8), type(model[2]).__module__
    (1, 'torch.nn.modules.linear')
    """
    count = 0
    for name, layer in list(model.named_modules()):
        if (
            type(layer) is torch.nn.Linear
            and layer.weight.dtype in OPERAND_DTYPES
            and (filter is None or filter(name, layer))
        ):
            layer.__class__ = Linear
            count += 1
    return count
