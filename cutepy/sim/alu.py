"""Arithmetic that numpy lacks or does differently: PTX's rounding, saturation, division, and approximations.

Approximate instructions are computed in float64 and rounded once, so their last bits can differ from the hardware's,
within the error that the PTX ISA states.

References
----------
PTX ISA, "Integer Arithmetic Instructions", "Floating Point Instructions", "Half Precision Floating Point
Instructions", "Data Movement and Conversion Instructions: cvt, prmt".
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
_TINY = np.float32(2.0**-126)


def div(a: Array, b: Array) -> Array:
    """Divide integers, towards zero; by zero gives all ones, as the hardware does."""
    zero = b == 0
    safe = np.where(zero, b.dtype.type(1), b)
    if a.dtype.kind == "u":
        quotient = a // safe
    else:
        quotient = np.sign(a) * np.sign(safe) * (np.abs(a) // np.abs(safe))
        overflow = (a == np.iinfo(a.dtype).min) & (safe == -1)
        quotient = np.where(overflow, a, quotient) if overflow.any() else quotient
        minimum = safe == np.iinfo(a.dtype).min
        quotient = np.where(minimum, (a == safe).astype(a.dtype), quotient) if minimum.any() else quotient
    return np.where(zero, ~a.dtype.type(0), quotient).astype(a.dtype)


def rem(a: Array, b: Array) -> Array:
    """Return what `div` leaves; the dividend itself where the divisor is zero."""
    return np.where(b == 0, a, a - div(a, b) * b).astype(a.dtype)


def mul_hi(a: Array, b: Array) -> Array:
    """Return the upper half of a product."""
    if a.dtype.itemsize == 8:
        return _mul_hi_64(a, b)
    wide = _WIDER[a.dtype]
    bits = wide(8 * a.dtype.itemsize)
    return ((a.astype(wide) * b.astype(wide)) >> bits).astype(a.dtype)


def _mul_hi_64(a: Array, b: Array) -> Array:
    x, y = a.view(np.uint64), b.view(np.uint64)
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    x0, x1, y0, y1 = x & low, x >> half, y & low, y >> half
    middle = x1 * y0 + ((x0 * y0) >> half)
    carry = x0 * y1 + (middle & low)
    high = x1 * y1 + (middle >> half) + (carry >> half)
    if a.dtype.kind == "i":
        high = high - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
    return high.view(a.dtype)


def mul_wide(a: Array, b: Array) -> Array:
    """Return a product of twice the width."""
    wide = _WIDER[a.dtype]
    return a.astype(wide) * b.astype(wide)


def shift_left(a: Array, amount: Array) -> Array:
    """Shift left; by the width or more gives 0."""
    limit = np.uint32(8 * a.dtype.itemsize)
    return a << np.minimum(amount, limit).astype(a.dtype)


def shift_right(a: Array, amount: Array) -> Array:
    """Shift right, arithmetically if signed; by the width or more leaves the sign only."""
    limit = np.uint32(8 * a.dtype.itemsize)
    return a >> np.minimum(amount, limit).astype(a.dtype)


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
    return np.clip(x - y if subtract else x + y, -(2**31), 2**31 - 1).astype(np.int32)


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
    """Extract a bit field."""
    bits = 8 * a.dtype.itemsize
    unsigned = np.dtype(f"u{a.dtype.itemsize}").type
    p = (position & np.uint32(0xFF)).astype(np.int64)
    n = (length & np.uint32(0xFF)).astype(np.int64)
    x = shift_right(a.view(unsigned), p.astype(np.uint32))
    n_in = np.clip(np.minimum(n, bits - p), 0, bits)
    mask = np.where(n_in >= bits, ~unsigned(0), (unsigned(1) << np.minimum(n_in, bits - 1).astype(unsigned)) - unsigned(1))
    field = x & mask
    if a.dtype.kind == "i":
        top = np.clip(np.minimum(p + n, bits) - 1, 0, bits - 1).astype(unsigned)
        sign = (a.view(unsigned) >> top) & unsigned(1)
        field = np.where((n > 0) & (sign == 1), field | ~np.where(n >= bits, ~unsigned(0), mask), field)
        field = np.where((n > 0) & (n_in == 0) & (sign == 1), ~unsigned(0), field)
        return field.astype(unsigned).view(a.dtype)
    return field.astype(a.dtype)


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


# Floating point.


def flush(a: Array) -> Array:
    """Replace float32 subnormals by zeros of their sign (ftz)."""
    small = np.abs(a) < _TINY
    return np.where(small, np.copysign(np.float32(0), a), a) if small.any() else a


def fma(a: Array, b: Array, c: Array) -> Array:
    """Multiply and add with one rounding.

    The product of two float32 is exact in float64. Their sum with the third is rounded to odd there (Boldo and
    Melquiond), so that rounding it to float32 rounds the exact value.
    """
    if a.dtype == np.float64:
        return _fma_64(a, b, c)
    product, addend = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
    total = product + addend
    back = total - product
    error = (product - (total - back)) + (addend - back)
    inexact = error != 0
    if inexact.any():
        total = np.ascontiguousarray(total)
        bits = total.view(np.int64)
        adjust = inexact & ((bits & 1) == 0) & np.isfinite(total)
        step = np.where((error > 0) == (total > 0), 1, -1)
        total = (bits + np.where(adjust, step, 0)).view(np.float64)
    return total.astype(a.dtype)


def _fma_64(a: Array, b: Array, c: Array) -> Array:
    wide = np.longdouble
    return (a.astype(wide) * b.astype(wide) + c.astype(wide)).astype(np.float64)


def maximum(a: Array, b: Array) -> Array:
    """Return the larger; a NaN loses, and +0 exceeds -0."""
    return np.where((a == 0) & (b == 0) & np.signbit(a), b, np.fmax(a, b))


def minimum(a: Array, b: Array) -> Array:
    """Return the smaller; a NaN loses, and -0 is below +0."""
    return np.where((a == 0) & (b == 0) & np.signbit(b), b, np.fmin(a, b))


def ex2(a: Array) -> Array:
    """2 to a power."""
    return np.exp2(a.astype(np.float64)).astype(a.dtype)


def lg2(a: Array) -> Array:
    """Logarithm to base 2."""
    return np.log2(a.astype(np.float64)).astype(a.dtype)


def rcp(a: Array) -> Array:
    """Reciprocal."""
    return (1.0 / a.astype(np.float64)).astype(a.dtype)


def rsqrt(a: Array) -> Array:
    """Reciprocal square root."""
    return (1.0 / np.sqrt(a.astype(np.float64))).astype(a.dtype)


def tanh(a: Array) -> Array:
    """Hyperbolic tangent."""
    return np.tanh(a.astype(np.float64)).astype(a.dtype)


def sine(a: Array) -> Array:
    """Sine."""
    return np.sin(a.astype(np.float64)).astype(a.dtype)


def cosine(a: Array) -> Array:
    """Cosine."""
    return np.cos(a.astype(np.float64)).astype(a.dtype)


def saturate(a: Array) -> Array:
    """Clamp to [0, 1]; a NaN becomes 0 (.sat)."""
    return np.where(np.isnan(a), a.dtype.type(0), np.clip(a, a.dtype.type(0), a.dtype.type(1)))


def float_to_int(a: Array, kind: str, rounding: str) -> Array:
    """Round to an integer and clamp to the type; a NaN becomes 0."""
    wide = a.astype(np.float64)
    rounded = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[rounding](wide)
    info = np.iinfo(kind)
    rounded = np.where(np.isnan(rounded), 0.0, rounded)
    low, high = float(info.min), float(info.max)
    inside = np.where((rounded > low) & (rounded < high), rounded, 0.0).astype(kind)
    return np.where(rounded <= low, info.min, np.where(rounded >= high, info.max, inside)).astype(kind)


def round_to_integral(a: Array, rounding: str) -> Array:
    """Round to an integral value of the same type."""
    return {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[rounding](a).astype(a.dtype)


def clamp_int(a: Array, kind: str) -> Array:
    """Convert an integer, clamped to the type (.sat)."""
    info = np.iinfo(kind)
    if a.dtype.kind == "u":
        return np.minimum(a, a.dtype.type(min(info.max, np.iinfo(a.dtype).max))).astype(kind)
    return np.clip(a.astype(np.int64), max(info.min, -(2**63)), min(info.max, 2**63 - 1)).astype(kind)


def truncate_float32(a: Array, bits: int) -> Array:
    """Round float32 towards zero to `bits` fewer bits of mantissa, as bits."""
    return np.ascontiguousarray(a).view(np.uint32) & np.uint32(0xFFFFFFFF << bits & 0xFFFFFFFF)
