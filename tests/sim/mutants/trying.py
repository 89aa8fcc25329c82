"""Launch a kernel's mutants with the inputs that it had, and see what becomes of each.

It happens where host code launches the kernel: all memory that this may touch is there then, is copied before, and put
back after each launch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from cutepy.sim import DeadlockError, Hazard, SimulationError
from cutepy.sim.machine.launch import KernelCall
from cutepy.sim.machine.loaded_module import LoadedModule
from cutepy.sim.machine.observer import Observer, Step
from cutepy.sim.ptx.kernel_names import readable
from cutepy.sim.ptx.model import Instruction
from cutepy.sim.run import Run
from cutepy.sim.sanitize import Hazards
from tests.sim.mutants.operators import Mutant, mutants
from tests.sim.mutants.statements import is_synchronisation

REPORTED = ("hazard", "deadlock", "error", "advisory")
"""Outcomes of mutants that are noticed; the others are "wrong", "endless" and "silent"."""

_SECONDS, _TIMES = 10.0, 30
_LOOK_SECONDS = 0.05
_POLICIES = "late", "youngest", "random:1"

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Verdict:
    """Outcome of a mutant.

    Attributes
    ----------
    outcome : str
        "hazard", "deadlock" or "error" if it is reported, the second if nothing else is told than that; "advisory" if
        ptxas makes it good; "wrong" if values are and nothing is said, "endless" if it takes far longer than the
        kernel; "silent"; "unreached" if the inputs never lead to the statement.
    told : str
        What was reported first, or under which policies of completion the values are wrong.
    """

    outcome: str
    told: str = ""


class EndlessError(Exception):
    """A launch takes too long."""


class EnoughError(Exception):
    """A launch has shown what it was made for."""


class _Reached(Observer):
    """Notes the lines of the PTX that synchronise, as they are executed."""

    def __init__(self) -> None:
        self.lines: set[int] = set()

    def on_instruction(self, step: Step) -> None:
        self.lines.add(step.instruction.line)

    def stops_at(self, instruction: Instruction, before: Instruction | None) -> bool:
        return is_synchronisation(instruction.opcode)


class _Watch(Observer):
    """Ends a launch that takes too long, or has shown enough: every loop comes by a branch.

    Parameters
    ----------
    seconds : float
        After which `EndlessError` is raised.
    """

    def __init__(self, seconds: float) -> None:
        self._end = time.perf_counter() + seconds
        self._next = 0.0
        self.enough: Callable[[], object] = lambda: False

    def on_instruction(self, step: Step) -> None:
        if time.perf_counter() < self._next:
            return
        if self.enough():
            raise EnoughError
        if time.perf_counter() > self._end:
            raise EndlessError
        self._next = time.perf_counter() + _LOOK_SECONDS

    def stops_at(self, instruction: Instruction, before: Instruction | None) -> bool:
        return instruction.opcode.split(".")[0] == "bra" or is_synchronisation(instruction.opcode)


class Trial:
    """A launch, with its inputs.

    Parameters
    ----------
    run : Run
        Knows the memory.
    call : KernelCall
    schedules : int
        How many seeded schedules are played of a mutant that is silent.
    times : int
        How often the launch is made, one behind the other in its stream.
    """

    def __init__(self, run: Run, call: KernelCall, schedules: int = 10, times: int = 1) -> None:
        self._call, self._memory, self._times = call, run._memory, times
        self._policies = *_POLICIES, *(f"schedule:{seed}" for seed in range(schedules))
        self._views: list[Bytes] = []
        for start, end in self._memory.ranges():
            region = self._memory.find(start, end)
            assert region is not None
            self._views.append(region.bytes[start - region.base : end - region.base])
        self._before = [view.copy() for view in self._views]
        begun = time.perf_counter()
        hazards, error = self._launched(call.loaded.ptx, None, 600.0)
        self.seconds = time.perf_counter() - begun
        if error is not None:
            raise error
        self._right = [view.copy() for view in self._views]
        self._known = {_key(h) for h in hazards}
        self.hazards = hazards
        self._reached = self._lines()

    def verdict(self, mutant: Mutant) -> Verdict:
        """Launch a mutant."""
        if mutant.line not in self._reached:
            return Verdict("unreached")
        limit = _SECONDS + _TIMES * self.seconds
        try:
            hazards, error = self._launched(mutant.ptx, None, limit, self._new)
        except EndlessError:
            return Verdict("endless")
        found = self._new(hazards)
        if any(h.kind != "deadlock" for h in found):
            return Verdict("hazard", ", ".join(sorted({h.kind for h in found})))
        if isinstance(error, DeadlockError):
            return Verdict("deadlock", str(error).splitlines()[1].strip())
        if error is not None:
            return Verdict("error", f"{type(error).__name__}: {str(error).splitlines()[0]}")
        if not self._is_right():
            return Verdict("wrong")
        if hazards.advisories:
            return Verdict("advisory", ", ".join(sorted({h.kind for h in hazards.advisories})))
        return Verdict("silent", self._witnesses(mutant, limit))

    def _new(self, hazards: Hazards) -> list[Hazard]:
        """Return those that the kernel doesn't have as it is."""
        return [h for h in hazards if _key(h) not in self._known]

    def _lines(self) -> frozenset[int]:
        """Return the lines of the PTX that synchronise and are executed, where tries succeed or where they fail."""
        seen = _Reached()
        for sanitize in (False, True):
            run = Run((seen,), None, sanitize=sanitize, processes=1)
            run._memory = self._memory
            self.restore()
            run.launch(replace(self._call, loaded=LoadedModule(self._call.loaded.ptx)))
        return frozenset(seen.lines)

    def _witnesses(self, mutant: Mutant, limit: float) -> str:
        """Name the policies of completion under which values are wrong, or nothing can go on."""
        found = []
        for policy in self._policies:
            try:
                _, error = self._launched(mutant.ptx, policy, limit)
            except EndlessError as endless:
                error = endless
            if error is not None or not self._is_right():
                found.append(policy)
        return f"wrong if {', '.join(found)}" if found else ""

    def _is_right(self) -> bool:
        return all(np.array_equal(a, b) for a, b in zip(self._views, self._right, strict=True))

    def _launched(
        self, ptx: str, policy: str | None, seconds: float, enough: Callable[[Hazards], object] = lambda _: False
    ) -> tuple[Hazards, Exception | None]:
        """Launch PTX on the inputs, until there are hazards `enough`.

        Gives the hazards if there is no policy, and what it raised.
        """
        call = replace(self._call, loaded=LoadedModule(ptx))
        watch = _Watch(seconds)
        run = Run((watch,), policy, sanitize=policy is None, processes=1)
        watch.enough = lambda: enough(run.hazards)
        run._memory = self._memory
        self.restore()
        error: Exception | None = None
        try:
            for _ in range(self._times):
                run.launch(call)
        except EnoughError:
            pass
        except (SimulationError, ValueError) as raised:
            error = raised
        return run.hazards, error

    def restore(self) -> None:
        """Put memory back as it was before."""
        for view, held in zip(self._views, self._before, strict=True):
            view[:] = held


def _key(hazard: Hazard) -> tuple[str, ...]:
    """Return what tells hazards apart, where instructions have other numbers: it was there before, or is new."""
    sides = (s.instruction.text for s in (hazard.before, hazard.after) if s is not None and s.instruction is not None)
    return hazard.kind, *sides


@contextmanager
def tried_at_launch(
    tell: Callable[[str, Trial, list[Mutant]], None],
    chosen: Callable[[str], bool] = lambda name: True,
    schedules: int = 10,
    times: int = 1,
) -> Iterator[None]:
    """Call a function with each kernel that host code launches, the first time it does, and its mutants."""
    launch, seen = Run.launch, set()

    def first(run: Run, call: KernelCall) -> None:
        key = call.loaded.ptx, call.kernel
        if key not in seen and chosen(readable(call.kernel)):
            seen.add(key)
            Run.launch = launch  # type: ignore[method-assign]
            try:
                trial = Trial(run, call, schedules, times)
                try:
                    tell(readable(call.kernel), trial, mutants(call.loaded.ptx, call.kernel))
                finally:
                    trial.restore()
            finally:
                Run.launch = first  # type: ignore[method-assign]
        launch(run, call)

    Run.launch = first  # type: ignore[method-assign]
    try:
        yield
    finally:
        Run.launch = launch  # type: ignore[method-assign]
