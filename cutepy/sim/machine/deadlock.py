"""Deadlock errors: the lanes that wait, the objects they wait for, and the CTAs that could still come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.advice import Diagnosis
from cutepy.sim.errors import AbsentCtaError, DeadlockError, Place, SimulationError
from cutepy.sim.machine.lanes import WARP, Threads
from cutepy.sim.machine.launch import waits_for_others
from cutepy.sim.machine.wait_for_graph import instruction, loop, mistake, parts
from cutepy.sim.machine.wait_sources import AwaitedObject
from cutepy.sim.ptx.source_lines import place, relative

if TYPE_CHECKING:
    from cutepy.sim.machine.group import Group, Roster
    from cutepy.sim.machine.launch import Launch
    from cutepy.sim.ptx.model import Instruction


class PartOfAUnit(Exception):
    """Error of lanes that execute an instruction of warps or warpgroups without the other lanes of their unit.

    Lanes execute the instruction alone once nothing else can run. If the other lanes wait at a barrier, the launch is
    deadlocked. A mechanism does not know other groups, so it raises this error, and the schedule raises `meaning`.

    Parameters
    ----------
    g : Group
        The lanes that have come.
    i : Instruction
    unit : int
        Threads that execute it together.
    refusal : str
        Requirement of the instruction.
    """

    def __init__(self, g: Group, i: Instruction, unit: int, refusal: str) -> None:
        self.g, self.i, self.unit, self.refusal = g, i, unit, refusal

    def meaning(self, roster: Roster, launch: Launch) -> SimulationError:
        """Return the error that it is: a deadlock if others of the unit wait at a barrier."""
        g, i, unit = self.g, self.i, self.unit
        if any(h is not g and h.waits_for is not None and _share_a_unit(g, h, unit) for h in roster.groups):
            of = "warp" if unit == WARP else "warpgroup"
            rest = f"the other threads of their {of}"
            fix = Diagnosis("unit-to-instruction")
            g.waits_for = lambda: AwaitedObject(rest, Place(rest), f"{i.opcode} needs them all", fix)
            return deadlock(roster, launch, {g: i})
        kind = "partial-warp" if unit == WARP else "partial-warpgroup"
        return SimulationError(self.refusal, i, g.describe(), kind=kind, at=Place(i.opcode))


def _share_a_unit(g: Group, h: Group, unit: int) -> bool:
    same_ctas = np.isin(h.ctas.slots, g.ctas.slots).any()
    return bool(same_ctas and np.isin(h.threads.ids // unit, g.threads.ids // unit).any())


def deadlock(
    roster: Roster, launch: Launch, at: Mapping[Group, Instruction] | None = None, said: Sequence[str] = ()
) -> DeadlockError:
    """Return the error that it is if no thread can go on.

    `at` says where some are within their blocks; what else is `said` of it stands last.
    """
    lines = [*report(roster, launch, at), *said]
    if launch.absent_ctas and any(_polls_global(roster, g) for g in roster.groups):
        run = f"{len(launch.order)} of the grid's {launch.ctas} CTAs"
        lines.append(f"{run} run, as ctas chose: add those that set what is waited for, or set it before the launch")
        return AbsentCtaError(lines)
    found = mistake(roster, at or {}, said)
    return DeadlockError(lines, () if found is None else (found,))


def _polls_global(roster: Roster, g: Group) -> bool:
    """Return whether a group goes around a loop that reads global memory: other waits are within a cluster."""
    if g.waits_for is not None:
        return False
    flow = roster.flow
    blocks = (flow.blocks[n] for n in loop(flow, g.block))
    read = (i for block in blocks for i in block.instructions if i.traits.reads_memory)
    return any(not {"param", "const", "local", "shared", "shared::cta", "shared::cluster"} & set(i.parts) for i in read)


def report(roster: Roster, launch: Launch, at: Mapping[Group, Instruction] | None = None) -> list[str]:
    """Return a line for each group of threads, which are where their blocks begin, or at other instructions."""
    lines = []
    awaited = [(g, each) for g in roster.groups for each in _awaited(g)]
    waits = ["" if each is None else str(each) for _, each in awaited]
    for (g, each), wait in zip(awaited, waits, strict=True):
        i = (at or {}).get(g) or instruction(roster, g)
        where = f" {place(i, name=relative)}" if i is not None else ""
        text = f" in `{i.text.rstrip()}`" if i is not None else ""
        fellows = [other for other, theirs in zip(awaited, waits, strict=True) if theirs == wait]
        absent = _absent(roster, g, fellows) if wait else ""
        who = " and ".join(str(part.describe()) for part in parts(roster, g, None if each is None else each.lanes))
        lines.append(f"{who}: wait for {wait or 'a condition in a loop'}{where}{text}{absent}")
    if launch.ctas > launch.resident_ctas and waits_for_others(launch):
        lines.append(
            f"the grid has {launch.ctas} CTAs, of which {launch.resident_ctas} are resident at once: those that "
            "others wait for must be among them"
        )
    return lines


def _awaited(g: Group) -> list[AwaitedObject | None]:
    """List the objects that lanes of a group wait for; None is a condition in a loop."""
    if g.waits_for is None:
        return [None]
    found = g.waits_for()
    return [found, *found.beside]


def _absent(roster: Roster, g: Group, fellows: Sequence[tuple[Group, AwaitedObject | None]]) -> str:
    """Describe the other threads of the first CTA that waits, or of its cluster."""
    residents = roster.residents
    own, size = int(g.ctas.slots[0]), residents.cluster_size
    here = np.zeros_like(roster.ended)
    for fellow, each in fellows:
        lanes = np.ones((1, 1), bool) if each is None or each.lanes is None else each.lanes
        here[fellow.ctas.slots[:, None], fellow.threads.ids[None, :]] |= lanes
    said = []
    for slot in range(own // size * size, own // size * size + size):
        of = f" of CTA {residents.coordinate(slot)}" if size > 1 or g.ctas.count > 1 else ""
        for lanes, verb in (
            (roster.ended[slot], "exited"),
            (~roster.ended[slot] & ~here[slot], "not come here"),
        ):
            ids = np.flatnonzero(lanes)
            if len(ids):
                who = Threads(ids, roster.block).describe()
                said.append(f"{who}{of} {'have' if len(ids) > 1 else 'has'} {verb}")
    return "".join(f"; {text}" for text in said[:8]) + ("; ..." if len(said) > 8 else "")
