"""Observers: they see what a kernel does, as it does it, and change nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cutepy.sim.machine.events import Access, AsyncOperation, BarrierEvent, TmaEvent, WgmmaEvent
    from cutepy.sim.machine.lanes import Residents
    from cutepy.sim.machine.launch import Launch
    from cutepy.sim.machine.step import Step
    from cutepy.sim.ptx.model import Function, Instruction


class Observer:
    """See what a kernel does: override what interests you."""

    def on_launch(self, launch: Launch) -> None:
        """See a launch before it runs."""

    def on_access(self, access: Access) -> None:
        """See a memory access."""

    def on_barrier(self, event: BarrierEvent) -> None:
        """See an operation on a barrier."""

    def on_begin(self, event: BarrierEvent) -> None:
        """See lanes come to a bar.sync ("join"), or close a group of asynchronous operations ("commit").

        What comes of it is told by `on_barrier`.
        """

    def on_wait(self, event: BarrierEvent) -> None:
        """See lanes that have to wait at a barrier; `on_barrier` is called when they go on."""

    def on_wgmma(self, event: WgmmaEvent) -> None:
        """See an MMA as it is issued."""

    def on_tma(self, event: TmaEvent) -> None:
        """See a tensor copy as it is issued."""

    def on_issue(self, operation: AsyncOperation) -> None:
        """See an asynchronous operation issued."""

    def on_complete(self, operation: AsyncOperation) -> None:
        """See an asynchronous operation complete."""

    def on_end(self, residents: Residents) -> None:
        """See CTAs that were resident together end."""

    def on_instruction(self, step: Step) -> None:
        """See lanes about to execute an instruction: each, or those that `stops_at` picks. This is slow."""

    def stops_at(self, instruction: Instruction, before: Instruction | None) -> bool:
        """Say whether to call `on_instruction` for an instruction, given the one written before it."""
        return type(self).on_instruction is not Observer.on_instruction


def stops(function: Function, observers: Sequence[Observer]) -> dict[int, tuple[Observer, ...]]:
    """Return which observers stop at which instructions, by index."""
    found = {}
    before = None
    for i in function.instructions:
        here = tuple(o for o in observers if o.stops_at(i, before))
        if here:
            found[i.index] = here
        before = i
    return found
