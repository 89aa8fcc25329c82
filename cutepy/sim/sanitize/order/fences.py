"""Fences that make relaxed arrivals at barriers release, and relaxed waits acquire.

A release pattern is a fence and then a relaxed arrival of its thread, an acquire pattern a relaxed wait and then a
fence: what the fence's thread knew is released, and what the wait saw is acquired, in the narrower of both scopes.

References
----------
PTX ISA, "Memory Consistency Model": "Release and Acquire Patterns"; "barrier.cluster", whose example has a fence before
a relaxed arrival.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from cutepy.sim.machine.lanes import Array
from cutepy.sim.ptx.memory_order import CLUSTER, SCOPES, Strength
from cutepy.sim.ptx.model import Instruction
from cutepy.sim.sanitize.order.clocks import DONE, Clocks, hide


class Wait(NamedTuple):
    """Clock that a wait has seen, and not passed on to its threads so far.

    Attributes
    ----------
    instruction : Instruction
    slots, threads : array of int
    near, far : array of int, (plane, CTA, rank, column)
        Clocks that an acquire of any scope shows, and those of scope .cluster or wider.
    """

    instruction: Instruction
    slots: Array
    threads: Array
    near: Array
    far: Array


class Patterns:
    """Fences, and relaxed waits, of resident CTAs.

    Parameters
    ----------
    clocks : Clocks
    has_relaxed : bool
        True if the kernel has relaxed arrivals at barriers.

    Attributes
    ----------
    waits : list of Wait
        Those that no fence of their threads has followed.
    overlooked : list of Wait
        Clocks that guesses saw, and their threads may not have seen: see `tries.py`.
    """

    def __init__(self, clocks: Clocks, has_relaxed: bool) -> None:
        self._clocks, self._has_relaxed = clocks, has_relaxed
        # What the thread of a fence knew, (plane, rank, column), by scope: a narrower one may follow a wider one.
        self._fences: dict[tuple[int, int], dict[int, Array]] = {}
        self.waits: list[Wait] = []
        self.overlooked: list[Wait] = []

    def fence(self, how: Strength, slots: Array, threads: Array, hidden: Array) -> None:
        """Take a fence; it shows nothing of the operations counted in `hidden` columns."""
        if how.acquires and self.waits:
            self._acquire(how.scope, slots, threads, hidden)
        if how.releases and self._has_relaxed:
            known = hide(self._clocks.publish_each(slots, threads), hidden)
            for row, column in np.ndindex(len(slots), len(threads)):
                lane = int(slots[row]), int(threads[column])
                wider = {scope: what for scope, what in self._fences.get(lane, {}).items() if scope > how.scope}
                self._fences[lane] = {**wider, how.scope: known[:, row, column]}

    @property
    def has_fences(self) -> bool:
        """True if there are fences that relaxed arrivals may follow."""
        return bool(self._fences)

    def released(self, i: Instruction, slots: Array, threads: Array) -> tuple[Array, Array]:
        """Return the clocks that relaxed arrivals publish together, in the threads' CTAs and, if less, in others."""
        clocks = self._clocks
        near, far = clocks.nothing(len(slots), clocks.capacity), clocks.nothing(len(slots), clocks.capacity)
        for row, column in np.ndindex(len(slots), len(threads)) if self._fences else ():
            for scope, known in self._fences.get((int(slots[row]), int(threads[column])), {}).items():
                for what in (near, far) if min(scope, scope_of(i)) >= CLUSTER else (near,):
                    at = what[:, row, :, : known.shape[-1]]
                    np.maximum(at, known, out=at)
        return near, far

    def defer(self, wait: Wait) -> None:
        """Keep the clock that a relaxed wait has seen until a fence comes after it."""
        self.waits = self._with(self.waits, wait)

    def overlook(self, wait: Wait) -> None:
        """Keep the clock that a guess has seen, for reports."""
        self.overlooked = self._with(self.overlooked, wait)

    def guesses(self, slot: int, rank: int, column: int, count: int) -> Iterator[Wait]:
        """Yield the guesses of a CTA that have seen a column of a CTA of its cluster, up to a number."""
        for wait in reversed(self.overlooked):
            seen = wait.far[DONE, wait.slots == slot, rank, column : column + 1]
            if (seen >= count).any():
                yield wait

    def _with(self, waits: list[Wait], wait: Wait) -> list[Wait]:
        """Add the clock that a wait has seen to the earlier ones."""
        for before in (w for w in waits if _same(w, wait)):
            near, far = (
                np.maximum(self._clocks.padded(a), self._clocks.padded(b))
                for a, b in ((before.near, wait.near), (before.far, wait.far))
            )
            wait = wait._replace(near=near, far=far)
        return [*(w for w in waits if not _same(w, wait)), wait]

    def _acquire(self, scope: int, slots: Array, threads: Array, hidden: Array) -> None:
        left = []
        for wait in self.waits:
            of, by = np.isin(wait.slots, slots), np.isin(wait.threads, threads)
            if not (of.any() and by.any()):
                left.append(wait)
                continue
            is_wide = min(scope, scope_of(wait.instruction)) >= CLUSTER
            seen = wait.far if is_wide else wait.near
            self._clocks.learn(wait.slots[of], wait.threads[by], hide(seen[:, of], hidden))
            if not is_wide and scope_of(wait.instruction) >= CLUSTER:
                left.append(wait)  # a wider one may follow
                continue
            if not by.all():
                left.append(wait._replace(threads=wait.threads[~by]))
            if not of.all():
                near, far = wait.near[:, ~of], wait.far[:, ~of]
                left.append(wait._replace(slots=wait.slots[~of], threads=wait.threads[by], near=near, far=far))
        self.waits = left


def _same(a: Wait, b: Wait) -> bool:
    of = a.instruction is b.instruction
    return of and np.array_equal(a.slots, b.slots) and np.array_equal(a.threads, b.threads)


def scope_of(i: Instruction) -> int:
    """Return the scope of an arrival or a wait: .cta where none is named, but .cluster at the cluster's barrier."""
    if i.traits.barrier == "cluster":
        return CLUSTER
    return next((SCOPES[part] for part in i.parts if part in SCOPES), SCOPES["cta"])
