"""Flags: words that threads write for others to poll, and reads of them that lack an acquire or a release.

It tells why two accesses are not ordered, where a flag stands between them that might have ordered them: who raised it
knew of the first, in the CTA of the second it was found raised, and one of both was relaxed, with no fence beside it.

References
----------
PTX ISA, "Memory Consistency Model": "Release and Acquire Patterns".
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cutepy.sim.ptx.memory_order import strength
from cutepy.sim.sanitize.hazards import Side
from cutepy.sim.sanitize.kinds import Diagnosis
from cutepy.sim.sanitize.order.clocks import SEEN
from cutepy.sim.sanitize.order.published import Cluster, Sent, Snapshot, elements

if TYPE_CHECKING:
    from cutepy.sim.machine.events import Access, Fence
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.sanitize.order.messages import Messages
    from cutepy.sim.sanitize.order.wave import Wave

_MOST, _MOST_THREADS, _MOST_COUNTED = 1024, 32, 16
"""Flags, and finds, that are kept; threads that raise one in one instruction: what more of them write is data; and
read-modify-writes of a counter."""


class Did(NamedTuple):
    """Progress of a thread, as the clocks count it.

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
        """Tell whether one of the threads of a snapshot knew of it."""
        if snapshot.cluster(row) != self.cluster:
            return False
        known = snapshot.known(row, column)[SEEN, self.rank]
        return self.column < len(known) and bool(known[self.column] >= self.reached)


class _Raised(NamedTuple):
    """A strong write: what its thread knew, and had put before a fence."""

    instruction: Instruction
    snapshot: Snapshot
    row: int
    column: int
    fenced: Sent | None

    @property
    def by(self) -> tuple[int, int]:
        """The CTA, by its index in the grid, and the thread of it that raised it."""
        return self.snapshot.cta(self.row), self.snapshot.thread(self.column)

    def shows(self, what: Did) -> bool:
        """Tell whether something was done before it releases, or a fence before it."""
        before = self.fenced
        is_fenced = before is not None and what.is_known(before.snapshot, before.row, before.column)
        return strength(self.instruction.opcode).releases or is_fenced


class _Found(NamedTuple):
    """A strong read of a flag that was raised, and whether it, or a fence of its thread after it, acquires."""

    instruction: Instruction
    cta: int
    slot: int
    thread: int
    raised: tuple[_Raised, ...]
    acquires: bool


class Flags:
    """The last flags of a launch, and who has found them raised.

    Attributes
    ----------
    launch : int
        Its number.
    """

    def __init__(self) -> None:
        self.begin(0)

    def begin(self, launch: int) -> None:
        """Begin with a launch."""
        self.launch = launch
        self._raised: dict[int, tuple[_Raised, ...]] = {}
        self._found: deque[_Found] = deque(maxlen=_MOST)

    def see(self, wave: Wave, access: Access, messages: Messages) -> None:
        """Take an access by threads: strong ones find flags, and raise them."""
        touched = elements(access) if strength(access.instruction.opcode).scope else None
        if touched is None:
            return
        keys, slots, threads = touched[0], access.ctas.slots, access.threads.ids
        reads, raises = access.operation != "write", access.operation != "read" and len(threads) <= _MOST_THREADS
        if not (raises or self._raised):
            return
        snapshot = Snapshot(wave, self.launch, slots, threads) if raises else None
        here = np.ones(keys.shape, bool) if raises else np.isin(keys, list(self._raised))
        # One after the other: of a counter the later find the earlier.
        for row, column, n in np.argwhere(here).tolist():
            slot, thread, key = int(slots[row]), int(threads[column]), int(keys[row, column, n])
            before = self._raised.get(key, ())
            if reads and before:
                acquires = strength(access.instruction.opcode).acquires
                cta = int(wave.residents.blocks[slot])
                others = tuple(raised for raised in before if raised.by != (cta, thread))
                if others:
                    self._found.append(_Found(access.instruction, cta, slot, thread, others, acquires))
            if snapshot is not None:
                self._raised.pop(key, None)
                new = _Raised(access.instruction, snapshot, row, column, messages.fenced((slot, thread)))
                self._raised[key] = *(before[1 - _MOST_COUNTED :] if access.operation == "atomic" else ()), new
        while len(self._raised) > _MOST:
            del self._raised[next(iter(self._raised))]

    def fence(self, event: Fence) -> None:
        """Take a fence: what its threads have found it acquires."""
        if self._found and strength(event.instruction.opcode).acquires:
            slots, threads = {*event.ctas.slots.tolist()}, {*event.threads.ids.tolist()}
            for n, found in enumerate(self._found):
                if found.slot in slots and found.thread in threads:
                    self._found[n] = found._replace(acquires=True)

    def too_weak(self, before: Did, cta: int) -> Diagnosis | None:
        """Say which side of a flag shows nothing of what was done before it to a CTA that found it raised."""
        for found, raised in ((f, r) for f in reversed(self._found) if f.cta == cta for r in f.raised):
            if not before.is_known(raised.snapshot, raised.row, raised.column):
                continue
            if not raised.shows(before):
                return Diagnosis(
                    f"the flag that {_line(raised.instruction)} raises is .relaxed, and shows nothing of what "
                    "came before it",
                    "it must be .release, or fence.acq_rel must come before it, in its thread",
                )
            if not found.acquires:
                return Diagnosis(
                    f"the flag is read at {_line(found.instruction)} by .relaxed, which shows nothing of what "
                    "came before it was raised",
                    "it must be .acquire, or fence.acq_rel must come after it, in its thread",
                )
        return None


def _line(i: Instruction) -> str:
    return Side("", "", i).line
