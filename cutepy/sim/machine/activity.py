"""What goes on in a launch: the one place that barrier operations and asynchronous operations pass, and accesses too.

Without observers no record is kept of any of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cutepy.sim.machine.events import AsyncOperation, BarrierEvent, CompletionPolicy
from cutepy.sim.machine.lanes import Array, Ctas, Threads
from cutepy.sim.machine.traffic import Traffic

if TYPE_CHECKING:
    from cutepy.sim.errors import SimulationError
    from cutepy.sim.machine.deeds import Done
    from cutepy.sim.machine.group import Group
    from cutepy.sim.machine.observer import Observer

_COUNTS = "wgmma wgmma_flops wgmma_bytes tma tma_bytes bulk bulk_bytes splits".split()


class Picked(NamedTuple):
    """The lanes of a group that an event is about: the rectangle around those that a mask picks.

    Attributes
    ----------
    ctas, threads : Ctas, Threads
    shape : (int, int)
        CTAs and threads of the group.
    lanes : array of bool or None
        The mask, (CTAs, threads) or an extent of 1; None if it picks all.
    """

    ctas: Ctas
    threads: Threads
    shape: tuple[int, int]
    lanes: Array | None

    @classmethod
    def of_group(cls, g: Group | Done, lanes: Array | None) -> Picked:
        """Pick lanes of a group."""
        ctas, threads = g.ctas, g.threads
        shape = ctas.count, threads.count
        if lanes is None or lanes.all():
            return cls(ctas, threads, shape, None)
        if lanes.shape[0] > 1:
            ctas = Ctas(ctas.slots[lanes.any(axis=1)], ctas.residents)
        if lanes.shape[1] > 1:
            threads = Threads(threads.ids[lanes.any(axis=0)], threads.block)
        return cls(ctas, threads, shape, lanes)

    def values(self, of: Array) -> Array:
        """Return the values of the lanes that are picked."""
        if self.lanes is None:
            return of
        wide = np.broadcast_to(of, self.shape)
        if self.lanes.shape[0] > 1:
            wide = wide[self.lanes.any(axis=1)]
        return wide[:, self.lanes.any(axis=0)] if self.lanes.shape[1] > 1 else wide


class Activity:
    """Who watches a launch, what is in flight, and what was counted.

    Parameters
    ----------
    observers : sequence of Observer
    policy : CompletionPolicy or None
        None completes asynchronous operations as they are issued.

    Attributes
    ----------
    changes : int
        Counts changes to what others may wait for: memory, barriers, lanes that end. Who sees no change between two
        looks would see the same again.
    pending : list of AsyncOperation
        Issued, and not complete.
    completing : AsyncOperation or None
        Which takes effect just now.
    is_stuck : bool
        Whether nothing can go on, so that waits tell what they wait for.
    time : int
        What clocks show.
    stats : dict
        See `Launch.stats`.
    traffic : Traffic
        Counts what of global memory is accessed.
    printed : list of str
    """

    def __init__(self, observers: Sequence[Observer] = (), policy: CompletionPolicy | None = None) -> None:
        self.observers = tuple(observers)
        self.policy = policy
        self.changes = 0
        self.pending: list[AsyncOperation] = []
        self.completing: AsyncOperation | None = None
        self.is_stuck = False
        self.time = 0
        self.stats = dict.fromkeys(_COUNTS, 0)
        self.traffic = Traffic(self.stats)
        self.printed: list[str] = []

    def tell(self, event: BarrierEvent) -> None:
        """Tell observers of an operation that synchronises; make the event only if there are any."""
        for observer in self.observers:
            (observer.on_begin if event.begins else observer.on_barrier)(event)

    def fault(self, error: SimulationError, *, stops: bool = True) -> None:
        """Raise what a kernel does wrong, if it `stops` a launch, unless an observer takes it: then that goes on."""
        taken = [observer.on_error(error, ends=False) for observer in self.observers]
        if stops and not any(taken):
            raise error

    def issue(self, operation: AsyncOperation) -> None:
        """Take an asynchronous operation; it completes now or later, as the policy says."""
        for observer in self.observers:
            observer.on_issue(operation)
        if self.policy is None or self.policy.completes_at_issue(operation):
            self._complete(operation)
        else:
            self.pending.append(operation)

    def complete(self, operation: AsyncOperation) -> None:
        """Complete an operation if it has not been."""
        if not operation.done:
            if self.policy is not None:
                self.policy.completes(operation)
            self.pending.remove(operation)
            self._complete(operation)

    def take(self, operation: AsyncOperation) -> None:
        """Let an operation read what it moves, if it has not, and be pending still."""
        if operation.takes is not None:
            if self.policy is not None:
                self.policy.completes(operation)
            self._take(operation)

    def complete_next(self) -> None:
        """Complete the operation that the policy chooses."""
        assert self.policy is not None
        self.complete(self.pending[self.policy.choose(self.pending)])

    def _complete(self, operation: AsyncOperation) -> None:
        for earlier in operation.after:
            self.complete(earlier)
        if operation.takes is not None:
            self._take(operation)
        operation.done, operation.after = True, ()
        self._do(operation, operation.apply)
        for observer in self.observers:
            observer.on_complete(operation)

    def _take(self, operation: AsyncOperation) -> None:
        takes, operation.takes = operation.takes, None
        assert takes is not None
        self._do(operation, takes)

    def _do(self, operation: AsyncOperation, part: Callable[[], None]) -> None:
        self.changes += 1
        self.completing, before = operation, self.completing
        part()
        self.completing = before
