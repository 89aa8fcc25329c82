"""`cutepy sanitize`: run a GPU script on a machine without a GPU, and report unordered accesses."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cutepy.cli.failure import fail
from cutepy.cli.scripts import Script

if TYPE_CHECKING:
    from cutepy.sim import Run
    from cutepy.sim.machine.selected_ctas import Coordinates
    from cutepy.sim.replay import Report, Schedules
    from cutepy.sim.sanitize import Hazards

Format = Literal["text", "json", "sarif"]

FAILED = 2
"""Exit code of a script that failed, or of wrong usage."""


def run(
    script: Script,
    form: Format | None,
    output: Path | None,
    *,
    ctas: Coordinates | None = None,
    limit_seconds: float | None = None,
    limit_instructions: int | None = None,
    schedules: Schedules = 0,
    seed: int | None = None,
    limit: int | None = None,
    replay: bool = False,
    reproducers: Path | None = None,
    strict: bool = False,
) -> int:
    """Run a script as `__main__`, every launch simulated, and write the sanitizer's findings.

    Parameters
    ----------
    script : Script
    form : "text", "json", "sarif" or None
        None is text, which goes to standard error; a form that is given goes to standard output, or to `output`.
    output : Path or None
        The file to write; standard error gets the text then, too.
    ctas : sequence of coordinates, optional
        The CTAs to run of each launch.
    limit_seconds, limit_instructions : number, optional
        The most that a launch may take.
    schedules : int or "all"
        Number of seeded schedules to compare each launch with, or all that there are.
    seed, limit : int, optional
        The first seed of a number of schedules, and how many to play of all.
    replay : bool
        True to look for a schedule that shows each hazard, and to print its effect.
    reproducers : Path, optional
        The folder to write a script for each hazard to, which looks for it on a GPU.
    strict : bool
        True if advisories are hazards.

    Returns
    -------
    int
        1 if there are hazards, or schedules that end with another result, else 2 if the script failed, else 0.
    """
    from cutepy.cli.simulate import INTERRUPTED, Tally, execute, tell_stated
    from cutepy.frontends import serve_cuda
    from cutepy.frontends.inherited import inherited_by_runs
    from cutepy.sim.replay import Report, ScheduleError
    from cutepy.sim.sanitize import HazardError

    echo = script.echo
    # The script's own output is not the report: it goes to standard error.
    alone = contextlib.redirect_stdout(sys.stderr) if form and output is None else contextlib.nullcontext()
    keeps = replay or reproducers is not None
    asked: dict[str, Any] = {"ctas": ctas, "schedules": schedules or None, "seed": seed, "limit": limit}
    asked |= {
        "strict": strict or None,
        "replay": keeps or None,
        "limit_seconds": limit_seconds,
        "limit_instructions": limit_instructions,
    }
    options = {"sanitize": True, **{name: value for name, value in asked.items() if value is not None}}
    runs: list[Run] = []  # the script's own, then that of all other launches

    def is_told(error: Exception) -> bool:
        if isinstance(error, HazardError):
            told = {hazard.key for run in (*runs, simulation) for hazard in run.hazards}
            return all(hazard.key in told for hazard in error.hazards)
        return isinstance(error, ScheduleError)

    with serve_cuda(**options) as simulation:
        with alone, inherited_by_runs(options, runs.append) as inheritance:
            code = execute(script, is_told)
        runs.append(simulation)
        tally = Tally()
        for run in runs:
            tally.add(run)
        tally.write(echo, inspect=False)
        tell_stated(inheritance, echo)
        unwatched = sum(len(run.launches) for run in runs if not run.is_sanitized)
        is_empty = not any(run.launches for run in runs if run.is_sanitized)
        if unwatched:
            echo(f"cutepy: {unwatched} launches were not sanitized: the script calls simulate(sanitize=False)")
        elif is_empty:
            echo("cutepy: nothing was sanitized: this process launched no kernel, and other processes are not watched")
        has_launched_elsewhere = inheritance.has_run_elsewhere or any(run.has_launched_elsewhere for run in runs)
        if has_launched_elsewhere:
            echo("cutepy: launches in forked processes were not sanitized: make them in this process")
        report = Report.of_all([run.report() for run in runs])
        if code and report.is_clean:
            echo("cutepy: the script failed: no hazards are found in what ran, and nothing is known of the rest")
        if is_empty or has_launched_elsewhere:
            code = code or FAILED
        is_interrupted = code == INTERRUPTED  # each replay would run until Ctrl-C, too
        if replay and not is_interrupted:
            report = report.played()
        unwritten = None if reproducers is None or is_interrupted else _reproduce(report.hazards, echo, reproducers)
        simulation.restart()  # hazards are reported here, and not raised
    if output is not None:
        try:
            text = _written(report, form or "text", script.path, code) + "\n"
            output.write_text(text, "utf-8", errors="backslashreplace")
        except OSError as error:
            unwritten = f"--output {output} can't be written: {error.strerror}"
    elif form:
        print(_written(report, form, script.path, code))
    if (output is not None or form is None) and not (code and report.is_empty):  # nothing is known of the rest
        show(report)
    if unwritten is not None:
        fail(unwritten)
    return 1 if not report.is_clean else FAILED if code else 0


def _reproduce(hazards: Hazards, echo: Callable[[str], None], folder: Path) -> str | None:
    """Write a GPU reproducer for each hazard; return the reasons for those that can't be written."""
    for number, hazard in enumerate(hazards):
        try:
            path = hazard.reproducer(folder / f"{number:02}_{hazard.kind.replace('-', '_')}.py")
        except (RuntimeError, ValueError) as error:
            echo(f"cutepy: reproducer {number}: none: {error}")
        except OSError as error:
            return f"--reproducers {folder} can't be written: {error.strerror}"
        else:
            echo(f"cutepy: reproducer {number}: {path}")
    return None


def _written(report: Report, form: Format, script: Path, code: int) -> str:
    """Write a report, and whether it covers all of the script, by the exit code."""
    if form == "text":
        return str(report)
    if form == "json":
        return json.dumps({**report.to_json(), "is_whole": not code}, indent=1)
    return json.dumps(report.to_sarif(str(script), is_whole=not code), indent=1)


def show(report: Report) -> None:
    """Write a report to standard error: in colour on a terminal, unless NO_COLOR is set."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for line in report.lines:
        console.print(Text.assemble(*line) if line else "")
