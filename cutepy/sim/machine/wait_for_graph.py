"""The wait-for graph of a deadlock: the wait that the others follow from, the lanes that could end it, near misses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.advice import Diagnosis
from cutepy.sim.errors import Execution, NamedLanes, Place, Signaller, SimulationError, Wait, WaitNearMiss
from cutepy.sim.machine.group import value_of
from cutepy.sim.machine.lanes import Array, Ctas, Threads
from cutepy.sim.machine.memory import OFFSET_MASK, RANK_SHIFT, own_field, ranks_in
from cutepy.sim.machine.reachable_code import ReachableCode, ReachableInstruction
from cutepy.sim.machine.thread_history import first as who_of, of_cta
from cutepy.sim.machine.wait_sources import AwaitedObject, Source, arrives, copies, operation
from cutepy.sim.ptx.instruction_set import OWN_SPACES
from cutepy.sim.ptx.model import Address, Immediate, Register
from cutepy.sim.ptx.source_lines import place
from cutepy.sim.semantics.movement import LOCAL_WINDOW, SHARED_WINDOW
from cutepy.sim.translate.control_flow import EXIT

if TYPE_CHECKING:
    from cutepy.sim.machine.group import Group, Roster
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.translate.control_flow import Block, ControlFlow


_TOLD = 4


@dataclass(eq=False)
class Part:
    """Lanes of a group that wait for one thing: some CTAs times some threads of it."""

    g: Group
    ctas: Ctas
    threads: Threads
    lanes: Array

    def describe(self) -> NamedLanes:
        """Name the lanes."""
        return who_of(self.ctas, self.threads)


@dataclass
class _WaitedObject:
    """Object of a wait: the first wait, all waiting lanes, and the lanes that may signal it.

    Attributes
    ----------
    bringers : dict of Part to list of ReachableInstruction
        The instructions by which they may.
    sure : set of Part
        Those of them that surely do, once their own waits have ended.
    is_known : bool
        True if they have brought it before, or a fellow of it, or address it.
    is_hopeless : bool
        True if no other lanes can come to an instruction that may bring it.
    is_forgotten : bool
        True if no instruction of the program brings it: each has brought other things only.
    """

    awaited: AwaitedObject
    instruction: Instruction | None
    waiters: list[Part] = field(default_factory=list)
    bringers: dict[Part, list[ReachableInstruction]] = field(default_factory=dict)
    sure: set[Part] = field(default_factory=set)
    is_known: bool = False
    is_hopeless: bool = False
    is_forgotten: bool = False

    @property
    def name(self) -> str:
        return self.awaited.at.name


def mistake(roster: Roster, at: Mapping[Group, Instruction], said: Sequence[str]) -> SimulationError | None:
    """Return the wait that all others come of, with these; `at` and `said` are as of `deadlock`."""
    things: dict[str, _WaitedObject] = {}
    of: dict[Part, _WaitedObject] = {}
    for g in roster.groups:
        i = at.get(g) or instruction(roster, g)
        awaited, i = (g.waits_for(), i) if g.waits_for is not None else _looked_at(roster, g)
        for each in (awaited, *awaited.beside):
            thing = things.setdefault(each.at.name, _WaitedObject(each, i))
            for part in parts(roster, g, each.lanes):
                of[part] = thing
                thing.waiters.append(part)
    if not things:
        return None
    ways = _RemainingCode(roster.flow, at)
    for thing in things.values():
        _find_bringers(roster, thing, of, ways)
    order = _ordered(things, of)
    waits = tuple(_wait(thing, of, at, roster) for thing in order)
    root = order[0]
    chances = (*root.awaited.chances, *_firsts(order, of, ways), *_gone(roster, root, ways), *_own(root, ways))
    chances = (*chances, *_misdirected(root, of, ways), *_of_the_circle(order, of))
    return _told(roster, root, of, said, waits, chances)


def parts(roster: Roster, g: Group, lanes: Array | None) -> Iterator[Part]:
    """Yield lanes of a group as rectangles of CTAs and threads."""
    shape = g.ctas.count, g.threads.count
    here = np.broadcast_to(np.ones((1, 1), bool) if lanes is None else lanes, shape)
    patterns, of = np.unique(here, axis=0, return_inverse=True)
    for n, threads in enumerate(patterns):
        if threads.any():
            rows = of.reshape(-1) == n
            ctas, those = roster.ctas(g.ctas.slots[rows]), roster.threads(g.threads.ids[threads])
            yield Part(g, ctas, those, rows[:, None] & threads[None, :])


class _RemainingCode:
    """Instructions that lanes may still execute."""

    def __init__(self, flow: ControlFlow, at: Mapping[Group, Instruction]) -> None:
        self._flow, self._at = flow, at
        self._of: dict[Group, ReachableCode] = {}

    def of(self, g: Group) -> ReachableCode:
        if g not in self._of:
            self._of[g] = ReachableCode(self._flow, g, is_at_block=g not in self._at)
        return self._of[g]

    def those(self, part: Part, brings: Callable[[Instruction], bool]) -> list[ReachableInstruction]:
        """Return the instructions of some kind that lanes of a part may execute."""
        return [one for one in self.of(part.g).those(brings) if (one.may & part.lanes).any()]


def _find_bringers(
    roster: Roster, thing: _WaitedObject, of: Mapping[Part, _WaitedObject], ways: _RemainingCode
) -> None:
    """Find the lanes that may bring a thing: lanes that address it, or have brought it before."""
    awaited, first = thing.awaited, thing.waiters[0]
    slots = np.unique(np.concatenate([part.ctas.slots for part in thing.waiters]))
    come: dict[Part, list[tuple[ReachableInstruction, bool, bool]]] = {}
    is_complete = True
    for h in of:
        is_waiter = _is_one_of(h, thing.waiters)
        if not _is_near(roster, first, h, awaited) or (is_waiter and awaited.offset is None):
            continue
        is_complete &= ways.of(h.g).is_complete
        found = [(one, *_reaches(roster, one, h, awaited, slots, is_waiter)) for one in ways.those(h, awaited.brings)]
        come[h] = [each for each in found if each[1]]
    known = {
        h: [one for one, _, is_exact in found if is_exact or operation(one.instruction) in awaited.brought]
        or [one for one, *_ in found if _did(h, awaited)]
        for h, found in come.items()
    }
    elsewhere = awaited.elsewhere
    possible = {
        h: [one for one, *_ in found if operation(one.instruction) not in elsewhere] for h, found in come.items()
    }
    thing.is_hopeless = is_complete and not any(come.values())
    thing.is_known = any(known.values())
    bringing = (i.index for block in roster.flow.blocks for i in block.instructions if awaited.brings(i))
    has_ring = bool(awaited.ring and awaited.nobody)  # else a line may come to its other stages first
    thing.is_forgotten = has_ring and not awaited.brought and awaited.others.keys() >= {*bringing}
    thing.bringers = {h: found for h, found in (known if thing.is_known else possible).items() if found}
    for h, ones in thing.bringers.items():
        exact = {id(one) for one, _, is_exact in come[h] if is_exact}
        if any(
            (one.will & h.lanes).any() and (id(one) in exact or _is_constant(one.instruction)) for one in ones
        ) or any(operation(one.instruction) in awaited.brought for one in ones):
            thing.sure.add(h)


def _reaches(
    roster: Roster, one: ReachableInstruction, h: Part, awaited: AwaitedObject, slots: Array, is_waiter: bool
) -> tuple[bool, bool]:
    """Return whether lanes of a part may address a thing of some CTAs by an instruction, and whether they do.

    Lanes that wait for it themselves must address that of another CTA.
    """
    if awaited.offset is None:
        return True, False
    if one.address is None:
        is_remote = roster.residents.cluster_size > 1
        return not is_waiter or is_remote, False
    lanes = one.may & h.lanes
    own = h.g.ctas.slots[:, None]
    size = roster.residents.cluster_size
    offset, rank = (one.address & np.uint64(part) for part in (OFFSET_MASK, SHARED_WINDOW - 1))
    rank = ranks_in(h.g.ctas, (rank >> np.uint64(RANK_SHIFT)).astype(np.int64))
    lanes = lanes & (offset == np.uint64(awaited.offset))
    if "multicast::cluster" in one.instruction.parts:
        return _multicasts(one, lanes, own, slots, size, is_waiter)
    to = own // size * size + rank
    hit = lanes & np.isin(to, slots)
    if is_waiter:
        hit &= to != own
    return bool(hit.any()), bool(hit.any())


def _multicasts(
    one: ReachableInstruction, lanes: Array, own: Array, slots: Array, size: int, is_waiter: bool
) -> tuple[bool, bool]:
    """Return whether lanes may copy to CTAs of some slots, of their clusters, and whether the mask says so."""
    may = sure = False
    for slot in slots.tolist():
        beside = lanes & (own // size == slot // size) & ((own != slot) | (not is_waiter))
        named = True if one.mask is None else (one.mask >> np.uint64(slot % size)) & np.uint64(1) != 0
        may |= bool((beside & named).any())
        sure |= one.mask is not None and bool((beside & named).any())
    return may, sure


def _is_constant(i: Instruction) -> bool:
    """Return whether an instruction names its object by a constant, as at a named barrier."""
    return all(isinstance(x, Immediate) for x in i.operands)


def _is_near(roster: Roster, g: Part, h: Part, awaited: AwaitedObject) -> bool:
    """Return whether a part has lanes in the CTA, the cluster or the grid whose threads can bring another's object."""
    if awaited.is_of_a_cta:
        return int(g.ctas.slots[0]) in h.ctas.slots
    return awaited.is_of_all or _is_beside(roster, g, h)


def _ordered(things: Mapping[str, _WaitedObject], of: Mapping[Part, _WaitedObject]) -> list[_WaitedObject]:
    """Return the awaited objects, each before those that wait for it: first an object that waits for nothing else."""
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


def _distance(thing: _WaitedObject) -> int:
    """Return how far a thing is from the cause: by whom it could still come."""
    return 0 if not thing.bringers else 1 if thing.awaited.is_begun else 3 if thing.is_known else 2


def _wait(
    thing: _WaitedObject, of: Mapping[Part, _WaitedObject], at: Mapping[Group, Instruction], roster: Roster
) -> Wait:
    waiting = [(at.get(h.g) or instruction(roster, h.g) or thing.instruction, h.describe()) for h in thing.waiters]
    bringers = [
        Signaller(Execution(found[0].instruction, _those(roster, h, found[0])), of[h].name, h in thing.sure)
        for h, found in thing.bringers.items()
    ]
    executions = tuple(Execution(i, who) for i, who in waiting if i is not None)
    return Wait(thing.awaited.at, thing.awaited.lacks, executions, tuple(bringers))


def _those(roster: Roster, h: Part, one: ReachableInstruction) -> NamedLanes:
    """Name the lanes of a part that may execute an instruction."""
    lanes = one.may & h.lanes
    ctas, threads = h.g.ctas.slots[lanes.any(axis=1)], h.g.threads.ids[lanes.any(axis=0)]
    return who_of(roster.ctas(ctas), roster.threads(threads))


def _told(
    roster: Roster,
    thing: _WaitedObject,
    of: Mapping[Part, _WaitedObject],
    said: Sequence[str],
    waits: Sequence[Wait],
    chances: Sequence[WaitNearMiss],
) -> SimulationError:
    """Return a wait as a mistake."""
    awaited, first, last = thing.awaited, thing.waiters[0], thing.awaited.last
    others = [h for h in of if not _is_one_of(h, thing.waiters) and _is_beside(roster, first, h)]
    before = None if last is None or last.instruction is thing.instruction else last.execution
    if thing.bringers:
        verb = ("copy" if awaited.brings is copies else "arrive") if thing.is_known else "may arrive"
        ahead = dict.fromkeys(
            of[h].name if of[h] is not thing else f"{thing.name} of another CTA" for h in thing.bringers
        )
        who = f", and the threads that {verb} there wait for {' and '.join(ahead)}"
        if not thing.is_known:
            blocked = next(iter(thing.bringers))
            i = of[blocked].instruction
            before = before if i is None else Execution(i, blocked.describe())
    elif thing.is_forgotten:
        verb = "copies to" if awaited.brings is copies else "arrives at"
        who = f", and no line of the program {verb} {awaited.ring}"
    else:
        who = f", and {awaited.nobody}" if awaited.nobody and thing.is_hopeless else ""
    fix = Diagnosis("forgotten-arrival") if thing.is_forgotten and awaited.brings is arrives else awaited.fix
    waiters = _who(roster, thing, others, of, is_short=len(waits) > 1)
    return SimulationError(
        "; ".join(filter(None, [f"{awaited.lacks}{who}", awaited.fellows, *waiters, *said])),
        thing.instruction,
        first.describe(),
        fix=next((_FIXES[one.kind] for one in chances if one.kind in _FIXES), fix),
        kind=awaited.kind,
        at=awaited.at,
        before=before,
        waits=waits,
        chances=chances,
    )


_FIXES = {
    "first-parity": Diagnosis("begin-with-parity-1"),
    "second-parity": Diagnosis("begin-with-parity-0"),
    "expect-tx": Diagnosis("arrive-with-expect-tx"),
    "counted-besides": Diagnosis("arrive-noinc"),
    "other-cta": Diagnosis("arrive-at-each-cta"),
    "multicast-mask": Diagnosis("mask-of-waiting-ctas"),
    "absent-peer": Diagnosis("rounds-of-all-ctas"),
    "shared-barrier": Diagnosis("barrier-of-each-group"),
    "other-barrier": Diagnosis("one-mbarrier-for-bytes"),
    "other-stage": Diagnosis("advance-each-stage"),
}
"""Repairs, by the kind of near miss that tells them."""


def _firsts(
    order: Sequence[_WaitedObject], of: Mapping[Part, _WaitedObject], ways: _RemainingCode
) -> Iterator[WaitNearMiss]:
    """Yield the first wait, for parity 0, of a producer whose consumers wait for the stages to be filled first."""
    found = [(thing, g) for thing in order if thing.awaited.is_first for g in thing.waiters[:1]]
    found = [(thing, g) for thing, g in found if _is_producer(thing, g, of, ways)]
    if len(found) > 1:  # who empties stages may store what comes of them
        found = [(thing, g) for thing, g in found if ways.those(g, copies)]
    if len(found) == 1:
        thing, g = found[0]
        i = thing.instruction
        why = (
            f"at the new {thing.name} a wait for parity 0 is one for its first phase, and who arrives in that waits "
            "for what this thread fills first"
        )
        yield WaitNearMiss("first-parity", why, None if i is None else Execution(i, g.describe()))


def _is_producer(thing: _WaitedObject, g: Part, of: Mapping[Part, _WaitedObject], ways: _RemainingCode) -> bool:
    """Return whether lanes fill stages, and all possible arrivals at their wait first wait for the first stages."""
    ahead = [of[h] for h in thing.bringers]
    is_ring = all(t is not thing and t.awaited.is_first and any(h.g is g.g for h in t.bringers) for t in ahead)
    return bool(ahead) and is_ring and bool(ways.those(g, _fills))


def _fills(i: Instruction) -> bool:
    """Return whether an instruction writes shared memory, by itself or as a copy."""
    return "shared" in i.traits.stores


def _gone(roster: Roster, thing: _WaitedObject, ways: _RemainingCode) -> Iterator[WaitNearMiss]:
    """Yield the lanes that brought a part of earlier phases, and have ended or come there no more."""
    for source in thing.awaited.absent:
        i = source.done.instruction
        theirs = [g for g in roster.groups if source.slot in g.ctas.slots]
        is_behind = not any(own.phases <= source.phases for own in thing.awaited.ceased)
        if is_behind and not any(
            operation(one.instruction) == operation(i) for g in theirs for one in ways.of(g).those(_any)
        ):
            cta = roster.residents.coordinate(source.slot)
            why = f"CTA {cta} has brought its part of {_phases(source)}, and arrives there no more"
            yield WaitNearMiss("absent-peer", why, of_cta(source.done, source.slot))
    for source in thing.awaited.ceased:
        threads = source.done.threads
        if not thing.bringers and roster.ended[source.slot, threads.ids].all():
            cta, has = roster.residents.coordinate(source.slot), "have" if threads.count > 1 else "has"
            why = f"{threads.describe()} of CTA {cta} arrived there in {_phases(source)}, and {has} ended"
            yield WaitNearMiss("ended-arriver", why, of_cta(source.done, source.slot))


def _phases(source: Source) -> str:
    return f"{source.phases} phase{'s' * (source.phases > 1)}"


def _any(i: Instruction) -> bool:
    return True


def _own(thing: _WaitedObject, ways: _RemainingCode) -> Iterator[WaitNearMiss]:
    """Yield the arrival that the waiting threads would make after their wait, if nobody else has begun or will."""
    awaited = thing.awaited
    is_of_bytes = awaited.brings is copies
    if thing.bringers or (awaited.is_begun and not is_of_bytes) or awaited.absent or awaited.offset is None:
        return
    for g in thing.waiters:
        for one in ways.those(g, awaited.brings):
            if one.address is None or one.instruction is thing.instruction:
                continue
            lanes = one.will & g.lanes
            own = np.uint64(awaited.offset) | own_field(g.ctas).astype(np.uint64)
            if (lanes & (one.address & np.uint64(SHARED_WINDOW - 1) == own)).any():
                verb = "copy" if is_of_bytes else "arrive"
                why = f"{g.describe()} would {verb} there, after this wait"
                yield WaitNearMiss("own-arrival", why, Execution(one.instruction, g.describe()))
                return


def _of_the_circle(order: Sequence[_WaitedObject], of: Mapping[Part, _WaitedObject]) -> Iterator[WaitNearMiss]:
    """Yield the near misses of other things, if these and the first one wait for each other in a circle."""
    ahead = {thing.name: {of[h].name for h in thing.bringers} for thing in order}
    root, reached = order[0].name, {name: _closure(name, ahead) for name in ahead}
    for thing in order[1:]:
        if thing.name in reached[root] and root in reached[thing.name]:
            yield from thing.awaited.chances


def _misdirected(
    thing: _WaitedObject, of: Mapping[Part, _WaitedObject], ways: _RemainingCode
) -> Iterator[WaitNearMiss]:
    """Yield an arrival at another mbarrier for which nothing waits, by threads that do not wait for this one."""
    awaited = thing.awaited
    if thing.bringers or not awaited.misdirected or not all(ways.of(h.g).is_complete for h in of):
        return
    waits = [one for h in of for one in ways.those(h, _waits)]
    places = [one.address for one in waits]
    if any(place is None for place in places):
        return
    later = {int(at) for place in places if place is not None for at in np.unique(place & np.uint64(OFFSET_MASK))}
    for arrival in awaited.misdirected:
        threads = arrival.done.threads.ids
        if arrival.offset not in later and not any(np.isin(threads, h.threads.ids).any() for h in thing.waiters):
            why = f"it is at {arrival.name}, for which nothing waits, and {thing.name} has got no arrival"
            yield WaitNearMiss("other-arrival", why, arrival.done.execution)
            return


def _waits(i: Instruction) -> bool:
    return i.traits.tries


def _is_one_of(g: Part, groups: Sequence[Part]) -> bool:
    return any(g is h for h in groups)


def _did(g: Part, awaited: AwaitedObject) -> bool:
    """Return whether lanes of a group were the last to bring a part of the awaited phase."""
    last = awaited.last
    if last is None or not awaited.brings(last.instruction):
        return False
    is_here = np.isin(last.ctas.slots, g.ctas.slots).any() and np.isin(last.threads.ids, g.threads.ids).any()
    return bool(is_here)


def _is_beside(roster: Roster, g: Part, h: Part) -> bool:
    """Return whether a part has lanes in the first cluster that another one is in."""
    size = roster.residents.cluster_size
    return bool((h.ctas.slots // size == int(g.ctas.slots[0]) // size).any())


def _who(
    roster: Roster, thing: _WaitedObject, others: Sequence[Part], of: Mapping[Part, _WaitedObject], is_short: bool
) -> Iterator[str]:
    """Name the waiting lanes, and the state of the others of the first cluster; short: only those that have ended."""
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


def _ended(roster: Roster, g: Part) -> Iterator[str]:
    """Name the threads of a group's first cluster that have ended."""
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


def _looked_at(roster: Roster, g: Group) -> tuple[AwaitedObject, Instruction | None]:
    """Return the value that a spinning group polls, and the instruction that reads it."""
    instructions = [i for block in loop(roster.flow, g.block) for i in roster.flow.blocks[block].instructions]
    said, nobody = "a condition in a loop", "no other thread that still runs writes to memory"
    for i in instructions:
        address = _address(g, i)
        if i.traits.tries and address is not None:
            at = Place.of_mbarrier(address & OFFSET_MASK)
            lacks = "a loop tests it again and again, and its phase is not over"
            return AwaitedObject(said, at, lacks, Diagnosis("arrivals-and-bytes"), brings=arrives), i
        if i.traits.reads_memory and not OWN_SPACES & set(i.parts):
            at = Place("memory") if address is None else _place(g, address, i)
            lacks = "a loop reads it again and again"
            fix = Diagnosis("write-for-loop")
            return AwaitedObject(said, at, lacks, fix, brings=_writes, nobody=nobody, is_of_all=True), i
    first = instruction(roster, g)
    where = f" {place(first)}" if first is not None else ""
    lacks = "it goes around again and again, and nothing that it looks at changes"
    return AwaitedObject(said, Place(f"the loop{where}"), lacks, Diagnosis("endless-loop")), first


def _writes(i: Instruction) -> bool:
    return not {"barrier", "tensor"}.issuperset(i.traits.stores)


def _place(g: Group, address: int, i: Instruction) -> Place:
    if not (SHARED_WINDOW <= address < LOCAL_WINDOW or any(part.startswith("shared") for part in i.parts)):
        return Place.of_global(address)
    offset, field = address & OFFSET_MASK, (address & (SHARED_WINDOW - 1)) >> RANK_SHIFT
    if field != int(own_field(g.ctas)[0, 0]) >> RANK_SHIFT:
        rank = int(ranks_in(g.ctas, np.array([[field]]))[0, 0])
        return Place(f"shared memory of the cluster's CTA {rank} at {offset:#x}")
    return Place(f"shared memory at {offset:#x}", offset)


def _address(g: Group, i: Instruction) -> int | None:
    """Return the address of the first lane of a group, if it is in a register."""
    operand = next((x for x in i.operands if isinstance(x, Address)), None)
    if operand is None or not isinstance(operand.base, Register):
        return None
    value = value_of(g, operand.base.index)
    return None if value is None else int(value.flat[0]) + operand.offset
