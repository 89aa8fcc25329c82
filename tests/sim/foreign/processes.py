"""Runs sources in processes of their own, and ends what takes too long."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.sim.foreign import catalogue
from tests.sim.foreign.sources import Source, plain

_POLL_SECONDS = 0.2
_ROOT, _CHILD = Path(__file__).parents[3], Path(__file__).with_name("child.py")


@dataclass(frozen=True)
class Choice:
    """The part of a large test suite that is run, and its time limit.

    Attributes
    ----------
    sets : int
        Parameter sets of each test, drawn at random.
    extent : int
        Sets with larger integers are left out, unless a test has no others: then the least large is run.
    seed : int
    seconds : float
        For each case.
    folders : tuple of Path
        What sources may import from, beside their own.
    schedules : int, optional
        Sanitize, and play so many seeded schedules of each kernel.
    arch : str
        Architecture of the simulated GPU.
    """

    sets: int = 2
    extent: int = 512
    seed: int = 0
    seconds: float = 300
    folders: tuple[Path, ...] = ()
    schedules: int | None = None
    arch: str = "sm_90a"

    @property
    def settings(self) -> Mapping[str, str]:
        """Of the environment; what sanitizes serves the device itself."""
        sanitized = {"PYTEST_ADDOPTS": ""} if self.schedules is not None else {}
        return {**catalogue.SETTINGS, "CUTE_DSL_ARCH": self.arch, **sanitized}


def examine(
    source: Source,
    choice: Choice,
    done: frozenset[str],
    write: Callable[[dict[str, Any]], None],
    core: int | None = None,
) -> None:
    """Run a source, but the cases that are done, and hand over what becomes of each case; on one core, if it is given.

    Of a file of tests, one that dies or takes too long ends the process; another one goes on with the rest.
    """
    facts = {"suite": source.suite, "source": source.name}
    outcome, reason = catalogue.not_tried(plain(source.path), choice.arch)
    if outcome:
        write({**facts, "case": source.name, "outcome": outcome, "reason": reason, "seconds": 0})
        return
    goes_on = True
    while goes_on:
        goes_on = False
        for found in _process(source, choice, done, core):
            goes_on |= found.pop("stopped", False) and source.kind == "pytest" and found["case"] != source.name
            done |= {found["case"]}
            write({**facts, **found})


def _process(source: Source, choice: Choice, done: frozenset[str], core: int | None) -> list[dict[str, Any]]:
    """Run one process to its end, or until a case has taken its time."""
    with tempfile.TemporaryDirectory() as temporary:
        record, errors = Path(temporary, "record"), Path(temporary, "stderr")
        record.touch()
        where = plain(source.path)
        given = {
            **{"kind": source.kind, "path": str(source.path), "root": str(source.root), "arguments": source.arguments},
            **{"core": core, "case": source.name, "record": str(record), "done": sorted(done)},
            **{"sets": choice.sets, "extent": choice.extent, "seed": choice.seed, "schedules": choice.schedules},
            **{"tests": [f"{source.path}::{source.arguments}"] if source.kind == "pytest" and source.arguments else []},
            **{
                "exact": catalogue.exact(where),
                "first": catalogue.first(where),
                "sizes": catalogue.sizes(where),
                "raises": catalogue.raises(where),
            },
        }
        imported = Path(temporary, "imported")
        imported.mkdir()
        (imported / "cutepy").symlink_to(_ROOT / "cutepy")
        with errors.open("w") as output:
            process = subprocess.Popen(
                [sys.executable, str(_CHILD), json.dumps(given)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=temporary,
                env=environment(imported, source.root, *choice.folders, settings=choice.settings),
                start_new_session=True,
            )
            try:
                seconds = _watch(process, record, choice.seconds)
            finally:
                _end(process)
        lines = [json.loads(line) for line in record.read_text().splitlines()]
        said = [line for line in errors.read_text(errors="replace").splitlines() if line.strip()]
    ended = [line for line in lines if "case" in line]
    case = (lines[-1].get("began") if lines else None) or source.name
    stopped: dict[str, Any] = {"case": case, "seconds": round(seconds or 0, 1), "stopped": True}
    if seconds is not None:
        return [*ended, {**stopped, "outcome": "timed out", "reason": f"after {choice.seconds:.0f} s"}]
    if process.returncode < 0 or not (ended or source.kind == "pytest"):
        reason = f"died with {process.returncode}: {(said or [''])[-1][:200]}"
        return [*ended, {**stopped, "outcome": "refused", "reason": reason}]
    return ended


def _watch(process: subprocess.Popen[bytes], record: Path, limit: float) -> float | None:
    """Wait for the end; return how long a case took that takes too long."""
    size, since = 0, time.monotonic()
    while process.poll() is None:
        if record.stat().st_size != size:
            size, since = record.stat().st_size, time.monotonic()
        elif time.monotonic() - since > limit:
            return time.monotonic() - since
        time.sleep(_POLL_SECONDS)
    return None


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and those that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def environment(*folders: Path, settings: Mapping[str, str] = catalogue.SETTINGS) -> dict[str, str]:
    """Return the variables in which sources run: they import from the folders, but nothing from this repository's.

    It has packages of common names (`kernels`, `tests`), which others look for too.
    """
    own = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and Path(path) != _ROOT]
    return {**os.environ, **settings, "PYTHONPATH": os.pathsep.join([*map(str, folders), *own])}
