"""History of a saved run: steps of CTAs, waits and the events that ended them, and shared memory at each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from cutepy.sim.machine.lanes import Array
from cutepy.sim.machine.shared_memory import Place, view


@dataclass(frozen=True)
class Wait:
    """Warps that waited at a barrier.

    Attributes
    ----------
    warps : tuple of int
    barrier : str
        Object of the wait.
    begin, end : int
        Positions in `SavedCta.events`; `end` is None where they never went on.
    released_by : int or None
        Position of the event that completed the phase, where it is an mbarrier's.
    """

    warps: tuple[int, ...]
    barrier: str
    begin: int
    end: int | None
    released_by: int | None


@dataclass(frozen=True)
class SavedCta:
    """Steps of one CTA.

    Attributes
    ----------
    cta : (int, int, int)
    events : list of dict
        In order, with the fields that `cutepy.sim.inspect.saving` lists.
    instructions : list of dict
        ``ptx``, ``line`` and ``place`` of the instructions of events.
    barriers : dict of int to str
        Address -> name of each mbarrier.
    followed : bool
        True if all that was written to shared memory is in `events`.
    """

    cta: tuple[int, int, int]
    events: list[dict[str, Any]] = field(repr=False)
    instructions: list[dict[str, Any]] = field(repr=False)
    barriers: dict[int, str] = field(repr=False)
    followed: bool
    smem_bytes: int
    _contents: Array = field(repr=False)
    _shared: Array | None = field(repr=False)

    def smem(
        self,
        position: int | None = None,
        layout: Place = None,
        dtype: object = "uint8",
        offset: int = 0,
    ) -> Array:
        """Return shared memory after an event, or as the CTA left it.

        Parameters
        ----------
        position : int, optional
            In `events`; bytes that nothing has written before it are 0. Default: the end.
        layout, dtype, offset
            As of `Run.smem`.

        Raises
        ------
        LookupError
            If shared memory was not kept.
        """
        return view(self._bytes(position), layout, dtype, offset)

    def writers(self, position: int | None = None) -> Array:
        """Return for each byte of shared memory the position of the event that wrote it last; -1 for none."""
        found = np.full(self.smem_bytes, -1, np.int64)
        for number, event in enumerate(self.events[: None if position is None else position + 1]):
            for start, length in event.get("writes", ()):
                found[start : start + length] = number
        return found

    def _bytes(self, position: int | None) -> Array:
        if position is None and self._shared is not None:
            return self._shared
        if not self.followed:
            raise LookupError(f"shared memory of CTA {self.cta} was not kept at each step; save it among the first")
        data = np.zeros(self.smem_bytes, np.uint8)
        for event in self.events[: None if position is None else position + 1]:
            at = event.get("contents", 0)
            for start, length in event.get("writes", ()):
                data[start : start + length] = self._contents[at : at + length]
                at += length
        return data

    @cached_property
    def waits(self) -> list[Wait]:
        """A wait: its thread, its place, and the event that ended it."""
        waiting: dict[tuple[int, int], tuple[int, str]] = {}
        found = []
        completed: dict[int, int] = {}
        phases: dict[int, int] = {}
        for number, event in enumerate(self.events):
            state = event.get("barrier")
            if state is not None:
                if state["phase"] > phases.get(state["address"], 0):
                    completed[state["address"]] = number
                phases[state["address"]] = state["phase"]
            key = event["instruction"]
            if event["phase"] == "begin":
                for warp in event["warps"]:
                    waiting.setdefault((warp, key), (number, event["name"]))
            elif event["phase"] == "wait":
                begun: dict[tuple[int, str], list[int]] = {}
                for warp in event["warps"]:
                    if (start := waiting.pop((warp, key), None)) is not None:
                        begun.setdefault(start, []).append(warp)
                by = completed.get(state["address"]) if state is not None else None
                found += [Wait(tuple(warps), name, start, number, by) for (start, name), warps in begun.items()]
        left: dict[tuple[int, str], list[int]] = {}
        for (warp, _), start in waiting.items():
            left.setdefault(start, []).append(warp)
        found += [Wait(tuple(warps), name, start, None, None) for (start, name), warps in left.items()]
        return sorted(found, key=lambda wait: (wait.begin, wait.warps))


@dataclass(frozen=True)
class SavedLaunch:
    """One kernel launch of a saved run; attributes are those of `Launch`."""

    name: str
    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    smem_bytes: int
    stats: dict[str, int]
    printf: str
    ctas: tuple[SavedCta, ...]

    def cta(self, cta: Sequence[int]) -> SavedCta:
        """Return the steps of a CTA.

        Raises
        ------
        LookupError
            If it is not in the file.
        """
        wanted = (*cta, 0, 0)[:3]
        for saved in self.ctas:
            if saved.cta == wanted:
                return saved
        raise LookupError(f"CTA {wanted} is not in the file, which has {', '.join(str(c.cta) for c in self.ctas)}")


@dataclass(frozen=True)
class SavedRun:
    """A run that `Run.save` wrote.

    Attributes
    ----------
    launches : tuple of SavedLaunch
    """

    launches: tuple[SavedLaunch, ...]
