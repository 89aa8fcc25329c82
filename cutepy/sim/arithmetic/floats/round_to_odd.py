"""float64 rounded to odd, which a second rounding, in any direction and to any type of at most 51 bits, does not spoil.

References
----------
Boldo and Melquiond: "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd". Dekker: "A
Floating-Point Technique for Extending the Available Precision", of the errors that sums and products leave.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

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
