"""The 64-bit matrix descriptor of wgmma: bit fields, and the addresses that the hardware computes.

References
----------
CuTe ``arch/mma_sm90_desc.hpp``, ``GmmaDescriptor``.
PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout": "Strides" and "Matrix Descriptor Format".
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..drawable import Drawable
from ..errors import LayoutError
from .arch import GMMA_LAYOUT_TYPE, MAJORS, UNIT_BYTES, Major, SwizzleMode
from .arguments import extents, integer
from .explain import explain_walk
from .gmma import check_bits, check_major
from .walk import Walk

if TYPE_CHECKING:
    from ..grids.grid import Picture

FIELD_BITS = 14
"""Width of addresses and offsets in units of 16 bytes: 14 bits, 256 KB."""

_FIELD_MASK = (1 << FIELD_BITS) - 1
_LBO_SHIFT, _SBO_SHIFT, _BASE_OFFSET_SHIFT, _LAYOUT_TYPE_SHIFT = 16, 32, 49, 62
_USED_BITS = (
    _FIELD_MASK
    | _FIELD_MASK << _LBO_SHIFT
    | _FIELD_MASK << _SBO_SHIFT
    | 7 << _BASE_OFFSET_SHIFT
    | 3 << _LAYOUT_TYPE_SHIFT
)
_MODE_OF_LAYOUT_TYPE: dict[int, SwizzleMode] = {value: mode for mode, value in GMMA_LAYOUT_TYPE.items()}


@dataclass(frozen=True)
class GmmaDescriptor(Drawable):
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

    start_address: int
    leading_byte_offset: int
    stride_byte_offset: int
    base_offset: int = field(default=0, kw_only=True)
    layout_type: int = field(default=0, kw_only=True)
    major: Major | None = field(default=None, kw_only=True, compare=False, repr=False)
    bits: int | None = field(default=None, kw_only=True, compare=False, repr=False)
    shape_mn_k: tuple[int, int] | None = field(default=None, kw_only=True, compare=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("start_address", "leading_byte_offset", "stride_byte_offset"):
            value = integer("GmmaDescriptor", name, getattr(self, name))
            object.__setattr__(self, name, value)
            if value % UNIT_BYTES or not 0 <= value >> 4 <= _FIELD_MASK:
                raise self._error(
                    f"{name} must be a multiple of {UNIT_BYTES} in [0, 2**18), got {value}",
                    f"the descriptor keeps it in units of {UNIT_BYTES} bytes in {FIELD_BITS} bits",
                )
        for name, last in (("base_offset", 7), ("layout_type", 3)):
            value = integer("GmmaDescriptor", name, getattr(self, name))
            object.__setattr__(self, name, value)
            if not 0 <= value <= last:
                raise self._error(f"{name} must be 0 to {last}, got {value}")
        if self.major is not None:
            object.__setattr__(self, "major", check_major("GmmaDescriptor", self._operands(), self.major))
        if self.bits is not None:
            check_bits("GmmaDescriptor", self._operands(), self.bits)
        if self.shape_mn_k is not None:
            object.__setattr__(self, "shape_mn_k", extents("GmmaDescriptor", "shape_mn_k", self.shape_mn_k))

    def _picture_(
        self, *, major: Major | None = None, bits: int | None = None, shape_mn_k: tuple[int, int] | None = None
    ) -> Picture:
        """Draw the addresses of the tile's units of 16 bytes; for both majors where the major is unknown."""
        from .pictures import descriptor_picture

        major = self.major if major is None else check_major("show", self._operands(), major)
        bits = self.bits if bits is None else bits
        if bits is not None:
            check_bits("show", self._operands(), bits)
        walks = [self._walk(read_as, bits or 8) for read_as in (MAJORS if major is None else (major,))]
        return descriptor_picture(self, walks, self.shape_mn_k if shape_mn_k is None else shape_mn_k)

    def _operands(self) -> tuple[int, ...]:
        return self.start_address, self.lbo, self.sbo, self.base_offset, self.layout_type

    def _error(self, condition: str, hint: str = "") -> LayoutError:
        return LayoutError("GmmaDescriptor", self._operands(), condition, hint)

    @classmethod
    def decode(
        cls,
        word: int,
        *,
        major: Major | None = None,
        bits: int | None = None,
        shape_mn_k: tuple[int, int] | None = None,
    ) -> GmmaDescriptor:
        """Decode a 64-bit word; the keywords add the facts that the word does not contain.

        Raises
        ------
        LayoutError
            If the word has more than 64 bits, or a bit set that no field owns.

        Examples
        --------
        >>> GmmaDescriptor.decode(0x4000004000000040).stride_byte_offset
        1024
        """
        word = integer("GmmaDescriptor.decode", "word", word)
        if not 0 <= word < 1 << 64:
            raise LayoutError("GmmaDescriptor.decode", (word,), "a descriptor has 64 bits: need 0 <= word < 2**64")
        stray = [bit for bit in range(64) if word & ~_USED_BITS & 1 << bit]
        if stray:
            which = f"bit {stray[0]}, which belongs" if len(stray) == 1 else f"bits {str(stray)[1:-1]}, which belong"
            raise LayoutError(
                "GmmaDescriptor.decode",
                (word,),
                f"{word:#018x} sets {which} to no field",
                "an offset that overflowed its 14 bits, or not a wgmma descriptor",
            )
        return cls(
            (word & _FIELD_MASK) * UNIT_BYTES,
            (word >> _LBO_SHIFT & _FIELD_MASK) * UNIT_BYTES,
            (word >> _SBO_SHIFT & _FIELD_MASK) * UNIT_BYTES,
            base_offset=word >> _BASE_OFFSET_SHIFT & 7,
            layout_type=word >> _LAYOUT_TYPE_SHIFT & 3,
            major=major,
            bits=bits,
            shape_mn_k=shape_mn_k,
        )

    def __int__(self) -> int:
        return (
            self.start_address // UNIT_BYTES
            | self.leading_byte_offset // UNIT_BYTES << _LBO_SHIFT
            | self.stride_byte_offset // UNIT_BYTES << _SBO_SHIFT
            | self.base_offset << _BASE_OFFSET_SHIFT
            | self.layout_type << _LAYOUT_TYPE_SHIFT
        )

    __index__ = __int__

    @property
    def lbo(self) -> int:
        """Leading byte offset, PTX's "leading dimension byte offset"."""
        return self.leading_byte_offset

    @property
    def sbo(self) -> int:
        """Stride byte offset, PTX's "stride dimension byte offset"."""
        return self.stride_byte_offset

    @property
    def swizzle(self) -> SwizzleMode:
        """The swizzle mode by CuTe's name."""
        return _MODE_OF_LAYOUT_TYPE[self.layout_type]

    def advance(self, offset_bytes: int) -> GmmaDescriptor:
        """Return this descriptor advanced by `offset_bytes`, a multiple of 16: ``desc + n`` of a main loop.

        Examples
        --------
        >>> hex(GmmaDescriptor(0x400, 16, 1024, layout_type=1).advance(32))
        '0x4000004000010042'
        """
        return replace(self, start_address=self.start_address + integer("advance", "offset_bytes", offset_bytes))

    def address(self, mn: int, k: int, *, major: Major | None = None, bits: int | None = None) -> int:
        """Return the byte address at which the hardware reads the first byte of element (mn, k).

        The walk is PTX's: strides between core matrices, then the swizzle on the bits of the address. `major` and
        `bits` are needed where the descriptor was not made by `make_gmma_desc`.

        Raises
        ------
        LayoutError
            If major or bits are not known, or the base offset is not 0.

        Examples
        --------
        >>> d = GmmaDescriptor(0, 16, 1024, layout_type=GMMA_LAYOUT_TYPE["SW128"])
        >>> [d.address(row, 0, major="K", bits=16) for row in (0, 1, 2, 8, 9)]
        [0, 144, 288, 1024, 1168]
        """
        return self.walk(major=major, bits=bits).address(integer("address", "mn", mn), integer("address", "k", k))

    def core_matrix_address(self, i: int, j: int, *, major: Major | None = None, bits: int | None = None) -> int:
        """Return the byte address of the first 16-byte row of core matrix (i, j), i along M or N, j along K.

        A core matrix is 8 rows of M or N by 16 bytes of K in a K-major operand, 16 bytes of M or N by 8 of K in an
        MN-major one.
        """
        walk = self.walk(major=major, bits=bits)
        rows, columns = walk.core_matrix
        i, j = integer("core_matrix_address", "i", i), integer("core_matrix_address", "j", j)
        return walk.address(i * rows, j * columns)

    def element_addresses(
        self, shape_mn_k: tuple[int, int] | None = None, *, major: Major | None = None, bits: int | None = None
    ) -> list[list[int]]:
        """Return the byte addresses of a tile's elements: ``result[mn][k]``.

        Raises
        ------
        LayoutError
            As `address`, or if the shape is not known.
        """
        shape = self.shape_mn_k
        if shape_mn_k is not None:
            shape = extents("element_addresses", "shape_mn_k", shape_mn_k)
        if shape is None:
            raise self._error("the shape of the tile is not known", "pass shape_mn_k=")
        walk = self.walk(major=major, bits=bits)
        return [[walk.address(mn, k) for k in range(shape[1])] for mn in range(shape[0])]

    def explain(self) -> str:
        """Explain the fields in words and as a drawing: core matrices, and the steps of LBO and SBO.

        Where major and width of the elements are unknown, both majors are explained.
        """
        lines = [
            f"GMMA descriptor {int(self):#018x}",
            f"  start address        {self.start_address:#x}",
            f"  leading byte offset  {self.lbo} (LBO)",
            f"  stride byte offset   {self.sbo} (SBO)",
            f"  base offset          {self.base_offset}",
            f"  swizzle              {self.swizzle} (layout type {self.layout_type})",
        ]
        for major in MAJORS if self.major is None else (self.major,):
            lines += ["", f"{major}-major" if self.major else f"Read as {major}-major"]
            if self.bits:
                lines[-1] += f", {self.bits}-bit elements"
            if self.shape_mn_k:
                mn, k = self.shape_mn_k
                lines[-1] += f", tile of {mn} x {k} (MN x K)"
            lines[-1] += ":"
            known = self.bits is not None
            lines += explain_walk(self._walk(major, self.bits or 8), self.shape_mn_k, known, not self.base_offset)
        return "\n".join(lines)

    def walk(self, *, major: Major | None = None, bits: int | None = None) -> Walk:
        """Return the hardware's walk over the tile; arguments and errors are those of `address`."""
        major, bits = self.major if major is None else major, self.bits if bits is None else bits
        if major is None or bits is None:
            raise self._error("the 64 bits do not tell the major and the element width", "pass major= and bits=")
        major = check_major("GmmaDescriptor.address", (self,), major)
        check_bits("GmmaDescriptor.address", (self,), bits)
        if self.base_offset:
            raise self._error("the address walk is defined for base_offset 0 only", "align the tile to its pattern")
        return self._walk(major, bits)

    def _walk(self, major: Major, bits: int) -> Walk:
        return Walk(self.start_address, self.lbo, self.sbo, self.swizzle, major, bits)
