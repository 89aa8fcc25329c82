"""Checks of tensors of rows that operations on rows take."""

from __future__ import annotations

import torch

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
