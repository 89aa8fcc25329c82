"""malloc and free in kernels: a heap in global memory, which lives as long as its module is loaded.

Each allocation is a range of known memory of its own, so an access outside of all allocations is an error.

References
----------
CUDA C++ Programming Guide, "Dynamic Global Memory Allocation and Operations": 8 MB by default, aligned to 16 bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cutepy.sim.errors import MemoryAccessError
from cutepy.sim.machine.activity import Activity
from cutepy.sim.machine.group import Group
from cutepy.sim.machine.lanes import Array
from cutepy.sim.machine.memory import Memory
from cutepy.sim.ptx.model import Instruction

HEAP_BYTES = 8 << 20
_UNIT = 16
_KEY = "the heap of malloc"
_NAME = "memory of malloc"


class Space:
    """The bytes of a heap, and which of them are taken.

    Examples
    --------
    >>> space = Space(64)
    >>> first, second = space.take(20), space.take(16)
    >>> second - first, space.take(32), space.give(first), space.take(20) == first
    (32, None, 20, True)
    """

    def __init__(self, size_bytes: int = HEAP_BYTES) -> None:
        self.data = np.zeros(size_bytes + _UNIT, np.uint8)
        start = -(-self.data.ctypes.data // _UNIT) * _UNIT
        self._free = [(start, size_bytes)]
        self.taken: dict[int, int] = {}

    def take(self, size_bytes: int) -> int | None:
        """Return the address of a given number of bytes, or None if there are no more in a row."""
        needed = -(-size_bytes // _UNIT) * _UNIT
        for n, (start, size) in enumerate(self._free):
            if size >= needed:
                self._free[n : n + 1] = [(start + needed, size - needed)] if size > needed else []
                self.taken[start] = size_bytes
                return start
        return None

    def give(self, address: int) -> int | None:
        """Take back an allocation by its address, and return its bytes; None if there is none."""
        size_bytes = self.taken.pop(address, None)
        if size_bytes is None:
            return None
        whole: list[tuple[int, int]] = []
        for start, size in sorted([*self._free, (address, -(-size_bytes // _UNIT) * _UNIT)]):
            if whole and sum(whole[-1]) == start:
                whole[-1] = whole[-1][0], whole[-1][1] + size
            else:
                whole.append((start, size))
        self._free = whole
        return size_bytes


class Heap:
    """The heap as the kernels of a launch see it.

    Parameters
    ----------
    activity : Activity
    memory : Memory
    kept : dict
        State of its module.
    """

    def __init__(self, activity: Activity, memory: Memory, kept: dict[str, Any]) -> None:
        self._activity, self._known, self._kept = activity, memory.known, kept
        space: Space | None = kept.get(_KEY)
        # What earlier launches allocated, and another run may know.
        for address, size in () if space is None else space.taken.items():
            self._known.register(address, size, space, _NAME)

    @property
    def _space(self) -> Space:
        if _KEY not in self._kept:
            self._kept[_KEY] = Space()
        space: Space = self._kept[_KEY]
        return space

    def allocate(self, g: Group, i: Instruction, sizes: Array) -> Array:
        """Return the address of a given number of bytes for each lane, 0 where there are no more."""
        shape = (g.ctas.count, g.threads.count)
        space = self._space
        found = np.zeros(shape, np.uint64)
        for at, size in np.ndenumerate(np.broadcast_to(sizes, shape)):
            address = space.take(int(size)) if size > 0 else None
            if address is not None:
                self._known.register(address, int(size), space, _NAME)
                found[at] = address
        self._activity.changes += 1
        return found

    def free(self, g: Group, i: Instruction, addresses: Array) -> None:
        """Take the memory of each lane back; that of a null pointer is none."""
        shape = (g.ctas.count, g.threads.count)
        for (row, column), address in np.ndenumerate(np.broadcast_to(addresses, shape)):
            if address and self._space.give(int(address)) is None:
                raise MemoryAccessError(
                    f"free of {int(address):#x}, which malloc has not returned or was freed before",
                    i,
                    g.lane(row, column),
                )
            if address:
                self._known.forget(int(address))
        self._activity.changes += 1
