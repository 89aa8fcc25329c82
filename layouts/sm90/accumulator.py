"""Where a thread's accumulators are in the output tile: the layout of threads and registers, as rows and as columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ..basis import E
from ..layout import Layout
from ..modes import size
from .tiled_mma import TiledMMA


@dataclass(frozen=True)
class AccumulatorCoordinates:
    """Coordinates of accumulators: (thread, register) -> (row, column) in the output tile.

    Each is the sum of what the thread contributes and what the register does, so that code for all threads knows the
    second while it is compiled.

    Parameters
    ----------
    tiling : TiledMMA
    tile_mn : (int, int)
        Extents of the output tile.

    Examples
    --------
    >>> from cutepy.layouts.sm90 import wgmma_traits
    >>> tiling = TiledMMA(wgmma_traits("SM90_64x64x16_F32F16F16_SS"), Layout((2, 1, 1)))
    >>> found = AccumulatorCoordinates(tiling, (128, 64))
    >>> print(found.of_thread(1), found.of_thread(0))
    (4,8,4,2,1):(2,0,0,0,0) (4,8,4,2,1):(0,1,16,64,0)
    >>> found.registers[:4], found.registers[-1]
    (((0, 0), (0, 1), (8, 0), (8, 1)), (8, 57))
    """

    tiling: TiledMMA
    tile_mn: tuple[int, int]

    def of_thread(self, mode: int) -> Layout:
        """(thread) -> row, mode 0, or column, mode 1, of its first register."""
        m, n = self.tile_mn
        plain = Layout((m, n), (1, 0) if mode == 0 else (0, 1))
        threads = self.tiling.thrfrg_C(plain)[0]
        shape, stride = _leaves(threads.shape), _leaves(threads.stride)
        return Layout(shape, stride)

    @cached_property
    def registers(self) -> tuple[tuple[int, int], ...]:
        """(row, column) of each register of the thread that holds (0, 0): what to add to those of its first."""
        m, n = self.tile_mn
        part, _ = self.tiling.partition_C(Layout((m, n), (E(0), E(1))), 0)
        return tuple(_pair(part(index)) for index in range(size(part)))

    def by_lane(self, mode: int) -> bool:
        """Whether all warps hold the same rows, mode 0, or columns, mode 1: then the lane says which."""
        layout = self.of_thread(mode)
        return all(layout(thread) == layout(thread % 32) for thread in range(self.tiling.thr_size))

    def lanes_across(self, mode: int) -> tuple[int, ...]:
        """Distances, powers of 2, between the lanes of a warp that hold what differs along a mode only.

        For mode 1 the lanes that share rows: shuffles among them reduce a row; for mode 0 those that share columns.
        """
        of_other = self.of_thread(1 - mode)
        return tuple(1 << bit for bit in range(5) if of_other(1 << bit) == of_other(0))


def _pair(coordinate: object) -> tuple[int, int]:
    row, column = coordinate if isinstance(coordinate, tuple) else (coordinate, 0)
    return int(row), int(column)


def _leaves(nested: object) -> tuple[int, ...]:
    if isinstance(nested, tuple):
        return tuple(leaf for part in nested for leaf in _leaves(part))
    assert isinstance(nested, int)
    return (nested,)
