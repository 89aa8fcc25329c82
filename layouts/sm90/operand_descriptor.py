"""Descriptors of operands in shared memory, of wgmma and of tcgen05: bit fields, and the addresses that they stand for.

References
----------
PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout", and "Shared memory descriptor" of tcgen05.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self, cast

from ..arguments import extents, integer
from ..bit_field import Field, stray_bits
from ..drawable import Drawable
from ..errors import LayoutError
from ..grids.grid import Picture
from ..hardware import MAJORS, UNIT_BYTES, AnySwizzleMode, Major
from .explain import explain_walk
from .gmma import check_bits, check_major
from .walk import Walk

IN_UNITS = ("start_address", "leading_byte_offset", "stride_byte_offset")
"""Fields that are kept in units of 16 bytes."""


@dataclass(frozen=True)
class OperandDescriptor(Drawable):
    """Descriptor of an operand in shared memory: (mn, k) -> byte address.

    Subclasses have the other fields of `FIELDS`. Addresses and offsets are in bytes. `major`, `bits` and `shape_mn_k`
    are not part of the 64 bits.

    Attributes
    ----------
    FIELDS : mapping of str to Field
        Every field, in the order of the bits.
    MODES : mapping of int to str
        Swizzle modes by layout type.
    TITLE : str
        Begins an explanation, and names a picture.
    KIND : str
        Names it in errors.
    """

    FIELDS: ClassVar[Mapping[str, Field]]
    MODES: ClassVar[Mapping[int, AnySwizzleMode]]
    TITLE: ClassVar[str]
    KIND: ClassVar[str]

    start_address: int
    leading_byte_offset: int
    stride_byte_offset: int
    base_offset: int = field(default=0, kw_only=True)
    layout_type: int = field(default=0, kw_only=True)
    major: Major | None = field(default=None, kw_only=True, compare=False, repr=False)
    bits: int | None = field(default=None, kw_only=True, compare=False, repr=False)
    shape_mn_k: tuple[int, int] | None = field(default=None, kw_only=True, compare=False, repr=False)

    def __post_init__(self) -> None:
        of = type(self).__name__
        for name, place in self.FIELDS.items():
            value = integer(of, name, getattr(self, name))
            object.__setattr__(self, name, value)
            if name in IN_UNITS:
                if value % UNIT_BYTES or not 0 <= value < UNIT_BYTES << place.width:
                    raise self._error(
                        f"{name} must be a multiple of {UNIT_BYTES} in [0, 2**18), got {value}",
                        f"the descriptor keeps it in units of {UNIT_BYTES} bytes in {place.width} bits",
                    )
            elif not 0 <= value < 1 << place.width:
                raise self._error(f"{name} must be 0 to {(1 << place.width) - 1}, got {value}")
        self._check_fields()
        if self.major is not None:
            object.__setattr__(self, "major", check_major(of, self._operands(), self.major))
        if self.bits is not None:
            check_bits(of, self._operands(), self.bits)
        if self.shape_mn_k is not None:
            object.__setattr__(self, "shape_mn_k", extents(of, "shape_mn_k", self.shape_mn_k))

    def _check_fields(self) -> None:
        """Refuse values that fit their fields and have no meaning."""

    def _check_read(self, major: Major) -> None:
        """Refuse a major by which no MMA reads such an operand."""

    def _majors(self, major: Major | None) -> tuple[Major, ...]:
        """Return the majors to read the bits by: the one that is known, or those that fit."""
        return MAJORS if major is None else (major,)

    def _operands(self) -> tuple[int, ...]:
        return tuple(cast(int, getattr(self, name)) for name in self._shown())

    def _shown(self) -> tuple[str, ...]:
        return (*IN_UNITS, *(name for name in self.FIELDS if name not in (*IN_UNITS, "version")))

    def _error(self, condition: str, hint: str = "") -> LayoutError:
        return LayoutError(type(self).__name__, self._operands(), condition, hint)

    def _picture_(
        self, *, major: Major | None = None, bits: int | None = None, shape_mn_k: tuple[int, int] | None = None
    ) -> Picture:
        """Draw the addresses of the tile's units of 16 bytes; for both majors where the major is unknown."""
        from .pictures import walk_picture

        title = f"{self.TITLE} {int(self):#018x}"
        if not self.is_walked:
            raise LayoutError("show", (title,), "the address walk is defined for base offset 0 only")
        major = self.major if major is None else check_major("show", self._operands(), major)
        bits = self.bits if bits is None else bits
        if bits is not None:
            check_bits("show", self._operands(), bits)
        walks = [self._walk(read_as, bits or 8) for read_as in self._majors(major)]
        return walk_picture(title, walks, self.shape_mn_k if shape_mn_k is None else shape_mn_k)

    @classmethod
    def decode(
        cls,
        word: int,
        *,
        major: Major | None = None,
        bits: int | None = None,
        shape_mn_k: tuple[int, int] | None = None,
    ) -> Self:
        """Decode a 64-bit word; the keywords add the facts that the word does not contain.

        Raises
        ------
        LayoutError
            If the word has more than 64 bits, a bit set that no field owns, or a value that a field does not have.

        Examples
        --------
        >>> from cutepy.layouts.sm90 import GmmaDescriptor
        >>> GmmaDescriptor.decode(0x4000004000000040).stride_byte_offset
        1024
        """
        operation = f"{cls.__name__}.decode"
        word = integer(operation, "word", word)
        if not 0 <= word < 1 << 64:
            raise LayoutError(operation, (word,), "a descriptor has 64 bits: need 0 <= word < 2**64")
        if stray := stray_bits(word, sum(one.mask for one in cls.FIELDS.values())):
            raise LayoutError(
                operation,
                (word,),
                f"{word:#018x} sets {stray}",
                f"an offset that overflowed its 14 bits, or not {cls.KIND}",
            )
        found = {name: one.read(word) * (UNIT_BYTES if name in IN_UNITS else 1) for name, one in cls.FIELDS.items()}
        return cls(**found, major=major, bits=bits, shape_mn_k=shape_mn_k)

    def __int__(self) -> int:
        word = 0
        for name, one in self.FIELDS.items():
            value = cast(int, getattr(self, name))
            word = one.write(word, value // UNIT_BYTES if name in IN_UNITS else value)
        return word

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
    def swizzle(self) -> AnySwizzleMode:
        """The swizzle mode by CuTe's name."""
        return self.MODES[self.layout_type]

    def advance(self, offset_bytes: int) -> Self:
        """Return this descriptor advanced by `offset_bytes`, a multiple of 16: ``desc + n`` of a main loop.

        The swizzle is a function of the address, so a start within the pattern is right.

        Examples
        --------
        >>> from cutepy.layouts.sm90 import GmmaDescriptor
        >>> hex(GmmaDescriptor(0x400, 16, 1024, layout_type=1).advance(32))
        '0x4000004000010042'
        """
        start = self.start_address + integer("advance", "offset_bytes", offset_bytes)
        return cast(Self, replace(cast(Any, self), start_address=start))

    def address(self, mn: int, k: int, *, major: Major | None = None, bits: int | None = None) -> int:
        """Return the byte address at which the hardware reads the first byte of element (mn, k).

        The walk is PTX's: strides between core matrices, then the swizzle on the bits of the address.

        Parameters
        ----------
        mn, k : int
            Coordinate in the tile.
        major, bits
            As the fields of that name; needed if they are not known.

        Raises
        ------
        LayoutError
            If major or bits are unknown, the base offset is not 0, or no MMA reads such an operand.

        Examples
        --------
        >>> from cutepy.layouts.sm90 import GmmaDescriptor
        >>> d = GmmaDescriptor(0, 16, 1024, layout_type=1)
        >>> [d.address(row, 0, major="K", bits=16) for row in (0, 1, 2, 8, 9)]
        [0, 144, 288, 1024, 1168]
        """
        return self.walk(major=major, bits=bits).address(integer("address", "mn", mn), integer("address", "k", k))

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
            f"{self.TITLE} {int(self):#018x}",
            *(f"  {name:<21}{text}" for name, text in self._explained().items()),
        ]
        for major in self._majors(self.major):
            lines += ["", f"{major}-major" if self.major else f"Read as {major}-major"]
            if self.bits:
                lines[-1] += f", {self.bits}-bit elements"
            if self.shape_mn_k:
                mn, k = self.shape_mn_k
                lines[-1] += f", tile of {mn} x {k} (MN x K)"
            lines[-1] += ":"
            known = self.bits is not None
            lines += explain_walk(self._walk(major, self.bits or 8), self.shape_mn_k, known, self.is_walked)
        return "\n".join(lines)

    def _explained(self) -> dict[str, str]:
        """Return the fields by name, as an explanation has them."""
        return {
            "start address": f"{self.start_address:#x}",
            "leading byte offset": f"{self.lbo} (LBO)",
            "stride byte offset": f"{self.sbo} (SBO)",
            "base offset": f"{self.base_offset}",
            "swizzle": f"{self.swizzle} (layout type {self.layout_type})",
        }

    def walk(self, *, major: Major | None = None, bits: int | None = None) -> Walk:
        """Return the hardware's walk over the tile; arguments and errors are those of `address`."""
        major, bits = self.major if major is None else major, self.bits if bits is None else bits
        if major is None or bits is None:
            raise self._error("the 64 bits do not tell the major and the element width", "pass major= and bits=")
        operation = f"{type(self).__name__}.address"
        major = check_major(operation, (self,), major)
        check_bits(operation, (self,), bits)
        if not self.is_walked:
            raise self._error("the address walk is defined for base_offset 0 only", "align the tile to its pattern")
        self._check_read(major)
        return self._walk(major, bits)

    @property
    def is_walked(self) -> bool:
        """True if the address walk is defined: the base offset is 0, or no swizzle uses it."""
        return not self.base_offset or self.swizzle == "INTER"

    def _walk(self, major: Major, bits: int) -> Walk:
        return Walk(self.start_address, self.lbo, self.sbo, self.swizzle, major, bits)
