"""Structured sparsity: matrices of which half the elements are zero, and the metadata that says which are kept.

Of each chunk of elements along K half are kept, and their places in it are 4 bits of metadata, lowest first: two
numbers of 2 bits, of 4 elements; of tf32 one of 4 bits, of 2 elements; of 4-bit elements two of 2 bits, of 4 pairs.
A row's metadata are 16 bits for 4 chunks; the words of 32 bits that the lanes of a quad give are laid out so that, of
8- and 4-bit elements, each has one row, and of others each has two rows' 16 bits.

A metadata value that names one place twice, which the ISA leaves undefined, adds both elements up there.

References
----------
PTX ISA, "Sparse matrix storage", "Matrix fragments for sparse mma"; of wgmma.mma_async.sp, "Sparse matrix storage" and
"Matrix fragments for sparse wgmma", where each warp has 16 of the 64 rows as in mma.sp. CuTe
``atom/mma_traits_sm90_gmma_sparse.hpp``, ``ELayout_64x64``, ``ELayout_64x32`` and ``ELayout_64x16``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_CHUNK = {"tf32": 2, "s4": 8, "u4": 8}
_OF_A_CHUNK = 4
"""So many elements of a chunk are kept at most."""
_QUAD = 4


def places(metadata: Array, k: int, kind: str, selector: int) -> Array:
    """Return where the elements that are kept are in their rows: (..., 16, K / 2), of numbers below K.

    Parameters
    ----------
    metadata : array of uint32, (..., lanes)
    k : int
    kind : str
        PTX type of the elements.
    selector : int
        Lanes of a quad that give the metadata, if not all do.
    """
    chunk = _CHUNK.get(kind, 4)
    return kept_places(_row_bits(metadata, k // chunk, kind, selector), chunk)


def kept_places(bits: Array, chunk: int) -> Array:
    """Return where the elements that are kept are in their rows, (..., K / 2), by 4 bits of each chunk, (..., chunks).

    Examples
    --------
    >>> kept_places(np.array([0b1001, 0b0100]), 4), kept_places(np.array([0b1110, 0b0100]), 2)
    (array([1, 2, 4, 5]), array([1, 2]))
    """
    bits = bits[..., None]
    if chunk == _CHUNK["tf32"]:
        # 0b0100 keeps the first of two elements, 0b1110 the second: the places of their halves.
        within = (bits & 3) // 2
    else:
        width = chunk // 4
        within = np.concatenate([bits & 3, bits >> 2], axis=-1)[..., None] * width + np.arange(width)
        within = within.reshape(*bits.shape[:-1], chunk // 2)
    result: Array = within + chunk * np.arange(bits.shape[-2])[:, None]
    return result.reshape(*result.shape[:-2], -1)


def expanded(kept: Array, where: Array, k: int) -> Array:
    """Return a matrix with its zeros, (..., K), of its elements that are kept and their places, (..., K / 2)."""
    kept, where = np.broadcast_arrays(kept, where)
    result = np.zeros((*kept.shape[:-1], k), kept.dtype)
    for first in range(_OF_A_CHUNK):
        # Of those taken at once, no two are of one chunk and may have one place.
        some = slice(first, None, _OF_A_CHUNK)
        before = np.take_along_axis(result, where[..., some], axis=-1)
        np.put_along_axis(result, where[..., some], before + kept[..., some], axis=-1)
    return result


def meets_only_kept(multiply: Callable[..., Array], a: Array, b: Array, where: Array, *added: Array) -> Array:
    """Multiply a sparse A, with its zeros, by B; elements of B that meet zeros, infinities and NaNs too, don't count.

    Parameters
    ----------
    multiply : callable
        C + A B^T of A, (..., M, K), B, (..., N, K), and C, (..., M, N), if there is one.
    a, b : array
    where : array, (..., M, K / 2)
        The positions of A's kept elements.
    *added : array
        C.
    """
    if np.isfinite(b).all():
        return multiply(a, b, *added)
    is_kept = expanded(np.ones(where.shape, np.int8), where, a.shape[-1]) > 0

    def row(m: int) -> Array:
        one = slice(m, m + 1)
        met = np.where(is_kept[..., one, :], b, b.dtype.type(0))
        return multiply(a[..., one, :], met, *(c[..., one, :] for c in added))

    return np.concatenate([row(m) for m in range(a.shape[-2])], axis=-2)


def _row_bits(metadata: Array, chunks: int, kind: str, selector: int) -> Array:
    """Return the 4 bits of each chunk: (..., 16, chunks)."""
    quads = metadata.reshape(*metadata.shape[:-1], 8, _QUAD)
    lanes = chunks * 4 * 2 // 32  # that give metadata, of two rows each quad
    words = quads[..., selector * lanes : selector * lanes + lanes]
    if kind in ("s8", "u8", "e4m3", "e5m2", "s4", "u4"):
        # Lanes take turns with rows r and r + 8, 32 bits each.
        rows = words.reshape(*words.shape[:-1], -1, 2).swapaxes(-1, -2)
        nibbles = rows[..., None] >> (4 * np.arange(8, dtype=np.uint32)) & 15
    else:
        # Each lane has 16 bits of rows r and r + 8.
        halves = words[..., None, :] >> np.array([[0], [16]], np.uint32)
        nibbles = halves[..., None] >> (4 * np.arange(4, dtype=np.uint32)) & 15
    by_row = nibbles.reshape(*nibbles.shape[:-2], chunks)  # (..., quad, half, chunks)
    ordered = by_row.swapaxes(-2, -3)
    return ordered.reshape(*ordered.shape[:-3], 16, chunks).astype(np.int64)
