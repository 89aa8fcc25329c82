"""Equal parts of the keys of all sequences: each CTA has adjoining tiles, of one sequence or of several (traced).

Sequences of any lengths keep all CTAs busy for the same time, without the host knowing them. A sequence that lies in
several parts has a partial result of each, which a second kernel combines; it finds them by the same arithmetic.
(FlashMLA and Stream-K deal out work likewise.)
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import cutlass
import cutlass.cute as cute

from cutepy.device import rules
from cutepy.device.bands import Band
from cutepy.device.grouped import GroupedRows
from cutepy.device.rules.ragged import GroupRows
from cutepy.device.sequences import Sequences
from cutepy.layouts.sm90 import arch


@dataclass(frozen=True)
class VisibleKeys:
    """Keys of each sequence that some rows of queries see; it has the methods of `Sequences`.

    Attributes
    ----------
    keys : Sequences
    band : Band
        Band of the queries, for any keys.
    last : Int32
        Last of the rows.
    """

    keys: Sequences
    band: Band
    last: cutlass.Int32

    @property
    def count(self):
        """Number of sequences."""
        return self.keys.count

    def band_of(self, rows: GroupRows) -> Band:
        """Return the band of the queries and the keys of a sequence."""
        return replace(self.band, keys=rows.length)

    @cute.jit
    def of(self, index):
        """Read the first row of a sequence, and the number of its keys up to the last that is seen."""
        rows = self.keys.of(index)
        return GroupRows(index, rows.start, cutlass.max(self.band_of(rows).end(self.last), 0))


class Piece(NamedTuple):
    """Adjoining tiles of one sequence's keys.

    Attributes
    ----------
    sequence : Int32
    begin, end : Int32
        First of the tiles, and the one after the last.
    part : Int32
        Index of the part that it is of.
    count : Int32
        Parts that the sequence lies in.
    """

    sequence: cutlass.Int32
    begin: cutlass.Int32
    end: cutlass.Int32
    part: cutlass.Int32
    count: cutlass.Int32

    @property
    def slot(self):
        """Slot of a partial result: one for a sequence that the part continues, one for a sequence that it begins."""
        return slot_of(self.part, cutlass.Int32(self.begin == 0))


def slot_of(part, begins):
    """Return the slot of a part's result: 1 if the part begins a sequence, 0 if it continues one.

    Examples
    --------
    >>> slot_of(3, 0), slot_of(3, 1)
    (6, 7)
    """
    return 2 * part + begins


@dataclass(frozen=True)
class KeyParts(GroupedRows):
    """Schedule of equal parts of all sequences' tiles of keys.

    `groups` are the sequences, or the keys of them that are seen, and `tile` is the number of keys of a tile; the other
    attributes of the product are not read.

    Attributes
    ----------
    parts : Int32
    least : int
        Tiles that a part has at least, for which a partial result pays.
    """

    parts: cutlass.Int32 = 1
    least: int = 1

    @cute.jit
    def pieces(self, worker: Any, part):
        """Run a worker on the pieces of one part, in order; return its last state."""
        rules.check_worker(worker)
        tiles = self.all_tiles()
        each = cutlass.max(cute.ceil_div(tiles, self.parts), self.least)
        index = part * each
        end = cutlass.min(index + each, tiles)
        scan = self.scan(cutlass.Int32(0), cutlass.Int32(0))
        state = worker.first_state(None)
        while index < end:
            while scan.end <= index:
                scan = self.scan(scan.first + arch.WARP_THREADS, scan.end)
            rows, begin = self.group_of(scan, index)
            of_sequence = cute.ceil_div(rows.length, self.tile)
            first = index - begin
            owners = (first + of_sequence - 1) // each - first // each + 1
            count = cutlass.min(of_sequence - begin, end - index)
            state = worker.on_piece(Piece(rows.group, begin, begin + count, part, owners), state)
            index += count
        return state

    @cute.jit
    def all_tiles(self):
        """Count the tiles of all sequences; whole warps call. The lanes' reads don't wait for one another."""
        count = cutlass.Int32(0)
        for index in cutlass.range(cute.arch.lane_idx(), self.groups.count, arch.WARP_THREADS, unroll=4):
            count += cute.ceil_div(self.groups.of(index).length, self.tile)
        return cute.arch.warp_redux_sync(count, "add")

    @cute.jit
    def sequence(self, worker: Any, index):
        """Run a worker on all tiles of one sequence, on one if it has no keys; return its last state."""
        rules.check_worker(worker)
        tiles = cutlass.max(cute.ceil_div(self.groups.of(index).length, self.tile), 1)
        piece = Piece(index, cutlass.Int32(0), tiles, index, cutlass.Int32(1))
        return worker.on_piece(piece, worker.first_state(None))
