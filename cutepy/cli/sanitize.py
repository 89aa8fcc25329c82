"""`cutepy sanitize`: run a GPU script on a machine without one, and tell what nothing orders."""

from __future__ import annotations

import contextlib
import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from cutepy.sim import Run
    from cutepy.sim.machine.chosen import Coordinates
    from cutepy.sim.replay import Schedules
    from cutepy.sim.sanitize import Hazards
    from cutepy.sim.sanitize.certificate.certificates import Certificate

Format = Literal["text", "json", "sarif"]

FAILED = 2
"""The exit code where the script itself failed, or was not used as it must be."""


def run(
    script: Path,
    arguments: Sequence[str],
    echo: Callable[[str], None],
    form: Format | None,
    output: Path | None,
    *,
    ctas: Coordinates | None = None,
    schedules: Schedules = 0,
    seed: int | None = None,
    limit: int | None = None,
    replay: bool = False,
    reproducers: Path | None = None,
) -> int:
    """Run a script as `__main__`, every launch simulated, and write what the sanitizer finds.

    Parameters
    ----------
    script : Path
    arguments : sequence of str
        Its `sys.argv[1:]`.
    echo : callable
        Prints a line of the summary.
    form : "text", "json", "sarif" or None
        None is text, which goes to standard error; a form that is given goes to standard output, or to `output`.
    output : Path or None
        The file to write; standard error gets the text then, too.
    ctas : sequence of coordinates, optional
        The CTAs to run of each launch.
    schedules : int or "all"
        How many seeded schedules of each launch to compare with it, or all that there are.
    seed, limit : int, optional
        The first seed of a number of schedules, and how many to play of all.
    replay : bool
        Whether to look for a schedule that shows each hazard, and to print what it changes.
    reproducers : Path, optional
        The folder to write a script for each hazard to, which looks for it on a GPU.

    Returns
    -------
    int
        1 if there are hazards, or schedules that come to something else, else 2 if the script failed, else 0.
    """
    from cutepy.cli.simulate import execute, summarise
    from cutepy.frontends import serve_cuda
    from cutepy.sim.sanitize import Hazards
    from cutepy.sim.sanitize.assembler import asked_of_all
    from cutepy.sim.sanitize.everywhere import everywhere

    # What the script prints is not the report: it goes where errors do.
    alone = contextlib.redirect_stdout(sys.stderr) if form and output is None else contextlib.nullcontext()
    keeps = replay or reproducers is not None
    serving = serve_cuda(sanitize=True, ctas=ctas, schedules=schedules, seed=seed, limit=limit, replay=keeps)
    with asked_of_all(), serving as simulation:
        others: list[Run] = []  # the script's own
        with alone, everywhere(others):
            code = execute(script, arguments, echo)
        summarise(simulation, echo, inspect=False)
        runs = [simulation, *others]
        if not any(run.launches for run in runs):
            echo("cutepy: nothing was watched: no kernel was launched in this process, and in others none is watched")
            code = code or FAILED
        hazards = Hazards((h for run in runs for h in run.hazards.every), simulation.hazards.unused)
        certificates = Counter(certificate for run in runs for certificate in run.certificates)
        explorations = [explored for run in runs for explored in run.explorations]
        for explored in explorations:
            echo(f"cutepy: {explored}")
        differ = any(explored.divergences for explored in explorations)
        _witnesses(hazards, echo, replay, reproducers)
        simulation.restart()  # they are told here, and not raised
    if output is not None:
        output.write_text(_written(hazards, certificates, form or "text") + "\n", encoding="utf-8")
    elif form:
        print(_written(hazards, certificates, form))
    if output is not None or form is None:
        show(hazards)
        for certificate, times in certificates.items():
            echo(f"cutepy: {certificate}" + (f"\n    {times} launches" if times > 1 else ""))
    return 1 if hazards or differ else FAILED if code else 0


def _witnesses(hazards: Hazards, echo: Callable[[str], None], replay: bool, reproducers: Path | None) -> None:
    """Play each hazard, and write what looks for it on a GPU."""
    for number, hazard in enumerate(hazards):
        if replay:
            echo(f"cutepy: witness {number}: {hazard.replay()}")
        if reproducers is not None:
            reproducers.mkdir(parents=True, exist_ok=True)
            path = hazard.reproducer(reproducers / f"{number:02}_{hazard.kind.replace('-', '_')}.py")
            echo(f"cutepy: reproducer {number}: {path}")


def _written(hazards: Hazards, certificates: Counter[Certificate], form: Format) -> str:
    if form == "text":
        return str(hazards)
    if form == "sarif":
        return json.dumps(hazards.to_sarif(), indent=1)
    certified = [one.to_json() | {"launches": times} for one, times in certificates.items()]
    return json.dumps(hazards.to_json() | {"certificates": certified}, indent=1)


def show(hazards: Hazards) -> None:
    """Write a report to standard error: in colour on a terminal, unless NO_COLOR is set."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for line in hazards.lines:
        console.print(Text.assemble(*line) if line else "")
