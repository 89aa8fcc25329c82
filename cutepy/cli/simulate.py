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
from typing import TYPE_CHECKING, NoReturn

from cutepy.cli.failure import fail
from cutepy.cli.scripts import run_as_main, started_name

if TYPE_CHECKING:
    from cutepy.sim.machine.chosen import Coordinates
    from cutepy.sim.machine.observer import Observer
    from cutepy.sim.run import Run

_SITES = 10
"""Lines of conflicts, and of waits, that are printed."""


def run(
    script: Path,
    arguments: Sequence[str],
    echo: Callable[[str], None],
    *,
    inspect: bool = False,
    policy: str | None = None,
    observers: Sequence[Observer] = (),
    ctas: Coordinates | None = None,
) -> int:
    """Run a script as `__main__`, with device `cuda` served from host memory and every launch simulated.

    Parameters
    ----------
    script : Path
    arguments : sequence of str
        Its `sys.argv[1:]`.
    echo : callable
        Prints a line of the summary.
    inspect : bool
        Whether to count bank conflicts and waits by line, and to print them with all other counts.
    policy : str, optional
        When asynchronous operations take effect (`cutepy.simulate`).
    observers : sequence of Observer
        See what the kernels do.
    ctas : sequence of coordinates, optional
        The CTAs to run of each launch.

    Returns
    -------
    int
        The script's exit code: 1 if it raised, of which the traceback is printed.
    """
    from cutepy.frontends import serve_cuda
    from cutepy.sim.errors import PolicyError

    try:
        with serve_cuda(inspect=inspect, policy=policy, observers=observers, ctas=ctas) as simulation:
            try:
                return execute(script, arguments, echo)
            finally:
                summarise(simulation, echo, inspect)
    except PolicyError as error:
        fail(str(error))


def execute(script: Path, arguments: Sequence[str], echo: Callable[[str], None]) -> int:
    """Run a script as `__main__`, and return its exit code: 1 if it raised, of which the traceback is printed."""
    from cutepy.sim.sanitize import AllowanceError

    name = started_name(script)
    try:
        with _leaving_at_once():
            run_as_main(script, arguments)
    except SystemExit as leaving:
        if leaving.code is None or isinstance(leaving.code, int):
            return leaving.code or 0
        echo(str(leaving.code))
        return 1
    except AllowanceError as error:
        echo(f"error: {error}")
        return 1
    except Exception as error:
        print(_traceback(error, name), end="", file=sys.stderr)
        return 1
    return 0


@contextmanager
def _leaving_at_once() -> Iterator[None]:
    """Let the script's `os._exit` end it as `sys.exit` does, so that what ran is told; forked processes end at once."""
    leave, process = os._exit, os.getpid()

    def end(status: int) -> NoReturn:
        if os.getpid() == process:
            if threading.current_thread() is threading.main_thread():
                raise SystemExit(status)
            print("cutepy: a thread has ended the process by os._exit: nothing is known", file=sys.stderr, flush=True)
            leave(status or 2)
        leave(status)

    os._exit = end
    try:
        yield
    finally:
        os._exit = leave


def _traceback(error: Exception, script: str) -> str:
    """Format what a script raised, without the frames of what runs it, or of what simulates its kernels."""
    from cutepy.sim.errors import SimulationError
    from cutepy.sim.ptx.places import is_of_a_library

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


def summarise(simulation: Run, echo: Callable[[str], None], inspect: bool) -> None:
    """Print how many launches there were, and with `inspect` what was counted."""
    kernels = Counter(launch.kernel for launch in simulation.launches)
    launches = sum(kernels.values())
    echo(f"cutepy: simulated {launches} launches of {len(kernels)} kernels on the CPU; times are not a GPU's")
    if not inspect:
        return
    for name, count in simulation.stats.items():
        if count:
            echo(f"  {name} {count}")
    conflicting = [site for site in simulation.conflicts() if site.conflicts]
    waited = [site for site in simulation.waits() if site.waited]
    for title, sites in (("bank conflicts", conflicting), ("waits at barriers", waited)):
        echo(f"cutepy: {title}{', those with the most first:' if sites else ': none'}")
        for site in sites[:_SITES]:
            echo(f"  {site}")
