"""Premise 5: the generations of named and cluster barriers are the same in every schedule.

The premise requires that each arrival in a generation happens after all arrivals in the generation before. A thread
that leaves a barrier knows these arrivals. A thread that only arrives at a named barrier may run ahead. A thread may
arrive twice in a generation: it arrives, and then waits. The simulator checks that all arrivals name the same count,
and that no thread arrives twice at a cluster barrier without a wait between. What remains of the cluster barrier is a
thread that exits between its arrival and its wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.advice import Diagnosis
from cutepy.sim.machine.lanes import WARP, values_in
from cutepy.sim.sanitize.certificate.actors import Actors
from cutepy.sim.sanitize.certificate.violations import Reports, Violation, named
from cutepy.sim.sanitize.order.clocks import DONE, neighbours, rectangle

if TYPE_CHECKING:
    from cutepy.sim.machine.events import GenerationEvent
    from cutepy.sim.machine.lanes import Array
    from cutepy.sim.sanitize.order.wave import Wave


class Generations:
    """One barrier of each resident CTA, or of each cluster.

    Parameters
    ----------
    wave : Wave
    of_clusters : bool
    report : callable
        Called with each `Violation`.
    """

    def __init__(self, wave: Wave, of_clusters: bool, report: Callable[[Violation], None]) -> None:
        self._clocks, self._reports = wave.clocks, Reports(wave, report)
        self._column = wave.clocks.column("cluster") if of_clusters else None
        slots, cluster = wave.residents.count, wave.clocks.cluster
        threads = wave.clocks.threads
        self._used = np.zeros((2, slots, cluster, threads), np.int32)
        self._generation = np.full((2, slots), -1)
        self._last = np.full((slots, threads), -1)

    def see(self, event: GenerationEvent) -> None:
        """Check participations, before threads learn anything by them."""
        clocks, slots, threads = self._clocks, event.ctas.slots, event.threads.ids
        generation = np.broadcast_to(event.generation, (len(slots), len(threads)))[:, 0]
        self._last[rectangle(slots, threads)] = generation[:, None]
        if self._column is not None:
            return
        for rows in _generations(generation):
            self._begin(slots[rows], generation[rows])
        need = self._participated(slots, generation - 1)
        actors = Actors.now(clocks, slots, threads, joins=False)
        if actors.lack(need) is not None:
            actors = Actors.now(clocks, slots, threads)
        for lanes, asked in self._by_warp(actors, need):
            some = actors.only(lanes)
            lacking = some.lack(asked)
            if lacking is None:
                continue
            found = some.first(asked, lacking)
            side = self._reports.find(int(slots[found.row]), found.rank, found.column, found.reached)
            self._reports.say(
                "mixed-generation",
                event,
                side,
                Diagnosis("barrier-overtaken", participation=named(side)),
                slots[found.row],
                some.threads[found.lane],
            )
            break
        parity = int(generation[0]) & 1
        if clocks.cluster == 1 and (generation & 1 == parity).all():
            self._used[parity, :, 0][rectangle(slots, threads)] = clocks.counts_now(slots, threads)
        else:
            at = (generation & 1)[:, None], slots[:, None], (slots % clocks.cluster)[:, None], threads
            self._used[at] = clocks.counts_now(slots, threads)
        self._reports.history.add(event)

    def _participated(self, slots: Array, generation: Array) -> Array:
        """Return the progress of the participants in generations of barriers, (CTA, rank, thread)."""
        parity = generation & 1
        held = self._generation[parity, slots] == generation
        if held.all() and (parity == parity[0]).all():
            found: Array = self._used[int(parity[0])][neighbours(slots)]
            return found
        return np.where(held[:, None, None], self._used[parity, slots], 0)

    def _by_warp(self, actors: Actors, need: Array) -> Iterator[tuple[Array, Array]]:
        """Yield the lanes of each warp, and the knowledge that they need: none of their own warp, which comes whole."""
        if actors.lack(need) is None:
            return
        rows, ranks = np.arange(len(actors.slots)), actors.slots % self._clocks.cluster
        for warp in np.unique(actors.threads // WARP).tolist():
            asked = need.copy()
            asked[rows, ranks, warp * WARP : (warp + 1) * WARP] = 0
            yield np.flatnonzero(actors.threads // WARP == warp), asked

    def _begin(self, slots: Array, generation: Array) -> None:
        at = generation & 1
        new = self._generation[at, slots] != generation
        self._used[at[new], slots[new]] = 0
        self._generation[at[new], slots[new]] = generation[new]

    def unfinished(self, ended: Array) -> tuple[int, int] | None:
        """Return a CTA of those that ended and a thread that had arrived, and did not wait; None if there is none."""
        if self._column is None:
            return None
        slots, threads = self._last.shape
        every = np.arange(slots)
        actors = Actors.now(self._clocks, every, np.arange(threads))
        known = actors.view.known[DONE][every[:, None], actors.place, 0, self._column]
        late = (self._last >= known) & np.isin(every, ended)[:, None]
        if not late.any():
            return None
        slot, thread = np.argwhere(late)[0].tolist()
        return slot, thread


def _generations(generation: Array) -> list[Array]:
    """Group CTAs that take part in the same generation: their positions."""
    return [np.flatnonzero(generation == g) for g in values_in(generation)]
