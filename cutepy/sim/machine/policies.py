"""When asynchronous operations take effect: the policies that have names.

A kernel that waits for all that it uses gives the same results under each. One that forgot a wait is right where copies
and MMAs take effect as they are issued, as it is on a GPU nearly always.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from difflib import get_close_matches

from cutepy.sim.machine.choices import choices_of
from cutepy.sim.machine.events import AsyncOperation, CompletionPolicy
from cutepy.sim.machine.holding import held_of
from cutepy.sim.machine.interleaving import RandomSchedule


class Late(CompletionPolicy):
    """Complete nothing before somebody waits for it or nobody can go on; then the oldest."""

    def completes_at_issue(self, operation: AsyncOperation) -> bool:
        """Say that it doesn't."""
        return False


class Youngest(Late):
    """Complete nothing before somebody waits for it or nobody can go on; then the youngest."""

    def choose(self, pending: Sequence[AsyncOperation]) -> int:
        """Pick the last."""
        return len(pending) - 1


class Random(CompletionPolicy):
    """Toss a coin whether an operation takes effect as it is issued; of those that didn't, any is next.

    Parameters
    ----------
    seed : int
        The same one gives the same order, for the same launches.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self._random = random.Random(seed)

    def completes_at_issue(self, operation: AsyncOperation) -> bool:
        """Toss."""
        return self._random.random() < 0.5

    def choose(self, pending: Sequence[AsyncOperation]) -> int:
        """Draw one."""
        return self._random.randrange(len(pending))


NAMED: dict[str, type[CompletionPolicy]] = {
    "late": Late,
    "youngest": Youngest,
    "random": Random,
    "schedule": RandomSchedule,
}
_SEEDED: dict[str, type[Random | RandomSchedule]] = {"random": Random, "schedule": RandomSchedule}


def policy_named(name: str) -> CompletionPolicy:
    """Make a policy of its name: "late", "youngest", "random" or "schedule", the last two also with ":SEED" behind.

    A schedule that `Run.explore` tells may also be its choices, as "schedule:3=1,17=2", and one that shows a hazard
    what it holds back, as "hold:17,warp=1".

    Raises
    ------
    ValueError
        If there is none of this name.

    Examples
    --------
    >>> policy_named("random:7").seed
    7
    """
    kind, colon, seed = name.partition(":")
    if kind == "schedule" and "=" in seed:
        return choices_of(seed)
    if kind == "hold" and colon:
        return held_of(seed)
    if kind in _SEEDED and colon and seed.isdecimal():
        return _SEEDED[kind](int(seed))
    if kind not in NAMED or colon:
        near = [] if kind in NAMED else get_close_matches(kind, NAMED, 1)
        raise ValueError(
            f"policy must be {', '.join(NAMED)}, random:SEED, schedule:SEED or a CompletionPolicy, got {name!r}"
            f"{'; did you mean ' + near[0] + '?' if near else ''}"
        )
    return NAMED[kind]()
