"""`RMSNorm` and `LayerNorm`: torch's layers by `cutepy.ops.rms_norm` and `layer_norm`."""

from __future__ import annotations

import torch

from cutepy.ops.norms import Norm, layer_norm, rms_norm
from cutepy.ops.operation import past_modes


class RMSNorm(torch.nn.RMSNorm):
    """Compute input / sqrt(mean(input^2) + eps) * weight by `cutepy.ops.rms_norm`.

    It is a `torch.nn.RMSNorm`: made by the same arguments, initialised alike, with the same parameters and state dict.

    Attributes
    ----------
    normalized_shape : tuple of int
    eps : float, or None
    elementwise_affine : bool
    weight : Parameter (*normalized_shape), or None

    Examples
    --------
    >>> import torch
    >>> layer = RMSNorm(64, dtype=torch.bfloat16)
    >>> x = torch.randn(2, 3, 64).bfloat16()
    >>> y, total = layer(x, residual=x)
    >>> y.shape, total.shape
    (torch.Size([2, 3, 64]), torch.Size([2, 3, 64]))
    """

    @past_modes
    def forward(self, x: torch.Tensor, residual: torch.Tensor | None = None) -> Norm:  # type: ignore[override]
        """Normalise rows.

        Parameters
        ----------
        x : Tensor (..., *normalized_shape), float16, bfloat16 or float32
        residual : Tensor, as x, optional
            Is added first; the sum is returned too.

        Returns
        -------
        Tensor, as x, or a pair of it and the sum
        """
        return rms_norm(x, self.normalized_shape, self.weight, self.eps, residual=residual)


class LayerNorm(torch.nn.LayerNorm):
    """Compute (input - mean) / sqrt(variance + eps) * weight + bias by `cutepy.ops.layer_norm`.

    It is a `torch.nn.LayerNorm`: made by the same arguments, initialised alike, with the same parameters and state
    dict.

    Attributes
    ----------
    normalized_shape : tuple of int
    eps : float
    elementwise_affine : bool
    weight, bias : Parameter (*normalized_shape), or None

    Examples
    --------
    >>> import torch
    >>> LayerNorm(64, dtype=torch.bfloat16)(torch.randn(2, 3, 64).bfloat16()).shape
    torch.Size([2, 3, 64])
    """

    @past_modes
    def forward(self, input: torch.Tensor, residual: torch.Tensor | None = None) -> Norm:  # type: ignore[override]
        """Normalise rows: parameters and results are those of `RMSNorm.forward`."""
        return layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps, residual=residual)
