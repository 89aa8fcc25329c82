"""How Hopper's tensor cores sum the products of one wgmma instruction, bit for bit.

The PTX ISA leaves the order and the rounding open ("at least single precision"). These rules were found by probing an
H200, and reproduce each of its results that `tests/sim/hardware` records:

- The products of one instruction and the accumulator are aligned to the largest exponent among them, where a product's
  is the sum of its operands' exponents, and cut off towards zero `fraction` bits below it: 25 bits, with 8-bit floats
  13. What is left is summed exactly.
- A float32 sum is cut off towards zero to 24 significant bits, with 8-bit floats to 14. An f16 sum is rounded to
  nearest even, once.

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
_LOWEST_F32 = -149


def multiply_accumulate(a: Array, b: Array, c: Array, kind: str, d: str) -> Array:
    """Return C + A B^T of one instruction.

    Parameters
    ----------
    a, b : array of float32, (..., M, K) and (..., N, K)
        Values of the operands' types.
    c : array of float32, (..., M, N)
        Values of the accumulators' type.
    kind : str
        PTX type of A: "f16", "bf16", "tf32", "e4m3" or "e5m2".
    d : str
        PTX type of the accumulators: "f32" or "f16".

    Returns
    -------
    array of float32, (..., M, N)
    """
    fraction, kept = (13, 14) if kind in _EIGHT_BITS else (25, 24)
    shape = np.broadcast_shapes(a.shape[:-2], b.shape[:-2], c.shape[:-2])
    a, b, c = (np.broadcast_to(x, shape + x.shape[-2:]) for x in (a, b, c))
    result = np.empty(c.shape, np.float32)
    for at in np.ndindex(shape):
        total = _sum(a[at].astype(np.float64), b[at].astype(np.float64), c[at].astype(np.float64), fraction)
        result[at] = total.astype(np.float16) if d == "f16" else _cut_off(total, kept)
    return result


def _sum(a: Array, b: Array, c: Array, fraction: int) -> Array:
    """Return the exact sum of aligned terms; where there are infinities and NaNs, what they make of it."""
    products = a[:, None, :] * b[None, :, :]
    largest = (_exponent(a)[:, None, :] + _exponent(b)[None, :, :]).max(axis=-1)
    largest = np.maximum(largest, _exponent(c))
    scale = np.ldexp(1.0, np.where(largest < _NONE // 2, 0, fraction - largest))
    total: Array = np.trunc(np.multiply(products, scale[..., None], out=products), out=products).sum(axis=-1)
    total = (total + np.trunc(c * scale)) / scale
    if np.isfinite(total).all():
        return total
    plain = a @ b.T + c
    return np.where(np.isfinite(plain), total, plain)


def _exponent(values: Array) -> Array:
    exponent = np.frexp(values)[1].astype(np.int16)
    return np.where(values == 0, np.int16(_NONE), exponent - np.int16(1))


def _cut_off(values: Array, bits: int) -> Array:
    """Cut float64 off towards zero, to some significant bits of float32."""
    exponent = np.maximum(np.frexp(values)[1] - bits, _LOWEST_F32)
    result: Array = np.ldexp(np.trunc(np.ldexp(values, -exponent)), exponent).astype(np.float32)
    return result
