"""Launches that were kept to be played again, and those of them that a hazard spans: an episode, mostly of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.parallel.footprint import Ranges
from cutepy.sim.replay.outcomes import Outcome, Request, over, overlaid
from cutepy.sim.replay.schedule_exploration import played

if TYPE_CHECKING:
    from cutepy.sim.machine.lanes import Array
    from cutepy.sim.machine.launch import Launch
    from cutepy.sim.machine.memory import GlobalMemory, Region
    from cutepy.sim.replay.snapshots import Snapshot


@dataclass(frozen=True)
class RecordedLaunch:
    """Recorded launch, which can be replayed.

    Attributes
    ----------
    index : int
        Among the launches of the run.
    launch : Launch
    memory : GlobalMemory
        Knows the tensors.
    snapshot : Snapshot
        Memory before the launch.
    known : sequence of (int, int)
        The memory that there was then.
    """

    index: int
    launch: Launch
    memory: GlobalMemory
    snapshot: Snapshot
    known: Sequence[tuple[int, int]]

    @cached_property
    def outcome(self) -> Outcome:
        """Outcome of the default schedule, with its reads."""
        return self.played(Request(with_reads=True))

    def played(self, request: Request) -> Outcome:
        """Play it."""
        return played(self.snapshot, [request])[0]

    def before(self, start: int, end: int) -> Array:
        """Return a range of memory before it."""
        return self.snapshot.read(*(np.array([x], np.int64) for x in (start, end)))

    @cached_property
    def used(self) -> list[Region]:
        """Regions of memory that the launch reads, writes or has the address of, except those of its module."""
        launch, outcome = self.launch, self.outcome
        addresses = [
            int(word)
            for data in launch.parameters.values()
            for word in np.frombuffer(data[: len(data) // 8 * 8], np.uint64)
        ]
        if outcome.starts is not None:
            addresses += outcome.starts.tolist()
        if outcome.reads is not None:
            addresses += outcome.reads[0].tolist()
        own = [placed.data.ctypes.data for placed in launch.variables]
        own += [block.ctypes.data for block in (launch.parameter_block, launch.grid_workspace) if block is not None]
        found = {region.start: region for a in addresses if (region := self.memory.find(a, a + 1)) is not None}
        return [found[start] for start in sorted(found) if start not in own]


@dataclass(frozen=True)
class Episode:
    """Launches in order, from the one that a hazard begins in to the one that it ends in.

    Attributes
    ----------
    parts : tuple of RecordedLaunch
    """

    parts: tuple[RecordedLaunch, ...]

    @property
    def error(self) -> str:
        """Error of the first that fails; empty if all end."""
        return next((part.outcome.error for part in self.parts if part.outcome.error), "")

    @cached_property
    def regions(self) -> dict[int, tuple[Region, Array]]:
        """The memory that the launches use, by address, with its bytes before the first that uses it."""
        found: dict[int, tuple[Region, Array]] = {}
        for number, part in enumerate(self.parts):
            for region in part.used:
                now = part.before(region.start, region.end)
                if region.start not in found:
                    found[region.start] = region, now
                elif (self._folded(region.start, found[region.start][1], number) != now).any():
                    raise ValueError(
                        f"the host has changed {region.name.rstrip(',') or 'memory'} between two launches of the "
                        "hazard, which a script does not"
                    )
        return dict(sorted(found.items()))

    def _folded(self, start: int, data: Array, count: int) -> Array:
        return after(start, data, [part.outcome for part in self.parts[:count]])

    def last_first(self) -> list[Outcome]:
        """Return the outcomes of the launches where the last of them is before all others; nothing if one fails."""
        ranges = _union([part.outcome for part in self.parts])
        state = self._first_bytes(ranges)
        found: list[Outcome] = []
        for part in (self.parts[-1], *self.parts[:-1]):
            outcome = part.played(Request(memory=_within(ranges, state, part.known)))
            if outcome.error or _bytes(_union([ranges, outcome])) > _bytes(ranges):
                return []
            state = over(ranges, state, outcome)
            found.append(outcome)
        return found

    def _first_bytes(self, ranges: Ranges) -> Array:
        """Return the contents of ranges before any of the launches."""
        state = np.zeros(_bytes(ranges), np.uint8)
        at = np.cumsum(ranges.ends - ranges.starts) - (ranges.ends - ranges.starts)
        for region, data in self.regions.values():
            inside = (ranges.starts >= region.start) & (ranges.ends <= region.end)
            for start, end, first in zip(ranges.starts[inside], ranges.ends[inside], at[inside], strict=True):
                state[first : first + end - start] = data[start - region.start : end - region.start]
        return state


def after(start: int, data: Array, outcomes: Sequence[Outcome]) -> Array:
    """Return the bytes of a range after outcomes that follow each other."""
    for outcome in outcomes:
        data = overlaid(start, data, outcome)
    return data


def _union(written: Sequence[Ranges | Outcome]) -> Ranges:
    return Ranges.union([one.starts for one in written], [one.ends for one in written])  # type: ignore[misc]


def _bytes(ranges: Ranges) -> int:
    return int((ranges.ends - ranges.starts).sum())


def _within(ranges: Ranges, state: Array, known: Sequence[tuple[int, int]]) -> tuple[Array, Array, Array]:
    """Return those ranges, with their bytes, that are in memory that is known."""
    inside = np.zeros(len(ranges.starts), bool)
    for start, end in known:
        inside |= (ranges.starts >= start) & (ranges.ends <= end)
    return ranges.starts[inside], ranges.ends[inside], state[np.repeat(inside, ranges.ends - ranges.starts)]
