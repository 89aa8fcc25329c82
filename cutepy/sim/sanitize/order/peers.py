"""Whether the CTAs of a cluster that others reach into have begun, and have not ended.

Shared memory is a CTA's own from its first instruction until its last thread exits. An access by a peer must come after
something that the CTA has published, if only that it is there, and before the exit of one of its threads, which must
know of it: by a barrier of the cluster, or by a wait for the phase of an mbarrier that the access arrives in.

References
----------
PTX ISA, "State Spaces: Shared State Space", "barrier.cluster"; CUDA C++ Programming Guide, "Distributed Shared Memory":
all thread blocks must have started before, and must exist until all accesses are over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cutepy.sim.machine.lanes import Array
from cutepy.sim.sanitize.order.clocks import DONE, Clocks

if TYPE_CHECKING:
    from cutepy.sim.ptx.model import Instruction

BEGUN = "begun"
"""The channel that says that a CTA is there."""


class Late(NamedTuple):
    """What reaches a CTA that may have ended."""

    instruction: Instruction
    target: int
    agent: int
    thread: int


@dataclass
class _Reached:
    """What the threads of one CTA did last to the shared memory of another; a count of 0 for nothing.

    `counts` are those of the threads' columns, `columns` and `phases` the mbarrier that they arrived at, or -1.
    """

    counts: Array
    columns: Array
    phases: Array
    instructions: dict[int, Instruction]


class Peers:
    """What the threads of resident CTAs do to the shared memory of others.

    Parameters
    ----------
    clocks : Clocks
    threads : int
        Of a CTA.
    """

    def __init__(self, clocks: Clocks, threads: int) -> None:
        self._clocks = clocks
        self._threads = threads
        self._reached: dict[tuple[int, int], _Reached] = {}

    def access(self, i: Instruction, target: int, agent: int, threads: Array) -> bool:
        """Take an access by threads of one CTA to the memory of another; tells whether they know that it has begun."""
        clocks = self._clocks
        reached = self._of(target, agent)
        at = np.array([agent])
        reached.counts[threads] = clocks.counts(at, threads)[0]
        reached.columns[threads] = -1
        reached.instructions.update(dict.fromkeys(threads.tolist(), i))
        view, row_of = clocks.view(at, threads)
        known = view.known[DONE][0, row_of, target % clocks.cluster]
        return bool((known > 0).any(axis=1).all())

    def arrive(self, i: Instruction, target: int, agent: int, thread: int, column: int, phase: int) -> None:
        """Take an arrival at the mbarrier of another CTA, whose channel and phase these are."""
        reached = self._of(target, agent)
        reached.counts[thread] = self._clocks.counts(np.array([agent]), np.array([thread]))[0, 0]
        reached.columns[thread], reached.phases[thread] = column, phase
        reached.instructions[thread] = i

    def _of(self, target: int, agent: int) -> _Reached:
        found = self._reached.get((target, agent))
        if found is None:
            none = np.full(self._threads, -1)
            found = self._reached[target, agent] = _Reached(np.zeros(self._threads, np.int64), none, none.copy(), {})
        return found

    def late(self, has_ended: Array) -> Iterator[Late]:
        """Yield, of each two CTAs, something that nothing orders before the end of the one whose memory it is."""
        clocks = self._clocks
        for (target, agent), reached in self._reached.items():
            if not has_ended[target]:
                continue
            threads = np.flatnonzero(reached.counts)
            known = clocks.best_of(target, agent % clocks.cluster)[threads] >= reached.counts[threads]
            own = clocks.best_of(target, target % clocks.cluster)
            columns = reached.columns[threads]
            known |= (columns >= 0) & (own[columns] > reached.phases[threads])
            if not known.all():
                thread = int(threads[np.argmin(known)])
                yield Late(reached.instructions[thread], target, agent, thread)
