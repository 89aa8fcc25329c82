"""Where a kernel goes when a try at an mbarrier has failed, over all paths that it can take then.

What the outcome decides is known there (`outcomes.py`); other branches may go either way. A try *is tried again* if
each of these paths leads to it, or to another one of the same mbarrier and phase with which it is alike, and does
nothing else before: then the way on is the success of one of them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from cutepy.sim.ptx.model import Instruction, Register, Special, registers_in
from cutepy.sim.sanitize.order.outcomes import value_of
from cutepy.sim.translate.control_flow import EXIT
from cutepy.sim.translate.effects import read, written

if TYPE_CHECKING:
    from cutepy.sim.sanitize.order.uses import Uses
    from cutepy.sim.translate.control_flow import Block, ControlFlow

_QUIET = frozenset(
    """mov selp setp set and or xor not lop3 cvt add sub mul mad shl shr min max neg abs slct cnot bfe bfi prmt popc clz
    nanosleep cvta""".split()
)


def is_try(i: Instruction) -> bool:
    """Tell whether an instruction tests a phase of an mbarrier."""
    return i.parts[0] == "mbarrier" and i.parts[1] in ("try_wait", "test_wait")


def is_quiet(i: Instruction) -> bool:
    """Tell whether an instruction does no more than to write registers, to wait for a while, or to try."""
    return is_try(i) or i.parts[0] in _QUIET


class _At(NamedTuple):
    """A place in a block that may be reached, and the values, 0 or 1, of registers that are known there, by index."""

    block: int
    place: int
    known: frozenset[tuple[int, int]]


def is_tried_again(flow: ControlFlow, uses: Uses, i: Instruction) -> bool:
    """Tell whether a try that fails is tried again, or one of the same mbarrier and phase, until one succeeds."""
    waiting, reached = [_failed(flow, i)], {i.index: i}
    seen, passed = set(waiting), set[int]()
    while waiting:
        number, place, known = waiting.pop()
        block, values = flow.blocks[number], dict(known)
        following: list[_At] = []
        for x in block.instructions[place:]:
            if is_try(x) and x.operands[1:3] == i.operands[1:3]:
                reached[x.index] = x
                at = _failed(flow, x)
                following.append(at._replace(known=frozenset((values | dict(at.known)).items())))
                break
            if not is_quiet(x):
                return False
            passed.add(x.index)
            _run(x, values)
        else:
            for to in _ways_on(block, values):
                if to == EXIT:
                    return False
                here = flow.live_in[to]
                following.append(_At(to, 0, frozenset((r, v) for r, v in values.items() if r in here)))
        waiting += [at for at in following if at not in seen]
        seen.update(following)
    operands = [r for operand in i.operands[1:3] for r in registers_in(operand)]
    return all(_is_kept(flow, uses, reached.values(), r, passed, frozenset()) for r in operands)


def _failed(flow: ControlFlow, i: Instruction) -> _At:
    """Return where a try has failed."""
    number, place = place_of(flow, i)
    return _At(number, place + 1, frozenset((r.index, 0) for r in written(i)))


def place_of(flow: ControlFlow, i: Instruction) -> tuple[int, int]:
    """Return the block that an instruction is in, and its place there."""
    every = ((b, n) for b, block in enumerate(flow.blocks) for n, x in enumerate(block.instructions) if x is i)
    return next(every)


def _ways_on(block: Block, values: dict[int, int]) -> list[int]:
    """Return the blocks that may come next."""
    if block.condition is None or block.condition[0].index not in values:
        return block.successors
    register, is_negated = block.condition
    return [block.successors[values[register.index] == is_negated]]


def _run(i: Instruction, values: dict[int, int]) -> None:
    """Note what an instruction writes, as far as that is known."""
    guard = True
    if i.predicate is not None:
        register, is_negated = i.predicate
        if register.index in values and bool(values[register.index]) == is_negated:
            return
        guard = register.index in values
    value = value_of(i, values) if guard else None
    for register in written(i):
        values.pop(register.index, None)
        if value in (0, 1) and register == i.operands[0]:
            values[register.index] = value


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
