"""One launch, played to its end in a process of its own: nobody watches, and what it writes is noted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cutepy.sim.engine import Engine
from cutepy.sim.errors import DeadlockError, SimulationError
from cutepy.sim.machine.interleaving import pauses
from cutepy.sim.parallel.blas import one_thread
from cutepy.sim.parallel.footprint import Footprint, Ranges, put
from cutepy.sim.parallel.waves import deal
from cutepy.sim.replay.outcomes import Outcome, Request, outcome_of
from cutepy.sim.translate import Program, linked, translate

if TYPE_CHECKING:
    from cutepy.sim.machine.launch import Launch
    from cutepy.sim.machine.memory import GlobalMemory


@dataclass(frozen=True)
class LaunchPlayer:
    """Plays a launch that was prepared, on memory that is known.

    Attributes
    ----------
    launch : Launch
    memory : GlobalMemory
    exact_mma : bool
    """

    launch: Launch
    memory: GlobalMemory
    exact_mma: bool = False

    @property
    def changes_memory_only(self) -> bool:
        """Whether nothing is left behind but what was written: malloc keeps what it gave out."""
        return "malloc" not in self.launch.ptx

    def ready(self, request: Request) -> None:
        """Translate the kernel."""
        self._program(request)

    def _program(self, request: Request) -> Program:
        text, kernel = self.launch.ptx, self.launch.kernel
        return translate(text, kernel, frozenset(), pauses(linked(text, kernel).function, request.policy))

    def play(self, request: Request) -> Outcome:
        """Run the launch, and say what it wrote, or what it raised."""
        engine = Engine(self._program(request), self.launch, self.memory, (), request.policy, {}, self.exact_mma)
        engine.schedule.fill_registers(request.unwritten)
        if request.memory is not None:
            starts, ends, data = request.memory
            put(Ranges(starts, ends), data)
        footprint = engine.activity.traffic = Footprint(engine.activity.stats)
        try:
            with one_thread():
                for blocks in deal(self.launch):
                    engine.run(blocks)
        except SimulationError as error:
            return Outcome(str(error), isinstance(error, DeadlockError))
        return outcome_of(footprint.writes, footprint.reads, request)
