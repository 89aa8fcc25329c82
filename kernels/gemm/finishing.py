"""What a consumer does with its accumulators by an epilogue's graph, one subtile after another (traced)."""

from dataclasses import dataclass
from functools import partial

import cutlass
import cutlass.cute as cute

from cutepy.device.finish import Finish
from cutepy.device.pipeline import TmaRing


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
    outs : tuple of (int, TileStore)
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

    def begin(self, place):
        """Ask for the rows and columns of the subtile at a place: they arrive meanwhile."""
        self.finish.load(self.fragments, *place)

    def apply(self, rC, place, following, state, stage, ways, index):
        """Finish the subtile at a place, and ask for the rows and columns of the one that follows.

        Give the position in the ring that follows `state`. Tiles go through stage `stage` to `index` of their ways:
        (copy, shared memory, global memory).
        """
        tiles = {} if self.ring is None else self.read_tiles(state)
        load = partial(self.begin, following)
        evaluated = self.finish.compute(rC, self.fragments, tiles, *place, load)
        for n, partials in enumerate(self.partials):
            if partials is not None:
                self.finish.store_partials(evaluated, n, partials, *place)
        for (n, out), (copy, tDsD, tDgD) in zip(self.outs, ways, strict=True):
            values = self.finish.result(evaluated, n)
            rD = cute.make_rmem_tensor(out.subtile_shape, cutlass.Float32)
            for v, value in enumerate(values):
                rD[v] = value
            out.store(rD, stage, copy, tDsD, tDgD[index])
        return state

    def read_tiles(self, state):
        """Read this thread's registers of all tile operands, give their stage back, and advance."""
        self.ring.wait(state)
        tiles = {name: load.read(state.index) for name, load in self.reads}
        self.ring.release(state)
        state.advance()
        return tiles

    def drain(self):
        """Wait until TMA has read all that was stored."""
        for _, out in self.outs:
            out.finish()
