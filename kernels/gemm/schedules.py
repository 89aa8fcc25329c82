"""How the consumers of a CTA, and the CTAs of a cluster, share the work of output tiles: one short class each (traced).

`Together` says what happens at each point of a tile's life where nothing is shared, mostly nothing; the others replace
what they do otherwise. What each synchronises by is told at the blocks that it is made of.
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
from cutepy.device.turns import Turns
from cutepy.device.workspace import WorkspaceSums
from cutepy.kernels.gemm.config import PRODUCER_THREADS, GemmConfig


@dataclass(frozen=True)
class Together:
    """All consumer warpgroups multiply one tile, and store it together before the next.

    Attributes
    ----------
    config : GemmConfig
    tidx : Int32, optional
        Index of this thread among those of its consumer; threads that were `seated` have it.
    consumer : Int32 or int
        Which of the consumers it belongs to.
    """

    config: GemmConfig
    tidx: cutlass.Int32 | None = None
    consumer: cutlass.Int32 | int = 0

    def initialise(self):
        """Set the arrival counts of barriers; one thread calls."""

    def seated(self):
        """Tell consumer threads apart, which alone call this and what follows."""
        return replace(self, tidx=consumer_thread(self.config))

    def dealt(self, work: Work):
        """Deal a tile's subtiles out: this CTA finishes the first of these, and each so many after."""
        return 0, 1

    def exchange_state(self):
        """Give what is carried from tile to tile of the exchange of accumulators."""
        return ()

    def skip_first(self, state, count):
        """Let a ring's state pass over the tile before this consumer's first, of so many stages."""
        return state

    def skip_others(self, state, count):
        """Let a ring's state pass over the tiles of other consumers, after one of its own."""
        return state

    def before(self, work: Work):
        """Do what must be done before a tile is multiplied."""

    def hand_over(self, work: Work):
        """Do what can be done as soon as all MMAs of a tile have been issued."""

    def exchange(self, work: Work, subtiles, state):
        """Exchange accumulators with other CTAs; gives the next state."""
        return state

    def before_reading(self, work: Work):
        """Do what must be done before a tile's operands are read."""

    def add_to(self, rC, index):
        """Add the others' accumulators to a subtile that this CTA finishes."""

    def after(self, work: Work):
        """Do what must be done once a tile has been finished."""

    def drain(self, state):
        """Do what must be done before the CTA exits."""


@dataclass(frozen=True)
class InTurns(Together):
    """Two consumers take a CTA's tiles in turn: one multiplies while the other stores (pingpong).

    Attributes
    ----------
    turns : Turns, optional
        By which they hand the tensor cores over; threads that were `seated` have it.
    reading : Turns, optional
        By which they hand over the ring of the tiles that the epilogue reads, if it reads any.
    """

    turns: Turns | None = None
    reading: Turns | None = None

    @cute.jit
    def seated(self):
        """Part the consumer threads into two consumers."""
        threads = self.config.consumer_threads
        tidx = consumer_thread(self.config)
        consumer = cute.arch.make_warp_uniform(tidx // threads)
        barriers, reading = self.config.named_barriers, None
        if cutlass.const_expr(len(self.config.signature.added) > 0):
            reading = Turns(barriers["read"], consumer, threads)
        turns = Turns(barriers["multiply"], consumer, threads)
        return replace(self, tidx=tidx % threads, consumer=consumer, turns=turns, reading=reading)

    @cute.jit
    def skip_first(self, state, count):
        """Pass over the first tile, if that is the other consumer's."""
        if self.consumer == 1:
            state.advance(count)
        return state

    def skip_others(self, state, count):
        """Pass over the other consumer's next tile."""
        state.advance(count)
        return state

    def before(self, work: Work):
        """Wait until the other consumer has issued the MMAs of the tile before."""
        self.turns.wait(work.is_first)

    def hand_over(self, work: Work):
        """Let the other consumer issue those of the next tile: they queue up behind these."""
        self.turns.hand_over(work.has_next)

    def before_reading(self, work: Work):
        """Wait until the other consumer has read the operands of the tile before, if there are any."""
        if self.reading is not None:
            self.reading.wait(work.is_first)

    def after(self, work: Work):
        """Let the other consumer read those of the next tile."""
        if self.reading is not None:
            self.reading.hand_over(work.has_next)


@dataclass(frozen=True)
class SplitK(Together):
    """CTAs of a cluster share the K of a tile, and sum through each other's shared memory.

    Attributes
    ----------
    sums : ClusterSums, optional
    """

    sums: ClusterSums | None = None

    def initialise(self):
        """Set the arrival counts of the exchange's barriers."""
        self.sums.initialise()

    def dealt(self, work: Work):
        """Deal the subtiles out among the CTAs that share K."""
        return self.sums.part, self.sums.owners

    def exchange_state(self):
        """Give the sender's and the reader's position."""
        return self.sums.sender_state(), self.sums.reader_state()

    @cute.jit
    def before(self, work: Work):
        """Announce the peers' sums before any can have come."""
        if self.tidx == 0:
            self.sums.announce()

    @cute.jit
    def exchange(self, work: Work, subtiles, state):
        """Send what others finish, and wait for the sums of what is finished here."""
        sent, read = state
        self.sums.send(subtiles, sent)
        sent.advance()
        self.sums.wait(read)
        read.advance()
        return sent, read

    def add_to(self, rC, index):
        """Add the peers' sums."""
        self.sums.add_to(rC, index)

    def after(self, work: Work):
        """Tell the peers that their sums have been read."""
        self.sums.release()

    def drain(self, state):
        """Wait until the peers have read this CTA's: none may arrive on a CTA that has exited."""
        self.sums.drain(state[0])


@dataclass(frozen=True)
class InShares(Together):
    """CTAs share the K of the last tiles: one finishes each, with the sums that others have left in a workspace.

    Attributes
    ----------
    sums : WorkspaceSums, optional
    """

    sums: WorkspaceSums | None = None

    def dealt(self, work: Work):
        """Leave no subtile to who doesn't finish the tile."""
        return cutlass.Int32(cutlass.select_(work.sharing.is_finished_here, 0, self.config.subtiles)), 1

    @cute.jit
    def exchange(self, work: Work, subtiles, state):
        """Leave the sums of a part, or fetch those of all others in their order."""
        sharing = work.sharing
        if sharing.is_finished_here:
            for peer in cutlass.range(sharing.peers, unroll=1):
                self.sums.add_to(subtiles, sharing.place + (peer + 1) * sharing.step)
        else:
            self.sums.leave(subtiles, sharing.place)
        return state


def consumer_thread(config: GemmConfig):
    """Count this thread among the consumers'; any value elsewhere."""
    return roles.warpgroup_thread(PRODUCER_THREADS, config.consumers * config.consumer_threads)


@cute.jit
def make_schedule(config: GemmConfig, shared: dict, workspace: tuple = (None, None)):
    """Make the schedule of a configuration; `workspace` has flags and sums where there is one."""
    if cutlass.const_expr(config.consumers > 1):
        return InTurns(config)
    if cutlass.const_expr(config.stream_k):
        registers, tidx = config.accumulator_registers, consumer_thread(config)
        return InShares(config, sums=WorkspaceSums(*workspace, registers, config.consumer_threads, tidx))
    if cutlass.const_expr(config.split_k == 1):
        return Together(config)
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
    """Count the tiles, or the parts in which shares may have as many as there are SMs, for each of which a cluster."""
    if not config.stream_k:
        return tiles
    return cutlass.min(tiles, sm_count) * rules.parts_of(cute.ceil_div(k, config.tile_k), cutlass.min)


def make_tickets(config: GemmConfig, shared: dict, workspace: tuple, loading_warps: int) -> Tickets | None:
    """Make the ring by which tiles that were taken are handed on to all warps, if they are taken by a counter."""
    if not config.dynamic:
        return None
    readers = loading_warps + (config.c_stages > 0) + config.consumers * config.consumer_warps
    slots = rules.ticket_slots(config.consumers)
    barriers = shared["barriers"] + (config.smem["barriers"].content.count - 2 * slots)
    return Tickets(workspace[0].iterator, shared["tickets"], barriers, slots, readers, math.prod(config.cluster))


def make_scheduler(config: GemmConfig, raster, k_tiles, tickets: Tickets | None) -> Persistent | StreamK | Dynamic:
    """Make what deals the tiles out; `raster` are their extents, and what divides their indices."""
    (extents, divisors), cluster_mn = raster, (config.cluster_m, config.cluster_n)
    product = Persistent(extents, k_tiles, cluster_mn, config.split_k, config.band_rows, Divisors(*divisors))
    if tickets is not None:
        return Dynamic(product, tickets)
    return StreamK(product) if config.stream_k else product
