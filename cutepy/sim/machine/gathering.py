"""Lanes that come together, one after another, at a collective of their warp, which names them in its mask.

Where lanes went ahead of their warp, they wait here for the others, and are one group again.

References
----------
PTX ISA, "shfl.sync", "vote.sync", "match.sync", "redux.sync", "elect.sync": the executing thread waits until all
threads of its mask that have not exited execute the instruction. "bar.warp.sync" may be executed in different places.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.errors import Deed, Place, SimulationError
from cutepy.sim.machine.awaited import Awaited
from cutepy.sim.machine.group import Gathering, Group
from cutepy.sim.machine.lanes import WARP, Array, mask_of
from cutepy.sim.machine.merging import in_whole_units, regroup

if TYPE_CHECKING:
    from cutepy.sim.machine.group import Join
    from cutepy.sim.machine.roster import Roster
    from cutepy.sim.ptx.model import Instruction


def gather(roster: Roster, g: Group, i: Instruction, wanted: Array) -> bool | None:
    """Bring together the lanes that a collective names, which come one after another.

    Parameters
    ----------
    roster : Roster
    g : Group
    i : Instruction
        The first of its block.
    wanted : array of uint32, (CTAs, warps)
        The lanes that the masks of the group name.

    Returns
    -------
    bool or None
        True if they are all here; False if the group waits for some; None if it has become other groups.
    """
    if g.is_gathered:
        g.is_gathered = False
        return True
    if g.gathering is None:
        named = np.zeros_like(roster.ended)
        bits = np.unpackbits(np.ascontiguousarray(wanted).view(np.uint8), axis=1, bitorder="little").astype(bool)
        threads = (g.threads.warps[:, None] * WARP + np.arange(WARP)).reshape(-1)
        exist = threads < roster.threads_per_cta
        named[np.ix_(g.ctas.slots, threads[exist])] = np.broadcast_to(bits, (g.ctas.count, len(threads)))[:, exist]
        if not (named & ~roster.ended & ~roster.lanes_of([g])).any():
            return True
        g.gathering = Gathering(i, named, roster.groups_ended)
    elif g.gathering.ended == roster.groups_ended:
        return False
    g.gathering = g.gathering._replace(ended=roster.groups_ended)
    fellows = [h for h in roster.groups if h.gathering is not None and h.join is g.join and _is_met(g, h)]
    named = np.logical_or.reduce([h.gathering.wanted for h in fellows if h.gathering is not None])
    chosen = in_whole_units(roster.lanes_of(fellows), named & ~roster.ended, WARP)
    if not chosen.any():
        g.waits_for = lambda: _awaited(roster, g, i)
        return False
    for block in {h.block for h in fellows}:
        parts = [h for h in fellows if h.block == block]
        merged, rest = regroup(roster, parts, chosen & roster.lanes_of(parts), block, g.join)
        for one in merged:
            one.is_gathered = True
        roster.replace(parts, [*merged, *rest])
    return None


def _is_met(g: Group, h: Group) -> bool:
    """Tell whether the collectives of two groups are one: at the same place, but for bar.warp.sync."""
    assert g.gathering is not None
    assert h.gathering is not None
    return h.block == g.block or {g.gathering.instruction.parts[0], h.gathering.instruction.parts[0]} == {"bar"}


def absent(roster: Roster, g: Group) -> str:
    """Name the lanes that a group waits for at a collective, of the first warp that lacks some."""
    assert g.gathering is not None
    missing = g.gathering.wanted & ~roster.ended & ~roster.lanes_of([g])
    slot, thread = (int(x[0]) for x in missing.nonzero())
    first = thread // WARP * WARP
    lanes = np.zeros(WARP, bool)
    lanes[: len(missing[slot, first : first + WARP])] = missing[slot, first : first + WARP]
    return f"lanes {int(mask_of(lanes)):#010x} of warp {thread // WARP}"


def _awaited(roster: Roster, g: Group, i: Instruction) -> Awaited:
    lanes = absent(roster, g)
    return Awaited(
        f"{lanes}, which its mask names,",
        Place(lanes),
        f"the mask of {i.opcode} names them, and they do not come",
        "all lanes that a mask names must come to the instruction, or end, or the mask must name those that do",
        brings=lambda other: other.opcode == i.opcode,
        is_of_a_cta=True,
        nobody="they cannot come there any more",
    )


def check_not_crossed(roster: Roster, join: Join) -> None:
    """Stop where lanes have met to wait for others, which wait for them at a collective.

    Raises
    ------
    SimulationError
    """
    met = roster.lanes_of(join.arrived)
    for g in roster.groups:
        if g.gathering is not None and _is_within(g, join) and (g.gathering.wanted & met).any():
            i, branch = g.gathering.instruction, roster.flow.blocks[join.parted].branch
            raise SimulationError(
                f"{i.opcode} waits for {absent(roster, g)}, which took another path",
                i,
                g.describe(),
                fix="call it where all lanes of its mask come together",
                kind="mismatched-mask",
                at=Place("a mask of lanes"),
                before=None if branch is None else Deed(branch, join.parent.describe()),
            )


def _is_within(g: Group, join: Join) -> bool:
    """Tell whether a join waits for a group."""
    at = g.join
    while at is not None and at is not join:
        at = at.parent.join
    return at is join
