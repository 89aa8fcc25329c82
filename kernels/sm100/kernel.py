"""The device code of Blackwell's GEMM: a persistent, warp-specialised TMA -> tcgen05 -> epilogue pipeline.

One warp keeps a ring of shared-memory stages full of A, B and scale factors by TMA; one warp multiplies them into sets
of accumulators in tensor memory; one loads the tiles that the epilogue reads; four warps read finished accumulators,
compute the epilogue's graph, and store through shared memory and TMA while the next tile is multiplied. With two CTAs
the even one issues the MMAs of a pair: each CTA has 128 of 256 rows, and loads half of B's.

Names follow CuTe: `tCrA` iterates over the descriptors that the MMA reads A by; `tCtC` are accumulators in tensor
memory. Batches are as in `cutepy.kernels.gemm`.
"""

import math

import cutlass
import cutlass.cute as cute
from cuda.bindings.driver import CUstream
from cutlass.cute.nvgpu import cpasync

from cutepy.device import rules, smem, tma
from cutepy.device.finish import SubtileEpilogue
from cutepy.device.overlap import follow_launch
from cutepy.device.pipeline import TmaRing, publish_barriers
from cutepy.device.schedulers import Persistent, make_divisors
from cutepy.device.sm100.accumulators import AccumulatorRows, make_accumulator_load, make_row_load, make_row_store
from cutepy.device.sm100.block_scales import make_block_scales, make_scale_load, make_scale_loads
from cutepy.device.sm100.pipeline import AccumulatorRing, UmmaRing, leads
from cutepy.device.sm100.product import make_product
from cutepy.device.sm100.tensor_memory import TensorMemory
from cutepy.dsl import to_cute
from cutepy.dsl.element_types import element_type
from cutepy.kernels.gemm.finishing import ConsumerEpilogue
from cutepy.kernels.gemm.producers import TileLoads, produce
from cutepy.kernels.gemm.tile_coords import TileCoords, steps_of
from cutepy.kernels.gemm.views import batch_last, without
from cutepy.kernels.sm100.config import EPILOGUE_WARPS, PRODUCER_THREADS, UmmaGemmConfig
from cutepy.kernels.sm100.workers import Epilogue, Multiplier, OperandLoads
from cutepy.layouts.sm90 import arch

LOAD_WARP, MULTIPLY_WARP, TILE_LOAD_WARP = 0, 1, 2


class UmmaGemm:
    """GEMM with an epilogue graph, of one configuration: a callable that the DSL compiles for Blackwell."""

    def __init__(self, config: UmmaGemmConfig):
        signature = config.signature
        self.config, self.graph = config, signature.graph
        self.added, self.stored = signature.added, signature.stored
        self.types = {"sA": element_type(signature.a_dtype), "sB": element_type(signature.b_dtype)}
        self.types |= {kind.name: element_type(kind.dtype) for kind in (*self.added, *self.stored)}

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
    ):
        """Launch, with an epilogue's operands, None if it has none, and its results, partial reductions among them.

        Packed 4-bit operands are tensors of bytes. Scale factors are blocks of 128 Int32, (batch..., row blocks,
        K blocks, 128).
        """
        config = self.config
        operands = () if operands is None else operands
        a, b = self.elements("sA", batch_last(a)), self.elements("sB", batch_last(b))
        rows = cute.ceil_div(cute.size(a, mode=[0]), config.tile_m * config.ctas)
        columns = cute.ceil_div(cute.size(b, mode=[0]), config.tile_n)
        raster = (rows, columns, *cute.shape(a)[2:])
        pairs = [self.make_load("sA", a, config.ctas), self.make_load("sB", b, config.ctas)]
        pairs += [self.make_load(kind.name, batch_last(operands[kind.place])) for kind in self.added]
        pairs += [self.make_store(kind.name, batch_last(results[kind.place])) for kind in self.stored]
        copies, coordinates = zip(*pairs, strict=True)
        scales = [
            (None, None) if given is None else make_scale_load(batch_last(given, 3), *blocks, config.ctas)
            for given, blocks in zip((scale_a, scale_b), config.scale_blocks, strict=True)
        ]
        clusters = cutlass.min(math.prod(raster), cutlass.max(sm_count // config.ctas, 1))
        lets_next_begin = rules.fills(clusters * config.ctas, sm_count)
        direct, partials = without(self.added, operands, 1), without(self.stored, results, 2)
        raster = raster, make_divisors(raster, config.band_rows)
        self.kernel.set_name_prefix(config.name, remove_cutlass_symbol=True, keep_mangled_name=False)
        self.kernel(copies, coordinates, raster, direct, partials, lets_next_begin, tuple(scales)).launch(
            grid=(config.ctas * clusters, 1, 1),
            block=(config.threads, 1, 1),
            cluster=config.cluster,
            min_blocks_per_mp=1,
            stream=stream,
            use_pdl=True,
        )

    def elements(self, name, tensor):
        """View bytes as the packed elements that they hold."""
        if self.types[name].width >= 8:
            return tensor
        return cute.recast_tensor(tensor, self.types[name])

    def make_load(self, name, tensor, ctas=1):
        """Make the TMA copy into a region of shared memory, and its coordinate tensor."""
        staged = self.config.smem[name].content
        return tma.make_load(tensor, to_cute(staged.layout), staged.tile, 1, ctas=ctas)

    def make_store(self, name, tensor):
        """Make the copy that stores from a region of shared memory, and its coordinate tensor."""
        staged = self.config.smem[name].content
        return tma.make_store(tensor, to_cute(staged.layout), staged.tile)

    @cute.kernel
    def kernel(
        self,
        copies: tuple,
        tensors: tuple,
        raster: tuple,
        operands: tuple,
        partials: tuple,
        lets_next_begin: cutlass.Boolean,
        scales: tuple,
    ):
        """Set up shared memory, tensor memory and barriers, then split into roles.

        Copies and coordinate tensors are those of A and B, operands and results; `scales`, of A and B, each a copy and
        a tensor. `lets_next_begin`: True if the next launch may start on SMs that this one leaves.
        """
        config, warp = self.config, cute.arch.make_warp_uniform(cute.arch.warp_idx())
        if warp == LOAD_WARP:
            for copy in filter(None, (*copies, *(copy for copy, _ in scales))):
                cpasync.prefetch_descriptor(copy)
        shared = smem.share(config.smem, **self.types)
        memory = TensorMemory(shared["address"], config.memory, config.ctas)
        ring, accumulators, tile_ring = self.make_rings(shared["barriers"])
        if warp == LOAD_WARP:
            with cute.arch.elect_one():
                ring.initialise()
                accumulators.initialise()
                if cutlass.const_expr(tile_ring is not None):
                    tile_ring.initialise()
        if warp == MULTIPLY_WARP:
            memory.allocate()
        publish_barriers(config.cluster)
        if cutlass.const_expr(config.ctas == 2):
            cute.arch.sync_threads()  # the address; the cluster's barrier published barriers alone
        follow_launch(lets_next_begin)
        shapes = ((config.tile_m, config.tile_k), (config.tile_n // config.ctas, config.tile_k))
        a, b = (
            tma.make_tiles(copy, tensor, shared[name], shape)
            for copy, tensor, name, shape in zip(copies[:2], tensors[:2], ("sA", "sB"), shapes, strict=True)
        )
        product = self.make_product(a.staged, b.staged, memory, shared)
        added, results = self.output_tiles(copies[2:], tensors[2:], shared)
        tiles, divisors = raster
        scheduler = Persistent(tiles, a.columns, config.cluster[:2], 1, config.band_rows, divisors)
        if warp == LOAD_WARP:
            produce(self.make_operand_loads(ring, a, b, scales, shared), scheduler)
        if cutlass.const_expr(tile_ring is not None):
            if warp == TILE_LOAD_WARP:
                produce(TileLoads(tile_ring, added), scheduler)
        multiplies = warp == MULTIPLY_WARP
        if cutlass.const_expr(config.ctas == 2):
            multiplies = multiplies & leads()
        if multiplies:
            scheduler.each(Multiplier(ring, accumulators, product))
        if warp >= PRODUCER_THREADS // arch.WARP_THREADS:
            of_epilogue = (tile_ring, added, results)
            epilogue = self.make_epilogue(accumulators, product.tCtC, of_epilogue, operands, partials, tensors)
            scheduler.each(epilogue)
            for _, out, _ in epilogue.finishing.outs:
                out.finish()
        # Tensor memory is freed, and peers may exit, once all warps, of both CTAs of a pair, are done with it.
        if cutlass.const_expr(config.ctas == 1):
            cute.arch.sync_threads()
        else:
            cute.arch.cluster_arrive()
            cute.arch.cluster_wait()
        if warp == MULTIPLY_WARP:
            memory.free()

    def make_rings(self, barriers):
        """Make the ring of A and B, that of accumulators, and that of tiles that the epilogue reads, or None."""
        config = self.config
        ring = UmmaRing(barriers, config.stages, config.stage_bytes, 1, ctas=config.ctas)
        barriers = barriers + 2 * config.stages
        accumulators = AccumulatorRing(barriers, config.accumulators, EPILOGUE_WARPS, config.ctas)
        if not self.added:
            return ring, accumulators, None
        barriers = barriers + 2 * config.accumulators
        return ring, accumulators, TmaRing(barriers, config.c_stages, config.c_stage_bytes, EPILOGUE_WARPS)

    def make_operand_loads(self, ring, a, b, scales, shared):
        """Make the loads of A, B and scale factors."""
        config, rank = self.config, 0
        if config.ctas == 2:
            rank = cute.arch.block_in_cluster_idx()[0]
        loads = OperandLoads(ring, a.loads(), b.loads(), rank, config.ctas)
        if config.signature.scaling is None:
            return loads
        of_scales = [
            make_scale_loads(*pair, shared[name], *blocks, config.stages)
            for pair, name, blocks in zip(scales, ("sScaleA", "sScaleB"), config.scale_blocks, strict=True)
        ]
        return OperandLoads(ring, loads.sA, loads.sB, rank, config.ctas, *of_scales)

    def make_product(self, sA, sB, memory, shared):
        """Make the product of a stage of A and B."""
        config, scaling, scales = self.config, self.config.signature.scaling, None
        if scaling is not None:
            pointers = shared["sScaleA"], shared["sScaleB"]
            dtype = element_type(scaling.dtype)
            scales = make_block_scales(config.traits, config.tile_k, config.stages, pointers, memory, dtype)
        return make_product(config.traits, sA, sB, memory, config.accumulators, scales)

    def output_tiles(self, copies, tensors, shared):
        """Partition operands and results into output tiles, whose subtiles pass through stages of shared memory."""
        config = self.config
        made = tuple(
            tma.make_tiles(copy, tensor, shared[kind.name], (config.tile_m, config.tile_n // kind.width))
            for kind, copy, tensor in zip((*self.added, *self.stored), copies, tensors, strict=True)
        )
        return made[: len(self.added)], made[len(self.added) :]

    def make_epilogue(self, accumulators, tCtC, tiles, operands, partials, tensors):
        """Make the epilogue's worker of a thread."""
        config, graph, (tile_ring, added, results) = self.config, self.graph, tiles
        tidx = cute.arch.thread_idx()[0] - PRODUCER_THREADS
        m, n = (cute.size(tensor, mode=[0]) for tensor in tensors[:2])
        rows = AccumulatorRows(config.epi_n, tidx)
        finish = SubtileEpilogue(graph, rows, operands, m, n, steps_of(cute.shape(tensors[0])[2:]))
        reads = tuple(
            (graph.operands[kind.place].name, make_row_load(tiles.staged, tidx))
            for kind, tiles in zip(self.added, added, strict=True)
        )
        outs = tuple(
            (kind.place, make_row_store(tiles.staged, tidx), tiles)
            for kind, tiles in zip(self.stored, results, strict=True)
        )
        finishing = ConsumerEpilogue(finish, finish.make_fragments(), tile_ring, reads, outs, partials)
        load = make_accumulator_load(tCtC, config.epi_n, tidx)
        return Epilogue(accumulators, load, finishing, TileCoords(config), config.subtiles, config.epi_stages)
