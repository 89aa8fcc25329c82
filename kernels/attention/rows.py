"""The device code around attention backward: statistics of rows before it, and dQ's rows after it (traced)."""

import cutlass
import cutlass.cute as cute
from cuda.bindings.driver import CUstream
from cutlass import Float32

from cutepy.device import reduce
from cutepy.device.fragment import AccumulatorTile
from cutepy.device.primitives import LOG2_E, select
from cutepy.kernels.attention.config import VECTOR, BackwardConfig
from cutepy.layouts import sm90

WARPS = 8
"""Warps of a CTA, each of a row at a time."""


class Statistics:
    """Statistics of O's rows, for `Backward`, and zeros for its sums: a callable that the DSL compiles.

    Parameters
    ----------
    head : int
        Extent of a row.
    """

    def __init__(self, head: int):
        self.head = head

    @cute.jit
    def __call__(
        self, o: cute.Tensor, do: cute.Tensor, lse: cute.Tensor, stats: cute.Tensor, sums: cute.Tensor, stream: CUstream
    ):
        """Launch on o, do (batch, queries, heads, head) and lse (batch, heads, queries); write stats and sums."""
        rows = cute.size(o, mode=[0]) * cute.size(o, mode=[1]) * cute.size(o, mode=[2])
        vectors = cute.make_tensor(sums.iterator, cute.make_layout((VECTOR, cute.size(sums) // VECTOR)))
        self.kernel(o, do, lse, stats, vectors).launch(
            grid=(cute.ceil_div(rows, WARPS), 1, 1), block=(32 * WARPS, 1, 1), stream=stream
        )

    @cute.kernel
    def kernel(self, o: cute.Tensor, do: cute.Tensor, lse: cute.Tensor, stats: cute.Tensor, sums: cute.Tensor):
        """Give each warp a row, and each thread some of the sums to clear."""
        thread, block = cute.arch.thread_idx()[0], cute.arch.block_idx()[0]
        batches, queries, heads = (cute.size(o, mode=[mode]) for mode in range(3))
        lane, row = cute.arch.lane_idx(), block * WARPS + thread // 32
        if row < batches * queries * heads:
            head, query, batch = row % heads, row // heads % queries, row // (heads * queries)
            own, each = Float32(0.0), 2 if self.head <= 64 else 4  # elements of a lane, which 32 lanes' are enough for
            if lane * each < self.head:
                held = []
                for tensor in (o, do):
                    part = cute.local_tile(tensor[batch, query, head, None], (each,), (lane,))
                    values = cute.make_rmem_tensor(part.shape, tensor.element_type)
                    cute.autovec_copy(part, values)
                    held.append(values.load().to(Float32))
                product = held[0] * held[1]
                for element in cutlass.range_constexpr(each):
                    own = own + product[element]
            delta = reduce.warp_reduce(own, reduce.add)
            if lane == 0:
                log_sum = lse[batch, head, query]
                # A row that has seen nothing has no probabilities: 2^(s - inf) = 0.
                stats[batch, head, 0, query] = select(log_sum == -Float32.inf, Float32.inf, log_sum * LOG2_E)
                stats[batch, head, 1, query] = delta
        zeros = cute.make_rmem_tensor(VECTOR, Float32)
        zeros.fill(0.0)
        first, step = block * (32 * WARPS) + thread, cute.arch.grid_dim()[0] * (32 * WARPS)
        for vector in cutlass.range(first, cute.size(sums, mode=[1]), step, unroll=1):
            cute.autovec_copy(zeros, sums[None, vector])


class RowsOfDq:
    """dQ's rows from the sums of `Backward`, scaled and converted: a callable that the DSL compiles."""

    def __init__(self, config: BackwardConfig):
        self.config = config

    @cute.jit
    def __call__(self, sums: cute.Tensor, dq: cute.Tensor, scale: Float32, stream: CUstream):
        """Launch on the sums, and dq (batch, queries, heads, head)."""
        config = self.config
        tiles = cute.ceil_div(cute.size(dq, mode=[1]), config.tile_q)
        self.kernel(sums, dq, scale).launch(
            grid=(tiles, cute.size(dq, mode=[2]), cute.size(dq, mode=[0])),
            block=(config.consumers, 1, 1),
            stream=stream,
        )

    @cute.kernel
    def kernel(self, sums: cute.Tensor, dq: cute.Tensor, scale: Float32):
        """Convert a tile of queries, each warpgroup its part."""
        config = self.config
        thread = cute.arch.thread_idx()[0]
        tile, head, batch = cute.arch.block_idx()
        part, lane = cute.arch.make_warp_uniform(thread // 128), thread % 128
        extents = (config.tile_q, config.columns_of_dq)
        places = AccumulatorTile(sm90.AccumulatorCoordinates(config.dq, extents), extents, lane)
        vectors = config.dq_registers // VECTOR
        own = cute.make_tensor(
            sums[batch, head, None, None].iterator, cute.make_layout((VECTOR, 128, vectors, cute.size(sums, mode=[2])))
        )
        row = tile * config.tile_q + places.of_thread(0)
        column = part * config.columns_of_dq + places.of_thread(1)
        for vector in cutlass.range_constexpr(vectors):
            held = cute.make_rmem_tensor(VECTOR, Float32)
            cute.autovec_copy(own[None, lane, vector, tile * config.warpgroups + part], held)
            for first in cutlass.range_constexpr(0, VECTOR, 2):
                down, across = places.registers[vector * VECTOR + first]
                pair = cute.make_rmem_tensor(2, dq.element_type)
                pair[0] = (held[first] * scale).to(dq.element_type)
                pair[1] = (held[first + 1] * scale).to(dq.element_type)
                if row + down < cute.size(dq, mode=[1]) and column + across < config.head:
                    line = cute.local_tile(dq[batch, row + down, head, None], (2,), ((column + across) // 2,))
                    cute.autovec_copy(pair, line)
