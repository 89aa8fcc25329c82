"""st.async and red.async: asynchronous stores to another CTA's shared memory, whose bytes an mbarrier counts.

References
----------
PTX ISA, "st.async", "red.async": destination and mbarrier "belong to the same CTA", which is not the CTA of the thread.
The hardware does not enforce the second condition: a thread may store to all CTAs of its cluster, its own included. In
a launch without clusters, st.async is an illegal instruction (H200, 2026-11-30); in clusters of one CTA it is legal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import numpy as np

from cutepy.sim.advice import Diagnosis
from cutepy.sim.errors import BarrierError, Place, SimulationError
from cutepy.sim.machine.events import AsyncOperation

if TYPE_CHECKING:
    from cutepy.sim.machine.activity import Activity
    from cutepy.sim.machine.group import Group
    from cutepy.sim.machine.lanes import Array
    from cutepy.sim.machine.memory import Memory
    from cutepy.sim.mechanisms.mbarriers import Mbarriers
    from cutepy.sim.ptx.model import Instruction


def issue(
    activity: Activity,
    memory: Memory,
    mbarriers: Mbarriers,
    g: Group,
    i: Instruction,
    address: Array,
    barrier: Array,
    size_bytes: int,
    access: Literal["write", "atomic"],
    apply: Callable[[Array], None],
) -> None:
    """Issue the stores of the lanes; `apply` takes the positions in shared memory, when a store happens."""
    name = ".".join(i.parts[:2])
    if not g.ctas.residents.in_clusters:
        raise SimulationError(
            f"{name} in a launch without clusters, where hardware reports an illegal instruction",
            i,
            g.describe(),
            fix=Diagnosis("launch-without-clusters"),
        )
    shape = g.ctas.count, g.threads.count
    position = np.broadcast_to(memory.locate(g, i, address, size_bytes, size_bytes), shape)
    barriers = np.broadcast_to(memory.locate(g, i, barrier, 8, 8), shape)
    apart = position // memory.slot_bytes != barriers // memory.slot_bytes
    if apart.any():
        place = Place.of_mbarrier(int(barriers[apart][0] % memory.slot_bytes))
        to, counted = (g.ctas.residents.coordinate(int(x[apart][0]) // memory.slot_bytes) for x in (position, barriers))
        raise BarrierError(
            f"{name} stores into shared memory of CTA {to}, and its mbarrier is one of CTA {counted}",
            i,
            g.describe(),
            fix=Diagnosis("mbarrier-of-other-cta", cta=str(to)),
            at=place,
        )

    def happen() -> None:
        apply(position)
        if activity.observers:
            memory.observe(g, i, access, "shared", "async", position, size_bytes)
        for place in np.unique(barriers).tolist():
            slot, offset = divmod(place, memory.slot_bytes)
            lanes = np.argwhere(barriers == place)
            copies = np.concatenate([np.full((len(lanes), 1), slot), lanes], axis=1)
            mbarriers.deliver(g, i, offset, np.array([slot]), len(lanes) * size_bytes, copies)

    activity.issue(AsyncOperation("st_async", i, g.ctas, g.threads, f"{size_bytes} bytes a lane", happen))
