"""What is known of the granules of an allocation of global memory, or of a piece of a large one.

A granule is as large as the smallest access that the allocation has seen, 16 bytes at most.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cutepy.layouts.sm90.arch import UNIT_BYTES
from cutepy.sim.machine.lanes import Array

EXTENT_BYTES = 1 << 26
"""Where extents end at the latest: at multiples of this."""

UNWRITTEN = -1
"""The number of granules that nothing has written since they were allocated."""


class Extent:
    """What is known of one allocation: numbers by granule."""

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end
        self.base = start & -UNIT_BYTES
        self.granule = UNIT_BYTES
        self.written: Array = np.zeros(-(-(end - self.base) // UNIT_BYTES), np.int32)
        self.read: Array | None = None
        self.last_write = 0
        self.fresh = False

    def refine(self, granule: int) -> None:
        """Divide granules into smaller ones."""
        times = self.granule // granule
        self.written = _repeated(self.written, times)
        self.read = None if self.read is None else _repeated(self.read, times)
        self.granule = granule

    def index(self, starts: Array, size: int) -> Array:
        """Return the granules of ranges of bytes, (range, granule), which become smaller if need be."""
        offsets = starts - self.base
        if size % self.granule or (offsets & (self.granule - 1)).any():
            self.refine(int(np.gcd(np.gcd.reduce(offsets), np.gcd(size, self.granule))))
        result: Array = (offsets // self.granule)[:, None] + np.arange(size // self.granule)
        return result

    def take(self, other: Extent) -> None:
        """Keep what is known of memory that is part of this now."""
        if other.granule < self.granule:
            self.refine(other.granule)
        times = other.granule // self.granule
        low, high = max(self.base, other.base), min(self.end, other.end)
        mine, theirs, count = (x // self.granule for x in (low - self.base, low - other.base, high - low))
        self.written[mine : mine + count] = np.repeat(other.written, times)[theirs : theirs + count]
        self.last_write, self.fresh = max(self.last_write, other.last_write), self.fresh or other.fresh
        if other.read is not None:
            if self.read is None:
                self.read = np.zeros_like(self.written)
            self.read[mine : mine + count] = np.repeat(other.read, times)[theirs : theirs + count]


def within_extents(starts: Array, size: int) -> Iterator[tuple[Array, Array, int]]:
    """Divide runs of bytes where extents end -> which runs, where their pieces start, the size of these."""
    across = starts // EXTENT_BYTES != (starts + size - 1) // EXTENT_BYTES
    if not across.all():
        yield np.flatnonzero(~across), starts[~across], size
    for run in np.flatnonzero(across):
        start, end = int(starts[run]), int(starts[run]) + size
        while start < end:
            stop = min(end, (start // EXTENT_BYTES + 1) * EXTENT_BYTES)
            yield np.array([run]), np.array([start]), stop - start
            start = stop


def _repeated(numbers: Array, times: int) -> Array:
    """Repeat each number, and touch no memory for zeros."""
    result = np.zeros(len(numbers) * times, np.int32)
    there = np.flatnonzero(numbers)
    result.reshape(-1, times)[there] = numbers[there, None]
    return result
