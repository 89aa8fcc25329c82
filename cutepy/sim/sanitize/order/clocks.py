"""What each thread knows of the others: vector clocks of the CTAs that are resident together.

A CTA has *columns*: two for each thread, what it has published and the waits at mbarriers that it has ended; and one
for each *channel* by which asynchronous operations tell that they are done: an mbarrier's phases, the bulk groups and
cp.async groups of a thread, the wgmma groups of a warpgroup. Each counts up; what happened at count n in a column is
known to who knows n or more of it. Of a thread the count goes up when it publishes something (before that, what it did
is known to nobody else), and when it does something that is not to be taken for what it did before.

What is known comes in three *planes*:

- ``DONE``: it is over. Enough to write where it has read.
- ``SEEN``: what it wrote is visible. Needed to read that, or to write over it.
- ``FENCED``: a proxy fence has come between. Needed by the async proxy to touch what the generic proxy wrote.

Lanes of a warp that know the same share a row; a lane that learns something alone has a row of its own until the warp
synchronises. What a thread knows of its own columns stands beside, in `own`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cutepy.sim.machine.lanes import WARP, Array

DONE, SEEN, FENCED = range(3)
_PLANES = 3
_NEW_COLUMNS = 64


class View(NamedTuple):
    """What a set of threads, or an asynchronous operation, knows.

    Attributes
    ----------
    known : array of int, (plane, CTA, row, rank, column)
        Of a CTA's cluster, by rank.
    own : array of int, (plane, CTA, column) or None
        Of the columns that belong to the threads themselves; None for an operation, whose row has all.
    """

    known: Array
    own: Array | None


class Clocks:
    """The knowledge of all threads of some resident CTAs.

    Parameters
    ----------
    slots : int
        CTAs, in whole clusters.
    threads : int
        Of a CTA.
    cluster : int
        CTAs of a cluster.

    Attributes
    ----------
    threads : int
        Of a CTA.
    owner : array of int
        By column, the thread that it belongs to, or -1.
    """

    def __init__(self, slots: int, threads: int, cluster: int) -> None:
        self.cluster, self.threads = cluster, threads
        self._slots = slots
        self._warps = -(-threads // WARP)
        self._row = np.tile(np.arange(threads) // WARP, (slots, 1))
        self._columns: dict[object, int] = {}
        self.owner = np.tile(np.arange(threads), 2)
        capacity = 2 * threads + _NEW_COLUMNS
        self._known = np.zeros((_PLANES, slots, self._warps, cluster, capacity), np.int32)
        self._rows, self._row_of = self._warps, np.full(threads, -1)
        self._own = np.zeros((_PLANES, slots, capacity), np.int32)
        self._own[: SEEN + 1, :, :threads] = 1

    # Columns.

    @property
    def capacity(self) -> int:
        """How many columns there is room for."""
        return self._known.shape[-1]

    def ends(self, threads: Array) -> Array:
        """Return the columns that count the waits that threads have ended."""
        return threads + self.threads

    def tick(self, slots: Array, threads: Array) -> None:
        """Count what threads do from now on apart from what they have done."""
        self._own[: SEEN + 1, slots[:, None], threads] += 1

    def end_waits(self, slots: Array, threads: Array) -> Array:
        """Count the end of a wait of each thread, and return how many it has ended: (CTA, thread)."""
        at = slots[:, None], self.ends(threads)
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
                self._known, self._own = _widened(self._known, more), _widened(self._own, more)
        return found

    def known_column(self, channel: object) -> int | None:
        """Return the column of a channel, or None if there is none yet."""
        return self._columns.get(channel)

    def is_channel(self, kinds: tuple[object, ...], columns: int) -> Array:
        """Tell which of the first columns are those of channels (kind, ...)."""
        result = np.zeros(columns, bool)
        for channel, column in self._columns.items():
            if isinstance(channel, tuple) and channel[0] in kinds and column < columns:
                result[column] = True
        return result

    def counts(self, slots: Array, columns: Array) -> Array:
        """Return the present counts of columns that belong to threads, (CTA, column)."""
        counts: Array = self._own[SEEN][slots[:, None], columns]
        return counts

    def set_own(self, plane: int, slots: Array, columns: Array, counts: Array) -> None:
        """Let threads know more of their own columns."""
        self._own[plane][slots[:, None], columns] = counts

    def held(self, plane: int, slots: Array, threads: Array, ranks: Array, columns: Array) -> Array:
        """Return what each of some threads knows of a column of a CTA of its cluster, its own ones included."""
        known: Array = self._known[plane, slots, self._row[slots, threads], ranks, columns]
        mine = np.flatnonzero((self.owner[columns] == threads) & (slots % self.cluster == ranks))
        if len(mine):
            known[mine] = np.maximum(known[mine], self._own[plane, slots[mine], columns[mine]])
        return known

    def rows_know(self, plane: int, slots: Array, threads: Array, ranks: Array, columns: Array) -> Array:
        """Return what the rows of threads know of columns of CTAs of their cluster, their own ones apart."""
        known: Array = self._known[plane, slots, self._row[slots, threads], ranks, columns]
        return known

    def best(self, column: int) -> Array:
        """Return, by CTA, what its threads know at best of a column of their own CTA."""
        slots = np.arange(self._slots)
        known = self._known[DONE][slots, :, slots % self.cluster, column].max(axis=1)
        best: Array = np.maximum(known, self._own[DONE][:, column])
        return best

    def best_of(self, slot: int, rank: int) -> Array:
        """Return what the threads of one CTA know at best of all columns of a CTA of its cluster."""
        known: Array = self._known[DONE][slot, :, rank].max(axis=0)
        return np.maximum(known, self._own[DONE][slot]) if slot % self.cluster == rank else known

    # What threads know.

    def rows(self, slots: Array, threads: Array) -> Array:
        """Return the row of each thread, (CTA, thread)."""
        return self._row[slots[:, None], threads[None, :]]

    def view(self, slots: Array, threads: Array, planes: int = _PLANES) -> tuple[View, Array]:
        """Return what threads know, by row, and the position of each thread's row, (CTA or 1, thread).

        `planes`: how many, from `DONE` on.
        """
        rows = self.rows(slots, threads)
        known, own = self._known[:planes], self._own[:planes, slots]
        if (rows == rows[:1]).all():
            used, place = _distinct(rows[0])
            return View(known[:, slots[:, None], used[None, :]], own), place.reshape(1, -1)
        return View(known[:, slots[:, None], rows], own), np.arange(len(threads))[None, :]

    def columns_of(self, threads: Array) -> Array:
        """Return the columns that belong to threads."""
        is_one = np.zeros(self.threads + 1, bool)  # the last is for columns that belong to nobody, whose owner is -1
        is_one[threads] = True
        return np.flatnonzero(is_one[self.owner])

    def _over_rows(self, slots: Array, threads: Array, of: np.ufunc) -> Array:
        """Combine what the rows of threads know: (plane, CTA, rank, column)."""
        rows = self.rows(slots, threads)
        if not (rows == rows[:1]).all():
            found: Array = of.reduce(self._known[:, slots[:, None], rows], axis=2)
            return found
        used, _ = _distinct(rows[0])
        found = self._known[:, slots, used[0]]
        for row in used[1:].tolist():
            of(found, self._known[:, slots, row], out=found)
        return found

    def common(self, slots: Array, threads: Array) -> Array:
        """Return what each of the rows of threads knows, their own columns apart: (plane, CTA, rank, column)."""
        return self._over_rows(slots, threads, np.minimum)

    def joint(self, slots: Array, threads: Array) -> Array:
        """Return what threads know together, their own columns included: (plane, CTA, rank, column)."""
        found = self._over_rows(slots, threads, np.maximum)
        columns = self.columns_of(threads)
        ranks = slots % self.cluster
        own = self._own[:, slots[:, None], columns]
        at = (slice(None), np.arange(len(slots))[:, None], ranks[:, None], columns)
        found[at] = np.maximum(found[at], own)
        return found

    def publish(self, slots: Array, threads: Array) -> Array:
        """Return what threads release, as of `joint`; what they do from now on is not part of it."""
        found = self.joint(slots, threads)
        self.tick(slots, threads)
        return found

    def learn(self, slots: Array, threads: Array, what: Array, together: bool = False) -> None:
        """Let threads know something, (plane, CTA, rank, column).

        `together`: it includes all that they have published, so that whole warps share a row again.
        """
        what = self.padded(what)
        rows = self.rows(slots, threads)
        warps, counts = np.unique(threads // WARP, return_counts=True)
        sizes = np.minimum(WARP, self.threads - warps * WARP)
        for warp, whole in zip(warps.tolist(), (counts == sizes).tolist(), strict=True):
            here = threads // WARP == warp
            if whole and (together or (rows[:, here] == warp).all()):
                self._row[slots[:, None], threads[here]] = warp
                if together:
                    self._known[:, slots, warp] = what
                else:
                    self._known[:, slots, warp] = np.maximum(self._known[:, slots, warp], what)
                continue
            for thread in threads[here].tolist():
                mine = self._own_row(thread)
                shared = slots[self._row[slots, thread] == warp]
                self._known[:, shared, mine] = self._known[:, shared, warp]
                self._row[slots, thread] = mine
                self._known[:, slots, mine] = np.maximum(self._known[:, slots, mine], what)

    def _own_row(self, thread: int) -> int:
        """Return the row of a thread that knows more than its warp, in all CTAs; few do."""
        if self._row_of[thread] < 0:
            if self._rows == self._known.shape[2]:
                planes, slots, rows, ranks, columns = self._known.shape
                more = np.zeros((planes, slots, min(2 * rows, self._warps + self.threads), ranks, columns), np.int32)
                more[:, :, :rows] = self._known
                self._known = more
            self._row_of[thread] = self._rows
            self._rows += 1
        return int(self._row_of[thread])

    def padded(self, what: Array) -> Array:
        """Return a clock with the columns that came since."""
        return _widened(what, self._known.shape[-1] - what.shape[-1])

    def synchronise(self, slots: Array, threads: Array) -> None:
        """Let threads know all that each of them does."""
        for warp in np.unique(threads // WARP).tolist():
            here = threads[threads // WARP == warp]
            self.learn(slots, here, self.publish(slots, here), together=True)

    def meet(self, slots: Array, threads: Array) -> None:
        """Let the threads of a warp know of the waits that each of them has ended, and of nothing else."""
        rows, waits = self.rows(slots, threads), self.threads + threads
        warp = int(threads[0]) // WARP
        if (rows == warp).all():
            own = self._own[:, slots[:, None], waits]
            at = (slice(None), slots[:, None], warp, (slots % self.cluster)[:, None], waits)
            self._known[at] = np.maximum(self._known[at], own)
            return
        what = self.joint(slots, threads)
        what[..., : self.threads] = what[..., 2 * self.threads :] = 0
        self.learn(slots, threads, what)

    def fence(self, slots: Array, threads: Array) -> None:
        """Put a proxy fence after all that threads know, and have done."""
        rows = self.rows(slots, threads)
        for row in np.unique(rows).tolist():
            here = slots[(rows == row).any(axis=1)]
            at = (here, row, here % self.cluster)
            self._known[FENCED][at] = np.maximum(self._known[FENCED][at], self._known[SEEN][at])
        columns = self.columns_of(threads)
        self._own[FENCED][slots[:, None], columns] = self._own[SEEN][slots[:, None], columns]
        self._own[: SEEN + 1, slots[:, None], threads] += 1


def _widened(what: Array, columns: int) -> Array:
    """Return a clock with further columns."""
    if not columns:
        return what
    result: Array = np.zeros((*what.shape[:-1], what.shape[-1] + columns), what.dtype)
    result[..., : what.shape[-1]] = what
    return result


def _distinct(rows: Array) -> tuple[Array, Array]:
    """Return the rows that there are, and which of these each is."""
    if (rows == rows[0]).all():
        return rows[:1], np.zeros(len(rows), int)
    used, place = np.unique(rows, return_inverse=True)
    return used, place


class Meeting:
    """What was published at an object that threads meet at, by phase: of the one that is current, and the last one."""

    def __init__(self, slots: int) -> None:
        self._phase = np.full((2, slots), -1)
        self._slots = slots
        self._what: Array | None = None

    def add(self, slots: Array, phase: Array, what: Array) -> None:
        """Add what was published in a phase, of one CTA's object each."""
        if self._what is None or self._what.shape[-1] < what.shape[-1]:
            shape = (2, what.shape[0], self._slots, *what.shape[2:])
            grown = np.zeros(shape, np.int32)
            if self._what is not None:
                grown[..., : self._what.shape[-1]] = self._what
            self._what = grown
        phase = np.broadcast_to(phase, slots.shape)
        at = phase & 1
        new = self._phase[at, slots] != phase
        self._what[at[new], :, slots[new]] = 0
        self._phase[at, slots] = phase
        wide = np.moveaxis(what, 1, 0)
        held = self._what[at, :, slots]
        held[..., : wide.shape[-1]] = np.maximum(held[..., : wide.shape[-1]], wide)
        self._what[at, :, slots] = held

    def published(self, slots: Array, phase: Array) -> Array | None:
        """Return what was published in phases, (plane, CTA, rank, column); None if nothing ever was."""
        if self._what is None:
            return None
        phase = np.broadcast_to(phase, slots.shape)
        at = phase & 1
        found = np.moveaxis(self._what[at, :, slots], 0, 1).copy()
        found[:, self._phase[at, slots] != phase] = 0
        return found
