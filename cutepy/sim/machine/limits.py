"""Limits of a launch in seconds and instructions; the error of a launch that is stopped shows where its lanes are."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cutepy.sim.errors import LimitError
from cutepy.sim.machine.group import Group, Join, Roster
from cutepy.sim.machine.wait_for_graph import first_instruction
from cutepy.sim.ptx.source_lines import place
from cutepy.sim.translate import Program

_SHOWN_LINES, _SHOWN_GROUPS = 16, 4


@dataclass(frozen=True)
class Limit:
    """The most that a launch may take.

    Attributes
    ----------
    seconds : float or None
        Of the host's time.
    instructions : int or None
        That its warps execute, as `Launch.stats` counts them.
    """

    seconds: float | None = None
    instructions: int | None = None

    def __bool__(self) -> bool:
        return self.seconds is not None or self.instructions is not None


_TOLD_LOADING_SECONDS = 0.5


class Watchdog:
    """Stops one launch that takes more than its limit.

    Parameters
    ----------
    limit : Limit
    program : Program
    began : float
        Time of the launch's start, by `time.perf_counter`: the translation of its PTX counts.
    loading_seconds : float
        Seconds that the run took to load compilers before its first launch, which do not count.
    """

    def __init__(self, limit: Limit, program: Program, began: float, loading_seconds: float = 0.0) -> None:
        self._limit = limit
        self._loading_seconds = loading_seconds
        self._sizes = [len(block.instructions) + (block.branch is not None) for block in program.flow.blocks]
        self._began = began
        self._translated_seconds = time.perf_counter() - began

    @property
    def is_late(self) -> bool:
        """Flag: the launch has taken more than its limit of seconds."""
        return self._limit.seconds is not None and time.perf_counter() - self._began > self._limit.seconds

    def check(self, executed: Sequence[int], roster: Roster, joins: Sequence[Join]) -> None:
        """Raise if the launch has taken more than its limit.

        Raises
        ------
        LimitError
            With the lines where its lanes are.
        """
        limit = self._limit
        if limit.instructions is not None:
            count = sum(times * size for times, size in zip(executed, self._sizes, strict=True))
            if count > limit.instructions:
                raise LimitError(
                    f"{count} instructions", f"limit_instructions={limit.instructions}", lanes(roster, joins)
                )
        if limit.seconds is not None and (taken := time.perf_counter() - self._began) > limit.seconds:
            raise LimitError(
                f"{taken:.1f} seconds", f"limit_seconds={limit.seconds:g}", lanes(roster, joins), self._beside()
            )

    def _beside(self) -> str:
        """Tell of the seconds in which no instruction ran."""
        told = []
        if self._translated_seconds >= _TOLD_LOADING_SECONDS:
            told.append(f"{self._translated_seconds:.1f} of these seconds went by before its first instruction")
        if self._loading_seconds >= _TOLD_LOADING_SECONDS:
            told.append(f"loading the compilers took {self._loading_seconds:.1f} seconds before, which do not count")
        return "; ".join(told)


def lanes(roster: Roster, joins: Iterable[Join] = ()) -> list[str]:
    """Return a line for each place where lanes are, with these lanes, the places with most lanes first."""
    found: dict[str, list[Group]] = {}
    for g in roster.groups:
        wait = f", waiting for {g.waits_for()}" if g.waits_for is not None else ""
        found.setdefault(_at(roster, g.block) + wait, []).append(g)
    for join in joins:
        if join.arrived:
            where = f"{_at(roster, join.goes_on)}, waiting for others whose ways meet theirs there"
            found.setdefault(where, []).extend(join.arrived)
    ranked = sorted(found.items(), key=lambda item: -sum(g.ctas.count * g.threads.count for g in item[1]))
    lines = [f"{where}: {_who(groups)}" for where, groups in ranked[:_SHOWN_LINES]]
    more = len(ranked) - _SHOWN_LINES
    return lines if more <= 0 else [*lines, f"and {more} more places"]


def _at(roster: Roster, block: int) -> str:
    blocks = roster.flow.blocks
    i = first_instruction(blocks[block]) if 0 <= block < len(blocks) else None
    return "at the end" if i is None else f"{place(i)} in `{i.text.rstrip()}`".lstrip()


def _who(groups: Sequence[Group]) -> str:
    shown = " and ".join(str(g.describe()) for g in groups[:_SHOWN_GROUPS])
    return shown if len(groups) <= _SHOWN_GROUPS else f"{shown} and {len(groups) - _SHOWN_GROUPS} more groups"
