"""Vector clocks of the resident CTAs: the happens-before of their threads and asynchronous operations.

A vector clock of a CTA has *columns*. Each thread has two: the first counts its releases, the second the waits at
mbarriers that it has completed. Each *channel* by which asynchronous operations signal completion has one: the phases
of an mbarrier, the bulk groups and cp.async groups of a thread, the wgmma groups of a warpgroup. Columns count up. An
event at count n of a column happens before each thread whose clock has n or more in that column. The count of a thread
goes up at each release, since no other thread knows its accesses before a release. The count also goes up before an
operation that must be told apart from earlier operations of the thread.

A clock has three or more *planes*, one for each strength of the order between an access and a thread that knows it:

- ``DONE``: the access is complete, since a later event counted. Reads by the async proxy need no more.
- ``SEEN``: the access is complete and its writes are visible, since a later release includes the thread.
- ``FENCED``: the access is complete, and a proxy fence came after it, in its CTA or in a thread that had seen it. The
  async proxy needs ``FENCED`` to overwrite bytes that the generic proxy has read, and both ``FENCED`` and ``SEEN`` to
  access bytes that the generic proxy has written.
- ``FENCED_GLOBAL``: ``FENCED`` for global memory, in kernels whose proxy fences cover different state spaces.
- The last planes, in clusters only (`fenced_in`): ``FENCED`` by a fence in the CTA of one rank. For global memory the
  async proxy needs a fence in the CTA that issues the copy.

Lanes of a warp with the same clock share a row. A lane that alone acquires a clock has a row of its own until the warp
synchronises. Clocks that a lane acquires from messages are joined with its row when a check needs that row: see
`AcquiredClock`. The columns of a thread itself are kept apart, in `own`. A `BarrierGeneration` has the clocks that
threads released at a barrier. A `Need` names the planes in which a later access must know an earlier one. Within one
proxy a release suffices. From the generic proxy to the async proxy a proxy fence is needed, after reads as after
writes.

References
----------
PTX ISA, "Memory Consistency Model": "Proxies", "Causality Order"; "Async proxy".
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Set as AbstractSet
from typing import Any, NamedTuple, Protocol

import numpy as np

from cutepy.sim.machine.lanes import WARP, Array, Index, as_index, spread


def rectangle(slots: Array, columns: Array) -> tuple[Index, Index]:
    """Return an index of some columns, or rows, of some CTAs, each of them in order: see `neighbours`."""
    rows, at = neighbours(slots), neighbours(columns)
    if isinstance(rows, slice) or isinstance(at, slice):
        return rows, at
    return rows[:, None], at


def neighbours(positions: Array) -> Index:
    """Return an index of positions that are in order: a slice, which copies nothing, where none is left out.

    Examples
    --------
    >>> neighbours(np.array([4, 5, 6])), neighbours(np.array([0, 1, 5]))
    (slice(4, 7, None), array([0, 1, 5]))
    """
    if not len(positions):
        return slice(0)
    first, last = int(positions[0]), int(positions[-1])
    return slice(first, last + 1) if last - first == len(positions) - 1 else positions


def alike(of: Array) -> list[Array]:
    """Group lanes that act on the same CTAs' objects, given by (CTA, lane): their positions.

    Examples
    --------
    >>> alike(np.array([[0, 1, 0]]))
    [array([0, 2]), array([1])]
    """
    if (of == of[:, :1]).all():
        return [np.arange(of.shape[1])]
    _, which = np.unique(of, axis=1, return_inverse=True)
    which = which.reshape(-1)
    return [np.flatnonzero(which == n) for n in range(int(which.max()) + 1)]


def raise_at(held: Array, at: Any, what: Array) -> None:  # noqa: ANN401 - slices and arrays
    """Raise the values at an index to at least the given ones."""
    here = held[at]
    np.maximum(here, what, out=here)
    if not np.may_share_memory(held, here):
        held[at] = here


def widened(what: Array, columns: int) -> Array:
    """Return a clock with further columns."""
    if not columns:
        return what
    result: Array = np.zeros((*what.shape[:-1], what.shape[-1] + columns), what.dtype)
    result[..., : what.shape[-1]] = what
    return result


def _by_row(planes: int, slots: int, rows: int, ranks: int, columns: int) -> Array:
    """Return zeros, (plane, CTA, row, rank, column), in which the same row of all CTAs lies together.

    CTAs in lockstep mostly have one row each: it is written at each barrier.
    """
    found: Array = np.zeros((planes, rows, slots, ranks, columns), np.int32).swapaxes(1, 2)
    return found


def distinct(rows: Array) -> tuple[Array, Array]:
    """Return the rows that there are, and which of these each is."""
    if (rows == rows[0]).all():
        return rows[:1], np.zeros(len(rows), int)
    used = np.flatnonzero(np.bincount(rows))
    return used, np.searchsorted(used, rows)


DONE, SEEN, FENCED, FENCED_GLOBAL = range(4)
_SHARED, _ALL = frozenset({"shared"}), frozenset({"shared", "global"})
_NEW_COLUMNS = 64
NO_COLUMNS: Array = np.zeros(0, np.intp)


class View(NamedTuple):
    """View: the vector clocks of a set of threads, or of an asynchronous operation.

    A view of threads is valid until the next change of a clock, unless it is `kept`.

    Attributes
    ----------
    known : array of int, (plane, CTA, row, rank, column)
        Of a CTA's cluster, by rank.
    own : array of int, (plane, CTA, column) or None
        Of the columns that belong to the threads themselves; None for an operation, whose row has all.
    """

    known: Array
    own: Array | None

    def kept(self) -> View:
        """Return the present knowledge, whatever is learnt later."""
        return View(self.known.copy(), None if self.own is None else self.own.copy())


class AcquiredClock(Protocol):
    """Clock that a thread has acquired, and that is not joined with its own so far."""

    @property
    def source(self) -> object:
        """From where it comes."""

    @property
    def count(self) -> int:
        """Length of it: a thread that has more of a sequence knows all that one with less knows."""

    @property
    def is_deep(self) -> bool:
        """True if others that are not joined are part of it."""

    def clock(self) -> Array:
        """Return it, (plane, rank, column), until it is asked for again."""


def furthest(acquired: Iterable[AcquiredClock]) -> Collection[AcquiredClock]:
    """Return the acquired clocks, the longest of each source."""
    found: dict[object, AcquiredClock] = {}
    for one in acquired:
        before = found.get(one.source)
        if before is None or before.count < one.count:
            found[one.source] = one
    return found.values()


def joined(what: Array, others: Iterable[Array]) -> Array:
    """Raise a clock, (..., column), to others, and return it, with the columns that they have beside its own."""
    for other in others:
        what = widened(what, max(0, other.shape[-1] - what.shape[-1]))
        raise_at(what, (..., slice(other.shape[-1])), other)
    return what


_MOST_ACQUIRED = 8
"""Of a thread, how many sources are kept whose clocks are not joined with its own."""


class Clocks:
    """Vector clocks of all threads of the resident CTAs.

    Parameters
    ----------
    slots : int
        CTAs, in whole clusters.
    threads : int
        Of a CTA.
    cluster : int
        CTAs of a cluster.
    fences : set of frozenset of str, optional
        State spaces that the kernel's proxy fences cover.

    Attributes
    ----------
    planes : int
    fenced_global : int or None
        The plane of fenced accesses to global memory, by any thread; None if no fence covers that.
    threads, warps : int
        Of a CTA.
    sizes : array of int
        Number of threads of each warp.
    owner : array of int
        By column, the thread that it belongs to, or -1.
    """

    def __init__(
        self, slots: int, threads: int, cluster: int, fences: AbstractSet[frozenset[str]] = frozenset()
    ) -> None:
        self.cluster, self.threads = cluster, threads
        self.planes, self.fenced_global = _planes(fences)
        self._fenced_in = None
        if cluster > 1 and self.fenced_global is not None and fences:
            self.planes, self._fenced_in = self.planes + cluster, self.planes
        self._slots = slots
        self.warps = -(-threads // WARP)
        self._warp_of = np.arange(threads) // WARP
        self.sizes = np.bincount(self._warp_of)
        self._row = np.tile(self._warp_of, (slots, 1))
        self._parted = np.zeros(self.warps, bool)  # of which some lane has a row of its own, in some CTA
        self._columns: dict[object, int] = {}
        self.owner = np.tile(np.arange(threads), 2)
        capacity = 2 * threads + _NEW_COLUMNS
        self._known = _by_row(self.planes, slots, self.warps, cluster, capacity)
        # CTAs whose warps all know the same: the row of the first warp has it, and the others follow in `_spread`.
        self._alike = np.ones(slots, bool)
        self._rows, self._row_of = self.warps, np.full(threads, -1)
        self._own = np.zeros((self.planes, slots, capacity), np.int32)
        self._own[: SEEN + 1, :, :threads] = 1
        self._last_counts: tuple[Array, Array, Array] | None = None
        self._acquired: dict[int, dict[int, Collection[AcquiredClock]]] = {}  # by CTA and thread

    # Columns.

    @property
    def capacity(self) -> int:
        """Columns that there is room for."""
        return int(self._known.shape[-1])

    def ends(self, threads: Array) -> Array:
        """Return the columns that count the waits that threads have ended."""
        return threads + self.threads

    @property
    def all_ends(self) -> slice:
        """The columns that `ends` returns for all threads."""
        return slice(self.threads, 2 * self.threads)

    def tick(self, slots: Array, threads: Array) -> None:
        """Count later operations of threads apart from earlier ones."""
        self._last_counts = None
        self._own[: SEEN + 1, *rectangle(slots, threads)] += 1

    def end_waits(self, slots: Array, threads: Array) -> Array:
        """Count the end of a wait of each thread, and return how many it has ended: (CTA, thread)."""
        at = rectangle(slots, self.ends(threads))
        self._last_counts = None
        counts: Array = self._own[SEEN][at] + 1
        self._own[: SEEN + 1, *at] = counts
        return counts

    def column(self, channel: object, owner: int = -1) -> int:
        """Return the column of a channel, which belongs to a thread or to nobody."""
        found = self._columns.get(channel)
        if found is None:
            found = self._columns[channel] = len(self.owner)
            self.owner = np.append(self.owner, owner)
            if found == self._known.shape[-1]:
                more = max(_NEW_COLUMNS, found // 2)
                planes, slots, rows, ranks, _ = self._known.shape
                known = _by_row(planes, slots, rows, ranks, found + more)
                known[..., :found] = self._known
                self._known, self._own = known, widened(self._own, more)
        return found

    def known_column(self, channel: object) -> int | None:
        """Return the column of a channel, or None if there is none yet."""
        return self._columns.get(channel)

    def channel(self, column: int) -> tuple[Any, ...] | None:
        """Return the channel (kind, ...) of a column, if it is one's."""
        found = next((key for key, at in self._columns.items() if at == column), None)
        return found if isinstance(found, tuple) else None

    def is_channel(self, kinds: tuple[object, ...], columns: int) -> Array:
        """Mark which of the first columns belong to channels (kind, ...)."""
        result = np.zeros(columns, bool)
        for channel, column in self._columns.items():
            if isinstance(channel, tuple) and channel[0] in kinds and column < columns:
                result[column] = True
        return result

    def cells(self, targets: Array, slots: Array, columns: Array) -> tuple[Any, Any, Any]:
        """Return an index of columns of CTAs in the objects of others of their clusters, (CTA, rank, column)."""
        if self.cluster > 1:
            return targets[:, None], (slots % self.cluster)[:, None], columns
        rows, at = rectangle(targets, columns)
        return rows, 0, at

    def counts(self, slots: Array, columns: Array) -> Array:
        """Return the present counts of columns that belong to threads, (CTA, column)."""
        counts: Array = self._own[SEEN][rectangle(slots, columns)]
        return counts.copy()

    def counts_now(self, slots: Array, threads: Array) -> Array:
        """Return the result of `counts`, to be kept: the same array until threads count further."""
        last = self._last_counts
        if last is None or last[0] is not slots or last[1] is not threads:
            last = self._last_counts = slots, threads, self.counts(slots, threads)
            last[2].flags.writeable = False
        return last[2]

    def set_own(self, plane: int, slots: Array, columns: Array, counts: Array) -> None:
        """Raise the own columns of threads."""
        self._last_counts = None
        self._own[plane][slots[:, None], columns] = counts

    def held(self, plane: int, slots: Array, threads: Array, ranks: Array, columns: Array, joins: bool = True) -> Array:
        """Return the knowledge of each of some threads of a column of a CTA of its cluster, its own ones included.

        `joins`: with what it has acquired, and is not joined with its row so far.
        """
        known = self.rows_know(plane, slots, threads, ranks, columns, joins)
        mine = np.flatnonzero((self.owner[columns] == threads) & (slots % self.cluster == ranks))
        if len(mine):
            known[mine] = np.maximum(known[mine], self._own[plane, slots[mine], columns[mine]])
        return known

    def known_to_some(self, slot: int, threads: Array, plane: int, rank: int) -> Array:
        """Return, by column of a CTA of the cluster, how far that some of the threads of a CTA know it to have come."""
        view, place = self.view(np.array([slot]), threads, plane + 1)
        known: Array = view.known[plane, 0, np.unique(place), rank].max(axis=0)
        if slot % self.cluster == rank:
            assert view.own is not None
            mine = self.belongs(threads)
            own = np.where(mine, view.own[plane, 0, : len(mine)], 0)
            known[: len(mine)] = np.maximum(known[: len(mine)], own)
        return known

    def rows_know(
        self, plane: int, slots: Array, threads: Array, ranks: Array, columns: Array, joins: bool = True
    ) -> Array:
        """Return the knowledge in the rows of threads of columns of CTAs of their cluster, their own ones apart."""
        if joins:
            self.join(slots.ravel(), threads.ravel())
        self._spread(slots)
        known: Array = self._known[plane, slots, self._row[slots, threads], ranks, columns]
        return known

    def best(self, column: int) -> Array:
        """Return, by CTA, its threads' best knowledge of a column of their own CTA."""
        slots = np.arange(self._slots)
        self.join(slots, np.arange(self.threads))
        known = self._known[DONE][slots, :, slots % self.cluster, column].max(axis=1)
        best: Array = np.maximum(known, self._own[DONE][:, column])
        return best

    def best_of(self, slot: int, rank: int, plane: int = DONE) -> Array:
        """Return the best knowledge of one CTA's threads of all columns of a CTA of its cluster."""
        self.join(np.array([slot]), np.arange(self.threads))
        known: Array = self._known[plane][slot, :, rank].max(axis=0)
        return np.maximum(known, self._own[plane][slot]) if slot % self.cluster == rank else known

    # Knowledge of threads.

    def rows(self, slots: Array, threads: Array) -> Array:
        """Return the row of each thread, (CTA, thread)."""
        rows: Array = self._row[rectangle(slots, threads)]
        return rows

    def view(self, slots: Array, threads: Array, planes: int | None = None, joins: bool = True) -> tuple[View, Array]:
        """Return the knowledge of threads, by row, and the position of each thread's row.

        `planes`: how many, from `DONE` on; all if it isn't said. `joins`: as of `held`.
        """
        if joins:
            self.join(slots, threads)
        known, own = self._known[:planes], self._own[:planes, neighbours(slots)]
        if self._are_alike(slots, threads):
            return View(known[:, neighbours(slots), :1], own), np.zeros(len(threads), np.intp)
        self._spread(slots)
        used, place = distinct(threads // WARP)
        if self._parted[used].any():
            rows = self.rows(slots, threads)
            if not (rows == rows[0]).all():
                return View(known[:, slots[:, None], rows], own), np.arange(len(threads))
            used, place = distinct(rows[0])
        return View(known[:, *rectangle(slots, used)], own), place

    def _are_alike(self, slots: Array, threads: Array) -> bool:
        """Return whether all warps of CTAs know the same, and some threads the same as their warps."""
        return bool(self._alike[slots].all()) and not self._parted[threads // WARP].any()

    def _spread(self, slots: Array) -> None:
        """Give each warp of CTAs its knowledge in a separate row."""
        here = slots[self._alike[slots]]
        if len(here):
            here = here if len(here) == 1 else np.unique(here)
            self._known[:, here, 1 : self.warps] = self._known[:, here, :1]
            self._alike[here] = False

    def sharing(self, warps: Array) -> Array:
        """Return the warps, of those given, whose lanes all share a row in each CTA."""
        return warps[~self._parted[warps]]

    def belongs(self, threads: Array) -> Array:
        """Mark the columns that belong to one of some threads."""
        is_one = np.zeros(self.threads + 1, bool)  # the last is for columns that belong to nobody, whose owner is -1
        is_one[threads] = True
        result: Array = is_one[self.owner]
        return result

    def joint(self, slots: Array, threads: Array) -> Array:
        """Return the joint knowledge of threads, their own columns included: (plane, CTA, rank, column)."""
        by_row: dict[int, list[AcquiredClock]] = {}
        for row, _, acquired in self._lanes(slots, threads):
            by_row.setdefault(row, []).extend(acquired)
        clocks = [(row, self._clock(furthest(each))) for row, each in by_row.items()]  # they may have new columns
        found = self._joint(slots, threads)
        for row, what in clocks:
            raise_at(found, (slice(None), row, ..., slice(what.shape[-1])), what)
        return found

    def _joint(self, slots: Array, threads: Array) -> Array:
        view, _ = self.view(slots, threads, joins=False)
        assert view.own is not None
        mine = self.belongs(threads)
        if self.cluster == 1 and view.known.shape[2] == 1 and mine.all():
            known = view.known[:, :, 0]
            found: Array = np.empty(known.shape, known.dtype)
            np.maximum(known[:, :, 0, : len(mine)], view.own[..., : len(mine)], out=found[:, :, 0, : len(mine)])
            found[..., len(mine) :] = known[..., len(mine) :]
            return found
        found = view.known[:, :, 0].copy() if view.known.shape[2] == 1 else view.known.max(axis=2)
        if self.cluster == 1:
            here = found[:, :, 0, : len(mine)]
            np.maximum(here, view.own[..., : len(mine)], out=here, where=mine)
        else:
            at = slice(None), np.arange(len(slots)), slots % self.cluster, slice(len(mine))
            found[at] = np.maximum(found[at], np.where(mine, view.own[..., : len(mine)], 0))
        return found

    def publish(self, slots: Array, threads: Array) -> Array:
        """Return the clock that threads release, as of `joint`, without their later operations."""
        found = self.joint(slots, threads)
        self.tick(slots, threads)
        return found

    def publish_each(self, slots: Array, threads: Array) -> Array:
        """Return the clock that each thread releases by itself, (plane, CTA, thread, rank, column): see `publish`."""
        view, place = self.view(slots, threads)
        assert view.own is not None
        found: Array = view.known[:, :, place]
        known = min(found.shape[-1], len(self.owner))
        mine = self.owner[:known] == threads[:, None]
        at = slice(None), np.arange(len(slots)), slice(None), slots % self.cluster, slice(known)
        found[at] = np.maximum(found[at], np.where(mine, view.own[:, :, None, :known], 0).swapaxes(0, 1))
        self.tick(slots, threads)
        return found

    def learn(self, slots: Array, threads: Array, what: Array, together: bool = False, first: int = 0) -> None:
        """Join a clock, (plane, CTA, rank, column), into the clocks of threads.

        `together`: it includes all that they have published, so that whole warps share a row again. `first`: the
        column that it begins with.
        """
        for row, column, _ in [*self._lanes(slots, threads)] if together else ():
            del self._acquired[int(slots[row])][int(threads[column])]
        columns = ..., slice(first, first + what.shape[-1])
        warp_of = threads // WARP
        warps, place = distinct(warp_of)
        shares = np.bincount(place) == self.sizes[warps]
        if self._parted[warps].any():
            rows = self.rows(slots, threads)
            if together:
                self._row[rectangle(slots, threads)] = np.where(shares[place], warp_of, rows)
                self._parted = np.bincount(self._warp_of, (self._row != self._warp_of).any(axis=0)) > 0
            else:
                shares[place[(rows != warp_of).any(axis=0)]] = False
        is_whole = int(shares.sum()) == self.warps
        if is_whole and together:
            self._alike[slots] = True
        elif not (is_whole and self._are_alike(slots, threads)):
            self._spread(slots)
            is_whole = False
        if shares.any():
            at = slice(None), *rectangle(slots, warps[:1] if is_whole else warps[shares])
            if together:
                self._known[at] = self.padded(what)[:, :, None]
            else:
                raise_at(self._known, (*at, *columns), what[:, :, None])
        alone = threads[~shares[place]]
        self._part(slots, alone)
        for row in self._row_of[alone].tolist():
            raise_at(self._known, (slice(None), neighbours(slots), row, *columns), what)

    def _part(self, slots: Array, threads: Array) -> None:
        """Give threads separate rows, with the knowledge that they shared with their warps."""
        self._parted[threads // WARP] = True
        for thread in threads.tolist():
            mine, warp = self._own_row(thread), thread // WARP
            shared = slots[self._row[slots, thread] == warp]
            self._known[:, shared, mine] = self._known[:, shared, warp]
            self._row[slots, thread] = mine

    def _own_row(self, thread: int) -> int:
        """Return the row of a thread that knows more than its warp, in all CTAs; few do."""
        if self._row_of[thread] < 0:
            if self._rows == self._known.shape[2]:
                planes, slots, rows, ranks, columns = self._known.shape
                more = _by_row(planes, slots, min(2 * rows, self.warps + self.threads), ranks, columns)
                more[:, :, :rows] = self._known
                self._known = more
            self._row_of[thread] = self._rows
            self._rows += 1
        return int(self._row_of[thread])

    @property
    def have_acquired(self) -> bool:
        """True if threads have acquired clocks that are not joined with their rows."""
        return any(self._acquired.values())

    def defer(self, slot: int, thread: int, acquired: AcquiredClock) -> None:
        """Queue a clock for a thread of a CTA; the next check of the thread joins it."""
        mine = self._acquired.setdefault(slot, {})
        before = mine.get(thread, ())
        mine[thread] = furthest((*before, acquired)) if before else (acquired,)
        if len(before) >= _MOST_ACQUIRED:
            self.join(np.array([slot]), np.array([thread]))

    def acquired(self, slots: Array, threads: Array) -> dict[tuple[int, int], Collection[AcquiredClock]]:
        """Return the clocks that threads have acquired and not joined with their rows, by the threads' positions."""
        deep = [lane for *lane, mine in self._lanes(slots, threads) if any(one.is_deep for one in mine)]
        for row, column in deep:
            self.join(slots[row : row + 1], threads[column : column + 1])
        return {(row, column): mine for row, column, mine in self._lanes(slots, threads)}

    def join(self, slots: Array, threads: Array) -> bool:
        """Join the clocks that threads have acquired with their rows; return whether there were some."""
        alike: dict[tuple[int, ...], tuple[int, list[int], Collection[AcquiredClock]]] = {}
        for row, column, mine in [*self._lanes(slots, threads)]:
            slot, thread = int(slots[row]), int(threads[column])
            if self._acquired[slot].pop(thread, None) is not None:
                alike.setdefault((slot, *map(id, mine)), (slot, [], mine))[1].append(thread)
        for slot, lanes, mine in sorted(alike.values(), key=lambda lanes: sum(one.count for one in lanes[2])):
            self.learn(np.array([slot]), np.array(sorted(lanes)), self._clock(mine)[:, None])
        return bool(alike)

    def _lanes(self, slots: Array, threads: Array) -> Iterator[tuple[int, int, Collection[AcquiredClock]]]:
        """Yield the positions of threads with acquired clocks that are not joined with their rows, and these clocks."""
        if not self.have_acquired:
            return
        at = {thread: column for column, thread in enumerate(threads.tolist())}
        for row, slot in enumerate(slots.tolist()):
            mine = self._acquired.get(slot, {})
            for thread in at if len(at) < len(mine) else mine:
                if thread in at and thread in mine:
                    yield row, at[thread], mine[thread]

    def _clock(self, acquired: Iterable[AcquiredClock]) -> Array:
        """Return all acquired clocks as one: (plane, rank, column)."""
        return joined(self.nothing(1, 0)[:, 0], (one.clock() for one in acquired))

    def end(self) -> None:
        """Forget the knowledge of threads that have all ended; the columns stay."""
        planes, _, rows, ranks, columns = self._known.shape
        self._known, self._own = _by_row(planes, 0, rows, ranks, columns), self._own[:, :0]
        self._acquired.clear()

    def padded(self, what: Array) -> Array:
        """Return a clock with the columns that came since."""
        return widened(what, self._known.shape[-1] - what.shape[-1])

    def synchronise(self, slots: Array, threads: Array) -> None:
        """Join the clocks of threads, and give the result to each of them."""
        for warp in np.unique(threads // WARP).tolist():
            here = threads[threads // WARP == warp]
            self.learn(slots, here, self.publish(slots, here), together=True)

    def meet(self, slots: Array, threads: Array) -> None:
        """Join the columns of completed waits over the threads of each warp, and no other columns."""
        warp_of = threads // WARP
        for warp in np.unique(warp_of[self._parted[warp_of]]).tolist():
            here = threads[warp_of == warp]
            what = self.joint(slots, here)
            what[..., : self.threads] = what[..., 2 * self.threads :] = 0
            self.learn(slots, here, what)
        others = threads[~self._parted[warp_of]]
        if not len(others):
            return
        waits = self.ends(others)
        self._spread(slots)
        at = slots[:, None], others // WARP, (slots % self.cluster)[:, None], waits
        self._known[DONE][at] = np.maximum(self._known[DONE][at], self._own[DONE][rectangle(slots, waits)])

    def fenced_in(self, ranks: Array) -> Array | None:
        """Return the planes of fenced accesses to global memory in CTAs of these ranks; None without such a fence."""
        if self.fenced_global is None:
            return None
        return np.full(len(ranks), self.fenced_global) if self._fenced_in is None else self._fenced_in + ranks

    def nothing(self, slots: int, columns: int) -> Array:
        """Return the clock without any knowledge, of a given number of CTAs and columns: (plane, CTA, rank, column)."""
        return np.zeros((self.planes, slots, self.cluster, columns), np.int32)

    def fence(self, slots: Array, threads: Array, spaces: AbstractSet[str] = _ALL) -> None:
        """Put a proxy fence after the accesses that threads know of in their CTAs, or that others have shown them.

        `spaces`: the state spaces that it covers.
        """
        self.join(slots, threads)
        covered = {FENCED} if "shared" in spaces else set()
        if "global" in spaces and self.fenced_global is not None:
            covered.add(self.fenced_global)
        is_one = len(threads) == self.threads and self._are_alike(slots, threads)
        if not is_one:
            self._spread(slots)
            warps, place = distinct(threads // WARP)
            self._part(slots, threads[(np.bincount(place) < self.sizes[warps])[place]])
        there = np.zeros((len(slots), self._known.shape[2]), bool)
        if is_one:
            there[:, 0] = True
        else:
            there[np.arange(len(slots))[:, None], self.rows(slots, threads)] = True
        of, rows = np.nonzero(there)
        cells, at_home = (slots[of], rows), (np.arange(len(of)), slots[of] % self.cluster)
        passed = self._known[SEEN][cells]
        passed[at_home] = self._known[DONE][cells][at_home]
        mine = self.belongs(threads)
        at = neighbours(slots), slice(len(mine))
        for plane in covered:
            self._known[plane][cells] = np.maximum(self._known[plane][cells], passed)
            self._own[plane][at] = np.where(mine, self._own[DONE][at], self._own[plane][at])
        if self._fenced_in is not None and self.fenced_global in covered:
            by = self._fenced_in + slots % self.cluster
            raise_at(self._known, (by[of], *cells), passed)
            self._own[by, slots, : len(mine)] = np.where(mine, self._own[DONE][at], self._own[by, slots, : len(mine)])
        self.tick(slots, threads)


def _planes(fences: AbstractSet[frozenset[str]]) -> tuple[int, int | None]:
    """Return the number of planes, and the plane of fenced accesses to global memory."""
    if fences <= {_ALL}:
        return FENCED + 1, FENCED
    return (FENCED + 1, None) if fences == {_SHARED} else (FENCED_GLOBAL + 1, FENCED_GLOBAL)


class BarrierGeneration:
    """Clocks released at a barrier or mbarrier by phase: the current generation, and the last one."""

    def __init__(self, slots: int) -> None:
        self._phase = np.full((2, slots), -1)
        self._slots = slots
        self._what: list[Array | None] = [None, None]  # by parity of the phase

    def add(self, slots: Array, phase: Array, what: Array, *, is_fresh: bool = False) -> None:
        """Add the clocks published in a phase, of one CTA's object each; the array is fresh, and is kept."""
        columns, phase = what.shape[-1], spread(phase, slots.shape)
        for parity in (0, 1):
            here = np.flatnonzero((phase & 1) == parity)
            if not len(here):
                continue
            of = slots[here]
            new = self._phase[parity, of] != phase[here]
            self._phase[parity, of] = phase[here]
            if is_fresh and len(of) == self._slots and new.all():
                self._what[parity] = what
                continue
            held = self._what[parity]
            if held is None:
                held = np.zeros((what.shape[0], self._slots, *what.shape[2:]), np.int32)
            held = self._what[parity] = widened(held, max(0, columns - held.shape[-1]))
            at, added = (slice(None), as_index(of)), what[:, as_index(here)]
            if new.all():
                held[*at, ..., :columns] = added
                held[*at, ..., columns:] = 0
            else:
                held[:, of[new]] = 0
                raise_at(held, (*at, ..., slice(columns)), added)

    def published(self, slots: Array, phase: Array) -> Array | None:
        """Return the clocks published in phases, (plane, CTA, rank, column), as kept; None if there are none."""
        phase = spread(phase, slots.shape)
        other = self._phase[phase & 1, slots] != phase
        if (phase == phase[0]).all() and not other.any():
            held = self._what[int(phase[0]) & 1]
            return None if held is None else held[:, as_index(slots)]
        kept = [held for held in self._what if held is not None]
        if not kept:
            return None
        columns = max(held.shape[-1] for held in kept)
        found: Array = np.zeros((kept[0].shape[0], len(slots), *kept[0].shape[2:-1], columns), np.int32)
        for parity, held in enumerate(self._what):
            here = np.flatnonzero(~other & (phase & 1 == parity))
            if held is not None and len(here):
                found[:, here, ..., : held.shape[-1]] = held[:, slots[here]]
        return found


class Need(NamedTuple):
    """Planes of a vector clock in which an access must be known.

    Attributes
    ----------
    planes : tuple of int
    combined : ufunc
        `minimum` if it must be known in all of them, `maximum` if one will do.
    """

    planes: tuple[int, ...]
    combined: np.ufunc = np.minimum

    def of(self, known: Callable[[int], Array]) -> Array:
        """Return how far a column is known, by the knowledge in each plane."""
        return functools.reduce(self.combined, map(known, self.planes))


def need(is_shown: bool, from_async: bool, to_async: bool) -> Need:
    """Return the need of an access after another one, by visibility of the written value, and by their proxies.

    Examples
    --------
    >>> need(False, True, True).planes == (DONE,), need(True, False, True).planes == (SEEN, FENCED)
    (True, True)
    """
    return _NEEDS[is_shown, from_async, to_async]


_NEEDS = {
    (True, True, True): Need((SEEN,)),
    (True, True, False): Need((SEEN,)),
    (True, False, True): Need((SEEN, FENCED)),
    (True, False, False): Need((SEEN,)),
    (False, True, True): Need((DONE,)),
    (False, True, False): Need((DONE,)),
    (False, False, True): Need((FENCED,)),
    (False, False, False): Need((SEEN, FENCED), np.maximum),
}
UNFENCED = {True: Need((SEEN,)), False: Need((DONE,))}
"""Orders of a write, or a read, by the generic proxy before one of the async proxy that lack only a proxy fence."""


def hide(what: Array, columns: Array) -> Array:
    """Return a clock, (plane, ..., column), that shows none of the operations counted in some columns."""
    if not len(columns):
        return what
    result = what.copy()
    result[SEEN][..., columns[columns < what.shape[-1]]] = 0
    return result
