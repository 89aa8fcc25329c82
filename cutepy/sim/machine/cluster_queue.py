"""The clusters of a launch that have not begun: a queue that waves are taken from, and that launch control takes from.

References
----------
PTX ISA, "clusterlaunchcontrol.try_cancel": a cluster whose launch is cancelled has not begun, and does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from cutepy.sim.machine.events import CompletionPolicy

_DEFAULT = CompletionPolicy()


class ClusterQueue:
    """Waves of clusters that begin together, in order.

    Parameters
    ----------
    waves : sequence of array
        Linear indices of the CTAs of each wave, those of a cluster next to each other.
    cluster : int
        CTAs of a cluster.

    Attributes
    ----------
    waves : list of array
        Without the clusters that were cancelled: some may be empty.
    beyond : int
        Clusters behind the first wave.
    left : int
        Clusters behind the first wave that neither began nor were cancelled.
    """

    def __init__(self, waves: Sequence[NDArray[np.intp]], cluster: int) -> None:
        self.waves = list(waves)
        self._cluster, self._begun = cluster, 0
        self.beyond = self.left = sum(len(wave) for wave in self.waves[1:]) // cluster

    def __iter__(self) -> Iterator[NDArray[np.intp]]:
        """Yield the CTAs of each wave as it begins, unless it is empty."""
        for n in range(len(self.waves)):
            wave = self.begin(n)
            if len(wave):
                yield wave

    def begin(self, n: int) -> NDArray[np.intp]:
        """Begin the n-th wave and all earlier ones; return the CTAs of the n-th."""
        for begun in range(max(self._begun, 1), n + 1):
            self.left -= len(self.waves[begun]) // self._cluster
        self._begun = n + 1
        return self.waves[n]

    def cancel(self, policy: CompletionPolicy | None) -> int | None:
        """Take the next cluster, as a policy says: returns the linear index of its first CTA, or None of a refusal."""
        if not self.left or not (policy or _DEFAULT).grants(self.left, self.beyond):
            return None
        n = next(n for n in range(self._begun, len(self.waves)) if len(self.waves[n]))
        taken, self.waves[n] = np.split(self.waves[n], [self._cluster])
        self.left -= 1
        return int(taken[0])
