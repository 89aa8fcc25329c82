"""mbarrier objects themselves: what each CTA's counts, and what it lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.errors import Place
from cutepy.sim.machine.awaited import Awaited, arrives
from cutepy.sim.machine.memory import RANK_SHIFT

if TYPE_CHECKING:
    from cutepy.sim.machine.deeds import Done
    from cutepy.sim.machine.group import Group
    from cutepy.sim.machine.lanes import Array
    from cutepy.sim.machine.memory import Memory
    from cutepy.sim.ptx.model import Instruction

SIZE_BYTES = 8


class Mbarrier:
    """The objects at one offset of all CTAs' shared memory, by slot."""

    def __init__(self, slots: int) -> None:
        self.valid = np.zeros(slots, bool)
        self.count = np.zeros(slots, np.int64)
        self.pending = np.zeros(slots, np.int64)
        self.transactions = np.zeros(slots, np.int64)
        self.phase = np.zeros(slots, np.int64)
        self.life = np.zeros(slots, np.int64)  # how many were made here
        self.done: dict[str, Done] = {}  # the last "init", "inval", "arrive", "expect_tx" and "complete_tx"
        self.arrivals: set[int] = set()  # by the instructions of these

    def settle(self, rows: Array) -> None:
        """Complete the phase where nothing is pending."""
        done = rows[(self.pending[rows] == 0) & (self.transactions[rows] == 0)]
        if len(done):
            self.phase[done] += 1
            self.pending[done] = self.count[done]

    def awaited(self, slot: int, name: str, wanted: str) -> Awaited:
        """Return what lanes wait for that want a phase of a CTA's object."""
        pending, count, size = (int(x[slot]) for x in (self.pending, self.count, self.transactions))
        held = f"{pending} of {count} arrivals and {size} bytes pending"
        if size < 0:
            held = f"{pending} of {count} arrivals pending and {-size} bytes delivered beyond those expected"
        phase = int(self.phase[slot])
        said = f"{wanted} of {name}, which is in phase {phase} with {held}"
        came = "the arrivals" if not pending else f"{max(count - pending, 0)} of {count} arrivals"
        lacks = f"{came} of its phase {phase} have {'' if pending else 'all '}come"
        if size:
            announced = "that were announced have not" if size > 0 else "came that nobody had announced"
            lacks += f", and {abs(size)} bytes {announced}"
        if not pending:
            last = self.done.get("expect_tx" if size > 0 else "complete_tx")
            return Awaited(said, Place(name), lacks, "expect_tx must say what the copies bring", last=last)
        return Awaited(
            said,
            Place(name),
            lacks,
            f"let as many arrivals come in each phase as mbarrier.init says, {count}, from threads that do not wait "
            "for this one first, or let it say fewer",
            is_begun=pending < count,
            last=self.done.get("arrive", self.done["init"]),
            brings=arrives,
            brought=frozenset(self.arrivals),
            nobody="no other thread that still runs arrives there",
        )


def targets(
    memory: Memory, g: Group, i: Instruction, address: Array, weight: Array | int
) -> list[tuple[int, Array, Array]]:
    """Return (offset, slots, total weight by slot) of the objects that lanes address."""
    if address.dtype == np.uint64:
        _, address = memory.resolve("generic", address)
    position = memory.locate(g, i, address, SIZE_BYTES, SIZE_BYTES)
    shape = position.shape if isinstance(weight, int) else np.broadcast_shapes(position.shape, weight.shape)
    lanes = g.threads.count if shape[1] == 1 else 1
    flat = np.broadcast_to(position, shape).reshape(-1)
    weights = np.broadcast_to(weight, shape).reshape(-1).astype(np.int64) * lanes
    # One address for all is an object of each CTA, or of each cluster if it names one of its CTAs.
    apart = address.size == 1 and shape[1] == 1 and int(address.flat[0]) < 1 << RANK_SHIFT
    if len(flat) > 1 and not apart:
        flat, inverse = np.unique(flat, return_inverse=True)
        weights = np.bincount(inverse.reshape(-1), weights).astype(np.int64)
    offsets, slots = flat % memory.slot_bytes, flat // memory.slot_bytes
    if (offsets == offsets[0]).all():
        return [(int(offsets[0]), slots, weights)]
    return [(int(o), slots[offsets == o], weights[offsets == o]) for o in np.unique(offsets)]
