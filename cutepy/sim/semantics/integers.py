"""Arithmetic of integers, logic, shifts, bit fields and permutations.

References
----------
PTX ISA, "Integer Arithmetic Instructions", "Extended-Precision Integer Arithmetic Instructions", "Logic and Shift
Instructions", "Data Movement and Conversion Instructions: prmt".
"""

from __future__ import annotations

from cutepy.sim.ptx.model import Immediate, Instruction
from cutepy.sim.semantics.builder import Builder, V
from cutepy.sim.semantics.floating import arithmetic
from cutepy.sim.semantics.registry import meaning
from cutepy.sim.semantics.types import is_integer, kind_of, split_pair, width

_PACKED = ("u16x2", "s16x2")


def _is_signed(i: Instruction) -> bool:
    return i.parts[-1][0] == "s"


def _sources(b: Builder[V], i: Instruction) -> list[V]:
    kind = kind_of(i.parts[-1])
    return [b.read(s, kind) for s in i.operands[1:]]


def _words(b: Builder[V], i: Instruction) -> list[V]:
    return [b.read(s, "u4") for s in i.operands[1:]]


@meaning("add", "sub", "mul", "mad", "div", "rem", "min", "max", "neg", "abs")
def _arithmetic(b: Builder[V], i: Instruction) -> None:
    if i.parts[-1] not in _PACKED and not is_integer(i.parts[-1]):
        arithmetic(b, i)
        return
    operation, modifiers, signed = i.parts[0], i.parts[1:-1], _is_signed(i)
    if i.parts[-1] in _PACKED:
        _packed(b, i)
    elif "cc" in modifiers:
        _with_carry(b, i)
    elif operation in ("mul", "mad") and modifiers:
        _multiply(b, i)
    elif operation in ("neg", "abs"):
        (a,) = _sources(b, i)
        b.write(i.operands[0], b.negate(a) if operation == "neg" else b.magnitude(a), signed)
    else:
        x, y = _sources(b, i)
        b.write(i.operands[0], _of_two(b, i, x, y), signed)


def _of_two(b: Builder[V], i: Instruction, x: V, y: V) -> V:
    operation, signed = i.parts[0], _is_signed(i)
    if operation in ("add", "sub"):
        if "sat" in i.parts:
            return b.add_saturated(x, y, operation == "sub")
        return b.add(x, y) if operation == "add" else b.sub(x, y)
    if operation == "mul":
        return b.mul(x, y)
    if operation in ("min", "max"):
        value = b.extreme(operation, x, y, signed)
        return b.extreme("max", value, b.constant(value.bits, 0), signed) if "relu" in i.parts else value
    return _divided(b, operation, x, y, signed)


def _divided(b: Builder[V], operation: str, x: V, y: V, signed: bool) -> V:
    """Divide, towards zero; by zero gives all ones, as the hardware does."""
    zero = b.constant(x.bits, 0)
    by_zero = b.compare("eq", y, zero)
    divisor = b.select(by_zero, b.constant(x.bits, 1), y)
    if signed:
        quotient = b.udiv(b.magnitude(x), b.magnitude(divisor))
        differ = b.compare("slt", b.xor(x, divisor), zero)
        quotient = b.select(differ, b.negate(quotient), quotient)
    else:
        quotient = b.udiv(x, divisor)
    found = quotient if operation == "div" else b.sub(x, b.mul(quotient, divisor))
    return b.select(by_zero, b.constant(x.bits, -1), found)


def _product(b: Builder[V], i: Instruction, x: V, y: V) -> V:
    """Return the low half, the high half or the whole of a product, by `.lo`, `.hi` or `.wide` of an instruction."""
    signed, half = _is_signed(i), i.parts[1]
    if half == "wide":
        return b.mul(b.resized(x, 2 * x.bits, signed), b.resized(y, 2 * x.bits, signed))
    return b.mul(x, y) if half == "lo" else b.mul_high(x, y, signed)


def _multiply(b: Builder[V], i: Instruction) -> None:
    kind = kind_of(i.parts[-1])
    d, first, second, *third = i.operands
    value = _product(b, i, b.read(first, kind), b.read(second, kind))
    if i.parts[0] == "mad":
        c = b.read(third[0], f"{kind[0]}{value.bits // 8}")
        value = b.add_saturated(value, c) if "sat" in i.parts else b.add(value, c)
    b.write(d, value, _is_signed(i))


def _packed(b: Builder[V], i: Instruction) -> None:
    """Compute add, min or max of two 16-bit integers in a register."""
    x, y = _words(b, i)
    signed, results = _is_signed(i), []
    for position in (0, 16):
        one, other = b.part(x, position, 16), b.part(y, position, 16)
        value = b.add(one, other) if i.parts[0] == "add" else b.extreme(i.parts[0], one, other, signed)
        results.append(b.extreme("max", value, b.constant(16, 0), signed) if "relu" in i.parts else value)
    b.write(i.operands[0], b.joined(*results))


@meaning("addc", "subc", "madc")
def _with_carry(b: Builder[V], i: Instruction) -> None:
    """Add or subtract; the carry is an operand of addc, subc and madc, and a result of those with .cc.

    The hardware subtracts by adding the complement and one, so that the carry of a difference says that nothing was
    borrowed. nvcc's division of 128-bit numbers counts on it: it adds the carry of a subtraction.
    """
    operation, kind = i.parts[0], kind_of(i.parts[-1])
    if operation == "madc" and "hi" in i.parts and width(kind) == 16:
        raise b.unknown("ptxas takes it, and adds bits 32 and up of the product; write mul.hi and addc")
    d, *sources = i.operands
    taken = sources.pop() if operation in ("addc", "subc", "madc") else None
    x, y, *third = (b.read(s, kind) for s in sources)
    if operation in ("mad", "madc"):
        x, y = _product(b, i, x, y), third[0]
    if operation.startswith("sub"):
        y = b.invert(y)
    more = b.constant(x.bits, operation == "sub") if taken is None else b.resized(b.read(taken, "pred"), x.bits)
    first = b.add(x, y)
    result = b.add(first, more)
    to, carry = split_pair(d)
    b.write(to, result)
    if carry is not None:
        b.write(carry, b.or_(b.compare("ult", first, x), b.compare("ult", result, first)))


@meaning("mul24", "mad24")
def _mul24(b: Builder[V], i: Instruction) -> None:
    """Multiply 24 bits by 24 bits, and take the lower or upper 32 of the 48 bits."""
    signed, eight = _is_signed(i), b.constant(32, 8)
    first, second, *third = _sources(b, i)
    x, y = (b.shr(b.shl(s, eight), eight, signed) for s in (first, second))
    if i.parts[1] == "lo":
        value = b.mul(x, y)
    else:
        wide = b.mul(b.resized(x, 64, signed), b.resized(y, 64, signed))
        value = b.part(wide, 16, 32)
    if "sat" in i.parts:
        value = b.add_saturated(value, third[0])
    elif third:
        value = b.add(value, third[0])
    b.write(i.operands[0], value)


@meaning("sad")
def _sad(b: Builder[V], i: Instruction) -> None:
    x, y, c = _sources(b, i)
    larger, smaller = (b.extreme(operation, x, y, _is_signed(i)) for operation in ("max", "min"))
    b.write(i.operands[0], b.add(c, b.sub(larger, smaller)))


@meaning("dp4a", "dp2a")
def _dot(b: Builder[V], i: Instruction) -> None:
    """Add the products of four pairs of bytes, or of two pairs of a 16-bit half and a byte."""
    x, y, total = _words(b, i)
    x_signed, y_signed = (part == "s32" for part in i.parts[-2:])
    count, start = 4 if i.parts[0] == "dp4a" else 2, 16 if "hi" in i.parts else 0
    for n in range(count):
        one = b.resized(b.part(x, 32 // count * n, 32 // count), 32, x_signed)
        other = b.resized(b.part(y, 8 * n + start, 8), 32, y_signed)
        total = b.add(total, b.mul(one, other))
    b.write(i.operands[0], total)


@meaning("and", "or", "xor")
def _logic(b: Builder[V], i: Instruction) -> None:
    x, y = _sources(b, i)
    b.write(i.operands[0], b.logic(i.parts[0], x, y))


@meaning("not")
def _not(b: Builder[V], i: Instruction) -> None:
    (a,) = _sources(b, i)
    b.write(i.operands[0], b.invert(a))


@meaning("cnot")
def _cnot(b: Builder[V], i: Instruction) -> None:
    (a,) = _sources(b, i)
    b.write(i.operands[0], b.resized(b.is_zero(a), a.bits))


@meaning("lop3")
def _lop3(b: Builder[V], i: Instruction) -> None:
    destination, *operands = i.operands
    table = operands[3]
    assert isinstance(table, Immediate)
    value = b.table(table.value, *(b.read(s, "u4") for s in operands[:3]))
    d, p = split_pair(destination)
    if i.parts[1] in ("and", "or"):
        assert p is not None
        holds = b.compare("ne", value, b.constant(32, 0))
        b.write(p, b.logic(i.parts[1], holds, b.read(operands[4], "pred")))
    b.write(d, value)


@meaning("shl", "shr")
def _shift(b: Builder[V], i: Instruction) -> None:
    d, a, amount = i.operands
    x, by = b.read(a, kind_of(i.parts[-1])), b.read_wide(amount, "u4")
    b.write(d, b.shl(x, by) if i.parts[0] == "shl" else b.shr(x, by, _is_signed(i)), _is_signed(i))


@meaning("shf")
def _funnel(b: Builder[V], i: Instruction) -> None:
    """Shift two registers as one, and take a half."""
    low, high, amount = _words(b, i)
    if "clamp" in i.parts:
        by = b.extreme("min", amount, b.constant(32, 32), False)
    else:
        by = b.and_(amount, b.constant(32, 31))
    pair = b.joined(low, high)
    if i.parts[1] == "l":
        b.write(i.operands[0], b.part(b.shl(pair, by, within=True), 32, 32))
    else:
        b.write(i.operands[0], b.resized(b.lshr(pair, by, within=True), 32))


@meaning("popc", "clz", "brev")
def _count(b: Builder[V], i: Instruction) -> None:
    (a,) = _sources(b, i)
    b.write(i.operands[0], {"popc": b.count_ones, "clz": b.leading_zeros, "brev": b.reverse}[i.parts[0]](a))


@meaning("bfind")
def _bfind(b: Builder[V], i: Instruction) -> None:
    """Find the most significant bit that is not a sign bit; all ones if there is none."""
    (a,) = _sources(b, i)
    if _is_signed(i):
        a = b.xor(a, b.ashr(a, b.constant(32, a.bits - 1)))
    zeros = b.leading_zeros(a)
    found = zeros if "shiftamt" in i.parts else b.sub(b.constant(32, a.bits - 1), zeros)
    b.write(i.operands[0], b.select(b.is_zero(a), b.constant(32, -1), found))


def _field(b: Builder[V], position: V, length: V) -> tuple[V, V]:
    """Return the first bit of a field and its length, of which 8 bits count."""
    byte = b.constant(32, 0xFF)
    return b.and_(position, byte), b.and_(length, byte)


@meaning("bfe")
def _bfe(b: Builder[V], i: Instruction) -> None:
    """Extract a bit field; beyond the register, and where it is signed, its sign fills up."""
    kind, signed = kind_of(i.parts[-1]), _is_signed(i)
    a = b.read(i.operands[1], kind)
    start, length = _field(b, b.read(i.operands[2], "u4"), b.read(i.operands[3], "u4"))
    # The field goes to the top, and from there down to the bottom.
    bits = b.constant(32, a.bits)
    up = b.sub(bits, b.extreme("min", b.add(start, length), bits, False))
    field = b.shr(b.shl(a, up), b.add(up, start), signed)
    if signed:
        field = b.select(b.is_zero(length), b.constant(a.bits, 0), field)
    b.write(i.operands[0], field)


@meaning("bfi")
def _bfi(b: Builder[V], i: Instruction) -> None:
    kind = kind_of(i.parts[-1])
    a, into = (b.read(s, kind) for s in i.operands[1:3])
    start, length = _field(b, b.read(i.operands[3], "u4"), b.read(i.operands[4], "u4"))
    mask = b.shl(b.low_ones(length, a.bits), start)
    b.write(i.operands[0], b.or_(b.and_(into, b.invert(mask)), b.and_(b.shl(a, start), mask)))


@meaning("szext")
def _szext(b: Builder[V], i: Instruction) -> None:
    """Extend the low bits of a number by their sign or by zeros."""
    a, count = _words(b, i)
    clamped = i.parts[1] == "clamp"
    count = b.extreme("min", count, b.constant(32, 32), False) if clamped else b.and_(count, b.constant(32, 31))
    by = b.sub(b.constant(32, 32), count)
    b.write(i.operands[0], b.shr(b.shl(a, by), by, _is_signed(i)))


@meaning("bmsk")
def _bmsk(b: Builder[V], i: Instruction) -> None:
    """Make a mask of some bits from a position on."""
    position, count = _words(b, i)
    if i.parts[1] == "wrap":
        position, count = (b.and_(x, b.constant(32, 31)) for x in (position, count))
    b.write(i.operands[0], b.shl(b.low_ones(count, 32), position))


@meaning("fns")
def _fns(b: Builder[V], i: Instruction) -> None:
    """Find the n-th bit that is set, from a base upwards, or downwards if n is negative; with n = 0 the base's own."""
    mask, base, offset = _words(b, i)
    zero, one = b.constant(32, 0), b.constant(32, 1)
    is_down = b.compare("slt", offset, zero)
    up = b.and_(mask, b.shl(b.constant(32, -1), base))
    down = b.reverse(b.and_(mask, b.low_ones(b.add(base, one), 32)))
    own = b.and_(mask, b.shl(one, base))
    bits = b.select(b.is_zero(offset), own, b.select(is_down, down, up))
    wanted = left = b.extreme("max", b.magnitude(offset), one, False)
    place = zero
    for half in (16, 8, 4, 2, 1):
        below = b.count_ones(b.and_(b.lshr(bits, place, within=True), b.constant(32, (1 << half) - 1)))
        is_above = b.compare("ult", below, left)
        left = b.select(is_above, b.sub(left, below), left)
        place = b.select(is_above, b.add(place, b.constant(32, half)), place)
    place = b.select(is_down, b.sub(b.constant(32, 31), place), place)
    exists = b.compare("uge", b.count_ones(bits), wanted)
    b.write(i.operands[0], b.select(exists, place, b.constant(32, -1)))


_NIBBLES = {
    "f4e": (0x3210, 0x4321, 0x5432, 0x6543),
    "b4e": (0x5670, 0x6701, 0x7012, 0x0123),
    "rc8": (0x0000, 0x1111, 0x2222, 0x3333),
    "ecl": (0x3210, 0x3211, 0x3222, 0x3333),
    "ecr": (0x0000, 0x1110, 0x2210, 0x3210),
    "rc16": (0x1010, 0x3232, 0x1010, 0x3232),
}
"""Mode of prmt -> the selectors that its third operand, 0 to 3, stands for."""


@meaning("prmt")
def _prmt(b: Builder[V], i: Instruction) -> None:
    """Pick four of eight bytes; bit 3 of a selector's nibble repeats the sign of the byte."""
    low, high, selector = _words(b, i)
    if i.parts[-1] in _NIBBLES:
        control, (found, *others) = b.and_(selector, b.constant(32, 3)), _NIBBLES[i.parts[-1]]
        selector = b.constant(32, found)
        for n, other in enumerate(others, 1):
            chosen = b.compare("eq", control, b.constant(32, n))
            selector = b.select(chosen, b.constant(32, other), selector)
    pair, value = b.joined(low, high), b.constant(32, 0)
    for n in range(4):
        nibble = b.lshr(selector, b.constant(32, 4 * n))
        if nibble.number is not None:
            byte = b.part(high if nibble.number & 4 else low, 8 * (nibble.number & 3), 8)
        else:
            start = b.shl(b.and_(nibble, b.constant(32, 7)), b.constant(32, 3))
            byte = b.resized(b.lshr(pair, start, within=True), 8)
        is_sign = b.compare("ne", b.and_(nibble, b.constant(32, 8)), b.constant(32, 0))
        byte = b.select(is_sign, b.ashr(byte, b.constant(32, 7)), byte)
        value = b.or_(value, b.shl(b.resized(byte, 32), b.constant(32, 8 * n)))
    b.write(i.operands[0], value)
