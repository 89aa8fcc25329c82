"""Arithmetic of integers, and logic.

References
----------
PTX ISA, "Integer Arithmetic Instructions", "Logic and Shift Instructions".
"""

from __future__ import annotations

from cutepy.sim.native.lanes import Lanes, UnsupportedError
from cutepy.sim.native.table import need, of
from cutepy.sim.ptx.model import Immediate, Instruction
from cutepy.sim.translate.emitter import kind_of
from cutepy.sim.translate.integer import is_integer


def write_integer(e: Lanes, i: Instruction) -> bool:
    """Write an instruction that integers share with floats; tells whether it is one of integers."""
    parts = i.parts
    if not is_integer(parts[-1]):
        return False
    need(not {"sat", "relu", "cc"} & set(parts))
    kind = kind_of(parts[-1])
    signed = kind[0] == "i"
    d, *sources = i.operands
    operation, w = parts[0], e.w
    if operation in ("mul", "mad") and len(parts) > 2:
        half = parts[1]
        a, b = (e.read(s, kind) for s in sources[:2])
        if half != "lo":
            need(half in ("wide", "hi") and a.bits < 64)
            a, b = w.resized(a, 2 * a.bits, signed), w.resized(b, 2 * b.bits, signed)
        value = w.binary("mul", a, b)
        if half == "hi":
            value = w.resized(w.binary("lshr", value, w.constant(value.bits, value.bits // 2)), value.bits // 2)
        if operation == "mad":
            value = w.binary("add", value, e.read(sources[2], f"u{value.bits // 8}"))
        e.write(d, value, signed)
        return True
    a = e.read(sources[0], kind)
    if operation == "neg":
        e.write(d, w.binary("sub", w.constant(a.bits, 0), a), signed)
    elif operation == "abs":
        negative = w.compare("slt", a, w.constant(a.bits, 0))
        e.write(d, w.select(negative, w.binary("sub", w.constant(a.bits, 0), a), a), signed)
    elif operation in ("add", "sub", "mul"):
        e.write(d, w.binary(operation, a, e.read(sources[1], kind)))
    elif operation in ("min", "max"):
        b = e.read(sources[1], kind)
        relation = ("s" if signed else "u") + ("lt" if operation == "min" else "gt")
        e.write(d, w.select(w.compare(relation, a, b), a, b), signed)
    else:
        raise UnsupportedError
    return True


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
    # By the width or more leaves zeros, or the sign.
    large = w.compare("uge", by, w.constant(32, x.bits))
    most = w.constant(32, x.bits - 1)
    shifted = w.binary(operation, x, w.resized(w.select(large, most, by), x.bits))
    e.write(d, shifted if operation == "ashr" else w.select(large, w.constant(x.bits, 0), shifted), kind[0] == "i")


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
    d, *operands = i.operands
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
    e.write(d, value)


@of("prmt")
def _prmt(e: Lanes, i: Instruction) -> None:
    need(i.parts[-1] == "b32")
    w = e.w
    a, b, selector = (e.read(s, "u4") for s in i.operands[1:])
    need(selector.number is not None)
    pair = w.binary("or", w.binary("shl", w.resized(b, 64), w.constant(64, 32)), w.resized(a, 64))
    value = w.constant(32, 0)
    for n in range(4):
        nibble = (selector.number or 0) >> 4 * n & 15
        byte = w.resized(w.resized(w.binary("lshr", pair, w.constant(64, 8 * (nibble & 7))), 8), 32)
        if nibble & 8:
            byte = w.binary(
                "lshr",
                w.binary("ashr", w.binary("shl", byte, w.constant(32, 24)), w.constant(32, 31)),
                w.constant(32, 24),
            )
        value = w.binary("or", value, w.binary("shl", byte, w.constant(32, 8 * n)))
    e.write(i.operands[0], value)


@of("popc", "clz", "brev")
def _count(e: Lanes, i: Instruction) -> None:
    x = e.read(i.operands[1], kind_of(i.parts[-1]))
    if i.parts[0] == "brev":
        e.write(i.operands[0], e.w.intrinsic("bitreverse", x))
    elif i.parts[0] == "popc":
        e.write(i.operands[0], e.w.resized(e.w.intrinsic("ctpop", x), 32))
    else:
        e.write(i.operands[0], e.w.resized(e.w.intrinsic("ctlz", x, more="<{is_zero_poison = false}> "), 32))
