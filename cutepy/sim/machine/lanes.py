"""Sets of CTAs and threads, and values over them.

A group of lanes is always a rectangle: some CTAs times some threads. A register's value over it is an array of two
axes, (CTAs, threads), in which an axis along which the value does not vary has extent 1: what is uniform is computed
once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutepy.layouts.sm90.arch import SM_COUNT, WARP_THREADS, WARPGROUP_THREADS

Array = NDArray[Any]
Index = slice | NDArray[np.intp]
WARP = WARP_THREADS
WARPGROUP = WARPGROUP_THREADS


def as_index(positions: NDArray[np.intp]) -> Index:
    """Return an index of the same positions, a slice where they are evenly spaced: it copies nothing.

    Examples
    --------
    >>> as_index(np.array([4, 6, 8])), as_index(np.array([0, 1, 5]))
    (slice(4, 9, 2), array([0, 1, 5]))
    """
    count = len(positions)
    first = int(positions[0]) if count else 0
    if count < 2:
        return slice(first, first + count)
    step, last = int(positions[1]) - first, int(positions[-1])
    if step > 0 and last - first == step * (count - 1) and (positions[1:] - positions[:-1] == step).all():
        return slice(first, last + 1, step)
    return positions


def select(value: Array, rows: Index | None, columns: Index | None) -> Array:
    """Restrict a value to some CTAs and threads."""
    if rows is not None and value.shape[0] > 1:
        value = value[rows]
    if columns is not None and value.shape[1] > 1:
        value = value[:, columns]
    return value


def spread(value: Array, shape: tuple[int, ...]) -> Array:
    """Return a value over all lanes of a shape, which mostly has that shape: `np.broadcast_to` takes 20 calls."""
    return value if value.shape == shape else np.broadcast_to(value, shape)


def values_in(values: Array) -> list[int]:
    """Return the different values, in order: mostly there is one, which is found without sorting.

    Examples
    --------
    >>> values_in(np.array([[3, 3]])), values_in(np.array([5, 3, 5]))
    ([3], [3, 5])
    """
    if values.size and (values.size == 1 or (values == values.flat[0]).all()):
        return [int(values.flat[0])]
    found: list[int] = np.unique(values).tolist()
    return found


def mask_of(lanes: Array) -> Array:
    """Return the masks of the lanes of warps, which are bools along the last axis.

    Examples
    --------
    >>> int(mask_of(np.arange(32) < 4))
    15
    """
    return np.packbits(lanes, axis=-1, bitorder="little").view(np.uint32)[..., 0]


class Threads:
    """Some threads of a CTA, by linear index, in order."""

    def __init__(self, ids: NDArray[np.intp], block: tuple[int, int, int]) -> None:
        self.ids = ids
        self.block = block
        self.count = len(ids)

    @cached_property
    def special(self) -> dict[str, Array]:
        """The special registers that differ by thread."""
        x, y, _ = self.block
        ids = self.ids[None, :].astype(np.uint32)
        lane = ids % WARP
        one = np.uint32(1)
        return {
            "tid.x": ids % x,
            "tid.y": ids // x % y,
            "tid.z": ids // (x * y),
            "laneid": lane,
            "warpid": ids // WARP,
            "lanemask_eq": one << lane,
            "lanemask_lt": (one << lane) - one,
            "lanemask_le": ((one << lane) - one) | (one << lane),
            "lanemask_gt": ~(((one << lane) - one) | (one << lane)),
            "lanemask_ge": ~((one << lane) - one),
        }

    @cached_property
    def warps(self) -> NDArray[np.intp]:
        """The warps with a thread here, in order."""
        return np.unique(self.ids // WARP)

    @cached_property
    def full(self) -> bool:
        """True if all threads of each warp are here."""
        return self.count == len(self.warps) * WARP

    @cached_property
    def extents(self) -> NDArray[np.int64]:
        """By warp here, its first thread's position among these, and how many there are."""
        starts = np.searchsorted(self.ids, self.warps * WARP)
        return np.ascontiguousarray(np.stack([starts, np.diff(np.append(starts, self.count))], axis=1).astype(np.int64))

    @cached_property
    def position(self) -> NDArray[np.intp]:
        """Each thread's position among the lanes of the warps here."""
        return np.searchsorted(self.warps, self.ids // WARP) * WARP + self.ids % WARP

    @cached_property
    def present(self) -> Array:
        """By warp and lane, whether the thread is here."""
        mask = np.zeros(len(self.warps) * WARP, bool)
        mask[self.position] = True
        return mask.reshape(-1, WARP)

    @cached_property
    def masks(self) -> list[int]:
        """By warp, the mask of the lanes that are here."""
        return [int(x) for x in mask_of(self.present)]

    @cached_property
    def leaders(self) -> Array:
        """First thread of each warp here, as a mask by thread: the one that elect.sync picks."""
        first = np.ones(self.count, bool)
        first[1:] = np.diff(self.ids // WARP) != 0
        return first[None, :]

    @cached_property
    def leader_lane(self) -> Array:
        """The lane of each thread's leader."""
        leaders = self.ids[self.leaders[0]] % WARP
        result: Array = leaders[np.searchsorted(self.warps, self.ids // WARP)][None, :].astype(np.uint32)
        return result

    @cached_property
    def warpgroups(self) -> NDArray[np.intp] | None:
        """The warpgroups here, in order, or None if one is here in part."""
        groups = np.unique(self.ids // WARPGROUP)
        return groups if self.count == len(groups) * WARPGROUP else None

    def parted(self, condition: Array) -> int:
        """Count the warps, of all CTAs, in which a condition holds for some lanes and not for others.

        Examples
        --------
        >>> Threads(np.array([30, 31, 32, 33]), (64, 1, 1)).parted(np.array([[False, False, True, False]]))
        1
        """
        if condition.shape[1] == 1:
            return 0
        starts = self.extents[:, 0]
        some = np.logical_or.reduceat(condition, starts, axis=1)
        return int((some & ~np.logical_and.reduceat(condition, starts, axis=1)).sum())

    def by_warp(self, value: Array, fill: object) -> Array:
        """Return a value by (CTA, warp, lane), with lanes that are not here filled.

        Examples
        --------
        >>> Threads(np.array([33, 34]), (64, 1, 1)).by_warp(np.array([[5, 6]]), 0)[0, 0, :4]
        array([0, 5, 6, 0])
        """
        spread = np.full((value.shape[0], len(self.warps) * WARP), fill, value.dtype)
        spread[:, self.position] = np.broadcast_to(value, (value.shape[0], self.count))
        return spread.reshape(value.shape[0], -1, WARP)

    def describe(self) -> str:
        """Name the threads, as ranges.

        Examples
        --------
        >>> Threads(np.array([0, 1, 2, 7]), (32, 1, 1)).describe()
        'threads 0-2, 7'
        """
        breaks = np.flatnonzero(np.diff(self.ids) != 1) + 1
        runs = np.split(self.ids, breaks)
        texts = [f"{r[0]}-{r[-1]}" if len(r) > 1 else f"{r[0]}" for r in runs]
        if len(texts) > 8:
            texts = [*texts[:8], "..."]
        return f"thread{'s' if self.count > 1 else ''} {', '.join(texts)}"


class Ctas:
    """Some resident CTAs, by slot, in order."""

    def __init__(self, slots: NDArray[np.intp], residents: Residents) -> None:
        self.slots = slots
        self.count = len(slots)
        self.residents = residents
        self.index = as_index(slots)

    @cached_property
    def column(self) -> Array:
        """The slots, as a value."""
        return self.slots[:, None].astype(np.int64)

    @cached_property
    def special(self) -> dict[str, Array]:
        """The special registers that differ by CTA."""
        return {name: value[self.index] for name, value in self.residents.special.items()}

    def describe(self) -> str:
        """Name the CTAs by their coordinates in the grid.

        Examples
        --------
        >>> residents = Residents((2, 2, 1), (1, 1, 1), np.array([1, 3]))
        >>> Ctas(np.array([0, 1]), residents).describe()
        'CTAs (1, 0, 0), (1, 1, 0)'
        """
        names = [str(self.residents.coordinate(int(s))) for s in self.slots[:4]]
        more = f" and {self.count - 4} more" if self.count > 4 else ""
        return f"CTA{'s' if self.count > 1 else ''} {', '.join(names)}{more}"


class Residents:
    """The CTAs that run together: slot -> linear index in the grid.

    Parameters
    ----------
    grid, cluster : (int, int, int)
    blocks : array of int
        Linear index of the CTA in each slot; the CTAs of a cluster take neighbouring slots, in order of their ranks.
    ranked : bool
        True if addresses of a CTA's own shared memory have its rank in the cluster: see `machine.memory`.
    sm_count : int
        SMs of the GPU, which the CTAs take in turn.
    in_clusters : bool
        As of `Launch`.
    """

    def __init__(
        self,
        grid: tuple[int, int, int],
        cluster: tuple[int, int, int],
        blocks: NDArray[np.intp],
        *,
        ranked: bool = False,
        sm_count: int = SM_COUNT,
        in_clusters: bool = True,
    ) -> None:
        self.in_clusters = in_clusters
        self.grid, self.cluster, self.blocks, self.sm_count = grid, cluster, blocks, sm_count
        self.count = len(blocks)
        self.cluster_size = cluster[0] * cluster[1] * cluster[2]
        self.ranked = ranked and self.cluster_size > 1

    def coordinate(self, slot: int) -> tuple[int, int, int]:
        """Return the coordinates of the CTA in a slot."""
        return self.coordinate_of(int(self.blocks[slot]))

    def coordinate_of(self, block: int) -> tuple[int, int, int]:
        """Return the coordinates of the CTA of a linear index, resident or not."""
        x, y, _ = self.grid
        return block % x, block // x % y, block // (x * y)

    def slot_of(self, coordinate: Sequence[int]) -> int | None:
        """Return the slot of the CTA with these coordinates, or None if it is not resident.

        Examples
        --------
        >>> residents = Residents((2, 2, 1), (1, 1, 1), np.array([1, 3]))
        >>> residents.slot_of((1, 1, 0)), residents.slot_of((0, 0, 0))
        (1, None)
        """
        (x, y, z), (grid_x, grid_y, _) = coordinate, self.grid
        found = np.flatnonzero(self.blocks == x + grid_x * (y + grid_y * z))
        return int(found[0]) if len(found) else None

    @cached_property
    def special(self) -> dict[str, Array]:
        """The special registers that differ by CTA."""
        x, y, _ = self.grid
        cx, cy, cz = self.cluster
        b = self.blocks[:, None].astype(np.uint32)
        at = (b % x, b // x % y, b // (x * y))
        values = {}
        for axis, coordinate, extent in zip("xyz", at, (cx, cy, cz), strict=True):
            values[f"ctaid.{axis}"] = coordinate
            values[f"clusterid.{axis}"] = coordinate // np.uint32(extent)
            values[f"cluster_ctaid.{axis}"] = coordinate % np.uint32(extent)
        c = values
        rank = c["cluster_ctaid.x"] + cx * (c["cluster_ctaid.y"] + cy * c["cluster_ctaid.z"])
        values["cluster_ctarank"] = rank.astype(np.uint32)
        values["smid"] = (np.arange(self.count, dtype=np.uint32) % np.uint32(self.sm_count))[:, None]
        return values


def cluster_order(grid: tuple[int, int, int], cluster: tuple[int, int, int]) -> NDArray[np.intp]:
    """Return the linear indices of a grid's CTAs, cluster by cluster, by rank within each.

    Examples
    --------
    >>> cluster_order((4, 1, 1), (2, 1, 1))
    array([0, 1, 2, 3])
    >>> cluster_order((2, 2, 1), (1, 2, 1))
    array([0, 2, 1, 3])
    """
    index = np.arange(grid[0] * grid[1] * grid[2]).reshape(grid[2], grid[1], grid[0])
    if cluster == (1, 1, 1):
        return index.reshape(-1)
    cx, cy, cz = cluster
    split = index.reshape(grid[2] // cz, cz, grid[1] // cy, cy, grid[0] // cx, cx)
    return split.transpose(0, 2, 4, 1, 3, 5).reshape(-1)


def listed(name: str, numbers: Iterable[int]) -> str:
    """Name some warps or lanes.

    Examples
    --------
    >>> listed("warp", {3}), listed("warp", {2, 0, 1}), listed("lane", [4, 6, 7])
    ('warp 3', 'warps 0-2', 'lanes 4, 6-7')
    """
    every = np.array(sorted(numbers))
    runs = np.split(every, np.flatnonzero(np.diff(every) != 1) + 1)
    said = ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)
    return f"{name}{'s' * (len(every) > 1)} {said}"
