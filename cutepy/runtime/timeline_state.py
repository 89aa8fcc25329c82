"""State of timelines: where the probes of kernels that are compiled now write, and the names of their ranges."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

HEADER_BYTES = 48
"""Of a warp's part of the buffer: count of events (u32), grid (u32), SM (u32), 4 bytes without meaning, global timer
(u64) and clock (u64) at the first event, and the same at the last at which the timer was read."""
EVENT_BYTES = 16
"""Clock (u64), tag (u32) and argument (u32)."""


@dataclass
class TimelineBuffer:
    """Memory that probes write to: a part for each warp of the first CTAs of a launch.

    Attributes
    ----------
    memory : Tensor
        Of the GPU, or of the host where kernels are simulated.
    address : int
    ctas : int
        CTAs of a launch that have a part; those behind them write nothing.
    warps : int
        Of a CTA.
    events : int
        That a warp may write; those behind are dropped, and counted.
    names : list of str
        Name of each range; a range's tag is twice the place here, and one more at the range's end.
    """

    memory: Any
    address: int
    ctas: int
    warps: int
    events: int
    names: list[str] = field(default_factory=list)

    @property
    def remark(self) -> str:
        """Comment in the PTX of each kernel with probes that write here."""
        return f"// timeline at {self.address:#x}"

    @property
    def part_bytes(self) -> int:
        """Size of a warp's part."""
        return HEADER_BYTES + EVENT_BYTES * self.events

    def tag(self, name: str) -> int:
        """Return the tag of a range's begin."""
        if name not in self.names:
            self.names.append(name)
        return 2 * self.names.index(name)


class TimelineState:
    """Timeline of this process, `TIMELINE`.

    Attributes
    ----------
    buffer : TimelineBuffer or None
        Where the probes of kernels that are compiled now write; None: these have no probes.
    kept : list of TimelineBuffer
        All that kernels of this process were compiled to write to: kernels may be launched as long as it lives.
    """

    __slots__ = ("buffer", "kept")

    def __init__(self) -> None:
        self.buffer: TimelineBuffer | None = None
        self.kept: list[TimelineBuffer] = []

    @contextmanager
    def off(self) -> Iterator[None]:
        """Compile without probes within the context."""
        before, self.buffer = self.buffer, None
        try:
            yield
        finally:
            self.buffer = before


TIMELINE = TimelineState()
"""Timeline of this process."""
