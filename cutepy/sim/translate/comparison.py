"""Comparison and selection.

References
----------
PTX ISA, "Comparison and Selection Instructions", "Half Precision Comparison Instructions".
"""

from __future__ import annotations

from cutepy.sim.ptx.model import Instruction, Operand
from cutepy.sim.translate.emitter import Emitter, instruction, kind_of, split_pair
from cutepy.sim.translate.floating import widen_halves, write_halves

_OPERATORS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_UNORDERED = {f"{operation}u": operation for operation in _OPERATORS}
_ALLOWED = {
    "b": {"eq", "ne"},
    "s": {*_OPERATORS},
    "u": {*_OPERATORS, *_UNSIGNED},
    "f": {*_OPERATORS, *_UNORDERED, "num", "nan"},
}
"""What values may be asked, by the letter of their type."""

_BOOLEANS = {"and": "&", "or": "|", "xor": "^"}


def compare(e: Emitter, operation: str, a: str, b: str, kind: str) -> str:
    """Return the expression of a comparison; for floats, plain ones are false on a NaN, those ending in u true."""
    floating = "f" in kind
    if operation not in _ALLOWED["f" if floating else kind[0]]:
        raise e.unknown(f"comparison {operation} of {kind}")
    unordered = f"isnan({a}) | isnan({b})"
    if operation == "num":
        return f"~({unordered})"
    if operation == "nan":
        return unordered
    if operation == "ne" and floating:
        return f"({a} != {b}) & ~({unordered})"  # numpy's != is true on a NaN, which PTX calls neu
    if operation in _UNORDERED:
        return f"({a} {_OPERATORS[_UNORDERED[operation]]} {b}) | {unordered}"
    return f"{a} {_OPERATORS[_UNSIGNED.get(operation, operation)]} {b}"


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
    values = [f"({compare(e, i.parts[1], x, y, i.parts[-1])})" for x, y in _sides(e, i, a, b)]
    negations = [f"~{value}" for value in values]
    if more:
        combined = f" {_BOOLEANS[i.parts[2]]} {e.read(more[0], 'pred')}"
        return [v + combined for v in values], [v + combined for v in negations]
    return values, negations


_COMPARISONS = "eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan"


@instruction("setp", accepts=f"{_COMPARISONS} and or xor ftz")
def _setp(e: Emitter, i: Instruction) -> None:
    p, q = split_pair(i.operands[0])
    values, negations = _comparisons(e, i)
    e.write(p, values[0], "pred")
    if q is not None:
        # Packed comparisons have two results of their own.
        e.write(q, values[1] if len(values) == 2 else negations[0], "pred")


@instruction("set", accepts=f"{_COMPARISONS} and or xor ftz")
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


@instruction("selp")
def _selp(e: Emitter, i: Instruction) -> None:
    kind = kind_of(i.parts[-1])
    d, a, b, p = i.operands
    e.write(d, f"where({e.read(p, 'pred')}, {e.read(a, kind)}, {e.read(b, kind)})", kind)


@instruction("slct", accepts="ftz")
def _slct(e: Emitter, i: Instruction) -> None:
    kind, sign = kind_of(i.parts[-2]), kind_of(i.parts[-1])
    d, a, b, c = i.operands
    condition = e.read(c, sign)
    if "ftz" in i.parts:
        condition = f"floats.flush({condition})"
    e.write(d, f"where({condition} >= 0, {e.read(a, kind)}, {e.read(b, kind)})", kind)
