"""Run a script as `python SCRIPT` does."""

from __future__ import annotations

import os
import sys
import threading
import types
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple


class Script(NamedTuple):
    """Script that a command runs.

    Attributes
    ----------
    path : Path
    arguments : sequence of str
        Its `sys.argv[1:]`.
    echo : callable
        Prints a line of the command beside the script's own output.
    """

    path: Path
    arguments: Sequence[str]
    echo: Callable[[str], None]


def started_name(script: str | Path) -> str:
    """Return the name that Python gives the code of a started script: it is part of compiled code."""
    return os.path.join(os.getcwd(), script)  # noqa: PTH109, PTH118


def run_as_main(script: str | Path, arguments: Sequence[str]) -> None:
    """Run a script as `__main__`, in this process, with `sys.argv` and `sys.path` set for it."""
    name, module = started_name(script), types.ModuleType("__main__")
    module.__file__ = name
    argv, path, main = sys.argv, sys.path[:], sys.modules["__main__"]
    sys.argv, sys.path[0] = [str(script), *arguments], str(Path(script).resolve().parent)
    sys.modules["__main__"] = module
    try:
        exec(compile(Path(name).read_bytes(), name, "exec", dont_inherit=True), vars(module))
    finally:
        sys.argv, sys.path[:], sys.modules["__main__"] = argv, path, main


_POOLS: tuple[tuple[str, str, str, Callable[[Any], None]], ...] = (
    ("concurrent.futures.thread", "_shutdown", "_threads_queues", lambda work: work.put(None)),
    ("concurrent.futures.process", "_global_shutdown", "_threads_wakeups", lambda waker: waker.wakeup()),
)
"""Modules of pools, and by what they let threads end at the interpreter's end: a flag, and what wakes each thread."""


def wait_for_threads(before: Collection[threading.Thread]) -> None:
    """Wait for the threads that have started beside those before, as the interpreter does at a script's end.

    Threads of pools that nobody has shut down end once their work is done, as they do at the interpreter's end.
    """
    pools = [(sys.modules[name], flag, threads, wake) for name, flag, threads, wake in _POOLS if name in sys.modules]
    while new := [each for each in threading.enumerate() if each not in before and not each.daemon]:
        try:
            for pool, flag, threads, wake in pools:
                setattr(pool, flag, True)
                for thread, by in [*getattr(pool, threads).items()]:
                    if thread in new:
                        wake(by)
            for each in new:
                each.join()
        finally:
            for pool, flag, _, _ in pools:
                setattr(pool, flag, False)
