"""Pages of keys: rows of one matrix that a table gives to the sequences, a page at a time (traced).

TMA loads parts of pages that are whole periods of the swizzle, of 8 rows. Threads copy others row by row, by cp.async.
"""

import math
from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import cpasync

from cutepy.device import rules
from cutepy.device.pipeline import TmaRing
from cutepy.device.ragged import GroupedLoads, GroupedTiles
from cutepy.dsl.traced_names import at_the_caller
from cutepy.layouts.sm90 import arch

UNROLLED = 4
"""Steps of copies by threads without a branch between them."""


def part_of(page: int, tile: int) -> int:
    """Return the rows that one copy moves: of one page, and of one tile.

    Examples
    --------
    >>> part_of(16, 128), part_of(256, 128), part_of(48, 128)
    (16, 128, 16)
    """
    return math.gcd(page, tile)


@dataclass(frozen=True)
class Pages:
    """Pages of each sequence's rows, in one matrix.

    Attributes
    ----------
    table : Tensor (sequences, pages), int32
        Numbers of each sequence's pages, in order.
    page : int
        Rows of a page.
    pitch : Int32 or None
        Rows of the matrix from one page to the next; None for `page`.
    """

    table: cute.Tensor
    page: int
    pitch: cutlass.Int32 | None = None

    @cute.jit
    def start(self, sequence, row, length):
        """Read where in the matrix a sequence's row is; 0, without a read of the table, from its end on."""
        start = cutlass.Int32(0)
        if row < length:
            pitch = self.page if cutlass.const_expr(self.pitch is None) else self.pitch
            start = self.table[sequence, row // self.page] * pitch + row % self.page
        return start


@dataclass(frozen=True)
class PagedLoads:
    """TMA loads of tiles of a sequence's rows that lie in pages, into the stages of a ring.

    Rows beyond the sequence's last are zeros, whatever the rest of its last page holds; pages after it are not read,
    nor are their numbers.

    Attributes
    ----------
    pages : Pages
    loads : GroupedLoads
        Of a tile's parts.
    parts : int
        Number of parts.
    mode : 0 or 1
        Mode of rows.
    """

    pages: Pages
    loads: GroupedLoads
    parts: int
    mode: int

    @at_the_caller
    def load(self, coordinate, stage, full, found=None, *, loc=None, ip=None):
        """Issue TMA loads of the tile at (row, column, head, sequence, length); barrier `full` counts the bytes.

        A whole warp calls: each lane reads the number of one part's page. `found` is the result of `find` for this
        tile, where it was called before.
        """
        *tile, head, _, length = coordinate
        rows = self.rows
        first = tile[self.mode] * (rows * self.parts)
        starts = self.find(coordinate) if found is None else found
        for index in range(self.parts):
            row = first + index * rows
            start = cute.arch.shuffle_sync(starts, index)
            within = cutlass.max(cutlass.min(length - row, rows), 0)
            place = [0, 0]
            place[1 - self.mode] = tile[1 - self.mode]
            self.loads.load((*place, head, start, within), stage, full, part=index, loc=loc, ip=ip)

    def find(self, coordinate):
        """Read the numbers of a tile's pages, which takes as long as memory does, before its stage is free.

        They are the same for tiles of the same rows of other tensors that have the same pages.
        """
        *tile, _, sequence, length = coordinate
        first = tile[self.mode] * (self.rows * self.parts)
        # Of each lane's part, by its number.
        return self.pages.start(sequence, first + cute.arch.lane_idx() * self.rows, length)

    @property
    def rows(self) -> int:
        """Rows of a part."""
        return self.loads.tiles.tile[self.mode]


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
    pitch: cutlass.Int32 | None = None,
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
    loads = GroupedTiles(copy, tensor, staged, tuple(small), mode, batched=True).loads(ring, along, streams=streams)
    return PagedLoads(Pages(table, page, pitch), loads, count, mode)


@dataclass(frozen=True)
class PagedRows:
    """Copies by threads, as of `PagedLoads`, of pages of any number of rows.

    Each warp copies its share of a tile's rows, whose starts its lanes read.

    Attributes
    ----------
    pages : Pages
    tensor : Tensor (rows, heads, columns)
        In global memory, the columns contiguous, all steps of whole 16 bytes.
    staged : Tensor (columns, rows, stages)
        Shared memory.
    mode : 0 or 1
        Mode of rows in the coordinates of a tile.
    warps : int
        Warps that copy.
    """

    pages: Pages
    tensor: cute.Tensor
    staged: cute.Tensor
    mode: int
    warps: int

    @cute.jit
    def load(self, coordinate, stage, full):
        """Copy the tile at (row, column, head, sequence, length), and arrive at `full` once it has landed.

        All threads call, and have acquired the stage. Rows from the sequence's end on are zeros, and not read.
        """
        *tile, head, sequence, length = coordinate
        columns, rows = cute.size(self.staged, mode=[0]), cute.size(self.staged, mode=[1]) // self.warps
        elements = 128 // self.tensor.element_type.width
        lane, first = cute.arch.lane_idx(), cute.arch.make_warp_uniform(cute.arch.warp_idx()) % self.warps * rows
        in_sequence = tile[self.mode] * cute.size(self.staged, mode=[1]) + first
        start = self.pages.start(sequence, in_sequence + lane, length)
        copy = cute.make_copy_atom(
            cpasync.CopyG2SOp(cache_mode=cpasync.LoadCacheMode.GLOBAL), self.tensor.element_type, num_bits_per_copy=128
        )
        one, into = cute.make_layout(((elements, 1), 1)), self.staged[None, None, stage]
        along, beside = rules.piece_threads(columns // elements, arch.WARP_THREADS)
        own_row, own_piece = lane // along, lane % along
        of_head = head * cutlass.Int64(self.tensor.stride[1]) + own_piece * elements
        # Unrolled fully it would keep the addresses of all steps, for which a producer has too few registers.
        for step in cutlass.range(-(-rows // beside), unroll=UNROLLED):
            row = step * beside + own_row
            place = cutlass.Int64(cute.arch.shuffle_sync(start, row)) * self.tensor.stride[0] + of_head
            exists = cute.make_rmem_tensor((1, 1), cutlass.Boolean)
            exists[0] = in_sequence + row < length
            for group in cutlass.range_constexpr(columns // elements // along):
                offset = cute.assume(place + group * along * elements, divby=elements)
                to = cute.local_tile(into, (elements, 1), (own_piece + group * along, first + row)).iterator
                taken, landed = cute.make_tensor(self.tensor.iterator + offset, one), cute.make_tensor(to, one)
                if cutlass.const_expr(rows % beside == 0):
                    cute.copy(copy, taken, landed, pred=exists)
                elif row < rows:
                    cute.copy(copy, taken, landed, pred=exists)
        cute.arch.cp_async_mbarrier_arrive_noinc(full)


def make_paged_rows(
    tensor: cute.Tensor,
    staged: cute.Tensor,
    table: cute.Tensor,
    page: int,
    pitch: cutlass.Int32 | None,
    mode: int,
    threads: int,
) -> PagedRows:
    """Make the copies of tiles into stages `staged` (rows, columns, stages), of rows along `mode`, by so many threads.

    Raises
    ------
    ValueError
        If the rows of a tile are not shared equally by the warps, at most one a lane.
    """
    rows, warps = cute.size(staged, mode=[mode]), threads // arch.WARP_THREADS
    if rows % warps or rows > threads:
        raise ValueError(f"{warps} warps copy up to {threads} rows of a tile, as many each, got {rows}")
    columns_first = cute.make_tensor(staged.iterator, cute.select(staged.layout, mode=[1 - mode, mode, 2]))
    return PagedRows(Pages(table, page, pitch), tensor, columns_first, mode, warps)
