"""Bit fields of a number: read and written by position and width."""

from __future__ import annotations

from typing import NamedTuple


class Field(NamedTuple):
    """Bit field, or several of one width side by side.

    Attributes
    ----------
    bit, width : int
        First bit of the first field, and width of each in bits.
    """

    bit: int
    width: int

    def read(self, bits: int, ordinal: int = 0) -> int:
        """Return the value of a field.

        Examples
        --------
        >>> Field(4, 8).read(0x1230), Field(4, 4).read(0x1230, ordinal=1)
        (35, 2)
        """
        return bits >> self.bit + self.width * ordinal & (1 << self.width) - 1

    def write(self, bits: int, value: int, ordinal: int = 0) -> int:
        """Return the bits with a field set to a value, truncated to its width.

        Examples
        --------
        >>> hex(Field(4, 8).write(0xFFFF, 0x123))
        '0xf23f'
        """
        mask = (1 << self.width) - 1
        at = self.bit + self.width * ordinal
        return bits & ~(mask << at) | (value & mask) << at

    @property
    def mask(self) -> int:
        """The field's bits, all set.

        Examples
        --------
        >>> hex(Field(4, 8).mask)
        '0xff0'
        """
        return (1 << self.width) - 1 << self.bit


def stray_bits(bits: int, owned: int) -> str:
    """Describe the bits that are set and belong to no field; empty where there are none.

    Examples
    --------
    >>> stray_bits(0b1011, 0b0001), stray_bits(0b1001, 0b0001), stray_bits(1, 1)
    ('bits 1, 3, which belong to no field', 'bit 3, which belongs to no field', '')
    """
    stray = [bit for bit in range(bits.bit_length()) if bits & ~owned & 1 << bit]
    if not stray:
        return ""
    return (
        f"bit {stray[0]}, which belongs to no field"
        if len(stray) == 1
        else (f"bits {str(stray)[1:-1]}, which belong to no field")
    )
