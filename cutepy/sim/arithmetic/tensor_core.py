"""Sums of products in Hopper's tensor cores, bit for bit, for one wgmma instruction.

The PTX ISA leaves the order and the rounding open ("at least single precision"). These rules were found by probing an
H200, and reproduce each of its results that `tests/sim/hardware` records:

- The products of one instruction and the accumulator are aligned to the largest exponent among them, where a product's
  is the sum of its operands' exponents, and cut off towards zero `fraction` bits below it: 25 bits, with 8-bit floats
  13. What is left is summed exactly. Subnormal numbers have the exponent of the least normal one; terms are never
  aligned to less than 2**-133.
- A float32 sum is cut off towards zero to 24 significant bits, with 8-bit floats to 14; what is cut off to zero is +0.
  An f16 sum is rounded to nearest even, once.

References
----------
PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions: wgmma.mma_async", on precision.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_EIGHT_BITS = ("e4m3", "e5m2")
_NONE = -(1 << 14)
"""An exponent that is below all others, also when another one is added."""
_LEAST_NORMAL = {"f16": -14, "bf16": -126, "tf32": -126, "e4m3": -6, "e5m2": -14, "f32": -126}
_LEAST_ALIGNMENT = -133
_LOWEST_F32 = -149


def multiply_accumulate(a: Array, b: Array, c: Array, kinds: tuple[str, str], d: str) -> Array:
    """Return C + A B^T of one instruction.

    Parameters
    ----------
    a, b : array of float32, (..., M, K) and (..., N, K)
        Values of the operands' types.
    c : array of float32, (..., M, N)
        Values of the accumulators' type.
    kinds : (str, str)
        PTX types of A and B: "f16", "bf16", "tf32", "e4m3" or "e5m2".
    d : str
        PTX type of the accumulators: "f32" or "f16".

    Returns
    -------
    array of float32, (..., M, N)
    """
    fraction, kept = (13, 14) if kinds[0] in _EIGHT_BITS else (25, 24)
    least = tuple(_LEAST_NORMAL[kind] for kind in (*kinds, d))
    shape = np.broadcast_shapes(a.shape[:-2], b.shape[:-2], c.shape[:-2])
    a, b, c = (np.broadcast_to(x, shape + x.shape[-2:]) for x in (a, b, c))
    result = np.empty(c.shape, np.float32)
    for at in np.ndindex(shape):
        terms = (a[at].astype(np.float64), b[at].astype(np.float64), c[at].astype(np.float64))
        total = _sum(*terms, fraction, least)
        result[at] = total.astype(np.float16) if d == "f16" else _cut_off(total, kept)
    return result


def _sum(a: Array, b: Array, c: Array, fraction: int, least: tuple[int, ...]) -> Array:
    """Return the exact sum of aligned terms; infinities and NaNs among them decide the result.

    `least` has the exponents of the least normal numbers of the types of A, B and C.
    """
    products = a[:, None, :] * b[None, :, :]
    largest = (_exponent(a, least[0])[:, None, :] + _exponent(b, least[1])[None, :, :]).max(axis=-1)
    largest = np.maximum(largest, _exponent(c, least[2]))
    scale = np.ldexp(1.0, fraction - np.maximum(largest, _LEAST_ALIGNMENT))
    total: Array = np.trunc(np.multiply(products, scale[..., None], out=products), out=products).sum(axis=-1)
    total = (total + np.trunc(c * scale)) / scale
    if np.isfinite(total).all():
        return total
    plain = a @ b.T + c
    return np.where(np.isfinite(plain), total, plain)


def _exponent(values: Array, least: int) -> Array:
    exponent = np.maximum(np.frexp(values)[1].astype(np.int16) - np.int16(1), np.int16(least))
    return np.where(values == 0, np.int16(_NONE), exponent)


def _cut_off(values: Array, bits: int) -> Array:
    """Cut float64 off towards zero, to some significant bits of float32."""
    exponent = np.maximum(np.frexp(values)[1] - bits, _LOWEST_F32)
    result: Array = np.ldexp(np.trunc(np.ldexp(values, -exponent)), exponent).astype(np.float32)
    return result + np.float32(0)  # -0 becomes +0
