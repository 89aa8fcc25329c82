"""Bulk copies of plain ranges of bytes, and the bulk groups that stores are waited for by.

References
----------
PTX ISA, "cp.async.bulk", "cp.reduce.async.bulk", "cp.async.bulk.commit_group", "cp.async.bulk.wait_group".
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.errors import MemoryAccessError
from cutepy.sim.machine.activity import Kind
from cutepy.sim.machine.events import AsyncOperation, GroupCommit, GroupWait
from cutepy.sim.machine.lanes import WARP, Array, Ctas, Threads
from cutepy.sim.machine.schedule import Mechanism, left_by
from cutepy.sim.mechanisms.atomics import combine
from cutepy.sim.mechanisms.global_runs import Operation, observe_runs
from cutepy.sim.mechanisms.multicast import reached

if TYPE_CHECKING:
    from cutepy.sim.machine.activity import Activity
    from cutepy.sim.machine.group import Group
    from cutepy.sim.machine.memory import Memory
    from cutepy.sim.mechanisms.mbarriers import Mbarriers
    from cutepy.sim.ptx.model import Instruction

_ALIGNMENT = 16
Lane = tuple[int, int]
Reduction = tuple[str, str]
"""An operation and the type of the elements that it combines."""


class BulkCopies(Mechanism):
    """Bulk copies of all lanes."""

    def __init__(self, activity: Activity, memory: Memory, mbarriers: Mbarriers) -> None:
        self._activity = activity
        self._memory = memory
        self._mbarriers = mbarriers
        self._open: dict[Lane, list[AsyncOperation]] = {}
        self._committed: dict[Lane, list[list[AsyncOperation]]] = {}

    def _lanes(self, g: Group, *values: Array) -> list[tuple[Lane, list[int]]]:
        shape = (g.ctas.count, g.threads.count)
        wide = [np.broadcast_to(v, shape) for v in values]
        return [
            ((row, column), [int(v[row, column]) for v in wide])
            for row in range(shape[0])
            for column in range(shape[1])
        ]

    def _global_bytes(self, g: Group, i: Instruction, address: int, size: int) -> Array:
        memory = self._memory
        self._check_size(g, i, size)
        if address % _ALIGNMENT:
            raise MemoryAccessError(
                f"global address {address:#x} of a bulk copy is no multiple of {_ALIGNMENT}", i, g.describe()
            )
        region = memory.known.find(address, address + size)
        if region is None:
            raise MemoryAccessError(
                f"a bulk copy of {size} bytes at global address {address:#x} is not in known memory: "
                f"{memory.known.nearest(address)}",
                i,
                g.describe(),
            )
        return region.bytes[address - region.base : address - region.base + size]

    def _check_size(self, g: Group, i: Instruction, size: int) -> None:
        if size % _ALIGNMENT:
            raise MemoryAccessError(
                f"the size of a bulk copy must be a multiple of {_ALIGNMENT} bytes, got {size}", i, g.describe()
            )

    def _count(self, kind: Kind, address: int, size: int) -> None:
        self._activity.stats["bulk"] += 1
        self._activity.stats["bulk_bytes"] += size
        self._activity.traffic.run(kind, address, size)

    def _observe(self, g: Group, i: Instruction, what: Operation, lane: Lane, address: int, size: int) -> None:
        if self._activity.observers and size:
            observe_runs(self._activity, g, i, what, [lane[0]], lane[1], np.array([[address]]), size)

    def load(
        self, g: Group, i: Instruction, to: Array, source: Array, size: Array, barrier: Array, mask: Array | None
    ) -> None:
        """Copy from global to shared memory, and count the bytes at an mbarrier."""
        memory, activity = self._memory, self._activity
        _, to = memory.resolve("shared" if to.dtype == np.uint32 else "generic", to)
        _, barrier = memory.resolve("shared" if barrier.dtype == np.uint32 else "generic", barrier)
        places = memory.locate(g, i, to, int(size.max()), _ALIGNMENT)
        barriers = memory.locate(g, i, barrier, 8, 8)
        masks = np.array([[0]]) if mask is None else mask
        for lane, (place, address, count, at, reach) in self._lanes(g, places, source, size, barriers, masks):
            own, offset = divmod(place, memory.slot_bytes)
            slots = [own] if mask is None else reached(g, i, own, reach)
            notified = [at // memory.slot_bytes] if mask is None else slots
            data = self._global_bytes(g, i, address, count)
            self._count("load", address, count)

            def apply(
                data: Array = data,
                slots: list[int] = slots,
                offset: int = offset,
                at: int = at,
                notified: list[int] = notified,
                own: int = own,
                lane: Lane = lane,
                address: int = address,
            ) -> None:
                self._observe(g, i, "read", lane, address, len(data))
                for slot in slots:
                    start = slot * memory.slot_bytes + offset
                    memory.shared[start : start + len(data)] = data
                    if activity.observers:
                        memory.observe(g, i, "write", "shared", "async", np.array([[start]]), len(data))
                copies = np.array([(slot, 0, 0) for slot in notified])
                by, to = np.full(len(copies), own), (at % memory.slot_bytes, np.array(notified))
                self._mbarriers.deliver(g, i, *to, len(data), copies, by=by)

            detail = f"{count} bytes of global {address:#x} to shared {offset:#x}"
            activity.issue(AsyncOperation("bulk_load", i, *_one(g, lane), detail, apply))

    def to_peer(
        self,
        g: Group,
        i: Instruction,
        to: Array,
        source: Array,
        size: Array,
        barrier: Array,
        reduction: Reduction | None,
    ) -> None:
        """Copy to the shared memory of a CTA of the cluster, or combine, and count the bytes at an mbarrier there."""
        memory, activity = self._memory, self._activity
        places = memory.locate(g, i, to, int(size.max()), _ALIGNMENT)
        sources = memory.locate(g, i, source, int(size.max()), _ALIGNMENT)
        barriers = memory.locate(g, i, barrier, 8, 8)
        for lane, (place, start, count, at) in self._lanes(g, places, sources, size, barriers):
            self._check_size(g, i, count)

            def apply(place: int = place, start: int = start, count: int = count, at: int = at) -> None:
                data, target = memory.shared[start : start + count], memory.shared[place : place + count]
                if activity.observers:
                    memory.observe(g, i, "read", "shared", "async", np.array([[start]]), count)
                    memory.observe(g, i, "write", "shared", "async", np.array([[place]]), count)
                _write(target, data, reduction)
                slot, offset = divmod(at, memory.slot_bytes)
                by = np.array([start // memory.slot_bytes])
                self._mbarriers.deliver(g, i, offset, np.array([slot]), count, np.array([[slot, 0, 0]]), by=by)

            activity.issue(AsyncOperation("bulk_peer", i, *_one(g, lane), f"{count} bytes", apply))

    def store(
        self,
        g: Group,
        i: Instruction,
        to: Array,
        source: Array,
        size: Array,
        reduction: Reduction | None,
    ) -> None:
        """Copy from shared to global memory, or combine with what is there."""
        memory, activity = self._memory, self._activity
        _, source = memory.resolve("shared" if source.dtype == np.uint32 else "generic", source)
        places = memory.locate(g, i, source, int(size.max()), _ALIGNMENT)
        stored: dict[object, AsyncOperation] = {}
        for (row, column), (address, place, count) in self._lanes(g, to, places, size):
            same = row, int(g.threads.ids[column]) // WARP, address, place, count
            if reduction is None and same in stored:  # a lane of its warp stores the same bytes: once will do
                self.track(g, (row, column), stored[same])
                continue
            target = self._global_bytes(g, i, address, count)
            memory.check_writable(g, i, np.array([[address]], np.uint64), count, g.lane(row, column))
            self._count("store" if reduction is None else "atomic", address, count)

            data = np.zeros(count, np.uint8)

            def take(data: Array = data, place: int = place) -> None:
                data[...] = memory.shared[place : place + len(data)]
                if activity.observers:
                    memory.observe(g, i, "read", "shared", "async", np.array([[place]]), len(data))

            def apply(
                data: Array = data, target: Array = target, lane: Lane = (row, column), address: int = address
            ) -> None:
                _write(target, data, reduction)
                self._observe(g, i, "write" if reduction is None else "atomic", lane, address, len(data))

            detail = f"{count} bytes to global {address:#x}"
            one = AsyncOperation("bulk_store", i, *_one(g, (row, column)), detail, apply, takes=take)
            stored[same] = one
            activity.issue(one)
            self.track(g, (row, column), one)

    def track(self, g: Group, lane: Lane, operation: AsyncOperation) -> None:
        """Add an operation that is not complete to the open bulk group of the thread that issued it."""
        if not operation.done:
            self._open.setdefault(self._thread(g, *lane), []).append(operation)

    def _thread(self, g: Group, row: int, column: int) -> Lane:
        return int(g.ctas.slots[row]), int(g.threads.ids[column])

    def commit(self, g: Group, i: Instruction) -> None:
        """Close the bulk groups of the lanes."""
        if self._activity.observers:
            self._activity.tell(GroupCommit(i, g.ctas, g.threads, "bulk_group"))
        if not self._activity.pending:
            return
        for row in range(g.ctas.count):
            for column in range(g.threads.count):
                thread = self._thread(g, row, column)
                self._committed.setdefault(thread, []).append(self._open.pop(thread, []))

    def wait(self, g: Group, i: Instruction, remaining: int, read_only: bool) -> None:
        """Complete all but the youngest `remaining` bulk groups of each lane, or let them read what they move."""
        if self._activity.observers:
            self._activity.tell(GroupWait(i, g.ctas, g.threads, "bulk_group", remaining, read_only))
        if not self._committed:
            return
        for groups in self._groups(g):
            for operation in _all_but(remaining, groups):
                (self._activity.take if read_only else self._activity.complete)(operation)
            while groups and all(operation.done for operation in groups[0]):
                del groups[0]

    def awaited(self, g: Group, i: Instruction) -> list[AsyncOperation]:
        """Return the stores that a wait completes, or lets read."""
        if not i.opcode.startswith("cp.async.bulk.wait_group"):
            return []
        found = [operation for groups in self._groups(g) for operation in _all_but(left_by(i), groups)]
        return [one for one in found if one.takes is not None] if "read" in i.parts else found

    def _groups(self, g: Group) -> Iterator[list[list[AsyncOperation]]]:
        """Yield the groups that each thread has committed, if it has any."""
        for row in range(g.ctas.count):
            for column in range(g.threads.count):
                yield self._committed.get(self._thread(g, row, column), [])


def _all_but(remaining: int, groups: list[list[AsyncOperation]]) -> list[AsyncOperation]:
    return list(chain(*groups[: max(len(groups) - remaining, 0)]))


def _one(g: Group, lane: Lane) -> tuple[Ctas, Threads]:
    """Return the CTA and the thread of a lane, given by its position in a group."""
    if g.ctas.count * g.threads.count == 1:
        return g.ctas, g.threads
    row, column = lane
    ctas = Ctas(g.ctas.slots[row : row + 1], g.ctas.residents)
    return ctas, Threads(g.threads.ids[column : column + 1], g.threads.block)


def _write(target: Array, data: Array, reduction: Reduction | None) -> None:
    """Copy bytes, or combine them as elements with what is there."""
    if reduction is None:
        target[...] = data
    else:
        operation, element = reduction
        kind = f"u{_element_bytes(element)}"
        target.view(kind)[...] = combine(operation, element, target.view(kind), data.view(kind))


def _element_bytes(element: str) -> int:
    return int("".join(c for c in element.removeprefix("bf") if c.isdigit())) // 8
