"""Sequences of a batch in one matrix: their rows, and a schedule of their tiles (traced).

Only the device knows the lengths: each warp reads them by itself, as `cutepy.device.grouped` does.
"""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute

from cutepy.device import rules
from cutepy.device.grouped import GroupedRows
from cutepy.device.rules.ragged import GroupRows
from cutepy.device.schedulers import longest_first


@dataclass(frozen=True)
class Sequences:
    """Rows of each sequence in a matrix that all share: packed one after another, or at equal distances.

    Attributes
    ----------
    known : Int32
        Number of sequences.
    rows : Int32
        Rows of the matrix, or, without `begins`, of each sequence: those beyond are no sequence's, whatever the lengths
        are.
    begins : Tensor (known + 1,), int32, or None
        First row of each sequence, where the one before ends. None if sequence i begins at row i * `pitch`.
    used : Tensor (known,), int32, or None
        Rows of each that are used; None for all.
    pitch : Int32 or None
        Rows from one sequence to the next, without `begins`; None for `rows`.
    """

    known: cutlass.Int32
    rows: cutlass.Int32
    begins: cute.Tensor | None = None
    used: cute.Tensor | None = None
    pitch: cutlass.Int32 | None = None

    @property
    def count(self):
        """Number of sequences."""
        return self.known

    @cute.jit
    def of(self, index):
        """Read the first row of a sequence, and its number of rows; 0 after the last sequence."""
        if cutlass.const_expr(self.begins is None):
            pitch = self.rows if cutlass.const_expr(self.pitch is None) else self.pitch
            start, length = cutlass.min(index, self.known) * pitch, cutlass.Int32(self.rows)
        else:
            start = cutlass.min(cutlass.max(self.begins[cutlass.min(index, self.known)], 0), self.rows)
            end = cutlass.Int32(self.rows)
            if index < self.known:
                end = cutlass.min(self.begins[index + 1], self.rows)
            length = end - start
        if cutlass.const_expr(self.used is not None):
            if index < self.known:
                length = cutlass.min(length, self.used[index])
        length = cutlass.max(length, 0)
        if index >= self.count:
            length = cutlass.Int32(0)
        return GroupRows(index, start, length)

    def most_tiles(self, tile: int):
        """Bound the number of tiles of all sequences, for sequences of any lengths."""
        if self.begins is None:
            return self.count * cute.ceil_div(self.rows, tile)
        return cute.ceil_div(self.rows, tile) + self.count

    @cute.jit
    def of_tile(self, index, tile: cutlass.Constexpr):
        """Find the sequence that has a tile, in a matrix that has its sequences in whole tiles."""
        low, high = cutlass.Int32(0), self.count
        while low + 1 < high:
            middle = (low + high) // 2
            is_behind = first_tile(self.of(middle), tile) > index
            low, high = (low, middle) if is_behind else (middle, high)
        return self.of(low)


@dataclass(frozen=True)
class SequencesAndTail(Sequences):
    """Sequences, of which the rows after the last given one are one more."""

    @property
    def count(self):
        """Number of sequences."""
        return self.known + 1


def first_tile(rows: GroupRows, tile: int):
    """Return the first of a sequence's tiles in a matrix that has its sequences in whole tiles.

    Examples
    --------
    >>> [first_tile(GroupRows(*each), 64) for each in ((0, 0, 65), (1, 65, 0), (2, 65, 64))]
    [0, 2, 3]
    """
    return rows.start // tile + rows.group


def tiles_of(rows: int, sequences: int, tile: int) -> int:
    """Return the number of tiles of a matrix that has its sequences in whole tiles, for sequences of any lengths.

    Examples
    --------
    >>> tiles_of(129, 3, 64)
    5
    """
    return rows // tile + sequences


@dataclass(frozen=True)
class SequenceTiles(GroupedRows):
    """Schedule of the tiles of sequences and heads, those with the most work first.

    Work has a `GroupRows` as its batch, the head as its column, and a row counted from the sequence's first.

    Attributes
    ----------
    shared_rows : Int32
        Rows of a head that L2 holds.
    heads_sharing : Int32
        Heads that read the same rows.
    grows : bool
        True if the last row has the most work, False if the first has.
    """

    shared_rows: cutlass.Int32 = 1
    heads_sharing: cutlass.Int32 = 1
    grows: bool = True

    @cute.jit
    def locate(self, scan, index):
        """Find the sequence of a scanned tile, its row and its head."""
        rules.check_rows_only(self.product.cluster_mn, self.product.parts)
        place, within = self.group_of(scan, index)
        rows = cute.ceil_div(place.length, self.tile)
        at_once = cutlass.max(self.shared_rows // place.length, 1) * self.heads_sharing
        rank, head = longest_first(within, rows, self.across, at_once)
        row = rows - 1 - rank if cutlass.const_expr(self.grows) else rank
        return row, head, place
