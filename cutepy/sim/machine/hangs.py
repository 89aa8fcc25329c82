"""A deadlock as one mistake: the wait that all others come of, who waits for whom, and near misses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.errors import Bringer, Chance, Deed, Place, SimulationError, Wait
from cutepy.sim.machine.awaited import Awaited, arrives, operation
from cutepy.sim.machine.deeds import of_cta
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
    """What is waited for, where the first does who waits for it, all who do, and who else would bring it.

    Attributes
    ----------
    bringers : dict of Group to list of Instruction
        The instructions by which they would.
    is_known : bool
        Whether they have brought it before, or a fellow of it.
    """

    awaited: Awaited
    instruction: Instruction | None
    waiters: list[Group] = field(default_factory=list)
    bringers: dict[Group, list[Instruction]] = field(default_factory=dict)
    is_known: bool = False

    @property
    def name(self) -> str:
        return self.awaited.at.name


def mistake(roster: Roster, at: Mapping[Group, Instruction], said: Sequence[str]) -> SimulationError | None:
    """Return the wait that all others come of, with these; `at` and `said` are as of `deadlock`."""
    things: dict[str, _Thing] = {}
    of: dict[Group, _Thing] = {}
    for g in roster.groups:
        i = at.get(g) or instruction(roster, g)
        awaited, i = (g.waits_for(), i) if g.waits_for is not None else _looked_at(roster, g)
        of[g] = things.setdefault(awaited.at.name, _Thing(awaited, i))
        for each in (awaited, *awaited.beside):
            things.setdefault(each.at.name, _Thing(each, i)).waiters.append(g)
    if not things:
        return None
    ways = _Ways(roster.flow)
    for thing in things.values():
        _find_bringers(roster, thing, ways)
    order = _ordered(things, of)
    waits = tuple(_wait(thing, of, at, roster) for thing in order)
    root = order[0]
    chances = (*root.awaited.chances, *_firsts(order, of, ways), *_gone(roster, root, ways), *_own(root, ways))
    return _told(roster, root, of, said, waits, chances)


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


def _find_bringers(roster: Roster, thing: _Thing, ways: _Ways) -> None:
    """Find who does not wait for a thing, and would bring it: by what has brought it before, if by that at all."""
    awaited, first = thing.awaited, thing.waiters[0]
    others = [h for h in roster.groups if not _is_one_of(h, thing.waiters) and _is_beside(roster, first, h)]
    near = [h for h in others if not awaited.is_of_a_cta or int(first.ctas.slots[0]) in h.ctas.slots]
    come = {h: [i for i in ways.instructions(h.block) if awaited.brings(i)] for h in near}
    known = {h: [i for i in come[h] if operation(i) in awaited.brought] or come[h] * _did(h, awaited) for h in near}
    possible = {h: [i for i in come[h] if operation(i) not in awaited.elsewhere] for h in near}
    thing.is_known = any(known.values())
    thing.bringers = {h: found for h, found in (known if thing.is_known else possible).items() if found}


def _ordered(things: Mapping[str, _Thing], of: Mapping[Group, _Thing]) -> list[_Thing]:
    """Return what is waited for, each before what waits for it: first what waits for nothing else, or for itself."""
    ahead = {name: {of[h].name for h in thing.bringers} for name, thing in things.items()}
    reached = {name: _closure(name, ahead) for name in things}
    knots = [t for name, t in things.items() if all(name in reached[other] for other in reached[name])]
    root = min(knots, key=_distance)
    order = [root.name]
    for name in order:  # it grows: what the bringers wait for, then who waits for those
        order += [other for other in sorted(ahead[name], key=lambda n: _distance(things[n])) if other not in order]
    rest = sorted((t for name, t in things.items() if name not in order), key=_distance)
    return [*(things[name] for name in order), *rest]


def _closure(name: str, ahead: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    left = [*ahead[name]]
    while left:
        other = left.pop()
        if other not in found:
            found.add(other)
            left += ahead[other]
    return found


def _distance(thing: _Thing) -> int:
    """Return how far a thing is from the cause: by whom it could still come."""
    return 0 if not thing.bringers else 1 if thing.awaited.is_begun else 3 if thing.is_known else 2


def _wait(thing: _Thing, of: Mapping[Group, _Thing], at: Mapping[Group, Instruction], roster: Roster) -> Wait:
    waiting = [(at.get(g) or instruction(roster, g) or thing.instruction, g.describe()) for g in thing.waiters]
    bringers = [Bringer(Deed(found[0], h.describe()), of[h].name) for h, found in thing.bringers.items()]
    lacks = thing.awaited.lacks
    return Wait(thing.awaited.at, lacks, tuple(Deed(i, who) for i, who in waiting if i is not None), tuple(bringers))


def _told(
    roster: Roster,
    thing: _Thing,
    of: Mapping[Group, _Thing],
    said: Sequence[str],
    waits: Sequence[Wait],
    chances: Sequence[Chance],
) -> SimulationError:
    """Return a wait as a mistake."""
    awaited, first, last = thing.awaited, thing.waiters[0], thing.awaited.last
    others = [h for h in roster.groups if not _is_one_of(h, thing.waiters) and _is_beside(roster, first, h)]
    before = None if last is None or last.instruction is thing.instruction else last.deed
    if thing.bringers:
        verb = "arrives" if thing.is_known else "may come"
        who = (
            f", and who {verb} there waits for {' and '.join(dict.fromkeys(of[h].name for h in thing.bringers))} first"
        )
        if not thing.is_known:
            blocked = next(iter(thing.bringers))
            i = of[blocked].instruction
            before = before if i is None else Deed(i, blocked.describe())
    else:
        who = f", and {awaited.nobody}" if awaited.nobody else ""
    return SimulationError(
        "; ".join([f"{awaited.lacks}{who}", *_who(roster, thing, others, of, is_short=len(waits) > 1), *said]),
        thing.instruction,
        first.describe(),
        fix=next((_FIXES[one.kind] for one in chances if one.kind in _FIXES), awaited.fix),
        kind=awaited.kind,
        at=awaited.at,
        before=before,
        waits=waits,
        chances=chances,
    )


_FIXES = {
    "first-parity": "whoever fills an empty stage must first wait for parity 1, which passes at once, as the phase "
    "before the first counts as complete",
    "expect-tx": "let that thread arrive as well, as mbarrier.arrive.expect_tx does",
    "counted-besides": "use cp.async.mbarrier.arrive.noinc, which is one of the arrivals that mbarrier.init says",
    "multicast-mask": "give the copy a mask with a bit for each CTA that waits for it",
    "absent-peer": "let all CTAs of the cluster go through as many rounds, or let each announce what does come",
    "shared-barrier": "give each group of threads a named barrier of its own",
    "other-stage": "advance the state of the ring with each stage that is taken, on both sides",
}
"""What to do where a near miss tells it."""


def _firsts(order: Sequence[_Thing], of: Mapping[Group, _Thing], ways: _Ways) -> Iterator[Chance]:
    """Yield first waits, for parity 0, of threads that others wait for to fill what they wait to be empty."""
    ahead = {thing.name: {of[h].name for h in thing.bringers} for thing in order}
    fresh = [t for t in order if t.awaited.is_first and t.name in _closure(t.name, ahead)]
    filling = [t for t in fresh if any(map(_fills, ways.instructions(t.waiters[0].block)))]
    for thing in filling if len(filling) == 1 else fresh[: len(fresh) == 1]:
        i, g = thing.instruction, thing.waiters[0]
        why = (
            f"at the new {thing.name} a wait for parity 0 is one for its first phase, and who arrives in that waits "
            "for this thread first"
        )
        yield Chance("first-parity", why, None if i is None else Deed(i, g.describe()))


def _fills(i: Instruction) -> bool:
    """Tell whether an instruction writes shared memory, by itself or as a copy."""
    is_store = i.parts[0] in ("st", "stmatrix", "red", "atom") and any(part.startswith("shared") for part in i.parts)
    copy = [part for part in i.parts if part.startswith(("shared", "global"))] if i.parts[:2] == ("cp", "async") else []
    return is_store or (bool(copy) and copy[0].startswith("shared"))


def _gone(roster: Roster, thing: _Thing, ways: _Ways) -> Iterator[Chance]:
    """Yield the CTAs of a cluster that have brought a part of earlier phases, and come there no more."""
    for source in thing.awaited.absent:
        i = source.done.instruction
        theirs = [g for g in roster.groups if source.slot in g.ctas.slots]
        if not any(operation(other) == operation(i) for g in theirs for other in ways.instructions(g.block)):
            cta = roster.residents.coordinate(source.slot)
            times = f"{source.phases} phase{'s' * (source.phases > 1)}"
            why = f"CTA {cta} has brought its part of {times}, and comes there no more"
            yield Chance("absent-peer", why, of_cta(source.done, source.slot))


def _own(thing: _Thing, ways: _Ways) -> Iterator[Chance]:
    """Yield the arrival that those who wait would make after their wait, if nobody else has begun or will."""
    if thing.bringers or thing.awaited.is_begun or thing.awaited.absent:
        return
    for g in thing.waiters:
        own = [i for i in ways.instructions(g.block) if thing.awaited.brings(i) and i is not thing.instruction]
        found = [i for i in own if operation(i) not in thing.awaited.elsewhere and i.parts[0] not in ("bar", "barrier")]
        if found:
            why = f"{g.describe()} would arrive there, after this wait"
            yield Chance("own-arrival", why, Deed(found[0], g.describe()))
            return


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


def _who(
    roster: Roster, thing: _Thing, others: Sequence[Group], of: Mapping[Group, _Thing], is_short: bool
) -> Iterator[str]:
    """Say who waits, and what others of the first cluster do; short: which of them have ended."""
    ended = [*_ended(roster, thing.waiters[0])]
    if is_short:
        yield from [" and ".join(ended)] if ended else []
        return
    waiters = [str(g.describe()) for g in thing.waiters]
    more = f" and {len(waiters) - _TOLD} more" if len(waiters) > _TOLD else ""
    is_cluster = roster.residents.cluster_size > 1
    elsewhere = [f"{h.describe() if is_cluster else h.threads.describe()} for {of[h].awaited.at.name}" for h in others]
    if len(elsewhere) > _TOLD:
        elsewhere = [*elsewhere[:_TOLD], "others elsewhere"]
    is_one = len(waiters) == 1 and thing.waiters[0].threads.count == thing.waiters[0].ctas.count == 1
    waits = " waits" if is_one else " wait"
    *said, last = [" and ".join(waiters[:_TOLD]) + more + waits, *elsewhere, *ended]
    yield f"{', '.join(said)}, and {last}" if said else last


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
