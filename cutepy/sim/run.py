"""Run: record of simulated launches, with their observers and reports."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from mmap import mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from cutepy.sim.engine import Engine
from cutepy.sim.errors import PolicyError, SimulationError
from cutepy.sim.inspect.banks import AccessSite, SectorSite, Sites, WaitSite
from cutepy.sim.inspect.breakpoints import Breakpoint
from cutepy.sim.inspect.tracing import KEPT_EVENTS, Recorder
from cutepy.sim.machine.events import CompletionPolicy
from cutepy.sim.machine.host_events import HostEvent
from cutepy.sim.machine.host_memory import described, storage_range
from cutepy.sim.machine.interleaving import Interleaving, pauses
from cutepy.sim.machine.lanes import Array
from cutepy.sim.machine.launch import KernelCall, Launch, may_run_in_any_order, prepare
from cutepy.sim.machine.limits import Watchdog
from cutepy.sim.machine.loaded_module import LoadedModule
from cutepy.sim.machine.memory import GlobalMemory
from cutepy.sim.machine.observer import Observer, Step, stops
from cutepy.sim.machine.selected_ctas import Coordinates
from cutepy.sim.machine.shared_memory import Place, SharedMemory, named, view
from cutepy.sim.native.blocks import hot_blocks
from cutepy.sim.options import (
    check_flags,
    checked_ctas,
    checked_limit,
    checked_observers,
    checked_policy,
    checked_processes,
)
from cutepy.sim.parallel.blas import one_thread
from cutepy.sim.parallel.waves import deal
from cutepy.sim.parallel.workers import Team, default_processes
from cutepy.sim.ptx.source_lines import is_of_a_library
from cutepy.sim.replay import Replayable, Replays, Schedules
from cutepy.sim.sanitize import AdvisoryWarning, HazardError, Hazards, Sanitizer
from cutepy.sim.translate import Program
from cutepy.sim.translate.unknown_forms import InstructionNamed

if TYPE_CHECKING:
    from cutepy.layouts.sm90 import SmemPlan
    from cutepy.sim.sanitize.certificate.certificates import Certificate
    from cutepy.sim.sanitize.hazards import Hazard


def _level_of_the_user() -> int:
    """Count the frames up to the user's, for a warning of the function that asks."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and (
        frame.f_code.co_filename == contextlib.__file__ or is_of_a_library(frame.f_code.co_filename)
    ):
        frame, level = frame.f_back, level + 1
    return level


_KEPT_SHARED_BYTES = 1 << 29
"""Shared memory that a run with `inspect` keeps, of the CTAs that were resident last."""


class LaunchTimer(Protocol):
    """Timer that chooses which CTAs of a launch run, watches them, and tells how long the launch takes on a GPU."""

    predictions: list[Any]

    def begin(self, call: KernelCall, known: GlobalMemory) -> tuple[KernelCall, Observer]:
        """Return the call with the CTAs to run, and the observer of the launch."""

    def end(self, launch: Launch) -> None:
        """Add the prediction of a launch that has ended."""


class Run(Replayable):
    """Record of simulated launches.

    Attributes
    ----------
    launches : list of Launch
        In order; each with its parameters and statistics.
    plan : SmemPlan or None
        Names for what kernels keep in shared memory, of launches that don't know their own `plan`; set it before
        `smem(name=)`, to what the kernel passes to `cutepy.device.smem.share`.
    told_elsewhere : frozenset of str
        Options of which the command tells the findings: at the end the run then raises nothing of "sanitize",
        "schedules" and "policy", and does not warn of "advisories".
    is_strict : bool
        True if advisories are hazards: ``simulate(sanitize=True, strict=True)``.
    loading_seconds : float
        Seconds that the run's context took to load compilers: the error of a first launch that is stopped names them.
    timer : LaunchTimer or None
        Predicts the times of launches: ``simulate(time="h200")``.
    """

    def __init__(
        self,
        observers: Sequence[Observer],
        policy: CompletionPolicy | str | None,
        *,
        inspect: bool = False,
        processes: int | None = None,
        exact_mma: bool = False,
        sanitize: bool = False,
        ctas: Coordinates | None = None,
        schedules: Schedules = 0,
        seed: int | None = None,
        limit: int | None = None,
        replay: bool = False,
        allow: Mapping[str, str] | None = None,
        limit_seconds: float | None = None,
        limit_instructions: int | None = None,
        strict: bool = False,
    ) -> None:
        check_flags(inspect=inspect, exact_mma=exact_mma, sanitize=sanitize, replay=replay, strict=strict)
        self.launches: list[Launch] = []
        self._recorder, self._sites = Recorder(self._shared_now), Sites()
        self._inspect = inspect
        if allow and not sanitize:
            raise ValueError("allow is of hazards, which nothing looks for: use sanitize=True with it")
        if strict and not sanitize:
            raise ValueError("strict is of advisories, which nothing looks for: use sanitize=True with it")
        self.is_strict = bool(strict)
        self._sanitizer = Sanitizer(lambda: self._memory, allow) if sanitize else None
        own: tuple[Observer, ...] = (self._recorder, self._sites) if inspect else ()
        own += self._sanitizer.observers if self._sanitizer else ()
        self._observers = (*checked_observers(observers), *own)
        self._policy = checked_policy(policy)
        self._processes = default_processes() if processes is None else checked_processes(processes)
        self._exact_mma, self._ctas = exact_mma, checked_ctas(ctas)
        self._replays = Replays(schedules, seed, limit, replay, exact_mma, self._sanitizer, self._policy)
        self._limit = checked_limit(limit_seconds, limit_instructions)
        self.loading_seconds = 0.0
        self.timer: LaunchTimer | None = None
        self._memory, self._registered = GlobalMemory(), list[Any]()
        self._missed: list[str] = []  # by launch that ended
        self._engine: Engine | None = None
        self.plan: SmemPlan | None = None
        self.told_elsewhere: frozenset[str] = frozenset()
        self._process, self._launched_elsewhere = os.getpid(), mmap(-1, 1)
        self._shared_bytes, self._forgets = 0, False
        self._shared: list[tuple[int, SharedMemory]] = []  # with the index of its launch

    @property
    def hazards(self) -> Hazards:
        """The hazards that the sanitizer found, each pair of lines once, the likeliest causes first.

        Empty without a sanitizer. Its `advisories` and what is `allowed` do not count, unless the run is strict: then
        advisories are hazards.
        """
        if self._sanitizer is None:
            return Hazards()
        found = self._sanitizer.hazards.replayed_by(self._replays)
        return found.strict() if self.is_strict else found

    @property
    def advisories(self) -> tuple[Hazard, ...]:
        """The advisories that the sanitizer found, whether or not the run is strict; those that are allowed are none.

        They tell what costs time, what ptxas repairs, such as a missing ``wgmma.fence``, or what nothing comes of.
        """
        return () if self._sanitizer is None else self._sanitizer.hazards.advisories

    @property
    def certificates(self) -> tuple[Certificate, ...]:
        """Certificates of the launches that ended; empty without the sanitizer."""
        return () if self._sanitizer is None else self._sanitizer.certificates

    def check_hazards(self) -> None:
        """Raise the hazards that the sanitizer found.

        Raises
        ------
        HazardError
            If there are hazards; its text has the advisories too.
        """
        if hazards := self.hazards:
            raise HazardError(hazards)

    def _warn_of_advisories(self) -> None:
        """Warn once of all advisories of the run, at the line that ends its context."""
        if self.advisories:
            told = f"{self.hazards}\n(strict=True makes advisories hazards; allow= takes a kind and a reason)"
            warnings.warn(told, AdvisoryWarning, stacklevel=_level_of_the_user())

    @contextmanager
    def checked(self) -> Iterator[Run]:
        """Raise the hazards that were found once the context is over; an error in it has them as a note, or is one."""
        try:
            yield self
        except Exception as error:
            if "sanitize" not in self.told_elsewhere and (hazards := self.hazards):
                if isinstance(error, SimulationError) and error.mistakes:
                    raise HazardError(hazards) from error
                error.add_note(f"The sanitizer found before that, the likeliest cause first: {hazards}")
            raise
        self.check_breakpoints()
        for option, check in (
            ("policy", self.check_policy),
            ("sanitize", self.check_hazards),
            ("schedules", self.check_schedules),
        ):
            if option not in self.told_elsewhere:
                check()
        if not self.told_elsewhere & {"sanitize", "advisories"}:
            self._warn_of_advisories()

    @property
    def is_inspected(self) -> bool:
        """Flag: the run keeps a record of its kernels' steps, by ``simulate(inspect=True)``."""
        return self._inspect

    @property
    def is_sanitized(self) -> bool:
        """Flag: the run looks for hazards, as ``simulate(sanitize=True)``, a command or a test session asks."""
        return self._sanitizer is not None

    @property
    def has_launched_elsewhere(self) -> bool:
        """Flag: kernels were launched in forked processes, of which this one knows nothing else."""
        return self._launched_elsewhere[0] > 0

    @property
    def predictions(self) -> list[Any]:
        """The predicted times of launches, `cutepy.predict.Prediction`, of a run with ``simulate(time=...)``."""
        return [] if self.timer is None else self.timer.predictions

    @property
    def printf(self) -> str:
        """Output of kernels."""
        return "".join(launch.printf for launch in self.launches)

    @property
    def instructions(self) -> Counter[str]:
        """Instructions that warps executed, by the first part of their opcode, over all launches."""
        return sum((launch.instructions for launch in self.launches), Counter())

    @property
    def stats(self) -> dict[str, int]:
        """Counts of `Launch.stats`, summed over all launches.

        With ``simulate(inspect=True)`` also shared_accesses, shared_wavefronts and bank_conflicts, of the loads and
        stores of warps, of which `conflicts` has the sites; and barrier_waits, how often a warp had to wait in the
        simulator's schedule, of which `waits` has them.
        """
        total: dict[str, int] = {}
        for launch in self.launches:
            for name, value in launch.stats.items():
                total[name] = total.get(name, 0) + value
        return {**total, **self._sites.totals()} if self._inspect else total

    def trace(self, cta: Sequence[int] = (0, 0, 0), launch: int = -1) -> dict[str, Any]:
        """Return the steps of a CTA as a Chrome trace: `json.dump` it, and open it in Perfetto.

        Each warp is a track with its barriers (as long as it waits), stores and MMAs, and what it issues; asynchronous
        operations are spans from issue to completion. Time is a counter of steps: an order, and not a timing.

        Parameters
        ----------
        cta : (int, int, int)
        launch : int
            Index into `launches`.

        Raises
        ------
        RuntimeError
            If the run was not made with ``simulate(inspect=True)``.
        LookupError
            If the record of the launch was given up, as that of the first ones of a long run is.
        """
        self._need_inspect("trace")
        return self._recorder.trace(launch, self._checked_cta(cta, launch))

    def save(self, path: str | Path, ctas: Sequence[Sequence[int]] | None = None) -> Path:
        """Save the steps of CTAs, and their shared memory at each step, for `cutepy.load_run` and ``cutepy explore``.

        Parameters
        ----------
        path : str or Path
            By convention ``NAME.cutepy``: a zip archive of JSON and numpy arrays.
        ctas : sequence of (int, int, int), optional
            Of every launch whose grid has them. Default: the first 16, in whole clusters. Of these shared memory is
            kept at each step, of others as it was left.

        Returns
        -------
        Path

        Raises
        ------
        RuntimeError
            If the run was not made with ``simulate(inspect=True)``.
        IndexError
            If no launch has one of the CTAs.
        LookupError
            If the record of a launch was given up, as that of the first ones of a long run is.
        ValueError
            If it is more than `cutepy.load_run` reads: save fewer CTAs.
        """
        from cutepy.sim.inspect.saving import save

        self._need_inspect("save")
        return save(self.launches, lambda cta, launch: self.smem(cta, launch=launch), self._recorder, Path(path), ctas)

    def conflicts(self) -> list[AccessSite]:
        """Return the instructions that access shared memory, those with the most bank conflicts first.

        Raises
        ------
        RuntimeError
            If the run was not made with ``simulate(inspect=True)``.
        """
        self._need_inspect("conflicts")
        return sorted(self._sites.accesses.values(), key=lambda site: -site.conflicts)

    def uncoalesced(self) -> list[SectorSite]:
        """Return the instructions that access global memory, those with the most sectors beyond the least first.

        Raises
        ------
        RuntimeError
            If the run was not made with ``simulate(inspect=True)``.
        """
        self._need_inspect("uncoalesced")
        return sorted(self._sites.sectors.values(), key=lambda site: -site.excess)

    def waits(self) -> list[WaitSite]:
        """Return the instructions that wait at barriers, those where most warps had to first.

        Raises
        ------
        RuntimeError
            If the run was not made with ``simulate(inspect=True)``.
        """
        self._need_inspect("waits")
        return sorted(self._sites.waits.values(), key=lambda site: -site.waited)

    def smem(
        self,
        cta: Sequence[int] = (0, 0, 0),
        layout: Place = None,
        dtype: object = "uint8",
        offset: int = 0,
        launch: int = -1,
        *,
        name: str | None = None,
    ) -> Array:
        """Return the shared memory of a CTA as a kernel left it, or has it now if an observer asks.

        The CTAs that were resident last are kept; with ``simulate(inspect=True)``, all of all launches.

        Parameters
        ----------
        cta : (int, int, int)
        layout, dtype, offset
            As of `cutepy.sim.machine.shared_memory.view`: a layout, its text, or a region of a plan.
        launch : int
        name : str, optional
            Of a region of the launch's plan, which cutepy's products have, or else of `plan`; in place of a layout.

        Returns
        -------
        array
            A copy, with one axis for each mode of the layout: a swizzled tile as the matrix that it is.
        """
        coordinate, number = self._checked_cta(cta, launch), range(len(self.launches))[launch]
        made = self.launches[number]
        layout = named(made.plan or self.plan, name, layout, made.name)
        running = [] if self._engine is None else [(len(self.launches) - 1, self._engine.memory.now())]
        for launched, shared in (*running, *self._shared[::-1]):
            data = shared.find(coordinate) if launched == number else None
            if data is not None:
                return view(data, layout, dtype, offset)
        raise LookupError(
            f"the shared memory of CTA {coordinate} was not kept; "
            + ("simulate fewer launches in a run" if self._inspect else "use simulate(inspect=True)")
        )

    def breakpoint(self, where: str, action: Callable[[Step], None]) -> Breakpoint:
        """Stop the launches that follow at a line of Python, and call a function with the `Step`.

        Parameters
        ----------
        where : str
            File and line, as "gemm.py:120"; of the file's path any trailing part.
        action : callable
            Looks at registers, accumulators and shared memory; may call Python's `breakpoint()`, or raise to stop.

        Returns
        -------
        Breakpoint
            Counts its `hits`. Compiled code is reordered: a line may be hit in several places.

        Raises
        ------
        BreakpointError
            If no code can be there; when the run ends, if no launch had code there.
        """
        point = Breakpoint(where, action)
        self._observers = (*self._observers, point)
        return point

    def check_breakpoints(self) -> None:
        """Raise an error if no line of a launched kernel has a breakpoint's place."""
        for observer in self._observers:
            if isinstance(observer, Breakpoint):
                observer.check()

    def check_policy(self) -> None:
        """Raise an error if the policy names a warp or instruction that no launch has, such as a warp to hold back.

        Raises
        ------
        PolicyError
            Saying what the first launch has.
        """
        if self._policy is not None and self._missed and all(self._missed):
            others = f", nor do the others of {len(self._missed)} launches" if len(self._missed) > 1 else ""
            raise PolicyError(
                f"policy must name what a launch has, got {self._policy!r}: {self._missed[0]}{others}; take "
                "the policy of a witness or a schedule for the kernel that it was found in"
            )

    def _shared_now(self) -> tuple[Array, int]:
        assert self._engine is not None
        return self._engine.memory.shared, self._engine.memory.slot_bytes

    def _need_inspect(self, name: str) -> None:
        if not self._inspect:
            raise RuntimeError(f"run.{name}() needs a record of the run: use simulate(inspect=True)")

    def _checked_cta(self, cta: Sequence[int], launch: int) -> tuple[int, int, int]:
        if not -len(self.launches) <= launch < len(self.launches):
            raise IndexError(f"there is no launch {launch}: there were {len(self.launches)}")
        x, y, z = (*cta, 0, 0)[:3]
        grid = self.launches[launch].grid
        if any(not 0 <= c < extent for c, extent in zip((x, y, z), grid, strict=True)):
            raise IndexError(f"CTA {(x, y, z)} is not in the grid {grid}")
        return x, y, z

    def register(self, tensor: Any) -> None:  # noqa: ANN401
        """Let kernels access a tensor or array that they reach by a raw pointer.

        Parameters
        ----------
        tensor : torch.Tensor or numpy.ndarray
            Its whole storage becomes known memory. While an array is read-only, kernels may not store to it, except
            through another array of the same memory that is writeable.
        """
        self.adopt(tensor)
        if not getattr(getattr(tensor, "flags", None), "writeable", True):
            self._registered.append(tensor)

    def _registered_inputs(self) -> list[tuple[int, int, str]]:
        """Return the memory of registered arrays that are read-only now, without the memory that others know."""
        found = []
        for array in self._registered:
            start, size = storage_range(array)
            region = self._memory.find(start, start + size)
            parts = [(start, start + size)] if region is not None and not array.flags.writeable else []
            for owner in region.owners if parts and region is not None else ():
                if owner is not None and getattr(getattr(owner, "flags", None), "writeable", True):
                    low, extent = storage_range(owner)
                    parts = [p for s, e in parts for p in ((s, min(e, low)), (max(s, low + extent), e)) if p[0] < p[1]]
            found += [(s, e, f"shape {array.shape} and type {array.dtype}") for s, e in parts]
        return found

    def adopt(self, tensor: object) -> None:
        """Register the storage of a tensor that was passed to a kernel, or to a function that launches a kernel."""
        address, size = storage_range(tensor)
        self._memory.register(address, size, tensor, described(tensor))

    @property
    def is_watched(self) -> bool:
        """True if the run has observers."""
        return bool(self._observers)

    def tell(self, event: HostEvent) -> None:
        """Tell the observers of host operations beside launches."""
        for observer in self._observers:
            observer.on_host(event)

    def launch(self, call: KernelCall) -> None:
        """Run a kernel to its end."""
        if os.getpid() != self._process:
            self._launched_elsewhere[0] = 1
        call = call if call.ctas is not None else replace(call, ctas=self._ctas)
        before = self._observers
        if self.timer is not None:
            call, observer = self.timer.begin(call, self._memory)
            self._observers = (*before, observer)
        launch = prepare(call)
        self._memory.inputs = (*call.inputs, *self._registered_inputs())
        try:
            with InstructionNamed():
                self._launch(launch, call)
        finally:
            self._observers = before
        if self.timer is not None:
            self.timer.end(launch)

    def _launch(self, launch: Launch, call: KernelCall) -> None:
        began = time.perf_counter()
        function = launch.entry.function
        stopping = stops(function, self._observers)
        program = launch.entry.program(frozenset(stopping), pauses(function, self._policy))
        followed = any(observer.follows_blocks for observer in self._observers)
        if not isinstance(self._policy, Interleaving) and not followed:
            program = replace(program, blocks=hot_blocks(program, frozenset(stopping) if self._observers else None))
        self.launches.append(launch)
        launch.number = len(self.launches)
        with (
            _its_memory(self._memory, launch, call.loaded),
            self._replays.around(launch, self._memory, lambda: self.hazards),
        ):
            self._run(launch, program, stopping, began)

    def _run(
        self, launch: Launch, program: Program, stopping: Mapping[int, tuple[Observer, ...]], began: float
    ) -> None:
        for observer in self._observers:
            observer.on_launch(launch)
        start = time.perf_counter()

        loading_seconds = self.loading_seconds if len(self.launches) == 1 else 0.0
        watchdog = Watchdog(self._limit, program, began, loading_seconds) if self._limit else None

        def make_engine() -> Engine:
            watched = self._memory, self._observers, self._policy, stopping
            return Engine(program, launch, *watched, self._exact_mma, watchdog, clusters)

        alone = self._observers or self._policy is not None or self._limit or not may_run_in_any_order(launch)
        clusters = deal(launch, bool(self._observers))
        team = Team(make_engine, clusters, 1 if alone else self._processes, self._keep)
        self._engine = engine = team.engine
        try:
            with one_thread():
                team.run()
            if self._policy is not None:
                self._missed.append(self._policy.missed(launch))
        finally:
            self._engine = None
            launch.processes = team.used
            launch.seconds = time.perf_counter() - start
            launch.stats = engine.counts()
            launch.instructions = engine.instructions()
            launch.printf = "".join(engine.activity.printed)

    def _keep(self, engine: Engine) -> None:
        """Keep the shared memory of CTAs that have ended, or were stopped; of a long run that of its last launches."""
        if not self._inspect:
            self._shared.clear()
            self._shared_bytes = 0
        now = engine.memory.now()
        self._shared.append((len(self.launches) - 1, now))
        self._shared_bytes += now.size_bytes
        while self._inspect and self._shared_bytes > _KEPT_SHARED_BYTES and len(self._shared) > 1:
            self._shared_bytes -= self._shared.pop(0)[1].size_bytes
            self._tell_forgotten()
        if self._recorder.forgotten:
            self._tell_forgotten()

    def _tell_forgotten(self) -> None:
        """Warn once that the run discards the record of its first launches."""
        if not self._forgets:
            self._forgets = True
            warnings.warn(
                f"simulate(inspect=True) keeps {_KEPT_SHARED_BYTES >> 20} MiB of shared memory and {KEPT_EVENTS:,} "
                "events, and forgets those of the run's first launches from here on: trace and save a launch before "
                "that, or simulate fewer launches in a run",
                RuntimeWarning,
                stacklevel=2,
            )


@contextmanager
def _its_memory(memory: GlobalMemory, launch: Launch, loaded: LoadedModule) -> Iterator[None]:
    """Make parameters known while their kernel runs, and variables as long as their module is loaded."""
    for placed in launch.variables:
        if memory.register(placed.data.ctypes.data, placed.data.nbytes, placed.data, placed.variable.name):
            weakref.finalize(loaded, _forget, weakref.ref(memory), placed.data.ctypes.data)
    block = launch.parameter_block
    assert block is not None
    own = [(block, "the kernel's parameters")]
    if launch.grid_workspace is not None:
        own.append((launch.grid_workspace, "the grid's workspace"))
    for data, name in own:
        memory.register(data.ctypes.data, data.nbytes, data, name)
    try:
        yield
    finally:
        for data, _ in own:
            memory.forget(data.ctypes.data)


def _forget(memory: weakref.ref[GlobalMemory], address: int) -> None:
    known = memory()
    if known is not None:
        known.forget(address)
