"""Floating point arithmetic with PTX's rounding, flushing, saturation and NaN rules; approximations.

A result that numpy cannot round as asked is first rounded to odd in float64, then as asked. A second rounding, in any
direction and to any type of at most 51 bits, does not spoil a number rounded to odd.
float64 itself is rounded in other directions lane by lane, with exact fractions.

Approximate instructions are computed in float64 and rounded once, so their last bits can differ from the hardware's,
within the error that the PTX ISA states. What the ISA leaves open is as measured on an H200: NaN results of float32 and
16-bit types are canonical, those of float64 are the last operand that is a NaN, and a result is flushed (.ftz) if it
is subnormal after rounding with an exponent without bounds.

References
----------
PTX ISA, "Floating Point Instructions", "Half Precision Floating Point Instructions", "Rounding Modifiers", "cvt".
Boldo and Melquiond: "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd". Dekker: "A
Floating-Point Technique for Extending the Available Precision", of the errors that sums and products leave.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

SMALLEST_NORMAL = {np.dtype(np.float32): 2.0**-126, np.dtype(np.float16): 2.0**-14, np.dtype(np.float64): 2.0**-1022}
_UP = np.float32(2.0**64)
"""Brings numbers next to the smallest normal float32 to where 24 bits are never too many."""
_ROUNDS_TO_NORMAL_HALF = 2.0**-14 - 2.0**-26
"""The least number that is 2**-14 when it is rounded to nearest, of a tie to even, with 11 bits."""
_CANONICAL_NAN = np.array([0x7FFFFFFF], np.uint32).view(np.float32)[0]


def canonical(a: Array) -> Array:
    """Replace the NaNs of float32 by the one that arithmetic returns (measured on an H200: negations too)."""
    largest = a.max()  # a NaN if there is one
    return a if largest == largest else np.where(np.isnan(a), _CANONICAL_NAN, a)


def last_nan(result: Array, *operands: Array) -> Array:
    """Let a float64 result be the last operand that is a NaN, quiet, of the same sign (measured on an H200)."""
    largest = result.max()
    if largest == largest:
        return result
    for operand in operands:
        quiet = (np.ascontiguousarray(operand).view(np.uint64) | np.uint64(1 << 51)).view(np.float64)
        result = np.where(np.isnan(operand), quiet, result)
    return result


def flush_rounded(result: Array, exact: Array, mode: str) -> Array:
    """Flush results that round to a subnormal float32 (.ftz): decided with 24 bits and an unbounded exponent.

    Without bounds the last bit of a number below 2**-126 is worth half as much, so that it may be rounded to a number
    below 2**-126 where `result`, rounded as IEEE 754 does, is 2**-126. Measured on an H200 of mul, fma, div and cvt.

    Parameters
    ----------
    result : array of float32
    exact : array of float64
        Value before rounding; itself rounded to odd.
    mode : "rn", "rz", "rm" or "rp"
    """
    tiny = np.float32(SMALLEST_NORMAL[result.dtype])
    border = np.abs(result) == tiny
    if border.any():
        normal = np.abs(round_to(np.where(border, exact, 0) * _UP, np.float32, mode)) >= tiny * _UP
        result = np.where(border & ~normal, np.copysign(np.float32(0), result), result)
    return flush(result)


def flush_tiny(result: Array, operation: str, mode: str, *operands: Array) -> Array:
    """Flush a product, quotient or sum of a product of float32 operands that rounds to a subnormal number (.ftz)."""
    if not (np.abs(result) == np.float32(SMALLEST_NORMAL[result.dtype])).any():
        return flush(result)
    return flush_rounded(result, ODD[operation](*(wide(x) for x in operands)), mode)


def flush_half(a: Array) -> Array:
    """Flush results that round to a subnormal float16, to nearest with 11 bits and an unbounded exponent (.ftz)."""
    return np.where(np.abs(a) < _ROUNDS_TO_NORMAL_HALF, np.copysign(a.dtype.type(0), a), a)


def flush(a: Array) -> Array:
    """Replace subnormals by zeros of their sign (ftz)."""
    small = np.abs(a) < a.dtype.type(SMALLEST_NORMAL[a.dtype])
    return np.where(small, np.copysign(a.dtype.type(0), a), a) if small.any() else a


def saturate(a: Array) -> Array:
    """Clamp to [0, 1]; a NaN becomes 0 (.sat)."""
    zero, one = a.dtype.type(0), a.dtype.type(1)
    result: Array = np.where(a > zero, np.minimum(a, one), zero)
    return result


def relu(a: Array) -> Array:
    """Clamp to 0 from below; a NaN stays one, canonical (.relu)."""
    return np.where(np.isnan(a), a.dtype.type(_CANONICAL_NAN), np.where(a > 0, a, a.dtype.type(0)))


def maximum(a: Array, b: Array) -> Array:
    """Return the larger; a NaN loses to a number, and +0 exceeds -0."""
    return _settled(_number(np.fmax(a, b), a, b), a, b, True)


def minimum(a: Array, b: Array) -> Array:
    """Return the smaller; a NaN loses to a number, and -0 is below +0."""
    return _settled(_number(np.fmin(a, b), a, b), a, b, False)


def maximum_nan(a: Array, b: Array) -> Array:
    """Return the larger; a NaN wins, canonical (.NaN)."""
    return _settled(np.maximum(a, b), a, b, True)


def minimum_nan(a: Array, b: Array) -> Array:
    """Return the smaller; a NaN wins, canonical (.NaN)."""
    return _settled(np.minimum(a, b), a, b, False)


EXTREMES = {
    ("min", False): minimum,
    ("max", False): maximum,
    ("min", True): minimum_nan,
    ("max", True): maximum_nan,
}
"""Operation, and whether a NaN wins -> its function."""


def _number(found: Array, a: Array, b: Array) -> Array:
    """Take the number where one side is a NaN: for a signalling one C's fmin and fmax give a NaN, and numpy either."""
    nan = np.isnan(found)
    return np.where(np.isnan(a), b, np.where(np.isnan(b), a, found)) if nan.any() else found


def _settled(found: Array, a: Array, b: Array, larger: bool) -> Array:
    """Settle which of two zeros it is, and make NaNs canonical."""
    if not found.all():
        found = np.where((a == 0) & (b == 0), np.where(np.signbit(a) == larger, b, a), found)
    if found.dtype == np.float64:
        both = np.isnan(found)
        return np.where(both, last_nan(found, a, b), found) if both.any() else found
    nan = np.isnan(found)
    return np.where(nan, found.dtype.type(_CANONICAL_NAN), found) if nan.any() else found


def xor_sign(result: Array, a: Array, b: Array) -> Array:
    """Give a number the exclusive or of two signs (.xorsign)."""
    negative = (np.signbit(a) != np.signbit(b)) & ~np.isnan(result)
    return np.where(negative, -np.abs(result), np.abs(result))


_SPLITTER = float(2**27 + 1)


def to_odd(total: Array, error: Array) -> Array:
    """Return the float64 next to an exact value, rounded to odd; `error` has the sign of exact - total."""
    inexact = (error != 0) & np.isfinite(total) & ~np.isnan(error)
    if not inexact.any():
        return total
    total = np.ascontiguousarray(np.broadcast_to(total, inexact.shape))
    bits = total.view(np.int64)
    adjust = inexact & ((bits & 1) == 0)
    # Away from zero is up in the bits. A zero total cannot be: it would be exact, or the inputs out of range.
    step = np.where((error > 0) == (total > 0), 1, -1)
    return (bits + np.where(adjust, step, 0)).view(np.float64)


def sum_error(a: Array, b: Array, total: Array) -> Array:
    """Return the rounding error of a sum of float64 values."""
    back = total - a
    result: Array = (a - (total - back)) + (b - back)
    return result


def add_odd(a: Array, b: Array) -> Array:
    """Add float64 values, rounded to odd."""
    total = a + b
    return to_odd(total, sum_error(a, b, total))


def _halves(a: Array) -> tuple[Array, Array]:
    scaled = _SPLITTER * a
    high = scaled - (scaled - a)
    return high, a - high


def product_error(a: Array, b: Array, product: Array) -> Array:
    """Return the rounding error of a product of float64 values."""
    (a1, a0), (b1, b0) = _halves(a), _halves(b)
    result: Array = ((a1 * b1 - product) + a1 * b0 + a0 * b1) + a0 * b0
    return result


def wide(a: Array) -> Array:
    """Return the values as float64."""
    return a.astype(np.float64)


def _div_odd(a: Array, b: Array) -> Array:
    quotient = a / b
    product = quotient * b
    remainder = (a - product) - product_error(quotient, b, product)
    # Subnormal float32 operands keep all of this far from float64's limits.
    return to_odd(quotient, np.where(b > 0, remainder, -remainder))


def _sqrt_odd(a: Array) -> Array:
    root = np.sqrt(a)
    square = root * root
    return to_odd(root, (a - square) - product_error(root, root, square))


def fma_odd(a: Array, b: Array, c: Array) -> Array:
    """Multiply, which must be exact, and add, rounded to odd."""
    return add_odd(a * b, c)


ODD: dict[str, Callable[..., Array]] = {
    "add": add_odd,
    "sub": lambda a, b: add_odd(a, -b),
    "mul": lambda a, b: a * b,
    "fma": fma_odd,
    "div": _div_odd,
    "rcp": lambda a: _div_odd(np.ones_like(a), a),
    "sqrt": _sqrt_odd,
}
"""Operations on float64 values that are float32 or narrower ones."""


_SAFE_EXPONENT = 400


def round_to(value: Array, kind: Any, mode: str) -> Array:  # noqa: ANN401
    """Round float64 to float32 or float16.

    Parameters
    ----------
    value : array
    kind : dtype
    mode : "rn", "rz", "rm" or "rp"
    """
    nearest: Array = value.astype(kind)
    if mode == "rn":
        return nearest
    back = nearest.astype(value.dtype)
    zero, infinity = nearest.dtype.type(0), nearest.dtype.type(np.inf)
    if mode == "rz":
        return np.where(np.abs(back) > np.abs(value), np.nextafter(nearest, zero), nearest)
    if mode == "rm":
        return np.where(back > value, np.nextafter(nearest, -infinity), nearest)
    return np.where(back < value, np.nextafter(nearest, infinity), nearest)


def directed(operation: str, mode: str, *operands: Array) -> Array:
    """Compute add, sub, mul, fma, div, rcp or sqrt of float32 or float64, rounded as asked."""
    kind = operands[0].dtype
    if kind == np.float64:
        return _lane_by_lane(operation, mode, *operands)
    exact = ODD[operation](*(wide(x) for x in operands))  # zero only if the exact result is
    return _signed_zero(operation, mode, round_to(exact, kind, mode), exact == 0, operands)


def _signed_zero(operation: str, mode: str, result: Array, is_zero: Array, operands: tuple[Array, ...]) -> Array:
    """Make sums negative that are exactly zero, of terms of different signs, when rounding down (IEEE 754, 6.3)."""
    if mode != "rm" or operation not in ("add", "sub", "fma"):
        return result
    *factors, last = (np.signbit(x) for x in operands)
    first = np.logical_xor.reduce(np.broadcast_arrays(*factors))
    differ = (first == last) if operation == "sub" else (first != last)
    return np.where(is_zero & differ, -result.dtype.type(0), result)


def narrow_operation(operation: str, kind: Any, *operands: Array) -> Array:  # noqa: ANN401
    """Compute an operation of f16 or bf16 values, given as float32, to be rounded once.

    Returns float32 where that cannot spoil the last rounding, else float64, rounded to odd.
    """
    if operation == "add":
        return operands[0] + operands[1]
    if operation == "sub":
        return operands[0] - operands[1]
    if operation == "mul" and kind == "f16":
        return operands[0] * operands[1]
    return ODD[operation](*(wide(x) for x in operands))


# float64, one lane at a time where need be.


def _exact(operation: str, operands: tuple[Fraction, ...]) -> Fraction:
    a, *rest = operands
    if operation == "add":
        return a + rest[0]
    if operation == "sub":
        return a - rest[0]
    if operation == "mul":
        return a * rest[0]
    if operation == "div":
        return a / rest[0]
    if operation == "rcp":
        return 1 / a
    return a * rest[0] + rest[1]


_NUMPY: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "rcp": np.reciprocal,
    "sqrt": np.sqrt,
    "fma": lambda a, b, c: a * b + c,
}


def _lane_by_lane(operation: str, mode: str, *operands: Array) -> Array:
    whole = np.broadcast_arrays(*operands)
    result = np.array(_NUMPY[operation](*whole), np.float64)
    is_zero = np.zeros(result.shape, bool)
    for position in np.ndindex(result.shape):
        lane = tuple(float(x[position]) for x in whole)
        if operation == "fma" and np.isinf(lane[2]) and all(np.isfinite(lane[:2])):
            result[position] = lane[2]
        if not all(np.isfinite(lane)) or (operation in ("div", "rcp") and lane[-1] == 0):
            continue
        if operation == "sqrt":
            result[position] = _round_root(float(result[position]), lane[0], mode)
            continue
        exact = _exact(operation, tuple(map(Fraction, lane)))
        if exact != 0:
            result[position] = round_fraction(exact, mode)
        is_zero[position] = exact == 0
    return _signed_zero(operation, mode, result, is_zero, operands)


def round_fraction(exact: Fraction, mode: str) -> float:
    """Round an exact value to float64."""
    try:
        nearest = float(exact)
    except OverflowError:
        nearest = float("inf") if exact > 0 else float("-inf")
    if nearest == 0 and exact < 0:
        nearest = -0.0
    return _step(nearest, (exact > nearest) - (exact < nearest), mode)


def _round_root(nearest: float, of: float, mode: str) -> float:
    if of <= 0:
        return nearest
    exact, square = Fraction(of), Fraction(nearest) ** 2
    return _step(nearest, (exact > square) - (exact < square), mode)


def _step(nearest: float, side: int, mode: str) -> float:
    """Move to the neighbour that a mode asks for; `side` is the sign of exact - nearest."""
    if side > 0 and (mode == "rp" or (mode == "rz" and nearest < 0)):
        return float(np.nextafter(nearest, np.inf))
    if side < 0 and (mode == "rm" or (mode == "rz" and nearest > 0)):
        return float(np.nextafter(nearest, -np.inf))
    return nearest


def fma(a: Array, b: Array, c: Array) -> Array:
    """Multiply and add with one rounding, to nearest."""
    if a.dtype == np.float64:
        return _fma_64(a, b, c)
    if a.dtype != np.float32:
        return fma_odd(wide(a), wide(b), wide(c)).astype(a.dtype)
    total = wide(a) * wide(b)  # exact
    total = np.asarray(total + wide(c))
    result: Array = total.astype(np.float32)
    doubtful = _are_doubtful(total, result)
    if doubtful is not None:
        parts = (wide(np.broadcast_to(x, result.shape)[doubtful]) for x in (a, b, c))
        result[doubtful] = fma_odd(*parts).astype(np.float32)
    return result


_TAIL, _HALF = (1 << 29) - 1, 1 << 28
"""The bits of a float64 that a float32 of normal size lacks, and those of a value in the middle of two float32."""

_SMALLEST_TWICE = 1 << 24
"""Bits of the smallest normal float32, without the sign's place."""


def _are_doubtful(total: Array, result: Array) -> Array | None:
    """Tell where sums, rounded to float64 and then to float32, may be wrong; None if they are right everywhere.

    The first rounding can move a sum onto the middle of two float32, and to no other side of it. Of subnormal values
    the middles are elsewhere: all of them are doubtful. A sum of 0 is exact.
    """
    in_the_middle = (total.view(np.int64) & _TAIL) == _HALF
    small = (result.view(np.uint32) << np.uint32(1)) <= _SMALLEST_TWICE
    if small.any():
        in_the_middle |= small & (total != 0)
    return in_the_middle if in_the_middle.any() else None


def _fma_64(a: Array, b: Array, c: Array) -> Array:
    a, b, c = np.broadcast_arrays(a, b, c)
    product = a * b
    error = product_error(a, b, product)
    t = c + error
    t_error = sum_error(c, error, t)
    v = product + t
    z = add_odd(t_error, sum_error(product, t, v))
    result = v + z
    exponents = [np.abs(np.frexp(x)[1]) for x in (a, b, c)]
    safe = (exponents[0] < _SAFE_EXPONENT) & (exponents[1] < _SAFE_EXPONENT) & (exponents[2] < _SAFE_EXPONENT)
    safe &= np.isfinite(a) & np.isfinite(b) & np.isfinite(c) & (product != 0) & (c != 0) & (result != 0)
    if not safe.all():
        result = np.array(result)
        result[~safe] = _lane_by_lane("fma", "rn", a[~safe], b[~safe], c[~safe])
    kept_high: Array = result
    return kept_high


def float_to_int(a: Array, kind: str, rounding: str) -> Array:
    """Round to an integral value and clamp to the type.

    A NaN becomes 0, or with float64 on either side or a 64-bit integer, the integer with only the top bit set.
    """
    rounded = round_to_integral(wide(a), rounding)
    info = np.iinfo(kind)
    low, high = float(info.min), float(info.max)
    nan = np.isnan(rounded)
    inside = np.where((rounded > low) & (rounded < high), rounded, 0.0).astype(kind)
    result = np.where(rounded <= low, info.min, np.where(rounded >= high, info.max, inside)).astype(kind)
    if nan.any():
        top = a.dtype == np.float64 or info.bits == 64
        lost = np.array(1 << (info.bits - 1) if top else 0, f"u{info.bits // 8}").astype(kind)
        result = np.where(nan, lost, result)
    return result


def round_to_integral(a: Array, rounding: str) -> Array:
    """Round to an integral value of the same type."""
    return {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[rounding](a).astype(a.dtype)


def from_int(a: Array, kind: str, mode: str) -> Array:
    """Convert an integer to float32 or float64, or to float64 rounded to odd for a narrower type ("odd")."""
    if a.dtype.itemsize < 8:
        exact = a.astype(np.float64)
        return exact if kind in ("f8", "odd") else round_to(exact, kind, mode)
    if mode == "rn" and kind != "odd":
        return a.astype(kind)
    if kind == "f8":
        return _int_to_float64(a, mode)
    negative = a < 0
    magnitude = np.where(negative, -a.view(np.uint64), a.view(np.uint64)) if a.dtype.kind == "i" else a
    # Eleven bits less leave what float64 holds; whether they were zero is kept in the last bit.
    low = np.uint64(0x7FF)
    sticky = np.where(magnitude & low, np.uint64(0x800), np.uint64(0))
    kept = np.where(magnitude >> np.uint64(53), (magnitude & ~low) | sticky, magnitude).astype(np.float64)
    odd = np.where(negative, -kept, kept)
    return odd if kind == "odd" else round_to(odd, kind, mode)


def _int_to_float64(a: Array, mode: str) -> Array:
    result = np.empty(a.shape, np.float64)
    for position in np.ndindex(a.shape):
        result[position] = round_fraction(Fraction(int(a[position])), mode)
    return result


_LARGE_DIVISOR = np.float32(2.0**126)
_TURNS = float(np.float32(1 / (2 * np.pi)))


def div_approx(a: Array, b: Array, full: bool, flushes: bool) -> Array:
    """Multiply by a reciprocal, as div.approx and div.full do, scaled where it would be lost.

    The steps are those of ptxas' code for sm_90. Without scaling, a divisor above 2**126 has a reciprocal of 0.
    """
    scale = np.ones_like(b)
    if full:
        scale = np.where(np.abs(b) > _LARGE_DIVISOR, np.float32(0.25), scale)
    if flushes:
        factors = flush(rcp(flush(b * scale))), flush(a * scale)
        return flush_tiny(factors[0] * factors[1], "mul", "rn", *factors)
    scale = np.where(np.abs(b) < np.float32(SMALLEST_NORMAL[b.dtype]), np.float32(2.0**24), scale)
    quotient: Array = flush(rcp(b * scale)) * (a * scale)
    return quotient


def ex2(a: Array) -> Array:
    """2 to a power."""
    return np.exp2(wide(a)).astype(a.dtype)


def lg2(a: Array) -> Array:
    """Logarithm to base 2."""
    return np.log2(wide(a)).astype(a.dtype)


def rcp(a: Array) -> Array:
    """Reciprocal."""
    return (1.0 / wide(a)).astype(a.dtype)


def rsqrt(a: Array) -> Array:
    """Reciprocal square root."""
    return (1.0 / np.sqrt(wide(a))).astype(a.dtype)


def high_word(a: Array) -> Array:
    """Keep the upper 32 bits of float64, and flush subnormals (rcp.approx.ftz.f64, rsqrt.approx.ftz.f64).

    The instructions read and write these bits alone; the NaN that they write is as measured on an H200.
    """
    kept = np.ascontiguousarray(flush(a)).view(np.uint64) & np.uint64(0xFFFFFFFF00000000)
    return np.where(np.isnan(a), np.uint64(0x7FFFFFFF00000000), kept).view(np.float64)


def upper_part(a: Array) -> Array:
    """Return the values of the upper 32 bits of float64; subnormals are flushed."""
    return (np.ascontiguousarray(flush(a)).view(np.uint64) & np.uint64(0xFFFFFFFF00000000)).view(np.float64)


def tanh(a: Array) -> Array:
    """Hyperbolic tangent."""
    return np.tanh(wide(a)).astype(a.dtype)


def sine(a: Array) -> Array:
    """Sine, of an angle whose number of turns is first rounded towards zero, as ptxas' code for sm_90 does."""
    return np.sin(_angle(a)).astype(a.dtype)


def cosine(a: Array) -> Array:
    """Cosine, likewise."""
    return np.cos(_angle(a)).astype(a.dtype)


def _angle(a: Array) -> Array:
    turns = wide(round_to(wide(a) * _TURNS, np.float32, "rz"))
    return 2 * np.pi * np.fmod(turns, 1)
