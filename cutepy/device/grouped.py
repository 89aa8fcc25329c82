"""Grouped tile scheduler: deals the tiles of grouped products to CTAs; only the device knows the extents (traced).

Each warp reads the ends of groups by itself, 32 groups at a time, one in each lane, and finds the group of a tile by
shuffles, so it needs no shared memory, no barrier and no host. All warps of a CTA, and the CTAs of a cluster, compute
the same tiles in the same order. Whole warps call.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import cutlass
import cutlass.cute as cute

from cutepy.device import rules
from cutepy.device.primitives import select
from cutepy.device.rasterise import Divisors, tile_of
from cutepy.device.rules.ragged import GroupRows
from cutepy.device.schedulers import KTiles, Persistent, Work
from cutepy.layouts.sm90 import arch


@dataclass(frozen=True)
class Groups:
    """Ends of the groups of a tensor's rows.

    Attributes
    ----------
    ends : Tensor, (groups,), int32
        The end of each group, where the next begins; or, if `padded`, the rows of each, the first of a matrix of its
        own.
    rows : Int32
        Rows of the matrix: rows beyond are not read as a group's, for any ends.
    padded : bool
    unit : int
        Ends that are no multiples of it are taken for the next one.
    """

    ends: cute.Tensor
    rows: cutlass.Int32
    padded: bool = False
    unit: int = 1

    @property
    def count(self):
        """Number of groups."""
        return cute.size(self.ends)

    def end(self, group):
        """Read the end of a group, rounded up to the unit, and not beyond the last row."""
        end = cutlass.min(self.ends[group], self.rows)
        return end if self.unit == 1 else cute.ceil_div(end, self.unit) * self.unit

    @cute.jit
    def of(self, group):
        """Read the first row of a group, and its number of rows; 0 after the last group.

        Whatever the ends are, no group has rows before the first or beyond the last. Ends that descend give groups
        that share rows.
        """
        at = cutlass.min(group, self.count - 1)
        end = self.end(at)
        start = cutlass.Int32(0)
        if cutlass.const_expr(not self.padded):
            if at > 0:
                start = cutlass.max(self.end(at - 1), 0)
        length = cutlass.max(end - start, 0)
        if group >= self.count:
            length = cutlass.Int32(0)
        return GroupRows(group, start, length)


class Scan(NamedTuple):
    """Prefix sums of the tiles of 32 groups, one group in each lane.

    Attributes
    ----------
    first : Int32
        Index of the first of the groups.
    start, length : Int32
        First row and number of rows of this lane's group.
    below, upto : Int32
        Tiles before this lane's group, and with it, in the order of all.
    end : Int32
        Tiles with the last of the 32 groups.
    """

    first: cutlass.Int32
    start: cutlass.Int32
    length: cutlass.Int32
    below: cutlass.Int32
    upto: cutlass.Int32
    end: cutlass.Int32


@dataclass(frozen=True)
class GroupedRows:
    """Persistent schedule of grouped rows: cluster n of N takes tiles n, n + N, n + 2N ... of all groups' products.

    A group's rows are along one mode of the output; along the other, and along K, all groups are alike. Work has a
    `GroupRows` as its batch, and its row and column are counted from the group's first.

    Attributes
    ----------
    groups : Groups
    mode : 0 or 1
        Mode of the output along which the groups' extents are.
    tile : int
        Extent of a CTA's tile along this mode.
    across : Int32
        Clusters that cover the other mode.
    product : Persistent
        Scheduler of the tiles of one product; its `raster` is not read.
    """

    groups: Groups
    mode: int
    tile: int
    across: cutlass.Int32
    product: Persistent

    @cute.jit
    def each(self, worker: Any, turn: Any = 0, turns: cutlass.Constexpr = 1):
        """Run a worker on this CTA's tiles, as `Persistent.each` does."""
        rules.check_worker(worker)
        k = self.product.k()
        first, _, _ = cute.arch.cluster_idx()
        step, _, _ = cute.arch.cluster_dim()
        scan = self.scan(cutlass.Int32(0), cutlass.Int32(0))
        end = self.last(scan)
        state = worker.first_state(k)
        for index in cutlass.range(first + turn * step, end, step * turns, unroll=1):
            while scan.end <= index:
                scan = self.scan(scan.first + arch.WARP_THREADS, scan.end)
            row, column, rows = self.locate(scan, index)
            state = worker.on_tile(Work(row, column, rows, k, index, first, end, step), state)
        return state

    @cute.jit
    def last(self, scan):
        """Count the tiles of all groups."""
        while scan.first + arch.WARP_THREADS < self.groups.count:
            scan = self.scan(scan.first + arch.WARP_THREADS, scan.end)
        return scan.end

    @cute.jit
    def scan(self, first, below):
        """Count the tiles of 32 groups from `first` on, with `below` tiles before them."""
        lane = cute.arch.lane_idx()
        _, start, length = self.groups.of(first + lane)
        tiles = cute.ceil_div(length, self.tile * self.product.cluster_mn[self.mode]) * self.across
        upto = tiles
        for bit in cutlass.range_constexpr(5):
            other = cute.arch.shuffle_sync_up(upto, 1 << bit, mask_and_clamp=0)
            if lane >= 1 << bit:
                upto += other
        upto += below
        end = cute.arch.shuffle_sync(upto, arch.WARP_THREADS - 1)
        return Scan(first, start, length, upto - tiles, upto, end)

    @cute.jit
    def locate(self, scan, index):
        """Find the group of a scanned tile, and this CTA's row and column in its product."""
        place, within = self.group_of(scan, index)
        cluster_mn = self.product.cluster_mn
        extents = [self.across, self.across]
        extents[self.mode] = cute.ceil_div(place.length, self.tile * cluster_mn[self.mode])
        band_rows = self.product.band_rows
        row, column = tile_of(within, extents[0], band_rows, Divisors.of(*extents, band_rows), select)
        block_m, block_n, _ = cute.arch.block_in_cluster_idx()
        return row * cluster_mn[0] + block_m, column * cluster_mn[1] + block_n, place

    @cute.jit
    def group_of(self, scan, index):
        """Find the group of a scanned tile, and the tile's index in it."""
        # Lanes whose groups end before the tile precede the lane of its group.
        lane = cute.arch.popc(cute.arch.vote_ballot_sync(scan.upto <= index))
        start, length, below = (cute.arch.shuffle_sync(x, lane) for x in (scan.start, scan.length, scan.below))
        return GroupRows(scan.first + lane, start, length), index - below


@dataclass(frozen=True)
class GroupedK:
    """Persistent schedule of groups along K: cluster n of N takes tiles n, n + N, n + 2N ... of all groups' products.

    A group whose K is 0 still has one K tile, of zeros: its product is zero.

    Where groups begin at whole tiles of K (their unit is `tile_k`), the tiles are those of the matrix, and that one is
    beyond its last.

    Attributes
    ----------
    groups : Groups
        Along K.
    tile_k : int
    product : Persistent
        Over rows, columns and groups; its K is not read.
    """

    groups: Groups
    tile_k: int
    product: Persistent

    @cute.jit
    def each(self, worker: Any, turn: Any = 0, turns: cutlass.Constexpr = 1):
        """Run a worker on this CTA's tiles, as `Persistent.each` does; its first state gets a K of one tile."""
        rules.check_worker(worker)
        rows, columns, groups = self.product.raster
        first, _, _ = cute.arch.cluster_idx()
        step, _, _ = cute.arch.cluster_dim()
        end = rows * columns * groups
        state = worker.first_state(KTiles(0, cutlass.Int32(1), 1))
        for index in cutlass.range(first + turn * step, end, step * turns, unroll=1):
            row, column, (group,) = self.product.locate(index)
            place = self.groups.of(group)
            tile = cutlass.Int32(0)
            if cutlass.const_expr(self.groups.unit == self.tile_k):
                tile = place.start // self.tile_k
                if place.length == 0:
                    tile = cute.ceil_div(self.groups.rows, self.tile_k)
            k = KTiles(tile, cutlass.max(cute.ceil_div(place.length, self.tile_k), 1), 1)
            state = worker.on_tile(Work(row, column, place, k, index, first, end, step), state)
        return state
