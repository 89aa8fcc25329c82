"""The last arrivals at barriers: what tells why something is not ordered, and is looked up only then."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cutepy.sim.machine.lanes import Array

if TYPE_CHECKING:
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.sanitize.order.clocks import Clocks
    from cutepy.sim.sanitize.order.steps import Steps

_MOST_LANES = 1 << 17
"""Lanes that have arrived, of all arrivals that are kept together."""


class Arrival(NamedTuple):
    """An arrival at a barrier.

    Attributes
    ----------
    instruction : Instruction
    slots, threads : array of int
    counts : array of int, (CTA, thread)
        How far the columns of its threads had come.
    of : array of int, (CTA, thread)
        The CTAs whose barrier it is.
    column : int or None
        What counts the phases of that, if anything does.
    phases : array of int, (CTA, thread)
    number : int
        How many steps there were before it, and with it: see `Steps`.
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
        """Whether it publishes nothing by itself."""
        return "relaxed" in self.instruction.parts

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
        of, phases = np.broadcast_to(of, counts.shape), np.broadcast_to(phases, counts.shape)
        self.last.append(Arrival(i, slots, threads, counts, of, column, phases, self._steps.number))
        self._lanes += counts.size
        while self._lanes > _MOST_LANES:
            self._lanes -= self.last.popleft().counts.size
