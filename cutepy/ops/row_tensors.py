"""Checks of tensors of rows that operations on rows take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cutepy.kernels.gemm.routes import viewing
from cutepy.kernels.rows.compilation import as_rows
from cutepy.kernels.rows.tiling import MOST_COLUMNS
from cutepy.ops.checking import check_tensor

ROW_DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def check_row_tensors(operation: str, dtype: torch.dtype | None = None, /, **tensors: torch.Tensor | None) -> None:
    """Check tensors (..., columns) of an operation, and the dtype of its result, if one is asked for.

    Raises
    ------
    TypeError, ValueError
        If a dtype, the device of a tensor, or the extent of rows is another.
    """
    given = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    first = next(iter(given))
    for name, tensor in given.items():
        check_tensor(name, tensor, ROW_DTYPES)
        if tensor.device != given[first].device:
            raise ValueError(
                f"{name} of {operation} must be on {first}'s device {given[first].device}, got {tensor.device}; move it"
            )
    if dtype is not None and dtype not in ROW_DTYPES:
        raise TypeError(f"{operation} gives float16, bfloat16 or float32, got {dtype}; convert its result")
    if given[first].shape[-1] > MOST_COLUMNS:
        raise ValueError(
            f"{operation} takes rows of {MOST_COLUMNS} elements at most, got {given[first].shape[-1]}; part them"
        )


def widened_by_autocast(x: torch.Tensor, *devices: str) -> bool:
    """Tell whether torch.autocast is on for the device of a tensor, if it is one of these."""
    device = x.device.type
    return device in devices and torch.is_autocast_enabled(device)


def to_rows(tensor: torch.Tensor | None) -> Callable[..., Any]:
    """Return a function that views tensors of this description as rows of contiguous elements, or copies, as `as_rows`.

    Gradients of the views are not recorded. None is seen as None.
    """
    if tensor is None:
        return _as_it_is
    seen = as_rows(tensor)
    if seen is tensor:
        return _as_it_is
    is_view = torch._C._is_alias_of(seen, tensor)  # type: ignore[attr-defined]
    return viewing((tuple(seen.shape), seen.stride())) if is_view else as_rows


def to_vector(tensor: torch.Tensor | None) -> Callable[..., Any]:
    """Return a function that views tensors of this description, of one number a row or column, as a vector.

    Gradients of the views are not recorded. None is seen as None.
    """
    if tensor is None or (tensor.dim() == 1 and tensor.is_contiguous()):
        return _as_it_is
    if tensor.is_contiguous():
        return viewing(((tensor.numel(),), (1,)))
    return lambda tensor: tensor.reshape(-1).contiguous()


def _as_it_is(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return tensor
