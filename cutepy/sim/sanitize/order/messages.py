"""Messages through memory: a release by a write, and an acquire by a read of the value that was written.

A release pattern leaves a *message* where it writes: what its thread knows. Read-modify-writes keep the messages that
they find, other writes end them. Who reads there with an acquire pattern, in scope, learns what the messages say.

Threads of one cluster keep their knowledge of each other in `Clocks`. Of other clusters a thread knows messages, as
numbers in *chains*: of two messages of one chain, who sent the later one knew the earlier. So there are as many chains
as there are unordered senders, one for a lock that passes through a thousand threads, and each is a column of the
clocks like others, which barriers pass on as they do all that is known. Only what somebody acquires gets a place in a
chain. Who learns of a message that its own cluster has sent, by way of others, learns what it says: of its own cluster
a thread's clock has all that it knows, whichever way that came.

References
----------
PTX ISA, "Memory Consistency Model": "Observation Order", "Release and Acquire Patterns", "Synchronizes".
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.machine.lanes import Array
from cutepy.sim.ptx.memory_order import GPU, SYS, WEAK, Strength, is_sc, strength
from cutepy.sim.sanitize.order.clocks import DONE, NO_COLUMNS, SEEN, hide, rectangle, widened
from cutepy.sim.sanitize.order.fences import ScFences
from cutepy.sim.sanitize.order.locations import Locations, Writes, elements, repeated
from cutepy.sim.sanitize.order.published import (
    Cluster,
    Heard,
    Location,
    Message,
    Release,
    Sent,
    Snapshot,
    Strong,
    acquirers,
    releases_to_launches,
)
from cutepy.sim.sanitize.order.wave import CHAIN

if TYPE_CHECKING:
    from cutepy.sim.machine.events import Access, Fence
    from cutepy.sim.machine.launch import Launch
    from cutepy.sim.sanitize.order.wave import Wave

Lane = tuple[int, int]
"""A resident CTA, by slot, and a thread of it."""

_MOST_READS = 16
"""Of a thread, how many values that it has read at a place, and not acquired so far, are kept."""


_FEW = 4
"""Messages at a location of which no clock is kept."""
_MOST_CLUSTERS = 64
"""Of a location, for how many clusters a clock of its messages is kept."""


def _in_scope(location: Location, by: Strong) -> Location:
    """Return the messages whose first operations are morally strong with another one: the last of each chain."""
    heard: dict[int, Message] = {}
    for m in location.messages.values():
        if m.first.includes(by) and (m.chain not in heard or heard[m.chain].count < m.count):
            heard.pop(m.chain, None)
            heard[m.chain] = m
    return Location(location.size, location.last, messages={(m.chain, m.first.whole): m for m in heard.values()})


class Messages:
    """Messages: clocks that a run publishes through memory.

    Attributes
    ----------
    launch : int
        The launch that runs, by number.
    """

    def __init__(self) -> None:
        self.launch = 0
        self._acquirers: dict[int, frozenset[int]] = {}
        self._widest = WEAK
        self._is_followed = False
        self._wave: Wave | None = None
        self._forget()

    def _forget(self) -> None:
        """Forget all: what has sent messages is over, and all that comes knows it."""
        self._locations = Locations()
        self._order = self._number = 0
        self._before: dict[int, int] = {}
        self._tails: list[tuple[int, Sent]] = []  # by chain, the last count, and what was sent
        self._sent: dict[Cluster, dict[int, tuple[list[int], list[Message]]]] = {}
        self._last_of: dict[tuple[int, int, int], int] = {}
        self._begin_wave(None)

    def _begin_wave(self, wave: Wave | None) -> None:
        """Begin with CTAs that become resident: what was published through shared memory is gone."""
        self._wave = wave
        self._fences: Array | None = None  # (scope, CTA, thread): what the last fence of each scope releases, or None
        self._sc = ScFences()
        self._pending: dict[Lane, dict[int, list[Location]]] = {}  # values read, which a later operation may acquire
        self._hints: Array | None = None  # (CTA, thread): a chain, or -1
        self._locations.end_shared()

    def begin(self, number: int, launch: Launch, before: int, alone: bool) -> None:
        """Begin with a launch, with nothing that runs beside it if it is alone.

        `before`: the operations, as bits, that were complete before it began, which its messages say too.
        """
        if alone:
            self._forget()
        self.launch, self._before[number] = number, before
        self._acquirers, self._widest = acquirers(launch.ptx, launch.kernel)
        self._is_followed = bool(self._acquirers) or not alone or releases_to_launches(launch.ptx, launch.kernel)

    @property
    def any_sent(self) -> bool:
        """True if a thread has acquired something."""
        return bool(self._sent)

    def fenced(self, lane: Lane) -> Sent | None:
        """Return what the last fence of a thread releases, if it is known."""
        fences = [] if self._fences is None else [one for one in self._fences[:, *lane] if one is not None]
        last = max(fences, key=lambda one: one.order, default=None)
        return None if last is None else last.of_thread(*lane)

    # What threads do.

    def before(self, wave: Wave, access: Access) -> None:
        """Let threads acquire what is where they read, before it is asked what orders that."""
        if self._locations and access.operation != "write" and strength(access.instruction.opcode).acquires:
            self._take(wave, access, writes=False)

    def after(self, wave: Wave, access: Access) -> None:
        """Take an access by threads, one after the other: they leave messages, and those that follow find them."""
        is_read = access.operation == "read"
        if self._is_followed and not (is_read and strength(access.instruction.opcode).acquires):
            self._take(wave, access, writes=not is_read)

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
        release = self._release(Snapshot(wave, self.launch, slots, threads), how.scope) if how.releases else None
        before = None if fences is None else fences[:, *at].copy()
        sc = self._sc.before(wave, self.launch, slots, threads) if how.scope >= GPU else None
        passed = None if sc is None else self._release(sc, how.scope)
        near = self._locations.are_near(keys)
        # Another thread of this access may find what one leaves.
        asked = near | repeated(keys) if looked_at else near
        sends = np.ones(near.shape[:2], bool)
        if release is None and passed is None:
            sends = np.zeros_like(sends) if before is None else (before != None).any(axis=0)  # noqa: E711 - by element
        stores = True if access.stores is None else np.broadcast_to(access.stores, near.shape[:2])[..., None]
        left = ((near | sends[..., None]) & stores).reshape(-1)
        written = Writes(
            *(keys.reshape(-1), keys.shape, size, how.scope, reads, self.launch, wave.residents.blocks),
            *(wave.clocks.cluster, slots, threads),
            *(release, before, passed),
        )
        first = 0
        for element in np.flatnonzero(asked).tolist() if looked_at else ():
            if element % keys.shape[2] not in looked_at:
                continue
            self._locations.write(written, first + np.flatnonzero(left[first:element]))
            first = element
            row, column = written.lane(element)
            key = int(written.keys[first])
            found = self._locations.get(key, size)
            if found is not None or self._pending:
                self._read(wave, int(slots[row]), threads[column : column + 1], key, found, how)
        self._locations.write(written, first + np.flatnonzero(left[first:]))

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
        """Let threads of a CTA observe what is at a location, which they acquire, or a later operation of theirs."""
        if found is not None and not found.last.includes(self._strong(wave, slot, how.scope)):
            found = None
        says = None if found is None or not found.says_something else found
        is_over = how.acquires and how.scope >= self._widest
        for thread in threads.tolist() if self._pending or not (is_over or says is None) else ():
            self._acquire_earlier(wave, (slot, thread), key, how)
            if not is_over and says is not None:
                self._keep((slot, thread), key, says)
        if says is not None and how.acquires:
            self._learn(wave, slot, threads, says, how.scope)
        if found is not None and found.passed is not None and how.scope >= GPU:
            for thread in threads.tolist():
                self._sc.read(wave, (slot, thread), found.passed)

    def _acquire_earlier(self, wave: Wave, lane: Lane, key: int, how: Strength) -> None:
        """Acquire what a thread has read at a location before, which an operation of a wider scope may once more."""
        mine = self._pending.get(lane, {})
        for earlier in mine.get(key, ()) if how.acquires else ():
            self._learn(wave, lane[0], np.array(lane[1:]), earlier, how.scope)
        if how.acquires and how.scope >= self._widest:
            mine.pop(key, None)
            if not mine:
                self._pending.pop(lane, None)

    def _keep(self, lane: Lane, key: int, found: Location) -> None:
        """Keep what a thread has read at a location."""
        mine = self._pending.setdefault(lane, {}).setdefault(key, [])
        if mine and mine[-1].learnt is found.learnt:  # nothing has replaced it since, and the later one says all
            if mine[-1].version == found.version:
                return
            mine.pop()
        mine.append(found.as_it_is())
        del mine[:-_MOST_READS]

    def _strong(self, wave: Wave, slot: int, scope: int) -> Strong:
        """Return an operation by threads of a CTA."""
        blocks, size = wave.residents.blocks, wave.clocks.cluster
        return Strong((self.launch, int(blocks[slot // size * size])), int(blocks[slot]), scope)

    def _release(self, snapshot: Snapshot, scope: int) -> Release:
        """Return what threads release by an instruction."""
        self._order += 1
        at = rectangle(*snapshot.lanes)
        hints = None if self._hints is None else self._hints[at].copy()
        return Release(scope, snapshot, self._order, hints)

    def fence(self, wave: Wave, event: Fence) -> None:
        """Take a fence: what threads have read they acquire, and what they know their writes release from now on."""
        how = strength(event.instruction.opcode)
        if how.scope == WEAK or not self._is_followed:
            return
        if wave is not self._wave:
            self._begin_wave(wave)
        slots, threads = event.ctas.slots, event.threads.ids
        hidden = wave.hidden_from(event.instruction)
        acquire = how.acquires and self._pending
        for lane in itertools.product(slots.tolist(), threads.tolist()) if acquire else ():
            found = self._pending.get(lane, {})
            for location in itertools.chain.from_iterable(found.values()):
                self._learn(wave, lane[0], np.array(lane[1:]), location, how.scope, hidden)
            if how.scope >= self._widest and not len(hidden):
                self._pending.pop(lane, None)
        sc = is_sc(event.instruction.opcode) and how.scope >= GPU
        for slot in slots.tolist() if sc else ():
            for location, after in self._sc.after(wave, slot, threads):
                self._learn(wave, slot, after, location, how.scope)
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

    def _message(self, sent: Sent) -> Message:
        """Give what somebody acquires a place in a chain."""
        snapshot = sent.snapshot
        known = snapshot.known(sent.row, sent.column)
        chain = self._chain(sent, known)
        count = self._tails[chain][0] + 1 if chain < len(self._tails) else 1
        self._tails[chain : chain + 1] = [(count, sent)]
        self._last_of[sent.sender] = chain
        chains = snapshot.chains(known, len(self._tails))
        cluster = snapshot.cluster(sent.row)
        over = snapshot.over(known) | self._before[snapshot.launch]
        self._number += 1
        first = Strong(cluster, snapshot.cta(sent.row), sent.scope)
        message = Message(first, known, chains, over, chain, count, self._number)
        counts, messages = self._sent.setdefault(cluster, {}).setdefault(chain, ([], []))
        counts.append(count)
        messages.append(message)
        return message

    def _chain(self, sent: Sent, known: Array) -> int:
        """Return a chain whose last message the sender knows and shows, or a new one."""
        if sent.snapshot.hides:
            return len(self._tails)
        own = self._last_of.get(sent.sender)
        if own is not None:
            _, last = self._tails[own]
            if last.sender == sent.sender and last.order <= sent.order:
                return own
        if sent.hint is not None:
            column = sent.snapshot.columns.get(sent.hint)
            if column is not None and column < known.shape[-1] and known[SEEN, 0, column] >= self._tails[sent.hint][0]:
                return sent.hint
        return len(self._tails)

    def _learn(
        self,
        wave: Wave,
        slot: int,
        threads: Array,
        location: Location,
        scope: int,
        hidden: Array = NO_COLUMNS,
    ) -> None:
        """Let threads of a CTA know what the messages at a location say that are in scope for it and it for them."""
        clocks, by = wave.clocks, self._strong(wave, slot, scope)
        key = self.launch, by.cta, WEAK if len(hidden) else scope
        versions = location.learnt.get(key)
        if versions is None:
            versions = location.learnt[key] = np.full(clocks.threads, -1)
        threads = threads[versions[threads] != location.version]
        if not len(threads):
            return
        for sent in location.sent.values():
            location.hear(self._message(sent))
        location.sent.clear()
        versions[threads] = location.version
        if scope < GPU or not location.is_wide:
            location = _in_scope(location, by)
        if not location.messages:
            return
        what = self._heard(wave, by.cluster, location)
        clocks.learn(np.array([slot]), threads, hide(what, hidden))
        if self._hints is None:
            self._hints = np.full((wave.residents.count, clocks.threads), -1)
        self._hints[slot, threads] = next(reversed(location.messages))[0]

    def _heard(self, wave: Wave, cluster: Cluster, location: Location) -> Array:
        """Return the messages at a location as a clock of a cluster's threads: (plane, 1, rank, column)."""
        clocks, chains = wave.clocks, location.chains()
        heard = location.heard.get(cluster)
        if heard is None:
            heard = Heard(clocks.nothing(1, 0), np.zeros(0, np.int32))
            if len(location.messages) > _FEW:
                location.heard[cluster] = heard
                if len(location.heard) > _MOST_CLUSTERS:
                    del location.heard[next(iter(location.heard))]
        before = widened(heard.chains, len(chains) - len(heard.chains))
        new, grown = list(location.since(heard.number)), np.flatnonzero(chains > before)
        known = [m.known for m in new if m.first.cluster == cluster]
        if any(m.first.cluster != cluster for m in new):  # else who sent them knows all that they know of it
            known += self._passed_on(cluster, chains, grown)
        for k in grown.tolist():
            if k not in wave.chains:
                wave.chains[k] = clocks.column((CHAIN, k))
        heard.over = reduce(or_, (m.over for m in new), heard.over)
        column = wave.over_column(heard.over) if heard.over else None
        what = heard.what = widened(heard.what, len(clocks.owner) - heard.what.shape[-1])
        for one in known:
            mine = what[:, 0, :, : one.shape[-1]]
            np.maximum(mine, one[..., : what.shape[-1]], out=mine)
        columns = np.array([wave.chains[k] for k in grown.tolist()], np.intp)
        for plane in (DONE, SEEN):
            what[plane, 0, 0, columns] = np.maximum(what[plane, 0, 0, columns], chains[grown])
        if column is not None:
            what[: SEEN + 1, 0, 0, column] = 1
        heard.chains, heard.number = chains.copy(), new[0].number if new else heard.number
        return what

    def _passed_on(self, cluster: Cluster, chains: Array, grown: Array) -> Iterator[Array]:
        """Yield what a cluster has sent itself that messages of others know, the last of each of some chains."""
        sent = self._sent.get(cluster, {})
        for chain in grown.tolist():
            numbers, messages = sent.get(chain, ((), ()))
            at = bisect_right(numbers, chains[chain])
            if at:
                yield messages[at - 1].known

    # What messages say.

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
        """Tell by pair whether a thread knows of something in another cluster.

        Parameters
        ----------
        plane : int
        cluster : Cluster
        ranks, columns, counts : array of int, (pair,)
            What happened there.
        wave : Wave
            Of who is asked.
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
