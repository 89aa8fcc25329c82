"""Arithmetic of float32, and what integers share with it.

References
----------
PTX ISA, "Floating Point Instructions".
"""

from __future__ import annotations

from cutepy.sim.native.integer import write_integer
from cutepy.sim.native.lanes import Lanes
from cutepy.sim.native.table import need, of
from cutepy.sim.native.writer import Value
from cutepy.sim.ptx.model import Instruction
from cutepy.sim.translate.floating import rounding_of

_CANONICAL = 0x7FFFFFFF
_TINY = 0x00800000


def flushed(e: Lanes, x: Value) -> Value:
    """Replace subnormals by zeros of their sign."""
    w = e.w
    magnitude = w.binary("and", x, w.constant(32, 0x7FFFFFFF))
    sign = w.binary("and", x, w.constant(32, 0x80000000))
    return w.select(w.compare("ult", magnitude, w.constant(32, _TINY)), sign, x)


def canonical(e: Lanes, x: Value) -> Value:
    """Replace NaNs by the one that arithmetic returns."""
    return e.w.select(e.w.compare_floats("uno", x, x), e.w.constant(32, _CANONICAL), x)


def _saturated(e: Lanes, x: Value) -> Value:
    """Clamp to [0, 1]; a NaN becomes 0."""
    w = e.w
    zero, one = w.constant(32, 0), w.constant(32, 0x3F800000)
    capped = w.select(w.compare_floats("olt", x, one), x, one)
    return w.select(w.compare_floats("ogt", x, zero), capped, zero)


def _extreme(e: Lanes, operation: str, modifiers: set[str], a: Value, b: Value) -> Value:
    w = e.w
    need(not modifiers & {"NaN", "xorsign", "relu", "abs"})
    found = w.select(w.compare_floats("olt" if operation == "min" else "ogt", a, b), a, b)
    # Of equal numbers the bits are equal too, or they are zeros of two signs.
    both = w.binary("or" if operation == "min" else "and", a, b)
    found = w.select(w.compare_floats("oeq", a, b), both, found)
    found = w.select(w.compare_floats("uno", b, b), a, found)
    found = w.select(w.compare_floats("uno", a, a), b, found)
    return canonical(e, found)


_INFIX = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}


@of("add", "sub", "mul", "mad", "fma", "div", "min", "max", "neg", "abs")
def _arithmetic(e: Lanes, i: Instruction) -> None:
    if write_integer(e, i):
        return
    need(i.parts[-1] == "f32" and rounding_of(i) == "rn")
    operation, modifiers = i.parts[0], set(i.parts[1:-1])
    need(not modifiers & {"approx", "full", "relu"})
    values = [e.read(s, "f4") for s in i.operands[1:]]
    flush = "ftz" in modifiers
    # What is subnormal before it is rounded is flushed too: numpy sees to that.
    need(not (flush and operation in ("mul", "fma", "mad", "div")))
    if flush:
        values = [flushed(e, v) for v in values]
    w = e.w
    if operation in ("min", "max"):
        value = _extreme(e, operation, modifiers, *values)
    elif operation in ("fma", "mad"):
        value = w.floats("intr.fma", *values)
    elif operation in _INFIX:
        value = w.floats(_INFIX[operation], *values)
    elif operation == "neg":
        value = w.binary("xor", values[0], w.constant(32, 0x80000000))
    else:
        value = w.binary("and", values[0], w.constant(32, 0x7FFFFFFF))
    if "sat" in modifiers:
        value = _saturated(e, value)
    elif operation not in ("min", "max"):
        value = canonical(e, value)
    e.write(i.operands[0], flushed(e, value) if flush else value)


@of("sqrt", "rcp", "rsqrt")
def _root(e: Lanes, i: Instruction) -> None:
    need(i.parts[-1] == "f32" and rounding_of(i) == "rn")
    flush, w = "ftz" in i.parts, e.w
    value = e.read(i.operands[1], "f4")
    value = flushed(e, value) if flush else value
    if i.parts[0] == "sqrt":
        value = w.floats("intr.sqrt", value)
    else:
        wide = w.float_cast("fpext", value, 64)
        wide = w.floats("intr.sqrt", wide) if i.parts[0] == "rsqrt" else wide
        value = w.float_cast("fptrunc", w.floats("fdiv", w.constant(64, 0x3FF << 52), wide), 32)
    value = canonical(e, value)
    e.write(i.operands[0], flushed(e, value) if flush else value)
