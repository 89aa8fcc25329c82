"""Tensors and arrays of the host, as memory that kernels are given."""

from __future__ import annotations

from typing import Any

import numpy as np


def storage_range(tensor: Any) -> tuple[int, int]:  # noqa: ANN401
    """Return address and bytes of the memory that a tensor or array lives in."""
    if hasattr(tensor, "untyped_storage"):
        storage = tensor.untyped_storage()
        return storage.data_ptr(), storage.nbytes()
    if isinstance(tensor, np.ndarray):
        low, high = np.lib.array_utils.byte_bounds(tensor)
        return int(low), int(high - low)
    interface = getattr(tensor, "__array_interface__", None)
    if interface is None:
        raise TypeError(f"expected a torch tensor or a numpy array in host memory, got {type(tensor).__name__}")
    return storage_range(np.asarray(tensor))


def described(tensor: Any) -> str:  # noqa: ANN401
    """Say what a tensor is."""
    return f"a tensor of shape {tuple(tensor.shape)} and type {str(tensor.dtype).removeprefix('torch.')},"
