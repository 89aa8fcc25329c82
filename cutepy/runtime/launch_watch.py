"""Watchers of simulated launches: they learn when host code issues one, and each time that it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

Extents = tuple[int, int, int]


class IssuedLaunch(Protocol):
    """Launch that host code issued."""

    @property
    def kernel(self) -> str:
        """Name of the entry function."""

    @property
    def grid(self) -> Extents:
        """Extents of the grid."""

    @property
    def block(self) -> Extents:
        """Extents of a CTA."""

    @property
    def cluster(self) -> Extents | None:
        """Extents of a cluster; None for a launch without clusters."""

    @property
    def dynamic_smem_bytes(self) -> int:
        """Dynamic shared memory."""


Watcher = Callable[[IssuedLaunch], Callable[[int, bool], None]]
"""Is called where a launch is issued, in the thread that issues it. The function that it returns is called each time
that the kernel has run, with the stream's handle, and with whether that was a replay of the graph that captured it."""

WATCHERS: list[Watcher] = []
"""Watchers of this process; empty while nobody watches."""
