"""Unfinished waits at mbarriers: the missing arrivals, operations that could bring them, and arrivals elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.advice import Diagnosis
from cutepy.sim.errors import Place, WaitNearMiss
from cutepy.sim.machine.events import MbarrierAt
from cutepy.sim.machine.thread_history import of_cta
from cutepy.sim.machine.wait_sources import AwaitedObject, MisdirectedArrival, Source, arrives, copies, operation
from cutepy.sim.mechanisms.mbarrier_objects import NEVER
from cutepy.sim.ptx.barrier_names import barrier_name, ring, stage_of

if TYPE_CHECKING:
    from cutepy.sim.machine.lanes import Residents
    from cutepy.sim.machine.thread_history import ExecutedInstruction
    from cutepy.sim.mechanisms.mbarrier_objects import Mbarrier
    from cutepy.sim.ptx.model import Instruction

_APART = 2
"""Phases by which stages of a ring differ only if they are not taken in turns."""


class MbarrierWaits:
    """Finder of the arrivals and bytes that waits at mbarriers lack.

    Parameters
    ----------
    objects : mapping
        The mbarriers, by offset.
    residents : Residents
    """

    def __init__(self, objects: Mapping[int, Mbarrier], residents: Residents) -> None:
        self._objects, self._residents = objects, residents

    def at(self, offset: int, slot: int, wanted: str, parity: int | None = None) -> AwaitedObject:
        """Return the object of a wait at an mbarrier of a CTA.

        `wanted` names the phase; it has a parity if lanes wait by that.
        """
        found, name = self._objects[offset], self._name(offset)
        pending, count, size = (int(x[slot]) for x in (found.pending, found.count, found.transactions))
        bytes_held = f"{size} bytes pending" if size >= 0 else f"{-size} bytes delivered beyond those expected"
        held = f"{max(count - pending, 0)} of {count} arrivals have come, {bytes_held}"
        phase = int(found.phase[slot])
        said = f"{wanted} of {name}, which is in phase {phase}: {held}"
        came = "the arrivals" if not pending else f"{max(count - pending, 0)} of {count} arrivals"
        lacks = f"{came} of its phase {phase} have {'' if pending else 'all '}come"
        if size:
            announced = "that were announced have not" if size > 0 else "came that nobody had announced"
            lacks += f", and {abs(size)} bytes {announced}"
        brought, others = self._brought(offset, arrivals=bool(pending))
        masks = tuple(self._masks(found, slot))
        if pending:
            fix = Diagnosis("arrivals-of-each-phase", count=count)
            last: ExecutedInstruction | None = found.done.get("arrive", found.done["init"])
            brings: Callable[[Instruction], bool] = arrives
        else:
            fix = Diagnosis("bytes-from-others" if size > 0 else "uneven-bytes")
            last = found.done.get("expect_tx" if size > 0 else "complete_tx")
            brings = copies if size > 0 else _nothing
        return AwaitedObject(
            said,
            Place.of_mbarrier(offset, name),
            lacks,
            fix,
            is_begun=pending < count,
            last=last,
            brings=brings,
            brought=frozenset(map(operation, brought.values())),
            others=others,
            nobody=f"no other thread that still runs {'arrives' if pending else 'copies'} there" if size >= 0 else "",
            barrier=MbarrierAt(offset),
            is_first=parity == 0 and phase == 0 and pending == count and size == 0 and found.passed[slot] == NEVER,
            absent=() if masks else tuple(self._absent(offset, slot)),
            ceased=tuple(self._ceased(offset, slot)),
            chances=(*masks, *self._chances(offset, slot, parity)),
            ring=stage_of(offset, self._initialised())[0],
            fellows=self._fellows(offset, slot),
            misdirected=tuple(self._misdirected(offset, slot)),
        )

    def _name(self, offset: int) -> str:
        return barrier_name(offset, self._initialised())

    def _initialised(self) -> dict[int, Instruction]:
        return {at: found.done["init"].instruction for at, found in self._objects.items()}

    def _brought(self, offset: int, *, arrivals: bool) -> tuple[dict[int, Instruction], dict[int, Instruction]]:
        """Return the instructions that have arrived at, or copied to, a ring's mbarriers, and to others only."""
        fellows = {offset, *ring(offset, self._initialised())}
        ours: dict[int, Instruction] = {}
        every: dict[int, Instruction] = {}
        for at, found in self._objects.items():
            by = found.arrivals if arrivals else found.copies
            every |= by
            if at in fellows:
                ours |= by
        return ours, {index: i for index, i in every.items() if index not in ours}

    def _absent(self, offset: int, slot: int) -> Iterator[Source]:
        """Yield the CTAs that have brought something in earlier phases, and nothing in this one."""
        found = self._objects[offset]
        for (to, by), brought in found.sources.items():
            if to == slot != by and brought.phase < found.phase[slot]:
                yield Source(by, brought.done, brought.phases)

    def _ceased(self, offset: int, slot: int) -> Iterator[Source]:
        """Yield the threads of the CTA that arrived in earlier phases, always together, and not in this one."""
        found = self._objects[offset]
        rounds = [one for one in found.rounds.values() if one.phases[slot]]
        for one in rounds:
            ids = one.done.threads.ids
            is_alone = not any(other is not one and np.isin(ids, other.done.threads.ids).any() for other in rounds)
            if one.is_exact and is_alone and one.last[slot] < found.phase[slot]:
                yield Source(slot, one.done, int(one.phases[slot]))

    def _chances(self, offset: int, slot: int, parity: int | None) -> Iterator[WaitNearMiss]:
        found = self._objects[offset]
        if parity == 1 and found.phase[slot] == 1 and found.passed[slot] == NEVER:
            why = f"no wait at {self._name(offset)} was for parity 0, its first phase, which is over"
            yield WaitNearMiss("second-parity", why)
        if found.pending[slot] > 0:
            yield from _taken_for_arrivals(found)
        if found.transactions[slot] > 0:
            yield from self._bytes_elsewhere(offset, slot)
        yield from self._other_stages(offset, slot)
        yield from self._other_ctas(offset, slot)

    def _bytes_elsewhere(self, offset: int, slot: int) -> Iterator[WaitNearMiss]:
        """Yield the copy whose bytes another mbarrier got that had not announced them, if one alone got as many."""
        lacks = int(self._objects[offset].transactions[slot])
        surplus = [at for at, found in self._objects.items() if found.valid[slot] and found.transactions[slot] < 0]
        for at in surplus if len(surplus) == 1 else ():
            copy = self._objects[at].done.get("complete_tx")
            if copy is not None and int(self._objects[at].transactions[slot]) == -lacks:
                why = f"its bytes count at {self._name(at)}, where nobody has announced them"
                yield WaitNearMiss("other-barrier", why, copy.execution)

    def _misdirected(self, offset: int, slot: int) -> Iterator[MisdirectedArrival]:
        """Yield the arrivals that completed other mbarriers for which nothing has waited, if this one got none."""
        own = self._objects[offset]
        if own.phase[slot] or own.arrivals or own.done.get("expect_tx") is not None:
            return
        for at, found in self._objects.items():
            done = found.done.get("arrive")
            is_over = found.valid[slot] and found.phase[slot] and found.passed[slot] == NEVER
            if at != offset and is_over and done is not None:
                yield MisdirectedArrival(at, self._name(at), done)

    def _other_stages(self, offset: int, slot: int) -> Iterator[WaitNearMiss]:
        """Yield the last arrival at another stage of a ring that is ahead by more than a round."""
        fellows = [at for at in ring(offset, self._initialised()) if self._objects[at].valid[slot]]
        phases = {at: int(self._objects[at].phase[slot]) for at in (offset, *fellows)}
        ahead = max(phases, key=lambda at: phases[at])
        last, behind = self._objects[ahead].done.get("arrive"), phases[offset]
        most, least = self._name(ahead), self._name(offset)
        if phases[ahead] - behind >= _APART:
            why = f"{phases[ahead]} phases of {most} are over, and {behind or 'none'} of {least}"
            yield WaitNearMiss("other-stage", why, None if last is None else last.execution)
        elif phases[ahead] > behind > self._objects[ahead].passed[slot] and last is not None:
            # Who waits takes this stage first, and who arrives that one.
            why = f"phase {behind} of {most} is over, for which nothing has waited, and that of {least} is not"
            yield WaitNearMiss("other-arrival", why, last.execution)

    def _masks(self, found: Mbarrier, slot: int) -> Iterator[WaitNearMiss]:
        """Yield the copy to other CTAs of the cluster whose bytes one that waits lacks: that with the fewest bits.

        Where copies are to rows or columns of a cluster, all of one operation have masks that are equal or have no CTA
        in common, and each CTA gets what those of its mask get.
        """
        size, coordinate = self._residents.cluster_size, self._residents.coordinate
        recent = {
            key: one
            for key, one in found.multicasts.items()
            if key[1] // size == slot // size and one.phase >= found.phase[slot]
        }

        def differs(copy: object, to: frozenset[int]) -> bool:
            fellows = [one.to for (each, _), one in recent.items() if each == copy]
            got = {here: {n for n, each in enumerate(fellows) if here in each} for here in (slot, *to)}
            return any(got[slot] < got[here] for here in to) or any(to & each and to != each for each in fellows)

        lacking = [
            (len(one.to), by, one)
            for (copy, by), one in recent.items()
            if slot not in one.to
            and one.size_bytes <= found.transactions[slot]
            and (len(one.to) == 1 or differs(copy, one.to))
        ]
        for _, by, one in sorted(lacking, key=lambda each: each[:2])[:1]:
            mask = sum(1 << to % size for to in one.to)
            why = (
                f"the copy by CTA {coordinate(by)} has the mask {mask:#b}, and CTA {coordinate(slot)} is bit "
                f"{slot % size}"
            )
            yield WaitNearMiss("multicast-mask", why, of_cta(one.done, by))

    def _other_ctas(self, offset: int, slot: int) -> Iterator[WaitNearMiss]:
        """Yield the last arrival at the mbarrier of another CTA of the cluster, if that of this one has got none."""
        found, size, coordinate = self._objects[offset], self._residents.cluster_size, self._residents.coordinate
        if found.phase[slot] or any(to == slot for to, _ in found.sources):
            return
        for (to, by), brought in found.sources.items():
            if to // size == slot // size and found.phase[to]:
                reached = f"{self._name(offset)} of CTA {coordinate(to)}"
                why = f"it reaches {reached}, and nothing that of CTA {coordinate(slot)}"
                yield WaitNearMiss("other-cta", why, of_cta(brought.done, by))
                return

    def _fellows(self, offset: int, slot: int) -> str:
        """Describe the completed phases of a ring's stages, if their numbers differ."""
        stages = [at for at in ring(offset, self._initialised()) if self._objects[at].valid[slot]]
        phases = [int(self._objects[at].phase[slot]) for at in stages]
        if len({*phases}) < 2:
            return ""
        said = []
        for count in sorted({*phases}, reverse=True):
            numbers = [n for n, each in enumerate(phases) if each == count]
            those = f"stage{'s' * (len(numbers) > 1)} {' and '.join(', '.join(map(str, numbers)).rsplit(', ', 1))}"
            said.append(f"{count or 'none'} at {those}")
        return f"phases of the ring that are over: {', '.join(said)}"


def _taken_for_arrivals(found: Mbarrier) -> Iterator[WaitNearMiss]:
    """Yield operations at an mbarrier that lacks arrivals, which may be mistaken for arrivals."""
    expects, counts = found.done.get("expect_tx"), found.done.get("expect_arrivals")
    if expects is not None and expects.instruction.parts[1] == "expect_tx":
        yield WaitNearMiss("expect-tx", "expect_tx announces bytes, and is no arrival", expects.execution)
    if counts is not None:
        why = "without .noinc the phase expects this arrival beside those that mbarrier.init says"
        yield WaitNearMiss("counted-besides", why, counts.execution)


def _nothing(i: Instruction) -> bool:
    return False
