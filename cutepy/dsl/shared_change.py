"""Changes to the DSL's modules and classes: those that several threads may want at once, and those of one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any


class SharedChange:
    """Other attributes of a module while anyone wants them: the first makes the change, the last to leave undoes it.

    Parameters
    ----------
    replacements : callable
        Gives the module, and what its attributes become by name. Called for each first.
    """

    def __init__(self, replacements: Callable[[], tuple[ModuleType, Mapping[str, Any]]]) -> None:
        self._replacements = replacements
        self._lock = threading.Lock()
        self._users = 0
        self._undo: list[tuple[ModuleType, str, Any]] = []

    @contextmanager
    def made(self) -> Iterator[None]:
        """Keep the change for as long as the context is entered; several threads may be in it."""
        with self._lock:
            if not self._users:
                module, changed = self._replacements()
                self._undo = [(module, name, getattr(module, name)) for name in changed]
                for name, value in changed.items():
                    setattr(module, name, value)
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
    """Have calls of a module's function, or of a class's method, come to `wrapper`, with the original before the rest.

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
