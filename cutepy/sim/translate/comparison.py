"""Comparison and selection.

References
----------
PTX ISA, "Comparison and Selection Instructions", "Half Precision Comparison Instructions".
"""

from __future__ import annotations

from cutepy.sim.ptx.model import Instruction, Operand
from cutepy.sim.translate.emitter import Emitter, instruction, kind_of, split_pair
from cutepy.sim.translate.floating import widen_halves

_OPERATORS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_BOOLEANS = {"and": "&", "or": "|", "xor": "^"}


def compare(e: Emitter, operation: str, a: str, b: str, floating: bool) -> str:
    """Return the expression of a comparison; for floats, plain ones are false on a NaN, those ending in u true."""
    if operation == "num":
        return f"~(isnan({a}) | isnan({b}))"
    if operation == "nan":
        return f"isnan({a}) | isnan({b})"
    operation = _UNSIGNED.get(operation, operation)
    if operation in _OPERATORS:
        # numpy's != is true on a NaN, which PTX calls neu.
        if operation == "ne" and floating:
            return f"({a} != {b}) & ~(isnan({a}) | isnan({b}))"
        return f"{a} {_OPERATORS[operation]} {b}"
    plain = operation.removesuffix("u")
    if plain in _OPERATORS and floating:
        return f"({a} {_OPERATORS[plain]} {b}) | isnan({a}) | isnan({b})"
    raise e.unknown(f"comparison {operation}")


def _sides(e: Emitter, i: Instruction, a: Operand, b: Operand) -> tuple[str, str, bool]:
    kind = i.parts[-1]
    if kind in ("f16", "bf16"):
        return widen_halves(e, a, kind)[0], widen_halves(e, b, kind)[0], True
    if "ftz" in i.parts:
        return f"alu.flush({e.read(a, 'f4')})", f"alu.flush({e.read(b, 'f4')})", True
    return e.read(a, kind_of(kind)), e.read(b, kind_of(kind)), kind[0] == "f"


@instruction("setp")
def _setp(e: Emitter, i: Instruction) -> None:
    if i.parts[-1].endswith("x2"):
        raise e.unknown("packed comparison")
    destination, a, b, *more = i.operands
    x, y, floating = _sides(e, i, a, b)
    value = compare(e, i.parts[1], x, y, floating)
    p, q = split_pair(destination)
    negative = f"~({value})"
    if more:
        boolean, c = _BOOLEANS[i.parts[2]], e.read(more[0], "pred")
        value, negative = f"({value}) {boolean} {c}", f"({negative}) {boolean} {c}"
    if q is not None:
        kept = e.temporary(negative)
        e.write(p, value, "pred")
        e.write(q, kept, "pred")
    else:
        e.write(p, value, "pred")


@instruction("set")
def _set(e: Emitter, i: Instruction) -> None:
    destination, a, b, *more = i.operands
    if more:
        raise e.unknown("set with a boolean operator")
    x, y, floating = _sides(e, i, a, b)
    value = compare(e, i.parts[1], x, y, floating)
    kind = next(p for p in i.parts[2:] if p not in ("ftz",))
    if kind == "f32":
        e.write(destination, f"({value}).astype(f4)", "f4")
    else:
        e.write(destination, f"-(({value}).astype(i4))", "i4")


@instruction("selp")
def _selp(e: Emitter, i: Instruction) -> None:
    kind = kind_of(i.parts[-1])
    d, a, b, p = i.operands
    e.write(d, f"where({e.read(p, 'pred')}, {e.read(a, kind)}, {e.read(b, kind)})", kind)


@instruction("slct")
def _slct(e: Emitter, i: Instruction) -> None:
    kind, sign = kind_of(i.parts[-2]), kind_of(i.parts[-1])
    d, a, b, c = i.operands
    e.write(d, f"where({e.read(c, sign)} >= 0, {e.read(a, kind)}, {e.read(b, kind)})", kind)
