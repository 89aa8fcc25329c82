"""Rows of matrices in the registers of the threads that share them, and reductions over them (traced).

Threads of a row load vectors that are next to one another, so that a warp reads whole lines of memory. All is in fp32.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import MappingProxyType
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
        Shared memory of reductions: `of_warps`, and `of_rows` where a CTA has several rows; of staged matrices.
    barrier : int
        Named barrier at which a CTA's threads meet.
    thread : Int32
        Index among the CTA's threads of this row.
    group : Int32
        Number of the row among the CTA's rows at a time.
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

    def empty_part(self):
        """Return registers for a vector, (elems,), fp32."""
        return cute.make_rmem_tensor(self.tiling.elems, Float32)

    def begin(self, name: str, source: RowVectors, row, staged: bool):
        """Begin to load this thread's part of a row into its slots of a staged matrix, or into registers."""
        if not staged:
            return self.fetch(source, row, streams=True)
        slots = self.slots_of(name)
        self.stage_into(slots, source, row)
        return slots

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
        for index in cutlass.range_constexpr(self.tiling.vectors):
            for part, place in self._parts(fetched[None, index], source, index):
                part.store(source.load(row, place, streams).load())

    @cute.jit
    def stage_into(self, staged, source: RowVectors, row):
        """Begin to copy this thread's part of a row into its slots of shared memory, as of `slots_of`."""
        for index in cutlass.range_constexpr(self.tiling.vectors):
            for part, place in self._parts(staged[None, index], source, index):
                source.stage(row, place, part)
        cute.arch.cp_async_commit_group()

    def slots_of(self, name: str, stage=0):
        """Return this thread's slots of a staged matrix, (elems, vectors), which no other thread reads or writes."""
        tiling, region = self.tiling, self.slots[name]
        place = stage * tiling.vectors * tiling.cta + self.group * tiling.threads + self.thread
        start = region.iterator + cute.assume(Int32(place * tiling.elems), divby=tiling.elems)
        layout = cute.make_layout((tiling.elems, tiling.vectors), stride=(1, tiling.cta * tiling.elems))
        return cute.make_tensor(start, layout)

    def copy(self, fetched):
        """Copy registers, so that `fetch_into` may load the next row into them."""
        copied = cute.make_rmem_tensor((self.tiling.elems, self.tiling.vectors), fetched.element_type)
        copied.store(fetched.load())
        return copied

    def part(self, values, index):
        """Convert vector `index` of this thread, of registers or of slots, to fp32 registers, (elems,)."""
        found = self.empty_part()
        found.store(values[None, index].load().to(Float32))
        return found

    @cute.jit
    def load_part(self, source: RowVectors, row, index):
        """Load vector `index` of this thread as fp32 registers, (elems,)."""
        fetched = cute.make_rmem_tensor(self.tiling.elems, source.tensor.element_type)
        for part, place in self._parts(fetched, source, index):
            part.store(source.load(row, place).load())
        found = self.empty_part()
        found.store(fetched.load().to(Float32))
        return found

    @cute.jit
    def store_part(self, values, target: RowVectors, row, index):
        """Store registers (elems,) as vector `index` of this thread, rounded to the tensor's type."""
        rounded = cute.make_rmem_tensor(self.tiling.elems, target.tensor.element_type)
        rounded.store(values.load().to(target.tensor.element_type))
        for part, place in self._parts(rounded, target, index):
            target.store(part, row, place)

    def held(self, fetched):
        """Wait for the fetched row, and convert it."""
        held = self.empty()
        held.store(fetched.load().to(Float32))
        return held

    @cute.jit
    def store(self, values, target: RowVectors, row):
        """Store this thread's part of a row, rounded to the tensor's type."""
        for index in cutlass.range_constexpr(self.tiling.vectors):
            self.store_part(values[None, index], target, row, index)

    def _parts(self, values, vectors: RowVectors, index):
        """Yield the pieces of a vector by the vectors of a tensor, which may be narrower, and their places."""
        elems = vectors.elems
        narrower = self.tiling.elems // elems
        for part in range(narrower):
            piece = cute.make_tensor(values.iterator + part * elems, cute.make_layout(elems))
            yield piece, self.vector(index) * narrower + part

    def fill_part_beyond(self, values, index, columns, value):
        """Replace elements of vector `index`, registers (elems,), beyond the last column."""
        whole = cute.get_divisibility(columns) % self.tiling.elems == 0
        first = self.vector(index) * self.tiling.elems
        for place in range(self.tiling.elems):
            beyond = (first if whole else first + place) >= columns
            values[place] = select(beyond, Float32(value), values[place])

    def fill_beyond(self, values, columns, value):
        """Replace elements beyond the last column."""
        for index in range(self.tiling.vectors):
            self.fill_part_beyond(values[None, index], index, columns, value)

    def fold(self, values, operation: Callable):
        """Combine the registers of this thread, pairwise."""
        return reduce.reduce_pairs([values[n] for n in range(cute.size(values))], operation)

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
    def reduce_integers(self, value, kind: cutlass.Constexpr, turn):
        """Reduce an integer of each thread over the threads of a row, without a cluster; all threads of a CTA call.

        `kind` is "add", "max", "min", "umax" or "umin"; `turn` as of `reduce`.
        """
        threads = self.tiling.threads
        if cutlass.const_expr(threads > arch.WARP_THREADS):
            return reduce.block_reduce_integers(
                value, self.slots["of_warps"], self.thread, threads, self.barrier, kind, turn
            )
        return reduce.lanes_reduce_integers(value, threads, kind)

    def join_exponentials(self, largest, total):
        """Join each thread's largest element, and sum of exponentials of elements less that one, over a row.

        All threads of a CTA call, and of a cluster, once: both turns of `reduce` are used.
        """
        threads, ctas, slots = self.tiling.threads, self.tiling.ctas, self.slots["of_warps"]
        if ctas > 1:
            return reduce.cluster_exponentials(largest, total, slots, self.thread, threads, ctas)
        if threads > arch.WARP_THREADS:
            return reduce.block_exponentials(largest, total, slots, self.thread, threads, self.barrier)
        return reduce.lanes_exponentials(largest, total, threads)

    @cute.jit
    def reduce_lanes(self, value, lanes: cutlass.Constexpr, operation: Callable):
        """Reduce a value over a given number of neighbouring lanes, a power of 2; all lanes of a warp call."""
        return reduce.lanes_reduce(value, lanes, operation)

    @cute.jit
    def sum_before(self, value):
        """Sum an fp32 number over a row's threads before this one; all threads of a CTA call, without a cluster."""
        lanes, lane = min(self.tiling.threads, arch.WARP_THREADS), self.thread % arch.WARP_THREADS
        upto = value
        for step in cutlass.range_constexpr(lanes.bit_length() - 1):
            other = cute.arch.shuffle_sync_up(upto, 1 << step, mask_and_clamp=0)
            if lane >= 1 << step:
                upto = upto + other
        before = upto - value
        if cutlass.const_expr(self.tiling.threads > arch.WARP_THREADS):
            warps, warp = self.slots["of_warps"], self.thread // arch.WARP_THREADS
            cute.arch.sync_threads()  # the slots may hold a reduction that others still read
            if lane == arch.WARP_THREADS - 1:
                warps[warp] = upto
            cute.arch.sync_threads()
            for earlier in cutlass.range(warp):
                before = before + warps[earlier]
        return before

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


def registers_of(held: cute.Tensor) -> range:
    """Return the indices of the registers of a thread's elements: a loop over them is unrolled while traced.

    `cutlass.range_constexpr` does the same, and warns of 64 registers or more.
    """
    return range(cute.size(held))


def make_held_rows(
    tiling: Any, barrier: int, kept: Any = MappingProxyType({}), **staged: tuple[type[cutlass.Numeric], int]
) -> HeldRows:
    """Part a CTA's threads into the rows of a tiling, and reserve the shared memory of its plan.

    Parameters
    ----------
    tiling : RowTiling
    barrier : int
        Named barrier at which a CTA's threads meet.
    kept : dict of str to (type, int)
        Arrays of shared memory: types of 32 bits, and how many numbers.
    **staged : (type, int)
        Element types of matrices whose rows are staged in shared memory, and how many rows at a time.
    """
    arrays = {name: count for name, (_, count) in kept.items()}
    plan = tiling.plan(arrays, **{name: (kind.width, stages) for name, (kind, stages) in staged.items()})
    kinds = {name: kind for name, (kind, _) in (*staged.items(), *kept.items())}
    shared = smem.share(plan, **{region.name: kinds.get(region.name, Float32) for region in plan})
    slots = {name: smem.as_vector(pointer, plan[name]) for name, pointer in shared.items()}
    tidx = cute.arch.thread_idx()[0]
    rank = cute.arch.block_idx_in_cluster() if tiling.ctas > 1 else Int32(0)
    if tiling.ctas > 1:
        cute.arch.cluster_arrive_relaxed()
        cute.arch.cluster_wait()
    return HeldRows(tiling, slots, barrier, tidx % tiling.threads, tidx // tiling.threads, rank)


def staged_rows(staged: bool, stages: int = 1, **matrices: cute.Tensor) -> dict[str, tuple[Any, int]]:
    """Name the matrices whose rows are staged, so many at a time, as `make_held_rows` takes them; none if not."""
    return {name: (matrix.element_type, stages) for name, matrix in matrices.items()} if staged else {}


def make_parted_rows(tiling: Any) -> HeldRows:
    """Part a grid's threads into the rows of a tiling whose `ctas` need no cluster: nothing is reduced over a row."""
    tidx, part = cute.arch.thread_idx()[0], cute.arch.block_idx()[0] % tiling.ctas
    return HeldRows(tiling, {}, 0, tidx % tiling.threads, tidx // tiling.threads, part)
