"""What tests cost: `-p tests.budget` tells it at the end, and fails a run of more than `make test` has room for.

Counted is the CPU's time, as others may be using the machine: of the test's process, and of those it waited for.
"""

import resource
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

# What all of `make test` took on two cores that others used in part was 516 s, and a quarter more on busy ones: this
# stops growth, not bad days. The integration tests took 463 s of the clock there.
ALL_TESTS = 640
# The dearest, of 15 to 20 s, ends the process in which all tests of an exported extension ran, which was built there.
# What takes longer shares what it builds with other tests, or is marked `integration` or `deep`.
ONE_TEST = 30

_last = cpu = 0.0
_seconds: Counter[str] = Counter()


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


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] += dict(report.user_properties).get("cpu", 0.0)  # one of a process that died has none


def over_budget() -> list[str]:
    """Say what took too long."""
    slow = [
        f"{name} took {spent:.0f} s, and a test has {ONE_TEST}" for name, spent in _seconds.items() if spent > ONE_TEST
    ]
    total = sum(_seconds.values())
    return slow + [f"all tests took {total:.0f} s, and have {ALL_TESTS}"] * (total > ALL_TESTS)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if over_budget() and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.section("the CPU's time")
    for name, spent in _seconds.most_common(10):
        terminalreporter.write_line(f"{spent:6.1f} s  {name}")
    terminalreporter.write_line(f"{sum(_seconds.values()):6.1f} s  all")
    for line in over_budget():
        terminalreporter.write_line(line, red=True)
