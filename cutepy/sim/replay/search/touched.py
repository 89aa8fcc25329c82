"""What a step touched of what others share, and whether two steps commute.

Memory is ranges of bytes; barriers, and what else has a state of its own, are objects. A mode says what was done: two
steps commute if all their modes of what both touched do. Reads commute, and so does what only counts, within one phase:

- at an mbarrier, in the same phase, arrivals; announcements of bytes; bytes that come once they have been announced;
- those who come to a named or cluster barrier in one generation, and threads that end meanwhile. Who goes on comes
  after all of its own generation, and commutes with those of others;
- integer reductions of one kind, whose result nobody reads.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.machine.observer import Observer

if TYPE_CHECKING:
    from cutepy.sim.machine.events import Access, BarrierEvent
    from cutepy.sim.machine.lanes import Array

Mode = tuple[object, ...]
Range = tuple[int, int, Mode]

READ: Mode = ("read",)
WRITE: Mode = ("write",)
_SHARED = 1 << 62
"""Where shared memory is put, beside the addresses of global memory."""
_REDUCED = frozenset("add and or xor min max".split())


class Touched:
    """What a step touched.

    Attributes
    ----------
    ranges : list of (start, end, mode)
        In order, within each access.
    objects : dict
        Modes, by object.
    is_everything : bool
        Whether it is not known what it touched.
    """

    __slots__ = ("is_everything", "objects", "ranges")

    def __init__(self) -> None:
        self.ranges: list[Range] = []
        self.objects: dict[object, set[Mode]] = {}
        self.is_everything = False

    def add(self, key: object, mode: Mode) -> None:
        """Touch an object."""
        modes = self.objects.setdefault(key, set())
        if mode[0] == "arrive":
            modes.discard(("expect", mode[1]))  # what arrives and announces at once
        modes.add(mode)

    def is_nothing(self) -> bool:
        """Tell whether nobody else can have seen the step."""
        return not (self.ranges or self.objects or self.is_everything)

    def meets(self, other: Touched) -> bool:
        """Tell whether the order of two steps matters."""
        if self.is_everything or other.is_everything:
            return True
        mine, theirs = self.objects, other.objects
        for key in mine.keys() & theirs.keys() if mine and theirs else ():
            if not all(commute(one, another) for one in mine[key] for another in theirs[key]):
                return True
        return any(
            start < last and first < end and not commute(mode, another)
            for start, end, mode in self.ranges
            for first, last, another in other.ranges
        )


def commute(one: Mode, other: Mode) -> bool:
    """Tell whether two touches of one thing may come in either order."""
    kinds = {one[0], other[0]}
    if "pass" in kinds:
        return len(kinds) == 1 or one[1] != other[1]
    if kinds <= {"join", "leave"}:
        return one[1] == other[1]
    return one == other and one != WRITE


class Touching(Observer):
    """Notes what the step that runs touches.

    Parameters
    ----------
    reads_counts : bool
        Whether the kernel looks at how many arrivals an mbarrier lacks.
    """

    def __init__(self, reads_counts: bool) -> None:
        self._reads_counts = reads_counts
        self.begin()

    def begin(self) -> None:
        """Begin with a step."""
        self.touched = Touched()

    def on_access(self, access: Access) -> None:
        """Note bytes."""
        if access.space == "local":
            return
        mode = READ if access.operation == "read" else WRITE
        i = access.instruction
        if i.parts[0] == "red" and "async" not in i.parts and i.parts[-1][0] in "sub":
            operation = next((p for p in i.parts if p in _REDUCED), None)
            mode = mode if operation is None else ("red", operation, i.parts[-1])
        base = _SHARED if access.space == "shared" else 0
        self.touched.ranges += ((s + base, e + base, mode) for s, e in _runs(access.addresses, access.size_bytes))

    def keep_reads(self) -> None:
        """Say that the step changed nothing: its atomics found what they left."""
        self.touched.ranges = [(start, end, READ) for start, end, _ in self.touched.ranges]

    def on_begin(self, event: BarrierEvent) -> None:
        """Note who comes to a barrier."""
        self.on_barrier(event)

    def on_barrier(self, event: BarrierEvent) -> None:
        """Note an operation on a barrier."""
        operation, name = event.operation, event.barrier
        if event.state is not None:
            self._mbarrier(event)
        elif name.startswith("bar "):
            mode = "pass" if operation == "sync" else "join"
            for slot, generation in _by_slot(event.ctas.slots, event.counted):
                self.touched.add(("bar", slot, int(name[4:])), (mode, generation))
        elif operation in ("cluster_arrive", "cluster_wait"):
            size = event.ctas.residents.cluster_size
            for slot, generation in _by_slot(event.ctas.slots, event.counted):
                mode = "join" if operation == "cluster_arrive" else "pass"
                self.touched.add(("cluster", slot // size), (mode, generation))
        elif operation == "set_registers":
            self.set_registers(event.ctas.slots)

    def set_registers(self, slots: Array) -> None:
        """Note that registers are given or taken."""
        for slot in slots.tolist():
            self.touched.add(("registers", slot), WRITE)

    def _mbarrier(self, event: BarrierEvent) -> None:
        state, operation = event.state, event.operation
        assert state is not None
        of = state.slots if event.slots is None else event.slots
        for n, slot in enumerate(state.slots.tolist()):
            key = "mbarrier", slot, state.address
            if operation in ("wait", "blocked"):
                mode = READ
            elif operation in ("init", "inval") or event.counted is None:
                mode = WRITE
            else:
                mode = self._counts(event, operation, _phase_of(slot, of, event.counted), int(state.pending_bytes[n]))
            self.touched.add(key, mode)

    def _counts(self, event: BarrierEvent, operation: str, phase: int, lacking: int) -> Mode:
        """Return the mode of what counts in a phase."""
        if operation == "arrive":
            is_told = self._reads_counts and event.part_of is None
            return WRITE if is_told or "noComplete" in event.instruction.parts else ("arrive", phase)
        if operation == "complete_tx":
            return ("complete", phase) if lacking >= 0 else WRITE
        return (operation, phase)


def _by_slot(slots: Array, counted: Array | None) -> Iterable[tuple[int, int]]:
    assert counted is not None
    first = np.broadcast_to(counted, (len(slots), counted.shape[1]))[:, 0]
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
