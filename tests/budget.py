"""What tests cost: `-p tests.budget` tells it at the end, and fails a run of more than `make test` has room for.

Counted is the CPU's time, as others may be using the machine: of the test's process, and of those it waited for. What
slows that too raises the budget, by as much as it slows a reference that is run every now and then.
"""

import resource
import time
from collections import Counter
from collections.abc import Iterator
from statistics import fmean
from typing import Any

import pytest

from tests import processor_time

# 16,445 tests took 469 s of CPU time on a machine that others slowed 1.21 times: 388 s when idle. This stops growth,
# not bad days.
ALL_TESTS = 500
# The dearest, of 15 to 20 s, ends the process in which all tests of an exported extension ran, which was built there.
# What takes longer shares what it builds with other tests, or is marked `integration` or `deep`.
ONE_TEST = 30

_BETWEEN_REFERENCES = 500  # tests

_last = cpu = 0.0
_seconds: Counter[str] = Counter()
_slowed: list[float] = []
_is_worker = False


def cpu_seconds() -> float:
    """Give the CPU's time that this process has used, and those that it started and waited for."""
    waited_for = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + waited_for.ru_utime + waited_for.ru_stime


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[None]:
    global _last
    _last = cpu_seconds()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    """Note what a phase cost in its report, with which xdist's processes hand it on."""
    global _last
    report: Any = yield
    before, _last = _last, cpu_seconds()
    report.user_properties.append(("cpu", _last - before))
    return report


def pytest_configure(config: pytest.Config) -> None:
    global _is_worker
    _is_worker = hasattr(config, "workerinput")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] += dict(report.user_properties).get("cpu", 0.0)  # one of a process that died has none
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


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if over_budget() and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.section("the CPU's time")
    for name, spent in _seconds.most_common(10):
        terminalreporter.write_line(f"{spent:6.1f} s  {name}")
    terminalreporter.write_line(f"{sum(_seconds.values()):6.1f} s  all, {slowness():.2f} times slowed by others")
    for line in over_budget():
        terminalreporter.write_line(line, red=True)
