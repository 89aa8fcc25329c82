"""Options that the runs of a script inherit from the command, or from the test session, that runs the script."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from mmap import mmap
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from cutepy.sim.ptx.source_lines import is_of_a_library
from cutepy.sim.run import Run

_Run = TypeVar("_Run", bound=Run)

_SCHEDULES = ("schedules", "seed", "limit")
"""Options that mean something together only: a run that states one of them inherits none."""


class Inheritance:
    """Defaults for the options of each run that begins while they are active.

    A run that states an option keeps its own value. Observers are added to those that a run states.

    Parameters
    ----------
    options : mapping of str to object
        Keyword arguments of `cutepy.simulate`.
    collect : callable, optional
        Is called once with each run that has begun, when the run or the inheritance ends.
    tells : bool
        True if the collector tells hazards and schedules that runs inherited, so that the runs do not raise them.

    Attributes
    ----------
    stated : list of (str, str, object)
        Where a run stated another value than the default, the option, and the value; in order, each once.
    """

    def __init__(
        self, options: Mapping[str, Any], collect: Callable[[Run], None] | None = None, *, tells: bool = True
    ) -> None:
        self.options = dict(options)
        self.stated: list[tuple[str, str, object]] = []
        self._collect, self._tells = collect, tells
        self._open: list[Run] = []
        self._process, self._elsewhere = os.getpid(), mmap(-1, 1)

    @property
    def has_run_elsewhere(self) -> bool:
        """Flag: runs have begun in forked processes, of which this process knows nothing else."""
        return self._elsewhere[0] > 0

    def fill(self, stated: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options that a run inherits beside those that it states."""
        own = {_group(name) for name in stated}
        filled = {name: value for name, value in self.options.items() if _group(name) not in own}
        if "sanitize" in stated and not stated["sanitize"]:
            filled.pop("strict", None)  # without a sanitizer there are no advisories
        if "observers" in stated and "observers" in self.options:
            theirs = stated["observers"]
            if hasattr(theirs, "__iter__") and not isinstance(theirs, type):  # others are refused by name
                filled["observers"] = (*theirs, *self.options["observers"])
        for name, value in stated.items():
            if name != "observers" and name in self.options and value != self.options[name]:
                found = (_line(sys._getframe()), name, value)
                if found not in self.stated:
                    self.stated.append(found)
        return filled

    def begin(self, run: Run, filled: Mapping[str, Any]) -> None:
        """Note that a run begins with inherited options."""
        if os.getpid() != self._process:
            self._elsewhere[0] = 1
        elif self._collect is not None:
            if self._tells:
                run.told_elsewhere = frozenset(filled) | ({"advisories"} if "sanitize" in self.options else set())
            self._open.append(run)

    def end(self, run: Run) -> None:
        """Hand a run over that has ended."""
        if run in self._open and self._collect is not None:
            self._open.remove(run)
            self._collect(run)

    def close(self) -> None:
        """Hand the runs over that have not ended."""
        for run in [*self._open]:
            self.end(run)


def _group(name: str) -> str:
    return _SCHEDULES[0] if name in _SCHEDULES else name


def _line(frame: FrameType | None) -> str:
    """Return file and line of the nearest frame outside of libraries."""
    while frame is not None and (
        frame.f_code.co_filename == contextlib.__file__ or is_of_a_library(frame.f_code.co_filename)
    ):
        frame = frame.f_back
    return "a run" if frame is None else f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


_active: list[Inheritance] = []


@contextmanager
def inherited_by_runs(
    options: Mapping[str, Any], collect: Callable[[Run], None] | None = None, *, tells: bool = True
) -> Iterator[Inheritance]:
    """Let all runs that begin in the context, in all threads, inherit options; the innermost context's win.

    Parameters
    ----------
    options, collect, tells
        As of `Inheritance`.

    Examples
    --------
    >>> import cutepy
    >>> runs = []
    >>> with inherited_by_runs({"sanitize": True}, runs.append) as inheritance, cutepy.simulate() as run:
    ...     pass
    >>> runs == [run]
    True
    """
    inheritance = Inheritance(options, collect, tells=tells)
    _active.append(inheritance)
    try:
        yield inheritance
    finally:
        _active.remove(inheritance)
        inheritance.close()


@contextmanager
def inheriting(
    stated: Mapping[str, Any], enter: Callable[[Mapping[str, Any]], AbstractContextManager[_Run]]
) -> Iterator[_Run]:
    """Enter a run with the options that it states and those that it inherits.

    Parameters
    ----------
    stated : mapping of str to object
    enter : callable
        Returns the context of a run with the options given.
    """
    active, options = [*_active], dict(stated)
    filled = []
    for inheritance in reversed(active):
        filled.append((inheritance, inheritance.fill(options)))
        options.update(filled[-1][1])
    with enter(options) as run:
        for inheritance, added in filled:
            inheritance.begin(run, added)
        try:
            yield run
        finally:
            for inheritance, _ in filled:
                inheritance.end(run)
