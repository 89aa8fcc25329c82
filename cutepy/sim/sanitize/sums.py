"""Accumulators of MMAs that nothing has written.

Sums begin with an MMA that does not accumulate, or with registers that something else has given a value. Where nothing
else in the kernel gives them one, the first MMA of a warpgroup must not accumulate. What rescales the sums, or moves
them away and back, gives them none: it is made of them.

References
----------
PTX ISA, "wgmma.mma_async": scale-d.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.machine.lanes import WARPGROUP, Array
from cutepy.sim.sanitize.diagnoses import Diagnosis
from cutepy.sim.sanitize.givers import givers
from cutepy.sim.sanitize.order.uses import once
from cutepy.sim.translate.effects import accumulators, is_wgmma

if TYPE_CHECKING:
    from cutepy.sim.machine.events import WgmmaEvent
    from cutepy.sim.ptx.model import Function

NOT_BEGUN = Diagnosis("sums-not-begun")


def begun_by_mmas(function: Function) -> set[int]:
    """Return the accumulators, by index, that only MMAs begin: `Sums` tells of those that have not begun."""
    mmas = _begun_by_mmas(function)
    return {r.index for i in function.instructions if i.index in mmas for r in accumulators(i)}


@once
def _begun_by_mmas(function: Function) -> dict[int, int]:
    """Return the MMAs whose sums only MMAs begin, and the first register of each."""
    firsts: dict[int, set[int]] = {}
    groups: dict[int, int] = {}
    for i in filter(is_wgmma, function.instructions):
        held = {register.index for register in accumulators(i)}
        if held:
            groups[i.index] = min(held)
            firsts.setdefault(min(held), set()).update(held)
    others = {
        first
        for first, held in firsts.items()
        if any(groups.get(i.index) != first for i in givers(function, frozenset(held)))
    }
    return {index: first for index, first in groups.items() if first not in others}


class Sums:
    """The sums that resident CTAs have begun.

    Parameters
    ----------
    function : Function
    slots, threads : int
        CTAs, and threads of each.
    """

    def __init__(self, function: Function, slots: int, threads: int) -> None:
        self._first = _begun_by_mmas(function)
        self._begun: dict[int, Array] = {}
        self._shape = slots, -(-threads // WARPGROUP)

    def see(self, event: WgmmaEvent) -> bool:
        """Take an MMA; tells whether some warpgroup adds to what it has not begun."""
        first = self._first.get(event.instruction.index)
        if first is None:
            return False
        begun = self._begun.setdefault(first, np.zeros(self._shape, bool))
        at = event.ctas.slots[:, None], np.unique(event.threads.ids // WARPGROUP)
        wrong = bool((event.accumulates & ~begun[at]).any())
        begun[at] = True
        if begun.all():
            self._first = {index: other for index, other in self._first.items() if other != first}
        return wrong
