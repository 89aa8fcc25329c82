"""Iterator over the descriptors of a staged operand: CuTe's ``tCrA``.

References
----------
CuTe ``atom/mma_traits_sm90_gmma.hpp``, ``DescriptorIterator`` and ``MakeTensor<smem_desc>``.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, Self, TypeVar

from ..algebra import AnyLayout
from ..arguments import extents, integer, wrong_type
from ..composed import ComposedLayout
from ..drawable import Drawable
from ..errors import LayoutError
from ..grids.grid import Grid
from ..hardware import AnySwizzleMode
from ..int_tuple import product
from ..layout import Layout
from ..modes import rank, replace
from ..recast import recast_layout
from ..writer import to_text
from .arch import SWIZZLE_MODES, UNIT_BITS, UNIT_BYTES, Major
from .canonical import make_gmma_desc
from .descriptor import GmmaDescriptor
from .gmma import check_bits, check_major, split_swizzle
from .thrfrg import partition_smem


class Descriptor(Protocol):
    """A descriptor of Hopper's or of Blackwell's."""

    @property
    def start_address(self) -> int:
        """Bytes."""

    def advance(self, offset_bytes: int) -> Self:
        """Return the descriptor advanced by a multiple of 16 bytes."""

    def __index__(self) -> int: ...


D = TypeVar("D", bound=Descriptor)


@dataclass(frozen=True)
class DescriptorIterator(Drawable, Generic[D]):
    """Descriptors of an operand in shared memory; `GmmaDescriptorIterator` has the parameters and the errors."""

    smem_layout: AnyLayout
    major: Major = field(kw_only=True)
    bits: int = field(kw_only=True)
    mma_shape: tuple[int, int] = field(kw_only=True)
    base_address: int = field(default=0, kw_only=True)
    partition: Layout = field(default=None, kw_only=True)  # type: ignore[assignment]  # set in __post_init__
    first: D = field(init=False, compare=False, repr=False)
    """The descriptor of the first MMA tile of the first stage."""
    layout: Layout = field(init=False, compare=False, repr=False)
    """Increment of the start address for each coordinate, in 16-byte units."""

    def __post_init__(self) -> None:
        smem, bits, name = self.smem_layout, self.bits, type(self).__name__
        object.__setattr__(self, "mma_shape", extents(name, "mma_shape", self.mma_shape))
        object.__setattr__(self, "base_address", integer(name, "base_address", self.base_address))
        operands = (smem, self.mma_shape)
        object.__setattr__(self, "major", check_major(name, operands, self.major))
        check_bits(name, operands, bits)
        parts = split_swizzle(name, smem, bits, self._modes())
        if parts.offset_elems:
            raise LayoutError(name, operands, "the layout must have offset 0", "pass base_address=")
        partition = self.partition
        if partition is None:
            try:
                partition = partition_smem(parts.tile, self.mma_shape)
            except LayoutError as error:
                raise error.within(name, operands) from error
        elif not isinstance(partition, Layout):
            raise wrong_type(name, "partition", "a Layout", partition)
        elif rank(partition) != rank(parts.tile) + 1:
            condition = f"partition must have a mode of MMA tiles and one for each mode of the operand, got {partition}"
            raise LayoutError(name, operands, condition)
        tile = partition[0] if isinstance(smem, Layout) else ComposedLayout(smem.layoutB, 0, partition[0])
        first = self._describe(tile)
        object.__setattr__(self, "partition", partition)
        object.__setattr__(self, "first", first)
        object.__setattr__(self, "layout", replace(recast_layout(partition, bits, UNIT_BITS), 0, Layout(1, 0)))

    @abstractmethod
    def _modes(self) -> tuple[AnySwizzleMode, ...]:
        """Return the swizzle modes of the hardware."""

    @abstractmethod
    def _describe(self, tile: AnyLayout) -> D:
        """Return the descriptor of the first MMA tile."""

    def _picture_(self) -> Grid:
        from .pictures import iterator_grid

        return iterator_grid(self)

    def __getitem__(self, coordinate: tuple[Any, ...]) -> D:
        """Return the descriptor at (mn_block, k_block) or (mn_block, k_block, stage), each an index or a coordinate.

        Raises
        ------
        IndexError
            If the coordinate does not match the modes, or lies outside of them.
        TypeError
            If an index is no integer.
        """
        modes = rank(self.layout) - 1
        if not isinstance(coordinate, tuple) or len(coordinate) != modes:
            raise IndexError(
                f"need a coordinate for each of the {modes} modes after the MMA tile of {self.layout}, got {coordinate}"
            )
        for mode, index in enumerate(coordinate, start=1):
            if not self._lies_within(index, self.layout[mode].shape):
                raise IndexError(
                    f"coordinate {index} lies outside of mode {mode} of {self.layout},"
                    f" which has shape {to_text(self.layout[mode].shape)}"
                )
        return self.first.advance(int(self.layout(0, *coordinate)) * UNIT_BYTES)

    def _lies_within(self, index: Any, shape: Any) -> bool:  # noqa: ANN401 - a coordinate and an IntTuple
        if not isinstance(index, tuple):
            return 0 <= integer(type(self).__name__, "an index", index) < product(shape)
        if not isinstance(shape, tuple) or len(index) != len(shape):
            return False
        return all(map(self._lies_within, index, shape))

    def __str__(self) -> str:
        return f"{type(self).__name__}({hex(self.first)} o {self.layout})"


@dataclass(frozen=True)
class GmmaDescriptorIterator(DescriptorIterator[GmmaDescriptor]):
    """Descriptors of an operand in shared memory: (MMA tile, block along MN, block along K, stage) -> descriptor.

    Parameters
    ----------
    smem_layout : Layout or ComposedLayout, (MN, K) or (MN, K, stage)
        The operand's tile in elements; a swizzle in either form, as in `make_gmma_desc`.
    major : "MN" or "K"
        The contiguous mode.
    bits : int
        Width of an element.
    mma_shape : (int, int)
        Extents of one MMA along MN and K: (64, 16) for A of ``SM90_64x128x16_...``, (128, 16) for its B.
    base_address : int
        Bytes at which the operand starts in shared memory.
    partition : Layout, optional
        The part of the operand to walk, by MMAs and in elements, CuTe's ``tCsA``: (MMA, blocks MN, blocks K, stage).
        Default: all of it, as one warpgroup sees it.

    Raises
    ------
    LayoutError
        If the MMA does not tile the operand, or its tile is not canonical.

    Examples
    --------
    >>> from cutepy.layouts import tile_to_shape
    >>> from cutepy.layouts.sm90 import gmma_layout_atom
    >>> sA = tile_to_shape(gmma_layout_atom("MN", "SW128", 16), (128, 64, 3))
    >>> tCrA = GmmaDescriptorIterator(sA, major="MN", bits=16, mma_shape=(64, 16), base_address=0x400)
    >>> print(tCrA.layout)
    (1,2,4,(1,3)):(0,64,256,(0,1024))
    >>> hex(tCrA[0, 1, 0])
    '0x4000008000000140'
    """

    def _modes(self) -> tuple[AnySwizzleMode, ...]:
        return SWIZZLE_MODES

    def _describe(self, tile: AnyLayout) -> GmmaDescriptor:
        return make_gmma_desc(tile, major=self.major, bits=self.bits, start_address=self.base_address)
