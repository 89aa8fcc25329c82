"""The epilogue of a consumer: evaluate the graph on its accumulators, one subtile after another (traced)."""

from dataclasses import dataclass
from functools import partial

import cutlass.cute as cute

from cutepy.device.finish import SubtileEpilogue
from cutepy.device.pipeline import TmaRing


@dataclass(frozen=True)
class ConsumerEpilogue:
    """Epilogue of a consumer: read the operands of a subtile, compute the graph, and store its results.

    Attributes
    ----------
    finish : SubtileEpilogue
    fragments : tuple
        Registers for rows and columns, and the scalars.
    ring : TmaRing or None
        Ring of the tile operands, all of them in each stage.
    reads : tuple of (str, TileLoad)
        Name and load of each tile operand.
    outs : tuple of (int, TileStore, TmaTiles)
        Index, store and destination of each tile result.
    partials : tuple
        Destination of each result's partial reductions; None for a tile.
    """

    finish: SubtileEpilogue
    fragments: tuple
    ring: TmaRing | None
    reads: tuple
    outs: tuple
    partials: tuple

    def first_state(self):
        """Return the position in the ring of tile operands, if there is one."""
        return () if self.ring is None else (self.ring.consumer_state(),)

    def begin(self, place):
        """Start the loads of rows and columns for the subtile at (row, column, batch...); they arrive meanwhile."""
        row, column, *batch = place
        self.finish.load(self.fragments, row, column, batch)

    def apply(self, rC, place, following, state, stage, ways, index):
        """Finish the subtile at a place, and start the loads of rows and columns for the next one.

        Returns the state after `state`. Tiles go through stage `stage` to the subtile `index` of their `ways`.
        """
        tiles, state = self.read_tiles(state)
        row, column, *batch = place
        consumed = partial(self.begin, following)
        evaluated = self.finish.compute(rC, self.fragments, tiles, row, column, consumed, batch)
        for n, partials in enumerate(self.partials):
            if partials is not None:
                self.finish.store_partials(evaluated, n, partials[(None, None, *batch)], row, column)
        for (n, out, _), way in zip(self.outs, ways, strict=True):
            values = self.finish.result(evaluated, n)
            rD = cute.make_rmem_tensor(out.subtile_shape, type(values[0]))
            for v, value in enumerate(values):
                rD[v] = value
            out.store(rD, stage, way, index)
        return state

    def read_tiles(self, state):
        """Read this thread's registers of all tile operands, release their stage, and advance."""
        if self.ring is None:
            return {}, state
        (position,) = state
        self.ring.wait(position)
        tiles = {name: load.read(position.index) for name, load in self.reads}
        self.ring.release(position)
        position.advance()
        return tiles, (position,)
