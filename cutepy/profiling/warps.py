"""Warps' ranges of a timeline: read from the buffer that probes write, and as events of a trace."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from cutepy.runtime.timeline_state import HEADER_BYTES, TimelineBuffer

NOMINAL_GHZ = 1.755
"""SM clock of an H200, assumed where the readings of the global timer are too close to measure the clock."""
_APART_NS = 2000
"""Least distance of two readings of the global timer that measure the clock: the timer steps by 32 ns or more."""


@dataclass(frozen=True)
class Range:
    """Range of a warp.

    Attributes
    ----------
    name : str
    argument : int
        Number that the kernel passed, such as a stage.
    begin, end : int
        Clocks of the SM.
    depth : int
        Number of the warp's ranges around it.
    """

    name: str
    argument: int
    begin: int
    end: int
    depth: int = 0


@dataclass(frozen=True)
class Warp:
    """Warp of a launch.

    Attributes
    ----------
    launch : int
        The low 32 bits of the grid's number.
    cta, warp : int
        The CTA's linear index in the grid, and the warp's in the CTA.
    sm : int
    ranges : tuple of Range
        By their begin.
    dropped : int
        Events for which the buffer had no room.
    readings : ((int, int), (int, int))
        Two pairs of global timer, in ns, and SM clock.
    """

    launch: int
    cta: int
    warp: int
    sm: int
    ranges: tuple[Range, ...]
    dropped: int
    readings: tuple[tuple[int, int], tuple[int, int]]


def read(memory: Any, buffer: TimelineBuffer) -> list[Warp]:  # noqa: ANN401 - an array of uint32
    """Read the events that probes wrote.

    Parameters
    ----------
    memory : array of uint32
    buffer : TimelineBuffer
        Its extents and names are used.
    """
    found = []
    parts = memory.reshape(buffer.ctas * buffer.warps, buffer.part_bytes // 4)
    for place in parts[:, 0].nonzero()[0].tolist():
        count, grid, sm = parts[place, :3].tolist()
        timer, clock, last_timer, last_clock = parts[place, 4:12].view("uint64").tolist()
        rows = parts[place, HEADER_BYTES // 4 :].reshape(-1, 4)[: min(count, buffer.events)]
        ranges = _ranges(((low + (high << 32), tag, arg) for low, high, tag, arg in rows.tolist()), buffer.names)
        dropped = max(0, count - buffer.events)
        readings = (timer, clock), (last_timer, last_clock)
        cta, warp = divmod(place, buffer.warps)
        found.append(Warp(grid, cta, warp, sm, ranges, dropped, readings))
    return found


def _ranges(events: Iterable[tuple[int, int, int]], names: Sequence[str]) -> tuple[Range, ...]:
    """Pair begins and ends; a range whose end is missing is left out, as where the buffer is full."""
    begun: list[tuple[int, int, int]] = []
    ranges = []
    for clock, tag, argument in events:
        if tag % 2 == 0:
            begun.append((clock, tag, argument))
            continue
        while begun and begun[-1][1] != tag - 1:
            begun.pop()
        if begun:
            begin, _, given = begun.pop()
            ranges.append(Range(names[tag // 2], given, begin, clock, len(begun)))
    return tuple(sorted(ranges, key=lambda each: (each.begin, each.depth)))


def clock_ghz(warps: Sequence[Warp]) -> float:
    """Return the clock of the SMs, by the readings that are furthest apart on one SM; a nominal one if none are."""
    by_sm: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for warp in warps:
        by_sm[warp.launch, warp.sm] += warp.readings
    spans = [(max(each)[0] - min(each)[0], max(each)[1] - min(each)[1]) for each in by_sm.values()]
    ns, clocks = max(spans, default=(0, 0))
    return clocks / ns if ns >= _APART_NS else NOMINAL_GHZ


def probe_clocks(warps: Sequence[Warp]) -> int:
    """Return the shortest time between two events of a warp, in clocks: a probe takes no longer than that."""
    shortest = []
    for warp in warps:
        times = sorted(clock for each in warp.ranges for clock in (each.begin, each.end))
        shortest += [later - earlier for earlier, later in pairwise(times)]
    return min(shortest, default=0)


def events(warps: Sequence[Warp]) -> list[dict[str, Any]]:
    """List the events of a trace: microseconds since the first event of all, by the global timer."""
    ghz = clock_ghz(warps)
    first = min((warp.readings[0][0] for warp in warps), default=0)
    found: list[dict[str, Any]] = []
    for warp in warps:
        process = f"CTA {warp.cta} of grid {warp.launch}"
        of = {"pid": f"{warp.launch}:{warp.cta:05}", "tid": warp.warp}
        found.append({"ph": "M", "name": "process_name", "args": {"name": f"{process}, SM {warp.sm}"}, **of})
        found.append({"ph": "M", "name": "thread_name", "args": {"name": f"warp {warp.warp}"}, **of})
        timer, clock = warp.readings[0]
        for each in warp.ranges:
            begin = (timer - first + (each.begin - clock) / ghz) / 1000
            took = (each.end - each.begin) / ghz / 1000
            told = {"argument": each.argument, "clocks": each.end - each.begin}
            found.append({"ph": "X", "cat": "range", "name": each.name, "ts": begin, "dur": took, "args": told, **of})
    return found
