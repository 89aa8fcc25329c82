"""Last steps of synchronisation of each thread, and last arrivals at barriers, kept for reports only."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cutepy.sim.machine.events import (
    ClusterArrive,
    ClusterWait,
    Fence,
    GenerationEvent,
    GroupWait,
    MbarrierArrive,
    MbarrierWait,
    NamedBarrierArrive,
    NamedBarrierJoin,
    NamedBarrierSync,
    WarpSync,
)
from cutepy.sim.machine.lanes import Array, spread

if TYPE_CHECKING:
    from cutepy.sim.machine.events import Barrier, BarrierEvent, GroupKind
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.sanitize.order.clocks import Clocks


_MOST_STEPS, _MOST_LANES = 1 << 12, 1 << 19
"""Steps that are kept, and lanes of which all of these together say something."""
_RELEASES = (MbarrierArrive, NamedBarrierArrive, NamedBarrierJoin, ClusterArrive)
_ACQUIRES = (MbarrierWait, NamedBarrierSync, ClusterWait)


class Step(NamedTuple):
    """A step of synchronisation.

    Attributes
    ----------
    number : int
        Counts up.
    kind : type
        The class of its event.
    barrier : MbarrierAt, NamedBarrier, ClusterBarrier, WarpBarrier or None
        None for fences and for waits for groups.
    groups : str or None
        The kind of the groups that it waits for.
    instruction : Instruction
    slots, threads : array of int
        The CTAs and threads that took it.
    counted : array of int or None
        The phase or generation that it counted in, or that a wait saw complete.
    of : array of int or None
        As `slots` of `MbarrierEvent`.
    """

    number: int
    kind: type[BarrierEvent]
    barrier: Barrier | None
    groups: GroupKind | None
    instruction: Instruction
    slots: Array
    threads: Array
    counted: Array | None
    of: Array | None

    @property
    def is_wait(self) -> bool:
        """True for a wait at an mbarrier."""
        return self.kind is MbarrierWait

    @property
    def is_release(self) -> bool:
        """True if it releases: an arrival at a barrier of more than a warp."""
        return self.kind in _RELEASES

    @property
    def is_acquire(self) -> bool:
        """True if a wait at a barrier of more than a warp is over."""
        return self.kind in _ACQUIRES

    @property
    def is_meeting(self) -> bool:
        """True if all threads of a named barrier have come."""
        return self.kind is NamedBarrierSync

    def by(self, slot: int, threads: Array) -> Array:
        """Return those of some threads of a CTA that took it; a wait that has failed is no step."""
        row = int(np.searchsorted(self.slots, slot))
        if row == len(self.slots) or self.slots[row] != slot:
            return threads[:0]
        here = np.isin(self.threads, threads)
        if self.is_wait:
            here &= self._of_row(self.counted, row) >= -1
        found: Array = self.threads[here]
        return found

    def phase(self, slot: int, thread: int) -> int:
        """Return the phase in which a thread counted, or which it saw complete."""
        row, column = int(np.searchsorted(self.slots, slot)), int(np.searchsorted(self.threads, thread))
        return int(self._of_row(self.counted, row)[column])

    def object(self, slot: int, thread: int) -> tuple[Barrier | None, int]:
        """Return the barrier of a thread, and the CTA that has it: the first of the cluster for that of a cluster."""
        row, column = int(np.searchsorted(self.slots, slot)), int(np.searchsorted(self.threads, thread))
        return self.barrier, slot if self.of is None else int(self._of_row(self.of, row)[column])

    def _of_row(self, what: Array | None, row: int) -> Array:
        assert what is not None
        found: Array = spread(what, (len(self.slots), len(self.threads)))[row]
        return found


class Steps:
    """The last steps of resident CTAs.

    Attributes
    ----------
    number : int
        Number of steps so far.
    """

    def __init__(self) -> None:
        self.number = self._lanes = 0
        self._last: deque[Step] = deque()

    def note(self, event: BarrierEvent) -> None:
        """Note a step, if an event is one."""
        barrier: Barrier | None = None
        groups = counted = of = None
        if isinstance(event, (MbarrierWait, MbarrierArrive)):
            if event.part_of is not None:
                return
            barrier, counted, of = event.barrier, event.counted, event.slots
        elif isinstance(event, GenerationEvent):
            barrier, counted = event.barrier, event.generation
        elif isinstance(event, WarpSync):
            barrier = event.barrier
        elif isinstance(event, GroupWait):
            groups = event.groups
        elif not isinstance(event, Fence):
            return
        self.number += 1
        slots, threads = event.ctas.slots, event.threads.ids
        step = Step(self.number, type(event), barrier, groups, event.instruction, slots, threads, counted, of)
        self._last.append(step)
        self._lanes += _size(step)
        while self._lanes > _MOST_LANES or len(self._last) > _MOST_STEPS:
            self._lanes -= _size(self._last.popleft())

    def between(self, after: int, until: int) -> Iterator[Step]:
        """Yield the steps behind one number and up to another, in order."""
        return (step for step in self._last if after < step.number <= until)

    def back(self, until: int, after: int = 0) -> Iterator[Step]:
        """Yield the same, the last first."""
        for step in reversed(self._last):
            if step.number <= after:
                return
            if step.number <= until:
                yield step


def _size(step: Step) -> int:
    return sum(x.size for x in (step.slots, step.threads, step.counted, step.of) if x is not None)


_MOST_LANES = 1 << 17
"""Lanes that have arrived, of all arrivals that are kept together."""


class Arrival(NamedTuple):
    """An arrival at a barrier.

    Attributes
    ----------
    instruction : Instruction
    slots, threads : array of int
    counts : array of int, (CTA, thread)
        Progress of the columns of its threads.
    of : array of int, (CTA, thread)
        The CTAs whose barrier it is.
    column : int or None
        Column that counts its phases, if there is one.
    phases : array of int, (CTA, thread)
    number : int
        Number of steps up to it: see `Steps`.
    """

    instruction: Instruction
    slots: Array
    threads: Array
    counts: Array
    of: Array
    column: int | None
    phases: Array
    number: int

    @property
    def is_relaxed(self) -> bool:
        """True if it publishes nothing by itself."""
        return self.instruction.traits.is_relaxed

    def lane(self, slot: int, thread: int) -> tuple[int, int] | None:
        """Return the position of a thread in it, or None if that has no part."""
        row, column = int(np.searchsorted(self.slots, slot)), int(np.searchsorted(self.threads, thread))
        found = row < len(self.slots) and column < len(self.threads)
        return (row, column) if found and self.slots[row] == slot and self.threads[column] == thread else None


class Arrivals:
    """The last arrivals at barriers of resident CTAs.

    Parameters
    ----------
    steps : Steps

    Attributes
    ----------
    last : deque of Arrival
    """

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self.last: deque[Arrival] = deque()
        self._lanes = 0

    def note(
        self, clocks: Clocks, i: Instruction, slots: Array, threads: Array, of: Array, column: int | None, phases: Array
    ) -> None:
        """Note an arrival, before it is published."""
        counts = clocks.counts(slots, threads)
        of, phases = spread(of, counts.shape), spread(phases, counts.shape)
        self.last.append(Arrival(i, slots, threads, counts, of, column, phases, self._steps.number))
        self._lanes += counts.size
        while self._lanes > _MOST_LANES:
            self._lanes -= self.last.popleft().counts.size
