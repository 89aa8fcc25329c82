"""Temporary changes of the DSL's modules and classes: reference-counted ones, and exclusive ones."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any


class SharedChange:
    """Temporary replacement of attributes of modules and classes, reference-counted over threads.

    The first thread that enters makes the change, and the last one that leaves undoes it.

    Parameters
    ----------
    replacements : callable
        Returns modules and classes, each with the new values of its attributes by name. Called by each first thread.
    """

    def __init__(self, replacements: Callable[[], Sequence[tuple[ModuleType | type, Mapping[str, Any]]]]) -> None:
        self._replacements = replacements
        self._lock = threading.Lock()
        self._users = 0
        self._undo: list[tuple[ModuleType | type, str, Any]] = []

    @contextmanager
    def made(self) -> Iterator[None]:
        """Keep the change for as long as the context is entered; several threads may enter."""
        with self._lock:
            if not self._users:
                owners = self._replacements()
                self._undo = [(owner, name, getattr(owner, name)) for owner, changed in owners for name in changed]
                for owner, changed in owners:
                    for name, value in changed.items():
                        setattr(owner, name, value)
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    for change in self._undo:
                        setattr(*change)


@contextmanager
def replaced(owner: Any, name: str, wrapper: Callable[..., Any]) -> Iterator[None]:  # noqa: ANN401
    """Redirect calls of a module's function, or of a class's method, to `wrapper`, with the original before the rest.

    All threads' calls do, so that a wrapper must know its own; one thread at a time may do this to one name.
    """
    original = owner.__dict__[name]

    def instead(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        return wrapper(original, *args, **kwargs)

    setattr(owner, name, instead)
    try:
        yield
    finally:
        setattr(owner, name, original)
