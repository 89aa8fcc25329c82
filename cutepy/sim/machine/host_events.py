"""Host events: streams, CUDA events, and accesses of host code to memory, as observers receive them beside launches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from cutepy.sim.machine.lanes import Array
from cutepy.sim.ptx.model import SourceLine


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """An operation on streams and events.

    Attributes
    ----------
    operation : str
        "create" a stream; "record" an event in a stream; let a stream "wait" for an event; let the host "synchronise"
        with a stream or an event, or with all work if neither is given; "graph" and "end_graph" stand around the work
        of a graph that is launched in a stream, where what comes next waits for the one before it alone, by the
        graph's edge, and not for what that one ran beside.
    stream, event : int or None
        Handles.
    blocking : bool
        Of a stream that is created, whether it waits for stream 0, and that for it.
    """

    operation: Literal["create", "record", "wait", "synchronise", "graph", "end_graph"]
    stream: int | None = None
    event: int | None = None
    blocking: bool = True


@dataclass(frozen=True, slots=True)
class HostAccess:
    """Memory that is read or written by something other than a kernel, in the order of a stream.

    Attributes
    ----------
    what : str
        Such as "aten::copy_".
    writes : bool
    starts : array of int, (run,)
        Starts of the runs of bytes.
    size_bytes : int
        Of each run.
    stream : int
    source : SourceLine or None
        Line of Python that asked for it.
    """

    what: str
    writes: bool
    starts: Array = field(repr=False)
    size_bytes: int
    stream: int
    source: SourceLine | None = None


@dataclass(frozen=True, slots=True)
class Allocation:
    """Memory that was allocated; `written` says whether there is something in it."""

    address: int
    size_bytes: int
    written: bool = False


REUSE = "reuse"
"""Name of a `HostAccess` by which an allocator gives freed memory to what comes next in a stream."""

HostEvent = StreamEvent | HostAccess | Allocation
