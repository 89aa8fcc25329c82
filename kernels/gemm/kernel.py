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
from cutlass.cute.nvgpu import cpasync

from cutepy.device import smem, tma
from cutepy.device.epilogue import make_tile_store
from cutepy.device.main_loop import make_main_loop
from cutepy.device.pipeline import TmaRing, publish_barriers
from cutepy.dsl import to_cute
from cutepy.dsl.atoms import to_tiled_mma
from cutepy.dsl.element_types import element_type
from cutepy.kernels.gemm.addend import make_addend
from cutepy.kernels.gemm.config import GemmConfig
from cutepy.kernels.gemm.consumers import Consumer, consume, epilogue_steps
from cutepy.kernels.gemm.producers import OperandLoads, produce
from cutepy.kernels.gemm.schedules import make_schedule, make_scheduler
from cutepy.layouts.sm90 import arch

LOAD_WARP = 0


class Gemm:
    """D = activation(A B^T + C + bias) of one configuration: a callable for the DSL to compile, not to run."""

    def __init__(self, config: GemmConfig):
        signature = config.signature
        self.config = config
        dtypes = {"sA": signature.a_dtype, "sB": signature.b_dtype, "sC": signature.c_dtype, "sD": signature.out_dtype}
        self.types = {name: element_type(dtype) for name, dtype in dtypes.items() if dtype}
        self.types["sums"] = cutlass.Float32

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
        cluster_m, cluster_n = config.cluster_m, config.cluster_n
        sA, sB, sD = (config.smem[name].content for name in ("sA", "sB", "sD"))
        tma_a, mA = tma.make_load(a, to_cute(sA.layout), sA.tile, cluster_n)
        tma_b, mB = tma.make_load(b, to_cute(sB.layout), sB.tile, cluster_m)
        tma_d, mD = tma.make_store(d, to_cute(sD.layout), sD.tile)
        tma_c, mC = None, None
        if cutlass.const_expr(c is not None):
            sC = config.smem["sC"].content
            tma_c, mC = tma.make_load(c, to_cute(sC.layout), sC.tile, 1)

        rows = cute.ceil_div(cute.size(d, mode=[0]), config.tile_m * cluster_m)
        columns = cute.ceil_div(cute.size(d, mode=[1]), config.tile_n * cluster_n)
        batch = cute.shape(d)[2:]
        ctas = cluster_m * cluster_n * config.split_k
        clusters = cutlass.min(math.prod((rows, columns, *batch)), cutlass.max(sm_count // ctas, 1))
        tiled_mma = to_tiled_mma(config.tiled_mma, *config.majors)
        self.kernel((tma_a, tma_b, tma_c, tma_d), (mA, mB, mC, mD), tiled_mma, (rows, columns, *batch), bias).launch(
            grid=(cluster_m * clusters, cluster_n, config.split_k),
            block=(config.threads, 1, 1),
            cluster=config.cluster,
            min_blocks_per_mp=1,
            stream=stream,
        )

    @cute.kernel
    def kernel(
        self,
        copies: tuple,
        tensors: tuple,
        tiled_mma: cute.TiledMma,
        raster: tuple,
        bias: cute.Tensor | None,
    ):
        """Set up shared memory and barriers, then part into producer and consumers."""
        config = self.config
        tma_a, tma_b, tma_c, tma_d = copies
        mA, mB, mC, mD = tensors
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        if warp == LOAD_WARP:
            for copy in copies:
                if cutlass.const_expr(copy is not None):
                    cpasync.prefetch_descriptor(copy)
        shared = smem.share(config.smem, **self.types)
        ring = TmaRing(
            shared["barriers"],
            config.stages,
            config.stage_bytes,
            config.consumer_warps,
            (config.cluster_m, config.cluster_n),
        )
        addend = make_addend(config, shared, tma_c, mC)
        schedule = make_schedule(config, shared)
        if warp == LOAD_WARP:
            with cute.arch.elect_one():
                ring.initialise()
                addend.initialise()
                schedule.initialise()
        publish_barriers(config.cluster)

        a = tma.make_tiles(tma_a, mA, shared["sA"], (config.tile_m, config.tile_k))
        b = tma.make_tiles(tma_b, mB, shared["sB"], (config.tile_n, config.tile_k))
        d = tma.make_tiles(tma_d, mD, shared["sD"], (config.tile_m, config.tile_n))
        scheduler = make_scheduler(config, raster, cute.size(a.tiles, mode=[3]))
        if warp < config.producer_threads // arch.WARP_THREADS:
            # Registers are dealt out by warpgroup: the producer's go to the consumers, which hold accumulators.
            if cutlass.const_expr(config.registers.dealt):
                cute.arch.setmaxregister_decrease(config.registers.producer)
            if warp == LOAD_WARP:
                produce(OperandLoads(ring, a.loads(config.cluster, 1), b.loads(config.cluster, 0)), scheduler)
            addend.load(warp, scheduler, schedule.dealt())
        else:
            if cutlass.const_expr(config.registers.dealt):
                cute.arch.setmaxregister_increase(config.registers.consumer)
            consume(self.consumer(schedule.seated(), ring, tiled_mma, a, b, addend, d, bias), scheduler)

    def consumer(self, schedule, ring, tiled_mma, a, b, addend, d, bias) -> Consumer:
        """Put together what a consumer thread does."""
        config, tidx = self.config, schedule.tidx
        if config.consumers > 1:
            d = d.stage_slice(schedule.consumer, config.epi_stages)
        loop = make_main_loop(ring, tiled_mma, a.staged, b.staged, tidx)
        barrier = config.named_barriers["store"] + schedule.consumer
        out = make_tile_store(
            tiled_mma, d.staged, config.smem["sD"].content.contiguous_mode, tidx, config.consumer_threads, barrier
        )
        steps = (*addend.steps(tiled_mma, tidx), *epilogue_steps(config, bias))
        return Consumer(config, schedule, loop, steps, d, out)


def batch_last(tensor: cute.Tensor) -> cute.Tensor:
    """See a tensor (batch..., rows, columns) as (rows, columns, batch...), the order of CuTe's modes."""
    modes = cute.rank(tensor)
    return cute.make_tensor(tensor.iterator, cute.select(tensor.layout, mode=[modes - 2, modes - 1, *range(modes - 2)]))
