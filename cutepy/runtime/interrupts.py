"""Ctrl-C while C and C++ code calls Python: the KeyboardInterrupt must neither be lost nor end the process.

Python's handler of SIGINT raises KeyboardInterrupt in the Python code that runs next. In a Python function that C code
calls, the exception may have no Python caller: ctypes then prints the exception and goes on.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any


class Interrupts:
    """SIGINTs that came in a frame that cannot raise, oldest first."""

    def __init__(self, handler: Callable[[int, FrameType | None], Any]) -> None:
        self._handler = handler
        self._kept: list[FrameType | None] = []

    def keep(self, frame: FrameType | None) -> None:
        """Defer a SIGINT until `deliver`."""
        self._kept.append(frame)

    @property
    def any(self) -> bool:
        """True if a SIGINT is deferred."""
        return bool(self._kept)

    def forget(self) -> None:
        """Drop the deferred SIGINTs."""
        self._kept.clear()

    def deliver(self) -> None:
        """Handle the deferred SIGINTs as Python does: raise KeyboardInterrupt."""
        while self._kept:
            self._handler(signal.SIGINT, self._kept.pop(0))


@contextmanager
def interrupts_kept(callback: CodeType) -> Iterator[Interrupts]:
    """Defer SIGINTs in a callback's own frame while the context is active; the context delivers the rest.

    Parameters
    ----------
    callback : code object
        A function that C code calls. It catches what is raised by what it calls, `Interrupts.deliver` first of all.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        # Signals are handled in the main thread only, and without a Python handler nothing is raised.
        yield Interrupts(lambda number, frame: None)
        return
    interrupts = Interrupts(handler)

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        if frame is not None and frame.f_code is callback:
            interrupts.keep(frame)
        else:
            handler(number, frame)

    signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, handler)
    interrupts.deliver()


_held: list[tuple[Interrupts, Any]] = []
"""Holder of `interrupts_held`, with the replaced handler; at most one."""


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Defer a SIGINT until the context ends; a second one is handled at once.

    Where C++ code calls Python, an exception that a signal raises ends the process: nanobind aborts. It is for the
    main thread, which handles signals; within another of its kind the context does nothing.

    Examples
    --------
    >>> reached = []
    >>> try:
    ...     with interrupts_held():
    ...         signal.raise_signal(signal.SIGINT)
    ...         reached.append("the end")
    ... except KeyboardInterrupt:
    ...     reached.append("stopped")
    >>> reached
    ['the end', 'stopped']
    """
    handler = signal.getsignal(signal.SIGINT)
    if _held or threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    kept = Interrupts(handler)

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        if kept.any:  # the user who presses Ctrl-C twice won't wait
            kept.forget()
            handler(number, frame)
        else:
            kept.keep(frame)

    _held.append((kept, handler))
    signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        _held.clear()
        signal.signal(signal.SIGINT, handler)
        kept.deliver()


@contextmanager
def interrupts_let_through() -> Iterator[None]:
    """Handle SIGINTs at once while the context is active, also within `interrupts_held`: kernels run there."""
    if not _held or threading.current_thread() is not threading.main_thread():
        yield
        return
    (kept, handler), holding = _held[0], signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, handler)
    try:
        kept.deliver()
        yield
    finally:
        signal.signal(signal.SIGINT, holding)
