"""The process of one source: runs it on the served device, and writes a line as each of its cases begins and ends."""

from __future__ import annotations

import json
import random
import runpy
import shlex
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_SKIPS = 40
"""How many parameter sets of a test may skip themselves before the test as a whole does."""


class Recorder:
    """Writes what becomes of each case, line by line."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)
        self._since = time.perf_counter()

    def begin(self, case: str) -> None:
        self._since = time.perf_counter()
        self._write(began=case)

    def end(self, case: str, outcome: str, reason: str = "") -> None:
        self._write(case=case, outcome=outcome, reason=reason, seconds=round(time.perf_counter() - self._since, 1))

    def _write(self, **facts: object) -> None:
        self._file.write(json.dumps(facts) + "\n")


def judged(error: BaseException) -> tuple[str, str]:
    """Return the outcome and the reason of what was raised: an assertion says that results are wrong."""
    if isinstance(error, SystemExit):
        return ("wrong", f"exit code {error.code}") if error.code else ("passed", "")
    lines = str(error).strip().splitlines() or [""]
    return "wrong" if isinstance(error, AssertionError) else "refused", f"{type(error).__name__}: {lines[0]}"[:300]


def _run(case: str, recorder: Recorder, action: Callable[[], object]) -> None:
    from cutepy.frontends import serve_cuda

    recorder.begin(case)
    try:
        with serve_cuda():
            action()
    except BaseException as error:
        recorder.end(case, *judged(error))
        raise
    recorder.end(case, "passed")


def run_script(path: Path, arguments: Sequence[str], recorder: Recorder, case: str) -> None:
    """Run a file as `__main__`."""
    sys.argv, sys.path[0] = [str(path), *arguments], str(path.parent)
    _run(case, recorder, lambda: runpy.run_path(str(path), run_name="__main__"))


def run_notebook(path: Path, recorder: Recorder, case: str) -> None:
    """Run the cells of a notebook in order, until one raises."""
    from IPython.core.interactiveshell import InteractiveShell

    sys.path[0] = str(path.parent)
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    shell = InteractiveShell.instance()

    def run_cells() -> None:
        for cell in cells:
            shell.run_cell("".join(cell["source"]), store_history=True).raise_error()

    _run(case, recorder, run_cells)


class Selection:
    """A pytest plugin: runs some parameter sets of each test, and records what becomes of them."""

    def __init__(self, recorder: Recorder, root: Path, done: frozenset[str], sets: int, extent: int, seed: int) -> None:
        self._recorder, self._root, self._done = recorder, root, done
        self._sets, self._extent, self._seed = sets, extent, seed
        self._ran: Counter[str] = Counter()
        self._skipped: dict[str, list[str]] = defaultdict(list)
        self._outcome = ("passed", "")

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Draw an order of the parameter sets of each test, and leave out those that are large."""
        tests: dict[str, list[Any]] = defaultdict(list)
        for item in items:
            tests[_test(item)].append(item)
        for name, found in tests.items():
            self._ran[name] = sum(case.partition("[")[0] == name for case in self._done)
            small = [item for item in found if _largest(_values(item)) <= self._extent]
            if small:
                random.Random(f"{self._seed} {name}").shuffle(small)
            tests[name] = small or [min(found, key=lambda item: _largest(_values(item)))]
        items[:] = [item for found in tests.values() for item in found]

    def pytest_runtest_protocol(self, item: Any) -> bool | None:  # noqa: ANN401
        """Pass over what was chosen often enough: to say that it has been dealt with runs nothing."""
        name = _test(item)
        if item.nodeid in self._done or self._ran[name] >= self._sets or len(self._skipped[name]) >= _SKIPS:
            return True
        self._recorder.begin(item.nodeid)
        self._outcome = ("passed", "")
        return None

    def pytest_runtest_makereport(self, item: Any, call: Any) -> None:  # noqa: ANN401
        """Note how the test ends."""
        import pytest

        if call.excinfo is None:
            if call.when == "teardown":
                self._ended(item)
            return
        error = call.excinfo.value
        if isinstance(error, pytest.skip.Exception):
            self._outcome = ("skipped", str(error).splitlines()[0])
        elif isinstance(error, pytest.xfail.Exception) or item.get_closest_marker("xfail"):
            self._outcome = ("skipped", f"xfail: {str(error).splitlines()[:1]}")
        elif self._outcome[0] == "passed":
            self._outcome = judged(error)
        if call.when == "teardown":
            self._ended(item)

    def _ended(self, item: Any) -> None:  # noqa: ANN401
        name = _test(item)
        outcome, reason = self._outcome
        if outcome == "skipped":
            self._skipped[name].append(reason)
        else:
            self._ran[name] += 1
            self._recorder.end(item.nodeid, outcome, reason)

    def pytest_collectreport(self, report: Any) -> None:  # noqa: ANN401
        """Note a file that can't be imported, or skips itself."""
        if report.failed or report.skipped:
            text = report.longrepr[2] if report.skipped else str(report.longrepr).strip().splitlines()[-1]
            self._recorder.end(report.nodeid, "skipped" if report.skipped else "refused", text.removeprefix("E  ").strip()[:300])

    def pytest_sessionfinish(self) -> None:
        """Note the tests of which every parameter set skipped itself."""
        for name, reasons in self._skipped.items():
            if reasons and not self._ran[name]:
                self._recorder.end(name, "skipped", Counter(reasons).most_common(1)[0][0])


def _test(item: Any) -> str:  # noqa: ANN401
    name: str = item.nodeid.partition("[")[0]
    return name


def _values(item: Any) -> list[object]:  # noqa: ANN401
    return list(item.callspec.params.values()) if hasattr(item, "callspec") else []


def _largest(value: object) -> int:
    """Return the largest integer in nested parameters, 0 if there is none."""
    if isinstance(value, dict):
        return _largest(list(value.values()))
    if isinstance(value, list | tuple):
        return max(map(_largest, value), default=0)
    return value if isinstance(value, int) else 0


def run_pytest(path: Path, root: Path, selection: Selection) -> None:
    """Run the chosen tests of a file."""
    import pytest

    pytest.main(
        ["-p", "cutepy.testing.plugin", "--simulate", "-q", "--tb=no", "-o", "addopts=", f"--rootdir={root}", str(path)],
        plugins=[selection],
    )


def main() -> None:
    """Run what the only argument, in JSON, describes."""
    given = json.loads(sys.argv[1])
    path, recorder = Path(given["path"]), Recorder(Path(given["record"]))
    if given["kind"] == "script":
        run_script(path, shlex.split(given["arguments"]), recorder, given["case"])
    elif given["kind"] == "notebook":
        run_notebook(path, recorder, given["case"])
    else:
        done = frozenset(given["done"])
        root = Path(given["root"])
        run_pytest(path, root, Selection(recorder, root, done, given["sets"], given["extent"], given["seed"]))


if __name__ == "__main__":
    main()
