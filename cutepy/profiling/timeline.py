"""Timelines of kernels: the ranges of each warp, from the probes of `cutepy.device.mark` and of the blocks."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cutepy.extras import require
from cutepy.profiling.timeline_text import print_timeline
from cutepy.profiling.warps import Warp, events, read
from cutepy.runtime.execution import EXECUTION
from cutepy.runtime.timeline_state import EVENT_BYTES, HEADER_BYTES, TIMELINE, TimelineBuffer


class Timeline:
    """Events of the kernels that were compiled and launched within `timeline`.

    Attributes
    ----------
    simulated : bool
        True if clocks are steps of the simulator.
    """

    def __init__(self, buffer: TimelineBuffer) -> None:
        self._buffer = buffer
        self.simulated = not hasattr(buffer.memory, "is_cuda")

    def clear(self) -> None:
        """Clear all events, once the GPU is idle; the next launch records anew."""
        self._synchronise()
        self._buffer.memory[:] = 0

    def warps(self) -> list[Warp]:
        """Read the events: of each warp, those of the first launch since the beginning or `clear`."""
        self._synchronise()
        memory = self._buffer.memory
        host = memory if self.simulated else memory.cpu().numpy().view("uint32")
        return read(host, self._buffer)

    def print(self) -> None:
        """Print the time of each range, by warps that do the same."""
        print_timeline(self.warps(), simulated=self.simulated)

    def save_trace(self, path: str | Path) -> None:
        """Write a trace that Perfetto and Chrome show: a process for each CTA, a thread for each warp."""
        Path(path).write_text(json.dumps({"traceEvents": events(self.warps()), "displayTimeUnit": "ns"}))

    def _synchronise(self) -> None:
        if not self.simulated:
            sys.modules["torch"].cuda.synchronize()


@contextmanager
def timeline(*, ctas: int = 160, warps: int = 16, events: int = 2048) -> Iterator[Timeline]:
    """Instrument the kernels compiled within the context: their warps record ranges, on a GPU or in the simulator.

    A kernel that was compiled before has no probes. A warp's events are those of its first launch; `Timeline.clear`
    before a launch chooses another.

    Parameters
    ----------
    ctas, warps, events : int
        Room of the buffer: the first CTAs of a launch, warps of a CTA, events of a warp of 16 bytes each.

    Yields
    ------
    Timeline

    Raises
    ------
    RuntimeError
        If a timeline is active.
    MissingPackagesError
        If torch or numpy is not installed.
    """
    require("cutepy.profiling.timeline", "torch", "numpy")
    if TIMELINE.buffer is not None:
        raise RuntimeError("one timeline at a time may be active, and one is; end it first")
    buffer = _buffer(ctas, warps, events)
    TIMELINE.kept.append(buffer)  # its kernels may be launched later
    TIMELINE.buffer = buffer
    try:
        yield Timeline(buffer)
    finally:
        TIMELINE.buffer = None


def _buffer(ctas: int, warps: int, events: int) -> TimelineBuffer:
    words = ctas * warps * (HEADER_BYTES + EVENT_BYTES * events) // 4
    memory: Any
    if EXECUTION.backend is None:
        import torch

        if torch.cuda.is_available():
            memory = torch.zeros(words, dtype=torch.int32, device="cuda")
            return TimelineBuffer(memory, memory.data_ptr(), ctas, warps, events)
    import numpy as np

    memory = np.zeros(words + 4, np.uint32)
    memory = memory[-memory.ctypes.data % 16 // 4 :][:words]  # an event is stored as 16 aligned bytes
    return TimelineBuffer(memory, memory.ctypes.data, ctas, warps, events)
