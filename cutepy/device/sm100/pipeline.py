"""Pipelines of tcgen05 kernels: stages that TMA fills and MMAs read, accumulators between MMAs and epilogue (traced).

MMAs are asynchronous. The issuing thread releases a stage, or hands over accumulators, by `tcgen05.commit`, which
arrives at an mbarrier when all earlier MMAs of the thread have completed. In a pair of CTAs one thread of the even CTA
issues the MMAs of both CTAs. The barriers of the even CTA count for both, and commits arrive at both.
"""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass import pipeline
from cutlass.cute.nvgpu import tcgen05

from cutepy.device import rules
from cutepy.device.pipeline import TmaRing
from cutepy.device.sm100 import rules as umma_rules
from cutepy.device.smem import check_room
from cutepy.dsl.tensor_fences import after_thread_sync, before_thread_sync

PAIR_MASK = 0b11
"""Both CTAs of a pair, which is the whole cluster."""


def cta_group(ctas: int) -> tcgen05.CtaGroup:
    """Return the DSL's name for one CTA or a pair."""
    return tcgen05.CtaGroup.ONE if ctas == 1 else tcgen05.CtaGroup.TWO


def leads():
    """Return whether this CTA issues the MMAs: the even one of a pair."""
    return cute.arch.block_idx_in_cluster() % 2 == 0


@cute.jit
def commit(barrier: cute.Pointer, ctas: cutlass.Constexpr):
    """Arrive once at a barrier, of both CTAs of a pair, when all MMAs that this thread has issued have completed."""
    with cute.arch.elect_one():
        tcgen05.commit(barrier, PAIR_MASK if ctas == 2 else None, cta_group(ctas))


@dataclass(frozen=True)
class UmmaRing(TmaRing):
    """Ring of stages that TMA fills and tcgen05.mma reads.

    Attributes
    ----------
    stage_bytes : int
        Bytes that fill one stage of one CTA.
    consumer_warps : int
        1: the warp that issues MMAs.
    ctas : 1 or 2
        2 where a pair of CTAs multiplies: each loads its own part, and the even one's barrier counts the bytes of both.
    """

    ctas: int = 1

    @cute.jit
    def initialise(self):
        """Set the arrival counts of all barriers; one thread of one warp calls. A fence and a barrier must follow."""
        for stage in cutlass.range_constexpr(self.stages):
            cute.arch.mbarrier_init(self.full + stage, self.full_arrivals)
            cute.arch.mbarrier_init(self.empty + stage, 1)

    @cute.jit
    def acquire(self, state):
        """Wait until the stage is free, then expect the bytes of all CTAs; return the barrier that TMA completes.

        Loads of a pair name the barrier of their own CTA, and signal the even one's.
        """
        # Without this wait TMA would overwrite a tile that MMAs are still reading.
        cute.arch.mbarrier_wait(self.empty + state.index, state.phase)
        full = self.full + state.index
        if cutlass.const_expr(self.ctas == 1):
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(full, self.stage_bytes)
        else:
            # Bytes of the odd CTA may come before this arrival, and are counted: the phase can't complete without it.
            if leads():
                with cute.arch.elect_one():
                    cute.arch.mbarrier_arrive_and_expect_tx(full, self.ctas * self.stage_bytes)
        return full

    @cute.jit
    def release(self, state):
        """Release the stage to TMA, of both CTAs of a pair, when the MMAs issued so far have read it."""
        commit(self.empty + state.index, self.ctas)


@dataclass(frozen=True)
class AccumulatorRing:
    """Ring of accumulators in tensor memory: MMAs fill them, the epilogue's warps read them.

    Attributes
    ----------
    barriers : Pointer
        Shared memory for 2 * `stages` mbarriers of 8 bytes: the full ones, then the empty ones.
    stages : int
        Sets of accumulators.
    warps : int
        Warps of a CTA that read each set.
    ctas : 1 or 2
        2 where a pair of CTAs multiplies.
    """

    barriers: cute.Pointer
    stages: int
    warps: int
    ctas: int = 1

    def __post_init__(self) -> None:
        umma_rules.check_accumulator_ring(self.stages, self.warps, self.ctas)
        check_room(self.barriers, 2 * self.stages, rules.MBARRIER_BITS, f"{self.stages} sets of accumulators")

    @property
    def empty(self) -> cute.Pointer:
        """Empty barriers, at which the warp that issues MMAs waits."""
        return self.barriers + self.stages

    def producer_state(self) -> pipeline.PipelineState:
        """Return the MMAs' state: set 0, parity 1, so that the first round does not wait."""
        return pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, self.stages)

    def consumer_state(self) -> pipeline.PipelineState:
        """Return the epilogue's state: set 0, parity 0."""
        return pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, self.stages)

    @cute.jit
    def initialise(self):
        """Set the arrival counts of all barriers; one thread of one warp calls. A fence and a barrier must follow."""
        for stage in cutlass.range_constexpr(self.stages):
            cute.arch.mbarrier_init(self.barriers + stage, 1)
            cute.arch.mbarrier_init(self.empty + stage, self.warps * self.ctas)

    @cute.jit
    def acquire(self, state):
        """Wait until the epilogue, of both CTAs of a pair, has read the set; the warp that issues MMAs calls."""
        cute.arch.mbarrier_wait(self.empty + state.index, state.phase)
        after_thread_sync()

    @cute.jit
    def commit(self, state):
        """Hand the set over, to both CTAs of a pair, when the MMAs issued so far have completed."""
        commit(self.barriers + state.index, self.ctas)

    @cute.jit
    def wait(self, state):
        """Wait until the MMAs of the set have completed; each warp of the epilogue calls."""
        cute.arch.mbarrier_wait(self.barriers + state.index, state.phase)
        after_thread_sync()

    @cute.jit
    def release(self, state):
        """Release the set to the warp that issues MMAs, once for this warp, after its wait for its loads."""
        before_thread_sync()
        with cute.arch.elect_one():
            if cutlass.const_expr(self.ctas == 1):
                cute.arch.mbarrier_arrive(self.empty + state.index)
            else:
                cute.arch.mbarrier_arrive(self.empty + state.index, 0)
