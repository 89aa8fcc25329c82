"""Operations rounded once, in any direction, to float32, float64 and narrower types.

References
----------
PTX ISA, "Floating Point Instructions", "Rounding Modifiers".
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutepy.sim.arithmetic.floats.round_to_odd import ODD, add_odd, fma_odd, product_error, sum_error, wide

Array = NDArray[Any]

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
