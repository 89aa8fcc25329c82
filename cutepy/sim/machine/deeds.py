"""What lanes have done, and how they are named."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cutepy.sim.errors import Deed, Who
from cutepy.sim.machine.lanes import WARP, Ctas, Threads

if TYPE_CHECKING:
    from cutepy.sim.ptx.model import Instruction


class Done(NamedTuple):
    """An instruction, and the lanes that executed it."""

    instruction: Instruction
    ctas: Ctas
    threads: Threads

    @property
    def deed(self) -> Deed:
        """The same, with the lanes named."""
        return Deed(self.instruction, first(self.ctas, self.threads))


def of_cta(done: Done, slot: int) -> Deed:
    """Return what the first of the lanes of one CTA executed, of those that executed it together."""
    cta = done.ctas.residents.coordinate(slot)
    return Deed(done.instruction, Who(f"CTA {cta}", cta, *divmod(int(done.threads.ids[0]), WARP)))


def first(ctas: Ctas, threads: Threads, row: int = 0, column: int = 0) -> Who:
    """Name lanes, of which one is the first."""
    warp, lane = divmod(int(threads.ids[column]), WARP)
    cta = ctas.residents.coordinate(int(ctas.slots[row]))
    return Who(f"{threads.describe()} of {ctas.describe()}", cta, warp, lane)
