"""The device code of the GEMM: a persistent, warp-specialised TMA -> WGMMA pipeline.

It computes the results of an epilogue's graph from the sums A B^T, with A (M, K) and B (N, K), and what the graph names
beside: tiles (M, N), rows (N,), columns (M,) and scalars. One warp keeps a ring of shared-memory stages full of A and
B by TMA, another does so for the tiles, which share the stages of one ring; the consumer warpgroups multiply straight
from shared memory into registers, compute the graph there, and store through swizzled shared memory and TMA. Rows,
columns and scalars come from global memory straight into registers, ahead of use. Each CTA takes every `gridDim`-th
tile, so the loads of its next tile run while it stores the last.

With a batch, A is (M, K, L), B (N, K, L), tiles (M, N, L), where L may be up to three modes: more modes of the TMA
boxes' coordinates, and a longer range of tiles. Tensors have these modes first when they are passed, as torch has them.

Names follow CuTe: `tAsA` is A in shared memory as TMA partitions it; `tCrA` iterates over the descriptors that the
MMA reads A by; `tCrC` holds the accumulators in registers. `docs/gemm.md` prints the layouts of them all.
"""

import math

import cutlass
import cutlass.cute as cute
from cuda.bindings.driver import CUstream
from cutlass.cute.nvgpu import cpasync

from cutepy.device import rules, smem, tma
from cutepy.device.epilogue import make_tile_load, make_tile_store
from cutepy.device.finish import SubtileEpilogue
from cutepy.device.fragment import AccumulatorTile
from cutepy.device.main_loop import make_main_loop
from cutepy.device.overlap import follow_launch
from cutepy.device.pipeline import publish_barriers
from cutepy.device.promotion import make_promoted_loop
from cutepy.device.schedulers import make_divisors
from cutepy.device.thread_loads import ThreadTiles
from cutepy.dsl import to_cute
from cutepy.dsl.atoms import to_tiled_mma
from cutepy.dsl.element_types import element_type, multiplied_type
from cutepy.kernels.gemm.config import PRODUCER_THREADS, GemmConfig
from cutepy.kernels.gemm.consumers import Consumer, consume
from cutepy.kernels.gemm.finishing import ConsumerEpilogue
from cutepy.kernels.gemm.loading import LOAD_WARP, TILE_LOAD_WARP, dealing_warp, find_loading
from cutepy.kernels.gemm.producers import MixedLoads, OperandLoads, TileLoads, produce
from cutepy.kernels.gemm.rings import make_rings
from cutepy.kernels.gemm.scaling import make_scale_copies, make_scale_loads, make_staged_scales
from cutepy.kernels.gemm.schedules import make_schedule, make_scheduler, make_tickets, most_parts
from cutepy.kernels.gemm.tile_coords import TileCoords, steps_of
from cutepy.kernels.gemm.views import batch_last, without
from cutepy.layouts import sm90
from cutepy.layouts.sm90 import arch


class Gemm:
    """GEMM with an epilogue graph, of one configuration: a callable that the DSL compiles."""

    def __init__(self, config: GemmConfig):
        signature = config.signature
        self.config, self.graph = config, signature.graph
        self.loading = find_loading(signature, (config.tile_m, config.staged_n, config.tile_k), config.dynamic)
        self.added, self.stored = signature.added, signature.stored
        self.types = {"sA": multiplied_type(signature.a_dtype), "sB": multiplied_type(signature.b_dtype)}
        self.types |= {kind.name: element_type(kind.dtype) for kind in (*self.added, *self.stored)}
        float32 = cutlass.Float32
        self.types |= {"sums": element_type(signature.sum_dtype), "sScaleA": float32, "sScaleB": float32}

    @cute.jit
    def __call__(
        self,
        a: cute.Tensor,
        b: cute.Tensor,
        operands: tuple | None,
        results: tuple,
        sm_count: cutlass.Int32,
        stream: CUstream,
        scale_a: cute.Tensor | None = None,
        scale_b: cute.Tensor | None = None,
        workspace: tuple | None = None,
    ):
        """Launch, with an epilogue's operands, None if it has none, and its results, partial reductions among them.

        Scales are (rows / how many one stands for, K / 128), fp32, of any strides. A workspace is what
        `rules.workspace_shapes` says, for all SMs that are filled.
        """
        operands = () if operands is None else operands
        self.launch(a, b, operands, results, sm_count, stream, (scale_a, scale_b), workspace)

    def launch(self, a, b, operands, results, sm_count, stream, scales=(None, None), workspace=None):
        """Count the tiles of all products, and launch."""
        config, a, b = self.config, batch_last(a), batch_last(b)
        rows = cute.ceil_div(cute.size(a, mode=[0]), config.tile_m * config.cluster_m)
        columns = cute.ceil_div(cute.size(b, mode=[0]), config.tile_n * config.cluster_n)
        raster = (rows, columns, *cute.shape(a)[2:])
        parts = most_parts(config, math.prod(raster), cute.size(a, mode=[1]), sm_count)
        raster = raster, make_divisors(raster, config.band_rows)
        self.start((a, b, operands, results), raster, parts, sm_count, stream, scales, workspace)

    def start(self, tensors, raster, tiles, sm_count, stream, scales=(None, None), workspace=None):
        """Make the TMA copies, and launch a grid that fills the SMs, or one cluster for each tile if fewer."""
        config, (a, b, operands, results) = self.config, tensors
        self.kernel.set_name_prefix(self.name, remove_cutlass_symbol=True, keep_mangled_name=False)
        cluster_m, cluster_n, split_k = config.cluster
        scales = make_scale_copies(config, scales)
        pairs = [self.make_load("sA", a, cluster_n), self.make_load("sB", b, cluster_m)]
        pairs += [self.make_load(kind.name, batch_last(operands[kind.place]), 1) for kind in self.added]
        pairs += [self.make_store(kind.name, batch_last(results[kind.place])) for kind in self.stored]
        copies, coordinates = zip(*pairs, strict=True)
        clusters = cutlass.min(tiles, cutlass.max(sm_count // (cluster_m * cluster_n * split_k), 1))
        tiled_mma = to_tiled_mma(config.tiled_mma, *config.majors)
        direct, partials = without(self.added, operands, 1), without(self.stored, results, 2)
        lets_next_begin = rules.fills(clusters * cluster_m * cluster_n * split_k, sm_count)
        others = (lets_next_begin, scales, workspace or (None, None))
        self.kernel(copies, coordinates, tiled_mma, raster, direct, partials, *others).launch(
            grid=(cluster_m * clusters, cluster_n, split_k),
            block=(config.threads, 1, 1),
            cluster=config.cluster,
            min_blocks_per_mp=1,
            stream=stream,
            use_pdl=True,
        )

    @property
    def name(self):
        """Name of the kernel in PTX and profilers."""
        return self.config.name

    def make_load(self, name, tensor, multicast):
        """Make the TMA copy into a region of shared memory, and its coordinate tensor; None where threads load."""
        if self.piece_bytes(name):
            return None, tensor
        staged = self.config.smem[name].content
        view = self.view(name, tensor)
        return tma.make_load(view, to_cute(staged.layout), staged.tile, multicast, self.types[name])

    def make_store(self, name, tensor):
        """Make the copy that stores from a region of shared memory, and its coordinate tensor."""
        staged = self.config.smem[name].content
        return tma.make_store(self.view(name, tensor), to_cute(staged.layout), staged.tile)

    def view(self, name, tensor):
        """Return a tensor as TMA takes it, by the name of its region of shared memory."""
        return tensor

    def make_tiles(self, name, copy, tensor, shared, tile, step=None):
        """Cut a tensor into tiles for a region of shared memory, which begin `step` rows after each other."""
        if copy is None:
            mode = self.config.smem[name].content.contiguous_mode
            return ThreadTiles(tensor, shared[name], mode, self.piece_bytes(name))
        return tma.make_tiles(copy, tensor, shared[name], tile, step)

    def make_tickets(self, shared, workspace):
        """Make the ring of dynamically scheduled tiles; None if tiles are not scheduled dynamically."""
        warps = 1 if self.loading is None else self.loading.threads // arch.WARP_THREADS
        return make_tickets(self.config, shared, workspace, warps)

    def make_scheduler(self, raster, k_tiles, tickets):
        """Make the tile scheduler."""
        return make_scheduler(self.config, raster, k_tiles, tickets)

    @cute.kernel
    def kernel(
        self,
        copies: tuple,
        tensors: tuple,
        tiled_mma: cute.TiledMma,
        raster: tuple,
        operands: tuple,
        partials: tuple,
        lets_next_begin: cutlass.Boolean,
        scales: tuple,
        workspace: tuple,
    ):
        """Set up shared memory and barriers, then split into producer and consumers.

        Copies and coordinate tensors are those of A and B, operands and results; `scales`, of A and B, each a copy and
        a tensor. `lets_next_begin`: True if the next launch may start on SMs that this one leaves (programmatic
        dependent launch).
        """
        config, warp = self.config, cute.arch.make_warp_uniform(cute.arch.warp_idx())
        if warp == LOAD_WARP:
            for copy in filter(None, (*copies, *(copy for copy, _ in scales))):
                cpasync.prefetch_descriptor(copy)
        shared = smem.share(config.smem, **self.types)
        ring, tile_ring = make_rings(config, self.loading, shared["barriers"])
        schedule, tickets = make_schedule(config, shared, workspace), self.make_tickets(shared, workspace)
        if warp == LOAD_WARP:
            with cute.arch.elect_one():
                ring.initialise()
                if cutlass.const_expr(tile_ring is not None):
                    tile_ring.initialise()
                if cutlass.const_expr(tickets is not None):
                    tickets.initialise()
                schedule.initialise()
        publish_barriers(config.cluster)
        follow_launch(lets_next_begin)
        a = self.make_tiles("sA", copies[0], tensors[0], shared, (config.tile_m, config.tile_k))
        b = self.make_tiles("sB", copies[1], tensors[1], shared, (config.staged_n, config.tile_k), config.tile_n)
        added, results = self.output_tiles(copies[2:], tensors[2:], shared)
        scheduler, staged_scales = self.make_scheduler(raster, a.columns, tickets), make_staged_scales(config, shared)
        if warp < PRODUCER_THREADS // arch.WARP_THREADS:
            # setmaxnreg works by warpgroup: the producer gives registers to the consumers, which hold accumulators.
            if cutlass.const_expr(config.registers.dealt):
                cute.arch.setmaxregister_decrease(config.registers.producer)
            if cutlass.const_expr(self.loading is not None):
                if warp >= self.loading.first_warp:
                    produce(self.make_mixed_loads(ring, (a, b), scales, staged_scales, warp), scheduler)
            elif warp == LOAD_WARP:
                produce(self.make_operand_loads(ring, (a, b), scales, staged_scales), scheduler)
            if cutlass.const_expr(tile_ring is not None):
                if warp == TILE_LOAD_WARP:
                    produce(TileLoads(tile_ring, added, schedule), scheduler)
            if cutlass.const_expr(tickets is not None):
                if warp == dealing_warp(self.loading):
                    scheduler.deal()
        else:
            if cutlass.const_expr(config.registers.dealt):
                cute.arch.setmaxregister_increase(config.registers.consumer)
            seated = schedule.seated()
            loop = self.make_loop(ring, tiled_mma, a.staged, b.staged, seated.tidx, staged_scales)
            finishing = self.make_finishing(seated, tiled_mma, added, results, operands, tensors, tile_ring, partials)
            consume(Consumer(config, seated, self.make_tile_coords(), loop, finishing), scheduler)

    def piece_bytes(self, name):
        """Return the bytes of one cp.async of a thread into a region of shared memory; 0 where TMA loads it."""
        signature = self.config.signature
        align = {"sA": signature.a_align, "sB": signature.b_align}.get(name, rules.TMA_BYTES)
        return align if align < rules.TMA_BYTES else 0

    def make_operand_loads(self, ring, tiles, scales, staged_scales):
        """Make the loads of A, B and their scales for the single warp that issues TMA."""
        config, (a, b) = self.config, tiles
        of_scales = make_scale_loads(config, self.make_tile_coords(), scales, staged_scales)
        return OperandLoads(ring, a.loads(ring, 1), b.loads(ring, 0), of_scales)

    def make_mixed_loads(self, ring, tiles, scales, staged_scales, warp):
        """Make the loads of A, B and their scales for one of the warps that load."""
        config, loading = self.config, self.loading
        tidx = cute.arch.thread_idx()[0] - loading.first_warp * arch.WARP_THREADS
        operands = (
            each.loads(loading.threads, tidx) if isinstance(each, ThreadTiles) else each.loads(ring, along)
            for each, along in zip(tiles, (1, 0), strict=True)
        )
        of_scales = make_scale_loads(config, self.make_tile_coords(), scales, staged_scales, loading.threads, tidx)
        return MixedLoads(ring, *operands, warp == loading.first_warp, of_scales)

    def make_tile_coords(self):
        """Make the map from tiles and subtiles to coordinates."""
        return TileCoords(self.config)

    def make_loop(self, ring, tiled_mma, sA, sB, tidx, scales):
        """Make the main loop of a tile."""
        kind = self.config.signature
        if kind.scale_rows is None:
            return make_main_loop(ring, tiled_mma, sA, sB, tidx)
        how = kind.scale_rows, self.config.buffers, any(kind.tma_scales)
        return make_promoted_loop(ring, tiled_mma, sA, sB, tidx, *scales, *how)

    def output_tiles(self, copies, tensors, shared):
        """Partition operands and results into output tiles, whose subtiles pass through stages of shared memory."""
        config = self.config
        made = tuple(
            self.make_tiles(kind.name, copy, tensor, shared, (config.tile_m, config.tile_n // kind.width))
            for kind, copy, tensor in zip((*self.added, *self.stored), copies, tensors, strict=True)
        )
        return made[: len(self.added)], made[len(self.added) :]

    def make_finishing(self, schedule, tiled_mma, added, results, operands, tensors, tile_ring, partials):
        """Make the epilogue of a tile."""
        outs, reads = self.make_stores(schedule, tiled_mma, results), self.make_reads(schedule, tiled_mma, added)
        finish = self.make_finish(operands, tensors, schedule.tidx)
        return ConsumerEpilogue(finish, finish.make_fragments(), tile_ring, reads, outs, partials)

    def make_finish(self, operands, tensors, tidx):
        """Make the evaluation of the graph on a subtile."""
        config = self.config
        coordinates = sm90.AccumulatorCoordinates(config.tiled_mma, (config.tile_m, config.tile_n))
        m, n = (cute.size(tensor, mode=[0]) for tensor in tensors[:2])
        tile = AccumulatorTile(coordinates, config.epi_tile, tidx)
        return SubtileEpilogue(self.graph, tile, operands, m, n, self.product_steps(tensors[0]))

    def product_steps(self, a):
        """Return the step of each mode of A's batch in the index of a product."""
        return steps_of(cute.shape(a)[2:])

    def make_reads(self, schedule, tiled_mma, added):
        """Make the reads of subtiles of each tile operand, by its name."""
        reads = []
        for kind, tiles in zip(self.added, added, strict=True):
            read = make_tile_load(tiled_mma, tiles.staged, int(kind.major == "row"), schedule.tidx)
            reads.append((self.graph.operands[kind.place].name, read))
        return tuple(reads)

    def make_stores(self, schedule, tiled_mma, results):
        """Make the stores of subtiles of each tile result, by its index."""
        config, outs = self.config, []
        barrier = config.named_barriers["store"] + schedule.consumer
        for kind, tiles in zip(self.stored, results, strict=True):
            if config.consumers > 1:
                tiles = tiles.stage_slice(schedule.consumer, config.epi_stages)
            mode, threads = int(kind.major == "row"), config.consumer_threads
            out = make_tile_store(tiled_mma, tiles.staged, mode, schedule.tidx, threads, barrier)
            outs.append((kind.place, out, tiles))
        return tuple(outs)
