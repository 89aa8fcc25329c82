"""Locations: the messages that values in memory carry, by address, and the writes that leave them there.

A write by the threads of one warp or of several is one object with arrays. The clocks of its threads are copied once,
and the block of memory of each element keeps only a note of the write. The notes of a block take effect, one after the
other, at the first read in the block. Most notes never do: no thread reads the sums of a split-K product to
synchronise.

Each element of a vector is a location of its own, as each element is an access of its own.

References
----------
PTX ISA, "Memory Consistency Model": "Vector Data-types", "Packed Data-types"; "Release and Acquire Patterns".
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cutepy.sim.machine.lanes import Array, spread
from cutepy.sim.ptx.memory_order import GPU, unit_bytes
from cutepy.sim.sanitize.order.published import Location, Release, ReleasePattern, Sender, StrongOperation

if TYPE_CHECKING:
    from cutepy.sim.machine.events import Access

BLOCK = 4
"""As a power of two, the bytes of a block: those of the widest access, which is aligned."""

FEWEST_BYTES = 64 << 20
"""Bytes of clocks that writes keep before it is asked which of these were written over."""

_NOTE_BYTES = 40


def elements(access: Access) -> tuple[Array, int] | None:
    """Return keys of the elements that each thread accesses, (CTA, thread, element), and the bytes of an element.

    A key is an address in global memory, or the complement of one in shared memory. There are none of what is weak by
    its kind: copies, tensor maps and matrices.
    """
    slots, threads = access.ctas.slots, access.threads.ids
    is_copy = access.part_of is not None or access.proxy != "generic"
    if is_copy or access.addresses.shape[1] not in (1, len(threads)):
        return None
    size = unit_bytes(access.instruction.opcode) or access.size_bytes
    firsts = spread(access.addresses, (len(slots), len(threads))).astype(np.int64)
    keys = firsts[..., None] + np.arange(0, access.size_bytes, size)
    return keys if access.space == "global" else ~keys, size


def repeated(keys: Array) -> Array:
    """Return by key whether it occurs more than once.

    Examples
    --------
    >>> repeated(np.array([[4, 8, 4]]))
    array([[ True, False,  True]])
    """
    _, which, many = np.unique(keys, return_inverse=True, return_counts=True)
    found: Array = many[which].reshape(keys.shape) > 1
    return found


class Writes(NamedTuple):
    """Writes by some threads, by one instruction.

    Attributes
    ----------
    keys : array of int, (CTA * thread * element,)
    shape : (int, int, int)
        CTAs, threads and elements.
    size : int
        Bytes of an element.
    modifies : bool
        True if they read, too, and leave the old value.
    launch : int
        Its number.
    blocks : array of int
        By slot, the index of the resident CTA in the grid: one array for each set of CTAs that are resident together.
    by : list of StrongOperation
        The operation, by CTA.
    slots, threads : array of int
    release : Release or None
        Release of the writes themselves.
    fences : array of (Release or None), (scope, CTA, thread), or None
        Releases of the last fences before the writes.
    passed : Release or None
        Release of earlier fences with .sc.
    """

    keys: Array
    shape: tuple[int, int, int]
    size: int
    modifies: bool
    launch: int
    blocks: Array
    by: Sequence[StrongOperation]
    slots: Array
    threads: Array
    release: Release | None = None
    fences: Array | None = None
    passed: Release | None = None

    def lane(self, at: int) -> tuple[int, int]:
        """Return the row and the column of the thread that writes an element."""
        return divmod(at // self.shape[2], self.shape[1])

    def sender(self, at: int) -> Sender:
        """Return the thread that writes an element."""
        row, column = self.lane(at)
        return self.launch, int(self.blocks[self.slots[row]]), int(self.threads[column])

    @property
    def scope(self) -> int:
        """The scope that the instruction names."""
        return self.by[0].scope

    @property
    def nbytes(self) -> int:
        """Bytes of the clocks that are kept for it alone."""
        kept = self.keys.nbytes + (0 if self.fences is None else self.fences.nbytes)
        return kept + sum(one.snapshot.nbytes for one in (self.release, self.passed) if one is not None)


class Locations:
    """Locations that carry messages, by key; no two overlap."""

    def __init__(self) -> None:
        self._at: dict[int, Location] = {}
        self._sizes: set[int] = set()
        # By block, which elements are written, in order: the elements of each write have numbers, counted on.
        self._notes: defaultdict[int, list[int]] = defaultdict(list)
        self._writes: list[Writes] = []
        self._firsts: list[int] = []
        self._released: dict[int, tuple[Array, dict[tuple[int, int, int, int], list[ReleasePattern]]]] = {}
        self._blocks: Array = np.zeros(0, np.int64)  # in order; in some there is nothing any more
        self._new_blocks: list[Array] = []
        self._next, self._bytes, self._most_bytes = 0, 0, FEWEST_BYTES

    def __bool__(self) -> bool:
        return bool(self._at or self._notes or self._released)

    def are_near(self, keys: Array) -> Array:
        """Return by key whether a location may overlap the bytes there."""
        if self._new_blocks:
            self._blocks = np.unique(np.concatenate([self._blocks, *self._new_blocks]))
            self._new_blocks.clear()
        if not len(self._blocks):
            return np.zeros(keys.shape, bool)
        blocks = keys >> BLOCK
        found: Array = self._blocks[np.minimum(np.searchsorted(self._blocks, blocks), len(self._blocks) - 1)] == blocks
        return found

    def mark(self, keys: Array) -> None:
        """Let `are_near` report writes from now on."""
        self._new_blocks.append(keys >> BLOCK)

    def get(self, key: int, size: int) -> Location | None:
        """Return the location with exactly these bytes."""
        self._settle(key >> BLOCK)
        return self._get(key, size)

    def _get(self, key: int, size: int) -> Location | None:
        found = self._at.get(key)
        return found if found is not None and found.size == size else None

    def write(self, writes: Writes, elements: Array) -> None:
        """Take some elements of a write, after all that was written before; they are marked."""
        if not len(elements):
            return
        blocks = writes.keys[elements] >> BLOCK
        if not self._writes or self._writes[-1] is not writes:
            self._firsts.append(self._next)
            self._writes.append(writes)
            self._next += len(writes.keys)
            self._bytes += writes.nbytes
        notes = self._notes
        for number, block in zip((self._firsts[-1] + elements).tolist(), blocks.tolist(), strict=True):
            notes[block].append(number)
        self._bytes += _NOTE_BYTES * len(blocks)
        if self._bytes > self._most_bytes:
            self._drop_void()

    def _written(self, number: int) -> tuple[Writes, int]:
        """Return a write, and which of its elements has a number."""
        at = bisect_right(self._firsts, number) - 1
        return self._writes[at], number - self._firsts[at]

    def _latest(self, notes: list[int]) -> list[int]:
        """Return the notes but for those that a later one of the same kind, place and thread makes void.

        What a thread releases there includes all that it has released there by such a write before; and what lies
        between both finds, of what the earlier one does to others, the same after the later one: if all writes there
        are morally strong, so that no read-modify-write ends what it doesn't observe.
        """
        if len(notes) == 1 or not self._are_strong(notes):
            return notes
        seen, kept = set(), []
        for number in reversed(notes):
            writes, at = self._written(number)
            kind = writes.modifies, writes.scope, writes.size, writes.release is None
            what = int(writes.keys[at]), writes.sender(at), kind
            if what not in seen:
                seen.add(what)
                kept.append(number)
        return kept[::-1]

    def _are_strong(self, notes: list[int]) -> bool:
        """Return whether all writes, but for weak ones, and those before them are morally strong."""
        written = list(map(self._written, notes))
        strong = [writes.by[writes.lane(at)[0]] for writes, at in written if writes.scope]
        before = (self._at.get(int(writes.keys[at])) for writes, at in written)
        strong += [found.last for found in before if found is not None]
        first = next(iter(strong), None)
        if first is None or all(one.scope >= GPU for one in strong):
            return True
        return all(one[:2] == first[:2] for one in strong)

    def _drop_void(self) -> None:
        """Drop the notes that are void, and the writes of which no note is left."""
        for block, notes in self._notes.items():
            self._notes[block] = self._latest(notes)
        numbers = np.sort(np.fromiter(itertools.chain.from_iterable(self._notes.values()), np.int64))
        kept = np.unique(np.searchsorted(self._firsts, numbers, side="right") - 1).tolist()
        self._writes, self._firsts = [self._writes[n] for n in kept], [self._firsts[n] for n in kept]
        self._bytes = _NOTE_BYTES * len(numbers) + sum(writes.nbytes for writes in self._writes)
        self._most_bytes = max(FEWEST_BYTES, 2 * self._bytes)

    def _settle(self, block: int) -> None:
        """Let the writes to a block take effect."""
        notes = self._notes.pop(block, None)
        for number in self._latest(notes) if notes else ():
            self._apply(*self._written(number))

    def apply(self, writes: Writes, at: int) -> None:
        """Let an element of a write take effect, after all that was written before; it is marked."""
        self._settle(int(writes.keys[at]) >> BLOCK)
        self._apply(writes, at)

    def _apply(self, writes: Writes, at: int) -> None:
        key, (row, column) = int(writes.keys[at]), writes.lane(at)
        found, last = self._get(key, writes.size) if writes.modifies else None, writes.by[row]
        sent = self._sends(writes, key, row, column) if writes.scope else []
        passed = None if writes.passed is None else writes.passed.of(row, column)
        if found is None or not found.last.includes(last):
            self._end(key, writes.size)
            if not sent and passed is None:
                return
            found = self._at[key] = Location(writes.size, last)
            self._sizes.add(writes.size)
        found.last = last
        for one in sent:
            found.carries = found.carries.followed_by(one)
        if passed is not None:
            found.passed = found.passed.followed_by(passed)

    def _sends(self, writes: Writes, key: int, row: int, column: int) -> list[ReleasePattern]:
        """Return the release patterns of a write: itself, or fences or releases before it, of the same bytes."""
        thread, block = int(writes.threads[column]), key >> BLOCK
        what = writes.by[row].cta, thread, key, writes.size
        resident, released = self._released.get(block) or (None, {})
        patterns = released.get(what, []) if resident is writes.blocks else []
        if writes.release is not None:
            patterns = _widest([writes.release.of(row, column), *patterns])
            if resident is not writes.blocks:
                self._released[block] = writes.blocks, {what: patterns}
            else:
                released[what] = patterns
        before = () if writes.fences is None else writes.fences[:, row, column]
        fences = [fence.of_thread(int(writes.slots[row]), thread) for fence in before if fence is not None]
        return _widest([*fences, *patterns]) if fences else patterns

    def _end(self, key: int, size: int) -> None:
        """Remove the locations that a write overlaps."""
        address = key if key >= 0 else ~key
        for other in self._sizes:
            for start in range(address // other * other, address + size, other):
                at = start if key >= 0 else ~start
                if self._get(at, other) is not None:
                    del self._at[at]

    def end_shared(self) -> None:
        """Remove the locations in shared memory."""
        for held in (self._at, self._notes, self._released):
            for key in [key for key in held if key < 0]:
                del held[key]
        self._blocks = self._blocks[self._blocks >= 0]


def _widest(patterns: list[ReleasePattern]) -> list[ReleasePattern]:
    """Return those of a thread that none of as wide a scope has followed, the widest first."""
    found: list[ReleasePattern] = []
    for one in sorted(patterns, key=lambda sent: -sent.order) if len(patterns) > 1 else patterns:
        if not found or one.first.scope > found[0].first.scope:
            found.insert(0, one)
    return found
