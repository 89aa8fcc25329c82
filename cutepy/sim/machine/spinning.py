"""Detection of spinning groups of lanes: a group returns to a block with the same registers, and no memory has changed.

A spinning group would repeat itself for ever, so it sleeps until memory changes. Brent's cycle detection finds a cycle
of any length: the block and registers to compare with are replaced after 1, 2, 4, ... blocks (R. P. Brent, "An Improved
Monte Carlo Factorization Algorithm", 1980). A loop with a counter never repeats its registers, and does not sleep. A
group that wakes is compared with its state at that block from the first round on, and so are its parts. Of many groups
that wait for a lock, all but the new owner thus sleep again after one round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cutepy.sim.translate.control_flow import EXIT

if TYPE_CHECKING:
    from cutepy.sim.translate.control_flow import ControlFlow

_NEVER = -1
_FIRST_SPAN = 8


class Spin:
    """Cycle detection of one group, since the last change of memory.

    Attributes
    ----------
    changes : int
        Number of changes of memory at the start of the detection.
    asleep : bool
        True if the group has repeated a state.
    by_clock : bool
        True if the group lets time pass, so that its next round may differ.
    has_slept : bool
        True if the group, or the group that it was split from, was asleep before.
    """

    __slots__ = (
        "_block",
        "_first",
        "_outside",
        "_span",
        "_steps",
        "_values",
        "asleep",
        "by_clock",
        "changes",
        "has_slept",
    )

    def __init__(self, changes: int, has_slept: bool) -> None:
        self.changes, self.has_slept = changes, has_slept
        self.asleep = self.by_clock = False
        self._block = EXIT
        self._values: list[tuple[int, Any]] = []
        self._outside = self._first = self._steps = 0
        self._span = 1 if has_slept else _FIRST_SPAN

    def repeats(self, registers: Sequence[Any], block: int, flow: ControlFlow, time: int) -> bool:
        """Return whether a group at the start of a block was there before with equal live registers.

        An MMA that completed since then counts as a change: its accumulators may not be in the registers yet.
        """
        self._steps += 1
        if block == self._block and self._is_as_before(registers):
            self.asleep, self.by_clock = True, time != self._outside
            return True
        if self._steps >= self._span:
            self._steps, self._span = 0, 2 * self._span
            self._block, self._outside, self._first = block, time, 0
            self._values = [(index, registers[index]) for index in flow.live_in[block]]
        return False

    def _is_as_before(self, registers: Sequence[Any]) -> bool:
        values, first = self._values, self._first
        # What differed last time, a counter it may be, is looked at first.
        for n in (first, *range(len(values))) if values else ():
            index, before = values[n]
            now: Any = registers[index]
            if now is before:
                continue
            if now is None or before is None or now.shape != before.shape:
                self._first = n
                return False
            if now.tobytes() != before.tobytes():
                self._first = n
                return False
        return True

    def of_a_part(self) -> Spin | None:
        """Return the state with which a part of the group, which may go on to spin, begins; None if it is empty."""
        if not self.has_slept:
            return None
        spin = Spin(_NEVER, has_slept=True)
        spin.asleep = True
        return spin

    def wake(self) -> None:
        """Let the group run although nothing has changed."""
        self.asleep = False
        self._block, self._steps, self._span = EXIT, 0, _FIRST_SPAN
