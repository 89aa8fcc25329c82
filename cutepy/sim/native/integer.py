"""Arithmetic of integers, and logic.

References
----------
PTX ISA, "Integer Arithmetic Instructions", "Logic and Shift Instructions".
"""

from __future__ import annotations

from cutepy.sim.native.lanes import Lanes, UnsupportedError
from cutepy.sim.native.table import need, of
from cutepy.sim.native.writer import Value
from cutepy.sim.ptx.model import Instruction
from cutepy.sim.translate.emitter import kind_of, split_pair
from cutepy.sim.translate.integer import is_integer


def write_integer(e: Lanes, i: Instruction) -> bool:
    """Write an instruction that integers share with floats; tells whether it is one of integers."""
    parts = i.parts
    if parts[-1] in ("u16x2", "s16x2"):
        _packed(e, i)
        return True
    if not is_integer(parts[-1]):
        return False
    kind = kind_of(parts[-1])
    if "cc" in parts:
        _with_carry(e, i)
        return True
    signed = kind[0] == "i"
    d, *sources = i.operands
    operation, w = parts[0], e.w
    if operation in ("mul", "mad") and len(parts) > 2:
        _multiply(e, i, kind)
        return True
    need("sat" not in parts or (kind == "i4" and operation in ("add", "sub")))
    a = e.read(sources[0], kind)
    zero = w.constant(a.bits, 0)
    if operation == "neg":
        e.write(d, w.binary("sub", zero, a), signed)
    elif operation == "abs":
        e.write(d, magnitude(e, a), signed)
    elif operation in ("add", "sub", "mul"):
        b = e.read(sources[1], kind)
        e.write(d, saturated(e, operation, a, b) if "sat" in parts else w.binary(operation, a, b))
    elif operation in ("min", "max"):
        value = extreme(e, operation, a, e.read(sources[1], kind), signed)
        e.write(d, extreme(e, "max", value, zero, signed) if "relu" in parts else value, signed)
    elif operation in ("div", "rem"):
        e.write(d, _divided(e, operation, a, e.read(sources[1], kind), signed), signed)
    else:
        raise UnsupportedError
    return True


def magnitude(e: Lanes, a: Value) -> Value:
    """Return the absolute value of an integer."""
    zero = e.w.constant(a.bits, 0)
    return e.w.select(e.w.compare("slt", a, zero), e.w.binary("sub", zero, a), a)


def extreme(e: Lanes, operation: str, a: Value, b: Value, signed: bool) -> Value:
    """Return the smaller or the larger of two integers."""
    relation = ("s" if signed else "u") + ("lt" if operation == "min" else "gt")
    return e.w.select(e.w.compare(relation, a, b), a, b)


def saturated(e: Lanes, operation: str, a: Value, b: Value) -> Value:
    """Add or subtract s32, clamped."""
    w = e.w
    exact = w.binary(operation, w.resized(a, 64, True), w.resized(b, 64, True))
    low, high = w.constant(64, -(1 << 31)), w.constant(64, (1 << 31) - 1)
    return w.resized(extreme(e, "max", extreme(e, "min", exact, high, True), low, True), 32)


def _multiply(e: Lanes, i: Instruction, kind: str) -> None:
    parts, w = i.parts, e.w
    half, signed = parts[1], kind[0] == "i"
    d, *sources = i.operands
    a, b = (e.read(s, kind) for s in sources[:2])
    if half == "hi" and a.bits == 64:
        value = _high_product(e, a, b, signed)
    elif half == "lo":
        value = w.binary("mul", a, b)
    else:
        need(half in ("wide", "hi") and a.bits < 64)
        value = w.binary("mul", w.resized(a, 2 * a.bits, signed), w.resized(b, 2 * b.bits, signed))
        if half == "hi":
            value = w.resized(w.binary("lshr", value, w.constant(value.bits, value.bits // 2)), value.bits // 2)
    if parts[0] == "mad":
        c = e.read(sources[2], f"u{value.bits // 8}")
        need("sat" not in parts or (half == "hi" and kind == "i4"))
        value = saturated(e, "add", value, c) if "sat" in parts else w.binary("add", value, c)
    e.write(d, value, signed)


def _high_product(e: Lanes, a: Value, b: Value, signed: bool) -> Value:
    """Return the upper half of a product of 64 bits by 64, of products of 32 by 32."""
    w = e.w
    low, half = w.constant(64, 0xFFFFFFFF), w.constant(64, 32)
    a0, a1, b0, b1 = (
        w.binary("and", a, low),
        w.binary("lshr", a, half),
        w.binary("and", b, low),
        w.binary("lshr", b, half),
    )
    middle = w.binary("add", w.binary("mul", a1, b0), w.binary("lshr", w.binary("mul", a0, b0), half))
    carry = w.binary("add", w.binary("mul", a0, b1), w.binary("and", middle, low))
    high = w.binary("add", w.binary("mul", a1, b1), w.binary("lshr", middle, half))
    high = w.binary("add", high, w.binary("lshr", carry, half))
    if signed:
        zero = w.constant(64, 0)
        for x, y in ((a, b), (b, a)):
            high = w.binary("sub", high, w.select(w.compare("slt", x, zero), y, zero))
    return high


def _divided(e: Lanes, operation: str, a: Value, b: Value, signed: bool) -> Value:
    """Divide, towards zero; by zero gives all ones."""
    w = e.w
    zero, one, ones = (w.constant(a.bits, n) for n in (0, 1, -1))
    by_zero = w.compare("eq", b, zero)
    divisor = w.select(by_zero, one, b)
    if signed:
        quotient = w.binary("udiv", magnitude(e, a), magnitude(e, divisor))
        differ = w.compare("slt", w.binary("xor", a, divisor), zero)
        quotient = w.select(differ, w.binary("sub", zero, quotient), quotient)
    else:
        quotient = w.binary("udiv", a, divisor)
    found = quotient if operation == "div" else w.binary("sub", a, w.binary("mul", quotient, divisor))
    return w.select(by_zero, ones, found)


@of("addc", "subc", "madc")
def _with_carry(e: Lanes, i: Instruction) -> None:
    """Add or subtract, with what was carried, and what is."""
    kind, operation, w = kind_of(i.parts[-1]), i.parts[0], e.w
    if operation in ("mad", "madc"):
        a, b = (e.read(s, kind) for s in i.operands[1:3])
        if "hi" in i.parts and a.bits == 64:
            a = _high_product(e, a, b, kind[0] == "i")
        elif "hi" in i.parts:
            wide = w.binary("mul", *(w.resized(x, 64, kind[0] == "i") for x in (a, b)))
            a = w.resized(w.binary("lshr", wide, w.constant(64, 32)), 32)
        else:
            a = w.binary("mul", a, b)
        b = e.read(i.operands[3], kind)
    else:
        a, b = (e.read(s, kind) for s in i.operands[1:3])
    # A difference is the sum with the complement and one: its carry says that nothing was borrowed.
    b = e.invert(b) if operation.startswith("sub") else b
    more = w.constant(a.bits, operation == "sub")
    if operation in ("addc", "subc", "madc"):
        more = w.resized(e.read(i.operands[-1], "pred"), a.bits)
    first = w.binary("add", a, b)
    result = w.binary("add", first, more)
    carried = w.binary("or", w.compare("ult", first, a), w.compare("ult", result, first))
    d, carry = split_pair(i.operands[0])
    e.write(d, result)
    if carry is not None:
        e.write(carry, carried)


def _packed(e: Lanes, i: Instruction) -> None:
    """Write add, min or max of two 16-bit integers in a register."""
    need(i.parts[0] in ("add", "min", "max"))
    w, signed = e.w, i.parts[-1][0] == "s"
    operands = [e.read(s, "u4") for s in i.operands[1:]]
    value = w.constant(32, 0)
    for shift in (0, 16):
        a, b = (w.resized(w.binary("lshr", x, w.constant(32, shift)), 16) for x in operands)
        part = w.binary("add", a, b) if i.parts[0] == "add" else extreme(e, i.parts[0], a, b, signed)
        if "relu" in i.parts:
            part = extreme(e, "max", part, w.constant(16, 0), signed)
        value = w.binary("or", value, w.binary("shl", w.resized(part, 32), w.constant(32, shift)))
    e.write(i.operands[0], value)


@of("sad")
def _sad(e: Lanes, i: Instruction) -> None:
    kind, w = kind_of(i.parts[-1]), e.w
    a, b, c = (e.read(s, kind) for s in i.operands[1:])
    less = w.compare("slt" if kind[0] == "i" else "ult", a, b)
    e.write(i.operands[0], w.binary("add", c, w.select(less, w.binary("sub", b, a), w.binary("sub", a, b))))


@of("mul24", "mad24")
def _mul24(e: Lanes, i: Instruction) -> None:
    need("sat" not in i.parts)
    kind, w = kind_of(i.parts[-1]), e.w
    signed, eight = kind[0] == "i", w.constant(32, 8)
    down = "ashr" if signed else "lshr"
    d, a, b, *c = i.operands
    x, y = (w.resized(w.binary(down, w.binary("shl", e.read(s, kind), eight), eight), 64, signed) for s in (a, b))
    product = w.binary("mul", x, y)
    if i.parts[1] == "hi":
        product = w.binary("lshr", product, w.constant(64, 16))
    value = w.resized(product, 32)
    e.write(d, w.binary("add", value, e.read(c[0], kind)) if c else value)


@of("dp4a", "dp2a")
def _dot(e: Lanes, i: Instruction) -> None:
    """Add the products of four bytes and four, or of two halves and two bytes."""
    w = e.w
    a, b, total = (e.read(s, "u4") for s in i.operands[1:])
    signs = [p == "s32" for p in i.parts[-2:]]
    count = 4 if i.parts[0] == "dp4a" else 2
    start = 16 if "hi" in i.parts else 0
    for n in range(count):
        x = w.resized(w.binary("lshr", a, w.constant(32, 32 // count * n)), 32 // count)
        y = w.resized(w.binary("lshr", b, w.constant(32, 8 * n + start)), 8)
        total = w.binary("add", total, w.binary("mul", w.resized(x, 32, signs[0]), w.resized(y, 32, signs[1])))
    e.write(i.operands[0], total)
