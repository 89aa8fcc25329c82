"""Shadow memory of global memory: the last writer and readers of each granule, checked against the next access.

A granule is as large as the smallest access that its allocation has seen, and has at most 16 bytes. It holds two
numbers of records: the last write, and the last read since. A record keeps the numbers that its granules held before.
The reads of a granule, or the atomics on it, thus form a chain of records. A weak record drops from its chain the
records of launches that ended before its own launch began, because each access after the weak record also comes after
these launches. A chain therefore has only records that may be concurrent, however many launches a run has. A chain that
grows too long is cut, and its last record keeps the launches of the dropped records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from cutepy.layouts.sm90.arch import UNIT_BYTES
from cutepy.sim.machine.lanes import WARP, Array
from cutepy.sim.ptx.memory_order import GPU, WEAK
from cutepy.sim.sanitize.memory.global_access_record import CONFLICTS, GlobalAccessRecord, GlobalConflict, Pattern

if TYPE_CHECKING:
    from cutepy.sim.machine.address_patterns import AddressPattern
    from cutepy.sim.machine.events import Access
    from cutepy.sim.machine.memory import GlobalMemory


EXTENT_BYTES = 1 << 26
"""Boundaries of extents: multiples of this number of bytes, in allocations that are larger than that."""

UNWRITTEN = -1
"""The number of granules that nothing has written since they were allocated."""


class Extent:
    """Shadow of one allocation, or of a piece of a large one: numbers by granule."""

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end
        self.base = start & -UNIT_BYTES
        self.granule = UNIT_BYTES
        self.written: Array = np.zeros(-(-(end - self.base) // UNIT_BYTES), np.int32)
        self.read: Array | None = None
        self.last_write = 0
        self.fresh = False

    def refine(self, granule: int) -> None:
        """Divide granules into smaller ones."""
        times = self.granule // granule
        self.written = _repeated(self.written, times)
        self.read = None if self.read is None else _repeated(self.read, times)
        self.granule = granule

    def index(self, starts: Array, size: int) -> Array:
        """Return the granules of ranges of bytes, (range, granule), which become smaller if need be."""
        offsets = starts - self.base
        if size % self.granule or (offsets & (self.granule - 1)).any():
            self.refine(int(np.gcd(np.gcd.reduce(offsets), np.gcd(size, self.granule))))
        result: Array = (offsets // self.granule)[:, None] + np.arange(size // self.granule)
        return result

    def cells(self, pattern: Pattern, low: int) -> Array | slice | None:
        """Return the granules of a pattern from an address on, each once; None if they are not known, or too large."""
        if pattern.addresses is None or not pattern.addresses.is_aligned(low - self.base, self.granule):
            return None
        if pattern.size % self.granule:
            return None
        cells, first = pattern.cells(self.granule), (low - self.base) // self.granule
        if isinstance(cells, slice):
            return slice(cells.start + first, cells.stop + first)
        return None if cells is None else cells + first

    def take(self, other: Extent) -> None:
        """Merge the shadow of memory that is part of this allocation now."""
        if other.granule < self.granule:
            self.refine(other.granule)
        times = other.granule // self.granule
        low, high = max(self.base, other.base), min(self.end, other.end)
        mine, theirs, count = (x // self.granule for x in (low - self.base, low - other.base, high - low))
        self.written[mine : mine + count] = np.repeat(other.written, times)[theirs : theirs + count]
        self.last_write, self.fresh = max(self.last_write, other.last_write), self.fresh or other.fresh
        if other.read is not None:
            if self.read is None:
                self.read = np.zeros_like(self.written)
            self.read[mine : mine + count] = np.repeat(other.read, times)[theirs : theirs + count]


def _piece(start: int, end: int, address: int) -> tuple[int, int]:
    """Return the piece of an allocation that an address is in: a small one is one piece."""
    if end - start <= EXTENT_BYTES:
        return start, end
    first = address // EXTENT_BYTES * EXTENT_BYTES
    return max(start, first), min(end, first + EXTENT_BYTES)


def within_extents(starts: Array, size: int) -> Iterator[tuple[Array, Array, int]]:
    """Divide runs of bytes where extents may end -> which runs, where their pieces start, the size of these."""
    across = starts // EXTENT_BYTES != (starts + size - 1) // EXTENT_BYTES
    if not across.all():
        yield np.flatnonzero(~across), starts[~across], size
    for run in np.flatnonzero(across):
        start, end = int(starts[run]), int(starts[run]) + size
        while start < end:
            stop = min(end, (start // EXTENT_BYTES + 1) * EXTENT_BYTES)
            yield np.array([run]), np.array([start]), stop - start
            start = stop


def _repeated(numbers: Array, times: int) -> Array:
    """Repeat each number, and touch no memory for zeros."""
    result = np.zeros(len(numbers) * times, np.int32)
    there = np.flatnonzero(numbers)
    result.reshape(-1, times)[there] = numbers[there, None]
    return result


_DEEPEST = 64
"""Unordered accesses to a granule that are remembered."""

_MOST_HISTORY = 1 << 26
"""Numbers of what touches found before them, of all touches together; those of the oldest are forgotten first."""

_MANY_TOUCHES = 1 << 12
"""Of fewer touches none is looked for that no granule leads to."""

_MOST_FRESH = 1 << 28
"""Bytes of the largest allocation of which it is followed what has been written."""

_MOST_PAIRS = 1 << 20
_SAMPLE = 8
"""Of how many lanes at one granule it is asked whether they are in order, where all would be too many."""

Order = Callable[[GlobalAccessRecord, GlobalAccessRecord, Array, Array], Array]
"""An older touch, a newer one, and pairs of lanes -> for each pair the place of its kind of hazard in `CONFLICTS`."""


@dataclass(eq=False)
class GlobalShadow:
    """The global memory of a run.

    Parameters
    ----------
    known : callable
        Returns the memory that kernels may touch.
    report : callable
        Called with each conflict.
    unwritten : callable
        Called with a touch, a lane and an address, where it reads unwritten memory.
    over : callable
        Tells of launches, by number, as the bits of an int, whether all were over before the one that runs began.
    forgot : callable
        Called where a touch is not compared with all that it should be: some are forgotten, or too many.
    """

    known: Callable[[], GlobalMemory]
    report: Callable[[GlobalConflict], None]
    unwritten: Callable[[GlobalAccessRecord, int, int], None]
    over: Callable[[int], bool]
    forgot: Callable[[], None]
    floor: int = 0
    launch: int = 0
    _touches: dict[int, GlobalAccessRecord] = field(default_factory=dict)
    _number: int = 0
    _history: int = 0
    _extents: dict[int, Extent] = field(default_factory=dict)
    _patterns: dict[tuple[int, int], Pattern] = field(default_factory=dict)
    _many: int = 0

    # Launches and allocations.

    def begin(self, launch: int, settled: bool) -> int:
        """Begin with an operation; return the last forgotten one, after which all later ones come.

        `settled`: True if all later operations come after all earlier ones.
        """
        self.launch = launch
        if settled:
            self.floor = self._number
            self._touches.clear()
            self._patterns.clear()
            self._history = 0
        elif len(self._touches) > max(_MANY_TOUCHES, self._many):
            self._drop_unreachable()
            self._many = 2 * len(self._touches)
        known = self.known()
        for start, extent in list(self._extents.items()):
            if not extent.fresh and known.find(extent.start, extent.start + 1) is None:
                del self._extents[start]
        return launch - 1 if settled else 0

    def _drop_unreachable(self) -> None:
        """Forget the touches that no granule leads to: for each of their granules, another one stands for them."""
        is_live = np.zeros(self._number + 1, bool)
        for extent in self._extents.values():
            for numbers in (extent.written, extent.read):
                if numbers is not None:
                    is_live[np.maximum(numbers, 0)] = True
        for number in reversed(self._touches):  # a chain leads from later touches to earlier ones
            touch = self._touches[number]
            if is_live[number]:
                is_live[touch.before] = True
        for number in [number for number in self._touches if not is_live[number]]:
            before = self._touches.pop(number).before
            self._history -= 0 if isinstance(before, int) else before.size

    def allocate(self, address: int, size: int, written: bool) -> None:
        """Begin to track an allocation."""
        for start, extent in list(self._extents.items()):
            if extent.start < address + size and address < extent.end:
                del self._extents[start]
        known = written or size > _MOST_FRESH
        low = address
        while low < (0 if known else address + size):
            low, high = _piece(address, address + size, low)
            self._extents[low] = extent = Extent(low, high)
            extent.written[:] = UNWRITTEN
            extent.fresh = True
            low = high

    def write(self, starts: Array, size: int) -> None:
        """Note that runs of bytes have been written, by any access."""
        for _, pieces, piece_size in within_extents(starts, size):
            self._write(pieces, piece_size)

    def _write(self, starts: Array, size: int) -> None:
        low, high = int(starts.min()), int(starts.max()) + size
        for extent in self._extents.values():
            if extent.fresh and extent.start < high and low < extent.end:
                inside = starts[(starts >= extent.start) & (starts + size <= extent.end)]
                if len(inside):
                    at = extent.index(inside, size)
                    extent.written[at] = np.maximum(extent.written[at], 0)

    def _extent(self, low: int, high: int) -> Extent | None:
        """Return the shadow of the memory that holds a range of bytes, or None if no one extent does."""
        region = self.known().find(low, high)
        if region is None:
            return None
        start, end = _piece(region.start, region.end, low)
        if high > end:
            return None
        found = self._extents.get(start)
        if found is None or found.end != end:
            self._divide(region.start, region.end)
            found = self._extents.setdefault(start, Extent(start, end))
        return found

    def _divide(self, start: int, end: int) -> None:
        """Divide the shadow of an allocation, which may have grown, into its present pieces."""
        for other in [x for x in self._extents.values() if x.start < end and start < x.end]:
            if (other.start, other.end) == _piece(start, end, max(start, other.start)):
                continue
            if self._extents.get(other.start) is other:
                del self._extents[other.start]
            low = max(start, other.start)
            while low < min(end, other.end):
                low, high = _piece(start, end, low)
                known = self._extents.get(low)
                if known is None or known.end != high:
                    taken, known = known, Extent(low, high)
                    if taken is not None:
                        known.take(taken)
                    self._extents[low] = known
                known.take(other)
                low = high

    def last_written(self, address: int, size: int) -> int:
        """Return the number of the last touch that wrote to a range of bytes."""
        extent = self._extent(address, address + size)
        if extent is None or extent.last_write <= self.floor:
            return 0
        return int(extent.written[extent.index(np.array([address]), size)].max())

    def writers(self, address: int) -> Iterator[tuple[GlobalAccessRecord, int]]:
        """Yield the touches that wrote to a byte, with each lane that did, the last one first."""
        for touch in reversed(self._touches.values()):
            if touch.writes:
                _, entries = touch.entries(np.array([address]))
                yield from ((touch, lane) for lane in touch.pattern.lanes[entries].tolist())

    def touch_of(self, number: int) -> GlobalAccessRecord | None:
        """Return a touch by its number, unless it is forgotten."""
        return self._touches.get(number)

    def still_counts(self, number: int) -> GlobalAccessRecord | None:
        """Return a touch by its number, unless all comes after it."""
        found = self._touches.get(number)
        return None if found is None or self._is_over(found) else found

    # Touches.

    def pattern(
        self, access: Access, starts: Array, lanes: Array | None, addresses: AddressPattern | None = None
    ) -> Pattern:
        """Return the pattern of an access of `lanes`, or of all: the same object as last time if it is equal."""
        size = access.size_bytes
        key = access.instruction.index, len(starts)
        found = self._patterns.get(key)
        if found is not None and found.size == size and lanes is None:
            if addresses is not None and found.addresses is addresses:
                return found
        if lanes is None:
            lanes = np.arange(len(starts))
        if found is None or found.size != size or not np.array_equal(found.starts, starts):
            found = self._patterns[key] = Pattern(starts, lanes, size)
        elif not np.array_equal(found.lanes, lanes):
            found = self._patterns[key] = Pattern(starts, lanes, size)
        found.addresses = addresses
        return found

    def touch(self, new: GlobalAccessRecord, order: Order) -> None:
        """Check a touch against those before it, and record it."""
        if not len(new.pattern.starts):
            return
        lanes, size = new.pattern.lanes, new.pattern.size
        if self._extent(new.low, new.low + new.pattern.end()) is not None:
            self._touch(new, order)
            return
        starts = new.pattern.starts + new.low
        for which, pieces, piece_size in within_extents(starts, size):
            piece = new
            if (len(which), piece_size) != (len(starts), size):
                low = int(pieces.min())
                piece = replace(new, pattern=Pattern(pieces - low, lanes[which], piece_size), low=low)
            self._touch(piece, order)

    def _touch(self, new: GlobalAccessRecord, order: Order) -> None:
        self._number += 1
        new.number = self._number
        extent = self._extent(new.low, new.low + new.pattern.end())
        if extent is not None:
            cells = extent.cells(new.pattern, new.low)
            if cells is None or not self._in_cells(new, extent, cells):
                self._in_one(new, extent, new.pattern.starts + new.low, None, order)
        else:
            starts = new.pattern.starts + new.low
            for extent, entries in self._by_extent(starts, new.pattern.size):
                self._in_one(new, extent, starts[entries], entries, order)
        if new.writes:
            self._within(new, order)
        self._touches[new.number] = new

    def _by_extent(self, starts: Array, size: int) -> Iterator[tuple[Extent, Array]]:
        left = np.arange(len(starts))
        while len(left):
            first = int(starts[left[0]])
            extent = self._extent(first, first + size)
            if extent is None:  # it lies across the end of an allocation
                left = left[1:]
                continue
            inside = (starts[left] >= extent.start) & (starts[left] + size <= extent.end)
            yield extent, left[inside]
            left = left[~inside]

    def _in_cells(self, new: GlobalAccessRecord, extent: Extent, cells: Array | slice) -> bool:
        """Record a weak touch of some granules, each of which counts once; tells whether it was done.

        It is not where the touch has to be compared, entry by entry, with any before it that still matters.
        """
        if new.scope != WEAK or new.instruction.traits.discards:
            return False
        written = extent.written[cells] if extent.last_write > self.floor or extent.fresh else None
        if written is not None:
            if int(written.max()) > self.floor or (extent.fresh and not new.writes and int(written.min()) == UNWRITTEN):
                return False
        read = None if extent.read is None else extent.read[cells]
        last = 0 if read is None else int(read.max())
        if new.writes:
            if last > self.floor:
                return False
            extent.written[cells] = extent.last_write = new.number
        else:
            if extent.read is None:
                extent.read = np.zeros(len(extent.written), np.int32)
            if read is not None and last > self.floor:
                if int(read.min()) != last or self._was_over(self._touches[last], new):
                    return False
                self._follow(new, np.array([[last]]))
            extent.read[cells] = new.number
        new.granule = extent.granule
        return True

    def _in_one(
        self, new: GlobalAccessRecord, extent: Extent, starts: Array, entries: Array | None, order: Order
    ) -> None:
        at = extent.index(starts, new.pattern.size)
        new.granule = granule = extent.granule
        own = np.arange(len(starts)) if entries is None else entries
        if extent.last_write > self.floor or extent.fresh:
            written = extent.written[at]
            if extent.fresh and not new.writes and int(written.min()) == UNWRITTEN:
                where = np.argwhere(written == UNWRITTEN)[0]
                self.unwritten(new, int(new.pattern.lanes[own[where[0]]]), int(starts[where[0]] + where[1] * granule))
            if int(written.max()) > self.floor:
                self._against(new, written, starts, own, order)
        else:
            written = None
        if new.writes:
            if extent.read is not None:
                read = extent.read[at]
                if int(read.max()) > self.floor:
                    self._against(new, read, starts, own, order)
                    if new.scope == WEAK:  # else who comes next need not come after this write, but after the reads
                        extent.read[at] = 0
            if new.scope != WEAK and written is not None and entries is None:
                self._follow(new, written)
            discards = new.instruction.traits.discards  # PTX ISA: a weak write of an indeterminate value
            extent.fresh |= discards
            extent.written[at] = UNWRITTEN if discards else new.number
            extent.last_write = new.number
            return
        if extent.read is None:
            extent.read = np.zeros(len(extent.written), np.int32)
        if entries is None:
            self._follow(new, extent.read[at])
        extent.read[at] = new.number

    def _follow(self, new: GlobalAccessRecord, before: Array) -> None:
        """Note the earlier accesses to the granules of a touch, as far as they still matter."""
        if new.scope == WEAK:  # else who comes next need not come after this one, but after those
            before = self._beside(new, before)
        numbers = self._numbers(before)
        if not numbers:
            return
        if any(self._touches[n].strong != new.strong for n in numbers):
            new.strong = None
        last, is_one = self._touches[numbers[-1]], int(before.min()) == numbers[-1]
        if is_one and last.same_lanes(new):
            new.before, new.depth, new.cut = last.before, last.depth, last.cut
            return
        new.depth = 1 + max(self._touches[n].depth for n in numbers)
        if new.depth > _DEEPEST:
            new.depth, new.cut = 0, new.cut | self._launches_behind(numbers)
            return
        new.before = numbers[0] if is_one else before
        self._history += 0 if is_one else before.size
        if self._history > _MOST_HISTORY:
            self._forget_history()

    def _beside(self, new: GlobalAccessRecord, before: Array) -> Array:
        """Return in the place of touches that were over before a new one began those that they had found."""
        while True:
            over = [n for n in self._numbers(before) if self._was_over(self._touches[n], new)]
            if not over:
                return before
            starts = new.pattern.starts + new.low
            addresses = (starts[:, None] + np.arange(before.shape[1]) * new.granule).reshape(-1)
            found = before.reshape(-1).copy()
            for n in over:
                at = np.flatnonzero(found == n)
                found[at] = self._touches[n].found_before(addresses[at])
                new.cut |= self._touches[n].cut
            before = found.reshape(before.shape)

    def _numbers(self, before: Array) -> list[int]:
        """Return the numbers of touches that still matter, in order."""
        high = int(before.max())
        if high <= self.floor:
            return []
        return [high] if int(before.min()) == high else [n for n in np.unique(before).tolist() if n > self.floor]

    def _launches_behind(self, numbers: Sequence[int]) -> int:
        """Return the launches, as bits, of some touches and of all in their chains."""
        launches, seen, waiting = 0, set(numbers), list(numbers)
        while waiting:
            touch = self._touches[waiting.pop()]
            launches |= 1 << touch.launch | touch.cut
            more = set(self._numbers(np.asarray(touch.before))) - seen
            seen |= more
            waiting += more
        return launches

    def _forget_history(self) -> None:
        for touch in self._touches.values():
            if self._history <= _MOST_HISTORY // 2:
                break
            if not isinstance(touch.before, int):
                self._history -= touch.before.size
                touch.cut |= self._launches_behind(self._numbers(touch.before))
                touch.before = 0

    # Order.

    def _within(self, new: GlobalAccessRecord, order: Order) -> None:
        """Check lanes against each other that write the same bytes in one instruction."""
        pairs = new.pattern.twice()
        if not len(pairs) or new.is_morally_strong(new):
            return
        lanes = new.pattern.lanes[pairs]
        if new.threads is not None:  # of a warp, any one wins, but it is one of them: CUDA C++ Programming Guide
            warps = new.threads[lanes % new.lanes] // WARP
            same = (warps[:, 0] == warps[:, 1]) & (lanes[:, 0] // new.lanes == lanes[:, 1] // new.lanes)
            pairs, lanes = pairs[~same], lanes[~same]
        if len(pairs):
            self._tell(new, new, lanes[:, 0], lanes[:, 1], new.pattern.starts[pairs[:, 1]] + new.low, order)

    def _against(self, new: GlobalAccessRecord, numbers: Array, starts: Array, own: Array, order: Order) -> None:
        """Check a touch against those that its granules, (entry, granule), have had.

        The write that a read-modify-write before the touch has observed is before it as well: PTX ISA, "Observation
        Order" and "Causality Order".
        """
        addresses = starts[:, None] + np.arange(numbers.shape[1]) * new.granule
        work = [(numbers.reshape(-1), np.arange(numbers.size), np.zeros(numbers.size, bool))]
        flat, entry_of = addresses.reshape(-1), np.repeat(own, numbers.shape[1])
        while work:
            these, places, observed = work.pop()
            for number, which in _parts(these):
                if number <= self.floor:
                    continue
                old = self._touches[number]
                if old.strong is not None and old.strong == new.strong:
                    continue
                here, seen = places[which], observed[which]
                if old.cut and (old.writes or new.writes) and not self.over(old.cut):
                    self.forgot()
                if new.comes_after(old):
                    seen = seen | (old.modifies and new.scope == WEAK)
                elif (old.writes or new.writes) and not self._is_over(old):
                    open_to = ~(seen & (old.writes and old.scope != WEAK))
                    found = self._compare(old, new, flat[here[open_to]], entry_of[here[open_to]], order)
                    if old.writes:
                        seen = np.full(len(here), old.modifies)
                        seen[open_to] = found
                if not isinstance(old.before, int) or old.before > self.floor:
                    work.append((old.found_before(flat[here]), here, seen))

    def _was_over(self, old: GlobalAccessRecord, new: GlobalAccessRecord) -> bool:
        return old.launch < new.launch and self._is_over(old)

    def _is_over(self, old: GlobalAccessRecord) -> bool:
        return old.launch != self.launch and self.over(1 << old.launch)

    def _compare(
        self, old: GlobalAccessRecord, new: GlobalAccessRecord, addresses: Array, entries: Array, order: Order
    ) -> Array:
        """Check entries against an older touch; return those after a read-modify-write, with its observed value."""
        if new.is_morally_strong(old):
            return np.zeros(len(addresses), bool)
        of, before = old.entries(addresses)
        settled = np.zeros(len(addresses), bool)
        if len(of) > _MOST_PAIRS:  # some of many lanes at the same bytes
            if min(old.scope, new.scope) < GPU:  # else all lanes are alike
                self.forgot()
            in_order = np.argsort(addresses, kind="stable")
            _, first, many = np.unique(addresses[in_order], return_index=True, return_counts=True)
            some = np.unique(np.concatenate([first + k * many // _SAMPLE for k in range(_SAMPLE)]))
            addresses, entries = addresses[in_order[some]], entries[in_order[some]]
            of, before = old.entries(addresses)
            step = -(-len(of) // _MOST_PAIRS)
            of, before = of[::step], before[::step]
        lanes_before, lanes_after = old.pattern.lanes[before], new.pattern.lanes[entries[of]]
        fine = self._tell(old, new, lanes_before, lanes_after, addresses[of], order)
        if old.modifies and new.scope == WEAK and len(settled) == len(addresses):
            settled[of[fine]] = True
        return settled

    def _tell(
        self,
        old: GlobalAccessRecord,
        new: GlobalAccessRecord,
        before: Array,
        after: Array,
        addresses: Array,
        order: Order,
    ) -> Array:
        """Report pairs that are not in order, and return the pairs that are."""
        wrong = order(old, new, before, after)
        if old.modifies and new.scope == WEAK:
            wrong[_observed(wrong == 0, before, after, addresses)] = 0
        counts = np.bincount(wrong)
        for kind in np.flatnonzero(counts[1:]) + 1:
            these = slice(None) if counts[kind] == len(wrong) else np.flatnonzero(wrong == kind)
            for of_copy in _by_copy(old, new, before[these], after[these]):
                pairs = before[these][of_copy], after[these][of_copy], addresses[these][of_copy]
                lane_before, lane_after, where = (int(x[0]) for x in pairs)
                self.report(GlobalConflict(CONFLICTS[kind], old, new, lane_before, lane_after, where, pairs))
        return np.asarray(wrong == 0)


def _parts(numbers: Array) -> Iterator[tuple[int, Array | slice]]:
    """Yield each of some numbers, in order, with the positions where it is: one pass if it is everywhere."""
    if not len(numbers):
        return
    if numbers.min() == numbers.max():
        yield int(numbers[0]), slice(None)
        return
    order = np.argsort(numbers, kind="stable")
    in_order = numbers[order]
    cuts = np.flatnonzero(in_order[1:] != in_order[:-1]) + 1
    for first, of_one in zip([0, *cuts.tolist()], np.split(order, cuts), strict=True):
        yield int(in_order[first]), of_one


def _by_copy(old: GlobalAccessRecord, new: GlobalAccessRecord, before: Array, after: Array) -> Iterator[Array | slice]:
    """Group pairs of lanes by the copies that the lanes belong to; each pair of copies is reported by itself."""
    if not (old.is_by_lane or new.is_by_lane):
        yield slice(None)
        return
    copies = np.zeros(len(before), np.int64)
    for touch, lanes in ((new, after), (old, before)):
        copies *= int(lanes.max()) + 1
        copies += lanes if touch.is_by_lane else 0
    yield from (these for _, these in _parts(copies))


def _observed(fine: Array, before: Array, after: Array, addresses: Array) -> Array:
    """Extend ordered pairs of lanes of a read-modify-write to the earlier lanes at the same address.

    The lanes take effect one after the other, and each lane reads the value that the lane before it has written: PTX
    ISA, "Observation Order" and "Causality Order".
    """
    if fine.all() or not fine.any():
        return fine
    _, group = np.unique(np.stack([addresses, after]), axis=1, return_inverse=True)
    last = np.full(int(group.max()) + 1, -1)
    np.maximum.at(last, group[fine], before[fine])
    return np.asarray(before <= last[group])
