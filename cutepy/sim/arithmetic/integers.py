"""Integer arithmetic that numpy lacks or does differently: division, wide products, shifts, bit fields, permutations.

References
----------
PTX ISA, "Integer Arithmetic Instructions", "Extended-Precision Integer Arithmetic Instructions", "Logic and Shift
Instructions", "Data Movement and Conversion Instructions: prmt".
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_WIDER = {
    np.dtype(np.uint16): np.uint32,
    np.dtype(np.int16): np.int32,
    np.dtype(np.uint32): np.uint64,
    np.dtype(np.int32): np.int64,
}


def div(a: Array, b: Array) -> Array:
    """Divide integers, towards zero; by zero gives all ones, as the hardware does."""
    zero = b == 0
    safe = np.where(zero, b.dtype.type(1), b)
    if a.dtype.kind == "u":
        quotient = a // safe
    else:
        unsigned = f"u{a.dtype.itemsize}"
        # The magnitude of the least integer is one that only the unsigned type holds.
        magnitude = np.abs(a).view(unsigned) // np.abs(safe).view(unsigned)
        quotient = np.where((a < 0) != (safe < 0), -magnitude, magnitude).view(a.dtype)
    return np.where(zero, ~a.dtype.type(0), quotient)


def rem(a: Array, b: Array) -> Array:
    """Return what `div` leaves; by zero gives all ones, as the hardware does."""
    result: Array = np.where(b == 0, ~a.dtype.type(0), a - div(a, b) * b).astype(a.dtype)
    return result


def mul_hi(a: Array, b: Array) -> Array:
    """Return the upper half of a product."""
    if a.dtype.itemsize == 8:
        return _mul_hi_64(a, b)
    wide = _WIDER[a.dtype]
    bits = wide(8 * a.dtype.itemsize)
    result: Array = ((a.astype(wide) * b.astype(wide)) >> bits).astype(a.dtype)
    return result


def _mul_hi_64(a: Array, b: Array) -> Array:
    x, y = a.view(np.uint64), b.view(np.uint64)
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    x0, x1, y0, y1 = x & low, x >> half, y & low, y >> half
    middle = x1 * y0 + ((x0 * y0) >> half)
    carry = x0 * y1 + (middle & low)
    high = x1 * y1 + (middle >> half) + (carry >> half)
    if a.dtype.kind == "i":
        high = high - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
    result: Array = high.view(a.dtype)
    return result


def shift_left(a: Array, amount: Array) -> Array:
    """Shift left; by the width or more gives 0."""
    limit = np.uint32(8 * a.dtype.itemsize)
    result: Array = a << np.minimum(amount, limit).astype(a.dtype)
    return result


def shift_right(a: Array, amount: Array) -> Array:
    """Shift right, arithmetically if signed; by the width or more leaves the sign only."""
    limit = np.uint32(8 * a.dtype.itemsize)
    result: Array = a >> np.minimum(amount, limit).astype(a.dtype)
    return result


def funnel(low: Array, high: Array, amount: Array, left: bool, clamp: bool) -> Array:
    """Shift the pair {high, low} and return one half (shf)."""
    shift = np.minimum(amount, np.uint32(32)) if clamp else amount & np.uint32(31)
    pair = (high.astype(np.uint64) << np.uint64(32)) | low.astype(np.uint64)
    s = shift.astype(np.uint64)
    shifted = (pair << s) >> np.uint64(32) if left else pair >> s
    return shifted.astype(np.uint32)


def add_saturated(a: Array, b: Array, subtract: bool) -> Array:
    """Add or subtract s32, clamped."""
    x, y = a.astype(np.int64), b.astype(np.int64)
    result: Array = np.clip(x - y if subtract else x + y, -(2**31), 2**31 - 1).astype(np.int32)
    return result


def popc(a: Array) -> Array:
    """Count the bits that are set."""
    return np.bitwise_count(a).astype(np.uint32)


def clz(a: Array) -> Array:
    """Count leading zeros."""
    bits = 8 * a.dtype.itemsize
    x = a.copy()
    for shift in (1, 2, 4, 8, 16, 32)[: 6 if bits == 64 else 5]:
        x |= x >> x.dtype.type(shift)
    return (bits - np.bitwise_count(x)).astype(np.uint32)


def brev(a: Array) -> Array:
    """Reverse the bits."""
    swapped = np.ascontiguousarray(a).view(np.uint8).reshape(*a.shape, a.dtype.itemsize)[..., ::-1]
    table = np.array([int(f"{i:08b}"[::-1], 2) for i in range(256)], np.uint8)
    return np.ascontiguousarray(table[swapped]).view(a.dtype)[..., 0]


def bfind(a: Array, shift_amount: bool) -> Array:
    """Find the most significant bit that is not a sign bit; all ones if there is none."""
    unsigned = a.view(a.dtype.str.replace("i", "u")) if a.dtype.kind == "i" else a
    x = np.where(a < 0, ~unsigned, unsigned) if a.dtype.kind == "i" else a
    bits = 8 * a.dtype.itemsize
    position = np.uint32(bits - 1) - clz(x)
    found = np.uint32(bits - 1) - position if shift_amount else position
    return np.where(x == 0, np.uint32(0xFFFFFFFF), found)


def bfe(a: Array, position: Array, length: Array) -> Array:
    """Extract a bit field; beyond the register, and where it is signed, its sign fills up."""
    bits = 8 * a.dtype.itemsize
    unsigned = np.dtype(f"u{a.dtype.itemsize}").type
    p = (position & np.uint32(0xFF)).astype(np.int64)
    n = (length & np.uint32(0xFF)).astype(np.int64)
    inside = np.clip(np.minimum(n, bits - p), 0, bits)
    low = (unsigned(1) << np.minimum(inside, bits - 1).astype(unsigned)) - unsigned(1)
    mask = np.where(inside >= bits, ~unsigned(0), low)
    field: Array = shift_right(a.view(unsigned), p.astype(np.uint32)) & mask
    if a.dtype.kind == "i":
        top = np.clip(np.minimum(p + n, bits) - 1, 0, bits - 1).astype(unsigned)
        negative = (n > 0) & (a.view(unsigned) >> top & unsigned(1) == 1)
        field = np.where(negative, field | ~mask, field)
    return field.astype(unsigned).view(a.dtype)


def bfi(a: Array, b: Array, position: Array, length: Array) -> Array:
    """Insert the low bits of `a` into `b`."""
    bits = 8 * a.dtype.itemsize
    t = a.dtype.type
    p = np.minimum(position & np.uint32(0xFF), bits).astype(np.int64)
    n = np.minimum((length & np.uint32(0xFF)).astype(np.int64), bits - p)
    ones = np.where(n >= bits, ~t(0), (t(1) << np.minimum(n, bits - 1).astype(t)) - t(1))
    mask = shift_left(ones, p.astype(np.uint32))
    return ((b & ~mask) | (shift_left(a, p.astype(np.uint32)) & mask)).astype(t)


def prmt(a: Array, b: Array, selector: Array) -> Array:
    """Pick four bytes of the eight of {b, a}; bit 3 of a selector replicates the sign of the byte."""
    pair = (b.astype(np.uint64) << np.uint64(32)) | a.astype(np.uint64)
    result: Array = np.zeros(np.broadcast_shapes(pair.shape, selector.shape), np.uint32)
    for index in range(4):
        nibble = (selector >> np.uint32(4 * index)) & np.uint32(15)
        byte = (pair >> ((nibble & np.uint32(7)).astype(np.uint64) * np.uint64(8))).astype(np.uint32) & np.uint32(0xFF)
        sign = np.where(byte & np.uint32(0x80), np.uint32(0xFF), np.uint32(0))
        byte = np.where(nibble & np.uint32(8), sign, byte)
        result = result | (byte << np.uint32(8 * index))
    return result


def lop3(a: Array, b: Array, c: Array, table: int) -> Array:
    """Apply a three-input truth table to each bit."""
    result: Array = np.zeros(np.broadcast_shapes(a.shape, b.shape, c.shape), a.dtype)
    for row in range(8):
        if table >> row & 1:
            result = result | ((a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c))
    return result


def dot4(a: Array, b: Array, c: Array, a_signed: bool, b_signed: bool) -> Array:
    """Add to `c` the dot product of four pairs of bytes (dp4a)."""
    total = c.astype(np.int64)
    for index in range(4):
        x = (a >> np.uint32(8 * index)).astype(np.uint8)
        y = (b >> np.uint32(8 * index)).astype(np.uint8)
        total = total + (x.view(np.int8) if a_signed else x).astype(np.int64) * (
            y.view(np.int8) if b_signed else y
        ).astype(np.int64)
    return total.astype(np.uint32)


def clamp_int(a: Array, kind: str) -> Array:
    """Convert an integer, clamped to the type (.sat)."""
    info = np.iinfo(kind)
    if a.dtype.kind == "u":
        result: Array = np.minimum(a, a.dtype.type(min(info.max, np.iinfo(a.dtype).max))).astype(kind)
        return result
    return np.clip(a.astype(np.int64), max(info.min, -(2**63)), min(info.max, 2**63 - 1)).astype(kind)


def add_with_carry(a: Array, b: Array, carry: Array | None, subtract: bool) -> tuple[Array, Array]:
    """Add, or subtract, unsigned numbers and what is carried, or borrowed; returns the result and the next carry.

    The hardware subtracts by adding the complement and one, so that the carry of a difference says that nothing was
    borrowed. nvcc's division of 128-bit numbers counts on it: it adds the carry of a subtraction.
    """
    if subtract:
        b = ~b
    more = a.dtype.type(subtract) if carry is None else carry.astype(a.dtype)
    first = a + b
    result = first + more
    return result, (first < a) | (result < first)


_PRMT_NIBBLES = {
    "f4e": (0x3210, 0x4321, 0x5432, 0x6543),
    "b4e": (0x5670, 0x6701, 0x7012, 0x0123),
    "rc8": (0x0000, 0x1111, 0x2222, 0x3333),
    "ecl": (0x3210, 0x3211, 0x3222, 0x3333),
    "ecr": (0x0000, 0x1110, 0x2210, 0x3210),
    "rc16": (0x1010, 0x3232, 0x1010, 0x3232),
}


def prmt_selector(mode: str, control: Array) -> Array:
    """Return the selector that a mode of prmt stands for."""
    result: Array = np.array(_PRMT_NIBBLES[mode], np.uint32)[control & np.uint32(3)]
    return result


def dot2(a: Array, b: Array, c: Array, a_signed: bool, b_signed: bool, high: bool) -> Array:
    """Add to `c` the dot product of two halves of `a` and two bytes of `b` (dp2a)."""
    total = c.astype(np.int64)
    for index in range(2):
        x = (a >> np.uint32(16 * index)).astype(np.uint16)
        y = (b >> np.uint32(8 * index + (16 if high else 0))).astype(np.uint8)
        total = total + (x.view(np.int16) if a_signed else x).astype(np.int64) * (
            y.view(np.int8) if b_signed else y
        ).astype(np.int64)
    return total.astype(np.uint32)


def szext(a: Array, width: Array, clamp: bool, signed: bool) -> Array:
    """Extend the low bits of a number by their sign or by zeros."""
    n = np.minimum(width, np.uint32(32)) if clamp else width & np.uint32(31)
    shift = np.uint32(32) - n
    left = shift_left(a, shift)
    return shift_right(left.view(np.int32), shift).view(np.uint32) if signed else shift_right(left, shift)


def bmsk(position: Array, width: Array, clamp: bool) -> Array:
    """Make a mask of some bits from a position on."""
    if not clamp:
        position, width = position & np.uint32(31), width & np.uint32(31)
    ones = shift_left(np.uint32(1) + np.zeros_like(width), width) - np.uint32(1)
    return shift_left(ones, position)


def fns(mask: Array, base: Array, offset: Array) -> Array:
    """Find the n-th bit that is set, from a base, upwards or downwards."""
    shape = np.broadcast_shapes(mask.shape, base.shape, offset.shape)
    result = np.full(shape, 0xFFFFFFFF, np.uint32)
    wide = [np.broadcast_to(x, shape) for x in (mask, base, offset)]
    for at in np.ndindex(shape):
        m, b, n = (int(x[at]) for x in wide)
        places = range(b, 32) if n >= 0 else range(b, -1, -1)
        found = [place for place in places if m >> place & 1]
        if n == 0:
            found = found[:1] if found and found[0] == b else []
        if len(found) >= max(abs(n), 1):
            result[at] = found[max(abs(n), 1) - 1]
    return result
