"""Constant folding of small integers and predicates, and the registers that a result depends on."""

from __future__ import annotations

import operator
from collections.abc import Mapping

from cutepy.sim.ptx.model import Immediate, Instruction, Negated, Operand, Register, registers_in
from cutepy.sim.translate.effects import read

_MOST, _MOST_COUNTED = 127, 3
"""The largest number that is known, which all types have; and the largest sum, so that loops end."""
_COMPARISONS = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
_LOGIC = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}
_NEUTRAL = {"and": 1, "or": 0, "xor": 0}
"""What leaves the other operand, of predicates, as it is."""


def value_of(i: Instruction, values: Mapping[int, int]) -> int | None:
    """Return what an instruction writes to its first operand, if that is known.

    Parameters
    ----------
    i : Instruction
    values : mapping of int to int
        What is known of registers, by index: from 0 to 127.
    """
    name, given = i.parts[0], [_known(operand, values) for operand in i.operands[1:]]
    if name == "mov" or (name == "cvt" and all(part[0] in "usb" for part in i.parts[1:])):
        return given[0]
    if name == "selp":
        return None if given[2] is None else given[1 - (given[2] != 0)]
    if name == "not" and i.parts[1] == "pred":
        return None if given[0] is None else 1 - given[0]
    if name == "setp":
        return _compared(i, given)
    if name in _LOGIC and len(given) == 2:
        return _combined(name, *given, of_predicates="pred" in i.parts)
    if name == "add" and len(given) == 2 and None not in given:
        total = sum(x for x in given if x is not None)
        return total if total <= _MOST_COUNTED else None
    if name == "vote" and (("all" in i.parts and given[0] == 0) or ("any" in i.parts and given[0] == 1)):
        return given[0]
    return None


def _compared(i: Instruction, given: list[int | None]) -> int | None:
    compare = _COMPARISONS.get(i.parts[1])
    if compare is None:
        return None
    value = None if given[0] is None or given[1] is None else int(compare(given[0], given[1]))
    return value if len(given) < 3 else _combined(i.parts[2], value, given[2], of_predicates=True)


def _combined(name: str, a: int | None, b: int | None, *, of_predicates: bool) -> int | None:
    """Combine two values, of which one may decide alone: 0 in an "and", and of predicates 1 in an "or"."""
    if (name == "and" and 0 in (a, b)) or (name == "or" and of_predicates and 1 in (a, b)):
        return int(name == "or")
    return None if a is None or b is None else int(_LOGIC[name](a, b))


def _known(operand: Operand, values: Mapping[int, int]) -> int | None:
    if isinstance(operand, Register):
        return values.get(operand.index)
    if isinstance(operand, Negated):
        value = values.get(operand.operand.index)
        return None if value is None else 1 - value
    if isinstance(operand, Immediate) and 0 <= operand.value <= _MOST and not operand.float_bits:
        return operand.value
    return None


def deciding(i: Instruction, values: Mapping[int, int]) -> set[int]:
    """Return the registers that what an instruction makes depends on, by index, where the values of others are known.

    `or` with 0 leaves the other operand, a selection the one that is selected.
    """
    every = {r.index for r in read(i)}
    name, given = i.parts[0], i.operands[1:]
    guard = set() if i.predicate is None else {r.index for r in (i.predicate[0], *registers_in(i.operands[0]))}
    if name == "selp" and (which := _known(given[2], values)) is not None:
        return guard | {r.index for r in registers_in(given[1 - which])}
    of_predicates = name in _LOGIC and len(given) == 2 and (i.parts[-1] == "pred" or name != "and")
    parts = [(given[0],), (given[1],)] if of_predicates else [given[:2], given[2:]] if name == "setp" else []
    if len(parts) == 2 and parts[1]:
        combining = name if of_predicates else i.parts[2]
        values_of = [_known(part[0], values) if len(part) == 1 else _compared_pair(i, part, values) for part in parts]
        for one, other in ((0, 1), (1, 0)):
            if values_of[one] == _NEUTRAL.get(combining, -1):
                return guard | {r.index for operand in parts[other] for r in registers_in(operand)}
    return every


def _compared_pair(i: Instruction, part: tuple[Operand, ...], values: Mapping[int, int]) -> int | None:
    return _compared(i, [_known(operand, values) for operand in part])
