"""Conversion between floats and integers, and rounding of floats to integral values.

References
----------
PTX ISA, "cvt".
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutepy.sim.arithmetic.floats.round_to_odd import wide
from cutepy.sim.arithmetic.floats.rounding import round_fraction, round_to

Array = NDArray[Any]


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
