"""UMMA's layout atoms of shared memory, and the descriptor of an operand tiled from them.

References
----------
CuTe ``atom/mma_traits_sm100.hpp``: "Common layouts for UMMA Shared Memory", ``make_umma_desc``. PTX ISA, "Canonical
Layouts" of tcgen05.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, cast

from ..algebra import AnyLayout
from ..arguments import one_of
from ..composed import ComposedLayout, SmemPtr, Swizzle
from ..errors import LayoutError
from ..hardware import SWIZZLES, AnySwizzleMode, Major, byte_swizzle, pattern_rows, span_bytes
from ..layout import Layout
from ..recast import recast_layout, upcast
from ..sm90.canonical import Rules, canonical_form
from ..sm90.gmma import check_bits, check_major, gmma_layout_atom
from ..sm90.iterator import DescriptorIterator
from .arch import SMEM_LAYOUT_TYPE
from .descriptor import SmemDescriptor

SWIZZLE_MODES: Final[tuple[AnySwizzleMode, ...]] = tuple(SWIZZLES)
"""Swizzles of tcgen05: Hopper's, and SW128_32B."""

_UMMA = Rules("make_umma_desc", SWIZZLE_MODES, "umma_layout_atom", checks_k=False)


def umma_layout_atom(
    major: Major, swizzle: AnySwizzleMode, bits: int, *, pointer_swizzle: bool = False
) -> Layout | ComposedLayout:
    """Return a UMMA layout atom: (MN, K) -> index of an element in shared memory.

    Eight are those of wgmma, see `cutepy.layouts.sm90.gmma_layout_atom`. The ninth, MN-major SW128_32B, exchanges units
    of 32 bytes within 128, in 4 rows of K: for operands of 32 bits, whose pairs of neighbours along MN it keeps
    together.

    Parameters
    ----------
    major : "MN" or "K", in any case
        The contiguous mode.
    swizzle : "INTER", "SW32", "SW64", "SW128" or "SW128_32B", in any case
        The swizzle mode.
    bits : int
        Width of an element: 1, 2, 4, 8, 16, 32, 64 or 128. With 1 the layout is in bits.
    pointer_swizzle : bool
        False: the swizzle acts on element indices. True: it acts on byte addresses, the form that C++ CuTe prints.

    Raises
    ------
    LayoutError
        If an argument is none of the values above, or SW128_32B is asked for K-major.

    Examples
    --------
    >>> print(umma_layout_atom("MN", "SW128_32B", 32))
    Sw<2,3,2> o 0 o (32,4):(1,32)
    >>> print(umma_layout_atom("MN", "SW128_32B", 32, pointer_swizzle=True))
    Sw<2,5,2> o smem_ptr[32b](unset) o (32,4):(1,32)
    >>> print(umma_layout_atom("K", "SW128", 16))
    Sw<3,3,3> o 0 o (8,64):(64,1)

    References
    ----------
    CuTe ``atom/mma_traits_sm100.hpp``, ``UMMA::Layout_MN_SW128_32B_Atom`` and the eight that it takes from GMMA.
    """
    operands = (major, swizzle, bits)
    operation = "umma_layout_atom"
    major = check_major(operation, operands, major)
    swizzle = one_of(operation, operands, "swizzle", swizzle, SWIZZLE_MODES)
    check_bits(operation, operands, bits)
    if swizzle != "SW128_32B":
        return gmma_layout_atom(major, swizzle, bits, pointer_swizzle=pointer_swizzle)
    if major == "K":
        raise LayoutError(operation, operands, "SW128_32B is for MN-major operands, got K-major", "take SW128")
    span = 8 * span_bytes(swizzle)
    tile = upcast(Layout((span, pattern_rows(swizzle)), (1, span)), bits)
    if pointer_swizzle:
        return ComposedLayout(byte_swizzle(swizzle), SmemPtr(bits), tile)
    return ComposedLayout(cast(Swizzle, recast_layout(byte_swizzle(swizzle), 8, bits)), 0, tile)


def make_umma_desc(layout: AnyLayout, *, major: Major, bits: int, start_address: int | None = None) -> SmemDescriptor:
    """Return the descriptor of an MMA-sized operand tile in shared memory.

    The tile must be one of CuTe's canonical forms: those of `cutepy.layouts.sm90.make_gmma_desc`, and with T elements
    in 16 bytes::

        MN-major SW128_32B  ((T,8,m),(4,k)) : ((1,T,LBO),(8T,SBO))

    Parameters
    ----------
    layout : Layout or ComposedLayout, (MN, K)
        In elements; the swizzle in byte form (``Sw<3,4,3>``) or in element form (``Sw<3,3,3>`` for 16 bits), told
        apart by its base. A plain Layout means INTER.
    major : "MN" or "K"
        The contiguous mode.
    bits : int
        Width of an element.
    start_address : int, optional
        Bytes, a multiple of 16. Default: the address of the layout's smem pointer.

    Raises
    ------
    LayoutError
        If the layout is not canonical: the message has the violated condition and a remedy.

    Examples
    --------
    >>> from cutepy.layouts import tile_to_shape
    >>> tile = tile_to_shape(umma_layout_atom("MN", "SW128_32B", 32), (128, 8))
    >>> make_umma_desc(tile, major="MN", bits=32, start_address=0x400)  # doctest: +NORMALIZE_WHITESPACE
    SmemDescriptor(start_address=1024, leading_byte_offset=512, stride_byte_offset=2048, base_offset=0, layout_type=1,
        lbo_mode=0, version=1)

    References
    ----------
    CuTe ``atom/mma_traits_sm100.hpp``, ``make_umma_desc``.
    """
    form = canonical_form(_UMMA, layout, major, bits, start_address)
    return SmemDescriptor(
        form.start_address,
        form.lbo,
        form.sbo,
        layout_type=SMEM_LAYOUT_TYPE[form.mode],
        major=major,
        bits=bits,
        shape_mn_k=form.shape_mn_k,
    )


@dataclass(frozen=True)
class SmemDescriptorIterator(DescriptorIterator[SmemDescriptor]):
    """Descriptors of an operand in shared memory: (MMA tile, block along MN, block along K, stage) -> descriptor.

    CuTe's ``tCrA`` and ``tCrB`` of tcgen05.mma.

    Parameters
    ----------
    smem_layout : Layout or ComposedLayout, (MN, K) or (MN, K, stage)
        The operand's tile in elements; a swizzle in either form, as in `make_umma_desc`.
    major : "MN" or "K"
        The contiguous mode.
    bits : int
        Width of an element.
    mma_shape : (int, int)
        Extents of one MMA along MN and K, of this CTA's part: (128, 16) for A of a pair's 256x128x16, (64, 16) for B.
    base_address : int
        Bytes at which the operand starts in shared memory.
    partition : Layout, optional
        The part of the operand to walk; see `cutepy.layouts.sm90.GmmaDescriptorIterator`.

    Raises
    ------
    LayoutError
        If the MMA does not tile the operand, or its tile is not canonical.

    Examples
    --------
    >>> from cutepy.layouts import tile_to_shape
    >>> sA = tile_to_shape(umma_layout_atom("K", "SW128", 16), (128, 64, 4))
    >>> tCrA = SmemDescriptorIterator(sA, major="K", bits=16, mma_shape=(128, 16), base_address=0x400)
    >>> print(tCrA.layout)
    (1,1,4,(1,4)):(0,0,2,(0,1024))
    >>> hex(tCrA[0, 3, 1])
    '0x4000404000010446'
    """

    def _modes(self) -> tuple[AnySwizzleMode, ...]:
        return SWIZZLE_MODES

    def _describe(self, tile: AnyLayout) -> SmemDescriptor:
        return make_umma_desc(tile, major=self.major, bits=self.bits, start_address=self.base_address)
