"""Run a script as `python SCRIPT` does."""

from __future__ import annotations

import os
import sys
import threading
import types
from collections.abc import Collection, Sequence
from concurrent.futures import thread as pools
from pathlib import Path


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


def wait_for_threads(before: Collection[threading.Thread]) -> None:
    """Wait for the threads that have started beside those before, as the interpreter does at a script's end.

    Threads of pools that nobody has shut down end once their work is done, as they do at the interpreter's end.
    """
    while new := [each for each in threading.enumerate() if each not in before and not each.daemon]:
        of_pools = [pools._threads_queues[each] for each in new if each in pools._threads_queues]
        pools._shutdown = bool(of_pools)
        try:
            for work in of_pools:
                work.put(None)
            for each in new:
                each.join()
        finally:
            pools._shutdown = False
