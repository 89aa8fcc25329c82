"""Operations on the bits of integers that numpy lacks or does differently."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def popc(a: Array) -> Array:
    """Count the bits that are set."""
    return np.bitwise_count(a).astype(np.uint32)


def clz(a: Array) -> Array:
    """Count leading zeros."""
    bits = 8 * a.dtype.itemsize
    x = a.copy()
    for shift in (1, 2, 4, 8, 16, 32)[: 6 if bits == 64 else 5]:
        x |= x >> x.dtype.type(shift)
    return (bits - np.bitwise_count(x)).astype(np.uint32)


def brev(a: Array) -> Array:
    """Reverse the bits."""
    swapped = np.ascontiguousarray(a).view(np.uint8).reshape(*a.shape, a.dtype.itemsize)[..., ::-1]
    table = np.array([int(f"{i:08b}"[::-1], 2) for i in range(256)], np.uint8)
    return np.ascontiguousarray(table[swapped]).view(a.dtype)[..., 0]
