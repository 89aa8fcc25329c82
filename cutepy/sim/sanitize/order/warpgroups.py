"""What the warps of a warpgroup do together: MMAs, and setmaxnreg.

References
----------
PTX ISA, "wgmma.mma_async": all threads of a warpgroup execute the same; "setmaxnreg": if it is not executed by all
warps in the warpgroup, the behaviour is undefined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cutepy.sim.machine.lanes import WARP, WARPGROUP, Array

if TYPE_CHECKING:
    from cutepy.sim.machine.events import BarrierEvent
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.sanitize.order.clocks import Clocks

_WARPS = WARPGROUP // WARP
_KEPT = 8


class MmaGroups:
    """The waits that warpgroups had ended as they issued MMAs, which are complete only when all four warps have come.

    Whoever waits for a group of MMAs thus knows that these waits are over, and nothing else of the other warps.

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
        """Return how many waits each thread had ended for sure if groups up to some are complete: (CTA, thread)."""
        if warpgroup not in self._issued:
            return None
        held, ends = (x[slots] for x in self._issued[warpgroup])
        result: Array = np.where((held <= numbers[:, None])[:, :, None], ends, 0).max(axis=1)
        return result


class Part(NamedTuple):
    """A warpgroup of a CTA of which some warps executed an instruction more often than others."""

    instruction: Instruction
    slot: int
    warp: int
    other: int


class SetRegisters:
    """Which warps of resident CTAs have executed setmaxnreg.

    Parameters
    ----------
    slots, threads : int
        CTAs, and threads of each.
    """

    def __init__(self, slots: int, threads: int) -> None:
        self._shape = slots, -(-threads // WARPGROUP), _WARPS
        self._warps = -(-threads // WARP)
        self._times: dict[Instruction, np.ndarray[tuple[int, ...], np.dtype[np.int64]]] = {}

    def see(self, event: BarrierEvent) -> None:
        """Take an execution."""
        times = self._times.setdefault(event.instruction, np.zeros(self._shape, np.int64))
        flat = times.reshape(self._shape[0], -1)
        flat[event.ctas.slots[:, None], np.unique(event.threads.ids // WARP)] += 1

    def parts(self, ended: Array | None = None) -> list[Part]:
        """Return the instructions that parts of warpgroups executed, and others never will.

        Parameters
        ----------
        ended : array of bool, (CTA, thread), optional
            The threads that have ended, if not all have.
        """
        found = []
        there = np.zeros((self._shape[0], self._shape[1] * _WARPS), bool)
        there[:, : self._warps] = True if ended is None else ended[:, ::WARP]
        there = there.reshape(self._shape)
        for i, times in self._times.items():
            least = np.where(there, times, times.max(initial=0)).min(axis=2, keepdims=True)
            more = times > least
            if more.any():
                slot, group, warp = (int(x[0]) for x in np.nonzero(more))
                other = int(np.argmin(np.where(there[slot, group], times[slot, group], 1 << 62)))
                found.append(Part(i, slot, group * _WARPS + warp, group * _WARPS + other))
        return found
