"""The CTA's sixteen named barriers: bar.sync, bar.arrive and bar.red.

References
----------
PTX ISA, "Parallel Synchronization and Communication Instructions: bar, barrier".
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.errors import BarrierError, Place
from cutepy.sim.machine.awaited import Awaited
from cutepy.sim.machine.lanes import WARP, Array
from cutepy.sim.machine.mechanism import Mechanism
from cutepy.sim.machine.uniform import check_uniform
from cutepy.sim.ptx.alignment import aligned_threads
from cutepy.sim.ptx.model import Immediate

if TYPE_CHECKING:
    from cutepy.sim.machine.activity import Activity
    from cutepy.sim.machine.deeds import Done
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
        slots = residents.count
        self._arrived = np.zeros((slots, BARRIERS), np.int64)
        self._expected = np.zeros((slots, BARRIERS), np.int64)
        self._generation = np.zeros((slots, BARRIERS), np.int64)
        self._true = np.zeros((slots, BARRIERS), np.int64)
        # Of the phase that completed last: how many predicates held, and whether all did.
        self._counted = np.zeros((slots, BARRIERS), np.int64)
        self._unanimous = np.zeros((slots, BARRIERS), bool)
        self._ended = np.zeros(slots, np.int64)
        self._last: dict[int, Done] = {}  # by barrier, who came last
        self._threads = threads

    def generations(self, slot: int) -> Array:
        """Return the generation of each barrier of a CTA."""
        found: Array = self._generation[slot]
        return found

    def is_idle(self) -> bool:
        """Tell whether no thread has arrived at any barrier, or ended."""
        return not (self._arrived.any() or self._ended.any())

    def arrive(self, g: Group, i: Instruction, identity: Array, count: Array | None) -> None:
        """Arrive without waiting."""
        self._check(g, i, identity)
        before = self._generation[g.ctas.slots[:, None], identity]
        self._arrive(g, i, identity, count)
        self._notify("arrive", g, i, identity, before)

    def sync(self, g: Group, i: Instruction, identity: Array, count: Array | None) -> bool:
        """Arrive, and tell whether all that are expected have; called again until they have."""
        slots = g.ctas.slots[:, None]
        self._check(g, i, identity)
        if g.token is None:
            before = self._generation[slots, identity]
            self._arrive(g, i, identity, count)
            g.token = before
            self._notify("join", g, i, identity, before)
            policy = self._activity.policy
            may_pass = policy is None or not policy.parts_arrivals
        else:
            may_pass = True
        done = self._generation[slots, identity] != g.token
        if may_pass and done.all():
            self._notify("sync", g, i, identity, g.token)
            g.token, g.ready, g.waits_for = None, None, None
            return True
        g.ready = done
        g.waits_for = lambda: self._awaited(g, identity)
        return False

    def reduce(
        self, g: Group, i: Instruction, identity: Array, count: Array | None, operation: str, predicate: Array
    ) -> Array | None:
        """Synchronise, and combine the predicates of all threads (popc, and, or); None until all have arrived."""
        slots = g.ctas.slots[:, None]
        self._check(g, i, identity)
        if g.token is None:
            shape = (g.ctas.count, g.threads.count)
            holds = np.broadcast_to(predicate, shape)
            for number in np.unique(identity):
                self._true[g.ctas.slots, number] += (holds & np.broadcast_to(identity == number, shape)).sum(axis=1)
        if not self.sync(g, i, identity, count):
            return None
        if operation == "popc":
            return self._counted[slots, identity].astype(np.uint32)
        result: Array = self._unanimous[slots, identity] if operation == "and" else self._counted[slots, identity] > 0
        return result

    def _notify(self, operation: str, g: Group, i: Instruction, identity: Array, generation: Array) -> None:
        """Tell observers of each barrier that lanes are at, and the generation that they take part in."""
        for number in np.unique(identity).tolist() if self._activity.observers else ():
            self._activity.notify(operation, f"bar {number}", g, i, lanes=identity == number, phase=generation)

    def _check(self, g: Group, i: Instruction, identity: Array) -> None:
        if int(identity.max()) >= BARRIERS:
            number = int(identity.max())
            raise BarrierError(
                f"barrier {number} does not exist: there are {BARRIERS}",
                i,
                g.describe(),
                fix=f"use 0 to {BARRIERS - 1}",
                at=Place(f"barrier {number}"),
            )

    def leave(self, g: Group) -> None:
        """Count threads that ended: barriers over all threads of a CTA no longer expect them."""
        self._ended[g.ctas.slots] += g.threads.count
        for identity in range(BARRIERS):
            whole = self._expected[g.ctas.slots, identity] == -1
            if whole.any():
                self._release(g.ctas.slots[whole], identity)

    def _arrive(self, g: Group, i: Instruction, identity: Array, count: Array | None) -> None:
        self._activity.changes += 1
        slots = g.ctas.slots
        self._check(g, i, identity)
        if aligned_threads(i) > 1:
            check_uniform(self._activity, g, i, identity, "the number of the barrier")
        for number in np.unique(identity):
            here = identity == number
            columns = np.broadcast_to(here, (g.ctas.count, g.threads.count)).sum(axis=1)
            expected = np.full(len(slots), -1) if count is None else self._counts(g, i, int(number), count, here)
            active = columns > 0
            rows = slots[active]
            self._check_agreed(g, i, int(number), rows, expected[active])
            before = self._last.get(int(number))
            self._last[int(number)] = g.did(i)
            self._arrived[rows, number] += columns[active]
            self._expected[rows, number] = expected[active]
            arrived = self._arrived[rows, number]
            if count is not None and (arrived > expected[active]).any():
                over = int((arrived > expected[active]).argmax())
                wrong = (
                    f"barrier {int(number)} expects {int(expected[active][over])} threads, and {int(arrived[over])} "
                    "arrive"
                )
                raise self._wrong(g, i, int(number), wrong, "give it the number of threads that call it", before)
            self._release(rows, int(number))

    def _check_agreed(self, g: Group, i: Instruction, number: int, rows: Array, expected: Array) -> None:
        """Check that who comes to a barrier expects as many threads as those who are there."""
        before, now = (np.where(x == -1, self._threads, x) for x in (self._expected[rows, number], expected))
        differ = (self._arrived[rows, number] > 0) & (before != now)
        if differ.any():
            at = int(differ.argmax())
            self._refuse(g, i, number, int(before[at]), int(now[at]))

    def _refuse(self, g: Group, i: Instruction, number: int, some: int, others: int) -> None:
        wrong = f"barrier {number} expects {some} threads for some of those who arrive, and {others} for others"
        raise self._wrong(g, i, number, wrong, "all who take part must give it one count", self._last.get(number))

    def _wrong(
        self, g: Group, i: Instruction, number: int, wrong: str, fix: str, before: Done | None = None
    ) -> BarrierError:
        at, deed = Place(f"barrier {number}"), None if before is None else before.deed
        return BarrierError(wrong, i, g.describe(), fix=fix, kind="mismatched-count", at=at, before=deed)

    def _counts(self, g: Group, i: Instruction, number: int, count: Array, here: Array) -> Array:
        shape = (g.ctas.count, g.threads.count)
        values: Array = np.broadcast_to(np.where(here, count, 0), shape).max(axis=1).astype(np.int64)
        least = np.broadcast_to(np.where(here, count, values[:, None]), shape).min(axis=1)
        if (least != values).any():
            self._refuse(g, i, number, int(least.min()), int(values.max()))
        if (values % WARP).any():
            wrong = f"the thread count of a barrier must be a multiple of {WARP}, got {values[0]}"
            fix = f"give it {-(-int(values[0]) // WARP) * WARP}, and let whole warps call it"
            raise self._wrong(g, i, number, wrong, fix)
        return values

    def _release(self, rows: Array, number: int) -> None:
        expected = self._expected[rows, number]
        expected = np.where(expected == -1, self._threads - self._ended[rows], expected)
        done = rows[(self._arrived[rows, number] >= expected) & (self._arrived[rows, number] > 0)]
        if len(done):
            self._counted[done, number] = self._true[done, number]
            self._unanimous[done, number] = self._true[done, number] == self._arrived[done, number]
            self._true[done, number] = 0
            self._arrived[done, number] = 0
            self._generation[done, number] += 1

    def _awaited(self, g: Group, identity: Array) -> Awaited:
        first, *others = (self._at(g, int(number)) for number in dict.fromkeys(identity.reshape(-1).tolist()))
        return replace(first, beside=tuple(others))

    def _at(self, g: Group, number: int) -> Awaited:
        slot = int(g.ctas.slots[0])
        expected, came = int(self._expected[slot, number]), int(self._arrived[slot, number])
        wanted = self._threads - int(self._ended[slot]) if expected == -1 else expected
        return Awaited(
            f"barrier {number}: {came} of {wanted} threads arrived",
            Place(f"barrier {number}"),
            f"{came} of {wanted} threads have come",
            f"all {wanted} threads must come to the barrier, or it must be given the number of those that do",
            last=self._last.get(number),
            brings=lambda i: _may_be_at(i, number),
            is_of_a_cta=True,
            nobody="no other thread that still runs comes there",
        )


def _may_be_at(i: Instruction, number: int) -> bool:
    """Tell whether an instruction may arrive at a barrier."""
    if i.parts[0] not in ("bar", "barrier") or {"warp", "cluster"} & set(i.parts):
        return False
    named = i.operands["red" in i.parts]
    return not isinstance(named, Immediate) or named.value == number
