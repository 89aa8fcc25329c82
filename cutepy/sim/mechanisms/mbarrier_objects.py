"""State of mbarriers: pending arrivals, bytes and phase in each CTA, and the last operations."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cutepy.sim.machine.group import Group
from cutepy.sim.machine.lanes import Array
from cutepy.sim.machine.memory import RANK_SHIFT, Memory
from cutepy.sim.machine.thread_history import ExecutedInstruction
from cutepy.sim.machine.wait_sources import operation
from cutepy.sim.ptx.model import Instruction

SIZE_BYTES = 8
NEVER = -2
"""For the phase that the last wait saw complete, where none has passed; -1 is the phase before the first."""


class CtaArrivals(NamedTuple):
    """Arrivals of a CTA at an mbarrier: the last arrival, its phase, and the number of phases with arrivals."""

    done: ExecutedInstruction
    phase: int
    phases: int


class Multicast(NamedTuple):
    """A copy to several CTAs: the slots that its mask names, its bytes, and the phase in which these counted."""

    done: ExecutedInstruction
    to: frozenset[int]
    size_bytes: int
    phase: int


class Rounds:
    """The phases in which threads arrived together, by the slot of their CTA.

    Attributes
    ----------
    done : ExecutedInstruction
        The last arrival.
    phases : array of int
        Number of phases.
    last : array of int
        The last of them.
    is_exact : bool
        True if all these threads took part in each arrival, each at the object of its own CTA.
    """

    def __init__(self, done: ExecutedInstruction, slots: int) -> None:
        self.done = done
        self.phases = np.zeros(slots, np.int64)
        self.last = np.full(slots, -1, np.int64)
        self.is_exact = True


class Mbarrier:
    """The objects at one offset of all CTAs' shared memory, by slot."""

    def __init__(self, slots: int) -> None:
        self.valid = np.zeros(slots, bool)
        self.count = np.zeros(slots, np.int64)
        self.pending = np.zeros(slots, np.int64)
        self.transactions = np.zeros(slots, np.int64)
        self.phase = np.zeros(slots, np.int64)
        self.passed = np.full(slots, NEVER)  # the phase that the last wait saw complete
        self.life = np.zeros(slots, np.int64)  # how many were made here
        # The last "init", "inval", "arrive", "expect_tx", "expect_arrivals" and "complete_tx".
        self.done: dict[str, ExecutedInstruction] = {}
        self.arrivals: dict[int, Instruction] = {}  # those that have arrived, by index
        self.rounds: dict[int, Rounds] = {}  # by the set of threads
        self.copies: dict[int, Instruction] = {}  # those whose bytes have come
        self.sources: dict[tuple[int, int], CtaArrivals] = {}  # by the object's CTA, and the one that arrived or copied
        self.multicasts: dict[tuple[object, int], Multicast] = {}  # the last of each operation, by the CTA that copied

    def settle(self, rows: Array) -> None:
        """Complete the phase where nothing is pending."""
        done = rows[(self.pending[rows] == 0) & (self.transactions[rows] == 0)]
        if len(done):
            self.phase[done] += 1
            self.pending[done] = self.count[done]

    def note_rounds(self, did: ExecutedInstruction, slots: Array, is_exact: bool) -> None:
        """Note that threads arrive at the objects of some CTAs, in the phases that these are in."""
        rounds = self.rounds.get(id(did.threads))
        if rounds is None:
            rounds = self.rounds[id(did.threads)] = Rounds(did, len(self.phase))
        rounds.done = did
        rounds.is_exact &= is_exact
        rounds.phases[slots] += rounds.last[slots] != self.phase[slots]
        rounds.last[slots] = self.phase[slots]

    def note_sources(self, did: ExecutedInstruction, to: Array, by: Array) -> None:
        """Note which CTAs have brought something to which objects, in the phases that these are in."""
        for pair in {*zip(to.tolist(), by.tolist(), strict=True)}:
            phase = int(self.phase[pair[0]])
            last = self.sources.get(pair)
            count = 0 if last is None else last.phases - (last.phase == phase)
            self.sources[pair] = CtaArrivals(did, phase, count + 1)

    def note_multicasts(self, did: ExecutedInstruction, copies: Array, by: Array, size_bytes: int) -> None:
        """Note the CTAs that each copy reaches; `copies` as of `MbarrierCompleteTx.deliveries`, `by` the issuers."""
        for one in np.unique(copies[:, 1:], axis=0):
            here = (copies[:, 1:] == one).all(axis=1)
            to = copies[here, 0]
            copied = Multicast(did, frozenset(to.tolist()), size_bytes, int(self.phase[to].min()))
            self.multicasts[operation(did.instruction), int(by[here][0])] = copied


def positions(memory: Memory, g: Group, i: Instruction, address: Array) -> Array:
    """Return where lanes address objects, in the shared memory of all CTAs."""
    if address.dtype == np.uint64:
        _, address = memory.resolve("generic", address)
    return memory.locate(g, i, address, SIZE_BYTES, SIZE_BYTES)


def targets(
    memory: Memory, g: Group, i: Instruction, address: Array, weight: Array | int
) -> list[tuple[int, Array, Array]]:
    """Return (offset, slots, total weight by slot) of the objects that lanes address."""
    position = positions(memory, g, i, address)
    shape = position.shape if isinstance(weight, int) else np.broadcast_shapes(position.shape, weight.shape)
    lanes = g.threads.count if shape[1] == 1 else 1
    flat = np.broadcast_to(position, shape).reshape(-1)
    weights = np.broadcast_to(weight, shape).reshape(-1).astype(np.int64) * lanes
    # One address for all is an object of each CTA, or of each cluster if it names one of its CTAs.
    is_ranked = g.ctas.residents.ranked
    apart = address.size == 1 and shape[1] == 1 and int(address.flat[0]) < 1 << RANK_SHIFT and not is_ranked
    if len(flat) > 1 and not apart:
        flat, inverse = np.unique(flat, return_inverse=True)
        weights = np.bincount(inverse.reshape(-1), weights).astype(np.int64)
    offsets, slots = flat % memory.slot_bytes, flat // memory.slot_bytes
    if (offsets == offsets[0]).all():
        return [(int(offsets[0]), slots, weights)]
    return [(int(o), slots[offsets == o], weights[offsets == o]) for o in np.unique(offsets)]
