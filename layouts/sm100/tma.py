"""TMA on Blackwell: the CTA whose mbarrier a pair's copy signals, and copies of four rows.

References
----------
PTX ISA, "cp.async.bulk.tensor": ``.cta_group``; ".tile::scatter4 and .tile::gather4 modes".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ..arguments import integer, integers
from ..errors import LayoutError
from ..sm90.tensor_map import TensorMap
from ..sm90.tma import TmaBox
from .kinds import check_cta_group

ROWS: Final = 4
"""Rows of a gather4 or a scatter4."""

_MAX_CLUSTER = 16


def signalled_cta(destination: int, mbarrier: int, *, cta_group: int = 1) -> int:
    """Return the rank of the CTA in whose shared memory a TMA load's mbarrier counts.

    Parameters
    ----------
    destination : int
        Rank in the cluster of a CTA that gets the data; of a multicast, each in turn.
    mbarrier : int
        Rank of the CTA that the mbarrier's address names.
    cta_group : int
        1: the mbarrier at the same offset in the destination. 2: that of the destination's pair whose rank has the
        parity of the CTA that the address names.

    Raises
    ------
    LayoutError
        If a rank is none of a cluster.

    Examples
    --------
    Both CTAs of a pair load, and the even one's mbarrier counts the bytes of both:

    >>> [signalled_cta(rank, 0, cta_group=2) for rank in range(4)]
    [0, 0, 2, 2]
    >>> [signalled_cta(rank, 1, cta_group=2) for rank in range(4)]
    [1, 1, 3, 3]
    >>> [signalled_cta(rank, 0) for rank in range(4)]
    [0, 1, 2, 3]
    """
    operation, operands = "signalled_cta", (destination, mbarrier)
    check_cta_group(operation, operands, cta_group)
    for name, rank in (("destination", destination), ("mbarrier", mbarrier)):
        if not 0 <= integer(operation, name, rank) < _MAX_CLUSTER:
            raise LayoutError(operation, operands, f"{name} must be a rank, 0 to {_MAX_CLUSTER - 1}, got {rank}")
    return destination if cta_group == 1 else destination & ~1 | mbarrier & 1


def signalled_ctas(mask: int, mbarrier: int, *, cta_group: int = 1) -> dict[int, int]:
    """Return how many of a multicast's destinations each CTA's mbarrier counts: rank -> copies of the box.

    Parameters
    ----------
    mask : int
        The multicast's mask: bit r for the CTA of rank r.
    mbarrier, cta_group : int
        As of `signalled_cta`.

    Raises
    ------
    LayoutError
        If the mask has no bit, or more than 16.

    Examples
    --------
    >>> signalled_ctas(0b1111, 0, cta_group=2)
    {0: 2, 2: 2}
    """
    if not 0 < integer("signalled_ctas", "mask", mask) < 1 << _MAX_CLUSTER:
        raise LayoutError("signalled_ctas", (mask,), f"mask must be 1 to {(1 << _MAX_CLUSTER) - 1}, got {mask}")
    counts: dict[int, int] = {}
    for rank in range(_MAX_CLUSTER):
        if mask >> rank & 1:
            counted = signalled_cta(rank, mbarrier, cta_group=cta_group)
            counts[counted] = counts.get(counted, 0) + 1
    return counts


@dataclass(frozen=True)
class FourRows:
    """Copy of four rows of a matrix by one TMA instruction: gather4 to shared memory, scatter4 from it.

    In shared memory the rows lie one after the other, as the tile (row, 4) does.

    Parameters
    ----------
    tensor_map : TensorMap
        Of rank 2, with a box of one row: (elements of a row, 1).
    column : int
        First element of each row's box.
    rows : tuple of int
        The four rows, in any order and not necessarily different.

    Raises
    ------
    LayoutError
        If the tensor map is of another rank, box or interleave, or there are not four rows.

    Examples
    --------
    >>> table = TensorMap("bf16", (512, 1000), (1024,), (64, 1), swizzle="SW128")
    >>> copy = FourRows(table, 64, (7, 900, 2, 7))
    >>> copy.coordinates, copy.tx_bytes
    ((64, 7, 900, 2, 7), 512)
    >>> [(box.coordinate, box.smem_offset_bytes) for box in copy.boxes]
    [((64, 7), 0), ((64, 900), 128), ((64, 2), 256), ((64, 7), 384)]
    """

    tensor_map: TensorMap
    column: int
    rows: tuple[int, ...]

    def __post_init__(self) -> None:
        operands = (self.tensor_map.dims, self.tensor_map.box, self.column, self.rows)
        object.__setattr__(self, "column", integer("FourRows", "column", self.column))
        object.__setattr__(self, "rows", integers("FourRows", "rows", self.rows))
        condition = next(_conditions(self.tensor_map, self.rows), "")
        if condition:
            raise LayoutError("FourRows", operands, condition)

    @property
    def coordinates(self) -> tuple[int, ...]:
        """The instruction's coordinates: the column, and the four rows."""
        return (self.column, *self.rows)

    @property
    def boxes(self) -> tuple[TmaBox, ...]:
        """The four rows as boxes."""
        each = self.tensor_map.box_bytes
        return tuple(TmaBox((self.column, row), i * each, each) for i, row in enumerate(self.rows))

    @property
    def tx_bytes(self) -> int:
        """Bytes that a gather4 counts at an mbarrier, rows outside the tensor with them."""
        return ROWS * self.tensor_map.box_bytes


def _conditions(tensor_map: TensorMap, rows: tuple[int, ...]) -> Iterator[str]:
    """Give each condition that does not hold."""
    if tensor_map.rank != 2:
        yield f"the tensor must have rank 2, got {tensor_map.rank}"
    elif tensor_map.box[1] != 1:
        yield f"the box must have one row, got {tensor_map.box[1]}: the instruction takes four boxes"
    if tensor_map.interleave != "none":
        yield f"interleave must be none, got {tensor_map.interleave}"
    if len(rows) != ROWS:
        yield f"there must be {ROWS} rows, got {len(rows)}"
