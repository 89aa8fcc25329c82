"""What a consumer does with its accumulators by an epilogue's graph, one subtile after another (traced)."""

from dataclasses import dataclass
from functools import partial

import cutlass
import cutlass.cute as cute

from cutepy.device.finish import Finish
from cutepy.device.main_loop import MainLoop
from cutepy.device.pipeline import TmaRing
from cutepy.device.schedulers import KTiles, Work
from cutepy.kernels.gemm.config import GemmConfig
from cutepy.kernels.gemm.consumers import Carried
from cutepy.kernels.gemm.schedules import Together


@dataclass(frozen=True)
class TileLoads:
    """Load the subtiles of all tile operands, in the order in which the epilogue reads them; one warp.

    Attributes
    ----------
    ring : TmaRing
        Whose stages all operands share.
    tiles : tuple of TmaTiles
    dealt : tuple
        The first subtile that this CTA finishes, and how many further the next is.
    """

    ring: TmaRing
    tiles: tuple
    dealt: tuple

    def first_state(self, k: KTiles):
        """Give the position in the ring."""
        return self.ring.producer_state()

    @cute.jit
    def on_tile(self, work: Work, state):
        """Load what belongs to an output tile, one subtile after another."""
        operands = [tiles.subtiles((work.row, work.column)) for tiles in self.tiles]
        own, owners = self.dealt
        for index in cutlass.range(own, operands[0].count, owners, unroll_full=True):
            full = self.ring.acquire(state)
            for subtiles in operands:
                subtiles.load(index, state.index, full)
            state.advance()
        return state


@dataclass(frozen=True)
class Finishing:
    """Read a subtile's operands, compute the graph, and store its results.

    Attributes
    ----------
    finish : Finish
    fragments : tuple
        Registers for rows and columns, and the scalars.
    ring : TmaRing or None
        In whose stages the tile operands are, all in each.
    reads : tuple of (str, TileLoad)
        Of each tile operand, by its name.
    outs : tuple of (int, TileStore, TmaTiles)
        Of each result that is a tile, by its place.
    partials : tuple
        Of each result: where its partial reductions go; None of a tile.
    """

    finish: Finish
    fragments: tuple
    ring: TmaRing | None
    reads: tuple
    outs: tuple
    partials: tuple

    def first_state(self):
        """Give the position in the ring, if there is one."""
        return () if self.ring is None else (self.ring.consumer_state(),)

    def begin(self, place):
        """Ask for the rows and columns of the subtile at a place: they arrive meanwhile."""
        self.finish.load(self.fragments, *place)

    def apply(self, rC, place, following, state, stage, ways, index):
        """Finish the subtile at a place, and ask for the rows and columns of the one that follows.

        Give the state after `state`. Tiles go through stage `stage` to the subtile `index` of their `ways`.
        """
        tiles, state = self.read_tiles(state)
        evaluated = self.finish.compute(rC, self.fragments, tiles, *place, partial(self.begin, following))
        for n, partials in enumerate(self.partials):
            if partials is not None:
                self.finish.store_partials(evaluated, n, partials, *place)
        for (n, out, _), way in zip(self.outs, ways, strict=True):
            values = self.finish.result(evaluated, n)
            rD = cute.make_rmem_tensor(out.subtile_shape, cutlass.Float32)
            for v, value in enumerate(values):
                rD[v] = value
            out.store(rD, stage, way.copy, way.tSs, way.place(index))
        return state

    def read_tiles(self, state):
        """Read this thread's registers of all tile operands, give their stage back, and advance."""
        if self.ring is None:
            return {}, state
        (position,) = state
        self.ring.wait(position)
        tiles = {name: load.read(position.index) for name, load in self.reads}
        self.ring.release(position)
        position.advance()
        return tiles, (position,)


@dataclass(frozen=True)
class FinishingConsumer:
    """Multiply, finish and store one tile after another: all threads of one consumer.

    Attributes
    ----------
    config : GemmConfig
    schedule : Together
        Which of the schedules, `seated`.
    loop : MainLoop
    finishing : Finishing
    """

    config: GemmConfig
    schedule: Together
    loop: MainLoop
    finishing: Finishing

    def first_state(self, k: KTiles) -> Carried:
        """Give the state before the first tile."""
        operands = self.schedule.skip_first(self.loop.ring.consumer_state(), k.count)
        return Carried(operands, cutlass.Int32(0), self.schedule.exchange_state(), self.finishing.first_state())

    @cute.jit
    def on_tile(self, work: Work, state: Carried) -> Carried:
        """Compute the results of one output tile."""
        schedule, finishing = self.schedule, self.finishing
        operands, stored, exchange, tiles = state
        own, owners = schedule.dealt()
        finishing.begin(self.place(work, own))
        schedule.before(work)
        operands = self.loop.multiply(operands, work.k.count, lambda: schedule.hand_over(work))
        ways = [result.subtiles((work.row, work.column)) for _, _, result in finishing.outs]
        subtiles = self.subtiles(self.loop.tCrC)
        exchange = schedule.exchange(subtiles, exchange)
        for index in cutlass.range(self.config.subtiles, unroll_full=True):
            if index % owners == own:
                rC = subtiles[None, None, None, index]
                schedule.add_to(rC, index)
                place, following = self.place(work, index), self.place(work, index + owners)
                stage = stored % self.config.epi_stages
                tiles = finishing.apply(rC, place, following, tiles, stage, ways, index)
                stored += 1
        schedule.after()
        return Carried(schedule.skip_others(operands, work.k.count), stored, exchange, tiles)

    def subtiles(self, tCrC):
        """See this thread's accumulators as subtiles (registers, 1, 1, subtiles), in the order of their layout."""
        size = self.config.subtile_registers
        return cute.make_tensor(tCrC.iterator, cute.make_layout((size, 1, 1, cute.size(tCrC) // size)))

    def place(self, work, index):
        """Give row and column of the product at which a subtile of an output tile begins."""
        config = self.config
        rows, columns = config.epi_tile
        across = config.tile_n // columns
        row = work.row * config.tile_m + index // across * rows
        return row, work.column * config.tile_n + index % across * columns

    @property
    def out(self):
        """What is waited for in the end: all stores."""
        return self

    def finish(self):
        """Wait until TMA has read all that was stored."""
        for _, out, _ in self.finishing.outs:
            out.finish()
