"""Comparison of floats, and selection by their sign.

References
----------
PTX ISA, "Comparison and Selection Instructions", "Half Precision Comparison Instructions".
"""

from __future__ import annotations

from cutepy.sim.ptx.model import Instruction, Operand
from cutepy.sim.semantics.comparison import COMPARISONS
from cutepy.sim.semantics.types import kind_of, split_pair
from cutepy.sim.translate.emitter import Emitter, instruction
from cutepy.sim.translate.floating import widen_halves, write_halves

_OPERATORS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_UNORDERED = {f"{operation}u": operation for operation in _OPERATORS}
_BOOLEANS = {"and": "&", "or": "|", "xor": "^"}


def compare(e: Emitter, operation: str, a: str, b: str) -> str:
    """Return the expression of a comparison: plain ones are false on a NaN, those ending in u true."""
    unordered = f"isnan({a}) | isnan({b})"
    if operation == "num":
        return f"~({unordered})"
    if operation == "nan":
        return unordered
    if operation in _UNORDERED:
        return f"({a} {_OPERATORS[_UNORDERED[operation]]} {b}) | {unordered}"
    if operation not in _OPERATORS:
        raise e.unknown(f"comparison {operation} of floats")
    # numpy's != is true on a NaN, which PTX calls neu.
    return f"({a} != {b}) & ~({unordered})" if operation == "ne" else f"{a} {_OPERATORS[operation]} {b}"


def _sides(e: Emitter, i: Instruction, a: Operand, b: Operand) -> list[tuple[str, str]]:
    """Return the values to compare: one pair of them, or two if they are packed."""
    kind, flush = i.parts[-1], "ftz" in i.parts
    if kind in ("f16", "bf16", "f16x2", "bf16x2"):
        return list(zip(widen_halves(e, a, kind, flush), widen_halves(e, b, kind, flush), strict=True))
    x, y = e.read(a, kind_of(kind)), e.read(b, kind_of(kind))
    return [(f"floats.flush({x})", f"floats.flush({y})")] if flush else [(x, y)]


def _comparisons(e: Emitter, i: Instruction) -> tuple[list[str], list[str]]:
    """Return what a comparison gives, and its negation, each combined with a further predicate if there is one."""
    _, a, b, *more = i.operands
    values = [f"({compare(e, i.parts[1], x, y)})" for x, y in _sides(e, i, a, b)]
    negations = [f"~{value}" for value in values]
    if more:
        combined = f" {_BOOLEANS[i.parts[2]]} {e.read(more[0], 'pred')}"
        return [v + combined for v in values], [v + combined for v in negations]
    return values, negations


@instruction("setp", accepts=f"{COMPARISONS} and or xor ftz")
def _setp(e: Emitter, i: Instruction) -> None:
    p, q = split_pair(i.operands[0])
    values, negations = _comparisons(e, i)
    e.write(p, values[0], "pred")
    if q is not None:
        # Packed comparisons have two results of their own.
        e.write(q, values[1] if len(values) == 2 else negations[0], "pred")


@instruction("set", accepts=f"{COMPARISONS} and or xor ftz")
def _set(e: Emitter, i: Instruction) -> None:
    values, _ = _comparisons(e, i)
    kind = i.parts[-2]
    d = i.operands[0]
    if kind in ("f16", "bf16", "f16x2", "bf16x2"):
        one = "0x3C00" if kind.startswith("f") else "0x3F80"
        write_halves(e, d, [f"({value}).astype(u2) * {one}" for value in values])
    elif len(values) == 2:
        write_halves(e, d, [f"({value}).astype(u2) * 0xFFFF" for value in values])
    elif kind == "f32":
        e.write(d, f"({values[0]}).astype(f4)", "f4")
    else:
        e.write(d, f"-(({values[0]}).astype(i{kind_of(kind)[1:]}))", f"i{kind_of(kind)[1:]}")


@instruction("slct", accepts="ftz")
def _slct(e: Emitter, i: Instruction) -> None:
    kind, sign = kind_of(i.parts[-2]), kind_of(i.parts[-1])
    d, a, b, c = i.operands
    condition = e.read(c, sign)
    if "ftz" in i.parts:
        condition = f"floats.flush({condition})"
    e.write(d, f"where({condition} >= 0, {e.read(a, kind)}, {e.read(b, kind)})", kind)
