"""Executor of compiled functions: the GPU, or a backend that takes the launches of host code."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from cutepy.runtime.host_calls import Backend as Backend

_for_gpu: ContextVar[bool] = ContextVar("for_gpu", default=False)


class Execution:
    """Executor of this process's compiled functions: the GPU, or a backend.

    There is one for all threads, `EXECUTION`.

    Attributes
    ----------
    backend : Backend or None
        The innermost backend that is active; None for the GPU. To be read at each launch; only `on` sets it.
    """

    __slots__ = ("_entering", "_thread", "backend")

    def __init__(self) -> None:
        self.backend: Backend | None = None
        self._entering = threading.Lock()
        self._thread: threading.Thread | None = None

    @contextmanager
    def on(self, backend: Backend) -> Iterator[bool]:
        """Send the launches of all threads to a backend. Contexts nest: the innermost backend gets them.

        Parameters
        ----------
        backend : Backend

        Yields
        ------
        bool
            Whether this is the outermost of nested contexts.

        Raises
        ------
        RuntimeError
            If another thread has a backend active.
        """
        outermost = self._enter()
        around, self.backend = self.backend, backend
        try:
            yield outermost
        finally:
            self.backend = around
            if outermost:
                self._thread = None

    def _enter(self) -> bool:
        """Enter a backend, and return whether the context is the outermost; refuse a second thread."""
        own = threading.current_thread()
        with self._entering:
            if self._thread not in (None, own):
                assert self._thread is not None
                raise RuntimeError(
                    f"simulation is active in thread {self._thread.name!r}, and for all threads, so {own.name!r} "
                    "cannot start another; enter it once, and call the kernels of every thread within it"
                )
            outermost, self._thread = self._thread is None, own
        return outermost


EXECUTION = Execution()
"""Executor of this process."""


@contextmanager
def compiling_for_gpu() -> Iterator[None]:
    """Compile as for a GPU within the context, even if a backend is active."""
    token = _for_gpu.set(True)
    try:
        yield
    finally:
        _for_gpu.reset(token)


def compiles_for_gpu() -> bool:
    """Return whether this is within `compiling_for_gpu`."""
    return _for_gpu.get()
