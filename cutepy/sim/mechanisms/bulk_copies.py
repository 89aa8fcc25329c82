"""Bulk copies of plain ranges of bytes, and the bulk groups that stores are waited for by.

References
----------
PTX ISA, "cp.async.bulk", "cp.reduce.async.bulk", "cp.async.bulk.commit_group", "cp.async.bulk.wait_group".
"""

from __future__ import annotations

import numpy as np

from cutepy.sim.errors import MemoryAccessError
from cutepy.sim.machine.activity import Activity, Kind
from cutepy.sim.machine.events import Access, AsyncOperation, GroupCommit, GroupWait, Space
from cutepy.sim.machine.group import Group
from cutepy.sim.machine.lanes import WARP, Array, Ctas, Threads
from cutepy.sim.machine.memory import Memory
from cutepy.sim.machine.schedule import Mechanism, left_by
from cutepy.sim.mechanisms.atomics import combine
from cutepy.sim.mechanisms.clusters import reached
from cutepy.sim.mechanisms.copy_groups import CopyGroups
from cutepy.sim.mechanisms.global_runs import Operation
from cutepy.sim.mechanisms.mbarriers import Mbarriers
from cutepy.sim.ptx.model import Instruction

_ALIGNMENT = 16
_EVERY_BYTE = (1 << _ALIGNMENT) - 1
Lane = tuple[int, int]
Reduction = tuple[str, str]
"""An operation and the type of the elements that it combines."""


class BulkCopies(Mechanism):
    """Bulk copies of all lanes."""

    def __init__(self, activity: Activity, memory: Memory, mbarriers: Mbarriers) -> None:
        self._activity = activity
        self._memory = memory
        self._mbarriers = mbarriers
        self._groups = CopyGroups()

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

    def _observe(
        self, i: Instruction, ctas: Ctas, threads: Threads, what: Operation, space: Space, addresses: Array, size: int
    ) -> None:
        """Tell the observers of the accesses of completing copies; copies of no bytes make none."""
        for observer in self._activity.observers if size else ():
            part_of = self._activity.completing
            observer.on_access(Access(what, space, "async", i, ctas, threads, addresses, size, part_of))

    def load(
        self, g: Group, i: Instruction, to: Array, source: Array, size: Array, barrier: Array, mask: Array | None
    ) -> None:
        """Copy from global to shared memory, and count the bytes at an mbarrier."""
        memory = self._memory
        _, to = memory.resolve("shared" if to.dtype == np.uint32 else "generic", to)
        _, barrier = memory.resolve("shared" if barrier.dtype == np.uint32 else "generic", barrier)
        positions = memory.locate(g, i, to, int(size.max()), _ALIGNMENT)
        barriers = memory.locate(g, i, barrier, 8, 8)
        shape = g.ctas.count, g.threads.count
        copies = [np.broadcast_to(v, shape) for v in (positions, source, size, barriers)]
        if mask is None and self._are_one(positions, size) and self._are_at_home(g, copies[0], size, copies[-1]):
            offsets = copies[-1][0] % memory.slot_bytes
            for offset in dict.fromkeys(offsets.tolist()):
                columns = np.flatnonzero(offsets == offset)
                threads = Threads(g.threads.ids[columns], g.threads.block)
                self._load(g, i, g.ctas, threads, [v[:, columns] for v in copies])
            return
        masks = None if mask is None else np.broadcast_to(mask, shape)
        for row, column in np.ndindex(shape):
            own = int(copies[0][row, column]) // memory.slot_bytes
            slots = None if masks is None else reached(g, i, own, int(masks[row, column]))
            one = [v[row : row + 1, column : column + 1] for v in copies]
            self._load(g, i, *_one(g, (row, column)), one, slots)

    def _are_one(self, to: Array, size: Array) -> bool:
        """Return whether copies of several lanes may be one operation: they write apart, and as many bytes each.

        Copies that a policy completes are not: it may complete each at another time.
        """
        count = int(size.flat[0])
        if self._activity.policy is not None or to.size == 1 or not count or (size != count).any():
            return False
        return bool((np.diff(np.sort(to, axis=None)) >= count).all())

    def _are_at_home(self, g: Group, positions: Array, size: Array, barriers: Array) -> bool:
        """Tell whether lanes copy to their own CTAs, and count at one offset in all, where no phase ends in between."""
        offsets, slots = barriers % self._memory.slot_bytes, g.ctas.slots[:, None]
        return bool(
            (positions // self._memory.slot_bytes == slots).all()
            and (barriers // self._memory.slot_bytes == slots).all()
            and (offsets == offsets[:1]).all()
            and not self._mbarriers.may_complete_within(offsets[0], g.ctas.slots, int(size.flat[0]))
        )

    def _load(
        self,
        g: Group,
        i: Instruction,
        ctas: Ctas,
        threads: Threads,
        copies: list[Array],
        slots: list[int] | None = None,
    ) -> None:
        """Issue lanes' copies that count at one mbarrier of each CTA, or one to the CTAs of some slots."""
        memory, activity = self._memory, self._activity
        positions, sources, sizes, barriers = copies
        count, offset = int(sizes[0, 0]), int(barriers[0, 0]) % memory.slot_bytes
        addresses = sources.ravel().tolist()
        data = [self._global_bytes(g, i, address, count) for address in addresses]
        for address in addresses:
            self._count("load", address, count)
        rows, lanes = np.divmod(np.arange(positions.size), threads.count)
        by = positions.ravel() // memory.slot_bytes
        to = by if slots is not None else barriers.ravel() // memory.slot_bytes
        written = [positions]
        if slots is not None:
            own, place = divmod(int(positions[0, 0]), memory.slot_bytes)
            written = [np.array([[slot * memory.slot_bytes + place]]) for slot in slots]
            to, rows, lanes, by = np.array(slots), *np.zeros((2, len(slots)), np.intp), np.full(len(slots), own)
        notified = np.unique(to) if len(to) > 1 else to

        def apply() -> None:
            self._observe(i, ctas, threads, "read", "global", sources.astype(np.int64), count)
            for at in written:
                for start, of_lane in zip(at.ravel().tolist(), data, strict=True):
                    memory.shared[start : start + count] = of_lane
                self._observe(i, ctas, threads, "write", "shared", at, count)
            brought = np.stack([to, rows, lanes], axis=1)
            each = count * len(to) // len(notified)
            self._mbarriers.deliver(g, i, offset, notified, each, brought, by=by)

        start = int(positions[0, 0]) % memory.slot_bytes
        detail = f"{count} bytes of global {addresses[0]:#x} to shared {start:#x}"
        activity.issue(AsyncOperation("bulk_load", i, ctas, threads, detail, apply))

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
        positions = memory.locate(g, i, to, int(size.max()), _ALIGNMENT)
        sources = memory.locate(g, i, source, int(size.max()), _ALIGNMENT)
        barriers = memory.locate(g, i, barrier, 8, 8)
        for lane, (place, start, count, at) in self._lanes(g, positions, sources, size, barriers):
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
        kept: Array | None = None,
    ) -> None:
        """Copy from shared to global memory, or combine with the elements there.

        `kept` has a bit for each byte of 16, which tells whether it is copied.
        """
        memory = self._memory
        _, source = memory.resolve("shared" if source.dtype == np.uint32 else "generic", source)
        positions = memory.locate(g, i, source, int(size.max()), _ALIGNMENT)
        every = np.uint16(_EVERY_BYTE) if kept is None else kept
        wide = [np.broadcast_to(v, (g.ctas.count, g.threads.count)) for v in (to, positions, size, every)]
        if kept is None and self._are_one(wide[0].astype(np.int64), size):
            one = self._store(g, i, g.ctas, g.threads, wide, reduction)
            for row, column in () if one.done else np.ndindex(wide[0].shape):
                self.track(g, (row, column), one)
            return
        stored: dict[object, AsyncOperation] = {}
        for row, column in np.ndindex(wide[0].shape):
            copy = [v[row : row + 1, column : column + 1] for v in wide]
            same = row, int(g.threads.ids[column]) // WARP, *(int(v[0, 0]) for v in copy)
            if (
                reduction is not None or same not in stored
            ):  # else a lane of its warp stores the same bytes: once will do
                stored[same] = self._store(g, i, *_one(g, (row, column)), copy, reduction)
            self.track(g, (row, column), stored[same])

    def _store(
        self, g: Group, i: Instruction, ctas: Ctas, threads: Threads, copies: list[Array], reduction: Reduction | None
    ) -> AsyncOperation:
        """Issue lanes' copies of as many bytes."""
        memory, (to, positions, sizes, kept) = self._memory, copies
        count, addresses = int(sizes[0, 0]), to.ravel().tolist()
        what: Operation = "write" if reduction is None else "atomic"
        targets = [self._global_bytes(g, i, address, count) for address in addresses]
        for n, address in enumerate(addresses):
            row, column = divmod(n, threads.count)
            at = np.searchsorted(g.ctas.slots, ctas.slots[row]), np.searchsorted(g.threads.ids, threads.ids[column])
            memory.check_writable(g, i, np.array([[address]], np.uint64), count, g.lane(int(at[0]), int(at[1])))
            self._count("store" if reduction is None else "atomic", address, count)
        data = np.zeros((len(targets), count), np.uint8)
        is_kept, runs = _kept(int(kept[0, 0]), count)

        def take() -> None:
            for lane, start in enumerate(positions.ravel().tolist()):
                data[lane] = memory.shared[start : start + count]
            for start, size in runs:
                self._observe(i, ctas, threads, "read", "shared", positions + start, size)

        def apply() -> None:
            for target, of_lane in zip(targets, data, strict=True):
                _write(target, of_lane if is_kept is None else np.where(is_kept, of_lane, target), reduction)
            for start, size in runs:
                self._observe(i, ctas, threads, what, "global", to.astype(np.int64) + start, size)

        detail = f"{count} bytes to global {addresses[0]:#x}"
        operation = AsyncOperation("bulk_store", i, ctas, threads, detail, apply, takes=take)
        self._activity.issue(operation)
        return operation

    def track(self, g: Group, lane: Lane, operation: AsyncOperation) -> None:
        """Add an operation that is not complete to the open bulk group of the thread that issued it."""
        if not operation.done:
            row, column = lane
            self._groups.add([(int(g.ctas.slots[row]), int(g.threads.ids[column]))], operation)

    def commit(self, g: Group, i: Instruction) -> None:
        """Close the bulk groups of the lanes."""
        if self._activity.observers:
            self._activity.tell(GroupCommit(i, g.ctas, g.threads, "bulk_group"))
        self._groups.commit(g)

    def wait(self, g: Group, i: Instruction, remaining: int, read_only: bool) -> None:
        """Complete all but the youngest `remaining` bulk groups of each lane, or let them read their sources."""
        if self._activity.observers:
            self._activity.tell(GroupWait(i, g.ctas, g.threads, "bulk_group", remaining, read_only))
        self._groups.wait(g, remaining, self._activity.take if read_only else self._activity.complete)

    def awaited(self, g: Group, i: Instruction) -> list[AsyncOperation]:
        """Return the stores that a wait completes, or lets read."""
        if not i.opcode.startswith("cp.async.bulk.wait_group"):
            return []
        found = self._groups.awaited(g, left_by(i))
        return [one for one in found if one.takes is not None] if "read" in i.parts else found


def _kept(bits: int, count: int) -> tuple[Array | None, list[tuple[int, int]]]:
    """Return which bytes of a copy are kept, None for all, and where runs of them begin with their sizes."""
    if bits == _EVERY_BYTE:
        return None, [(0, count)]
    is_kept = np.tile((bits >> np.arange(_ALIGNMENT) & 1).astype(bool), count // _ALIGNMENT)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], is_kept, [False]])))
    return is_kept, [(int(start), int(end - start)) for start, end in edges.reshape(-1, 2)]


def _one(g: Group, lane: Lane) -> tuple[Ctas, Threads]:
    """Return the CTA and the thread of a lane, given by its position in a group."""
    if g.ctas.count * g.threads.count == 1:
        return g.ctas, g.threads
    row, column = lane
    ctas = Ctas(g.ctas.slots[row : row + 1], g.ctas.residents)
    return ctas, Threads(g.threads.ids[column : column + 1], g.threads.block)


def _write(target: Array, data: Array, reduction: Reduction | None) -> None:
    """Copy bytes, or combine them as elements with the bytes in memory."""
    if reduction is None:
        target[...] = data
    else:
        operation, element = reduction
        kind = f"u{_element_bytes(element)}"
        target.view(kind)[...] = combine(operation, element, target.view(kind), data.view(kind))


def _element_bytes(element: str) -> int:
    return int("".join(c for c in element.removeprefix("bf") if c.isdigit())) // 8
