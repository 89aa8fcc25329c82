"""Collectives: instructions that whole warps execute, arrivals without a release, wgmma groups and setmaxnreg.

References
----------
PTX ISA, "wgmma.mma_async": all threads of a warpgroup execute the same; "setmaxnreg": all warps of the warpgroup must
synchronise explicitly before the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.machine.lanes import WARP, WARPGROUP, Array
from cutepy.sim.ptx.model import Immediate, Register
from cutepy.sim.sanitize.order.clocks import DONE

if TYPE_CHECKING:
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.sanitize.order.clocks import Clocks


ALL_LANES = 0xFFFFFFFF
"""The mask of a whole warp."""


def arrives_relaxed(i: Instruction) -> bool:
    """Return whether an instruction is a relaxed arrival at a barrier."""
    return i.traits.is_relaxed and i.traits.arrives


def is_collective(i: Instruction) -> bool:
    """Return whether whole warps may come together at an instruction: its mask may be known when it runs."""
    if i.traits.kind != "warp" or "sync" not in i.parts:
        return False
    mask = i.operands[-1]
    return isinstance(mask, Register) or (isinstance(mask, Immediate) and mask.value & ALL_LANES == ALL_LANES)


_KEPT = 8


class MmaGroups:
    """Waits that the warps of a warpgroup had ended before they issued MMAs.

    MMAs complete only after all four warps have issued them. A thread that waits for a group of MMAs thus knows the
    ended waits of all four warps, and nothing else of the other warps.

    Parameters
    ----------
    clocks : Clocks
    slots : int
        CTAs.
    """

    def __init__(self, clocks: Clocks, slots: int) -> None:
        self._clocks, self._slots = clocks, slots
        self._issued: dict[int, tuple[Array, Array]] = {}

    def issue(self, slots: Array, warpgroup: int, numbers: Array) -> None:
        """Take an MMA of a group, whose number is given by CTA."""
        if warpgroup not in self._issued:
            ends = np.zeros((self._slots, _KEPT, WARPGROUP), np.int32)
            self._issued[warpgroup] = np.zeros((self._slots, _KEPT), np.int64), ends
        held, ends = self._issued[warpgroup]
        held[slots, numbers % _KEPT] = numbers
        ends[slots, numbers % _KEPT] = self._clocks.counts(slots, self.columns(warpgroup))

    def columns(self, warpgroup: int) -> Array:
        """Return the columns that count the waits of a warpgroup's threads."""
        return self._clocks.ends(np.arange(warpgroup * WARPGROUP, (warpgroup + 1) * WARPGROUP))

    def ended(self, slots: Array, warpgroup: int, numbers: Array) -> Array | None:
        """Count the waits that each thread, (CTA, thread), must have ended before given groups are complete."""
        if warpgroup not in self._issued:
            return None
        held, ends = (x[slots] for x in self._issued[warpgroup])
        result: Array = np.where((held <= numbers[:, None])[:, :, None], ends, 0).max(axis=1)
        return result


class RegisterChanges:
    """Times at which each warp changed its number of registers: the first change, the second, and so on.

    Parameters
    ----------
    clocks : Clocks
    slots, warps : int
        CTAs, and warps of each.
    """

    def __init__(self, clocks: Clocks, slots: int, warps: int) -> None:
        self._clocks = clocks
        self._many = np.zeros((slots, warps), int)
        self._when: list[Array] = []  # by how often: how far each warp had come, 0 if it never has
        self._by: dict[tuple[int, int], Instruction] = {}  # by how often, and warp

    def change(self, i: Instruction, slots: Array, threads: Array) -> tuple[int, int, int, Instruction] | None:
        """Take a change by warps; return a CTA, a warp of it that does not know of another's last one, and that."""
        warps, found = np.unique(threads // WARP), None
        at = np.ix_(slots, warps)
        before, now = self._many[at], self._clocks.counts(slots, warps * WARP)
        for row, column in np.argwhere(before > 0).tolist():
            slot, warp, last = int(slots[row]), int(warps[column]), int(before[row, column]) - 1
            other = self._unknown(slot, warp, last)
            if other is not None:
                found = slot, warp, other, self._by.get((last, other), self._by[last, warp])
                break
        while len(self._when) <= before.max():
            self._when.append(np.zeros(self._many.shape, np.int32))
        for many in np.unique(before).tolist():
            self._when[many][at] = np.where(before == many, now, self._when[many][at])
            self._by |= dict.fromkeys([(many, warp) for warp in warps.tolist()], i)
        self._many[at] += 1
        return found

    def _unknown(self, slot: int, warp: int, last: int) -> int | None:
        """Return another warp of a warpgroup whose change a warp doesn't know of, if there is one."""
        per_group = WARPGROUP // WARP
        first = warp // per_group * per_group
        others = np.array([w for w in range(first, min(first + per_group, self._many.shape[1])) if w != warp], int)
        every = np.full(len(others), slot), np.full(len(others), warp * WARP)
        known = self._clocks.held(DONE, *every, every[0] % self._clocks.cluster, others * WARP)
        when = self._when[last][slot, others]
        missing = others[(when == 0) | (known < when)]
        return int(missing[0]) if len(missing) else None
