"""Which lanes execute what whole warps, or warpgroups, must execute together: `cutepy.sim.ptx.alignment`.

How lanes are grouped says nothing of that: parts go ahead and come after. So executions by a part of a unit are counted
by lane, in each place within which the lanes have parted and where they meet again. Who passes there has executed less
than others of its unit if its path did not lead to the instruction; lanes that all come to it, however late and on
whatever paths, have executed it equally often. Lanes that have ended may have come to fewer barriers than others of
their warp, but to no other ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cutepy.layouts.sm90.arch import WARP_THREADS
from cutepy.sim.machine.executions import Executions, Orders
from cutepy.sim.machine.lanes import Array
from cutepy.sim.ptx.alignment import aligned_threads, goes_without_ended

if TYPE_CHECKING:
    from cutepy.sim.machine.group import Group, Join
    from cutepy.sim.machine.lanes import Residents
    from cutepy.sim.machine.roster import Roster
    from cutepy.sim.ptx.model import Instruction


@dataclass(frozen=True, slots=True)
class Apart:
    """An instruction that a part of a warp or warpgroup executed, and others of it did not.

    Attributes
    ----------
    instruction : Instruction
    branch : Instruction or None
        Where the lanes had parted; None if that isn't known.
    slot : int
        The CTA.
    unit : int
        How many threads must execute it together.
    executed, lacking : array of int
        The threads that did, and those that didn't.
    residents : Residents
    """

    instruction: Instruction
    branch: Instruction | None
    slot: int
    unit: int
    executed: Array
    lacking: Array
    residents: Residents


class Alignment:
    """Executions of a launch by parts of units.

    Parameters
    ----------
    roster : Roster
    tell : callable
        Called with each `Apart` that is found.
    """

    def __init__(self, roster: Roster, tell: Callable[[Apart], None]) -> None:
        self._roster, self._tell = roster, tell
        self.start()

    def start(self) -> None:
        """Begin with CTAs that become resident."""
        self._whole, self._orders = Executions(), Orders()
        self._told: set[tuple[int, int]] = set()

    def execute(self, g: Group, i: Instruction) -> None:
        """Count an execution by a group that has units in part."""
        lanes = self._roster.lanes_of([g])
        for counts in self._around(g.join):
            counts.add(i, lanes)
        if goes_without_ended(i):
            self._orders.add(i, lanes)

    def pass_by(self, join: Join, taken: Array) -> None:
        """Look at lanes that have come to where they meet others: what these did meanwhile, they will not do."""
        self._judge(join.executed, join, self._roster.lanes_of([join.parent]), taken)

    def end(self) -> None:
        """Look at lanes that have ended, or can't go on."""
        roster = self._roster
        if self._whole:
            every = np.ones_like(roster.ended)
            self._judge(self._whole, None, every, roster.ended, lambda i: not goes_without_ended(i))
        for i, slot, executed, others in self._orders.different():
            if (slot, int(executed[0]) // WARP_THREADS) not in self._told:
                self._say(self._apart(i, None, slot, executed, others))

    def stick(self, joins: list[Join]) -> None:
        """Look at lanes that can't go on: those that wait at something else than others of their unit do."""
        self.end()
        live, told = ~self._roster.ended, set()
        for counts, join in (*((join.executed, join) for join in joins[::-1]), (self._whole, None)):
            for i, less in counts.lacking(live, live):
                slot, lacking, executed = self._first(i, less, live, live)
                if i not in told and counts.is_ahead(i, slot, lacking, executed):
                    told.add(i)
                    self._say(self._apart(i, join, slot, executed, lacking))

    def _around(self, join: Join | None) -> Iterator[Executions]:
        while join is not None:
            yield join.executed
            join = join.parent.join
        yield self._whole

    def _judge(
        self,
        counts: Executions,
        join: Join | None,
        here: Array,
        judged: Array,
        applies: Callable[[Instruction], bool] = lambda i: True,
    ) -> None:
        for i, less in [*counts.lacking(here, judged & here)]:
            if applies(i):
                slot, lacking, executed = self._first(i, less, here, judged)
                self._say(self._apart(i, join, slot, executed, lacking))
                for around in (counts, *(self._around(join.parent.join) if join is not None else ())):
                    around.level(i, (less > 0) & judged)  # told once

    def _say(self, apart: Apart) -> None:
        self._told.update((apart.slot, int(thread) // WARP_THREADS) for thread in apart.executed)
        self._tell(apart)

    def _first(self, i: Instruction, less: Array, here: Array, judged: Array) -> tuple[int, Array, Array]:
        """Return the first CTA and unit of which lanes that are judged lack something, those, and who doesn't."""
        lacking = (less > 0) & judged
        slot, thread = (int(x[0]) for x in np.nonzero(lacking))
        unit = aligned_threads(i)
        of = np.arange(less.shape[1]) // unit == thread // unit
        return slot, np.flatnonzero(of & lacking[slot]), np.flatnonzero(of & here[slot] & (less[slot] == 0))

    def _apart(self, i: Instruction, join: Join | None, slot: int, executed: Array, lacking: Array) -> Apart:
        branch = None if join is None else self._roster.flow.blocks[join.parted].branch
        return Apart(i, branch, slot, aligned_threads(i), executed, lacking, self._roster.residents)
