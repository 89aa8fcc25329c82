"""Where a kernel goes when a try at an mbarrier has failed, over all paths that it can take then.

What the outcome decides is known there, through moves, selections, comparisons and logic; other branches may go either
way. A try *is tried again* if each of these paths leads to it, or to another one of the same mbarrier and phase with
which it is alike, and does nothing else before: then the way on is the success of one of them. It *may be given up* if
one of these paths leads on, whatever the outcomes of tries are, by a counter, say. Where neither is seen, since a
branch depends on an outcome in a way that is not followed, or what is tried can't be compared, nothing is claimed.
"""

from __future__ import annotations

import operator
from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from cutepy.sim.ptx.model import Immediate, Instruction, Register, Special, registers_in
from cutepy.sim.translate.control_flow import EXIT
from cutepy.sim.translate.effects import read, written

if TYPE_CHECKING:
    from cutepy.sim.sanitize.order.uses import Uses
    from cutepy.sim.translate.control_flow import Block, ControlFlow

_QUIET = frozenset(
    """mov selp setp set and or xor not lop3 cvt add sub mul mad shl shr min max neg abs slct cnot bfe bfi prmt popc clz
    nanosleep cvta""".split()
)
_TELLING = frozenset("shfl vote match redux".split())
"""By which a warp's lanes tell each other an outcome."""
_EITHER = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
}
"""What comparisons and logic make of two values."""


def is_try(i: Instruction) -> bool:
    """Tell whether an instruction tests a phase of an mbarrier."""
    return i.parts[0] == "mbarrier" and i.parts[1] in ("try_wait", "test_wait")


def is_quiet(i: Instruction) -> bool:
    """Tell whether an instruction does no more than to write registers, to wait for a while, or to try."""
    return is_try(i) or i.parts[0] in _QUIET


class _At(NamedTuple):
    """A place in a block that may be reached, and what is known there.

    The values, 0 or 1, of registers, by index; those that depend on outcomes of tries and are not known; and whether a
    branch on such a one led here.
    """

    block: int
    place: int
    known: frozenset[tuple[int, int]]
    open: frozenset[int] = frozenset()
    is_doubtful: bool = False

    def after(self, values: dict[int, int], undecided: set[int], is_doubtful: bool) -> _At:
        """Add what was known before."""
        own = dict(self.known)
        return self._replace(
            known=frozenset((values | own).items()), open=frozenset(undecided - own.keys()), is_doubtful=is_doubtful
        )


def is_tried_again(flow: ControlFlow, uses: Uses, i: Instruction) -> bool | None:
    """Tell whether a try that fails is tried again, or one of the same mbarrier and phase, until one succeeds.

    False if it may be given up, None if that can't be told.
    """
    waiting, reached = [_failed(flow, i)], {i.index: i}
    seen, passed, is_clear = set(waiting), set[int](), True
    while waiting:
        number, place, known, left_open, is_doubtful = waiting.pop()
        block, values, undecided = flow.blocks[number], dict(known), set(left_open)
        for x in block.instructions[place:]:
            if is_try(x) and x.operands[1:3] == i.operands[1:3]:
                reached[x.index] = x
                following = _failed(flow, x).after(values, undecided, is_doubtful)
                if following not in seen:
                    seen.add(following)
                    waiting.append(following)
                break
            if not is_quiet(x):
                if not is_doubtful and x.parts[0] not in _TELLING:
                    return False
                is_clear = False
                break
            passed.add(x.index)
            _run(x, values, undecided)
        else:
            ways = _ways_on(block, values)
            doubtful = is_doubtful or (len(ways) > 1 and _condition(block) in undecided)
            for to in ways:
                if to == EXIT:
                    if not doubtful:
                        return False
                    is_clear = False
                    continue
                here = flow.live_in[to]
                following = _At(
                    *(to, 0, frozenset((r, v) for r, v in values.items() if r in here)),
                    frozenset(undecided & here),
                    doubtful,
                )
                if following not in seen:
                    seen.add(following)
                    waiting.append(following)
    operands = [r for operand in i.operands[1:3] for r in registers_in(operand)]
    is_clear &= all(_is_kept(flow, uses, reached.values(), r, passed, frozenset()) for r in operands)
    return True if is_clear else None


def _failed(flow: ControlFlow, i: Instruction) -> _At:
    """Return where a try has failed."""
    for number, block in enumerate(flow.blocks):
        for place, x in enumerate(block.instructions):
            if x.index == i.index:
                return _At(number, place + 1, frozenset((r.index, 0) for r in written(i)))
    raise AssertionError(i)


def _ways_on(block: Block, values: dict[int, int]) -> list[int]:
    """Return the blocks that may come next."""
    if block.condition is None or block.condition[0].index not in values:
        return block.successors
    register, is_negated = block.condition
    return [block.successors[values[register.index] == is_negated]]


def _condition(block: Block) -> int | None:
    return None if block.condition is None else block.condition[0].index


def _run(i: Instruction, values: dict[int, int], undecided: set[int]) -> None:
    """Note what an instruction writes, as far as that is known, and what depends on outcomes."""
    value: int | None = None
    runs: bool | None = True
    if i.predicate is not None:
        register, is_negated = i.predicate
        guard = values.get(register.index)
        runs = None if guard is None else bool(guard) != is_negated
    if runs is False:  # what it leaves as it was tells the outcome all the same
        undecided.update(r.index for r in written(i) if r.index not in values)
        return
    if runs:
        value = _value(i, values)
    depends = is_try(i) or any(r.index in undecided or r.index in values for r in read(i))
    for register in written(i):
        values.pop(register.index, None)
        undecided.discard(register.index)
        if value in (0, 1) and register == i.operands[0]:
            values[register.index] = value
        elif depends:
            undecided.add(register.index)


def _value(i: Instruction, values: dict[int, int]) -> int | None:
    """Return what an instruction makes, if that is known to be 0 or 1."""
    name, given = i.parts[0], [_known(operand, values) for operand in i.operands[1:]]
    if name in ("mov", "cvt"):
        return given[0]
    if name == "selp":
        return None if given[2] is None else given[1 - given[2]]
    if name == "not" and i.parts[1] == "pred":
        return None if given[0] is None else 1 - given[0]
    if name == "and" and 0 in given:
        return 0
    function = _EITHER.get(i.parts[1] if name == "setp" and len(i.parts) == 3 else name)
    if function is None or len(given) != 2 or given[0] is None or given[1] is None:
        return None
    return int(function(given[0], given[1]))


def _known(operand: object, values: dict[int, int]) -> int | None:
    if isinstance(operand, Register):
        return values.get(operand.index)
    if isinstance(operand, Immediate) and operand.value in (0, 1) and not operand.float_bits:
        return operand.value
    return None


def _is_kept(
    flow: ControlFlow,
    uses: Uses,
    readers: Collection[Instruction],
    register: Register,
    passed: set[int],
    above: frozenset[int],
) -> bool:
    """Tell whether some instructions read the same in a register each time, whichever of `passed` was run between.

    They do if none of these gives them a value; or if one instruction alone does, of what it reads the same each time.
    """
    makers = [
        x
        for block in flow.blocks
        for x in block.instructions
        if register in written(x) and any(u.instruction in readers for u in uses.after(x, register.index))
    ]
    if not any(x.index in passed for x in makers):
        return True
    maker = makers[0]
    if len(makers) > 1 or maker.index in above or is_try(maker):
        return False
    if any(isinstance(operand, Special) for operand in maker.operands):
        return False  # a clock, for one
    return all(_is_kept(flow, uses, [maker], r, passed, above | {maker.index}) for r in read(maker))
