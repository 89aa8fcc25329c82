"""Scripts for a GPU, one for each mistake and one for what mends it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from contextlib import chdir, redirect_stdout, suppress
from dataclasses import replace
from io import StringIO
from pathlib import Path
from runpy import run_path
from unittest import mock

import numpy as np

from cutepy.frontends import load_ptx
from cutepy.frontends.backend import Simulator
from cutepy.frontends.dsl.execution import executing_on
from cutepy.sim import Run
from cutepy.sim.replay.episodes import Episode
from cutepy.sim.replay.reproducers import gpu_driver
from cutepy.sim.replay.reproducers.scripts import write_script
from cutepy.sim.sanitize import HazardError
from cutepy.sim.sanitize.hazards import Hazard, Side
from tests.docs.hazard_pages import mended, pages, script
from tests.sim.confirm.mistakes import FROM_PAGES, MISTAKES, Mistake, PageMistake

_HERE = Path(__file__).parent


def simulated(mistake: Mistake, ptx: str) -> Run:
    """Run a kernel on 1, 2, 3, ..., with the sanitizer."""
    run = Run((), None, sanitize=True, replay=True)
    with executing_on(Simulator(run)):
        x, y = np.arange(1, mistake.words + 1, dtype=np.uint32), np.zeros(mistake.words, np.uint32)
        load_ptx(ptx).launch("k", mistake.grid, mistake.block, (x, y))
    return run


def script_of(mistake: PageMistake, is_mended: bool) -> tuple[str, str]:
    """Return the script of a page with its changes, and the name of its file."""
    page = pages()[mistake.kind]
    text, name = script(page)
    changes = mistake.change
    if is_mended and mistake.mend is None:
        text = mended(page)
    elif is_mended:
        changes += mistake.mend or ()
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text, name


def executed(text: str, name: str) -> Run:
    """Run a script of a page, and return its run."""
    text = text.replace("simulate(sanitize=True)", "simulate(sanitize=True, replay=True)")
    runs: list[Run] = []
    whole = Run.check_hazards

    def noted(run: Run) -> None:
        runs.append(run)
        whole(run)

    with tempfile.TemporaryDirectory() as folder, chdir(folder), redirect_stdout(StringIO()):
        Path(name).write_text(text, encoding="utf-8")
        with mock.patch.object(Run, "check_hazards", noted), suppress(HazardError):
            run_path(name, run_name="__main__")
    return runs[-1]


def run_of(mistake: Mistake | PageMistake, is_mended: bool) -> Run:
    """Run the kernels of a mistake, or what mends it."""
    if isinstance(mistake, Mistake):
        return simulated(mistake, mistake.mended if is_mended else mistake.ptx)
    return executed(*script_of(mistake, is_mended))


def hazard_of(run: Run, kind: str) -> Hazard:
    """Return the first hazard of a kind."""
    return next(hazard for hazard in run.hazards if hazard.kind == kind)


def write_mended(hazard: Hazard, old: Episode, run: Run, path: Path) -> None:
    """Write a script with the delays of a hazard for launches that do not have it."""
    recent = list(run._replays._recent)
    new = Episode(tuple(recent[len(recent) - len(old.parts) :]))
    sides = [None if side is None else _there(side, old, new) for side in (hazard.before, hazard.after)]
    assert sides[1] is not None
    stand_in = replace(hazard, before=sides[0], after=sides[1], replays=None)
    write_script(stand_in, new, [], path)


def _there(side: Side, old: Episode, new: Episode) -> Side:
    """Return where a side is in other launches: at the same text, or nowhere."""
    at = next((n for n, part in enumerate(old.parts) if part.launch is side.launch), -1)
    one, other = (e.parts[at].launch.entry.function for e in (old, new))
    launch = None if side.launch is None else new.parts[at].launch
    if side.instruction is None:
        return replace(side, launch=launch)
    text = side.instruction.text
    number = [i.index for i in one.instructions if i.text == text].index(side.instruction.index)
    same = [i for i in other.instructions if i.text == text]
    return replace(side, instruction=same[min(number, len(same) - 1)] if same else None, launch=launch)


def write(folder: Path, only: Sequence[str] = ()) -> None:
    """Write all scripts, a list of them, and what runs them."""
    folder.mkdir(parents=True, exist_ok=True)
    cases = []
    for number, (name, mistake) in enumerate({**MISTAKES, **FROM_PAGES}.items()):
        if only and mistake.kind not in only:
            continue
        run = run_of(mistake, is_mended=False)
        hazard = hazard_of(run, mistake.kind)
        stem = f"{number:02}_{mistake.kind.replace('-', '_')}"
        hazard.reproducer(folder / f"{stem}.py")
        whole = run_of(mistake, is_mended=True)
        assert not whole.hazards, f"{mistake.kind}: mended, there is still {whole.hazards}"
        write_mended(hazard, run._replays._launches_of(hazard), whole, folder / f"{stem}_mended.py")
        witness = str(hazard.replay())
        cases.append({"name": name, "kind": mistake.kind, "script": stem, "shown": mistake.shown, "witness": witness})
        print(stem, flush=True)
    (folder / "cases.json").write_text(json.dumps(cases, indent=1))
    for path in (*(_HERE / "on_a_gpu").glob("*.py"), Path(gpu_driver.__file__)):
        (folder / path.name).write_text(
            path.read_text().replace("cutepy.sim.replay.reproducers.gpu_driver", "gpu_driver")
        )
