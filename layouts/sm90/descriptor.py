"""The 64-bit matrix descriptor of wgmma: bit fields, and the addresses that the hardware computes.

References
----------
CuTe ``arch/mma_sm90_desc.hpp``, ``GmmaDescriptor``.
PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout": "Strides" and "Matrix Descriptor Format".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

from ..arguments import integer
from ..bit_field import Field
from .arch import GMMA_LAYOUT_TYPE, Major, SwizzleMode
from .operand_descriptor import OperandDescriptor


@dataclass(frozen=True)
class GmmaDescriptor(OperandDescriptor):
    """Matrix descriptor of a wgmma operand in shared memory: (mn, k) -> byte address.

    Two descriptors are equal if they are the same 64 bits; `major`, `bits` and `shape_mn_k` are what `make_gmma_desc`
    knows beyond them.

    Parameters
    ----------
    start_address : int
        Bytes, a multiple of 16 below 2**18.
    leading_byte_offset, stride_byte_offset : int
        LBO and SBO in bytes, multiples of 16 below 2**18. What they step over depends on the major and the swizzle:
        `explain` says.
    base_offset : int
        0 to 7: ``(address of the pattern >> 7) & 7`` for a tile whose pattern does not start at a multiple of its
        period.
    layout_type : int
        The swizzle mode as in bits 62..63: 0 INTER, 1 SW128, 2 SW64, 3 SW32.
    major : "MN" or "K", optional
        Major of the operand: not part of the 64 bits, wgmma takes it as an immediate.
    bits : int, optional
        Width of an element.
    shape_mn_k : (int, int), optional
        Elements of the tile.

    Raises
    ------
    LayoutError
        If a value does not fit its bit field.
    TypeError
        If an argument is of another type.

    Examples
    --------
    >>> d = GmmaDescriptor(0x400, leading_byte_offset=0, stride_byte_offset=1024, layout_type=1)
    >>> hex(d), d.swizzle
    ('0x4000004000000040', 'SW128')
    >>> GmmaDescriptor.decode(0x4000004000000040) == d
    True

    References
    ----------
    CuTe ``arch/mma_sm90_desc.hpp``, ``GmmaDescriptor::bitfield``.
    """

    FIELDS: ClassVar = {
        "start_address": Field(0, 14),
        "leading_byte_offset": Field(16, 14),
        "stride_byte_offset": Field(32, 14),
        "base_offset": Field(49, 3),
        "layout_type": Field(62, 2),
    }
    MODES: ClassVar = {code: mode for mode, code in GMMA_LAYOUT_TYPE.items()}
    TITLE: ClassVar = "GMMA descriptor"
    KIND: ClassVar = "a wgmma descriptor"

    @property
    def swizzle(self) -> SwizzleMode:
        """The swizzle mode by CuTe's name."""
        return cast(SwizzleMode, super().swizzle)

    def core_matrix_address(self, i: int, j: int, *, major: Major | None = None, bits: int | None = None) -> int:
        """Return the byte address of the first 16-byte row of core matrix (i, j), i along M or N, j along K.

        A core matrix is 8 rows of M or N by 16 bytes of K in a K-major operand, 16 bytes of M or N by 8 of K in an
        MN-major one.
        """
        walk = self.walk(major=major, bits=bits)
        rows, columns = walk.core_matrix
        i, j = integer("core_matrix_address", "i", i), integer("core_matrix_address", "j", j)
        return walk.address(i * rows, j * columns)
