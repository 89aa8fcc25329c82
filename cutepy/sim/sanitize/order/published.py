"""Releases through memory: the clocks that writes publish, and the instructions that may acquire them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from operator import or_
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cutepy.sim.machine.lanes import Array
from cutepy.sim.ptx.memory_order import CLUSTER, CTA, GPU, WEAK, strength
from cutepy.sim.ptx.model import Instruction, Register, Vector, registers_in
from cutepy.sim.sanitize.order.clocks import NO_COLUMNS, SEEN, hide, widened
from cutepy.sim.translate import linked
from cutepy.sim.translate.effects import read, written

if TYPE_CHECKING:
    from cutepy.sim.sanitize.order.wave import Wave


Cluster = tuple[int, int]
"""A launch, by number, and a cluster of it, by the index of its first CTA."""


class Strong(NamedTuple):
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

    def includes(self, other: Strong) -> bool:
        """Tell whether each is in the scope of the other: the two are morally strong."""
        needed = GPU if self.cluster != other.cluster else CLUSTER if self.cta != other.cta else CTA
        return min(self.scope, other.scope) >= needed

    @property
    def whole(self) -> tuple[Cluster | None, int | None]:
        """The threads that its scope includes: those of a cluster, of a CTA, or all."""
        return self.cluster if self.scope < GPU else None, self.cta if self.scope < CLUSTER else None


class Snapshot:
    """Snapshot of the clocks of some threads.

    Parameters
    ----------
    wave : Wave
    launch : int
    slots, threads : array of int
    hidden : array of int, optional
        Columns of which it shows nothing.
    """

    def __init__(self, wave: Wave, launch: int, slots: Array, threads: Array, hidden: Array = NO_COLUMNS) -> None:
        view, self._row_of = wave.clocks.view(slots, threads)
        self._view = view.kept()
        wave.clocks.tick(slots, threads)
        self._slots, self._threads, self._owner = slots, threads, wave.clocks.owner
        self._blocks, self._size = wave.residents.blocks, wave.clocks.cluster
        self.launch, self.columns, self._over, self._hidden = launch, wave.chains, wave.over, hidden
        self._chains: tuple[Array, Array] | None = None

    def known(self, row: int, columns: int | Array) -> Array:
        """Return what one of the threads knows, or some together: (plane, rank, column)."""
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
        return hide(found, self._hidden)

    def chains(self, known: Array, many: int) -> Array:
        """Return how far some threads know each of the first chains, by what they know."""
        if self._chains is None or len(self._chains[0]) != len(self.columns):
            chains, columns = (np.fromiter(part, np.intp) for part in (self.columns, self.columns.values()))
            self._chains = chains, columns
        chains, columns = self._chains
        there = (columns < known.shape[-1]) & (chains < many)
        result = np.zeros(many, np.int32)
        result[chains[there]] = known[SEEN, 0, columns[there]]
        return result

    def over(self, known: Array) -> int:
        """Return the launches, as bits, that are over by what threads know."""
        heard = (n for n, at in self._over.items() if at < known.shape[-1] and known[SEEN, 0, at])
        return reduce(or_, heard, 0)

    @property
    def hides(self) -> bool:
        """True if it shows less than the threads' clocks."""
        return len(self._hidden) > 0

    def cta(self, row: int) -> int:
        """Return a CTA's index in the grid."""
        return int(self._blocks[self._slots[row]])

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


class Sent(NamedTuple):
    """A release pattern that nobody has acquired so far.

    Attributes
    ----------
    scope : int
        That of the fence, or of the write that releases by itself.
    snapshot, row, column : Snapshot, int, int
        What its thread knew.
    order : int
        Counts the instructions that release.
    hint : int or None
        A chain whose last message its thread may know.
    """

    scope: int
    snapshot: Snapshot
    row: int
    column: int
    order: int
    hint: int | None

    @property
    def sender(self) -> tuple[int, int, int]:
        """The launch, the CTA and the thread."""
        return self.snapshot.launch, self.snapshot.cta(self.row), self.snapshot.thread(self.column)


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
    hints : array of int, (CTA, thread), or None
        By thread, a chain whose last message it may know, or -1.
    """

    scope: int
    snapshot: Snapshot
    order: int
    hints: Array | None

    def of(self, row: int, column: int) -> Sent:
        """Return that of one thread, by its position among those of the snapshot."""
        hint = -1 if self.hints is None else int(self.hints[row, column])
        return Sent(self.scope, self.snapshot, row, column, self.order, None if hint < 0 else hint)

    def of_thread(self, slot: int, thread: int) -> Sent:
        """Return that of one thread."""
        return self.of(*self.snapshot.position(slot, thread))


@dataclass(eq=False, slots=True)
class Message:
    """A release pattern that somebody has acquired.

    Attributes
    ----------
    first : Strong
        Its first operation: the fence, or the write that releases by itself.
    known : array of int, (plane, rank, column)
        What it says of its own cluster.
    chains : array of int, (chain,)
        How far it knows each chain.
    over : int
        The launches that it knows to be over, as bits.
    chain, count : int
        Its own place.
    number : int
        Counts all messages.
    """

    first: Strong
    known: Array
    chains: Array
    over: int
    chain: int
    count: int
    number: int


@dataclass(eq=False, slots=True)
class Heard:
    """The messages of a location, as a clock of a cluster's threads.

    Attributes
    ----------
    what : array of int, (plane, 1, rank, column)
    chains : array of int, (chain,)
        How far they know each chain.
    over : int
        The launches that they know to be over, as bits.
    number : int
        That of the last message.
    """

    what: Array
    chains: Array
    over: int = 0
    number: int = 0


@dataclass(eq=False, slots=True)
class Location:
    """The messages that the value at an address carries.

    Attributes
    ----------
    size : int
        Bytes of the accesses there.
    last : Strong
        The write of the value: who reads it observes the messages if that read and this write are morally strong.
    sent : dict of (sender, scope) to Sent
        Those that nobody has acquired, the last of each thread, and earlier ones of wider scopes.
    messages : dict of (int, whole) to Message
        Others, the last of each chain and of those that are in scope of the same threads, the newest last.
    version : int
        Counts the changes.
    learnt : dict of (launch, CTA, scope) to array of int
        By thread, which version it has learnt, or -1.
    passed : Location or None
        What fences with .sc say that came before the writes: see `fences.py`.
    is_wide : bool
        Whether all messages are of scope .gpu or wider.
    heard : dict of (launch, cluster) to Heard
        What threads of a cluster learn of the messages, if these are many: most have been there before.
    """

    size: int
    last: Strong
    sent: dict[tuple[tuple[int, int, int], int], Sent] = field(default_factory=dict)
    messages: dict[tuple[int, tuple[Cluster | None, int | None]], Message] = field(default_factory=dict)
    version: int = 0
    learnt: dict[tuple[int, int, int], Array] = field(default_factory=dict)
    passed: Location | None = None
    is_wide: bool = True
    heard: dict[Cluster, Heard] = field(default_factory=dict)
    _chains: tuple[int, Array] = (0, NO_COLUMNS)

    @property
    def says_something(self) -> bool:
        """True if there are messages."""
        return bool(self.sent or self.messages)

    def add(self, sent: Sent) -> None:
        """Add what a write says."""
        for scope in range(CTA, sent.scope + 1):  # what it said before, to no wider scope, is part of that
            self.sent.pop((sent.sender, scope), None)
        self.sent[sent.sender, sent.scope] = sent
        self.version += 1

    def hear(self, message: Message) -> None:
        """Add a message that is newer than all others."""
        key = message.chain, message.first.whole
        self.messages.pop(key, None)
        self.messages[key] = message
        self.is_wide &= message.first.scope >= GPU

    def since(self, number: int) -> Iterator[Message]:
        """Yield the messages that are newer than one with a number."""
        return itertools.takewhile(lambda m: m.number > number, reversed(self.messages.values()))

    def chains(self) -> Array:
        """Return how far each chain is known to who knows all messages."""
        before, result = self._chains
        new = list(self.since(before))
        if new:
            size = max(max(len(m.chains), m.chain + 1) for m in new)
            result = widened(result, max(0, size - len(result))).astype(np.int32)
            for m in new:
                np.maximum(result[: len(m.chains)], m.chains, out=result[: len(m.chains)])
                result[m.chain] = max(int(result[m.chain]), m.count)
            self._chains = new[0].number, result
        return result

    def as_it_is(self) -> Location:
        """Return what is there now, whatever is written later."""
        return Location(
            *(self.size, self.last, dict(self.sent), dict(self.messages), self.version, self.learnt),
            is_wide=self.is_wide,
        )


@lru_cache(maxsize=64)
def acquirers(ptx: str, kernel: str) -> tuple[dict[int, frozenset[int]], int]:
    """Return which instructions can learn from a message, by index, each with the elements by which it can.

    With them comes the widest scope in which something acquires, up to .gpu. A value that nobody looks at tells nobody that something was released.
    """
    instructions = linked(ptx, kernel).function.instructions
    used = set()
    for i in instructions:
        # What a guarded atomic leaves as it was counts as read.
        used |= {*read(i)} - ({*written(i)} if i.parts[0] in ("ld", "atom") else set())
    found = {}
    widest = max((how.scope for i in instructions if (how := strength(i.opcode)).acquires), default=WEAK)
    if widest:  # a relaxed read, too, acquires by what comes after it
        strong = (i for i in instructions if i.parts[0] in ("ld", "atom") and strength(i.opcode).scope)
        found = {i.index: frozenset(_elements_in(i, used)) for i in strong}
    return {index: elements for index, elements in found.items() if elements}, min(widest, GPU)


def _elements_in(i: Instruction, used: set[Register]) -> Iterator[int]:
    """Yield the elements of an access whose registers are used; those of packed values share one."""
    to = i.operands[0]
    each = 2 if any(part.endswith("x2") for part in i.parts) else 1
    for n, item in enumerate(to.items if isinstance(to, Vector) else (to,)):
        if not used.isdisjoint(registers_in(item)):
            yield from range(n * each, (n + 1) * each)


@lru_cache(maxsize=64)
def releases_to_launches(ptx: str, kernel: str) -> bool:
    """Tell whether a kernel may show something to another one that runs beside it: see `acquirers`."""
    instructions = linked(ptx, kernel).function.instructions
    wide = [(i, how) for i in instructions if (how := strength(i.opcode)).scope >= GPU]
    fences = any(how.releases for i, how in wide if i.parts[0] in ("fence", "membar"))
    return any(how.releases or fences for i, how in wide if i.parts[0] in ("st", "red", "atom"))
