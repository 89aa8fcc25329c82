"""Bytes of global memory that bulk and tensor copies access: contiguous runs, as observers see them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import numpy as np

from cutepy.sim.machine.activity import Activity
from cutepy.sim.machine.events import Access
from cutepy.sim.machine.group import Group
from cutepy.sim.machine.lanes import Array, Ctas, Threads
from cutepy.sim.mechanisms.tensor_boxes import ADDRESSES, Box, Coordinates
from cutepy.sim.mechanisms.tensor_columns import Column
from cutepy.sim.ptx.model import Instruction

Operation = Literal["read", "write", "atomic"]


def observe_runs(
    activity: Activity,
    g: Group,
    i: Instruction,
    operation: Operation,
    rows: Sequence[int],
    column: int,
    addresses: Array,
    size: int,
) -> None:
    """Tell the observers of the async proxy's accesses to global memory for one thread of some CTAs.

    Parameters
    ----------
    rows : sequence of int
        The CTAs, by position in the group.
    column : int
        The thread, by position in the group.
    addresses : array of int, (CTA, run)
    size : int
        Bytes of each run.
    """
    ctas = Ctas(g.ctas.slots[list(rows)], g.ctas.residents)
    threads = Threads(g.threads.ids[column : column + 1], g.threads.block)
    access = Access(operation, "global", "async", i, ctas, threads, addresses, size, activity.completing)
    for observer in activity.observers:
        observer.on_access(access)


def observe_boxes(
    activity: Activity,
    g: Group,
    i: Instruction,
    operation: Operation,
    boxes: Sequence[tuple[Box | Column, Coordinates]],
    issuers: Sequence[int],
) -> None:
    """Tell the observers of the boxes that lanes copy: `issuers` says which ones, counted CTA by CTA."""
    by_shape: dict[tuple[int, int, int], list[tuple[int, int, Array]]] = {}
    for n, (box, at) in enumerate(boxes):
        first, offsets, size = runs(box, at)
        if len(offsets):
            row, column = divmod(issuers[n], g.threads.count)
            by_shape.setdefault((column, size, len(offsets)), []).append((row, first, offsets))
    for (column, size, _), found in by_shape.items():
        rows, firsts, ranges = zip(*found, strict=True)
        starts = np.array(firsts)[:, None] + np.array(ranges)
        observe_runs(activity, g, i, operation, rows, column, starts, size)


@lru_cache(maxsize=1024)
def runs(box: Box | Column, at: Coordinates) -> tuple[int, Array, int]:
    """Return where the runs of bytes of a box begin that are inside of its tensor: from where, how far, their size."""
    if not isinstance(box, Box):
        low, high = max(0, -at[0]), min(box.tensor.channels_per_pixel, box.tensor.dims[0] - at[0])
        starts = np.array(box.rows(at)[1] if low < high else [], np.int64) + low * box.element_bytes
        return 0, starts, max(high - low, 0) * box.element_bytes
    lows, highs = box.inside(at)
    extents = tuple(high - low for low, high in zip(lows, highs, strict=True))
    if any(extent <= 0 for extent in extents):
        return 0, np.zeros(0, np.int64), 0
    steps = tuple(step if step < ADDRESSES // 2 else step - ADDRESSES for step in box.steps)
    offsets, size = _offsets(extents, steps, box.element_bytes)
    first = box.address(at, lows)
    return first if first < ADDRESSES // 2 else first - ADDRESSES, offsets, size


@lru_cache(maxsize=1024)
def _offsets(extents: tuple[int, ...], steps: tuple[int, ...], element_bytes: int) -> tuple[Array, int]:
    """Return where runs begin, relative to the first element, with those that follow each other as one."""
    size, offsets = element_bytes, np.zeros(1, np.int64)
    for extent, step in zip(extents, steps, strict=True):
        if len(offsets) == 1 and step == size:
            size *= extent
        else:
            offsets = (np.arange(extent, dtype=np.int64)[:, None] * step + offsets).reshape(-1)
    return offsets, size
