"""Bit fields of a tensor map: its first 64 bytes, taken as one number.

`TensorMap` defines their meaning. Code that makes, changes or reads the bytes takes their positions from here.
"""

from __future__ import annotations

from typing import Final

from ..bit_field import Field
from .arch import TMA_CODES, UNIT_BYTES

SIZE_BYTES: Final = 128
USED_BYTES: Final = 64
"""Bytes of a tensor map that have a meaning."""
ALIGNMENT: Final = 64
_DIMENSIONS: Final = 5


GLOBAL_ADDRESS: Final = Field(0, 64)
IM2COL: Final = Field(64, 1)
"""Set in tensor maps of im2col mode."""
IS_MAP: Final = Field(65, 1)
"""Set in all tensor maps."""
RANK: Final = Field(68, 3)
"""Rank minus one."""
ELEMENT_TYPE: Final = Field(71, 4)
"""Code as in `TMA_CODES`; `write_element_type` handles types without a code of their own."""
INTERLEAVE: Final = Field(75, 2)
SWIZZLE: Final = Field(77, 2)
FILL: Final = Field(79, 1)
ROUNDS_TO_TF32: Final = Field(80, 1)
L2_PROMOTION: Final = Field(81, 2)
SWIZZLE_ATOM: Final = Field(83, 2)
"""Unit that a swizzle of 128 bytes exchanges, by PTX's code of its atomicity."""
LARGE: Final = Field(85, 1)
"""Set where a tensor has 128 KB or more."""
_STRIDE_LOW: Final = Field(96, 32)
_STRIDE_HIGH: Final = Field(224, 4)
EXTENT: Final = Field(256, 32)
"""Extent of each dimension minus one."""
ELEMENT_STRIDE: Final = Field(416, 3)
"""Element stride of each dimension minus one."""
BOX: Final = Field(440, 8)
"""Box extent of each dimension minus one; in im2col mode only the first, the channels of a pixel."""
LOWER_CORNER: Final = {3: Field(448, 16), 4: Field(448, 8), 5: Field(448, 5)}
"""Lower corner of the bounding box in im2col mode, W first, signed; by the tensor's rank."""
UPPER_CORNER: Final = {3: Field(464, 16), 4: Field(464, 8), 5: Field(464, 5)}
PIXELS: Final = Field(480, 10)
"""Pixels of a column in im2col mode minus one."""

_ROUNDED: Final = {TMA_CODES["tf32"]: TMA_CODES["f32"], TMA_CODES["tf32.ftz"]: TMA_CODES["f32.ftz"]}
"""Types with rounding, by the type that is rounded."""


def write_element_type(bits: int, code: int) -> int:
    """Return the bits with the type set to the one of a code of `TMA_CODES`.

    Examples
    --------
    >>> bits = write_element_type(0, TMA_CODES["tf32"])
    >>> ELEMENT_TYPE.read(bits) == TMA_CODES["f32"], ROUNDS_TO_TF32.read(bits)
    (True, 1)
    """
    bits = ELEMENT_TYPE.write(bits, _ROUNDED.get(code, code))
    return ROUNDS_TO_TF32.write(bits, 1) if code in _ROUNDED else bits


def read_element_type(bits: int) -> int:
    """Return the code in `TMA_CODES` of the type; an unused code where the rounded type does not exist."""
    code = ELEMENT_TYPE.read(bits)
    if not ROUNDS_TO_TF32.read(bits):
        return code
    return next((rounded for rounded, plain in _ROUNDED.items() if plain == code), -1)


def write_stride(bits: int, ordinal: int, stride_bytes: int) -> int:
    """Return the bits with the stride of dimension `ordinal` + 1 set."""
    units = stride_bytes // UNIT_BYTES
    return _STRIDE_HIGH.write(_STRIDE_LOW.write(bits, units, ordinal), units >> _STRIDE_LOW.width, ordinal)


def read_stride(bits: int, ordinal: int) -> int:
    """Return the stride of dimension `ordinal` + 1 in bytes.

    Examples
    --------
    >>> read_stride(write_stride(0, 2, 5 << 36), 2) == 5 << 36
    True
    """
    return (_STRIDE_LOW.read(bits, ordinal) | _STRIDE_HIGH.read(bits, ordinal) << _STRIDE_LOW.width) * UNIT_BYTES


def of_its_rank(bits: int) -> int:
    """Return the bits with the fields of dimensions beyond the rank zero: the hardware ignores these.

    Examples
    --------
    >>> bits = RANK.write(0, 2 - 1)
    >>> of_its_rank(EXTENT.write(EXTENT.write(bits, 7, 1), 9, 2)) == EXTENT.write(bits, 7, 1)
    True
    """
    for n in range(RANK.read(bits) + 1, _DIMENSIONS):
        bits = write_stride(ELEMENT_STRIDE.write(EXTENT.write(bits, 0, n), 0, n), n - 1, 0)
        bits = bits if IM2COL.read(bits) else BOX.write(bits, 0, n)
    return bits
