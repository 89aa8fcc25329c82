"""Whether MMAs add to registers that nothing has written.

Sums begin with an MMA that does not accumulate, or with registers that something else has written. Where nothing else
in the kernel writes them, the first MMA of a warpgroup says which it is.

References
----------
PTX ISA, "wgmma.mma_async": scale-d.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.machine.lanes import WARPGROUP, Array
from cutepy.sim.translate.effects import accumulators, is_wgmma, written

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cutepy.sim.machine.events import WgmmaEvent
    from cutepy.sim.ptx.model import Instruction

NOT_BEGUN = (
    "nothing has written these sums, and the MMA adds to them: the first MMA must not accumulate, or zeros must be "
    "written before"
)


class Sums:
    """The sums that resident CTAs have begun.

    Parameters
    ----------
    instructions : iterable of Instruction
        Of the kernel.
    slots, threads : int
        CTAs, and threads of each.
    """

    def __init__(self, instructions: Iterable[Instruction], slots: int, threads: int) -> None:
        every = tuple(instructions)
        others = {register.index for i in every if not is_wgmma(i) for register in written(i)}
        mmas = {i.index: {register.index for register in accumulators(i)} for i in every if is_wgmma(i)}
        self._first = {index: min(held) for index, held in mmas.items() if held and not held & others}
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
