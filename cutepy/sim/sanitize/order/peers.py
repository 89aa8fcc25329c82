"""Lifetimes of a cluster's CTAs: accesses to another CTA's shared memory come after its begin and before its end.

Shared memory is a CTA's own from its first instruction until its last thread exits. An access by a peer must come after
something that the CTA has published, if only that it is there, and before the exit of one of its threads, which must
know of it: by a barrier of the cluster, by a later release of that scope, or, of an arrival, by a wait for its phase.

References
----------
PTX ISA, "State Spaces: Shared State Space", "barrier.cluster"; CUDA C++ Programming Guide, "Distributed Shared Memory":
all thread blocks must have started before, and must exist until all accesses are over. PTX ISA, "Morally Strong
Operations": a release of scope ``.cta`` tells threads of other CTAs nothing of what came before it. Arrivals of one
thread at mbarriers of one CTA, and its commits, are taken to count in their order: CUTLASS's pipelines wait for the
last one alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cutepy.sim.machine.lanes import Array
from cutepy.sim.ptx.model import Instruction
from cutepy.sim.sanitize.order.clocks import DONE, SEEN, Clocks

BEGUN = "begun"
"""The channel that says that a CTA is there."""


class LatePeerAccess(NamedTuple):
    """Access to shared memory of a CTA that may have ended."""

    instruction: Instruction
    target: int
    agent: int
    thread: int


class _Arrival(NamedTuple):
    """The last arrival of a thread at an mbarrier: how far the thread had come, and the phase that it counts in."""

    came: int
    phase: int
    instruction: Instruction


@dataclass
class _RemoteAccesses:
    """Last accesses of one CTA's threads to the shared memory of another.

    `counts` are those of the threads' columns at their accesses, 0 for none; arrivals are by thread and by the column
    of the mbarrier, and those by commits of the tensor core by the column of what their thread has issued, too: it says
    how far that is complete.
    """

    counts: Array
    instructions: dict[int, Instruction]
    arrivals: dict[tuple[int, int], _Arrival]
    commits: dict[tuple[int, int, int], _Arrival]


class Peers:
    """Accesses of resident CTAs to the shared memory of each other.

    Parameters
    ----------
    clocks : Clocks
    threads : int
        Of a CTA.

    Attributes
    ----------
    rests_on_order : bool
        True if a commit is known to have arrived for a later one of its thread has, or one of the same operations.
    """

    def __init__(self, clocks: Clocks, threads: int) -> None:
        self.rests_on_order = False
        self._clocks = clocks
        self._threads = threads
        self._reached: dict[tuple[int, int], _RemoteAccesses] = {}

    def access(self, i: Instruction, target: int, agent: int, threads: Array) -> bool:
        """Take an access by threads of one CTA to the memory of another; tells whether they know that it has begun."""
        clocks = self._clocks
        reached = self._of(target, agent)
        at = np.array([agent])
        reached.counts[threads] = clocks.counts(at, threads)[0]
        reached.instructions.update(dict.fromkeys(threads.tolist(), i))
        view, row_of = clocks.view(at, threads)
        known = view.known[DONE][0, row_of, target % clocks.cluster]
        return bool((known > 0).any(axis=1).all())

    def arrive(self, i: Instruction, target: int, agent: int, thread: int, column: int, phase: int, count: int) -> None:
        """Take an arrival at the mbarrier of another CTA, whose channel and phase these are, and the thread's count."""
        self._of(target, agent).arrivals[thread, column] = _Arrival(count, phase, i)

    def commit(
        self, i: Instruction, target: int, agent: int, thread: int, column: int, phase: int, of_thread: int, count: int
    ) -> None:
        """Take an arrival by a commit of a thread at the mbarrier of a CTA, its own or another, as of `arrive`.

        Its thread may know of it no more than others do.
        """
        commits, key = self._of(target, agent).commits, (thread, column, of_thread)
        last = commits.get(key)
        if last is not None:  # they may arrive in another order
            phase, count = max(phase, last.phase), max(count, last.came)
        commits[key] = _Arrival(count, phase, i)

    def _of(self, target: int, agent: int) -> _RemoteAccesses:
        found = self._reached.get((target, agent))
        if found is None:
            found = self._reached[target, agent] = _RemoteAccesses(np.zeros(self._threads, np.int64), {}, {}, {})
        return found

    def late(self, has_ended: Array) -> Iterator[LatePeerAccess]:
        """Yield, of each two CTAs, something that nothing orders before the end of the one whose memory it is."""
        clocks = self._clocks
        for (target, agent), reached in self._reached.items():
            if not has_ended[target]:
                continue
            seen = clocks.best_of(target, agent % clocks.cluster, SEEN)
            over = clocks.best_of(target, target % clocks.cluster)
            # By thread, how far it had come at the last of its arrivals there that is known to have counted.
            known: dict[int, int] = {}
            for (thread, column), one in reached.arrivals.items():
                if over[column] > one.phase:
                    known[thread] = max(known.get(thread, 0), one.came)
            missed = [
                (thread, one.instruction)
                for (thread, _), one in reached.arrivals.items()
                if max(seen[thread], known.get(thread, 0)) < one.came
            ]
            done = clocks.best_of(target, agent % clocks.cluster)
            for (thread, column, of_thread), one in reached.commits.items():
                if over[column] > one.phase:
                    continue
                if done[of_thread] >= one.came:
                    self.rests_on_order = True
                else:
                    missed.append((thread, one.instruction))
            threads = np.flatnonzero(reached.counts > seen[: self._threads]).tolist()
            missed.extend((thread, reached.instructions[thread]) for thread in threads)
            if missed:
                thread, i = min(missed, key=lambda each: each[0])
                yield LatePeerAccess(i, target, agent, thread)
