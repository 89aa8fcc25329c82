"""The GEMM whose epilogue is a graph: its operands and results take the place of C, bias, activation and D (traced).

One warp loads the subtiles of all tile operands, which share the stages of one ring; rows, columns and scalars come
from global memory straight into registers, ahead of use. Each result that is a tile has a tile store of its own.
"""

import cutlass
import cutlass.cute as cute
from cuda.bindings.driver import CUstream
from cutlass.cute.nvgpu import cpasync

from cutepy.device import smem, tma
from cutepy.device.epilogue import make_tile_load, make_tile_store
from cutepy.device.finish import Finish
from cutepy.device.main_loop import make_main_loop
from cutepy.device.pipeline import TmaRing, publish_barriers
from cutepy.dsl import to_cute
from cutepy.dsl.atoms import to_tiled_mma
from cutepy.dsl.element_types import element_type
from cutepy.kernels.gemm.addend import C_LOAD_WARP
from cutepy.kernels.gemm.config import GemmConfig
from cutepy.kernels.gemm.consumers import consume
from cutepy.kernels.gemm.finishing import Finishing, FinishingConsumer, TileLoads
from cutepy.kernels.gemm.kernel import LOAD_WARP
from cutepy.kernels.gemm.producers import OperandLoads, produce
from cutepy.kernels.gemm.schedules import make_schedule, make_scheduler
from cutepy.layouts.sm90 import arch


class FusedGemm:
    """Results of an epilogue of A B^T, of one configuration: a callable for the DSL to compile, not to run."""

    def __init__(self, config: GemmConfig):
        signature = config.signature
        self.config, self.graph = config, signature.graph
        self.added, self.stored = signature.added, signature.stored
        self.types = {"sA": element_type(signature.a_dtype), "sB": element_type(signature.b_dtype)}
        self.types |= {kind.name: element_type(kind.dtype) for kind in (*self.added, *self.stored)}
        self.types["sums"] = cutlass.Float32

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
        cluster_m, cluster_n = config.cluster_m, config.cluster_n
        multiplied = (self.make_load("sA", a, cluster_n), self.make_load("sB", b, cluster_m))
        loads = tuple([self.make_load(kind.name, operands[kind.place], 1) for kind in self.added])
        stores = tuple([self.make_store(kind.name, results[kind.place]) for kind in self.stored])
        rows = cute.ceil_div(cute.size(a, mode=[0]), config.tile_m * cluster_m)
        columns = cute.ceil_div(cute.size(b, mode=[0]), config.tile_n * cluster_n)
        ctas = cluster_m * cluster_n * config.split_k
        clusters = cutlass.min(rows * columns, cutlass.max(sm_count // ctas, 1))
        tiled_mma = to_tiled_mma(config.tiled_mma, *config.majors)
        direct, partials = without(self.added, operands), without(self.stored, results)
        self.kernel(multiplied, loads, stores, tiled_mma, (rows, columns), direct, partials).launch(
            grid=(cluster_m * clusters, cluster_n, config.split_k),
            block=(config.threads, 1, 1),
            cluster=config.cluster,
            min_blocks_per_mp=1,
            stream=stream,
        )

    def make_load(self, name, tensor, multicast):
        """Make the copy that loads into a region of shared memory, and its coordinate tensor."""
        staged = self.config.smem[name].content
        return tma.make_load(tensor, to_cute(staged.layout), staged.tile, multicast)

    def make_store(self, name, tensor):
        """Make the copy that stores from a region of shared memory, and its coordinate tensor."""
        staged = self.config.smem[name].content
        return tma.make_store(tensor, to_cute(staged.layout), staged.tile)

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
        (tma_a, mA), (tma_b, mB) = multiplied
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        if warp == LOAD_WARP:
            for copy, _ in (*multiplied, *loads, *stores):
                cpasync.prefetch_descriptor(copy)
        shared = smem.share(config.smem, **self.types)
        ring = TmaRing(
            shared["barriers"],
            config.stages,
            config.stage_bytes,
            config.consumer_warps,
            (config.cluster_m, config.cluster_n),
        )
        tile_ring = None
        if cutlass.const_expr(len(self.added) > 0):
            barriers = shared["barriers"] + 2 * config.stages
            tile_ring = TmaRing(barriers, config.c_stages, config.c_stage_bytes, config.consumer_warps)
        schedule = make_schedule(config, shared)
        if warp == LOAD_WARP:
            with cute.arch.elect_one():
                ring.initialise()
                if cutlass.const_expr(tile_ring is not None):
                    tile_ring.initialise()
                schedule.initialise()
        publish_barriers(config.cluster)

        a = tma.make_tiles(tma_a, mA, shared["sA"], (config.tile_m, config.tile_k))
        b = tma.make_tiles(tma_b, mB, shared["sB"], (config.tile_n, config.tile_k))
        added = self.output_tiles(self.added, loads, shared)
        scheduler = make_scheduler(config, raster, cute.size(a.tiles, mode=[3]))
        if warp < config.producer_threads // arch.WARP_THREADS:
            if cutlass.const_expr(config.registers.dealt):
                cute.arch.setmaxregister_decrease(config.registers.producer)
            if warp == LOAD_WARP:
                produce(OperandLoads(ring, a.loads(config.cluster, 1), b.loads(config.cluster, 0)), scheduler)
            if cutlass.const_expr(tile_ring is not None):
                if warp == C_LOAD_WARP:
                    produce(TileLoads(tile_ring, added, schedule.dealt()), scheduler)
        else:
            if cutlass.const_expr(config.registers.dealt):
                cute.arch.setmaxregister_increase(config.registers.consumer)
            seated = schedule.seated()
            extents = (cute.size(mA, mode=[0]), cute.size(mB, mode=[0]))
            finish = Finish(self.graph, config.epi_n, operands, *extents, seated.tidx, cute.arch.lane_idx())
            results = self.output_tiles(self.stored, stores, shared)
            finishing = self.make_finishing(seated, tiled_mma, finish, tile_ring, added, results, partials)
            loop = make_main_loop(ring, tiled_mma, a.staged, b.staged, seated.tidx)
            consume(FinishingConsumer(config, seated, loop, finishing), scheduler)

    def output_tiles(self, kinds, copies, shared):
        """Cut operands or results into what belongs to the output tiles, whose subtiles are staged."""
        config = self.config
        return tuple(
            tma.make_tiles(copy, tensor, shared[kind.name], (config.tile_m, config.tile_n // kind.width))
            for kind, (copy, tensor) in zip(kinds, copies, strict=True)
        )

    def make_finishing(self, schedule, tiled_mma, finish, ring, added, results, partials):
        """Put together what finishes a consumer thread's subtiles."""
        config, tidx = self.config, schedule.tidx
        if config.consumers > 1:
            results = [result.stage_slice(schedule.consumer, config.epi_stages) for result in results]
        barrier = config.named_barriers["store"] + schedule.consumer
        reads, outs = [], []
        for kind, tiles in zip(self.added, added, strict=True):
            name, mode = self.graph.operands[kind.place].name, int(kind.major == "row")
            reads.append((name, make_tile_load(tiled_mma, tiles.staged, mode, tidx)))
        for kind, tiles in zip(self.stored, results, strict=True):
            mode = int(kind.major == "row")
            out = make_tile_store(tiled_mma, tiles.staged, mode, tidx, config.consumer_threads, barrier)
            outs.append((kind.place, out, tiles))
        return Finishing(finish, finish.make_fragments(), ring, tuple(reads), tuple(outs), partials)


def without(kinds, tensors):
    """Give operands or results but for those that pass through shared memory, None in their places."""
    places = [kind.place for kind in kinds]
    return tuple(None if n in places else tensor for n, tensor in enumerate(() if tensors is None else tensors))
