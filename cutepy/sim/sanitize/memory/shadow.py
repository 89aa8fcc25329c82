"""Shadow memory of shared memory: the last writer and readers of each granule, checked against the next access.

A granule is as large as the smallest access that the kernel may make. It holds the numbers of access records, or of
sets of them; numbers of records that are no longer needed are given again. A record has one instruction's accesses in
all CTAs that ran in lockstep, so there are few, and mostly all lanes of one come after all lanes of the other. Only
where they don't is each lane compared.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Generic, TypeVar

import numpy as np

from cutepy.layouts.sm90.arch import UNIT_BYTES
from cutepy.sim.machine.lanes import WARP, Array, as_index
from cutepy.sim.ptx.memory_order import CLUSTER, CTA
from cutepy.sim.ptx.model import Instruction, type_bits
from cutepy.sim.sanitize.byte_layouts.layouts import AccessLayout, agree
from cutepy.sim.sanitize.memory.access_record import AccessRecord, Conflict, Lacks, are_strong, hides, needed
from cutepy.sim.sanitize.order.clocks import DONE, SEEN, UNFENCED, Clocks, Need, View, neighbours
from cutepy.sim.translate import Kernel


@lru_cache(maxsize=64)
def granule_bytes(kernel: Kernel) -> int:
    """Return the size of the smallest access of a kernel to shared memory, 16 at most."""
    return min((_bytes(i) for i in kernel.instructions if _may_be_shared(i)), default=UNIT_BYTES)


def _may_be_shared(i: Instruction) -> bool:
    by_thread = i.traits.kind in ("memory", "atomic") or i.traits.is_copy_of_thread
    return by_thread and not {"shared", "generic"}.isdisjoint((*i.traits.loads, *i.traits.stores))


def _bytes(i: Instruction) -> int:
    if i.traits.is_copy_of_thread:
        return 4
    if i.parts[1] == "bulk":
        return 8
    vector = next((int(p[1:]) for p in i.parts if p in ("v2", "v4", "v8")), 1)
    return min(UNIT_BYTES, max(1, type_bits(i.parts[-1]) * vector // 8))


_FEWEST = 1024

T = TypeVar("T")


class NumberedTable(Generic[T]):
    """Table of records, numbered from 1.

    Examples
    --------
    >>> table = NumberedTable()
    >>> table.add("a"), table.add("b"), table.add("c")
    (1, 2, 3)
    >>> table.keep({2})
    ['a', 'c']
    >>> table.add("d"), table[2]
    (3, 'b')
    """

    def __init__(self) -> None:
        self._things: dict[int, T] = {}
        self._free: list[int] = []
        self._most = _FEWEST

    def __getitem__(self, number: int) -> T:
        """Return the thing of a number."""
        return self._things[number]

    def __len__(self) -> int:
        """Return how many things there are."""
        return len(self._things)

    @property
    def is_full(self) -> bool:
        """True if unneeded things should be dropped: as many have come as were kept the last time."""
        return len(self._things) >= self._most

    def add(self, thing: T) -> int:
        """Give a thing a number."""
        number = self._free.pop() if self._free else len(self._things) + 1
        self._things[number] = thing
        return number

    def keep(self, needed: Collection[int]) -> list[T]:
        """Forget all but those of some numbers; returns them."""
        gone = [number for number in self._things if number not in needed]
        self._free += gone
        self._most = max(_FEWEST, 2 * (len(self._things) - len(gone)))
        return [self._things.pop(number) for number in gone]


_MANY = 64
"""Granules of a touch from which on it is asked whether several lanes touch each of them."""

_MOST_TOUCHES = 64
"""Unordered accesses to a granule that are remembered."""

_OVER = Need((DONE,))
_LACKS: tuple[Lacks, ...] = "order", "scope", "fence", "warps"

_FORGOTTEN = View(np.zeros((0, 0, 0, 0, 0), np.int32), None)
"""View of an access that has been compared with those before it: later ones ask their own clocks."""


class Shadow:
    """The shared memory of resident CTAs.

    Parameters
    ----------
    clocks : Clocks
    slots, granules : int
        CTAs, and granules of each.
    report : callable
        Called with each `Conflict`.
    unwritten : callable
        Called with a touch, the position of a CTA in it and a granule, where it reads what nothing wrote; whether each
        lane that does so reads something beside it that was written; and which of the granules of a lane are such.
    needed : callable
        Called with an instruction and the number of granules that each lane reads; tells of which something comes.
    misread : callable
        Called with the touch that wrote, the one that reads, the position of a CTA in that, granules, and how they
        were written and are read, where this differs; tells whether it is a mistake.
    forgot : callable
        Called where a touch is forgotten that a later one should have been compared with.
    filled : callable
        Called with a touch that reads what nothing wrote, the one that writes it first, the position of a CTA in that,
        and a granule.
    """

    def __init__(
        self,
        clocks: Clocks,
        slots: int,
        granules: int,
        report: Callable[[Conflict], None],
        unwritten: Callable[[AccessRecord, int, int, bool, Array], None],
        needed: Callable[[Instruction, int], Array],
        misread: Callable[[AccessRecord, AccessRecord, int, Array, AccessLayout, AccessLayout], bool],
        in_order: Callable[[AccessRecord, AccessRecord, int, int, Array, Array, Array], None],
        forgot: Callable[[], None],
        filled: Callable[[AccessRecord, AccessRecord, int, int], None],
    ) -> None:
        self._clocks, self._filled, self._in_order, self._needed = clocks, filled, in_order, needed
        self._report, self._unwritten, self._misread, self._forgot = report, unwritten, misread, forgot
        # One row as long as all CTAs hold the same, which those in lockstep do.
        self._slots = slots
        self._written = np.zeros((1, granules), np.int32)
        self._read = np.zeros((1, granules), np.int32)
        self._touches: NumberedTable[AccessRecord] = NumberedTable()
        self._sets: NumberedTable[tuple[int, ...]] = NumberedTable()
        self._numbers: dict[tuple[int, ...], int] = {}
        self._last: AccessRecord | None = None
        self._alike: dict[tuple[bytes, bytes], AccessRecord] = {}  # by the instruction of the last one, by lanes
        self._once_by: dict[int, tuple[Array, Array | None]] = {}

    def writers(self, slot: int, granules: Array) -> list[AccessRecord]:
        """Return the touches that wrote some granules of a CTA last; those of one granule as they came."""
        _, members = self._present(self._written[min(slot, len(self._written) - 1), granules])
        return [self._touches[m] for m in dict.fromkeys(chain(*members))]

    def touch(self, new: AccessRecord) -> None:
        """Check a touch against those before it, and record it."""
        self._number([new])
        self._touch(new)

    def loads(self, together: Sequence[tuple[AccessRecord, Array]]) -> None:
        """Check weak loads of the same lanes at one time, and record them.

        `together`: each with the granules that it touches in each CTA, each once and in order; no two touch the same.
        """
        if not together:
            return
        self._number([new for new, _ in together])
        first = together[0][0]
        granules = np.concatenate([each for _, each in together])
        order = np.argsort(granules, kind="stable")
        at = self._index(first.slots, granules[order][None])
        written, read = _once(self._written[at]), _once(self._read[at])
        if not written.all() or not self._knows(first, written):  # all of them know the same
            for new, _ in together:
                self._touch(new)
            return
        if not read.any():
            numbers = np.repeat([new.number for new, _ in together], [len(each) for _, each in together])
            self._read[at] = numbers[order]
        else:
            for new, each in together:
                at = self._index(new.slots, each[None])
                self._read[at] = self._joined(new, _once(self._read[at]))
        for new, _ in together:
            new.view = _FORGOTTEN

    def _number(self, touches: Sequence[AccessRecord]) -> None:
        """Assign numbers to access records, and note the warps that made the accesses and the warps that know them.

        A thread that knows one access also knows the other accesses of the same lanes at the same count.
        """
        if self._touches.is_full or self._sets.is_full:
            self._recycle()
            self._last = None
        for new in touches:
            last, lanes = self._last, (new.slots.tobytes(), new.columns.tobytes())
            if last is None or last.instruction is not new.instruction:
                self._alike.clear()
            same = self._alike.get(lanes)
            if same is not None and same.repeat(new):
                new.number, new.heard, new.warps = same.number, same.heard, same.warps
                continue
            new.number, self._last = self._touches.add(new), new
            self._alike[lanes] = new
            if last is not None and _are_of_one_time(last, new):
                new.heard, new.warps = last.heard, last.warps
                continue
            new.heard = np.zeros((len(new.slots), self._clocks.warps), bool)
            if new.threads is not None and np.array_equal(new.agents, new.slots):
                new.warps = np.flatnonzero(np.bincount(new.threads // WARP))

    def _touch(self, new: AccessRecord) -> None:
        flat = new.granules.reshape(len(new.granules), -1)
        if not (new.writes or new.scope or new.spans) and self._reads_what_is_known(new, flat):
            new.view = _FORGOTTEN
            return
        at = self._index(new.slots, flat)
        written, read = _once(self._written[at]), _once(self._read[at])
        if new.writes and new.threads is not None and not new.scope:
            self._within(new, new.threads // WARP)
        self._check(new, written, flat)
        if (new.instruction.traits.is_atomic or not new.writes) and not written.all():
            self._reads_unwritten(new, (written == 0).reshape(len(written), *new.granules.shape[1:]), flat)
        if new.writes:
            self._check(new, read, flat)
            if not written.all():
                self._first(new, written, read, flat)
            if not new.scope:  # else who comes next need not come after this write, but after the reads
                self._read[at] = 0
            self._written[at] = self._joined(new, written) if new.scope else new.number
        else:
            self._read[at] = self._joined(new, read)
        new.view = _FORGOTTEN

    def _reads_unwritten(self, new: AccessRecord, by_lane: Array, flat: Array) -> None:
        """Note a read of granules that nothing wrote, and tell of it as far as something comes of them."""
        rows, columns = np.nonzero(by_lane.reshape(len(by_lane), -1))
        new.early = flat[np.minimum(rows, len(flat) - 1), columns]
        lacking = by_lane & self._needed(new.instruction, by_lane.shape[-1])
        if lacking.any():
            row, k = (int(at[0]) for at in np.nonzero(lacking.reshape(len(lacking), -1)))
            is_beside = not by_lane.all(axis=-1).any()
            granules = np.flatnonzero(lacking.any(axis=(0, 1)))
            self._unwritten(new, row, int(flat[min(row, len(flat) - 1), k]), is_beside, granules)

    def _reads_what_is_known(self, new: AccessRecord, flat: Array) -> bool:
        """Record a read whose lanes all know the last writes, each granule once; return whether it was done."""
        granules = self._each_once(new.instruction, flat)
        if granules is None:
            return False
        at = self._index(new.slots, granules)
        written, read = _once(self._written[at]), _once(self._read[at])
        if not written.all() or not self._knows(new, written):
            return False
        self._read[at] = self._joined(new, read)
        return True

    def _each_once(self, i: Instruction, flat: Array) -> Array | None:
        """Return the granules that lanes touch in each CTA, each once, (1, granule); None if that saves little."""
        if len(flat) > 1 or flat.size < _MANY:
            return None
        before, granules = self._once_by.get(i.index, (None, None))
        if before is None or not np.array_equal(before, flat):
            granules = np.unique(flat)[None]
            granules = granules if 2 * granules.size <= flat.size else None
            self._once_by[i.index] = flat, granules
        return granules

    def _knows(self, new: AccessRecord, before: Array) -> bool:
        """Return whether all lanes of a touch know of all that granules have had."""
        numbers, members = self._present(before)
        for number, each in zip(numbers, members, strict=True):
            mask = None if len(numbers) == 1 else before == number
            for old in map(self._touches.__getitem__, each):
                if not old.is_heard(new) and self._unknown(old, new, mask) is not None:
                    return False
        return True

    def _first(self, new: AccessRecord, written: Array, read: Array, flat: Array) -> None:
        """Report earlier reads of granules that a touch is the first to write."""
        read = np.where(written == 0, read, 0)
        for number, members in zip(*self._present(read), strict=True):
            row, k = (int(x[0]) for x in np.nonzero(read == number))
            for old in members:
                self._filled(self._touches[old], new, row, int(flat[min(row, len(flat) - 1), k]))

    def _within(self, new: AccessRecord, warps: Array) -> None:
        """Check lanes against each other that write the same bytes in one instruction.

        Of a warp any one wins, but it is one of them: CUDA C++ Programming Guide.
        """
        if (warps == warps[0]).all():
            return
        for row, flat in enumerate(new.granules.reshape(len(new.granules), -1)):
            if len(np.unique(flat)) == len(flat):
                continue
            granules, lanes = new.touched(row)
            twice = (granules[1:] == granules[:-1]) & (warps[lanes[1:]] != warps[lanes[:-1]])
            if twice.any():
                k = int(np.argmax(twice))
                self._report(Conflict(new, new, int(lanes[k]), int(lanes[k + 1]), row, int(granules[k]), "order"))

    def _index(self, slots: Array, flat: Array) -> Any:  # noqa: ANN401 - slices, or arrays
        """Return an index of granules of CTAs, (CTA, granule); of one row if all CTAs hold the same and will."""
        if len(self._written) < self._slots:
            if len(flat) == 1 and len(slots) == self._slots:
                return slice(1), as_index(flat[0])
            self._written, self._read = (np.repeat(held, self._slots, axis=0) for held in (self._written, self._read))
        if len(flat) == 1:
            rows, columns = neighbours(slots), as_index(flat[0])
            if isinstance(rows, slice) or isinstance(columns, slice):
                return rows, columns
        return slots[:, None], flat

    # Numbers of touches, and of sets of them.

    def _present(self, held: Array) -> tuple[list[int], list[tuple[int, ...]]]:
        """Return the numbers that granules have, and the touches of each."""
        numbers = _numbers_in(held)
        return numbers, [(n,) if n > 0 else self._sets[-n] if n else () for n in numbers]

    def _joined(self, new: AccessRecord, before: Array) -> Array | int:
        """Return the numbers of the sets of those before that still count, and the new one."""
        numbers, members = self._present(before)
        result = np.full(before.shape, new.number, np.int32)
        counts = {m: m != new.number and self._still_counts(m, new) for m in {*chain(*members)}}
        for number, each in zip(numbers, members, strict=True):
            kept = tuple(m for m in each if counts[m])
            if len(kept) >= _MOST_TOUCHES:
                self._forgot()
            if kept:
                result[before == number] = self._set((*kept[1 - _MOST_TOUCHES :], new.number))
        return result

    def _set(self, members: tuple[int, ...]) -> int:
        if members not in self._numbers:
            self._numbers[members] = -self._sets.add(members)
        return self._numbers[members]

    def _recycle(self) -> None:
        """Take back the numbers that no granule has any more."""
        held = np.unique(np.concatenate([np.unique(self._written), np.unique(self._read)]))
        sets = set((-held[held < 0]).tolist())
        for members in self._sets.keep(sets):
            del self._numbers[members]
        self._touches.keep({*held[held > 0].tolist(), *(m for n in sets for m in self._sets[n])})

    def _still_counts(self, number: int, new: AccessRecord) -> bool:
        """Return whether an access after a new touch must still be compared with an older one."""
        old = self._touches[number]
        if hides(old, new):
            return True
        same = len(old.columns) == len(new.columns) and np.array_equal(old.columns, new.columns)
        same = same and np.array_equal(old.granules, new.granules) and np.array_equal(old.slots, new.slots)
        if same and np.array_equal(old.agents, new.agents):
            return False
        rows = np.minimum(np.searchsorted(new.slots, old.slots), len(new.slots) - 1)
        if not np.array_equal(new.slots[rows], old.slots):
            return True
        if not old.asynchronous and (new.asynchronous or not np.array_equal(new.agents[rows], old.agents)):
            return True  # a proxy fence in the CTA of the new one, if that needs one at all, may not cover the old one
        if old.is_heard(new):
            return False
        known = bool(self._known(old, new, _OVER, rows, np.arange(len(rows))).all())
        if known:
            self._hear(old, new, _OVER, np.arange(len(rows)))
        return not known

    def _hear(self, old: AccessRecord, new: AccessRecord, how: Need, olds: Array) -> None:
        """Note that all lanes of a touch know of an older one, in some CTAs."""
        if new.warps is not None and (how is not _OVER or old.asynchronous):
            old.heard[olds[:, None], self._clocks.sharing(new.warps)] = True

    # Order.

    def _check(self, new: AccessRecord, before: Array, flat: Array) -> None:
        numbers, members = self._present(before)
        having: dict[int, list[int]] = {}  # by touch, the numbers of the granules that have it
        for number, each in zip(numbers, members, strict=True):
            for member in each:
                having.setdefault(member, []).append(number)
        ordered: dict[int, bool] = {}  # by what knows of touches, whether all of these come before
        for member, of in having.items():
            old = self._touches[member]
            time = id(old.heard)
            if time not in ordered:
                ordered[time] = old.is_heard(new)
            has_layouts = bool(old.spans and new.spans and old.writes and not new.writes)
            # Strong ones of one cluster are morally strong, whoever they are by.
            is_fine = ordered[time] or are_strong(old, new, CLUSTER)
            if is_fine and not has_layouts:
                continue
            mask = None if len(of) == len(numbers) else np.isin(before, of)
            if not is_fine:
                is_ordered = self._compare(old, new, mask, flat)
                is_of_all = not new.scope and (mask is None or len(mask) == 1)  # CTAs, and by what they know
                ordered[time] = is_ordered and is_of_all
            if has_layouts:
                self._compare_layouts(old.spans[0].through[0], old, new, mask, flat)

    def _compare(self, old: AccessRecord, new: AccessRecord, mask: Array | None, flat: Array) -> bool:
        """See whether a new touch comes after an old one that touched the same granules, which `mask` picks."""
        found = self._unknown(old, new, mask)
        if found is None:
            return True
        rows, olds, known = found
        for row, of_old in zip(rows.tolist(), olds.tolist(), strict=True):
            here = known[rows == row][0]
            if not here.all():
                part = None if mask is None else mask[min(row, len(mask) - 1)]
                self._compare_lanes(old, new, row, of_old, here, part, flat)
        return False

    def _unknown(self, old: AccessRecord, new: AccessRecord, mask: Array | None) -> tuple[Array, Array, Array] | None:
        """Return the CTAs of a new touch and an old one, and the lanes' knowledge of it; None if it suffices."""
        if mask is None or len(mask) == 1:
            rows = np.arange(len(new.slots))
        else:
            rows = np.flatnonzero(mask.any(axis=1))
        olds = np.searchsorted(old.slots, new.slots[rows])
        if are_strong(old, new, CTA):  # within a CTA any scope will do
            apart = old.agents[olds] != new.agents[rows]
            rows, olds = rows[apart], olds[apart]
        if old.is_heard(new, olds):
            return None
        how = needed(old, new)
        known = self._known(old, new, how, rows, olds)
        if known.all():
            self._hear(old, new, how, olds)
            return None
        return rows, olds, known

    def _compare_layouts(
        self, written: AccessLayout, old: AccessRecord, new: AccessRecord, mask: Array | None, flat: Array
    ) -> None:
        """Check whether a touch reads through another layout than an old one wrote."""
        for start, end, through in new.spans:
            if all(agree(written, read) for read in through):
                continue
            for row in range(max(len(flat), 1 if mask is None else len(mask))):
                read = through[min(row, len(through) - 1)]
                granules = flat[min(row, len(flat) - 1), start:end]
                if mask is not None:
                    granules = granules[mask[min(row, len(mask) - 1), start:end]]
                if len(granules) and not agree(written, read) and self._misread(old, new, row, granules, written, read):
                    return

    def _known(self, old: AccessRecord, new: AccessRecord, how: Need, rows: Array, olds: Array) -> Array:
        """Return, by CTA, row of knowledge (for the async proxy one) and lane of the old touch, whether it is known."""
        counts = old.counts[as_index(olds)] if len(old.counts) > 1 else old.counts
        capacity = new.view.known.shape[-1]
        columns = np.minimum(old.columns, capacity - 1)
        if self._clocks.cluster > 1:
            ranks = old.agents[olds] % self._clocks.cluster
            every = np.arange(new.view.known.shape[2])[None, :, None]
            held = how.of(
                lambda plane: new.view.known[plane][rows[:, None, None], every, ranks[:, None, None], columns]
            )
        else:
            by_row, by_column = as_index(rows), as_index(columns)
            held = how.of(lambda plane: new.view.known[plane, by_row, :, 0][..., by_column])
        result: Array = held >= counts[:, None, :]
        if int(old.columns.max()) >= capacity:
            result &= old.columns < capacity
        is_by_lane = new.threads is not None or len(new.row_of) > 1
        return result if is_by_lane else np.logical_and.reduce(result, axis=1, keepdims=True)

    def _compare_lanes(
        self, old: AccessRecord, new: AccessRecord, row: int, of_old: int, known: Array, mask: Array | None, flat: Array
    ) -> None:
        """Find lanes that touched a granule unordered: `known` tells by row of knowledge and lane of the old one."""
        granules = flat[min(row, len(flat) - 1)]
        lanes = np.repeat(np.arange(new.granules.shape[1]), new.granules.shape[2])
        positions = np.arange(len(granules))
        if mask is not None:
            granules, lanes, positions = granules[mask], lanes[mask], positions[mask]
        old_granules, old_lanes = old.touched(of_old)
        start, end = np.searchsorted(old_granules, granules, "left"), np.searchsorted(old_granules, granules, "right")
        many = end - start
        new_lanes, at = np.repeat(lanes, many), np.repeat(granules, many)
        within = np.arange(len(new_lanes)) - np.repeat(np.cumsum(many) - many, many)
        before = old_lanes[np.repeat(start, many) + within]
        rows = new.row_of[new_lanes]
        fine = known[rows, before]
        fine |= self._own(old, new, row, of_old, before, new_lanes)
        self._in_order(old, new, row, of_old, before[fine], new_lanes[fine], known)
        if fine.all():
            return
        bad, crosses = np.flatnonzero(~fine), new.asynchronous and not old.asynchronous
        here = np.array([row]), np.array([of_old])
        ordered = self._known(old, new, UNFENCED[old.writes], *here)[0] if crosses else known
        over = self._known(old, new, _OVER, *here)[0]
        what = np.where(over[rows[bad], before[bad]], "scope", "order")
        if crosses:
            what[ordered[rows[bad], before[bad]]] = "fence"
            own = self._is_of_own_warp(old, new, row, of_old, before[bad], np.repeat(positions, many)[bad])
            what[own & (what != "fence")] = "warps"
        for lacks in _LACKS:
            found = bad[what == lacks]
            copies = new.copies(new_lanes[found]) * len(old.row_of) + old.copies(before[found])
            for first in found[np.unique(copies, return_index=True)[1]].tolist():
                pair = int(before[first]), int(new_lanes[first])
                mate = None if lacks == "fence" else _mate(old, new, pair[0], ordered[rows[first]])
                self._report(Conflict(old, new, *pair, row, int(at[first]), lacks, mate))

    def _is_of_own_warp(
        self, old: AccessRecord, new: AccessRecord, row: int, of_old: int, before: Array, positions: Array
    ) -> Array:
        """Mark the pairs whose warp wrote the rows of A that it multiplies, and knows a later proxy fence.

        `positions`: of the granules, by position in what the MMA reads.
        """
        result = np.zeros(len(before), bool)
        issuers = new.issuers
        if issuers is None or old.threads is None or not old.writes:
            return result
        if int(old.agents[of_old]) != int(new.agents[row]):
            return result
        warps = old.threads[before] // WARP - issuers.first
        near = np.flatnonzero((warps == issuers.of[positions]) & (warps >= 0))
        rank, last = int(old.agents[of_old]) % self._clocks.cluster, new.view.known.shape[-1] - 1
        columns, at = old.columns[before[near]], issuers.rows[warps[near]]

        def held(plane: int) -> Array:
            known: Array = new.view.known[plane, row, at, rank, np.minimum(columns, last)]
            return known

        counts = old.counts[min(of_old, len(old.counts) - 1)][before[near]]
        result[near] = (needed(old, new).of(held) >= counts) & (at >= 0) & (columns <= last)
        return result

    def _own(self, old: AccessRecord, new: AccessRecord, row: int, of_old: int, before: Array, after: Array) -> Array:
        """Mark the pairs of accesses of one thread that program order orders."""
        if new.threads is None or new.view.own is None or int(old.agents[of_old]) != int(new.agents[row]):
            return np.zeros(len(before), bool)
        columns = old.columns[before]
        mine = self._clocks.owner[columns] == new.threads[after]
        counts = old.counts[min(of_old, len(old.counts) - 1)][before]
        own = new.view.own[SEEN][row]
        result: Array = mine & (own[np.minimum(columns, len(own) - 1)] >= counts)
        return result


def _are_of_one_time(old: AccessRecord, new: AccessRecord) -> bool:
    """Return whether the same lanes made two touches at the same count, and in the same way."""
    same = old.counts is new.counts and old.columns is new.columns
    return (
        same
        and (old.writes, old.asynchronous) == (new.writes, new.asynchronous)
        and (old.slots is new.slots or np.array_equal(old.slots, new.slots))
        and (old.agents is new.agents or np.array_equal(old.agents, new.agents))
    )


def _mate(old: AccessRecord, new: AccessRecord, lane: int, known: Array) -> int | None:
    """Return a lane of the warp of one that is not known, which is, and not by having issued the newer one itself."""
    if old.threads is None or len(known) != len(old.threads):
        return None
    mates = old.threads // WARP == old.threads[lane] // WARP
    if new.issue is not None:
        mates &= ~np.isin(old.threads, new.issue.threads)
    found = np.flatnonzero(known & mates)
    return int(found[0]) if len(found) else None


def _once(held: Array) -> Array:
    """Return the entries of the CTAs, (CTA, granule), once where they are the same for all."""
    return held[:1] if len(held) > 1 and (held == held[0]).all() else held


def _numbers_in(held: Array) -> list[int]:
    """Return the numbers that granules have: neighbours mostly have the same, so few are compared."""
    flat = held.reshape(-1)
    (ends,) = (flat[1:] != flat[:-1]).nonzero()
    if not len(ends):
        return [int(flat[0])]
    return sorted({*flat[ends].tolist(), int(flat[-1])})
