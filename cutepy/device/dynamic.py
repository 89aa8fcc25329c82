"""Dynamic persistent tile scheduler: a cluster that finishes sooner takes more output tiles (traced).

A cluster's first tile is that of its own index. For each tile that it has, one warp of it, the dealer, takes a ticket
in advance: the value of a counter in global memory, which it raises by an atomic addition. Tickets count the tiles
behind the first ones. There are as many tickets as tiles: the cluster that gets the last one sets the counter to 0
again. (QuACK's dynamic persistent scheduler, and CUTLASS's by `clusterlaunchcontrol` on later GPUs, broadcast tiles
likewise.)
"""

import math
from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import pipeline

from cutepy.device import rules
from cutepy.device.schedulers import Persistent, Work
from cutepy.device.smem import check_room
from cutepy.dsl.traced_names import MemScopeKind


@dataclass(frozen=True)
class Tickets:
    """Ring of slots through which a dealer broadcasts tile indices to the warps of its cluster.

    Each CTA has the slots, and two mbarriers for each slot. *full* completes when an index has come: the dealer arrives
    once, announces 4 bytes, and sends them by `st.async`. Every thread that has waited sees the bytes, in any CTA. In a
    single CTA, which may be launched without a cluster, the dealer stores the index and arrives. The *empty* mbarrier
    of the dealer's CTA completes when every reader warp of the cluster has arrived, that is, has read the slot. As in a
    ring of stages, waits for *full* begin at parity 0, and waits for *empty* at parity 1.

    The lanes of a reader read the slot and synchronise, and one of them arrives. Where the dealer may be in another
    CTA, this arrival is a release at the scope of the cluster, so that the dealer's next store comes after the reads.
    The last index of a cluster is beyond all tiles. Every reader reads it too, so that no store is on its way to a CTA
    that has exited, and so that the dealer, at whose CTA the readers arrive, ends last.

    The counter orders nothing, so it is read and written relaxed. The cluster that gets the last ticket comes after all
    additions, and sets the counter to 0 by a plain store; the next launch comes after this one
    (`overlap.follow_launch`). One counter, 0 before the first launch, thus serves any number of launches one after
    another, replayed by CUDA graphs too. Launches that may run at one time need counters of their own.

    Attributes
    ----------
    counter : Pointer
        Pointer to an int32 in global memory.
    slots : Pointer
        Shared memory for `count` int32.
    barriers : Pointer
        Shared memory for 2 * `count` mbarriers of 8 bytes: the full ones, then the empty ones.
    count : int
        Number of slots: the tiles that a cluster takes ahead of the tile that it works on.
    readers : int
        Warps of a CTA that work on its tiles, in turns too.
    ctas : int
        Number of CTAs of the cluster.
    """

    counter: cute.Pointer
    slots: cute.Pointer
    barriers: cute.Pointer
    count: int
    readers: int
    ctas: int = 1

    def __post_init__(self) -> None:
        rules.check_tickets(self.count, self.readers, self.ctas)
        check_room(self.slots, self.count, 32, f"{self.count} tickets")
        check_room(self.barriers, 2 * self.count, rules.MBARRIER_BITS, f"{self.count} tickets")

    @property
    def full(self) -> cute.Pointer:
        """Full barriers, on which readers wait."""
        return self.barriers

    @property
    def empty(self) -> cute.Pointer:
        """Empty barriers, on which the dealer waits in its own CTA."""
        return self.barriers + self.count

    def dealer_state(self) -> pipeline.PipelineState:
        """Return the dealer's state: slot 0, parity 1, so that its first round does not wait."""
        return pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, self.count)

    def reader_state(self) -> pipeline.PipelineState:
        """Return a reader's state: slot 0, parity 0."""
        return pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, self.count)

    @cute.jit
    def initialise(self):
        """Set the arrival counts of all barriers; one thread of one warp calls. A fence and a barrier must follow."""
        for slot in cutlass.range_constexpr(self.count):
            cute.arch.mbarrier_init(self.full + slot, 1)
            cute.arch.mbarrier_init(self.empty + slot, self.readers * self.ctas)

    @cute.jit
    def acquire(self, state):
        """Wait until all readers have read the slot; the dealer's warp calls, before it takes a ticket for it."""
        cute.arch.mbarrier_wait(self.empty + state.index, state.phase)

    @cute.jit
    def take(self, tickets):
        """Take one of a given number of tickets; the dealer's warp calls."""
        ticket = cutlass.Int32(0)
        if cute.arch.lane_idx() == 0:
            ticket = cute.arch.atomic_add(self.counter, cutlass.Int32(1), sem="relaxed", scope="gpu")
            if ticket == tickets - 1:
                cute.arch.store(self.counter, cutlass.Int32(0), sem="relaxed", scope="gpu")
        # All lanes have waited for the slot when one of them lets it be filled: no lane mistakes a later phase for its
        # own.
        return cute.arch.shuffle_sync(ticket, 0)

    @cute.jit
    def send(self, index, state):
        """Broadcast an index to all CTAs of the cluster; the dealer's warp calls."""
        rank = cute.arch.lane_idx()
        if rank < self.ctas:
            full = self.full + state.index
            if cutlass.const_expr(self.ctas == 1):
                # In a launch without a cluster st.async is an illegal instruction (an H200, 2026-11-30).
                cute.arch.store(self.slots + state.index, index)
                cute.arch.mbarrier_arrive(full)
            else:
                # The full phase can't complete before this arrival.
                cute.arch.mbarrier_arrive_and_expect_tx(full, 4, rank)
                cute.arch.store_async_dsmem(self.slots + state.index, index, full, rank)

    @cute.jit
    def drain(self, state):
        """Wait until all indices sent have been read, so that no peer arrives on a CTA that has exited."""
        for _ in cutlass.range_constexpr(self.count):
            cute.arch.mbarrier_wait(self.empty + state.index, state.phase)
            state.advance()

    @cute.jit
    def peek(self, state):
        """Read a slot once it is full; whole warps call."""
        cute.arch.mbarrier_wait(self.full + state.index, state.phase)
        index = cute.make_tensor(self.slots, cute.make_layout(self.count))[state.index]
        return cute.arch.make_warp_uniform(index)

    @cute.jit
    def read(self, state):
        """Read a slot once it is full, and release it to the dealer; whole warps call."""
        index, empty = self.peek(state), self.empty + state.index
        cute.arch.sync_warp()
        if cute.arch.lane_idx() == 0:
            if cutlass.const_expr(self.ctas == 1):
                cute.arch.mbarrier_arrive(empty)
            else:
                cute.arch.mbarrier_arrive(empty, 0, scope=MemScopeKind.CLUSTER)
        return index


@dataclass(frozen=True)
class ClaimedTile(Work):
    """Tile whose successor is known once the next ticket arrives; `has_next` waits for it, and whole warps call it.

    Attributes
    ----------
    tickets : Tickets
    place : PipelineState
        Ring position of the next tile.
    """

    tickets: Tickets | None = None
    place: Any = None

    @property
    def has_next(self):
        """Wait for the next ticket, and return whether this CTA has another tile."""
        return self.tickets.peek(self.place) < self.end


@dataclass(frozen=True)
class DealtTile(Work):
    """Tile of a dealer that works: its successor is known.

    Attributes
    ----------
    following : Int32
        Index of the CTA's next tile, behind all tiles if there is none.
    """

    following: Any = None

    @property
    def has_next(self):
        """True if this CTA has another tile."""
        return self.following < self.end


@dataclass(frozen=True)
class Dynamic:
    """Dynamic scheduler: each cluster takes its next tile just before it needs one, in the order of `Persistent`.

    Clusters wait for no other, so their number doesn't matter.

    Attributes
    ----------
    product : Persistent
        Schedule with the tiles and their K.
    tickets : Tickets
        Ring of tickets; its readers are all warps that call `each`.
    """

    product: Persistent
    tickets: Tickets

    @cute.jit
    def deal(self):
        """Take tickets until no tiles are left; exactly one warp of each CTA calls."""
        first, _, _ = cute.arch.cluster_idx()
        clusters, _, _ = cute.arch.cluster_dim()
        end = math.prod(self.product.raster)
        if cute.arch.block_idx_in_cluster() == 0:
            index, state = cutlass.Int32(first), self.tickets.dealer_state()
            while index < end:
                index, state = self._deal_next(clusters, end, state)
            self.tickets.drain(state)

    def _deal_next(self, clusters, end, state):
        """Take a ticket for the cluster's next tile, and broadcast the tile's index; return it, and the next state."""
        self.tickets.acquire(state)
        index = clusters + self.tickets.take(end)
        self.tickets.send(index, state)
        state.advance()
        return index, state

    @cute.jit
    def deal_to_each(self, worker: Any):
        """Take tickets until no tiles are left, as `deal` does, and run a worker on this CTA's tiles, as `each` does.

        Exactly one warp of each CTA calls, where no warp is left that only deals; CTAs form no clusters. It takes a
        tile's successor before it works on the tile, and reads no slots: it is none of their readers.
        """
        rules.check_worker(worker)
        rules.check_working_dealer(self.tickets.ctas)
        k = self.product.k()
        first, _, _ = cute.arch.block_idx()
        ctas, _, _ = cute.arch.grid_dim()
        end = math.prod(self.product.raster)
        index, place = cutlass.Int32(first), self.tickets.dealer_state()
        state = worker.first_state(k)
        while index < end:
            following, place = self._deal_next(ctas, end, place)
            row, column, batch = self.product.locate(index)
            work = DealtTile(row, column, batch, k, index, first, end, None, following=following)
            state = worker.on_tile(work, state)
            index = following
        self.tickets.drain(place)
        return state

    @cute.jit
    def each(self, worker: Any, turn: Any = 0, turns: cutlass.Constexpr = 1):
        """Run a worker on this CTA's tiles, as `Persistent.each` does; whole warps call."""
        rules.check_worker(worker)
        k = self.product.k()
        first, _, _ = cute.arch.cluster_idx()
        end = math.prod(self.product.raster)
        state = worker.first_state(k)
        index, place = self.follow(cutlass.Int32(first), self.tickets.reader_state(), turn)
        while index < end:
            row, column, batch = self.product.locate(index)
            work = ClaimedTile(row, column, batch, k, index, first, end, None, tickets=self.tickets, place=place)
            state = worker.on_tile(work, state)
            index, place = self.follow(index, place, turns)
        return state

    @cute.jit
    def follow(self, index, place, count):
        """Skip so many tiles, or all that are left: every warp reads every ticket."""
        for _ in cutlass.range(count, unroll=1):
            if index < math.prod(self.product.raster):
                index = self.tickets.read(place)
                place.advance()
        return index, place
