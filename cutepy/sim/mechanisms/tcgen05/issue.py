"""Operations of the tensor core as threads issue them, and commits, which make mbarriers track them.

The MMAs, copies and shifts of a thread complete in the order of their issue. The ISA guarantees this order for some
pairs of operations only; in runs on a GPU all pairs kept it.

References
----------
PTX ISA, "tcgen05 Memory Consistency Model": "Pipelined tcgen05 Instructions"; "tcgen05.commit".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.machine.events import AsyncOperation, TensorMmaEvent
from cutepy.sim.machine.lanes import Array, Ctas, Threads
from cutepy.sim.machine.schedule import Mechanism
from cutepy.sim.machine.thread_history import ExecutedInstruction
from cutepy.sim.mechanisms.multicast import reached
from cutepy.sim.mechanisms.tcgen05.copies import Copies
from cutepy.sim.mechanisms.tcgen05.operands import SharedTiles
from cutepy.sim.mechanisms.tcgen05.products import Operands, Products
from cutepy.sim.mechanisms.tcgen05.tensor_memory import TensorMemory, check_pair

if TYPE_CHECKING:
    from cutepy.sim.machine.activity import Activity
    from cutepy.sim.machine.group import Group
    from cutepy.sim.machine.lanes import Residents
    from cutepy.sim.machine.memory import Memory
    from cutepy.sim.mechanisms.mbarriers import Mbarriers
    from cutepy.sim.ptx.model import Instruction


class TensorCore(Mechanism):
    """The tensor core of each resident CTA.

    Parameters
    ----------
    activity : Activity
    memory : Memory
    mbarriers : Mbarriers
    target : int
        Number of the GPU that the code is for: 100 of "sm_100a".

    Attributes
    ----------
    memory : TensorMemory
    """

    def __init__(self, activity: Activity, memory: Memory, mbarriers: Mbarriers, target: int) -> None:
        self._activity, self._shared, self._mbarriers = activity, memory, mbarriers
        self.memory = TensorMemory(activity, memory)
        tiles = SharedTiles(activity, memory)
        self._products = Products(activity, tiles, self.memory, target)
        self._copies = Copies(tiles, self.memory)

    def start(self, residents: Residents, threads: int) -> None:
        """Begin with CTAs that become resident."""
        self.memory.start(residents, threads)
        self._size = residents.cluster_size
        self._open: dict[tuple[int, int], list[AsyncOperation]] = {}  # by CTA and thread, what is not complete

    def end(self) -> None:
        """See whether all of tensor memory is free."""
        self.memory.end()

    def multiply(
        self,
        g: Group,
        i: Instruction,
        d: Array,
        a: Array,
        b: Array,
        descriptor: Array,
        accumulates: Array,
        a_in_tensor_memory: bool,
        scales: tuple[Array, ...],
        disabled: tuple[Array, ...],
        shift: int,
        metadata: Array,
        zero_columns: Array,
    ) -> None:
        """Take an MMA of each lane."""
        operands = d, a, b, descriptor, accumulates, metadata, zero_columns
        for row, column, values in _by_lane(g, *operands, *scales, *disabled):
            of_d, of_a, of_b, word, does, at, mask, *rest = values
            given = Operands(
                of_d,
                of_a,
                of_b,
                word,
                bool(does),
                a_in_tensor_memory,
                tuple(rest[: len(scales)]),
                tuple(rest[len(scales) :]),
                shift,
                at,
                mask,
            )
            slot = int(g.ctas.slots[row])
            event = TensorMmaEvent(word, of_a, of_b, a_in_tensor_memory, i, *_lane(g, row, column))
            for observer in self._activity.observers:
                observer.on_tensor_mma(event)
            self._issue(g, i, row, column, partial(self._products.compute, g, i, slot, self._size, given))

    def copy(self, g: Group, i: Instruction, address: Array, word: Array) -> None:
        """Take a copy of each lane from shared to tensor memory."""
        for row, column, (at, source) in _by_lane(g, address, word):
            slot = int(g.ctas.slots[row])
            self._issue(g, i, row, column, partial(self._copies.copy, g, i, slot, self._size, at, source))

    def shift(self, g: Group, i: Instruction, address: Array) -> None:
        """Take a shift of each lane."""
        for row, column, (at,) in _by_lane(g, address):
            slot = int(g.ctas.slots[row])
            self._issue(g, i, row, column, partial(self._copies.shift, g, i, slot, self._size, at))

    def _issue(self, g: Group, i: Instruction, row: int, column: int, apply: Callable[[], None]) -> None:
        check_pair(g, i, self._size)
        unfinished = self._unfinished(g, row, column)
        operation = AsyncOperation("tcgen05", i, *_lane(g, row, column), i.opcode, apply, (*unfinished[-1:],))
        self._activity.issue(operation)
        if not operation.done:
            unfinished.append(operation)

    def _unfinished(self, g: Group, row: int, column: int) -> list[AsyncOperation]:
        """Return the operations that a lane has issued and that are not complete."""
        key = int(g.ctas.slots[row]), int(g.threads.ids[column])
        found = self._open[key] = [one for one in self._open.get(key, ()) if not one.done]
        return found

    def commit(self, g: Group, i: Instruction, barrier: Array, mask: Array | None) -> None:
        """Let the mbarrier of each CTA that a mask names get an arrival, once all that a lane issued is complete."""
        check_pair(g, i, self._size)
        memory = self._shared
        space = "shared" if barrier.dtype == np.uint32 else "generic"
        position = memory.locate(g, i, memory.resolve(space, barrier)[1], 8, 8)
        masks = np.zeros((1, 1), np.uint16) if mask is None else mask
        for row, column, (at, to) in _by_lane(g, position, masks):
            slot, offset = divmod(at, memory.slot_bytes)
            own = int(g.ctas.slots[row])
            slots = np.array([slot] if mask is None else reached(g, i, own, to))

            lane = ExecutedInstruction(i, *_lane(g, row, column))

            def apply(offset: int = offset, slots: Array = slots, lane: ExecutedInstruction = lane) -> None:
                self._mbarriers.arrive_from(g, i, offset, slots, lane)

            after = (*self._unfinished(g, row, column),)
            self._activity.issue(AsyncOperation("tcgen05", i, *_lane(g, row, column), "an arrival", apply, after))


def _by_lane(g: Group, *values: Array) -> Iterator[tuple[int, int, list[int]]]:
    """Yield row and column of each lane, and its values."""
    wide = [np.broadcast_to(value, (g.ctas.count, g.threads.count)) for value in values]
    for row in range(g.ctas.count):
        for column in range(g.threads.count):
            yield row, column, [int(value[row, column]) for value in wide]


def _lane(g: Group, row: int, column: int) -> tuple[Ctas, Threads]:
    if g.ctas.count * g.threads.count == 1:
        return g.ctas, g.threads
    ctas = Ctas(g.ctas.slots[row : row + 1], g.ctas.residents)
    return ctas, Threads(g.threads.ids[column : column + 1], g.threads.block)
