"""Pages of keys: rows of one matrix that a table gives to the sequences, a page at a time, loaded by TMA (traced)."""

import math
from dataclasses import dataclass

import cutlass
import cutlass.cute as cute

from cutepy.device.pipeline import TmaRing
from cutepy.device.ragged import GroupedTiles
from cutepy.dsl.traced_names import at_the_caller
from cutepy.layouts.sm90 import arch


def part_of(page: int, tile: int) -> int:
    """Return the rows that one copy moves: of one page, and of one tile.

    Examples
    --------
    >>> part_of(16, 128), part_of(256, 128), part_of(48, 128)
    (16, 128, 16)
    """
    return math.gcd(page, tile)


@dataclass(frozen=True)
class PagedLoads:
    """TMA loads of tiles of a sequence's rows that lie in pages, into the stages of a ring.

    Rows beyond the sequence's last are zeros, whatever the rest of its last page holds; pages behind it are not read,
    nor are their numbers.

    Attributes
    ----------
    table : Tensor (sequences, pages), int32
        Numbers of each sequence's pages, in order.
    page : int
        Rows of a page.
    parts : tuple of GroupedLoads
        Of a tile's parts, each into its rows of the stages.
    mode : 0 or 1
        Mode of rows.
    """

    table: cute.Tensor
    page: int
    parts: tuple
    mode: int

    @at_the_caller
    def load(self, coordinate, stage, full, found=None, *, loc=None, ip=None):
        """Issue TMA loads of the tile at (row, column, head, sequence, length); barrier `full` counts the bytes.

        A whole warp calls: each lane reads the number of one part's page. `found` is the result of `find` for this
        tile, where it was called before.
        """
        *tile, head, _, length = coordinate
        rows = self.rows
        first = tile[self.mode] * (rows * len(self.parts))
        starts = self.find(coordinate) if found is None else found
        for index, part in enumerate(self.parts):
            row = first + index * rows
            start = cute.arch.shuffle_sync(starts, index)
            within = cutlass.max(cutlass.min(length - row, rows), 0)
            place = [0, 0]
            place[1 - self.mode] = tile[1 - self.mode]
            part.load((*place, head, start, within), stage, full, loc=loc, ip=ip)

    def find(self, coordinate):
        """Read the numbers of a tile's pages, which takes as long as memory does, before its stage is free.

        They are the same for tiles of the same rows of other tensors that have the same pages.
        """
        *tile, _, sequence, length = coordinate
        return self.starts(tile[self.mode] * (self.rows * len(self.parts)), self.rows, sequence, length)

    @property
    def rows(self) -> int:
        """Rows of a part."""
        return self.parts[0].tiles.tile[self.mode]

    @cute.jit
    def starts(self, first, rows: cutlass.Constexpr, sequence, length):
        """Return, in each lane, where in the matrix the part of a tile begins whose number is the lane's."""
        row = first + cute.arch.lane_idx() * rows
        start = cutlass.Int32(0)
        if row < length:
            start = self.table[sequence, row // self.page] * self.page + row % self.page
        return start


def make_paged_loads(
    copy: cute.CopyAtom,
    tensor: cute.Tensor,
    staged: cute.Tensor,
    tile: tuple[int, int],
    table: cute.Tensor,
    page: int,
    mode: int,
    ring: TmaRing | None = None,
    along: int = 1,
    *,
    streams: bool = False,
) -> PagedLoads:
    """Make the loads of tiles into stages `staged` (rows, columns, stages), of rows along `mode`.

    All CTAs along a mode of the ring's cluster share the tiles, and L2 keeps what `streams` shortest, as of
    `GroupedTiles.loads`. `copy` and `tensor` are those of a `ragged_view` of all pages, made for tiles of
    `part_of(page, tile[mode])` rows.

    Raises
    ------
    ValueError
        If a tile has more parts than a warp has lanes.
    """
    rows = part_of(page, tile[mode])
    count = tile[mode] // rows
    if count > arch.WARP_THREADS:
        raise ValueError(
            f"a tile must have at most {arch.WARP_THREADS} parts of pages, got {count}: pages of {page} rows and tiles "
            f"of {tile[mode]} share a divisor of {rows}; take pages of a multiple of 8 rows"
        )
    small = list(tile)
    small[mode] = rows
    parts = []
    for index in range(count):
        place = [0, 0, None]
        place[mode] = index
        own = cute.local_tile(staged, tuple(small), tuple(place))
        parts.append(
            GroupedTiles(copy, tensor, own, tuple(small), mode, batched=True).loads(ring, along, streams=streams)
        )
    return PagedLoads(table, page, tuple(parts), mode)
