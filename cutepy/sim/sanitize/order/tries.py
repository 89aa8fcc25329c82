"""The tries of a kernel at its mbarriers: which retry until they succeed, and which are peeks that a wait follows.

A wait is all the tries of one mbarrier and phase of which only one must succeed. Where the outcome of a try decides
whether another wait follows, and nothing else, it is a *peek*: its success saves time and means nothing more, so that
what the wait orders begins where the paths join. A try that may save one that shows more, relaxed or of a narrower
scope, is none: it matters which of them succeeds. To see a kernel as it runs where the peek fails, it is made to fail,
unless its thread knows that the phase is complete: then it can't.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cutepy.sim.translate.control_flow import EXIT
from cutepy.sim.translate.effects import written

if TYPE_CHECKING:
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.sanitize.order.uses import Uses
    from cutepy.sim.translate.control_flow import ControlFlow

_QUIET = frozenset(
    """mov selp setp set and or xor not lop3 cvt add sub mul mad shl shr min max neg abs slct cnot bfe bfi prmt popc clz
    nanosleep""".split()
)


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
    """

    instruction: Instruction
    retries: bool
    followers: frozenset[int]
    misuse: Instruction | None

    @property
    def is_peek(self) -> bool:
        """Whether a wait follows where it fails, or nothing depends on it."""
        return not self.retries and self.misuse is None


def is_try(i: Instruction) -> bool:
    """Tell whether an instruction tests a phase of an mbarrier."""
    return i.parts[0] == "mbarrier" and i.parts[1] in ("try_wait", "test_wait")


def tries(flow: ControlFlow, uses: Uses) -> list[Try]:
    """Find the tries of a kernel."""
    return [_follow(flow, i, uses) for block in flow.blocks for i in block.instructions if is_try(i)]


def _follow(flow: ControlFlow, i: Instruction, uses: Uses) -> Try:
    """Follow an outcome to where it ends: branches, and values that depend on it."""
    retries, misuse = False, None
    followers: set[int] = set()
    waiting = [use for register in written(i) for use in uses.after(i, register.index)]
    seen = set(waiting)
    while waiting and misuse is None:
        number, use = waiting.pop()
        if use is not None:
            if is_try(use) or not _is_quiet(use):
                misuse = use
                break
            reached = [x for register in written(use) for x in uses.after(use, register.index)]
        else:
            join = flow.join[number]
            sides = [list(_between(flow, start, join)) for start in set(flow.blocks[number].successors)]
            inside = [x for side in sides for x in side]
            loud = next((x for x in inside if not _is_quiet(x)), None)
            if loud is not None or sum(any(map(is_try, side)) for side in sides) > 1:
                misuse = loud or next(filter(is_try, inside))
                break
            found = {x.index for x in inside if is_try(x)}
            retries |= i.index in found
            followers |= found - {i.index}
            changed = {r.index for x in inside for r in written(x)}
            alive = changed & flow.live_in[join] if join != EXIT else set()
            reached = [x for register in alive for x in uses.on_entry(join, register)]
        waiting += [x for x in reached if x not in seen]
        seen.update(reached)
    others = [x for block in flow.blocks for x in block.instructions if x.index in followers]
    misuse = misuse or next((x for x in others if _shown(x) > _shown(i)), None)
    if retries and misuse is None and not all(x.operands[1:3] == i.operands[1:3] for x in others):
        misuse = i
    return Try(i, retries, frozenset(followers), misuse)


def _between(flow: ControlFlow, start: int, end: int) -> Iterator[Instruction]:
    """Yield the instructions that run from one block on before another."""
    for n in sorted(flow.blocks_between(start, end)):
        yield from flow.blocks[n].instructions


def _shown(i: Instruction) -> int:
    """Rank what the success of a try shows: nothing, what is of this CTA, or of the cluster."""
    return 0 if "relaxed" in i.parts else 1 + ("cluster" in i.parts)


def _is_quiet(i: Instruction) -> bool:
    """Tell whether an instruction does no more than to write registers, to wait for a while, or to try."""
    return is_try(i) or i.parts[0] in _QUIET
