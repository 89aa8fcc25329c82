"""The producer warps: fill the ring of A and B, and the ring of the epilogue's tile operands (traced)."""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute

from cutepy.device.pipeline import MixedRing, TmaRing
from cutepy.device.schedulers import KTiles, Persistent, Work
from cutepy.device.thread_loads import ThreadLoads
from cutepy.device.tma import TmaLoads
from cutepy.kernels.gemm.scaling import OperandScales
from cutepy.kernels.gemm.schedules import Cooperative


@dataclass(frozen=True)
class OperandLoads:
    """Producer of A and B by TMA: one warp that runs ahead of the MMAs by the depth of the ring.

    Attributes
    ----------
    ring : TmaRing
    sA, sB : TmaLoads
        Into the stages of A and of B; reports name memory by these names.
    scales : OperandScales, optional
        All of which TMA loads.
    """

    ring: TmaRing
    sA: TmaLoads
    sB: TmaLoads
    scales: OperandScales | None = None

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
            self.sB.load((work.column, k_tile, *work.batch), state.index, full)
            if cutlass.const_expr(self.scales is not None):
                self.scales.load_by_tma(work, k_tile, state.index, full)
            state.advance()
        return state


@dataclass(frozen=True)
class MixedLoads:
    """Producer of A, B and their scales, partly by cp.async: whole warps, of which one leads.

    Attributes
    ----------
    ring : MixedRing
    sA, sB : TmaLoads or ThreadLoads
        Into the stages of A and of B; reports name memory by these names.
    leads : Boolean
        True if this warp is the one that starts TMA.
    scales : OperandScales, optional
    """

    ring: MixedRing
    sA: TmaLoads | ThreadLoads
    sB: TmaLoads | ThreadLoads
    leads: cutlass.Boolean
    scales: OperandScales | None = None

    def first_state(self, k: KTiles):
        """Return the position in the ring."""
        return self.ring.producer_state()

    @cute.jit
    def on_tile(self, work: Work, state):
        """Load an output tile's operands, one tile of K after another."""
        for index in cutlass.range(work.k.count, unroll=1):
            coords = [(place, work.k[index], *work.batch) for place in (work.row, work.column)]
            full = self.ring.acquire(state)
            if cutlass.const_expr(self.ring.stage_bytes > 0):
                if self.leads:
                    self.ring.announce(full)
                    for operand, place in zip((self.sA, self.sB), coords, strict=True):
                        if cutlass.const_expr(not isinstance(operand, ThreadLoads)):
                            operand.load(place, state.index, full)
                    if cutlass.const_expr(self.scales is not None):
                        self.scales.load_by_tma(work, work.k[index], state.index, full)
            for operand, place in zip((self.sA, self.sB), coords, strict=True):
                if cutlass.const_expr(isinstance(operand, ThreadLoads)):
                    operand.load(place, state.index)
            if cutlass.const_expr(self.scales is not None):
                self.scales.load_by_threads(work, work.k[index], state.index)
            self.ring.commit(full)
            state.advance()
        return state


@dataclass(frozen=True)
class TileLoads:
    """Producer of the subtiles of all tile operands, in the epilogue's order; one warp.

    Attributes
    ----------
    ring : TmaRing
        Ring whose stages all operands share.
    tiles : tuple of TmaTiles
    schedule : Cooperative, optional
        Tells which subtiles this CTA finishes: all, if not given.
    """

    ring: TmaRing
    tiles: tuple
    schedule: Cooperative | None = None

    def first_state(self, k: KTiles):
        """Return the position in the ring."""
        return self.ring.producer_state()

    @cute.jit
    def on_tile(self, work: Work, state):
        """Load the tile operands of an output tile, one subtile after another."""
        operands = [tiles.subtiles((work.row, work.column, *work.batch)) for tiles in self.tiles]
        own, owners = (0, 1) if self.schedule is None else self.schedule.dealt(work)
        for index in cutlass.range(own, operands[0].count, owners, unroll_full=True):
            full = self.ring.acquire(state)
            for sC in operands:  # reports name memory by this name
                sC.load(index, state.index, full)
            state.advance()
        return state


@cute.jit
def produce(loads, scheduler: Persistent):
    """Load everything that this CTA needs, then wait until all of it has been read."""
    loads.ring.drain(scheduler.each(loads))
