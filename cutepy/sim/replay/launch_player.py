"""One launch, played to its end in a separate process without observers; its writes are noted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from cutepy.sim.engine import Engine
from cutepy.sim.errors import DeadlockError, SimulationError
from cutepy.sim.machine.events import CompletionPolicy
from cutepy.sim.machine.interleaving import pauses
from cutepy.sim.machine.launch import Launch
from cutepy.sim.machine.memory import GlobalMemory
from cutepy.sim.machine.observer import Observer, stops
from cutepy.sim.mechanisms.atomics import integer_sums
from cutepy.sim.parallel.blas import one_thread
from cutepy.sim.parallel.footprint import Footprint, Ranges, put
from cutepy.sim.parallel.waves import deal
from cutepy.sim.replay.outcomes import Outcome, Request, outcome_of
from cutepy.sim.replay.search.guided_interleaving import GuidedInterleaving
from cutepy.sim.replay.search.search import Search, SearchResult, search
from cutepy.sim.sanitize import Sanitizer
from cutepy.sim.sanitize.hazards import Hazard
from cutepy.sim.sanitize.kinds import RACES
from cutepy.sim.sanitize.order.tries import tries
from cutepy.sim.sanitize.order.uses import Uses
from cutepy.sim.translate import Program


@dataclass(frozen=True)
class LaunchPlayer:
    """Plays a prepared launch on known memory.

    Attributes
    ----------
    launch : Launch
    memory : GlobalMemory
    exact_mma : bool
    sanitizer : callable or None
        Makes a sanitizer that knows no earlier launch.
    """

    launch: Launch
    memory: GlobalMemory
    exact_mma: bool = False
    sanitizer: Callable[[], Sanitizer] | None = None

    @property
    def changes_memory_only(self) -> bool:
        """True if it leaves nothing behind but writes: malloc keeps its allocations."""
        return not self.launch.entry.calls("malloc")

    def ready(self, request: Request | Search) -> None:
        """Translate the kernel."""
        if isinstance(request, Request):
            self._program(request.policy, {})

    def play(self, request: Request) -> Outcome:
        """Run the launch, and return its writes, or its error."""
        sanitizer = self.sanitizer() if self.sanitizer is not None and request.sanitizes else None
        engine = self._engine(request.policy, () if sanitizer is None else sanitizer.observers)
        engine.schedule.fill_registers(request.unwritten)
        if request.memory is not None:
            starts, ends, data = request.memory
            put(Ranges(starts, ends), data)
        engine.memory.unwritten = request.unwritten_shared
        footprint = engine.activity.traffic = Footprint(engine.activity.stats)
        try:
            with integer_sums(request.integer_sums):
                self._run(engine)
        except SimulationError as error:
            outcome = Outcome(str(error), isinstance(error, DeadlockError))
        else:
            outcome = outcome_of(footprint.writes, footprint.reads, request)
            if request.with_left:
                outcome = replace(outcome, left=engine.memory.left())
        return outcome if sanitizer is None else outcome.with_hazards(_told(sanitizer))

    def search(self, request: Search, rewind: Callable[[Ranges], None]) -> SearchResult:
        """Run the launch under all schedules; `rewind` puts memory back, of which ranges were written."""

        def play(policy: GuidedInterleaving, observers: Sequence[Observer]) -> Outcome:
            sanitizer = None if self.sanitizer is None else self.sanitizer()
            every = (*observers, *(() if sanitizer is None else sanitizer.observers))
            engine = self._engine(policy, every)
            footprint = engine.activity.traffic = Footprint(engine.activity.stats)
            policy.attach(engine)
            try:
                self._run(engine)
                outcome = outcome_of(footprint.writes, footprint.reads, Request())
            except DeadlockError as error:
                outcome = Outcome(str(error), is_hang=True)
            except SimulationError as error:
                policy.failed()
                outcome = Outcome(str(error))
            finally:
                rewind(footprint.writes)
            return outcome if sanitizer is None else outcome.with_hazards(_told(sanitizer))

        flow = self._program(None, {}).flow
        waits = frozenset(t.instruction.index for t in tries(flow, Uses(flow)) if t.retries and t.misuse is None)
        reads_counts = any(i.traits.counts_pending for i in self.launch.entry.instructions)
        return search(play, request, reads_counts, waits)

    def _program(self, policy: CompletionPolicy | None, stopping: Mapping[int, tuple[Observer, ...]]) -> Program:
        entry = self.launch.entry
        return entry.program(frozenset(stopping), pauses(entry.function, policy))

    def _engine(self, policy: CompletionPolicy | None, observers: Sequence[Observer]) -> Engine:
        stopping = stops(self.launch.entry.function, observers) if observers else {}
        for observer in observers:
            observer.on_launch(self.launch)
        program = self._program(policy, stopping)
        told = observers, policy, stopping, self.exact_mma
        return Engine(program, self.launch, self.memory, *told, clusters=deal(self.launch))

    def _run(self, engine: Engine) -> None:
        with one_thread():
            for blocks in engine.clusters:
                engine.run(blocks)


def _told(sanitizer: Sanitizer) -> list[tuple[str, Hazard]]:
    """Return the hazards that were found, with the key that tells each from others."""
    return [(name_of(hazard), replace(hazard, count=1)) for hazard in sanitizer.hazards]


def name_of(hazard: Hazard) -> str:
    """Return the part of a hazard that others of its lines share, in either order."""
    kind = "unordered" if hazard.kind in RACES else hazard.kind
    return f"{kind}: {', '.join(sorted(side.line for side in hazard.sides))}"
