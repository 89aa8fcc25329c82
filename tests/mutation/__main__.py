"""`python -m tests.mutation cutepy/host --count 60`: change the code in one place, and list what no test notices.

Which tests reach which line is measured once, under coverage, and remembered. A mutant meets those that reach its line,
those of its own room first, up to a failure, or until the rest would take too long; one that hangs counts as noticed.
All is done in copies of the checkout, and tests that fail without any mutant are left out. The status is 1 if a mutant
survives that survivors.md does not explain.

Of what else there is, mutmut puts variants of functions behind a switch, which code that the DSL reads again from its
source doesn't see, and neither it nor cosmic-ray picks tests by the line.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import itertools
import json
import os
import queue
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import coverage

from tests.mutation.server import functions_of
from tests.mutation.sites import Mutant, mutants

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build/mutation"
SURVIVORS = Path(__file__).with_name("survivors.md")
PYTEST = (
    "-m",
    "pytest",
    "-q",
    "-p",
    "tests.mutation.plugin",
    "-p",
    "no:cacheprovider",
    "--hypothesis-profile=mutation",
)

UNSURE = ("survived", "unreached", "timeout", "died")
"""Verdicts of a fork after which a mutant is tried in a process of its own."""

ENDED = {0: "survived", 5: "unreached"}
"""Verdicts by pytest's status, 5 where the options in PYTEST_ADDOPTS leave no test; "killed" by any other."""

Reached = dict[str, dict[int, list[str]]]
"""File -> line -> test functions, `path::name`; line 0 holds every test of the file."""
Seconds = dict[str, float]
"""Test function -> what it took, under coverage."""


def main(arguments: list[str] | None = None) -> int:
    """Try mutants; report the survivors."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("rooms", nargs="*", default=["layouts"], help="folders or files (default: layouts)")
    parser.add_argument("--count", type=int, help="only a random sample of so many mutants")
    parser.add_argument("--seed", type=int, help="of the sample (default: another one each time, printed)")
    parser.add_argument("--suite", nargs="+", default=["tests"], help="the tests to try with (default: all)")
    parser.add_argument("--remeasure", action="store_true", help="find out again which tests reach which lines")
    parser.add_argument("--last", action="store_true", help="believe the last measurement, though code changed since")
    parser.add_argument("--matching", default="", metavar="REGEX", help="only mutants whose names have a match")
    parser.add_argument(
        "--fork",
        action="store_true",
        help="try in forks of one process first, which is faster; what no fork sees is tried again as without",
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=300, help="of tests for one mutant (default: %(default)s)")
    options = parser.parse_args(arguments)
    reached, seconds = measured(options.suite, options.jobs, again=options.remeasure, last=options.last)
    found = [mutant for room in options.rooms for file in sources(room) for mutant in mutants(file, read(file))]
    found = [mutant for mutant in found if re.search(options.matching, mutant.name)]
    seed = random.randrange(1 << 32) if options.seed is None else options.seed
    if options.count is not None and options.count < len(found):
        print(f"{options.count} of {len(found)} mutants: --seed {seed}")
        found = random.Random(seed).sample(found, options.count)
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        places: queue.Queue[Tree] = queue.Queue()
        killers: Counter[str] = Counter()

        def prepare(job: int) -> None:
            tree = copied(Path(folder) / str(job))
            places.put(Server(tree, options.suite) if options.fork else Tree(tree))

        def attempt(mutant: Mutant) -> str:
            place = places.get()
            try:
                tests = within(tests_of(mutant, reached, seconds), seconds, options.seconds)
                tests.sort(key=lambda test: -(0.3 + killers[test]) / (0.1 + seconds.get(test, 0.0)))
                limit = 60 + 3 * sum(seconds.get(test, 0.0) for test in tests)
                told = place.tried(mutant, tests, limit)
                verdict = told if told in ("survived", "unreached", "timeout") else "killed"
                killers[told.partition("[")[0]] += verdict == "killed"
                print(f"{verdict}: {mutant.name}{f'  by {told}' if verdict != told else ''}", flush=True)
                return verdict
            finally:
                places.put(place)

        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(prepare, range(options.jobs)))
            verdicts = dict(zip(found, pool.map(attempt, found), strict=True))
    return report(verdicts)


def sources(room: str) -> list[str]:
    """Give the files of a room, relative to the checkout; `cutepy/layouts` is `layouts`."""
    path = (ROOT / room).resolve()
    if not path.exists():
        raise SystemExit(f"no such folder or file: {room}")
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return [str(file.relative_to(ROOT)) for file in files]


def read(file: str) -> str:
    """Read a file of the checkout."""
    return (ROOT / file).read_text()


def copied(tree: Path) -> Path:
    """Copy what git knows of the checkout, with what it doesn't ignore."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0"):
        if name and os.path.lexists(ROOT / name) and (not (ROOT / name).is_symlink() or name.startswith("cutepy/")):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name, follow_symlinks=False)
    return tree


def environment(tree: Path) -> dict[str, str]:
    """Give the environment in which a copy's tests run: with its own code and cache, and no stale bytecode."""
    own = {"PYTHONPATH": f"{tree}{os.pathsep}{os.environ.get('PYTHONPATH', '')}", "CUTEPY_CACHE_DIR": f"{tree}/.cache"}
    return os.environ | own | {"PYTHONDONTWRITEBYTECODE": "1"}


# --------------------------------------------------------------------------------------------------------------------
# Which tests reach which line


def measured(suite: list[str], jobs: int, *, again: bool, last: bool = False) -> tuple[Reached, Seconds]:
    """Run the tests once under coverage, or remember what that said, of this code or the last time."""
    how = " ".join([*sorted(suite), os.environ.get("PYTEST_ADDOPTS", "")])
    listed = [how.encode(), *(read(f).encode() for f in sources("cutepy") + sources("tests"))]
    known = BUILD / f"reached-{hashlib.sha256(b''.join(listed)).hexdigest()[:8]}.json"
    if last:
        known = max(BUILD.glob("reached-*.json"), key=os.path.getmtime, default=known)
    if not known.exists() or again:
        print(f"which tests reach which line of code: all of {' '.join(suite)} run once", flush=True)
        BUILD.mkdir(parents=True, exist_ok=True)
        known.write_text(json.dumps(_measured(suite, jobs)))
    told = json.loads(known.read_text())
    return {f: {int(n): tests for n, tests in lines.items()} for f, lines in told["reached"].items()}, told["seconds"]


def _measured(suite: list[str], jobs: int) -> dict[str, object]:
    lines: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    seconds: Seconds = {}
    failed: set[str] = set()
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        tree = copied(Path(folder) / "tree")
        command = [sys.executable, *PYTEST, "-n", str(jobs), "--dist=worksteal", *suite]
        subprocess.run(command, cwd=tree, env=environment(tree) | {"MUTATION_COVERAGE": folder}, check=False)
        for part in Path(folder).glob("told.*"):
            told = json.loads(part.read_text())
            seconds |= told["seconds"]
            failed |= set(told["failed"])
        for part in Path(folder).glob("coverage.*"):
            data = coverage.CoverageData(basename=str(part))
            data.read()
            for file in data.measured_files():
                path = Path(file).resolve()
                if path.is_relative_to(tree.resolve()):
                    for line, tests in data.contexts_by_lineno(file).items():
                        lines[str(path.relative_to(tree.resolve()))][line] |= set(tests) - {""} - failed
    if not seconds:
        raise SystemExit(f"no test ran: {' '.join(command)}")
    for test in sorted(failed):
        print(f"left out, as it fails without any mutant: {test}", flush=True)
    reached = {f: {n: sorted(tests) for n, tests in by_line.items()} for f, by_line in lines.items()}
    for by_line in reached.values():
        by_line[0] = sorted({test for tests in by_line.values() for test in tests})
    return {"reached": reached, "seconds": seconds}


def tests_of(mutant: Mutant, reached: Reached, seconds: Seconds) -> list[str]:
    """Give the tests that reach a mutant's line; its room's and fast ones first.

    If it runs at import, those are all of its file, and its own tests, which may read constants and run nothing of it.
    """
    file = mutant.name.partition(":")[0]
    lines = reached.get(file, {})
    room = f"tests/{Path(file).parent}/".replace("tests/cutepy/", "tests/")
    own = f"test_{Path(file).stem}"
    found = lines.get(mutant.line) or {*lines.get(0, []), *(test for test in seconds if f"{room}{own}.py" in test)}
    return sorted(found, key=lambda test: (own not in test, not test.startswith(room), seconds.get(test, 0.0), test))


def within(tests: list[str], seconds: Seconds, limit: float) -> list[str]:
    """Give the first tests, as many as together take no longer than a limit, and at least one."""
    ends = itertools.accumulate(seconds.get(test, 0.0) for test in tests)
    return [test for n, (test, end) in enumerate(zip(tests, ends, strict=True)) if end <= limit or n == 0]


# --------------------------------------------------------------------------------------------------------------------
# Trying mutants


class Tree:
    """A copy of the checkout, in which mutants are tried."""

    def __init__(self, tree: Path) -> None:
        self._tree = tree

    def tried(self, mutant: Mutant, tests: list[str], seconds: float) -> str:
        """Run the tests with a mutant; gives the test that fails, "killed", "timeout", "survived" or "unreached"."""
        if not tests:
            return "unreached"
        file = self._tree / mutant.name.partition(":")[0]
        before = file.read_text()
        file.write_text(mutant.text)
        try:
            return self._verdict(file, before, mutant.text, tests, seconds)
        finally:
            file.write_text(before)

    def _verdict(self, file: Path, before: str, after: str, tests: list[str], seconds: float) -> str:
        names, failure = self._tree / ".tests", self._tree / ".failure"
        names.write_text("\n".join(tests))
        failure.unlink(missing_ok=True)
        command = [sys.executable, *PYTEST, "-x", "--assert=plain", f"@{names}"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        own = environment(self._tree) | {"MUTATION_FAILURE": str(failure)}
        process = subprocess.Popen(command, cwd=self._tree, env=own, start_new_session=True, **quiet)  # type: ignore[call-overload]
        try:
            verdict = ENDED.get(process.wait(seconds), "killed")
            return failure.read_text() if verdict == "killed" and failure.exists() else verdict
        except subprocess.TimeoutExpired:
            return "timeout"
        finally:
            os.killpg(process.pid, signal.SIGKILL) if process.poll() is None else None
            process.wait()


class Server(Tree):
    """A process that has collected the tests of a copy, and tries mutants in forks of itself.

    A fork doesn't see a change in code that the DSL traces from its source, or that other processes run, and may hang
    where a thread of its parent held a lock: a mutant that survives in a fork, or hangs, is tried in a process too.
    """

    def __init__(self, tree: Path, suite: list[str]) -> None:
        super().__init__(tree)
        answers, tell = os.pipe()
        command = [sys.executable, *PYTEST, "-p", "tests.mutation.server", "-s", "-n0", "--assert=plain", *suite]
        self._process = subprocess.Popen(
            command,
            cwd=tree,
            env=environment(tree) | {"MUTATION_ANSWERS": str(tell)},
            pass_fds=[tell],
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(tell)
        self._answers = os.fdopen(answers)
        if not self._answers.readline():
            raise SystemExit(f"the tests of {' '.join(suite)} cannot be collected")

    def _verdict(self, file: Path, before: str, after: str, tests: list[str], seconds: float) -> str:
        if functions_of(before, str(file)) == functions_of(after, str(file)):  # only what runs at import differs
            return super()._verdict(file, before, after, tests, seconds)
        asked = {"file": str(file), "before": before, "after": after, "tests": tests, "seconds": seconds}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        told = self._answers.readline().strip()
        return super()._verdict(file, before, after, tests, seconds) if told in UNSURE else told


def report(verdicts: dict[Mutant, str]) -> int:
    """Print the survivors with what they changed, and the totals."""
    explained = set(re.findall(r"^- (\S+\.py: .*?) {2}", SURVIVORS.read_text(), re.MULTILINE))
    totals = Counter(verdicts.values())
    alive = {m: verdict for m, verdict in verdicts.items() if verdict in ("survived", "unreached")}
    open_ones = {m: verdict for m, verdict in alive.items() if m.name not in explained}
    for mutant, verdict in sorted(open_ones.items(), key=lambda item: item[0].name):
        file = mutant.name.partition(":")[0]
        print(f"\n{file}:{mutant.line} {verdict}\n- {mutant.name}")
        changes = difflib.unified_diff(read(file).splitlines(), mutant.text.splitlines(), lineterm="", n=0)
        print("\n".join(f"    {line}" for line in list(changes)[3:]))
    killed = totals["killed"] + totals["timeout"]
    counted = len(verdicts) - len(alive) + len(open_ones)
    print(f"\n{len(verdicts)} mutants: {dict(totals)}, of the survivors {len(alive) - len(open_ones)} explained")
    print(f"{killed / max(counted, 1):.1%} killed of all but the explained")
    return int(bool(open_ones))


if __name__ == "__main__":
    sys.exit(main())
