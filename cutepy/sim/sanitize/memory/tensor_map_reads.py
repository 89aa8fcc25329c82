"""Tensor maps that copies still read: who changes one must know that the copies are through with it.

A copy has read its map when its bytes have come, which the waits for its mbarrier tell; or when the bulk group is over
in which its thread had it, as of stores, and as CUTLASS has it of loads.

References
----------
PTX ISA, "cp.async.bulk.wait_group": what of an operation it waits for begins with "reading from the tensormap".
CUTLASS, `cute/arch/copy_sm90_desc.hpp`: `tma_desc_commit_group` and `tma_desc_wait_group`, after loads too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cutepy.layouts.sm90.tensor_map_bits import SIZE_BYTES
from cutepy.sim.sanitize.memory.global_touch import GlobalConflict, GlobalTouch
from cutepy.sim.sanitize.order.clocks import DONE
from cutepy.sim.sanitize.order.wave import BULK, Issued, Wave

if TYPE_CHECKING:
    from cutepy.sim.machine.events import AsyncOperation
    from cutepy.sim.machine.lanes import Array


@dataclass
class _Read:
    """What a copy reads of tensor maps.

    Attributes
    ----------
    touch : GlobalTouch
        With an entry for each lane.
    groups, counts : array of int, (CTA, lane)
        The column of each thread's bulk groups, and what it counts to when the copy is among those that are over.
    arrived : (int, array of int, array of int) or None
        The column of the mbarrier that its bytes arrive at, and by CTA whose it is, and the phase that they arrive in.
    """

    touch: GlobalTouch
    groups: Array
    counts: Array
    arrived: tuple[int, Array, Array] | None = None


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
        self._used: GlobalTouch | None = None
        self._reads: dict[object, _Read] = {}

    def begin(self) -> None:
        """Begin with a launch."""
        self._wave, self._used, self._reads = None, None, {}

    def use(self, wave: Wave, touch: GlobalTouch) -> None:
        """Note the maps of a copy that is about to be issued."""
        if wave is not self._wave:
            self._wave, self._reads = wave, {}
        self._used = touch

    def issue(self, wave: Wave, operation: AsyncOperation, issued: Issued) -> None:
        """Take the copy that uses what was noted."""
        touch, self._used = self._used, None
        if touch is None:
            return
        threads = operation.threads.ids
        columns = np.array([wave.clocks.column((BULK, "read", thread), thread) for thread in threads.tolist()])
        self._reads[id(operation)] = _Read(touch, np.broadcast_to(columns, issued.count.shape), issued.count)

    def complete(self, wave: Wave, operation: AsyncOperation, issued: Issued) -> None:
        """Take where the bytes of a copy have come: who waits there knows of the copies before, too."""
        read = self._reads.pop(id(operation), None)
        if read is None or wave is not self._wave:
            return
        key: tuple[object, ...] = (read.touch.slots.tobytes(), operation.threads.ids.tobytes(), read.touch.low)
        if issued.signals:
            place, of, phases = issued.signals[-1]
            at = np.minimum(np.searchsorted(of, read.touch.slots), len(of) - 1)
            column = wave.clocks.column(("mbarrier", place))
            read.arrived = column, of[at], np.broadcast_to(phases, of.shape)[at] + 1
            key = *key, column
        self._reads[key] = read

    def write(self, wave: Wave, new: GlobalTouch) -> None:
        """Check that who writes to global memory knows that copies have read the maps there."""
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
    def _known(wave: Wave, read: _Read, new: GlobalTouch, before: Array, after: Array) -> Array:
        """Tell by pair of lanes whether the writer knows; of CTAs of other clusters it is not asked."""
        assert new.threads is not None
        size, old = wave.clocks.cluster, read.touch
        rows, lanes = np.divmod(before, old.lanes)
        at, within = np.divmod(after, new.lanes)
        slots, threads = new.slots[at], new.threads[within]
        of = old.slots[rows]
        near = slots // size == of // size
        result: Array = ~near
        lanes = np.minimum(lanes, read.groups.shape[1] - 1)
        groups, counts = read.groups[rows, lanes], read.counts[rows, lanes]
        held = wave.clocks.held(DONE, slots[near], threads[near], of[near] % size, groups[near])
        result[near] = held >= counts[near]
        if read.arrived is not None:
            column, whose, phases = read.arrived
            ranks, columns = whose[rows[near]] % size, np.full(int(near.sum()), column)
            held = wave.clocks.held(DONE, slots[near], threads[near], ranks, columns)
            result[near] |= held >= phases[rows[near]]
        return result
