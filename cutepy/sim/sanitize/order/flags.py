"""Flags: words that threads write for others to poll, and reads of them that lack an acquire or a release.

A flag can explain why two accesses are not ordered: a thread that knew the older access raised the flag, a thread in
the CTA of the newer access read the raised flag, and one of these two operations was relaxed and had no fence beside
it.

References
----------
PTX ISA, "Memory Consistency Model": "Release and Acquire Patterns".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cutepy.sim.advice import Diagnosis
from cutepy.sim.ptx.memory_order import strength
from cutepy.sim.sanitize.hazards import Side
from cutepy.sim.sanitize.order.clocks import SEEN
from cutepy.sim.sanitize.order.locations import elements
from cutepy.sim.sanitize.order.published import Cluster, ReleasePattern, Snapshot

if TYPE_CHECKING:
    from cutepy.sim.machine.events import Access, Fence
    from cutepy.sim.machine.lanes import Array
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.sanitize.order.messages import Messages
    from cutepy.sim.sanitize.order.wave import Wave

_MOST, _MOST_THREADS, _MOST_COUNTED = 1024, 32, 16
"""Flags, and finds, that are kept; threads that raise one in one instruction: what more of them write is data; and
read-modify-writes of a counter."""


class ThreadProgress(NamedTuple):
    """Progress of a thread in the counts of its vector clock.

    Attributes
    ----------
    cluster : Cluster
    rank, column, reached : int
        Of the cluster's CTA, in which column of its clocks it counts, and how far that had come.
    """

    cluster: Cluster
    rank: int
    column: int
    reached: int

    def is_known(self, snapshot: Snapshot, row: int, column: int) -> bool:
        """Return whether one of the threads of a snapshot knew of it."""
        if snapshot.cluster(row) != self.cluster:
            return False
        known = snapshot.known(row, column)[SEEN, self.rank]
        return self.column < len(known) and bool(known[self.column] >= self.reached)


class _FlagWrite(NamedTuple):
    """A strong write: its thread's clock, also that before a fence; `by` is its CTA in the grid, and its thread."""

    by: tuple[int, int]
    instruction: Instruction
    snapshot: Snapshot
    row: int
    column: int
    fenced: ReleasePattern | None

    def shows(self, what: ThreadProgress) -> bool:
        """Return whether something was done before it releases, or a fence before it."""
        before = self.fenced
        is_fenced = before is not None and what.is_known(before.snapshot, before.row, before.column)
        return strength(self.instruction.opcode).releases or is_fenced


class _FlagReads(NamedTuple):
    """Strong reads of a flag that was raised by threads of a CTA, and whether they, or fences after them, acquire."""

    instruction: Instruction
    cta: int
    slot: int
    threads: frozenset[int]
    raised: tuple[_FlagWrite, ...]
    acquires: bool


class Flags:
    """The last flags of a launch, and the threads that have found them raised.

    Attributes
    ----------
    launch : int
        Its number.
    """

    def __init__(self) -> None:
        self.begin(0, is_observed=False)

    def begin(self, launch: int, *, is_observed: bool) -> None:
        """Begin with a launch, of whose strong reads some are looked at, or none."""
        self.launch, self._is_observed = launch, is_observed
        self._raised: dict[int, tuple[_FlagWrite, ...]] = {}
        self._found: deque[_FlagReads] = deque(maxlen=_MOST)

    def see(self, wave: Wave, access: Access, messages: Messages) -> None:
        """Take an access by threads: strong ones find flags, and raise them."""
        touched = elements(access) if self._is_observed and strength(access.instruction.opcode).scope else None
        if touched is None:
            return
        keys, slots, threads = touched[0], access.ctas.slots, access.threads.ids
        stores = access.operation != "read" and (access.stores is None or bool(access.stores.any()))
        reads, raises = access.operation != "write", stores and len(threads) <= _MOST_THREADS
        if not (raises or self._raised):
            return
        if not raises:
            if reads:
                self._find(wave, access, keys)
            return
        snapshot = messages.released or Snapshot(wave, self.launch, slots, threads)
        stored = np.broadcast_to(True if access.stores is None else access.stores, keys.shape[:2])
        # One after the other: of a counter the later find the earlier.
        for row, column, n in np.ndindex(keys.shape):
            slot, thread, key = int(slots[row]), int(threads[column]), int(keys[row, column, n])
            before = self._raised.get(key, ())
            by = int(wave.residents.blocks[slot]), thread
            if reads and before:
                self._found += _finds(access.instruction, slot, by[0], [thread], before)
            if not stored[row, column]:
                continue
            self._raised.pop(key, None)
            new = _FlagWrite(by, access.instruction, snapshot, row, column, messages.fenced((slot, thread)))
            self._raised[key] = *(before[1 - _MOST_COUNTED :] if access.operation == "atomic" else ()), new
        while len(self._raised) > _MOST:
            del self._raised[next(iter(self._raised))]

    def _find(self, wave: Wave, access: Access, keys: Array) -> None:
        """Note which flags threads find raised: those of a CTA that read the same one find it at once."""
        i, slots, threads = access.instruction, access.ctas.slots, access.threads.ids
        of_threads = np.broadcast_to(threads[:, None], keys.shape[1:])
        for slot, of_slot in zip(slots.tolist(), keys, strict=True):
            by_key: dict[int, list[int]] = {}
            for key, thread in zip(of_slot.ravel().tolist(), of_threads.ravel().tolist(), strict=True):
                if key in self._raised:
                    by_key.setdefault(key, []).append(thread)
            cta = int(wave.residents.blocks[slot])
            for key, mine in sorted(by_key.items(), key=lambda of: of[1][-1]):
                self._found += _finds(i, slot, cta, mine, self._raised[key])

    def fence(self, event: Fence) -> None:
        """Take a fence: it acquires the flags that its threads have found raised."""
        if self._found and strength(event.instruction.opcode).acquires:
            slots, threads = {*event.ctas.slots.tolist()}, {*event.threads.ids.tolist()}
            found = list(self._found)
            self._found.clear()
            for one in found:
                is_here = not one.acquires and one.slot in slots and not one.threads.isdisjoint(threads)
                if is_here and one.threads - threads:
                    self._found.append(one._replace(threads=one.threads - threads))
                self._found.append(one._replace(threads=one.threads & threads, acquires=True) if is_here else one)

    def too_weak(self, before: ThreadProgress, cta: int) -> Diagnosis | None:
        """Name the side of a flag whose semantics show no earlier accesses to a CTA that found it raised."""
        for found, raised in ((f, r) for f in reversed(self._found) if f.cta == cta for r in f.raised):
            if not before.is_known(raised.snapshot, raised.row, raised.column):
                continue
            if not raised.shows(before):
                return Diagnosis("relaxed-flag", line=_line(raised.instruction))
            if not found.acquires:
                return Diagnosis("relaxed-read-of-flag", line=_line(found.instruction))
        return None


def _finds(
    i: Instruction, slot: int, cta: int, threads: list[int], raised: tuple[_FlagWrite, ...]
) -> Iterator[_FlagReads]:
    """Yield the flags of others that threads find raised."""
    acquires = strength(i.opcode).acquires
    own = {thread for of, thread in (one.by for one in raised) if of == cta}
    others = frozenset(threads) - own
    if others:
        yield _FlagReads(i, cta, slot, others, raised, acquires)
    for thread in threads if own else ():
        of_others = tuple(one for one in raised if one.by != (cta, thread))
        if thread in own and of_others:
            yield _FlagReads(i, cta, slot, frozenset((thread,)), of_others, acquires)


def _line(i: Instruction) -> str:
    return Side("", "", i).line
