"""Whether all warps of a warpgroup execute the same setmaxnreg.

References
----------
PTX ISA, "setmaxnreg": if it is not executed by all warps in the warpgroup, the behaviour is undefined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cutepy.sim.machine.lanes import WARP, WARPGROUP

if TYPE_CHECKING:
    from cutepy.sim.machine.events import BarrierEvent
    from cutepy.sim.ptx.model import Instruction

_WARPS = WARPGROUP // WARP


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

    def parts(self) -> list[Part]:
        """Return the instructions that parts of warpgroups executed."""
        found = []
        for i, times in self._times.items():
            there = (np.arange(self._shape[1] * _WARPS) < self._warps).reshape(1, -1, _WARPS)
            least = np.where(there, times, times.max(initial=0)).min(axis=2, keepdims=True)
            more = times > least
            if more.any():
                slot, group, warp = (int(x[0]) for x in np.nonzero(more))
                other = int(np.argmin(np.where(there[0, group], times[slot, group], 1 << 62)))
                found.append(Part(i, slot, group * _WARPS + warp, group * _WARPS + other))
        return found
