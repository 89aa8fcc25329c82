"""Executor of compiled functions: the GPU, or a backend, such as the simulator, that takes the launches."""

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

    __slots__ = ("_backends", "_entering", "_thread", "backend")

    def __init__(self) -> None:
        self.backend: Backend | None = None
        self._backends: list[Backend] = []
        self._entering = threading.Lock()
        self._thread: threading.Thread | None = None

    @contextmanager
    def on(self, backend: Backend, *, lends: bool = False) -> Iterator[bool]:
        """Send the launches of all threads to a backend. Contexts nest: the innermost backend gets them.

        Parameters
        ----------
        backend : Backend
        lends : bool
            True if any one thread may have a backend active within the context, and not this thread alone.

        Yields
        ------
        bool
            True if this is the outermost of nested contexts.

        Raises
        ------
        RuntimeError
            If another thread has a backend active.
        """
        own = threading.current_thread()
        with self._entering:
            before = self._thread
            if before not in (None, own):
                assert before is not None
                raise RuntimeError(
                    f"simulation is active in thread {before.name!r}, and for all threads, so {own.name!r} "
                    "cannot start another; enter it once, and call the kernels of every thread within it"
                )
            outermost = not self._backends
            self._thread, self.backend = None if lends else own, backend
            self._backends.append(backend)
        try:
            yield outermost
        finally:
            with self._entering:
                if backend in self._backends:  # or a context around this one is over
                    del self._backends[self._backends.index(backend) :]
                self._thread, self.backend = before, self._backends[-1] if self._backends else None


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
