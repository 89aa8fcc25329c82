"""Observers: hooks that see a kernel's events and the lanes before an instruction, and change nothing.

A stop before an instruction starts a basic block of its own, so that every live register is in its place. Code without
stops is translated as if there were none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.machine.group import Group, inherited
from cutepy.sim.machine.lanes import Array, Ctas, Threads
from cutepy.sim.machine.shared_memory import Place, SharedMemory, view

if TYPE_CHECKING:
    from cutepy.sim.errors import SimulationError
    from cutepy.sim.machine.events import (
        Access,
        AsyncOperation,
        BarrierEvent,
        CancelRequest,
        LocalCopy,
        PartialUnit,
        TensorMemoryAccess,
        TensorMemoryAllocation,
        TensorMmaEvent,
        TmaEvent,
        WgmmaEvent,
    )
    from cutepy.sim.machine.host_events import HostEvent
    from cutepy.sim.machine.lanes import Residents
    from cutepy.sim.machine.launch import Launch
    from cutepy.sim.machine.wait_sources import WaitBegins
    from cutepy.sim.ptx.model import Function, Instruction
    from cutepy.sim.translate import Program


class Observer:
    """Observer of a kernel: override the methods of the events that interest you.

    Attributes
    ----------
    peeks : frozenset of int
        Tries at mbarriers, by index of the instruction, that fail wherever `knows_complete` doesn't say that they
        can't. A kernel must go on to wait then: so it does what it does when the phase completes late.
    follows_blocks : bool
        True if it sees each block that lanes execute; no block becomes machine code then.
    """

    peeks: frozenset[int] = frozenset()
    follows_blocks: bool = False

    def on_launch(self, launch: Launch) -> None:
        """See a launch before it runs."""

    def on_host(self, event: HostEvent) -> None:
        """See a host operation on streams or memory, beside launches."""

    def on_access(self, access: Access) -> None:
        """See a memory access."""

    def on_accesses(self, accesses: Sequence[Access]) -> None:
        """See weak loads of the same lanes, one after the other, between which nothing else happens that others see."""
        for access in accesses:
            self.on_access(access)

    def on_local_copy(self, copy: LocalCopy) -> None:
        """See arguments or results of a call copied within local memory."""

    def on_tensor_memory(self, access: TensorMemoryAccess) -> None:
        """See an access to tensor memory."""

    def on_tensor_allocation(self, allocation: TensorMemoryAllocation) -> None:
        """See columns of tensor memory being allocated, or freed, or the right to allocate given up."""

    def on_barrier(self, event: BarrierEvent) -> None:
        """See an operation that synchronises, such as `MbarrierArrive`: its class says which."""

    def on_begin(self, event: BarrierEvent) -> None:
        """See the beginning of an operation, of which `on_barrier` sees the end.

        It is a `NamedBarrierJoin`, or a `GroupCommit`; a `NamedBarrierPartialArrive` comes before, of lanes that
        come to a barrier before others of their warp.
        """

    def on_wait(self, event: WaitBegins) -> None:
        """See lanes that have to wait at a barrier; `on_barrier` is called when they go on."""

    def knows_complete(self, address: int, slots: Array, phases: Array, ctas: Ctas, threads: Threads) -> Array:
        """Mark the lanes that know that a phase of an mbarrier is complete, so that their try can't fail.

        Parameters
        ----------
        address : int
            Of the mbarrier, in shared memory.
        slots, phases : array of int, (CTAs, threads)
            Whose mbarrier each lane tries, and the phase that it waits for.
        ctas, threads : Ctas, Threads
        """
        return np.zeros(slots.shape, bool)

    def on_apart(self, apart: PartialUnit) -> None:
        """See that a part of a warp, or of a warpgroup, has executed an instruction that all of it must execute."""

    def on_block(self, block: int, ctas: Ctas, threads: Threads) -> None:
        """See a basic block executed, by its number in the program, if the observer `follows_blocks`.

        Its events come before, and a block in which lanes wait is executed once they go on.
        """

    def on_wgmma(self, event: WgmmaEvent) -> None:
        """See an MMA as it is issued."""

    def on_tensor_mma(self, event: TensorMmaEvent) -> None:
        """See an MMA of the tensor core as it is issued."""

    def on_cancel(self, request: CancelRequest) -> None:
        """See a request of cluster launch control as it is granted or refused."""

    def on_tma(self, event: TmaEvent) -> None:
        """See a tensor copy as it is issued."""

    def on_issue(self, operation: AsyncOperation) -> None:
        """See an asynchronous operation issued."""

    def on_complete(self, operation: AsyncOperation) -> None:
        """See an asynchronous operation complete."""

    def on_deadlock(self, ended: Array, spinning: Array) -> Sequence[str]:
        """Return further facts for a deadlock's report; `on_barrier` was told of each "blocked" wait.

        Parameters
        ----------
        ended : array of bool, (CTAs, threads)
            Of the resident CTAs, the threads that have come to their end.
        spinning : array of bool, (CTAs, threads)
            Those that wait at no instruction: they go around a loop.
        """
        return ()

    def on_error(self, error: SimulationError, *, ends: bool) -> bool:
        """See an error of the kernel; return whether the launch may go on in spite of it, unless it `ends` it."""
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
        """See the function that is launched next; called before `stops_at` for any of its instructions."""

    def stops_at(self, instruction: Instruction, before: Instruction | None) -> bool:
        """Return whether to call `on_instruction` for an instruction, given the previous one in the text."""
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


class Step:
    """Lanes that are about to execute an instruction.

    Attributes
    ----------
    instruction : Instruction
        With its line of Python in `instruction.source`.
    ctas, threads : Ctas, Threads
        The lanes, a rectangle.
    """

    def __init__(self, program: Program, group: Group, instruction: Instruction, shared: SharedMemory) -> None:
        self.instruction = instruction
        self.ctas: Ctas = group.ctas
        self.threads: Threads = group.threads
        self._program = program
        self._group = group
        self._shared = shared

    def value(self, index: int) -> Array:
        """Return a register that will still be read, by its number in the function; it broadcasts to the lanes."""
        value = self._group.registers[index]
        return np.array(inherited(self._group, index) if value is None else value)

    def holds(self, index: int) -> bool:
        """Return whether `value` has a register: it is no accumulator of an MMA that is held as a tile."""
        return not any(index in self._program.accumulator_sets[number] for number in self._group.tiles)

    def executing(self) -> Array:
        """Tell which lanes execute the instruction, (CTAs, threads): those whose guard holds."""
        shape, guard = (self.ctas.count, self.threads.count), self.instruction.predicate
        if guard is None or guard[0].index not in self._program.flow.live_in[self._group.block]:
            return np.ones(shape, bool)  # the others have gone another way already
        return np.broadcast_to(self.value(guard[0].index).astype(bool) != guard[1], shape)

    @property
    def registers(self) -> dict[str, Array]:
        """The registers that will still be read, by PTX name: (CTAs, threads), bits or floats; accumulators excepted.

        Copies: to change one changes nothing.
        """
        g, program = self._group, self._program
        shape = g.ctas.count, g.threads.count
        tiles = {r for number in g.tiles for r in program.accumulator_sets[number]}
        found = {}
        for index in sorted(program.flow.live_in[g.block] - tiles):
            value = g.registers[index]
            value = inherited(g, index) if value is None else value
            found[program.function.registers[index].name] = np.broadcast_to(value, shape).copy()
        return found

    @property
    def accumulators(self) -> list[Array]:
        """The accumulators as tiles, (CTAs, warpgroups, 64, N), with the MMAs that have completed.

        One for each tuple of registers that MMAs accumulate in, as long as no other instruction has touched them.
        """
        tiles = self._group.tiles
        return [tiles[n].matrix.copy() for n in sorted(tiles) if tiles[n].matrix is not None]  # type: ignore[union-attr]

    def smem(
        self,
        cta: Sequence[int] | None = None,
        layout: Place = None,
        dtype: object = "uint8",
        offset: int = 0,
    ) -> Array:
        """Return the shared memory of a resident CTA, by default the first of these: see `Run.smem`."""
        own = self.ctas.residents.coordinate(int(self.ctas.slots[0])) if cta is None else cta
        data = self._shared.find(own)
        if data is None:
            raise LookupError(f"CTA {tuple(own)} is not resident now")
        return view(data, layout, dtype, offset)

    def __str__(self) -> str:
        i = self.instruction
        return f"{i.source or '?'}: `{i.text}` by {self.threads.describe()} of {self.ctas.describe()}"
