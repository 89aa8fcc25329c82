"""Operands for instructions: awkward values crossed with each other, and random ones; reference arithmetic on them."""

from __future__ import annotations

import struct
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

KINDS = {"s16": "i2", "u16": "u2", "s32": "i4", "u32": "u4", "s64": "i8", "u64": "u8"}
KINDS |= {"b16": "u2", "b32": "u4", "b64": "u8", "f16": "u2", "bf16": "u2", "f32": "u4", "f64": "u8"}
KINDS |= {"f16x2": "u4", "bf16x2": "u4", "s8": "i1", "u8": "u1"}
FORMATS = {
    "f16": (5, 10),
    "bf16": (8, 7),
    "f32": (8, 23),
    "f64": (11, 52),
    "tf32": (8, 10),
    "e4m3": (4, 3),
    "e5m2": (5, 2),
}
"""Bits of the exponent and of the mantissa."""


def generator(name: str) -> np.random.Generator:
    """Return the random numbers of a test, the same each time."""
    return np.random.default_rng(list(name.encode()))


def integers(kind: str, count: int, name: str, seed: int = 0) -> np.ndarray[Any, Any]:
    """Return integers of a numpy kind: bounds, small ones, powers of two and their neighbours, then random bits."""
    bits = 8 * np.dtype(kind).itemsize
    edges = [
        0,
        1,
        2,
        3,
        7,
        31,
        32,
        33,
        63,
        64,
        255,
        (1 << bits - 1) - 1,
        1 << bits - 1,
        (1 << bits) - 1,
        (1 << bits) - 2,
    ]
    edges += [1 << bits // 2, (1 << bits // 2) - 1]
    rng = generator(f"{name}{kind}{seed}")
    masked = np.array([e & (1 << bits) - 1 for e in edges], f"u{bits // 8}")
    random = rng.integers(0, 2**64 - 1, count, np.uint64, endpoint=True)
    values = np.where(rng.random(count) < 0.4, rng.choice(masked, count), random.astype(f"u{bits // 8}"))
    return values.astype(f"u{bits // 8}").view(kind)


def float_bits(kind: str, count: int, name: str, seed: int = 0) -> np.ndarray[Any, Any]:
    """Return bit patterns of a float format: zeros, subnormals, ones, the largest, infinities, NaNs; random ones."""
    exponent, mantissa = FORMATS[kind]
    one = (1 << exponent - 1) - 1 << mantissa
    top = ((1 << exponent) - 1) << mantissa
    edges = [
        0,
        1,
        2,
        (1 << mantissa) - 1,
        1 << mantissa,
        one,
        one + 1,
        one - 1,
        one + (1 << mantissa - 1),
        top - 1,
        top,
    ]
    edges += [top | 1 << mantissa - 1, top - (1 << mantissa), one + (1 << mantissa)]
    sign = 1 << exponent + mantissa
    rng = generator(f"{name}{kind}{seed}")
    bits = exponent + mantissa + 1
    unsigned = f"u{bits // 8}"
    wide = rng.integers(0, 2**64 - 1, count, np.uint64, endpoint=True) >> np.uint64(64 - bits)
    # Most random numbers are near one, so that sums cancel and products do not overflow.
    near = one + (rng.integers(-12, 12, count) << mantissa) + rng.integers(0, 1 << mantissa, count)
    near = near.astype(np.uint64) | (rng.integers(0, 2, count).astype(np.uint64) << np.uint64(bits - 1))
    edge = rng.choice(np.array([*edges, *(e | sign for e in edges)], np.uint64), count)
    pick = rng.random(count)
    return np.where(pick < 0.3, edge, np.where(pick < 0.75, near, wide)).astype(unsigned)


def aligned(count: int, kind: Any = np.uint8, to: int = 256) -> np.ndarray[Any, Any]:
    """Return zeros at a multiple of some bytes, as memory of a GPU is."""
    size = count * np.dtype(kind).itemsize
    whole = np.zeros(size + to, np.uint8)
    start = -whole.ctypes.data % to
    return whole[start : start + size].view(kind)


@cache
def power_of_two(exponent: int) -> Fraction:
    """Return 2**exponent."""
    return Fraction(2) ** exponent


def value_of(bits: int, kind: str) -> Fraction | float:
    """Return the number that a bit pattern stands for: a fraction, or a float for -0, infinities and NaN."""
    exponent_bits, mantissa_bits = FORMATS[kind]
    sign = bits >> exponent_bits + mantissa_bits & 1
    exponent = bits >> mantissa_bits & (1 << exponent_bits) - 1
    mantissa = bits & (1 << mantissa_bits) - 1
    bias = (1 << exponent_bits - 1) - 1
    if kind == "e4m3" and bits & 0x7F == 0x7F:
        return float("nan")
    if exponent == (1 << exponent_bits) - 1 and kind != "e4m3":
        return float("nan") if mantissa else float("-inf" if sign else "inf")
    if exponent == 0:
        magnitude = mantissa * power_of_two(1 - bias - mantissa_bits)
    else:
        magnitude = (mantissa + (1 << mantissa_bits)) * power_of_two(exponent - bias - mantissa_bits)
    if magnitude == 0 and sign:
        return -0.0
    return -magnitude if sign else magnitude


def round_bits(exact: Fraction | float, kind: str, mode: str = "rn") -> int:
    """Round a number to a format, in integers: the bit pattern, the canonical one for a NaN."""
    exponent_bits, mantissa_bits = FORMATS[kind]
    total = exponent_bits + mantissa_bits
    infinity = ((1 << exponent_bits) - 1) << mantissa_bits
    if isinstance(exact, float):
        if exact != exact:
            return (1 << total) - 1
        if exact in (float("inf"), float("-inf")):
            return infinity | (1 << total if exact < 0 else 0)
        if exact == 0:
            return 1 << total if struct.pack("<d", exact)[7] & 0x80 else 0
        exact = Fraction(exact)
    sign, magnitude = int(exact < 0), abs(exact)
    if magnitude == 0:
        return 0
    bias = (1 << exponent_bits - 1) - 1
    exponent = max(magnitude.numerator.bit_length() - magnitude.denominator.bit_length() - 1, 1 - bias)
    while magnitude >= power_of_two(exponent + 1):
        exponent += 1
    places = mantissa_bits - exponent
    numerator, denominator = magnitude.numerator << max(places, 0), magnitude.denominator << max(-places, 0)
    low, rest = divmod(numerator, denominator)
    up = {
        "rn": 2 * rest > denominator or (2 * rest == denominator and low & 1 == 1),
        "rna": 2 * rest >= denominator,
        "rz": False,
        "rm": bool(sign and rest),
        "rp": bool(not sign and rest),
    }[mode]
    code = low + up + ((exponent + bias - 1) << mantissa_bits)
    if code >= infinity:
        away = mode in ("rn", "rna") or (mode == "rm" and sign) or (mode == "rp" and not sign)
        code = infinity if away else infinity - 1
    return code | sign << total


def is_nan(bits: int, kind: str) -> bool:
    """Tell whether a bit pattern is a NaN."""
    value = value_of(bits, kind)
    return isinstance(value, float) and value != value


def flushed(bits: int, kind: str) -> int:
    """Return a bit pattern, a zero of its sign if it is subnormal."""
    exponent_bits, mantissa_bits = FORMATS[kind]
    if bits >> mantissa_bits & (1 << exponent_bits) - 1 == 0:
        return bits & 1 << exponent_bits + mantissa_bits
    return bits


def assert_same_bits(got: np.ndarray[Any, Any], expected: list[int], kind: str, inputs: Any = ()) -> None:
    """Compare float bit patterns; any NaN is as good as another."""
    for n, (x, y) in enumerate(zip(got.tolist(), expected, strict=True)):
        if x != y and not (is_nan(x, kind) and is_nan(y, kind)):
            operands = [hex(int(i[n])) for i in inputs]
            raise AssertionError(f"lane {n}: {operands} gave {x:#x}, expected {y:#x}")
