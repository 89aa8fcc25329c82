"""Whether the result of an operation would be written over what is still to be read."""

from __future__ import annotations

import torch

from cutepy.kernels.gemm.operands import may_overlap


def check_apart(out: torch.Tensor, **inputs: torch.Tensor | None) -> None:
    """Refuse an `out` that could share memory with an input: exact for blocks of one matrix, else by address range.

    Raises
    ------
    ValueError
        If they could; the message names the input.
    """
    start = out.data_ptr()
    end = start + _span(out)
    for name, tensor in inputs.items():
        if tensor is None or (other := tensor.data_ptr()) >= end or other + _span(tensor) <= start:
            continue  # what nearly every call finds, and so the least is asked to find it
        if _may_overlap(out, tensor):
            raise ValueError(
                f"out must share no memory with {name}: parts of it are written while others of {name} are still "
                "to be read; pass a new tensor"
            )


def _may_overlap(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Tell it of tensors whose ranges of addresses meet."""
    if x.numel() == 0 or y.numel() == 0 or x.device != y.device:
        return False
    x_rows, y_rows = _rows(x), _rows(y)
    return x_rows is None or y_rows is None or may_overlap(x_rows, y_rows)


def _rows(tensor: torch.Tensor) -> torch.Tensor | None:
    """See a tensor as a matrix, its leading dimensions joined; None where no view does."""
    if tensor.dim() < 2:
        return None
    try:
        return tensor.view(-1, tensor.shape[-1])
    except RuntimeError:  # the only way to ask torch
        return None


def _span(tensor: torch.Tensor) -> int:
    """Give the bytes from a tensor's first element to the end of its last."""
    if tensor.is_contiguous():
        return tensor.nbytes
    last = sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.itemsize
