"""Accesses to global memory by threads, asynchronous operations and the host, checked against shadow memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.machine.address_patterns import AddressPattern, LocatedPattern
from cutepy.sim.machine.lanes import Array, spread
from cutepy.sim.ptx.memory_order import WEAK, strength
from cutepy.sim.ptx.model import Instruction
from cutepy.sim.sanitize.memory.global_access_record import GlobalAccessRecord, GlobalConflict, Pattern
from cutepy.sim.sanitize.memory.global_order import GlobalOrder, held_at_issue, held_by_threads
from cutepy.sim.sanitize.memory.global_shadow import GlobalShadow, Order
from cutepy.sim.sanitize.memory.tensor_maps import TensorMapReads, TensorMapUses
from cutepy.sim.sanitize.order.wave import BULK, COPIES, IssuedOperation, Wave

if TYPE_CHECKING:
    from cutepy.sim.machine.events import Access, AsyncOperation, Fence
    from cutepy.sim.machine.host_events import HostAccess
    from cutepy.sim.machine.launch import Launch
    from cutepy.sim.machine.memory import GlobalMemory
    from cutepy.sim.sanitize.order.lane_pairs import Election
    from cutepy.sim.sanitize.order.launches import Launches
    from cutepy.sim.sanitize.order.messages import Messages


_READ_ONLY = {"param", "const"}
_NAMES = {"tma_load": "TMA", "tma_store": "TMA store"}


class GlobalAccesses:
    """Hands the accesses to global memory to its shadow.

    Parameters
    ----------
    launches : Launches
    messages : Messages
    known, report, unwritten, forgot : callable
        As of `GlobalShadow`.
    unacquired, assume : callable
        As of `TensorMapUses`.
    """

    def __init__(
        self,
        launches: Launches,
        messages: Messages,
        known: Callable[[], GlobalMemory],
        report: Callable[[GlobalConflict], None],
        unwritten: Callable[[GlobalAccessRecord, int, int], None],
        forgot: Callable[[], None],
        unacquired: Callable[[GlobalAccessRecord, int, int], None],
        assume: Callable[[str], None],
    ) -> None:
        self._launches, self._order = launches, GlobalOrder(launches, messages)
        self.shadow = GlobalShadow(known, report, unwritten, launches.all_precede, forgot)
        self._maps = TensorMapUses(self.shadow, self._order.sees, report, unacquired, assume)
        self._map_reads = TensorMapReads(report)
        self._beside: dict[int, HostAccess] = {}
        self._counts: tuple[Array | None, Array] = None, np.zeros((1, 1), np.int64)

    # Launches, and what the host does.

    def begin(self, launch: Launch, elections: tuple[Election, ...]) -> bool:
        """Begin a launch; return whether all earlier operations have ended.

        `elections` are told of accesses whose order may rest on them.
        """
        launches, self._order.elections = self._launches, elections
        self._map_reads.begin()
        self._maps.begin(launch)
        is_alone = launches.begin(launch)
        self._forget()
        if not is_alone:
            self._catch_up()
        return is_alone

    def _catch_up(self) -> None:
        """Note earlier accesses of the host, where the current operation does not come after them."""
        for number in [number for number in self._beside if not self._launches.precedes(number)]:
            self._by_host(number, self._beside.pop(number), _in_order)

    def _forget(self) -> None:
        """Forget accesses that all later operations come after."""
        launches = self._launches
        forgotten = self.shadow.begin(launches.now, launches.host_knows_all)
        launches.forget(forgotten)
        self._beside = {number: access for number, access in self._beside.items() if number > forgotten}

    def host(self, access: HostAccess) -> None:
        """Take an access of the host: it is compared now if others may run beside it, else when one may."""
        if not len(access.starts):
            return
        if access.writes:
            self.shadow.write(access.starts, access.size_bytes)
        if self._launches.begin(access):
            self._beside[self._launches.now] = access
        else:
            self._catch_up()
            self._by_host(self._launches.now, access, self._order.of())
        self._forget()

    def _by_host(self, number: int, access: HostAccess, order: Order) -> None:
        one = np.zeros((1, 1), np.int64)
        starts = access.starts.astype(np.int64)
        low = int(starts.min())
        touch = GlobalAccessRecord(
            name=access.what,
            access="write" if access.writes else "read",
            instruction=Instruction(-1, access.what, (), source=access.source),
            writes=access.writes,
            proxy="host",
            scope=WEAK,
            launch=number,
            ctas=one[0],
            clusters=one[0],
            slots=one[0],
            threads=None,
            columns=one,
            counts=one,
            ranks=one[0],
            pattern=Pattern(starts - low, np.zeros(len(starts), np.intp), access.size_bytes),
            low=low,
        )
        self.shadow.touch(touch, order)

    # Accesses of kernels.

    def access(self, wave: Wave, access: Access) -> None:
        """Take an access by threads."""
        if access.proxy == "tensormap":
            if not self._maps.needs_fence(access):
                return
            touch = self._by_threads(wave, access)
            self._maps.access(wave, access, touch)
            if not access.instruction.traits.fences:
                self._map_reads.use(wave, touch)
                self.shadow.touch(touch, self._order.of(wave, held_by_threads(wave, touch)))
        elif not _READ_ONLY & {*access.instruction.parts}:
            touch = self._by_threads(wave, access)
            self.shadow.touch(touch, self._order.of(wave, held_by_threads(wave, touch)))
            if touch.writes:
                self._map_reads.write(wave, touch)
            if access.instruction.parts[0] == "tensormap":  # by whole warps, which it brings together
                wave.clocks.synchronise(access.ctas.slots, access.threads.ids)

    def fence(self, wave: Wave, event: Fence) -> None:
        """Take a fence, or a griddepcontrol."""
        if event.instruction.traits.orders_grids:
            self._launches.depend(wave, event)
        self._maps.fence(wave, event)

    def issue(self, wave: Wave, operation: AsyncOperation, issued: IssuedOperation) -> None:
        """Take an asynchronous operation that is issued."""
        self._map_reads.issue(wave, operation, issued)

    def completed(self, wave: Wave, operation: AsyncOperation, issued: IssuedOperation) -> None:
        """Take the reads and writes of an operation of the async proxy."""
        clocks = wave.clocks
        self._map_reads.complete(wave, operation, issued)
        for access in issued.runs:
            slots, issuers = access.ctas.slots, access.threads.ids
            runs = access.addresses.shape[1] // len(issuers)
            agents = slots
            by = np.searchsorted(issued.slots, slots), np.searchsorted(issued.threads, issuers)
            if access.operation == "read":
                # The lanes of one access count at one mbarrier of each CTA.
                places, lane = zip(by[0].tolist(), slots.tolist(), strict=True), int(by[1][0])
                found = [issued.signal(row, lane, slot) for row, slot in places]
                agents = np.array([signal.slot for signal in found])
                columns = np.array([[clocks.column(("mbarrier", signal.address))] for signal in found])
                counts = np.array([[signal.phase + 1] for signal in found])
            else:
                columns = np.array([[clocks.column((BULK, "write", t), t) for t in issuers.tolist()]])
                counts = issued.count[by[0][:, None], by[1]]
            starts = access.addresses.astype(np.int64).reshape(-1)
            lanes = np.repeat(np.arange(len(slots) * len(issuers)), runs)
            name = _NAMES.get(operation.kind, "bulk copy")
            low = int(starts.min())
            pattern = self.shadow.pattern(access, starts - low, lanes)
            touch = self._touch(wave, access, name, "async", pattern, low, None, columns, counts, agents)
            touch.when, touch.issuers = issued.number, issuers
            one = len(issued.threads) == 1
            rows, lane_of = np.repeat(by[0], len(issuers)), np.tile(by[1], len(slots))
            known = issued.known[:, rows] if one else issued.lanes(rows, lane_of)
            self.shadow.touch(touch, self._order.of(wave, held_at_issue(known)))

    # Touches.

    def _by_threads(self, wave: Wave, access: Access) -> GlobalAccessRecord:
        parts = access.instruction.parts
        slots, threads, clocks = access.ctas.slots, access.threads.ids, wave.clocks
        name, columns = parts[0], threads
        if access.part_of is None:
            if access.operation != "read":
                columns = wave.writes(slots, threads)
            counts = clocks.counts_now(slots, threads)
        else:
            name = "cp.async"
            columns = np.array([clocks.column((COPIES, t), t) for t in threads.tolist()])
            counts = wave.issued[id(access.part_of)].count
        proxy = "nc" if "nc" in parts else "generic"
        if access.proxy == "tensormap":
            name, proxy = "tensor map", access.proxy
        how = name, proxy, *self._pattern(access, len(slots), len(threads)), threads, columns[None], counts, slots
        return self._touch(wave, access, *how)

    def _pattern(self, access: Access, ctas: int, threads: int) -> tuple[Pattern, int]:
        """Return the pattern of an access by threads, and its lowest address."""
        shape = ctas, threads
        addresses: AddressPattern | None = None
        if not isinstance(access.where, LocatedPattern):
            starts = spread(access.addresses, shape).astype(np.int64).reshape(-1)
            low = int(starts.min())
            starts -= low
        else:
            addresses, low = access.where
            addresses.uses += 1
            starts = spread(addresses.offsets, shape).reshape(-1)
        return self.shadow.pattern(access, starts, None, addresses), low

    def _touch(
        self,
        wave: Wave,
        access: Access,
        name: str,
        proxy: str,
        pattern: Pattern,
        low: int,
        threads: Array | None,
        columns: Array,
        counts: Array,
        agents: Array,
    ) -> GlobalAccessRecord:
        slots, blocks, size = access.ctas.slots, wave.residents.blocks, wave.clocks.cluster
        i = access.instruction
        counts = self._short(counts)
        return GlobalAccessRecord(
            name=name,
            access=access.operation,
            instruction=i,
            writes=access.operation != "read",
            proxy=proxy,
            scope=strength(i.opcode).scope,
            launch=self._launches.now,
            ctas=blocks[slots],
            clusters=blocks[slots // size * size],
            slots=slots,
            threads=threads,
            columns=columns,
            counts=counts,
            ranks=agents % size,
            pattern=pattern,
            low=low,
            modifies=access.operation == "atomic" and access.part_of is None,
            when=wave.steps.number,
        )

    def _short(self, counts: Array) -> Array:
        """Return how far lanes had come, once if all had come as far: accesses between barriers share the array."""
        given, short = self._counts
        if given is not counts:
            is_one = counts.size > 1 and (counts == counts.flat[0]).all()
            short = counts[:1, :1].copy() if is_one else counts
            self._counts = counts, short
        return short


def _in_order(old: GlobalAccessRecord, new: GlobalAccessRecord, before: Array, after: Array) -> Array:
    """Return 0, no hazard, for each pair: an earlier comparison covers the pairs."""
    return np.zeros(len(before), np.uint8)
