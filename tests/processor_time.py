"""The processor's time that something takes, on a machine that may be busy with others."""

import os
import sys
from collections.abc import Callable

_FEWEST_RUNS, _MOST_RUNS = 2, 16
_REFERENCE = "import asyncio, decimal, email.mime.text, http.server, unittest.mock, xml.dom.minidom"
_REFERENCE_SECONDS = 0.085
"""Seconds of the reference on the machine of the limits, with nothing else running."""


def seconds(*arguments: str) -> float:
    """Return the processor's seconds of an interpreter from its start to its end."""
    to_nowhere = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    process = os.posix_spawn(sys.executable, [sys.executable, *arguments], os.environ, file_actions=to_nowhere)
    _, status, used = os.wait4(process, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    return used.ru_utime + used.ru_stime


def slowed() -> float:
    """Return how many times as long as where the limits were set some of the standard library's imports take now."""
    return seconds("-c", _REFERENCE) / _REFERENCE_SECONDS


def is_below(limit: float, measure: Callable[[], float]) -> bool:
    """Tell whether a measurement is below a limit, at the best of several.

    Others on the machine slow it, by caches and clocks and threads of one core, and not evenly: each measurement counts
    as less by as much as they slowed some of the standard library's imports just before and after it.
    """
    least, before = float("inf"), slowed()
    for done in range(_MOST_RUNS):
        measured, after = measure(), slowed()
        least = min(least, measured / max(1.0, (before + after) / 2))
        if done + 1 >= _FEWEST_RUNS and least < limit:
            return True
        before = after
    return False


def takes_less(limit: float, *arguments: str, start_excluded: bool = False) -> bool:
    """Tell whether a process takes less than a limit of the processor's seconds, at the best of several runs."""
    start = min(seconds("-c", "pass") for _ in range(_FEWEST_RUNS)) if start_excluded else 0.0
    return is_below(limit, lambda: seconds(*arguments) - start)
