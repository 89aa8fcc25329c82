"""Premise 4: a phase of an mbarrier completes only when all operations of the phase have happened.

A phase completes when it lacks neither arrivals nor bytes. An operation that adds to either without being an arrival
itself (an announcement of bytes, of arrivals still to come) must come before an arrival, or the phase may complete
without it. The premise is checked in three forms, each only where the one before fails:

- order: each such operation is before, or part of, an arrival that uses up the expected count;
- bytes: an operation that is not so leaves bytes pending until it comes, for what has surely been announced is more
  than the copies that don't wait for it bring;
- exact: no subset of the phase's operations that may have happened without the rest completes it. The number of subsets
  grows exponentially, so only phases with few operations are checked so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cutepy.sim.advice import Diagnosis
from cutepy.sim.machine.events import MbarrierArrive, MbarrierBytes, MbarrierExpectArrivals, MbarrierExpectTx
from cutepy.sim.machine.lanes import spread
from cutepy.sim.sanitize.certificate.actors import raise_to
from cutepy.sim.sanitize.certificate.violations import named
from cutepy.sim.sanitize.order.clocks import DONE

if TYPE_CHECKING:
    from cutepy.sim.machine.events import MbarrierCount, MbarrierEvent
    from cutepy.sim.machine.lanes import Array
    from cutepy.sim.sanitize.certificate.actors import Actors
    from cutepy.sim.sanitize.certificate.violations import Reports
    from cutepy.sim.sanitize.order.wave import Wave


_LOGGED = 64


class OptionalOperation(NamedTuple):
    """Operation whose phase may complete without it."""

    slot: int
    rank: int
    column: int


class Announcements:
    """Announcements in the current phases of the mbarriers at one address.

    Parameters
    ----------
    wave : Wave
    column : int
        That of the mbarrier's phases.
    reports : Reports
    may_announce : bool
        True if there are operations in the kernel that announce, or count bytes, apart from arrivals and copies.
    """

    def __init__(self, wave: Wave, column: int, reports: Reports, may_announce: bool) -> None:
        self._wave, self._column, self._reports, self._may_announce = wave, column, reports, may_announce
        slots, cluster = wave.residents.count, wave.clocks.cluster
        self._ordinary = np.zeros((slots, cluster, 0), np.int32)
        self._loose = np.zeros((slots, cluster, 0), np.int32)
        self._announced, self._delivered = np.zeros((2, slots), np.int64)
        self._lacks_arrivals = np.ones(slots, bool)
        self._logs: dict[int, Log] = {}

    def begin(self, event: MbarrierEvent, slots: Array) -> None:
        """Begin new phases, with an event."""
        self._ordinary[slots], self._loose[slots], self._lacks_arrivals[slots] = 0, 0, True
        self._announced[slots] = self._delivered[slots] = 0
        expected = event.state.expected[np.searchsorted(event.state.slots, slots)].tolist()
        if self._may_announce:
            self._logs.update({slot: Log(n) for slot, n in zip(slots.tolist(), expected, strict=True)})

    def lose(self, slots: Array) -> None:
        """Drop the contributions of single operations to the current phases."""
        for slot in slots.tolist():
            if slot in self._logs:
                self._logs[slot].is_whole = False

    def amounts(self, event: MbarrierCount) -> None:
        """Take how many bytes, and whether phases lack arrivals after an operation."""
        slots = event.state.slots
        if isinstance(event, MbarrierBytes):
            sums = self._announced if isinstance(event, MbarrierExpectTx) else self._delivered
            sums[slots] += spread(np.array(event.size_bytes, np.int64), slots.shape)
        self._lacks_arrivals[slots] = event.state.pending > 0
        if isinstance(event, MbarrierArrive) and (event.state.expected < 1).any():
            self._reports.say(
                "premature-completion",
                event,
                None,
                Diagnosis("no-arrivals-left"),
            )

    def complete(self, slots: Array) -> None:
        """Note that phases lack nothing."""
        self._lacks_arrivals[slots] = False

    def count(self, event: MbarrierCount, actors: Actors, target: Array) -> None:
        """Take operations that count in the current phases of CTAs' objects."""
        if not self._may_announce:
            return  # nothing is loose
        clocks = self._wave.clocks
        more = clocks.capacity - self._loose.shape[-1]
        if more:
            self._ordinary, self._loose = (
                np.pad(x, [(0, 0), (0, 0), (0, more)]) for x in (self._ordinary, self._loose)
            )
        is_ordinary, is_loose = _kind(event)
        if is_ordinary:  # an asynchronous one too comes after what its threads had done to the same object
            joint = actors.joint()
            raise_to(self._ordinary[..., : joint.shape[-1]], target, joint)
        if is_loose:
            at = target[:, None], (actors.slots % clocks.cluster)[:, None], actors.threads
            self._loose[at] = clocks.counts(actors.slots, actors.threads)
        self._log(event, actors, target)

    @staticmethod
    def _own(actors: Actors) -> Array:
        assert actors.view.own is not None
        own: Array = actors.view.own[DONE][np.arange(len(actors.slots))[:, None], actors.threads]
        return own

    def _log(self, event: MbarrierCount, actors: Actors, target: Array) -> None:
        if not self._logs:
            return
        clocks, asynchronous = self._wave.clocks, event.part_of is not None
        _, is_loose = _kind(event)
        amounts = dict(
            zip(
                event.state.slots.tolist(),
                np.broadcast_to(event.amounts, event.state.slots.shape).tolist(),
                strict=True,
            )
        )
        own = self._own(actors)
        for row, slot in enumerate(target.tolist()):
            log = self._logs.get(slot)
            if log is None or not log.is_whole:
                continue
            lanes = int((target == slot).sum()) * len(actors.threads)
            if len(log.steps) + len(actors.threads) > _LOGGED or amounts[slot] % lanes:
                log.is_whole = False
                continue
            amount = amounts[slot] // lanes
            arrives, expects, size = isinstance(event, MbarrierArrive), isinstance(event, MbarrierExpectTx), 0
            arrivals = -amount if arrives else amount
            if isinstance(event, MbarrierBytes):
                arrivals, size = 0, amount if expects else -amount
            for lane, thread in enumerate(actors.threads.tolist()):
                known = actors.only(np.array([lane])).joint()[row]
                rank = int(actors.slots[row]) % clocks.cluster
                number, column = int(own[row, lane]), thread
                if asynchronous:  # nothing that counts in the phase comes after it
                    rank, column, number = slot % clocks.cluster, self._column, MOST
                completes = not expects and "noComplete" not in event.instruction.parts
                log.steps.append(Step(rank, column, number, known, arrivals, size, is_loose, completes))

    def finish(self, event: MbarrierEvent, slots: Array, phases: Array) -> None:
        """Check phases that end with an event, or are left as they are."""
        for counts in (self._announced, self._delivered):
            over = counts[slots] > MOST
            if over.any():
                row = int(over.argmax())
                self._reports.say(
                    "byte-count-overflow",
                    event,
                    None,
                    Diagnosis(
                        "announced-bytes-overflow" if counts is self._announced else "brought-bytes-overflow",
                        count=int(counts[slots[row]]),
                        phase=int(phases[row]),
                        most=MOST,
                    ),
                )
        over = ~self._lacks_arrivals[slots] & (self._delivered[slots] > self._announced[slots])
        over &= ~np.isin(slots, [slot for slot in slots[over].tolist() if self._holds_exactly(slot)])
        if over.any():
            row = int(over.argmax())
            self._reports.say(
                "unannounced-bytes",
                event,
                None,
                Diagnosis(
                    "more-bytes-than-announced",
                    brought=int(self._delivered[slots[row]]),
                    phase=int(phases[row]),
                    announced=int(self._announced[slots[row]]),
                ),
            )
        found = self._premature(slots)
        if found is not None:
            count = int(self._loose[found.slot, found.rank, found.column])
            side = self._reports.find(found.slot, found.rank, found.column, count)
            number = int(phases[np.searchsorted(slots, found.slot)])
            self._reports.say(
                "premature-completion",
                event,
                side,
                Diagnosis("announcement-may-be-late", phase=number, announcement=named(side)),
            )

    def _holds_exactly(self, slot: int) -> bool:
        """Return whether the phase of a CTA's object is known to complete with all that counted in it, or never."""
        log = self._logs.get(slot)
        return log is not None and log.is_whole and holds_exactly(log)

    def _premature(self, slots: Array) -> OptionalOperation | None:
        """Return an operation that a phase of these may complete without, if there is one."""
        late = self._loose[slots] > self._ordinary[slots]
        late &= ~self._lacks_arrivals[slots][:, None, None]
        for row in np.flatnonzero(late.any(axis=(1, 2))).tolist():
            slot = int(slots[row])
            loose = {(r, c) for r, c in np.argwhere(late[row]).tolist()}
            log = self._logs.get(slot)
            by_bytes = log is not None and log.is_whole and bytes_hold(log, loose)
            if not (by_bytes or self._holds_exactly(slot)):
                return OptionalOperation(slot, *min(loose))
        return None


def _kind(event: MbarrierCount) -> tuple[bool, bool]:
    """Return whether an operation uses up the expected count, and whether a phase may complete without it."""
    parts = event.instruction.parts
    if isinstance(event, MbarrierArrive):
        if event.part_of is not None:
            return event.instruction.traits.commits or "noinc" in parts, False
        return "noComplete" not in parts, "noComplete" in parts
    if isinstance(event, MbarrierExpectTx):
        return False, "arrive" not in parts and "arrive_drop" not in parts
    return False, isinstance(event, MbarrierExpectArrivals)


EXACT_OPERATIONS = 12
"""Operations of a phase up to which all parts of it are looked at."""

MOST = (1 << 20) - 1
"""Largest counts of an mbarrier: arrivals, and bytes either way."""


class Step(NamedTuple):
    """An operation of a phase.

    Attributes
    ----------
    rank, column, number : int
        Thread, and its count at that time.
    known : array of int, (rank, column)
        Clock of the thread.
    arrivals, size : int
        Arrivals and bytes that it adds to those that the phase lacks.
    is_loose : bool
        True if a phase may complete without it, as far as order goes.
    may_complete : bool
        False of .noComplete arrivals and of announcements, which must not complete a phase.
    """

    rank: int
    column: int
    number: int
    known: Array
    arrivals: int
    size: int
    is_loose: bool
    may_complete: bool

    def is_before(self, other: Step) -> bool:
        """Return whether it comes before another."""
        if self is other:
            return False
        if self.column >= other.known.shape[-1]:
            return False
        return bool(other.known[self.rank, self.column] >= self.number)


@dataclass
class Log:
    """The operations of a phase so far.

    Attributes
    ----------
    expected : int
        Arrivals that the phase lacked when it began.
    steps : list of Step
    is_whole : bool
        True if `steps` has all operations that counted.
    """

    expected: int
    steps: list[Step] = field(default_factory=list)
    is_whole: bool = True


def bytes_hold(log: Log, late: set[tuple[int, int]]) -> bool:
    """Return whether bytes are pending as long as an announcement is missing."""
    loose = [s for s in log.steps if s.is_loose and (s.rank, s.column) in late]
    surely = sum(s.size for s in log.steps if s.size > 0 and s not in loose)
    for one in loose:
        if not one.may_complete and one.arrivals < 0:
            return False
        brought = sum(-s.size for s in log.steps if s.size < 0 and not one.is_before(s))
        if brought >= surely:
            return False
    return True


def holds_exactly(log: Log) -> bool:
    """Tell whether no part of a phase that may happen without the rest completes it, or leaves the range of counts."""
    steps = log.steps
    if len(steps) > EXACT_OPERATIONS:
        return False
    before = [sum(1 << m for m, other in enumerate(steps) if other.is_before(one)) for one in steps]
    whole = (1 << len(steps)) - 1
    seen, waiting = {0}, [(0, log.expected, 0)]
    while waiting:
        done, arrivals, size = waiting.pop()
        if not 0 <= arrivals <= MOST or abs(size) > MOST or (arrivals == size == 0 and done != whole):
            return False
        for n, step in enumerate(steps):
            after = done | 1 << n
            if after == done or before[n] & ~done:
                continue
            lacks = arrivals + step.arrivals, size + step.size
            if not step.may_complete and lacks == (0, 0):
                return False
            if after not in seen:
                seen.add(after)
                waiting.append((after, *lacks))
    return True
