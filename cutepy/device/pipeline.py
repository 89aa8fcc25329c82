"""Pipelines of shared-memory stages between producers, TMA or threads, and consumer warps (traced).

Each stage has two mbarriers. *full* completes when the producer has arrived once and TMA has delivered all the bytes
it announced; *empty* completes when every consumer warp has released the stage. A barrier's phase bit flips each
time it completes, and a wait names the parity of the phase it waits for: consumers start at parity 0 (nothing has
been filled yet), producers at 1 (as if every stage had been released once before the start).
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import cutlass
import cutlass.cute as cute
from cutlass import pipeline

from cutepy.device import rules
from cutepy.device.marks import mark
from cutepy.device.smem import check_room
from cutepy.dsl.launch_facts import launched
from cutepy.dsl.traced_names import MemScopeKind


class Stage(NamedTuple):
    """Stage of a ring, as the state of one that goes around names it.

    Attributes
    ----------
    index : Int32
    phase : Int32
        Parity of the phase that is waited for.
    """

    index: cutlass.Int32
    phase: cutlass.Int32


@dataclass(frozen=True)
class TmaRing:
    """Ring of stages filled by TMA; in a cluster, also by the TMA of peers that multicast to this CTA.

    Attributes
    ----------
    barriers : Pointer
        Shared memory for 2 * `stages` mbarriers of 8 bytes: the full ones, then the empty ones.
    stages : int
        Stages in the ring.
    stage_bytes : int
        Bytes that fill one stage, from all senders.
    consumer_warps : int
        Warps of this CTA that read each stage.
    cluster_mn : (int, int)
        Shape of the cluster, or of each plane of it; (1, 1) for a ring that no peer writes to.
    """

    barriers: cute.Pointer
    stages: int
    stage_bytes: int
    consumer_warps: int
    cluster_mn: tuple[int, int] = (1, 1)

    def __post_init__(self) -> None:
        self.check()
        check_room(self.barriers, self.barrier_count, rules.MBARRIER_BITS, f"a ring of {self.stages} stages")
        if math.prod(self.cluster_mn) > 1:
            rules.check_cluster("a ring", self.cluster_mn, launched().cluster)

    def check(self) -> None:
        """Check the attributes."""
        rules.check_ring(self.stages, self.stage_bytes, self.consumer_warps, self.cluster_mn)

    @property
    def barrier_count(self) -> int:
        """Barriers of all stages."""
        return 2 * self.stages

    @property
    def full(self) -> cute.Pointer:
        """Full barriers, on which consumers wait."""
        return self.barriers

    @property
    def full_arrivals(self) -> int:
        """Arrivals that complete *full*, beside the bytes: one, of the thread that expects these."""
        return 1

    @property
    def empty(self) -> cute.Pointer:
        """Empty barriers, on which the producer waits."""
        return self.barriers + self.stages

    @property
    def release_scope(self) -> MemScopeKind | None:
        """Scope of releases to peers; None, the CTA's scope, where only the async proxy reads stages."""
        return None

    def producer_state(self) -> pipeline.PipelineState:
        """Return the producer's state: stage 0, parity 1, so that its first round does not wait."""
        return pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, self.stages)

    def consumer_state(self) -> pipeline.PipelineState:
        """Return a consumer's state: stage 0, parity 0."""
        return pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, self.stages)

    @cute.jit
    def initialise(self):
        """Set the arrival counts of all barriers; one thread of one warp calls. A fence and a barrier must follow."""
        empty_arrivals = rules.empty_barrier_arrivals(self.consumer_warps, self.cluster_mn)
        for stage in cutlass.range_constexpr(self.stages):
            cute.arch.mbarrier_init(self.full + stage, self.full_arrivals)
            cute.arch.mbarrier_init(self.empty + stage, empty_arrivals)

    @cute.jit
    def acquire(self, state):
        """Wait until the stage is free, then expect its bytes; return the barrier that TMA completes."""
        # Without this wait TMA would overwrite a tile that wgmma is still reading.
        with mark("acquire", state.index):
            cute.arch.mbarrier_wait(self.empty + state.index, state.phase)
        full = self.full + state.index
        with cute.arch.elect_one():
            # The full phase can't complete before this arrival, so bytes from a faster peer are counted early, without
            # harm.
            cute.arch.mbarrier_arrive_and_expect_tx(full, self.stage_bytes)
        return full

    def has_arrived(self, state):
        """Test without waiting whether the stage is full; a later `wait` takes the result."""
        return cute.arch.mbarrier_test_wait(self.full + state.index, state.phase)

    @cute.jit
    def wait(self, state, arrived=False):
        """Wait until all bytes of the stage have arrived; they are then visible to this thread and to wgmma.

        `arrived` is the result of `has_arrived`: if true, there is nothing to wait for.
        """
        if not arrived:
            with mark("wait", state.index):
                cute.arch.mbarrier_wait(self.full + state.index, state.phase)

    @cute.jit
    def release(self, state):
        """Release the stage to every CTA that sends to it, once for this warp, which has finished reading."""
        cluster_m, cluster_n = self.cluster_mn
        empty = self.empty + state.index
        if cutlass.const_expr(cluster_m * cluster_n == 1):
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive(empty)
        else:
            # Lane r signals the CTA of rank r in this plane of the cluster: CTAs in this CTA's row send it A, CTAs in
            # its column B.
            rank, lane = cute.arch.block_idx_in_cluster(), cute.arch.lane_idx()
            here = rank % (cluster_m * cluster_n)
            same_row = lane % cluster_m == here % cluster_m
            same_column = lane // cluster_m == here // cluster_m
            if lane < cluster_m * cluster_n and (same_row or same_column):
                cute.arch.mbarrier_arrive(empty, rank - here + lane, scope=self.release_scope)

    @cute.jit
    def drain(self, state):
        """Wait until every stage has been released, so that no peer arrives on a CTA that has exited; advance `state`.

        It goes around once, which a state that is used elsewhere must not: pass `state.clone()` then.
        """
        for _ in cutlass.range_constexpr(self.stages):
            cute.arch.mbarrier_wait(self.empty + state.index, state.phase)
            state.advance()


@dataclass(frozen=True)
class MixedRing(TmaRing):
    """Ring of stages that threads fill by cp.async, alone or together with TMA.

    *full* completes when each of the threads has arrived once for all of its copies into the stage, which have then
    landed, and TMA has delivered its bytes, if it has any. Threads arrive by `cp.async.mbarrier.arrive.noinc`, which
    the hardware does for them as soon as their copies have ended, so that they run ahead over all stages that are free
    and wait for no copy.

    Attributes
    ----------
    stage_bytes : int
        Bytes of a stage that TMA delivers; 0 if threads copy it all.
    threads : int
        Threads that copy: whole warps.
    fenced : bool
        True if wgmma reads the copies; if not, consumers need no fence.
    """

    threads: int = 0
    fenced: bool = True

    def check(self) -> None:
        """Check the attributes."""
        rules.check_mixed_ring(self.stages, self.stage_bytes, self.threads, self.consumer_warps, self.cluster_mn)

    @property
    def full_arrivals(self) -> int:
        """Arrivals that complete *full*: one of each thread that copies, and one that expects TMA's bytes."""
        return rules.full_barrier_arrivals(self.threads, self.stage_bytes)

    @cute.jit
    def acquire(self, state):
        """Wait until the stage is free, in each warp that fills it; return the barrier that completes."""
        # Without this wait copies would overwrite a tile that wgmma is still reading.
        with mark("acquire", state.index):
            cute.arch.mbarrier_wait(self.empty + state.index, state.phase)
        return self.full + state.index

    @cute.jit
    def announce(self, full):
        """Expect the bytes that TMA will deliver; one warp calls, which has acquired the stage."""
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(full, self.stage_bytes)

    @cute.jit
    def commit(self, full):
        """Arrive once this thread's copies so far have landed, without waiting; each thread that copies calls."""
        cute.arch.cp_async_mbarrier_arrive_noinc(full)

    @cute.jit
    def wait(self, state, arrived=False):
        """Wait until the stage is full; it is then visible to this thread, and to wgmma if it is `fenced`.

        `arrived` is the result of `has_arrived`: if true, there is nothing to wait for.
        """
        TmaRing.wait(self, state, arrived)
        # cp.async writes through the generic proxy, and wgmma reads through the async proxy. The threads that fill the
        # stage can't fence without waiting for their copies first, so consumers fence between the barrier and their
        # MMAs.
        if cutlass.const_expr(self.fenced):
            cute.arch.fence_proxy("async.shared", space="cta")


@dataclass(frozen=True)
class StoredRing(TmaRing):
    """Ring of stages that warps of this CTA fill by stores, for MMAs or TMA to read.

    Attributes
    ----------
    stage_bytes : int
        0: TMA delivers none.
    warps : int
        Warps that fill a stage together.
    """

    warps: int = 0

    def check(self) -> None:
        """Check the attributes."""
        rules.check_stored_ring(self.stages, self.warps, self.consumer_warps)

    @property
    def full_arrivals(self) -> int:
        """Arrivals that complete *full*: one of each warp."""
        return self.warps

    @cute.jit
    def acquire(self, state):
        """Wait until the stage is free, in each warp that fills it; return the barrier that completes."""
        # Without this wait stores would overwrite a tile that wgmma is still reading.
        with mark("acquire", state.index):
            cute.arch.mbarrier_wait(self.empty + state.index, state.phase)
        return self.full + state.index

    @cute.jit
    def commit(self, full):
        """Arrive once for this warp's stores, whose sources are read by then; all of its lanes call."""
        # wgmma reads through the async proxy: each lane fences its own stores, and its reads before TMA refills what it
        # read. One lane arrives for all, so they meet first.
        cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.sync_warp()
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive(full)


@dataclass(frozen=True)
class RewrittenRing(TmaRing):
    """Ring of stages that TMA fills, and warps of this CTA rewrite in place, for MMAs to read.

    A stage has a third mbarrier, *rewritten*, which completes when each rewriting warp has arrived. Rewriting warps
    wait for *full* (`wait_loaded`), and consumers wait for *rewritten*. Consumers release a stage to its producer, as
    in any ring.

    Attributes
    ----------
    barriers : Pointer
        Shared memory for 3 * `stages` mbarriers: the full ones, the empty ones, then the rewritten ones.
    warps : int
        Warps that rewrite a stage together.
    """

    warps: int = 0

    def check(self) -> None:
        """Check the attributes."""
        TmaRing.check(self)
        rules.check_stored_ring(self.stages, self.warps, self.consumer_warps)

    @property
    def barrier_count(self) -> int:
        """Barriers of all stages."""
        return 3 * self.stages

    @property
    def rewritten(self) -> cute.Pointer:
        """Barriers on which consumers wait."""
        return self.barriers + 2 * self.stages

    @property
    def release_scope(self) -> MemScopeKind:
        """Scope of releases to peers, whose TMA overwrites the stores of this CTA's threads."""
        return MemScopeKind.CLUSTER

    @cute.jit
    def initialise(self):
        """Set the arrival counts of all barriers; one thread of one warp calls. A fence and a barrier must follow."""
        TmaRing.initialise(self)
        for stage in cutlass.range_constexpr(self.stages):
            cute.arch.mbarrier_init(self.rewritten + stage, self.warps)

    @cute.jit
    def wait_loaded(self, state):
        """Wait until all bytes of the stage have arrived, in each warp that rewrites it."""
        TmaRing.wait(self, state)

    @cute.jit
    def commit(self, state):
        """Arrive once for the stages that this warp has rewritten; all of its lanes call."""
        # wgmma reads through the async proxy, by which TMA refills the stage too: each lane fences its own stores, and
        # its reads. One lane arrives for all, so they meet first.
        cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.sync_warp()
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive(self.rewritten + state.index)

    @cute.jit
    def wait(self, state):
        """Wait until the stage has been rewritten; it is then visible to this thread and to wgmma."""
        with mark("wait", state.index):
            cute.arch.mbarrier_wait(self.rewritten + state.index, state.phase)


@cute.jit
def publish_barriers(cluster: cutlass.Constexpr = (1, 1, 1)):
    """Make initialised mbarriers visible to the CTA or the cluster; all threads call.

    Users of an mbarrier are the other warps, TMA (the async proxy), and the peers of a cluster, which arrive and
    deliver bytes. Every user must see the initialised mbarrier first. Therefore the thread that initialised the
    mbarriers executes a fence, and a barrier over all users follows.
    """
    cute.arch.mbarrier_init_fence()
    if cutlass.const_expr(math.prod(cluster) == 1):
        cute.arch.sync_threads()
    else:
        cute.arch.cluster_arrive_relaxed()
        cute.arch.cluster_wait()
