"""Waits of host code for streams and events, and queries whether streams and events have completed.

Launches run at once, so every stream and event has completed at any time. For the sanitizer, host code is ordered after
a launch only if it has waited. A query that answers "complete" is a wait, unless the host code ignores the answer.
Therefore the first query answers "not ready", unless the host has waited already. A host that repeats the query waits
by it.

References
----------
CUDA Runtime API, "cudaStreamQuery" and "cudaEventQuery": success is equivalent to a call of the function that waits.
"""

from __future__ import annotations

from typing import Literal

from cutepy.frontends.backend import active_run, tell
from cutepy.frontends.stream_state import captures, handle_of
from cutepy.sim.machine.host_events import StreamEvent


class CompletedWork:
    """Streams and events that the host knows to be complete; observers are told of each wait.

    Examples
    --------
    >>> work = CompletedWork()
    >>> work.record(stream=0, event=7)
    >>> [work.is_event_over(7) for _ in range(3)]
    [False, True, True]
    >>> work.record(stream=0, event=7)
    >>> work.wait_for_all()
    >>> work.is_event_over(7)
    True
    """

    def __init__(self) -> None:
        self._pending: dict[int, int] = {}  # events that the host does not know to be over, and their streams
        self._asked: set[int] = set()  # those that it was told not to be
        self._launches: dict[int | None, object] = {}  # by stream, or of all: what had run when waited for or asked

    def record(self, stream: int, event: int) -> None:
        """Record an event in a stream."""
        stream = handle_of(stream)
        _told_or_kept("record", stream, event, captures.record(stream, event))
        self._pending[event] = stream
        self._asked.discard(event)

    def let_wait(self, stream: int, event: int) -> None:
        """Let a stream wait for an event."""
        stream = handle_of(stream)
        _told_or_kept("wait", stream, event, captures.wait(stream, event))

    def wait_for_event(self, event: int) -> None:
        """Let the host wait for an event."""
        captures.refuse_waiting(event=event)
        self._pending.pop(event, None)
        tell(StreamEvent("synchronise", event=event))

    def wait_for_stream(self, stream: int) -> None:
        """Let the host wait for a stream."""
        stream = handle_of(stream)
        captures.refuse_waiting(stream)
        self._pending = {event: other for event, other in self._pending.items() if other != stream}
        self._launches[stream] = _launched()
        tell(StreamEvent("synchronise", stream))

    def wait_for_all(self) -> None:
        """Let the host wait for all streams."""
        captures.refuse_waiting()
        self._pending.clear()
        self._launches[None] = _launched()
        tell(StreamEvent("synchronise"))

    def is_event_over(self, event: int) -> bool:
        """Return whether an event is over, as `cudaEventQuery` does; one that was not recorded is."""
        captures.refuse_waiting(event=event)
        if event not in self._pending:
            return True
        if event not in self._asked:
            self._asked.add(event)
            return False
        self.wait_for_event(event)
        return True

    def is_stream_over(self, stream: int) -> bool:
        """Return whether a stream is over, as `cudaStreamQuery` does: if nothing was launched since it was asked of."""
        stream = handle_of(stream)
        captures.refuse_waiting(stream)
        launched = _launched()
        if launched in (self._launches.get(stream), self._launches.get(None)):
            self.wait_for_stream(stream)
            return True
        self._launches[stream] = launched
        return False


def _told_or_kept(operation: Literal["record", "wait"], stream: int, event: int, captured: int | None) -> None:
    """Tell observers of an event's record or wait; where a graph knows the event by a handle, tell them at replays."""
    if captured is None:
        tell(StreamEvent(operation, stream, event))
        return
    capture = captures.of(stream)
    assert capture is not None
    capture.work.append((stream, lambda place: tell(StreamEvent(operation, place, captured))))


def _launched() -> object:
    """Return an object that differs after each launch."""
    run = active_run()
    return None if run is None else (id(run), len(run.launches))
