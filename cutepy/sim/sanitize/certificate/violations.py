"""What is said where a premise does not hold: which operation is not ordered after what, and what would order it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from cutepy.sim.machine.lanes import WARP
from cutepy.sim.sanitize.hazards import Side

if TYPE_CHECKING:
    from cutepy.sim.machine.events import BarrierEvent
    from cutepy.sim.machine.lanes import Array, Residents
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.sanitize.certificate.actors import Actors
    from cutepy.sim.sanitize.order.wave import Wave

_KEPT = 256
"""How many events of a barrier are looked through for the one that somebody doesn't know of."""


class Violation(NamedTuple):
    """A premise that does not hold.

    Attributes
    ----------
    kind : str
        One of those that docs/certificate.md lists.
    where : str
        The barrier.
    before : Side or None
    after : Side
    missing : str
    """

    kind: str
    where: str
    before: Side | None
    after: Side
    missing: str


class Done(NamedTuple):
    """Something that was done to a barrier, as it is found again for a report.

    Attributes
    ----------
    what : str
    instruction : Instruction
    slots, threads : array of int
        Who did it, or issued it.
    asynchronous : bool
    """

    what: str
    instruction: Instruction
    slots: Array
    threads: Array
    asynchronous: bool


class History:
    """What was done to a barrier lately."""

    def __init__(self, residents: Residents) -> None:
        self._residents = residents
        self._done: deque[Done] = deque(maxlen=_KEPT)

    def add(self, event: BarrierEvent) -> None:
        """Note an event."""
        by, what = event.part_of or event, event.operation.replace("_", " ").replace("join", "arrive")
        i = by.instruction if event.operation == "complete_tx" else event.instruction
        if event.operation == "complete_tx" and event.part_of is not None:
            what = "bytes of a copy issued"
        elif event.part_of is not None:
            what = "asynchronous arrival issued"
        self._done.append(Done(what, i, by.ctas.slots, by.threads.ids, event.part_of is not None))

    def side(self, slot: int, thread: int, instruction: Instruction, what: str) -> Side:
        """Return a thread's part of a report."""
        where, (warp, lane) = self._residents.coordinate(slot), divmod(thread, WARP)
        return Side(what, f"warp {warp}, lane {lane} of CTA {where}", instruction, where, warp, lane)

    def of_thread(self, slot: int, thread: int) -> Side | None:
        """Return what a thread did last of what was noted, and None if that is forgotten."""
        for done in reversed(self._done):
            if not done.asynchronous and slot in done.slots and thread in done.threads:
                return self.side(slot, thread, done.instruction, done.what)
        return None

    def of_copies(self) -> Side | None:
        """Return the asynchronous operation that was noted last."""
        for done in reversed(self._done):
            if done.asynchronous:
                return self.side(int(done.slots[0]), int(done.threads[0]), done.instruction, done.what)
        return None

    def find(self, slot: int, column: int, owner: Array) -> Side | None:
        """Return what was done by whom a column belongs to, of a CTA."""
        thread = int(owner[column])
        return self.of_copies() if thread < 0 else self.of_thread(slot, thread)


class Reports:
    """Puts into words what does not hold at one barrier.

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
        self.history = History(wave.residents)

    def say(
        self,
        kind: str,
        event: BarrierEvent,
        before: Side | None,
        missing: str,
        slot: int | None = None,
        thread: int | None = None,
    ) -> None:
        """Report an event, by its first thread if none is given."""
        by = event.part_of or event
        what = "bytes of a copy" if event.deliveries is not None else event.operation.replace("_", " ")
        slot = int(by.ctas.slots[0]) if slot is None else int(slot)
        thread = int(by.threads.ids[0]) if thread is None else int(thread)
        after = self.history.side(slot, thread, event.instruction, what.replace("join", "arrive"))
        self._report(Violation(kind, event.barrier, before, after, missing))

    def find(self, slot: int, rank: int, column: int) -> Side | None:
        """Return what was done last by whom a column belongs to, of a CTA of a slot's cluster."""
        size = self._clocks.cluster
        return self.history.find(slot // size * size + rank, column, self._clocks.owner)

    def lacked(self, actors: Actors, need: Array, late: Array) -> Side | None:
        """Return something that is lacked by those who come too early."""
        lacking = actors.lack(need)
        if lacking is None or not (lacking & late).any():
            return None
        found = actors.first(need, lacking & late)
        return self.find(int(actors.slots[found.row]), found.rank, found.column)


def names(what: str, side: Side | None) -> str:
    """Name the other side in a sentence.

    Examples
    --------
    >>> names("what counts there", None)
    'what counts there'
    """
    return what if side is None else f"{side.what} by {side.who}"
