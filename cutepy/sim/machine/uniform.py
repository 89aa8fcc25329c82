"""Operands that the threads of a warp, or of a warpgroup, must give alike: one of them is taken for all.

References
----------
PTX ISA, "wgmma.mma_async": "The contents of a matrix descriptor must be same across all the warps in the warpgroup";
"wmma.load", "wmma.store": `p` and `ldm` of all threads of the warp; "bar, barrier": `.aligned`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.errors import Place, SimulationError, Who
from cutepy.sim.machine.lanes import WARP, Array
from cutepy.sim.ptx.alignment import aligned_threads

if TYPE_CHECKING:
    from cutepy.sim.machine.activity import Activity
    from cutepy.sim.machine.group import Group
    from cutepy.sim.ptx.model import Instruction


def check_uniform(
    activity: Activity, g: Group, i: Instruction, value: Array, what: str, error: type[SimulationError] | None = None
) -> None:
    """Check what lanes give, (CTAs or 1, threads or 1): in each unit that executes an instruction together the same.

    Parameters
    ----------
    activity, g, i : Activity, Group, Instruction
    value : array
    what : str
        What it is, in words.
    error : type of SimulationError, optional
        What it is; by default that a part of the unit executes the instruction.

    Raises
    ------
    SimulationError
        If they differ, and no observer takes that.
    """
    if value.shape[1] == 1 or (value == value[:, :1]).all():
        return
    unit = aligned_threads(i)
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
    who = Who(f"warp {warp}, lane {within} of CTA {cta}", cta, warp, within)
    fix = f"compute it of what the {of} has in common, or take one lane's by shfl.sync"
    kind = f"partial-{of}" if error is None else error.kind
    wrong = f"{wrong}, and thread {thread} {mine:#x}"
    activity.fault((error or SimulationError)(wrong, i, who, fix=fix, kind=kind, at=Place(what)))
