"""Atomics one lane at a time: those of 128 bits, and those whose lanes are in several allocations.

References
----------
PTX ISA, "Parallel Synchronization and Communication Instructions: atom", .b128.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cutepy.sim.errors import MemoryAccessError
from cutepy.sim.machine.activity import Activity
from cutepy.sim.machine.group import Group
from cutepy.sim.machine.lanes import Array
from cutepy.sim.machine.memory import Memory
from cutepy.sim.ptx.model import Instruction

_BYTES = 16


def bytes_by_lane(
    activity: Activity, memory: Memory, g: Group, i: Instruction, space: str, address: Array, size_bytes: int
) -> Iterator[Array]:
    """Yield the bytes at the address of each lane, CTA by CTA, to be read and changed."""
    shape = (g.ctas.count, g.threads.count)
    place, address = memory.resolve(space, address)
    if place == "local":
        raise MemoryAccessError("local memory has no atomics", i, g.describe())
    if place == "shared":
        whole = memory.shared_view(np.dtype("u1"), 1)
        for start in np.broadcast_to(memory.locate(g, i, address, size_bytes, size_bytes), shape).flat:
            yield whole[start : start + size_bytes]
        return
    memory.region(g, i, address, size_bytes, size_bytes)
    memory.check_writable(g, i, address, size_bytes)
    activity.traffic.access("atomic", g, address, size_bytes)
    for start in np.broadcast_to(address, shape).flat:
        region = memory.known.find(int(start), int(start) + size_bytes)
        assert region is not None
        yield region.bytes[int(start) - region.base :][:size_bytes]


class WideAtomics:
    """Atomics of 128 bits, as two words of 64."""

    def __init__(self, activity: Activity, memory: Memory) -> None:
        self._activity, self._memory = activity, memory

    def apply(
        self,
        g: Group,
        i: Instruction,
        space: str,
        address: Array,
        expected: tuple[Array, ...],
        values: tuple[Array, ...],
    ) -> list[Array]:
        """Exchange the words of each lane, only where they are as expected if that is given; returns the old ones."""
        shape = (g.ctas.count, g.threads.count)
        new, wanted = (_words(words, shape) for words in (values, expected or values))
        old = np.empty_like(new)
        for n, place in enumerate(bytes_by_lane(self._activity, self._memory, g, i, space, address, _BYTES)):
            words = place.view(np.uint64)
            old[n] = words
            if not expected or (words == wanted[n]).all():
                words[:] = new[n]
                self._activity.changes += 1
        if self._activity.observers:
            found = (old == wanted).all(axis=1).reshape(shape) if expected else None
            where, address = self._memory.resolve(space, address)
            if where == "shared":
                address = self._memory.locate(g, i, address, _BYTES, _BYTES)
            self._memory.observe(g, i, "atomic", where, "generic", address, _BYTES, found)
        return [np.ascontiguousarray(old[:, n]).reshape(shape) for n in range(2)]


def _words(words: tuple[Array, ...], shape: tuple[int, int]) -> Array:
    return np.stack([np.broadcast_to(word, shape).reshape(-1) for word in words], axis=1)
