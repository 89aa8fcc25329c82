"""mbarrier objects themselves: what each CTA's counts, and what it lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.errors import Place
from cutepy.sim.machine.awaited import Awaited, arrives

if TYPE_CHECKING:
    from cutepy.sim.machine.deeds import Done
    from cutepy.sim.machine.lanes import Array


class Mbarrier:
    """The objects at one offset of all CTAs' shared memory, by slot."""

    def __init__(self, slots: int) -> None:
        self.valid = np.zeros(slots, bool)
        self.count = np.zeros(slots, np.int64)
        self.pending = np.zeros(slots, np.int64)
        self.transactions = np.zeros(slots, np.int64)
        self.phase = np.zeros(slots, np.int64)
        self.life = np.zeros(slots, np.int64)  # how many were made here
        self.done: dict[str, Done] = {}  # the last "init", "inval", "arrive", "expect_tx" and "complete_tx"
        self.arrivals: set[int] = set()  # by the instructions of these

    def settle(self, rows: Array) -> None:
        """Complete the phase where nothing is pending."""
        done = rows[(self.pending[rows] == 0) & (self.transactions[rows] == 0)]
        if len(done):
            self.phase[done] += 1
            self.pending[done] = self.count[done]

    def awaited(self, slot: int, name: str, wanted: str) -> Awaited:
        """Return what lanes wait for that want a phase of a CTA's object."""
        pending, count, size = (int(x[slot]) for x in (self.pending, self.count, self.transactions))
        held = f"{pending} of {count} arrivals and {size} bytes pending"
        if size < 0:
            held = f"{pending} of {count} arrivals pending and {-size} bytes delivered beyond those expected"
        phase = int(self.phase[slot])
        said = f"{wanted} of {name}, which is in phase {phase} with {held}"
        came = "the arrivals" if not pending else f"{max(count - pending, 0)} of {count} arrivals"
        lacks = f"{came} of its phase {phase} have {'' if pending else 'all '}come"
        if size:
            announced = "that were announced have not" if size > 0 else "came that nobody had announced"
            lacks += f", and {abs(size)} bytes {announced}"
        if not pending:
            last = self.done.get("expect_tx" if size > 0 else "complete_tx")
            return Awaited(said, Place(name), lacks, "expect_tx must say what the copies bring", last=last)
        return Awaited(
            said,
            Place(name),
            lacks,
            f"let as many arrivals come in each phase as mbarrier.init says, {count}, from threads that do not wait "
            "for this one first, or let it say fewer",
            is_begun=pending < count,
            last=self.done.get("arrive", self.done["init"]),
            brings=arrives,
            brought=frozenset(self.arrivals),
            nobody="no other thread that still runs arrives there",
        )
