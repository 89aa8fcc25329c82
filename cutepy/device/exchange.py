"""Split-K exchange: sum the accumulators of a cluster's CTAs that share the K of one output tile (traced).

Each CTA holds partial sums of the whole tile. Each subtile of the tile has an owner, which receives the peers' partial
sums of it, adds all in the order of their ranks, and finishes it. So the sums are the same from run to run, and no
memory beyond the cluster's is used.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import cutlass
import cutlass.cute as cute
from cutlass import pipeline

from cutepy.device import rules
from cutepy.device.combining import VECTOR, add
from cutepy.device.smem import check_room
from cutepy.dsl.traced_names import MemScopeKind
from cutepy.layouts.sm90 import arch


@dataclass(frozen=True)
class ClusterSums:
    """Exchange of partial sums, one output tile after another.

    Each CTA has two mbarriers. *full* completes when the sums of all peers for this CTA's subtiles have arrived: it
    expects one arrival, of the thread that announces the bytes, and the bytes of `st.async`. *empty* completes when all
    other owners have read the sums of this CTA: it expects one arrival of each consumer warp of each owner. As in a
    ring of one stage, waits for *full* begin at parity 0, and waits for *empty* at parity 1.

    Attributes
    ----------
    slots : Pointer
        Shared memory for the sums of peers, `slots_bytes` of them, aligned to 16 bytes.
    barriers : Pointer
        Shared memory for the two mbarriers.
    parts : int
        CTAs that share the K of a tile.
    subtiles : int
        Number of subtiles of a tile.
    registers : int
        fp32 values of a subtile that a thread holds, a multiple of 4.
    threads : int
        Consumer threads.
    part, first_rank : Int32
        Part of this CTA; the rank in the cluster of part 0, the others' following by `rank_step`.
    rank_step : int
    tidx : Int32
        Index among the consumer threads; any value elsewhere.
    fenced : bool
        True if each thread fences what it has read (fence.proxy.async) before it calls `release`, as
        `TileStore.store` does: else the arrival itself must say so beyond this CTA, which is slower.
    combine : callable
        Joins a peer's values to a thread's own, as `combining.add` does, the default, or `combining.AddResults`.
    """

    slots: cute.Pointer
    barriers: cute.Pointer
    parts: int
    subtiles: int
    registers: int
    threads: int
    part: cutlass.Int32
    first_rank: cutlass.Int32
    rank_step: int
    tidx: cutlass.Int32
    fenced: bool = False
    combine: Callable = add

    def __post_init__(self) -> None:
        rules.check_exchange(self.parts, self.registers)
        check_room(self.barriers, 2, rules.MBARRIER_BITS, "an exchange of sums")
        sums = rules.exchange_bytes(self.parts, self.subtiles, self.registers, self.threads) // 4
        check_room(self.slots, sums, 32, "an exchange of sums")

    @property
    def owners(self) -> int:
        """Number of CTAs that finish subtiles."""
        return rules.owners(self.parts, self.subtiles)

    @property
    def receivers(self) -> cutlass.Int32:
        """Number of CTAs that this one sends to."""
        return self.owners - cutlass.Int32(self.part < self.owners)

    @property
    def full(self) -> cute.Pointer:
        """Barrier that completes when the peers' sums have arrived."""
        return self.barriers

    @property
    def empty(self) -> cute.Pointer:
        """Barrier that completes when the peers have read this CTA's sums."""
        return self.barriers + 1

    def reader_state(self) -> pipeline.PipelineState:
        """Return a reader's state: parity 0."""
        return pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, 1)

    def sender_state(self) -> pipeline.PipelineState:
        """Return a sender's state: parity 1, so that the first tile does not wait."""
        return pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, 1)

    @cute.jit
    def initialise(self):
        """Set the arrival counts; one thread calls. A fence and a barrier of the cluster must follow."""
        cute.arch.mbarrier_init(self.full, 1)
        cute.arch.mbarrier_init(self.empty, cutlass.max(self.receivers * (self.threads // arch.WARP_THREADS), 1))

    def rank_of(self, part):
        """Return the rank in the cluster of one of the parts."""
        return self.first_rank + part * self.rank_step

    def _slot(self, index, source, vector: int):
        """Return the address of this thread's values from a source, in the shared memory of the subtile's owner."""
        block = (index // self.owners * (self.parts - 1) + source) * (self.registers // VECTOR) + vector
        return (self.slots + (block * self.threads + self.tidx) * VECTOR).align(4 * VECTOR)

    @cute.jit
    def announce(self):
        """Expect the bytes of the peers' sums of this CTA's subtiles; one thread calls, for each tile."""
        if self.part < self.owners:
            owned = (self.subtiles - 1 - self.part) // self.owners + 1
            size = (self.parts - 1) * rules.partial_bytes(self.registers, self.threads)
            cute.arch.mbarrier_arrive_and_expect_tx(self.full, owned * size)

    @cute.jit
    def send(self, subtiles, state):
        """Send this thread's accumulators of all subtiles to the owners; all consumer threads call."""
        self.drain(state)  # the owners have read the previous tile's sums
        for index in cutlass.range(self.subtiles, unroll_full=True):
            owner = index % self.owners
            if self.part != owner:
                source = self.part - cutlass.Int32(self.part > owner)
                rC = subtiles[None, None, None, index]
                for vector in cutlass.range_constexpr(self.registers // VECTOR):
                    values = tuple(rC[vector * VECTOR + v].bitcast(cutlass.Int32) for v in range(VECTOR))
                    slot = self._slot(index, source, vector)
                    cute.arch.store_async_dsmem(slot, values, self.full, self.rank_of(owner))

    @cute.jit
    def drain(self, state):
        """Wait until the peers have read all sums sent, so that none arrives on a CTA that has exited."""
        if self.receivers > 0:
            cute.arch.mbarrier_wait(self.empty, state.phase)

    @cute.jit
    def wait(self, state):
        """Wait until all sums of this CTA's subtiles have arrived, if it owns any."""
        if self.part < self.owners:
            cute.arch.mbarrier_wait(self.full, state.phase)

    @cute.jit
    def join(self, rC, index):
        """Join the peers' values to a subtile that this CTA owns, in the order of the parts."""
        for source in cutlass.range_constexpr(self.parts - 1):
            self.combine(rC, partial(self._line, index, source))

    def _line(self, index, source, vector: int):
        """Read four of this thread's values from a source."""
        return cute.make_tensor(self._slot(index, source, vector), cute.make_layout(VECTOR)).load()

    @cute.jit
    def release(self):
        """Signal the peers that this warp has read their sums, if this CTA owns any subtiles."""
        cute.arch.sync_warp()
        lane = cute.arch.lane_idx()
        if lane < self.parts and lane != self.part and self.part < self.owners:
            # Peers overwrite the slots that this warp has read; an arrival of scope .cta orders nothing for other CTAs.
            scope = None if self.fenced else MemScopeKind.CLUSTER
            cute.arch.mbarrier_arrive(self.empty, self.rank_of(lane), scope=scope)
