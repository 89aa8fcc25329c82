"""`python -m tests.mutation`: mutate `layouts/`, one change at a time, and list the mutants that no test notices.

Results are kept in build/mutation, so a stopped run goes on; a module's results are dropped when its source changes.
Survivors that are listed with a reason in survivors.md are explained; the exit status is 1 while any is not.
With `--sample 0.3`, only the mutants whose name hashes into that share are tried and reported; a larger share holds
every mutant of a smaller one, so a sample grows by another run. With `--tests 100`, what the first 100 test functions
that reach a mutant miss is a survivor, so the share killed is a lower bound.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import multiprocessing
import os
import re
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import hypothesis.strategies  # noqa: F401 - loaded before forking, once for all mutants
import pytest  # noqa: F401

from tests.mutation.sites import Mutant, mutants
from tests.mutation.tests_by_line import ROOT, Reached, load, measure
from tests.mutation.trial import Verdict, attempt

LAYOUTS = ROOT / "layouts"
BUILD = ROOT / "build/mutation"
SURVIVORS = Path(__file__).with_name("survivors.md")
_EVERY_SM90 = 12  # the share of the larger files of vectors that each mutant meets before the tests


def main(arguments: list[str] | None = None) -> int:
    """Try every mutant that has no result yet; report the survivors."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("files", nargs="*", help="modules below layouts/ (default: all)")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--again", action="store_true", help="try unexplained survivors again: tests have changed")
    parser.add_argument("--remeasure", action="store_true", help="find out again which tests reach which lines")
    parser.add_argument("--report", action="store_true", help="only report what earlier runs found")
    parser.add_argument("--sample", type=_share, default=1.0, metavar="SHARE", help="only this share of the mutants")
    parser.add_argument("--tests", type=int, metavar="N", help="at most N test functions for a mutant")
    options = parser.parse_args(arguments)
    files = [LAYOUTS / f for f in options.files] or sorted(LAYOUTS.rglob("*.py"))
    if not options.report:
        reached = (None if options.remeasure else load(BUILD)) or measure(BUILD)
        workers = [
            multiprocessing.Process(target=_work, args=(files, job, reached, options)) for job in range(options.jobs)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if any(worker.exitcode for worker in workers):
            return 2
    return _report(files, options.sample)


def _share(text: str) -> float:
    share = float(text)
    if not 0 < share <= 1:
        raise argparse.ArgumentTypeError(f"a share lies above 0 and up to 1, got {text}")
    return share


# --------------------------------------------------------------------------------------------------------------------
# Trying mutants


def _chosen(file: Path, tree: ast.Module, share: float) -> list[Mutant]:
    """The mutants of a file whose names hash into the share."""

    def place(mutant: Mutant) -> float:
        return int.from_bytes(hashlib.sha256(mutant.name.encode()).digest()[:4], "big") / 2**32

    return [mutant for mutant in mutants(_below(file), tree) if place(mutant) < share]


def _work(files: list[Path], job: int, reached: Reached, options: argparse.Namespace) -> None:
    """Try every `jobs`-th mutant of every file."""
    rows, explained = _vectors(), _explained()
    for place, file in enumerate(files):
        digest, known = _results(file)
        path = _results_path(file, job)
        path.parent.mkdir(parents=True, exist_ok=True)
        tree = ast.parse(file.read_text(), str(file))
        chosen = _chosen(file, tree, options.sample)
        undecided = {None, Verdict.SURVIVED} if options.again else {None}
        if place % options.jobs == job and any(known.get(mutant.name) in undecided for mutant in chosen):
            _check_baseline(file, tree, rows, reached, every=place < options.jobs)
        with path.open("a") as results:
            for mutant in chosen[job :: options.jobs]:
                done = known.get(mutant.name)
                if done not in undecided or (done is not None and mutant.name in explained):
                    continue
                started = time.monotonic()
                verdict = _fork(file, tree, mutant, rows, _tests(file, mutant, reached)[: options.tests])
                if verdict == Verdict.BROKEN:
                    print(f"the trial itself failed, the mutant stays untried: {mutant.name}", file=sys.stderr)
                    continue
                row = {"digest": digest, "name": mutant.name, "line": mutant.line, "verdict": verdict}
                results.write(json.dumps({**row, "seconds": round(time.monotonic() - started, 2)}) + "\n")
                results.flush()


def _fork(file: Path, tree: ast.Module, mutant: Mutant, rows: list[dict[str, Any]], tests: list[str]) -> Verdict:
    """Change the tree, import and try it in a child: the parent's tree stays as it is."""
    child = os.fork()
    if child == 0:
        verdict = Verdict.BROKEN
        try:
            mutant.apply()
            module = "cutepy.layouts." + _below(file).removesuffix(".py").replace("/", ".").removesuffix("__init__")
            verdict = attempt(module.rstrip("."), tree, str(file), rows, tests)
        finally:
            os._exit(verdict)
    _, status = os.waitpid(child, 0)
    return Verdict.TIMEOUT if os.WIFSIGNALED(status) else Verdict(os.WEXITSTATUS(status))


def _check_baseline(file: Path, tree: ast.Module, rows: list[dict[str, Any]], reached: Reached, *, every: bool) -> None:
    """The module as it is must survive, or every verdict would be worthless: all its tests, or only its own."""
    same = Mutant("nothing changed", 0, lambda: None)
    tests = _tests(file, same, reached)
    if not every:
        tests = [test for test in tests if f"test_{file.stem}" in test]
    if (verdict := _fork(file, tree, same, rows, tests)) != Verdict.SURVIVED:
        raise RuntimeError(f"{_below(file)} fails unmutated: {verdict.name}; run the tests, then --remeasure")


def _tests(file: Path, mutant: Mutant, reached: Reached) -> list[str]:
    """The tests that reach the mutated line, the module's own first; those that replay the vectors last.

    Of what runs at import, say a constant, the users are not known: all tests of the modules in its folder.
    """
    folder = _below(file.parent)
    found = reached.get(_below(file), {}).get(mutant.line)
    if not found:
        beside = (lines for module, lines in reached.items() if folder in map(str, Path(module).parents))
        found = [test for lines in beside for test in lines.get(0, [])]
        named = ROOT / "tests/layouts" / folder / f"test_{file.stem}.py"  # may hold tests that reach no line at all
        found += [str(named.relative_to(ROOT))] if named.exists() else []
    own = f"test_{file.stem}"
    return sorted(set(found), key=lambda test: ("golden" in test, own not in test, test))


def _vectors() -> list[dict[str, Any]]:
    """Reference vectors, the broad ones whole."""
    folder = ROOT / "tests/golden"

    def read(name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]

    refused = [
        r for r in read("invalid") if "half_t" not in str(r["in"]) and "L<" not in str(r["in"]) and "(" not in r["op"]
    ]
    chosen = read("algebra") + read("extra") + [r for r in refused if r["op"] != "make_gmma_desc"] + read("gmma_atoms")
    for name in ("tile_to_shape", "descriptors", "tv_layouts", "extra_sm90"):
        chosen += read(name)[::_EVERY_SM90]
    return chosen


# --------------------------------------------------------------------------------------------------------------------
# Results


def _below(file: Path) -> str:
    return str(file.relative_to(LAYOUTS))


def _results_path(file: Path, job: int) -> Path:
    return BUILD / f"{_below(file).replace('/', '_')}.{job}.jsonl"


def _results(file: Path) -> tuple[str, dict[str, Verdict]]:
    """The source's digest, and the verdicts that were reached on it."""
    digest = hashlib.sha256(file.read_bytes()).hexdigest()[:16]
    known: dict[str, Verdict] = {}
    for path in sorted(BUILD.glob(f"{_below(file).replace('/', '_')}.*.jsonl"), key=lambda p: p.stat().st_mtime):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            if row["digest"] == digest and known.get(row["name"], Verdict.SURVIVED) == Verdict.SURVIVED:
                known[row["name"]] = Verdict(row["verdict"])
    return digest, known


def _explained() -> set[str]:
    """The survivors that survivors.md lists: bullets of a mutant's name, two spaces and the reason."""
    if not SURVIVORS.exists():
        return set()
    return set(re.findall(r"^- (\S+\.py: .*?) {2}", SURVIVORS.read_text(), re.MULTILINE))


def _report(files: list[Path], share: float) -> int:
    explained, open_survivors, totals = _explained(), [], Counter[str]()
    for file in files:
        _, known = _results(file)
        names = [(m.line, m.name) for m in _chosen(file, ast.parse(file.read_text()), share)]
        verdicts = Counter(known[name].name if name in known else "UNTRIED" for _, name in names)
        totals.update(verdicts)
        survived = [(line, name) for line, name in names if known.get(name) == Verdict.SURVIVED]
        totals["EXPLAINED"] += sum(name in explained for _, name in survived)
        open_survivors += [(line, name) for line, name in survived if name not in explained]
        print(f"{_below(file):28} {dict(verdicts)}")
    for line, name in open_survivors:
        print(f"survived, line {line}: {name}")
    tried = sum(totals.values()) - totals["UNTRIED"] - totals["EXPLAINED"]
    killed = tried - totals["SURVIVED"]
    print(f"{dict(totals)}\n{killed} of {tried} killed; {totals['EXPLAINED']} survivors explained: ", end="")
    print(f"{killed / max(1, tried - totals['EXPLAINED']):.2%} of the others killed")
    return 1 if open_survivors or totals["UNTRIED"] else 0


if __name__ == "__main__":
    sys.exit(main())
