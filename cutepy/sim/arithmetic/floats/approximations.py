"""Approximate instructions: computed in float64 and rounded once, within the error that the PTX ISA states."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutepy.sim.arithmetic.floats.round_to_odd import wide
from cutepy.sim.arithmetic.floats.rounding import round_to
from cutepy.sim.arithmetic.floats.special_values import SMALLEST_NORMAL, flush, flush_tiny

Array = NDArray[Any]

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
