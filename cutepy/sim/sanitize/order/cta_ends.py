"""Ends of CTAs: operations in flight, accesses of others to an ended CTA, and barriers left incomplete."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cutepy.sim.advice import Diagnosis
from cutepy.sim.errors import SHARED_MEMORY, Place
from cutepy.sim.machine.events import MbarrierAt
from cutepy.sim.machine.lanes import Array
from cutepy.sim.sanitize.hazards import Side, Where
from cutepy.sim.sanitize.order.wave import COPIES, Wave

if TYPE_CHECKING:
    from cutepy.sim.ptx.model import Instruction


class EndHazard(NamedTuple):
    """A hazard: its kind, its place, its sides, the missing operation where the kind doesn't name it, and the cause."""

    kind: str
    where: Where
    before: Side | None
    after: Side
    diagnosis: Diagnosis | None
    cause: Instruction | None = None


def ends(wave: Wave, ended: Array) -> Iterator[EndHazard]:
    """Yield the hazards of those CTAs that have ended, by slot."""
    has_ended = np.isin(np.arange(wave.residents.count), ended)
    coordinate = wave.residents.coordinate
    for column, (i, groups) in wave.last.items():
        late = np.flatnonzero(has_ended & (groups > wave.clocks.best(column)))
        if len(late):
            slot = int(late[0])
            end = _in_flight(i, int(wave.clocks.owner[column]), coordinate(slot))
            guess = next(wave.patterns.guesses(slot, slot % wave.clocks.cluster, column, int(groups[slot])), None)
            yield end if guess is None else end._replace(diagnosis=given_up(guess.instruction), cause=guess.instruction)
    yield from _copies(wave, has_ended)
    for (slot, agent, column), (i, count) in wave.lent.items():
        if has_ended[slot] and wave.clocks.best_of(slot, agent % wave.clocks.cluster)[column] < count:
            side = Side.of_proxy("bulk copy", coordinate(slot), i, "read")
            missing = Diagnosis("copy-to-a-peer-at-exit", cta=str(coordinate(agent)))
            yield EndHazard("in-flight-at-exit", SHARED_MEMORY, side, _exit(coordinate(slot)), missing)
    for one in wave.peers.late(has_ended):
        before = Side.of_thread(one.instruction.opcode, coordinate(one.agent), one.thread, one.instruction)
        target = coordinate(one.target)
        if one.target == one.agent:
            yield _in_flight(one.instruction, one.thread, target)
            continue
        yield EndHazard("exited-peer", Place.of_cta(target), before, _exit(target), None)


def uneven(wave: Wave) -> Iterator[EndHazard]:
    """Yield incomplete phases and generations where nothing goes on."""
    coordinate = wave.residents.coordinate
    for mbarrier in wave.objects.uneven():
        pending = mbarrier.pending_bytes
        diagnosis = Diagnosis("bytes-not-expected" if pending < 0 else "bytes-never-came", count=abs(pending))
        where, cta = MbarrierAt(mbarrier.address), coordinate(mbarrier.slot)
        before, after = (
            None if i is None else Side(i.name, f"CTA {cta}", i, cta) for i in (mbarrier.expects, mbarrier.delivers)
        )
        after = after or _exit(cta)
        yield EndHazard("uneven-bytes", where, before, after, diagnosis)


def _copies(wave: Wave, has_ended: Array) -> Iterator[EndHazard]:
    """Yield, once for each instruction, copies of threads that no thread knows to be complete."""
    told = set()
    for thread in np.flatnonzero(wave.copied.counts.any(axis=0)).tolist():
        best = wave.clocks.best(wave.clocks.column((COPIES, thread), thread))
        for slot in np.flatnonzero(has_ended & (wave.copied.counts[:, thread] > best)).tolist():
            i = wave.copied.by[int(wave.copied.instructions[slot, thread])]
            if i.index not in told:
                told.add(i.index)
                cta = wave.residents.coordinate(slot)
                side = Side.of_thread("cp.async", cta, thread, i, "write")
                yield EndHazard("in-flight-at-exit", SHARED_MEMORY, side, _exit(cta), Diagnosis("cp-async-at-exit"))


def given_up(guess: Instruction) -> Diagnosis:
    """Describe the fault of a try that may fail, where a thread goes on all the same."""
    return Diagnosis("try-may-fail", line=Side("", "", guess).line)


def _exit(cta: tuple[int, ...]) -> Side:
    return Side("exit", f"CTA {cta}", None, cta)


def _in_flight(i: Instruction, owner: int, cta: tuple[int, ...]) -> EndHazard:
    """Describe the operation that uses shared memory of an ended CTA."""
    if i.traits.kind == "wgmma":
        side = Side.of_proxy("wgmma", cta, i, "read")
        missing = Diagnosis("mmas-at-exit")
    elif i.traits.commits:
        side = Side("asynchronous arrival", f"CTA {cta}", i, cta)
        missing = Diagnosis("commit-at-exit")
    elif i.traits.kind == "tcgen05":
        side = Side.of_proxy(i.name, cta, i, "read")
        missing = Diagnosis("commit-at-exit")
    elif owner >= 0:
        side = Side.of_thread("bulk store", cta, owner, i, "read")
        missing = Diagnosis("bulk-store-at-exit")
    else:
        arrives = i.traits.arrives
        if arrives:
            side = Side("asynchronous arrival", f"CTA {cta}", i, cta)
        else:
            side = Side.of_proxy("copy", cta, i, "write")
        missing = Diagnosis("asynchronous-arrival-at-exit" if arrives else "copy-at-exit")
    return EndHazard("in-flight-at-exit", SHARED_MEMORY, side, _exit(cta), missing)
