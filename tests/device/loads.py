"""A producer of A and B, for the tests of main loops."""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute

from cutepy.device import tma
from cutepy.device.pipeline import TmaRing


@dataclass(frozen=True)
class Loads:
    """The producer: it keeps the ring full of A and B."""

    ring: TmaRing
    a: tma.TmaLoads
    b: tma.TmaLoads

    def first_state(self, k):
        return self.ring.producer_state()

    @cute.jit
    def on_tile(self, work, state):
        for index in cutlass.range(work.k.count, unroll=1):
            full = self.ring.acquire(state)
            self.a.load((work.row, work.k[index]), state.index, full)
            self.b.load((work.column, work.k[index]), state.index, full)
            state.advance()
        return state
