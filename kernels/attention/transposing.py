"""The warps that transpose 8-bit V in attention forward, between the producer and the consumers (traced)."""

from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32

from cutepy.device.pipeline import Stage, StoredRing, TmaRing
from cutepy.device.transposing import Transposer


@dataclass(frozen=True)
class ValueTransposer:
    """The warps that transpose V: tiles as they are loaded to tiles as the MMAs read them.

    The number of tiles so far is all their state, as registers are few: it tells the stages of both rings.

    Attributes
    ----------
    loaded, transposed : TmaRing, StoredRing
        Rings of both; this warp is one of the first one's consumers, and one of those that fill the second.
    transposes : Transposer
    coords : Batches or Ragged
    tiles_of : callable
        Tiles of keys of a unit of work at its place.
    """

    loaded: TmaRing
    transposed: StoredRing
    transposes: Transposer
    coords: Any
    tiles_of: Any

    def first_state(self, k):
        """Return the number of tiles at the start."""
        return Int32(0)

    @cute.jit
    def on_tile(self, work, state):
        """Transpose the values of a tile of queries."""
        # Of no tiles one is loaded.
        for _ in cutlass.range(cutlass.max(self.tiles_of(work, self.coords.of(work)).count, 1), unroll=1):
            source = Stage(state % self.loaded.stages, state // self.loaded.stages % 2)
            target = Stage(state % self.transposed.stages, 1 - state // self.transposed.stages % 2)
            self.loaded.wait(source)
            full = self.transposed.acquire(target)
            self.transposes.run(source.index, target.index)
            self.transposed.commit(full)
            # The lanes have met: all have read.
            self.loaded.release(source)
            state = state + 1
        return state
