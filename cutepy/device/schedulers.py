"""Persistent tile schedulers: deal output tiles, and their K, to CTAs (traced).

A scheduler returns `Work`. All warps of a CTA query the same scheduler, each in a loop of its own, and get the same
work in the same order, so that the producer loads exactly the tiles that the consumers multiply; CTAs of one cluster
work at the same time on neighbouring tiles. Loops belong to the scheduler: ``scheduler.each(worker)`` calls
``worker.first_state(k)`` and then ``worker.on_tile(work, state)`` for each tile, and carries its result. A scheduler
that takes its next tile from a counter (`cutepy.device.dynamic`) has another loop, with the same workers.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import cutlass
import cutlass.cute as cute

from cutepy.device import rules
from cutepy.device.primitives import select
from cutepy.device.rasterise import Divisors, coordinates_of, tile_of
from cutepy.dsl.launch_facts import launched


@dataclass(frozen=True)
class KTiles:
    """K tiles of one CTA for an output tile: `count` from `first`, `step` apart.

    There is at least one, even where K has none left: beyond the end TMA fills in zeros.
    """

    first: cutlass.Int32 | int
    count: cutlass.Int32
    step: int

    def __getitem__(self, index):
        """Return the index of one of the K tiles."""
        return self.first + index * self.step


@dataclass(frozen=True)
class Work:
    """Unit of work of a CTA: an output tile, and its part of K.

    Attributes
    ----------
    row, column : Int32
        Coordinates of the output tile, in tiles.
    batch : tuple of Int32
        Batch coordinates of its product.
    k : KTiles
        Its part of K.
    index, first, end, step : Int32
        Index of the tile among all; of this CTA's first; after the last; step to the next.
    sharing : object
        Role of the CTA in a shared tile, by schedulers that share tiles.
    """

    row: cutlass.Int32
    column: cutlass.Int32
    batch: tuple
    k: KTiles
    index: cutlass.Int32
    first: cutlass.Int32
    end: cutlass.Int32
    step: cutlass.Int32
    sharing: Any = None

    @property
    def is_first(self):
        """True if this is the CTA's first tile."""
        return self.index == self.first

    @property
    def has_next(self):
        """True if the CTA has another tile after this one."""
        return self.index + self.step < self.end


def make_divisors(raster: tuple, band_rows: int = 8) -> Divisors:
    """Make the fast divisors of a kernel, in the function that launches it: see `Persistent`.

    Each takes the host 30 ns.
    """
    rows, columns, *batch = raster
    band, last_rows, product = Divisors.of(rows, columns, band_rows)
    return Divisors(_divisor(band), _divisor(last_rows), _divisor(product) if batch else None)


def _divisor(number) -> cute.FastDivmodDivisorV2:
    """Make a fast divisor; a divisor of zero, of an empty product, would end the process, so it is replaced."""
    return cute.fast_divmod_create_divisor_v2(cutlass.max(number, 1))


@dataclass(frozen=True)
class Persistent:
    """Persistent scheduler: cluster n of N takes tiles n, n + N, n + 2N ..., in bands of rows that share L2.

    Several groups of consumers may take a CTA's tiles in turn, and CTAs along the cluster's third mode share the K of
    each tile. Neither needs anything in memory.

    Attributes
    ----------
    raster : tuple of Int32
        Rows and columns of clusters that cover the output, then the extents of the batch.
    k_tiles : Int32
        Tiles of K.
    cluster_mn : (int, int)
        CTAs of a cluster along M and N, beside each other's tiles.
    parts : int
        CTAs of a cluster that share K: its extent along the third mode.
    band_rows : int
        Rows of clusters in a band (`cutepy.device.rasterise`).
    divisors : Divisors, optional
        Divisors of `make_divisors`, for this raster and these bands: 35 instructions find a tile with them, 95 without.
    extents : tuple, optional
        Divisors of `extent_divisors`, of the extents of the batch.
    """

    raster: tuple
    k_tiles: cutlass.Int32
    cluster_mn: tuple[int, int] = (1, 1)
    parts: int = 1
    band_rows: int = 8
    divisors: Divisors | None = None
    extents: tuple | None = None

    def __post_init__(self) -> None:
        rules.check_schedule(self.cluster_mn, self.parts, self.band_rows)
        rules.check_cluster("a scheduler", (*self.cluster_mn, self.parts), launched().cluster)

    @cute.jit
    def k(self):
        """Return this CTA's K tiles, the same for all output tiles: part p of P takes K tiles p, p + P, p + 2P ..."""
        if cutlass.const_expr(self.parts == 1):
            return KTiles(0, self.k_tiles, 1)
        part = cute.arch.block_in_cluster_idx()[2]
        count = (self.k_tiles - part + self.parts - 1) // self.parts
        return KTiles(part, cutlass.max(count, 1), self.parts)

    @cute.jit
    def each(self, worker: Any, turn: Any = 0, turns: cutlass.Constexpr = 1):
        """Run a worker on this CTA's tiles, or on this consumer's share if consumers take turns; return the last state.

        Parameters
        ----------
        worker : object
            ``first_state(k)`` gives what it carries from tile to tile, something that the DSL carries through a loop,
            and ``on_tile(work, state)`` what it carries on. A frozen dataclass: the loop reads it, and carries nothing
            of it.
        turn, turns : Int32, int
            Index of this thread's consumer among those that take turns, and their number.

        Raises
        ------
        TypeError
            If the worker is no frozen dataclass.
        """
        rules.check_worker(worker)
        k = self.k()
        first, _, _ = cute.arch.cluster_idx()
        step, _, _ = cute.arch.cluster_dim()
        end = math.prod(self.raster)
        state = worker.first_state(k)
        for index in cutlass.range(first + turn * step, end, step * turns, unroll=1):
            row, column, batch = self.locate(index)
            state = worker.on_tile(Work(row, column, batch, k, index, first, end, step), state)
        return state

    def of_batch(self, product):
        """Return the batch coordinates of a product."""
        return coordinates_of(product, self.raster[2:] if self.extents is None else self.extents)

    def by(self) -> Divisors:
        """Return the divisors of tile indices."""
        return Divisors.of(*self.raster[:2], self.band_rows) if self.divisors is None else self.divisors

    @cute.jit
    def locate(self, index):
        """Find the row and column of this CTA's output tile, and the batch coordinates of its product."""
        block_m, block_n, _ = cute.arch.block_in_cluster_idx()
        rows, columns = self.raster[:2]
        divisors, batch = self.by(), ()
        if cutlass.const_expr(len(self.raster) > 2):
            product = index // divisors.product
            batch, index = self.of_batch(product), index - product * (rows * columns)
        row, column = tile_of(index, rows, self.band_rows, divisors, select)
        return row * self.cluster_mn[0] + block_m, column * self.cluster_mn[1] + block_n, batch


def extent_divisors(extents: tuple) -> tuple:
    """Make the fast divisors of the extents of a batch, in the function that launches the kernel."""
    return tuple(_divisor(each) for each in extents)


class SectionDivisors(NamedTuple):
    """Fast divisors of sections of products.

    Attributes
    ----------
    tiles : FastDivmodDivisorV2
        Tiles of a section.
    at_once, last : FastDivmodDivisorV2
        Products of a section, and of the last one.
    """

    tiles: Any
    at_once: Any
    last: Any


def section_divisors(raster: tuple, at_once) -> SectionDivisors:
    """Make the fast divisors of `LongestFirst`, in the function that launches the kernel."""
    rows, _, *batch = raster
    last = (math.prod(batch) - 1) % at_once + 1
    return SectionDivisors(_divisor(rows * at_once), _divisor(at_once), _divisor(last))


@dataclass(frozen=True)
class LongestFirst(Persistent):
    """Scheduler of tiles whose work grows, or falls, with their row, as under a causal mask: the longest come first.

    Launched with a CTA a tile, the hardware starts the next tile wherever one ends, so the short ones fill the gaps.
    Products share L2 in sections: their tiles of one row follow each other, and the next section begins when this one
    has begun all its rows.

    Attributes
    ----------
    at_once : Int32
        Products of a section.
    grows : bool
        True if the last row has the most work, False if the first has.
    sections : SectionDivisors, optional
        Divisors of `section_divisors`.
    """

    at_once: cutlass.Int32 = 1
    grows: bool = True
    sections: SectionDivisors | None = None

    @cute.jit
    def locate(self, index):
        """Find the row of an output tile, the longest first, and the batch coordinates of its product."""
        rules.check_rows_only(self.cluster_mn, self.parts)
        rows, _, *batch = self.raster
        products, sections = math.prod(batch), self.sections
        if cutlass.const_expr(sections is None):
            rank, product = longest_first(index, rows, products, self.at_once)
        else:
            section = index // sections.tiles
            first = section * self.at_once
            within, last = index - section * (rows * self.at_once), products - first
            is_whole = last >= self.at_once
            rank = select(is_whole, within // sections.at_once, within // sections.last)
            product = first + within - rank * select(is_whole, self.at_once, last)
        row = rows - 1 - rank if cutlass.const_expr(self.grows) else rank
        return row, cutlass.Int32(0), self.of_batch(product)


def longest_first(index, rows, products, at_once):
    """Map a tile's index to the rank of its row, the longest first, and its product; see `LongestFirst`.

    Examples
    --------
    >>> [longest_first(i, 2, 3, 2) for i in range(6)]
    [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (1, 2)]
    """
    section = index // (rows * at_once)
    within, first = index - section * (rows * at_once), section * at_once
    width = cutlass.min(at_once, products - first)
    rank = within // width
    return rank, first + within - rank * width
