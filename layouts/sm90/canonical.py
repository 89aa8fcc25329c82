"""make_gmma_desc: CuTe's canonical forms, condition by condition, with a remedy where one fails.

`canonical_form` serves make_umma_desc of Blackwell too, whose forms are these and one more swizzle.

References
----------
CuTe ``atom/mma_traits_sm90_gmma.hpp`` and ``atom/mma_traits_sm100.hpp``, the static assertions of ``make_gmma_desc``
and ``make_umma_desc``.
"""

from __future__ import annotations

from typing import NamedTuple, cast

from ..algebra import AnyLayout
from ..arguments import integer
from ..errors import LayoutError
from ..hardware import AnySwizzleMode, pattern_rows, span_bytes
from ..int_tuple import congruent, flatten_to_tuple
from ..layout import Layout
from ..modes import rank, size, stride
from ..recast import recast_layout
from ..tiling import logical_divide
from .arch import (
    CORE_MATRIX_ROWS,
    GMMA_LAYOUT_TYPE,
    MAJORS,
    SWIZZLE_MODES,
    UNIT_BITS,
    UNIT_BYTES,
    Major,
    SwizzleMode,
)
from .descriptor import GmmaDescriptor
from .gmma import check_bits, check_major, split_swizzle

_EXTENTS = "the extents are not those of an MMA"
"""Remedy where the units have other extents than an MMA's; `_misread` says which, and why."""


class Rules(NamedTuple):
    """Conditions of a descriptor beyond the canonical forms.

    Attributes
    ----------
    operation : str
        Public function on whose behalf; named in errors.
    modes : tuple of str
        Swizzle modes.
    atom : str
        Function that gives the modes' layout atoms.
    checks_k : bool
        The tile must have the K extent of a wgmma.
    """

    operation: str
    modes: tuple[AnySwizzleMode, ...]
    atom: str
    checks_k: bool


class CanonicalForm(NamedTuple):
    """A tile in shared memory as a descriptor has it: start, LBO and SBO in bytes."""

    start_address: int
    lbo: int
    sbo: int
    mode: AnySwizzleMode
    shape_mn_k: tuple[int, int]


_GMMA = Rules("make_gmma_desc", SWIZZLE_MODES, "gmma_layout_atom", checks_k=True)


class _NotCanonicalError(Exception):
    """Violated condition of the canonical form."""


def make_gmma_desc(layout: AnyLayout, *, major: Major, bits: int, start_address: int | None = None) -> GmmaDescriptor:
    """Return the descriptor of an MMA-sized operand tile in shared memory.

    The tile must be one of CuTe's canonical forms. With T elements in 16 bytes and W = 1, 2, 4, 8 units of 16 bytes
    in the span of INTER, SW32, SW64, SW128::

        MN-major INTER      ((T,1,m),(8,k)) : ((1,T,SBO),(1T,LBO))
        MN-major swizzled   ((T,W,m),(8,k)) : ((1,T,LBO),(WT,SBO))
        K-major  INTER      ((8,m),(T,2))   : ((1T,SBO),(1,LBO))
        K-major  swizzled   ((8,m),(T,2))   : ((WT,SBO),(1,T))

    Layouts that CuTe accepts are accepted, also where no wgmma takes them (an MN-major operand of 8 or 32 bits).

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
    >>> from cutepy.layouts import ComposedLayout, Layout, Swizzle
    >>> tile = ComposedLayout(Swizzle(3, 4, 3), 0, Layout((64, 16), (64, 1)))
    >>> make_gmma_desc(tile, major="K", bits=16, start_address=0x400)
    GmmaDescriptor(start_address=1024, leading_byte_offset=16, stride_byte_offset=1024, base_offset=0, layout_type=1)

    References
    ----------
    CuTe ``atom/mma_traits_sm90_gmma.hpp``, ``make_gmma_desc``.
    """
    form = canonical_form(_GMMA, layout, major, bits, start_address)
    return GmmaDescriptor(
        form.start_address,
        form.lbo,
        form.sbo,
        layout_type=GMMA_LAYOUT_TYPE[cast(SwizzleMode, form.mode)],
        major=major,
        bits=bits,
        shape_mn_k=form.shape_mn_k,
    )


def canonical_form(
    rules: Rules, layout: AnyLayout, major: Major, bits: int, start_address: int | None
) -> CanonicalForm:
    """Return the canonical form of a tile; parameters and errors are those of `make_gmma_desc`."""
    operation = rules.operation
    major = check_major(operation, (layout,), major)
    check_bits(operation, (layout,), bits)
    mode, tile, offset_elems, pointer = split_swizzle(operation, layout, bits, rules.modes)
    if rank(tile) != 2:
        raise LayoutError(
            operation,
            (layout,),
            f"the tile must have rank 2, (MN, K), got {rank(tile)}",
            "slice one MMA tile of one stage",
        )
    start = _start(operation, layout, start_address, pointer) + _offset_bytes(operation, layout, offset_elems, bits)
    try:
        lbo, sbo = _offsets(rules, tile, major, mode, bits)
    except (_NotCanonicalError, LayoutError) as error:
        found = error.condition if isinstance(error, LayoutError) else str(error)
        condition = _misread(rules, tile, major, bits) or found
        raise LayoutError(
            operation,
            (layout,),
            f"not a canonical {major}-major {mode} layout: {condition}",
            _hint(rules, tile, bits, major),
        ) from error
    return CanonicalForm(start, lbo * UNIT_BYTES, sbo * UNIT_BYTES, mode, (size(tile, 0), size(tile, 1)))


def _start(operation: str, layout: AnyLayout, start_address: int | None, pointer: int | None) -> int:
    if start_address is None:
        if pointer is None:
            raise LayoutError(operation, (layout,), "the layout has no address", "pass start_address=, in bytes")
        return pointer
    start_address = integer(operation, "start_address", start_address)
    if pointer is not None and pointer != start_address:
        raise LayoutError(
            operation, (layout,), f"start_address {start_address:#x} differs from the layout's pointer {pointer:#x}"
        )
    return start_address


def _offset_bytes(operation: str, layout: AnyLayout, offset_elems: int, bits: int) -> int:
    if offset_elems * bits % UNIT_BITS:
        raise LayoutError(
            operation,
            (layout,),
            f"the offset must be a multiple of {UNIT_BITS // bits} elements (16 bytes), got {offset_elems}",
        )
    return offset_elems * bits // 8


def _misread(rules: Rules, tile: Layout, major: Major, bits: int) -> str:
    """Describe why the tile is not rows of whole 16-byte units along the major; else "".

    `_offsets` looks at the units alone, as CuTe does: a tile that is contiguous along the other mode has other units.
    """
    own, other = (0, 1) if major == "MN" else (1, 0)
    names = ("MN", "K")
    per_unit = UNIT_BITS // bits
    if per_unit > 1 and not _has_run(tile[own]):
        found = f"{names[other]} is" if _has_run(tile[other]) else "neither is"
        return f"{names[own]} must be the contiguous mode, of stride 1, here {found}"
    extent_k = size(tile, 1)
    if rules.checks_k and major == "MN" and extent_k not in _k_extents(bits):
        one, *sparse = _k_extents(bits)
        return (
            f"the K extent must be {one} elements, that of an MMA"
            f" ({' or '.join(map(str, sparse))} in sparse ones), got {extent_k}"
        )
    if rules.checks_k and major == "K" and extent_k * bits not in (2 * UNIT_BITS, 4 * UNIT_BITS):
        return f"the K extent must be 32 bytes (64 in sparse MMAs), got {extent_k * bits / 8:g} bytes"
    if major == "K" and size(tile, 0) % CORE_MATRIX_ROWS:
        return f"the MN extent must be a multiple of {CORE_MATRIX_ROWS}, got {size(tile, 0)}"
    try:
        units = recast_layout(tile, bits, UNIT_BITS)
    except LayoutError:
        return ""
    if size(units, own) != -(-size(tile, own) // per_unit):
        return f"need 16-byte runs along {names[own]}, the tile is {tile}"
    if size(units, other) != size(tile, other):
        return f"steps along {names[other]} must be whole 16 bytes, the tile is {tile}"
    return ""


def _has_run(mode: Layout) -> bool:
    leaves = zip(flatten_to_tuple(mode.shape), flatten_to_tuple(mode.stride), strict=True)
    return any(extent > 1 and step == 1 for extent, step in leaves)


def _k_extents(bits: int) -> tuple[int, int, int]:
    """Return K of an MMA with an MN-major operand, and K of two kinds of sparse ones."""
    return 256 // bits, 128 // bits, 512 // bits


def _offsets(rules: Rules, tile: Layout, major: Major, mode: AnySwizzleMode, bits: int) -> tuple[int, int]:
    """Return (LBO, SBO) in 16-byte units of a tile in elements."""
    units = recast_layout(tile, bits, UNIT_BITS)
    if rules.checks_k and size(units, 1) not in (_k_extents(bits) if major == "MN" else (2, 4)):
        raise _NotCanonicalError(_EXTENTS)
    return _offsets_mn(units, mode) if major == "MN" else _offsets_k(units, mode)


def _offsets_mn(units: Layout, mode: AnySwizzleMode) -> tuple[int, int]:
    width = span_bytes(mode) // UNIT_BYTES
    canonical = _divide(units, width, pattern_rows(mode))
    inner, outer = stride(canonical, 0, 0), stride(canonical, 0, 1)
    row, group = stride(canonical, 1, 0), stride(canonical, 1, 1)
    if mode != "INTER" and inner != 1:
        raise _NotCanonicalError(f"neighbouring 16-byte units along MN must be 16 bytes apart, got {_bytes(inner)}")
    if row != width:
        raise _NotCanonicalError(f"consecutive k must be {_bytes(width)} apart, the span of {mode}, got {_bytes(row)}")
    return (group, outer) if mode == "INTER" else (outer, group)


def _offsets_k(units: Layout, mode: AnySwizzleMode) -> tuple[int, int]:
    if mode == "SW128_32B":
        raise _NotCanonicalError("SW128_32B is for MN-major operands")
    if size(units, 0) % CORE_MATRIX_ROWS:
        raise _NotCanonicalError(_EXTENTS)
    width = span_bytes(mode) // UNIT_BYTES
    canonical = _divide(units, CORE_MATRIX_ROWS, 2)
    row, group, unit = stride(canonical, 0, 0), stride(canonical, 0, 1), stride(canonical, 1, 0)
    if row != width:
        raise _NotCanonicalError(
            f"consecutive rows must be {_bytes(width)} apart, the span of {mode}, got {_bytes(row)}"
        )
    if mode != "INTER" and unit != 1:
        raise _NotCanonicalError(f"the two 16-byte units of a row must be 16 bytes apart, got {_bytes(unit)}")
    return unit, group


def _divide(units: Layout, mn: int, k: int) -> Layout:
    """Split the tile into ((mn,m),(k,n)) and require that each part has one stride."""
    try:
        canonical: Layout = logical_divide(units, (Layout(mn, 1), Layout(k, 1)))
    except LayoutError as error:
        raise _NotCanonicalError(
            f"the tile does not divide into groups of {mn} by {k} (MN by K, in units of 16 bytes): {error.condition}"
        ) from error
    if not congruent(canonical.shape, ((1, 1), (1, 1))):
        raise _NotCanonicalError(
            f"groups of {mn} along MN and {k} along K, and the steps between them, must have one stride each;"
            f" in units of 16 bytes the tile is {canonical}"
        )
    return canonical


def _hint(rules: Rules, tile: Layout, bits: int, major: Major) -> str:
    """Name the canonical forms that this tile has, else the way to get one."""
    fits = []
    for other in MAJORS:
        for mode in rules.modes:
            try:
                _offsets(rules, tile, other, mode, bits)
            except (_NotCanonicalError, LayoutError):
                continue
            if not _misread(rules, tile, other, bits):
                fits.append(f"{other}-major {mode}")
    if fits:
        return f"this tile would fit {', '.join(fits)}"
    return f'tile one with tile_to_shape({rules.atom}("{major}", "SW128", {bits}), shape)'


def _bytes(units: int) -> str:
    return f"{units * UNIT_BYTES} bytes"
