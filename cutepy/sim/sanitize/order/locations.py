"""Where threads leave messages: each element of a vector is a place of its own, as it is an access of its own.

References
----------
PTX ISA, "Memory Consistency Model": "Vector Data-types", "Packed Data-types".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.machine.lanes import Array
from cutepy.sim.sanitize.order.strength import unit_bytes

if TYPE_CHECKING:
    from cutepy.sim.machine.events import Access
    from cutepy.sim.sanitize.order.sent import Location

_WIDEST = 4
"""As a power of two, the bytes of the widest access, which is aligned."""


def elements(access: Access) -> tuple[Array, int] | None:
    """Return keys of what each thread accesses, (CTA, thread, element), and the bytes of an element.

    A key is an address in global memory, or the complement of one in shared memory. There are none of what is weak by
    its kind: copies, tensor maps and matrices.
    """
    slots, threads = access.ctas.slots, access.threads.ids
    is_copy = access.part_of is not None or access.proxy != "generic"
    if is_copy or access.addresses.shape[1] not in (1, len(threads)):
        return None
    size = unit_bytes(access.instruction.opcode) or access.size_bytes
    firsts = np.broadcast_to(access.addresses, (len(slots), len(threads))).astype(np.int64)
    keys = firsts[..., None] + np.arange(0, access.size_bytes, size)
    return keys if access.space == "global" else ~keys, size


class Locations:
    """Locations that carry messages, by key; no two overlap."""

    def __init__(self) -> None:
        self._at: dict[int, Location] = {}
        self._sizes: set[int] = set()
        self._blocks: Array | None = None

    def __bool__(self) -> bool:
        return bool(self._at)

    def are_near(self, keys: Array) -> Array:
        """Tell by key whether there may be a location that overlaps what is there."""
        if self._blocks is None:
            self._blocks = np.unique(np.fromiter(self._at, np.int64, len(self._at)) >> _WIDEST)
        result: Array = np.isin(keys >> _WIDEST, self._blocks)
        return result

    def get(self, key: int, size: int) -> Location | None:
        """Return what is exactly there."""
        found = self._at.get(key)
        return found if found is not None and found.size == size else None

    def put(self, key: int, location: Location) -> Location:
        """Put something where nothing is."""
        self._at[key] = location
        self._sizes.add(location.size)
        self._blocks = None
        return location

    def end(self, key: int, size: int) -> None:
        """Take away what overlaps a write."""
        address = key if key >= 0 else ~key
        for other in self._sizes:
            for start in range(address // other * other, address + size, other):
                at = start if key >= 0 else ~start
                if self.get(at, other) is not None:
                    del self._at[at]
                    self._blocks = None

    def end_shared(self) -> None:
        """Take away what is in shared memory."""
        for key in [key for key in self._at if key < 0]:
            del self._at[key]
            self._blocks = None
