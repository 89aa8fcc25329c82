"""Shared state that a step touched, and whether two steps commute.

Memory is a set of ranges of bytes. Barriers, and all else that has a state of its own, are objects. A step accesses
each range and object in a mode. Two steps commute if the modes commute on each range and object that both access. Two
reads commute. So do these pairs:

- at an mbarrier, in one phase: arrivals; announcements of bytes; announced bytes that come;
- at an mbarrier: a wait for a phase and an operation that counts in that phase, because no schedule has another order;
- at a named or cluster barrier: arrivals in one generation, and exits of threads meanwhile. A thread leaves the barrier
  after all arrivals of its own generation, and leaving commutes with arrivals of other generations;
- integer reductions of one kind without a result.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from cutepy.sim.machine.events import (
    ClusterArrive,
    ClusterWait,
    MbarrierArrive,
    MbarrierCompleteTx,
    MbarrierCount,
    MbarrierEvent,
    MbarrierTry,
    NamedBarrierEvent,
    NamedBarrierSync,
    SetRegisters,
)
from cutepy.sim.machine.observer import Observer
from cutepy.sim.ptx.instruction_set import COMMUTATIVE

if TYPE_CHECKING:
    from cutepy.sim.machine.events import Access, BarrierEvent, CancelRequest
    from cutepy.sim.machine.lanes import Array

Mode = tuple[Any, ...]

READ: Mode = ("read",)
WRITE: Mode = ("write",)
CLUSTERS = ("clusters",)
"""The queue of clusters that have not begun."""
_SHARED = 1 << 62
"""Base address of shared memory, beside the addresses of global memory."""
_COUNTS = frozenset(("arrive", "expect_tx", "complete_tx", "complete", "expect_arrivals"))


class Span:
    """Bytes, as ranges that are in order and apart."""

    __slots__ = ("ends", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []

    def add(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Add ranges."""
        every = sorted([*zip(self.starts, self.ends, strict=True), *ranges])
        self.starts, self.ends = [], []
        for start, end in every:
            if self.ends and start <= self.ends[-1]:
                self.ends[-1] = max(end, self.ends[-1])
            else:
                self.starts.append(start)
                self.ends.append(end)

    def meets(self, other: Span) -> bool:
        """Return whether some byte is in both."""
        if self.starts[0] >= other.ends[-1] or other.starts[0] >= self.ends[-1]:
            return False
        few, many = (self, other) if len(self.starts) < len(other.starts) else (other, self)
        for start, end in zip(few.starts, few.ends, strict=True):
            at = bisect_right(many.ends, start)
            if at < len(many.starts) and many.starts[at] < end:
                return True
        return False


class StepAccesses:
    """Accesses of a step.

    Attributes
    ----------
    spans : dict
        Bytes of memory, by mode.
    objects : dict
        Modes, by object.
    ends : set
        Barriers of which it completed the phase or generation that it counted in.
    is_everything : bool
        True if it is not known what it touched.
    """

    __slots__ = ("ends", "is_everything", "objects", "spans")

    def __init__(self) -> None:
        self.spans: dict[Mode, Span] = {}
        self.objects: dict[tuple[Any, ...], set[Mode]] = {}
        self.ends: set[tuple[Any, ...]] = set()
        self.is_everything = False

    def add_bytes(self, mode: Mode, ranges: Iterable[tuple[int, int]]) -> None:
        """Touch bytes."""
        self.spans.setdefault(mode, Span()).add(ranges)

    def add(self, key: tuple[Any, ...], mode: Mode) -> None:
        """Touch an object."""
        modes = self.objects.setdefault(key, set())
        if mode[0] == "arrive":
            modes.discard(("expect", mode[1]))  # what arrives and announces at once
        modes.add(mode)

    def keeps(self, other: StepAccesses) -> bool:
        """Return whether two steps that may come next are the same after each other.

        What would count in a phase that the other completes counts in the next one then.
        """
        ends = self.ends | other.ends
        return ends.isdisjoint(self.objects.keys() & other.objects.keys()) and not self.meets(other)

    def meets(self, other: StepAccesses, *, or_enables: bool = True) -> bool:
        """Return whether the order matters of two steps that have come after each other.

        `or_enables` says whether to count that who goes on from a barrier comes after those who came there: it can't
        be otherwise.
        """
        may_swap = commute if or_enables else _commute_once_enabled
        if self.is_everything or other.is_everything:
            return True
        mine, theirs = self.objects, other.objects
        for key in mine.keys() & theirs.keys() if mine and theirs else ():
            if not all(may_swap(one, another) for one in mine[key] for another in theirs[key]):
                return True
        for mode, span in self.spans.items():
            for another, theirs_too in other.spans.items():
                if not commute(mode, another) and span.meets(theirs_too):
                    return True
        return False


def commute(one: Mode, other: Mode) -> bool:
    """Return whether two touches of one thing may come in either order."""
    kinds = {one[0], other[0]}
    if "await" in kinds:
        return len(kinds) == 1
    if "pass" in kinds:
        return len(kinds) == 1 or bool(one[1] != other[1])
    if kinds <= {"join", "leave"}:
        return bool(one[1] == other[1])
    return one == other and one != WRITE


def _commute_once_enabled(one: Mode, other: Mode) -> bool:
    kinds = {one[0], other[0]}
    if "await" in kinds and not kinds.isdisjoint(_COUNTS):
        return bool(one[1] == other[1])
    return "pass" in kinds or commute(one, other)


class StepObserver(Observer):
    """Notes the accesses of the running step.

    Parameters
    ----------
    reads_counts : bool
        True if the kernel looks at how many arrivals an mbarrier lacks.
    waits : frozenset of int
        The tries that are made again until they succeed, by index of the instruction: what they lead to is the same
        whenever they first come.
    """

    def __init__(self, reads_counts: bool, waits: frozenset[int] = frozenset()) -> None:
        self._reads_counts, self._waits = reads_counts, waits
        self.begin()

    def begin(self) -> None:
        """Begin with a step."""
        self.touched = StepAccesses()

    def on_access(self, access: Access) -> None:
        """Note bytes."""
        if access.space == "local":
            return
        mode = READ if access.operation == "read" else WRITE
        i = access.instruction
        if i.traits.is_atomic and i.traits.is_access and not i.traits.has_result and i.parts[-1][0] in "sub":
            operation = next((p for p in i.parts if p in COMMUTATIVE), None)
            mode = mode if operation is None else ("red", operation, i.parts[-1])
        base = _SHARED if access.space == "shared" else 0
        ranges = ((start + base, end + base) for start, end in _runs(access.addresses, access.size_bytes))
        self.touched.add_bytes(mode, ranges)

    def keep_reads(self) -> None:
        """Count the step's accesses as reads: its atomics left the values that they found."""
        spans, self.touched.spans = self.touched.spans, {}
        for span in spans.values():
            self.touched.add_bytes(READ, zip(span.starts, span.ends, strict=True))

    def on_begin(self, event: BarrierEvent) -> None:
        """Record the threads that arrive at a barrier."""
        self.on_barrier(event)

    def on_barrier(self, event: BarrierEvent) -> None:
        """Record an operation on a barrier."""
        slots = event.ctas.slots
        if isinstance(event, MbarrierEvent):
            self._mbarrier(event)
        elif isinstance(event, NamedBarrierEvent):
            mode = "pass" if isinstance(event, NamedBarrierSync) else "join"
            for slot, generation in _by_slot(slots, event.generation):
                for kind in ("bar", "bar of all")[: 1 + event.is_of_all]:
                    self.touched.add((kind, slot, event.barrier.number), (mode, generation))
        elif isinstance(event, (ClusterArrive, ClusterWait)):
            size = event.ctas.residents.cluster_size
            mode = "join" if isinstance(event, ClusterArrive) else "pass"
            for slot, generation in _by_slot(slots, event.generation):
                self.touched.add(("cluster", slot // size), (mode, generation))
        elif isinstance(event, SetRegisters):
            self.set_registers(slots)

    def on_cancel(self, request: CancelRequest) -> None:
        """Note that a cluster is taken, or none: both by all that there is."""
        self.touched.add(CLUSTERS, WRITE)

    def set_registers(self, slots: Array) -> None:
        """Note that registers are given or taken."""
        for slot in slots.tolist():
            self.touched.add(("registers", slot), WRITE)

    def _mbarrier(self, event: MbarrierEvent) -> None:
        state = event.state
        of = state.slots if event.slots is None else event.slots
        for n, slot in enumerate(state.slots.tolist()):
            key, mode = ("mbarrier", slot, state.address), WRITE
            if isinstance(event, MbarrierTry):
                mode = self._awaited(event, slot, of)
            elif isinstance(event, MbarrierCount):
                phase = _phase_of(slot, of, event.counted)
                mode = self._counts(event, phase, int(state.pending_bytes[n]))
                if state.phase[n] > phase:
                    self.touched.ends.add(key)
            self.touched.add(key, mode)

    def _awaited(self, event: MbarrierTry, slot: int, of: Array) -> Mode:
        """Return the mode of a try: a wait for one phase comes after all that counts in it."""
        if event.instruction.index not in self._waits:
            return READ
        shape = np.broadcast_shapes(of.shape, event.tried.shape)
        phases = np.broadcast_to(event.tried, shape)[np.broadcast_to(of, shape) == slot]
        return ("await", int(phases[0])) if (phases == phases[0]).all() else READ

    def _counts(self, event: MbarrierCount, phase: int, lacking: int) -> Mode:
        """Return the mode of an operation that counts in a phase."""
        if isinstance(event, MbarrierArrive):
            is_told = self._reads_counts and event.part_of is None
            return WRITE if is_told or "noComplete" in event.instruction.parts else ("arrive", phase)
        if isinstance(event, MbarrierCompleteTx):
            return ("complete", phase) if lacking >= 0 else WRITE
        return (event.operation, phase)


def _by_slot(slots: Array, generation: Array) -> Iterable[tuple[int, int]]:
    first = np.broadcast_to(generation, (len(slots), generation.shape[1]))[:, 0]
    return zip(slots.tolist(), first.tolist(), strict=True)


def _phase_of(slot: int, of: Array, counted: Array) -> int:
    shape = np.broadcast_shapes(of.shape, counted.shape)
    return int(np.broadcast_to(counted, shape)[np.broadcast_to(of, shape) == slot][0])


def _runs(addresses: Array, size_bytes: int) -> list[tuple[int, int]]:
    """Return the bytes at addresses as ranges."""
    if addresses.size == 1:
        start = int(addresses.flat[0])
        return [(start, start + size_bytes)]
    flat = np.unique(addresses).astype(np.int64)
    cuts = np.flatnonzero(np.diff(flat) > size_bytes)
    starts, ends = flat[np.concatenate([[0], cuts + 1])], flat[np.concatenate([cuts, [-1]])] + size_bytes
    return list(zip(starts.tolist(), ends.tolist(), strict=True))
