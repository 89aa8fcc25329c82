"""Streams and events of the simulated device: work runs synchronously and in order, so no wait blocks.

Observers receive the waits that a GPU would have; a host that polls waits by its queries (`cutepy.frontends.polling`).

Times between events are the host's: how long the simulation took, which says nothing about a GPU.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cutepy.frontends import stream_state
from cutepy.frontends.backend import tell
from cutepy.frontends.polling import CompletedWork
from cutepy.frontends.torch_device.devices import index_of
from cutepy.sim.machine.host_events import StreamEvent

polled = CompletedWork()


class Stream:
    """Result of `torch.cuda.Stream`."""

    def __init__(
        self,
        device: object = None,
        priority: int = 0,
        *,
        handle: int | None = None,
        blocking: bool = False,
        **_: object,
    ) -> None:
        index_of(device)
        self.cuda_stream = next(stream_state.handles) if handle is None else handle
        self.priority = priority
        if handle != 0:
            global _several
            _several = True
        if handle is None:  # torch makes streams that do not wait for the default stream
            tell(StreamEvent("create", self.cuda_stream, blocking=blocking))

    @property
    def device(self) -> Any:  # noqa: ANN401
        """The simulated device."""
        import torch

        return torch.device("cuda", 0)

    @property
    def device_index(self) -> int:
        """The simulated device's index."""
        return 0

    @property
    def stream_id(self) -> int:
        """The stream's handle."""
        return self.cuda_stream

    def synchronize(self) -> None:
        """Return: all work has ended."""
        polled.wait_for_stream(self.cuda_stream)

    def wait_stream(self, stream: Stream) -> None:
        """Return: all work has ended."""
        self.wait_event(stream.record_event())

    def wait_event(self, event: Event) -> None:
        """Return: all work has ended."""
        event.wait(self)

    def query(self) -> bool:
        """Tell that all work has ended, where the host has waited for it, or it is asked for the second time."""
        return polled.is_stream_over(self.cuda_stream)

    def is_capturing(self) -> bool:
        """Return whether its work is kept for a graph."""
        return stream_state.captures.of(self.cuda_stream) is not None

    def record_event(self, event: Event | None = None) -> Event:
        """Record an event."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.cuda_stream

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.cuda_stream == self.cuda_stream

    def __hash__(self) -> int:
        return hash(self.cuda_stream)

    def __enter__(self) -> Stream:
        stream_state.enter(self)
        return self

    def __exit__(self, *_: object) -> None:
        stream_state.leave()


class ExternalStream(Stream):
    """Result of `torch.cuda.ExternalStream`: the stream of a handle."""

    def __init__(self, stream_ptr: int, device: object = None, **_: object) -> None:
        super().__init__(device, handle=stream_ptr)


class Event:
    """Result of `torch.cuda.Event`."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, **_: object) -> None:
        self.cuda_event = next(stream_state.handles)
        self.has_timing = enable_timing
        self.time_ns: int | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Note the time."""
        self.time_ns = time.perf_counter_ns()
        polled.record(_handle(stream), self.cuda_event)

    def wait(self, stream: Stream | None = None) -> None:
        """Return: all work has ended."""
        polled.let_wait(_handle(stream), self.cuda_event)

    def synchronize(self) -> None:
        """Return: all work has ended."""
        polled.wait_for_event(self.cuda_event)

    def query(self) -> bool:
        """Tell that all work has ended, where the host has waited for it, or it is asked for the second time."""
        return polled.is_event_over(self.cuda_event)

    def elapsed_time(self, end_event: Event) -> float:
        """Return the milliseconds that the simulation took between two events."""
        if self.time_ns is None or end_event.time_ns is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        if not (self.has_timing and end_event.has_timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        return (end_event.time_ns - self.time_ns) / 1e6


def _handle(stream: Stream | None) -> int:
    return stream_state.current() if stream is None else stream.cuda_stream


def synchronize(device: object = None) -> None:
    """Return: all work has ended."""
    index_of(device)
    polled.wait_for_all()


_several = False
DEFAULT = Stream(handle=0)


def are_several() -> bool:
    """Return whether any stream besides the default one was made."""
    return _several


def current_stream(device: object = None) -> Stream:
    """Return the stream that work goes to."""
    index_of(device)
    chosen = stream_state.chosen()
    if isinstance(chosen, Stream):
        return chosen
    return DEFAULT if not chosen else ExternalStream(chosen)


def default_stream(device: object = None) -> Stream:
    """Return the stream with handle 0."""
    index_of(device)
    return DEFAULT


def set_stream(stream: Stream | None) -> None:
    """Send work to a stream."""
    if stream is not None:
        stream_state.choose(stream)


@contextmanager
def using(stream: Stream | None) -> Iterator[None]:
    """Send work to a stream while the context is active."""
    with stream_state.using(current_stream() if stream is None else stream):
        yield
