"""Walk of wgmma over an operand tile in shared memory: element -> byte address.

References
----------
PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout": "Strides".
"""

from __future__ import annotations

from typing import NamedTuple

from .arch import CORE_MATRIX_ROWS, SWIZZLE_BITS, UNIT_BITS, UNIT_BYTES, Major, SwizzleMode
from .gmma import byte_swizzle


class Walk(NamedTuple):
    """One operand tile as the hardware reads it: (mn, k) -> byte address, by strides, then the swizzle.

    Attributes
    ----------
    start_address, lbo, sbo : int
        Bytes; leading and stride byte offset.
    swizzle : "INTER", "SW32", "SW64" or "SW128"
    major : "MN" or "K"
    bits : int
        Width of an element.
    """

    start_address: int
    lbo: int
    sbo: int
    swizzle: SwizzleMode
    major: Major
    bits: int

    @property
    def core_matrix(self) -> tuple[int, int]:
        """Elements of a core matrix along MN and K: 8 rows of 16 contiguous bytes."""
        per_unit = UNIT_BITS // self.bits
        return (CORE_MATRIX_ROWS, per_unit) if self.major == "K" else (per_unit, CORE_MATRIX_ROWS)

    def address(self, mn: int, k: int) -> int:
        """Return the byte address of the first byte of element (mn, k).

        Examples
        --------
        >>> walk = Walk(0, 16, 1024, "SW128", "K", 16)
        >>> [walk.address(row, 0) for row in (0, 1, 2, 8, 9)]
        [0, 144, 288, 1024, 1168]
        """
        along, across = (mn, k) if self.major == "MN" else (k, mn)
        unit, within = divmod(along, UNIT_BITS // self.bits)
        linear = self.start_address + self._linear_offset(unit, across)
        return byte_swizzle(self.swizzle)(linear) + within * self.bits // 8

    def _linear_offset(self, unit: int, row: int) -> int:
        """Bytes before swizzling to 16-byte unit `unit` of the contiguous mode in row `row` of the other."""
        group, row_in_group = divmod(row, CORE_MATRIX_ROWS)
        if self.swizzle == "INTER":
            unit_step, group_step = (self.sbo, self.lbo) if self.major == "MN" else (self.lbo, self.sbo)
            return unit * unit_step + group * group_step + row_in_group * UNIT_BYTES
        units = 1 << SWIZZLE_BITS[self.swizzle]
        span, unit_in_span = divmod(unit, units) if self.major == "MN" else (0, unit)
        return span * self.lbo + unit_in_span * UNIT_BYTES + row_in_group * units * UNIT_BYTES + group * self.sbo
