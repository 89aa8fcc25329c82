"""How a grid is dealt out to waves of resident CTAs, and whether its waves could run beside each other."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cutepy.sim.machine.lanes import cluster_order

if TYPE_CHECKING:
    from cutepy.sim.machine.launch import Launch

_RESIDENT_CTAS = 32
"""CTAs that run in lockstep: enough to spread the cost of dispatch, few enough for their tiles to stay in cache."""

_WAITS_FOR_OTHERS = re.compile(r"(?<![\w.])(?:(?:atom|red)(?=\.)|ld\.(?:acquire|volatile|relaxed))(?![\w.:]*\.shared)")
"""What waits for other CTAs, or might: they can reach each other's shared memory in clusters only."""

_NEEDS_ORDER = re.compile(
    r"cp\.reduce\.|(?<![\w.])tensormap\.|fence\.proxy\.tensormap|%(?:clock|globaltimer)|\.extern\s.*\bmalloc\b",
)
"""What would see in which order CTAs run: sums in global memory, tensor maps that kernels write, clocks, malloc."""


def deal(launch: Launch) -> list[NDArray[np.intp]]:
    """Deal the grid out to waves of CTAs that are resident together, of about equal size.

    Returns
    -------
    list of array
        Linear indices of CTAs, those of a cluster next to each other.
    """
    order = cluster_order(launch.grid, launch.cluster)
    cluster = launch.cluster[0] * launch.cluster[1] * launch.cluster[2]
    if launch.cooperative:
        size = len(order)  # capture has checked that the hardware can
    elif waits_for_others(launch):
        size = max(launch.resident_ctas // cluster, 1) * cluster
    else:
        waves = max(1, round(len(order) / _RESIDENT_CTAS))
        size = -(-len(order) // (waves * cluster)) * cluster
    return [order[start : start + size] for start in range(0, len(order), size)]


def may_run_in_any_order(launch: Launch) -> bool:
    """Tell whether CTAs can know of each other only by plain loads of what others have stored."""
    return not waits_for_others(launch) and not _found(_NEEDS_ORDER, launch.ptx)


def waits_for_others(launch: Launch) -> bool:
    """Tell whether CTAs may wait for each other through global memory."""
    return launch.cooperative or _found(_WAITS_FOR_OTHERS, launch.ptx)


@lru_cache(maxsize=128)
def _found(pattern: re.Pattern[str], ptx: str) -> bool:
    return pattern.search(ptx) is not None
