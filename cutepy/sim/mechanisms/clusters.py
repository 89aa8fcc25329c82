"""Clusters: addresses in other CTAs' shared memory, and cluster barriers.

Destination CTAs of a multicast within a cluster.

References
----------
PTX ISA, "Cluster of Cooperative Thread Arrays", "mapa", "getctarank", "barrier.cluster", "st.async". PTX ISA,
"cp.async.bulk": each bit of ctaMask is the %cluster_ctarank of a destination.
"""

from __future__ import annotations

import numpy as np

from cutepy.sim.advice import Diagnosis
from cutepy.sim.errors import BarrierError, MemoryAccessError, Place
from cutepy.sim.machine.activity import Activity
from cutepy.sim.machine.events import ClusterArrive, ClusterBarrier, ClusterWait
from cutepy.sim.machine.group import Group
from cutepy.sim.machine.lanes import Array, Residents
from cutepy.sim.machine.memory import Memory
from cutepy.sim.machine.schedule import Mechanism
from cutepy.sim.machine.thread_history import ExecutedInstruction
from cutepy.sim.machine.wait_sources import AwaitedObject
from cutepy.sim.mechanisms.async_stores import issue
from cutepy.sim.mechanisms.mbarriers import Mbarriers
from cutepy.sim.ptx.model import Instruction

_BARRIER = Place("the barrier of the cluster")


class Cluster(Mechanism):
    """State that the CTAs of a cluster share."""

    def __init__(self, activity: Activity, memory: Memory, mbarriers: Mbarriers) -> None:
        self._activity = activity
        self._memory = memory
        self._mbarriers = mbarriers

    def start(self, residents: Residents, threads: int) -> None:
        """Make the barriers of clusters that become resident."""
        slots, size = residents.count, residents.cluster_size
        self._size = size
        self._expected = np.full(slots // size, size * threads, np.int64)
        self._arrived = np.zeros(slots // size, np.int64)
        self._generation = np.zeros(slots // size, np.int64)
        self._seen = np.zeros((slots, threads), np.int64)
        self._last: ExecutedInstruction | None = None  # who arrived last
        self._owes = np.zeros((slots, threads), bool)  # a wait, since they arrived

    def arrive(self, g: Group, i: Instruction) -> None:
        """Arrive at the cluster's barrier."""
        self._activity.changes += 1
        clusters = g.ctas.slots // self._size
        lanes = g.ctas.slots[:, None], g.threads.ids[None, :]
        if self._owes[lanes].any():
            raise BarrierError(
                "barrier.cluster.arrive again by threads that have not waited since they arrived last",
                i,
                g.describe(),
                fix=Diagnosis("wait-between-arrivals"),
                kind="unpaired-arrival",
                at=_BARRIER,
                before=None if self._last is None else self._last.execution,
            )
        self._owes[lanes], self._last = True, g.did(i)
        generation = self._generation[clusters][:, None]
        self._seen[g.ctas.slots[:, None], g.threads.ids[None, :]] = generation
        np.add.at(self._arrived, clusters, g.threads.count)
        self._release(clusters)
        if self._activity.observers:
            self._activity.tell(ClusterArrive(i, g.ctas, g.threads, generation))

    def generation(self, slot: int) -> int:
        """Return the generation of the barrier of a CTA's cluster."""
        return int(self._generation[slot // self._size])

    def leave(self, g: Group) -> None:
        """Count threads that ended: the barrier no longer expects them."""
        clusters = g.ctas.slots // self._size
        np.subtract.at(self._expected, clusters, g.threads.count)
        self._release(clusters)

    def _release(self, clusters: Array) -> None:
        full = np.unique(
            clusters[(self._arrived[clusters] >= self._expected[clusters]) & (self._arrived[clusters] > 0)]
        )
        self._arrived[full] = 0
        self._generation[full] += 1

    def wait(self, g: Group, i: Instruction) -> bool:
        """Return whether all threads of the cluster have arrived since these did."""
        clusters = g.ctas.slots // self._size
        if not self._owes[g.ctas.slots[:, None], g.threads.ids[None, :]].all():
            raise BarrierError(
                "barrier.cluster.wait by threads that have not arrived since they waited last",
                i,
                g.describe(),
                fix=Diagnosis("arrive-before-wait"),
                kind="unpaired-arrival",
                at=_BARRIER,
            )
        seen = self._seen[g.ctas.slots[:, None], g.threads.ids[None, :]]
        done = self._generation[clusters][:, None] > seen
        if done.all():
            g.ready, g.waits_for = None, None
            self._owes[g.ctas.slots[:, None], g.threads.ids[None, :]] = False
            if self._activity.observers:
                self._activity.tell(ClusterWait(i, g.ctas, g.threads, seen))
            return True
        g.ready = done
        g.waits_for = lambda: self._awaited(int(clusters[0]))
        return False

    def _awaited(self, cluster: int) -> AwaitedObject:
        arrived, expected = int(self._arrived[cluster]), int(self._expected[cluster])
        return AwaitedObject(
            f"the cluster barrier: {arrived} of {expected} threads arrived",
            _BARRIER,
            f"{arrived} of {expected} threads have arrived",
            Diagnosis("cluster-to-barrier"),
            last=self._last,
            brings=lambda i: i.traits.arrives and i.traits.barrier == "cluster",
            nobody="no other thread that still runs arrives there",
            barrier=ClusterBarrier(),
        )

    def store_async(self, g: Group, i: Instruction, address: Array, values: tuple[Array, ...], barrier: Array) -> None:
        """Store to a CTA of the cluster, and count the bytes at an mbarrier there."""
        memory = self._memory
        kind, count = values[0].dtype, len(values)
        size = kind.itemsize * count
        shape = (g.ctas.count, g.threads.count)
        stacked = np.stack([np.broadcast_to(v, shape) for v in values], axis=-1)

        def store(position: Array) -> None:
            memory.shared_view(kind, count)[position // size] = stacked if count > 1 else stacked[..., 0]

        issue(self._activity, memory, self._mbarriers, g, i, address, barrier, size, "write", store)


def reached(g: Group, i: Instruction, own: int, mask: int) -> list[int]:
    """Return the slots of the CTAs that a mask names, in the cluster of a CTA."""
    size = g.ctas.residents.cluster_size
    mask &= 0xFFFF
    if not mask or mask >> size:
        raise MemoryAccessError(
            f"a multicast must reach CTAs of its cluster, which has {size}, got the mask {mask:#06x}",
            i,
            g.describe(),
            fix=Diagnosis("ranks-of-multicast"),
        )
    base = own - own % size
    return [base + rank for rank in range(size) if mask >> rank & 1]
