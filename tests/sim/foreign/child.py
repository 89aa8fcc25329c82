"""The process of one source: runs it on the served device, and writes a line as each of its cases begins and ends.

It is started by its path and imports nothing of this folder, whose parents have names that the sources may use too.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import random
import re
import runpy
import shlex
import sys
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_REASON = 300
"""Characters of a reason that are kept."""

_SKIPS = 40
"""Most parameter sets of a test that may skip themselves before the test as a whole does."""


class Recorder:
    """Writes what becomes of each case, line by line."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)
        self._since = time.perf_counter()
        self.run: Any = None
        """Run that the sanitizer watches, if there is one."""
        self.facts: Callable[[Any], dict[str, Any]] = lambda run: {}

    def begin(self, case: str) -> None:
        self._since = time.perf_counter()
        self._write(began=case)

    def end(self, case: str, outcome: str, reason: str = "") -> None:
        found = {} if self.run is None else self.facts(self.run)
        seconds = round(time.perf_counter() - self._since, 1)
        self._write(case=case, outcome=outcome, reason=reason, seconds=seconds, **found)

    def _write(self, **facts: object) -> None:
        self._file.write(json.dumps(facts) + "\n")


@contextmanager
def served(given: Mapping[str, Any], recorder: Recorder) -> Iterator[None]:
    """Serve the device, sanitized if that is asked for."""
    import sanitized  # by `main`

    from cutepy.frontends import serve_cuda

    if given["schedules"] is None:
        with serve_cuda(exact_mma=given["exact"]):
            yield
        return
    played = {"schedules": given["schedules"], "seed": given["seed"]} if given["schedules"] else {}
    with serve_cuda(exact_mma=given["exact"], sanitize=True, replay=True, **played) as run:
        sanitized.explore_once(run)
        recorder.run, recorder.facts = run, sanitized.facts
        try:
            yield
        finally:
            run.restart()  # what was found is recorded, and not raised


def judged(error: BaseException) -> tuple[str, str]:
    """Return the outcome and the reason of what was raised: results are wrong, or the DSL did not compile the code."""
    if isinstance(error, SystemExit):
        return ("wrong", f"exit code {error.code}") if error.code else ("passed", "")
    kind = "wrong" if isinstance(error, AssertionError) else "refused"
    if type(error).__name__ == "DSLUserCodeError":
        kind = "not compiled"
    outcome = "not installed" if isinstance(error, ModuleNotFoundError) else kind
    return outcome, f"{type(error).__name__}: {_first_line(error)}"[:_REASON]


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return re.sub(r"\x1b\[[\d;]*m", "", lines[0]) if lines else ""


def run_script(given: Mapping[str, Any], recorder: Recorder) -> None:
    """Run a file as `__main__`, after those whose files it reads."""
    path = Path(given["path"])
    sys.argv, sys.path[0] = [str(path), *shlex.split(given["arguments"])], str(path.parent)

    def run() -> None:
        if sys.argv[1:2] == ["-c"]:
            _call(path, sys.argv[2])
            return
        for script in (*map(path.with_name, given["first"]), path):
            runpy.run_path(str(script), run_name="__main__")

    _run(given, recorder, run)


def _call(path: Path, code: str) -> None:
    """Run code where a file's names are known."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    del sys.argv[1:]
    spec.loader.exec_module(module)
    exec(code, vars(module))  # of the catalogue


def run_notebook(given: Mapping[str, Any], recorder: Recorder) -> None:
    """Run the cells of a notebook in order, until one raises."""
    from IPython.core.interactiveshell import InteractiveShell

    path = Path(given["path"])
    sys.path[0] = str(path.parent)
    text = path.read_text()
    for large, small in given["sizes"]:
        text = text.replace(large, small)
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    shell = InteractiveShell.instance()

    def run() -> None:
        for cell in cells:
            shell.run_cell("".join(cell["source"]), store_history=True).raise_error()

    _run(given, recorder, run)


def _run(given: Mapping[str, Any], recorder: Recorder, action: Callable[[], object]) -> None:
    with served(given, recorder):
        recorder.begin(given["case"])
        outcome, reason = "passed", ""
        try:
            action()
        except BaseException as error:
            traceback.print_exc()
            outcome, reason = judged(error)
        if given["raises"] and reason.startswith(given["raises"]):
            outcome, reason = "passed", ""
        recorder.end(given["case"], outcome, reason)


class Selection:
    """A pytest plugin: runs some parameter sets of each test, and records what becomes of them."""

    def __init__(self, recorder: Recorder, done: frozenset[str], sets: int, extent: int, seed: int) -> None:
        self._recorder, self._done = recorder, done
        self._sets, self._extent, self._seed = sets, extent, seed
        self._ran: Counter[str] = Counter()
        self._skipped: dict[str, list[str]] = defaultdict(list)
        self._outcome = ("passed", "")

    @pytest.hookimpl(tryfirst=True)
    def pytest_generate_tests(self, metafunc: Any) -> None:
        """Draw some parameter sets as they are made: tests that multiply ten lists have more than can be made."""
        make = metafunc.parametrize

        def make_and_draw(*args: Any, **kwargs: Any) -> None:
            make(*args, **kwargs)
            metafunc._calls[:] = self._drawn(metafunc._calls, f"{self._seed} {metafunc.definition.nodeid}")

        metafunc.parametrize = make_and_draw

    def _drawn(self, calls: list[Any], seed: str) -> list[Any]:
        sizes = [_largest([*call.params.values()]) for call in calls]
        limit = max(self._extent, min(sizes, default=0))
        chosen = [call for call, size in zip(calls, sizes, strict=True) if size <= limit]
        random.Random(seed).shuffle(chosen)
        return chosen[: self._sets + _SKIPS]

    def pytest_collection_finish(self, session: Any) -> None:
        """Count what has been dealt with before."""
        self._ran.update(case.partition("[")[0] for case in self._done)

    def pytest_runtest_protocol(self, item: Any) -> bool | None:
        """Pass over what was chosen often enough: to say that it has been dealt with runs nothing."""
        name = _test(item)
        if item.nodeid in self._done or self._ran[name] >= self._sets or len(self._skipped[name]) >= _SKIPS:
            return True
        if self._recorder.run is not None:
            self._recorder.run.restart()
        self._recorder.begin(item.nodeid)
        self._outcome = ("passed", "")
        return None

    def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
        """Note how the test ends."""
        if call.excinfo is None:
            if call.when == "teardown":
                self._ended(item)
            return
        error = call.excinfo.value
        if isinstance(error, pytest.skip.Exception):
            self._outcome = ("skipped", _first_line(error))
        elif isinstance(error, pytest.xfail.Exception) or item.get_closest_marker("xfail"):
            self._outcome = ("skipped", f"xfail: {_first_line(error)}")
        elif self._outcome[0] == "passed":
            self._outcome = judged(error)
        if call.when == "teardown":
            self._ended(item)

    def _ended(self, item: Any) -> None:
        name = _test(item)
        outcome, reason = self._outcome
        if outcome == "skipped":
            self._skipped[name].append(reason)
        else:
            self._ran[name] += 1
            self._recorder.end(item.nodeid, outcome, reason)

    def pytest_collectreport(self, report: Any) -> None:
        """Note a file that can't be imported, or skips itself."""
        if report.skipped:
            self._recorder.end(report.nodeid, "skipped", report.longrepr[2].removeprefix("Skipped: "))
        elif report.failed:
            reason = str(report.longrepr).strip().splitlines()[-1].removeprefix("E  ").strip()[:_REASON]
            absent = reason.startswith(ModuleNotFoundError.__name__)
            self._recorder.end(report.nodeid, "not installed" if absent else "refused", reason)

    def pytest_sessionfinish(self) -> None:
        """Note the tests of which every parameter set skipped itself."""
        for name, reasons in self._skipped.items():
            if reasons and not self._ran[name]:
                self._recorder.end(name, "skipped", Counter(reasons).most_common(1)[0][0])


def _test(item: Any) -> str:
    name: str = item.nodeid.partition("[")[0]
    return name


def _largest(value: object) -> int:
    """Return the largest integer in nested parameters, 0 if there is none."""
    if isinstance(value, dict):
        return _largest(list(value.values()))
    if isinstance(value, list | tuple):
        return max(map(_largest, value), default=0)
    return value if isinstance(value, int) else 0


def run_pytest(given: Mapping[str, Any], recorder: Recorder) -> None:
    """Run the chosen tests of a file."""
    options = ["-q", "--tb=short", "-o", "addopts=", "-p", "no:cacheprovider", "-p", "no:timeout"]
    options += ["--exact-mma"] if given["exact"] and given["schedules"] is None else []
    selection = Selection(recorder, frozenset(given["done"]), given["sets"], given["extent"], given["seed"])
    called = [*options, f"--rootdir={given['root']}", *(given["tests"] or [given["path"]])]
    with contextlib.nullcontext() if given["schedules"] is None else served(given, recorder):
        code = pytest.main(called, plugins=[selection])
    if code in (pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR):
        recorder.end(given["case"], "refused", f"pytest ends with {code!s}")


def main() -> None:
    """Run what the only argument, in JSON, describes."""
    import sanitized  # noqa: F401  as long as this folder is where modules are looked for first

    given = json.loads(sys.argv[1])
    if given["core"] is not None:
        os.sched_setaffinity(0, [given["core"]])
    run = {"script": run_script, "notebook": run_notebook, "pytest": run_pytest}[given["kind"]]
    run(given, Recorder(Path(given["record"])))


if __name__ == "__main__":
    main()
