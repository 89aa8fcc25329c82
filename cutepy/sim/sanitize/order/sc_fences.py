"""Fences with .sc: two fences synchronise where a value that was read shows which fence came first.

The first fence happens before a strong write, of its own or another thread. A read returns the written value, and
happens before the second fence. If the second fence came first, the read would come before the write that it observed.
So the thread of the first fence releases to the thread of the second one. Two fences whose order no value shows are
taken to be unordered. The check covers fences and accesses of scope .gpu and wider, and only those whose order from the
first fence to the write, and from the read to the second fence, lies within a cluster.

References
----------
PTX ISA, "Memory Consistency Model": "Causality", "Coherence"; "Fence-SC", "Synchronizes", "Observation Order",
"Causality Order".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cutepy.sim.machine.lanes import Array
from cutepy.sim.sanitize.order.clocks import SEEN, joined
from cutepy.sim.sanitize.order.published import ObservedValue, Snapshot

if TYPE_CHECKING:
    from cutepy.sim.sanitize.order.wave import Wave

_MOST_READS = 16
"""Of a thread, how many values that it has read are kept."""


class _Fence(NamedTuple):
    """A fence: its threads' knowledge, and its count, (CTA, thread)."""

    slots: Array
    threads: Array
    columns: Array
    counts: Array
    snapshot: Snapshot

    def is_of(self, slots: Array, threads: Array) -> bool:
        return np.array_equal(self.slots, slots) and np.array_equal(self.threads, threads)


class _Read(NamedTuple):
    """A read: its count, and the value that it found."""

    column: int
    reached: int
    found: ObservedValue


class PassedFences(Snapshot):
    """Releases of fences that come before later writes of some threads.

    Parameters
    ----------
    wave, launch, slots, threads
        As of `Snapshot`.
    fences : tuple of _Fence
    """

    def __init__(self, wave: Wave, launch: int, slots: Array, threads: Array, fences: tuple[_Fence, ...]) -> None:
        super().__init__(wave, launch, slots, threads)
        self._fences = fences

    def known(self, row: int, columns: int | Array, besides: object = None) -> Array:
        """Return the knowledge of the fences that threads come after: (plane, rank, column)."""
        seen = super().known(row, columns, besides)
        found, first = np.zeros_like(seen), int(self._slots[row]) // self._size * self._size
        for fence in self._fences:
            for of in np.flatnonzero(fence.slots // self._size * self._size == first).tolist():
                rank = int(fence.slots[of]) - first
                lanes = np.flatnonzero(seen[SEEN, rank, fence.columns] >= fence.counts[of])
                if len(lanes):
                    released = fence.snapshot.known(of, lanes)
                    found = joined(found, [released])
        return found

    def thread(self, column: int) -> int:
        """Return a number that is no thread's: its release is apart from that thread's own."""
        return ~super().thread(column)


class ScFences:
    """The fences with .sc of resident CTAs, and the reads of their threads that such fences came before."""

    def __init__(self) -> None:
        self._fences: tuple[_Fence, ...] = ()
        self._read: dict[tuple[int, int], list[_Read]] = {}

    def fence(self, slots: Array, threads: Array, columns: Array, counts: Array, snapshot: Snapshot) -> None:
        """Take a fence, and how far its threads had come."""
        same = [f for f in self._fences if f.is_of(slots, threads)][:-1]  # who writes may know the last but one only
        kept = (f for f in self._fences if not any(f is one for one in same))
        self._fences = *kept, _Fence(slots, threads, columns, counts, snapshot)

    def before(self, wave: Wave, launch: int, slots: Array, threads: Array) -> PassedFences | None:
        """Return the releases of fences that threads come after, if there may be some."""
        return PassedFences(wave, launch, slots, threads, self._fences) if self._fences else None

    def read(self, wave: Wave, lane: tuple[int, int], found: ObservedValue) -> None:
        """Take a read of a thread."""
        mine = self._read.setdefault(lane, [])
        if not any(r.found.sequence is found.sequence and r.found.length == found.length for r in mine):
            at = np.array([lane[0]]), np.array([lane[1]])
            reached = int(wave.clocks.counts(*at)[0, 0])
            mine.append(_Read(int(wave.writes(*at)[0]), reached, found))
            del mine[:-_MOST_READS]

    def after(self, wave: Wave, slot: int, threads: Array) -> Iterator[tuple[ObservedValue, Array]]:
        """Yield the values found by reads that some threads of a CTA come after, and these threads."""
        size, slots = wave.clocks.cluster, np.full(len(threads), slot)
        for (of, _), reads in self._read.items():
            for read in reads if of // size == slot // size else ():
                ranks, columns = np.full(len(threads), of % size), np.full(len(threads), read.column)
                known = wave.clocks.held(SEEN, slots, threads, ranks, columns) >= read.reached
                if known.any():
                    yield read.found, threads[known]
