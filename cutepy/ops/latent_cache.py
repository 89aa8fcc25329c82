"""Cached latent rows of 8-bit floats, a row's scales and its other columns beside them, in plain torch.

A row has 656 bytes: 512 of float8_e4m3fn, 4 float32 scales, each of 128 of these, and 64 bfloat16 (FlashMLA's README,
"FP8 KV Cache").
"""

from __future__ import annotations

import torch

from cutepy.kernels.mla.config import HEAD, LATENT, QUANTISED_BYTES, ROPE
from cutepy.ops.checking import as_tensor
from cutepy.ops.quantising import dequantise, quantise


def quantise_mla_cache(rows: torch.Tensor) -> torch.Tensor:
    """Quantise cached latent rows to 8-bit floats, as `attention_mla` takes them: (..., 576) -> bytes (..., 656).

    The first 512 columns become float8_e4m3fn, as those of `quantise`, with a scale for each 128; the other 64 become
    bfloat16.

    Parameters
    ----------
    rows : Tensor (..., 576)
        Floats.

    Returns
    -------
    Tensor (..., 656), uint8

    Raises
    ------
    ValueError
        If rows have other columns.
    TypeError
        If they are no floats.

    Examples
    --------
    >>> import torch
    >>> rows = torch.randn(9, 64, 1, 576, dtype=torch.bfloat16)
    >>> quantise_mla_cache(rows).shape
    torch.Size([9, 64, 1, 656])
    """
    _check_columns(as_tensor("rows", rows), HEAD)
    values, scales = quantise(rows[..., :LATENT])
    rest = rows[..., LATENT:].to(torch.bfloat16)
    return torch.cat([each.contiguous().view(torch.uint8) for each in (values, scales, rest)], -1)


def dequantise_mla_cache(rows: torch.Tensor) -> torch.Tensor:
    """Give the rows that quantised ones stand for, as the kernel rounds them: bytes (..., 656) -> (..., 576), bfloat16.

    Parameters
    ----------
    rows : Tensor (..., 656), uint8 or float8_e4m3fn
        As of `quantise_mla_cache`.

    Raises
    ------
    ValueError
        If rows have other columns.
    TypeError
        If they are no bytes.

    Examples
    --------
    >>> import torch
    >>> rows = torch.randn(100, 576, dtype=torch.bfloat16)
    >>> error = dequantise_mla_cache(quantise_mla_cache(rows)) - rows
    >>> bool((error.abs() <= (2**-4 + 2**-8) * rows.abs() + 2**-10).all())
    True
    """
    if as_tensor("rows", rows).dtype not in (torch.uint8, torch.float8_e4m3fn):
        raise TypeError(
            f"quantised rows must be uint8 or float8_e4m3fn, got {rows.dtype}; quantise_mla_cache makes them"
        )
    _check_columns(rows, QUANTISED_BYTES)
    values, scales, rest = rows.view(torch.uint8).split((LATENT, QUANTISED_BYTES - LATENT - 2 * ROPE, 2 * ROPE), -1)
    latent = dequantise(values.view(torch.float8_e4m3fn), scales.contiguous().view(torch.float32), dtype=torch.bfloat16)
    return torch.cat((latent, rest.contiguous().view(torch.bfloat16)), -1)


def _check_columns(rows: torch.Tensor, columns: int) -> None:
    if rows.dim() < 1 or rows.shape[-1] != columns:
        raise ValueError(f"rows must be (..., {columns}), got shape {tuple(rows.shape)}; pass whole rows")
