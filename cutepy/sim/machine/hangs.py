"""A deadlock as mistakes: one for each thing that is waited for, what it comes of before what follows from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.errors import Deed, Place, SimulationError
from cutepy.sim.machine.awaited import Awaited, arrives
from cutepy.sim.machine.group import inherited
from cutepy.sim.machine.lanes import Threads
from cutepy.sim.machine.memory import OFFSET_MASK, RANK_SHIFT
from cutepy.sim.ptx.model import Address, Register
from cutepy.sim.ptx.places import place
from cutepy.sim.translate import LOCAL_WINDOW, SHARED_WINDOW
from cutepy.sim.translate.control_flow import EXIT

if TYPE_CHECKING:
    from cutepy.sim.machine.group import Group
    from cutepy.sim.machine.roster import Roster
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.translate.control_flow import Block, ControlFlow

_WRITES = frozenset(("st", "atom", "red", "cp", "stmatrix"))
_OF_ITS_OWN = frozenset(("param", "const", "local"))
_TOLD = 4


@dataclass
class _Thing:
    """What is waited for, where the first does who waits for it, and all who do."""

    awaited: Awaited
    instruction: Instruction | None
    waiters: list[Group] = field(default_factory=list)


def mistakes(roster: Roster, at: Mapping[Group, Instruction], said: Sequence[str]) -> list[SimulationError]:
    """Return a mistake for each thing that is waited for; `at` and `said` are as of `deadlock`."""
    things: dict[str, _Thing] = {}
    of: dict[Group, _Thing] = {}
    for g in roster.groups:
        i = at.get(g) or instruction(roster, g)
        awaited, i = (g.waits_for(), i) if g.waits_for is not None else _looked_at(roster, g)
        of[g] = things.setdefault(awaited.at.name, _Thing(awaited, i))
        for each in (awaited, *awaited.beside):
            things.setdefault(each.at.name, _Thing(each, i)).waiters.append(g)
    ways = _Ways(roster.flow)
    told = [_told(roster, thing, of, ways, said) for thing in things.values()]
    return [error for _, error in sorted(told, key=lambda one: one[0])]


class _Ways:
    """Which instructions may still run, from a block on."""

    def __init__(self, flow: ControlFlow) -> None:
        self._flow = flow
        self._from: dict[int, list[Instruction]] = {}

    def instructions(self, block: int) -> list[Instruction]:
        if block not in self._from:
            blocks = (self._flow.blocks[n] for n in self._flow.blocks_between(block, EXIT))
            self._from[block] = [i for one in blocks for i in one.instructions]
        return self._from[block]


def _told(
    roster: Roster, thing: _Thing, of: Mapping[Group, _Thing], ways: _Ways, said: Sequence[str]
) -> tuple[int, SimulationError]:
    """Return the mistake, and how far from the cause it is: by whom what is waited for could still come."""
    awaited, first = thing.awaited, thing.waiters[0]
    others = [h for h in roster.groups if not _is_one_of(h, thing.waiters) and _is_beside(roster, first, h)]
    near = [h for h in others if not awaited.is_of_a_cta or int(first.ctas.slots[0]) in h.ctas.slots]
    come = {h: [i for i in ways.instructions(h.block) if awaited.brings(i)] for h in near}
    possible, last = [h for h in near if come[h]], awaited.last
    known = [h for h in possible if any(i.index in awaited.brought for i in come[h]) or _did(h, awaited)]
    before = None if last is None or last.instruction is thing.instruction else last.deed
    if known or possible:
        verb = "arrives" if known else "may come"
        names = dict.fromkeys(of[h].awaited.at.name for h in known or possible)
        who = f", and who {verb} there waits for {' and '.join(names)} first"
        if not known:
            i = of[possible[0]].instruction
            before = before if i is None else Deed(i, possible[0].describe())
    else:
        who = f", and {awaited.nobody}" if awaited.nobody else ""
    message = "; ".join([f"{awaited.lacks}{who}", _who(roster, thing, others, of), *said])
    error = SimulationError(
        message,
        thing.instruction,
        first.describe(),
        fix=awaited.fix,
        kind=awaited.kind,
        at=awaited.at,
        before=before,
    )
    return 0 if not possible else 1 if awaited.is_begun else 3 if known else 2, error


def _is_one_of(g: Group, groups: Sequence[Group]) -> bool:
    return any(g is h for h in groups)


def _did(g: Group, awaited: Awaited) -> bool:
    """Tell whether lanes of a group were the last to bring a part of what is waited for."""
    last = awaited.last
    if last is None or not awaited.brings(last.instruction):
        return False
    is_here = np.isin(last.ctas.slots, g.ctas.slots).any() and np.isin(last.threads.ids, g.threads.ids).any()
    return bool(is_here)


def _is_beside(roster: Roster, g: Group, h: Group) -> bool:
    """Tell whether a group has lanes in the first cluster that another one is in."""
    size = roster.residents.cluster_size
    return bool((h.ctas.slots // size == int(g.ctas.slots[0]) // size).any())


def _who(roster: Roster, thing: _Thing, others: Sequence[Group], of: Mapping[Group, _Thing]) -> str:
    """Say who waits, and what others of the first cluster do."""
    waiters = [str(g.describe()) for g in thing.waiters]
    more = f" and {len(waiters) - _TOLD} more" if len(waiters) > _TOLD else ""
    is_cluster = roster.residents.cluster_size > 1
    elsewhere = [f"{h.describe() if is_cluster else h.threads.describe()} for {of[h].awaited.at.name}" for h in others]
    if len(elsewhere) > _TOLD:
        elsewhere = [*elsewhere[:_TOLD], "others elsewhere"]
    is_one = len(waiters) == 1 and thing.waiters[0].threads.count == thing.waiters[0].ctas.count == 1
    waits = " waits" if is_one else " wait"
    *said, last = [" and ".join(waiters[:_TOLD]) + more + waits, *elsewhere, *_ended(roster, thing.waiters[0])]
    return f"{', '.join(said)}, and {last}" if said else last


def _ended(roster: Roster, g: Group) -> Iterator[str]:
    """Say which threads of a group's first cluster have ended."""
    residents = roster.residents
    own, size = int(g.ctas.slots[0]), residents.cluster_size
    for slot in range(own // size * size, own // size * size + size)[:_TOLD]:
        ids = np.flatnonzero(roster.ended[slot])
        if len(ids):
            of = f" of CTA {residents.coordinate(slot)}" if size > 1 else ""
            has = "have" if len(ids) > 1 else "has"
            yield f"{Threads(ids, roster.block).describe()}{of} {has} ended"


def instruction(roster: Roster, g: Group) -> Instruction | None:
    """Return the instruction that a group is before."""
    return first_instruction(roster.flow.blocks[g.block])


def first_instruction(block: Block) -> Instruction | None:
    """Return the instruction that a block begins with."""
    return block.instructions[0] if block.instructions else block.branch


# Loops.


def loop(flow: ControlFlow, block: int) -> list[int]:
    """Return the blocks of the loops that a block is in."""
    return sorted(b for b in flow.blocks_between(block, EXIT) if block in _after(flow, b))


def _after(flow: ControlFlow, block: int) -> set[int]:
    """Return the blocks that may run after a block."""
    return set().union(*(flow.blocks_between(n, EXIT) for n in flow.blocks[block].successors))


def _looked_at(roster: Roster, g: Group) -> tuple[Awaited, Instruction | None]:
    """Return what a group that goes around a loop looks at there, and the instruction that does."""
    instructions = [i for block in loop(roster.flow, g.block) for i in roster.flow.blocks[block].instructions]
    said, fix = "a condition in a loop", "a thread that does not wait for this one must write what the loop waits for"
    nobody = "no other thread that still runs writes to memory"
    for i in instructions:
        address = _address(g, i)
        if i.parts[0] == "mbarrier" and {"test_wait", "try_wait"} & set(i.parts) and address is not None:
            at = Place(f"mbarrier {address & OFFSET_MASK:#x}")
            lacks = "a loop tests it again and again, and its phase is not over"
            fix = "each phase needs the arrivals that mbarrier.init says, and the bytes that are announced"
            return Awaited(said, at, lacks, fix, brings=arrives), i
        if i.parts[0] in ("ld", "atom") and not _OF_ITS_OWN & set(i.parts):
            at = Place("memory") if address is None else _place(address, i)
            return Awaited(said, at, "a loop reads it again and again", fix, brings=_writes, nobody=nobody), i
    first = instruction(roster, g)
    where = f" {place(first)}" if first is not None else ""
    lacks = "it goes around again and again, and nothing that it looks at changes"
    return Awaited(said, Place(f"the loop{where}"), lacks, "let what it looks at change, or end it"), first


def _writes(i: Instruction) -> bool:
    return i.parts[0] in _WRITES


def _place(address: int, i: Instruction) -> Place:
    if not (SHARED_WINDOW <= address < LOCAL_WINDOW or any(part.startswith("shared") for part in i.parts)):
        return Place(f"global memory at {address:#x}")
    offset, rank = address & OFFSET_MASK, (address & (SHARED_WINDOW - 1)) >> RANK_SHIFT
    if rank:
        return Place(f"shared memory of the cluster's CTA {rank - 1} at {offset:#x}")
    return Place(f"shared memory at {offset:#x}", offset)


def _address(g: Group, i: Instruction) -> int | None:
    """Return what the first lane of a group addresses, if that is in a register."""
    operand = next((x for x in i.operands if isinstance(x, Address)), None)
    if operand is None or not isinstance(operand.base, Register):
        return None
    index = operand.base.index
    value = g.registers[index] if g.registers[index] is not None or g.join is None else inherited(g, index)
    return None if value is None else int(value.flat[0]) + operand.offset
