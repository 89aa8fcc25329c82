"""Releases through memory: the clocks that writes publish, and the instructions that may acquire them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from operator import or_
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cutepy.sim.machine.lanes import Array
from cutepy.sim.ptx.memory_order import CLUSTER, CTA, GPU, WEAK, strength
from cutepy.sim.ptx.model import Instruction, Register, Vector, registers_in
from cutepy.sim.sanitize.order.clocks import NO_COLUMNS, SEEN, AcquiredClock, furthest, hide, joined
from cutepy.sim.translate import Kernel
from cutepy.sim.translate.effects import read, written

if TYPE_CHECKING:
    from cutepy.sim.sanitize.order.wave import Wave


Cluster = tuple[int, int]
"""A launch, by number, and a cluster of it, by the index of its first CTA."""


Sender = tuple[int, int, int]
"""A launch, a CTA of its grid and a thread of that."""


class StrongOperation(NamedTuple):
    """Strong operation, by where its thread is.

    Attributes
    ----------
    cluster : Cluster
    cta : int
        By its index in the grid.
    scope : int
    """

    cluster: Cluster
    cta: int
    scope: int

    def includes(self, other: StrongOperation) -> bool:
        """Return whether each is in the scope of the other: the two are morally strong."""
        needed = GPU if self.cluster != other.cluster else CLUSTER if self.cta != other.cta else CTA
        return min(self.scope, other.scope) >= needed


class Snapshot:
    """Snapshot of the clocks of some threads.

    Parameters
    ----------
    wave : Wave
    launch : int
    slots, threads : array of int
    hidden : array of int, optional
        Columns of which it shows nothing.

    Attributes
    ----------
    sources : set of object
        Acquired patterns that are not joined with the threads' clocks yet: see `Clocks.defer`.
    """

    def __init__(self, wave: Wave, launch: int, slots: Array, threads: Array, hidden: Array = NO_COLUMNS) -> None:
        self._acquired = wave.clocks.acquired(slots, threads)
        self.sources = {one.source for each in self._acquired.values() for one in each}
        view, self._row_of = wave.clocks.view(slots, threads, joins=False)
        self._view = view.kept()
        wave.clocks.tick(slots, threads)
        self._slots, self._threads, self._owner = slots, threads, wave.clocks.owner
        self._blocks, self._size = wave.residents.blocks, wave.clocks.cluster
        self.launch, self.columns, self._over, self._hidden = launch, wave.chains, wave.over, hidden
        self._chains: tuple[Array, Array] | None = None

    def acquire(self, row: int, column: int, acquired: AcquiredClock) -> None:
        """Add to one thread's knowledge the clock that it acquires by the instruction that releases."""
        self._acquired[row, column] = furthest((*self._acquired.get((row, column), ()), acquired))
        self.sources.add(acquired.source)

    def known(self, row: int, columns: int | Array, besides: object = None) -> Array:
        """Return the knowledge of one of the threads, or of some together: (plane, rank, column).

        `besides`: what is left out of it if it was acquired from there.
        """
        found: Array
        if isinstance(columns, int):
            found = self._view.known[:, row, self._row_of[columns]].copy()
            mine = np.flatnonzero(self._owner == self._threads[columns])
        else:
            found = self._view.known[:, row, np.unique(self._row_of[columns])].max(axis=1)
            mine = np.flatnonzero(np.isin(self._owner, self._threads[columns]))
        assert self._view.own is not None
        rank = int(self._slots[row]) % self._size
        found[:, rank, mine] = np.maximum(found[:, rank, mine], self._view.own[:, row, mine])
        if self._acquired:
            lanes = [columns] if isinstance(columns, int) else columns.tolist()
            acquired = (one for lane in lanes for one in self._acquired.get((row, lane), ()) if one.source != besides)
            found = joined(found, (one.clock() for one in furthest(acquired)))
        return hide(found, self._hidden)

    def chains(self, known: Array, many: int) -> Array:
        """Return how far some threads know each of the first chains."""
        if self._chains is None or len(self._chains[0]) != len(self.columns):
            chains, columns = (np.fromiter(part, np.intp) for part in (self.columns, self.columns.values()))
            self._chains = chains, columns
        chains, columns = self._chains
        there = (columns < known.shape[-1]) & (chains < many)
        result = np.zeros(many, np.int32)
        result[chains[there]] = known[SEEN, 0, columns[there]]
        return result

    def over(self, known: Array) -> int:
        """Return the bit mask of the launches whose end happens before some threads."""
        heard = (n for n, at in self._over.items() if at < known.shape[-1] and known[SEEN, 0, at])
        return reduce(or_, heard, 0)

    def strong(self, row: int, scope: int) -> StrongOperation:
        """Return an operation of such a scope by the threads of a CTA."""
        return StrongOperation(self.cluster(row), int(self._blocks[self._slots[row]]), scope)

    def cluster(self, row: int) -> Cluster:
        """Return the cluster of a CTA."""
        return self.launch, int(self._blocks[self._slots[row] // self._size * self._size])

    def thread(self, column: int) -> int:
        """Return a thread's index in its CTA."""
        return int(self._threads[column])

    @property
    def lanes(self) -> tuple[Array, Array]:
        """The slots and the threads."""
        return self._slots, self._threads

    def position(self, slot: int, thread: int) -> tuple[int, int]:
        """Return the row and the column of one of the threads."""
        return int(np.searchsorted(self._slots, slot)), int(np.searchsorted(self._threads, thread))

    @property
    def nbytes(self) -> int:
        """Bytes of the clocks."""
        return self._view.known.nbytes + (0 if self._view.own is None else self._view.own.nbytes)


@dataclass(eq=False, slots=True)
class ReleasePattern:
    """A release pattern.

    Attributes
    ----------
    first : StrongOperation
        Its first operation: the fence, or the write that releases by itself.
    snapshot, row, column : Snapshot, int, int
        Clock of its thread.
    order : int
        Counts the instructions that release.
    message : Message or None
        Its clock for other clusters, once one of them has acquired it.
    """

    first: StrongOperation
    snapshot: Snapshot
    row: int
    column: int
    order: int
    message: Message | None = None

    @property
    def sender(self) -> Sender:
        """Thread that published the pattern."""
        return self.snapshot.launch, self.first.cta, self.snapshot.thread(self.column)


@dataclass(eq=False, slots=True)
class Release:
    """The release patterns of some threads that one instruction ends.

    Attributes
    ----------
    scope : int
    snapshot : Snapshot
        The clocks of these threads.
    order : int
        Counts the instructions.
    """

    scope: int
    snapshot: Snapshot
    order: int

    def of(self, row: int, column: int) -> ReleasePattern:
        """Return that of one thread, by its position among those of the snapshot."""
        return ReleasePattern(self.snapshot.strong(row, self.scope), self.snapshot, row, column, self.order)

    def of_thread(self, slot: int, thread: int) -> ReleasePattern:
        """Return that of one thread."""
        return self.of(*self.snapshot.position(slot, thread))


@dataclass(eq=False, slots=True)
class Message:
    """A release pattern that another cluster has acquired.

    Attributes
    ----------
    known : array of int, (plane, rank, column)
        Its clock of its own cluster.
    chains : array of int, (chain,)
        Known length of each chain.
    over : int
        Launches whose end happens before it, as a bit mask.
    chain, count : int
        Chain of the message, and its number there.
    """

    known: Array
    chains: Array
    over: int
    chain: int
    count: int


@dataclass(eq=False, slots=True)
class SequenceClock:
    """Joined clock of the first release patterns of a sequence.

    Attributes
    ----------
    what : array of int, (plane, rank, column)
    chains : array of int, (chain,)
        Known length of each chain.
    over : int
        Launches whose end happens before the patterns, as a bit mask.
    count : int
        Number of patterns.
    """

    what: Array
    chains: Array = field(default_factory=lambda: np.zeros(0, np.int32))
    over: int = 0
    count: int = 0


@dataclass(eq=False, slots=True)
class ReleaseSequence:
    """Release patterns that a value carries, in order: of the write at its head, and of its read-modify-writes.

    Attributes
    ----------
    origin : object
        The same for a sequence and for the result of its `followed_by`.
    dropped : int
        Number of first patterns that others include.
    sent : list of ReleasePattern
        Those that came then: read-modify-writes append to it.
    wide : int
        Number of first patterns of scope .gpu or wider, as all that were dropped.
    is_deep : bool
        True if there are patterns whose threads had acquired unjoined clocks of other sequences.
    learnt : dict of (launch, CTA, scope) to array of int
        By thread, how many patterns it has learnt.
    heard : dict of (cluster or operation) to SequenceClock
        Clock that the threads of a cluster acquire from the first patterns, by the acquiring operation if these are not
        of scope .gpu or wider.
    """

    origin: object = field(default_factory=object)
    dropped: int = 0
    sent: list[ReleasePattern] = field(default_factory=list)
    wide: int = 0
    is_deep: bool = False
    learnt: dict[tuple[int, int, int], Array] = field(default_factory=dict)
    heard: dict[Cluster | StrongOperation, SequenceClock] = field(default_factory=dict)
    _kinds: set[tuple[Sender, int]] = field(default_factory=set)

    @property
    def length(self) -> int:
        """Number of release patterns."""
        return self.dropped + len(self.sent)

    def observed(self) -> ObservedValue:
        """Return the sequence as a thread that reads the value now observes it."""
        return ObservedValue(self, self.length)

    def followed_by(self, sent: ReleasePattern) -> ReleaseSequence:
        """Return the sequence with another pattern: a new one, if there are many that others replace."""
        result = self if len(self.sent) <= _MANY_SENT + 2 * len(self._kinds) else self._shortened()
        result._add(sent)
        return result

    def _shortened(self) -> ReleaseSequence:
        widest, kept = dict[Sender, int](), list[ReleasePattern]()
        for one in reversed(self.sent):  # what a thread releases includes what it has released in no wider scope
            if one.first.scope > widest.get(one.sender, WEAK):
                widest[one.sender] = one.first.scope
                kept.append(one)
        dropped = self.length - len(kept)
        result = ReleaseSequence(self.origin, dropped, wide=dropped, learnt=self.learnt)
        for one in reversed(kept):
            result._add(one)
        result.heard = {by: heard for by, heard in self.heard.items() if heard.count == self.length}
        return result

    def _add(self, sent: ReleasePattern) -> None:
        if self.wide == self.length and sent.first.scope >= GPU:
            self.wide += 1
        self.sent.append(sent)
        self.is_deep = self.is_deep or any(source is not self.origin for source in sent.snapshot.sources)
        self._kinds.add((sent.sender, sent.first.scope))


_MANY_SENT = 64
"""Patterns of a sequence that are kept, even if others replace them."""


class ObservedValue(NamedTuple):
    """A value that was read: the sequence of release patterns that it carries, and how many there were."""

    sequence: ReleaseSequence
    length: int


@dataclass(eq=False, slots=True)
class Location:
    """The value at an address.

    Attributes
    ----------
    size : int
        Bytes of the accesses there.
    last : StrongOperation
        The write of the value: a reader observes the patterns that it carries if read and write are morally strong.
    carries : ReleaseSequence
    passed : ReleaseSequence
        Clock of earlier fences with .sc: see `sc_fences.py`.
    """

    size: int
    last: StrongOperation
    carries: ReleaseSequence = field(default_factory=ReleaseSequence)
    passed: ReleaseSequence = field(default_factory=ReleaseSequence)


@lru_cache(maxsize=64)
def observers(kernel: Kernel) -> dict[int, frozenset[int]]:
    """Return the strong reads of a kernel, by index, each with the elements whose value the kernel uses.

    A read whose value is not used orders nothing.
    """
    instructions = kernel.instructions
    used = set()
    for i in instructions:
        # What a guarded atomic leaves as it was counts as read.
        used |= {*read(i)} - ({*written(i)} if i.traits.reads_memory else set())
    strong = (i for i in instructions if i.traits.reads_memory and strength(i.opcode).scope)
    found = {i.index: frozenset(_elements_in(i, used)) for i in strong}
    return {index: elements for index, elements in found.items() if elements}


def widest_acquire(kernel: Kernel) -> int:
    """Return the widest scope in which a kernel acquires something, up to .gpu."""
    how = [strength(i.opcode) for i in kernel.instructions]
    return min(GPU, max((one.scope for one in how if one.acquires), default=WEAK))


def _elements_in(i: Instruction, used: set[Register]) -> Iterator[int]:
    """Yield the elements of an access whose registers are used; those of packed values share one."""
    to = i.operands[0]
    each = 2 if any(part.endswith("x2") for part in i.parts) else 1
    for n, item in enumerate(to.items if isinstance(to, Vector) else (to,)):
        if not used.isdisjoint(registers_in(item)):
            yield from range(n * each, (n + 1) * each)


@lru_cache(maxsize=64)
def releases_to_launches(kernel: Kernel) -> bool:
    """Return whether a kernel may show something to another one that runs beside it: see `observers`."""
    instructions = kernel.instructions
    wide = [(i, how) for i in instructions if (how := strength(i.opcode)).scope >= GPU]
    fences = any(how.releases for i, how in wide if i.traits.fences)
    return any(how.releases or fences for i, how in wide if i.traits.kind in ("memory", "atomic") and i.traits.stores)
