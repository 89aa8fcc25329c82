"""Affine forms: registers inside a round as sums of multiples of the registers where the round began."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from cutepy.sim.ptx.model import Immediate, Register
from cutepy.sim.translate.control_flow import EXIT
from cutepy.sim.translate.effects import written

if TYPE_CHECKING:
    from cutepy.sim.ptx.model import Instruction, Operand
    from cutepy.sim.sanitize.certificate.dependence import NaturalLoop
    from cutepy.sim.translate.control_flow import ControlFlow

TYPES = frozenset("b32 s32 u32 b64 s64 u64".split())
"""Of what counts: numbers of fewer bits wrap too soon."""
_MOST = 4
"""Sums that a register may hold at one place, by different ways to it."""


class Sum(NamedTuple):
    """Multiples of registers and a constant.

    Attributes
    ----------
    terms : tuple of (int, int)
        Registers, by number and in order, and by how much each is multiplied.
    offset : int

    Examples
    --------
    >>> Sum(((4, 1),), 2).plus(Sum(((4, 1), (7, 3)), 1), -1)
    Sum(terms=((7, -3),), offset=1)
    """

    terms: tuple[tuple[int, int], ...]
    offset: int

    def plus(self, other: Sum, factor: int = 1) -> Sum:
        """Add a multiple of another one."""
        terms = dict(self.terms)
        for register, by in other.terms:
            terms[register] = terms.get(register, 0) + factor * by
        left = tuple(sorted((register, by) for register, by in terms.items() if by))
        return Sum(left, self.offset + factor * other.offset)


Sums = frozenset[Sum]
_Held = dict[int, Sums | None]
"""By register; None is anything, and what is not there holds what it did."""


def sums_from(flow: ControlFlow, head: int, loops: Sequence[NaturalLoop]) -> dict[int, list[Sums]]:
    """Return of each comparison, by index, what its two operands may be, if that is known.

    Parameters
    ----------
    flow : ControlFlow
    head : int
        The block where a round begins.
    loops : sequence of NaturalLoop
        All of the function. What they change is not known from their heads on.
    """
    changed = {
        one.head: {r.index for b in one.blocks for i in flow.blocks[b].instructions for r in written(i)}
        for one in loops
        if one.head != head
    }
    order, before = _order(flow, head)
    held: dict[int, _Held] = {}
    found: dict[int, list[Sums]] = {}
    for block in order:
        now: _Held = dict(_joined([held[x] for x in before[block] if x in held])) if block != head else {}
        now.update(dict.fromkeys(changed.get(block, ())))
        for i in flow.blocks[block].instructions:
            if i.parts[0] == "setp":
                sides = [_of(operand, now) for operand in i.operands[1:3]]
                if None not in sides:
                    found[i.index] = [side for side in sides if side is not None]
            for register in written(i):
                made = _made(i, now)
                if i.predicate is not None:
                    made = _either(made, _of(register, now))
                now[register.index] = made
        held[block] = now
    return found


def is_plain(i: Instruction) -> bool:
    """Tell whether an instruction makes one integer of 32 or 64 bits, as its name says: it does not saturate."""
    modifiers = frozenset(i.parts[1:-1])
    return i.parts[-1] in TYPES and modifiers <= {"lo"} and isinstance(i.operands[0], Register)


def linear(i: Instruction) -> tuple[list[tuple[Operand, int]], int] | None:
    """Return what an instruction makes as multiples of its operands and a constant; None if it is no such sum."""
    name, operands = i.parts[0], i.operands[1:]
    if not is_plain(i):
        return None
    if name == "mov":
        return [(operands[0], 1)], 0
    if name == "neg":
        return [(operands[0], -1)], 0
    if name in ("add", "sub"):
        return [(operands[0], 1), (operands[1], 1 if name == "add" else -1)], 0
    if len(operands) == 2 and isinstance(operands[1], Immediate):
        number = operands[1].value
        if name == "shl" and 0 <= number < 32:
            return [(operands[0], 1 << number)], 0
        if name == "mul" and "lo" in i.parts:
            return [(operands[0], signed(number, 64 if "64" in i.parts[-1] else 32))], 0
    return None


def signed(value: int, bits: int) -> int:
    """Return what bits are as a signed number."""
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def _made(i: Instruction, held: _Held) -> Sums | None:
    found = linear(i)
    if found is None:
        return None
    sums: Sums = frozenset({Sum((), found[1])})
    for operand, factor in found[0]:
        other = _of(operand, held)
        if other is None:
            return None
        sums = frozenset(one.plus(more, factor) for one in sums for more in other)
    return sums if len(sums) <= _MOST else None


def _of(operand: Operand, held: _Held) -> Sums | None:
    if isinstance(operand, Immediate) and not operand.float_bits:
        return frozenset({Sum((), signed(operand.value, 64))})
    if isinstance(operand, Register):
        return held.get(operand.index, frozenset({Sum(((operand.index, 1),), 0)}))
    return None


def _either(one: Sums | None, other: Sums | None) -> Sums | None:
    both = None if one is None or other is None else one | other
    return both if both is not None and len(both) <= _MOST else None


def _joined(held: list[_Held]) -> _Held:
    """Return what registers hold where several ways meet."""
    found = held[0]
    for other in held[1:]:
        keys = {key for key in found.keys() | other.keys() if found.get(key, key) != other.get(key, key)}
        if keys:
            unchanged = {key: frozenset({Sum(((key, 1),), 0)}) for key in keys}
            found = found | {
                key: _either(found.get(key, unchanged[key]), other.get(key, unchanged[key])) for key in keys
            }
    return found


def _order(flow: ControlFlow, head: int) -> tuple[list[int], dict[int, list[int]]]:
    """Return the blocks from one on, in reverse postorder, without ways back to it; and those before each."""
    order: list[int] = []
    seen = {head}
    stack: list[tuple[int, Iterator[int]]] = [(head, iter(flow.blocks[head].successors))]
    before: dict[int, list[int]] = {}
    while stack:
        block, rest = stack[-1]
        to = next(rest, None)
        if to is None:
            order.append(block)
            stack.pop()
        elif to not in (EXIT, head):
            before.setdefault(to, []).append(block)
            if to not in seen:
                seen.add(to)
                stack.append((to, iter(flow.blocks[to].successors)))
    return order[::-1], before
