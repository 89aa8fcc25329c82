"""Forward progress: spinning groups sleep until memory changes; a try_wait times out when nothing else can run.

`spinning.py` detects spinning groups. Clocks have no model: time leaps ahead when no group can run before time passes.

If nothing else can run, a try_wait times out and returns false. The further steps of its lanes depend only on their
registers and on shared state. Lanes that wait with the same registers as before an earlier failure, and with no change
of shared state since, would only repeat themselves, so their tries do not fail again. Lanes that count their failures
have other registers, and their tries fail again.

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


def together(flow: ControlFlow, start: int) -> int:
    """Return how many threads the instructions from a block on take together."""
    if start not in flow.units:
        flow.units[start] = _unit(flow, start)
    return flow.units[start]


def _unit(flow: ControlFlow, start: int) -> int:
    unit = 1
    for block in flow.blocks_between(start, EXIT):
        for i in flow.blocks[block].instructions:
            if i.traits.kind == "wgmma":
                return WARPGROUP
            if i.traits.kind == "matrix" or i.traits.exchanges:
                unit = WARP
    return unit


class GroupSnapshot(NamedTuple):
    """Snapshot of a group of lanes.

    Attributes
    ----------
    changes : int
        Number of changes up to then.
    block : int
    gathering : object
    values : list
        Of the registers that it will still read.
    """

    changes: int
    block: int
    gathering: object
    values: list[Any]

    def is_like(self, other: GroupSnapshot) -> bool:
        """Return whether two snapshots of a group agree in all that a program can observe."""
        return self[:3] == other[:3] and all(map(_equal, self.values, other.values))


def look(g: Group, flow: ControlFlow, changes: int) -> GroupSnapshot:
    """Return a group as it is: arrays of registers are replaced, and never written to."""
    live = flow.live_in[g.block] if g.block >= 0 else ()
    return GroupSnapshot(changes, g.block, g.gathering, [g.registers[index] for index in live])


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
    """Failed tries of waits since the last change of memory, a barrier or the number of running lanes.

    Parameters
    ----------
    flow : ControlFlow
    activity : Activity

    Attributes
    ----------
    by_clock : bool
        True if time passed between failures of a wait in one state, so that a program that reads the clock may go on
        otherwise after its next failure.
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
        """Describe the number of failed tries, if no further try can fail."""
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
