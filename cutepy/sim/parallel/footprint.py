"""Footprint of a part of a launch in global memory: bytes read and written, which decide if parts may run in parallel.

The footprint is recorded where traffic is counted, so it covers the accesses that `Traffic` counts. Other accesses
(constants, parameters, tensor maps) are no writes in the kernels that `workers` spreads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.machine.activity import Kind, Traffic
from cutepy.sim.machine.lanes import Array

if TYPE_CHECKING:
    from cutepy.sim.machine.group import Group

_HELD = 1 << 20
"""Ranges that are kept before they are united."""

_ARRAY_RANGES = 64
"""The ranges that take as much memory as an array object does."""

_UNIT_BYTES = 16
_MARGIN = 32
_SCANNED = 1 << 16


@dataclass(frozen=True, slots=True, eq=False)
class Ranges:
    """A set of byte addresses, as the ranges [start, end) that it consists of: in order, and apart from each other.

    Examples
    --------
    >>> ranges = Ranges.union([np.array([0, 8, 40])], [np.array([8, 16, 48])])
    >>> ranges.starts, ranges.ends
    (array([ 0, 40]), array([16, 48]))
    """

    starts: Array
    ends: Array

    @classmethod
    def union(cls, starts: Iterable[Array], ends: Iterable[Array]) -> Ranges:
        """Unite ranges, in any order, that may overlap."""
        none = np.zeros(0, np.int64)
        low, high = np.sort(np.concatenate([none, *starts])), np.sort(np.concatenate([none, *ends]))
        # As many ranges have ended before a gap as have started.
        gap = low[1:] > high[:-1]
        first, last = np.ones(len(low), bool), np.ones(len(low), bool)
        first[1:], last[:-1] = gap, gap
        return cls(low[first], high[last])

    @property
    def size_bytes(self) -> int:
        """Number of bytes."""
        return int((self.ends - self.starts).sum())


def meets_others(reads: Ranges, own: Ranges, every: tuple[Array, Array]) -> bool:
    """Return whether bytes were written by others.

    Parameters
    ----------
    reads, own : Ranges
        The bytes read, and those of them that the reader had written.
    every : (array, array)
        Starts and ends of the ranges that all have written, each in order.
    """

    def touching(starts: Array, ends: Array) -> Array:
        # Of sorted ranges: those that start before the end, without those that end before the start.
        return np.searchsorted(starts, reads.ends) - np.searchsorted(ends, reads.starts, "right")

    return bool((touching(*every) != touching(own.starts, own.ends)).any())


def take(ranges: Ranges) -> Array:
    """Copy the bytes at addresses of this process."""
    memory, positions = _units(ranges)
    return memory[positions]


def put(ranges: Ranges, data: Array) -> None:
    """Write the bytes that `take` has copied, or as many others."""
    memory, positions = _units(ranges)
    memory[positions] = data.view(memory.dtype)


def _units(ranges: Ranges) -> tuple[Array, Array]:
    """Return memory from the first to the last range in units that divide them all, and the positions of theirs."""
    starts, ends = ranges.starts, ranges.ends
    if not len(starts):
        return np.zeros(0, np.uint8), np.zeros(0, np.int64)
    bits = int(np.bitwise_or.reduce(starts | ends))
    unit = min(bits & -bits, _UNIT_BYTES)
    low, high = int(starts[0]), int(ends[-1])
    span = (ctypes.c_uint8 * (high - low)).from_address(low)
    memory = np.frombuffer(memoryview(span), "c16" if unit == _UNIT_BYTES else f"u{unit}")
    firsts, counts = (starts - low) // unit, (ends - starts) // unit
    positions = np.arange(counts.sum()) + np.repeat(firsts - (np.cumsum(counts) - counts), counts)
    return memory, positions


class _Collector:
    """Ranges as they come, united now and then."""

    def __init__(self) -> None:
        self._starts: list[Array] = []
        self._ends: list[Array] = []
        self._held = 0
        self._boxes: set[tuple[int, tuple[int, ...], tuple[int, ...], int]] = set()
        self._maps: dict[tuple[int, int], Array] = {}

    def add(self, starts: Array, ends: Array) -> None:
        """Add ranges."""
        self._starts.append(starts)
        self._ends.append(ends)
        self._held += _ARRAY_RANGES + len(starts)
        if self._held > _HELD:
            self.united()

    def lanes(self, addresses: Array, size_bytes: int) -> None:
        """Add the accesses of lanes; neighbours that continue the last range extend it."""
        flat = addresses.reshape(-1).astype(np.int64)
        cuts = np.flatnonzero(np.diff(flat) != size_bytes)
        self.add(flat[np.concatenate([[0], cuts + 1])], flat[np.concatenate([cuts, [-1]])] + size_bytes)

    def box(self, address: int, extents: tuple[int, ...], steps: tuple[int, ...], element_bytes: int) -> None:
        """Add a box, which many CTAs may read: it is worked out once."""
        self._boxes.add((address, extents, steps, element_bytes))

    def map(self, start: int, end: int) -> Array:
        """Return a bit for each byte from one address up to another, which is to be set if it is accessed."""
        if (start, end) not in self._maps:
            # An access of several bytes may begin at the last byte that is known.
            self._maps[start, end] = np.zeros((end - start) // 8 + _MARGIN, np.uint8)
        return self._maps[start, end]

    def united(self) -> Ranges:
        """Return all that was added."""
        for address, extents, steps, element_bytes in self._boxes:
            starts = np.array([address], np.int64)
            for extent, step in zip(extents[1:], steps[1:], strict=True):
                starts = (starts[:, None] + np.arange(extent) * step).reshape(-1)
            self._starts.append(starts)
            self._ends.append(starts + extents[0] * element_bytes)
        self._boxes.clear()
        for (start, _), bits in self._maps.items():
            starts, ends = _runs(bits)
            self._starts.append(starts + start)
            self._ends.append(ends + start)
        ranges = Ranges.union(self._starts, self._ends)
        self._starts, self._ends, self._held = [ranges.starts], [ranges.ends], 0
        return ranges


def _runs(bits: Array) -> tuple[Array, Array]:
    """Return where runs of bits that are set start and end.

    Examples
    --------
    >>> _runs(np.array([0b11110000, 0b1, 0], np.uint8))
    (array([4]), array([9]))
    """
    starts, ends = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for first in range(0, len(bits), _SCANNED):
        part = bits[first : first + _SCANNED]
        if part.any():
            flags = np.unpackbits(part, bitorder="little").view(np.int8)
            edges = np.diff(flags, prepend=np.int8(0), append=np.int8(0))
            starts.append(np.flatnonzero(edges > 0) + 8 * first)
            ends.append(np.flatnonzero(edges < 0) + 8 * first)
    united = Ranges.union(starts, ends)
    return united.starts, united.ends


class Footprint(Traffic):
    """Counts traffic, and keeps the addresses that are read and written."""

    def __init__(self, counts: dict[str, int]) -> None:
        super().__init__(counts)
        self._reads, self._writes = _Collector(), _Collector()

    @property
    def reads(self) -> Ranges:
        """Bytes read so far."""
        return self._reads.united()

    @property
    def writes(self) -> Ranges:
        """Bytes written so far."""
        return self._writes.united()

    def _of(self, kind: Kind) -> list[_Collector]:
        return {"load": [self._reads], "store": [self._writes], "atomic": [self._reads, self._writes]}[kind]

    def maps(self, start: int, end: int) -> tuple[Array | None, Array | None]:
        """Return the bits of each byte of a range: of reads, and of writes."""
        return self._reads.map(start, end), self._writes.map(start, end)

    def access(self, kind: Kind, g: Group, addresses: Array, size_bytes: int) -> None:
        """Count and note an access of `size_bytes` by each lane."""
        super().access(kind, g, addresses, size_bytes)
        for collector in self._of(kind):
            collector.lanes(addresses, size_bytes)

    def partial(self, kind: Kind, g: Group, addresses: Array, sizes: Array) -> None:
        """Count and note an access of a number of bytes of each lane's own."""
        super().partial(kind, g, addresses, sizes)
        starts = addresses[sizes > 0].astype(np.int64)
        for collector in self._of(kind):
            collector.add(starts, starts + sizes[sizes > 0])

    def run(self, kind: Kind, address: int, size_bytes: int) -> None:
        """Count and note contiguous bytes."""
        super().run(kind, address, size_bytes)
        for collector in self._of(kind) if size_bytes else []:
            collector.add(np.array([address]), np.array([address + size_bytes]))

    def box(
        self, kind: Kind, address: int, extents: tuple[int, ...], steps: tuple[int, ...], element_bytes: int
    ) -> None:
        """Count and note a box."""
        super().box(kind, address, extents, steps, element_bytes)
        for collector in self._of(kind):
            collector.box(address, extents, steps, element_bytes)
