"""Tensor maps that the kernel itself has changed: a copy may use one once a fence has shown it to the tensormap proxy.

Who changed it releases it, by `tensormap.cp_fenceproxy` or `fence.proxy.tensormap::generic.release`; who uses it knows
of that, and acquires it by `fence.proxy.tensormap::generic.acquire` of its address. What has been acquired is a column
of the clocks for each map, in which the number of the touch that wrote it last is counted: barriers pass it on.

References
----------
PTX ISA, "membar/fence": "proxy.tensormap"; "tensormap.cp_fenceproxy"; "Memory Consistency Model": "Proxies".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from cutepy.layouts.sm90.tensor_map_bits import SIZE_BYTES
from cutepy.sim.sanitize.memory.global_shadow import GlobalShadow
from cutepy.sim.sanitize.memory.global_touch import GlobalConflict, GlobalTouch
from cutepy.sim.sanitize.order.clocks import SEEN

if TYPE_CHECKING:
    from cutepy.sim.machine.events import Access, BarrierEvent
    from cutepy.sim.machine.lanes import Array
    from cutepy.sim.sanitize.order.wave import Wave

Ordered = Callable[["Wave", GlobalTouch, GlobalTouch, "Array", "Array"], "Array"]
_CHANNEL = "tensor map"


class TensorMapUses:
    """Follows tensor maps in global memory.

    Parameters
    ----------
    shadow : GlobalShadow
    make : callable
        Returns an access by threads as a touch.
    ordered : callable
        Tells by pair of lanes of two touches whether the newer one sees what the older one wrote.
    report : callable
        Called with each conflict.
    """

    def __init__(
        self,
        shadow: GlobalShadow,
        make: Callable[[Wave, Access], GlobalTouch],
        ordered: Ordered,
        report: Callable[[GlobalConflict], None],
    ) -> None:
        self._shadow, self._make, self._ordered, self._report = shadow, make, ordered, report
        self._released: dict[tuple[int, int], int] = {}
        self._wave: Wave | None = None

    def fence(self, wave: Wave, event: BarrierEvent) -> None:
        """Take a release: what its threads have written to maps before is released."""
        if "tensormap::generic" not in event.instruction.parts or "release" not in event.instruction.parts:
            return
        if wave is not self._wave:
            self._wave, self._released = wave, {}
        slots, threads = event.ctas.slots, event.threads.ids
        counts = wave.clocks.counts(slots, threads)
        for row, slot in enumerate(slots.tolist()):
            for column, thread in enumerate(threads.tolist()):
                self._released[slot, thread] = int(counts[row, column])
        wave.clocks.publish(slots, threads)

    def access(self, wave: Wave, access: Access) -> None:
        """Take a fence that acquires maps, or a copy that uses them."""
        addresses = np.asarray(access.addresses).astype(np.int64)
        for address in np.unique(addresses).tolist():
            number = self._shadow.last_written(address, SIZE_BYTES)
            old = self._shadow.still_counts(number)
            if old is None:
                continue
            touch = self._make(wave, access)
            wide = np.broadcast_to(addresses, (len(access.ctas.slots), touch.lanes)).reshape(-1)
            lanes = np.flatnonzero(wide == address)
            column = wave.clocks.column((_CHANNEL, address))
            rows, at = np.divmod(lanes, touch.lanes)
            slots, threads = access.ctas.slots[rows], access.threads.ids[at]
            of, entries = old.entries(np.array([address]))
            writer = int(old.pattern.lanes[entries[0]]) if len(of) else 0
            if access.instruction.parts[0] == "fence":
                if self._is_released(wave, old, writer):
                    knows = self._ordered(wave, old, touch, np.full(len(lanes), writer), lanes)
                    self._acquire(wave, old.number, slots[knows], threads[knows], column)
                continue
            zeros = np.zeros_like(slots)
            known = wave.clocks.held(SEEN, slots, threads, zeros, np.full(len(slots), column))
            if (known < number).any():
                first = int(lanes[np.argmin(known)])
                self._report(GlobalConflict("missing-tensormap-fence", old, touch, writer, first, address))

    @staticmethod
    def _acquire(wave: Wave, number: int, slots: Array, threads: Array, column: int) -> None:
        """Let threads know a map as it was written last."""
        for slot, thread in zip(slots.tolist(), threads.tolist(), strict=True):
            what = wave.clocks.nothing(1, len(wave.clocks.owner))
            what[:, :, 0, column] = number
            wave.clocks.learn(np.array([slot]), np.array([thread]), what)

    def _is_released(self, wave: Wave, old: GlobalTouch, writer: int) -> bool:
        if old.instruction.parts[:2] == ("tensormap", "cp_fenceproxy") or old.launch != self._shadow.launch:
            return True
        if old.threads is None or wave is not self._wave:
            return False
        counts = np.broadcast_to(old.counts, (len(old.slots), old.lanes))
        row, column = divmod(writer, old.lanes)
        lane = int(old.slots[row]), int(old.threads[column])
        return self._released.get(lane, -1) >= int(counts[row, column])
