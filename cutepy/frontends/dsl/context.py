"""The context in which the DSL's compiled functions are simulated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter

from cutepy.frontends.backend import Simulator, tell_of_streams
from cutepy.frontends.chosen_device import simulating_chosen
from cutepy.frontends.dsl.execution import executing_on
from cutepy.frontends.timing import timer_of
from cutepy.predict.timer import Timer
from cutepy.sim.machine.events import CompletionPolicy
from cutepy.sim.machine.observer import Observer
from cutepy.sim.machine.selected_ctas import Coordinates
from cutepy.sim.replay import Schedules
from cutepy.sim.run import Run


@contextmanager
def simulate(
    *,
    observers: Sequence[Observer] = (),
    policy: CompletionPolicy | str | None = None,
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
    arch: str | None = None,
    time: str | bool | Timer = False,
) -> Iterator[Run]:
    """Run every compiled CuTe DSL function on the CPU while the context is active.

    Calls of `@cute.jit` functions, and of functions that `cute.compile` returns, run their real host code; kernels are
    interpreted from their PTX. Arguments are torch tensors and numpy arrays in host memory. Contexts nest: the
    innermost run takes the launches. A context is for all threads, whose launches take turns.

    Parameters
    ----------
    observers : sequence of Observer, optional
        See every memory access, barrier and asynchronous operation.
    policy : CompletionPolicy or str, optional
        Policy that decides when asynchronous operations take effect, or its name: "late", "youngest", "random" or
        "random:SEED"; "schedule" or "schedule:SEED" also lets warps overtake each other. Default: at their issue.
    inspect : bool
        Keep the data of `Run.trace`, `Run.conflicts`, `Run.waits` and `Run.smem` of any CTA. Slower, and takes memory.
    processes : int, optional
        Number of processes that a long launch may be spread over, with the same results. Default: one for each core,
        on Linux. Launches with observers, and launches whose CTAs may depend on each other's order, use one process.
    exact_mma : bool
        Sum the products of wgmma in the order and with the rounding of an H200, bit for bit; much slower. Default: sum
        in float32. The results then differ in their last bits, and those of 8-bit floats in the last half of the bits.
    sanitize : bool
        Find accesses without a happens-before, and other hazards (docs/sanitizer.md): `Run.hazards`, which are raised
        at the end, and `Run.advisories`, which are a warning. ``pytest --sanitize`` sets it in every run.
    ctas : sequence of coordinates, optional
        Run these CTAs of each launch and no others: an int or up to three of them each, along x, y and z, of which
        negative ones count from the end. CTAs of a cluster come together: naming one brings its peers. Default: all.
        `cutepy.sim.lazy_tensor` makes tensors of any size for them.
    schedules : int or "all"
        Number of seeded schedules under which each launch is played as well, on copies of memory. Their writes are
        compared bit for bit (`Run.explorations`), and differences are raised at the end. "all" plays every schedule, up
        to the order of steps that commute.
    seed : int, optional
        First seed, if `schedules` is a number. Default: 0.
    limit : int, optional
        Most schedules that are played, where `schedules` is "all". Default: 1000.
    replay : bool
        Keep memory as it was before launches, for `Run.explore`, and `Run.replay` and `Run.reproducer` of hazards.
    allow : mapping of str to str, optional
        Allowed kinds of hazards, each with the reason. A comment ``# cutepy: allow[KIND] reason`` allows a hazard at
        its line.
    limit_seconds : float, optional
        Limit of a launch in seconds of the host, from its call to its end. The time that the first `simulate` of a
        process takes to load the DSL does not count. Default: no limit.
    limit_instructions : int, optional
        The most instructions that the warps of a launch may execute, checked every thousand blocks of code or so. A
        launch with a limit runs in one process. Default: no limit.
    strict : bool
        Raise advisories like hazards: costs in time, defects that ptxas repairs, defects without effect. Default: one
        warning at the end.
    arch : str, optional
        Architecture of the simulated GPU, and the DSL's target: "sm_90a" (an H200), "sm_100a" (a B200), "sm_103a" (a
        B300) or "sm_120a" (an RTX 5090). Modules of `load_ptx` for another architecture are refused. Default: that of
        the enclosing context, the DSL's variable CUTE_DSL_ARCH, or "sm_90a"; modules of `load_ptx` then run by their
        .target.
    time : str, bool or cutepy.predict.Timer
        Predict the time of each launch on a GPU, "h100" or "h200" (True): `Run.predictions`. Only sampled CTAs run,
        those of `ctas`, or the first, the last and one between. The results of all other CTAs are missing.

    Yields
    ------
    Run

    Raises
    ------
    HazardError, ScheduleError
        At the end, if the sanitizer found hazards, or a schedule ended with another result.
    SimulationError
        From the call that launched the kernel, if the hardware would stop the kernel or compute wrong results. At the
        end of the context any error gets a note with the hazards found before it.
    LimitError
        From the call that launched the kernel, if the launch exceeds a limit; with the lines where its lanes were.
    AllowanceError
        If an allowance has no reason, or an unknown kind.
    ValueError, TypeError
        If an option is of another type, impossible, or without effect beside the others.
    RuntimeError
        If another thread is simulating.
    BreakpointError, PolicyError
        At the end, if no launch had code at a breakpoint, or the thread or instruction that the policy names.

    Warns
    -----
    AdvisoryWarning
        At the end, if the sanitizer found advisories and no hazards: `Run.advisories`.
    """
    run = Run(
        observers,
        policy,
        inspect=inspect,
        processes=processes,
        exact_mma=exact_mma,
        sanitize=sanitize,
        ctas=ctas,
        schedules=schedules,
        seed=seed,
        limit=limit,
        replay=replay,
        allow=allow,
        limit_seconds=limit_seconds,
        limit_instructions=limit_instructions,
        strict=strict,
    )
    run.timer = timer_of(time)
    began = perf_counter()
    with simulating_chosen(arch), run.checked(), executing_on(Simulator(run)):
        run.loading_seconds = perf_counter() - began
        tell_of_streams(run)
        yield run
