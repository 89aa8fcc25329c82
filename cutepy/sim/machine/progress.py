"""Forward progress: spinning groups sleep until memory changes; a try_wait times out when nothing else can run.

A group that comes to the same block with the same registers, while no memory has changed, will do so for ever: it
sleeps until something changes. The block and registers to compare with are taken anew after twice as many blocks each
time, so that a cycle of any length is found (R. P. Brent, "An Improved Monte Carlo Factorization Algorithm", 1980). A
loop that counts never repeats itself, and works. A group that has slept is watched from the block on at which it wakes,
and so are its parts: of many that wait for a lock, all but the one that gets it sleep again after one round. Of clocks
there is no model: time leaps ahead when nothing but time can let anybody go on.

If nothing else can run, a try_wait times out and returns false. The lanes' further steps follow from their registers
and from the changes that others see. So lanes that wait as they did before an earlier failure, with no change since,
would come back as they are now, and do not fail again. Lanes that count their failures differ, and fail again.

References
----------
PTX ISA, "SIMT Architecture": independent thread scheduling; "Special Registers: %clock64, %globaltimer";
"mbarrier.test_wait, mbarrier.try_wait": a suspended thread resumes, with false, when a system-dependent time limit has
passed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from cutepy.sim.machine.lanes import WARP, WARPGROUP
from cutepy.sim.translate.control_flow import EXIT

if TYPE_CHECKING:
    from cutepy.sim.machine.activity import Activity
    from cutepy.sim.machine.group import Group
    from cutepy.sim.translate.control_flow import ControlFlow


TRUSTED_BLOCKS = 32
"""Blocks that a group runs without a change to memory before it is watched."""

_NEVER = -1
_FIRST_SPAN = 8


class Spin:
    """State of a group since memory changed last, which tells if it spins.

    Attributes
    ----------
    changes : int
        The count of changes then.
    asleep : bool
        Whether the group has repeated itself.
    by_clock : bool
        Whether time went by meanwhile, so that its next round may differ.
    has_slept : bool
        Whether the group, or the one it is a part of, was asleep before.
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
        """Tell whether a group that comes to a block has been there before as it is now.

        MMAs that complete meanwhile, and so change accumulators that are not in registers, are changes.
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
        """Return what a part of the group begins with, which may go on to spin: None if that is nothing."""
        if not self.has_slept:
            return None
        spin = Spin(_NEVER, has_slept=True)
        spin.asleep = True
        return spin

    def wake(self) -> None:
        """Let the group run although nothing has changed."""
        self.asleep = False
        self._block, self._steps, self._span = EXIT, 0, _FIRST_SPAN


def together(flow: ControlFlow, start: int) -> int:
    """Return how many threads the instructions from a block on take together."""
    if start not in flow.units:
        flow.units[start] = _unit(flow, start)
    return flow.units[start]


def _unit(flow: ControlFlow, start: int) -> int:
    unit = 1
    for block in flow.blocks_between(start, EXIT):
        for i in flow.blocks[block].instructions:
            if i.parts[0] == "wgmma":
                return WARPGROUP
            if i.traits.kind == "matrix" or i.traits.exchanges:
                unit = WARP
    return unit


class Look(NamedTuple):
    """A group as it was at some time.

    Attributes
    ----------
    changes : int
        What had changed by then, in all.
    block : int
    gathering : object
    values : list
        Of the registers that it will still read.
    """

    changes: int
    block: int
    gathering: object
    values: list[Any]

    def is_like(self, other: Look) -> bool:
        """Tell whether nothing that a program can see has changed between two looks at one group."""
        return self[:3] == other[:3] and all(map(_equal, self.values, other.values))


def look(g: Group, flow: ControlFlow, changes: int) -> Look:
    """Return a group as it is: arrays of registers are replaced, and never written to."""
    live = flow.live_in[g.block] if g.block >= 0 else ()
    return Look(changes, g.block, g.gathering, [g.registers[index] for index in live])


def _equal(one: Any, other: Any) -> bool:  # noqa: ANN401
    if one is other:
        return True
    if one is None or other is None or one.shape != other.shape:
        return False
    return bool(one.tobytes() == other.tobytes())


MOST = 1 << 12
"""Tries that fail in all until something changes: a loop that counts them may fail for ever."""

_LATER = 1 << 8
"""Further tries that may fail once time has leapt."""


class TimeOuts:
    """The tries that have failed since something changed last.

    Parameters
    ----------
    flow : ControlFlow
    activity : Activity

    Attributes
    ----------
    by_clock : bool
        Whether time went by while tries failed, so that what lanes do after the next one may depend on when it is.
    """

    def __init__(self, flow: ControlFlow, activity: Activity) -> None:
        self._flow, self._activity = flow, activity
        self.by_clock = False
        self._begin()

    def _begin(self) -> None:
        self._changes = self._activity.changes
        self._failed: dict[int, int] = {}  # when lanes that waited so failed last
        self._counts: Counter[tuple[bytes, bytes]] = Counter()
        self._left, self._since = MOST, self._activity.time

    def told(self) -> list[str]:
        """Say how many have failed, if they are so many that no more will."""
        if self._left or self._changes != self._activity.changes:
            return []
        return [f"{self._counts.total():,} tries have failed meanwhile; what more would do is not known"]

    def pick(self, groups: Sequence[Group]) -> Group | None:
        """Return a group whose try fails now, of those with the fewest failures; None if there is none."""
        if self._changes != self._activity.changes:
            self._begin()
        time, self.by_clock = self._activity.time, False
        for g in sorted((g for g in groups if g.ready is not None), key=lambda g: self._counts[_lanes(g)]):
            state = self._state(g)
            if state not in self._failed and self._left:
                self._left -= 1
                self._failed[state] = time
                self._counts[_lanes(g)] += 1
                return g
            self.by_clock |= self._failed.get(state, self._since) != time
        return None

    def leap(self) -> None:
        """Let lanes fail again that have failed before, since it is later now."""
        self._failed.clear()
        self._left, self._since = max(self._left, _LATER), self._activity.time

    def _state(self, g: Group) -> int:
        values = (g.registers[index] for index in sorted(self._flow.live_in[g.block]))
        return hash((_lanes(g), g.block, *(None if value is None else value.tobytes() for value in values)))


def _lanes(g: Group) -> tuple[bytes, bytes]:
    return g.ctas.slots.tobytes(), g.threads.ids.tobytes()
