"""Interleavings: policies that choose the next agent, a group of lanes or a pending operation, at each synchronisation.

A `CompletionPolicy` decides when asynchronous operations take effect, and threads run whenever they can. An
`Interleaving` decides both. Its agents are groups of lanes that stopped at a synchronisation, and pending operations.
At each step it picks one agent that can run. So warps overtake each other, and copies arrive in any order.

References
----------
S. Burckhardt, P. Kothari, M. Musuvathi, S. Nagarakatte, "A Randomized Scheduler with Probabilistic Guarantees of
Finding Bugs", ASPLOS 2010: agents of random priorities, of which the running one falls behind at a few random points.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cutepy.sim.machine.events import AsyncOperation, CompletionPolicy
from cutepy.sim.machine.lanes import Ctas, Threads
from cutepy.sim.ptx.memory_order import WEAK, strength

if TYPE_CHECKING:
    from cutepy.sim.machine.group import Group
    from cutepy.sim.ptx.model import Function, Instruction


@dataclass(frozen=True, slots=True)
class Agent:
    """Agent that can go on: lanes before an instruction, or an asynchronous operation that is pending.

    Attributes
    ----------
    number : int
        Its name, for as long as it lives.
    instruction : Instruction or None
        Next instruction of the lanes, or the one that issued the operation.
    ctas, threads : Ctas, Threads
        The lanes, or those that issued the operation.
    operation : AsyncOperation or None
    awaits : tuple of AsyncOperation
        Operations that the instruction waits for, for policies that look at them.
    """

    number: int
    instruction: Instruction | None
    ctas: Ctas
    threads: Threads
    operation: AsyncOperation | None = None
    awaits: tuple[AsyncOperation, ...] = ()


class Interleaving(CompletionPolicy):
    """Policy that picks the next agent; this class picks the first that can run, and completes operations at issue.

    Lanes stop before and after each instruction that synchronises. The lanes of a warp stay together while the kernel
    keeps them together; the warps of a warpgroup stay together from one MMA to the next.

    Attributes
    ----------
    splits_ctas : bool
        True if each CTA is an agent of its own; otherwise all resident CTAs run in lockstep.
    poison : int or None
        Byte that fills the shared memory of a CTA at its begin and at its end; None leaves zeros at the begin, and the
        contents at the end.
    tells_absence : bool
        True if an access to another CTA's shared memory before its first step, or after its end, is an error.
    watches : bool
        True if the policy receives the outcome of each step: `went`, `left` and `unblocked`. Agents are then groups
        that are split no further, and a group whose step changed no state is no agent until some state has changed.
    sees_awaited : bool
        True if agents name the object that they wait for.
    is_stuck : bool
        Set when no agent can run.
    """

    splits_ctas = True
    poison: int | None = None
    tells_absence = False
    watches = False
    sees_awaited = False
    is_stuck = False

    def completes_at_issue(self, operation: AsyncOperation) -> bool:
        """Return False: a pending operation is an agent of its own."""
        return False

    def start(self) -> None:
        """Begin with a launch."""

    def begin(self) -> None:
        """Begin with CTAs that become resident."""

    def stops_at(self, instruction: Instruction, before: Instruction | None) -> bool:
        """Tell whether lanes stop before an instruction, given the preceding instruction of the text."""
        return synchronises(instruction) or (before is not None and synchronises(before))

    def parts_lanes(self, ctas: Ctas, threads: Threads) -> bool:
        """Tell whether the lanes of a warp run as separate agents, where no later instruction needs the whole warp."""
        return False

    def next(self, agents: Sequence[Agent]) -> int:
        """Pick one of those that may be able to go on."""
        return 0

    def went(self, is_idle: bool) -> None:
        """Receive the end of the picked agent's step; `is_idle` tells that the step changed no state."""

    def left(self, g: Group) -> None:
        """See lanes about to end."""

    def unblocked(self) -> None:
        """Receive the split of lanes from a join where they waited for others, since nothing else could run."""


def synchronises(i: Instruction) -> bool:
    """Return whether an instruction orders accesses of threads, or issues an operation that others await."""
    return i.traits.orders or strength(i.opcode).scope != WEAK


class RandomSchedule(Interleaving):
    """Draw a priority for each agent; the highest goes on, and falls behind all others now and then.

    Under a quarter of the seeds each step is drawn for itself: long delays are rarer then, and short orders likelier.

    Parameters
    ----------
    seed : int
        The same one plays the same schedule, of the same launches.
    """

    _PATIENCE = 300
    """Picks of one agent in a row: others must get on even if it goes around a loop for ever."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.start()

    def __repr__(self) -> str:
        return f"schedule:{self.seed}"

    def start(self) -> None:
        """Begin anew: a launch under a seed is the same, whichever launches came before."""
        self._random = random.Random(self.seed)
        self.splits_ctas = self._random.random() < 0.25
        # How often the running agent falls behind: from warps that run through to those that take turns.
        self._change = self._random.choice((0.3, 0.1, 0.03, 0.01))
        self._is_uniform = self._random.random() < 0.25
        self._impatience = self._random.choice((0.0, 0.5))
        self._eagerness = self._random.choice((0.0, 0.0, 0.7))
        self.begin()

    def begin(self) -> None:
        """Discard the agents of an earlier launch."""
        self._priorities: dict[int, float] = {}
        self._lowest, self._last, self._row = -2.0, -1, 0

    def next(self, agents: Sequence[Agent]) -> int:
        """Pick the one of the highest priority, or under a quarter of the seeds any."""
        if self._is_uniform:
            return self._random.randrange(len(agents))
        draw, priorities = self._random.random, self._priorities
        best, highest = 0, float("-inf")
        for n, agent in enumerate(agents):
            priority = priorities.get(agent.number)
            if priority is None:
                # Operations late, or as likely as warps, by the seed.
                late = agent.operation is not None and draw() >= self._eagerness
                priority = priorities[agent.number] = draw() - late
            if priority > highest:
                best, highest = n, priority
        number = agents[best].number
        self._row = self._row + 1 if number == self._last else 0
        self._last = number
        if self._row > self._PATIENCE:
            self._lowest -= 1
            priorities[number] = self._lowest
        elif draw() < self._change:
            priorities[number] = draw() - 2  # somewhere among those that fell behind before
        return best

    def gives_up(self) -> bool:
        """Return True or False at random, with equal odds."""
        return self._random.random() < self._impatience

    def grants(self, left: int, beyond: int) -> bool:
        """Return True or False at random, with equal odds."""
        return self._random.random() < 0.5


def pauses(function: Function, policy: CompletionPolicy | None) -> frozenset[int]:
    """Return the instructions, by index, before which lanes stop."""
    if not isinstance(policy, Interleaving):
        return frozenset()
    befores = (None, *function.instructions)
    return frozenset(
        i.index for i, before in zip(function.instructions, befores, strict=False) if policy.stops_at(i, before)
    )
