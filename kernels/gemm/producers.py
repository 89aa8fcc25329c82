"""The producer warp: it keeps the ring of A and B full (traced)."""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute

from cutepy.device.pipeline import TmaRing
from cutepy.device.schedulers import KTiles, Persistent, Work
from cutepy.device.tma import TmaLoads


@dataclass(frozen=True)
class OperandLoads:
    """Keep the ring full of tiles of A and B, running ahead of the MMAs by its depth; one warp.

    Attributes
    ----------
    ring : TmaRing
    sA, sB : TmaLoads
        Into the stages of A and of B; reports name memory by these names.
    """

    ring: TmaRing
    sA: TmaLoads
    sB: TmaLoads

    def first_state(self, k: KTiles):
        """Give the position in the ring."""
        return self.ring.producer_state()

    @cute.jit
    def on_tile(self, work: Work, state):
        """Load an output tile's operands, one tile of K after another."""
        for index in cutlass.range(work.k.count, unroll=1):
            k_tile = work.k[index]
            full = self.ring.acquire(state)
            self.sA.load((work.row, k_tile, *work.batch), state.index, full)
            self.sB.load((work.column, k_tile, *work.batch), state.index, full)
            state.advance()
        return state


@cute.jit
def produce(loads, scheduler: Persistent):
    """Load all that this CTA needs, then wait until all of it has been read."""
    loads.ring.drain(scheduler.each(loads))
