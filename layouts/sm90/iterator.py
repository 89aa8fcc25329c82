"""The descriptors of a staged operand: what CuTe's ``tCrA`` is.

References
----------
CuTe ``atom/mma_traits_sm90_gmma.hpp``, ``DescriptorIterator`` and ``MakeTensor<smem_desc>``.
"""

from __future__ import annotations

from typing import Any

from ..algebra import AnyLayout
from ..composed import ComposedLayout
from ..errors import LayoutError
from ..layout import Layout
from ..modes import rank, replace
from ..recast import recast_layout
from .arch import UNIT_BITS, UNIT_BYTES, Major
from .canonical import make_gmma_desc
from .descriptor import GmmaDescriptor
from .gmma import check_bits, check_major, split_swizzle
from .thrfrg import partition_smem


class GmmaDescriptorIterator:
    """The descriptors of an operand in shared memory: (MMA tile, block along MN, block along K, stage) -> descriptor.

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

    def __init__(
        self,
        smem_layout: AnyLayout,
        *,
        major: Major,
        bits: int,
        mma_shape: tuple[int, int],
        base_address: int = 0,
    ) -> None:
        operands = (smem_layout, mma_shape)
        check_major("GmmaDescriptorIterator", operands, major)
        check_bits("GmmaDescriptorIterator", operands, bits)
        parts = split_swizzle("GmmaDescriptorIterator", smem_layout, bits)
        if parts.offset_elems:
            raise LayoutError("GmmaDescriptorIterator", operands, "the layout must have offset 0", "pass base_address=")
        try:
            partition = partition_smem(parts.tile, mma_shape)
        except LayoutError as error:
            raise error.within("GmmaDescriptorIterator", operands) from error
        tile = partition[0]
        swizzled = smem_layout if isinstance(smem_layout, Layout) else ComposedLayout(smem_layout.layoutB, 0, tile)
        self.partition: Layout = partition
        """The operand by MMAs, in elements: what CuTe's ``tCsA`` is."""
        self.first: GmmaDescriptor = make_gmma_desc(
            tile if isinstance(smem_layout, Layout) else swizzled, major=major, bits=bits, start_address=base_address
        )
        """The descriptor of the first MMA tile of the first stage."""
        self.layout: Layout = replace(recast_layout(partition, bits, UNIT_BITS), 0, Layout(1, 0))
        """What each coordinate adds to the start address, in 16-byte units."""

    def __getitem__(self, coordinate: tuple[Any, ...]) -> GmmaDescriptor:
        """Return the descriptor at (mn_block, k_block) or (mn_block, k_block, stage), each an index or a coordinate.

        Raises
        ------
        IndexError
            If the coordinate does not match the modes, or lies outside of them.
        """
        modes = rank(self.layout) - 1
        if not isinstance(coordinate, tuple) or len(coordinate) != modes:
            raise IndexError(
                f"need a coordinate for each of the {modes} modes after the MMA tile of {self.layout}, got {coordinate}"
            )
        for mode, index in enumerate(coordinate, start=1):
            extent = self.layout[mode].size()
            if isinstance(index, int) and not 0 <= index < extent:
                raise IndexError(
                    f"coordinate {index} lies outside of mode {mode} of {self.layout}, which has extent {extent}"
                )
        return self.first.advance(int(self.layout(0, *coordinate)) * UNIT_BYTES)

    def __repr__(self) -> str:
        return f"GmmaDescriptorIterator({hex(self.first)} o {self.layout})"
