"""Logic, shifts, bit fields and permutations.

References
----------
PTX ISA, "Logic and Shift Instructions", "Integer Arithmetic Instructions", "Data Movement and Conversion Instructions:
prmt".
"""

from __future__ import annotations

from cutepy.sim.native.integer import extreme
from cutepy.sim.native.lanes import Lanes
from cutepy.sim.native.table import need, of
from cutepy.sim.native.writer import Value
from cutepy.sim.ptx.model import Immediate, Instruction
from cutepy.sim.translate.emitter import kind_of, split_pair


@of("and", "or", "xor")
def _logic(e: Lanes, i: Instruction) -> None:
    kind = kind_of(i.parts[-1])
    a, b = (e.read(s, kind) for s in i.operands[1:])
    e.write(i.operands[0], e.w.binary(i.parts[0], a, b))


@of("not")
def _not(e: Lanes, i: Instruction) -> None:
    e.write(i.operands[0], e.invert(e.read(i.operands[1], kind_of(i.parts[-1]))))


@of("shl", "shr")
def _shift(e: Lanes, i: Instruction) -> None:
    kind = kind_of(i.parts[-1])
    d, a, amount = i.operands
    w, x = e.w, e.read(a, kind)
    operation = "shl" if i.parts[0] == "shl" else "ashr" if kind[0] == "i" else "lshr"
    by = e.read_wide(amount, "u4")
    if by.number is not None and by.number < x.bits:
        e.write(d, w.binary(operation, x, w.constant(x.bits, by.number)), kind[0] == "i")
        return
    e.write(d, shifted(e, operation, x, by), kind[0] == "i")


@of("shf")
def _funnel(e: Lanes, i: Instruction) -> None:
    w = e.w
    low, high, amount = (e.read(s, "u4") for s in i.operands[1:])
    if "clamp" in i.parts:
        shift = w.select(w.compare("ult", amount, w.constant(32, 32)), amount, w.constant(32, 32))
    else:
        shift = w.binary("and", amount, w.constant(32, 31))
    pair = w.binary("or", w.binary("shl", w.resized(high, 64), w.constant(64, 32)), w.resized(low, 64))
    by = w.resized(shift, 64)
    if i.parts[1] == "l":
        pair = w.binary("lshr", w.binary("shl", pair, by), w.constant(64, 32))
    else:
        pair = w.binary("lshr", pair, by)
    e.write(i.operands[0], w.resized(pair, 32))


@of("lop3")
def _lop3(e: Lanes, i: Instruction) -> None:
    destination, *operands = i.operands
    d, p = split_pair(destination)
    assert isinstance(operands[3], Immediate)
    table = operands[3].value
    w = e.w
    inputs = [e.read(s, "u4") for s in operands[:3]]
    inverted = [e.invert(v) for v in inputs]
    value = w.constant(32, 0)
    for row in range(8):
        if table >> row & 1:
            a, b, c = (inputs[n] if row >> (2 - n) & 1 else inverted[n] for n in range(3))
            value = w.binary("or", value, w.binary("and", w.binary("and", a, b), c))
    if p is not None:
        need(i.parts[1] in ("and", "or"))
        # What is read may be what is written.
        holds = w.binary(i.parts[1], w.compare("ne", value, w.constant(32, 0)), e.read(operands[4], "pred"))
        e.write(p, holds)
    e.write(d, value)


@of("prmt")
def _prmt(e: Lanes, i: Instruction) -> None:
    need(i.parts[-1] == "b32")
    w = e.w
    a, b, selector = (e.read(s, "u4") for s in i.operands[1:])
    pair = w.binary("or", w.binary("shl", w.resized(b, 64), w.constant(64, 32)), w.resized(a, 64))
    value, seven, eight = w.constant(32, 0), w.constant(32, 7), w.constant(32, 8)
    for n in range(4):
        nibble = w.binary("lshr", selector, w.constant(32, 4 * n))
        shift = w.binary("shl", w.binary("and", nibble, seven), w.constant(32, 3))
        byte = w.resized(w.binary("lshr", pair, w.resized(shift, 64)), 8)
        sign = w.resized(w.binary("ashr", byte, w.constant(8, 7)), 32)
        byte = w.resized(byte, 32)
        signs = w.compare("ne", w.binary("and", nibble, eight), w.constant(32, 0))
        byte = w.select(signs, w.binary("and", sign, w.constant(32, 0xFF)), byte)
        value = w.binary("or", value, w.binary("shl", byte, w.constant(32, 8 * n)))
    e.write(i.operands[0], value)


def shifted(e: Lanes, operation: str, x: Value, by: Value) -> Value:
    """Shift by an amount of 32 bits; by the width or more leaves zeros, or the sign."""
    w = e.w
    large = w.compare("uge", by, w.constant(32, x.bits))
    amount = w.resized(w.select(large, w.constant(32, x.bits - 1), by), x.bits)
    found = w.binary(operation, x, amount)
    return found if operation == "ashr" else w.select(large, w.constant(x.bits, 0), found)


def _ones(e: Lanes, count: Value, bits: int) -> Value:
    """Return a number whose low bits, so many, are set: all for the width or more."""
    w = e.w
    return w.binary("sub", shifted(e, "shl", w.constant(bits, 1), count), w.constant(bits, 1))


def _field(e: Lanes, position: Value, length: Value, bits: int) -> tuple[Value, Value]:
    """Return where a bit field starts, and how many of its bits are within a register."""
    w = e.w
    p, n = (w.binary("and", x, w.constant(32, 0xFF)) for x in (position, length))
    left = extreme(e, "max", w.binary("sub", w.constant(32, bits), p), w.constant(32, 0), True)
    return p, extreme(e, "min", n, left, True)


@of("bfe")
def _bfe(e: Lanes, i: Instruction) -> None:
    kind, w = kind_of(i.parts[-1]), e.w
    a, position, length = e.read(i.operands[1], kind), e.read(i.operands[2], "u4"), e.read(i.operands[3], "u4")
    p, inside = _field(e, position, length, a.bits)
    mask = _ones(e, inside, a.bits)
    field = w.binary("and", shifted(e, "lshr", a, p), mask)
    if kind[0] == "i":
        n = w.binary("and", length, w.constant(32, 0xFF))
        end = extreme(e, "min", w.binary("add", p, n), w.constant(32, a.bits), False)
        top = extreme(e, "max", w.binary("sub", end, w.constant(32, 1)), w.constant(32, 0), True)
        bit = w.binary("and", w.binary("lshr", a, w.resized(top, a.bits)), w.constant(a.bits, 1))
        negative = w.binary("and", w.compare("ne", n, w.constant(32, 0)), w.compare("ne", bit, w.constant(a.bits, 0)))
        field = w.select(negative, w.binary("or", field, e.invert(mask)), field)
    e.write(i.operands[0], field)


@of("bfi")
def _bfi(e: Lanes, i: Instruction) -> None:
    kind, w = kind_of(i.parts[-1]), e.w
    a, b = e.read(i.operands[1], kind), e.read(i.operands[2], kind)
    p, inside = _field(e, e.read(i.operands[3], "u4"), e.read(i.operands[4], "u4"), a.bits)
    mask = shifted(e, "shl", _ones(e, inside, a.bits), p)
    kept = w.binary("and", b, e.invert(mask))
    e.write(i.operands[0], w.binary("or", kept, w.binary("and", shifted(e, "shl", a, p), mask)))


@of("bfind")
def _bfind(e: Lanes, i: Instruction) -> None:
    kind, w = kind_of(i.parts[-1]), e.w
    a = e.read(i.operands[1], kind)
    if kind[0] == "i":
        a = w.binary("xor", a, w.binary("ashr", a, w.constant(a.bits, a.bits - 1)))
    zeros = w.resized(w.intrinsic("ctlz", a, more="<{is_zero_poison = false}> "), 32)
    found = zeros if "shiftamt" in i.parts else w.binary("sub", w.constant(32, a.bits - 1), zeros)
    e.write(i.operands[0], w.select(w.compare("eq", a, w.constant(a.bits, 0)), w.constant(32, -1), found))


@of("bmsk")
def _bmsk(e: Lanes, i: Instruction) -> None:
    w = e.w
    position, count = (e.read(s, "u4") for s in i.operands[1:])
    if "wrap" in i.parts:
        position, count = (w.binary("and", x, w.constant(32, 31)) for x in (position, count))
    e.write(i.operands[0], shifted(e, "shl", _ones(e, count, 32), position))


@of("szext")
def _szext(e: Lanes, i: Instruction) -> None:
    w = e.w
    a, count = (e.read(s, "u4") for s in i.operands[1:])
    if "clamp" in i.parts:
        count = extreme(e, "min", count, w.constant(32, 32), False)
    else:
        count = w.binary("and", count, w.constant(32, 31))
    by = w.binary("sub", w.constant(32, 32), count)
    left = shifted(e, "shl", a, by)
    e.write(i.operands[0], shifted(e, "ashr" if i.parts[-1] == "s32" else "lshr", left, by))


@of("cnot")
def _cnot(e: Lanes, i: Instruction) -> None:
    a = e.read(i.operands[1], kind_of(i.parts[-1]))
    e.write(i.operands[0], e.w.resized(e.w.compare("eq", a, e.w.constant(a.bits, 0)), a.bits))


@of("popc", "clz", "brev")
def _count(e: Lanes, i: Instruction) -> None:
    x = e.read(i.operands[1], kind_of(i.parts[-1]))
    if i.parts[0] == "brev":
        e.write(i.operands[0], e.w.intrinsic("bitreverse", x))
    elif i.parts[0] == "popc":
        e.write(i.operands[0], e.w.resized(e.w.intrinsic("ctpop", x), 32))
    else:
        e.write(i.operands[0], e.w.resized(e.w.intrinsic("ctlz", x, more="<{is_zero_poison = false}> "), 32))
