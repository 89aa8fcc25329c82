"""Happens-before of two accesses to global memory, lane by lane, and the kind of hazard where it is missing.

References
----------
PTX ISA, "Memory Consistency Model": "Morally strong operations", "Causality Order", "Conflict and Data-races",
"Proxies".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cutepy.sim.machine.lanes import Array, spread
from cutepy.sim.ptx.memory_order import CLUSTER, CTA, GPU, overlap_completely
from cutepy.sim.sanitize.memory.access_record import unfenced
from cutepy.sim.sanitize.memory.global_access_record import GlobalAccessRecord, code_of
from cutepy.sim.sanitize.order.clocks import DONE, FENCED, SEEN, UNFENCED, Need, need
from cutepy.sim.sanitize.order.lane_pairs import LanePairs, candidates, mates, tell

if TYPE_CHECKING:
    from cutepy.sim.sanitize.memory.global_shadow import Order
    from cutepy.sim.sanitize.order.lane_pairs import Election
    from cutepy.sim.sanitize.order.launches import Launches
    from cutepy.sim.sanitize.order.messages import Messages
    from cutepy.sim.sanitize.order.wave import Wave

ClockLookup = Callable[[int, Array, Array, Array], Array]
"""Plane, lanes of a touch, ranks and columns -> what each lane knows of each."""


def held_by_threads(wave: Wave, touch: GlobalAccessRecord) -> ClockLookup:
    """Return the present knowledge of the lanes of a touch by threads, except clocks that are not joined yet."""

    def held(plane: int, lanes: Array, ranks: Array, columns: Array) -> Array:
        assert touch.threads is not None
        rows, at = np.divmod(lanes, touch.lanes)
        return wave.clocks.held(plane, touch.slots[rows], touch.threads[at], ranks, columns, joins=False)

    return held


def _join(wave: Wave, touch: GlobalAccessRecord, lanes: Array) -> bool:
    """Join the acquired clocks of some lanes of a touch, if it is by threads; return whether that is more."""
    if touch.threads is None or not wave.clocks.have_acquired:
        return False
    rows, at = np.divmod(lanes, touch.lanes)
    return wave.clocks.join(touch.slots[np.unique(rows)], touch.threads[np.unique(at)])


def held_at_issue(known: Array) -> ClockLookup:
    """Return the async proxy's knowledge for lanes that issued an operation: (plane, lane, rank, column)."""

    def held(plane: int, lanes: Array, ranks: Array, columns: Array) -> Array:
        last = known.shape[-1] - 1
        found = known[plane, lanes, ranks, np.minimum(columns, last)]
        return np.where(columns <= last, found, 0)

    return held


def _held_by_host(plane: int, lanes: Array, ranks: Array, columns: Array) -> Array:
    """Return 0 for each lane: the host knows ended launches, and no threads of running ones."""
    return np.zeros(len(lanes), np.int32)


class _WarpNeighbours(NamedTuple):
    """Other lanes of the warps of pairs of lanes, `before` and `after`: see `OtherLanes`.

    `knows` tells by pair whether the newer lane knows what the older one did, as it must.
    """

    old: GlobalAccessRecord
    new: GlobalAccessRecord
    before: Array
    after: Array
    knows: Callable[[Array, Array], Array]

    def are_known(self, pairs: Array) -> Array:
        """Return whether the newer lane knows all accesses that the older lane's warp made together with it."""
        return self._all(self.old, self.before[pairs], lambda others, n: self.knows(others, self.after[pairs][n]))

    def know(self, pairs: Array) -> Array:
        """Return whether all lanes of the newer lane's warp that take part with it know the older lane's access."""
        return self._all(self.new, self.after[pairs], lambda others, n: self.knows(self.before[pairs][n], others))

    @staticmethod
    def _all(of: GlobalAccessRecord, lanes: Array, known: Callable[[Array, Array], Array]) -> Array:
        result = np.ones(len(lanes), bool)
        threads = of.issuers if of.threads is None else of.threads
        if threads is not None and len(threads) == of.lanes and len(lanes):
            rows, places = np.divmod(lanes, of.lanes)
            at, there = mates(threads, places)
            n, k = np.nonzero(there)
            np.logical_and.at(result, n, known(rows[n] * of.lanes + at[n, k], n))
        return result


class GlobalOrder:
    """Order of accesses to global memory.

    Parameters
    ----------
    launches : Launches
    messages : Messages

    Attributes
    ----------
    elections : tuple of Election
        Told of accesses whose order may rest on them.
    """

    def __init__(self, launches: Launches, messages: Messages) -> None:
        self._launches, self._messages = launches, messages
        self.elections: tuple[Election, ...] = ()

    def of(self, wave: Wave | None = None, held: ClockLookup = _held_by_host) -> Order:
        """Return a function that gives by pair of lanes the code of the hazard, in `CONFLICTS`, that the pair is.

        The newer lanes are of who holds the knowledge.
        """

        def order(old: GlobalAccessRecord, new: GlobalAccessRecord, before: Array, after: Array) -> Array:
            if (self._launches.precedes if old.writes else self._launches.reads_no_more)(old.launch):
                return np.zeros(len(before), np.uint8)
            in_launch = old.launch == new.launch
            if in_launch and "tensormap" in (old.proxy, new.proxy):  # TensorMapUses and TensorMapReads see to these
                return np.zeros(len(before), np.uint8)
            if new.proxy == "nc" and old.writes and in_launch:
                return np.full(len(before), code_of("non-coherent-read"), np.uint8)
            crosses = new.proxy == "async" and old.proxy != "async"

            def known(plane: int) -> Array:
                return self.knows(wave, held, plane, old, new, before, after)

            strong = _include_each_other(old, new, before, after)
            is_whole = overlap_completely(old.instruction.opcode, new.instruction.opcode)
            needed = need(old.writes, old.proxy == "async", crosses)
            fine = needed.of(known)
            lacking = after if self.elections else after[~(fine | strong if is_whole else fine)]
            if wave is not None and len(lacking) and _join(wave, new, lacking):
                fine = needed.of(known)
            if in_launch and wave is not None and self.elections:
                self._tell(wave, held, needed, old, new, before[fine & ~strong], after[fine & ~strong])
            if is_whole:
                fine |= strong
            if fine.all():
                return np.zeros(len(before), np.uint8)
            result = np.full(len(before), code_of(self._kind(old, new)), np.uint8)
            if not is_whole:
                result[strong] = code_of("partial-overlap")
            result[known(DONE)] = code_of("too-narrow-scope")  # it is known to be over, and was not shown
            if crosses:
                result[UNFENCED[old.writes].of(known)] = code_of(unfenced(old.writes))
            result[fine] = 0
            return result

        return order

    def _tell(
        self,
        wave: Wave,
        held: ClockLookup,
        needed: Need,
        old: GlobalAccessRecord,
        new: GlobalAccessRecord,
        before: Array,
        after: Array,
    ) -> None:
        """Tell elections of pairs of lanes that are in order, where they may rest on which lane is elected."""
        (of, at), (to, by) = np.divmod(before, old.lanes), np.divmod(after, new.lanes)
        columns, counts = (
            np.broadcast_to(numbers, (len(old.ctas), old.lanes))[of, at] for numbers in (old.columns, old.counts)
        )
        old_threads = wave.clocks.owner[columns] if old.threads is None else old.threads[at]
        issuers = new.issuers if new.threads is None else new.threads
        new_threads = np.full(len(to), -1) if issuers is None else issuers[by]
        here = candidates(self.elections, old_threads, new_threads)
        here = here[np.unique(before[here] * len(new.ctas) * new.lanes + after[here], return_index=True)[1]]
        if not len(here):
            return
        before, after, of, to = before[here], after[here], of[here], to[here]
        near = np.flatnonzero(old.clusters[of] == new.clusters[to])
        known = np.full(len(here), -1)
        known[near] = held(SEEN if old.writes else DONE, after[near], old.ranks[of[near]], columns[here][near])

        def knows(before: Array, after: Array) -> Array:
            return needed.of(lambda plane: self.knows(wave, held, plane, old, new, before, after))

        ctas = old.ctas[of], new.ctas[to]
        pairs = LanePairs(
            old.instruction, new.instruction, *ctas, old_threads[here], new_threads[here], counts[here], known
        )
        tell(self.elections, pairs, _WarpNeighbours(old, new, before, after, knows))

    def _kind(self, old: GlobalAccessRecord, new: GlobalAccessRecord) -> str:
        """Return the kind of hazard of touches that nothing orders."""
        if old.launch != new.launch and self._launches.share_stream(old.launch):
            return "early-access"
        if old.scope and new.scope and old.proxy == new.proxy:
            return "too-narrow-scope"
        return "unordered-write" if new.writes else "unordered-read"

    def sees(self, wave: Wave, old: GlobalAccessRecord, new: GlobalAccessRecord, before: Array, after: Array) -> Array:
        """Return by pair whether the newer lane, of threads, sees the older one's write."""
        _join(wave, new, after)
        return self.knows(wave, held_by_threads(wave, new), SEEN, old, new, before, after)

    def knows(
        self,
        wave: Wave | None,
        held: ClockLookup,
        plane: int,
        old: GlobalAccessRecord,
        new: GlobalAccessRecord,
        before: Array,
        after: Array,
    ) -> Array:
        """Mark the pairs whose newer lane knows the older lane's access in a plane: complete, visible or fenced."""
        if plane != FENCED or wave is None:
            return self._knows(wave, held, plane, old, new, before, after)
        crosses = new.proxy == "async" and old.proxy != "async"
        planes = wave.clocks.fenced_in(new.ranks[after // new.lanes]) if crosses else wave.clocks.fenced_global
        result = self._knows(wave, held, None, old, new, before, after)
        for one in () if planes is None else np.unique(planes).tolist():
            by = np.broadcast_to(planes == one, len(before))
            result[by] = self._knows(wave, held, one, old, new, before[by], after[by])
        return result

    def _knows(
        self,
        wave: Wave | None,
        held: ClockLookup,
        plane: int | None,
        old: GlobalAccessRecord,
        new: GlobalAccessRecord,
        before: Array,
        after: Array,
    ) -> Array:
        """Return by pair the knowledge in one plane, or, without one, of launches that are waited for."""
        result = np.zeros(len(before), bool)
        if wave is None:
            return result
        for launches, column in wave.over.items():  # what launches wait for is visible to all proxies
            if launches >> old.launch & 1:
                result |= held(SEEN, after, np.zeros_like(before), np.full(len(before), column)) > 0
        if plane is None:
            return result
        of, at = np.divmod(before, old.lanes)
        shape = len(old.ctas), old.lanes
        ranks, clusters = old.ranks[of], old.clusters[of]
        columns, counts = spread(old.columns, shape)[of, at], spread(old.counts, shape)[of, at]
        near = (clusters == new.clusters[after // new.lanes]) & (old.launch == new.launch)
        result[near] = held(plane, after[near], ranks[near], columns[near]) >= counts[near]
        if self._messages.any_sent:
            for cluster in np.unique(clusters[~near & ~result]).tolist():
                far = np.flatnonzero(~near & ~result & (clusters == cluster))

                def known(plane: int, column: int, far: Array = far) -> Array:
                    return held(plane, after[far], np.zeros_like(far), np.full(len(far), column))

                where = old.launch, cluster
                result[far] = self._messages.cover(plane, where, ranks[far], columns[far], counts[far], wave, known)
        return result


def _include_each_other(old: GlobalAccessRecord, new: GlobalAccessRecord, before: Array, after: Array) -> Array:
    """Mark the pairs of strong accesses of one proxy whose scopes include each other."""
    if not (old.scope and new.scope) or old.proxy != new.proxy:
        return np.zeros(len(before), bool)
    of, to = before // old.lanes, after // new.lanes
    needed = np.full(len(before), GPU)
    if old.launch == new.launch:
        needed[old.clusters[of] == new.clusters[to]] = CLUSTER
        needed[old.ctas[of] == new.ctas[to]] = CTA
    result: Array = needed <= min(old.scope, new.scope)
    return result
