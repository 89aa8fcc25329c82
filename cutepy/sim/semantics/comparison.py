"""Comparison and selection.

References
----------
PTX ISA, "Comparison and Selection Instructions".
"""

from __future__ import annotations

from cutepy.sim.ptx.model import Instruction
from cutepy.sim.semantics.builder import Builder, V
from cutepy.sim.semantics.registry import meaning
from cutepy.sim.semantics.types import is_integer, kind_of, split_pair, width

_RELATIONS = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_ALLOWED = {"b": {"eq", "ne"}, "s": _RELATIONS, "u": {*_RELATIONS, *_UNSIGNED}}
"""Relations that there are, by the letter of a type."""
COMPARISONS = "eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan"


def _of_integers(parts: tuple[str, ...]) -> bool:
    return is_integer(parts[-1])


def _compared(b: Builder[V], i: Instruction) -> tuple[V, V]:
    """Return a comparison's result, and its negation, each combined with a further predicate if there is one."""
    _, first, second, *more = i.operands
    relation, kind = i.parts[1], kind_of(i.parts[-1])
    x, y = b.read(first, kind), b.read(second, kind)
    if relation not in _ALLOWED[i.parts[-1][0]] or "ftz" in i.parts:
        raise b.unknown(f"comparison {relation} of {i.parts[-1]}")
    relation = _UNSIGNED.get(relation, relation)
    letter = "" if relation in ("eq", "ne") else "s" if kind[0] == "i" else "u"
    value = b.compare(letter + relation, x, y)
    negation = b.invert(value)
    if more:
        third = b.read(more[0], "pred")
        value, negation = (b.logic(i.parts[2], v, third) for v in (value, negation))
    return value, negation


@meaning("setp", accepts=f"{COMPARISONS} and or xor ftz", applies=_of_integers)
def _setp(b: Builder[V], i: Instruction) -> None:
    p, q = split_pair(i.operands[0])
    value, negation = _compared(b, i)
    b.write(p, value)
    if q is not None:
        b.write(q, negation)


@meaning(
    "set",
    accepts=f"{COMPARISONS} and or xor ftz",
    applies=lambda p: is_integer(p[-1]) and (is_integer(p[-2]) or p[-2] == "f32"),
)
def _set(b: Builder[V], i: Instruction) -> None:
    value, _ = _compared(b, i)
    bits = width(kind_of(i.parts[-2]))
    yes = 0x3F800000 if i.parts[-2] == "f32" else -1
    b.write(i.operands[0], b.select(value, b.constant(bits, yes), b.constant(bits, 0)))


@meaning("selp")
def _selp(b: Builder[V], i: Instruction) -> None:
    kind = kind_of(i.parts[-1])
    d, first, second, p = i.operands
    condition = b.read(p, "pred")
    b.write(d, b.select(condition, b.read(first, kind), b.read(second, kind)))


@meaning("slct", accepts="ftz", applies=_of_integers)
def _slct(b: Builder[V], i: Instruction) -> None:
    kind = kind_of(i.parts[-2])
    d, first, second, c = i.operands
    sign = b.read(c, kind_of(i.parts[-1]))
    holds = b.compare("sge", sign, b.constant(sign.bits, 0))
    b.write(d, b.select(holds, b.read(first, kind), b.read(second, kind)))
