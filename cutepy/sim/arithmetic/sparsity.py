"""Structured sparsity: matrices of which half the elements are zero, and the metadata that says which are kept.

Of each chunk of elements along K half are kept, and their places in it are 4 bits of metadata, lowest first: two
numbers of 2 bits, of 4 elements; of tf32 one of 4 bits, of 2 elements; of 4-bit elements two of 2 bits, of 4 pairs.
A row's metadata are 16 bits for 4 chunks; the words of 32 bits that the lanes of a quad give are laid out so that, of
8- and 4-bit elements, each has one row, and of others each has two rows' 16 bits.

References
----------
PTX ISA, "Sparse matrix storage", "Matrix fragments for sparse mma".
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_CHUNK = {"tf32": 2, "s4": 8, "u4": 8}
_QUAD = 4


def expanded(kept: Array, metadata: Array, k: int, kind: str, selector: int) -> Array:
    """Return a sparse matrix with its zeros.

    Parameters
    ----------
    kept : array, (..., 16, K / 2)
        Elements.
    metadata : array of uint32, (..., lanes)
    k : int
    kind : str
        PTX type of the elements.
    selector : int
        Which lanes of a quad give the metadata, if not all do.
    """
    chunk = _CHUNK.get(kind, 4)
    bits = _row_bits(metadata, k // chunk, kind, selector)
    chunks = kept.reshape(*kept.shape[:-1], -1, chunk // 2)
    result = np.zeros((*chunks.shape[:-1], chunk), kept.dtype)
    if kind == "tf32":
        # 0b0100 keeps the first of two elements, 0b1110 the second: the places of their halves.
        np.put_along_axis(result, (bits & 3) // 2, chunks, axis=-1)
    else:
        width = chunk // 4
        places = np.concatenate([bits & 3, bits >> 2], axis=-1)[..., None]
        places = np.broadcast_to(places, (*places.shape[:-1], width))
        into = result.reshape(*chunks.shape[:-1], 4, width)
        np.put_along_axis(into, places, chunks.reshape(*chunks.shape[:-1], 2, width), axis=-2)
    return result.reshape(*kept.shape[:-1], k)


def _row_bits(metadata: Array, chunks: int, kind: str, selector: int) -> Array:
    """Return the 4 bits of each chunk: (..., 16 rows, chunks, 1)."""
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
    return ordered.reshape(*ordered.shape[:-3], 16, chunks, 1).astype(np.int64)
