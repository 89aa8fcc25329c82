"""Rows of matrices in the registers of the threads that share them, and reductions over them (traced).

Threads of a row load vectors that are next to one another, so that a warp reads whole lines of memory. All is in fp32.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32

from cutepy.device import reduce, smem
from cutepy.device.global_copies import RowVectors
from cutepy.device.primitives import select
from cutepy.layouts.sm90 import arch


@dataclass(frozen=True)
class HeldRows:
    """The threads that hold a row, one of `tiling.rows` of a CTA, or a CTA's part of one.

    Attributes
    ----------
    tiling : RowTiling
        `elems`, `threads`, `vectors`, `rows`, `ctas`.
    slots : dict of str to Tensor
        Shared memory of reductions: `of_warps`, and `of_rows` where a CTA has several rows.
    barrier : int
        Named barrier at which a CTA's threads meet.
    thread : Int32
        Index among the CTA's threads of this row.
    group : Int32
        Which of the CTA's rows at a time this is.
    rank : Int32
        Of the CTA in its cluster.
    first : Int32
        Vectors of the row before this piece of it: 0 unless the row has several, of which `piece` gives each.
    """

    tiling: Any
    slots: dict
    barrier: int
    thread: Int32
    group: Int32
    rank: Int32
    first: Any = 0

    def vector(self, index):
        """Return the place in a row of this thread's vector `index`."""
        return self.first + (index * self.tiling.ctas + self.rank) * self.tiling.threads + self.thread

    def piece(self, number):
        """Return the threads that hold another piece of the row: columns from `number * tiling.columns` on."""
        return replace(self, first=number * (self.tiling.columns // self.tiling.elems))

    def empty(self):
        """Return registers for a row, (elems, vectors), fp32."""
        return cute.make_rmem_tensor((self.tiling.elems, self.tiling.vectors), Float32)

    @cute.jit
    def load(self, source: RowVectors, row, streams: cutlass.Constexpr = False):
        """Load this thread's part of a row; elements beyond the last row or column are zero."""
        return self.held(self.fetch(source, row, streams))

    def fetch(self, source: RowVectors, row, streams: bool = False):
        """Begin to load this thread's part of a row into registers of the tensor's type, which `held` converts."""
        fetched = cute.make_rmem_tensor((self.tiling.elems, self.tiling.vectors), source.tensor.element_type)
        self.fetch_into(fetched, source, row, streams)
        return fetched

    @cute.jit
    def fetch_into(self, fetched, source: RowVectors, row, streams: cutlass.Constexpr = False):
        """Begin to load this thread's part of another row into the registers of `fetch`."""
        for part, index in self._parts(fetched, source):
            part.store(source.load(row, index, streams).load())

    def held(self, fetched):
        """Convert what was fetched, for which it waits."""
        held = self.empty()
        held.store(fetched.load().to(Float32))
        return held

    @cute.jit
    def store(self, values, target: RowVectors, row):
        """Store this thread's part of a row, rounded to the tensor's type."""
        rounded = cute.make_rmem_tensor((self.tiling.elems, self.tiling.vectors), target.tensor.element_type)
        rounded.store(values.load().to(target.tensor.element_type))
        for part, index in self._parts(rounded, target):
            target.store(part, row, index)

    def _parts(self, values, vectors: RowVectors):
        """Yield this thread's registers by the vectors of a tensor, which may be narrower, and their places."""
        elems = vectors.elems
        narrower = self.tiling.elems // elems
        for index in range(self.tiling.vectors):
            for part in range(narrower):
                registers = values.iterator + (index * narrower + part) * elems
                yield cute.make_tensor(registers, cute.make_layout(elems)), self.vector(index) * narrower + part

    def fill_beyond(self, values, columns, value):
        """Replace elements beyond the last column."""
        whole = cute.get_divisibility(columns) % self.tiling.elems == 0
        for index in range(self.tiling.vectors):
            first = self.vector(index) * self.tiling.elems
            for place in range(self.tiling.elems):
                beyond = (first if whole else first + place) >= columns
                values[place, index] = select(beyond, Float32(value), values[place, index])

    def fold(self, values, operation: Callable):
        """Combine the registers of this thread, pairwise."""
        found = [values[n] for n in range(cute.size(values))]
        while len(found) > 1:
            pairs = [operation(x, y) for x, y in zip(found[::2], found[1::2], strict=False)]
            found = pairs + found[len(pairs) * 2 :]
        return found[0]

    @cute.jit
    def reduce(self, value, operation: Callable, turn=None):
        """Reduce a value of each thread over the threads of a row; all threads of a CTA call, and of a cluster.

        With `turn`, 0 and 1 alternately in calls that follow one another, threads meet once in a call, else twice.
        """
        threads, ctas = self.tiling.threads, self.tiling.ctas
        if cutlass.const_expr(ctas > 1):
            return reduce.cluster_reduce(value, self.slots["of_warps"], self.thread, threads, ctas, operation, turn)
        if cutlass.const_expr(threads > arch.WARP_THREADS):
            return reduce.block_reduce(
                value, self.slots["of_warps"], self.thread, threads, self.barrier, operation, turn
            )
        return self.reduce_lanes(value, threads, operation)

    @cute.jit
    def reduce_lanes(self, value, lanes: cutlass.Constexpr, operation: Callable):
        """Reduce a value over so many neighbouring lanes, a power of 2; all lanes of a warp call."""
        for step in cutlass.range_constexpr(lanes.bit_length() - 1):
            value = operation(value, cute.arch.shuffle_sync_bfly(value, offset=1 << step))
        return value

    @cute.jit
    def sum_rows(self, values):
        """Sum the registers of a CTA's rows into those of the first; all threads of a CTA call."""
        size, lanes = cute.size(values), self.tiling.threads
        for register in cutlass.range_constexpr(size):
            offset = lanes
            while cutlass.const_expr(offset < arch.WARP_THREADS):
                values[register] = values[register] + cute.arch.shuffle_sync_bfly(values[register], offset=offset)
                offset *= 2
        warps = self.tiling.cta // arch.WARP_THREADS
        held = cute.make_tensor(self.slots["of_rows"].iterator, cute.make_layout((lanes, size, warps)))
        warp, lane = cute.arch.warp_idx(), self.thread
        if cute.arch.lane_idx() < lanes:
            for register in cutlass.range_constexpr(size):
                held[lane, register, warp] = values[register]
        cute.arch.sync_threads()
        if warp == 0:
            for register in cutlass.range_constexpr(size):
                for other in cutlass.range_constexpr(1, warps):
                    values[register] = values[register] + held[lane, register, other]
        cute.arch.sync_threads()

    def total(self, values, turn=None):
        """Return the sum of a row; `turn` as of `reduce`."""
        return self.reduce(self.fold(values, reduce.add), reduce.add, turn)


def make_held_rows(tiling: Any, barrier: int) -> HeldRows:
    """Part a CTA's threads into the rows of a tiling, and reserve the shared memory of its plan."""
    shared = smem.share(tiling.smem, **{region.name: Float32 for region in tiling.smem})
    slots = {name: smem.as_vector(pointer, tiling.smem[name]) for name, pointer in shared.items()}
    tidx = cute.arch.thread_idx()[0]
    rank = cute.arch.block_idx_in_cluster() if tiling.ctas > 1 else Int32(0)
    if tiling.ctas > 1:
        cute.arch.cluster_arrive_relaxed()
        cute.arch.cluster_wait()
    return HeldRows(tiling, slots, barrier, tidx % tiling.threads, tidx // tiling.threads, rank)


def make_parted_rows(tiling: Any) -> HeldRows:
    """Part a grid's threads into the rows of a tiling whose `ctas` need no cluster: nothing is reduced over a row."""
    tidx, part = cute.arch.thread_idx()[0], cute.arch.block_idx()[0] % tiling.ctas
    return HeldRows(tiling, {}, 0, tidx % tiling.threads, tidx // tiling.threads, part)
