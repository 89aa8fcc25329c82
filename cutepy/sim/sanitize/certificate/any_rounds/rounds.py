"""Rounds of loops in a run: the state and the phases of each round, by class of lanes that did the same.

Events are noted as they come, and looked at when CTAs end. Lanes of a cluster that did the same in all are one *class*;
clusters whose lanes did the same are looked at once. Of each class, what it did is a sequence of *deeds*, cut into
rounds where a loop begins anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cutepy.sim.machine.events import (
    BLOCKED,
    Barrier,
    ClusterArrive,
    GenerationEvent,
    MbarrierArrive,
    MbarrierCompleteTx,
    MbarrierCount,
    MbarrierEvent,
    MbarrierExpectArrivals,
    MbarrierExpectTx,
    MbarrierTry,
    MbarrierWait,
    NamedBarrierArrive,
    NamedBarrierJoin,
    part_of,
)
from cutepy.sim.machine.lanes import WARP, WARPGROUP, as_index

if TYPE_CHECKING:
    from cutepy.sim.machine.events import AsyncOperation, BarrierEvent
    from cutepy.sim.machine.lanes import Array, Index
    from cutepy.sim.machine.observer import Step
    from cutepy.sim.sanitize.certificate.any_rounds.loops import Loop

LIMIT = 1 << 16
"""Events that are kept of CTAs that are resident together."""
_MIX = np.uint64(0x9E3779B97F4A7C15)
_NOUGHT = np.zeros((1, 1), np.int64)
_ROUND = "round"
_UNITS = WARP, WARPGROUP
_LABELLED = (
    MbarrierArrive,
    MbarrierExpectTx,
    MbarrierCompleteTx,
    MbarrierExpectArrivals,
    MbarrierWait,
    NamedBarrierArrive,
    NamedBarrierJoin,
    ClusterArrive,
)

Thing = tuple[Barrier, int]
"""Barrier that counts phases or generations, and the CTA of the cluster that it belongs to."""


class _Row(NamedTuple):
    """Something that lanes, a rectangle, did at a time, and values of it by lane."""

    time: int
    since: int
    code: int
    slots: Array
    threads: Array
    values: Sequence[Array]


class _Noted(NamedTuple):
    """Record of an event, of an asynchronous operation that is issued, or of the beginning of a round."""

    since: int
    kind: type[BarrierEvent] | str
    instruction: int
    barrier: Barrier | None
    slots: Array
    threads: Array
    phase: Array | None = None
    of: Array | None = None
    deliveries: Array | None = None
    values: Sequence[Array] = ()


class Deed(NamedTuple):
    """Something that a class of lanes did.

    Attributes
    ----------
    time, since : int
        When it took effect, and when it was issued.
    what : int
        Names instruction, operation, and at which barrier.
    instruction : int
        Its index.
    thing : Thing or None
        What it counted at, or waited for.
    phase : int
        The phase or generation.
    state : tuple of int or None
        Where a round begins, what came around the loop and steers.
    waits : bool
        Whether it only waits for that phase, and does not count in it.
    """

    time: int
    since: int
    what: int
    instruction: int
    thing: Thing | None
    phase: int
    state: tuple[int, ...] | None
    waits: bool = False


class Visit(NamedTuple):
    """A class of lanes in a loop, from where they come to it until they leave it.

    Attributes
    ----------
    loop : Loop
    of : int
        The class.
    times : list of int
        When each round began.
    states : list of tuple of int
        What came around the loop and steers, as each round began.
    counted : list of tuple of int
        What is compared by what steers, as of `Loop.counting`.
    rounds : list of list of Deed
        What was done in each but the last one, which may end elsewhere.
    """

    loop: Loop
    of: int
    times: list[int]
    states: list[tuple[int, ...]]
    counted: list[tuple[int, ...]]
    rounds: list[list[Deed]]


class Classes(NamedTuple):
    """The lanes of a cluster, by what they did.

    Attributes
    ----------
    deeds : list of list of Deed
        What each class did, in order.
    beside : dict of int to list of set of int
        By the threads of a unit, the other classes that some lanes of a class share one with.
    """

    deeds: list[list[Deed]]
    beside: dict[int, list[set[int]]]


class RoundNotes:
    """Events and rounds of CTAs that are resident together.

    Parameters
    ----------
    slots, threads, cluster : int
        How many CTAs there are, threads of each, and CTAs of a cluster.
    """

    def __init__(self, slots: int, threads: int, cluster: int) -> None:
        self._shape, self._cluster = (slots, threads), cluster
        self._kept: list[_Noted] = []
        self._issued: dict[int, tuple[int, AsyncOperation]] = {}
        self.is_full = False

    def _add(self, what: _Noted) -> None:
        if len(self._kept) < LIMIT:
            self._kept.append(what)
        else:
            self.is_full = True

    def see(self, event: BarrierEvent) -> None:
        """Note an event."""
        if isinstance(event, BLOCKED):
            return
        slots, threads, since, part = event.ctas.slots, event.threads.ids, len(self._kept), part_of(event)
        barrier: Barrier | None = None
        phase = of = deliveries = None
        if isinstance(event, MbarrierEvent):
            barrier, of = event.barrier, event.slots
            if isinstance(event, MbarrierTry):
                phase = event.tried
            elif isinstance(event, MbarrierCount):
                phase = event.counted
        elif isinstance(event, GenerationEvent):
            barrier, phase = event.barrier, event.generation
        if part is not None:
            since = self._issued.get(id(part), (since,))[0]
            if isinstance(event, MbarrierCompleteTx) and event.deliveries is not None:
                slots, threads, of, deliveries = part.ctas.slots, part.threads.ids, event.state.slots, event.deliveries
        i = event.instruction.index
        self._add(_Noted(since, type(event), i, barrier, slots, threads, phase, of, deliveries))

    def issue(self, operation: AsyncOperation) -> None:
        """Note an operation that is issued."""
        now, i = len(self._kept), operation.instruction.index
        self._issued[id(operation)] = now, operation
        self._add(_Noted(now, operation.kind, i, None, operation.ctas.slots, operation.threads.ids))

    def complete(self, operation: AsyncOperation) -> None:
        """Forget an operation that is complete."""
        self._issued.pop(id(operation), None)

    def begin(self, step: Step, values: Sequence[Array]) -> None:
        """Note the beginning of a round, and what comes around the loop."""
        now, i = len(self._kept), step.instruction.index
        small = [_small(value) for value in values]
        self._add(_Noted(now, _ROUND, i, None, step.ctas.slots, step.threads.ids, values=small))

    def clusters(self) -> Iterator[Classes]:
        """Yield what each class of lanes did in a cluster, once for all clusters in which the same was done."""
        names: list[tuple[object, ...]] = []
        rows = list(self._rows(names))
        seen = np.zeros(self._shape, np.uint64)
        lanes: dict[tuple[int, int], tuple[Index, Index]] = {}
        for row in rows:
            key = id(row.slots), id(row.threads)  # arrays of the same lanes are shared
            if key not in lanes:
                lanes[key] = _rectangle(row.slots, row.threads)
            mixed = np.array([[row.code + 1]], np.uint64)  # what is the same for all lanes is mixed once
            for value in row.values:
                mixed = (mixed ^ (mixed >> np.uint64(29))) * _MIX + value.astype(np.uint64)
            here = seen[lanes[key]]
            here *= _MIX
            here += mixed
            seen[lanes[key]] = here
        whole = seen.reshape(-1, self._cluster * self._shape[1])
        for one in np.unique(whole, axis=0, return_index=True)[1].tolist():
            _, classes = np.unique(whole[one], return_inverse=True)
            classes = classes.reshape(self._cluster, -1)
            yield Classes(self._deeds(one, classes, rows, names), {unit: _beside(classes, unit) for unit in _UNITS})

    def _deeds(self, one: int, classes: Array, rows: list[_Row], names: list[tuple[object, ...]]) -> list[list[Deed]]:
        """Return what each class of a cluster did, in order."""
        found: list[list[Deed]] = [[] for _ in range(int(classes.max()) + 1)]
        lanes: dict[tuple[bytes, bytes], list[tuple[int, int, int]]] = {}
        for row in rows:
            key = row.slots.tobytes(), row.threads.tobytes()
            if key not in lanes:
                mine = np.flatnonzero(row.slots // self._cluster == one)
                here = classes[(row.slots[mine] % self._cluster)[:, None], row.threads]
                which, at = np.unique(here, return_index=True)
                places = mine[at // len(row.threads)], at % len(row.threads)
                lanes[key] = list(zip(which.tolist(), *(place.tolist() for place in places), strict=True))
            index, kind, barrier = names[row.code][:3]
            assert isinstance(index, int)
            for of, slot, thread in lanes[key]:
                lane = [int(v[slot % v.shape[0], thread % v.shape[1]]) for v in row.values]
                deed = Deed(row.time, row.since, row.code, index, None, 0, None)
                if kind == _ROUND:
                    deed = deed._replace(state=tuple(lane))
                elif lane:
                    assert isinstance(barrier, Barrier)
                    thing = barrier, lane[0]
                    deed = deed._replace(thing=thing, phase=lane[1], waits=kind is MbarrierWait)
                found[of].append(deed)
        return [_once(sorted(some, key=lambda deed: deed.since)) for some in found]

    # Events as rows.

    def _rows(self, names: list[tuple[object, ...]]) -> Iterator[_Row]:
        codes: dict[tuple[object, ...], int] = {}

        def code(*name: object) -> int:
            if name not in codes:
                codes[name] = len(names)
                names.append(name)
            return codes[name]

        for time, what in enumerate(self._kept):
            if what.deliveries is not None:
                yield from self._deliveries(time, what, code)
            else:
                name = code(what.instruction, what.kind, what.barrier)
                yield _Row(time, what.since, name, what.slots, what.threads, self._values(what))

    def _values(self, what: _Noted) -> Sequence[Array]:
        """Return what comes around a loop, or whose barrier lanes acted on, and in which phase."""
        if what.phase is None or what.kind not in _LABELLED:
            return what.values
        of = what.slots[:, None] if what.of is None else what.of
        return _small(_NOUGHT if what.kind is ClusterArrive else of % self._cluster), _small(what.phase)

    def _deliveries(self, time: int, what: _Noted, code: Callable[..., int]) -> Iterator[_Row]:
        """Yield what copies brought, by destination in the cluster and lane that issued them."""
        pairs, of = what.deliveries, what.of
        assert pairs is not None
        assert of is not None
        assert what.phase is not None
        if len(pairs) == 1:  # a copy by one lane to one CTA, of which kernels issue thousands
            (slot, row, lane), phase = pairs[0].tolist(), np.broadcast_to(what.phase, of.shape)[of == pairs[0, 0]]
            rank = slot % self._cluster
            name = code(what.instruction, what.kind, what.barrier, rank)
            values = np.array([[rank]]), phase[:1, None]
            yield _Row(time, what.since, name, what.slots[row : row + 1], what.threads[lane : lane + 1], values)
            return
        phases = dict(zip(of.tolist(), np.broadcast_to(what.phase, of.shape).tolist(), strict=True))
        ranks = pairs[:, 0] % self._cluster
        for rank, lane in np.unique(np.stack([ranks, pairs[:, 2]], axis=1), axis=0).tolist():
            here = pairs[(ranks == rank) & (pairs[:, 2] == lane)]
            slots, first = np.unique(what.slots[here[:, 1]], return_index=True)
            phase = np.array([phases[slot] for slot in here[first, 0].tolist()])
            values = np.array([[rank]]), phase[:, None]
            name = code(what.instruction, what.kind, what.barrier, rank)
            yield _Row(time, what.since, name, slots, what.threads[lane : lane + 1], values)


def _beside(classes: Array, unit: int) -> list[set[int]]:
    """Return which classes of lanes, by CTA and thread, are in units of so many threads together, without itself."""
    found: list[set[int]] = [set() for _ in range(int(classes.max()) + 1)]
    for here in classes:
        for first in range(0, len(here), unit):
            together = set(here[first : first + unit].tolist())
            for one in together:
                found[one] |= together - {one}
    return found


def _rectangle(slots: Array, threads: Array) -> tuple[Index, Index]:
    """Return an index of lanes, of slices where they are evenly spaced."""
    rows, columns = as_index(slots), as_index(threads)
    if isinstance(rows, slice) or isinstance(columns, slice):
        return rows, columns
    return slots[:, None], threads


def _small(value: Array) -> Array:
    """Return values by CTA and thread, with extent 1 where they do not vary."""
    value = np.asarray(value)
    value = value.reshape((1,) * (2 - value.ndim) + value.shape)
    return value[:1, :1] if (value == value[:1, :1]).all() else value


def _once(deeds: list[Deed]) -> list[Deed]:
    """Drop tries that are made again: they are one wait."""
    return [b for n, b in enumerate(deeds) if not n or b.thing is None or deeds[n - 1][2:] != b[2:]]


def visits(deeds: list[Deed], of: int, loops: Sequence[Loop]) -> list[Visit]:
    """Cut what a class of lanes did into visits of loops, and these into rounds."""
    by_head = {loop.head: loop for loop in loops}
    found: list[Visit] = []
    now: dict[int, Visit] = {}
    for deed in deeds:
        for head in [head for head in now if deed.instruction not in by_head[head].instructions]:
            del now[head]
        begins = by_head.get(deed.instruction) if deed.state is not None else None
        noted, size = deed.state or (), 0 if begins is None else len(begins.state)
        if begins is not None:
            deed = deed._replace(state=noted[:size])  # what is counted is this loop's matter
        for head, visit in now.items():
            if begins is None or head != begins.head:
                visit.rounds[-1].append(deed)
        if begins is None:
            continue
        if begins.head not in now:
            now[begins.head] = Visit(begins, of, [], [], [], [])
            found.append(now[begins.head])
        visit = now[begins.head]
        visit.times.append(deed.time)
        visit.states.append(noted[:size])
        visit.counted.append(noted[size:])
        visit.rounds.append([])
    for visit in found:
        visit.rounds.pop()
    return found
