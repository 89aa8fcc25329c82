"""wgmma beyond small integers: how the tensor core sums and rounds, infinities and NaNs, bits that tf32 ignores.

The simulator sums as the hardware does (`cutepy.sim.arithmetic.tensor_core`), so that all of it is equal bit for bit.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tests.sim.hardware.corpus import Case
from tests.sim.test_opcodes_wgmma import BYTES, multiply

M = 64
_MANTISSA = {"f16": 10, "bf16": 7, "tf32": 10, "e4m3": 3, "e5m2": 2}
_LOWEST = {"e4m3": -6, "e5m2": -14, "f16": -14, "bf16": -126, "tf32": -126}


def _rounded(values: np.ndarray[Any, Any], kind: str) -> np.ndarray[Any, Any]:
    """Round float64 to a type's normal numbers, as float32: what underflows becomes 0."""
    mantissa, exponent = np.frexp(values)
    scale = 2.0 ** (_MANTISSA[kind] + 1)
    result = np.ldexp(np.rint(mantissa * scale) / scale, exponent)
    return np.where(np.abs(result) < 2.0 ** _LOWEST[kind], 0, result).astype(np.float32)


def _k(kind: str) -> int:
    return 128 // BYTES[kind]


def _random(d: str, a: str, b: str, source: str, n: int) -> None:
    """Normal values; four instructions, so that accumulators are rounded between them."""
    rng = np.random.default_rng(list(f"{d}{a}{b}".encode()))
    matrices = _rounded(rng.normal(size=(M, _k(a))), a), _rounded(rng.normal(size=(n, _k(b))), b)
    multiply(d, a, b, n, source, matrices=matrices)


def _wide_range(d: str, a: str, b: str) -> None:
    """Values of many magnitudes, whose sums lose what lies below the accumulator."""
    rng = np.random.default_rng(list(f"wide{d}{a}{b}".encode()))
    low, high = (-6, 7) if "e4m3" in (a, b) else (-10, 8)
    if d == "f16":
        low, high = -4, 4

    def draw(rows: int, kind: str) -> np.ndarray[Any, Any]:
        values = rng.normal(size=(rows, _k(kind))) * 2.0 ** rng.integers(low, high, (rows, _k(kind)))
        return _rounded(np.clip(values, -448, 448), kind)

    multiply(d, a, b, 8, matrices=(draw(M, a), draw(8, b)))


def _probe(d: str, a: str, place: int) -> None:
    """Add a product that is 1.5 * 2**-i of another one, i from 0 to 63, of either sign: each row is one i.

    The first row that loses the small product tells how many bits are kept, and its values how the rest is cut.
    """
    k = _k(a)
    low, high = max(_LOWEST[a], -30), {"e4m3": 8, "e5m2": 15, "f16": 15}.get(a, 30)
    matrix_a, matrix_b = np.zeros((M, k), np.float32), np.zeros((8, k), np.float32)
    columns = np.arange(8)
    # Column n has the large product and the small one with the signs of its two low bits, and 2**-(span * n // 4).
    span = high - low
    steps = np.minimum(np.arange(M), span)
    matrix_a[:, 0], matrix_a[:, place] = 2.0**high, 2.0 ** (high - steps)
    matrix_b[:, 0] = np.where(columns & 1, -1, 1) * 2.0 ** (high - 1)
    matrix_b[:, place] = np.where(columns & 2, -1, 1) * 1.5 * 2.0 ** (high - 1 - np.where(columns & 4, span // 2, 0))
    multiply(d, a, a, 8, matrices=(matrix_a, matrix_b))


def _accumulator_probe(d: str, a: str) -> None:
    """Add products to accumulators that are far larger, of both signs."""
    rng = np.random.default_rng(list(f"start{d}{a}".encode()))
    sign = np.where(rng.random((M, 16)) < 0.5, 1, -1)
    start = sign * (rng.integers(1, 2048, (M, 16)) if d == "f16" else rng.integers(1, 1 << 12, (M, 16)) << 12)
    matrices = _rounded(rng.normal(size=(M, _k(a))), a), _rounded(rng.normal(size=(16, _k(a))), a)
    multiply(d, a, a, 16, start=start, matrices=matrices)


def _not_numbers(d: str, a: str) -> None:
    """Infinities and NaNs among the operands."""
    rng = np.random.default_rng(7)
    matrix_a, matrix_b = (rng.integers(-4, 5, (rows, _k(a))).astype(np.float32) for rows in (M, 16))
    matrix_a[3, 5], matrix_a[4, 6], matrix_a[5, 7] = np.inf, -np.inf, np.nan
    matrix_a[6, 1], matrix_a[6, 2] = np.inf, np.inf
    matrix_a[7, 1], matrix_a[7, 20] = np.inf, -np.inf
    matrix_b[2, 5], matrix_b[3, 9], matrix_b[4] = 0, np.inf, np.nan
    multiply(d, a, a, 16, matrices=(matrix_a, matrix_b))


def _low_bits() -> None:
    """tf32 operands whose 13 low bits are set: float32 values as they are."""
    rng = np.random.default_rng(8)
    matrix_a, matrix_b = (rng.integers(-4, 5, (rows, 32)).astype(np.float32) for rows in (M, 16))
    matrix_a.view(np.uint32)[matrix_a != 0] |= np.uint32(0x1FFF)
    multiply("f32", "tf32", "tf32", 16, matrices=(matrix_a, matrix_b))


def _subnormal(d: str, a: str) -> None:
    """Subnormal operands beside normal ones: what exponent their products are aligned by."""
    rng = np.random.default_rng(list(f"subnormal{d}{a}".encode()))

    def draw(rows: int, low: int, high: int) -> np.ndarray[Any, Any]:
        exponent = rng.integers(low, high, (rows, _k(a)))
        least = np.maximum(exponent, _LOWEST[a]) - _MANTISSA[a]
        values = np.rint(np.ldexp(rng.uniform(1, 2, exponent.shape), exponent - least))
        signs = rng.choice([-1, 1], exponent.shape)
        return (signs * np.ldexp(values, least)).astype(np.float32)

    of_a, of_b = EXPONENTS[a]
    if d == "f16":
        of_b = of_b[0], min(of_b[1], 8)
    multiply(d, a, a, 16, matrices=(draw(M, *of_a), draw(16, *of_b)))


def _edges(d: str, a: str, exponent: int) -> None:
    """Sums about the least or the largest number of the accumulators' type."""
    rng = np.random.default_rng(list(f"edges{d}{a}{exponent}".encode()))
    half = exponent // 2
    matrix_a = _rounded(rng.normal(size=(M, _k(a))) * 2.0**half, a)
    matrix_b = _rounded(rng.normal(size=(16, _k(a))) * 2.0 ** (exponent - half), a)
    multiply(d, a, a, 16, matrices=(matrix_a, matrix_b))


def _tiny(d: str, a: str) -> None:
    """Subnormal operands and products: powers of two, so that every sum is exact."""
    k = _k(a)
    matrix_a = np.ldexp(np.float32(1), -(np.arange(M * k).reshape(M, k) % 13) - 12).astype(np.float32)
    matrix_b = np.zeros((8, k), np.float32)
    matrix_b[np.arange(8), np.arange(8)] = 1 if d == "f32" else 2.0**-3
    multiply(d, a, a, 8, matrices=(matrix_a, matrix_b))


TYPES = [("f32", "f16", "f16"), ("f16", "f16", "f16"), ("f32", "bf16", "bf16"), ("f32", "tf32", "tf32")]
TYPES += [(d, a, b) for d in ("f32", "f16") for a, b in (("e4m3", "e4m3"), ("e5m2", "e5m2"), ("e4m3", "e5m2"))]
EXPONENTS = {
    "f16": ((-24, -9), (-14, 14)),
    "bf16": ((-133, -118), (60, 100)),
    "tf32": ((-136, -118), (60, 100)),
    "e4m3": ((-9, -4), (-9, 7)),
    "e5m2": ((-16, -11), (-16, 14)),
}
"""For `_subnormal`: exponents of A, down to the least subnormal, and of B."""


def cases() -> list[Case]:
    """Return the cases of this module."""
    found = []
    for types in TYPES:
        name = ".".join(types)
        for source, n in (("SS", 64), ("RS", 8)):
            found.append(Case(f"wgmma.random.{source}.{name}", partial(_random, *types, source, n)))
        found.append(Case(f"wgmma.magnitudes.{name}", partial(_wide_range, *types)))
    for d, a in (("f32", "f16"), ("f16", "f16"), ("f32", "bf16"), ("f32", "tf32"), ("f32", "e4m3"), ("f32", "e5m2")):
        for place in (1, 9, 50 if BYTES[a] == 1 else 20):
            found.append(Case(f"wgmma.probe{place}.{d}.{a}", partial(_probe, d, a, place)))
    for d, a in (("f32", "f16"), ("f16", "f16"), ("f32", "bf16"), ("f32", "e4m3"), ("f16", "e4m3")):
        found.append(Case(f"wgmma.large_start.{d}.{a}", partial(_accumulator_probe, d, a)))
    for d, a in (("f32", "f16"), ("f16", "f16"), ("f32", "bf16")):
        found.append(Case(f"wgmma.not_numbers.{d}.{a}", partial(_not_numbers, d, a)))
    for d, a in ((d, a) for d, a, b in TYPES if a == b):
        found.append(Case(f"wgmma.subnormal.{d}.{a}", partial(_subnormal, d, a)))
    for d, a, exponent in (("f32", "bf16", 125), ("f32", "tf32", 125), ("f32", "bf16", -150), ("f16", "f16", 13)):
        found.append(Case(f"wgmma.edges{exponent}.{d}.{a}", partial(_edges, d, a, exponent)))
    found += [Case(f"wgmma.tiny.{d}.f16", partial(_tiny, d, "f16")) for d in ("f32", "f16")]
    found.append(Case("wgmma.low_bits.tf32", _low_bits))
    return found
