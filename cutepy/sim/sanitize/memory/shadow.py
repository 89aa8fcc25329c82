"""Which operations touched each granule of shared memory last, and whether those that touch it next come after them.

Of each granule is kept who wrote it last, and who has read it since: numbers of touches, or of sets of them. A touch is
what one instruction did in all the CTAs that ran in lockstep, so that there are few of them, and mostly all lanes of
one come after all lanes of the other. Only where they don't is it asked lane by lane.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from cutepy.sim.machine.lanes import WARP, Array
from cutepy.sim.sanitize.meaning.layouts import Span, Through
from cutepy.sim.sanitize.memory.numbered import Numbered
from cutepy.sim.sanitize.order.clocks import DONE, FENCED, SEEN, Clocks, View
from cutepy.sim.sanitize.order.strength import CLUSTER, CTA

if TYPE_CHECKING:
    from cutepy.sim.ptx.model import Instruction

_MOST_READERS = 16

_FORGOTTEN = View(np.zeros((0, 0, 0, 0, 0), np.int32), None)
"""What a touch knew, once it has been compared with those before it: those after it ask what they know themselves."""


@dataclass(eq=False, slots=True)
class Touch:
    """What an instruction, or an asynchronous operation, did to shared memory.

    Attributes
    ----------
    what : str
    instruction : Instruction
    writes, asynchronous : bool
    scope : int
        Of strong operations: see `order.strength`. WEAK of all others.
    slots : array of int
        The CTAs whose memory it is.
    agents : array of int
        The CTAs that did it, one for each of `slots`.
    threads : array of int, (lane,), or None
        The threads that did it; None for the async proxy.
    columns : array of int, (lane,)
        Those threads' own, or the channel that says that it is over.
    counts : array of int, (CTA, lane)
        How far the columns had come.
    places : array of int, (CTA or 1, lane, n)
        The granules that each lane touched.
    view, row_of : View, array of int
        What those who did it knew, and in which row of that each lane's is.
    spans : tuple of Span
        How parts of its granules were read or written, where that is known.
    early : array of int or None
        The granules that it read before anything had written them, in some CTA.
    """

    what: str
    instruction: Instruction
    writes: bool
    asynchronous: bool
    scope: int
    slots: Array
    agents: Array
    threads: Array | None
    columns: Array
    counts: Array
    places: Array
    view: View
    row_of: Array
    spans: tuple[Span, ...] = ()
    early: Array | None = None
    number: int = 0
    lanes: dict[int, tuple[Array, Array]] = field(default_factory=dict)

    def touched(self, row: int) -> tuple[Array, Array]:
        """Return the granules of one CTA in order, and the lane that touched each, once for each that did."""
        row = min(row, len(self.places) - 1)
        found = self.lanes.get(row)
        if found is None:
            flat = self.places[row].reshape(-1)
            order = np.argsort(flat, kind="stable")
            lanes = np.repeat(np.arange(self.places.shape[1]), self.places.shape[2])
            found = self.lanes[row] = flat[order], lanes[order]
        return found


@dataclass(frozen=True)
class Conflict:
    """Two touches of the same byte that nothing orders.

    Attributes
    ----------
    before, after : Touch
    before_lane, after_lane : int
        Of `columns`.
    row : int
        The CTA, by position in `after.slots`.
    granule : int
    fenced_only : bool
        Whether they are ordered but for a proxy fence.
    mate : int or None
        Another lane of the same warp whose touch is ordered, by what it has published.
    """

    before: Touch
    after: Touch
    before_lane: int
    after_lane: int
    row: int
    granule: int
    fenced_only: bool
    mate: int | None = None

    @property
    def read_first(self) -> bool:
        """Whether a read came before the first write, which it should have come after."""
        return self.before.early is not None and not self.before.writes and self.granule in self.before.early

    @property
    def narrow(self) -> bool:
        """Whether both are strong, and one names a scope that the other is outside of."""
        return _are_strong(self.before, self.after, CTA)


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
        Called with a touch, the position of a CTA in it and a granule, where it reads what nothing wrote.
    misread : callable
        Called with the touch that wrote, the one that reads, the position of a CTA in that, granules, and how they
        were written and are read, where this differs; tells whether it is a mistake.
    """

    def __init__(
        self,
        clocks: Clocks,
        slots: int,
        granules: int,
        report: Callable[[Conflict], None],
        unwritten: Callable[[Touch, int, int], None],
        misread: Callable[[Touch, Touch, int, Array, Through, Through], bool],
    ) -> None:
        self._clocks = clocks
        self._report, self._unwritten, self._misread = report, unwritten, misread
        self._written = np.zeros((slots, granules), np.int32)
        self._read = np.zeros((slots, granules), np.int32)
        self._touches: Numbered[Touch] = Numbered()
        self._sets: Numbered[tuple[int, ...]] = Numbered()
        self._numbers: dict[tuple[int, ...], int] = {}

    def touch(self, new: Touch) -> None:
        """Check a touch against those before it, and record it."""
        if self._touches.is_full or self._sets.is_full:
            self._recycle()
        new.number = self._touches.add(new)
        flat = new.places.reshape(len(new.places), -1)
        at = self._index(new.slots, flat)
        written, read = self._written[at], self._read[at]
        if new.writes and new.threads is not None and not new.scope:
            self._within(new, new.threads // WARP)
        self._check(new, written, flat)
        if (new.instruction.parts[0] in ("atom", "red") or not new.writes) and not written.all():
            rows, columns = np.nonzero(written == 0)
            new.early = flat[np.minimum(rows, len(flat) - 1), columns]
            row, k = int(rows[0]), int(columns[0])
            self._unwritten(new, row, int(flat[min(row, len(flat) - 1), k]))
        if new.writes:
            self._check(new, read, flat)
            if not new.scope:  # else who comes next need not come after this write, but after the reads
                self._read[at] = 0
            self._written[at] = self._joined(new, written) if new.scope else new.number
        else:
            self._read[at] = self._joined(new, read)
        new.view = _FORGOTTEN

    def _within(self, new: Touch, warps: Array) -> None:
        """Check lanes against each other that write the same bytes in one instruction.

        Of a warp any one wins, but it is one of them: CUDA C++ Programming Guide.
        """
        if (warps == warps[0]).all():
            return
        for row, flat in enumerate(new.places.reshape(len(new.places), -1)):
            if len(np.unique(flat)) == len(flat):
                continue
            places, lanes = new.touched(row)
            twice = (places[1:] == places[:-1]) & (warps[lanes[1:]] != warps[lanes[:-1]])
            if twice.any():
                k = int(np.argmax(twice))
                self._report(Conflict(new, new, int(lanes[k]), int(lanes[k + 1]), row, int(places[k]), False))

    @staticmethod
    def _index(slots: Array, flat: Array) -> Any:  # noqa: ANN401 - slices, or arrays
        first, last = int(flat[0, 0]), int(flat[0, -1])
        if len(flat) == 1 and last - first + 1 == flat.shape[1]:
            rows = slots
            if len(slots) > 1 and int(slots[-1]) - int(slots[0]) + 1 == len(slots):
                return slice(int(slots[0]), int(slots[-1]) + 1), slice(first, last + 1)
            return rows, slice(first, last + 1)
        return slots[:, None], flat

    # Numbers of touches, and of sets of them.

    def _members(self, number: int) -> tuple[int, ...]:
        return (number,) if number > 0 else self._sets[-number]

    def _joined(self, new: Touch, before: Array) -> Array | int:
        """Return the numbers of the sets of those before that still count, and the new one."""
        present = _numbers_in(before)
        result = np.full(before.shape, new.number, np.int32)
        for number in present:
            if number == 0:
                continue
            kept = tuple(m for m in self._members(number) if self._still_counts(m, new))[-_MOST_READERS:]
            if kept:
                result[before == number] = self._set((*kept, new.number))
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

    def _still_counts(self, number: int, new: Touch) -> bool:
        """Tell whether who comes after a new touch need not come after an older one."""
        old = self._touches[number]
        if bool(old.scope) != bool(new.scope):
            return True
        same = len(old.columns) == len(new.columns) and np.array_equal(old.columns, new.columns)
        if same and np.array_equal(old.places, new.places) and np.array_equal(old.slots, new.slots):
            return False
        rows = np.flatnonzero(np.isin(old.slots, new.slots))
        if len(rows) < len(old.slots):
            return True
        return not bool(self._known(old, new, DONE, np.searchsorted(new.slots, old.slots[rows]), rows).all())

    # Order.

    def _check(self, new: Touch, before: Array, flat: Array) -> None:
        numbers = _numbers_in(before)
        for number in numbers:
            if number == 0:
                continue
            mask = None if len(numbers) == 1 else before == number
            for member in self._members(number):
                old = self._touches[member]
                if not _are_strong(old, new, CLUSTER):  # else they are morally strong, whoever they are by
                    self._compare(old, new, mask, flat)
                if old.spans and new.spans and old.writes and not new.writes:
                    self._compare_layouts(old.spans[0].through, old, new, mask, flat)

    def _compare(self, old: Touch, new: Touch, mask: Array | None, flat: Array) -> None:
        """See whether a new touch comes after an old one that touched the same granules, which `mask` picks."""
        if mask is None:
            rows = np.arange(len(new.slots))
        else:
            rows = np.flatnonzero(mask.any(axis=1))
        olds = np.searchsorted(old.slots, new.slots[rows])
        if _are_strong(old, new, CTA):  # within a CTA any scope will do
            apart = old.agents[olds] != new.agents[rows]
            rows, olds = rows[apart], olds[apart]
        plane = _plane(old, new)
        known = self._known(old, new, plane, rows, olds)
        if known.all():
            return
        for row, of_old in zip(rows.tolist(), olds.tolist(), strict=True):
            here = known[rows == row][0]
            if not here.all():
                self._compare_lanes(old, new, row, of_old, here, None if mask is None else mask[row], flat)

    def _compare_layouts(self, written: Through, old: Touch, new: Touch, mask: Array | None, flat: Array) -> None:
        """See whether a touch reads through another layout what an old one wrote."""
        for start, end, read in new.spans:
            if read == written:
                continue
            for row in range(len(new.slots) if mask is not None else 1):
                granules = flat[min(row, len(flat) - 1), start:end]
                if mask is not None:
                    granules = granules[mask[row, start:end]]
                if len(granules) and self._misread(old, new, row, granules, written, read):
                    return

    def _known(self, old: Touch, new: Touch, plane: int, rows: Array, olds: Array) -> Array:
        """Return, by CTA, row of knowledge and lane of the old touch, whether it is known."""
        ranks = old.agents[olds] % self._clocks.cluster
        columns, counts = old.columns, old.counts[olds] if len(old.counts) > 1 else old.counts
        capacity = new.view.known.shape[-1]
        columns = np.minimum(columns, capacity - 1)
        held = new.view.known[plane][
            rows[:, None, None],
            np.arange(new.view.known.shape[2])[None, :, None],
            ranks[:, None, None],
            columns[None, None, :],
        ]
        result: Array = (held >= counts[:, None, :]) & (old.columns < capacity)
        return result

    def _compare_lanes(
        self, old: Touch, new: Touch, row: int, of_old: int, known: Array, mask: Array | None, flat: Array
    ) -> None:
        """Find lanes that touched a granule unordered: `known` tells by row of knowledge and lane of the old one."""
        granules = flat[min(row, len(flat) - 1)]
        lanes = np.repeat(np.arange(new.places.shape[1]), new.places.shape[2])
        if mask is not None:
            granules, lanes = granules[mask], lanes[mask]
        places, old_lanes = old.touched(of_old)
        start, end = np.searchsorted(places, granules, "left"), np.searchsorted(places, granules, "right")
        many = end - start
        new_lanes, at = np.repeat(lanes, many), np.repeat(granules, many)
        within = np.arange(len(new_lanes)) - np.repeat(np.cumsum(many) - many, many)
        before = old_lanes[np.repeat(start, many) + within]
        rows = new.row_of[min(row, len(new.row_of) - 1)][new_lanes]
        fine = known[rows, before]
        fine |= self._own(old, new, row, of_old, before, new_lanes)
        if not fine.all():
            worst = int(np.argmin(fine))
            plane = _plane(old, new)
            fenced_only = False
            if plane == FENCED:
                seen = self._known(old, new, SEEN, np.array([row]), np.array([of_old]))[0]
                fenced_only = bool(seen[rows[worst], before[worst]])
            pair = int(before[worst]), int(new_lanes[worst])
            mate = None if fenced_only else _mate(old, int(before[worst]), known[rows[worst]])
            self._report(Conflict(old, new, *pair, row, int(at[worst]), fenced_only, mate))

    def _own(self, old: Touch, new: Touch, row: int, of_old: int, before: Array, after: Array) -> Array:
        """Tell by pair whether they are of one thread, and ordered by that."""
        if new.threads is None or new.view.own is None or int(old.agents[of_old]) != int(new.agents[row]):
            return np.zeros(len(before), bool)
        columns = old.columns[before]
        mine = self._clocks.owner[columns] == new.threads[after]
        counts = old.counts[min(of_old, len(old.counts) - 1)][before]
        own = new.view.own[SEEN][row]
        result: Array = mine & (own[np.minimum(columns, len(own) - 1)] >= counts)
        return result


def _mate(old: Touch, lane: int, known: Array) -> int | None:
    """Return a lane of the warp of one that is not known, which is."""
    if old.threads is None or len(known) != len(old.threads):
        return None
    found = np.flatnonzero(known & (old.threads // WARP == old.threads[lane] // WARP))
    return int(found[0]) if len(found) else None


def _are_strong(old: Touch, new: Touch, scope: int) -> bool:
    """Tell whether both are strong, of such a scope or a wider one, and of one proxy."""
    return min(old.scope, new.scope) >= scope and old.asynchronous == new.asynchronous


def _plane(old: Touch, new: Touch) -> int:
    """Return which knowledge orders a touch after another one."""
    if not old.writes:
        return DONE
    if new.asynchronous:
        # A copy that is over has left its bytes: another may write there once that is known, whoever has seen them.
        return (DONE if new.writes else SEEN) if old.asynchronous else FENCED
    return SEEN


def _numbers_in(held: Array) -> list[int]:
    """Return the numbers that granules have: neighbours mostly have the same, so few are compared."""
    flat = held.reshape(-1)
    ends = np.flatnonzero(flat[1:] != flat[:-1])
    if not len(ends):
        return [int(flat[0])]
    return sorted({*flat[ends].tolist(), int(flat[-1])})
