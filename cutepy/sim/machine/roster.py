"""The lanes of the resident CTAs: the groups that they are in, and which have ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cutepy.sim.machine.group import Group, Join
from cutepy.sim.machine.lanes import Array, Ctas, Residents, Threads

if TYPE_CHECKING:
    from cutepy.sim.translate.control_flow import ControlFlow


class Roster:
    """Who runs, who waits, and who has ended.

    Parameters
    ----------
    flow : ControlFlow
        Of the function that all run.
    block : (int, int, int)
        Extents of a CTA.

    Attributes
    ----------
    threads_per_cta : int
    groups : list of Group
        Those that run or wait, but for those that wait where they meet others.
    groups_ended : int
        How many have, in all launches of CTAs so far.
    residents : Residents
        The CTAs.
    ended : array of bool, (slots, threads)
        The lanes that have ended.
    """

    residents: Residents
    ended: Array

    def __init__(self, flow: ControlFlow, block: tuple[int, int, int]) -> None:
        self.flow = flow
        self.block = block
        self.threads_per_cta = block[0] * block[1] * block[2]
        self.groups: list[Group] = []
        self.groups_ended = 0
        self._numbers = 0
        self._thread_sets: dict[bytes, Threads] = {}
        self._cta_sets: dict[bytes, Ctas] = {}

    def start(self, residents: Residents, registers: Sequence[Array]) -> None:
        """Let CTAs begin: their lanes are one group."""
        self.residents = residents
        self.ended = np.zeros((residents.count, self.threads_per_cta), bool)
        self._cta_sets.clear()
        ctas, threads = self.ctas(np.arange(residents.count)), self.threads(np.arange(self.threads_per_cta))
        self.groups = [self.group(0, list(registers), ctas, threads, None)]

    def group(self, block: int, registers: list[Any], ctas: Ctas, threads: Threads, join: Join | None) -> Group:
        """Make a group, which has a number of its own."""
        self._numbers += 1
        return Group(self._numbers, block, registers, ctas, threads, join)

    def threads(self, ids: NDArray[np.intp]) -> Threads:
        """Return the set of these threads."""
        key = ids.tobytes()
        if key not in self._thread_sets:
            self._thread_sets[key] = Threads(ids, self.block)
        return self._thread_sets[key]

    def ctas(self, slots: NDArray[np.intp]) -> Ctas:
        """Return the set of these slots."""
        key = slots.tobytes()
        if key not in self._cta_sets:
            self._cta_sets[key] = Ctas(slots, self.residents)
        return self._cta_sets[key]

    def lanes_of(self, groups: Sequence[Group]) -> Array:
        """Tell which lanes are in some groups, by (slot, thread)."""
        here = np.zeros_like(self.ended)
        for g in groups:
            here[g.ctas.slots[:, None], g.threads.ids[None, :]] = True
        return here

    def replace(self, old: Sequence[Group], new: Sequence[Group]) -> None:
        """Put groups of the same lanes, which meet others at the same place, in the place of others."""
        self.groups = [g for g in self.groups if not any(g is other for other in old)] + list(new)
        if old[0].join is not None:
            old[0].join.expected += len(new) - len(old)

    def end(self, g: Group) -> None:
        """Note that lanes have ended."""
        self.ended[g.ctas.slots[:, None], g.threads.ids[None, :]] = True
        self.groups_ended += 1
