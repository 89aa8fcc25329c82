"""bf16, tf32, e4m3 and e5m2 as bit patterns.

References
----------
PTX ISA, "Alternate Floating-Point Data Formats" and "cvt".
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def bf16_to_f32(bits: Array) -> Array:
    """Widen bf16, given as uint16."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def f32_to_bf16(value: Array, rounding: str = "rn") -> Array:
    """Round to bf16, as uint16: to nearest even ("rn") or towards zero ("rz")."""
    bits = np.ascontiguousarray(value).view(np.uint32)
    if rounding == "rz":
        rounded = bits
    else:
        rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    result = (rounded >> np.uint32(16)).astype(np.uint16)
    nan = np.isnan(value)
    return np.where(nan, np.uint16(0x7FFF), result) if nan.any() else result


def f32_to_tf32(value: Array) -> Array:
    """Round to tf32, to nearest with ties away from zero (cvt.rna), as uint32."""
    bits = np.ascontiguousarray(value).view(np.uint32)
    rounded = (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(value), rounded, bits)


@cache
def table(name: str) -> Array:
    """Return the float32 value of each of the 256 patterns of "e4m3" or "e5m2".

    Examples
    --------
    >>> table("e4m3")[0x7E], table("e5m2")[0x7B]
    (np.float32(448.0), np.float32(57344.0))
    """
    exponent_bits, bias = (4, 7) if name == "e4m3" else (5, 15)
    mantissa_bits = 7 - exponent_bits
    code = np.arange(256)
    sign = np.where(code & 0x80, -1.0, 1.0)
    exponent, mantissa = code >> mantissa_bits & (1 << exponent_bits) - 1, code & (1 << mantissa_bits) - 1
    fraction = mantissa / (1 << mantissa_bits)
    value = np.where(exponent == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (exponent - bias))
    if name == "e4m3":
        value = np.where(code & 0x7F == 0x7F, np.nan, value)
    else:
        special = exponent == 31
        value = np.where(special, np.where(mantissa == 0, np.inf, np.nan), value)
    result = (sign * value).astype(np.float32)
    result.flags.writeable = False
    return result


def to_f32(code: Array, name: str) -> Array:
    """Widen e4m3 or e5m2, given as uint8."""
    return table(name)[code]


def from_f32(value: Array, name: str) -> Array:
    """Round to e4m3 or e5m2 to nearest even, clamped to the largest finite value (.satfinite), as uint8."""
    positive = table(name)[:128].astype(np.float64)
    largest = 0x7E if name == "e4m3" else 0x7B
    finite = positive[: largest + 1]
    magnitude = np.abs(value.astype(np.float64))
    above = np.searchsorted(finite, magnitude, side="left").clip(0, largest)
    below = np.maximum(above - 1, 0)
    to_above, to_below = finite[above] - magnitude, magnitude - finite[below]
    up = (to_above < to_below) | ((to_above == to_below) & (above % 2 == 0))
    code = np.where(up | (magnitude >= finite[largest]), above, below).astype(np.uint8)
    code = np.where(np.isnan(value), np.uint8(0x7F), code)
    return code | np.where(np.signbit(value) & ~np.isnan(value), np.uint8(0x80), np.uint8(0))
