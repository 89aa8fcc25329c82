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
        if may_overlap(out, tensor):
            raise ValueError(
                f"out must share no memory with {name}: parts of it are written while others of {name} are still "
                "to be read; pass a new tensor"
            )


def _span(tensor: torch.Tensor) -> int:
    """Give the bytes from a tensor's first element to the end of its last."""
    if tensor.is_contiguous():
        return tensor.nbytes
    last = sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.itemsize
