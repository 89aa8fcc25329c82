"""A schedule that is a list of choices: who goes on at each access to memory that others see, and each synchronisation.

Agents are offered in an order of preference: operations that are pending, then who went on last, then the others. A
choice is a position in that order, and most are 0; the others make a schedule, such as "schedule:3=1,17=2": of those
offered it takes number 1 at choice 3, and number 2 at choice 17. Counts begin at 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cutepy.sim.machine.interleaving import Agent, Interleaving

if TYPE_CHECKING:
    from cutepy.sim.machine.launch import Launch
    from cutepy.sim.ptx.model import Instruction

_MEMORY = frozenset("ld st atom red ldmatrix stmatrix multimem".split())
_SEEN = _MEMORY | frozenset("mbarrier bar barrier cp tensormap setmaxnreg".split())
_OWN = frozenset("param const local commit_group prefetch".split())
_CHOICES = re.compile(r"\d+=\d+(,\d+=\d+)*")


def is_seen(i: Instruction) -> bool:
    """Tell whether others may see an instruction, or who executes it may see others: it touches what they share."""
    if i.parts[0] == "wgmma":
        return i.parts[1] == "wait_group"
    return i.parts[0] in _SEEN and _OWN.isdisjoint(i.parts)


class Choices(Interleaving):
    """Play a list of choices, and from there on who is preferred.

    Parameters
    ----------
    others : mapping of int to int
        The choices that are not the first of those offered, by their number in the launch.

    Examples
    --------
    >>> choices_of("3=1,17=2")
    schedule:3=1,17=2
    """

    watches = True
    parts_arrivals = True

    def __init__(self, others: Mapping[int, int]) -> None:
        self.others = dict(others)
        self.start()

    def __repr__(self) -> str:
        said = ",".join(f"{at}={choice}" for at, choice in sorted(self.others.items()))
        return f"schedule:{said or '0=0'}"

    def start(self) -> None:
        """Begin with a launch."""
        self._at, self._last = 0, -1
        self._refused: dict[int, int] = {}  # choices that were not offered, and of how many
        self.is_stuck = False

    def stops_at(self, instruction: Instruction, before: Instruction | None) -> bool:
        """Say that lanes stop before what others may see."""
        return is_seen(instruction)

    def gives_up(self) -> bool:
        """Say that tries return: to wait is to be picked later."""
        return not self.is_stuck

    def next(self, agents: Sequence[Agent]) -> int:
        """Pick the one that is chosen."""
        order = self.preferred(agents)
        choice = self.others.get(self._at, 0)
        if choice >= len(order):
            self._refused[self._at] = len(order)
        picked = order[min(choice, len(order) - 1)]
        self._at += 1
        self.note(agents[picked])
        return picked

    def missed(self, launch: Launch) -> str:
        """Say which choice there was not, or that it had not so many."""
        for at, choice in sorted(self.others.items()):
            if at in self._refused:
                return f"at choice {at} {launch.name} has 0 to {self._refused[at] - 1}, and no {choice}"
            if choice and at >= self._at:
                return f"{launch.name} has {self._at} choices, counted from 0, and no choice {at}"
        return ""

    def note(self, agent: Agent) -> None:
        """Take note of who goes on."""
        if agent.operation is None:
            self._last = agent.number

    def preferred(self, agents: Sequence[Agent]) -> list[int]:
        """Return the positions of agents in the order in which they are offered."""

        def rank(n: int) -> tuple[bool, bool]:
            return agents[n].operation is None, agents[n].number != self._last

        able = [n for n, agent in enumerate(agents) if _is_able(agent)]
        return sorted(able, key=rank)


def _is_able(agent: Agent) -> bool:
    """Tell whether nothing that is pending comes before an operation."""
    return agent.operation is None or all(earlier.done for earlier in agent.operation.after)


def choices_of(text: str) -> Choices:
    """Make a schedule of its text.

    Raises
    ------
    ValueError
        If it is none.
    """
    if not _CHOICES.fullmatch(text):
        raise ValueError(f"a schedule is a seed, or choices such as 3=1,17=2, got {text!r}")
    return Choices({int(at): int(choice) for at, choice in (pair.split("=") for pair in text.split(","))})
