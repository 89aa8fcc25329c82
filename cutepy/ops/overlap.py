"""Whether the result of an operation would be written over what is still to be read."""

from __future__ import annotations

import torch

from cutepy.kernels.gemm.operands import Description


def check_apart(out: torch.Tensor, c: torch.Tensor | None = None, **inputs: torch.Tensor | None) -> None:
    """Refuse an `out` that could share memory with an input: exact for blocks of one matrix, else by address range.

    It may be `c` itself: each element of that is read before it is written.

    Raises
    ------
    ValueError
        If they could; the message names the input.
    """
    for name, tensor in (*inputs.items(), ("c", c)):
        if tensor is not None and may_overlap(out, tensor) and not (name == "c" and _same_elements(out, tensor)):
            raise ValueError(
                f"out must share no memory with {name}: parts of it are written while others of {name} are still "
                f"to be read; pass a new tensor{', or c itself' if name == 'c' else ''}"
            )


def overlaps_itself(tensor: Description) -> bool:
    """Tell whether two elements may share memory: whether modes, from the closest on, do not step over each other."""
    span = 1
    for stride, extent in sorted(zip(tensor.stride, tensor.shape, strict=True)):
        if extent > 1 and stride < span:
            return True
        span += stride * (extent - 1)
    return False


def may_overlap(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Tell whether two tensors could share a byte: exact for blocks of one matrix, else by address range.

    Batches are seen as matrices where a view joins their rows.
    """
    if x.numel() == 0 or y.numel() == 0 or x.device != y.device:
        return False
    if x.data_ptr() + span_bytes(x) <= y.data_ptr() or y.data_ptr() + span_bytes(y) <= x.data_ptr():
        return False
    x_rows, y_rows = _rows(x), _rows(y)
    return x_rows is None or y_rows is None or _rows_may_overlap(x_rows, y_rows)


def _rows_may_overlap(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Tell it of matrices whose address ranges overlap."""
    (x_pitch, x_row), (y_pitch, y_row) = _pitch_and_row_bytes(x), _pitch_and_row_bytes(y)
    pitches = {pitch for pitch in (x_pitch, y_pitch) if pitch}
    if len(pitches) != 1:
        return True
    # Both are rows of one pitch, so they are apart just if their columns of bytes are, around the pitch's end.
    pitch = pitches.pop()
    offset = (y.data_ptr() - x.data_ptr()) % pitch
    return offset < x_row or offset + y_row > pitch


def _rows(tensor: torch.Tensor) -> torch.Tensor | None:
    """See a batch as one matrix, its rows joined; None where no view does."""
    if tensor.dim() == 2:
        return tensor
    try:
        return tensor.view(-1, tensor.shape[-1])
    except RuntimeError:  # the only way to ask torch
        return None


def _pitch_and_row_bytes(tensor: torch.Tensor) -> tuple[int, int]:
    """See a matrix as rows at a pitch, 0 if it is one row; a column is rows of one element."""
    steps = sorted((stride, extent) for stride, extent in zip(tensor.stride(), tensor.shape, strict=True) if extent > 1)
    if len(steps) == 1 and steps[0][0] > 1:
        return steps[0][0] * tensor.itemsize, tensor.itemsize
    (stride, extent), (pitch, _) = (*steps, (0, 1), (0, 1))[:2]
    return pitch * tensor.itemsize, ((extent - 1) * stride + 1) * tensor.itemsize


def _same_elements(x: torch.Tensor, y: torch.Tensor) -> bool:
    return x.data_ptr() == y.data_ptr() and (x.shape, x.stride(), x.dtype) == (y.shape, y.stride(), y.dtype)


def span_bytes(tensor: torch.Tensor) -> int:
    """Give the bytes from a tensor's first element to the end of its last."""
    if tensor.is_contiguous():
        return tensor.nbytes
    last = sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.itemsize
