"""Premise 8: tensor memory is allocated in one order, so that each allocation finds the same columns free.

An allocation depends on all earlier allocations and frees. So it must happen after each of these, before each later
allocation, and before its CTA relinquishes the permit to allocate. Two frees commute.

Both CTAs of a pair allocate, free and relinquish together: a thread that knows the operation of one CTA knows that of
the other.

References
----------
PTX ISA, "tcgen05.alloc, tcgen05.dealloc, tcgen05.relinquish_alloc_permit".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cutepy.sim.ptx.source_lines import line_of
from cutepy.sim.sanitize.order.clocks import DONE

if TYPE_CHECKING:
    from cutepy.sim.machine.events import TensorMemoryAllocation
    from cutepy.sim.machine.lanes import Array
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.sanitize.order.wave import Wave


class _WarpOperation(NamedTuple):
    """Operation of a warp, with the clocks of its threads."""

    agent: int
    threads: Array
    counts: Array


class _CollectiveOperation(NamedTuple):
    """Collective operation of the warps of a CTA, or of a pair of CTAs."""

    name: str
    columns: tuple[int, int]
    instruction: Instruction
    by: list[_WarpOperation]


class Allocations:
    """Allocations of the CTAs that are resident together.

    Parameters
    ----------
    wave : Wave
    refuse : callable
        Called with operations that another order may swap, in words.
    """

    def __init__(self, wave: Wave, refuse: Callable[[str], None]) -> None:
        self._clocks, self._refuse = wave.clocks, refuse
        self._done: dict[tuple[int, ...], list[_CollectiveOperation]] = {}

    def see(self, event: TensorMemoryAllocation) -> None:
        """Check that operations that came before in the run come before in every schedule."""
        agent, threads, i = int(event.ctas.slots[0]), event.threads.ids, event.instruction
        name, columns = i.parts[1], (event.first, event.count)
        done = self._done.setdefault(event.members, [])
        mine = _WarpOperation(agent, threads, self._clocks.counts(np.array([agent]), threads)[0])
        same = next((one for one in done if (one.name, one.columns) == (name, columns) and _lacks(one, agent)), None)
        for other in done:
            commute = "alloc" not in (name, other.name)
            if other is not same and not commute and not any(self._is_known(one, mine) for one in other.by):
                first = other.instruction
                self._refuse(
                    f"`{first.name}` ({line_of(first)}) and `{i.name}` ({line_of(i)}) may come in either "
                    "order, and what is allocated depends on it"
                )
        if same is None:
            done.append(_CollectiveOperation(name, columns, i, [mine]))
        else:
            same.by.append(mine)

    def _is_known(self, old: _WarpOperation, new: _WarpOperation) -> bool:
        known = self._clocks.known_to_some(new.agent, new.threads, DONE, old.agent % self._clocks.cluster)
        return bool((known[old.threads] >= old.counts).any())


def _lacks(one: _CollectiveOperation, agent: int) -> bool:
    """Return whether the other CTA of a pair did something, and this one did not so far."""
    return all(by.agent != agent for by in one.by)
