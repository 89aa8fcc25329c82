"""Traces of sampled CTAs: for each warp its basic blocks in order, and the facts of instructions that timing needs.

A fact belongs to one execution of an instruction, and only the simulator knows it: the mbarrier and phase of a wait,
the wavefronts or sectors of an access, the bytes of a copy and the mbarriers that count them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from cutepy.sim.inspect.banks import cost_of
from cutepy.sim.machine.activity import SECTOR_BYTES
from cutepy.sim.machine.events import (
    Access,
    AsyncOperation,
    BarrierEvent,
    ClusterArrive,
    ClusterWait,
    Fence,
    GroupCommit,
    GroupWait,
    MbarrierArrive,
    MbarrierCompleteTx,
    MbarrierCount,
    MbarrierEvent,
    MbarrierInit,
    MbarrierTry,
    NamedBarrierArrive,
    NamedBarrierEvent,
    NamedBarrierJoin,
    NamedBarrierSync,
    SetRegisters,
    WgmmaEvent,
)
from cutepy.sim.machine.lanes import WARP, Array, Ctas, Residents, Threads
from cutepy.sim.machine.launch import Launch
from cutepy.sim.machine.observer import Observer
from cutepy.sim.ptx.model import Instruction

LINE_BYTES = 128
"""Unit in which addresses are compared for reuse: a line of the L2 cache."""
LONG_LINES = 8
"""Lines that follow each other, of which CTAs read more than other CTAs' boxes between them leave."""
_COPIES = ("tma_load", "bulk_load", "bulk_peer")
_STORES = ("tma_store", "bulk_store")


class Arrive(NamedTuple):
    """Contributions to barriers.

    `how` is "copies" for arrivals that count once the warp's cp.async are complete, and "relaxed" for arrivals at the
    cluster's barrier that order no memory.
    """

    at: int
    keys: tuple[int, ...]
    how: str = ""


class Wait(NamedTuple):
    """Wait for a phase of a barrier."""

    at: int
    key: int


class Load(NamedTuple):
    """Copy of bytes from global to shared memory; `to` has (rank of a CTA, barrier or -1, bytes) of each target.

    It reads `runs` of bytes that follow each other, in `lines` of L2; `outside_bytes` are beyond the tensor, and zeros.
    """

    at: int
    size_bytes: int
    region: int
    boxes: int
    to: tuple[tuple[int, int, int], ...]
    lines: float
    runs: float
    outside_bytes: float = 0.0


class Store(NamedTuple):
    """Bulk store from shared to global memory, or reduction: lines of L2, and sectors of which it writes a part."""

    at: int
    size_bytes: int
    region: int
    lines: float
    part_sectors: float = 0.0


class Shared(NamedTuple):
    """Access of a warp to shared memory."""

    at: int
    wavefronts: float


class Global(NamedTuple):
    """Access of a warp to global memory: "load", "store", "atomic" or "cp_async".

    It requests `sectors`, in so many `lines` of L1; the CTA has not read `new_sectors` of them before, or writes a part
    of `part_sectors`.
    """

    at: int
    kind: str
    sectors: float
    new_sectors: float
    region: int
    lines: float
    part_sectors: float = 0.0


class Mma(NamedTuple):
    """One wgmma: type of the operands, N, and 1 where A is in shared memory."""

    at: int
    type: str
    n: int
    operands: str
    smem_bytes: int


class Commit(NamedTuple):
    """End of a group."""

    at: int
    groups: str


class WaitGroup(NamedTuple):
    """Wait for all groups but the latest ones."""

    at: int
    groups: str
    remaining: int
    reads_only: bool


class Control(NamedTuple):
    """Instruction that controls how a warp goes on: a fence, griddepcontrol, or setmaxnreg, by its opcode."""

    at: int
    opcode: str


Fact = Arrive | Wait | Load | Store | Shared | Global | Mma | Commit | WaitGroup | Control


class Barrier(NamedTuple):
    """Barrier of a key: its kind, "mbarrier", "bar" or "cluster"; its CTA; its address or number."""

    kind: str
    block: int
    place: int


@dataclass
class WarpTrace:
    """One warp's execution.

    Attributes
    ----------
    path : list of int
        Blocks, in order.
    facts : dict of int to list of Fact
        By index of the instruction; `at` is the position in `path` of the block that it was executed in.
    """

    path: list[int] = field(default_factory=list)
    facts: defaultdict[int, list[Fact]] = field(default_factory=lambda: defaultdict(list))


@dataclass
class CtaTrace:
    """One CTA's execution: `warps`, its linear index in the grid, and its rank in its cluster."""

    block: int
    rank: int
    warps: list[WarpTrace]


@dataclass
class Region:
    """Global memory that the sampled CTAs access: one allocation.

    Attributes
    ----------
    name : str
    size_bytes : int
        Of the allocation.
    reads, writes : Counter of int
        Bytes that each sampled CTA asks of the L2 cache, by its linear index, without what its L1 cache holds.
    by_threads : bool
        Whether threads load from it, through L1.
    read_lines, written_lines : list of array
        Lines that these are, with repetitions.
    first_lines : dict of int to int
        The first line that each sampled CTA reads, by its linear index.
    """

    name: str
    size_bytes: int
    reads: Counter[int] = field(default_factory=Counter)
    writes: Counter[int] = field(default_factory=Counter)
    by_threads: bool = False
    read_lines: list[Array] = field(default_factory=list)
    written_lines: list[Array] = field(default_factory=list)
    first_lines: dict[int, int] = field(default_factory=dict)

    @property
    def read_bytes(self) -> int:
        """Bytes that the sampled CTAs read."""
        return self.reads.total()

    def touched_bytes(self, *, written: bool = False) -> int:
        """Return the bytes of the distinct lines."""
        lines = self.written_lines if written else self.read_lines
        return LINE_BYTES * len(np.unique(np.concatenate(lines))) if lines else 0

    def goes_along(self) -> bool:
        """Tell whether a CTA reads long rows of lines itself, and not beside others that read the same rows."""
        if not self.read_lines:
            return False
        lines = np.unique(np.concatenate(self.read_lines))
        return len(lines) >= LONG_LINES * (1 + int((np.diff(lines) > 1).sum()))


@dataclass
class Trace:
    """Execution of the sampled clusters of a launch.

    Attributes
    ----------
    clusters : list of list of CtaTrace
    needed : Counter of int to int
        Contributions that complete the phase of a barrier, by key.
    barriers : dict of int to Barrier
        By key.
    initialised : dict of int to Instruction
        By address, the instruction that first initialised each mbarrier.
    regions : list of Region
    taken, fewest : Counter of int to int
        Wavefronts or sectors of threads' accesses, and the fewest that any addresses of as many bytes take, by index.
    executed : int
        Blocks that warps have executed, of CTAs that are not sampled, too.
    """

    clusters: list[list[CtaTrace]] = field(default_factory=list)
    needed: Counter[int] = field(default_factory=Counter)
    barriers: dict[int, Barrier] = field(default_factory=dict)
    initialised: dict[int, Instruction] = field(default_factory=dict)
    regions: list[Region] = field(default_factory=list)
    taken: Counter[int] = field(default_factory=Counter)
    fewest: Counter[int] = field(default_factory=Counter)
    executed: int = 0


class Tracer(Observer):
    """Record the trace of chosen CTAs of a launch.

    Parameters
    ----------
    chosen : callable
        Tells of a linear index whether its CTA is recorded.
    region_of : callable
        (address) -> (start, size, name) of the allocation around it.
    """

    follows_blocks = True

    def __init__(self, chosen: Callable[[int], bool], region_of: Callable[[int], tuple[int, int, str]]) -> None:
        self.trace = Trace()
        self._chosen, self._region_of = chosen, region_of
        self._residents: Residents | None = None
        self._slots: dict[int, CtaTrace] = {}
        self._keys: dict[tuple[object, ...], int] = {}
        self._lives: Counter[tuple[int, int]] = Counter()
        self._regions: dict[int, int] = {}
        self._spans: list[tuple[int, int, int]] = []
        self._seen: dict[int, dict[int, set[int]]] = {}
        self._operations: dict[int, _Copy] = {}

    def on_launch(self, launch: Launch) -> None:
        """Note how many warps a CTA has."""
        x, y, z = launch.block
        self._warps = -(-x * y * z // WARP)

    def _start(self, residents: Residents) -> None:
        self._residents, self._slots = residents, {}
        size = residents.cluster_size
        for slot, block in enumerate(residents.blocks.tolist()):
            if self._chosen(block):
                cta = CtaTrace(block, slot % size, [WarpTrace() for _ in range(self._warps)])
                self._slots[slot] = cta
                if slot % size == 0 or not self.trace.clusters or len(self.trace.clusters[-1]) == size:
                    self.trace.clusters.append([])
                self.trace.clusters[-1].append(cta)

    def _each(self, ctas: Ctas, threads: Threads) -> Iterator[tuple[int, int, CtaTrace, int, WarpTrace]]:
        """Yield row, slot, CTA, number and trace of each recorded warp of some lanes."""
        if ctas.residents is not self._residents:
            self._start(ctas.residents)
        warps = threads.warps.tolist()
        for row, slot in enumerate(ctas.slots.tolist()):
            cta = self._slots.get(slot)
            if cta is not None:
                for warp in warps:
                    yield row, slot, cta, warp, cta.warps[warp]

    def _key(self, barrier: Barrier, *phase: int) -> int:
        key = self._keys.setdefault((barrier, *phase), len(self._keys))
        self.trace.barriers[key] = barrier
        return key

    def _mbarrier(self, slot: int, address: int, phase: int) -> int:
        cta = self._slots[slot]
        return self._key(Barrier("mbarrier", cta.block, address), self._lives[cta.block, address], phase)

    def on_block(self, block: int, ctas: Ctas, threads: Threads) -> None:
        """Add a block to the paths of warps."""
        self.trace.executed += ctas.count * len(threads.warps)
        for *_, warp in self._each(ctas, threads):
            warp.path.append(block)

    def on_begin(self, event: BarrierEvent) -> None:
        """Record an arrival at a barrier where lanes wait, or the end of a group."""
        index = event.instruction.index
        if isinstance(event, NamedBarrierJoin):
            self._named(event, index)
        elif isinstance(event, GroupCommit):
            for *_, warp in self._each(event.ctas, event.threads):
                warp.facts[index].append(Commit(len(warp.path), event.groups))

    def _named(self, event: NamedBarrierEvent, index: int) -> None:
        generation = np.broadcast_to(event.generation, (event.ctas.count, event.threads.count))
        first = event.threads.extents[:, 0]
        order = {warp: n for n, warp in enumerate(event.threads.warps.tolist())}
        for row, _, cta, number, warp in self._each(event.ctas, event.threads):
            of_warp = int(generation[row, first[order[number]]])
            key = self._key(Barrier("bar", cta.block, event.barrier.number), of_warp)
            if isinstance(event, NamedBarrierSync):
                warp.facts[index].append(Wait(len(warp.path), key))
            else:
                self._contribute(warp, index, (key,))

    def _contribute(self, warp: WarpTrace, index: int, keys: tuple[int, ...], how: str = "") -> None:
        self.trace.needed.update(keys)
        warp.facts[index].append(Arrive(len(warp.path), keys, how))

    def on_barrier(self, event: BarrierEvent) -> None:
        """Record an operation on a barrier, a fence, or a wait for groups."""
        i = event.instruction
        if isinstance(event, MbarrierEvent):
            self._on_mbarrier(event)
        elif isinstance(event, (NamedBarrierArrive, NamedBarrierSync)):
            self._named(event, i.index)
        elif isinstance(event, (ClusterArrive, ClusterWait)):
            generation = np.broadcast_to(event.generation, (event.ctas.count, event.threads.count))
            for row, slot, _, _, warp in self._each(event.ctas, event.threads):
                size = event.ctas.residents.cluster_size
                first = self._slots[slot - slot % size].block
                key = self._key(Barrier("cluster", first, 0), int(generation[row, 0]))
                if isinstance(event, ClusterWait):
                    warp.facts[i.index].append(Wait(len(warp.path), key))
                else:
                    self._contribute(warp, i.index, (key,), "relaxed" if "relaxed" in i.parts else "")
        elif isinstance(event, GroupWait):
            remaining = 0 if event.remaining is None else event.remaining
            for *_, warp in self._each(event.ctas, event.threads):
                fact = WaitGroup(len(warp.path), event.groups, remaining, event.reads_only)
                warp.facts[i.index].append(fact)
        elif isinstance(event, (Fence, SetRegisters)):
            for *_, warp in self._each(event.ctas, event.threads):
                warp.facts[i.index].append(Control(len(warp.path), i.opcode))

    def _on_mbarrier(self, event: MbarrierEvent) -> None:
        address, index = event.state.address, event.instruction.index
        if event.ctas.residents is not self._residents:
            self._start(event.ctas.residents)
        if isinstance(event, MbarrierInit):
            self.trace.initialised.setdefault(address, event.instruction)
            for slot in event.state.slots.tolist():
                if slot in self._slots:
                    self._lives[self._slots[slot].block, address] += 1
        elif isinstance(event, MbarrierCompleteTx):
            self._delivered(event)
        elif isinstance(event, (MbarrierArrive, MbarrierTry)) and event.slots is not None:
            shape = event.ctas.count, event.threads.count
            assert isinstance(event, (MbarrierCount, MbarrierTry))
            slots, phases = np.broadcast_to(event.slots, shape), np.broadcast_to(event.counted, shape)
            starts = event.threads.extents
            order = {warp: n for n, warp in enumerate(event.threads.warps.tolist())}
            how = "copies" if event.part_of is not None and event.part_of.kind == "cp_async" else ""
            for row, _, _, number, warp in self._each(event.ctas, event.threads):
                start, count = starts[order[number]].tolist()
                lanes = zip(slots[row, start : start + count], phases[row, start : start + count], strict=True)
                pairs = dict.fromkeys((int(s), int(p)) for s, p in lanes)
                keys = tuple(self._mbarrier(s, address, p) for s, p in pairs if p >= 0 and s in self._slots)
                if isinstance(event, MbarrierArrive):
                    self._contribute(warp, index, keys, how)
                else:
                    warp.facts[index] += [Wait(len(warp.path), key) for key in keys]

    def _delivered(self, event: MbarrierCompleteTx) -> None:
        """Note whose mbarrier a copy's bytes are counted at."""
        address, operation = event.state.address, event.part_of
        shape = event.state.slots.shape
        sizes = np.broadcast_to(np.array(event.size_bytes), shape).tolist()
        phases = (
            np.broadcast_to(event.counted, shape)
            if event.slots is None
            else np.broadcast_to(event.counted.flat[0], shape)
        )
        of_slot = {
            s: (size, int(p)) for s, size, p in zip(event.state.slots.tolist(), sizes, phases.tolist(), strict=True)
        }
        if operation is None or event.deliveries is None or id(operation) not in self._operations:
            size = event.ctas.residents.cluster_size
            warps: dict[int, WarpTrace] = {}  # the first of each cluster
            for _, slot, _, _, warp in self._each(event.ctas, event.threads):
                warps.setdefault(slot // size, warp)
            for slot, (_, phase) in of_slot.items():
                if slot in self._slots:
                    key = self._mbarrier(slot, address, phase)
                    self._contribute(warps[slot // size], event.instruction.index, (key,))
            return
        copies = Counter(event.deliveries[:, 0].tolist())
        for slot, row, column in event.deliveries.tolist():
            if slot in self._slots:
                size, phase = of_slot[slot]
                key = self._mbarrier(slot, address, phase)
                self._operations[id(operation)].to[row, column].append(
                    (self._slots[slot].rank, key, size // copies[slot])
                )

    def on_issue(self, operation: AsyncOperation) -> None:
        """Note that a copy begins; its facts are known once it is complete."""
        if operation.kind in _COPIES or operation.kind in _STORES or operation.kind in ("cp_async", "st_async"):
            self._operations[id(operation)] = _Copy()

    def on_complete(self, operation: AsyncOperation) -> None:
        """Record a copy."""
        copy = self._operations.pop(id(operation), None)
        if copy is None:
            return
        index, ids = operation.instruction.index, operation.threads.ids
        rows = {slot: row for row, slot in enumerate(operation.ctas.slots.tolist())}
        leader = int(operation.threads.warps[0])
        for slot, _cta, number, warp in (
            (s, c, n, w) for _, s, c, n, w in self._each(operation.ctas, operation.threads)
        ):
            row, at = rows[slot], len(warp.path)
            if operation.kind == "cp_async":
                share = copy.size_bytes[row] / len(operation.threads.warps)
                if share:
                    sectors = share / SECTOR_BYTES
                    warp.facts[index].append(Global(at, "cp_async", sectors, sectors, copy.region, share / LINE_BYTES))
            elif operation.kind == "st_async":
                stored = [to for (r, column), to in copy.to.items() if r == row and ids[column] // WARP == number]
                if stored:
                    self._contribute(warp, index, tuple({key: None for to in stored for _, key, _ in to}))
            elif operation.kind in _STORES:
                if number == leader:
                    size, lines, parts = copy.size_bytes[row], copy.lines[row], copy.parts[row]
                    warp.facts[index].append(Store(at, size, copy.region, lines, parts))
            else:
                issued = sum(r == row for r, _ in copy.to)
                for (r, column), to in copy.to.items():
                    if r == row and ids[column] // WARP == number:
                        self.trace.needed.update(key for _, key, _ in to)
                        by_box = sum(size for rank, _, size in to if rank == to[0][0])
                        boxes = sum(rank == to[0][0] for rank, _, _ in to)
                        outside = max(0.0, by_box - copy.size_bytes[row] / issued)
                        how = copy.lines[row] / issued, copy.runs[row] / issued, outside
                        warp.facts[index].append(Load(at, by_box, copy.region, boxes, tuple(to), *how))

    def on_wgmma(self, event: WgmmaEvent) -> None:
        """Record an MMA."""
        shape = event.shape
        operands = "rs" if shape.from_registers else "ss"
        for *_, warp in self._each(event.ctas, event.threads):
            fact = Mma(len(warp.path), shape.a, shape.n, operands, shape.smem_bytes)
            warp.facts[event.instruction.index].append(fact)

    def on_access(self, access: Access) -> None:
        """Record an access by threads, and the addresses of copies."""
        if access.space == "local" or access.proxy == "tensormap":
            return
        if (access.part_of is not None and access.proxy != "generic") or id(access.part_of) in self._operations:
            self._copied(access)
            return
        cost = cost_of(access)
        if cost is None:
            return
        index, each = access.instruction.index, cost.taken / max(cost.warps, 1)
        self.trace.taken[index] += cost.taken
        self.trace.fewest[index] += cost.fewest
        if cost.space == "shared":
            for *_, warp in self._each(access.ctas, access.threads):
                warp.facts[index].append(Shared(len(warp.path), each))
            return
        kind = {"read": "load", "write": "store", "atomic": "atomic"}[access.operation]
        addresses = np.broadcast_to(access.addresses, (access.ctas.count, access.threads.count))
        starts, order = access.threads.extents, {w: n for n, w in enumerate(access.threads.warps.tolist())}
        for row, _, cta, number, warp in self._each(access.ctas, access.threads):
            start, count = starts[order[number]].tolist()
            region, first = self._region(int(addresses[row, start]))
            # From the allocation's start: a GPU's begin at a line, a host's anywhere.
            offsets = addresses[row, start : start + count].astype(np.int64) - first
            sectors, lanes = np.unique(offsets // SECTOR_BYTES, return_counts=True)
            lines = len(np.unique(sectors * SECTOR_BYTES // LINE_BYTES))
            parts = int((lanes * access.size_bytes < SECTOR_BYTES).sum()) if kind == "store" else 0
            new = sectors
            if kind == "load":
                seen = self._seen.setdefault(cta.block, {}).setdefault(region, set())
                new = np.array([s for s in sectors.tolist() if s not in seen], np.int64)
                seen.update(new.tolist())
                self.trace.regions[region].by_threads = True
            self._touch(region, cta.block, new * SECTOR_BYTES, SECTOR_BYTES, kind == "load")
            warp.facts[index].append(Global(len(warp.path), kind, len(sectors), len(new), region, lines, parts))

    def _copied(self, access: Access) -> None:
        copy = self._operations.get(id(access.part_of))
        if access.space != "global" or copy is None:
            return
        if access.ctas.residents is not self._residents:
            self._start(access.ctas.residents)
        addresses = np.asarray(access.addresses).astype(np.int64)
        if addresses.size == 0:
            return
        addresses = addresses.reshape(addresses.shape[0], -1)
        copy.region, first = self._region(int(addresses[0, 0]))
        for row, slot in enumerate(access.ctas.slots.tolist()):
            if slot in self._slots:
                mine = addresses[row if len(addresses) > 1 else 0]
                copy.size_bytes[row] += mine.size * access.size_bytes
                copy.runs[row] += mine.size
                block, reads = self._slots[slot].block, access.operation == "read"
                if not reads:
                    copy.parts[row] += _part_sectors(mine - first, access.size_bytes)
                copy.lines[row] += self._touch(copy.region, block, mine - first, access.size_bytes, reads)

    def _region(self, address: int) -> tuple[int, int]:
        """Return the number of the allocation around an address, and its start."""
        for start, end, number in self._spans:
            if start <= address < end:
                return number, start
        start, size, name = self._region_of(address)
        number = len(self.trace.regions)
        self._spans.append((start, start + size, number))
        self.trace.regions.append(Region(name, size))
        return number, start

    def _touch(self, region: int, block: int, offsets: Array, size_bytes: int, reads: bool) -> int:
        """Note runs of bytes that a CTA reads or writes, of a length each; returns the lines that they are in."""
        found = self.trace.regions[region]
        first, last = offsets // LINE_BYTES, (offsets + size_bytes - 1) // LINE_BYTES
        runs = [np.minimum(first + n, last) for n in range(int((last - first).max(initial=0)) + 1)]
        lines = np.unique(np.concatenate(runs))
        if reads:
            found.reads[block] += offsets.size * size_bytes
            found.read_lines.append(lines)
            if len(lines):
                found.first_lines[block] = min(int(lines[0]), found.first_lines.get(block, int(lines[0])))
        else:
            found.writes[block] += offsets.size * size_bytes
            found.written_lines.append(lines)
        return len(lines)


class _Copy:
    """Copy in progress: where its bytes are counted, by (row, column) of who issued them; sizes, by row."""

    def __init__(self) -> None:
        self.to: defaultdict[tuple[int, int], list[tuple[int, int, int]]] = defaultdict(list)
        self.size_bytes: Counter[int] = Counter()
        self.lines: Counter[int] = Counter()
        self.runs: Counter[int] = Counter()
        self.parts: Counter[int] = Counter()
        self.region = 0


def _part_sectors(offsets: Array, size_bytes: int) -> int:
    """Return how many sectors runs of bytes, of a length each, cover in part: first and last ones of runs may be."""
    ends = offsets + size_bytes
    first, last = offsets // SECTOR_BYTES, (ends - 1) // SECTOR_BYTES
    head = np.minimum(ends, (first + 1) * SECTOR_BYTES) - offsets
    tail = np.where(last > first, ends - last * SECTOR_BYTES, 0)
    sectors, places = np.unique(np.concatenate([first, last]), return_inverse=True)
    covered = np.bincount(places, np.concatenate([head, tail]), len(sectors))
    return int((covered < SECTOR_BYTES).sum())
