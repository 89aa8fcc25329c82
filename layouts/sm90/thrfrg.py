"""Partitioning a tile among threads and MMAs by a thread-value layout: CuTe's ``thrfrg_A``, ``_B`` and ``_C``.

References
----------
CuTe ``atom/mma_atom.hpp``, ``TiledMMA``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from ..algebra import AnyLayout, composition
from ..composed import ComposedLayout, SmemPtr
from ..errors import LayoutError
from ..layout import Layout
from ..modes import rank, slice_and_offset
from ..tiling import logical_divide, zipped_divide


# A tile is partitioned once, however many threads then take their parts.
@lru_cache(maxsize=64)
def thrfrg(
    layout: AnyLayout,
    permutation: tuple[Any, Any],
    atom_shape: tuple[int, int],
    atom_tv: Layout,
    thr_shape: tuple[int, int],
) -> AnyLayout:
    """Partition a tile (X, Y, ...) into ((ThrV,(ThrX,ThrY)),(FrgV,(RestX,RestY,...))).

    Parameters
    ----------
    layout : Layout or ComposedLayout, (X, Y, ...)
        Layout of the tile's elements.
    permutation : (tiler, tiler)
        Applied to X and Y before the atoms.
    atom_shape : (int, int)
        Extents of an atom along X and Y.
    atom_tv : Layout
        (ThrV, FrgV) -> colexicographic index within the atom.
    thr_shape : (int, int)
        Number of atoms side by side along X and Y.
    """
    by_permutation = logical_divide(layout, permutation)
    by_atom = zipped_divide(by_permutation, (Layout(atom_shape[0]), Layout(atom_shape[1])))
    by_thread_value = composition(by_atom, (atom_tv, None))
    return zipped_divide(by_thread_value, (None, (Layout(thr_shape[0]), Layout(thr_shape[1]))))


def on_tile(function: Callable[[AnyLayout], AnyLayout], layout: AnyLayout) -> AnyLayout:
    """Apply a function to a layout; a byte-address swizzle stays outside, as it does in a CuTe tensor."""
    if isinstance(layout, ComposedLayout) and isinstance(layout.offset, SmemPtr):
        return layout.on_domain(function)
    return function(layout)


def slice_thread(partitioned: AnyLayout, thread: tuple[Any, ...]) -> tuple[AnyLayout, Any]:
    """Take one thread's part of the result of `thrfrg`: ((FrgV, RestX, RestY, ...), offset)."""
    rest = rank(partitioned, 1, 1)
    coordinate = (thread, (None, (None,) * rest))
    if isinstance(partitioned, ComposedLayout) and isinstance(partitioned.offset, SmemPtr):
        tile, offset = slice_and_offset(coordinate, partitioned.layoutA)
        return ComposedLayout(partitioned.layoutB, partitioned.offset, tile), offset
    return slice_and_offset(coordinate, partitioned)


def partition_smem(tile: Layout, mma_shape: tuple[int, int]) -> Layout:
    """Partition an operand tile in shared memory by MMAs of one warpgroup: (MMA, blocks MN, blocks K, ...).

    All threads of a warpgroup see the whole operand, so this is every thread's part.
    """
    if rank(tile) < 2:
        raise LayoutError("partition_smem", (tile, mma_shape), f"the operand must have rank >= 2, got {rank(tile)}")
    mn, k = mma_shape
    whole = Layout((1, (mn, k)), (0, (1, mn)))
    layout, _ = slice_thread(thrfrg(tile, (mn, k), mma_shape, whole, (1, 1)), (0, (0, 0)))
    return layout  # type: ignore[no-any-return]
