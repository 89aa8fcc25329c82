"""What each thread knows of the others: vector clocks of the CTAs that are resident together.

A CTA has *columns*: one for each thread, and one for each *channel* by which asynchronous operations tell that they
are done: an mbarrier's phases, the bulk groups and cp.async groups of a thread, the wgmma groups of a warpgroup. Each
counts up; what happened at count n in a column is known to who knows n or more of it. Of a thread the count goes up
when it publishes something: before that, what it did is known to nobody else.

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
    owner : array of int
        By column, the thread that it belongs to, or -1.
    """

    def __init__(self, slots: int, threads: int, cluster: int) -> None:
        self.cluster = cluster
        self._slots, self._threads = slots, threads
        self._warps = -(-threads // WARP)
        self._row = np.tile(np.arange(threads) // WARP, (slots, 1))
        self._columns: dict[object, int] = {}
        self.owner = np.arange(threads)
        capacity = threads + _NEW_COLUMNS
        self._known = np.zeros((_PLANES, slots, self._warps + threads, cluster, capacity), np.int32)
        self._own = np.zeros((_PLANES, slots, capacity), np.int32)
        self._own[: SEEN + 1, :, :threads] = 1

    # Columns.

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

    def is_channel(self, kind: object, columns: int) -> Array:
        """Tell which of the first columns are those of channels (kind, ...)."""
        result = np.zeros(columns, bool)
        for channel, column in self._columns.items():
            if isinstance(channel, tuple) and channel[0] == kind and column < columns:
                result[column] = True
        return result

    def counts(self, slots: Array, columns: Array) -> Array:
        """Return the present counts of columns that belong to threads, (CTA, column)."""
        counts: Array = self._own[SEEN][slots[:, None], columns]
        return counts

    def set_own(self, plane: int, slots: Array, columns: Array, counts: Array) -> None:
        """Let threads know more of their own columns."""
        self._own[plane][slots[:, None], columns] = counts

    def best(self, column: int) -> Array:
        """Return, by CTA, what its threads know at best of a column of their own CTA."""
        slots = np.arange(self._slots)
        known = self._known[DONE][slots, :, slots % self.cluster, column].max(axis=1)
        best: Array = np.maximum(known, self._own[DONE][:, column])
        return best

    # What threads know.

    def rows(self, slots: Array, threads: Array) -> Array:
        """Return the row of each thread, (CTA, thread)."""
        return self._row[slots[:, None], threads[None, :]]

    def view(self, slots: Array, threads: Array) -> tuple[View, Array]:
        """Return what threads know, by row, and the position of each thread's row, (CTA or 1, thread)."""
        rows = self.rows(slots, threads)
        if (rows == rows[:1]).all():
            used, place = np.unique(rows[0], return_inverse=True)
            return View(self._known[:, slots[:, None], used[None, :]], self._own[:, slots]), place.reshape(1, -1)
        return View(self._known[:, slots[:, None], rows], self._own[:, slots]), np.arange(len(threads))[None, :]

    def _mine(self, threads: Array) -> Array:
        return np.flatnonzero(np.isin(self.owner, threads))

    def joint(self, slots: Array, threads: Array) -> Array:
        """Return what threads know together, their own columns included: (plane, CTA, rank, column)."""
        view, _ = self.view(slots, threads)
        found: Array = view.known.max(axis=2)
        columns = self._mine(threads)
        ranks = slots % self.cluster
        own = self._own[:, slots[:, None], columns]
        at = (slice(None), np.arange(len(slots))[:, None], ranks[:, None], columns)
        found[at] = np.maximum(found[at], own)
        return found

    def publish(self, slots: Array, threads: Array) -> Array:
        """Return what threads release, as of `joint`; what they do from now on is not part of it."""
        found = self.joint(slots, threads)
        self._own[: SEEN + 1, slots[:, None], threads] += 1
        return found

    def learn(self, slots: Array, threads: Array, what: Array, together: bool = False) -> None:
        """Let threads know something, (plane, CTA, rank, column).

        `together`: it includes all that they have published, so that whole warps share a row again.
        """
        what = self.padded(what)
        rows = self.rows(slots, threads)
        warps, counts = np.unique(threads // WARP, return_counts=True)
        sizes = np.minimum(WARP, self._threads - warps * WARP)
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
                mine = self._warps + thread
                shared = slots[self._row[slots, thread] == warp]
                self._known[:, shared, mine] = self._known[:, shared, warp]
                self._row[slots, thread] = mine
                self._known[:, slots, mine] = np.maximum(self._known[:, slots, mine], what)

    def padded(self, what: Array) -> Array:
        """Return a clock with the columns that came since."""
        return _widened(what, self._known.shape[-1] - what.shape[-1])

    def synchronise(self, slots: Array, threads: Array) -> None:
        """Let threads know all that each of them does."""
        for warp in np.unique(threads // WARP).tolist():
            here = threads[threads // WARP == warp]
            self.learn(slots, here, self.publish(slots, here), together=True)

    def fence(self, slots: Array, threads: Array) -> None:
        """Put a proxy fence after all that threads know, and have done."""
        rows = self.rows(slots, threads)
        for row in np.unique(rows).tolist():
            here = slots[(rows == row).any(axis=1)]
            at = (here, row, here % self.cluster)
            self._known[FENCED][at] = np.maximum(self._known[FENCED][at], self._known[SEEN][at])
        columns = self._mine(threads)
        self._own[FENCED][slots[:, None], columns] = self._own[SEEN][slots[:, None], columns]
        self._own[: SEEN + 1, slots[:, None], threads] += 1


def _widened(what: Array, columns: int) -> Array:
    """Return a clock with further columns."""
    return np.pad(what, [(0, 0)] * (what.ndim - 1) + [(0, columns)]) if columns else what


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
