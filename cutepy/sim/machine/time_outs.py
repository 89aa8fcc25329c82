"""Which try_wait returns false where nothing else can go on: one whose lanes may do something else this time.

What lanes do after a failure follows from their registers, and from what others see, which counts as a change. So
lanes that wait as they did before a try of theirs failed, with no change since, would come back as they are now.
Those that count their failures do not, and fail again.

References
----------
PTX ISA, "mbarrier.test_wait, mbarrier.try_wait": a suspended thread resumes, with false, when a system-dependent time
limit has passed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cutepy.sim.machine.activity import Activity
    from cutepy.sim.machine.group import Group
    from cutepy.sim.translate.control_flow import ControlFlow

MOST = 1 << 12
"""How many tries fail in all until something changes: what counts them may do so for ever."""

_LATER = 1 << 8
"""How many more may fail once time has leapt."""


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
