"""Ends of CTAs: operations in flight, accesses of others to an ended CTA, and barriers left incomplete."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cutepy.sim.machine.events import Barrier, MbarrierAt
from cutepy.sim.machine.lanes import WARP, Array
from cutepy.sim.sanitize.hazards import Side
from cutepy.sim.sanitize.kinds import Diagnosis
from cutepy.sim.sanitize.order.wave import COPIES, Wave

if TYPE_CHECKING:
    from cutepy.sim.ptx.model import Instruction


class End(NamedTuple):
    """A hazard: its kind, where it is, its sides, what is missing where the kind doesn't say, and what causes it."""

    kind: str
    where: Barrier | str
    before: Side | None
    after: Side
    diagnosis: Diagnosis | None
    cause: Instruction | None = None


_WAIT = Diagnosis(
    "",
    "cp.async.commit_group and cp.async.wait_group 0, or a wait for the mbarrier that tracks "
    "it, must come before the end",
)


def ends(wave: Wave, ended: Array) -> Iterator[End]:
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
            side = Side(
                "bulk copy read", f"the async proxy for CTA {coordinate(slot)}", i, coordinate(slot), is_async=True
            )
            missing = Diagnosis(
                "",
                f"CTA {coordinate(agent)}, whose mbarrier counts its bytes, must say that they have come, "
                "by barrier.cluster for example, before the end",
            )
            yield End("in-flight-at-exit", "shared memory", side, _exit(coordinate(slot)), missing)
    for one in wave.peers.late(has_ended):
        before = _by_thread(one.instruction.opcode, coordinate(one.agent), one.thread, one.instruction)
        target = coordinate(one.target)
        yield End("exited-peer", f"shared memory of CTA {target}", before, _exit(target), None)


def uneven(wave: Wave, ended: Array) -> Iterator[End]:
    """Yield what does not come out even where nothing goes on; `ended` tells which threads are at their end."""
    coordinate = wave.residents.coordinate
    for mbarrier in wave.objects.uneven():
        what = f"{mbarrier.pending_bytes} bytes were expected and never came"
        if mbarrier.pending_bytes < 0:
            what = f"{-mbarrier.pending_bytes} bytes came that nobody had expected"
        where, cta = MbarrierAt(mbarrier.address), coordinate(mbarrier.slot)
        before, after = (
            None if i is None else Side(_opcode(i), f"CTA {cta}", i, cta) for i in (mbarrier.expects, mbarrier.delivers)
        )
        after = after or _exit(cta)
        yield End(
            "uneven-bytes", where, before, after, Diagnosis(f"{what}", "expect_tx must say what the copies bring")
        )


def _opcode(i: Instruction) -> str:
    """Return what an instruction does to an mbarrier, without its state spaces and the like."""
    return ".".join(part for part in i.parts[: 4 if i.parts[0] == "cp" else 3] if part.isidentifier())


def _copies(wave: Wave, has_ended: Array) -> Iterator[End]:
    """Yield, once for each instruction, what threads copy that nobody knows to have come."""
    told = set()
    for thread in np.flatnonzero(wave.copied.counts.any(axis=0)).tolist():
        best = wave.clocks.best(wave.clocks.column((COPIES, thread), thread))
        for slot in np.flatnonzero(has_ended & (wave.copied.counts[:, thread] > best)).tolist():
            i = wave.copied.by[int(wave.copied.instructions[slot, thread])]
            if i.index not in told:
                told.add(i.index)
                cta = wave.residents.coordinate(slot)
                side = _by_thread("cp.async write", cta, thread, i)
                yield End("in-flight-at-exit", "shared memory", side, _exit(cta), _WAIT)


def given_up(guess: Instruction) -> Diagnosis:
    """Say what is wrong with a try that may fail, where a thread goes on all the same."""
    line = Side("", "", guess).line
    return Diagnosis(f"the try at {line} may fail, and its thread goes on all the same", "loop until it succeeds")


def _exit(cta: tuple[int, ...]) -> Side:
    return Side("exit", f"CTA {cta}", None, cta)


def _by_thread(what: str, cta: tuple[int, ...], thread: int, i: Instruction) -> Side:
    warp, lane = divmod(thread, WARP)
    return Side(what, f"warp {warp}, lane {lane} of CTA {cta}", i, cta, warp, lane)


def _in_flight(i: Instruction, owner: int, cta: tuple[int, ...]) -> End:
    """Say what uses shared memory of a CTA that has ended."""
    if i.parts[0] == "wgmma":
        side = Side("wgmma read", f"the async proxy for CTA {cta}", i, cta, is_async=True)
        missing = Diagnosis("", "wgmma.commit_group and wgmma.wait_group 0 must come before the end")
    elif owner >= 0:
        side = _by_thread("bulk store read", cta, owner, i)
        missing = Diagnosis(
            "", "cp.async.bulk.commit_group and cp.async.bulk.wait_group.read 0 must come before the end"
        )
    else:
        arrives = i.parts[:3] == ("cp", "async", "mbarrier")
        what = "asynchronous arrival" if arrives else "copy write"
        side = Side(what, f"CTA {cta}" if arrives else f"the async proxy for CTA {cta}", i, cta, is_async=not arrives)
        missing = Diagnosis(
            "", f"a wait for the mbarrier that counts {('it' if arrives else 'its bytes')} must come before the end"
        )
    return End("in-flight-at-exit", "shared memory", side, _exit(cta), missing)
