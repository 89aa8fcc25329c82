"""Watch: an observer that records the operations of simulated kernels, instruction by instruction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from cutepy.layouts import LayoutError
from cutepy.layouts.grids.grid import ranges
from cutepy.sim import (
    Access,
    BarrierEvent,
    ClusterBarrier,
    Launch,
    MbarrierAt,
    MbarrierInit,
    NamedBarrier,
    Observer,
    TmaEvent,
    WaitBegins,
    WgmmaEvent,
)
from cutepy.sim.inspect.banks import cost_of
from cutepy.sim.machine.lanes import WARP, Array
from cutepy.sim.mechanisms.wgmma.operands import tile_units

if TYPE_CHECKING:
    from cutepy.layouts.sm90 import Im2colTensorMap, TensorMap
    from cutepy.sim.ptx import Instruction

CELL_BYTES = 8
"""Unit of the shared-memory map: the size of the smallest object in it, an mbarrier."""
_UNIT = 16
_TENSOR_COPIES = ("cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor", "wgmma")
"""Opcodes with events of their own, beside the memory access."""
_WAITS = ("wait", "sync", "cluster_wait")
CLUSTER = "cluster"

Key = int | str
"""Key of a barrier: the address of an mbarrier, "bar 1", or `CLUSTER`."""


@dataclass
class SeenMma:
    """Record of a wgmma instruction: its descriptors, in order, and its warpgroups."""

    a: dict[int, None] = field(default_factory=dict)
    b: dict[int, None] = field(default_factory=dict)
    issued: int = 0
    warpgroups: set[int] = field(default_factory=set)


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


@dataclass
class Cells:
    """Record of an instruction's accesses to shared memory, by role."""

    instruction: Instruction
    role: str
    used: Array
    starts: set[int] = field(default_factory=set)


@dataclass
class SeenAccess:
    """Cost of an instruction's accesses to one memory, over all launches."""

    instruction: Instruction
    space: Literal["shared", "global"]
    warps: int = 0
    taken: int = 0
    fewest: int = 0


@dataclass
class Seen:
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
    accesses : dict
        Cost of loads and stores, by the index of the instruction and the memory.
    """

    launches: list[Launch] = field(default_factory=list)
    mmas: dict[int, SeenMma] = field(default_factory=dict)
    copies: dict[int, SeenCopy] = field(default_factory=dict)
    barriers: dict[Key, dict[tuple[str, int], SeenParty]] = field(default_factory=dict)
    initialised: dict[int, Instruction] = field(default_factory=dict)
    cells: dict[tuple[int, str], Cells] = field(default_factory=dict)
    accesses: dict[tuple[int, str], SeenAccess] = field(default_factory=dict)

    def cells_of(self, i: Instruction, role: str) -> Cells:
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
        self._kernels: dict[tuple[str, str], Seen] = {}
        self._seen = Seen()

    @property
    def kernels(self) -> Iterator[Seen]:
        """Records by kernel, in the order of their first launches."""
        yield from self._kernels.values()

    def on_launch(self, launch: Launch) -> None:
        """Begin another launch."""
        self._seen = self._kernels.setdefault((launch.ptx, launch.kernel), Seen())
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
            (event.a, seen.a, "wgmma A", shape.a_tile),
            (event.b, seen.b, "wgmma B", shape.b_tile),
        ):
            for word in [] if words is None else _distinct(words):
                if word not in known:
                    known[word] = None
                    try:
                        units = tile_units(word, tile)
                    except LayoutError:
                        continue
                    self._mark(i, role, units.reshape(-1) * _UNIT, _UNIT, (word & 0x3FFF) << 4)

    def on_tma(self, event: TmaEvent) -> None:
        """Record the box of a tensor copy."""
        seen = self._seen.copies.setdefault(event.instruction.index, SeenCopy())
        seen.operation = event.operation
        seen.tensor_maps[event.tensor_map] = None
        seen.coordinates.add(event.coordinates)
        seen.issued += 1
        if event.shared_address not in seen.places:
            seen.places.add(event.shared_address)
            role = "TMA load" if event.operation == "load" else f"TMA {event.operation}"
            address = np.array([event.shared_address])
            self._mark(event.instruction, role, address, event.tensor_map.box_bytes, event.shared_address)

    def on_access(self, access: Access) -> None:
        """Record the cost of an access, and the shared memory that threads and copies of plain bytes access."""
        if (cost := cost_of(access)) is not None:
            key = access.instruction.index, cost.space
            seen = self._seen.accesses.setdefault(key, SeenAccess(access.instruction, cost.space))
            seen.warps += cost.warps
            seen.taken += cost.taken
            seen.fewest += cost.fewest
        if access.space != "shared" or access.instruction.opcode.startswith(_TENSOR_COPIES):
            return
        verb = {"read": "read", "write": "written", "atomic": "updated"}[access.operation]
        role = f"{verb} by {'threads' if access.proxy == 'generic' else 'bulk copies'}"
        offsets = access.addresses.reshape(-1).astype(np.int64) % self._seen.launches[-1].slot_bytes
        self._mark(access.instruction, role, offsets, access.size_bytes, None)

    def on_barrier(self, event: BarrierEvent) -> None:
        """Record an operation on a barrier."""
        barrier = event.barrier
        party = self._party(event, barrier, event.operation)
        if party is None:
            return
        party.times += event.ctas.count * len(event.threads.warps)
        party.amounts.update(event.amounts)
        party.threads.update(event.threads.ids.tolist())
        if isinstance(event, MbarrierInit):
            address = event.barrier.address
            self._seen.initialised.setdefault(address, event.instruction)
            self._mark(event.instruction, "mbarrier", np.array([address]), CELL_BYTES, address)

    def on_wait(self, event: WaitBegins) -> None:
        """Record that lanes have to wait."""
        barrier = None if event.awaited is None else event.awaited.barrier
        operation = {NamedBarrier: "sync", ClusterBarrier: "cluster_wait"}.get(type(barrier), event.operation)
        party = self._party(event, barrier, operation)
        if party is not None:
            party.waited += event.ctas.count * len(event.threads.warps)

    def _party(self, event: BarrierEvent, barrier: object, operation: str) -> SeenParty | None:
        key: Key
        if isinstance(barrier, MbarrierAt):
            key = barrier.address
        elif isinstance(barrier, (NamedBarrier, ClusterBarrier)):
            key = CLUSTER if isinstance(barrier, ClusterBarrier) else str(barrier)
        else:
            return None
        parties = self._seen.barriers.setdefault(key, {})
        action = operation.removeprefix("cluster_")
        return parties.setdefault((action, event.instruction.index), SeenParty(event.instruction))

    def _mark(self, i: Instruction, role: str, addresses: Array, size_bytes: int, start: int | None) -> None:
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
