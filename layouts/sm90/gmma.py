"""GMMA layout atoms: the eight shared-memory layouts from which wgmma operands are tiled.

References
----------
CuTe ``atom/mma_traits_sm90_gmma.hpp``: ``Layout_MN_SW128_Atom_Bits`` and the seven others, upcast to an element type.
PTX ISA, "Shared Memory Matrix Layout" and "Swizzling Modes" of wgmma.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from ..arguments import one_of
from ..basis import has_basis
from ..composed import ComposedLayout, SmemPtr, Swizzle
from ..errors import LayoutError
from ..hardware import SWIZZLES, AnySwizzleMode, byte_swizzle as byte_swizzle
from ..layout import Layout
from ..recast import upcast
from ..writer import to_text
from .arch import (
    CORE_MATRIX_ROWS,
    MAJORS,
    SWIZZLE_BASE_BYTES,
    SWIZZLE_MODES,
    SWIZZLE_SHIFT,
    UNIT_BITS,
    Major,
    SwizzleMode,
    span_bytes,
    swizzle_bits,
)


def gmma_layout_atom(
    major: Major, swizzle: SwizzleMode, bits: int, *, pointer_swizzle: bool = False
) -> Layout | ComposedLayout:
    """Return a GMMA layout atom: (MN, K) -> index of an element in shared memory.

    The contiguous mode spans exactly the bytes of the swizzle (16, 32, 64 or 128), the other mode has extent 8: one
    row of core matrices. `tile_to_shape` repeats an atom over an operand's tile.

    Parameters
    ----------
    major : "MN" or "K", in any case
        The contiguous mode.
    swizzle : "INTER", "SW32", "SW64" or "SW128", in any case
        The swizzle mode.
    bits : int
        Width of an element: 1, 2, 4, 8, 16, 32, 64 or 128. With 1 the layout is in bits.
    pointer_swizzle : bool
        False: the swizzle acts on element indices, so that the layout can be computed with as it is. True: it acts
        on byte addresses, the form that C++ CuTe prints.

    Returns
    -------
    Layout or ComposedLayout
        A plain Layout for INTER without `pointer_swizzle`.

    Raises
    ------
    LayoutError
        If an argument is none of the values above.

    Examples
    --------
    >>> print(gmma_layout_atom("MN", "SW128", 16))
    Sw<3,3,3> o 0 o (64,8):(1,64)
    >>> print(gmma_layout_atom("K", "SW64", 8, pointer_swizzle=True))
    Sw<2,4,3> o smem_ptr[8b](unset) o (8,64):(64,1)
    >>> print(gmma_layout_atom("K", "INTER", 32))
    (8,4):(4,1)

    References
    ----------
    CuTe ``atom/mma_traits_sm90_gmma.hpp``, "Common layouts for GMMA Shared Memory".
    """
    operands = (major, swizzle, bits)
    major = check_major("gmma_layout_atom", operands, major)
    swizzle = one_of("gmma_layout_atom", operands, "swizzle", swizzle, SWIZZLE_MODES)
    check_bits("gmma_layout_atom", operands, bits)
    span = 8 * span_bytes(swizzle)
    rows = CORE_MATRIX_ROWS
    in_bits = Layout((span, rows), (1, span)) if major == "MN" else Layout((rows, span), (span, 1))
    tile = upcast(in_bits, bits)
    if pointer_swizzle:
        return ComposedLayout(byte_swizzle(swizzle), SmemPtr(bits), tile)
    if swizzle == "INTER":
        return cast(Layout, tile)
    return ComposedLayout(element_swizzle(swizzle, bits), 0, tile)


def element_swizzle(mode: SwizzleMode, bits: int) -> Swizzle:
    """Return a mode's swizzle as a function on indices of elements of `bits` bits.

    Examples
    --------
    >>> print(element_swizzle("SW128", 16), element_swizzle("SW32", 32))
    Sw<3,3,3> Sw<1,2,3>
    """
    return Swizzle(swizzle_bits(mode), _element_base(bits), SWIZZLE_SHIFT)


class SwizzledTile(NamedTuple):
    """Shared-memory layout in the parts that `split_swizzle` returns."""

    mode: AnySwizzleMode
    tile: Any
    """The layout under the swizzle, in elements."""
    offset_elems: int
    """Offset that the composed layout adds before the swizzle."""
    address: int | None
    """Byte address of the layout's smem pointer, where it has one."""


def split_swizzle(
    operation: str,
    layout: Layout | ComposedLayout,
    bits: int,
    modes: tuple[AnySwizzleMode, ...] = SWIZZLE_MODES,
) -> SwizzledTile:
    """Take a shared-memory layout of elements of `bits` bits apart into swizzle mode, tile and offset.

    A swizzle is read as a function on byte addresses where its base says so (``Sw<B,4,3>``, or any under a smem
    pointer), else on element indices (``Sw<B,3,3>`` for 16 bits).

    Parameters
    ----------
    operation : str
        Public function on whose behalf; named in errors.
    layout : Layout or ComposedLayout
        A plain Layout means INTER.
    bits : int
        Width of an element.
    modes : tuple of str, optional
        Modes that the hardware knows. Default: Hopper's.

    Raises
    ------
    LayoutError
        If the swizzle is not one that the hardware knows.

    Examples
    --------
    >>> atom = gmma_layout_atom("K", "SW128", 16)
    >>> split_swizzle("example", atom, 16).mode
    'SW128'
    """
    tile = layout.layoutA if isinstance(layout, ComposedLayout) else layout
    if isinstance(tile, Layout) and has_basis(tile.stride):
        strides = to_text(tile.stride)
        raise LayoutError(operation, (layout,), f"a layout in shared memory must have integer strides, got {strides}")
    if isinstance(layout, Layout):
        return SwizzledTile("INTER", layout, 0, None)
    if not isinstance(layout, ComposedLayout):
        raise LayoutError(operation, (layout,), f"need a Layout or ComposedLayout, got {type(layout).__name__}")
    if not isinstance(layout.layoutB, Swizzle) or not isinstance(layout.layoutA, Layout):
        raise LayoutError(operation, (layout,), "need one swizzle over one plain layout")
    swizzle, offset = layout.layoutB, layout.offset
    # An element form's base is lower by log2 of the bytes of an element, and higher below 8 bits.
    bases = dict.fromkeys([0] if isinstance(offset, SmemPtr) else [0, _element_base(bits) - SWIZZLE_BASE_BYTES])
    known = {(b, m + base, s): mode for mode in modes for b, m, s in (SWIZZLES[mode],) for base in bases}
    mode = known.get((swizzle.bits, swizzle.base, swizzle.shift))
    if mode is None:
        forms = " or ".join(f"Sw<B,{SWIZZLE_BASE_BYTES + base},{SWIZZLE_SHIFT}>" for base in bases)
        further = "".join(f", {byte_swizzle(other)} of bytes" for other in modes if other not in SWIZZLE_MODES)
        raise LayoutError(
            operation,
            (layout,),
            f"unsupported swizzle {swizzle}: the hardware knows {forms} with B from 0 to 3 for {bits}-bit elements"
            f"{further}",
            "take the layout from gmma_layout_atom and tile_to_shape",
        )
    if isinstance(offset, SmemPtr):
        if offset.bits != bits:
            raise LayoutError(
                operation, (layout,), f"the smem pointer is to {offset.bits}-bit elements, not {bits}-bit"
            )
        return SwizzledTile(mode, layout.layoutA, 0, offset.address)
    if not isinstance(offset, int):
        raise LayoutError(operation, (layout,), f"the offset must be an int or a smem pointer, got {offset}")
    return SwizzledTile(mode, layout.layoutA, offset, None)


def check_major(operation: str, operands: tuple[object, ...], major: object) -> Major:
    """Return "MN" or "K", in any case, as it is spelled here; raise LayoutError for anything else."""
    return cast(Major, one_of(operation, operands, "major", major, MAJORS))


def check_bits(operation: str, operands: tuple[object, ...], bits: object) -> None:
    """Raise LayoutError unless elements of `bits` bits fill 16 bytes evenly."""
    if isinstance(bits, bool) or not isinstance(bits, int) or bits < 1 or UNIT_BITS % bits:
        raise LayoutError(
            operation,
            operands,
            f"bits must divide the {UNIT_BITS} bits of a core matrix row (1, 2, 4 ... 128), got {bits!r}",
        )


def _element_base(bits: int) -> int:
    """Return log2 of the elements in 16 bytes."""
    return (UNIT_BITS // bits).bit_length() - 1
