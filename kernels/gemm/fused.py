"""The GEMM whose epilogue is a graph: its operands and results take the place of C, bias, activation and D (traced).

One warp loads the subtiles of all tile operands, which share the stages of one ring; rows, columns and scalars come
from global memory straight into registers, ahead of use. Each result that is a tile has a tile store of its own.
"""

import cutlass
import cutlass.cute as cute
from cuda.bindings.driver import CUstream
from cutlass.cute.nvgpu import cpasync

from cutepy.device import mma, smem, tma
from cutepy.device.epilogue import make_tile_load, make_tile_store
from cutepy.device.finish import Finish
from cutepy.device.pipeline import TmaRing
from cutepy.device.turns import Turns
from cutepy.dsl.element_types import element_type
from cutepy.dsl.traced_names import SmemAllocator
from cutepy.kernels.gemm.config import CONSUMER_REGISTERS, PRODUCER_REGISTERS, GemmConfig
from cutepy.kernels.gemm.finishing import Finishing
from cutepy.kernels.gemm.kernel import C_LOAD_WARP, LOAD_WARP, MMA_BARRIER, STORE_BARRIER, Gemm
from cutepy.layouts.sm90 import arch


class FusedGemm(Gemm):
    """Results of an epilogue of A B^T, of one configuration: a callable for the DSL to compile, not to run."""

    def __init__(self, config: GemmConfig):
        super().__init__(config)
        signature = config.signature
        self.graph = signature.graph
        self.loaded = tuple(
            (n, element_type(dtype), operand.width, int(major == "row"))
            for n, operand, dtype, major in signature.tile_operands
        )
        self.stored = tuple(
            (n, element_type(dtype), self.graph.width(result)) for n, result, dtype in signature.tile_results
        )

    def subtile_of(self, width):
        """Give rows and columns of the subtile of a value that is narrower by `width`."""
        return self.config.epi_tile[0], self.config.epi_n // width

    @cute.jit
    def __call__(
        self,
        a: cute.Tensor,
        b: cute.Tensor,
        operands: tuple | None,
        results: tuple,
        sm_count: cutlass.Int32,
        stream: CUstream,
    ):
        """Build layouts, TMA copies and the grid on the host, and launch."""
        config = self.config
        self.kernel.set_name_prefix(config.name, remove_cutlass_symbol=True, keep_mangled_name=False)
        cluster_m, cluster_n = self.cluster_mn
        a_tile, b_tile = (config.tile_m, config.tile_k), (config.tile_n, config.tile_k)
        tiled_mma = mma.make_tiled_mma(
            self.a_dtype,
            self.b_dtype,
            a_contiguous_mode=self.a_mode,
            b_contiguous_mode=self.b_mode,
            tile_n=config.tile_n,
            warpgroups=config.warpgroups,
        )
        sA_layout = smem.staged_layout(self.a_dtype, a_tile, self.a_mode, config.stages)
        sB_layout = smem.staged_layout(self.b_dtype, b_tile, self.b_mode, config.stages)
        tma_a, mA = tma.make_load(a, sA_layout, a_tile, cluster_n)
        tma_b, mB = tma.make_load(b, sB_layout, b_tile, cluster_m)
        loads = [self.make_operand_load(operands[n], *kind) for n, *kind in self.loaded]
        stores = [self.make_result_store(results[n], *kind) for n, *kind in self.stored]
        rows = cute.ceil_div(cute.size(a, mode=[0]), config.tile_m * cluster_m)
        columns = cute.ceil_div(cute.size(b, mode=[0]), config.tile_n * cluster_n)
        ctas = cluster_m * cluster_n * config.split_k
        clusters = cutlass.min(rows * columns, cutlass.max(sm_count // ctas, 1))
        self.kernel(
            ((tma_a, mA, sA_layout), (tma_b, mB, sB_layout)),
            tuple(loads),
            tuple(stores),
            tiled_mma,
            (rows, columns),
            self.direct(operands),
            tuple(None if self.is_tile(n) else result for n, result in enumerate(results)),
        ).launch(
            grid=(cluster_m * clusters, cluster_n, config.split_k),
            block=(config.threads, 1, 1),
            cluster=(cluster_m, cluster_n, config.split_k),
            min_blocks_per_mp=1,
            stream=stream,
        )

    def is_tile(self, n):
        """Tell whether a result is a tile."""
        return any(n == place for place, _, _ in self.stored)

    def direct(self, operands):
        """Give the operands that are read straight from global memory, None in the others' places."""
        listed = () if operands is None else operands
        tiles = [n for n, *_ in self.loaded]
        return tuple(None if n in tiles else operand for n, operand in enumerate(listed))

    def make_operand_load(self, tensor, dtype, width, contiguous_mode):
        """Make the TMA copy of a tile operand's subtiles: (copy, tensor, layout)."""
        layout = smem.staged_layout(dtype, self.subtile_of(width), contiguous_mode, self.config.c_stages)
        return (*tma.make_load(tensor, layout, self.subtile_of(width), 1), layout)

    def make_result_store(self, tensor, dtype, width):
        """Make the TMA copy of a result's subtiles: (copy, tensor, layout)."""
        stages = self.config.epi_stages * self.config.consumers
        layout = smem.staged_layout(dtype, self.subtile_of(width), self.d_mode, stages)
        return (*tma.make_store(tensor, layout, self.subtile_of(width)), layout)

    @cute.kernel
    def kernel(
        self,
        multiplied: tuple,
        loads: tuple,
        stores: tuple,
        tiled_mma: cute.TiledMma,
        raster: tuple,
        operands: tuple,
        partials: tuple,
    ):
        """Set up shared memory and barriers, then part into producer and consumers."""
        config = self.config
        (tma_a, mA, sA_layout), (tma_b, mB, sB_layout) = multiplied
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        if warp == LOAD_WARP:
            for copy, _, _ in (*multiplied, *loads, *stores):
                cpasync.prefetch_descriptor(copy)

        allocator = SmemAllocator()
        sA = smem.allocate(allocator, self.a_dtype, sA_layout)
        sB = smem.allocate(allocator, self.b_dtype, sB_layout)
        kept = [
            smem.allocate(allocator, dtype, layout)
            for (_, dtype, _), (_, _, layout) in zip(self.stored, stores, strict=True)
        ]
        taken = [
            smem.allocate(allocator, dtype, layout)
            for (_, dtype, _, _), (_, _, layout) in zip(self.loaded, loads, strict=True)
        ]
        slots = None
        if cutlass.const_expr(config.split_k > 1):
            slots = allocator.allocate_array(cutlass.Float32, config.exchange_bytes // 4)
        barriers = allocator.allocate_array(cutlass.Int64, config.barriers)
        ring = TmaRing(barriers, config.stages, config.stage_bytes, self.consumer_warps, self.cluster_mn)
        tile_ring, sums = None, None
        if cutlass.const_expr(len(self.loaded) > 0):
            tile_ring = TmaRing(
                barriers + 2 * config.stages, config.c_stages, config.c_stage_bytes, self.consumer_warps
            )
        if cutlass.const_expr(config.split_k > 1):
            sums = self.make_sums(slots, barriers + 2 * (config.stages + config.c_stages))
        if warp == LOAD_WARP:
            with cute.arch.elect_one():
                ring.initialise()
                if cutlass.const_expr(tile_ring is not None):
                    tile_ring.initialise()
                if cutlass.const_expr(sums is not None):
                    sums.initialise()
        # As in `Gemm.kernel`: other warps, TMA and cluster peers must see the barriers initialised.
        cute.arch.mbarrier_init_fence()
        if cutlass.const_expr(self.cluster_mn == (1, 1) and config.split_k == 1):
            cute.arch.sync_threads()
        else:
            cute.arch.cluster_arrive_relaxed()
            cute.arch.cluster_wait()

        gA = cute.local_tile(mA, (config.tile_m, config.tile_k), (None, None))
        gB = cute.local_tile(mB, (config.tile_n, config.tile_k), (None, None))
        loaded = [
            (copy, staged, self.output_tiles(tensor, width))
            for (copy, tensor, _), staged, (_, _, width, _) in zip(loads, taken, self.loaded, strict=True)
        ]
        stored = [
            (copy, staged, self.output_tiles(tensor, width))
            for (copy, tensor, _), staged, (_, _, width) in zip(stores, kept, self.stored, strict=True)
        ]
        if warp < self.producer_threads // arch.WARP_THREADS:
            if cutlass.const_expr(config.warpgroups * config.consumers > 1):
                cute.arch.setmaxregister_decrease(PRODUCER_REGISTERS)
            if warp == LOAD_WARP:
                self.load_operands(ring, tma_a, gA, sA, tma_b, gB, sB, raster)
            if cutlass.const_expr(tile_ring is not None):
                if warp == C_LOAD_WARP:
                    self.load_tiles(tile_ring, sums, loaded, raster)
        else:
            if cutlass.const_expr(config.warpgroups * config.consumers > 1):
                cute.arch.setmaxregister_increase(CONSUMER_REGISTERS)
            extents = (cute.size(mA, mode=[0]), cute.size(mB, mode=[0]))
            k_tiles = cute.size(gA, mode=[3])
            rings, given = (ring, tile_ring), (operands, partials, extents)
            self.consume_fused(rings, sums, tiled_mma, (sA, sB), k_tiles, loaded, stored, raster, given)

    def output_tiles(self, tensor, width):
        """Cut an operand or result into what belongs to the output tiles."""
        return cute.local_tile(tensor, (self.config.tile_m, self.config.tile_n // width), (None, None))

    def partition_narrow(self, copy, staged, tile, width):
        """Cut what belongs to an output tile into subtiles: smem (TMA, stages), global (TMA, rows, columns)."""
        return tma.partition(copy, staged, cute.local_tile(tile, self.subtile_of(width), (None, None)))

    @cute.jit
    def load_tiles(self, ring, sums, loaded, raster):
        """Load the subtiles of all tile operands in the order in which they are read (a producer warp)."""
        state = ring.producer_state()
        own, owners = self.dealt(sums)
        first, end, step = self.tiles(raster)
        for tile in cutlass.range(first, end, step, unroll=1):
            row, column, _ = self.locate(tile, raster)
            ways = [
                (copy, *self.partition_narrow(copy, staged, tiles[(None, None, row, column)], width))
                for (copy, staged, tiles), (_, _, width, _) in zip(loaded, self.loaded, strict=True)
            ]
            for index in cutlass.range(own, self.config.subtiles, owners, unroll_full=True):
                full = ring.acquire(state)
                for copy, tCsC, tCgC in ways:
                    cute.copy(copy, tCgC[self.subtile(index)], tCsC[(None, state.index)], tma_bar_ptr=full)
                state.advance()
        ring.drain(state)

    @cute.jit
    def consume_fused(self, rings, sums, tiled_mma, shared, k_tiles, loaded, stored, raster, given):
        """Multiply, finish and store one tile after another (consumer warpgroups)."""
        config = self.config
        ring, tile_ring = rings
        sA, sB = shared
        consumer, tidx = 0, cute.arch.thread_idx()[0] - self.producer_threads
        if cutlass.const_expr(config.consumers > 1):
            consumer = cute.arch.make_warp_uniform(tidx // self.consumer_threads)
            tidx = tidx % self.consumer_threads
            stored = [(copy, self.own_stages(n, staged, consumer), to) for n, (copy, staged, to) in enumerate(stored)]
        thr_mma = tiled_mma.get_slice(tidx)
        tCrA = tiled_mma.make_fragment_A(thr_mma.partition_A(sA))
        tCrB = tiled_mma.make_fragment_B(thr_mma.partition_B(sB))
        tCrC = cute.make_rmem_tensor(tiled_mma.partition_shape_C((config.tile_m, config.tile_n)), cutlass.Float32)
        finishing = self.make_finishing(tile_ring, tiled_mma, loaded, stored, given, tidx, STORE_BARRIER + consumer)
        accumulators = self.accumulator_subtiles(tCrC)
        state, tile_state = ring.consumer_state(), ring.consumer_state()
        sent, read = ring.consumer_state(), ring.consumer_state()
        if cutlass.const_expr(tile_ring is not None):
            tile_state = tile_ring.consumer_state()
        if cutlass.const_expr(sums is not None):
            sent, read = sums.sender_state(), sums.reader_state()
        own, owners = self.dealt(sums)
        turns = None
        if cutlass.const_expr(config.consumers > 1):
            turns = Turns(MMA_BARRIER, consumer, self.consumer_threads)
        count = cutlass.Int32(0)
        _, k_count, _ = self.share(k_tiles)
        first, end, step = self.tiles(raster)
        if cutlass.const_expr(config.consumers > 1):
            if consumer == 1:
                state.advance(k_count)
        for tile in cutlass.range(first + consumer * step, end, step * config.consumers, unroll=1):
            row, column, _ = self.locate(tile, raster)
            finishing.begin(self.place(row, column, own))
            if cutlass.const_expr(sums is not None):
                if tidx == 0:
                    sums.announce()
            if cutlass.const_expr(config.consumers > 1):
                turns.wait(tile == first)
            has_next = tile + step < end
            state = self.multiply(ring, state, tiled_mma, tCrA, tCrB, tCrC, k_count, turns, has_next)
            ways = [
                (copy, *self.partition_narrow(copy, sD, to[(None, None, row, column)], width))
                for (copy, sD, to), (_, _, width) in zip(stored, self.stored, strict=True)
            ]
            if cutlass.const_expr(sums is not None):
                sums.send(accumulators, sent)
                sent.advance()
                sums.wait(read)
                read.advance()
            for index in cutlass.range(config.subtiles, unroll_full=True):
                if index % owners == own:
                    rC = accumulators[None, None, None, index]
                    if cutlass.const_expr(sums is not None):
                        sums.add_to(rC, index)
                    place, following = self.place(row, column, index), self.place(row, column, index + owners)
                    stage = count % config.epi_stages
                    tile_state = finishing.apply(rC, place, following, tile_state, stage, ways, self.subtile(index))
                    count += 1
            if cutlass.const_expr(sums is not None):
                sums.release()
            if cutlass.const_expr(config.consumers > 1):
                state.advance(k_count)
        finishing.drain()
        if cutlass.const_expr(sums is not None):
            sums.drain(sent)

    def make_finishing(self, ring, tiled_mma, loaded, stored, given, tidx, barrier):
        """Make what finishes this thread's subtiles."""
        operands, partials, extents = given
        finish = Finish(self.graph, self.config.epi_n, operands, *extents, tidx, cute.arch.lane_idx())
        reads = tuple(
            (self.graph.operands[n].name, make_tile_load(tiled_mma, staged, mode, tidx))
            for (n, _, _, mode), (_, staged, _) in zip(self.loaded, loaded, strict=True)
        )
        outs = tuple(
            (n, make_tile_store(tiled_mma, staged, self.d_mode, tidx, self.consumer_threads, barrier))
            for (n, _, _), (_, staged, _) in zip(self.stored, stored, strict=True)
        )
        return Finishing(finish, finish.make_fragments(), ring, reads, outs, partials)

    def own_stages(self, n, staged, consumer):
        """Give the stages in which a consumer keeps the subtiles of a result."""
        subtile = self.subtile_of(self.stored[n][2])
        return cute.local_tile(staged, (*subtile, self.config.epi_stages), (0, 0, consumer))

    def accumulator_subtiles(self, tCrC):
        """See this thread's accumulators as subtiles (registers, 1, 1, subtiles), in the order of their layout."""
        size = self.config.subtile_registers
        return cute.make_tensor(tCrC.iterator, cute.make_layout((size, 1, 1, cute.size(tCrC) // size)))

    def place(self, row, column, index):
        """Give row and column of the product at which a subtile of an output tile begins."""
        rows, columns = self.config.epi_tile
        _, down, across = self.subtile(index)
        return row * self.config.tile_m + down * rows, column * self.config.tile_n + across * columns
