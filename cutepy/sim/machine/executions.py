"""How often lanes executed instructions without the rest of their warp or warpgroup."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.machine.lanes import Array
from cutepy.sim.ptx.alignment import aligned_threads

if TYPE_CHECKING:
    from cutepy.sim.ptx.model import Instruction


class Executions:
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
        self._by[i] = np.where(_most(lanes, aligned_threads(i)), _most(counts, aligned_threads(i)), counts)

    def lacking(self, here: Array, judged: Array) -> Iterator[tuple[Instruction, Array]]:
        """Yield instructions that lanes which are `judged` lack, and how often each lane `here` does."""
        for i, counts in self._by.items():
            less = np.where(here, _most(np.where(here, counts, 0), aligned_threads(i)) - counts, 0)
            if (less[judged] > 0).any():
                yield i, less

    def is_ahead(self, i: Instruction, slot: int, lanes: Array, of: Array) -> bool:
        """Tell whether some lanes of a CTA executed something else than an instruction that others did not."""
        others = (counts[slot] for one, counts in self._by.items() if one is not i)
        return any(counts[lanes].min() > counts[of].min() for counts in others)


def _most(counts: Array, unit: int) -> Array:
    """Return, for each lane, the largest count in its unit."""
    rows, threads = counts.shape
    padded = np.zeros((rows, -(-threads // unit) * unit), counts.dtype)
    padded[:, :threads] = counts
    most: Array = padded.reshape(rows, -1, unit).max(axis=2).repeat(unit, axis=1)[:, :threads]
    return most
