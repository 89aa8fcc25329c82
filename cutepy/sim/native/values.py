"""NaNs, subnormals, zeros, limits and widths of floats: what `arithmetic.floats` does to results, for lanes."""

from __future__ import annotations

import struct

from cutepy.sim.native.lanes import Lanes
from cutepy.sim.native.writer import Value

_CANONICAL = 0x7FFFFFFF


def float_bits(number: float, bits: int) -> int:
    """Return the bits of a float."""
    return int.from_bytes(struct.pack("<f" if bits == 32 else "<d", number), "little")


def magnitude_below(e: Lanes, x: Value, limit: float) -> Value:
    """Tell whether a number's magnitude is below a positive limit."""
    w = e.w
    size = w.binary("and", x, w.constant(x.bits, (1 << x.bits - 1) - 1))
    return w.compare("ult", size, w.constant(x.bits, float_bits(limit, x.bits)))


def flushed(e: Lanes, x: Value) -> Value:
    """Replace subnormals of float32 by zeros of their sign."""
    w = e.w
    sign = w.binary("and", x, w.constant(32, 0x80000000))
    return w.select(magnitude_below(e, x, 2.0**-126), sign, x)


def flushed_rounded(e: Lanes, result: Value, exact: Value) -> Value:
    """Flush a float32 that is subnormal when rounded to nearest with an exponent without bounds.

    `exact` is the float64 that was rounded, itself rounded to odd: see `arithmetic.floats.flush_rounded`.
    """
    w = e.w
    border = w.compare("eq", w.binary("and", result, w.constant(32, 0x7FFFFFFF)), w.constant(32, 0x00800000))
    lost = w.binary("and", border, magnitude_below(e, exact, 2.0**-126 - 2.0**-151))
    return flushed(e, w.select(lost, w.binary("and", result, w.constant(32, 0x80000000)), result))


def canonical(e: Lanes, x: Value) -> Value:
    """Replace the NaNs of float32 by the one that arithmetic returns."""
    return e.w.select(e.w.compare_floats("uno", x, x), e.w.constant(32, _CANONICAL), x)


def quiet(e: Lanes, x: Value) -> Value:
    """Set the bit of a float64 that makes a NaN a quiet one."""
    return e.w.binary("or", x, e.w.constant(64, 1 << 51))


def last_nan(e: Lanes, result: Value, *operands: Value) -> Value:
    """Let a float64 result be the last operand that is a NaN, quiet."""
    for x in operands:
        result = e.w.select(e.w.compare_floats("uno", x, x), quiet(e, x), result)
    return result


def saturated_float(e: Lanes, x: Value) -> Value:
    """Clamp float32 to [0, 1]; a NaN becomes 0."""
    w = e.w
    zero, one = w.constant(32, 0), w.constant(32, 0x3F800000)
    capped = w.select(w.compare_floats("olt", x, one), x, one)
    return w.select(w.compare_floats("ogt", x, zero), capped, zero)


def extreme_float(e: Lanes, operation: str, a: Value, b: Value) -> Value:
    """Return the smaller or the larger; a NaN loses to a number, and -0 is below +0."""
    w = e.w
    found = w.select(w.compare_floats("olt" if operation == "min" else "ogt", a, b), a, b)
    # Of equal numbers the bits are equal too, or they are zeros of two signs.
    both = w.binary("or" if operation == "min" else "and", a, b)
    found = w.select(w.compare_floats("oeq", a, b), both, found)
    found = w.select(w.compare_floats("uno", b, b), a, found)
    if a.bits == 32:
        found = w.select(w.compare_floats("uno", a, a), b, found)
        return canonical(e, found)
    found = w.select(w.compare_floats("uno", a, a), b, found)
    return w.select(w.compare_floats("uno", found, found), quiet(e, found), found)


def widened(e: Lanes, half: Value, name: str) -> Value:
    """Return the float32 of an f16 or bf16, given as bits."""
    w = e.w
    if name == "f16":
        return w.float_cast("fpext", half, 32)
    return w.binary("shl", w.resized(half, 32), w.constant(32, 16))


def narrowed(e: Lanes, x: Value, name: str) -> Value:
    """Round float32 to f16 or bf16, to nearest; NaNs are canonical."""
    w = e.w
    if name == "f16":
        bits = w.float_cast("fptrunc", x, 16)
    else:
        even = w.binary("and", w.binary("lshr", x, w.constant(32, 16)), w.constant(32, 1))
        up = w.binary("add", w.binary("add", x, w.constant(32, 0x7FFF)), even)
        bits = w.resized(w.binary("lshr", up, w.constant(32, 16)), 16)
    return w.select(w.compare_floats("uno", x, x), w.constant(16, 0x7FFF), bits)
