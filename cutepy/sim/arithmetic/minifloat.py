"""bf16, tf32, and floats of 8, 6 and 4 bits, as bit patterns.

References
----------
PTX ISA, "Alternate Floating-Point Data Formats" and "cvt". OCP Microscaling Formats (MX) Specification 1.0, of e2m3,
e3m2, e2m1 and ue8m0 (E8M0).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutepy.sim.arithmetic.floats import round_to

Array = NDArray[Any]

_TF32 = np.uint32(0xFFFFE000)
EXPONENT_BITS = {"e4m3": 4, "e5m2": 5, "e2m3": 2, "e3m2": 3, "e2m1": 2}
MANTISSA_BITS = {"e4m3": 3, "e5m2": 2, "e2m3": 3, "e3m2": 2, "e2m1": 1}
LARGEST = {"e4m3": 0x7E, "e5m2": 0x7B, "e2m3": 0x1F, "e3m2": 0x1F, "e2m1": 0x07}
"""The pattern of the largest number of each format."""


PLACES = {"e2m1": 2, "e2m3": 0, "e3m2": 0}
"""First bit of a float of 6 or 4 bits that has a byte of its own, in registers and in tensor memory."""


def from_bytes(codes: Array, name: str) -> Array:
    """Widen floats of 6 or 4 bits, of which each has a byte."""
    return to_f32(codes >> np.uint8(PLACES[name]), name)


def scales_to_f32(codes: Array, name: str) -> Array:
    """Widen scale factors, "ue8m0" or "ue4m3", given as uint8: the latter have no sign."""
    return table("ue8m0")[codes] if name == "ue8m0" else np.abs(table("e4m3")[codes])


def unpacked(data: Array, bits: int) -> Array:
    """Return the elements of 4 or 6 bits along the last axis of bytes.

    Examples
    --------
    >>> unpacked(np.uint8([[0x21, 0x43]]), 4).tolist(), unpacked(np.uint8([[0b11000001, 0b10000, 0]]), 6).tolist()
    ([[1, 2, 3, 4]], [[1, 3, 1, 0]])
    """
    ones = np.unpackbits(data, axis=-1, bitorder="little")
    whole = ones.shape[-1] // bits * bits
    parts = ones[..., :whole].reshape(*data.shape[:-1], -1, bits)
    return np.packbits(parts, axis=-1, bitorder="little")[..., 0]


@cache
def _f16_values() -> Array:
    values = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    values.flags.writeable = False
    return values


def f16_to_f32(bits: Array) -> Array:
    """Widen f16, given as uint16: by a table, which takes half as long as numpy's conversion."""
    return np.take(_f16_values(), bits)


def bf16_to_f32(bits: Array) -> Array:
    """Widen bf16, given as uint16."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def f32_to_bf16(value: Array, rounding: str = "rn") -> Array:
    """Round to bf16, as uint16: to nearest even ("rn"), or as "rz", "rm", "rp" say; NaNs are canonical."""
    bits = np.ascontiguousarray(value).view(np.uint32)
    if rounding == "rn":
        rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    elif rounding == "rz":
        rounded = bits
    else:
        away = np.signbit(value) == (rounding == "rm")
        rounded = np.where(away, bits + np.uint32(0xFFFF), bits)
    result = (rounded >> np.uint32(16)).astype(np.uint16)
    if not np.isfinite(value).all():
        result = np.where(np.isinf(value), (bits >> np.uint32(16)).astype(np.uint16), result)
        result = np.where(np.isnan(value), np.uint16(0x7FFF), result)
    return result


def to_bf16(value: Array, rounding: str = "rn") -> Array:
    """Round float32 or float64 to bf16, as uint16, once."""
    if value.dtype == np.float32:
        return f32_to_bf16(value, rounding)
    single = np.ascontiguousarray(value.astype(np.float32))
    back = single.astype(np.float64)
    bits = single.view(np.uint32)
    # To odd: the last bit then says that there was more.
    inexact = (back != value) & ~np.isnan(value)
    step = np.where(np.abs(value) > np.abs(back), np.uint32(1), np.uint32(0xFFFFFFFF))
    odd = np.where(inexact & ((bits & np.uint32(1)) == 0), bits + step, bits)
    return f32_to_bf16(odd.view(np.float32), rounding)


def to_f16(value: Array, rounding: str = "rn") -> Array:
    """Round float32 or float64 to f16, as uint16, once; NaNs are canonical."""
    bits: Array = round_to(value, np.float16, rounding).view(np.uint16)
    nan = np.isnan(value)
    return np.where(nan, np.uint16(0x7FFF), bits) if nan.any() else bits


def f32_to_tf32(value: Array, rounding: str = "rna") -> Array:
    """Round to tf32, as uint32: to nearest with ties away from zero ("rna"), to even ("rn") or towards zero ("rz").

    NaNs are as measured on an H200: cut off by "rna", canonical but for the low bits else.
    """
    bits = np.ascontiguousarray(value).view(np.uint32)
    if rounding == "rna":
        rounded = bits + np.uint32(0x1000)
    elif rounding == "rn":
        rounded = bits + np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))
    else:
        rounded = bits
    result = np.where(np.isinf(value), bits, rounded & _TF32)
    return np.where(np.isnan(value), (bits if rounding == "rna" else np.uint32(0x7FFFFFFF)) & _TF32, result)


def finite_tf32(code: Array, rounding: str = "rna") -> Array:
    """Return the largest finite tf32 in place of infinities (.satfinite); NaNs stay, but for those rounded by "rna".

    Of them the pattern before comes, as ptxas' code for sm_90 makes it on an H200.
    """
    size = code & np.uint32(0x7FFFFFFF)
    is_changed = size >= np.uint32(0x7F800000) if rounding == "rna" else size == np.uint32(0x7F800000)
    return np.where(is_changed, code - np.uint32(0x2000), code)


def keep_nan(code: Array, value: Array, name: str) -> Array:
    """Let NaNs of float64 keep their sign and upper bits as f16 or bf16, given as uint16 (measured on an H200)."""
    bits = np.ascontiguousarray(value).view(np.uint64)
    quiet, shift = (0x7E00, 42) if name == "f16" else (0x7FC0, 45)
    kept = (bits >> np.uint64(shift)).astype(np.uint16) & np.uint16(0x7FFF) | np.uint16(quiet)
    negative = np.where(np.signbit(value), np.uint16(0x8000), np.uint16(0))
    return np.where(np.isnan(value), kept | negative, code)


@cache
def table(name: str) -> Array:
    """Return the float32 value of each pattern of "e4m3", "e5m2", "e2m3", "e3m2", "e2m1" or "ue8m0".

    Examples
    --------
    >>> table("e4m3")[0x7E], table("e5m2")[0x7B], table("ue8m0")[0]
    (np.float32(448.0), np.float32(57344.0), np.float32(5.877472e-39))
    >>> table("e2m1")[:8].tolist()
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    """
    if name == "ue8m0":
        return _scales()
    exponent_bits, mantissa_bits = EXPONENT_BITS[name], MANTISSA_BITS[name]
    bias = (1 << exponent_bits - 1) - 1
    code = np.arange(1 << 1 + exponent_bits + mantissa_bits)
    sign = np.where(code >= len(code) // 2, -1.0, 1.0)
    exponent, mantissa = code >> mantissa_bits & (1 << exponent_bits) - 1, code & (1 << mantissa_bits) - 1
    fraction = mantissa / (1 << mantissa_bits)
    value = np.where(exponent == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (exponent - bias))
    if name == "e4m3":
        value = np.where(code & 0x7F == 0x7F, np.nan, value)
    elif name == "e5m2":
        special = exponent == 31
        value = np.where(special, np.where(mantissa == 0, np.inf, np.nan), value)
    result = (sign * value).astype(np.float32)
    result.flags.writeable = False
    return result


def _scales() -> Array:
    """Return the powers of two of "ue8m0", of which the last pattern is a NaN."""
    result = np.append(np.ldexp(1.0, np.arange(255) - 127), np.nan).astype(np.float32)
    result.flags.writeable = False
    return result


def to_f32(code: Array, name: str) -> Array:
    """Widen a float of 8, 6 or 4 bits, given as the low bits of uint8."""
    values = table(name)
    return np.take(values, code & (len(values) - 1))


def from_f32(value: Array, name: str) -> Array:
    """Round to a signed float of 8, 6 or 4 bits, as uint8: to nearest even, clamped to the largest number (.satfinite).

    A NaN becomes the positive NaN of 8 bits, and the largest number of 6 and 4 bits, which have none.
    """
    positive = table(name)[: len(table(name)) // 2].astype(np.float64)
    largest = LARGEST[name]
    magnitude = np.abs(value.astype(np.float64))
    above = np.minimum(np.searchsorted(positive, magnitude, side="left"), largest)
    below = np.maximum(above - 1, 0)
    to_above, to_below = positive[above] - magnitude, magnitude - positive[below]
    up = (to_above < to_below) | ((to_above == to_below) & (above % 2 == 0))
    code = np.where(up | (magnitude >= positive[largest]), above, below).astype(np.uint8)
    code = np.where(np.isnan(value), np.uint8(len(positive) - 1), code)
    return code | np.where(np.signbit(value) & ~np.isnan(value), np.uint8(len(positive)), np.uint8(0))


def to_numbers(bits: Array, kind: str) -> Array:
    """Return float32 values of elements given as bits."""
    if kind == "f16":
        return f16_to_f32(bits)
    if kind == "bf16":
        return bf16_to_f32(bits)
    if kind == "tf32":
        return (bits & _TF32).view(np.float32)
    if kind in ("e4m3", "e5m2"):
        return table(kind)[bits]
    return (bits.view(np.int8) if kind == "s8" else bits).astype(np.float32)
