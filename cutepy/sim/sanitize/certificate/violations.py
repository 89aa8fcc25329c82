"""Violations of premises: an operation, the one that it should come after, and the step that would order them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cutepy.sim.advice import Diagnosis
from cutepy.sim.machine.events import MbarrierCompleteTx, MbarrierEvent, NamedBarrierJoin, part_of
from cutepy.sim.sanitize.hazards import Side, Where

if TYPE_CHECKING:
    from cutepy.sim.machine.events import BarrierEvent, GenerationEvent
    from cutepy.sim.machine.lanes import Array, Residents
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.sanitize.certificate.actors import Actors
    from cutepy.sim.sanitize.order.clocks import Clocks
    from cutepy.sim.sanitize.order.wave import Wave

_KEPT = 256
"""Events of a barrier that are searched for the one that an actor doesn't know of."""


class Violation(NamedTuple):
    """A premise that does not hold.

    Attributes
    ----------
    kind : str
        One of those that docs/certificate.md lists.
    where : MbarrierAt, NamedBarrier, ClusterBarrier or Place
        The barrier, or the registers.
    before : Side or None
    after : Side
    diagnosis : Diagnosis
    """

    kind: str
    where: Where
    before: Side | None
    after: Side
    diagnosis: Diagnosis


class BarrierOperation(NamedTuple):
    """Operation on a barrier, kept for reports.

    Attributes
    ----------
    what : str
    instruction : Instruction
    slots, threads : array of int
        Lanes that did it, or issued it.
    of, counts : array of int, (CTA,) and (CTA, thread or 1)
        Progress of its threads' columns, or, of an asynchronous operation, of the CTAs' barriers.
    asynchronous : bool
    """

    what: str
    instruction: Instruction
    slots: Array
    threads: Array
    of: Array
    counts: Array
    asynchronous: bool


class History:
    """Last operations on a barrier."""

    def __init__(self, residents: Residents, clocks: Clocks) -> None:
        self._residents, self._clocks = residents, clocks
        self._done: deque[BarrierOperation] = deque(maxlen=_KEPT)

    def add(self, event: BarrierEvent, phases: Array | None = None) -> None:
        """Note an event; phases are those that it counts in if it is asynchronous, by CTA."""
        i, part = event.instruction, part_of(event)
        if part is None:
            slots, threads = event.ctas.slots, event.threads.ids
            counts = self._clocks.counts(slots, threads)
            self._done.append(BarrierOperation(_said(event), i, slots, threads, slots, counts, False))
            return
        assert isinstance(event, MbarrierEvent)
        assert phases is not None
        is_of_bytes = isinstance(event, MbarrierCompleteTx)
        what = "bytes of a copy issued" if is_of_bytes else "asynchronous arrival issued"
        slots, threads = part.ctas.slots, part.threads.ids
        self._done.append(BarrierOperation(what, i, slots, threads, event.state.slots, phases[:, None] + 1, True))

    def side(self, slot: int, thread: int, instruction: Instruction, what: str) -> Side:
        """Return a thread's part of a report."""
        return Side.of_thread(what, self._residents.coordinate(slot), thread, instruction)

    def find(self, slot: int, column: int, count: int) -> Side | None:
        """Return the last operation that a count of a CTA's column includes; None if the history has dropped it."""
        thread = int(self._clocks.owner[column])
        for done in reversed(self._done):
            row, asynchronous = np.flatnonzero(done.of == slot), thread < 0
            lane = np.flatnonzero(done.threads == thread) if not asynchronous else np.zeros(1, np.intp)
            if done.asynchronous != asynchronous or not (len(row) and len(lane)):
                continue
            # Other columns of a thread count its waits, which are not noted.
            if (asynchronous or column == thread) and done.counts[row[0], lane[0]] > count:
                continue
            who = (int(done.slots[0]), int(done.threads[0])) if asynchronous else (slot, thread)
            return self.side(*who, done.instruction, done.what)
        return None


class Reports:
    """Writer of the violations at one barrier.

    Parameters
    ----------
    wave : Wave
    report : callable
        Called with each `Violation`.

    Attributes
    ----------
    history : History
    """

    def __init__(self, wave: Wave, report: Callable[[Violation], None]) -> None:
        self._wave, self._clocks, self._report = wave, wave.clocks, report
        self.history = History(wave.residents, wave.clocks)

    def say(
        self,
        kind: str,
        event: MbarrierEvent | GenerationEvent,
        before: Side | None,
        diagnosis: Diagnosis,
        slot: int | None = None,
        thread: int | None = None,
    ) -> None:
        """Report a violation by an event; the violating thread is the given one, or the first of the event."""
        by = part_of(event) or event
        is_of_copies = isinstance(event, MbarrierCompleteTx) and event.deliveries is not None
        what = "bytes of a copy" if is_of_copies else _said(event)
        slot = int(by.ctas.slots[0]) if slot is None else int(slot)
        thread = int(by.threads.ids[0]) if thread is None else int(thread)
        after = self.history.side(slot, thread, event.instruction, what)
        self._report(Violation(kind, event.barrier, before, after, diagnosis))

    def find(self, slot: int, rank: int, column: int, count: int) -> Side | None:
        """Return the last operation that a count of a column includes, of a CTA of a slot's cluster."""
        size = self._clocks.cluster
        return self.history.find(slot // size * size + rank, column, count)

    def lacked(self, actors: Actors, need: Array, late: Array) -> Side | None:
        """Return an operation that threads which come too early don't know of."""
        lacking = actors.lack(need)
        if lacking is None or not (lacking & late).any():
            return None
        found = actors.first(need, lacking & late)
        return self.find(int(actors.slots[found.row]), found.rank, found.column, found.reached)


def _said(event: BarrierEvent) -> str:
    """Describe the operation of an event on a barrier."""
    return "arrive" if isinstance(event, NamedBarrierJoin) else event.operation.replace("_", " ")


def named(side: Side | None) -> str | None:
    """Name an operation and its thread; None if the operation is forgotten.

    Examples
    --------
    >>> named(Side("arrive", "warp 1, lane 0 of CTA (0, 0, 0)"))
    'arrive by warp 1, lane 0 of CTA (0, 0, 0)'
    """
    return None if side is None else f"{side.what} by {side.who}"
