"""Try one mutant: import the mutated module in this (forked) process and run what could notice it.

Nothing here may import cutepy before the mutated code is in place.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import importlib
import importlib.abc
import importlib.machinery
import os
import resource
import signal
import sys
from collections.abc import Sequence
from enum import IntEnum
from types import CodeType, ModuleType
from typing import Any

_MEMORY = 4 << 30
_SECONDS_QUICK, _SECONDS_TESTS = 30, 240


class Verdict(IntEnum):
    """What became of a mutant, or what noticed it; the values are exit statuses of its process."""

    SURVIVED = 0
    IMPORT = 10
    VECTORS = 11
    DOCTEST = 12
    TESTS = 13
    TIMEOUT = 14
    BROKEN = 15


class _MutatedModule(importlib.abc.MetaPathFinder):
    """Finds one module, with other code than its file's."""

    def __init__(self, name: str, code: CodeType) -> None:
        self._name, self._code = name, code

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None:
            spec.loader.get_code = lambda _: self._code  # type: ignore[union-attr]
        return spec


def attempt(module: str, tree: ast.Module, file: str, rows: Sequence[dict[str, Any]], tests: Sequence[str]) -> Verdict:
    """Run the vectors, the module's doctests, then the tests that reach the mutated line, up to a failure."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    _silence()
    signal.alarm(_SECONDS_QUICK)
    sys.meta_path.insert(0, _MutatedModule(module, compile(ast.fix_missing_locations(tree), file, "exec")))
    try:
        calls = importlib.import_module("tests.golden.calls")
        mutated = importlib.import_module(module)
    except Exception:
        return Verdict.IMPORT
    if not _vectors_hold(calls, rows):
        return Verdict.VECTORS
    if doctest.testmod(mutated, optionflags=doctest.FAIL_FAST).failed:
        return Verdict.DOCTEST
    if not tests:
        return Verdict.SURVIVED
    signal.alarm(_SECONDS_TESTS)
    import pytest

    from tests.mutation.tests_by_line import OPTIONS, PROFILE

    noticed = _Failures()
    status = pytest.main(["-x", *OPTIONS, PROFILE, *tests], plugins=[noticed])
    if noticed.any:
        return Verdict.TESTS
    return Verdict.SURVIVED if status == pytest.ExitCode.OK else Verdict.BROKEN


class _Failures:
    """Whether a test or a test module failed: pytest's exit status alone would count its own troubles as well."""

    any = False

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.any |= report.failed

    def pytest_collectreport(self, report: Any) -> None:
        self.any |= report.failed


def _silence() -> None:
    with contextlib.suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)


def _vectors_hold(calls: ModuleType, rows: Sequence[dict[str, Any]]) -> bool:
    for row in rows:
        try:
            answer = calls.call(row["op"], row["in"])
        except Exception as error:
            if row["out"] is None and type(error).__name__ == "LayoutError":
                continue
            return False
        if not calls.agrees(answer, row["out"]):
            return False
    return True
