"""tcgen05.cp: the lanes of tensor memory to which rows of shared memory are copied.

References
----------
PTX ISA, "tcgen05.cp" and "Optional Decompression". CuTe ``atom/copy_traits_sm100.hpp``, ``SM100_UTCCP_*``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from ..arguments import one_of
from ..errors import LayoutError
from ..grids.grid import Picture
from ..layout import Layout
from ..sm90.traits import CopyTraits
from .arch import TMEM_COLUMN_BITS
from .kinds import check_cta_group
from .tmem_copy import DP_BITS

_UNIT_BITS = 128
_ELEMENTS = 16


class _Shape(NamedTuple):
    """One shape of tcgen05.cp: rows -> lanes, each as (extent, lanes from one to the next).

    Attributes
    ----------
    bits : int
        Bits of a row.
    rows : tuple of (int, int)
        Modes of the rows.
    copies : (int, int)
        The copies of each row.
    cute : str
        CuTe's name.
    """

    bits: int
    rows: tuple[tuple[int, int], ...]
    copies: tuple[int, int]
    cute: str


SHAPES: Final[dict[str, _Shape]] = {
    "128x256b": _Shape(256, ((128, 1),), (1, 0), "128dp256bit"),
    "4x256b": _Shape(256, ((4, 32),), (1, 0), "4dp256bit"),
    "128x128b": _Shape(128, ((128, 1),), (1, 0), "128dp128bit"),
    "64x128b.warpx2::02_13": _Shape(128, ((64, 1),), (2, 64), "2x64dp128bitlw0213"),
    "64x128b.warpx2::01_23": _Shape(128, ((32, 1), (2, 64)), (2, 32), "2x64dp128bitlw0123"),
    "32x128b.warpx4": _Shape(128, ((32, 1),), (4, 32), "4x32dp128bit"),
}
"""Every shape with its multicast: the digits name the quarters of the lanes that get the same rows."""

DECOMPRESSIONS: Final[dict[str, int]] = {"b8x16.b6x16_p32": 6, "b8x16.b4x16_p64": 4}
"""Decompression -> bits of an element in shared memory: 16 elements and padding fill 16 bytes, and become 16 bytes."""


@dataclass(frozen=True)
class TmemCpTraits(CopyTraits):
    """Traits of one tcgen05.cp: (row, copy) -> lane; a row's bits go to the columns from the address's on.

    The other fields are CuTe's ``Copy_Traits``, in bits; the threads are CTAs. Rows are those of a K-major operand that
    a shared-memory descriptor gives.

    Parameters
    ----------
    name : str
        CuTe's name of the operation.
    thr_id, src_layout, dst_layout, ref_layout : Layout
        As of `CopyTraits`: (CTA, bit) -> bit of the rows, and of the lanes.
    val_id : Layout
        Bit -> bit of tensor memory, where a lane is ``2**21`` bits: rows, bits, further rows, copies.
    shape : str
        ``128x256b``, ``4x256b``, ``128x128b``, ``64x128b.warpx2::02_13``, ``64x128b.warpx2::01_23`` or
        ``32x128b.warpx4``.
    cta_group : int
        1 or 2: each CTA of a pair copies from its shared memory to its tensor memory.
    decompression : str
        ``b8x16.b6x16_p32``, ``b8x16.b4x16_p64``, or empty.

    Examples
    --------
    >>> scales = tmem_cp_traits("32x128b.warpx4")
    >>> scales.ptx, scales.columns, scales.bytes
    ('tcgen05.cp.cta_group::1.32x128b.warpx4', 4, 512)
    >>> [scales.lanes((5, copy)) for copy in range(4)]
    [5, 37, 69, 101]
    >>> halves = tmem_cp_traits("64x128b.warpx2::01_23")
    >>> [halves.lanes(((row % 32, row // 32), copy)) for row in (0, 32) for copy in range(2)]
    [0, 32, 64, 96]
    """

    val_id: Layout
    shape: str
    cta_group: int
    decompression: str

    @property
    def lanes(self) -> Layout:
        """(row, copy) -> lane, from the lane of the address on; the row as the modes of the shape."""
        parts = SHAPES[self.shape]
        extents, steps = zip(*parts.rows, strict=True)
        if len(parts.rows) == 1:
            return Layout((extents[0], parts.copies[0]), (steps[0], parts.copies[1]))
        return Layout((extents, parts.copies[0]), (steps, parts.copies[1]))

    @property
    def rows(self) -> int:
        """Rows that are read."""
        return self.lanes[0].size()

    @property
    def row_bits(self) -> int:
        """Bits of a row in shared memory."""
        return SHAPES[self.shape].bits

    @property
    def columns(self) -> int:
        """Columns of tensor memory that are written."""
        return self.row_bits // TMEM_COLUMN_BITS

    @property
    def bytes(self) -> int:
        """Bytes of shared memory that a CTA reads, padding of narrow elements with them."""
        return self.rows * self.row_bits // 8

    @property
    def elements(self) -> Layout:
        """(element, 16 bytes of a row) -> first bit in the row, of narrow elements before decompression.

        Raises
        ------
        LayoutError
            If nothing is decompressed.

        Examples
        --------
        >>> print(tmem_cp_traits("128x256b", decompression="b8x16.b4x16_p64").elements)
        (16,2):(4,128)
        """
        if not self.decompression:
            raise LayoutError(
                "elements", (self.name,), "nothing is decompressed", f"known are {', '.join(DECOMPRESSIONS)}"
            )
        bits = DECOMPRESSIONS[self.decompression]
        return Layout((_ELEMENTS, self.row_bits // _UNIT_BITS), (bits, _UNIT_BITS))

    @property
    def ptx(self) -> str:
        """PTX instruction, up to the operands."""
        packed = f".{self.decompression}" if self.decompression else ""
        return f"tcgen05.cp.cta_group::{self.cta_group}.{self.shape}{packed}"

    def _picture_(self, *, bits: int = 32) -> Picture:
        """Draw tensor memory, with the row of each lane."""
        from .pictures import tmem_cp_picture

        return tmem_cp_picture(self)


def tmem_cp_traits(shape: str, *, cta_group: int = 1, decompression: str = "") -> TmemCpTraits:
    """Return the traits of a tcgen05.cp.

    Parameters
    ----------
    shape : str
        ``128x256b``, ``4x256b``, ``128x128b``, ``64x128b.warpx2::02_13``, ``64x128b.warpx2::01_23`` or
        ``32x128b.warpx4``.
    cta_group : int
        1 or 2.
    decompression : str, optional
        ``b8x16.b6x16_p32`` or ``b8x16.b4x16_p64``: 16 elements of 6 or 4 bits, padded to 16 bytes, become bytes.

    Raises
    ------
    LayoutError
        If there is no such instruction.

    Examples
    --------
    >>> print(tmem_cp_traits("128x256b").val_id)
    (128,256):(2097152,1)
    """
    operation, operands = "tmem_cp_traits", (shape,)
    shape = one_of(operation, operands, "shape", shape, SHAPES)
    check_cta_group(operation, operands, cta_group)
    if decompression:
        decompression = one_of(operation, operands, "decompression", decompression, DECOMPRESSIONS)
    parts = SHAPES[shape]
    (first, step), *further = parts.rows
    copies = [parts.copies] if parts.copies[0] > 1 else []
    tail = [*further, *copies]
    # CuTe counts the lanes between rows too: 4x256b is to refresh 128 lanes, of which it writes each 32nd.
    reached = first * step
    val_id = Layout(
        (reached, parts.bits, *(extent for extent, _ in tail)), (DP_BITS, 1, *(lanes * DP_BITS for _, lanes in tail))
    )
    strides, span = [step, reached], reached * parts.bits
    for extent, _ in further:
        strides.append(span)
        span *= extent
    every = Layout((cta_group, val_id.size()), (0, 1))
    extents = (first, parts.bits, *(extent for extent, _ in tail))
    written = Layout((cta_group, extents), (0, (*strides, *(0 for _ in copies))))
    source = written if copies or step > 1 else every
    destination = written if step > 1 else every
    return TmemCpTraits(
        f"SM100_UTCCP_{parts.cute}_{cta_group}cta",
        Layout(cta_group),
        source,
        destination,
        destination,
        val_id,
        shape,
        cta_group,
        decompression,
    )
