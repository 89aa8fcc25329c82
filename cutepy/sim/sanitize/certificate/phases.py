"""Premises 0 to 4: the phases of an mbarrier are the same in every schedule, checked on the trace of a launch.

Each phase has two vectors of counts. *Used* has the operations that counted in the phase, by thread or channel. A
thread whose clock covers *used* comes after the completion of the phase. *Before* is the join of the clocks of these
operations, in the columns of ended waits. A wait that *before* covers comes before the completion. *Used* is kept for
three phases, the current one and the two before, since a wait or the next operation may need it.

A thread also knows the completion of a phase if it has ended a wait for the phase, or has acquired the clock of such a
thread: each mbarrier has a column for completed phases (`clocks.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.advice import Diagnosis
from cutepy.sim.machine.events import (
    MbarrierCompleteTx,
    MbarrierCount,
    MbarrierInit,
    MbarrierInvalidate,
    MbarrierWait,
)
from cutepy.sim.machine.lanes import spread
from cutepy.sim.sanitize.certificate.actors import Actors, raise_to
from cutepy.sim.sanitize.certificate.phase_completion import Announcements
from cutepy.sim.sanitize.certificate.violations import Reports, Violation, named
from cutepy.sim.sanitize.order.clocks import alike

if TYPE_CHECKING:
    from cutepy.sim.machine.events import MbarrierEvent, MbarrierTry
    from cutepy.sim.machine.lanes import Array
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.sanitize.order.wave import Wave

_KEPT = 3


class Phases:
    """The mbarriers at one address of the CTAs that are resident together.

    Parameters
    ----------
    wave : Wave
    address : int
    report : callable
        Called with each `Violation`.
    may_announce : bool
        True if there are operations in the kernel that announce apart from arrivals.
    """

    def __init__(
        self, wave: Wave, address: int, report: Callable[[Violation], None], may_announce: bool = True
    ) -> None:
        self._wave, self._clocks, self.address = wave, wave.clocks, address
        self._column = wave.clocks.column(("mbarrier", address))
        self._reports = Reports(wave, report)
        slots, cluster = wave.residents.count, wave.clocks.cluster
        self._used = np.zeros((_KEPT, slots, cluster, self._clocks.capacity), np.int32)
        self._life = np.zeros((slots, cluster, self._clocks.capacity), np.int32)
        # Of the waits that each thread has ended.
        self._before, self._ends = np.zeros((2, slots, cluster, self._clocks.threads), np.int32)
        self._first, self._now = np.zeros((2, slots), np.int64)
        self._lives = np.zeros(slots, bool)
        self._announcing = Announcements(wave, self._column, self._reports, may_announce)
        self._waited: dict[int, Instruction] = {}
        self._event: MbarrierEvent | None = None

    def _widen(self) -> None:
        more = self._clocks.capacity - self._life.shape[-1]
        if more:
            for name in ("_used", "_life"):
                held = getattr(self, name)
                setattr(self, name, np.pad(held, [(0, 0)] * (held.ndim - 1) + [(0, more)]))

    # Events.

    def see(self, event: MbarrierEvent, is_void: bool = False) -> None:
        """Check an operation, before threads learn anything of it; a try is void if nothing depends on it."""
        self._widen()
        slots, self._event = event.state.slots, event
        if isinstance(event, (MbarrierInit, MbarrierInvalidate)):
            self._end_life(event)
            if isinstance(event, MbarrierInit):
                self._begin_life(event)
            self._reports.history.add(event)
            return
        before = self._now[slots]
        if isinstance(event, MbarrierWait):
            self._wait(event, is_void)
        elif isinstance(event, MbarrierCount):
            self._count(event)
            self._reports.history.add(event, before)
            after = self._first[slots] + event.state.phase
            done = after > before
            if done.any():
                self._complete(event, slots[done], before[done])
        self._now[slots] = self._first[slots] + event.state.phase

    def _begin_life(self, event: MbarrierEvent) -> None:
        slots = event.state.slots
        again = self._lives[slots] | (self._now[slots] > 0) | (self._first[slots] > 0)
        self._first[slots] = np.where(again, self._now[slots] + 2, 0)
        self._now[slots] = self._first[slots]
        self._lives[slots] = True
        self._used[:, slots] = 0
        self._before[slots] = self._ends[slots] = self._life[slots] = 0
        self._announcing.begin(event, slots)

    def _end_life(self, event: MbarrierEvent) -> None:
        """Check that all operations on an mbarrier come before the end of its lifetime."""
        live = self._lives[event.state.slots]
        if not live.any():
            return
        slots = event.state.slots[live]
        self._announcing.finish(event, slots, self._now[slots] - self._first[slots])
        actors = self._actors(event)
        mine = np.isin(actors.slots, slots)[:, None, None]  # nobody makes another CTA's
        need = np.where(mine, self._life[actors.slots], 0)
        lacking = actors.lack(need)
        self._lives[slots] = False
        if lacking is not None:
            found = actors.first(need, lacking)
            side = self._reports.find(int(actors.slots[found.row]), found.rank, found.column, found.reached)
            self._reports.say(
                "barrier-outlived",
                event,
                side,
                Diagnosis("mbarrier-outlived", operation=named(side)),
                actors.slots[found.row],
                actors.threads[found.lane],
            )

    def _actors(self, event: MbarrierEvent) -> Actors:
        if event.part_of is not None:
            issued = self._wave.issued[id(event.part_of)]
            return Actors(self._clocks, issued.slots, issued.threads, issued.view, issued.place)
        return Actors.now(self._clocks, event.ctas.slots, event.threads.ids)

    def now(self, slots: Array) -> Array:
        """Return the phases that are current, by CTA, counted over all lives."""
        found: Array = self._now[slots]
        return found

    def first(self, slots: Array) -> Array:
        """Return, by CTA, the number to add to the phases of events."""
        found: Array = self._first[slots]
        return found

    # Waits.

    def knows_complete(self, actors: Actors, targets: Array, phases: Array) -> Array:
        """Return the threads that know that a phase is complete, (CTA, thread); targets and phases are by CTA."""
        self._widen()
        at = phases + self._first[targets]
        known = actors.knows(targets % self._clocks.cluster, self._column, at + 1)
        if known.all():
            return known
        need = self._used[at % _KEPT, targets]
        lacking = actors.lack(np.where((phases < 0)[:, None, None], 0, need))
        return known | (True if lacking is None else ~lacking)

    def _wait(self, event: MbarrierWait, is_void: bool) -> None:
        """Take waits that are over, or tries: threads wait at mbarriers of their own CTAs only."""
        slots, threads = event.ctas.slots, event.threads.ids
        at = self._clocks.cells(slots, slots, threads)
        self._life[at] = self._clocks.counts(slots, threads)
        if is_void:
            return
        seen = spread(event.counted, (len(slots), len(threads)))
        ended = seen >= -1
        self.begin_wait(event, self._actors(event), slots, seen.max(axis=1), ended)
        if not ended.any():
            return
        self._waited.update(dict.fromkeys(threads.tolist(), event.instruction))
        self._ends[at] = np.where(ended, self._clocks.counts(slots, self._clocks.ends(threads)) + 1, self._ends[at])

    def begin_wait(self, event: MbarrierTry, actors: Actors, targets: Array, phases: Array, lanes: Array) -> None:
        """Check that waits begin after the completion of the phase before that which they are for."""
        asked = lanes & (phases >= 1)[:, None]
        if not asked.any():
            return
        known = self.knows_complete(actors, targets, phases - 1)
        late = asked & ~known
        if late.any():
            row, lane = np.argwhere(late)[0].tolist()
            at = phases[row] - 1 + self._first[targets[row]]
            side = self._reports.lacked(actors, self._used[at % _KEPT, targets], late)
            number = int(phases[row])
            self._reports.say(
                "early-wait",
                event,
                side,
                Diagnosis("wait-overtakes-phase", phase=number, last=number - 1, count=named(side)),
                actors.slots[row],
                actors.threads[lane],
            )

    # Counting.

    def _count(self, event: MbarrierCount) -> None:
        if isinstance(event, MbarrierCompleteTx) and event.part_of is not None:
            self._deliver(event)
            return
        assert event.slots is not None
        actors = self._actors(event)
        slots, threads = event.ctas.slots, event.threads.ids
        shape = len(slots), len(threads)
        of, counted = (spread(x, shape) for x in (event.slots, event.counted))
        rows = np.searchsorted(actors.slots, slots)
        positions = np.searchsorted(actors.threads, threads)
        patterns = alike(of)
        if len(patterns) > 1:
            self._announcing.lose(event.state.slots)
        for lanes in patterns:
            target = of[:, lanes[0]]
            some = actors.only(positions[lanes]).of_ctas(rows)
            self._count_in(event, some, target, counted[:, lanes[0]])
        self._announcing.amounts(event)

    def _count_in(self, event: MbarrierCount, actors: Actors, target: Array, phases: Array) -> None:
        """Check operations that count in a phase: each comes after the completion of the previous phase."""
        slots, cluster = actors.slots, self._clocks.cluster
        at = phases + self._first[target]
        if (phases >= 1).any():
            late = ~self.knows_complete(actors, target, phases - 1)
            if late.any():
                self._early(event, actors, target, phases, late)
        if event.part_of is not None:
            self._used[at % _KEPT, target, target % cluster, self._column] = at + 1
            self._life[target, target % cluster, self._column] = at + 1
        else:
            places = target[:, None], (slots % cluster)[:, None], actors.threads
            counts = self._clocks.counts(slots, actors.threads)
            self._used[(at % _KEPT)[:, None], *places] = counts
            self._life[places] = counts
        raise_to(self._before, target, actors.joint(columns=self._clocks.all_ends))
        self._announcing.count(event, actors, target)

    def _deliver(self, event: MbarrierCompleteTx) -> None:
        """Check copies that bring bytes, of which each was issued by one lane, at each of its destinations."""
        assert event.deliveries is not None
        assert event.part_of is not None
        actors, (to, rows, lanes) = self._actors(event), event.deliveries.T
        phases = np.zeros(self._wave.residents.count, np.int64)
        phases[event.state.slots] = spread(event.counted, event.state.slots.shape)
        self._announcing.amounts(event)
        if len(to) == 1:  # a copy by one lane to one CTA, of which kernels issue thousands
            self._count_in(event, actors.only(lanes).of_ctas(rows), to, phases[to])
            return
        if event.part_of.kind == "bulk_load" and len(to) == len(actors.slots) * len(actors.threads):
            # Each lane's copy brings as many bytes, to its own CTA: a copy to several CTAs is one lane's.
            self._count_in(event, actors, actors.slots, phases[actors.slots])
            return
        issuers = np.unique(lanes)
        if len(issuers) > 1:
            self._announcing.lose(event.state.slots)
        for lane in issuers:
            mine = lanes == lane
            some = actors.only(lane[None]).of_ctas(rows[mine])
            self._count_in(event, some, to[mine], phases[to[mine]])

    def _early(self, event: MbarrierEvent, actors: Actors, target: Array, phases: Array, late: Array) -> None:
        row, lane = np.argwhere(late)[0].tolist()
        at = phases - 1 + self._first[target]
        side = self._reports.lacked(actors, self._used[at % _KEPT, target], late)
        number = int(phases[row])
        self._reports.say(
            "early-arrival",
            event,
            side,
            Diagnosis("count-overtakes-phase", phase=number, last=number - 1, count=named(side)),
            actors.slots[row],
            actors.threads[lane],
        )

    # The ends of phases.

    def _complete(self, event: MbarrierEvent, slots: Array, phases: Array) -> None:
        """Check the operations that must come before the completion of phases, and begin the next ones."""
        lapped = self._ends[slots] > self._before[slots]
        if lapped.any():
            row, rank, thread = np.argwhere(lapped)[0].tolist()
            slot = int(slots[row])
            waiter = slot - slot % self._clocks.cluster + rank
            side = self._reports.history.side(waiter, thread, self._waited[thread], "wait")
            number = int(phases[row] - self._first[slot])
            by_parity = "parity" in self._waited[thread].parts
            self._reports.say(
                "lapped-wait",
                event,
                side,
                Diagnosis(
                    "state-lapped" if not by_parity else "parity-lapped" if number else "parity-before-first",
                    phase=number,
                    last=number - 1,
                ),
            )
        self._announcing.complete(slots)
        self._announcing.finish(event, slots, phases - self._first[slots])
        self._before[slots] = self._ends[slots] = 0
        self._announcing.begin(event, slots)
        self._used[(phases + 1) % _KEPT, slots] = 0

    def leave(self) -> None:
        """Check the phases that are left as they are when CTAs end."""
        slots = np.flatnonzero(self._lives)
        if len(slots) and self._event is not None:
            self._announcing.finish(self._event, slots, self._now[slots] - self._first[slots])
