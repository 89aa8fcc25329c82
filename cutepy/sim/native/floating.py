"""Arithmetic of floats.

References
----------
PTX ISA, "Floating Point Instructions", "Half Precision Floating Point Instructions".
"""

from __future__ import annotations

from cutepy.sim.native.lanes import Lanes, UnsupportedError
from cutepy.sim.native.odd import add_odd, to_f32_odd
from cutepy.sim.native.table import need, of
from cutepy.sim.native.values import (
    canonical,
    extreme_float,
    flushed,
    flushed_rounded,
    last_nan,
    magnitude_below,
    narrowed,
    saturated_float,
    widened,
)
from cutepy.sim.native.writer import Value
from cutepy.sim.ptx.model import Instruction, Operand

_INFIX = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
HALVES = ("f16", "bf16", "f16x2", "bf16x2")
_TINY = 2.0**-126


@of("add", "sub", "mul", "mad", "fma", "div", "min", "max", "neg", "abs")
def _arithmetic(e: Lanes, i: Instruction) -> None:
    kind = i.parts[-1]
    if kind in HALVES:
        _half(e, i, kind)
        return
    need(kind in ("f32", "f64"))
    values = [e.read(s, "f" + str(int(kind[1:]) // 8)) for s in i.operands[1:]]
    e.write(i.operands[0], _computed(e, i, values))


def _computed(e: Lanes, i: Instruction, values: list[Value]) -> Value:
    operation, modifiers, w = i.parts[0], set(i.parts[1:-1]), e.w
    need(modifiers <= {"rn", "ftz", "sat", "approx", "full"})
    bits = values[0].bits
    flush = "ftz" in modifiers and bits == 32
    if flush:
        values = [flushed(e, v) for v in values]
    if operation in ("min", "max"):
        need(len(values) == 2)
        value = extreme_float(e, operation, *values)
        return flushed(e, value) if flush else value
    if operation in ("fma", "mad"):
        value = w.floats("intr.fma", *values)
    elif modifiers & {"approx", "full"}:
        value = _approximate_quotient(e, values, "full" in modifiers, flush)
    elif operation in _INFIX:
        need(not (flush and operation == "div"))
        value = w.floats(_INFIX[operation], *values)
    elif operation == "neg":
        value = w.binary("xor", values[0], w.constant(bits, 1 << bits - 1))
    else:
        value = w.binary("and", values[0], w.constant(bits, (1 << bits - 1) - 1))
    if "sat" in modifiers:
        need(bits == 32)
        value = saturated_float(e, value)
    elif bits == 32:
        value = canonical(e, value)
    elif operation != "div":
        value = last_nan(e, value, *values)
    if flush and operation in ("mul", "fma", "mad"):
        return _flushed_product(e, value, values)
    return flushed(e, value) if flush else value


def _flushed_product(e: Lanes, value: Value, values: list[Value]) -> Value:
    """Flush a product, or a sum of one, of float32 operands; `value` may have been saturated."""
    wide = [e.w.float_cast("fpext", v, 64) for v in values]
    exact = e.w.floats("fmul", *wide[:2])
    return flushed_rounded(e, value, add_odd(e, exact, wide[2]) if len(values) == 3 else exact)


def _approximate_quotient(e: Lanes, values: list[Value], full: bool, flush: bool) -> Value:
    """Multiply by a reciprocal, scaled where it would be lost: see `floats.div_approx`."""
    w, (a, b) = e.w, values
    need(a.bits == 32)
    scale = w.constant(32, 0x3F800000)
    if full:
        large = w.compare_floats("ogt", w.binary("and", b, w.constant(32, 0x7FFFFFFF)), w.constant(32, 0x7E800000))
        scale = w.select(large, w.constant(32, 0x3E800000), scale)
    if not flush:
        scale = w.select(magnitude_below(e, b, _TINY), w.constant(32, 0x4B800000), scale)
    divisor = w.floats("fmul", b, scale)
    divisor = flushed(e, divisor) if flush else divisor
    inverse = w.floats("fdiv", w.constant(64, 0x3FF << 52), w.float_cast("fpext", divisor, 64))
    factors = [flushed(e, w.float_cast("fptrunc", inverse, 32)), w.floats("fmul", a, scale)]
    if not flush:
        return w.floats("fmul", *factors)
    factors[1] = flushed(e, factors[1])
    return _flushed_product(e, w.floats("fmul", *factors), factors)


def halves(e: Lanes, operand: Operand, kind: str) -> list[Value]:
    """Return the bits of an f16 or bf16 operand, or of both halves of a packed one."""
    need(not getattr(operand, "float_bits", 0))
    if not kind.endswith("x2"):
        return [e.read(operand, "u2")]
    w, whole = e.w, e.read(operand, "u4")
    return [w.resized(whole, 16), w.resized(w.binary("lshr", whole, w.constant(32, 16)), 16)]


def write_halves(e: Lanes, destination: Operand, results: list[Value]) -> None:
    """Write the bits of one value of 16 bits, or of two, packed."""
    if len(results) == 1:
        e.write(destination, results[0])
        return
    low, high = (e.w.resized(r, 32) for r in results)
    e.write(destination, e.w.binary("or", low, e.w.binary("shl", high, e.w.constant(32, 16))))


def _half(e: Lanes, i: Instruction, kind: str) -> None:
    name, modifiers, w = kind.removesuffix("x2"), set(i.parts[1:-1]), e.w
    need(modifiers <= {"rn", "sat"})
    operation = i.parts[0]
    bits = [halves(e, s, kind) for s in i.operands[1:]]
    results = []
    for part in range(len(bits[0])):
        given = [b[part] for b in bits]
        if operation in ("neg", "abs"):
            changed = (
                w.binary("xor", given[0], w.constant(16, 0x8000))
                if operation == "neg"
                else w.binary("and", given[0], w.constant(16, 0x7FFF))
            )
            infinity = w.constant(16, 0x7F80 if name == "bf16" else 0x7C00)
            nan = w.compare("ugt", w.binary("and", given[0], w.constant(16, 0x7FFF)), infinity)
            results.append(w.select(nan, w.constant(16, 0x7FFF), changed))
            continue
        values = [widened(e, v, name) for v in given]
        if operation in ("min", "max"):
            value = extreme_float(e, operation, *values)
        elif operation in ("add", "sub") or (operation == "mul" and name == "f16"):
            value = w.floats(_INFIX[operation], *values)
        elif operation in ("mul", "fma", "mad"):
            need(operation != "mad")
            wide = [w.float_cast("fpext", v, 64) for v in values]
            exact = w.floats("fmul", *wide[:2])
            value = to_f32_odd(e, add_odd(e, exact, wide[2]) if len(wide) == 3 else exact)
        else:
            raise UnsupportedError
        if "sat" in modifiers:
            value = saturated_float(e, value)
        results.append(narrowed(e, value, name))
    write_halves(e, i.operands[0], results)


@of("sqrt", "rcp", "rsqrt")
def _root(e: Lanes, i: Instruction) -> None:
    kind = i.parts[-1]
    need(kind in ("f32", "f64") and set(i.parts[1:-1]) <= {"rn", "ftz", "approx"})
    flush, w = "ftz" in i.parts, e.w
    need(not (flush and kind == "f64"))
    value = e.read(i.operands[1], "f4" if kind == "f32" else "f8")
    value = flushed(e, value) if flush else value
    if i.parts[0] == "sqrt":
        value = w.floats("intr.sqrt", value)
    else:
        wide = value if kind == "f64" else w.float_cast("fpext", value, 64)
        wide = w.floats("intr.sqrt", wide) if i.parts[0] == "rsqrt" else wide
        value = w.floats("fdiv", w.constant(64, 0x3FF << 52), wide)
        value = value if kind == "f64" else w.float_cast("fptrunc", value, 32)
    if kind == "f32":
        value = canonical(e, value)
    e.write(i.operands[0], flushed(e, value) if flush else value)


@of("copysign")
def _copysign(e: Lanes, i: Instruction) -> None:
    bits, w = int(i.parts[-1][1:]), e.w
    sign, size = (e.read(s, f"f{bits // 8}") for s in i.operands[1:])
    top = w.constant(bits, 1 << bits - 1)
    e.write(i.operands[0], w.binary("or", w.binary("and", sign, top), w.binary("and", size, e.invert(top))))


@of("testp")
def _testp(e: Lanes, i: Instruction) -> None:
    kind, w = i.parts[-1], e.w
    need(kind in ("f32", "f64"))
    bits = int(kind[1:])
    a = w.binary("and", e.read(i.operands[1], f"f{bits // 8}"), w.constant(bits, (1 << bits - 1) - 1))
    infinity = w.constant(bits, 0x7F800000 if bits == 32 else 0x7FF << 52)
    tiny = w.constant(bits, 0x00800000 if bits == 32 else 1 << 52)
    relation = {"finite": "ult", "infinite": "eq", "number": "ule", "notanumber": "ugt"}.get(i.parts[1])
    if relation is not None:
        e.write(i.operands[0], w.compare(relation, a, infinity))
        return
    is_zero = w.compare("eq", a, w.constant(bits, 0))
    if i.parts[1] == "subnormal":
        e.write(i.operands[0], w.binary("and", w.compare("ult", a, tiny), e.invert(is_zero)))
        return
    large = w.binary("and", w.compare("uge", a, tiny), w.compare("ult", a, infinity))
    e.write(i.operands[0], w.binary("or", large, is_zero))
