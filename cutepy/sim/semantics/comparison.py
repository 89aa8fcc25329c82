"""Comparison and selection.

References
----------
PTX ISA, "Comparison and Selection Instructions", "Half Precision Comparison Instructions".
"""

from __future__ import annotations

from cutepy.sim.ptx.model import Instruction
from cutepy.sim.semantics.builder import Builder, V, meaning
from cutepy.sim.semantics.floating import HALVES, widen_halves, write_halves
from cutepy.sim.semantics.types import is_integer, kind_of, split_pair, width

_RELATIONS = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_OF_FLOATS = {
    **{name: f"o{name}" for name in _RELATIONS},
    **{f"{name}u": f"u{name}" for name in _RELATIONS},
    "num": "ord",
    "nan": "uno",
}
"""Relation of floats -> LLVM's name of it: plain ones are false on a NaN, those ending in u true."""


def _of_integers(b: Builder[V], i: Instruction) -> V:
    relation, kind = i.parts[1], kind_of(i.parts[-1])
    x, y = (b.read(s, kind) for s in i.operands[1:3])
    relation = _UNSIGNED.get(relation, relation)
    letter = "" if relation in ("eq", "ne") else "s" if kind[0] == "i" else "u"
    return b.compare(letter + relation, x, y)


def _of_floats(b: Builder[V], i: Instruction) -> list[V]:
    """Return one result, or two of packed floats."""
    relation, kind, flush = i.parts[1], i.parts[-1], "ftz" in i.parts
    first, second = i.operands[1:3]
    if kind in HALVES:
        sides = [*zip(widen_halves(b, first, kind, flush), widen_halves(b, second, kind, flush), strict=True)]
    else:
        x, y = b.read(first, kind_of(kind)), b.read(second, kind_of(kind))
        sides = [(b.floats("flush", x.bits, x), b.floats("flush", y.bits, y))] if flush else [(x, y)]
    return [b.floats("compare", 1, x, y, given=(_OF_FLOATS[relation],)) for x, y in sides]


def _compared(b: Builder[V], i: Instruction) -> tuple[list[V], list[V]]:
    """Return a comparison's results, and their negations, each combined with a further predicate if there is one."""
    values = [_of_integers(b, i)] if is_integer(i.parts[-1]) else _of_floats(b, i)
    negations = [b.invert(v) for v in values]
    if len(i.operands) > 3:
        third = b.read(i.operands[3], "pred")
        values, negations = ([b.logic(i.parts[2], v, third) for v in each] for each in (values, negations))
    return values, negations


@meaning("setp")
def _setp(b: Builder[V], i: Instruction) -> None:
    p, q = split_pair(i.operands[0])
    values, negations = _compared(b, i)
    b.write(p, values[0])
    if q is not None:  # packed comparisons have two results of their own
        b.write(q, values[1] if len(values) == 2 else negations[0])


@meaning("set")
def _set(b: Builder[V], i: Instruction) -> None:
    values, _ = _compared(b, i)
    kind = i.parts[-2]
    bits = 16 if len(values) == 2 or kind in HALVES else width(kind_of(kind))
    yes = b.constant(bits, {"f16": 0x3C00, "bf16": 0x3F80, "f32": 0x3F800000}.get(kind.removesuffix("x2"), -1))
    write_halves(b, i.operands[0], [b.select(v, yes, b.constant(bits, 0)) for v in values])


@meaning("selp")
def _selp(b: Builder[V], i: Instruction) -> None:
    kind = kind_of(i.parts[-1])
    d, first, second, p = i.operands
    condition = b.read(p, "pred")
    b.write(d, b.select(condition, b.read(first, kind), b.read(second, kind)))


@meaning("slct")
def _slct(b: Builder[V], i: Instruction) -> None:
    kind, of = kind_of(i.parts[-2]), i.parts[-1]
    d, first, second, c = i.operands
    sign = b.read(c, kind_of(of))
    zero = b.constant(sign.bits, 0)
    if of == "f32":
        sign = b.floats("flush", 32, sign) if "ftz" in i.parts else sign
        holds = b.floats("compare", 1, sign, zero, given=("oge",))
    else:
        holds = b.compare("sge", sign, zero)
    b.write(d, b.select(holds, b.read(first, kind), b.read(second, kind)))
