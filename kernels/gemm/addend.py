"""C, on its way from global memory into the accumulators: its ring, the warp that fills it, and what adds it (traced).

Without C there is `NoAddend`, which does nothing wherever an `Addend` would.
"""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute

from cutepy.device.epilogue import TileLoad, make_tile_load
from cutepy.device.pipeline import TmaRing
from cutepy.device.schedulers import KTiles, Persistent, Work
from cutepy.device.tma import TmaTiles, make_tiles
from cutepy.kernels.gemm.config import GemmConfig
from cutepy.kernels.gemm.producers import produce

C_LOAD_WARP = 1


@dataclass(frozen=True)
class NoAddend:
    """Nothing is added."""

    def initialise(self):
        """Set no barriers."""

    def load(self, warp, scheduler, dealt):
        """Load nothing."""

    def steps(self, tiled_mma, tidx):
        """Give the epilogue no step."""
        return ()


@dataclass(frozen=True)
class Addend:
    """C is added, one subtile after another.

    Attributes
    ----------
    ring : TmaRing
        For a subtile in each stage: one producer warp, the consumer's warps.
    c : TmaTiles
    contiguous_mode : int
        1 for a row-major C.
    """

    ring: TmaRing
    c: TmaTiles
    contiguous_mode: int

    def initialise(self):
        """Set the arrival counts of the ring's barriers; one thread calls."""
        self.ring.initialise()

    @cute.jit
    def load(self, warp, scheduler: Persistent, dealt):
        """Load all subtiles that this CTA finishes, if this is the warp for it."""
        if warp == C_LOAD_WARP:
            produce(AddendLoads(self.ring, self.c, dealt), scheduler)

    def steps(self, tiled_mma, tidx):
        """Give the epilogue the step that adds C."""
        return (AddC(self.ring, make_tile_load(tiled_mma, self.c.staged, self.contiguous_mode, tidx)),)


@dataclass(frozen=True)
class AddendLoads:
    """Load the subtiles of C in the order in which the epilogue adds them.

    Attributes
    ----------
    ring : TmaRing
    c : TmaTiles
    dealt : tuple
        The first subtile that this CTA finishes, and how many further the next is.
    """

    ring: TmaRing
    c: TmaTiles
    dealt: tuple

    def first_state(self, k: KTiles):
        """Give the position in the ring."""
        return self.ring.producer_state()

    @cute.jit
    def on_tile(self, work: Work, state):
        """Load the addend of an output tile, one subtile after another."""
        sC = self.c.subtiles((work.row, work.column, *work.batch))
        own, owners = self.dealt
        for index in cutlass.range(own, sC.count, owners, unroll_full=True):
            full = self.ring.acquire(state)
            sC.load(index, state.index, full)
            state.advance()
        return state


@dataclass(frozen=True)
class AddC:
    """The epilogue's step that adds a subtile of C.

    Attributes
    ----------
    ring : TmaRing
    load : TileLoad
    """

    ring: TmaRing
    load: TileLoad

    def first_state(self):
        """Give the position in the ring."""
        return self.ring.consumer_state()

    def begin(self, column, index):
        """Prepare nothing: the producer does."""

    @cute.jit
    def apply(self, rC, column, index, following, state):
        """Wait for the subtile, add it, and give its stage back."""
        self.ring.wait(state)
        self.load.add_to(rC, state.index)
        self.ring.release(state)
        state.advance()
        return state


def make_addend(config: GemmConfig, shared: dict, copy: cute.CopyAtom | None, tensor: cute.Tensor | None):
    """Make what adds C, whose coordinate tensor this is; without one, what adds nothing."""
    if tensor is None:
        return NoAddend()
    staged = config.smem["sC"].content
    ring = TmaRing(shared["barriers"] + 2 * config.stages, staged.stages, staged.stage_bytes, config.consumer_warps)
    tiles = make_tiles(copy, tensor, shared["sC"], (config.tile_m, config.tile_n))
    return Addend(ring, tiles, staged.contiguous_mode)
