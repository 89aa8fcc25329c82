"""Current stream of each thread, and streams whose work is captured for a CUDA graph.

No other module keeps the current stream or a capture. Code that issues work (a launch, an operator, a copy, an event)
takes the current stream from this module and passes the work to `issue`, which does the work or stores it in the graph.

References
----------
CUDA Programming Guide, "Creating a Graph Using Stream Capture" and "Prohibited and Unhandled Operations"; CUDA Runtime
API, "Stream synchronization behavior", `cudaStreamBeginCapture`, `cudaStreamWaitEvent`; PyTorch, "CUDA semantics".
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

LEGACY = 0
"""Handle of the default stream."""
_LEGACY_BY_NAME, _PER_THREAD = 1, 2
"""cudaStreamLegacy, another name of stream 0; cudaStreamPerThread, which is another stream in each thread."""

handles = itertools.count(0x5700_0000, 16)
"""Handles of streams and events that are made."""

_T = TypeVar("_T")
_Work = Callable[[int], object]
"""Does work in the stream of a handle."""


# Current streams.


class _ThreadStreams(threading.local):
    """Streams that a thread has chosen, the current one last, and the thread's own default stream."""

    def __init__(self) -> None:
        thread = threading.current_thread()
        self.chosen: list[Any] = []
        self.default = _PER_THREAD if thread is threading.main_thread() else next(handles)
        self.is_pythons = not isinstance(thread, threading._DummyThread)
        self.replays = 0


_thread = _ThreadStreams()
_lent: list[Any] = []


def handle_of(stream: Any) -> int:  # noqa: ANN401
    """Return the handle by which a stream is known: stream 0 has two names, and cudaStreamPerThread is many streams.

    Parameters
    ----------
    stream : int, torch.cuda.Stream, CUstream or None

    Examples
    --------
    >>> [handle_of(stream) for stream in (None, 0, 1, 2, 0x57000010)]
    [0, 0, 0, 2, 1459617808]
    """
    handle = int(getattr(stream, "cuda_stream", stream) or LEGACY)
    if handle == _LEGACY_BY_NAME:
        return LEGACY
    return _thread.default if handle == _PER_THREAD else handle


def chosen() -> Any:  # noqa: ANN401
    """Return the stream that the calling thread has chosen, as it was given; None for the default stream."""
    if _thread.chosen:
        return _thread.chosen[-1]
    return _lent[-1] if _lent and not _thread.is_pythons else None


def current() -> int:
    """Return the handle of the stream that work of the calling thread goes to."""
    return handle_of(chosen())


def choose(stream: Any) -> None:  # noqa: ANN401
    """Send work of the calling thread to a stream, until another is chosen."""
    _thread.chosen[-1:] = [stream]


def enter(stream: Any) -> None:  # noqa: ANN401
    """Send work of the calling thread to a stream, until `leave`."""
    _thread.chosen.append(stream)


def leave() -> None:
    """Send work of the calling thread to the stream of before the last `enter`."""
    _thread.chosen.pop()


@contextmanager
def using(stream: Any) -> Iterator[None]:  # noqa: ANN401
    """Send work of the calling thread to a stream while the context is active."""
    enter(stream)
    try:
        yield
    finally:
        leave()


@contextmanager
def lending_to_engine() -> Iterator[None]:
    """Let threads that Python did not start, those of torch's autograd engine, use this thread's current stream."""
    _lent.append(current())
    try:
        yield
    finally:
        _lent.pop()


@contextmanager
def replaying() -> Iterator[None]:
    """Mark the replay of a graph: the memory of its work was allocated at the capture."""
    _thread.replays += 1
    try:
        yield
    finally:
        _thread.replays -= 1


def is_replaying() -> bool:
    """Return whether the calling thread does a graph's work."""
    return _thread.replays > 0


def allocates() -> bool:
    """Return whether memory that is asked for now is allocated in the current stream: graphs keep theirs."""
    return not _thread.replays and captures.of(current()) is None


# Capture.


class CaptureError(RuntimeError):
    """CUDA would refuse an operation on a stream that is captured, or on an event recorded in one.

    Attributes
    ----------
    code : int
        The error's number, which is the same in `CUresult` and `cudaError_t`.
    """

    def __init__(self, code: int, advice: str) -> None:
        self.code = code
        super().__init__(f"CUDA error: {_ERRORS[code]}; {advice}")


ILLEGAL, UNSUPPORTED, MERGE, UNMATCHED, UNJOINED, ISOLATION, IMPLICIT, CAPTURED_EVENT = 401, 900, *range(902, 908)
_ERRORS = {
    ILLEGAL: "the operation cannot be performed in the present state",
    UNSUPPORTED: "operation not permitted when stream is capturing",
    MERGE: "operation would result in a merge of separate capture sequences",
    UNMATCHED: "capture was not ended in the same stream as it began",
    UNJOINED: "capturing stream has unjoined work",
    ISOLATION: "dependency created on uncaptured work in another stream",
    IMPLICIT: "operation would make the legacy stream depend on a capturing blocking stream",
    CAPTURED_EVENT: "operation not permitted on an event last recorded in a capturing stream",
}


@dataclass(eq=False)
class Capture:
    """Captured work of a graph: of the stream whose capture began, and of the streams that joined by events.

    Attributes
    ----------
    number : int
        No other capture has it.
    origin : int
        Handle of the stream whose capture began.
    work : list of (int, function)
        In the order of issue: the captured stream, and what does the work in the stream that takes its place.
    nodes : int
        Pieces of work that are no events.
    memory : dict
        Tensors that kernels were given, by id: memory of a graph lives as long as the graph.
    """

    number: int
    origin: int
    work: list[tuple[int, _Work]] = field(default_factory=list)
    nodes: int = 0
    memory: dict[int, object] = field(default_factory=dict)
    # By stream, a vector clock: how many nodes of each stream come before what the stream does next.
    _clocks: dict[int, dict[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._clocks[self.origin] = {}

    @property
    def streams(self) -> tuple[int, ...]:
        """Handles of the streams that take part, the origin first."""
        return tuple(self._clocks)

    def keep(self, stream: int, work: _Work) -> None:
        """Keep a node."""
        self.work.append((stream, work))
        self.nodes += 1
        clock = self._clocks[stream]
        clock[stream] = clock.get(stream, 0) + 1

    def clock(self, stream: int) -> dict[int, int]:
        """Return the clock of a stream: all that happens before its next operation."""
        return dict(self._clocks[stream])

    def join(self, stream: int, clock: dict[int, int]) -> None:
        """Order the next work of a stream, which may be new to the capture, after the work that an event follows."""
        mine = self._clocks.setdefault(stream, {})
        for other, count in clock.items():
            mine[other] = max(mine.get(other, 0), count)

    def unjoined(self) -> tuple[int, ...]:
        """Return the streams with nodes that the origin has not waited for."""
        known = self._clocks[self.origin]
        return tuple(s for s, clock in self._clocks.items() if clock.get(s, 0) > known.get(s, 0))


@dataclass(frozen=True)
class _RecordedInCapture:
    """An event as it was last recorded, in the capture of this number, whose graph knows it by this handle."""

    number: int
    clock: dict[int, int]
    handle: int


class Captures:
    """Captures in progress."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._of: dict[int, Capture] = {}
        self._events: dict[int, _RecordedInCapture] = {}
        self._apart: set[int] = set()

    def made(self, stream: int, *, blocking: bool) -> None:
        """Record whether a new stream is non-blocking: it and the default stream do not wait for each other."""
        (self._apart.discard if blocking else self._apart.add)(stream)

    def of(self, stream: int) -> Capture | None:
        """Return the capture that a stream takes part in."""
        return self._of.get(handle_of(stream))

    def keeping(self, stream: int) -> Capture | None:
        """Return the capture that keeps work which is now issued to a stream; None where the work is to be done.

        Raises
        ------
        CaptureError
            If it is work of the default stream, and one that waits for the default stream is captured.
        """
        if not self._of:
            return None
        stream = handle_of(stream)
        if stream == LEGACY and any(captured not in self._apart for captured in self._of):
            raise CaptureError(IMPLICIT, "issue the work to the captured stream, or make that non-blocking")
        return self._of.get(stream)

    def begin(self, stream: int) -> None:
        """Begin to keep the work of a stream."""
        stream = handle_of(stream)
        if stream == LEGACY:
            raise CaptureError(UNSUPPORTED, "the default stream cannot be captured; capture another one")
        if stream in self._of:
            raise CaptureError(ILLEGAL, "the stream is captured already; end that capture first")
        self._of[stream] = Capture(next(self._numbers), stream)

    def end(self, stream: int) -> Capture:
        """End the capture that began in a stream, and return it.

        Raises
        ------
        CaptureError
            If none began there, or the origin has not waited for work of a stream that joined; the capture is over.
        """
        stream = handle_of(stream)
        capture = self._of.get(stream)
        if capture is None:
            raise CaptureError(ILLEGAL, "the stream is not captured; begin a capture there first")
        if capture.origin != stream:
            raise CaptureError(UNMATCHED, f"end it in stream {capture.origin:#x}")
        for each in capture.streams:
            del self._of[each]
        if unjoined := capture.unjoined():
            raise CaptureError(
                UNJOINED,
                f"record an event in stream {', '.join(f'{s:#x}' for s in unjoined)} after its last work, and let "
                f"stream {stream:#x}, in which the capture began, wait for the event",
            )
        return capture

    def refuse_waiting(self, stream: int | None = None, event: int | None = None) -> None:
        """Raise if the host may not wait for a stream or an event, or for all work if neither is given."""
        if event is not None:
            if event in self._events:
                raise CaptureError(CAPTURED_EVENT, "record it anew in a stream that is not captured")
        elif self._of if stream is None else handle_of(stream) in self._of:
            raise CaptureError(UNSUPPORTED, "wait before the capture begins, or once it has ended")

    def record(self, stream: int, event: int) -> int | None:
        """Record an event in a stream; returns the handle that its graph knows it by, or None outside of a capture."""
        capture = self.keeping(stream)
        if capture is None:
            self._events.pop(event, None)
            return None
        recorded = _RecordedInCapture(capture.number, capture.clock(handle_of(stream)), next(handles))
        self._events[event] = recorded
        return recorded.handle

    def wait(self, stream: int, event: int) -> int | None:
        """Let a stream wait for an event; returns the handle that its graph knows it by, or None outside of a capture.

        Raises
        ------
        CaptureError
            If either is captured and the other is not, except that a stream joins the capture of an event.
        """
        stream, recorded, capture = handle_of(stream), self._events.get(event), self._of.get(handle_of(stream))
        if recorded is None:
            if capture is not None:
                raise CaptureError(ISOLATION, "record the event in a stream of the capture, after the capture began")
            return None
        joined = next((each for each in self._of.values() if each.number == recorded.number), None)
        if joined is None:
            raise CaptureError(CAPTURED_EVENT, "the capture has ended; record it anew in a stream that is not captured")
        if capture is not None and capture is not joined:
            raise CaptureError(MERGE, "end one capture before the other's stream waits")
        if stream == LEGACY:
            raise CaptureError(IMPLICIT, "fork to a stream that was made")
        self._of[stream] = joined
        joined.join(stream, recorded.clock)
        return recorded.handle

    def adopt(self, tensor: object) -> None:
        """Keep memory that a kernel is given for as long as the graphs of the captures in progress live."""
        for capture in self._of.values():
            capture.memory[id(tensor)] = tensor

    def drop(self) -> None:
        """Forget all captures."""
        self._of.clear()
        self._events.clear()


captures = Captures()


def restart() -> None:
    """Forget all captures, and the streams that the calling thread has chosen."""
    captures.drop()
    _thread.chosen.clear()


def issue(stream: int, work: Callable[[int], _T]) -> _T | None:
    """Do work of a stream, or keep it where the stream is captured.

    Parameters
    ----------
    stream : int
        Handle.
    work : function
        Is called with the handle of the stream that it is done in: at a replay, the one that takes the captured one's
        place.

    Returns
    -------
    object
        Result of the work; None if it is captured.
    """
    stream = handle_of(stream)
    capture = captures.keeping(stream)
    if capture is None:
        return work(stream)
    capture.keep(stream, work)
    return None
