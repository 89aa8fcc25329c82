"""The tries of a kernel at its mbarriers: which retry until they succeed, and which are peeks that a wait follows.

A wait is all the tries of one mbarrier and phase of which only one must succeed. Where the outcome of a try decides
whether another wait follows, and nothing else, it is a *peek*: its success saves time and means nothing more, so that
what the wait orders begins where the paths join. A try that may save one that shows more, relaxed or of a narrower
scope, is none: it matters which of them succeeds. To see a kernel as it runs where the peek fails, it is made to fail,
unless its thread knows that the phase is complete: then it can't.

A try *retries* if the way on from it is its success alone (`failing.py`). If all that its success leads to is reached
without one too, after so many tries, say, it is a *guess* (`giving_up.py`): whoever goes on knows nothing by it. Where
that can't be told, of tries of several phases, say, it is no wait, and not certified, but who has seen it succeed goes
on knowing it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cutepy.sim.sanitize.order.failing import is_quiet, is_tried_again, is_try
from cutepy.sim.sanitize.order.giving_up import goes_on
from cutepy.sim.translate.control_flow import EXIT
from cutepy.sim.translate.effects import written

if TYPE_CHECKING:
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.sanitize.order.uses import Uses
    from cutepy.sim.translate.control_flow import ControlFlow


@dataclass(frozen=True)
class Try:
    """A try, and what its outcome does.

    Attributes
    ----------
    instruction : Instruction
    retries : bool
        Whether it is tried again until it succeeds.
    followers : frozenset of int
        The other tries that may run only because it failed, by index.
    misuse : Instruction or None
        What uses the outcome for more than to decide whether to wait; or a try that shows more, which this one may
        save.
    may_give_up : bool
        Whether it is tried again, but may never succeed before the thread goes on, as far as can be told.
    is_guess : bool
        Whether what comes after its success certainly comes without one too (`giving_up.py`).
    """

    instruction: Instruction
    retries: bool
    followers: frozenset[int]
    misuse: Instruction | None
    may_give_up: bool = False
    is_guess: bool = False

    @property
    def is_peek(self) -> bool:
        """Whether a wait follows where it fails, or nothing depends on it."""
        return not self.retries and self.misuse is None and not self.may_give_up and not self.is_guess


def tries(flow: ControlFlow, uses: Uses) -> list[Try]:
    """Find the tries of a kernel."""
    every = [i for block in flow.blocks for i in block.instructions if is_try(i)]
    again = frozenset(i.index for i in every if is_tried_again(flow, uses, i))
    found = [_follow(flow, i, uses, again) for i in every]
    return [replace(one, is_guess=_is_open(one, again) and goes_on(flow, one.instruction)) for one in found]


def _is_open(one: Try, again: frozenset[int]) -> bool:
    """Tell whether a try may be a guess: no wait, and no peek that one follows, or whose outcome decides nothing."""
    if one.instruction.index in again:
        return False
    return not one.is_peek or bool(one.followers and not one.followers & again)


def _follow(flow: ControlFlow, i: Instruction, uses: Uses, again: frozenset[int]) -> Try:
    """Follow an outcome to where it ends: branches, and values that depend on it."""
    returns, misuse = False, None
    followers: set[int] = set()
    waiting = [use for register in written(i) for use in uses.after(i, register.index)]
    seen = set(waiting)
    while waiting and misuse is None:
        number, use = waiting.pop()
        if use is not None:
            if is_try(use) or not is_quiet(use):
                misuse = use
                break
            reached = [x for register in written(use) for x in uses.after(use, register.index)]
        else:
            join = flow.join[number]
            sides = [list(_between(flow, start, join)) for start in set(flow.blocks[number].successors)]
            inside = [x for side in sides for x in side]
            loud = next((x for x in inside if not is_quiet(x)), None)
            if loud is not None or sum(any(map(is_try, side)) for side in sides) > 1:
                misuse = loud or next(filter(is_try, inside))
                break
            found = {x.index for x in inside if is_try(x)}
            returns |= i.index in found
            followers |= found - {i.index}
            changed = {r.index for x in inside for r in written(x)}
            alive = changed & flow.live_in[join] if join != EXIT else set()
            reached = [x for register in alive for x in uses.on_entry(join, register)]
        waiting += [x for x in reached if x not in seen]
        seen.update(reached)
    others = [x for block in flow.blocks for x in block.instructions if x.index in followers]
    misuse = misuse or next((x for x in others if _shown(x) > _shown(i)), None)
    retries, may_give_up = returns and i.index in again, returns and i.index not in again and misuse is None
    if retries and misuse is None and not all(x.operands[1:3] == i.operands[1:3] for x in others):
        misuse = i
    return Try(i, retries, frozenset(followers), misuse, may_give_up)


def _between(flow: ControlFlow, start: int, end: int) -> Iterator[Instruction]:
    """Yield the instructions that run from one block on before another."""
    for n in sorted(flow.blocks_between(start, end)):
        yield from flow.blocks[n].instructions


def _shown(i: Instruction) -> int:
    """Rank what the success of a try shows: nothing, what is of this CTA, or of the cluster."""
    return 0 if "relaxed" in i.parts else 1 + ("cluster" in i.parts)
