"""Whether all runs look for hazards, and not only those that ask to: a whole suite of tests does so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_begun: list[list[Any] | None] = []


def sanitizing_everywhere() -> bool:
    """Tell whether runs that begin now look for hazards."""
    return bool(_begun)


def begin(run: object) -> None:
    """Note that a run begins."""
    for runs in _begun:
        if runs is not None:
            runs.append(run)


@contextmanager
def everywhere(runs: list[Any] | None = None) -> Iterator[None]:
    """Let all runs that begin in the context look for hazards; they are added to a list, if one is given.

    Examples
    --------
    >>> with everywhere():
    ...     sanitizing_everywhere()
    True
    >>> sanitizing_everywhere()
    False
    """
    _begun.append(runs)
    try:
        yield
    finally:
        _begun.pop()
