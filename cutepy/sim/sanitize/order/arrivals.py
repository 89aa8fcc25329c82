"""The last arrivals at barriers: what tells why something is not ordered, and is looked up only then."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cutepy.sim.machine.lanes import Array

if TYPE_CHECKING:
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.sanitize.order.wave import Wave

_MOST_ARRIVALS = 4096


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
    knew : array of int, (CTA, rank, column), or None
        What its threads knew to be over, if it publishes less than that.
    """

    instruction: Instruction
    slots: Array
    threads: Array
    counts: Array
    of: Array
    column: int | None
    phases: Array
    knew: Array | None

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
    """The last arrivals at barriers of resident CTAs."""

    def __init__(self) -> None:
        self.last: deque[Arrival] = deque(maxlen=_MOST_ARRIVALS)

    def note(
        self,
        wave: Wave,
        i: Instruction,
        slots: Array,
        threads: Array,
        of: Array,
        column: int | None,
        phases: Array,
        knew: Array | None = None,
    ) -> None:
        """Note an arrival, before it is published."""
        shape = len(slots), len(threads)
        of, phases = np.broadcast_to(of, shape), np.broadcast_to(phases, shape)
        self.last.append(Arrival(i, slots, threads, wave.clocks.counts(slots, threads), of, column, phases, knew))
