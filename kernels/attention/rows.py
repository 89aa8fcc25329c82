"""The device code around attention backward: statistics of rows before it, and dQ's rows after it (traced).

Each CTA of both kernels has a tile of the queries of a head. Tensors of sums and statistics are stored by these tiles.
"""

import cutlass
import cutlass.cute as cute
from cuda.bindings.driver import CUstream
from cutlass import Float32

from cutepy.device import reduce, smem
from cutepy.device.fragment import AccumulatorTile
from cutepy.device.overlap import follow_launch
from cutepy.device.primitives import LOG2_E, select
from cutepy.device.rasterise import coordinates_of
from cutepy.device.sequences import Sequences, first_tile
from cutepy.kernels.attention.config import VECTOR, BackwardConfig, Lengths
from cutepy.kernels.attention.tile_coords import queries_of
from cutepy.layouts import sm90

WARPS = 8
"""Warps of a CTA of statistics, each of a row at a time."""
ROW_VECTOR = 8
"""Elements of dQ that a thread writes together: 16 bytes."""


def _sequences(lengths: Lengths | None, tokens) -> Sequences | None:
    return None if lengths is None else queries_of(lengths, tokens, has_tail=True)


def _rows_of_tile(sequences: Sequences | None, tile, extent: int, tokens):
    """Return the row where a tile of queries begins, and how many rows its sequence has from there on."""
    if sequences is None:
        return tile * extent, tokens - tile * extent
    rows = sequences.of_tile(tile, extent)
    begin = (tile - first_tile(rows, extent)) * extent
    return rows.start + begin, rows.length - begin


def _grid(tiles, rows: cute.Tensor):
    """Return CTAs for tiles of the heads of rows (batch, queries, heads, head).

    All are along x, since only this extent of a grid may exceed 65,535.
    """
    return tiles * cute.size(rows, mode=[2]) * cute.size(rows, mode=[0]), 1, 1


def _place_of_cta(tiles, rows: cute.Tensor):
    """Return a CTA's batch, head and tile."""
    heads, batches = cute.size(rows, mode=[2]), cute.size(rows, mode=[0])
    return coordinates_of(cute.arch.block_idx()[0], (batches, heads, tiles))


class Statistics:
    """Statistics of O's rows, for `Backward`, and zeros for its sums: a callable that the DSL compiles."""

    def __init__(self, config: BackwardConfig):
        self.config = config

    @cute.jit
    def __call__(
        self,
        o: cute.Tensor,
        do: cute.Tensor,
        lse: cute.Tensor,
        dlse: cute.Tensor | None,
        stats: cute.Tensor,
        sums: cute.Tensor,
        lengths: Lengths | None,
        stream: CUstream,
    ):
        """Launch on o, do (batch, queries, heads, head_v) and lse (batch, heads, queries); write stats and sums.

        dlse is the gradient of lse, if it has one.
        """
        tiles = cute.size(stats, mode=[3]) // self.config.tile_q
        self.kernel(o, do, lse, dlse, stats, sums, _sequences(lengths, cute.size(o, mode=[1]))).launch(
            grid=_grid(tiles, o), block=(32 * WARPS, 1, 1), stream=stream
        )

    @cute.kernel
    def kernel(
        self,
        o: cute.Tensor,
        do: cute.Tensor,
        lse: cute.Tensor,
        dlse: cute.Tensor | None,
        stats: cute.Tensor,
        sums: cute.Tensor,
        sequences: Sequences | None,
    ):
        """Compute statistics, a row a warp, and clear the accumulators of dQ, some elements a thread."""
        config, thread = self.config, cute.arch.thread_idx()[0]
        if cutlass.const_expr(config.overlaps):
            cute.arch.griddepcontrol_launch_dependents()
        tiles = cute.size(stats, mode=[3]) // config.tile_q
        batch, head, tile = _place_of_cta(tiles, o)
        first, rows = _rows_of_tile(sequences, tile, config.tile_q, cute.size(o, mode=[1]))
        lane, warp = cute.arch.lane_idx(), thread // 32
        # Elements of a lane, which 32 lanes' are enough for.
        each = 2 if config.head_v <= 64 else 4 if config.head_v <= 128 else 8
        for step in cutlass.range_constexpr(config.tile_q // WARPS):
            row, own, log_sum, of_lse = step * WARPS + warp, Float32(0.0), Float32(0.0), Float32(0.0)
            if row < rows:
                if lane * each < config.head_v:
                    held = []
                    for tensor in (o, do):
                        part = cute.local_tile(tensor[batch, first + row, head, None], (each,), (lane,))
                        values = cute.make_rmem_tensor(part.shape, tensor.element_type)
                        cute.autovec_copy(part, values)
                        held.append(values.load().to(Float32))
                    product = held[0] * held[1]
                    for element in cutlass.range_constexpr(each):
                        own = own + product[element]
                log_sum = lse[batch, head, first + row]
                if cutlass.const_expr(dlse is not None):
                    of_lse = dlse[batch, head, first + row]
            delta = reduce.warp_reduce(own, reduce.add)
            if lane == 0:
                # A row that has seen nothing has no probabilities: 2^(s - inf) = 0. Rows beyond the last have zeros.
                query = tile * config.tile_q + row
                stats[batch, head, 0, query] = select(log_sum == -Float32.inf, Float32.inf, log_sum * LOG2_E)
                stats[batch, head, 1, query] = delta - of_lse
        zeros = cute.make_rmem_tensor(VECTOR, Float32)
        zeros.fill(0.0)
        vectors = config.tile_q * config.width // VECTOR
        own_sums = cute.make_tensor(
            sums[batch, head, None, None].iterator,
            cute.make_layout((VECTOR, vectors, tiles)),
        )
        for vector in cutlass.range(thread, vectors, 32 * WARPS, unroll=1):
            cute.autovec_copy(zeros, own_sums[None, vector, tile])


class RowsOfDq:
    """dQ's rows from the sums of `Backward`, scaled and converted: a callable that the DSL compiles."""

    def __init__(self, config: BackwardConfig):
        self.config = config

    @cute.jit
    def __call__(self, sums: cute.Tensor, dq: cute.Tensor, scale: Float32, lengths: Lengths | None, stream: CUstream):
        """Launch on the sums, and dq (batch, queries, heads, head)."""
        config = self.config
        tiles = cute.size(sums, mode=[2]) // (config.warpgroups * config.dq_rows)
        self.kernel(sums, dq, scale, _sequences(lengths, cute.size(dq, mode=[1]))).launch(
            grid=_grid(tiles, dq),
            block=(config.consumers, 1, 1),
            stream=stream,
            use_pdl=config.overlaps,
        )

    @cute.kernel
    def kernel(self, sums: cute.Tensor, dq: cute.Tensor, scale: Float32, sequences: Sequences | None):
        """Convert a tile of queries, each warpgroup its part."""
        config = self.config
        if cutlass.const_expr(config.overlaps):
            follow_launch(let_next_begin=False)
        thread = cute.arch.thread_idx()[0]
        tiles = cute.size(sums, mode=[2]) // (config.warpgroups * config.dq_rows)
        batch, head, tile = _place_of_cta(tiles, dq)
        first, rows = _rows_of_tile(sequences, tile, config.tile_q, cute.size(dq, mode=[1]))
        part, lane = cute.arch.make_warp_uniform(thread // 128), thread % 128
        staged = _staged_rows(config, dq.element_type)
        queries, columns = config.dq_part
        extents = (columns, queries) if config.dq_is_transposed else (queries, columns)
        accumulators = AccumulatorTile(sm90.AccumulatorCoordinates(config.dq, extents), extents, lane)
        vectors = config.dq_registers // VECTOR
        own = cute.make_tensor(
            sums[batch, head, None, None].iterator, cute.make_layout((VECTOR, 128, vectors, cute.size(sums, mode=[2])))
        )
        row, column = accumulators.of_thread(0), accumulators.of_thread(1)
        # Of which warpgroup a part is: of later queries, or of later columns.
        later = (part * queries, 0) if cutlass.const_expr(queries < config.tile_q) else (0, part * columns)
        for vector in cutlass.range_constexpr(vectors):
            held = cute.make_rmem_tensor(VECTOR, Float32)
            cute.autovec_copy(own[None, lane, vector, tile * config.warpgroups + part], held)
            for element in cutlass.range_constexpr(VECTOR):
                down, across = accumulators.registers[vector * VECTOR + element]
                place = row + down, column + across
                if cutlass.const_expr(config.dq_is_transposed):
                    place = place[1], place[0]
                staged[later[0] + place[0], later[1] + place[1]] = (held[element] * scale).to(dq.element_type)
        cute.arch.sync_threads()
        each = config.head // ROW_VECTOR
        for vector in cutlass.range(thread, config.tile_q * each, config.consumers, unroll=1):
            query, across = vector // each, vector % each
            if query < rows:
                line = cute.make_rmem_tensor(ROW_VECTOR, dq.element_type)
                cute.autovec_copy(cute.local_tile(staged[query, None], (ROW_VECTOR,), (across,)), line)
                cute.autovec_copy(line, cute.local_tile(dq[batch, first + query, head, None], (ROW_VECTOR,), (across,)))


def _staged_rows(config: BackwardConfig, element_type):
    """Return a tile's rows of dQ in shared memory, of 16 bytes more than they need: warps meet no bank twice."""
    padded = config.width + ROW_VECTOR
    plan = sm90.SmemPlan.of(rows=sm90.SmemArray(config.tile_q * padded, bits=16, alignment_bytes=16))
    rows = smem.share(plan, rows=element_type)["rows"]
    return cute.make_tensor(rows, cute.make_layout((config.tile_q, config.width), stride=(padded, 1)))
