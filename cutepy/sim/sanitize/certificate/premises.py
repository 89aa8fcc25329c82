"""The premises of the certificate, checked on the trace of a launch as it runs.

`Premises` sees each synchronisation before threads learn anything by it, and passes it on: mbarriers to `phases.py`,
named and cluster barriers to `generations.py`, setmaxnreg to `register_supply.py`, columns of tensor memory to
`allocations.py`. An operation that outlives its CTA is a hazard (`order/cta_ends.py`). `steering.py` reads the code,
once for each launch.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cutepy.sim.machine.events import (
    BarrierEvent,
    ClusterArrive,
    ClusterBarrier,
    MbarrierBlocked,
    MbarrierCompleteTx,
    MbarrierEvent,
    MbarrierTry,
    NamedBarrier,
    NamedBarrierArrive,
    NamedBarrierJoin,
    RegistersBlocked,
    TensorMemoryAllocation,
)
from cutepy.sim.machine.lanes import Array, Ctas, Threads, spread
from cutepy.sim.ptx.model import Instruction
from cutepy.sim.ptx.source_lines import line_of
from cutepy.sim.sanitize.certificate.actors import Actors
from cutepy.sim.sanitize.certificate.allocations import Allocations
from cutepy.sim.sanitize.certificate.generations import Generations
from cutepy.sim.sanitize.certificate.phases import Phases
from cutepy.sim.sanitize.certificate.register_supply import RegisterSupply
from cutepy.sim.sanitize.certificate.violations import Violation
from cutepy.sim.sanitize.order.clocks import rectangle
from cutepy.sim.sanitize.order.tries import Try
from cutepy.sim.sanitize.order.wave import Wave

_NONE = -1
_TO_ITSELF = "st.async and red.async into a CTA's own shared memory, which the PTX ISA leaves open, do as elsewhere"


class Premises:
    """Premises about CTAs that are resident together, by which one schedule speaks for all.

    Parameters
    ----------
    wave : Wave
    tries : dict of int to Try
        Of the kernel, by index of the instruction.
    may_announce : bool
        True if the kernel announces apart from arrivals.
    registers : int or None
        Registers that a thread begins with, if warps may ask for more.
    violated, refuse, assume : callable
        Called with each `Violation`, with what the certificate does not understand, in words, and with what it takes
        for granted beyond the PTX ISA.
    """

    def __init__(
        self,
        wave: Wave,
        tries: dict[int, Try],
        may_announce: bool,
        registers: int | None,
        violated: Callable[[Violation], None],
        refuse: Callable[[str], None],
        assume: Callable[[str], None],
    ) -> None:
        self._wave, self._tries, self._may_announce = wave, tries, may_announce
        self._violated, self._refuse, self._assume = violated, refuse, assume
        self._phases: dict[int, Phases] = {}
        self._generations: dict[NamedBarrier | ClusterBarrier, Generations] = {}
        self._allocations = Allocations(wave, refuse)
        self._supply = None if registers is None else RegisterSupply(wave, registers, violated, refuse)
        shape = wave.residents.count, wave.clocks.threads
        # Of each thread the last peek that no wait has followed yet: which, of what address, for which phase.
        self._peek, self._address = np.full((2, *shape), _NONE)
        self._phase = np.zeros(shape, np.int64)
        # Of each thread the mbarrier and phase of its last try, if that failed and is tried again.
        self._tried = np.full(shape, _NONE)
        self._for = np.zeros(shape, np.int64)
        self.operations = 0
        self.ctas = wave.residents.count

    def see(self, event: BarrierEvent) -> None:
        """Check an operation, before threads learn anything by it."""
        if self._supply is not None:
            if isinstance(event, RegistersBlocked):
                self._supply.block(event)
            self._supply.see(event)
        if isinstance(event, MbarrierEvent):
            self.operations += 1
            phases = self._of(event.state.address)
            if isinstance(event, MbarrierTry):
                self._try(event, phases)
            if isinstance(event, MbarrierBlocked):
                return
            phases.see(event, self._is_void(event))
            if isinstance(event, MbarrierCompleteTx) and event.deliveries is not None:
                assert event.part_of is not None
                to, rows, lanes = event.deliveries.T
                if event.part_of.kind == "bulk_load" and len(to) > 1:  # of lanes that copy at once each is an operation
                    self.operations += len(np.unique(lanes)) - 1
                if event.part_of.kind == "st_async" and (to == event.part_of.ctas.slots[rows]).any():
                    self._assume(_TO_ITSELF)
        elif isinstance(event, (NamedBarrierJoin, NamedBarrierArrive, ClusterArrive)):
            self.operations += 1
            self._generation(event.barrier).see(event)

    def allocate(self, event: TensorMemoryAllocation) -> None:
        """Check an allocation of tensor memory, or the end of one."""
        self._allocations.see(event)

    def _of(self, address: int) -> Phases:
        if address not in self._phases:
            self._phases[address] = Phases(self._wave, address, self._violated, self._may_announce)
        return self._phases[address]

    def _generation(self, barrier: NamedBarrier | ClusterBarrier) -> Generations:
        if barrier not in self._generations:
            of_clusters = isinstance(barrier, ClusterBarrier)
            self._generations[barrier] = Generations(self._wave, of_clusters, self._violated)
        return self._generations[barrier]

    # Tries.

    def _is_void(self, event: MbarrierEvent) -> bool:
        """Return whether nothing depends on a try, and it may come whenever it does, as none may by a state."""
        return "parity" in event.instruction.parts and self._is_idle(event.instruction)

    def _is_idle(self, i: Instruction) -> bool:
        one = self._tries[i.index]
        return one.is_guess or (one.is_peek and not one.followers)

    def knows_complete(self, address: int, slots: Array, phases: Array, ctas: Ctas, threads: Threads) -> Array:
        """Tell which lanes know that a phase of an mbarrier is complete."""
        found = self._of(address)  # which may have a new column of the clocks
        actors = Actors.now(self._wave.clocks, ctas.slots, threads.ids)
        return found.knows_complete(actors, slots[:, 0], phases[:, 0])

    def _try(self, event: MbarrierTry, phases: Phases) -> None:
        slots, threads, i = event.ctas.slots, event.threads.ids, event.instruction  # of their own CTAs' mbarriers
        shape = len(slots), len(threads)
        counted, tried = (spread(x, shape) for x in (event.counted, event.tried))
        at = rectangle(slots, threads)
        here = self._tries[i.index]
        absolute = tried + phases.first(slots)[:, None]
        pending = self._peek[at]
        for peek in _peeks(pending):
            if i.index not in self._tries[peek].followers:
                continue
            lanes = pending == peek
            other = lanes & ((self._address[at] != phases.address) | (self._phase[at] != absolute))
            if other.any():
                self._refuse(
                    f"the wait at {line_of(i)} follows the peek at {line_of(self._tries[peek].instruction)}, "
                    "and is for another mbarrier or phase"
                )
            self._peek[at] = np.where(lanes, _NONE, pending)  # a wait that fails is tried again
            pending = self._peek[at]
        failed = counted < -1
        if "parity" not in i.parts and failed.any() and self._is_idle(i):
            self._refuse(
                f"the try at {line_of(i)} fails and is not tried again: it may come when its state is too old for it"
            )
        self._tried[at] = np.where(failed, phases.address, _NONE)
        self._for[at] = np.where(failed, absolute, self._for[at])
        if here.is_guess or not failed.any():
            return
        if not here.is_peek:
            phases.begin_wait(event, Actors.now(self._wave.clocks, slots, threads), slots, tried.max(axis=1), failed)
            return
        self._expect_no_wait(pending[failed])
        self._peek[at] = np.where(failed, i.index, pending)
        self._address[at] = np.where(failed, phases.address, self._address[at])
        self._phase[at] = np.where(failed, absolute, self._phase[at])
        if here.followers:
            actors = Actors.now(self._wave.clocks, slots, threads)
            phases.begin_wait(event, actors, slots, tried.max(axis=1), failed)

    def _expect_no_wait(self, pending: Array) -> None:
        """Check that no wait follows the peeks of some threads, as none will run any more."""
        for peek in _peeks(pending):
            if self._tries[peek].followers:
                self._refuse(f"the wait that follows the peek at {line_of(self._tries[peek].instruction)} did not run")

    def check_stuck(self, spinning: Array) -> None:
        """Check that lanes in an endless loop try there for a phase of an mbarrier that is not complete."""
        if (spinning & (self._tried == _NONE)).any():
            self._refuse("a thread goes around a loop, and not to wait at an mbarrier")
        for address in np.unique(self._tried[self._tried != _NONE]).tolist():
            slots, threads = np.nonzero(self._tried == address)
            if (self._of(address).now(slots) > self._for[slots, threads]).any():
                self._refuse(f"a thread still tries for a phase of mbarrier {address:#x} that is complete")

    def stick(self, ended: Array) -> None:
        """Check the remaining state where nothing can go on, and some CTAs have ended."""
        for phases in self._phases.values():
            phases.leave()
        for barrier, generations in self._generations.items():
            found = generations.unfinished(ended)
            if found is not None:
                slot, thread = found
                self._refuse(
                    f"thread {thread} of CTA {self._wave.residents.coordinate(slot)} ends after it has arrived at "
                    f"{barrier} and without waiting there"
                )

    def end(self) -> None:
        """Check the remaining state when the CTAs have ended."""
        self._expect_no_wait(self._peek)
        self.stick(np.arange(self.ctas))
        if self._supply is not None:
            self._supply.end()


def _peeks(pending: Array) -> list[int]:
    """Return the peeks, by index, that some threads have made and no wait has followed yet."""
    return np.unique(pending[pending != _NONE]).tolist() if (pending != _NONE).any() else []


def announces(instructions: tuple[Instruction, ...]) -> bool:
    """Return whether a kernel announces or counts apart from copies and arrivals that use up expected counts."""
    return any(
        i.parts[:2] in (("mbarrier", "expect_tx"), ("mbarrier", "complete_tx"))
        or (i.traits.barrier == "mbarrier" and "noComplete" in i.parts)
        or (i.traits.kind == "async_copy" and i.traits.arrives and "noinc" not in i.parts)
        for i in instructions
    )
