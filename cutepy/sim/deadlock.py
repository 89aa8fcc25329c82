"""What is said of a deadlock: who waits where and for what, and who else could have come."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.lanes import Threads
from cutepy.sim.places import described
from cutepy.sim.waves import waits_for_others

if TYPE_CHECKING:
    from cutepy.sim.group import Group
    from cutepy.sim.machine import Machine
    from cutepy.sim.ptx.model import Instruction


def report(machine: Machine) -> list[str]:
    """Return a line for each group of threads."""
    lines = []
    waits = [g.waits_for() if g.waits_for else "" for g in machine.groups]
    for g, wait in zip(machine.groups, waits, strict=True):
        i = _instruction(machine, g)
        where = f" {described(i.source)}" if i is not None and i.source is not None else ""
        text = f" in `{i.text}`" if i is not None else ""
        fellows = [other for other, theirs in zip(machine.groups, waits, strict=True) if theirs == wait]
        absent = _absent(machine, g, fellows) if wait else ""
        lines.append(f"{g.describe()}: wait for {wait or 'a condition in a loop'}{where}{text}{absent}")
    launch = machine.launch
    if launch.ctas > launch.resident_ctas and waits_for_others(launch):
        lines.append(
            f"the grid has {launch.ctas} CTAs, of which {launch.resident_ctas} are resident at once: those that "
            "others wait for must be among them"
        )
    return lines


def _instruction(machine: Machine, g: Group) -> Instruction | None:
    block = machine.program.flow.blocks[g.block]
    return block.instructions[0] if block.instructions else block.branch


def _absent(machine: Machine, g: Group, fellows: list[Group]) -> str:
    """Say what the other threads of the first CTA that waits, or of its cluster, do instead."""
    residents = machine.residents
    own, size = int(g.ctas.slots[0]), residents.cluster_size
    here = np.zeros_like(machine.ended)
    for fellow in fellows:
        here[fellow.ctas.slots[:, None], fellow.threads.ids[None, :]] = True
    said = []
    for slot in range(own // size * size, own // size * size + size):
        of = f" of CTA {residents.coordinate(slot)}" if size > 1 or g.ctas.count > 1 else ""
        for lanes, verb in (
            (machine.ended[slot], "exited"),
            (~machine.ended[slot] & ~here[slot], "not come here"),
        ):
            ids = np.flatnonzero(lanes)
            if len(ids):
                who = Threads(ids, machine.launch.block).describe()
                said.append(f"{who}{of} {'have' if len(ids) > 1 else 'has'} {verb}")
    return "".join(f"; {text}" for text in said[:8]) + ("; ..." if len(said) > 8 else "")
