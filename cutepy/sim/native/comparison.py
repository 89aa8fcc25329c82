"""Comparison of floats, and selection by their sign.

References
----------
PTX ISA, "Comparison and Selection Instructions".
"""

from __future__ import annotations

from cutepy.sim.native.floating import HALVES, halves
from cutepy.sim.native.lanes import Lanes
from cutepy.sim.native.table import need, of
from cutepy.sim.native.values import flushed, widened
from cutepy.sim.native.writer import Value
from cutepy.sim.ptx.model import Instruction
from cutepy.sim.semantics.types import kind_of, split_pair, width
from cutepy.sim.translate.comparison import _BOOLEANS, _OPERATORS


def _float_sides(e: Lanes, i: Instruction, kind: str) -> list[tuple[Value, Value]]:
    """Return the floats to compare: one pair of them, or two if they are packed."""
    a, b = i.operands[1:3]
    if kind in HALVES:
        need("ftz" not in i.parts)
        name = kind.removesuffix("x2")
        sides = zip(halves(e, a, kind), halves(e, b, kind), strict=True)
        return [(widened(e, x, name), widened(e, y, name)) for x, y in sides]
    need(kind in ("f32", "f64"))
    x, y = e.read(a, kind_of(kind)), e.read(b, kind_of(kind))
    return [(flushed(e, x), flushed(e, y))] if "ftz" in i.parts and kind == "f32" else [(x, y)]


def _compared(e: Lanes, operation: str, x: Value, y: Value) -> Value:
    w = e.w
    if operation in ("num", "nan"):
        return w.compare_floats("ord" if operation == "num" else "uno", x, y)
    if operation in _OPERATORS:
        return w.compare_floats("o" + operation, x, y)
    need(operation.endswith("u") and operation[:-1] in _OPERATORS)
    return w.compare_floats("u" + operation[:-1], x, y)


def _comparisons(e: Lanes, i: Instruction) -> tuple[list[Value], list[Value]]:
    """Return what a comparison gives, and its negation, each combined with a further predicate if there is one."""
    more, kind, w = i.operands[3:], i.parts[-1], e.w
    values = [_compared(e, i.parts[1], x, y) for x, y in _float_sides(e, i, kind)]
    negations = [e.invert(v) for v in values]
    if more:
        need(i.parts[2] in _BOOLEANS)
        third = e.read(more[0], "pred")
        values, negations = ([w.binary(i.parts[2], v, third) for v in each] for each in (values, negations))
    return values, negations


@of("setp")
def _setp(e: Lanes, i: Instruction) -> None:
    p, q = split_pair(i.operands[0])
    values, negations = _comparisons(e, i)
    e.write(p, values[0])
    if q is not None:
        e.write(q, values[1] if len(values) == 2 else negations[0])


@of("set")
def _set(e: Lanes, i: Instruction) -> None:
    values, _ = _comparisons(e, i)
    kind, w = i.parts[-2], e.w
    need(len(values) == 1 and kind not in HALVES)
    bits = width(kind_of(kind))
    yes = 0x3F800000 if kind == "f32" else -1
    e.write(i.operands[0], w.select(values[0], w.constant(bits, yes), w.constant(bits, 0)))


@of("slct")
def _slct(e: Lanes, i: Instruction) -> None:
    kind, sign, w = kind_of(i.parts[-2]), i.parts[-1], e.w
    d, a, b, c = i.operands
    condition = e.read(c, kind_of(sign))
    zero = w.constant(condition.bits, 0)
    need(sign == "f32")
    holds = w.compare_floats("oge", flushed(e, condition) if "ftz" in i.parts else condition, zero)
    e.write(d, w.select(holds, e.read(a, kind), e.read(b, kind)))
