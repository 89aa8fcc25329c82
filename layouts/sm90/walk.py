"""Walk of wgmma and tcgen05.mma over an operand tile in shared memory: element -> byte address.

References
----------
PTX ISA, "Strides" of the shared memory layouts of wgmma and of tcgen05.
"""

from __future__ import annotations

from typing import NamedTuple

from ..hardware import (
    UNIT_BITS,
    UNIT_BYTES,
    AnySwizzleMode,
    Major,
    byte_swizzle,
    pattern_rows,
    span_bytes,
)


class Walk(NamedTuple):
    """One operand tile as the hardware reads it: (mn, k) -> byte address, by strides, then the swizzle.

    Attributes
    ----------
    start_address, lbo, sbo : int
        Bytes; leading and stride byte offset.
    swizzle : "INTER", "SW32", "SW64", "SW128" or "SW128_32B"
    major : "MN" or "K"
    bits : int
        Width of an element.
    lbo_is_address : bool
        `lbo` is the address of the atom in which a row of a K-major operand goes on behind its span, a mode of sm_103.
    """

    start_address: int
    lbo: int
    sbo: int
    swizzle: AnySwizzleMode
    major: Major
    bits: int
    lbo_is_address: bool = False

    @property
    def core_matrix(self) -> tuple[int, int]:
        """Elements of a core matrix along MN and K: 8 rows of 16 contiguous bytes, 4 of SW128_32B."""
        per_unit, rows = UNIT_BITS // self.bits, pattern_rows(self.swizzle)
        return (rows, per_unit) if self.major == "K" else (per_unit, rows)

    def address(self, mn: int, k: int) -> int:
        """Return the byte address of the first byte of element (mn, k).

        Examples
        --------
        >>> walk = Walk(0, 16, 1024, "SW128", "K", 16)
        >>> [walk.address(row, 0) for row in (0, 1, 2, 8, 9)]
        [0, 144, 288, 1024, 1168]
        """
        along, across = (mn, k) if self.major == "MN" else (k, mn)
        unit, within = divmod(along * self.bits, UNIT_BITS)
        return byte_swizzle(self.swizzle)(self._linear_address(unit, across)) + within // 8

    def _linear_address(self, unit: int, row: int) -> int:
        """Address before swizzling of 16-byte unit `unit` of the contiguous mode in row `row` of the other."""
        group, row_in_group = divmod(row, pattern_rows(self.swizzle))
        span = span_bytes(self.swizzle)
        if self.swizzle == "INTER":
            unit_step, group_step = (self.sbo, self.lbo) if self.major == "MN" else (self.lbo, self.sbo)
            return self.start_address + unit * unit_step + group * group_step + row_in_group * UNIT_BYTES
        offset = row_in_group * span + group * self.sbo
        if self.lbo_is_address:
            # A row that starts within an atom's span ends there, and goes on at the start of the atom that LBO names.
            atom, unit = divmod(self.start_address % span // UNIT_BYTES + unit, span // UNIT_BYTES)
            start = self.lbo if atom else self.start_address - self.start_address % span
            return start + offset + unit * UNIT_BYTES
        spans, unit_in_span = divmod(unit, span // UNIT_BYTES) if self.major == "MN" else (0, unit)
        return self.start_address + offset + spans * self.lbo + unit_in_span * UNIT_BYTES
