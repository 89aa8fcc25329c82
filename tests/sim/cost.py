"""Cost of sanitizing scripts: the CPU's seconds of their launches under `cutepy sanitize`, and under `cutepy simulate`.

    python -m tests.sim.cost [--times N] [--profile FILE] [--limit RATIO] SCRIPT_OR_FOLDER_OR_LIST...

Each script runs unmodified, once in a process for each of the two, with the device `cuda` served from host memory. A
folder means all of its `.py` files; a script with arguments is one word, `"gemm.py --mnk 256,256,64"`; a file whose
name ends in `.txt` has one of these in each line. Counted is the time of launches only, in this process and in those
that it started, such as the assembler's: neither the script's own time nor that of compilers of its kernels.

A row has the ratio, and the seconds of both. With `--times 2` the script is sanitized twice, and there are two rows:
the first one's caches, in `CUTEPY_CACHE_DIR`, help the second. The exit code tells whether any ratio is above
`--limit`, or a script failed under the sanitizer: what it prints is in `--logs`. With `--profile` the profile of the
last script's sanitized launches is written to a file.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import resource
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

_FEWEST_SECONDS = 0.02
"""Simulated, below which a ratio says nothing."""


def _cpu_seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


class _Clock:
    """Measures what methods take, each within another once.

    Attributes
    ----------
    seconds : float
        The CPU's.
    calls : dict of str to int
        By the name of the method.
    """

    def __init__(self, profile: cProfile.Profile | None) -> None:
        self.seconds, self.calls = 0.0, dict[str, int]()
        self._profile, self._depth = profile, 0

    def measure(self, owner: type, name: str) -> None:
        """Measure a method, or a property, from now on."""
        held = vars(owner)[name]
        original = held.fget if isinstance(held, property) else held

        def measured(*given: Any, **named: Any) -> Any:
            if self._depth:
                return original(*given, **named)
            self.calls[name] = self.calls.get(name, 0) + 1
            self._depth, before = 1, _cpu_seconds()
            if self._profile is not None:
                self._profile.enable()
            try:
                return original(*given, **named)
            finally:
                if self._profile is not None:
                    self._profile.disable()
                self.seconds += _cpu_seconds() - before
                self._depth = 0

        setattr(owner, name, property(measured) if isinstance(held, property) else measured)


def _child(how: str, output: Path, profile: str, script: str, *arguments: str) -> None:
    """Run a script, and write what its launches took."""
    from cutepy.cli import sanitize, simulate
    from cutepy.cli.scripts import Script
    from cutepy.sim import run as of_runs

    of_runs.default_processes = lambda: 1  # type: ignore[attr-defined]
    profiled = cProfile.Profile(time.process_time) if profile else None  # others may be using the machine
    clock = _Clock(profiled)
    for name in ("launch", "hazards", "certificates"):
        clock.measure(of_runs.Run, name)
    given = Script(Path(script), arguments, lambda line: print(line, file=sys.stderr))
    found: dict[str, Any] = {}
    try:
        if how == "sanitize":
            found["code"] = sanitize.run(given, "json", output.with_suffix(".report"))
        else:
            found["code"] = simulate.run(given)
    finally:
        found |= {"seconds": clock.seconds, "launches": clock.calls.get("launch", 0)}
        output.write_text(json.dumps(found))
        if profiled is not None:
            profiled.dump_stats(profile)


def _run(how: str, words: list[str], folder: Path, profile: str = "") -> dict[str, Any]:
    """Run a script in another process, and return what its launches took."""
    output = folder / f"{how}.json"
    output.unlink(missing_ok=True)
    command = [sys.executable, "-m", "tests.sim.cost", "--child", how, str(output), profile, *words]
    with (folder / f"{how}.log").open("w") as log:
        subprocess.run(command, stdout=log, stderr=log, check=False)
    found: dict[str, Any] = json.loads(output.read_text()) if output.exists() else {"seconds": 0.0, "launches": 0}
    return found


def _cases(sources: list[str]) -> list[list[str]]:
    """Return the words of each command, as a shell reads them."""
    cases: list[list[str]] = []
    for source in sources:
        path = Path(source)
        if path.is_dir():
            cases += [[str(script)] for script in sorted(path.rglob("*.py"))]
        elif path.suffix == ".txt" and path.exists():
            lines = path.read_text().splitlines()
            cases += [shlex.split(os.path.expandvars(line)) for line in lines if line and not line.startswith("#")]
        else:
            cases.append(shlex.split(source))
    return cases


def main() -> int:
    """Measure what is given; the exit code tells whether a ratio is above the limit."""
    if sys.argv[1:2] == ["--child"]:
        how, output, profile, *words = sys.argv[2:]
        _child(how, Path(output), profile, *words)
        return 0
    parser = argparse.ArgumentParser(
        prog="python -m tests.sim.cost", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sources", nargs="+", help="scripts with their arguments, folders, and .txt files of these")
    parser.add_argument("--times", type=int, default=1, help="how often each script is sanitized (%(default)s)")
    parser.add_argument("--profile", default="", help="file for the profile of the last script that is sanitized")
    parser.add_argument("--limit", type=float, default=8.0, help="ratio that is too much (%(default)s)")
    parser.add_argument("--logs", type=Path, default=Path("cost"), help="folder for what scripts print (%(default)s)")
    asked = parser.parse_args()
    above = 0
    asked.logs.mkdir(parents=True, exist_ok=True)
    for words in _cases(asked.sources):
        simulated = _run("simulate", words, asked.logs)
        for _ in range(asked.times):
            sanitized = _run("sanitize", words, asked.logs, asked.profile)
            ratio = sanitized["seconds"] / max(simulated["seconds"], _FEWEST_SECONDS)
            codes = f"exit codes {simulated.get('code')} and {sanitized.get('code')}"
            seconds = f"{simulated['seconds']:7.2f} s {sanitized['seconds']:7.2f} s"
            name = " ".join(["/".join(Path(words[0]).parts[-2:]), *words[1:]])
            print(f"{ratio:5.1f}x {seconds} {sanitized['launches']:4d} launches  {name}  ({codes})", flush=True)
            above += ratio > asked.limit or sanitized.get("code") not in (0, 1)
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
