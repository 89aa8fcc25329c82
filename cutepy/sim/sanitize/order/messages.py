"""Messages through memory: a release by a write, and an acquire by a read of the value that was written.

A release pattern leaves a *message* at the location that it writes: the clock of its thread. Messages at a location
form a sequence. A read-modify-write adds its message to the sequence, if it is morally strong with the last write of
the location. Any other write begins a new sequence. A read that is morally strong with the last write observes the
whole sequence. An acquire pattern that begins with such a read acquires those messages whose first operation is morally
strong with the last operation of the pattern. A single lane stores only the length of the acquired sequence, until a
check needs the clock of the lane.

Threads of one cluster know each other by `Clocks`. A thread knows other clusters by messages, which are numbered in
*chains*: the sender of a message knows all earlier messages of its chain. So there are as many chains as unordered
senders; a lock that passes through a thousand threads needs one chain. Each chain is a column of the clocks, and
barriers join it like any other column. A message enters a chain only when another cluster acquires it. A message may
come back to the cluster of its sender through other clusters. Then its clock is joined into `Clocks`, so that the clock
of a thread has all that the thread knows of its own cluster.

References
----------
PTX ISA, "Memory Consistency Model": "Morally strong operations", "Observation Order", "Release and Acquire Patterns",
"Synchronizes".
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.machine.lanes import WARP, Array, spread
from cutepy.sim.ptx.memory_order import GPU, SYS, WEAK, Strength, is_sc, strength
from cutepy.sim.sanitize.order.clocks import DONE, NO_COLUMNS, SEEN, AcquiredClock, hide, joined, rectangle, widened
from cutepy.sim.sanitize.order.locations import Locations, Writes, elements, repeated
from cutepy.sim.sanitize.order.published import (
    Cluster,
    Location,
    Message,
    ObservedValue,
    Release,
    ReleasePattern,
    ReleaseSequence,
    Sender,
    SequenceClock,
    Snapshot,
    StrongOperation,
    observers,
    releases_to_launches,
    widest_acquire,
)
from cutepy.sim.sanitize.order.sc_fences import ScFences
from cutepy.sim.sanitize.order.wave import CHAIN

if TYPE_CHECKING:
    from cutepy.sim.machine.events import Access, Fence
    from cutepy.sim.machine.launch import Launch
    from cutepy.sim.sanitize.order.wave import Wave

Lane = tuple[int, int]
"""A resident CTA, by slot, and a thread of it."""

_NOTHING = ObservedValue(ReleaseSequence(), 0)
_MOST_READS = 16
"""Of a thread, how many values that it has read at a place, and not acquired so far, are kept."""


_MOST_CLUSTERS = 64
"""Of a sequence, for how many readers a clock is kept."""


@dataclass(frozen=True, eq=False, slots=True)
class _ObservedMessages:
    """Acquired messages of an operation, looked up when a check needs them: see `AcquiredClock`."""

    messages: Messages
    wave: Wave
    by: StrongOperation
    observed: ObservedValue

    @property
    def source(self) -> object:
        return self.observed.sequence.origin

    @property
    def count(self) -> int:
        return self.observed.length

    @property
    def is_deep(self) -> bool:
        return self.observed.sequence.is_deep

    def clock(self) -> Array:
        return self.messages.clock(self.wave, self.by, self.observed)


@dataclass(frozen=True, eq=False, slots=True)
class _JoinedMessages:
    """Return the messages that an operation has acquired, as a clock."""

    what: Array
    count: int = 0
    is_deep: bool = False

    @property
    def source(self) -> object:
        return self

    def clock(self) -> Array:
        return self.what


class Messages:
    """Messages: clocks that a run publishes through memory.

    Attributes
    ----------
    launch : int
        The launch that runs, by number.
    released : Snapshot or None
        Clocks of the threads that released by the last access.
    """

    def __init__(self) -> None:
        self.launch = 0
        self.released: Snapshot | None = None
        self._releasing: tuple[Snapshot, int, int] | None = None  # and whose release follows what it acquires
        self._acquirers: dict[int, frozenset[int]] = {}
        self._widest = WEAK
        self._is_followed = False
        self._wave: Wave | None = None
        self._forget()

    def _forget(self) -> None:
        """Forget all messages: their senders have ended, and all later operations know of them."""
        self._locations = Locations()
        self._order = 0
        self._before: dict[int, int] = {}
        self._tails: list[ReleasePattern] = []  # by chain, what was sent last
        self._counts: Array = np.zeros(0, np.int32)  # by chain, of that
        self._sent: dict[Cluster, dict[int, tuple[list[int], list[Message]]]] = {}
        self._last_of: dict[Sender, int] = {}
        self._begin_wave(None)

    def _begin_wave(self, wave: Wave | None) -> None:
        """Begin with CTAs that become resident: clocks published through shared memory are gone."""
        if self._wave is not None:
            self._wave.clocks.end()
        self._wave = wave
        self._fences: Array | None = None  # (scope, CTA, thread): what the last fence of each scope releases, or None
        self._sc = ScFences()
        self._pending: dict[Lane, dict[int, list[ObservedValue]]] = {}  # which later operations may acquire, by key
        self._strong: dict[tuple[int, int], StrongOperation] = {}  # by CTA and scope
        self._locations.end_shared()

    def begin(self, number: int, launch: Launch, before: int, alone: bool) -> None:
        """Begin with a launch, with nothing that runs beside it if it is alone.

        `before`: the operations, as bits, that were complete before it began, which its messages say too.
        """
        if alone:
            self._forget()
        self.launch, self._before[number] = number, before
        self._widest = widest_acquire(launch.entry)
        # A relaxed read, too, acquires by what comes after it.
        self._acquirers = observers(launch.entry) if self._widest else {}
        self._is_followed = bool(self._acquirers) or not alone or releases_to_launches(launch.entry)

    @property
    def any_sent(self) -> bool:
        """True if a cluster has acquired something from another one."""
        return bool(self._sent)

    def fenced(self, lane: Lane) -> ReleasePattern | None:
        """Return the release of the last fence of a thread, if it is known."""
        fences = [] if self._fences is None else [one for one in self._fences[:, *lane] if one is not None]
        last = max(fences, key=lambda one: one.order, default=None)
        return None if last is None else last.of_thread(*lane)

    # Operations of threads.

    def before(self, wave: Wave, access: Access) -> None:
        """Join the messages at read locations into the readers' clocks, before the order of the read is checked."""
        if self._locations and access.operation != "write" and strength(access.instruction.opcode).acquires:
            self._take(wave, access, writes=False)

    def after(self, wave: Wave, access: Access) -> None:
        """Take an access by threads, one after the other: they leave messages, and those that follow find them."""
        self.released = None
        writes = access.operation != "read" and (access.stores is None or bool(access.stores.any()))
        if self._is_followed and (writes or not strength(access.instruction.opcode).acquires):
            self._take(wave, access, writes)

    def _take(self, wave: Wave, access: Access, writes: bool) -> None:
        how = strength(access.instruction.opcode)
        if wave is not self._wave:
            self._begin_wave(wave)
        reads = access.operation != "write"
        slots, threads = access.ctas.slots, access.threads.ids
        fences = self._fences if writes and how.scope else None
        if not (writes and how.releases) and fences is None and not (self._locations and (writes or how.scope)):
            return
        touched = elements(access)
        if touched is None:
            return
        keys, size = touched
        looked_at = self._acquirers.get(access.instruction.index, frozenset()) if reads and how.scope else frozenset()
        if not writes:
            for n in sorted(looked_at):
                self._find(wave, slots, threads, keys[..., n], size, how)
            return
        at = rectangle(slots, threads)
        self.released = Snapshot(wave, self.launch, slots, threads) if how.releases else None
        release = None if self.released is None else self._release(self.released, how.scope)
        before = None if fences is None else fences[:, *at].copy()
        sc = self._sc.before(wave, self.launch, slots, threads) if how.scope >= GPU else None
        passed = None if sc is None else self._release(sc, how.scope)
        near = self._locations.are_near(keys)
        # Another thread of this access may find what one leaves.
        asked = near | repeated(keys) if looked_at else near
        sends = np.ones(near.shape[:2], bool)
        if release is None and passed is None:
            sends = np.zeros_like(sends) if before is None else (before != None).any(axis=0)  # noqa: E711 - by element
        stores = True if access.stores is None else spread(access.stores, near.shape[:2])[..., None]
        left = ((near | sends[..., None]) & stores).reshape(-1)
        asked, keys = asked.reshape(-1), keys.reshape(-1)
        by = [self._by(wave, slot, how.scope) for slot in slots.tolist()]
        written = Writes(keys, near.shape, size, reads, self.launch, wave.residents.blocks, by, slots, threads)
        written = written._replace(release=release, fences=before, passed=passed)
        self._locations.mark(keys[left])
        if not looked_at:
            self._locations.write(written, np.flatnonzero(left))
            return
        self._locations.write(written, np.flatnonzero(left & ~asked))
        for element in np.flatnonzero(asked).tolist():
            row, column = written.lane(element)
            if element % near.shape[2] in looked_at:
                self._releasing = None if self.released is None else (self.released, row, column)
                slot, key = int(slots[row]), int(keys[element])
                found = self._locations.get(key, size)
                self._read(wave, slot, threads[column : column + 1], key, found, how)
                self._releasing = None
            if left[element]:
                self._locations.apply(written, element)

    def _find(self, wave: Wave, slots: Array, threads: Array, keys: Array, size: int, how: Strength) -> None:
        """Take reads of one element each, (CTA, thread): the threads of a CTA that read the same learn it at once."""
        near = self._locations.are_near(keys)
        for key in dict.fromkeys(keys[near].tolist()):
            found = self._locations.get(key, size)
            if found is not None or self._pending:
                here = keys == key
                for row in np.flatnonzero(here.any(axis=1)).tolist():
                    self._read(wave, int(slots[row]), threads[here[row]], key, found, how)

    def _read(self, wave: Wave, slot: int, threads: Array, key: int, found: Location | None, how: Strength) -> None:
        """Let threads of a CTA observe the value at a location, which they acquire, or a later operation of theirs."""
        observed = passed = _NOTHING
        if found is not None and found.last.includes(self._by(wave, slot, how.scope)):
            observed, passed = found.carries.observed(), found.passed.observed()
        is_over = how.acquires and how.scope >= self._widest
        for thread in threads.tolist() if self._pending or (observed.length and not is_over) else ():
            self._acquire_earlier(wave, (slot, thread), key, how)
            if observed.length and not is_over:
                self._keep((slot, thread), key, observed)
        if observed.length and how.acquires:
            self._learn(wave, slot, threads, observed, how.scope)
        for thread in threads.tolist() if passed.length and how.scope >= GPU else ():
            self._sc.read(wave, (slot, thread), passed)

    def _acquire_earlier(self, wave: Wave, lane: Lane, key: int, how: Strength) -> None:
        """Acquire a thread's earlier reads of a location, which an operation of a wider scope may do once more."""
        mine = self._pending.get(lane)
        if mine is None or not how.acquires:
            return
        for earlier in mine.get(key, ()):
            self._learn(wave, lane[0], np.array(lane[1:]), earlier, how.scope)
        if how.scope >= self._widest:
            mine.pop(key, None)
            if not mine:
                del self._pending[lane]

    def _keep(self, lane: Lane, key: int, observed: ObservedValue) -> None:
        """Keep a thread's read of a location."""
        mine = self._pending.setdefault(lane, {}).setdefault(key, [])
        if mine and mine[-1].sequence.origin is observed.sequence.origin:
            mine.pop()
        mine.append(observed)
        del mine[:-_MOST_READS]

    def _by(self, wave: Wave, slot: int, scope: int) -> StrongOperation:
        """Return an operation by threads of a CTA."""
        found = self._strong.get((slot, scope))
        if found is None:
            blocks, size = wave.residents.blocks, wave.clocks.cluster
            found = StrongOperation((self.launch, int(blocks[slot // size * size])), int(blocks[slot]), scope)
            self._strong[slot, scope] = found
        return found

    def _release(self, snapshot: Snapshot, scope: int) -> Release:
        """Return the release of threads by an instruction."""
        self._order += 1
        return Release(scope, snapshot, self._order)

    def fence(self, wave: Wave, event: Fence) -> None:
        """Take a fence: threads acquire their reads, and their later writes release their present knowledge."""
        how = strength(event.instruction.opcode)
        if how.scope == WEAK or not self._is_followed:
            return
        if wave is not self._wave:
            self._begin_wave(wave)
        slots, threads = event.ctas.slots, event.threads.ids
        hidden = wave.hidden_from(event.instruction)
        rows, columns = {*slots.tolist()}, {*threads.tolist()}
        acquiring = [lane for lane in self._pending if lane[0] in rows and lane[1] in columns] if how.acquires else []
        for lane in acquiring:
            for observed in itertools.chain.from_iterable(self._pending[lane].values()):
                self._learn(wave, lane[0], np.array(lane[1:]), observed, how.scope, hidden)
            if how.scope >= self._widest and not len(hidden):
                del self._pending[lane]
        sc = is_sc(event.instruction.opcode) and how.scope >= GPU
        for slot in slots.tolist() if sc else ():
            for observed, after in self._sc.after(wave, slot, threads):
                self._learn(wave, slot, after, observed, how.scope)
        if how.releases:
            reached = wave.writes(slots, threads), wave.clocks.counts(slots, threads)
            snapshot = Snapshot(wave, self.launch, slots, threads, hidden)
            if self._fences is None:
                self._fences = np.full((SYS + 1, wave.residents.count, wave.clocks.threads), None, object)
            at = rectangle(slots, threads)
            self._fences[: how.scope, *at] = None  # narrower ones are part of it
            self._fences[how.scope, *at] = self._release(snapshot, how.scope)
            if sc:
                self._sc.fence(slots, threads, *reached, snapshot)

    # Messages.

    def _message(self, sent: ReleasePattern) -> Message:
        """Give a message that another cluster acquires a place in a chain."""
        if sent.message is not None:
            return sent.message
        snapshot = sent.snapshot
        known = snapshot.known(sent.row, sent.column)
        chains = snapshot.chains(known, len(self._tails))
        chain = self._chain(sent, chains)
        self._tails[chain : chain + 1] = [sent]
        self._counts = widened(self._counts, max(0, len(self._tails) - len(self._counts)))
        self._counts[chain] += 1
        self._last_of[sent.sender] = chain
        over = snapshot.over(known) | self._before[snapshot.launch]
        sent.message = Message(known, chains, over, chain, int(self._counts[chain]))
        counts, messages = self._sent.setdefault(sent.first.cluster, {}).setdefault(chain, ([], []))
        counts.append(sent.message.count)
        messages.append(sent.message)
        return sent.message

    def _chain(self, sent: ReleasePattern, chains: Array) -> int:
        """Return a chain whose last message the sender knows and shows, or a new one."""
        own = self._last_of.get(sent.sender)
        last = None if own is None else self._tails[own]
        if own is not None and last is not None and last.sender == sent.sender and last.order <= sent.order:
            return own
        known = np.flatnonzero(chains >= self._counts)
        return int(known[0]) if len(known) else len(self._tails)

    def _learn(
        self,
        wave: Wave,
        slot: int,
        threads: Array,
        observed: ObservedValue,
        scope: int,
        hidden: Array = NO_COLUMNS,
    ) -> None:
        """Join observed release patterns into the clocks of a CTA's threads, where both scopes include the other side.

        Single lanes of a warp join them only when a check needs their clocks.
        """
        clocks, by, (sequence, count) = wave.clocks, self._by(wave, slot, scope), observed
        key = self.launch, by.cta, WEAK if len(hidden) else scope
        learnt = sequence.learnt.get(key)
        if learnt is None:
            learnt = sequence.learnt[key] = np.zeros(clocks.threads, np.int64)
        threads = threads[learnt[threads] < count]
        if not len(threads):
            return
        learnt[threads] = count
        acquired: AcquiredClock = _ObservedMessages(self, wave, by, observed)
        if len(threads) < WARP and _is_all(observed, by) and not len(hidden):
            for thread in threads.tolist():
                clocks.defer(slot, thread, acquired)
        else:
            acquired = _JoinedMessages(hide(self.clock(wave, by, observed), hidden).copy())
            if acquired.what.shape[-1]:
                clocks.learn(np.array([slot]), threads, acquired.what[:, None])
        if self._releasing is not None:
            snapshot, row, column = self._releasing
            snapshot.acquire(row, column, acquired)

    def clock(self, wave: Wave, by: StrongOperation, observed: ObservedValue) -> Array:
        """Return the clock that an operation acquires, of its cluster's threads, (plane, rank, column).

        It is good until the clock of more of the sequence is asked for.
        """
        sequence, length = observed
        is_all = _is_all(observed, by)
        key = by.cluster if is_all else by
        heard = sequence.heard.pop(key, None)
        if heard is None or heard.count > length:
            heard = SequenceClock(wave.clocks.nothing(1, 0)[:, 0])
        first = max(0, heard.count - sequence.dropped)
        sent_since = sequence.sent[first : length - sequence.dropped]
        new = (one for one in sent_since if is_all or one.first.includes(by))
        messages: list[Message] = []
        for (snapshot, row), sent in itertools.groupby(new, lambda one: (one.snapshot, one.row)):
            if snapshot.cluster(row) == by.cluster:
                columns = np.array([one.column for one in sent])
                heard.what = joined(heard.what, [snapshot.known(row, columns, sequence.origin if is_all else None)])
            else:
                messages += map(self._message, sent)
        if messages:
            self._hear(wave, by.cluster, heard, messages)
        heard.count = length
        sequence.heard[key] = heard
        if len(sequence.heard) > _MOST_CLUSTERS:
            del sequence.heard[next(iter(sequence.heard))]
        return heard.what

    def _hear(self, wave: Wave, cluster: Cluster, heard: SequenceClock, messages: list[Message]) -> None:
        """Add messages of other clusters to those that a cluster has received."""
        clocks, before = wave.clocks, heard.chains
        chains = widened(before, max(0, len(self._tails) - len(before))).copy()
        for m in messages:
            np.maximum(chains[: len(m.chains)], m.chains, out=chains[: len(m.chains)])
            chains[m.chain] = max(int(chains[m.chain]), m.count)
        grown = np.flatnonzero(chains > widened(before, len(chains) - len(before)))
        for k in grown.tolist():
            if k not in wave.chains:
                wave.chains[k] = clocks.column((CHAIN, k))
        heard.over = reduce(or_, (m.over for m in messages), heard.over)
        column = wave.over_column(heard.over) if heard.over else None
        what = joined(heard.what, self._passed_on(cluster, chains, grown))
        what = widened(what, max(0, len(clocks.owner) - what.shape[-1]))
        columns = np.array([wave.chains[k] for k in grown.tolist()], np.intp)
        for plane in (DONE, SEEN):
            what[plane, 0, columns] = np.maximum(what[plane, 0, columns], chains[grown])
        if column is not None:
            what[: SEEN + 1, 0, column] = 1
        heard.chains, heard.what = chains, what

    def _passed_on(self, cluster: Cluster, chains: Array, grown: Array) -> Iterator[Array]:
        """Yield a cluster's own releases that messages of others know, the last of each of some chains."""
        sent = self._sent.get(cluster, {})
        for chain in grown.tolist():
            numbers, messages = sent.get(chain, ((), ()))
            at = bisect_right(numbers, chains[chain])
            if at:
                yield messages[at - 1].known

    # Contents of messages.

    def cover(
        self,
        plane: int,
        cluster: Cluster,
        ranks: Array,
        columns: Array,
        counts: Array,
        wave: Wave,
        held: Callable[[int, int], Array],
    ) -> Array:
        """Mark the pairs whose thread knows an event of another cluster.

        Parameters
        ----------
        plane : int
        cluster : Cluster
        ranks, columns, counts : array of int, (pair,)
            Events there.
        wave : Wave
            Wave of the asked threads.
        held : callable
            Plane and column -> how much of it the thread of each pair knows.
        """
        result = np.zeros(len(counts), bool)
        for chain, (numbers, messages) in self._sent.get(cluster, {}).items():
            column = wave.chains.get(chain)
            if column is None:
                continue
            known = held(plane, column)
            for value in np.unique(known[~result]).tolist():
                at = bisect_right(numbers, value) - 1
                if at < 0:
                    continue
                # Proxy fences count in the CTA of the non-generic access: there the message is fenced, or not.
                said = messages[at].known[min(plane, SEEN)]
                here = np.flatnonzero((known == value) & ~result)
                held_there = said[ranks[here], np.minimum(columns[here], said.shape[-1] - 1)]
                result[here] = (held_there >= counts[here]) & (columns[here] < said.shape[-1])
        return result


def _is_all(observed: ObservedValue, by: StrongOperation) -> bool:
    """Return whether all that was observed is in scope for an operation, and it for that."""
    return by.scope >= GPU and observed.length <= observed.sequence.wide
