"""Opaque objects in shared memory: the places of mbarriers, and the check that nothing else is stored there.

References
----------
PTX ISA, "mbarrier": operations other than those on mbarriers; "mbarrier.inval".
"""

from __future__ import annotations

import numpy as np

from cutepy.sim.advice import Diagnosis
from cutepy.sim.errors import BarrierError, Place
from cutepy.sim.machine.activity import Activity
from cutepy.sim.machine.group import Group
from cutepy.sim.machine.lanes import Array
from cutepy.sim.machine.thread_history import ExecutedInstruction
from cutepy.sim.ptx.model import Instruction

_BYTES = 8


class OpaqueObjects:
    """The mbarriers of resident CTAs.

    Parameters
    ----------
    activity : Activity
    slots, slot_bytes : int
        CTAs, and bytes of shared memory from one to the next.
    """

    def __init__(self, activity: Activity, slots: int, slot_bytes: int) -> None:
        self._activity, self._size, self._slot_bytes = activity, slots * slot_bytes, slot_bytes
        self._live: Array | None = None
        self._made: dict[int, ExecutedInstruction] = {}

    def __bool__(self) -> bool:
        """Return whether there have been any, so that stores to shared memory are to be checked."""
        return self._live is not None

    def mark(self, offset: int, slots: Array, made: ExecutedInstruction | None) -> None:
        """Note that one begins to be at an offset of some CTAs' shared memory, made by whom; None: it ceases to."""
        if self._live is None:
            self._live = np.zeros(self._size // _BYTES + 1, bool)
        self._live[(slots * self._slot_bytes + offset) // _BYTES] = made is not None
        if made is not None:
            self._made[offset] = made

    def check_store(self, g: Group, i: Instruction, position: Array, size: int) -> None:
        """Stop where lanes store to bytes of objects, at positions in the shared memory of all CTAs."""
        if self._live is None:
            return
        count = -(-size // _BYTES)
        over = self._live[position // _BYTES]
        for n in range(1, count):
            over = over | self._live[position // _BYTES + n]
        if over.any():
            row, column = (int(x[0]) for x in np.nonzero(np.broadcast_to(over, (g.ctas.count, g.threads.count))))
            place = int(np.broadcast_to(position, over.shape)[over].flat[0])
            offset, start = place % self._slot_bytes, place // _BYTES
            first = (start + int(self._live[start : start + count].argmax())) * _BYTES % self._slot_bytes
            made = self._made.get(first)
            self._activity.fault(
                BarrierError(
                    f"a store to shared address {offset:#x} overwrites an mbarrier",
                    i,
                    g.lane(row, column),
                    fix=Diagnosis("inval-before-reuse"),
                    kind="overwritten-mbarrier",
                    at=Place.of_mbarrier(first),
                    before=None if made is None else made.execution,
                )
            )
