"""What the schedule tells mechanisms: all that it knows of them."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from cutepy.sim.ptx.model import Immediate

if TYPE_CHECKING:
    from cutepy.sim.machine.events import AsyncOperation
    from cutepy.sim.machine.group import Group
    from cutepy.sim.machine.lanes import Residents
    from cutepy.sim.ptx.model import Instruction


class Mechanism:
    """A part of the hardware beside arithmetic: override what concerns it."""

    def start(self, residents: Residents, threads: int) -> None:
        """Begin anew with CTAs of so many threads, which become resident."""

    def before_parting(self, g: Group, blocks: Collection[int], join_block: int) -> None:
        """Bring to a group's registers what its parts may touch.

        Parameters
        ----------
        g : Group
            Its lanes are about to part.
        blocks : collection of int
            Where the parts go on.
        join_block : int
            Where they meet; negative for never.
        """

    def to_registers(self, g: Group) -> None:
        """Bring to a group's registers all that is kept elsewhere: its lanes become part of other groups."""

    def awaited(self, g: Group, i: Instruction) -> list[AsyncOperation]:
        """Return the operations that a wait of a group completes, whatever a policy says; none if `i` is no wait."""
        return []

    def leave(self, g: Group) -> None:
        """Take note that a group's lanes end."""


def left_by(i: Instruction) -> int:
    """Return how many of the youngest groups a wait for groups leaves incomplete."""
    count = i.operands[0] if i.operands else None
    return count.value if isinstance(count, Immediate) else 0
