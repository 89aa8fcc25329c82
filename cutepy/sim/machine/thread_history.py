"""Thread history: instructions that lanes executed, for reports that name them, and counts of executions by lane."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from cutepy.layouts.sm90.arch import WARP_THREADS
from cutepy.sim.errors import Execution, NamedLanes
from cutepy.sim.machine.lanes import WARP, Array, Ctas, Threads
from cutepy.sim.ptx.model import Instruction


class ExecutedInstruction(NamedTuple):
    """An instruction, and the lanes that executed it."""

    instruction: Instruction
    ctas: Ctas
    threads: Threads

    @property
    def execution(self) -> Execution:
        """The same, with the lanes named."""
        return Execution(self.instruction, first(self.ctas, self.threads))


def of_cta(done: ExecutedInstruction, slot: int) -> Execution:
    """Return the instruction of the first of the lanes of one CTA that executed it together."""
    cta = done.ctas.residents.coordinate(slot)
    return Execution(done.instruction, NamedLanes(f"CTA {cta}", cta, *divmod(int(done.threads.ids[0]), WARP)))


def first(ctas: Ctas, threads: Threads, row: int = 0, column: int = 0) -> NamedLanes:
    """Name lanes by the CTA, the warp and the lane of the first."""
    warp, lane = divmod(int(threads.ids[column]), WARP)
    cta = ctas.residents.coordinate(int(ctas.slots[row]))
    return NamedLanes(f"{threads.describe()} of {ctas.describe()}", cta, warp, lane)


class ExecutionCounts:
    """Counts, by instruction and by (CTA, thread)."""

    def __init__(self) -> None:
        self._by: dict[Instruction, Array] = {}

    def __bool__(self) -> bool:
        return bool(self._by)

    def add(self, i: Instruction, lanes: Array) -> None:
        """Count an execution, or several, by lane."""
        self._by[i] = self._by.get(i, 0) + lanes.astype(np.int32)

    def level(self, i: Instruction, lanes: Array) -> None:
        """Let all lanes have executed an instruction equally often, of units that have some of these."""
        counts = self._by[i]
        self._by[i] = np.where(_most(lanes, i.traits.threads), _most(counts, i.traits.threads), counts)

    def lacking(self, here: Array, judged: Array) -> Iterator[tuple[Instruction, Array]]:
        """Yield instructions that lanes which are `judged` lack, and how often each lane `here` does."""
        for i, counts in self._by.items():
            less = np.where(here, _most(np.where(here, counts, 0), i.traits.threads) - counts, 0)
            if (less[judged] > 0).any():
                yield i, less

    def is_ahead(self, i: Instruction, slot: int, lanes: Array, of: Array) -> bool:
        """Return whether some lanes of a CTA executed something else than an instruction that others did not."""
        others = (counts[slot] for one, counts in self._by.items() if one is not i)
        return any(counts[lanes].min() > counts[of].min() for counts in others)


class Orders:
    """The barriers that lanes came to without the rest of their warp, in order.

    Of two lanes of a warp one came to what the other did, and perhaps to more after that: the other has ended.
    """

    def __init__(self) -> None:
        self._came: Array | None = None  # how often, by lane
        self._at: list[Array] = []  # what first lanes of warps came to so, by instruction
        self._otherwise: list[tuple[Instruction, int, Array]] = []

    def add(self, i: Instruction, lanes: Array) -> None:
        """Note the instructions that lanes come to."""
        came = self._came = np.zeros(lanes.shape, np.int32) if self._came is None else self._came
        warps = -(-lanes.shape[1] // WARP_THREADS)
        for n in np.unique(came[lanes]).tolist():
            if n == len(self._at):
                self._at.append(np.full((len(lanes), warps), -1, np.int32))
            at, here = self._at[n].repeat(WARP_THREADS, axis=1)[:, : lanes.shape[1]], lanes & (came == n)
            rows, threads = np.nonzero(here & (at == -1))
            self._at[n][rows, threads // WARP_THREADS] = i.index
            other = here & (at != -1) & (at != i.index)
            if other.any():
                self._otherwise.append((i, n, other))
        came[lanes] += 1

    def different(self) -> Iterator[tuple[Instruction, int, Array, Array]]:
        """Yield instructions that lanes came to, the CTA, those lanes, and those of their warp that came to another."""
        assert self._came is not None or not self._otherwise
        for i, n, lanes in self._otherwise:
            assert self._came is not None
            slot, thread = (int(x[0]) for x in np.nonzero(lanes))
            warp = np.arange(lanes.shape[1]) // WARP_THREADS == thread // WARP_THREADS
            others = warp & ~lanes[slot] & (self._came[slot] > n)
            yield i, slot, np.flatnonzero(warp & lanes[slot]), np.flatnonzero(others)


def _most(counts: Array, unit: int) -> Array:
    """Return, for each lane, the largest count in its unit."""
    rows, threads = counts.shape
    padded = np.zeros((rows, -(-threads // unit) * unit), counts.dtype)
    padded[:, :threads] = counts
    most: Array = padded.reshape(rows, -1, unit).max(axis=2).repeat(unit, axis=1)[:, :threads]
    return most
