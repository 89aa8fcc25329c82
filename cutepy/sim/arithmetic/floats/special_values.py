"""NaNs, subnormals, zeros and limits: effects of PTX's modifiers on results (.ftz, .sat, .relu, .NaN, .xorsign).

References
----------
PTX ISA, "Floating Point Instructions", "Half Precision Floating Point Instructions".
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutepy.sim.arithmetic.floats.round_to_odd import ODD, wide
from cutepy.sim.arithmetic.floats.rounding import round_to

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
