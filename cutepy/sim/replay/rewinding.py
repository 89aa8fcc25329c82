"""Memory that is put back as it was, again and again."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.parallel.footprint import Ranges

if TYPE_CHECKING:
    from cutepy.sim.machine.lanes import Array

_SMALL_BYTES = 1 << 20


class Rewinder:
    """Ranges of memory as they were when this was made.

    Parameters
    ----------
    ranges : sequence of (int, int)
        Starts and ends.
    """

    def __init__(self, ranges: Sequence[tuple[int, int]]) -> None:
        self._kept = [(start, here := _bytes_at(start, end), here.copy()) for start, end in ranges]

    def rewind(self, written: Ranges | None = None) -> None:
        """Put memory back: all of it, or of large ranges what was written."""
        for start, here, before in self._kept:
            if written is None or len(here) <= _SMALL_BYTES:
                if not np.array_equal(here, before):  # memory that is mapped for reading may not even be written so
                    here[:] = before
                continue
            inside = (written.starts >= start) & (written.ends <= start + len(here))
            for first, last in zip(written.starts[inside] - start, written.ends[inside] - start, strict=True):
                here[first:last] = before[first:last]


def _bytes_at(start: int, end: int) -> Array:
    return np.frombuffer(memoryview((ctypes.c_uint8 * (end - start)).from_address(start)), np.uint8)
