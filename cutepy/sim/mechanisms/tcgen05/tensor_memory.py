"""Tensor memory: columns that warps allocate, and their loads and stores of lanes.

Warp w reaches the quarter w modulo 4 of the lanes. Unwritten tensor memory holds words that are not plausible as data,
and an allocation takes the highest free columns. So code that assumes address 0, or reads unwritten columns, computes
with these words.

References
----------
PTX ISA, "Tensor Memory", "tcgen05.alloc, tcgen05.dealloc, tcgen05.relinquish_alloc_permit", "tcgen05.ld", "tcgen05.st".
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cache, reduce
from typing import TYPE_CHECKING

import numpy as np

from cutepy.layouts.sm100 import tmem_load_traits
from cutepy.layouts.sm100.arch import (
    MIN_ALLOCATION_COLUMNS,
    TMEM_COLUMNS,
    TMEM_LANE_SHIFT,
    TMEM_LANES,
    TMEM_QUARTER_LANES,
)
from cutepy.sim.advice import Diagnosis
from cutepy.sim.arithmetic import floats
from cutepy.sim.errors import MemoryAccessError, Place, SimulationError
from cutepy.sim.machine.events import TensorMemoryAccess, TensorMemoryAllocation
from cutepy.sim.machine.lanes import WARP, Array, Ctas, Threads
from cutepy.sim.machine.schedule import Mechanism
from cutepy.sim.machine.shared_memory import Words, leftover
from cutepy.sim.machine.wait_sources import AwaitedObject

if TYPE_CHECKING:
    from cutepy.sim.machine.activity import Activity
    from cutepy.sim.machine.group import Group
    from cutepy.sim.machine.lanes import Residents
    from cutepy.sim.machine.memory import Memory
    from cutepy.sim.ptx.model import Instruction

_COLUMN_MASK = (1 << TMEM_LANE_SHIFT) - 1
_FREE = -1
_GRANULE_LANES = 16
_REDUCED = {"f32": np.float32, "s32": np.int32, "u32": np.uint32}


class TensorMemory(Mechanism):
    """Tensor memory of all resident CTAs.

    Attributes
    ----------
    words : array of uint32, (CTAs, lanes, columns)
    """

    def __init__(self, activity: Activity, memory: Memory) -> None:
        self._activity, self._memory = activity, memory

    def start(self, residents: Residents, threads: int) -> None:
        """Give each CTA that becomes resident tensor memory in which nothing is allocated."""
        shape = residents.count, TMEM_LANES, TMEM_COLUMNS
        self.words: Array = leftover(4 * int(np.prod(shape)), Words()).view(np.uint32).reshape(shape)
        self._bases = np.full((residents.count, TMEM_COLUMNS), _FREE)
        self._groups = np.zeros(residents.count, np.int64)  # CTAs that allocate together, once one has
        self._given_up = np.zeros(residents.count, bool)
        self._promised: dict[int, list[tuple[int, int]]] = {}  # what a peer has allocated for a CTA, too
        self._pairs = residents.cluster_size
        self._residents = residents
        self._allocated_by: dict[int, Instruction] = {}  # by CTA, the last allocation

    def end(self) -> None:
        """Refuse that CTAs have ended with columns allocated."""
        for slot in np.flatnonzero((self._bases != _FREE).any(axis=1)).tolist():
            raise SimulationError(
                f"CTA {self._residents.coordinate(slot)} ends, and of tensor memory {self._said(slot)}",
                self._allocated_by.get(slot),
                fix=Diagnosis("free-before-the-end"),
            )

    # Allocation.

    def alloc(self, g: Group, i: Instruction, address: Array, columns: Array) -> bool:
        """Allocate columns by a warp of each CTA, and write their address to shared memory; tell if any are free."""
        check_pair(g, i, self._pairs)
        memory = self._memory
        count = self._asked(g, i, columns)
        position = memory.locate(g, i, memory.resolve(_space(address), address)[1], 4, 4)
        position = _address_of_all(g, i, position)
        group = i.traits.cta_group
        enough = np.array([self._found(g, i, int(slot), count, group) is not None for slot in g.ctas.slots])
        if not enough.all():
            g.ready = np.broadcast_to(enough[:, None], (g.ctas.count, g.threads.count))
            g.waits_for = lambda: self._awaited(int(g.ctas.slots[~enough][0]), count)
            return False
        g.ready, g.waits_for = None, None
        written = np.zeros((g.ctas.count, 1), np.uint32)
        for row, slot in enumerate(g.ctas.slots.tolist()):
            base = self._found(g, i, slot, count, group)
            assert base is not None
            is_promised = (base, count) in self._promised.get(slot, [])
            begins = () if is_promised else self._members(slot, group)
            if is_promised:
                self._promised[slot].remove((base, count))
            for one in begins:
                self._bases[one, base : base + count] = base
                self._allocated_by[one] = i
                if one != slot:
                    self._promised.setdefault(one, []).append((base, count))
            memory.shared_view(np.dtype("u4"), 1)[position[row] // 4] = base
            written[row] = base
            self._tell(g, i, row, group, base, count, begins)
        self._activity.changes += 1
        if self._activity.observers:
            memory.observe(g, i, "write", "shared", "generic", position[:, None], 4, values=(written,))
        return True

    def _tell(
        self, g: Group, i: Instruction, row: int, group: int, base: int = 0, count: int = 0, begins: Sequence[int] = ()
    ) -> None:
        """Tell the observers of allocations by a warp of a CTA."""
        slots = g.ctas.slots[row : row + 1]
        for observer in self._activity.observers:
            members = self._members(int(slots[0]), group)
            who = Ctas(slots, g.ctas.residents), g.threads
            observer.on_tensor_allocation(
                TensorMemoryAllocation(i, *who, tuple(members), base, count, begins=tuple(begins))
            )

    def _asked(self, g: Group, i: Instruction, columns: Array) -> int:
        count = int(columns.flat[0])
        is_power = count & (count - 1) == 0
        if (columns != columns.flat[0]).any() or not is_power or not MIN_ALLOCATION_COLUMNS <= count <= TMEM_COLUMNS:
            got = sorted(set(columns.reshape(-1).tolist()))
            raise SimulationError(
                f"{i.parts[0]}.{i.parts[1]} takes one number of columns in all threads, a power of two from 32 to 512, "
                f"got {', '.join(map(str, got[:4]))}",
                i,
                g.describe(),
            )
        return count

    def _found(self, g: Group, i: Instruction, slot: int, count: int, group: int) -> int | None:
        """Return where so many columns are that a CTA, or both of a pair, can allocate."""
        for base, promised in self._promised.get(slot, []):
            if promised == count:
                return base
        if self._given_up[slot]:
            raise SimulationError(
                "tcgen05.alloc comes after tcgen05.relinquish_alloc_permit of its CTA, which may allocate no more",
                i,
                g.describe(),
            )
        if self._groups[slot] not in (0, group):
            raise SimulationError(
                f"all tcgen05 instructions of a kernel take one .cta_group, got {group} after {self._groups[slot]}",
                i,
                g.describe(),
            )
        members = self._members(slot, group)
        self._groups[members] = group
        taken = (self._bases[members] != _FREE).any(axis=0)
        for base in range(TMEM_COLUMNS - count, -1, -count):
            if not taken[base : base + count].any():
                return base
        return None

    def _members(self, slot: int, group: int) -> list[int]:
        """Return the CTAs that an instruction is of: one, or the two of a pair."""
        return [slot] if group == 1 else pair_of(slot, self._pairs)

    def _awaited(self, slot: int, count: int) -> AwaitedObject:
        free = int((self._bases[slot] == _FREE).sum())
        return AwaitedObject(
            f"{count} columns of tensor memory: {free} of {TMEM_COLUMNS} are free",
            Place("tensor memory"),
            f"{count} columns are asked for, {free} are free, and nobody frees more",
            Diagnosis("free-tensor-memory"),
            brings=lambda i: i.traits.frees,
            is_of_a_cta=True,
        )

    def dealloc(self, g: Group, i: Instruction, address: Array, columns: Array) -> None:
        """Free the columns that one tcgen05.alloc has allocated."""
        count = self._asked(g, i, columns)
        bases = _address_of_all(g, i, address & np.uint32(_COLUMN_MASK))
        for n, (slot, base) in enumerate(zip(g.ctas.slots.tolist(), bases.tolist(), strict=True)):
            held = self._bases[slot]
            if (
                base + count > TMEM_COLUMNS
                or (held[base : base + count] != base).any()
                or (held == base).sum() != count
            ):
                raise SimulationError(
                    f"tcgen05.dealloc frees {count} columns at {base}, and {self._said(slot)}",
                    i,
                    g.describe(),
                    fix=Diagnosis("free-what-was-allocated"),
                )
            held[base : base + count] = _FREE
            every = _reached(np.arange(TMEM_LANES)[:, None], np.arange(base, base + count))
            row = Ctas(np.array([slot]), g.ctas.residents)
            for one in self._members(slot, i.traits.cta_group):
                for observer in self._activity.observers:
                    observer.on_tensor_memory(TensorMemoryAccess(i, row, g.threads, one, *every, writes=True))
            self._tell(g, i, n, i.traits.cta_group, base, count)
        self._activity.changes += 1

    def _said(self, slot: int) -> str:
        bases, counts = np.unique(self._bases[slot][self._bases[slot] != _FREE], return_counts=True)
        allocated = ", ".join(f"{count} at {base}" for base, count in zip(bases.tolist(), counts.tolist(), strict=True))
        return f"allocated are {allocated}" if allocated else "none are allocated"

    def relinquish(self, g: Group, i: Instruction) -> None:
        """Give up the right of a CTA to allocate."""
        check_pair(g, i, self._pairs)
        self._given_up[g.ctas.slots] = True
        for row in range(g.ctas.count):
            self._tell(g, i, row, i.traits.cta_group)

    def check(self, g: Group, i: Instruction, slot: int, first: int, count: int) -> None:
        """Refuse columns of a CTA that are not allocated."""
        if first + count <= TMEM_COLUMNS and (self._bases[slot, first : first + count] != _FREE).all():
            return
        raise MemoryAccessError(
            f"columns {first} to {first + count - 1} of tensor memory are not all allocated: {self._said(slot)}",
            i,
            g.describe(),
            at=Place("tensor memory"),
        )

    @staticmethod
    def check_lane(g: Group, i: Instruction, what: str, lane: int, last: int, step: int = _GRANULE_LANES) -> None:
        """Refuse a first lane from which on an operand does not lie in tensor memory as its layout has it.

        Parameters
        ----------
        g : Group
        i : Instruction
        what : str
            The operand, such as "D of 64 rows".
        lane : int
            First lane.
        last : int
            Its last lane, where it begins at lane 0.
        step : int
            Lanes of which it begins at a multiple: those that the rows of an MMA leave out come in 16.

        Raises
        ------
        MemoryAccessError
            If another lane is given.
        """
        allowed = range(0, TMEM_LANES - last, step)
        if lane in allowed:
            return
        *others, final = map(str, allowed)
        said = f"a lane from 0 to {final}" if step == 1 < len(allowed) else f"lane {', '.join(others)} or {final}"
        raise MemoryAccessError(
            f"{what} must begin at {said if others else 'lane 0'} of tensor memory, got lane {lane}",
            i,
            g.describe(),
            at=Place("tensor memory"),
        )

    # Registers.

    def load(self, g: Group, i: Instruction, address: Array, registers: int, split: int | None) -> list[Array]:
        """Return the registers of a tcgen05.ld, (CTAs, threads) each."""
        cells = self._cells(g, i, address, split)
        self._observe(g, i, cells[1], cells[2], writes=False, needs_value="red" in i.parts)
        value = self.words[cells]
        if "pack::16b" in i.parts:
            slots, lanes, columns = cells
            value = value & np.uint32(0xFFFF) | self.words[slots, lanes, columns + 1] << np.uint32(16)
        return [np.ascontiguousarray(value[:, :, n]) for n in range(registers)]

    def reduced(self, i: Instruction, registers: list[Array]) -> Array:
        """Return the least or the greatest of the registers of a tcgen05.ld.red, bit by bit as it is there."""
        name, kind = ("min" if "min" in i.parts else "max"), next(one for one in _REDUCED if one in i.parts)
        values = [register.view(_REDUCED[kind]) for register in registers]
        if kind != "f32":
            of_integers = np.minimum if name == "min" else np.maximum
            return np.asarray(of_integers.reduce(values)).view(np.uint32)
        values = [np.abs(value) for value in values] if "abs" in i.parts else values
        return np.ascontiguousarray(reduce(floats.EXTREMES[name, "NaN" in i.parts], values)).view(np.uint32)

    def store(self, g: Group, i: Instruction, address: Array, registers: tuple[Array, ...], split: int | None) -> None:
        """Store the registers of a tcgen05.st."""
        slots, lanes, columns = self._cells(g, i, address, split)
        self._observe(g, i, lanes, columns, writes=True)
        shape = g.ctas.count, g.threads.count
        value = np.stack([np.broadcast_to(register, shape) for register in registers], axis=-1)
        if "unpack::16b" in i.parts:
            self.words[slots, lanes, columns] = value & np.uint32(0xFFFF)
            self.words[slots, lanes, columns + 1] = value >> np.uint32(16)
        else:
            self.words[slots, lanes, columns] = value
        self._activity.changes += 1

    def _observe(
        self, g: Group, i: Instruction, lanes: Array, columns: Array, *, writes: bool, needs_value: bool = False
    ) -> None:
        """Tell the observers of the accesses of each warp."""
        if not self._activity.observers:
            return
        wide = 2 if not {"pack::16b", "unpack::16b"}.isdisjoint(i.parts) else 1
        warps = g.threads.ids // WARP
        for warp in np.unique(warps).tolist():
            here = warps == warp
            threads = Threads(g.threads.ids[here], g.threads.block)
            for row, slot in enumerate(g.ctas.slots.tolist()):
                of_lanes, of_columns = lanes[row, here][..., None], columns[row, here][..., None] + np.arange(wide)
                each, ctas = _cells(of_lanes, of_columns), Ctas(np.array([slot]), g.ctas.residents)
                reached = _reached(of_lanes, of_columns)
                access = TensorMemoryAccess(i, ctas, threads, slot, *reached, writes, needs_value, of_registers=each)
                for observer in self._activity.observers:
                    observer.on_tensor_memory(access)

    def observe_operation(
        self,
        g: Group,
        i: Instruction,
        slot: int,
        lanes: Array,
        columns: Array,
        *,
        writes: bool,
        needs_value: bool,
        accumulator: Hashable = None,
    ) -> None:
        """Tell the observers of the accesses of an operation of the tensor core, if it makes any."""
        if self._activity.observers and lanes.size:
            part_of = self._activity.completing
            reached = _reached(lanes, columns)
            access = TensorMemoryAccess(
                i, g.ctas, g.threads, slot, *reached, writes, needs_value, part_of, accumulator=accumulator
            )
            for observer in self._activity.observers:
                observer.on_tensor_memory(access)

    def _cells(self, g: Group, i: Instruction, address: Array, split: int | None) -> tuple[Array, Array, Array]:
        """Return slots, lanes and columns by (CTA, thread, register)."""
        is_packed = not {"pack::16b", "unpack::16b"}.isdisjoint(i.parts)
        shape, repeats = i.parts[i.parts.index("aligned") + 1 :][:2]
        lanes, columns, width = _register_places(shape, int(repeats[1:]), is_packed, split)
        bases = self._quarters(g, i, address, int(lanes.max()) + 1)
        thread = g.threads.ids % WARP
        first = (bases & np.uint32(_COLUMN_MASK)).astype(np.int64)
        for slot, low, high in zip(g.ctas.slots.tolist(), first.min(axis=1), first.max(axis=1), strict=True):
            for at in {int(low), int(high)} if low != high else (int(low),):
                self.check(g, i, slot, at, width)
        lane = (bases >> np.uint32(TMEM_LANE_SHIFT)).astype(np.int64)
        return (
            g.ctas.slots[:, None, None],
            lane[:, :, None] + lanes[thread][None],
            first[:, :, None] + columns[thread][None],
        )

    def _quarters(self, g: Group, i: Instruction, address: Array, reached: int) -> Array:
        """Return the address of each thread, whose lanes must be its warp's: lane 0 stands for the warp's first."""
        given = np.broadcast_to(address, (g.ctas.count, g.threads.count)).astype(np.uint32)
        warps = g.threads.ids // WARP
        first = given[:, np.searchsorted(warps, warps)]
        if (given != first).any():
            row, column = (int(x[0]) for x in np.nonzero(given != first))
            raise MemoryAccessError(
                f"{i.parts[0]}.{i.parts[1]} takes one address in all threads of a warp: this one gives "
                f"{int(given[row, column]):#x}, the first of its warp {int(first[row, column]):#x}",
                i,
                g.lane(row, column),
                at=Place("tensor memory"),
            )
        lane = (given >> np.uint32(TMEM_LANE_SHIFT)).astype(np.int64)
        own = warps % 4 * TMEM_QUARTER_LANES
        lane = np.where(lane < TMEM_QUARTER_LANES, lane + own, lane)
        outside = (lane < own) | (lane + reached > own + TMEM_QUARTER_LANES)
        if outside.any():
            row, column = (int(x[0]) for x in np.nonzero(outside))
            quarter = int(own[column])
            raise MemoryAccessError(
                f"warp {int(warps[column])} reaches lanes {quarter} to {quarter + TMEM_QUARTER_LANES - 1} of tensor "
                f"memory, and this takes lanes {int(lane[row, column])} to {int(lane[row, column]) + reached - 1}",
                i,
                g.lane(row, column),
                fix=Diagnosis("lanes-of-the-warp"),
                at=Place("tensor memory"),
            )
        result: Array = given & np.uint32(_COLUMN_MASK) | (lane << TMEM_LANE_SHIFT).astype(np.uint32)
        return result


def pair_of(slot: int, cluster_size: int) -> list[int]:
    """Return both CTAs of the pair of one: their ranks differ in the lowest bit."""
    rank = slot % cluster_size
    return [slot - rank + rank // 2 * 2, slot - rank + rank // 2 * 2 + 1]


def check_pair(g: Group, i: Instruction, cluster_size: int) -> None:
    """Refuse an instruction of a pair in a cluster that is not made of pairs.

    Raises
    ------
    SimulationError
        If it is one.
    """
    if cluster_size % 2 and i.traits.cta_group == 2:
        raise SimulationError(
            f"{i.parts[0]}.{i.parts[1]} of .cta_group::2 needs pairs of CTAs in a cluster, got {cluster_size}",
            i,
            g.describe(),
            fix=Diagnosis("launch-pairs"),
        )


def _address_of_all(g: Group, i: Instruction, address: Array) -> Array:
    """Return each CTA's address, which its threads have in common."""
    given = np.broadcast_to(address, (g.ctas.count, g.threads.count))
    if (given != given[:, :1]).any():
        row, column = (int(x[0]) for x in np.nonzero(given != given[:, :1]))
        raise SimulationError(
            f"{i.parts[0]}.{i.parts[1]} takes one address in all threads, got {int(given[row, 0]):#x} and "
            f"{int(given[row, column]):#x}",
            i,
            g.lane(row, column),
        )
    return np.asarray(given[:, 0])


def _cells(lanes: Array, columns: Array) -> Array:
    """Return, for each place, 16 times its granule, plus its lane in it."""
    return np.asarray((lanes // _GRANULE_LANES * TMEM_COLUMNS + columns) * _GRANULE_LANES + lanes % _GRANULE_LANES)


def _reached(lanes: Array, columns: Array) -> tuple[Array, Array]:
    """Return the granules of places, and the lanes of each, (1, n) both: see `TensorMemoryAccess`."""
    is_reached = np.zeros(TMEM_LANES * TMEM_COLUMNS, bool)
    is_reached[_cells(lanes, columns)] = True
    bits = np.packbits(is_reached, bitorder="little").view("<u2")
    granules = np.flatnonzero(bits)
    return granules[None], bits[granules][None]


def _space(address: Array) -> str:
    return "shared" if address.dtype == np.uint32 else "generic"


@cache
def _register_places(shape: str, repeats: int, is_packed: bool, split: int | None) -> tuple[Array, Array, int]:
    """Return lanes and columns by (thread, register), from the address on, and how many columns there are."""
    traits = tmem_load_traits(shape, repeats, packed=is_packed, split_columns=split)
    cells = np.array(
        [[traits.layout(thread, register) for register in range(traits.registers)] for thread in range(WARP)]
    )
    return cells[:, :, 0], cells[:, :, 1], traits.columns
