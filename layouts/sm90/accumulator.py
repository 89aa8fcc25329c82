"""Tile coordinates of a thread's MMA registers: accumulators, and A fragments."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ..basis import E
from ..errors import LayoutError
from ..layout import Layout
from ..modes import size
from .arch import DTYPE_BITS
from .tiled_mma import TiledMMA
from .traits import Operand


class _Coordinates:
    """Coordinates of a register operand in a tile, for a tiling's MMAs."""

    tiling: TiledMMA
    _operand: Operand

    @property
    def _extents(self) -> tuple[int, int]:
        raise NotImplementedError

    def of_thread(self, mode: int) -> Layout:
        """(thread) -> row, mode 0, or column, mode 1, of its first register."""
        plain = Layout(self._extents, (1, 0) if mode == 0 else (0, 1))
        threads = (self.tiling.thrfrg_A if self._operand == "A" else self.tiling.thrfrg_C)(plain)[0]
        shape, stride = _leaves(threads.shape), _leaves(threads.stride)
        return Layout(shape, stride)

    @cached_property
    def registers(self) -> tuple[tuple[int, int], ...]:
        """(row, column) of each register of the thread that holds (0, 0): offsets from a thread's first register."""
        partition = self.tiling.partition_A if self._operand == "A" else self.tiling.partition_C
        part, _ = partition(Layout(self._extents, (E(0), E(1))), 0)
        return tuple(_pair(part(index)) for index in range(size(part)))

    def by_lane(self, mode: int) -> bool:
        """Return whether all warps hold the same rows (mode 0) or columns (mode 1): the lane determines them."""
        layout = self.of_thread(mode)
        return all(layout(thread) == layout(thread % 32) for thread in range(self.tiling.thr_size))

    def lanes_across(self, mode: int) -> tuple[int, ...]:
        """Powers of 2: distances between lanes of a warp whose elements differ along one mode only.

        For mode 1 the lanes that share rows: shuffles among them reduce a row; for mode 0 those that share columns.
        """
        of_other = self.of_thread(1 - mode)
        return tuple(1 << bit for bit in range(5) if of_other(1 << bit) == of_other(0))


@dataclass(frozen=True)
class AccumulatorCoordinates(_Coordinates):
    """Coordinates of accumulators: (thread, register) -> (row, column) in the output tile.

    Each is the sum of what the thread contributes and what the register does, so that code for all threads knows the
    second while it is compiled.

    Parameters
    ----------
    tiling : TiledMMA
    tile_mn : (int, int)
        Extents of the output tile.

    Raises
    ------
    LayoutError
        If the tile is not whole MMAs.

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

    _operand = "C"

    def __post_init__(self) -> None:
        of_mmas = self.tiling.tile_shape[:2]
        if any(extent % of_mma for extent, of_mma in zip(self.tile_mn, of_mmas, strict=True)):
            required = f"the tile must be whole MMAs, of {of_mmas[0]}x{of_mmas[1]} together"
            raise LayoutError("AccumulatorCoordinates", self.tile_mn, required)

    @property
    def _extents(self) -> tuple[int, int]:
        return self.tile_mn


@dataclass(frozen=True)
class OperandCoordinates(_Coordinates):
    """Coordinates of an A in registers: (thread, register) -> (row, column along K) in A's tile.

    Parameters
    ----------
    tiling : TiledMMA
        Tiling of MMAs that take A from registers.
    tile_mk : (int, int)
        Extents of A's tile.

    Raises
    ------
    LayoutError
        If the MMAs take A from shared memory, of which no thread holds a part.

    Examples
    --------
    >>> from cutepy.layouts.sm90 import wgmma_traits
    >>> found = OperandCoordinates(TiledMMA(wgmma_traits("SM90_64x64x16_F32F16F16_RS")), (64, 32))
    >>> print(found.of_thread(1), found.of_thread(0))
    (4,8,4,1,1):(2,0,0,0,0) (4,8,4,1,1):(0,1,16,0,0)
    >>> found.registers[:4], found.registers[-1]
    (((0, 0), (0, 1), (8, 0), (8, 1)), (8, 25))
    """

    tiling: TiledMMA
    tile_mk: tuple[int, int]
    _operand = "A"

    def __post_init__(self) -> None:
        if self.tiling.traits.source("A") != "rmem":
            name = self.tiling.traits.name
            raise LayoutError("OperandCoordinates", (name,), f"A must come from registers, and {name} has it in memory")

    @property
    def _extents(self) -> tuple[int, int]:
        return self.tile_mk

    @property
    def run(self) -> int:
        """Number of consecutive registers with neighbours along K, for each first register."""
        row, column = self.registers[0]
        count = next((n for n, place in enumerate(self.registers) if place != (row, column + n)), len(self.registers))
        return count

    def from_accumulators(self, sums: AccumulatorCoordinates) -> tuple[int, ...]:
        """Return the accumulator of the same thread for each register of A: C as the next A.

        K is in the order of `operand_order`: B, and all that is summed along K, must have the same.

        Raises
        ------
        LayoutError
            If the tiles' extents differ, or a thread's accumulators are not its elements of A.

        Examples
        --------
        >>> from cutepy.layouts.sm90 import wgmma_traits
        >>> sums = AccumulatorCoordinates(TiledMMA(wgmma_traits("SM90_64x32x16_F32F16F16_SS")), (64, 32))
        >>> a = OperandCoordinates(TiledMMA(wgmma_traits("SM90_64x128x16_F32F16F16_RS")), (64, 32))
        >>> a.from_accumulators(sums) == tuple(range(16))
        True
        >>> a = OperandCoordinates(TiledMMA(wgmma_traits("SM90_64x128x32_F32E4M3E4M3_RS_TN")), (64, 32))
        >>> a.from_accumulators(sums)
        (0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15)
        """
        operands = (self.tiling.traits.name, self.tile_mk, sums.tiling.traits.name, sums.tile_mn)
        if self.tile_mk != sums.tile_mn:
            required = f"C's tile must be A's tile {self.tile_mk}, got {sums.tile_mn}"
            raise LayoutError("from_accumulators", operands, required)
        order = operand_order(DTYPE_BITS[self.tiling.traits.a_dtype], self.tile_mk[1])
        threads = (self.tiling.thr_size, sums.tiling.thr_size)
        found = {place: register for register, place in enumerate(sums.registers)}
        wanted = [(row, order(k)) for row, k in self.registers]
        if (
            len(set(threads)) > 1
            or any(self.of_thread(0)(t) != sums.of_thread(0)(t) for t in range(threads[0]))
            or any(order(self.of_thread(1)(t)) != sums.of_thread(1)(t) for t in range(threads[0]))
            or set(found) != set(wanted)
        ):
            required = "a thread must hold the same elements of A and C; other threads have some"
            raise LayoutError("from_accumulators", operands, required)
        return tuple(found[place] for place in wanted)


def operand_order(bits: int, columns: int) -> Layout:
    """Return the order of K in which accumulators are the next A: place along K -> column of the accumulators.

    A thread has two neighbouring columns of every 8, and as many neighbours of an A as 32 bits hold. Those of 16-bit
    elements are two, and places are columns. Of 8-bit ones they are four: so the 16 columns of two blocks are ordered
    anew, and no thread needs another's. A sum over K does not depend on its order, if B has the same.

    Parameters
    ----------
    bits : int
        Of an element of A: 8 or 16.
    columns : int
        Of the accumulators: a multiple of 8 for 16 bits, and of 16 for 8 bits.

    Raises
    ------
    LayoutError
        If elements have other widths, or columns are no whole blocks.

    Examples
    --------
    >>> print(operand_order(8, 64))
    (2,2,4,4):(1,8,2,16)
    >>> [operand_order(8, 64)(place) for place in range(16)]
    [0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15]
    >>> print(operand_order(16, 64))
    64:1
    """
    if bits not in (8, 16):
        required = f"accumulators become an A of 8 or 16 bits, got {bits}"
        raise LayoutError("operand_order", (bits, columns), required)
    block = 128 // bits
    if columns < 1 or columns % block:
        required = f"columns of accumulators must be a multiple of {block} for {bits} bits, got {columns}"
        raise LayoutError("operand_order", (bits, columns), required)
    return Layout(columns) if bits == 16 else Layout((2, 2, 4, columns // block), (1, 8, 2, block))


def _pair(coordinate: object) -> tuple[int, int]:
    row, column = coordinate if isinstance(coordinate, tuple) else (coordinate, 0)
    return int(row), int(column)


def _leaves(nested: object) -> tuple[int, ...]:
    if isinstance(nested, tuple):
        return tuple(leaf for part in nested for leaf in _leaves(part))
    assert isinstance(nested, int)
    return (nested,)
