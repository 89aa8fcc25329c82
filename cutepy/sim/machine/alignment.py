"""Aligned instructions: all threads of a warp or warpgroup must execute them together, some with the same operands.

The groups of lanes that the simulator runs do not show whether a unit executes an instruction together, since parts of
a unit run ahead and behind. So executions by a part of a unit are counted, by lane, between each divergence and its
reconvergence. A lane that reconverges with fewer executions than others of its unit took a path without the
instruction. If all lanes execute the instruction, however late and on whatever paths, their counts are equal. An exited
lane may have executed fewer barriers than others of its warp, but no other barriers.

References
----------
PTX ISA, "wgmma.mma_async": "The contents of a matrix descriptor must be same across all the warps in the warpgroup";
"wmma.load", "wmma.store": `p` and `ldm` of all threads of the warp; "bar, barrier": `.aligned`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from cutepy.layouts.sm90.arch import WARP_THREADS
from cutepy.sim.advice import Diagnosis
from cutepy.sim.errors import NamedLanes, Place, SimulationError
from cutepy.sim.machine.events import PartialUnit
from cutepy.sim.machine.lanes import WARP, Array
from cutepy.sim.machine.thread_history import ExecutionCounts, Orders

if TYPE_CHECKING:
    from cutepy.sim.machine.activity import Activity
    from cutepy.sim.machine.group import Group, Join, Roster
    from cutepy.sim.ptx.model import Instruction


class Alignment:
    """ExecutionCounts of a launch by parts of units.

    Parameters
    ----------
    roster : Roster
    tell : callable
        Called with each `PartialUnit` that is found.
    """

    def __init__(self, roster: Roster, tell: Callable[[PartialUnit], None]) -> None:
        self._roster, self._tell = roster, tell
        self.start()

    def start(self) -> None:
        """Begin with CTAs that become resident."""
        self._whole, self._orders = ExecutionCounts(), Orders()
        self._told: set[tuple[int, int]] = set()

    def execute(self, g: Group, i: Instruction) -> None:
        """Count an execution by a group that has units in part."""
        lanes = self._roster.lanes_of([g])
        for counts in self._around(g.join):
            counts.add(i, lanes)
        if i.traits.meets:
            self._orders.add(i, lanes)

    def pass_by(self, join: Join, taken: Array) -> None:
        """Check lanes that have come to a meeting point against the instructions that others executed meanwhile."""
        self._judge(join.executed, join, self._roster.lanes_of([join.parent]), taken)

    def end(self) -> None:
        """Look at lanes that have ended, or can't go on."""
        roster = self._roster
        if self._whole:
            every = np.ones_like(roster.ended)
            self._judge(self._whole, None, every, roster.ended, lambda i: not i.traits.meets)
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

    def _around(self, join: Join | None) -> Iterator[ExecutionCounts]:
        while join is not None:
            yield join.executed
            join = join.parent.join
        yield self._whole

    def _judge(
        self,
        counts: ExecutionCounts,
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

    def _say(self, apart: PartialUnit) -> None:
        self._told.update((apart.slot, int(thread) // WARP_THREADS) for thread in apart.executed)
        self._tell(apart)

    def _first(self, i: Instruction, less: Array, here: Array, judged: Array) -> tuple[int, Array, Array]:
        """Return the first CTA and unit in which judged lanes lack something, these lanes, and the lanes that don't."""
        lacking = (less > 0) & judged
        slot, thread = (int(x[0]) for x in np.nonzero(lacking))
        unit = i.traits.threads
        of = np.arange(less.shape[1]) // unit == thread // unit
        return slot, np.flatnonzero(of & lacking[slot]), np.flatnonzero(of & here[slot] & (less[slot] == 0))

    def _apart(self, i: Instruction, join: Join | None, slot: int, executed: Array, lacking: Array) -> PartialUnit:
        branch = None if join is None else self._roster.flow.blocks[join.parted].branch
        return PartialUnit(i, branch, slot, i.traits.threads, executed, lacking, self._roster.residents)


def check_uniform(
    activity: Activity, g: Group, i: Instruction, value: Array, what: str, error: type[SimulationError] | None = None
) -> None:
    """Check the values of lanes, (CTAs or 1, threads or 1): the same in each unit that executes together.

    Parameters
    ----------
    activity, g, i : Activity, Group, Instruction
    value : array
    what : str
        Description of the value.
    error : type of SimulationError, optional
        Error to raise; by default that a part of the unit executes the instruction.

    Raises
    ------
    SimulationError
        If the values differ, and no observer takes the error.
    """
    if value.shape[1] == 1 or (value == value[:, :1]).all():
        return
    unit = i.traits.threads
    number = g.threads.ids // unit
    first = np.searchsorted(number, number)
    rows, lanes = np.nonzero(value != value[:, first])
    if not len(rows):
        return
    lane, thread = int(lanes[0]), int(g.threads.ids[lanes[0]])
    mine, other = (int(value[rows[0], n]) for n in (lane, first[lane]))
    cta = g.ctas.residents.coordinate(int(g.ctas.slots[rows[0]]))
    warp, within = divmod(thread, WARP)
    of = "warp" if unit == WARP else "warpgroup"
    wrong = f"{what} must be the same in all threads of a {of}: thread {g.threads.ids[first[lane]]} gives {other:#x}"
    who = NamedLanes(f"warp {warp}, lane {within} of CTA {cta}", cta, warp, within)
    fix = Diagnosis("uniform-operand", unit=of)
    kind = f"partial-{of}" if error is None else error.kind
    wrong = f"{wrong}, and thread {thread} {mine:#x}"
    activity.fault((error or SimulationError)(wrong, i, who, fix=fix, kind=kind, at=Place(what)))
