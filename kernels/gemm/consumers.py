"""The consumer warpgroups: they multiply, finish and store one output tile after another (traced)."""

from dataclasses import dataclass
from typing import NamedTuple

import cutlass
import cutlass.cute as cute
from cutlass import pipeline

from cutepy.device.main_loop import MainLoop
from cutepy.device.promotion import PromotedLoop
from cutepy.device.schedulers import KTiles, Persistent, Work
from cutepy.kernels.gemm.config import GemmConfig
from cutepy.kernels.gemm.finishing import ConsumerEpilogue
from cutepy.kernels.gemm.schedules import Cooperative
from cutepy.kernels.gemm.tile_coords import TileCoords


class ConsumerState(NamedTuple):
    """State that a consumer carries from tile to tile.

    Attributes
    ----------
    operands : PipelineState
        The position in the ring of A and B.
    stored : Int32
        Subtiles so far.
    exchange : tuple
        The schedule's.
    tiles : tuple
        The position in the ring of the tiles that the epilogue reads, if there is one.
    """

    operands: pipeline.PipelineState
    stored: cutlass.Int32
    exchange: tuple
    tiles: tuple


@dataclass(frozen=True)
class Consumer:
    """Consumer warpgroups: multiply, finish and store one output tile after another.

    Attributes
    ----------
    config : GemmConfig
    schedule : Cooperative
        Schedule, as `seated` returns it.
    tile_coords : TileCoords
    loop : MainLoop or PromotedLoop
    finishing : ConsumerEpilogue
    """

    config: GemmConfig
    schedule: Cooperative
    tile_coords: TileCoords
    loop: MainLoop | PromotedLoop
    finishing: ConsumerEpilogue

    def first_state(self, k: KTiles) -> ConsumerState:
        """Return the state before the first tile."""
        schedule, subtiles = self.schedule, self.config.subtiles
        operands = schedule.skip_first(self.loop.ring.consumer_state(), k.count)
        tiles = tuple(schedule.skip_first(state, subtiles) for state in self.finishing.first_state())
        return ConsumerState(operands, cutlass.Int32(0), schedule.exchange_state(), tiles)

    @cute.jit
    def on_tile(self, work: Work, state: ConsumerState) -> ConsumerState:
        """Compute the results of one output tile."""
        schedule, finishing = self.schedule, self.finishing
        operands, stored, exchange, tiles = state
        own, owners = schedule.dealt(work)
        finishing.begin(self.tile_coords.of(work, own))
        schedule.before(work)
        loop = self.loop.at(work, self.tile_coords.of(work, 0))
        operands = loop.multiply(operands, work.k.count, lambda: schedule.hand_over(work))
        ways = [result.subtiles((work.row, work.column, *work.batch)) for _, _, result in finishing.outs]
        subtiles = self.subtiles(self.loop.tCrC)
        exchange = schedule.exchange(work, subtiles, exchange)
        schedule.before_reading(work)
        for index in cutlass.range(self.config.subtiles, unroll_full=True):
            if index % owners == own:
                rC = subtiles[None, None, None, index]
                schedule.add_to(rC, index)
                place, following = self.tile_coords.of(work, index), self.tile_coords.of(work, index + owners)
                stage = stored % self.config.epi_stages
                tiles = finishing.apply(rC, place, following, tiles, stage, ways, index)
                stored += 1
        schedule.after(work)
        tiles = tuple(schedule.skip_others(state, self.config.subtiles) for state in tiles)
        return ConsumerState(schedule.skip_others(operands, work.k.count), stored, exchange, tiles)

    def subtiles(self, tCrC):
        """See this thread's accumulators as subtiles (registers, 1, 1, subtiles), in the order of their layout."""
        size = self.config.subtile_registers
        return cute.make_tensor(tCrC.iterator, cute.make_layout((size, 1, 1, cute.size(tCrC) // size)))


@cute.jit
def consume(consumer: Consumer, scheduler: Persistent):
    """Compute all of a consumer's tiles, then wait until TMA has read all that was stored."""
    schedule = consumer.schedule
    state = scheduler.each(consumer, schedule.consumer, consumer.config.consumers)
    for _, out, _ in consumer.finishing.outs:
        out.finish()
    schedule.drain(state.exchange)
