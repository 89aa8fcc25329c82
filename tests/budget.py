"""The cost of tests: `-p tests.budget` tells it at the end, and fails a run of more than `make test` has room for.

With `--note-costs` it also writes which test functions are costly (`tests.tiers`), and fails nothing.

Counted is the CPU's time, as others may be using the machine: of the test's process, and of those it waited for. What
slows that too raises the budget, by as much as it slows a reference that is run every now and then.
"""

import resource
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from statistics import fmean
from typing import Any

import pytest

from tests import processor_time, tiers

# 16,700 tests took 357 s of CPU time on a machine that others slowed 1.5 times: 237 s when idle. This stops growth, not
# bad days.
ALL_TESTS = 280
# What takes longer shares what it builds with other tests, or `make costs` leaves it to `make check`. The first test of
# a process that needs torch's compiler imports it, for 4 s.
ONE_TEST = 10

_BETWEEN_REFERENCES = 500  # tests
_SKIPPED = 0.02
"""Seconds: what costs less was skipped, or is no case that a file could keep."""

_last = cpu = 0.0
_seconds: Counter[str] = Counter()
_slowed: list[float] = []
_by_hand: set[str] = set()
"""Tests that a marker in their file, or their folder, makes integration tests."""
_is_worker = False


def cpu_seconds() -> float:
    """Give the CPU's time that this process has used, and those that it started and waited for."""
    waited_for = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + waited_for.ru_utime + waited_for.ru_stime


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of `make costs`."""
    parser.addoption("--note-costs", action="store_true", help="write the test functions that cost much to a list")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[None]:
    global _last
    _last = cpu_seconds()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Note what a phase cost in its report, with which xdist's processes hand it on."""
    global _last
    report: Any = yield
    before, _last = _last, cpu_seconds()
    report.user_properties.append(("cpu", _last - before))
    marks = sum(1 for _ in item.iter_markers("integration")) - tiers.is_integration(item.nodeid)
    report.user_properties.append(("by hand", marks > 0 or tiers.is_compiled(item.nodeid.partition("::")[0])))
    return report


def pytest_configure(config: pytest.Config) -> None:
    global _is_worker
    _is_worker = hasattr(config, "workerinput")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    told = dict(report.user_properties)  # one of a process that died has none
    _seconds[report.nodeid] += told.get("cpu", 0.0)
    if told.get("by hand"):
        _by_hand.add(report.nodeid)
    if not _is_worker and len(_seconds) >= _BETWEEN_REFERENCES * (len(_slowed) + 1):
        _slowed.append(processor_time.slowed())


def slowness() -> float:
    """Tell how many times as long as on an idle machine things took on average; 1 where nothing slowed them."""
    return max(1.0, fmean(_slowed)) if _slowed else 1.0


def over_budget() -> list[str]:
    """Say what took too long."""
    one, all_of_them = ONE_TEST * slowness(), ALL_TESTS * slowness()
    slow = [f"{name} took {spent:.0f} s, and a test has {one:.0f}" for name, spent in _seconds.items() if spent > one]
    total = sum(_seconds.values())
    return slow + [f"all tests took {total:.0f} s, and have {all_of_them:.0f}"] * (total > all_of_them)


def note() -> None:
    """Write which functions are costly, of those that no mark or folder makes integration tests, and dear cases."""
    cases = defaultdict(list)
    for name, spent in _seconds.items():
        if name not in _by_hand:
            cases[tiers.function_of(name)].append(spent / slowness())
    tiers.write(cases)
    tiers.write_dear({name: spent / slowness() for name, spent in _seconds.items() if spent > _SKIPPED})


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.option.note_costs:
        if not _is_worker:
            note()
    elif over_budget() and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.section("the CPU's time")
    for name, spent in _seconds.most_common(10):
        terminalreporter.write_line(f"{spent:6.1f} s  {name}")
    terminalreporter.write_line(f"{sum(_seconds.values()):6.1f} s  all, {slowness():.2f} times slowed by others")
    for line in over_budget():
        terminalreporter.write_line(line, red=True)
