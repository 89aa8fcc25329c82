"""Tensor maps in global memory: acquired by each CTA before it copies by them, and unchanged while copies read them.

Maps that are parameters of the kernel, or constants, need no fence: no kernel writes them. A map in global memory was
written by the generic proxy: by this launch, by an earlier one, or by the host. Copies read maps by the tensormap
proxy. Each CTA that copies by a map acquires it first, by `fence.proxy.tensormap::generic.acquire` of its address.

If this launch has written the map, or a launch that may still run, the writer also releases it, by
`tensormap.cp_fenceproxy` or `fence.proxy.tensormap::generic.release`, and the acquire must come after the release. The
end of a launch releases what the launch has written, and so does a copy of the host.

For each map there is a column of the clocks, by CTA of the cluster. It holds the number of the last write that the CTA
has acquired, plus one: 0 stands for no acquire, 1 for a map that no record is known to have written. Barriers pass it
on within the CTA.

A copy has read its map when its bytes have come, that is, after a wait for its mbarrier. A store, and by CUTLASS's
example a load too, has read its map when its bulk group is complete. Only then may the map be changed.

References
----------
PTX ISA, "membar/fence": "proxy.tensormap"; "tensormap.cp_fenceproxy"; "Memory Consistency Model": "Proxies";
"cp.async.bulk.wait_group": what of an operation it waits for begins with "reading from the tensormap". CUDA C++
Programming Guide, "Using TMA to transfer multi-dimensional arrays", on maps in global memory: each block needs a fence.
CUTLASS, `cute/arch/copy_sm90_desc.hpp`: `tma_desc_commit_group` and `tma_desc_wait_group`, after loads too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cutepy.layouts.sm90.tensor_map_bits import SIZE_BYTES
from cutepy.sim.ptx.memory_order import CLUSTER, CTA, GPU, SCOPES, SYS
from cutepy.sim.sanitize.memory.global_access_record import GlobalAccessRecord, GlobalConflict
from cutepy.sim.sanitize.memory.global_shadow import GlobalShadow
from cutepy.sim.sanitize.order.clocks import DONE, SEEN
from cutepy.sim.sanitize.order.wave import BULK, IssuedOperation, Wave

if TYPE_CHECKING:
    from cutepy.sim.machine.events import Access, AsyncOperation, Fence
    from cutepy.sim.machine.lanes import Array
    from cutepy.sim.machine.launch import Launch
    from cutepy.sim.ptx.model import Instruction


Ordered = Callable[["Wave", GlobalAccessRecord, GlobalAccessRecord, "Array", "Array"], "Array"]
_CHANNEL = "tensor map"
BY_HOST = (
    "a tensor map of the host, or of a launch that the host waited for, is acquired with the scope .gpu: for one that "
    "cudaMemcpy wrote the CUDA C++ Programming Guide has .sys"
)


class TensorMapUses:
    """Follows tensor maps in global memory.

    Parameters
    ----------
    shadow : GlobalShadow
    ordered : callable
        Returns by pair of lanes of two touches whether the newer one sees the older one's write.
    report : callable
        Called with each conflict, of a copy and the write that no fence has shown to it.
    unacquired : callable
        Called with a touch, a lane and an address, where a copy uses a map that its CTA has not acquired, and the write
        is not known.
    assume : callable
        Called with an assumption.
    """

    def __init__(
        self,
        shadow: GlobalShadow,
        ordered: Ordered,
        report: Callable[[GlobalConflict], None],
        unacquired: Callable[[GlobalAccessRecord, int, int], None],
        assume: Callable[[str], None],
    ) -> None:
        self._shadow, self._ordered = shadow, ordered
        self._report, self._unacquired, self._assume = report, unacquired, assume
        self._released: dict[tuple[int, int], tuple[int, int]] = {}
        self._windows: list[tuple[int, int]] = []
        self._wave: Wave | None = None

    def begin(self, launch: Launch) -> None:
        """Begin with a launch."""
        self._windows = [*launch.windows["const"], *launch.windows["param"]]

    def needs_fence(self, access: Access) -> bool:
        """Return whether an access reads tensor maps in memory that kernels write."""
        addresses = np.asarray(access.addresses).astype(np.int64)
        apart = np.zeros(addresses.shape, bool)
        for start, end in self._windows:
            apart |= (addresses >= start) & (addresses < end)
        return not bool(apart.all())

    def fence(self, wave: Wave, event: Fence) -> None:
        """Take a release: earlier writes of its threads to maps are released."""
        if "tensormap::generic" not in event.instruction.parts or "release" not in event.instruction.parts:
            return
        if wave is not self._wave:
            self._wave, self._released = wave, {}
        slots, threads = event.ctas.slots, event.threads.ids
        counts, scope = wave.clocks.counts(slots, threads), _scope(event.instruction)
        for row, slot in enumerate(slots.tolist()):
            for column, thread in enumerate(threads.tolist()):
                self._released[slot, thread] = int(counts[row, column]), scope
        wave.clocks.publish(slots, threads)

    def access(self, wave: Wave, access: Access, touch: GlobalAccessRecord) -> None:
        """Take a fence that acquires maps, or a copy that uses them."""
        addresses = np.asarray(access.addresses).astype(np.int64)
        wide = np.broadcast_to(addresses, (len(access.ctas.slots), touch.lanes)).reshape(-1)
        for address in np.unique(addresses).tolist():
            lanes = np.flatnonzero(wide == address)
            number = self._shadow.last_written(address, SIZE_BYTES)
            column = wave.clocks.column((_CHANNEL, address))
            if access.instruction.traits.fences:
                self._acquire(wave, touch, address, lanes, number, column)
            else:
                self._use(wave, touch, address, lanes, number, column)

    def _use(self, wave: Wave, touch: GlobalAccessRecord, address: int, lanes: Array, number: int, column: int) -> None:
        """Check that copies by a map come after an acquire."""
        assert touch.threads is not None
        rows, at = np.divmod(lanes, touch.lanes)
        slots, threads = touch.slots[rows], touch.threads[at]
        ranks, columns = slots % wave.clocks.cluster, np.full(len(slots), column)
        known = wave.clocks.held(SEEN, slots, threads, ranks, columns)
        if (known > number).all():
            return
        lane, old = int(lanes[np.argmin(known)]), self._shadow.touch_of(number)
        if old is None:
            self._unacquired(touch, lane, address)
        else:
            self._report(GlobalConflict("missing-tensormap-fence", old, touch, _writer(old, address), lane, address))

    def _acquire(
        self, wave: Wave, touch: GlobalAccessRecord, address: int, lanes: Array, number: int, column: int
    ) -> None:
        """Note the threads that acquire a map as it was written last."""
        assert touch.threads is not None
        rows, at = np.divmod(lanes, touch.lanes)
        old, scope = self._shadow.still_counts(number), _scope(touch.instruction)
        if old is None:
            knows = np.full(len(lanes), scope >= GPU)
            if scope == GPU and self._is_by_host(number):
                self._assume(BY_HOST)
        else:
            writer = _writer(old, address)
            needed = _needed(old, touch, writer, rows)
            knows = needed <= min(scope, self._released_scope(wave, old, writer))
            knows &= self._ordered(wave, old, touch, np.full(len(lanes), writer), lanes)
        size = wave.clocks.cluster
        for slot, thread in zip(touch.slots[rows][knows].tolist(), touch.threads[at][knows].tolist(), strict=True):
            what = wave.clocks.nothing(1, len(wave.clocks.owner))
            what[:, :, slot % size, column] = number + 1
            wave.clocks.learn(np.array([slot]), np.array([thread]), what)

    def _is_by_host(self, number: int) -> bool:
        old = self._shadow.touch_of(number)
        return old is None or old.proxy == "host"

    def _released_scope(self, wave: Wave, old: GlobalAccessRecord, writer: int) -> int:
        """Return the scope in which a write is released, or 0 if it is not."""
        if old.launch != self._shadow.launch:
            return SYS
        if old.instruction.parts[:2] == ("tensormap", "cp_fenceproxy"):
            return _scope(old.instruction)
        if old.threads is None or wave is not self._wave:
            return 0
        counts = np.broadcast_to(old.counts, (len(old.slots), old.lanes))
        row, column = divmod(writer, old.lanes)
        at, scope = self._released.get((int(old.slots[row]), int(old.threads[column])), (-1, 0))
        return scope if at >= int(counts[row, column]) else 0


def _scope(i: Instruction) -> int:
    return next(SCOPES[part] for part in i.parts if part in SCOPES)


def _writer(old: GlobalAccessRecord, address: int) -> int:
    """Return the lane that wrote to a map: of several the one that wrote to the first byte."""
    _, entries = old.entries(np.arange(address, address + SIZE_BYTES))
    return int(old.pattern.lanes[entries[0]])


def _needed(old: GlobalAccessRecord, new: GlobalAccessRecord, writer: int, rows: Array) -> Array:
    """Return by row of the newer touch the scope that takes in a lane of the older one."""
    needed = np.full(len(rows), GPU)
    if old.launch == new.launch:
        row = writer // old.lanes
        needed[old.clusters[row] == new.clusters[rows]] = CLUSTER
        needed[old.ctas[row] == new.ctas[rows]] = CTA
    return needed


@dataclass
class _Read:
    """Read of tensor maps by a copy.

    Attributes
    ----------
    touch : GlobalAccessRecord
        With an entry for each lane.
    groups, counts : array of int, (CTA, lane)
        The column of each thread's bulk groups, and its count once the copy is complete.
    arrived : (array of int, array of int, array of int) or None
        By CTA and lane the column of the mbarrier that its bytes arrive at, whose that is, and the count of the phase
        that they arrive in.
    """

    touch: GlobalAccessRecord
    groups: Array
    counts: Array
    arrived: tuple[Array, Array, Array] | None = None


class TensorMapReads:
    """Follows which tensor maps copies may still read.

    Parameters
    ----------
    report : callable
        Called with each conflict.

    """

    def __init__(self, report: Callable[[GlobalConflict], None]) -> None:
        self._report = report
        self._wave: Wave | None = None
        self._used: GlobalAccessRecord | None = None
        self._reads: dict[object, _Read] = {}

    def begin(self) -> None:
        """Begin with a launch."""
        self._wave, self._used, self._reads = None, None, {}

    def use(self, wave: Wave, touch: GlobalAccessRecord) -> None:
        """Note the maps of a copy that is about to be issued."""
        if wave is not self._wave:
            self._wave, self._reads = wave, {}
        self._used = touch

    def issue(self, wave: Wave, operation: AsyncOperation, issued: IssuedOperation) -> None:
        """Take the copy that uses the noted maps."""
        touch, self._used = self._used, None
        if touch is None:
            return
        threads = operation.threads.ids
        columns = np.array([wave.clocks.column((BULK, "read", thread), thread) for thread in threads.tolist()])
        self._reads[id(operation)] = _Read(touch, np.broadcast_to(columns, issued.count.shape), issued.count)

    def complete(self, wave: Wave, operation: AsyncOperation, issued: IssuedOperation) -> None:
        """Take the mbarrier that the bytes of a copy reach: threads that wait there know of the earlier copies, too."""
        read = self._reads.pop(id(operation), None)
        if read is None or wave is not self._wave:
            return
        key: tuple[object, ...] = (read.touch.slots.tobytes(), operation.threads.ids.tobytes(), read.touch.low)
        if issued.signals:
            found = [
                [issued.signal(row, lane, slot) for lane in range(read.touch.lanes)]
                for row, slot in enumerate(read.touch.slots.tolist())
            ]
            columns = np.array([[wave.clocks.column(("mbarrier", one.address)) for one in lanes] for lanes in found])
            whose, counts = (np.array([[one[n] for one in lanes] for lanes in found]) for n in (1, 2))
            read.arrived = columns, whose, counts + 1
            key = *key, columns.tobytes()
        self._reads[key] = read

    def write(self, wave: Wave, new: GlobalAccessRecord) -> None:
        """Check that threads that write to global memory know of the copies that read maps there."""
        if not self._reads or wave is not self._wave:
            return
        first, last = new.low, new.low + int(new.pattern.starts.max()) + new.pattern.size
        for key, read in list(self._reads.items()):
            old = read.touch
            starts = old.low + old.pattern.starts
            if first >= starts.max() + SIZE_BYTES or last <= starts.min():
                continue
            written = new.low + new.pattern.starts
            meets = (written < starts[:, None] + SIZE_BYTES) & (written + new.pattern.size > starts[:, None])
            before, after = (one[meets] for one in np.meshgrid(old.pattern.lanes, new.pattern.lanes, indexing="ij"))
            late = ~self._known(wave, read, new, before, after)
            if late.any():
                at = int(np.argmax(late))
                address = int(starts[np.argmax(meets.any(axis=1))])
                conflict = GlobalConflict("unordered-write", old, new, int(before[at]), int(after[at]), address)
                self._report(conflict)
                del self._reads[key]

    @staticmethod
    def _known(wave: Wave, read: _Read, new: GlobalAccessRecord, before: Array, after: Array) -> Array:
        """Mark the pairs of lanes whose writer knows the use; pairs of different clusters are not checked."""
        assert new.threads is not None
        size, old = wave.clocks.cluster, read.touch
        rows, lanes = np.divmod(before, old.lanes)
        at, within = np.divmod(after, new.lanes)
        slots, threads = new.slots[at], new.threads[within]
        of = old.slots[rows]
        near = slots // size == of // size
        result: Array = ~near
        groups, counts = read.groups[rows, lanes], read.counts[rows, lanes]
        held = wave.clocks.held(DONE, slots[near], threads[near], of[near] % size, groups[near])
        result[near] = held >= counts[near]
        if read.arrived is not None:
            columns, whose, counts = (each[rows[near], lanes[near]] for each in read.arrived)
            held = wave.clocks.held(DONE, slots[near], threads[near], whose % size, columns)
            result[near] |= held >= counts
        return result
