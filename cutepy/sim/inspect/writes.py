"""Log of writes to shared memory, their places and bytes, as long as there is room."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cutepy.sim.machine.events import Access
from cutepy.sim.machine.lanes import Array
from cutepy.sim.machine.launch import Launch

FOLLOWED_CTAS = 16
"""CTAs of a launch whose shared memory is followed: the first, whole clusters."""
ROOM_BYTES = 128 << 20
"""Bound on the log of a run, in bytes; later writes are dropped."""


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes that one step wrote to shared memory.

    Attributes
    ----------
    starts : array of int
        Starts of the pieces: ``slot * slot_bytes + offset``.
    contents : array of uint8, (pieces, bytes)
    slot_bytes : int
    """

    starts: Array
    contents: Array
    slot_bytes: int

    def of(self, slot: int) -> tuple[Array, Array]:
        """Return the writes of one CTA: offsets of bytes, rising and each once, and the bytes."""
        here = self.starts // self.slot_bytes == slot
        offsets = (self.starts[here] - slot * self.slot_bytes)[:, None] + np.arange(self.contents.shape[1])
        places, first = np.unique(offsets.reshape(-1), return_index=True)
        return places, self.contents[here].reshape(-1)[first]


class Follower:
    """Keeps the writes to the shared memory of a launch's first CTAs.

    Parameters
    ----------
    shared : callable
        Gives shared memory as it is now, all slots, and the bytes of a slot.

    Attributes
    ----------
    full : bool
        True if something was not kept for want of room.
    """

    def __init__(self, shared: Callable[[], tuple[Array, int]]) -> None:
        self._shared = shared
        self._kept = 0
        self._launches: list[Array] = []
        self._slots: tuple[object, Array] | None = None
        self.full = False

    def start(self, launch: Launch) -> None:
        """Begin another launch."""
        size = launch.cluster[0] * launch.cluster[1] * launch.cluster[2]
        first = launch.order[: max(size, FOLLOWED_CTAS // size * size)]
        self._launches.append(first)
        self._slots = None

    def followed(self, launch: int) -> Array:
        """Return the CTAs of a launch that are followed, by their linear index in the grid."""
        return self._launches[launch]

    def follow(self, access: Access) -> Write | None:
        """Keep the bytes that an access has just written; None if it wrote to no followed CTA."""
        residents = access.ctas.residents
        if self._slots is None or self._slots[0] is not residents:
            self._slots = residents, np.isin(residents.blocks, self._launches[-1])
        data, slot_bytes = self._shared()
        starts = np.asarray(access.addresses).reshape(-1).astype(np.int64)
        starts = starts[self._slots[1][starts // slot_bytes]]
        size = len(starts) * (access.size_bytes + starts.itemsize)
        if not size:
            return None
        if self._kept + size > ROOM_BYTES:
            self.full = True
            return None
        self._kept += size
        return Write(starts, data[starts[:, None] + np.arange(access.size_bytes)], slot_bytes)
