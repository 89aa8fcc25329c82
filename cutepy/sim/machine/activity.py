"""Activity of a launch: barrier events, accesses and asynchronous operations pass here, and global traffic is counted.

Without observers no record is kept of any event.

Traffic is counted in requests to the L2 cache, sectors of 32 bytes, without a model of any cache. An instruction of a
warp requests each sector that its lanes access once. A bulk copy requests the sectors of each run of contiguous bytes
(a row of a box). Bytes are the accessed ones, without the rest of their sectors. A multicast copy reads global memory
once. Elements outside of a tensor are not read. Local memory, parameters, constants, tensor maps, instructions and
prefetches are not counted.

References
----------
CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from cutepy.sim.machine.events import AsyncOperation, BarrierEvent, CompletionPolicy
from cutepy.sim.machine.lanes import WARP, Array, Ctas, Threads, spread

if TYPE_CHECKING:
    from cutepy.sim.errors import SimulationError
    from cutepy.sim.machine.address_patterns import LocatedPattern
    from cutepy.sim.machine.group import Group
    from cutepy.sim.machine.observer import Observer
    from cutepy.sim.machine.thread_history import ExecutedInstruction


_COUNTS = """wgmma wgmma_flops wgmma_bytes tcgen05 tcgen05_flops tma tma_bytes bulk bulk_bytes splits cancel_requests
cancelled_clusters""".split()


class PickedLanes(NamedTuple):
    """Lanes of a group that a mask selects, with the smallest rectangle of CTAs and threads around them.

    Attributes
    ----------
    ctas, threads : Ctas, Threads
    shape : (int, int)
        CTAs and threads of the group.
    lanes : array of bool or None
        The mask, (CTAs, threads) or an extent of 1; None if it picks all.
    """

    ctas: Ctas
    threads: Threads
    shape: tuple[int, int]
    lanes: Array | None

    @classmethod
    def of_group(cls, g: Group | ExecutedInstruction, lanes: Array | None) -> PickedLanes:
        """Pick lanes of a group."""
        ctas, threads = g.ctas, g.threads
        shape = ctas.count, threads.count
        if lanes is None or lanes.all():
            return cls(ctas, threads, shape, None)
        if lanes.shape[0] > 1:
            ctas = Ctas(ctas.slots[lanes.any(axis=1)], ctas.residents)
        if lanes.shape[1] > 1:
            threads = Threads(threads.ids[lanes.any(axis=0)], threads.block)
        return cls(ctas, threads, shape, lanes)

    def values(self, of: Array) -> Array:
        """Return the values of the lanes that are picked."""
        if self.lanes is None:
            return of
        wide = spread(of, self.shape)
        if self.lanes.shape[0] > 1:
            wide = wide[self.lanes.any(axis=1)]
        return wide[:, self.lanes.any(axis=0)] if self.lanes.shape[1] > 1 else wide


class Activity:
    """Observers of a launch, its operations in flight, and its counts.

    Parameters
    ----------
    observers : sequence of Observer
    policy : CompletionPolicy or None
        None completes asynchronous operations as they are issued.

    Attributes
    ----------
    changes : int
        Number of changes of shared state: memory, barriers, exits of lanes. While the number stays the same, a group
        that reads shared state again reads the same values.
    pending : list of AsyncOperation
        Issued operations that are not complete.
    completing : AsyncOperation or None
        Operation that takes effect now.
    is_stuck : bool
        True if nothing can go on, so that waits name their objects.
    time : int
        Value of the clocks.
    stats : dict
        See `Launch.stats`.
    traffic : Traffic
        Counts accesses to global memory.
    printed : list of str
    """

    def __init__(self, observers: Sequence[Observer] = (), policy: CompletionPolicy | None = None) -> None:
        self.observers = tuple(observers)
        self.policy = policy
        self.changes = 0
        self.pending: list[AsyncOperation] = []
        self.completing: AsyncOperation | None = None
        self.is_stuck = False
        self.time = 0
        self.stats = dict.fromkeys(_COUNTS, 0)
        self.traffic = Traffic(self.stats)
        self.printed: list[str] = []

    def tell(self, event: BarrierEvent) -> None:
        """Tell observers of an operation that synchronises; make the event only if there are any."""
        for observer in self.observers:
            (observer.on_begin if event.begins else observer.on_barrier)(event)

    def fault(self, error: SimulationError, *, stops: bool = True) -> None:
        """Raise an error of the kernel, if it `stops` a launch, unless an observer takes it, and the launch goes on."""
        taken = [observer.on_error(error, ends=False) for observer in self.observers]
        if stops and not any(taken):
            raise error

    def issue(self, operation: AsyncOperation) -> None:
        """Take an asynchronous operation; it completes now or later, as the policy says."""
        for observer in self.observers:
            observer.on_issue(operation)
        if self.policy is None or self.policy.completes_at_issue(operation):
            self._complete(operation)
        else:
            self.pending.append(operation)

    def complete(self, operation: AsyncOperation) -> None:
        """Complete an operation if it has not been."""
        if not operation.done:
            if self.policy is not None:
                self.policy.completes(operation)
            self.pending.remove(operation)
            self._complete(operation)

    def take(self, operation: AsyncOperation) -> None:
        """Let an operation read its source, if it has not, and stay pending."""
        if operation.takes is not None:
            if self.policy is not None:
                self.policy.completes(operation)
            self._take(operation)

    def complete_next(self) -> None:
        """Complete the operation that the policy chooses."""
        assert self.policy is not None
        self.complete(self.pending[self.policy.choose(self.pending)])

    def _complete(self, operation: AsyncOperation) -> None:
        for earlier in operation.after:
            self.complete(earlier)
        if operation.takes is not None:
            self._take(operation)
        operation.done, operation.after = True, ()
        self._do(operation, operation.apply)
        for observer in self.observers:
            observer.on_complete(operation)

    def _take(self, operation: AsyncOperation) -> None:
        takes, operation.takes = operation.takes, None
        assert takes is not None
        self._do(operation, takes)

    def _do(self, operation: AsyncOperation, part: Callable[[], None]) -> None:
        self.changes += 1
        self.completing, before = operation, self.completing
        part()
        self.completing = before


SECTOR_BYTES = 32
_SHIFT = 5
Kind = Literal["load", "store", "atomic"]
KEYS = tuple(f"l2_{kind}_{unit}" for kind in ("load", "store", "atomic") for unit in ("sectors", "bytes"))


class Traffic:
    """Counts sectors and bytes of loads, stores and atomics in a dictionary, under `KEYS`."""

    def __init__(self, counts: dict[str, int]) -> None:
        self._counts = counts
        for key in KEYS:
            counts.setdefault(key, 0)

    def add(self, kind: Kind, sectors: int, size_bytes: int) -> None:
        """Count sectors, and the bytes in them."""
        self._counts[f"l2_{kind}_sectors"] += sectors
        self._counts[f"l2_{kind}_bytes"] += size_bytes

    def maps(self, start: int, end: int) -> tuple[Array | None, Array | None]:
        """Return where a bit is to be set for each byte of a range that is read, and written: nowhere."""
        return None, None

    def access_pattern(self, kind: Kind, g: Group, located: LocatedPattern, size_bytes: int) -> None:
        """Count an access of `size_bytes` by each lane: the lanes' distances say how many sectors that are."""
        pattern, low = located
        if not g.threads.full or pattern.offsets.shape[1] == 1:
            self.access(kind, g, located.addresses(), size_bytes)
            return
        at = low % SECTOR_BYTES
        by_warp = pattern.offsets.reshape(len(pattern.offsets), -1, WARP)
        sectors, distinct = pattern.once(("sectors", at), lambda: _distinct(by_warp + at))
        times = g.ctas.count // len(pattern.offsets)
        self.add(kind, times * sectors, times * distinct * size_bytes)

    def access(self, kind: Kind, g: Group, addresses: Array, size_bytes: int) -> None:
        """Count an access of `size_bytes` by each lane, aligned to that, at addresses over (CTAs, threads)."""
        times = g.ctas.count // addresses.shape[0]
        if addresses.shape[1] == 1:
            warps = len(g.threads.warps) * g.ctas.count
            self.add(kind, warps, warps * size_bytes)
            return
        if g.threads.full:
            by_warp = addresses.reshape(addresses.shape[0], -1, WARP)
        else:
            by_warp = _filled_up(g, addresses)
        sectors, distinct = _distinct(by_warp.view(np.int64))  # addresses stay below 2^63
        self.add(kind, times * sectors, times * distinct * size_bytes)

    def partial(self, kind: Kind, g: Group, addresses: Array, sizes: Array) -> None:
        """Count an access of a number of bytes of each lane's own, none of which lie in two sectors."""
        rows, columns = np.nonzero(sizes)
        warps = g.threads.position[columns] // WARP
        sectors = addresses[rows, columns] >> np.uint64(_SHIFT)
        self.add(kind, len(set(zip(rows.tolist(), warps.tolist(), sectors.tolist(), strict=True))), int(sizes.sum()))

    def run(self, kind: Kind, address: int, size_bytes: int) -> None:
        """Count contiguous bytes."""
        sectors = ((address + size_bytes - 1) >> _SHIFT) - (address >> _SHIFT) + 1
        self.add(kind, sectors if size_bytes else 0, size_bytes)

    def box(
        self, kind: Kind, address: int, extents: tuple[int, ...], steps: tuple[int, ...], element_bytes: int
    ) -> None:
        """Count a box that starts at an address, given by extents and byte strides, the contiguous mode first."""
        sectors = _box_sectors(address % SECTOR_BYTES, extents, steps, element_bytes)
        self.add(kind, sectors, prod(extents) * element_bytes)


def _distinct(by_warp: Array) -> tuple[int, int]:
    """Return how many sectors, and how many addresses, the lanes of each warp touch, of all warps together."""
    steps = np.diff(by_warp, axis=2)
    if (steps < 0).any():
        by_warp = np.sort(by_warp, axis=2)
        steps = np.diff(by_warp, axis=2)
    warps = by_warp.shape[0] * by_warp.shape[1]
    distinct = warps + int(np.count_nonzero(steps))
    return warps + int(np.count_nonzero(np.diff(by_warp >> _SHIFT, axis=2))), distinct


def _filled_up(g: Group, addresses: Array) -> Array:
    """Return addresses by (CTA, warp, lane), with the first lane's where a lane is not here."""
    warps = len(g.threads.warps)
    first = np.flatnonzero(g.threads.leaders[0])
    whole = np.repeat(addresses[:, first], WARP, axis=1)
    whole[:, g.threads.position] = addresses
    return whole.reshape(addresses.shape[0], warps, WARP)


@cache
def _box_sectors(start: int, extents: tuple[int, ...], steps: tuple[int, ...], element_bytes: int) -> int:
    starts = np.array([start], np.int64)
    for extent, step in zip(extents[1:], steps[1:], strict=True):
        starts = (starts[:, None] + np.arange(extent) * step).reshape(-1)
    last = extents[0] * element_bytes - 1
    return int((((starts + last) >> _SHIFT) - (starts >> _SHIFT) + 1).sum())
