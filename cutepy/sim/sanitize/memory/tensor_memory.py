"""Shadow memory of tensor memory: the last write and the reads after it of each column, checked by vector clocks.

A granule is a column of 16 lanes. That is half of the lanes that a warp reaches, since accumulators of 64 rows take
every other half. A mask tells which lanes of a granule have a value: a copy may write one lane, and an MMA leaves lanes
whose output is disabled. A load or store is an operation of all lanes of its warp: it comes after each event that one
lane knows, and a thread that knows one lane after the operation knows the operation. MMAs, copies and shifts of one
thread are ordered among themselves.

Loads and stores complete at their `tcgen05.wait`. A load also completes where one of its registers is read, since ptxas
inserts a wait there. The tcgen05 fences are required only beside relaxed arrivals and waits. Beside other arrivals and
waits, an order without the fences, or by the registers of a load alone, is noted: NVIDIA's own kernels mostly lack
them.

An allocation counts as a write of its columns that leaves no value, so all uses of the columns must come after it. A
free of a pair's columns writes the columns of both CTAs. A CTA must relinquish the permit after all its allocations.

References
----------
PTX ISA, "tcgen05 Memory Consistency Model".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from cutepy.layouts.sm100.arch import TMEM_COLUMNS, TMEM_LANES
from cutepy.sim.machine.lanes import WARP, Array
from cutepy.sim.sanitize.order.clocks import DONE, SEEN
from cutepy.sim.sanitize.order.wave import TENSOR, IssuedOperation, Wave

if TYPE_CHECKING:
    from cutepy.sim.machine.events import AsyncOperation, TensorMemoryAccess, TensorMemoryAllocation
    from cutepy.sim.ptx.model import Instruction

_GRANULES = TMEM_LANES // 16 * TMEM_COLUMNS
_EVERY_LANE = np.uint16(0xFFFF)
_NEVER = np.iinfo(np.int32).max
"""Count of a clock that none reaches: the access is not over."""
_FENCES = 64
"""Fences of a warp that are remembered."""

Lack = Literal["before", "after", "wait", "pipeline"]
"""Defect of an order by the letter of the ISA: a fence before, or after, the threads meet; a wait for loads; or a pair
of operations of one thread that the ISA orders."""


@dataclass(slots=True, eq=False)
class TensorRecord:
    """An access to tensor memory.

    Attributes
    ----------
    instruction : Instruction
    writes : bool
    agent : int
        CTA that made or issued the access.
    threads : array of int
        Threads that made the access, or the thread that issued it.
    is_async : bool
        True of accesses by the tensor core.
    columns, counts : array of int
        Columns of the clocks, and counts: a clock that has one of these counts knows the end of the access.
    awaited : array of int
        As `counts`, for the end of loads by their wait alone.
    operation : int
        Number of the tensor core's operation that makes the access.
    accumulator : hashable
        Place and shape of the accumulator that an MMA accesses, or None.
    """

    instruction: Instruction
    writes: bool
    agent: int
    threads: Array
    is_async: bool
    columns: Array
    counts: Array
    awaited: Array
    operation: int = 0
    accumulator: Hashable = None

    @property
    def is_open(self) -> bool:
        """True of a load or a store that has not ended."""
        return bool((self.counts == _NEVER).any())

    @property
    def name(self) -> str:
        """Name of the operation, such as "ld", "mma" or "alloc"."""
        return self.instruction.parts[1]

    def is_of_warp(self, other: TensorRecord) -> bool:
        """Return whether one warp does both, or issues them."""
        return self.agent == other.agent and bool(self.threads[0] // WARP == other.threads[0] // WARP)


Report = Callable[[TensorRecord | None, TensorRecord, int, int], None]
"""Takes the older access, or None where nothing wrote, the newer one, the CTA, and the granule."""
Remark = Callable[[Lack, TensorRecord, TensorRecord, int], None]
"""Takes what the order of two accesses lacks, these, and the granule."""


class TensorShadow:
    """The tensor memory of resident CTAs.

    Parameters
    ----------
    wave : Wave
    report : callable
        Takes two accesses that nothing orders, or one that reads unwritten memory.
    remark : callable
        Takes two accesses that are in order, but not by the letter of the ISA; once for each line that lacks something,
        and of operations of one thread once for each pair of what they do.
    """

    def __init__(self, wave: Wave, report: Report, remark: Remark) -> None:
        self._wave, self._report, self._remark = wave, report, remark
        slots = wave.residents.count
        self._written = np.full((slots, _GRANULES), -1, np.int32)
        self._readers = np.full((slots, _GRANULES), -1, np.int32)
        self._lacks = np.full((slots, _GRANULES), _EVERY_LANE)  # lanes of each granule without a value, a bit each
        self._records: list[TensorRecord] = []
        # By CTA and warp, loads and stores that have not ended, and loads that have, by a use of their registers alone.
        self._open: dict[tuple[int, int], list[TensorRecord]] = {}
        self._used: dict[tuple[int, int], list[TensorRecord]] = {}
        self._sets: dict[tuple[int, ...], int] = {}
        self._members: list[tuple[int, ...]] = []
        self._of_pairs: dict[tuple[int, int], int] = {}  # by CTA and first column, who allocated them for both
        self._twins: dict[int, TensorRecord] = {}  # by number, the other one of an allocation by a pair
        self._allocations: dict[int, list[TensorRecord]] = {}  # by CTA
        # By CTA and warp: how far its lanes had come at each fence before, and what they knew at the last one after.
        self._before: dict[tuple[int, int], deque[tuple[Array, Array]]] = {}
        self._after: dict[tuple[int, int], Array] = {}
        self._remarked: set[tuple[object, ...]] = set()
        self._completing: AsyncOperation | None = None  # whose accesses come now
        self._operations = 0

    def allocate(self, event: TensorMemoryAllocation) -> None:
        """Take columns as written by the warps that allocate them; of a pair the second one names the same columns."""
        new = self._of_warp(event)
        agent = new.agent
        self._allocations.setdefault(agent, []).append(new)
        if not event.begins:
            self._twins[self._of_pairs.pop((agent, event.first))] = new
            return
        self._records.append(new)
        number = len(self._records) - 1
        for slot in event.begins:
            at = slice(event.first, event.first + event.count)
            for held, value in ((self._written, number), (self._readers, -1), (self._lacks, _EVERY_LANE)):
                held[slot].reshape(-1, TMEM_COLUMNS)[:, at] = value
            if slot != agent:
                self._of_pairs[slot, event.first] = number

    def give_up(self, event: TensorMemoryAllocation) -> tuple[TensorRecord, list[TensorRecord]]:
        """Return the end of a CTA's permit to allocate, and its allocations that may come after."""
        new = self._of_warp(event)
        knowledge = _Knowledge(self._wave, new, None)
        return new, [old for old in self._allocations.get(new.agent, ()) if not self._is_known(old, new, knowledge)]

    def _of_warp(self, event: TensorMemoryAllocation) -> TensorRecord:
        agent, threads = int(event.ctas.slots[0]), event.threads.ids
        counts = self._wave.clocks.counts(np.array([agent]), threads)[0]
        return TensorRecord(event.instruction, True, agent, threads, False, threads, counts, counts)

    def access(self, event: TensorMemoryAccess, lacking: Array) -> None:
        """Check an access against those before it, and record it.

        `lacking` are cells that it gives no value, as of `TensorMemoryAccess.of_registers`.
        """
        wave, clocks = self._wave, self._wave.clocks
        if event.part_of is None:
            threads, agent = event.threads.ids, int(event.ctas.slots[0])
            counts = clocks.counts(event.ctas.slots, threads)[0]
            is_waited_for = event.instruction.traits.is_tensor_load or event.instruction.traits.is_tensor_store
            if is_waited_for:
                counts = np.full_like(counts, _NEVER)
            new = TensorRecord(event.instruction, event.writes, agent, threads, False, threads, counts, counts.copy())
            if is_waited_for:
                self._open.setdefault((agent, int(threads[0]) // WARP), []).append(new)
            self._touch(new, event, None)
            np.bitwise_or.at(self._lacks[event.slot], lacking >> 4, np.uint16(1) << (lacking & 15).astype(np.uint16))
            return
        issued = wave.issued[id(event.part_of)]
        agent, thread = int(event.part_of.ctas.slots[0]), event.part_of.threads.ids
        column = np.array([clocks.column((TENSOR, int(thread[0])), int(thread[0]))])
        counts = issued.count[0]
        if self._completing is not event.part_of:
            self._completing, self._operations = event.part_of, self._operations + 1
        said = self._operations, event.accumulator
        new = TensorRecord(event.instruction, event.writes, agent, thread, True, column, counts, counts, *said)
        self._touch(new, event, issued)

    def wait(self, slots: Array, threads: Array, name: str) -> None:
        """Take note that threads have waited for all their operations of a name, "ld" or "st"."""
        for slot in slots.tolist() if self._open or self._used else ():
            for warp in np.unique(threads // WARP).tolist():
                pending = self._open.pop((slot, warp), [])
                self._open[slot, warp] = [one for one in pending if one.name != name]
                used = self._used.pop((slot, warp), []) if name == "ld" else []
                for one in (*pending, *used):
                    if one.name == name:
                        self._end(one, one.awaited)

    def end_by_use(self, slots: Array, threads: Array, loads: frozenset[int]) -> None:
        """Note that threads read registers of loads, given by the index of the load's instruction."""
        for slot in slots.tolist() if self._open else ():
            for warp in np.unique(threads // WARP).tolist():
                pending = self._open.pop((slot, warp), [])
                self._open[slot, warp] = [one for one in pending if one.instruction.index not in loads]
                used = [one for one in pending if one.instruction.index in loads]
                self._used.setdefault((slot, warp), []).extend(used)
                for one in used:
                    self._end(one, one.counts)

    def _end(self, one: TensorRecord, which: Array) -> None:
        """Take the threads' pending operations as those that end an access, and those that do not end it yet."""
        now = self._wave.clocks.counts(np.array([one.agent]), one.threads)[0]
        which[:] = now
        if one.is_open:
            one.counts[:] = now

    def fence(self, slots: Array, threads: Array, *, is_before: bool) -> None:
        """Take a tcgen05 fence, before or after the threads meet others."""
        clocks = self._wave.clocks
        for warp in np.unique(threads // WARP).tolist():
            lanes = threads[threads // WARP == warp]
            for slot in slots.tolist():
                of = np.array([slot])
                if is_before:
                    clocks.tick(of, lanes)
                    each = self._before.setdefault((slot, warp), deque(maxlen=_FENCES))
                    each.append((lanes, clocks.counts(of, lanes)[0]))
                else:
                    self._after[slot, warp] = clocks.joint(of, lanes)[DONE, 0]

    def unwritten(self, access: TensorMemoryAccess) -> Array:
        """Return the registers of a load that hold unwritten memory: (threads, registers)."""
        assert access.of_registers is not None
        cells = access.of_registers
        lacks = self._lacks[access.slot, cells >> 4] >> (cells & 15).astype(np.uint16) & np.uint16(1)
        return np.asarray(lacks.any(axis=-1))

    def _touch(self, new: TensorRecord, event: TensorMemoryAccess, issued: IssuedOperation | None) -> None:
        slot, granules, lanes = event.slot, event.granules[0], event.lanes[0]
        written, readers = self._written[slot, granules], self._readers[slot, granules]
        unwritten = self._lacks[slot, granules] & lanes != 0
        if event.needs_value and unwritten.any():
            self._report(None, new, slot, int(granules[unwritten][0]))
        knowledge = _Knowledge(self._wave, new, issued)
        for number in np.unique(written).tolist():
            if number >= 0:
                self._compare(number, new, knowledge, slot, granules, written == number)
        self._records.append(new)
        number = len(self._records) - 1
        if not new.writes:
            for before in np.unique(readers).tolist():
                members = self._members[before] if before >= 0 else ()
                kept = tuple(m for m in members if self._may_outlast(self._records[m], new, knowledge))
                self._readers[slot, granules[readers == before]] = self._set((*kept, number))
            return
        for before in np.unique(readers).tolist():
            for member in self._members[before] if before >= 0 else ():
                self._compare(member, new, knowledge, slot, granules, readers == before)
        self._written[slot, granules], self._readers[slot, granules] = number, -1
        self._lacks[slot, granules] &= ~lanes

    def _compare(
        self, number: int, new: TensorRecord, knowledge: _Knowledge, slot: int, granules: Array, where: Array
    ) -> None:
        """Report an access without a happens-before from an older one, or with one that the letter of the ISA lacks."""
        old, twin = self._records[number], self._twins.get(number)
        if self._is_known(old, new, knowledge):
            lack = self._lack(old, new, knowledge)
            of = new.instruction if lack == "after" else old.instruction
            kinds = old.name, old.writes, new.name, new.writes
            key = lack, (kinds if lack == "pipeline" else of.source or of.index)
            if lack is not None and key not in self._remarked:
                self._remarked.add(key)
                self._remark(lack, old, new, int(granules[where][0]))
        elif twin is None or not self._is_known(twin, new, knowledge):
            self._report(old, new, slot, int(granules[where][0]))

    def _set(self, members: tuple[int, ...]) -> int:
        if members not in self._sets:
            self._sets[members] = len(self._members)
            self._members.append(members)
        return self._sets[members]

    def _may_outlast(self, old: TensorRecord, new: TensorRecord, knowledge: _Knowledge) -> bool:
        """Tell whether a thread may know the end of a newer read, but not the end of an older one."""
        is_awaited = not (old.awaited == _NEVER).any()
        return not (is_awaited and self._is_known(old, new, knowledge))

    @staticmethod
    def _is_known(old: TensorRecord, new: TensorRecord, knowledge: _Knowledge) -> bool:
        """Return whether a new access comes after an old one."""
        if old.name == new.name == "dealloc":
            return True  # both CTAs of a pair free their columns together
        if old.is_async and new.is_async and old.agent == new.agent and old.threads[0] == new.threads[0]:
            return True  # in the order of issue
        if not old.is_async and not new.is_async and old.is_of_warp(new) and not old.is_open:
            return True
        return bool((knowledge.of(old) >= old.counts).any())

    def _lack(self, old: TensorRecord, new: TensorRecord, knowledge: _Knowledge) -> Lack | None:
        """Return the operation that the order of two accesses lacks by the letter of the ISA; None if it lacks none."""
        if old.name in ("alloc", "dealloc") or new.name == "alloc":
            return None  # allocations are synchronous
        if old.is_async and new.is_async and old.agent == new.agent and old.threads[0] == new.threads[0]:
            is_awaited = (knowledge.of(old) >= old.counts).any()  # by a commit
            return None if is_awaited or _is_pipelined(old, new) else "pipeline"
        counts = old.counts if (old.awaited == _NEVER).any() else old.awaited
        if counts is old.counts is not old.awaited or not (
            (not old.is_async and not new.is_async and old.is_of_warp(new)) or (knowledge.of(old) >= old.awaited).any()
        ):
            return "wait"
        if new.name == "dealloc" or (not old.is_async and old.is_of_warp(new)):
            return None
        after = self._after.get((new.agent, int(new.threads[0]) // WARP))
        if after is None:
            return "after"
        fenced = _at(after[old.agent % self._wave.clocks.cluster], old.columns)
        if not (fenced >= counts).any():
            return "after"
        if old.is_async:  # a commit is a fence
            return None
        for lanes, came in self._before.get((old.agent, int(old.threads[0]) // WARP), ()):
            _, mine, its = np.intersect1d(old.threads, lanes, assume_unique=True, return_indices=True)
            if ((counts[mine] < came[its]) & (came[its] <= fenced[mine])).any():
                return None
        return "before"


class _Knowledge:
    """Knowledge that the threads of an access, or its issuers, have of others."""

    def __init__(self, wave: Wave, new: TensorRecord, issued: IssuedOperation | None) -> None:
        self._clocks, self._new, self._issued = wave.clocks, new, issued
        self._found: dict[tuple[int, int], Array] = {}

    def of(self, old: TensorRecord) -> Array:
        """Return how far they know the columns of an older access to have come."""
        plane, rank = SEEN if old.writes and not self._new.writes else DONE, old.agent % self._clocks.cluster
        if (plane, rank) not in self._found:
            self._found[plane, rank] = self._known(plane, rank)
        return _at(self._found[plane, rank], old.columns)

    def _known(self, plane: int, rank: int) -> Array:
        if self._issued is None:
            return self._clocks.known_to_some(self._new.agent, self._new.threads, plane, rank)
        issued: Array = self._issued.lanes(np.array([0]), np.array([0]))[plane, 0, rank]
        return issued


def _at(known: Array, columns: Array) -> Array:
    """Return counts of columns; 0 of those that came since."""
    if int(columns.max()) < len(known):
        found: Array = known[columns]
        return found
    return np.where(columns < len(known), known[np.minimum(columns, len(known) - 1)], 0)


def _is_pipelined(old: TensorRecord, new: TensorRecord) -> bool:
    """Return whether the ISA lets two operations of a thread take effect in the order of issue.

    References
    ----------
    PTX ISA, "Pipelined tcgen05 Instructions".
    """
    if old.operation == new.operation and new.accumulator is None:
        return True  # an MMA that shifts its own A
    if (old.name, new.name) == ("mma", "mma"):
        return old.accumulator is not None and old.accumulator == new.accumulator
    if (old.name, new.name) == ("shift", "cp"):
        return "4x256b" in new.instruction.parts
    return (old.name, new.name) in (("cp", "mma"), ("shift", "mma"), ("mma", "shift"))


def place_of(granule: int) -> str:
    """Name a granule of tensor memory.

    Examples
    --------
    >>> place_of(512 + 3)
    'tensor memory at column 3 of lanes 16-31'
    """
    half, column = divmod(granule, TMEM_COLUMNS)
    return f"tensor memory at column {column} of lanes {16 * half}-{16 * half + 15}"


def first_thread(record: TensorRecord) -> tuple[int, int]:
    """Return the warp and the lane of the first thread of an access."""
    return divmod(int(record.threads[0]), WARP)
