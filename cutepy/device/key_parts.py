"""Equal parts of the keys of all sequences: each CTA has adjoining tiles, of one sequence or of several (traced).

Sequences of any lengths keep all CTAs busy for the same time, without the host knowing them. A sequence that lies in
several parts has a partial result of each, which a second kernel combines; it finds them by the same arithmetic.
(FlashMLA and Stream-K deal out work likewise.)
"""

from dataclasses import dataclass
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
class KeysSeen:
    """Keys of each sequence that some rows of queries see, which stand where `Sequences` do.

    Attributes
    ----------
    keys : Sequences
    band : Band
        Of the queries, whatever its keys are.
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
        return Band(self.band.queries, rows.length, self.band.left, self.band.right, self.band.sharing)

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
        First of the tiles, and the one behind the last.
    tiles : Int32
        Of the whole sequence.
    part : Int32
        Index of the part that it is of.
    """

    sequence: cutlass.Int32
    begin: cutlass.Int32
    end: cutlass.Int32
    tiles: cutlass.Int32
    part: cutlass.Int32

    @property
    def is_whole(self):
        """True if these are all tiles of the sequence."""
        return (self.begin == 0) & (self.end == self.tiles)

    @property
    def slot(self):
        """Slot of a partial result: each part has one for what it goes on with, and one for what it begins."""
        return slot_of(self.part, self.begin == 0)


def slot_of(part, begins):
    """Return the slot of the result of a part that begins a sequence, or goes on with one.

    Examples
    --------
    >>> slot_of(3, False), slot_of(3, True)
    (6, 7)
    """
    return 2 * part + cutlass.Int32(begins) if isinstance(begins, cutlass.Numeric) else 2 * part + int(begins)


class Owners(NamedTuple):
    """Parts that a sequence lies in: `count` from `first` on, in order.

    Attributes
    ----------
    first, count : Int32
    """

    first: cutlass.Int32
    count: cutlass.Int32


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

    def per_part(self, tiles):
        """Return the tiles of a part."""
        return cutlass.max(cute.ceil_div(tiles, self.parts), self.least)

    @cute.jit
    def pieces(self, worker: Any, part):
        """Run a worker on the pieces of one part, in order; return its last state."""
        rules.check_worker(worker)
        scan = self.scan(cutlass.Int32(0), cutlass.Int32(0))
        tiles = self.last(scan)
        each = self.per_part(tiles)
        index = part * each
        end = cutlass.min(index + each, tiles)
        state = worker.first_state(None)
        while index < end:
            while scan.end <= index:
                scan = self.scan(scan.first + arch.WARP_THREADS, scan.end)
            rows, begin = self.group_of(scan, index)
            of_sequence = cute.ceil_div(rows.length, self.tile)
            count = cutlass.min(of_sequence - begin, end - index)
            state = worker.on_piece(Piece(rows.group, begin, begin + count, of_sequence, part), state)
            index += count
        return state

    @cute.jit
    def sequence(self, worker: Any, index):
        """Run a worker on all tiles of one sequence, of which there may be none; return its last state."""
        rules.check_worker(worker)
        tiles = cute.ceil_div(self.groups.of(index).length, self.tile)
        return worker.on_piece(Piece(index, cutlass.Int32(0), tiles, tiles, index), worker.first_state(None))

    @cute.jit
    def owners(self, sequence):
        """Return the parts that a sequence lies in; whole warps call."""
        scan = self.scan(cutlass.Int32(0), cutlass.Int32(0))
        each = self.per_part(self.last(scan))
        while scan.first + arch.WARP_THREADS <= sequence:
            scan = self.scan(scan.first + arch.WARP_THREADS, scan.end)
        lane = sequence - scan.first
        below, upto = (cute.arch.shuffle_sync(x, lane) for x in (scan.below, scan.upto))
        first = below // each
        count = (upto - 1) // each + 1 - first
        if upto == below:
            count = cutlass.Int32(0)
        return Owners(first, count)
