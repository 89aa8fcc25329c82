"""Watch: an observer that records the operations of simulated kernels, instruction by instruction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from cutepy.layouts import LayoutError
from cutepy.layouts.grids.grid import ranges
from cutepy.layouts.sm90 import Im2colTensorMap, TensorMap
from cutepy.layouts.sm100.arch import TMEM_COLUMNS, TMEM_LANES
from cutepy.sim import (
    Access,
    BarrierEvent,
    ClusterArrive,
    ClusterBarrier,
    ClusterWait,
    Launch,
    MbarrierAt,
    MbarrierInit,
    NamedBarrier,
    Observer,
    TensorMemoryAccess,
    TensorMemoryAllocation,
    TensorMmaEvent,
    TmaEvent,
    WaitBegins,
    WgmmaEvent,
)
from cutepy.sim.inspect.banks import cost_of
from cutepy.sim.machine.lanes import WARP, Array
from cutepy.sim.mechanisms.wgmma.operands import tile_units
from cutepy.sim.ptx import Instruction

CELL_BYTES = 8
"""Unit of the shared-memory map: the size of the smallest object in it, an mbarrier."""
TMEM_GRANULE_LANES = 16
"""Lanes of a cell of the map of tensor memory."""
_UNIT = 16
_OF_CLUSTERS: dict[type[BarrierEvent], str] = {ClusterArrive: "arrive", ClusterWait: "wait"}
"""Actions of events whose names say more."""

Actor = Literal["wgmma", "tensor core", "TMA", "bulk copies", "threads", "mbarrier"]
Key = int | NamedBarrier | ClusterBarrier
"""Key of a barrier: the address of an mbarrier, or the barrier itself."""


@dataclass
class SeenMma:
    """Record of an MMA instruction: its descriptors, in order, and its warpgroups.

    `words` has the instruction descriptors of an MMA of the tensor core.
    """

    a: dict[int, None] = field(default_factory=dict)
    b: dict[int, None] = field(default_factory=dict)
    issued: int = 0
    warpgroups: set[int] = field(default_factory=set)
    words: set[int] = field(default_factory=set)


@dataclass
class SeenCopy:
    """Record of a tensor copy: its tensor maps, shared-memory addresses, and boxes."""

    operation: str = ""
    tensor_maps: dict[TensorMap | Im2colTensorMap, None] = field(default_factory=dict)
    places: set[int] = field(default_factory=set)
    coordinates: set[tuple[int, ...]] = field(default_factory=set)
    issued: int = 0


@dataclass
class SeenParty:
    """Record of an instruction's operations on a barrier."""

    instruction: Instruction
    threads: set[int] = field(default_factory=set)
    times: int = 0
    waited: int = 0
    amounts: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class Role:
    """Use of shared memory by an instruction.

    Attributes
    ----------
    actor : "wgmma", "tensor core", "TMA", "bulk copies", "threads" or "mbarrier"
    action : str
        Of wgmma "A" or "B", of TMA its operation ("load", "store", "add"); else "read", "written" or "updated".
    """

    actor: Actor
    action: str = ""

    @property
    def writes(self) -> bool:
        """True if it writes."""
        return self.action in ("written", "updated") or (self.actor == "TMA" and self.action == "load")

    @property
    def reads(self) -> bool:
        """True if it reads."""
        return self.action in ("read", "updated") or self.actor == "wgmma" or (self.actor == "TMA" and not self.writes)


@dataclass
class Cells:
    """Record of an instruction's accesses to shared memory, by role."""

    instruction: Instruction
    role: Role
    used: Array
    starts: set[int] = field(default_factory=set)


@dataclass
class TmemCells:
    """Record of an instruction's reads of an allocation of tensor memory, or of its writes.

    Attributes
    ----------
    instruction : Instruction
    writes : bool
    used : array of bool, (8, 512)
        By 16 lanes, and by column from the allocation's first.
    threads : set of int
        Threads that load or store.
    """

    instruction: Instruction
    writes: bool
    used: Array = field(default_factory=lambda: np.zeros((TMEM_LANES // TMEM_GRANULE_LANES, TMEM_COLUMNS), bool))
    threads: set[int] = field(default_factory=set)


@dataclass
class SeenTmem:
    """Record of the columns that one tcgen05.alloc has allocated."""

    instruction: Instruction
    columns: int = 0
    threads: set[int] = field(default_factory=set)
    freed: dict[int, Instruction] = field(default_factory=dict)
    cells: dict[tuple[int, bool], TmemCells] = field(default_factory=dict)


@dataclass
class SeenAccess:
    """Cost of an instruction's accesses to one memory, over all launches."""

    instruction: Instruction
    space: Literal["shared", "global"]
    warps: int = 0
    taken: int = 0
    fewest: int = 0


@dataclass
class LaunchRecord:
    """Record of the launches of one kernel.

    Attributes
    ----------
    launches : list of Launch
    mmas, copies : dict
        Records by the index of the instruction.
    barriers : dict
        Records by barrier, then by action and index of the instruction.
    initialised : dict
        Index of the initialising instruction by the address of the mbarrier.
    cells : dict
        Shared memory, by the index of the instruction and the role.
    tensor_memory : dict
        Allocations by the index of the instruction.
    accesses : dict
        Cost of loads and stores, by the index of the instruction and the memory.
    """

    launches: list[Launch] = field(default_factory=list)
    mmas: dict[int, SeenMma] = field(default_factory=dict)
    copies: dict[int, SeenCopy] = field(default_factory=dict)
    barriers: dict[Key, dict[tuple[str, int], SeenParty]] = field(default_factory=dict)
    initialised: dict[int, Instruction] = field(default_factory=dict)
    cells: dict[tuple[int, Role], Cells] = field(default_factory=dict)
    tensor_memory: dict[int, SeenTmem] = field(default_factory=dict)
    accesses: dict[tuple[int, str], SeenAccess] = field(default_factory=dict)

    def cells_of(self, i: Instruction, role: Role) -> Cells:
        """Return the cells of an instruction in a role."""
        key = i.index, role
        if key not in self.cells:
            self.cells[key] = Cells(i, role, np.zeros(self.launches[-1].slot_bytes // CELL_BYTES, bool))
        found = self.cells[key]
        missing = self.launches[-1].slot_bytes // CELL_BYTES - len(found.used)
        if missing > 0:  # a later launch has more shared memory
            found.used = np.pad(found.used, (0, missing))
        return found


class Watch(Observer):
    """Observer of the kernels of a simulated run; `cutepy.explain` makes an explanation of it.

    Examples
    --------
    >>> import cutepy
    >>> from cutepy.anatomy import Watch
    >>> def explained(my_function, *tensors):
    ...     watch = Watch()
    ...     with cutepy.simulate(observers=[watch]):
    ...         my_function(*tensors)
    ...     return cutepy.explain(watch)
    """

    def __init__(self) -> None:
        self._kernels: dict[tuple[str, str], LaunchRecord] = {}
        self._seen = LaunchRecord()

    @property
    def kernels(self) -> Iterator[LaunchRecord]:
        """Records by kernel, in the order of their first launches."""
        yield from self._kernels.values()

    def on_launch(self, launch: Launch) -> None:
        """Begin another launch."""
        self._seen = self._kernels.setdefault((launch.ptx, launch.kernel), LaunchRecord())
        self._allocated: dict[int, dict[int, SeenTmem]] = {}  # by CTA and first column
        self._seen.launches.append(launch)

    def on_wgmma(self, event: WgmmaEvent) -> None:
        """Record the descriptors of an MMA."""
        i, shape = event.instruction, event.shape
        seen = self._seen.mmas.setdefault(i.index, SeenMma())
        groups = event.threads.warpgroups
        here = [] if groups is None else groups.tolist()
        seen.issued += event.ctas.count * len(here)
        seen.warpgroups.update(here)
        for words, known, role, tile in (
            (event.a, seen.a, Role("wgmma", "A"), shape.a_tile),
            (event.b, seen.b, Role("wgmma", "B"), shape.b_tile),
        ):
            for word in [] if words is None else _distinct(words):
                if word not in known:
                    known[word] = None
                    try:
                        units = tile_units(word, tile)
                    except LayoutError:
                        continue
                    self._mark(i, role, units.reshape(-1) * _UNIT, _UNIT)

    def on_tensor_mma(self, event: TensorMmaEvent) -> None:
        """Record the descriptors of an MMA of the tensor core."""
        seen = self._seen.mmas.setdefault(event.instruction.index, SeenMma())
        seen.issued += 1
        seen.words.add(event.descriptor)
        seen.b[event.b] = None
        if not event.a_in_tensor_memory:
            seen.a[event.a] = None

    def on_tensor_allocation(self, allocation: TensorMemoryAllocation) -> None:
        """Record columns of tensor memory that a CTA has allocated."""
        i = allocation.instruction
        if not i.traits.allocates:
            return
        seen = self._seen.tensor_memory.setdefault(i.index, SeenTmem(i))
        seen.columns = max(seen.columns, allocation.count)
        seen.threads.update(allocation.threads.ids.tolist())
        self._allocated.setdefault(int(allocation.ctas.slots[0]), {})[allocation.first] = seen

    def on_tensor_memory(self, access: TensorMemoryAccess) -> None:
        """Record which lanes and columns an instruction accesses, and where columns are freed."""
        i = access.instruction
        halves, columns = np.divmod(access.granules[0], TMEM_COLUMNS)
        for first, seen in self._allocated.get(access.slot, {}).items():
            inside = (columns >= first) & (columns < first + seen.columns)
            if not inside.any():
                continue
            if i.traits.frees:
                seen.freed[i.index] = i
                continue
            cells = seen.cells.setdefault((i.index, access.writes), TmemCells(i, access.writes))
            cells.used[halves[inside], columns[inside] - first] = True
            if i.traits.is_tensor_load or i.traits.is_tensor_store:
                cells.threads.update(access.threads.ids.tolist())

    def on_tma(self, event: TmaEvent) -> None:
        """Record the box of a tensor copy."""
        seen = self._seen.copies.setdefault(event.instruction.index, SeenCopy())
        seen.operation = event.operation
        seen.tensor_maps[event.tensor_map] = None
        seen.coordinates.add(event.coordinates)
        seen.issued += 1
        if event.shared_address not in seen.places:
            seen.places.add(event.shared_address)
            address = np.array([event.shared_address])
            self._mark(
                event.instruction,
                Role("TMA", event.operation),
                address,
                event.tensor_map.box_bytes,
                event.shared_address,
            )

    def on_access(self, access: Access) -> None:
        """Record the cost of an access, and the shared memory that threads and copies of plain bytes access."""
        if (cost := cost_of(access)) is not None:
            key = access.instruction.index, cost.space
            seen = self._seen.accesses.setdefault(key, SeenAccess(access.instruction, cost.space))
            seen.warps += cost.warps
            seen.taken += cost.taken
            seen.fewest += cost.fewest
        traits = access.instruction.traits
        if access.space != "shared" or traits.has_tensor_map or traits.kind == "wgmma":  # have events of their own
            return
        verb = {"read": "read", "write": "written", "atomic": "updated"}[access.operation]
        actor: Actor = "threads" if access.proxy == "generic" else "bulk copies"
        role = Role("tensor core" if traits.kind == "tcgen05" and verb == "read" else actor, verb)
        offsets = access.addresses.reshape(-1).astype(np.int64) % self._seen.launches[-1].slot_bytes
        self._mark(access.instruction, role, offsets, access.size_bytes)

    def on_barrier(self, event: BarrierEvent) -> None:
        """Record an operation on a barrier."""
        barrier = event.barrier
        party = self._party(event, barrier, _OF_CLUSTERS.get(type(event), event.operation))
        if party is None:
            return
        party.times += event.ctas.count * len(event.threads.warps)
        party.amounts.update(event.amounts)
        party.threads.update(event.threads.ids.tolist())
        if isinstance(event, MbarrierInit):
            address = event.barrier.address
            self._seen.initialised.setdefault(address, event.instruction)
            self._mark(event.instruction, Role("mbarrier"), np.array([address]), CELL_BYTES, address)

    def on_wait(self, event: WaitBegins) -> None:
        """Record that lanes have to wait."""
        barrier = None if event.awaited is None else event.awaited.barrier
        action = {NamedBarrier: "sync", ClusterBarrier: "wait"}.get(type(barrier), event.operation)
        party = self._party(event, barrier, action)
        if party is not None:
            party.waited += event.ctas.count * len(event.threads.warps)

    def _party(self, event: BarrierEvent, barrier: object, action: str) -> SeenParty | None:
        if not isinstance(barrier, MbarrierAt | NamedBarrier | ClusterBarrier):
            return None
        key: Key = barrier.address if isinstance(barrier, MbarrierAt) else barrier
        parties = self._seen.barriers.setdefault(key, {})
        return parties.setdefault((action, event.instruction.index), SeenParty(event.instruction))

    def _mark(self, i: Instruction, role: Role, addresses: Array, size_bytes: int, start: int | None = None) -> None:
        cells = self._seen.cells_of(i, role)
        if start is not None:
            cells.starts.add(start)
        if size_bytes <= CELL_BYTES:
            cells.used[addresses // CELL_BYTES] = True
            return
        if len(addresses) > 1:
            addresses = np.unique(addresses)
        steps = np.arange(0, size_bytes, CELL_BYTES)
        cells.used[(addresses[:, None] + steps[None, :]).reshape(-1) // CELL_BYTES] = True


def _distinct(words: Array) -> list[int]:
    return list(dict.fromkeys(words.reshape(-1).tolist()))


def thread_ranges(ids: Iterable[int]) -> str:
    """Format threads: as warps where these are whole.

    Examples
    --------
    >>> thread_ranges(range(128)), thread_ranges([0, 1, 2, 7])
    ('warps 0-3', 'threads 0-2,7')
    """
    every = sorted(ids)
    if not every:
        return ""
    warps = sorted({thread // WARP for thread in every})
    if len(every) == WARP * len(warps):
        return f"warp{'s' if len(warps) > 1 else ''} {ranges(warps)}"
    return f"thread{'s' if len(every) > 1 else ''} {ranges(every)}"
