"""What the warps of a warpgroup do together: MMAs.

References
----------
PTX ISA, "wgmma.mma_async": all threads of a warpgroup execute the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.machine.lanes import WARPGROUP, Array

if TYPE_CHECKING:
    from cutepy.sim.sanitize.order.clocks import Clocks

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
