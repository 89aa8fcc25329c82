"""Pack coordinates of power-of-two sizes into the bits of one integer, the first coordinate lowest."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import LayoutError


def pack(coordinates: Iterable[int], widths: Iterable[int]) -> int:
    """Join coordinates of some bits each into one integer, the first lowest.

    >>> pack((3, 1), (2, 4))
    7
    """
    result = shift = 0
    for coordinate, width in zip(coordinates, widths, strict=True):
        result |= coordinate << shift
        shift += width
    return result


def unpack(index: int, widths: Iterable[int]) -> tuple[int, ...]:
    """Split an integer into coordinates of some bits each: the inverse of `pack`.

    >>> unpack(7, (2, 4))
    (3, 1)
    """
    coordinates = []
    for width in widths:
        coordinates.append(index & ((1 << width) - 1))
        index >>= width
    return tuple(coordinates)


def log2_size(operation: str, name: str, size: int) -> int:
    """Return log2 of a dimension's size; raise LayoutError unless it is a power of two."""
    if size.__class__ is not int or size < 1 or size & (size - 1):
        raise LayoutError(operation, (name, size), f"the size of {name} must be a power of two, got {size!r}")
    return size.bit_length() - 1
