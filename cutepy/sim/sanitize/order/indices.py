"""Indices of what is in order, slices where nothing is left out, which copy nothing; and what clocks are made of."""

from __future__ import annotations

from typing import Any

import numpy as np

from cutepy.sim.machine.lanes import Array, Index


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


def raise_at(held: Array, at: Any, what: Array) -> None:  # noqa: ANN401 - slices and arrays
    """Raise what is held at an index to at least something."""
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


def distinct(rows: Array) -> tuple[Array, Array]:
    """Return the rows that there are, and which of these each is."""
    if (rows == rows[0]).all():
        return rows[:1], np.zeros(len(rows), int)
    used = np.flatnonzero(np.bincount(rows))
    return used, np.searchsorted(used, rows)
