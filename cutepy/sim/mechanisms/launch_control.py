"""Cluster launch control: a thread takes the work of a cluster that has not begun, which then does not begin.

The answer to a request comes later, by the async proxy: 16 bytes in shared memory, which an mbarrier counts. The
hardware refuses a request when all clusters have begun, or when it gives the SMs to another kernel. A later request may
therefore be granted after a refusal. So the policy grants or refuses each request by itself.

References
----------
PTX ISA, "clusterlaunchcontrol.try_cancel": "the request can be granted or refused"; to ask again after a refusal was
observed is undefined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.advice import Diagnosis
from cutepy.sim.errors import BarrierError, Place, SimulationError
from cutepy.sim.machine.events import Access, AsyncOperation, CancelRequest
from cutepy.sim.machine.lanes import Ctas, Threads
from cutepy.sim.machine.schedule import Mechanism
from cutepy.sim.semantics.launch_control import answer

if TYPE_CHECKING:
    from cutepy.sim.machine.activity import Activity
    from cutepy.sim.machine.cluster_queue import ClusterQueue
    from cutepy.sim.machine.group import Group
    from cutepy.sim.machine.lanes import Array, Residents
    from cutepy.sim.machine.memory import Memory
    from cutepy.sim.mechanisms.mbarriers import Mbarriers
    from cutepy.sim.ptx.model import Instruction

_BYTES = 16


class LaunchControl(Mechanism):
    """Requests of all lanes."""

    def __init__(self, activity: Activity, memory: Memory, mbarriers: Mbarriers, clusters: ClusterQueue) -> None:
        self._activity, self._memory, self._mbarriers = activity, memory, mbarriers
        self._clusters = clusters

    def start(self, residents: Residents, threads: int) -> None:
        """Forget the refusals of CTAs that have ended."""
        self._refusals: list[tuple[int, int, int]] = []  # CTA, mbarrier, and the phase that counts the answer

    def try_cancel(self, g: Group, i: Instruction, space: str, to: Array, barrier: Array) -> None:
        """Request a cluster for each lane."""
        memory, shape = self._memory, (g.ctas.count, g.threads.count)
        places, barriers = (
            np.broadcast_to(memory.locate(g, i, memory.resolve(space, at)[1], size, size), shape)
            for at, size in ((to, _BYTES), (barrier, 8))
        )
        own = g.ctas.slots[:, None]
        if (places // memory.slot_bytes != own).any() or (barriers // memory.slot_bytes != own).any():
            raise BarrierError(
                f"{i.name} takes shared memory and an mbarrier of the thread's own CTA, and got another's",
                i,
                g.describe(),
                fix=Diagnosis("answer-of-own-cta"),
                at=Place.of_mbarrier(int(barriers.flat[0]) % memory.slot_bytes),
            )
        for row, column in np.ndindex(shape):
            slot = int(g.ctas.slots[row])
            ctas = Ctas(g.ctas.slots[row : row + 1], g.ctas.residents)
            threads = Threads(g.threads.ids[column : column + 1], g.threads.block)
            self._check(g, i, row, column)
            offsets = int(places[row, column]) % memory.slot_bytes, int(barriers[row, column]) % memory.slot_bytes
            self._request(g, i, ctas, threads, slot, *offsets)

    def _check(self, g: Group, i: Instruction, row: int, column: int) -> None:
        """Stop where a thread asks that has waited for a refusal."""
        slot, thread = int(g.ctas.slots[row]), int(g.threads.ids[column])
        for cta, offset, phase in self._refusals:
            if cta == slot and self._mbarriers.has_seen(offset, slot, thread, phase):
                wrong = SimulationError(
                    f"{i.name} by a thread that has waited for a refusal: what another request does is undefined",
                    i,
                    g.lane(row, column),
                    fix=Diagnosis("ask-until-refused"),
                    at=Place.of_mbarrier(offset),
                )
                self._activity.fault(wrong)

    def _request(
        self, g: Group, i: Instruction, ctas: Ctas, threads: Threads, slot: int, to: int, barrier: int
    ) -> None:
        """Take a cluster, or none, for a thread, and let the answer come at offsets of shared memory."""
        memory, activity, residents = self._memory, self._activity, g.ctas.residents
        size = residents.cluster_size
        block = self._clusters.cancel(activity.policy)
        first = None if block is None else residents.coordinate_of(block)
        activity.changes += 1
        activity.stats["cancel_requests"] += 1
        activity.stats["cancelled_clusters"] += first is not None
        for observer in activity.observers:
            observer.on_cancel(CancelRequest(i, ctas, threads, first, self._clusters.left))
        is_multicast = "multicast::cluster::all" in i.parts
        slots = slot - slot % size + np.arange(size) if is_multicast else np.array([slot])
        words = np.array(answer(first), np.uint32)

        def apply() -> None:
            for at in (slots * memory.slot_bytes + to).tolist():
                memory.shared_view(words.dtype, len(words))[at // _BYTES] = words
                for observer in activity.observers:
                    where = np.array([[at]])
                    part_of = activity.completing
                    observer.on_access(Access("write", "shared", "async", i, ctas, threads, where, _BYTES, part_of))
            if first is None:
                phases = self._mbarriers.phases(g, i, barrier, slots)
                self._refusals += [(one, barrier, phase) for one, phase in zip(slots.tolist(), phases, strict=True)]
                self._mbarriers.follow(barrier)
            brought = np.stack([slots, *np.zeros((2, len(slots)), np.intp)], axis=1)
            self._mbarriers.deliver(g, i, barrier, slots, _BYTES, brought, by=np.full(len(slots), slot))

        detail = "no cluster" if first is None else f"the cluster of CTA {first}"
        activity.issue(AsyncOperation("launch_control", i, ctas, threads, detail, apply))
