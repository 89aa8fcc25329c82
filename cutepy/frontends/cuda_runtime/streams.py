"""Streams and events of the CUDA runtime: launches run as they are asked for, so all work has ended at any time.

Observers receive the waits that a GPU would have.
"""

from __future__ import annotations

import ctypes
import time
from typing import Any

from cutepy.frontends.backend import tell
from cutepy.frontends.polling import CompletedWork
from cutepy.frontends.stream_state import captures, issue
from cutepy.sim.machine.host_events import StreamEvent

_INVALID_HANDLE = 400
_NOT_READY = 600
_FIRST_STREAM = 0x5800_0000


def put(address: int, value: int, kind: Any = ctypes.c_uint64) -> int:  # noqa: ANN401
    """Write a result where host code wants it; returns that all is well."""
    kind.from_address(address).value = value
    return 0


class StreamCalls:
    """Streams, events, and the order of work."""

    def __init__(self, *arguments: str) -> None:
        super().__init__(*arguments)
        self._recorded: dict[int, float | None] = {}
        self._events = 0
        self._streams = _FIRST_STREAM
        self._polled = CompletedWork()

    def do_cudaStreamCreate(self, stream: int, flags: int = 0, *_: object) -> int:
        """Give a handle."""
        self._streams += 16
        tell(StreamEvent("create", self._streams, blocking=not flags))
        return put(stream, self._streams)

    do_cudaStreamCreateWithFlags = do_cudaStreamCreateWithPriority = do_cudaStreamCreate

    def do_cudaStreamSynchronize(self, stream: int | None, *_: object) -> int:
        """Return: all work has ended."""
        self._polled.wait_for_stream(stream or 0)
        return 0

    def do_cudaStreamQuery(self, stream: int | None, *_: object) -> int:
        """Return whether all work of a stream has ended."""
        return 0 if self._polled.is_stream_over(stream or 0) else _NOT_READY

    def do_cudaStreamWaitEvent(self, stream: int | None, event: int, *_: object) -> int:
        """Return: all work has ended."""
        self._polled.let_wait(stream or 0, event)
        return 0

    def do_cudaEventSynchronize(self, event: int, *_: object) -> int:
        """Return: all work has ended."""
        self._polled.wait_for_event(event)
        return 0

    def do_cudaEventQuery(self, event: int, *_: object) -> int:
        """Return whether the work before an event has ended."""
        return 0 if self._polled.is_event_over(event) else _NOT_READY

    def do_cudaDeviceSynchronize(self, *_: object) -> int:
        """Return: all work has ended."""
        self._polled.wait_for_all()
        return 0

    def do_cudaStreamIsCapturing(self, stream: int | None, status: int) -> int:
        """Answer whether a stream is captured; Python may have begun the capture."""
        return put(status, int(captures.of(stream or 0) is not None), ctypes.c_int32)

    def do_cudaDeviceGetStreamPriorityRange(self, least: int, greatest: int) -> int:
        """Return the priorities of an H200."""
        put(greatest, -5, ctypes.c_int32)
        return put(least, 0, ctypes.c_int32)

    def do_cudaLaunchHostFunc(self, stream: int | None, function: int, data: int) -> int:
        """Call a function of the host; all earlier launches have ended."""
        issue(stream or 0, lambda place: ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function)(data))
        return 0

    def do_cudaEventCreate(self, event: int, *_: object) -> int:
        """Give a handle."""
        self._events += 1
        self._recorded[self._events] = None
        return put(event, self._events)

    do_cudaEventCreateWithFlags = do_cudaEventCreate

    def do_cudaEventDestroy(self, event: int) -> int:
        """Forget an event."""
        return 0 if self._recorded.pop(event, _INVALID_HANDLE) != _INVALID_HANDLE else _INVALID_HANDLE

    def do_cudaEventRecord(self, event: int, stream: int | None, *_: object) -> int:
        """Note the time."""
        if event not in self._recorded:
            return _INVALID_HANDLE
        self._polled.record(stream or 0, event)
        self._recorded[event] = time.perf_counter()
        return 0

    do_cudaEventRecordWithFlags = do_cudaEventRecord

    def do_cudaEventElapsedTime(self, milliseconds: int, start: int, end: int) -> int:
        """Answer with the milliseconds of simulation between two events."""
        first, last = self._recorded.get(start), self._recorded.get(end)
        if first is None or last is None:
            return _INVALID_HANDLE
        ctypes.c_float.from_address(milliseconds).value = 1e3 * (last - first)
        return 0

    def _nothing_is_pending(self, *_: object) -> int:
        return 0

    do_cudaStreamDestroy = do_cudaDeviceReset = _nothing_is_pending
    do_cudaGetLastError = do_cudaPeekAtLastError = _nothing_is_pending
