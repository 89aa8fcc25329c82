"""The consumer warpgroups: they multiply, finish and store one output tile after another (traced)."""

from dataclasses import dataclass
from typing import NamedTuple

import cutlass
import cutlass.cute as cute
from cutlass import pipeline

from cutepy.device.epilogue import RowBias, TileStore, activate
from cutepy.device.main_loop import MainLoop
from cutepy.device.schedulers import KTiles, Persistent, Work
from cutepy.device.tma import TmaTiles
from cutepy.kernels.gemm.config import Activation, GemmConfig
from cutepy.kernels.gemm.schedules import Together


@dataclass(frozen=True)
class Bias:
    """Add a vector to each row.

    Attributes
    ----------
    row : RowBias
    values : Tensor
        Registers for this thread's elements of a subtile.
    config : GemmConfig
    """

    row: RowBias
    values: cute.Tensor
    config: GemmConfig

    def first_state(self):
        """Carry nothing."""
        return ()

    def begin(self, column, index):
        """Ask for the elements of a subtile: they arrive meanwhile."""
        across = index % (self.config.tile_n // self.config.epi_n)
        self.row.load(self.values, column * self.config.tile_n + across * self.config.epi_n)

    def apply(self, rC, column, index, following, state):
        """Add them, and ask for those of the subtile that follows."""
        self.row.add_to(rC, self.values)
        self.begin(column, following)
        return state


@dataclass(frozen=True)
class Activate:
    """Apply an activation.

    Attributes
    ----------
    name : str
    """

    name: Activation

    def first_state(self):
        """Carry nothing."""
        return ()

    def begin(self, column, index):
        """Prepare nothing."""

    def apply(self, rC, column, index, following, state):
        """Apply it in fp32."""
        activate(rC, self.name)
        return state


class Carried(NamedTuple):
    """What a consumer carries from tile to tile.

    Attributes
    ----------
    operands : PipelineState
        The position in the ring of A and B.
    stored : Int32
        Subtiles so far.
    exchange : tuple
        The schedule's.
    steps : tuple
        Of each step of the epilogue.
    """

    operands: pipeline.PipelineState
    stored: cutlass.Int32
    exchange: tuple
    steps: tuple


@dataclass(frozen=True)
class Consumer:
    """Multiply and store one tile after another: all threads of one consumer.

    Attributes
    ----------
    config : GemmConfig
    schedule : Together
        Which of the schedules, `seated`.
    loop : MainLoop
    steps : tuple
        What is done to each subtile in registers, in order: each has ``first_state``, ``begin`` and ``apply``.
    d : TmaTiles
    out : TileStore
    """

    config: GemmConfig
    schedule: Together
    loop: MainLoop
    steps: tuple
    d: TmaTiles
    out: TileStore

    def first_state(self, k: KTiles) -> Carried:
        """Give the state before the first tile."""
        operands = self.schedule.skip_first(self.loop.ring.consumer_state(), k.count)
        steps = tuple(step.first_state() for step in self.steps)
        return Carried(operands, cutlass.Int32(0), self.schedule.exchange_state(), steps)

    @cute.jit
    def on_tile(self, work: Work, state: Carried) -> Carried:
        """Compute one output tile."""
        schedule = self.schedule
        operands, stored, exchange, steps = state
        own, owners = schedule.dealt()
        for step in self.steps:
            step.begin(work.column, own)
        schedule.before(work)
        operands = self.loop.multiply(operands, work.k.count, lambda: schedule.hand_over(work))
        places = self.d.subtiles((work.row, work.column, *work.batch))
        subtiles = self.out.subtiles(self.loop.tCrC)
        exchange = schedule.exchange(subtiles, exchange)
        for index in cutlass.range(self.config.subtiles, unroll_full=True):
            if index % owners == own:
                rC = subtiles[None, None, None, index]
                schedule.add_to(rC, index)
                stored, steps = self.finish(rC, work, index, index + owners, places, stored, steps)
        schedule.after()
        return Carried(schedule.skip_others(operands, work.k.count), stored, exchange, steps)

    def finish(self, rC, work, index, following, places, stored, states) -> tuple:
        """Take all steps of the epilogue for a subtile, and store it."""
        pairs = zip(self.steps, states, strict=True)
        states = tuple(step.apply(rC, work.column, index, following, state) for step, state in pairs)
        self.out.store(rC, stored % self.config.epi_stages, places.copy, places.tSs, places.place(index))
        return stored + 1, states


def epilogue_steps(config: GemmConfig, bias: cute.Tensor | None) -> tuple:
    """Give the steps of the epilogue that need no ring: those that the signature asks for."""
    steps: tuple = ()
    if bias is not None:
        row = RowBias(bias, config.epi_n, cute.arch.lane_idx())
        steps += (Bias(row, row.make_fragment(), config),)
    if config.signature.activation is not None:
        steps += (Activate(config.signature.activation),)
    return steps


@cute.jit
def consume(consumer: Consumer, scheduler: Persistent):
    """Compute all of a consumer's tiles."""
    schedule = consumer.schedule
    state = scheduler.each(consumer, schedule.consumer, consumer.config.consumers)
    consumer.out.finish()
    schedule.drain(state.exchange)
