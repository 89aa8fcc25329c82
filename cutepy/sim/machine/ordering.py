"""Whether the CTAs of a launch may know of each other: by waiting, or by the order in which they run."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from cutepy.sim.translate import linked

if TYPE_CHECKING:
    from cutepy.sim.machine.launch import Launch

_WAITS_FOR_OTHERS = re.compile(r"(?<![\w.])(?:(?:atom|red)(?=\.)|ld\.(?:acquire|volatile|relaxed))(?![\w.:]*\.shared)")
"""What waits for other CTAs, or might: they can reach each other's shared memory in clusters only."""

_NEEDS_ORDER = re.compile(
    r"cp\.reduce\.|(?<![\w.])tensormap\.|fence\.proxy\.tensormap|%(?:clock|globaltimer)|\bmalloc\b",
)
"""What would see in which order CTAs run: sums in global memory, tensor maps that kernels write, clocks, malloc."""


def may_run_in_any_order(launch: Launch) -> bool:
    """Tell whether CTAs can know of each other only by plain loads of what others have stored."""
    return not waits_for_others(launch) and not _found(_NEEDS_ORDER, launch.ptx, launch.kernel)


def waits_for_others(launch: Launch) -> bool:
    """Tell whether CTAs may wait for each other through global memory."""
    return launch.cooperative or _found(_WAITS_FOR_OTHERS, launch.ptx, launch.kernel)


@lru_cache(maxsize=128)
def _found(pattern: re.Pattern[str], ptx: str, kernel: str) -> bool:
    """Tell whether a kernel, or what it calls, has an instruction: of its module others may have it too."""
    return any(pattern.search(i.text) for i in linked(ptx, kernel).function.instructions)
