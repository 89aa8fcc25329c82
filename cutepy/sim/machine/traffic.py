"""Global memory traffic as the L2 cache gets it: the 32-byte sectors that are asked for, with no model of any cache.

Of an instruction that threads execute, each warp asks for each sector that its lanes touch once; of a bulk copy, each
run of contiguous bytes (a row of a box) for its sectors. Bytes are those that are read or written, without the rest of
their sectors. A copy to several CTAs reads global memory once. What is outside of a tensor is not read. Not counted:
local memory, parameters, constants, tensor maps, instructions, and prefetches; nor does a cache keep anything.

References
----------
CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory".
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import TYPE_CHECKING, Literal

import numpy as np

from cutepy.sim.machine.lanes import WARP, Array

if TYPE_CHECKING:
    from cutepy.sim.machine.group import Group

SECTOR_BYTES = 32
_SHIFT = 5
Kind = Literal["load", "store", "atomic"]
KEYS = tuple(f"l2_{kind}_{unit}" for kind in ("load", "store", "atomic") for unit in ("sectors", "bytes"))


class Traffic:
    """Counts sectors and bytes of loads, stores and atomics in a dictionary, under `KEYS`."""

    def __init__(self, counts: dict[str, int]) -> None:
        self._counts = counts
        for key in KEYS:
            counts.setdefault(key, 0)

    def add(self, kind: Kind, sectors: int, size_bytes: int) -> None:
        """Count sectors, and the bytes in them."""
        self._counts[f"l2_{kind}_sectors"] += sectors
        self._counts[f"l2_{kind}_bytes"] += size_bytes

    def maps(self, start: int, end: int) -> tuple[Array | None, Array | None]:
        """Return where a bit is to be set for each byte of a range that is read, and written: nowhere."""
        return None, None

    def access(self, kind: Kind, g: Group, addresses: Array, size_bytes: int) -> None:
        """Count an access of `size_bytes` by each lane, aligned to that, at addresses over (CTAs, threads)."""
        times = g.ctas.count // addresses.shape[0]
        if addresses.shape[1] == 1:
            warps = len(g.threads.warps) * g.ctas.count
            self.add(kind, warps, warps * size_bytes)
            return
        if g.threads.full:
            by_warp = addresses.reshape(addresses.shape[0], -1, WARP)
        else:
            by_warp = _filled_up(g, addresses)
        steps = _steps(by_warp)
        if (steps < 0).any():
            by_warp = np.sort(by_warp, axis=2)
            steps = _steps(by_warp)
        warps = by_warp.shape[0] * by_warp.shape[1]
        distinct = warps + int(np.count_nonzero(steps))
        sectors = warps + int(np.count_nonzero(_steps(by_warp >> np.uint64(_SHIFT))))
        self.add(kind, times * sectors, times * distinct * size_bytes)

    def partial(self, kind: Kind, g: Group, addresses: Array, sizes: Array) -> None:
        """Count an access of a number of bytes of each lane's own, none of which lie in two sectors."""
        rows, columns = np.nonzero(sizes)
        warps = g.threads.position[columns] // WARP
        sectors = addresses[rows, columns] >> np.uint64(_SHIFT)
        self.add(kind, len(set(zip(rows.tolist(), warps.tolist(), sectors.tolist(), strict=True))), int(sizes.sum()))

    def run(self, kind: Kind, address: int, size_bytes: int) -> None:
        """Count contiguous bytes."""
        sectors = ((address + size_bytes - 1) >> _SHIFT) - (address >> _SHIFT) + 1
        self.add(kind, sectors if size_bytes else 0, size_bytes)

    def box(
        self, kind: Kind, address: int, extents: tuple[int, ...], steps: tuple[int, ...], element_bytes: int
    ) -> None:
        """Count a box that starts at an address, given by extents and byte strides, the contiguous mode first."""
        sectors = _box_sectors(address % SECTOR_BYTES, extents, steps, element_bytes)
        self.add(kind, sectors, prod(extents) * element_bytes)


def _steps(values: Array) -> Array:
    """Return the differences along the lanes; addresses stay below 2^63."""
    return np.diff(values.view(np.int64), axis=2)


def _filled_up(g: Group, addresses: Array) -> Array:
    """Return addresses by (CTA, warp, lane), with the first lane's where a lane is not here."""
    warps = len(g.threads.warps)
    first = np.flatnonzero(g.threads.leaders[0])
    whole = np.repeat(addresses[:, first], WARP, axis=1)
    whole[:, g.threads.position] = addresses
    return whole.reshape(addresses.shape[0], warps, WARP)


@cache
def _box_sectors(start: int, extents: tuple[int, ...], steps: tuple[int, ...], element_bytes: int) -> int:
    starts = np.array([start], np.int64)
    for extent, step in zip(extents[1:], steps[1:], strict=True):
        starts = (starts[:, None] + np.arange(extent) * step).reshape(-1)
    last = extents[0] * element_bytes - 1
    return int((((starts + last) >> _SHIFT) - (starts >> _SHIFT) + 1).sum())
