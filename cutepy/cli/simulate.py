"""`cutepy simulate`: run a GPU script on a machine without one."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from cutepy.cli.failure import fail
from cutepy.cli.scripts import Script, run_as_main, started_name, wait_for_threads

if TYPE_CHECKING:
    from cutepy.frontends.inherited import Inheritance
    from cutepy.sim.errors import PolicyError
    from cutepy.sim.inspect.banks import AccessSite, WaitSite
    from cutepy.sim.machine.observer import Observer
    from cutepy.sim.machine.selected_ctas import Coordinates
    from cutepy.sim.run import LaunchTimer, Run

INTERRUPTED = 130
"""Exit code after Ctrl-C, as of shells: 128 and the number of the signal."""

_SITES = 10
"""Number of lines with conflicts, and with waits, to print."""


def run(
    script: Script,
    *,
    inspect: bool = False,
    policy: str | None = None,
    observers: Sequence[Observer] = (),
    time: LaunchTimer | None = None,
    ctas: Coordinates | None = None,
    limit_seconds: float | None = None,
    limit_instructions: int | None = None,
) -> int:
    """Run a script as `__main__`, with device `cuda` served from host memory and every launch simulated.

    Parameters
    ----------
    script : Script
    inspect : bool
        True to count bank conflicts and waits by line, and to print them with all other counts.
    policy : str, optional
        Name of the policy by which asynchronous operations take effect (`cutepy.simulate`).
    observers : sequence of Observer
        Observers of the kernels.
    time : LaunchTimer, optional
        Predicts the times of launches.
    ctas : sequence of coordinates, optional
        The CTAs to run of each launch.
    limit_seconds, limit_instructions : number, optional
        The most that a launch may take.

    Returns
    -------
    int
        The script's exit code: 1 if it raised, of which the traceback is printed.
    """
    from cutepy.frontends import serve_cuda
    from cutepy.frontends.inherited import inherited_by_runs

    asked: dict[str, Any] = {
        "inspect": inspect,
        "policy": policy,
        "observers": tuple(observers),
        "ctas": ctas,
        "time": time,
    }
    asked |= {"limit_seconds": limit_seconds, "limit_instructions": limit_instructions}
    options = {name: value for name, value in asked.items() if value}
    tally = Tally()
    with serve_cuda(**options) as simulation:
        simulation.told_elsewhere = frozenset({"policy"})
        try:
            with inherited_by_runs(options, tally.add) as inheritance:
                code = execute(script)
        finally:
            tally.add(simulation)
            tally.write(script.echo, inspect)
            tell_stated(inheritance, script.echo)
    if tally.misfit is not None:
        fail(str(tally.misfit))
    return code


def tell_stated(inheritance: Inheritance, echo: Callable[[str], None]) -> None:
    """Print the places where the script sets an option to another value than the command, which then applies."""
    for line, name, value in inheritance.stated:
        asked = inheritance.options[name]
        echo(f"cutepy: {line}: the script calls simulate({name}={value!r}), which overrides {name}={asked!r}")


class Tally:
    """Sums of the counts of several runs."""

    def __init__(self) -> None:
        self._kernels: Counter[str] = Counter()
        self._stats: Counter[str] = Counter()
        self._conflicts: list[AccessSite] = []
        self._waits: list[WaitSite] = []
        self._misfits: list[PolicyError] = []
        self._fits = False

    @property
    def misfit(self) -> PolicyError | None:
        """First error of a policy that names something no launch has; None if a launch has it."""
        return self._misfits[0] if self._misfits and not self._fits else None

    def add(self, run: Run) -> None:
        """Count a run that has ended."""
        from cutepy.sim.errors import PolicyError

        self._kernels.update(launch.kernel for launch in run.launches)
        self._stats.update(run.stats)
        if run.is_inspected:
            self._conflicts += [site for site in run.conflicts() if site.conflicts]
            self._waits += [site for site in run.waits() if site.waited]
        try:
            run.check_policy()
        except PolicyError as error:
            self._misfits.append(error)
        else:
            self._fits = self._fits or bool(run.launches)

    def write(self, echo: Callable[[str], None], inspect: bool) -> None:
        """Print the number of launches, and with `inspect` all counts."""
        launches = sum(self._kernels.values())
        echo(f"cutepy: simulated {launches} launches of {len(self._kernels)} kernels on the CPU; times are not a GPU's")
        if not inspect:
            return
        for name, count in self._stats.items():
            if count:
                echo(f"  {name} {count}")
        conflicting = sorted(self._conflicts, key=lambda site: -site.conflicts)
        waited = sorted(self._waits, key=lambda site: -site.waited)
        for title, sites in (("bank conflicts", conflicting), ("waits at barriers", waited)):
            echo(f"cutepy: {title}{', those with the most first:' if sites else ': none'}")
            for site in sites[:_SITES]:
                echo(f"  {site}")


def execute(
    script: Script,
    is_told: Callable[[Exception], bool] = lambda error: False,
) -> int:
    """Run a script as `__main__`, and return its exit code: 1 after an exception, whose traceback is printed.

    Parameters
    ----------
    script : Script
    is_told : callable
        Tells whether the message of an error will be printed later: then only its line and its type are.
    """
    from cutepy.sim.machine.selected_ctas import ChosenCtaError
    from cutepy.sim.sanitize import AllowanceError

    path, arguments, echo = script
    name, before = started_name(path), threading.enumerate()
    try:
        with _leaving_at_once():
            try:
                run_as_main(path, arguments)
            finally:
                if not isinstance(sys.exception(), _ProcessExit):
                    wait_for_threads(before)
    except SystemExit as leaving:
        if leaving.code is None or isinstance(leaving.code, int):
            return leaving.code or 0
        echo(str(leaving.code))
        return 1
    except (AllowanceError, ChosenCtaError) as error:
        echo(f"error: {error}")
        return 1
    except KeyboardInterrupt as error:
        for note in getattr(error, "__notes__", ()):
            echo(f"cutepy: {note}")
        echo("cutepy: interrupted")
        return INTERRUPTED
    except Exception as error:
        if is_told(error):
            frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == name]
            line = f":{frames[0].lineno}" if frames else ""
            echo(f"cutepy: {Path(name).name}{line} raised {type(error).__name__}, and the script ended; see the report")
            return 1
        print(_traceback(error, name), end="", file=sys.stderr)
        return 1
    return 0


class _ProcessExit(SystemExit):
    """The script has called `os._exit`, which waits for no threads."""


@contextmanager
def _leaving_at_once() -> Iterator[None]:
    """Make the script's `os._exit` act as `sys.exit`, so that its run is reported; forked processes end at once."""
    leave, process = os._exit, os.getpid()

    def end(status: int) -> NoReturn:
        if os.getpid() == process:
            if threading.current_thread() is threading.main_thread():
                raise _ProcessExit(status)
            print("cutepy: a thread has ended the process by os._exit: nothing is known", file=sys.stderr, flush=True)
            leave(status or 2)
        leave(status)

    os._exit = end
    try:
        yield
    finally:
        os._exit = leave


def _traceback(error: Exception, script: str) -> str:
    """Format a script's exception, without the frames of the runner and of the simulator."""
    from cutepy.sim.errors import SimulationError
    from cutepy.sim.ptx.source_lines import is_of_a_library

    shown: traceback.TracebackException | None = traceback.TracebackException.from_exception(error)
    text = shown
    while shown is not None:
        own = [n for n, frame in enumerate(shown.stack) if frame.filename == script]
        kept = shown.stack[own[0] if own else 0 :]
        if isinstance(error, SimulationError):
            kept = [f for f in kept if not (is_of_a_library(f.filename) or f.filename.startswith("<"))]
        shown.stack = traceback.StackSummary.from_list(kept)
        shown = shown.__cause__ or (None if shown.__suppress_context__ else shown.__context__)
    assert text is not None
    return "".join(text.format())
