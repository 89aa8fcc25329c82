"""The device code of the GEMM: a persistent, warp-specialised TMA -> WGMMA pipeline.

D = activation(A B^T + C + bias), where C, bias and activation may be absent, with A (M, K), B (N, K), C and D (M, N)
and bias (N,). One warp keeps a ring of shared-memory stages full by TMA,
another does so for C; the consumer warpgroups multiply straight from shared memory into registers, and store through
swizzled shared memory and TMA. Each CTA takes every `gridDim`-th tile, so the loads of its next tile run while it
stores the last.

With a batch, A is (M, K, L), B (N, K, L), C and D (M, N, L), where L may be up to three modes: more modes of the TMA
boxes' coordinates, and a longer range of tiles. Tensors have these modes first when they are passed, as torch has them.

Names follow CuTe: `tAsA` is A in shared memory as TMA partitions it; `tCrA` iterates over the descriptors that the
MMA reads A by; `tCrC` holds the accumulators in registers. `docs/gemm.md` prints the layouts of them all.
"""

import math

import cutlass
import cutlass.cute as cute
from cuda.bindings.driver import CUstream
from cutlass.cute.nvgpu import cpasync, warpgroup

from cutepy.device import mma, rules, smem, tma
from cutepy.device.epilogue import RowBias, activate, make_tile_load, make_tile_store
from cutepy.device.exchange import ClusterSums
from cutepy.device.pipeline import TmaRing
from cutepy.device.rasterise import coordinates_of, tile_of
from cutepy.device.turns import Turns
from cutepy.dsl.element_types import element_type
from cutepy.dsl.traced_names import SmemAllocator
from cutepy.kernels.gemm.config import CONSUMER_REGISTERS, PRODUCER_REGISTERS, GemmConfig
from cutepy.layouts.sm90 import arch

LOAD_WARP = 0
C_LOAD_WARP = 1

STORE_BARRIER = 1
"""The first of the named barriers at which each consumer's threads meet to store."""
MMA_BARRIER = 3
"""The first of those at which each consumer waits for its turn to multiply."""


class Gemm:
    """D = activation(A B^T + C + bias) of one configuration: a callable for the DSL to compile, not to run."""

    def __init__(self, config: GemmConfig):
        signature = config.signature
        self.config = config
        self.a_dtype, self.b_dtype = element_type(signature.a_dtype), element_type(signature.b_dtype)
        self.d_dtype = element_type(signature.out_dtype)
        self.c_dtype = element_type(signature.c_dtype) if signature.c_dtype else None
        self.a_mode, self.b_mode = int(signature.a_major == "k"), int(signature.b_major == "k")
        self.d_mode, self.c_mode = int(signature.out_major == "row"), int(signature.c_major == "row")
        self.cluster_mn = (config.cluster_m, config.cluster_n)
        self.consumer_threads = arch.WARPGROUP_THREADS * config.warpgroups  # of one consumer
        self.consumer_warps = self.consumer_threads // arch.WARP_THREADS
        self.producer_threads = config.threads - self.consumer_threads * config.consumers

    @cute.jit
    def __call__(
        self,
        a: cute.Tensor,
        b: cute.Tensor,
        c: cute.Tensor | None,
        d: cute.Tensor,
        sm_count: cutlass.Int32,
        stream: CUstream,
        bias: cute.Tensor | None = None,
    ):
        """Build layouts, TMA copies and the grid on the host, and launch."""
        config = self.config
        if cutlass.const_expr(config.signature.batch_modes):
            a, b, d = batch_last(a), batch_last(b), batch_last(d)
            if cutlass.const_expr(c is not None):
                c = batch_last(c)
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
        sD_layout = smem.staged_layout(self.d_dtype, config.epi_tile, self.d_mode, config.epi_stages * config.consumers)
        tma_a, mA = tma.make_load(a, sA_layout, a_tile, cluster_n)
        tma_b, mB = tma.make_load(b, sB_layout, b_tile, cluster_m)
        tma_d, mD = tma.make_store(d, sD_layout, config.epi_tile)
        sC_layout, tma_c, mC = None, None, None
        if cutlass.const_expr(c is not None):
            sC_layout = smem.staged_layout(self.c_dtype, config.epi_tile, self.c_mode, config.c_stages)
            tma_c, mC = tma.make_load(c, sC_layout, config.epi_tile, 1)

        rows = cute.ceil_div(cute.size(d, mode=[0]), config.tile_m * cluster_m)
        columns = cute.ceil_div(cute.size(d, mode=[1]), config.tile_n * cluster_n)
        batch = cute.shape(d)[2:]
        ctas = cluster_m * cluster_n * config.split_k
        clusters = cutlass.min(math.prod((rows, columns, *batch)), cutlass.max(sm_count // ctas, 1))
        self.kernel(
            (tma_a, tma_b, tma_c, tma_d),
            (mA, mB, mC, mD),
            (sA_layout, sB_layout, sC_layout, sD_layout),
            tiled_mma,
            (rows, columns, *batch),
            bias,
        ).launch(
            grid=(cluster_m * clusters, cluster_n, config.split_k),
            block=(config.threads, 1, 1),
            cluster=(cluster_m, cluster_n, config.split_k),
            min_blocks_per_mp=1,
            stream=stream,
        )

    @cute.kernel
    def kernel(
        self,
        copies: tuple,
        tensors: tuple,
        layouts: tuple,
        tiled_mma: cute.TiledMma,
        raster: tuple,
        bias: cute.Tensor | None,
    ):
        """Set up shared memory and barriers, then part into producer and consumers."""
        config = self.config
        tma_a, tma_b, tma_c, tma_d = copies
        mA, mB, mC, mD = tensors
        sA_layout, sB_layout, sC_layout, sD_layout = layouts
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        if warp == LOAD_WARP:
            for copy in copies:
                if cutlass.const_expr(copy is not None):
                    cpasync.prefetch_descriptor(copy)

        allocator = SmemAllocator()
        sA = smem.allocate(allocator, self.a_dtype, sA_layout)
        sB = smem.allocate(allocator, self.b_dtype, sB_layout)
        sD = smem.allocate(allocator, self.d_dtype, sD_layout)
        sC, c_ring = None, None
        if cutlass.const_expr(mC is not None):
            sC = smem.allocate(allocator, self.c_dtype, sC_layout)
        slots = None
        if cutlass.const_expr(config.split_k > 1):
            slots = allocator.allocate_array(cutlass.Float32, config.exchange_bytes // 4)
        barriers = allocator.allocate_array(cutlass.Int64, config.barriers)
        ring = TmaRing(barriers, config.stages, config.stage_bytes, self.consumer_warps, self.cluster_mn)
        if cutlass.const_expr(mC is not None):
            c_bytes = rules.tile_bytes(*config.epi_tile, config.signature.c_bits)
            c_ring = TmaRing(barriers + 2 * config.stages, config.c_stages, c_bytes, self.consumer_warps)
        sums = None
        if cutlass.const_expr(config.split_k > 1):
            sums = self.make_sums(slots, barriers + 2 * (config.stages + config.c_stages))
        if warp == LOAD_WARP:
            with cute.arch.elect_one():
                ring.initialise()
                if cutlass.const_expr(mC is not None):
                    c_ring.initialise()
                if cutlass.const_expr(config.split_k > 1):
                    sums.initialise()
        # The barriers must be seen initialised by the other warps, by TMA (another proxy), and by cluster peers, which
        # arrive on them and deliver bytes to them: hence this fence, and a barrier over the whole cluster.
        cute.arch.mbarrier_init_fence()
        if cutlass.const_expr(self.cluster_mn == (1, 1) and config.split_k == 1):
            cute.arch.sync_threads()
        else:
            cute.arch.cluster_arrive_relaxed()
            cute.arch.cluster_wait()

        every = (None,) * cute.rank(mA)
        gA = cute.local_tile(mA, (config.tile_m, config.tile_k), every)  # (tile_m, tile_k, rows, k_tiles, batch...)
        gB = cute.local_tile(mB, (config.tile_n, config.tile_k), every)
        gD = cute.local_tile(mD, (config.tile_m, config.tile_n), every)  # (tile_m, tile_n, rows, columns, batch...)
        if warp < self.producer_threads // arch.WARP_THREADS:
            # Registers are dealt out by warpgroup: the producer's go to the consumers, which hold accumulators.
            if cutlass.const_expr(config.warpgroups * config.consumers > 1):
                cute.arch.setmaxregister_decrease(PRODUCER_REGISTERS)
            if warp == LOAD_WARP:
                self.load_operands(ring, tma_a, gA, sA, tma_b, gB, sB, raster)
            if cutlass.const_expr(mC is not None):
                if warp == C_LOAD_WARP:
                    gC = cute.local_tile(mC, (config.tile_m, config.tile_n), every)
                    self.load_addend(c_ring, sums, tma_c, gC, sC, raster)
        else:
            if cutlass.const_expr(config.warpgroups * config.consumers > 1):
                cute.arch.setmaxregister_increase(CONSUMER_REGISTERS)
            shared = (sA, sB, sC, sD)
            self.consume(ring, c_ring, sums, tiled_mma, shared, cute.size(gA, mode=[3]), tma_d, gD, raster, bias)

    @cute.jit
    def tiles(self, raster):
        """Give this CTA's range of tile indices: (first, end, step), the same for all CTAs of a cluster."""
        cluster, _, _ = cute.arch.cluster_idx()
        clusters, _, _ = cute.arch.cluster_dim()
        return cluster, math.prod(raster), clusters

    @cute.jit
    def make_sums(self, slots, barriers):
        """Describe the exchange of partial sums among the CTAs that share the K of a tile."""
        config = self.config
        plane = config.cluster_m * config.cluster_n
        _, _, part = cute.arch.block_in_cluster_idx()
        return ClusterSums(
            slots,
            barriers,
            config.split_k,
            config.subtiles,
            config.subtile_registers,
            self.consumer_threads,
            part,
            cute.arch.block_idx_in_cluster() % plane,
            plane,
            cute.arch.thread_idx()[0] - self.producer_threads,
        )

    def share(self, k_tiles):
        """Deal the tiles of K out: (first, count, step). Beyond the last one TMA fills in zeros, so one at least."""
        split = self.config.split_k
        if split == 1:
            return 0, k_tiles, 1
        _, _, part = cute.arch.block_in_cluster_idx()
        return part, cutlass.max((k_tiles - part + split - 1) // split, 1), split

    def dealt(self, sums):
        """Deal the subtiles out: this CTA finishes the first of these, and each so many after."""
        return (0, 1) if sums is None else (sums.part, sums.owners)

    @cute.jit
    def locate(self, tile, raster):
        """Find the row and column of this CTA's output tile, and where in the batch its product is."""
        block_m, block_n, _ = cute.arch.block_in_cluster_idx()
        rows, columns = raster[:2]
        batch = ()
        if cutlass.const_expr(self.config.signature.batch_modes):
            batch = coordinates_of(tile // (rows * columns), raster[2:])
            tile = tile % (rows * columns)
        row, column = tile_of(tile, rows, columns, self.config.band_rows, cutlass.min)
        return row * self.config.cluster_m + block_m, column * self.config.cluster_n + block_n, batch

    @cute.jit
    def load_operands(self, ring, tma_a, gA, sA, tma_b, gB, sB, raster):
        """Keep the ring full of A and B tiles, running ahead of the MMAs by its depth (one producer warp)."""
        cluster_m, cluster_n = self.cluster_mn
        block_m, block_n, part = cute.arch.block_in_cluster_idx()
        # CTAs in a row of the cluster need the same A: each loads a slice and multicasts it along N. B, along M.
        tAsA, tAgA = tma.partition(tma_a, sA, gA, block_n, cluster_n)
        tBsB, tBgB = tma.partition(tma_b, sB, gB, block_m, cluster_m)
        a_peers, b_peers = tma.multicast_masks((*self.cluster_mn, self.config.split_k), (block_m, block_n, part))
        state = ring.producer_state()
        first, end, step = self.tiles(raster)
        k_first, k_count, k_step = self.share(cute.size(gA, mode=[3]))
        for tile in cutlass.range(first, end, step, unroll=1):
            row, column, batch = self.locate(tile, raster)
            for index in cutlass.range(k_count, unroll=1):
                k_tile = k_first + index * k_step
                full = ring.acquire(state)
                stage = (None, state.index)
                cute.copy(tma_a, tAgA[(None, row, k_tile, *batch)], tAsA[stage], tma_bar_ptr=full, mcast_mask=a_peers)
                cute.copy(
                    tma_b, tBgB[(None, column, k_tile, *batch)], tBsB[stage], tma_bar_ptr=full, mcast_mask=b_peers
                )
                state.advance()
        ring.drain(state)

    @cute.jit
    def load_addend(self, ring, sums, tma_c, gC, sC, raster):
        """Load the subtiles of C in the order in which the epilogue adds them (another producer warp)."""
        state = ring.producer_state()
        own, owners = self.dealt(sums)
        first, end, step = self.tiles(raster)
        for tile in cutlass.range(first, end, step, unroll=1):
            row, column, batch = self.locate(tile, raster)
            tCsC, tCgC = self.partition_subtiles(tma_c, sC, gC[(None, None, row, column, *batch)])
            for index in cutlass.range(own, self.config.subtiles, owners, unroll_full=True):
                full = ring.acquire(state)
                cute.copy(tma_c, tCgC[self.subtile(index)], tCsC[(None, state.index)], tma_bar_ptr=full)
                state.advance()
        ring.drain(state)

    def partition_subtiles(self, copy, staged, tile):
        """Cut an output tile into epilogue subtiles: smem (TMA, stages), global (TMA, rows, columns)."""
        return tma.partition(copy, staged, cute.local_tile(tile, self.config.epi_tile, (None, None)))

    def subtile(self, index):
        """Order the subtiles as the accumulators lie in registers, along N first."""
        columns = self.config.tile_n // self.config.epi_n
        return None, index // columns, index % columns

    @cute.jit
    def consume(self, ring, c_ring, sums, tiled_mma, shared, k_tiles, tma_d, gD, raster, bias):
        """Multiply and store one tile after another (consumer warpgroups)."""
        config = self.config
        sA, sB, sC, sD = shared
        consumer, tidx = 0, cute.arch.thread_idx()[0] - self.producer_threads
        if cutlass.const_expr(config.consumers > 1):
            consumer = cute.arch.make_warp_uniform(tidx // self.consumer_threads)
            tidx = tidx % self.consumer_threads
            sD = cute.local_tile(sD, (*config.epi_tile, config.epi_stages), (0, 0, consumer))
        thr_mma = tiled_mma.get_slice(tidx)
        tCrA = tiled_mma.make_fragment_A(thr_mma.partition_A(sA))  # (MMA, MMA_M, MMA_K, stages) of descriptors
        tCrB = tiled_mma.make_fragment_B(thr_mma.partition_B(sB))  # (MMA, MMA_N, MMA_K, stages)
        tCrC = cute.make_rmem_tensor(tiled_mma.partition_shape_C((config.tile_m, config.tile_n)), cutlass.Float32)
        out = make_tile_store(tiled_mma, sD, self.d_mode, tidx, self.consumer_threads, STORE_BARRIER + consumer)
        addend = None
        if cutlass.const_expr(sC is not None):
            addend = make_tile_load(tiled_mma, sC, self.c_mode, tidx)
        row_bias, values = None, None
        if cutlass.const_expr(bias is not None):
            row_bias = RowBias(bias, config.epi_n, cute.arch.lane_idx())
            values = row_bias.make_fragment()
        state, c_state = ring.consumer_state(), ring.consumer_state()
        sent, read = ring.consumer_state(), ring.consumer_state()
        if cutlass.const_expr(sC is not None):
            c_state = c_ring.consumer_state()
        if cutlass.const_expr(sums is not None):
            sent, read = sums.sender_state(), sums.reader_state()
        own, owners = self.dealt(sums)
        turns = None
        if cutlass.const_expr(config.consumers > 1):
            turns = Turns(MMA_BARRIER, consumer, self.consumer_threads)
        stored = cutlass.Int32(0)
        _, k_count, _ = self.share(k_tiles)
        first, end, step = self.tiles(raster)
        if cutlass.const_expr(config.consumers > 1):
            if consumer == 1:
                state.advance(k_count)
        for tile in cutlass.range(first + consumer * step, end, step * config.consumers, unroll=1):
            row, column, batch = self.locate(tile, raster)
            if cutlass.const_expr(bias is not None):
                _, _, following = self.subtile(own)
                row_bias.load(values, column * config.tile_n + following * config.epi_n)  # arrives meanwhile
            if cutlass.const_expr(sums is not None):
                if tidx == 0:
                    sums.announce()
            if cutlass.const_expr(config.consumers > 1):
                turns.wait(tile == first)
            has_next = tile + step < end
            state = self.multiply(ring, state, tiled_mma, tCrA, tCrB, tCrC, k_count, turns, has_next)
            tDsD, tDgD = self.partition_subtiles(tma_d, sD, gD[(None, None, row, column, *batch)])
            subtiles = out.subtiles(tCrC)
            if cutlass.const_expr(sums is not None):
                sums.send(subtiles, sent)
                sent.advance()
                sums.wait(read)
                read.advance()
            for index in cutlass.range(config.subtiles, unroll_full=True):
                if index % owners == own:
                    rC = subtiles[None, None, None, index]
                    if cutlass.const_expr(sums is not None):
                        sums.add_to(rC, index)
                    if cutlass.const_expr(sC is not None):
                        c_ring.wait(c_state)
                        addend.add_to(rC, c_state.index)
                        c_ring.release(c_state)
                        c_state.advance()
                    if cutlass.const_expr(bias is not None):
                        row_bias.add_to(rC, values)
                        _, _, following = self.subtile(index + owners)
                        row_bias.load(values, column * config.tile_n + following * config.epi_n)
                    if cutlass.const_expr(config.signature.activation is not None):
                        activate(rC, config.signature.activation)
                    out.store(rC, stored % config.epi_stages, tma_d, tDsD, tDgD[self.subtile(index)])
                    stored += 1
            if cutlass.const_expr(sums is not None):
                sums.release()
            if cutlass.const_expr(config.consumers > 1):
                state.advance(k_count)
        out.finish()
        if cutlass.const_expr(sums is not None):
            sums.drain(sent)

    @cute.jit
    def multiply(self, ring, state, tiled_mma, tCrA, tCrB, tCrC, k_tiles, turns, has_next):
        """Run the main loop: tCrC = A B^T, with one group of MMAs in flight behind the one just issued."""
        ring.wait(state)
        mma.issue_stage(tiled_mma, tCrA, tCrB, tCrC, state.index, accumulate=False)
        read = state.clone()
        state.advance()
        for _ in cutlass.range(1, k_tiles, unroll=1):
            ring.wait(state)
            mma.issue_stage(tiled_mma, tCrA, tCrB, tCrC, state.index, accumulate=True)
            state.advance()
            # All but the youngest group have finished, so the stage before it has been read and can be refilled,
            # while the tensor cores already work on the youngest.
            warpgroup.wait_group(1)
            ring.release(read)
            read.advance()
        if cutlass.const_expr(self.config.consumers > 1):
            turns.hand_over(has_next)  # the other consumer's MMAs queue up behind these
        # The accumulators are valid in registers only now.
        warpgroup.wait_group(0)
        ring.release(read)
        return state


def batch_last(tensor: cute.Tensor) -> cute.Tensor:
    """See a tensor (batch..., rows, columns) as (rows, columns, batch...), the order of CuTe's modes."""
    modes = cute.rank(tensor)
    return cute.make_tensor(tensor.iterator, cute.select(tensor.layout, mode=[modes - 2, modes - 1, *range(modes - 2)]))
