"""cp.async: copies of 4, 8 or 16 bytes by each thread from global to shared memory.

References
----------
PTX ISA, "cp.async", "cp.async.commit_group", "cp.async.wait_group", "cp.async.mbarrier.arrive".
"""

from __future__ import annotations

import numpy as np

from cutepy.sim.advice import Diagnosis
from cutepy.sim.errors import MemoryAccessError
from cutepy.sim.machine.activity import Activity
from cutepy.sim.machine.events import Access, AsyncOperation, GroupCommit, GroupWait
from cutepy.sim.machine.group import Group
from cutepy.sim.machine.lanes import Array, Ctas, Threads
from cutepy.sim.machine.memory import Memory
from cutepy.sim.machine.schedule import Mechanism, left_by
from cutepy.sim.mechanisms.copy_groups import CopyGroups, threads_of
from cutepy.sim.mechanisms.mbarriers import Mbarriers
from cutepy.sim.ptx.model import Instruction


class ThreadCopies(Mechanism):
    """Asynchronous copies of all lanes."""

    def __init__(self, activity: Activity, memory: Memory, mbarriers: Mbarriers) -> None:
        self._activity = activity
        self._memory = memory
        self._mbarriers = mbarriers
        self._groups = CopyGroups()

    def copy(self, g: Group, i: Instruction, to: Array, source: Array, size: int, taken: Array | None) -> None:
        """Copy `size` bytes of each lane; where fewer are `taken`, the others are zero."""
        memory, activity = self._memory, self._activity
        kind = np.dtype(f"u{min(size, 8)}")
        count = size // kind.itemsize
        _, to = memory.resolve("shared" if to.dtype == np.uint32 else "generic", to)
        place = memory.locate(g, i, to, size, size)
        shape = (g.ctas.count, g.threads.count)
        where = np.broadcast_to(source, shape)
        used = None if taken is None else np.broadcast_to(taken, shape)
        if used is not None:
            self._check_taken(g, i, size, used)
        if used is None or (used == size).all():
            memory.region(g, i, source, size, size)
            used = None

        def apply() -> None:
            if used is None:
                value = memory.load(g, i, "global", where, kind, count)
                data = value if count == 1 else np.stack(value, axis=-1)
            else:
                activity.traffic.partial("load", g, where, used)
                data = self._partial(where, used, size).view(kind).reshape(*shape, count)
                data = data[..., 0] if count == 1 else data
                self._observe_partial(g, i, where, used)
            memory.shared_view(kind, count)[np.broadcast_to(place // size, shape)] = data
            if activity.observers:
                memory.observe(g, i, "write", "shared", "generic", place, size)

        operation = AsyncOperation("cp_async", i, g.ctas, g.threads, f"{size} bytes a lane", apply)
        activity.issue(operation)
        if not operation.done:
            self._groups.add(threads_of(g), operation)

    @staticmethod
    def _check_taken(g: Group, i: Instruction, size: int, taken: Array) -> None:
        """Stop where a lane takes more bytes than it copies, which is undefined (PTX ISA, "cp.async": src-size)."""
        if (taken > size).any():
            row, column = (int(x[0]) for x in np.nonzero(taken > size))
            raise MemoryAccessError(
                f"cp.async of {size} bytes must take at most {size}, got the src-size {taken[row, column]}: what it "
                "does is undefined",
                i,
                g.lane(row, column),
                fix=Diagnosis("source-size"),
            )

    def _partial(self, where: Array, used: Array, size: int) -> Array:
        """Return the bytes of lanes that copy fewer than `size`, or none."""
        known = self._memory.known
        data = np.zeros((*where.shape, size), np.uint8)
        for position in zip(*np.nonzero(used), strict=True):
            address, count = int(where[position]), int(used[position])
            region = known.find(address, address + count)
            if region is not None:
                data[position][:count] = region.bytes[address - region.base : address - region.base + count]
        return data

    def _observe_partial(self, g: Group, i: Instruction, where: Array, used: Array) -> None:
        """Tell the observers of the reads of lanes that copy different numbers of bytes: of those with the same."""
        activity = self._activity
        for row, size in {(r, int(used[r, c])) for r, c in np.argwhere(used).tolist()} if activity.observers else ():
            lanes = np.flatnonzero(used[row] == size)
            who = Ctas(g.ctas.slots[row : row + 1], g.ctas.residents), Threads(g.threads.ids[lanes], g.threads.block)
            at = where[row : row + 1, lanes]
            access = Access("read", "global", "generic", i, *who, at, size, activity.completing)
            for observer in activity.observers:
                observer.on_access(access)

    def commit(self, g: Group, i: Instruction) -> None:
        """Close the groups of the lanes."""
        if self._activity.observers:
            self._activity.tell(GroupCommit(i, g.ctas, g.threads, "cp.async group"))
        self._groups.commit(g)

    def wait(self, g: Group, i: Instruction, remaining: int, everything: bool) -> None:
        """Complete all but the youngest `remaining` groups of each lane."""
        if self._activity.observers:
            self._activity.tell(GroupWait(i, g.ctas, g.threads, "cp.async group", None if everything else remaining))
        if everything:
            self._groups.commit(g)
        self._groups.wait(g, remaining, self._activity.complete)

    def awaited(self, g: Group, i: Instruction) -> list[AsyncOperation]:
        """Return the copies that a wait completes."""
        everything = i.opcode == "cp.async.wait_all"
        if not (everything or i.opcode == "cp.async.wait_group"):
            return []
        return self._groups.awaited(g, left_by(i), with_open=everything)

    def arrive(self, g: Group, i: Instruction, barrier: Array, counted: bool) -> None:
        """Arrive at an mbarrier some time after the copies that the lanes have issued are complete.

        `counted` says that the barrier's count includes these arrivals (.noinc); if not, its phase expects them too.
        """
        activity = self._activity
        if not counted:
            self._mbarriers.expect_arrivals(g, i, barrier)
        earlier = tuple(self._groups.awaited(g, 0, with_open=True))

        def apply() -> None:
            self._mbarriers.arrive(g, i, barrier, None, False, False)

        detail = "the arrival at an mbarrier"
        activity.issue(AsyncOperation("cp_async", i, g.ctas, g.threads, detail, apply, earlier))
