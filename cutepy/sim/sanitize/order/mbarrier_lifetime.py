"""Lifetimes of mbarriers in shared memory: inits, stores over them, invalidation, and bytes that do not come out even.

References
----------
PTX ISA, "mbarrier.init": on a valid mbarrier object it is undefined, as is an operation other than on mbarriers;
"mbarrier.inval": required before the memory is repurposed; "Tracking asynchronous operations by the mbarrier object".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cutepy.sim.advice import Diagnosis
from cutepy.sim.machine.events import (
    MbarrierBytes,
    MbarrierCompleteTx,
    MbarrierExpectTx,
    MbarrierInit,
    MbarrierInvalidate,
    MbarrierWait,
)
from cutepy.sim.machine.lanes import Array
from cutepy.sim.sanitize.order.clocks import DONE, Clocks

if TYPE_CHECKING:
    from cutepy.sim.machine.events import BarrierState, MbarrierEvent
    from cutepy.sim.ptx.model import Instruction


_BYTES = 8


class UnbalancedMbarrier(NamedTuple):
    """mbarrier of an ended CTA with bytes pending, or with more bytes than were expected."""

    address: int
    slot: int
    pending_bytes: int
    expects: Instruction | None
    delivers: Instruction | None


class UnorderedUse(NamedTuple):
    """Operation on an mbarrier without a happens-before to the end of its life."""

    instruction: Instruction
    agent: int
    thread: int


class MbarrierLifetimes:
    """The mbarriers of resident CTAs.

    Parameters
    ----------
    clocks : Clocks
    slots, threads : int
        CTAs, and threads of each.
    """

    def __init__(self, clocks: Clocks, slots: int, threads: int) -> None:
        self._clocks = clocks
        self._slots, self._threads = slots, threads
        self._uses: dict[int, Array] = {}
        self._users: dict[int, Instruction] = {}
        self._live: dict[int, Array] = {}
        self._bytes: dict[int, Array] = {}
        self._counted: dict[tuple[int, type[MbarrierBytes]], Instruction] = {}
        self._first, self._last = 1 << 62, -1
        self._overwritten: set[int] = set()
        self.made_by: dict[int, Instruction] = {}

    def see(self, event: MbarrierEvent) -> Diagnosis | None:
        """Take an operation on an mbarrier; return the fault of an init or inval."""
        state = event.state
        if isinstance(event, MbarrierBytes):
            self._counted[state.address, type(event)] = event.instruction
            self._held(state)[state.slots] = state.pending_bytes
            return None
        if not isinstance(event, (MbarrierInit, MbarrierInvalidate)):
            return None
        makes, wrong = isinstance(event, MbarrierInit), None
        live = self._live.setdefault(state.address, np.zeros(self._slots, bool))
        if event.threads.count > 1:
            wrong = Diagnosis(
                "made-by-several-threads" if makes else "invalidated-by-several-threads", threads=event.threads.count
            )
        if makes:
            if wrong is None and live[state.slots].any():
                wrong = Diagnosis("made-while-valid")
            self.made_by[state.address] = event.instruction
            self._first = min(self._first, state.address)
            self._last = max(self._last, state.address + _BYTES)
        live[state.slots] = makes
        self._held(state)[state.slots] = state.pending_bytes if makes else 0
        return wrong

    def _held(self, state: BarrierState) -> Array:
        """Return the bytes that the mbarriers at an address lack."""
        return self._bytes.setdefault(state.address, np.zeros(self._slots, np.int64))

    def use(self, event: MbarrierEvent) -> None:
        """Note the use of an mbarrier, in a kernel that invalidates mbarriers; a wait ends at its return."""
        state, clocks = event.state, self._clocks
        if event.part_of is not None or event.slots is None:
            return
        agents, threads = event.ctas.slots[:, None], event.threads.ids
        shape = self._slots, clocks.cluster, 2 * self._threads
        uses = self._uses.setdefault(state.address, np.zeros(shape, np.int64))
        whose = np.broadcast_to(event.slots, (len(agents), len(threads)))
        waits = isinstance(event, MbarrierWait)
        columns = clocks.ends(threads) if waits else threads
        uses[whose, agents % clocks.cluster, columns] = clocks.counts(event.ctas.slots, columns) + waits
        self._users[state.address] = event.instruction

    def still_used(self, event: MbarrierInvalidate) -> UnorderedUse | None:
        """Return a use of an mbarrier that its inval does not come after."""
        address, clocks = event.state.address, self._clocks
        uses = self._uses.pop(address, None)
        if uses is None:
            return None
        for slot in event.state.slots.tolist():
            rank = slot % clocks.cluster
            view, row_of = clocks.view(np.array([slot]), event.threads.ids[:1])
            known = view.known[DONE][0, row_of[0], :, : 2 * self._threads]
            late = uses[slot] > known
            late[rank, event.threads.ids[0] :: self._threads] = False
            if late.any():
                agent, column = (int(x[0]) for x in np.nonzero(late))
                return UnorderedUse(self._users[address], slot - rank + agent, column % self._threads)
        return None

    def written(self, slots: Array, first: int, last: int) -> int | None:
        """Return the address of an mbarrier that is live in one of some CTAs and has bytes in a range, now data."""
        if last <= self._first or first >= self._last:
            return None
        for address, live in self._live.items():
            if first < address + _BYTES and address < last and live[slots].any():
                self._overwritten.add(address)
                return address
        return None

    def read(self, slots: Array, offsets: Array, size: int) -> int | None:
        """Return the address of an mbarrier that is live in one of some CTAs and of which a lane reads bytes.

        Those that were written over hold data; that is told.
        """
        if int(offsets.max()) + size <= self._first or int(offsets.min()) >= self._last:
            return None
        for address, live in self._live.items():
            if address not in self._overwritten and live[slots].any():
                inside = (offsets < address + _BYTES) & (offsets + size > address)
                if (inside & live[slots][:, None]).any():
                    return address
        return None

    def uneven(self) -> list[UnbalancedMbarrier]:
        """Return the mbarriers whose bytes don't come out even."""
        found = []
        for address, held in self._bytes.items():
            for slot in np.flatnonzero(held)[:1].tolist():
                by = (self._counted.get((address, what)) for what in (MbarrierExpectTx, MbarrierCompleteTx))
                found.append(UnbalancedMbarrier(address, slot, int(held[slot]), *by))
        return found
