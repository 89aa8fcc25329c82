"""The CTA's sixteen named barriers: bar.sync, bar.arrive and bar.red.

What they count are warps: one has arrived once all of its lanes that have not ended are there (`partial_arrivals.py`).

References
----------
PTX ISA, "Parallel Synchronization and Communication Instructions: bar, barrier".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.advice import Diagnosis
from cutepy.sim.errors import BarrierError, Place, WaitNearMiss
from cutepy.sim.machine.activity import PickedLanes
from cutepy.sim.machine.alignment import check_uniform
from cutepy.sim.machine.events import (
    NamedBarrier,
    NamedBarrierArrive,
    NamedBarrierEvent,
    NamedBarrierJoin,
    NamedBarrierPartialArrive,
    NamedBarrierSync,
)
from cutepy.sim.machine.lanes import WARP, Array, Ctas, Threads, listed, values_in
from cutepy.sim.machine.schedule import Mechanism
from cutepy.sim.machine.thread_history import ExecutedInstruction
from cutepy.sim.machine.wait_sources import AwaitedObject
from cutepy.sim.mechanisms.partial_arrivals import PartialArrivals
from cutepy.sim.ptx.model import Immediate

if TYPE_CHECKING:
    from cutepy.sim.machine.activity import Activity
    from cutepy.sim.machine.group import Group
    from cutepy.sim.machine.lanes import Residents
    from cutepy.sim.ptx.model import Instruction

BARRIERS = 16


class Barriers(Mechanism):
    """Arrivals and generation of each barrier of each resident CTA."""

    def __init__(self, activity: Activity) -> None:
        self._activity = activity

    def start(self, residents: Residents, threads: int) -> None:
        """Make the barriers of CTAs that become resident."""
        slots, sizes = residents.count, np.bincount(np.arange(threads) // WARP)
        self._arrived = np.zeros((slots, BARRIERS), np.int64)  # threads, 32 of each warp, as the counts have it
        self._lanes = np.zeros((slots, BARRIERS), np.int64)
        self._expected = np.zeros((slots, BARRIERS), np.int64)
        self._generation = np.zeros((slots, BARRIERS), np.int64)
        self._true = np.zeros((slots, BARRIERS), np.int64)
        self._here = np.zeros((slots, BARRIERS, len(sizes)), bool)  # the warps that have arrived
        self._live = np.tile(sizes, (slots, 1))  # lanes of each warp that have not ended
        self._has_ended = self._reduces = False
        # Of the phase that completed last for each warp: how many predicates held, and whether all did.
        self._counted = np.zeros((slots, BARRIERS, len(sizes)), np.int64)
        self._unanimous = np.zeros((slots, BARRIERS, len(sizes)), bool)
        self._last: dict[int, ExecutedInstruction] = {}  # by barrier, who came last
        self._users: dict[int, dict[tuple[int, int], tuple[ExecutedInstruction, set[int]]]] = {}
        """By barrier, and by instruction and threads that it expects there: the warps that came."""
        self._partial = PartialArrivals(slots, BARRIERS, len(sizes))

    def generations(self, slot: int) -> Array:
        """Return the generation of each barrier of a CTA."""
        found: Array = self._generation[slot]
        return found

    def is_idle(self) -> bool:
        """Return whether no thread has arrived at any barrier, or ended."""
        return not (self._arrived.any() or self._partial or self._has_ended)

    def leaves_others(self, g: Group) -> bool:
        """Return whether a group lacks lanes of its warps that have not ended."""
        return bool((self._live[g.ctas.slots[:, None], g.threads.warps] != g.threads.extents[:, 1]).any())

    def arrive(self, g: Group, i: Instruction, identity: Array, count: Array | None) -> bool:
        """Arrive without waiting for other warps; tells whether all of one's own have come, called again until then."""
        self._check(g, i, identity)
        if g.token is None:
            g.token = self._come(g, i, identity, count)
        g.token = self._partial.generations(g.token, g.ctas.slots[:, None], identity, g.threads)
        return self._goes_on(g, identity, g.token >= 0)

    def sync(
        self, g: Group, i: Instruction, identity: Array, count: Array | None, predicate: Array | None = None
    ) -> bool:
        """Arrive, and tell whether all that are expected have; called again until they have."""
        slots = g.ctas.slots[:, None]
        self._check(g, i, identity)
        may_pass = True
        if g.token is None:
            g.token = self._come(g, i, identity, count, predicate)
            policy = self._activity.policy
            may_pass = policy is None or not policy.parts_arrivals
        token = g.token = self._partial.generations(g.token, slots, identity, g.threads)
        done = (token >= 0) & (self._generation[slots, identity] != token)
        if may_pass and done.all():
            self._tell_exits(g, i, identity, token)
        return self._goes_on(g, identity, done, may_pass)

    def _goes_on(self, g: Group, identity: Array, done: Array, may_pass: bool = True) -> bool:
        if may_pass and done.all():
            g.token, g.ready, g.waits_for = None, None, None
            return True
        g.ready = done
        g.waits_for = lambda: self._awaited(g, identity)
        return False

    def reduce(
        self, g: Group, i: Instruction, identity: Array, count: Array | None, operation: str, predicate: Array
    ) -> Array | None:
        """Synchronise, and combine the predicates of all threads (popc, and, or); None until all have arrived."""
        self._reduces = True
        if not self.sync(g, i, identity, count, predicate):
            return None
        at = g.ctas.slots[:, None], identity, g.threads.ids // WARP
        if operation == "popc":
            return self._counted[at].astype(np.uint32)
        result: Array = self._unanimous[at] if operation == "and" else self._counted[at] > 0
        return result

    def _tell(
        self,
        kind: type[NamedBarrierEvent],
        g: Group | ExecutedInstruction,
        i: Instruction,
        number: int,
        generation: Array,
        lanes: Array,
    ) -> None:
        """Tell observers of an operation at a barrier, and the generation that its lanes take part in."""
        if self._activity.observers:
            picked = PickedLanes.of_group(g, lanes)
            here = NamedBarrier(number)
            self._activity.tell(kind(i, picked.ctas, picked.threads, picked.values(generation), here))

    def _tell_each(
        self,
        kind: type[NamedBarrierEvent],
        g: Group | ExecutedInstruction,
        i: Instruction,
        identity: Array,
        generation: Array,
    ) -> None:
        """Tell observers the same of each barrier that lanes are at."""
        for number in values_in(identity) if self._activity.observers else ():
            self._tell(kind, g, i, number, generation, identity == number)

    def _tell_exits(self, g: Group, i: Instruction, identity: Array, generation: Array) -> None:
        """Send observers an event for the lanes of each CTA and generation that go on."""
        if (generation == generation[:, :1]).all():
            self._tell_each(NamedBarrierSync, g, i, identity, generation[:, :1])
            return
        shape = g.ctas.count, g.threads.count
        identity, generation = np.broadcast_to(identity, shape), np.broadcast_to(generation, shape)
        for row, slot in enumerate(g.ctas.slots):
            for value in np.unique(generation[row]).tolist():
                lanes = generation[row] == value
                ctas = Ctas(np.array([slot]), g.ctas.residents)
                part = ExecutedInstruction(i, ctas, Threads(g.threads.ids[lanes], g.threads.block))
                self._tell_each(NamedBarrierSync, part, i, identity[row : row + 1, lanes], np.array([[value]]))

    def _check(self, g: Group, i: Instruction, identity: Array) -> None:
        if int(identity.max()) >= BARRIERS:
            number = int(identity.max())
            raise BarrierError(
                f"barrier {number} does not exist: there are {BARRIERS}",
                i,
                g.describe(),
                fix=Diagnosis("no-such-barrier", last=BARRIERS - 1),
                at=Place(f"barrier {number}"),
            )

    def leave(self, g: Group) -> None:
        """Take note of threads that end: their warps, and barriers over all threads of a CTA, no longer expect them."""
        slots, warps = g.ctas.slots, g.threads.warps
        self._has_ended = True
        self._live[slots[:, None], warps] -= g.threads.extents[:, 1]
        for key in self._partial.of(slots, warps) if self._partial else ():
            self._count_if_whole(key)
        for identity in range(BARRIERS):
            whole = self._expected[slots, identity] == -1
            if whole.any():
                self._release(slots[whole], identity)

    def _come(
        self, g: Group, i: Instruction, identity: Array, count: Array | None, predicate: Array | None = None
    ) -> Array:
        """Let lanes come; return the generation that each counts in, or its key in a wait for its warp's others."""
        self._activity.changes += 1
        if i.traits.threads > 1:
            check_uniform(self._activity, g, i, identity, "the number of the barrier")
        slots, shape = g.ctas.slots, (g.ctas.count, g.threads.count)
        token = self._generation[slots[:, None], identity]
        held = np.broadcast_to(False if predicate is None else predicate, shape)
        live = self._live[slots[:, None], g.threads.warps]
        for number in values_in(identity):
            here = np.broadcast_to(identity == number, shape)
            if identity.size == 1:
                lanes = np.broadcast_to(g.threads.extents[:, 1], live.shape)
            else:
                lanes = np.add.reduceat(here, g.threads.extents[:, 0], axis=1, dtype=np.int64)
            active = lanes.any(axis=1)
            rows = slots[active]
            expected = np.full(len(slots), -1) if count is None else self._counts(g, i, number, count, here)
            self._check_agreed(g, i, number, rows, expected[active])
            self._expected[rows, number] = expected[active]
            before = self._last.get(number)
            self._last[number] = g.did(i)
            for wanted in values_in(expected[active]):
                users = self._users.setdefault(number, {})
                by = g.threads.warps[(lanes[active] > 0).any(axis=0)].tolist()
                known = users[i.index, wanted][1] if (i.index, wanted) in users else set()
                users[i.index, wanted] = self._last[number], known | {*by}
            whole, mask = lanes == live, identity == number
            if not (whole | (lanes == 0)).all():
                # Those that have come whole are a rectangle, or none: that is what observers see at once.
                whole &= (whole == whole[:1]).all()
                mask = here & whole[:, np.searchsorted(g.threads.warps, g.threads.ids // WARP)]
            come = np.where(whole, lanes, 0)[active]
            if come.any():
                generation = self._generation[slots[:, None], number]
                if predicate is not None:
                    self._true[slots, number] += (held & mask).sum(axis=1)
                self._count(self._last[number], number, rows, come > 0, g.threads.warps, come, before)
                self._tell(_joins_or_arrives(i), g, i, number, generation, mask)
                self._release(rows, number)
            left = here & ~mask
            if left.any():
                token = np.where(left, self._come_in_part(g, i, number, left, held, before), token)
        return token

    def _come_in_part(
        self, g: Group, i: Instruction, number: int, here: Array, held: Array, before: ExecutedInstruction | None
    ) -> Array:
        """Let lanes come that are not all of their warps; return the key by which each waits."""
        generation = self._generation[g.ctas.slots[:, None], number]
        self._tell(NamedBarrierPartialArrive, g, i, number, generation, here)
        waits, came = self._partial.come(g, i, number, here, held)
        for key in came:
            self._count_if_whole(key, before)
            self._check_not_crossed(g, i, key)
        return waits

    def _check_not_crossed(self, g: Group, i: Instruction, key: tuple[int, int, int]) -> None:
        """Stop where lanes of a warp wait for the rest of it, which waits for them at another barrier.

        Of what is .aligned it is told who does not execute it (`alignment.py`).
        """
        slot, number, warp = key
        other = next((n for _, n, _ in self._partial.of(np.array([slot]), np.array([warp])) if n != number), None)
        if other is None or not self._partial.count_of(key) or i.traits.threads > 1:
            return
        raise BarrierError(
            f"lanes of warp {warp} wait at barrier {number} for the rest of the warp, which waits at barrier {other} "
            "for them: barriers count warps, and each lane waits for all of its own that have not ended",
            i,
            g.describe(),
            fix=Diagnosis("warps-to-one-barrier"),
            kind="partial-warp",
            at=Place(f"barrier {number}"),
            before=self._partial.last((slot, other, warp)).execution,
        )

    def _count_if_whole(self, key: tuple[int, int, int], before: ExecutedInstruction | None = None) -> None:
        """Let a warp count that has come in part, if none of its lanes is missing any more."""
        slot, number, warp = key
        lanes, rows = self._partial.count_of(key), np.array([slot])
        if lanes != self._live[slot, warp] or not lanes:
            return
        self._activity.changes += 1
        generation = self._generation[rows, number][:, None]
        came, held = self._partial.count(key, int(generation[0, 0]))
        self._true[slot, number] += held
        self._count(came[-1], number, rows, np.array([[True]]), np.array([warp]), np.array([[lanes]]), before)
        for done in came:
            i = done.instruction
            self._tell_each(_joins_or_arrives(i), done, i, np.array([[number]]), generation)
        self._release(rows, number)

    def _count(
        self,
        by: ExecutedInstruction,
        number: int,
        rows: Array,
        arrive: Array,
        warps: Array,
        lanes: Array,
        before: ExecutedInstruction | None,
    ) -> None:
        """Count warps: `arrive`, (CTAs, warps), says which, and `lanes` how many of each have not ended."""
        self._here[rows[:, None], number, warps] |= arrive
        self._arrived[rows, number] += WARP * arrive.sum(axis=1)
        self._lanes[rows, number] += lanes.sum(axis=1)
        expected, arrived = self._expected[rows, number], self._arrived[rows, number]
        over = (expected != -1) & (arrived > expected)
        if over.any():
            at = int(over.argmax())
            wanted, came = int(expected[at]), int(arrived[at])
            wrong = f"barrier {number} expects {wanted} threads, and {came} arrive"
            chances = [*self._shared(by, number)]
            if not chances and came % wanted == 0:
                why = f"{came // wanted} groups of {wanted} threads come to one barrier"
                chances = [WaitNearMiss("shared-barrier", why, by.execution)]
            fix = Diagnosis("barrier-of-each-group" if chances else "count-of-callers")
            raise self._wrong(by, number, wrong, fix, before, chances)

    def _check_agreed(self, g: Group, i: Instruction, number: int, rows: Array, expected: Array) -> None:
        """Check that lanes that come to a barrier expect as many threads as those that are there."""
        every = WARP * self._live.shape[1]
        before, now = (np.where(x == -1, every, x) for x in (self._expected[rows, number], expected))
        differ = before != now
        if differ.any():
            waited_for = [self._partial.at(slot, number) for slot in rows.tolist()]
            differ &= (self._arrived[rows, number] > 0) | np.array(waited_for)
        if differ.any():
            at = int(differ.argmax())
            self._refuse(g, i, number, int(before[at]), int(now[at]))

    def _groups(self, g: Group, i: Instruction, number: int, counts: Array) -> list[WaitNearMiss]:
        """List the groups of threads that come with a count each, and are as many, but for the first of them."""
        found: list[tuple[list[int], WaitNearMiss]] = []
        for wanted in np.unique(counts[counts > 0]).tolist():
            ids = g.threads.ids[counts == wanted]
            warps = np.unique(ids // WARP).tolist()
            if len(warps) * WARP != wanted:
                return []
            done = ExecutedInstruction(i, g.ctas, Threads(ids, g.threads.block))
            why = _SECOND.format(number, listed("warp", warps), wanted)
            found.append((warps, WaitNearMiss("shared-barrier", why, done.execution)))
        return [chance for _, chance in sorted(found, key=lambda one: one[0])[1:]]

    def _refuse(
        self, g: Group, i: Instruction, number: int, some: int, others: int, groups: Sequence[WaitNearMiss] = ()
    ) -> None:
        wrong = f"barrier {number} expects {some} threads for some of the arriving threads, and {others} for others"
        chances = [*groups] or [*self._shared(g.did(i), number, others)]
        fix = Diagnosis("barrier-of-each-group" if chances else "one-count")
        raise self._wrong(g.did(i), number, wrong, fix, self._last.get(number), chances)

    def _came(self, number: int, i: Instruction) -> set[int]:
        """Return the warps that have come to a barrier at an instruction."""
        users = self._users.get(number, {})
        return {warp for (index, _), (_, warps) in users.items() if index == i.index for warp in warps}

    def _shared(self, by: ExecutedInstruction, number: int, wants: int | None = None) -> Iterator[WaitNearMiss]:
        """Yield the last use of a barrier by other warps, which are as many as it expects there.

        That is at another instruction, or with another number of threads than `wants`.
        """
        mine = {*by.threads.warps.tolist()}
        for (index, wanted), (done, warps) in self._users.get(number, {}).items():
            if index == by.instruction.index and wants in (None, wanted):
                continue
            others = mine if index == by.instruction.index else mine | self._came(number, by.instruction)
            if warps.isdisjoint(others) and len(warps) * WARP == wanted:
                why = _SECOND.format(number, listed("warp", warps), wanted)
                yield WaitNearMiss("shared-barrier", why, done.execution)

    def _wrong(
        self,
        by: ExecutedInstruction,
        number: int,
        wrong: str,
        fix: Diagnosis,
        before: ExecutedInstruction | None = None,
        chances: Sequence[WaitNearMiss] = (),
    ) -> BarrierError:
        return BarrierError(
            wrong,
            by.instruction,
            by.execution.who,
            fix=fix,
            kind="mismatched-count",
            at=Place(f"barrier {number}"),
            before=None if before is None else before.execution,
            chances=chances,
        )

    def _counts(self, g: Group, i: Instruction, number: int, count: Array, here: Array) -> Array:
        shape = (g.ctas.count, g.threads.count)
        values: Array = np.broadcast_to(np.where(here, count, 0), shape).max(axis=1).astype(np.int64)
        least = np.broadcast_to(np.where(here, count, values[:, None]), shape).min(axis=1)
        if (least != values).any():
            row = int((least != values).argmax())
            counts = np.broadcast_to(np.where(here, count, 0), shape)[row]
            self._refuse(g, i, number, int(least.min()), int(values.max()), self._groups(g, i, number, counts))
        odd = values[here.any(axis=1) & ((values % WARP != 0) | (values <= 0))]
        if len(odd):
            wrong = f"the thread count of a barrier must be a positive multiple of {WARP}, got {odd[0]}"
            fix = Diagnosis("count-of-whole-warps", count=max(-(-int(odd[0]) // WARP), 1) * WARP)
            raise self._wrong(g.did(i), number, wrong, fix)
        return values

    def _release(self, rows: Array, number: int) -> None:
        """Complete the generation where all that are expected have arrived: so many, or all warps that are left."""
        expected, arrived = self._expected[rows, number], self._arrived[rows, number]
        complete = (arrived >= expected) & (arrived > 0)
        of_all = expected == -1
        if of_all.any():
            complete &= ~of_all | (self._here[rows, number] | (self._live[rows] == 0)).all(axis=1)
        done = rows[complete]
        if len(done):
            if self._reduces:
                here, true = self._here[done, number], self._true[done, number][:, None]
                is_true = true == self._lanes[done, number][:, None]
                self._counted[done, number] = np.where(here, true, self._counted[done, number])
                self._unanimous[done, number] = np.where(here, is_true, self._unanimous[done, number])
            self._here[done, number] = False
            self._true[done, number] = self._arrived[done, number] = self._lanes[done, number] = 0
            self._generation[done, number] += 1

    def _awaited(self, g: Group, identity: Array) -> AwaitedObject:
        first, *others = (
            replace(self._at(g, int(number)), lanes=identity == number)
            for number in dict.fromkeys(identity.reshape(-1).tolist())
        )
        return replace(first, beside=tuple(others))

    def _at(self, g: Group, number: int) -> AwaitedObject:
        slot, warp = int(g.ctas.slots[0]), int(g.threads.ids[0]) // WARP
        at, nobody = Place(f"barrier {number}"), "no other thread that still runs comes there"
        came = self._partial.count_of((slot, number, warp))
        if came:
            lacks = f"{came} of the {int(self._live[slot, warp])} threads of warp {warp}"
            return AwaitedObject(
                f"barrier {number}: {lacks} arrived, and each waits for all of its warp",
                at,
                f"{lacks} have come, and each waits for all of its warp",
                Diagnosis("warp-to-barrier"),
                last=self._last.get(number),
                brings=lambda i: _may_be_at(i, number),
                is_of_a_cta=True,
                nobody=nobody,
                barrier=NamedBarrier(number),
            )
        wanted, came = int(self._expected[slot, number]), int(self._arrived[slot, number])
        if wanted == -1:
            wanted, came = int(self._live[slot].sum()), int(self._lanes[slot, number])
        return AwaitedObject(
            f"barrier {number}: {came} of {wanted} threads arrived",
            at,
            f"{came} of {wanted} threads have come",
            Diagnosis("threads-to-barrier", count=wanted),
            last=self._last.get(number),
            brings=lambda i: _may_be_at(i, number),
            is_of_a_cta=True,
            nobody=nobody,
            barrier=NamedBarrier(number),
            chances=tuple(self._shared(self._last[number], number)) if number in self._last else (),
        )


_SECOND = "a second group comes to barrier {}: {} are the {} threads that it expects there"


def _joins_or_arrives(i: Instruction) -> type[NamedBarrierEvent]:
    """Return the event of lanes that come to a barrier by an instruction."""
    return NamedBarrierArrive if i.traits.arrives else NamedBarrierJoin


def _may_be_at(i: Instruction, number: int) -> bool:
    """Return whether an instruction may arrive at a barrier."""
    if i.traits.barrier != "named":
        return False
    named = i.operands[i.traits.votes]
    return not isinstance(named, Immediate) or named.value == number
