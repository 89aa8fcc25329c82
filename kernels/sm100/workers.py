"""Roles of Blackwell's GEMM: loads of A, B and scale factors, MMAs, and the epilogue (traced)."""

from dataclasses import dataclass
from typing import NamedTuple

import cutlass
import cutlass.cute as cute
from cutlass import pipeline

from cutepy.device.schedulers import KTiles, Work
from cutepy.device.sm100.accumulators import AccumulatorLoad
from cutepy.device.sm100.block_scales import ScaleLoads
from cutepy.device.sm100.pipeline import AccumulatorRing, UmmaRing
from cutepy.device.sm100.product import Product
from cutepy.device.tma import TmaLoads
from cutepy.kernels.gemm.finishing import ConsumerEpilogue
from cutepy.kernels.gemm.tile_coords import TileCoords


@dataclass(frozen=True)
class OperandLoads:
    """Producer of A, B and scale factors by TMA: one warp of each CTA.

    Attributes
    ----------
    ring : UmmaRing
    sA, sB : TmaLoads
        Into the stages of A and of B; reports name memory by these names.
    rank : Int32
        Index of this CTA in its pair, of which it loads that part of B; 0 without a pair.
    ctas : 1 or 2
        CTAs that multiply together.
    sScaleA, sScaleB : ScaleLoads, optional
    """

    ring: UmmaRing
    sA: TmaLoads
    sB: TmaLoads
    rank: cutlass.Int32 | int
    ctas: int
    sScaleA: ScaleLoads | None = None
    sScaleB: ScaleLoads | None = None

    def first_state(self, k: KTiles):
        """Return the position in the ring."""
        return self.ring.producer_state()

    @cute.jit
    def on_tile(self, work: Work, state):
        """Load an output tile's operands, one tile of K after another."""
        for index in cutlass.range(work.k.count, unroll=1):
            k_tile = work.k[index]
            full = self.ring.acquire(state)
            self.sA.load((work.row, k_tile, *work.batch), state.index, full)
            self.sB.load((work.column * self.ctas + self.rank, k_tile, *work.batch), state.index, full)
            if cutlass.const_expr(self.sScaleA is not None):
                self.sScaleA.load((work.row, k_tile, *work.batch), state.index, full)
                self.sScaleB.load((work.column, k_tile, *work.batch), state.index, full)
            state.advance()
        return state


class MmaState(NamedTuple):
    """State that the MMAs carry from tile to tile.

    Attributes
    ----------
    operands, accumulators : PipelineState
        Positions in the ring of A and B, and among the sets of accumulators.
    """

    operands: pipeline.PipelineState
    accumulators: pipeline.PipelineState


@dataclass(frozen=True)
class Multiplier:
    """Main loop: one warp issues the MMAs of a CTA, or of both CTAs of a pair.

    Attributes
    ----------
    ring : UmmaRing
    accumulators : AccumulatorRing
    product : Product
    """

    ring: UmmaRing
    accumulators: AccumulatorRing
    product: Product

    def first_state(self, k: KTiles) -> MmaState:
        """Return the positions before the first tile."""
        return MmaState(self.ring.consumer_state(), self.accumulators.producer_state())

    @cute.jit
    def on_tile(self, work: Work, state: MmaState) -> MmaState:
        """Multiply the operands of one output tile into a set of accumulators."""
        operands, accumulators = state
        self.accumulators.acquire(accumulators)
        for index in cutlass.range(work.k.count, unroll=1):
            self.ring.wait(operands)
            self.product.issue(operands.index, accumulators.index, index > 0)
            self.ring.release(operands)
            operands.advance()
        self.accumulators.commit(accumulators)
        accumulators.advance()
        return MmaState(operands, accumulators)


class EpilogueState(NamedTuple):
    """State that the epilogue carries from tile to tile.

    Attributes
    ----------
    accumulators : PipelineState
        Position among the sets of accumulators.
    stored : Int32
        Subtiles so far.
    tiles : tuple
        Position in the ring of the tiles that the epilogue reads, if there is one.
    """

    accumulators: pipeline.PipelineState
    stored: cutlass.Int32
    tiles: tuple


@dataclass(frozen=True)
class Epilogue:
    """Epilogue: four warps read accumulators, compute the graph and store results, one subtile after another.

    Attributes
    ----------
    accumulators : AccumulatorRing
    load : AccumulatorLoad
    finishing : ConsumerEpilogue
    tile_coords : TileCoords
    subtiles, stages : int
        Subtiles of an output tile, and stages of results.
    """

    accumulators: AccumulatorRing
    load: AccumulatorLoad
    finishing: ConsumerEpilogue
    tile_coords: TileCoords
    subtiles: int
    stages: int

    def first_state(self, k: KTiles) -> EpilogueState:
        """Return the state before the first tile."""
        return EpilogueState(self.accumulators.consumer_state(), cutlass.Int32(0), self.finishing.first_state())

    @cute.jit
    def on_tile(self, work: Work, state: EpilogueState) -> EpilogueState:
        """Compute the results of one output tile."""
        accumulators, stored, tiles = state
        self.finishing.begin(self.tile_coords.of(work, 0))
        ways = [result.subtiles((work.row, work.column, *work.batch)) for _, _, result in self.finishing.outs]
        self.accumulators.wait(accumulators)
        for index in cutlass.range(self.subtiles, unroll=1):
            rC = self.load.read(index, accumulators.index)
            if index == self.subtiles - 1:
                self.accumulators.release(accumulators)
            place, following = self.tile_coords.of(work, index), self.tile_coords.of(work, index + 1)
            tiles = self.finishing.apply(rC, place, following, tiles, stored % self.stages, ways, index)
            stored += 1
        accumulators.advance()
        return EpilogueState(accumulators, stored, tiles)
