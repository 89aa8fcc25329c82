"""Whether all runs look for hazards, and not only those that ask to: a whole suite of tests does so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_active = 0


def sanitizing_everywhere() -> bool:
    """Tell whether runs that begin now look for hazards."""
    return _active > 0


@contextmanager
def everywhere() -> Iterator[None]:
    """Let all runs that begin in the context look for hazards.

    Examples
    --------
    >>> with everywhere():
    ...     sanitizing_everywhere()
    True
    >>> sanitizing_everywhere()
    False
    """
    global _active
    _active += 1
    try:
        yield
    finally:
        _active -= 1
