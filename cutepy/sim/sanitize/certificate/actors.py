"""Actors: threads of a barrier operation, with the part of their vector clocks that decides the order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cutepy.sim.machine.lanes import Array, as_index
from cutepy.sim.sanitize.order.clocks import DONE, Clocks, View, neighbours, raise_at


class UninformedThread(NamedTuple):
    """First thread whose clock lacks an operation.

    Attributes
    ----------
    row, lane : int
        Positions among the CTAs and threads.
    rank, column : int
        Unknown operations of the owner of a column, in a CTA of the cluster.
    reached : int
        Progress of that thread.
    """

    row: int
    lane: int
    rank: int
    column: int
    reached: int


@dataclass(frozen=True)
class Actors:
    """Threads of one operation, with their vector clocks.

    Attributes
    ----------
    clocks : Clocks
    slots, threads : array of int
    view : View
    place : array of int, (thread,)
        The row of each thread in the view.
    """

    clocks: Clocks
    slots: Array
    threads: Array
    view: View
    place: Array

    @staticmethod
    def now(clocks: Clocks, slots: Array, threads: Array, joins: bool = True) -> Actors:
        """Return threads with their present knowledge; `joins` as of `Clocks.view`."""
        return Actors(clocks, slots, threads, *clocks.view(slots, threads, DONE + 1, joins))

    def knows(self, ranks: Array, column: int, counts: Array) -> Array:
        """Return by (CTA, thread) the clocks that have reached a count of a column; ranks and counts are by CTA."""
        known = self.view.known[DONE]
        by_row = known[np.arange(len(self.slots)), :, ranks, column] >= counts[:, None]
        found: Array = by_row[:, self.place]
        return found

    def lack(self, need: Array) -> Array | None:
        """Return the threads that lack a part of the needed knowledge, (CTA, thread); None if none does.

        Parameters
        ----------
        need : array of int, (CTA, rank, column)
        """
        missing, need, own = self._missing(need)
        if not missing.any():
            return None
        rows, owner = np.arange(len(self.slots)), _padded(self.clocks.owner, need.shape[-1], -1)
        ranks = self.slots % self.clocks.cluster
        helped = missing[rows, :, ranks] & (own >= need[rows, ranks])[:, None]
        by_owner = np.zeros((int(owner.max()) + 2, *missing.shape[:2]), np.int64)
        np.add.at(by_owner, owner, np.moveaxis(helped, -1, 0))
        total = missing.sum(axis=(2, 3))
        found: Array = total[:, self.place] > by_owner[self.threads, :, self.place].T
        return found if found.any() else None

    def first(self, need: Array, lacking: Array) -> UninformedThread:
        """Return the first thread that lacks knowledge, and the missing part."""
        row, lane = (int(x) for x in np.argwhere(lacking)[0])
        missing, need, own = self._missing(need)
        here = missing[row, int(self.place[lane])]
        owner = _padded(self.clocks.owner, need.shape[-1], -1)
        rank = int(self.slots[row]) % self.clocks.cluster
        here[rank] &= ~((owner == self.threads[lane]) & (own[row] >= need[row, rank]))
        of, column = (int(x) for x in np.argwhere(here)[0])
        return UninformedThread(row, lane, of, column, int(need[row, of, column]))

    def _missing(self, need: Array) -> tuple[Array, Array, Array]:
        """Return the needed counts that rows lack, (CTA, row, rank, column); the need; the threads' own columns."""
        assert self.view.own is not None
        known, own = (_padded(x[DONE], need.shape[-1]) for x in (self.view.known, self.view.own))
        return need[:, None] > known, need, own

    def joint(self, columns: slice = slice(None)) -> Array:
        """Return the joint knowledge of the threads, (CTA, rank, column), with their own operations."""
        assert self.view.own is not None
        rows = as_index(np.flatnonzero(np.bincount(self.place)))
        found: Array = self.view.known[DONE][:, rows, :, columns].max(axis=1)
        mine = self.clocks.belongs(self.threads)[columns][: found.shape[-1]]
        at = np.arange(len(self.slots)), self.slots % self.clocks.cluster, slice(len(mine))
        found[at] = np.maximum(found[at], np.where(mine, self.view.own[DONE][:, columns][:, : len(mine)], 0))
        return found

    def only(self, lanes: Array) -> Actors:
        """Return some of the threads, by their positions."""
        return Actors(self.clocks, self.slots, self.threads[lanes], self.view, self.place[lanes])

    def of_ctas(self, rows: Array) -> Actors:
        """Return the same threads of some of the CTAs, by their positions; one may be named several times."""
        known, own = self.view
        assert own is not None
        at = as_index(rows)
        return Actors(self.clocks, self.slots[rows], self.threads, View(known[:, at], own[:, at]), self.place)


def _padded(what: Array, width: int, value: int = 0) -> Array:
    """Return an array with further columns, or without those beyond."""
    if what.shape[-1] >= width:
        return what[..., :width]
    result: Array = np.full((*what.shape[:-1], width), value, what.dtype)
    result[..., : what.shape[-1]] = what
    return result


def raise_to(held: Array, target: Array, what: Array) -> None:
    """Raise the clocks of CTAs' objects to at least the incoming ones, from one CTA or from several."""
    if (target[1:] > target[:-1]).all():
        raise_at(held, neighbours(target), what)
    else:
        np.maximum.at(held, target, what)
