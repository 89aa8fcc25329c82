"""Observers: they see what a kernel does, as it does it, and change nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from cutepy.sim.errors import SimulationError
    from cutepy.sim.machine.alignment import Apart
    from cutepy.sim.machine.events import Access, AsyncOperation, BarrierEvent, TmaEvent, WaitBegins, WgmmaEvent
    from cutepy.sim.machine.host_events import HostEvent
    from cutepy.sim.machine.lanes import Array, Ctas, Residents, Threads
    from cutepy.sim.machine.launch import Launch
    from cutepy.sim.machine.step import Step
    from cutepy.sim.ptx.model import Function, Instruction


class Observer:
    """See what a kernel does: override what interests you.

    Attributes
    ----------
    peeks : frozenset of int
        Tries at mbarriers, by index of the instruction, that fail wherever `knows_complete` doesn't say that they
        can't. A kernel must go on to wait then: so it does what it does when the phase completes late.
    """

    peeks: frozenset[int] = frozenset()

    def on_launch(self, launch: Launch) -> None:
        """See a launch before it runs."""

    def on_host(self, event: HostEvent) -> None:
        """See what host code does with streams and memory, beside launches."""

    def on_access(self, access: Access) -> None:
        """See a memory access."""

    def on_barrier(self, event: BarrierEvent) -> None:
        """See an operation that synchronises, such as `MbarrierArrive`: its class says which."""

    def on_begin(self, event: BarrierEvent) -> None:
        """See the beginning of an operation, of which `on_barrier` sees the end.

        It is a `NamedBarrierJoin`, or a `GroupCommit`; a `NamedBarrierCome` comes before, of lanes that come to a
        barrier before others of their warp.
        """

    def on_wait(self, event: WaitBegins) -> None:
        """See lanes that have to wait at a barrier; `on_barrier` is called when they go on."""

    def knows_complete(self, address: int, slots: Array, phases: Array, ctas: Ctas, threads: Threads) -> Array:
        """Say which lanes know that a phase of an mbarrier is complete, so that their try can't fail.

        Parameters
        ----------
        address : int
            Of the mbarrier, in shared memory.
        slots, phases : array of int, (CTAs, threads)
            Whose mbarrier each lane tries, and the phase that it waits for.
        ctas, threads : Ctas, Threads
        """
        return np.zeros(slots.shape, bool)

    def on_apart(self, apart: Apart) -> None:
        """See that a part of a warp, or of a warpgroup, has executed what all of it must execute together."""

    def on_wgmma(self, event: WgmmaEvent) -> None:
        """See an MMA as it is issued."""

    def on_tma(self, event: TmaEvent) -> None:
        """See a tensor copy as it is issued."""

    def on_issue(self, operation: AsyncOperation) -> None:
        """See an asynchronous operation issued."""

    def on_complete(self, operation: AsyncOperation) -> None:
        """See an asynchronous operation complete."""

    def on_deadlock(self, ended: Array, spinning: Array) -> Sequence[str]:
        """Say what else there is to say where nothing can go on; `on_barrier` was told of each "blocked" wait.

        Parameters
        ----------
        ended : array of bool, (CTAs, threads)
            Of the resident CTAs, the threads that have come to their end.
        spinning : array of bool, (CTAs, threads)
            Those that wait at no instruction: they go around a loop.
        """
        return ()

    def on_error(self, error: SimulationError, *, ends: bool) -> bool:
        """See what a kernel does wrong; say whether the launch may go on in spite of it, if it isn't what `ends` it."""
        return False

    def on_end(self, residents: Residents) -> None:
        """See CTAs that were resident together end."""

    def on_instruction(self, step: Step) -> None:
        """See lanes about to execute an instruction: each, or those that `stops_at` picks. This is slow."""

    def on_guard(self, step: Step) -> None:
        """See lanes about to come to the guard of an instruction that does more than write registers.

        It is called where `on_instruction` is then called for the lanes whose guard holds.
        """

    def look_at(self, function: Function) -> None:
        """See the function that is launched next, before `stops_at` is asked of its instructions."""

    def stops_at(self, instruction: Instruction, before: Instruction | None) -> bool:
        """Say whether to call `on_instruction` for an instruction, given the one written before it."""
        return type(self).on_instruction is not Observer.on_instruction


def stops(function: Function, observers: Sequence[Observer]) -> dict[int, tuple[Observer, ...]]:
    """Return which observers stop at which instructions, by index."""
    found = {}
    before = None
    for observer in observers:
        observer.look_at(function)
    for i in function.instructions:
        here = tuple(o for o in observers if o.stops_at(i, before))
        if here:
            found[i.index] = here
        before = i
    return found
