"""Constant folding for one grid: values made of the grid's extents and of constants become constants in the code.

So the step of a loop over `first + i * clusters` is a number, and where the DSL keeps open whether a step is negative
one of both ways is left. Only values that one instruction makes are followed, in integers.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from cutepy.sim.ptx.model import Immediate, Instruction, Operand, Register, Special
from cutepy.sim.sanitize.certificate.any_rounds.affine import is_plain, signed
from cutepy.sim.translate.effects import written

if TYPE_CHECKING:
    from cutepy.sim.machine.launch import Launch
    from cutepy.sim.translate.control_flow import ControlFlow

_SUMS: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "min": min,
    "max": max,
}
_ORDERS = {"lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge}
_COMPARISONS = _ORDERS | {"eq": operator.eq, "ne": operator.ne}
_FOLDED = frozenset("mov add sub mul mad shl abs neg min max and or xor setp selp".split())
_TYPES = {f"{kind}{bits}": bits for kind in "bsu" for bits in (32, 64)}


def extents_of(launch: Launch) -> tuple[tuple[str, int], ...]:
    """Return the special registers that a launch's extents say the values of, by name and in order."""
    found: dict[str, int] = {}
    for axis, blocks, threads, ctas in zip("xyz", launch.grid, launch.block, launch.cluster, strict=True):
        found |= {f"%nctaid.{axis}": blocks, f"%ntid.{axis}": threads}
        found |= {f"%cluster_nctaid.{axis}": ctas, f"%nclusterid.{axis}": blocks // ctas}
    return tuple(sorted(found.items()))


def specialised(flow: ControlFlow, extents: Mapping[str, int]) -> ControlFlow:
    """Return a function's code with what is known of values, by the values of special registers."""
    makers: dict[int, list[Instruction]] = {}
    for block in flow.blocks:
        for i in block.instructions:
            for register in written(i):
                makers.setdefault(register.index, []).append(i)
    known: dict[int, int] = {}

    def value(operand: Operand) -> int | None:
        if isinstance(operand, Register):
            return known.get(operand.index)
        if isinstance(operand, Special):
            return extents.get("%" + operand.name.removeprefix("%"))
        return operand.value if isinstance(operand, Immediate) and not operand.float_bits else None

    single = [some[0] for some in makers.values() if len(some) == 1 and some[0].predicate is None]
    waiting = [i for i in single if i.parts[0] in _FOLDED and isinstance(i.operands[0], Register)]
    before = -1
    while len(known) > before:
        before = len(known)
        for i in waiting:
            made = _made(i, [value(operand) for operand in i.operands[1:]])
            if made is not None and isinstance(i.operands[0], Register):
                known[i.operands[0].index] = made

    def folded(i: Instruction) -> Instruction:
        if i.parts[0] not in _FOLDED or i.predicate is not None or not isinstance(i.operands[0], Register):
            return i
        first, *rest = i.operands
        own = known.get(first.index) if isinstance(first, Register) else None
        move = f"mov.{i.parts[-1]}"
        if own is not None and i.parts[0] != "setp":
            return replace(i, opcode=move, operands=(first, Immediate(own)))
        if i.parts[0] == "selp" and (which := value(rest[2])) is not None:
            return replace(i, opcode=move, operands=(first, rest[1 - which]))
        return replace(i, operands=(first, *map(_constant, rest, map(value, rest))))

    blocks = [replace(block, instructions=[folded(i) for i in block.instructions]) for block in flow.blocks]
    return flow.with_blocks(blocks)


def _constant(operand: Operand, value: int | None) -> Operand:
    """Return a constant for a register that has its value."""
    return operand if value is None or not isinstance(operand, Register) or operand.bits == 1 else Immediate(value)


def _made(i: Instruction, given: list[int | None]) -> int | None:
    """Return the number that an instruction makes, with its sign as the type has it; of a predicate 0 or 1."""
    name, kind = i.parts[0], i.parts[-1]
    bits = _TYPES.get(kind)
    if name != "setp" and not is_plain(i):
        return None
    if name == "selp" and bits and given[2] is not None:
        chosen = given[1 - given[2]]
        return None if chosen is None else signed(chosen, bits)
    numbers = [x for x in given if x is not None]
    if bits is None or len(numbers) < len(given):
        return None
    numbers = [signed(x, bits) for x in numbers]
    if name == "setp" and len(i.parts) == 3 and i.parts[1] in _COMPARISONS:
        if kind[0] != "s" and i.parts[1] in _ORDERS and min(numbers) < 0:
            return None
        return int(_COMPARISONS[i.parts[1]](*numbers))
    made = _number(name, "lo" in i.parts, kind[0] == "u", numbers, bits)
    return None if made is None else signed(made, bits)


def _number(name: str, is_low: bool, is_unsigned: bool, numbers: list[int], bits: int) -> int | None:
    if name in ("mov", "neg", "abs"):
        return {"mov": numbers[0], "neg": -numbers[0], "abs": abs(numbers[0])}[name]
    if name in ("min", "max") and is_unsigned and min(numbers) < 0:
        return None
    if name in _SUMS and len(numbers) == 2:
        return _SUMS[name](*numbers)
    if name == "mul" and is_low:
        return numbers[0] * numbers[1]
    if name == "mad" and is_low:
        return numbers[0] * numbers[1] + numbers[2]
    return numbers[0] << numbers[1] if name == "shl" and 0 <= numbers[1] < bits else None
