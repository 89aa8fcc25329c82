"""The 64-bit shared-memory descriptor of tcgen05: bit fields, and the addresses that the hardware computes.

References
----------
PTX ISA, "Shared memory descriptor" and "Canonical Layouts" of tcgen05. CuTe ``arch/mma_sm100_desc.hpp``,
``UMMA::SmemDescriptor``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from ..bit_field import Field
from ..hardware import Major
from ..sm90.operand_descriptor import OperandDescriptor
from ..sm90.walk import Walk
from .arch import SMEM_DESCRIPTOR_VERSION, SMEM_LAYOUT_TYPE


@dataclass(frozen=True)
class SmemDescriptor(OperandDescriptor):
    """Shared-memory descriptor of tcgen05.mma and tcgen05.cp: (mn, k) -> byte address.

    Two descriptors are equal if they are the same 64 bits; `major`, `bits` and `shape_mn_k` are what `make_umma_desc`
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
    lbo_mode : int
        0: LBO is an offset. 1, of sm_103: it is the address of the atom in which a row goes on behind its span.
    layout_type : int
        The swizzle mode as in bits 61..63: 0 INTER, 1 SW128_32B, 2 SW128, 4 SW64, 6 SW32.
    version : int
        1 on Blackwell; wgmma's descriptors have 0 in these bits.
    major : "MN" or "K", optional
        Major of the operand: not part of the 64 bits, the instruction descriptor has it.
    bits : int, optional
        Width of an element.
    shape_mn_k : (int, int), optional
        Elements of the tile.

    Raises
    ------
    LayoutError
        If a value does not fit its bit field, or the layout type is unknown.
    TypeError
        If an argument is of another type.

    Examples
    --------
    >>> d = SmemDescriptor(0x400, leading_byte_offset=16, stride_byte_offset=1024, layout_type=2)
    >>> hex(d), d.swizzle
    ('0x4000404000010040', 'SW128')
    >>> SmemDescriptor.decode(0x4000404000010040) == d
    True

    References
    ----------
    PTX ISA, "Shared memory descriptor" of tcgen05. CuTe ``arch/mma_sm100_desc.hpp``, ``UMMA::SmemDescriptor``.
    """

    lbo_mode: int = field(default=0, kw_only=True)
    version: int = field(default=SMEM_DESCRIPTOR_VERSION, kw_only=True)

    FIELDS: ClassVar = {
        "start_address": Field(0, 14),
        "leading_byte_offset": Field(16, 14),
        "stride_byte_offset": Field(32, 14),
        "version": Field(46, 3),
        "base_offset": Field(49, 3),
        "lbo_mode": Field(52, 1),
        "layout_type": Field(61, 3),
    }
    MODES: ClassVar = {code: mode for mode, code in SMEM_LAYOUT_TYPE.items()}
    TITLE: ClassVar = "tcgen05 shared-memory descriptor"
    KIND: ClassVar = "a descriptor of tcgen05"

    def _check_fields(self) -> None:
        if self.layout_type not in self.MODES:
            known = ", ".join(f"{code} {mode}" for mode, code in SMEM_LAYOUT_TYPE.items())
            raise self._error(f"layout_type must be one of {known}; got {self.layout_type}")
        if self.version != SMEM_DESCRIPTOR_VERSION:
            raise self._error(
                f"version (bits 46..48) must be {SMEM_DESCRIPTOR_VERSION}, got {self.version}",
                "a descriptor of wgmma has 0 there: decode it with sm90.GmmaDescriptor",
            )

    def _check_read(self, major: Major) -> None:
        if major not in self._majors(None):
            raise self._error(
                f"no MMA reads an operand that is {major}-major with {self.swizzle} and LBO mode {self.lbo_mode}",
                "SW128_32B is for MN-major operands of 32 bits, LBO mode 1 for K-major ones of sm_103",
            )

    def _majors(self, major: Major | None) -> tuple[Major, ...]:
        """Return the majors to read the bits by: SW128_32B is of MN-major operands, LBO mode 1 of K-major ones."""
        if major is None and self.swizzle == "SW128_32B":
            return ("MN",)
        return ("K",) if major is None and self.lbo_mode else super()._majors(major)

    def _explained(self) -> dict[str, str]:
        known = super()._explained()
        meaning = "address of the next atom, sm_103" if self.lbo_mode else "an offset"
        return {
            "start address": known["start address"],
            "leading byte offset": f"{self.lbo:#x} (LBO)" if self.lbo_mode else known["leading byte offset"],
            "stride byte offset": known["stride byte offset"],
            "version": f"{self.version}",
            "base offset": known["base offset"],
            "LBO mode": f"{self.lbo_mode} ({meaning})",
            "swizzle": known["swizzle"],
        }

    def _walk(self, major: Major, bits: int) -> Walk:
        return super()._walk(major, bits)._replace(lbo_is_address=bool(self.lbo_mode))
