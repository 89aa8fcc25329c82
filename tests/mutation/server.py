"""Pytest plugin that tries mutants in forks: modules are imported and tests collected once, not once a mutant.

A fork gives the functions that were imported from the mutated file the code that they have there. What a module does
while it is imported can't be changed so, and is tried in a process of its own; nor can what the DSL reads from its
source, and what other processes run.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import os
import select
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FunctionType

import pytest

_STILL_SECONDS = 10


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """Answer each mutant, a line of the standard input, with the first test that fails, or how it ended otherwise."""
    items: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in session.items:
        items[item.nodeid.partition("[")[0]].append(item)
    with os.fdopen(int(os.environ["MUTATION_ANSWERS"]), "w", buffering=1) as answers:
        answers.write("collected\n")
        for line in sys.stdin:
            asked = json.loads(line)
            chosen = [item for test in asked["tests"] for item in items[test]]
            answers.write(_in_fork(session, chosen, asked) + "\n")
    return True


def _in_fork(session: pytest.Session, items: list[pytest.Item], asked: dict[str, str]) -> str:
    functions = _functions(asked["file"])
    if not functions:
        return "unreached"
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        try:
            _replace_code(functions, asked["file"], asked["before"], asked["after"])
            os.write(tell, _first_failure(session, items).encode())
        except BaseException as error:  # a mutant may raise anything, and no fork goes on as the server
            os.write(tell, f"{type(error).__name__}".encode())
        finally:
            os._exit(0)
    os.close(tell)
    verdict = _answer(told, child, float(asked["seconds"]))
    os.close(told)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return verdict


def _answer(told: int, child: int, seconds: float) -> str:
    """Wait for a fork's answer: "died" if it ends without, "timeout" if it takes too long, or uses no processor.

    A fork stands still where it waits for a lock that another thread of its parent held, or for a pool of threads that
    it has not.
    """
    end, used, since = time.monotonic() + seconds, -1, time.monotonic()
    while (now := time.monotonic()) < end and now - since < _STILL_SECONDS:
        if select.select([told], [], [], 1)[0]:
            return os.read(told, 1 << 16).decode() or "died"
        if (spent := _processor_ticks(child)) != used:
            used, since = spent, now
    return "timeout"


def _processor_ticks(group: int) -> int:
    """Return the time that a group of processes used, in ticks (man 5 proc, /proc/pid/stat)."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15])) if int(fields[2]) == group else 0
    return ticks


def _first_failure(session: pytest.Session, items: list[pytest.Item]) -> str:
    for item, following in zip(items, [*items[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            return item.nodeid
    return "survived"


@functools.cache
def _functions(file: str) -> list[FunctionType]:
    """Return all functions that come from a file."""
    gc.unfreeze()  # objects that the collector leaves out are not listed either
    listed = [one for one in gc.get_objects() if type(one) is FunctionType]
    gc.freeze()
    names = {
        name
        for name in {one.__code__.co_filename for one in listed}
        if os.path.realpath(name) == os.path.realpath(file)
    }
    return [one for one in listed if one.__code__.co_filename in names]


def _replace_code(functions: list[FunctionType], file: str, before: str, after: str) -> None:
    """Give functions that come from a file the code which the file's changed text has in their places."""
    old, new = (list(_codes(compile(text, file, "exec"))) for text in (before, after))
    if len(old) != len(new):  # a statement that is gone took a function along
        places = {(code.co_qualname, code.co_firstlineno): code for code in new}
        new = [places.get((code.co_qualname, code.co_firstlineno), code) for code in old]
    changed = dict(zip(old, new, strict=True))
    for function in functions:
        function.__code__ = changed.get(function.__code__, function.__code__)


def functions_of(text: str, file: str) -> list[CodeType]:
    """Return the code of all functions of a file, but for the module's own and that of classes."""
    return [code for code in _codes(compile(text, file, "exec")) if code.co_flags & CO_OPTIMIZED]


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Give a code object and those inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
