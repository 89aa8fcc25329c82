"""Ctrl-C while compiled host code runs: an exception that a signal raises must not be lost in its C frames.

Python's handler of SIGINT raises KeyboardInterrupt in whatever Python code runs next. In a function that C code calls
there may be nobody above to raise it to: ctypes prints it and goes on.
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
        """Put a SIGINT off until `deliver`."""
        self._kept.append(frame)

    def deliver(self) -> None:
        """Handle what was kept, as Python does: by raising KeyboardInterrupt."""
        while self._kept:
            self._handler(signal.SIGINT, self._kept.pop(0))


@contextmanager
def interrupts_kept(callback: CodeType) -> Iterator[Interrupts]:
    """Keep the SIGINTs that come in a callback's own frame while the context is active; it delivers the rest.

    Parameters
    ----------
    callback : code object
        A function that C code calls. It catches what is raised by what it calls, `Interrupts.deliver` first of all.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        # Signals are handled in the main thread only, and without a handler in Python nothing is raised.
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
