"""Which test functions run which line of `layouts/`, from one run of the suite under coverage."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import coverage

ROOT = Path(__file__).parents[2]
SUITE = ("tests/layouts", "tests/testing")
"""Where the tests of `layouts/` are."""
OPTIONS = (
    "-p",
    "tests.mutation.plugin",
    "-p",
    "no:cacheprovider",
    "--assert=plain",
    "-q",
    "-m",
    "not deep and not dsl and not gpu and not multigpu",
)
PROFILE = "--hypothesis-profile=mutation"

Reached = dict[str, dict[int, list[str]]]
"""Module path below `layouts/` -> line -> test functions, `path::name`; line 0 holds every test of the module."""


def measure(folder: Path) -> Reached:
    """Run the suite once under coverage and return what reaches what; kept in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    data, settings = folder / "coverage.data", folder / "coverage.ini"
    settings.write_text(f"[run]\nsource = {ROOT / 'cutepy/layouts'}\n  {ROOT / 'layouts'}\n")
    command = [sys.executable, "-m", "coverage", "run", f"--rcfile={settings}", f"--data-file={data}", "-m", "pytest"]
    done = subprocess.run([*command, *OPTIONS, PROFILE, *_present()], cwd=ROOT, check=False)
    if done.returncode != 0:
        raise RuntimeError("the suite must pass before mutants are tried")
    reached = _read(data)
    (folder / "reached.json").write_text(json.dumps(reached))
    return reached


def _present() -> list[str]:
    return [folder for folder in SUITE if (ROOT / folder).is_dir()]


def load(folder: Path) -> Reached | None:
    """What an earlier run measured, if any."""
    path = folder / "reached.json"
    if not path.exists():
        return None
    return {m: {int(line): tests for line, tests in lines.items()} for m, lines in json.loads(path.read_text()).items()}


def _read(data: Path) -> Reached:
    measured = coverage.CoverageData(basename=str(data))
    measured.read()
    reached: Reached = {}
    for file in measured.measured_files():
        _, _, below = file.rpartition("/layouts/")
        lines = defaultdict(list)
        for line, contexts in measured.contexts_by_lineno(file).items():
            lines[line] = sorted(set(contexts) - {""})
        lines[0] = sorted({test for tests in lines.values() for test in tests})
        reached[below] = dict(lines)
    return reached
