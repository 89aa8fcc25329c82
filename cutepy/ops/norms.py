"""`rms_norm` and `layer_norm`: torch's normalisations, with residuals, in one kernel."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from cutepy.epilogues.operations import LARGEST
from cutepy.host.launches import OptionalTensor
from cutepy.host.specs import dtype_name
from cutepy.ops.checking import require_tensors
from cutepy.ops.normalising import check_shapes, norm
from cutepy.ops.quantised_norms import Scale, quantised_norm

Norm = torch.Tensor | tuple[torch.Tensor, ...]


EPS = torch.finfo(torch.float32).eps
"""Is added to the mean of squares, where nothing else is given."""


def rms_norm(
    input: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None,
    eps: float | None = None,
    *,
    residual: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    scale: torch.Tensor | tuple[int, int] | None = None,
    return_amax: bool = False,
) -> Norm:
    """Compute input / sqrt(mean(input^2) + eps) * weight: `torch.nn.functional.rms_norm`, and more.

    Parameters
    ----------
    input : Tensor (..., *normalized_shape)
        float16, bfloat16 or float32, of any strides; rows that are not contiguous are copied.
    normalized_shape : sequence of int
        The last extents of the input, over which the mean is: 1 to 262,144 elements.
    weight : Tensor (*normalized_shape), optional
    eps : float, optional
        The machine epsilon of float32, of 16-bit inputs too, as torch has it, if not given.
    residual : Tensor, as input, optional
        Is added first; the sum is returned too.
    out_dtype : dtype, optional
        Of the result: that of the input if not given. float8_e4m3fn and float8_e5m2 need a scale.
    scale : Tensor of one float32, or (int, int), optional
        Divisor of an 8-bit result; or rows and columns that share a scale, as `quantise` takes them: (1, 0)
        or (1, 128), whose scales are computed in the same kernel and returned.
    return_amax : bool
        True if the largest magnitude before the division by a given scale is returned too, as delayed scaling takes it
        for the scale of the next step.

    Returns
    -------
    Tensor, as input
        Differentiable, but for 8 bits, which saturate. All is computed in fp32.
    Tensor (..., 1) or (..., ceil(elements / 128)), float32
        The scales, if they are computed; `scaled_gemm` takes both. Positive and finite, and normal numbers.
    Tensor (), float32
        The largest magnitude, with `return_amax`: NaN if an element is, 0 of no elements.
    Tensor, as input
        The sum with the residual, if there is one, of the dtype that torch adds them in.

    Raises
    ------
    TypeError, ValueError
        If dtypes or shapes are others.
    NotImplementedError
        If a gradient is asked for of 8 bits.

    Examples
    --------
    >>> import torch
    >>> rms_norm(torch.tensor([[3.0, 4.0]]), (2,), eps=0.0, out_dtype=torch.float8_e4m3fn, scale=(1, 0))[0].float()
    tensor([[320., 448.]])
    >>> rms_norm(torch.tensor([[3.0, 4.0]]), (2,), eps=0.0)
    tensor([[0.8485, 1.1314]])
    """
    try:
        eps = EPS if eps is None else eps
        return _normalise(
            "rms_norm",
            input,
            normalized_shape,
            weight,
            None,
            eps,
            residual,
            out_dtype,
            scale,
            return_amax,
            centres=False,
        )
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):
        require_tensors(rms_norm, locals())
        raise


def layer_norm(
    input: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
    *,
    residual: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    scale: torch.Tensor | tuple[int, int] | None = None,
    return_amax: bool = False,
) -> Norm:
    """Compute (input - mean) / sqrt(variance + eps) * weight + bias: `torch.nn.functional.layer_norm`, and more.

    Parameters and results are those of `rms_norm`; the bias is as the weight.

    Examples
    --------
    >>> import torch
    >>> layer_norm(torch.tensor([[1.0, 3.0]]), (2,), bias=torch.ones(2), eps=0.0)
    tensor([[0., 2.]])
    """
    try:
        return _normalise(
            "layer_norm",
            input,
            normalized_shape,
            weight,
            bias,
            eps,
            residual,
            out_dtype,
            scale,
            return_amax,
            centres=True,
        )
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):
        require_tensors(layer_norm, locals())
        raise


def _normalise(
    name: str,
    x: torch.Tensor,
    shape: Sequence[int],
    weight: OptionalTensor,
    bias: OptionalTensor,
    eps: float,
    residual: OptionalTensor,
    out_dtype: torch.dtype | None,
    scale: Scale,
    return_amax: bool,
    *,
    centres: bool,
) -> Norm:
    if isinstance(shape, torch.Tensor):
        got = f"a tensor {tuple(shape.shape)}"
        raise TypeError(f"the normalized shape of {name} must be integers, got {got}; give the shape before a weight")
    shape = tuple(shape)
    if not shape or x.shape[-len(shape) :] != shape:
        raise ValueError(f"the input of {name} must end with the normalized shape {shape}, got {tuple(x.shape)}")
    if out_dtype is None and x.is_cuda and torch.is_autocast_enabled("cuda"):
        out_dtype = torch.float32  # torch casts all that is given
    if len(shape) > 1:
        check_shapes(shape, x.shape, residual, weight, bias)
        x, residual = (None if each is None else each.flatten(-len(shape)) for each in (x, residual))  # type: ignore[assignment]
        weight, bias = (None if each is None else each.flatten() for each in (weight, bias))
    scales: tuple[torch.Tensor, ...] = ()
    if out_dtype is not None and dtype_name(out_dtype) in LARGEST:
        y, found, total = quantised_norm(x, residual, weight, bias, eps, centres, out_dtype, scale, return_amax)
        scales = () if isinstance(scale, torch.Tensor) and not return_amax else (found,)
    elif scale is not None:
        raise ValueError(f"a scale of {name} needs an out_dtype of {' or '.join(LARGEST)}, got {out_dtype}")
    elif return_amax:
        raise ValueError(f"return_amax of {name} needs an out_dtype of {' or '.join(LARGEST)}, got {out_dtype}")
    else:
        y, total, _, _ = norm(x, residual, weight, bias, eps, centres, out_dtype)
    if len(shape) > 1:
        y, total = y.unflatten(-1, shape), total if residual is None else total.unflatten(-1, shape)
    results = (y, *scales) if residual is None else (y, *scales, total)
    return results if len(results) > 1 else y
