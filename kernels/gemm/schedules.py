"""Schedules of a CTA's consumers: cooperative, ping-pong, split-K and stream-K (traced).

`Cooperative` is the cooperative schedule and defines a hook for each point of a tile's life, most of them empty. The
others override hooks. Each block that a hook calls documents its synchronisation.
"""

import math
from dataclasses import dataclass, replace

import cutlass
import cutlass.cute as cute

from cutepy.device import roles, rules
from cutepy.device.dynamic import Dynamic, Tickets
from cutepy.device.exchange import ClusterSums
from cutepy.device.rasterise import Divisors
from cutepy.device.schedulers import Persistent, Work
from cutepy.device.stream_k import StreamK
from cutepy.device.turns import PingpongOrder
from cutepy.device.workspace import WorkspaceSums
from cutepy.kernels.gemm.config import PRODUCER_THREADS, GemmConfig


@dataclass(frozen=True)
class Cooperative:
    """Cooperative schedule: all consumer warpgroups multiply one tile, and store it before the next.

    Attributes
    ----------
    config : GemmConfig
    tidx : Int32, optional
        Index of this thread among those of its consumer; threads that were `seated` have it.
    consumer : Int32 or int
        Index of this thread's consumer.
    """

    config: GemmConfig
    tidx: cutlass.Int32 | None = None
    consumer: cutlass.Int32 | int = 0

    def initialise(self):
        """Initialise the mbarriers of the schedule; one thread calls."""

    def seated(self):
        """Return the schedule of a consumer thread, which alone calls this and the methods below."""
        return replace(self, tidx=consumer_thread(self.config))

    def dealt(self, work: Work):
        """Return the range of subtiles that this CTA finishes: (first, step)."""
        return 0, 1

    def exchange_state(self):
        """Return the initial state of the exchange of accumulators."""
        return ()

    def skip_first(self, state, count):
        """Advance a ring's state past the tile before this consumer's first, of a given number of stages."""
        return state

    def skip_others(self, state, count):
        """Advance a ring's state past the tiles of other consumers, after one of its own."""
        return state

    def before(self, work: Work):
        """Wait for the consumer's turn before the main loop of a tile."""

    def hand_over(self, work: Work):
        """Release the tensor cores once all MMAs of a tile have been issued."""

    def exchange(self, work: Work, subtiles, state):
        """Exchange accumulators with other CTAs; return the next state."""
        return state

    def before_reading(self, work: Work):
        """Wait for the consumer's turn before it reads a tile's operands."""

    def add_to(self, rC, index):
        """Add the other CTAs' accumulators to a subtile that this CTA finishes."""

    def after(self, work: Work):
        """Release the operands of the next tile once a tile has been finished."""

    def drain(self, state):
        """Wait before the CTA exits for peers that still access its shared memory."""


@dataclass(frozen=True)
class Pingpong(Cooperative):
    """Ping-pong schedule: two consumers alternate tiles; one multiplies while the other stores.

    Attributes
    ----------
    turns : PingpongOrder, optional
        Order of the tensor cores' use; threads that were `seated` have it.
    reading : PingpongOrder, optional
        Order in the ring of the epilogue's tiles, if it reads any.
    """

    turns: PingpongOrder | None = None
    reading: PingpongOrder | None = None

    @cute.jit
    def seated(self):
        """Split the consumer threads into two consumers."""
        threads = self.config.consumer_threads
        tidx = consumer_thread(self.config)
        consumer = cute.arch.make_warp_uniform(tidx // threads)
        barriers, reading = self.config.named_barriers, None
        if cutlass.const_expr(len(self.config.signature.added) > 0):
            reading = PingpongOrder(barriers["read"], consumer, threads)
        turns = PingpongOrder(barriers["multiply"], consumer, threads)
        return replace(self, tidx=tidx % threads, consumer=consumer, turns=turns, reading=reading)

    @cute.jit
    def skip_first(self, state, count):
        """Skip the first tile, if that is the other consumer's."""
        if self.consumer == 1:
            state.advance(count)
        return state

    def skip_others(self, state, count):
        """Skip the other consumer's next tile."""
        state.advance(count)
        return state

    def before(self, work: Work):
        """Wait until the other consumer has issued the MMAs of the tile before."""
        self.turns.wait(work.is_first)

    def hand_over(self, work: Work):
        """Let the other consumer issue the MMAs of the next tile: they queue up behind these."""
        self.turns.hand_over(work.has_next)

    def before_reading(self, work: Work):
        """Wait until the other consumer has read the tile operands of the tile before, if there are any."""
        if self.reading is not None:
            self.reading.wait(work.is_first)

    def after(self, work: Work):
        """Let the other consumer read the tile operands of the next tile."""
        if self.reading is not None:
            self.reading.hand_over(work.has_next)


@dataclass(frozen=True)
class SplitK(Cooperative):
    """Split-K schedule: CTAs of a cluster share the K of a tile, and sum through distributed shared memory.

    Attributes
    ----------
    sums : ClusterSums, optional
    """

    sums: ClusterSums | None = None

    def initialise(self):
        """Initialise the exchange's mbarriers."""
        self.sums.initialise()

    def dealt(self, work: Work):
        """Deal the subtiles out among the CTAs that share K."""
        return self.sums.part, self.sums.owners

    def exchange_state(self):
        """Return the sender's and the receiver's pipeline state."""
        return self.sums.sender_state(), self.sums.reader_state()

    @cute.jit
    def before(self, work: Work):
        """Expect the peers' sums before any of them can arrive."""
        if self.tidx == 0:
            self.sums.announce()

    @cute.jit
    def exchange(self, work: Work, subtiles, state):
        """Send the subtiles that peers finish, and wait for the peers' sums of this CTA's subtiles."""
        sent, read = state
        self.sums.send(subtiles, sent)
        sent.advance()
        self.sums.wait(read)
        read.advance()
        return sent, read

    def add_to(self, rC, index):
        """Add the peers' sums."""
        self.sums.join(rC, index)

    def after(self, work: Work):
        """Signal the peers that their sums have been read."""
        self.sums.release()

    def drain(self, state):
        """Wait until the peers have read this CTA's sums: none may arrive on a CTA that has exited."""
        self.sums.drain(state[0])


@dataclass(frozen=True)
class StreamKFixup(Cooperative):
    """Stream-K schedule: CTAs share the K of the last tiles; one finishes each tile from a workspace of sums.

    Attributes
    ----------
    sums : WorkspaceSums, optional
    """

    sums: WorkspaceSums | None = None

    def dealt(self, work: Work):
        """Return the subtiles of a tile that this CTA finishes; none if another CTA finishes the tile."""
        return cutlass.Int32(cutlass.select_(work.sharing.is_finished_here, 0, self.config.subtiles)), 1

    @cute.jit
    def exchange(self, work: Work, subtiles, state):
        """Store the sums of a part, or load those of all other parts in their order."""
        sharing = work.sharing
        if sharing.is_finished_here:
            for peer in cutlass.range(sharing.peers, unroll=1):
                self.sums.join(subtiles, sharing.place + (peer + 1) * sharing.step)
        else:
            self.sums.leave(subtiles, sharing.place)
        return state


def consumer_thread(config: GemmConfig):
    """Return this thread's index among the consumers' threads; undefined elsewhere."""
    return roles.warpgroup_thread(PRODUCER_THREADS, config.consumers * config.consumer_threads)


@cute.jit
def make_schedule(config: GemmConfig, shared: dict, workspace: tuple = (None, None)):
    """Make the schedule of a configuration; `workspace` has flags and sums where there is one."""
    if cutlass.const_expr(config.consumers > 1):
        return Pingpong(config)
    if cutlass.const_expr(config.stream_k):
        registers, tidx = config.accumulator_registers, consumer_thread(config)
        return StreamKFixup(config, sums=WorkspaceSums(*workspace, registers, config.consumer_threads, tidx))
    if cutlass.const_expr(config.split_k == 1):
        return Cooperative(config)
    barriers = shared["barriers"] + 2 * (config.stages + config.c_stages)
    plane = config.cluster_m * config.cluster_n
    _, _, part = cute.arch.block_in_cluster_idx()
    sums = ClusterSums(
        shared["sums"],
        barriers,
        config.split_k,
        config.subtiles,
        config.subtile_registers,
        config.consumer_threads,
        part,
        cute.arch.block_idx_in_cluster() % plane,
        plane,
        consumer_thread(config),
        fenced=len(config.signature.stored) > 0,
    )
    return SplitK(config, sums=sums)


def most_parts(config: GemmConfig, tiles, k, sm_count):
    """Return the largest number of work units: tiles, or the parts that stream-K makes for as many clusters as SMs."""
    if not config.stream_k:
        return tiles
    return cutlass.min(tiles, sm_count) * rules.parts_of(cute.ceil_div(k, config.tile_k), cutlass.min)


def make_tickets(config: GemmConfig, shared: dict, workspace: tuple, loading_warps: int) -> Tickets | None:
    """Make the ring that broadcasts dynamically fetched tiles to all warps; None without a tile counter."""
    if not config.dynamic:
        return None
    readers = loading_warps + (config.c_stages > 0) + config.consumers * config.consumer_warps
    slots = rules.ticket_slots(config.consumers)
    barriers = shared["barriers"] + (config.smem["barriers"].content.count - 2 * slots)
    return Tickets(workspace[0].iterator, shared["tickets"], barriers, slots, readers, math.prod(config.cluster))


def make_scheduler(config: GemmConfig, raster, k_tiles, tickets: Tickets | None) -> Persistent | StreamK | Dynamic:
    """Make the tile scheduler; `raster` has the tiles' extents and the divisors of their indices."""
    (extents, divisors), cluster_mn = raster, (config.cluster_m, config.cluster_n)
    product = Persistent(extents, k_tiles, cluster_mn, config.split_k, config.band_rows, Divisors(*divisors))
    if tickets is not None:
        return Dynamic(product, tickets)
    return StreamK(product) if config.stream_k else product
