"""Ragged groups in a tensor map: two further modes that make TMA's bounds check cut at a group's end.

Group g of a matrix has `length` rows from `start`. TMA cuts a box where the tensor ends, not where a group does. So the
matrix is seen with two modes more (`EXTENT` rows of its pitch, the same pitch again, and a step that brings the address
back), in which row i of the group is at the coordinates

    EXTENT - length + i,  start + length,  EXTENT

whose addresses differ from the matrix's first by (start + i) pitches, modulo 2**64, and whose first one reaches the
extent just where the group ends. What is beyond reads as zeros, and is not written. The first address of the tensor map
is the matrix's own, and the map is the same for all groups.

References
----------
CUDA driver API, cuTensorMapEncodeTiled: strides are multiples of 16 bytes below 2**40, extents at most 2**32.
Triton's `tools/ragged_tma.py` relies on addresses modulo 2**64 in the same way, on Hopper, for loads and stores.
"""

from typing import NamedTuple

EXTENT = 2**30
"""Largest number of rows of a matrix in groups."""
UNIT_BYTES = 16
"""Unit of TMA's strides."""
PITCH_END_BYTES = 2**34
"""Bound of the bytes from row to row: `EXTENT` times as many are 2**64."""


class GroupRows(NamedTuple):
    """Rows of a group, and its index among the groups.

    Attributes
    ----------
    group, start, length : int
    """

    group: int
    start: int
    length: int


def back_stride(pitch: int, bits: int) -> int:
    """Return the stride, in elements of a given number of bits, of the mode that subtracts the offset again.

    Examples
    --------
    >>> (EXTENT * (back_stride(4096, 16) + 4096) * 2) % 2**64
    0
    """
    return PITCH_END_BYTES * 8 // bits - pitch


def check_ragged(rows: int, pitch_bytes: int, name: str = "a matrix") -> None:
    """Check that TMA can hold a matrix in groups of rows.

    Raises
    ------
    ValueError
        If it has too many rows, or they are too far or not whole units apart.

    Examples
    --------
    >>> check_ragged(4096, 14336)
    >>> check_ragged(2**30 + 1, 128, "a")
    Traceback (most recent call last):
    ...
    ValueError: a must have at most 1073741824 rows in all groups, got 1073741825; split it
    """
    if rows > EXTENT:
        raise ValueError(f"{name} must have at most {EXTENT} rows in all groups, got {rows}; split it")
    if pitch_bytes % UNIT_BYTES or not 0 < pitch_bytes < PITCH_END_BYTES:
        raise ValueError(
            f"the rows of {name} must be a multiple of 16 bytes, fewer than {PITCH_END_BYTES}, apart, got {pitch_bytes}"
        )
