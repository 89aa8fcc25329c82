"""State of the resident CTAs: vector clocks, barriers, mbarriers, groups and operations in flight."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from cutepy.sim.machine.events import MbarrierInit, MbarrierWait, NamedBarrierEvent, NamedBarrierSync
from cutepy.sim.machine.lanes import WARP, Array
from cutepy.sim.ptx.memory_order import is_restricted
from cutepy.sim.sanitize.byte_layouts.layouts import AccessLayout
from cutepy.sim.sanitize.order.clocks import DONE, NO_COLUMNS, SEEN, BarrierGeneration, Clocks, View, rectangle
from cutepy.sim.sanitize.order.collectives import MmaGroups, RegisterChanges
from cutepy.sim.sanitize.order.fences import Patterns
from cutepy.sim.sanitize.order.last_steps import Arrivals, Steps
from cutepy.sim.sanitize.order.mbarrier_lifetime import MbarrierLifetimes
from cutepy.sim.sanitize.order.peers import Peers

if TYPE_CHECKING:
    from cutepy.sim.machine.events import Access, AsyncOperation, BarrierEvent, MbarrierEvent, NamedBarrier
    from cutepy.sim.machine.lanes import Residents
    from cutepy.sim.ptx.model import Instruction

BULK: Final = "bulk_group"
COPIES: Final = "cp.async group"
MMAS: Final = "wgmma group"
TENSOR: Final = "tcgen05 operations"
"""Kinds of groups that threads close, and wait for."""
ALLOCATION: Final = "tcgen05.alloc"
"""Channel of a warp's addresses of tensor memory: its lanes write them as one, after what each knows of."""
GENERIC = "cp_async", "st_async"
"""Operations of the generic proxy: PTX ISA, "st.async", "red.async"; and "Async proxy", which doesn't list cp.async."""
FAILED = -2
"""Count of a failed try, as in `MbarrierTry`."""
GROUP = 1 << 10
"""Steps of a count for each group that is closed; within one, each mbarrier that is let track its copies is a step."""
_STORES = BULK, ((BULK, "read"), (BULK, "write"))
_GROUPS = {"tma_store": _STORES, "bulk_store": _STORES, "cp_async": (COPIES, ((COPIES,),))}
_GROUPS["tcgen05"] = TENSOR, ((TENSOR,),)
"""By kind of operation, that of its groups, and the columns of each thread that count them."""

CHAIN, WRITES = "chain", "global write"
"""Channels of messages of other clusters, and of what threads write to global memory."""


class LastGroupWait(NamedTuple):
    """Last wait of a thread for groups of asynchronous operations.

    Attributes
    ----------
    instruction : Instruction
    number : int
        Number of steps up to it.
    slots, threads : array of int
        The CTAs and threads that took it.
    left : int
        Latest groups that it leaves in flight.
    is_of_reads : bool
        True if it is over once the operations have read their sources: `.read`.
    closed : array of int, (CTA, thread)
        `Wave.closed` of these at that time.
    """

    instruction: Instruction
    number: int
    slots: Array
    threads: Array
    left: int
    is_of_reads: bool
    closed: Array


class Signal(NamedTuple):
    """Mbarrier that counts the bytes of a copy.

    Attributes
    ----------
    address : int
        Offset in the shared memory of its CTA.
    slot : int
        Its CTA.
    phase : int
        The phase in which the bytes were counted, of all that the object at the address has had.
    """

    address: int
    slot: int
    phase: int


@dataclass
class IssuedOperation:
    """An asynchronous operation, until it completes.

    Attributes
    ----------
    clocks : Clocks
    slots, threads : array of int
        Lanes that issued it.
    view : View
        Clocks of the issuing lanes.
    place : array of int, (thread,)
        Row of each thread in `view`.
    count : array of int, (CTA, thread)
        Number of the group that contains the operation: the operation is complete when the group is.
    accesses : list of Access
        Accesses to shared memory.
    runs : list of Access
        Accesses of the async proxy to global memory.
    signals : dict of (int, int) to dict of int to Signal
        Mbarriers that count the bytes of a copy, by (position of the issuing CTA, position of the issuing thread), then
        by the CTA of the mbarrier.
    through : dict of int to AccessLayout or None
        Layout of the elements of a tensor copy, by the start address in shared memory.
    number : int
        Number of earlier steps: see `Steps`.
    """

    clocks: Clocks
    slots: Array
    threads: Array
    view: View
    place: Array
    count: Array
    accesses: list[Access] = field(default_factory=list)
    runs: list[Access] = field(default_factory=list)
    signals: dict[tuple[int, int], dict[int, Signal]] = field(default_factory=dict)
    through: dict[int, AccessLayout | None] = field(default_factory=dict)
    number: int = 0

    def lanes(self, rows: Array, columns: Array, releases: bool = True) -> Array:
        """Return the vector clocks of lanes, (plane, lane, rank, column), by their positions among CTAs and threads.

        `releases` includes the lanes' own accesses. An issue does not release them; it publishes completed waits only.
        """
        found: Array = self.view.known[:, rows, self.place[columns]]
        assert self.view.own is not None
        threads, known = self.threads[columns], min(found.shape[-1], len(self.clocks.owner))
        mine = self.clocks.owner[:known] == threads[:, None]
        if not releases:
            mine[np.arange(len(threads)), threads] = False
            for lane, thread in enumerate(threads.tolist()) if self.clocks.cluster > 1 else ():
                written = self.clocks.known_column((WRITES, thread))
                if written is not None and written < known:
                    mine[lane, written] = False
        at = slice(None), np.arange(len(threads)), self.slots[rows] % self.clocks.cluster, slice(known)
        found[at] = np.maximum(found[at], np.where(mine, self.view.own[:, rows, :known], 0))
        return found

    def note_signals(self, address: int, deliveries: Array, phases: Array) -> None:
        """Note that an mbarrier has counted copies' bytes, each in a phase: see `MbarrierCompleteTx.deliveries`."""
        for (slot, row, lane), phase in zip(deliveries.tolist(), phases.tolist(), strict=True):
            self.signals.setdefault((row, lane), {})[slot] = Signal(address, slot, phase)

    def signal(self, row: int, lane: int, slot: int) -> Signal:
        """Return the mbarrier that counts the bytes of one lane's copy to the memory of a CTA.

        That is one of the CTA, of the other CTA of its pair, or of the peer that a copy goes to.
        """
        mine = self.signals[row, lane]
        return mine.get(slot) or mine.get(slot ^ 1) or next(reversed(mine.values()))

    @cached_property
    def known(self) -> Array:
        """Clock that all threads of each CTA share: (plane, CTA, rank, column)."""
        every = np.arange(len(self.slots))
        if len(self.threads) == 1:
            return self.lanes(every, np.zeros(len(every), np.intp))
        rows, first, many = np.unique(self.place, return_index=True, return_counts=True)
        # Of lanes that share a row, one at least knows of a column no more than the row does.
        found = [
            self.lanes(every, np.full(len(every), lane)) if alone else self.view.known[:, :, row]
            for row, lane, alone in zip(rows.tolist(), first.tolist(), (many == 1).tolist(), strict=True)
        ]
        return found[0] if len(found) == 1 else np.minimum.reduce(found)


@dataclass
class InitRecord:
    """Initialisation of an mbarrier, by CTA.

    Attributes
    ----------
    instruction : Instruction
    threads, agents, counts : array of int
        Initialising threads, and their clocks; a count of 0 where it is not initialised.
    fenced : array of int
        Number of fence.mbarrier_init of its thread; 0 before the first one after it.
    settled : array of int
        Not 0 where all threads of the cluster know of it, and of a fence.
    """

    instruction: Instruction
    threads: Array
    agents: Array
    counts: Array
    fenced: Array
    settled: Array


class LastCopies:
    """Last `cp.async` of each thread.

    Attributes
    ----------
    counts : array of int, (CTA, thread)
        Count of the group by whose end it is complete; 0 where there is no copy.
    instructions : array of int, (CTA, thread)
        The index of its instruction, of those in `by`.
    """

    def __init__(self, counts: Array, instructions: Array) -> None:
        self.counts, self.instructions = counts, instructions
        self.by: dict[int, Instruction] = {}

    def note(self, i: Instruction, slots: Array, threads: Array, counts: Array) -> None:
        """Note a copy."""
        at = np.ix_(slots, threads)
        self.counts[at], self.instructions[at], self.by[i.index] = counts, i.index, i


class Wave:
    """Clocks, barriers and operations in flight of the CTAs that are resident together.

    Parameters
    ----------
    residents : Residents
    threads : int
        Of each CTA.
    ends_mbarriers : bool
        True if the kernel has mbarrier.inval.
    has_relaxed : bool
        True if it has relaxed arrivals at barriers.
    fences : set of frozenset of str
        State spaces that its proxy fences cover.

    Attributes
    ----------
    clocks : Clocks
    meetings : dict of object to BarrierGeneration
    closed : dict of str to array of int, (CTA, thread)
        Groups that threads have closed, by kind: `GROUP` for each.
    issued : dict of int to IssuedOperation
        Operations in flight, by identity.
    last : dict of int to (Instruction, array of int)
        By column of groups: the last issued operation, and its group in each CTA.
    chains : dict of int to int
        Chains of messages that its threads know, with the columns that count them.
    over : dict of int to int
        Launches that its threads have waited for, or heard to be over, as bits, and the columns that say so.
    copied : LastCopies
    lent : dict of (CTA, CTA, int) to (Instruction, int)
        Last copy to a peer, by the CTA that it reads and the peer, with its column and count.
    inits : dict of int to InitRecord
        By address, how mbarriers were made.
    apart : array of bool, (CTA, warp)
        True if threads of a warp have ended waits since they were together.
    peers : Peers
    objects : MbarrierLifetimes
    mma_groups : MmaGroups
    register_changes : RegisterChanges
    patterns : Patterns
    arrivals : Arrivals
    steps : Steps
    passed : dict of (int, int) to (Instruction, int)
        By an mbarrier's address and a warp, the wait there that was over last, and the phase that it saw complete.
    came : dict of (NamedBarrier, int) to set of int
        By a named barrier and an instruction, the warps that have come to the one by the other.
    waits : dict of (str, int) to LastGroupWait
        By a kind of groups and a thread, its last wait for them.
    issues : dict of str to array of int, (CTA, thread)
        By a kind of groups, how many steps there were when threads last issued an operation of it; -1 for none.
    idle : dict of int to (str, Instruction, array of int, array of int)
        By instruction, waits for a kind of groups by threads of CTAs, (CTA,) and (thread,), that had closed none.
    """

    def __init__(
        self,
        residents: Residents,
        threads: int,
        ends_mbarriers: bool,
        has_relaxed: bool,
        fences: AbstractSet[frozenset[str]],
    ) -> None:
        self.residents = residents
        self.ends_mbarriers = ends_mbarriers
        slots = residents.count
        self.clocks = Clocks(slots, threads, residents.cluster_size, fences)
        self.meetings: dict[object, BarrierGeneration] = {}
        self.closed: dict[str, Array] = {
            kind: np.zeros((slots, threads), np.int64) for kind in (BULK, COPIES, MMAS, TENSOR)
        }
        self._is_committed = np.zeros((slots, threads), bool)  # whether a commit is the last that threads issued
        self.issued: dict[int, IssuedOperation] = {}
        self.copied = LastCopies(*np.zeros((2, slots, threads), np.int64))
        self.last: dict[int, tuple[Instruction, Array]] = {}
        self.chains: dict[int, int] = {}
        self.over: dict[int, int] = {}
        self.lent: dict[tuple[int, int, int], tuple[Instruction, int]] = {}
        self.inits: dict[int, InitRecord] = {}
        self.passed: dict[tuple[int, int], tuple[Instruction, int]] = {}
        self.came: dict[tuple[NamedBarrier, int], set[int]] = {}
        self.waits: dict[tuple[str, int], LastGroupWait] = {}
        self.issues = {kind: np.full((slots, threads), -1) for kind in (BULK, COPIES, TENSOR)}
        self.idle: dict[int, tuple[str, Instruction, Array, Array]] = {}
        self._phases: dict[int, Array] = {}
        self.apart = np.zeros((slots, -(-threads // WARP)), bool)
        self.peers = Peers(self.clocks, threads)
        self.objects = MbarrierLifetimes(self.clocks, slots, threads)
        self._columns, self._of_global_memory = 0, np.zeros(0, np.intp)
        self.mma_groups = MmaGroups(self.clocks, slots)
        self.register_changes = RegisterChanges(self.clocks, slots, -(-threads // WARP))
        self.patterns, self.steps = Patterns(self.clocks, has_relaxed), Steps()
        self.arrivals = Arrivals(self.steps)

    def over_column(self, launches: int) -> int:
        """Return the column, of the first CTA of a cluster, in which 1 says that launches, given as bits, are over."""
        if launches not in self.over:
            self.over[launches] = self.clocks.column(("launches", launches))
        return self.over[launches]

    def counted(self, operation: AsyncOperation) -> Array:
        """Return by which count of the groups of each thread an operation that is issued will be complete."""
        slots, threads = operation.ctas.slots, operation.threads.ids
        kind, columns = _GROUPS.get(operation.kind, (BULK, ()))
        for thread in threads.tolist():
            for name in columns:  # before a wait can come that tells of it
                self.clocks.column((*name, thread), thread)
        at = rectangle(slots, threads)
        if columns:
            self.issues[kind][at] = self.steps.number
        count: Array = self.closed[kind][at] + 1
        if kind == TENSOR:  # commits with nothing between them are of one group
            is_commit = operation.instruction.traits.commits
            count = count - (is_commit & self._is_committed[at])
            self._is_committed[at] = is_commit
        if kind in (COPIES, TENSOR) and operation.instruction.traits.arrives:
            self.closed[kind][at] = count  # that mbarrier tells nothing of copies that come after
        return count

    def passes(self, event: BarrierEvent) -> None:
        """Note that warps have waited at an mbarrier, if an event is that."""
        if not isinstance(event, MbarrierWait):
            return
        phase = int(event.counted.max())
        if phase > FAILED:
            for warp in event.threads.warps.tolist():
                self.passed[event.state.address, warp] = event.instruction, phase

    def comes(self, event: BarrierEvent) -> None:
        """Note the warps that come to a named barrier, if an event is that."""
        if isinstance(event, NamedBarrierEvent) and not isinstance(event, NamedBarrierSync):
            came = self.came.setdefault((event.barrier, event.instruction.index), set())
            came.update(event.threads.warps.tolist())

    def close(self, kind: str, slots: Array, threads: Array) -> None:
        """Close a group of each thread."""
        at = rectangle(slots, threads)
        self.closed[kind][at] = (self.closed[kind][at] // GROUP + 1) * GROUP

    def note(self, column: int, i: Instruction, slots: Array, counts: Array) -> None:
        """Note in which groups something was issued."""
        _, groups = self.last.get(column, (i, np.zeros(self.residents.count, np.int64)))
        groups[slots] = counts.reshape(len(slots), -1)[:, 0]
        self.last[column] = i, groups

    def count_phases(self, event: MbarrierEvent) -> Array:
        """Return, by CTA, the number to add to the phases of an mbarrier, which begin anew at a second init."""
        state = event.state
        if state.address not in self._phases:
            self._phases[state.address] = np.repeat([[0], [-2]], self.residents.count, axis=1)
        first: Array
        first, last = self._phases[state.address]
        if isinstance(event, MbarrierInit):
            first[state.slots] = last[state.slots] + 2
        last[state.slots] = first[state.slots] + state.phase
        return first

    def writes(self, slots: Array, threads: Array) -> Array:
        """Return the columns that count the threads' writes to global memory, up to now.

        What a CTA tells another one of its cluster may say nothing of these, beside all else: see `of_global_memory`.
        """
        clocks = self.clocks
        if clocks.cluster == 1:
            return threads
        columns = np.array([clocks.column((WRITES, thread), thread) for thread in threads.tolist()])
        for plane in (DONE, SEEN):
            clocks.set_own(plane, slots, columns, clocks.counts(slots, threads))
        return columns

    def of_global_memory(self, columns: int) -> Array:
        """Return those of the first columns that count writes to global memory."""
        if self._columns != len(self.clocks.owner):
            self._columns = len(self.clocks.owner)
            self._of_global_memory = np.flatnonzero(self.clocks.is_channel((WRITES, BULK, CHAIN), self._columns))
        found: Array = self._of_global_memory[self._of_global_memory < columns]
        return found

    def hidden_from(self, fence: Instruction) -> Array:
        """Return the columns of which a fence shows nothing: of global memory, if it covers shared memory only."""
        if not is_restricted(fence.opcode):
            return NO_COLUMNS
        return self.of_global_memory(self.clocks.capacity)

    def meeting(self, what: object) -> BarrierGeneration:
        """Return the clocks published at an object."""
        if what not in self.meetings:
            self.meetings[what] = BarrierGeneration(self.residents.count)
        return self.meetings[what]

    def issuers(self, issuers: Array, slots: Array) -> Array:
        """Return, for CTAs whose memory an operation touches, the positions of those of `issuers` that issued it.

        That is the CTA itself, or of a multicast and a copy to a peer one of its cluster.
        """
        cluster = self.clocks.cluster
        own = np.minimum(np.searchsorted(issuers, slots), len(issuers) - 1)
        first = np.searchsorted(issuers // cluster, slots // cluster)
        return np.where(issuers[own] == slots, own, first)
