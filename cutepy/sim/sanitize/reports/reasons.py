"""Reasons for a missing happens-before: an arrival, a wait or a flag between two accesses that fails to order them.

It may be relaxed, or of too narrow a scope, or stand before the read that it should hand back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from cutepy.sim.advice import Diagnosis
from cutepy.sim.machine.lanes import WARP, Array
from cutepy.sim.ptx.memory_order import CLUSTER
from cutepy.sim.ptx.model import Instruction, Label
from cutepy.sim.sanitize.hazards import Side
from cutepy.sim.sanitize.memory.access_record import AccessRecord, Conflict
from cutepy.sim.sanitize.order.clocks import DONE, SEEN
from cutepy.sim.sanitize.order.cta_ends import given_up
from cutepy.sim.sanitize.order.fences import scope_of
from cutepy.sim.sanitize.order.flags import Flags, ThreadProgress
from cutepy.sim.sanitize.order.wave import Wave

TOGETHER = Diagnosis("lanes-write-together")


class Reason(NamedTuple):
    """Why two touches are not ordered.

    Attributes
    ----------
    kind : str or None
        Kind of the hazard, None if it is none after all.
    diagnosis : Diagnosis
        Cause, and remedy.
    cause : Instruction or None
        Faulty instruction, the same for every pair of accesses that shows it.
    is_early : bool
        True if the reader has waited for an earlier phase than that of the copy.
    """

    kind: str | None
    diagnosis: Diagnosis
    cause: Instruction | None = None
    is_early: bool = False


def reason(wave: Wave, flags: Flags, code: Sequence[Instruction], found: Conflict) -> Reason | None:
    """Return the reason why two touches are not ordered, if the operations between them show one."""
    if found.before is found.after:
        return Reason(None, TOGETHER)
    return (
        _of_guesses(wave, found)
        or _of_waits(wave, found)
        or _of_phases(wave, found)
        or _of_arrivals(wave, found)
        or _of_flags(wave, flags, found)
        or _of_places(wave, code, found)
    )


def _known(wave: Wave, found: Conflict, plane: int, slot: int, column: int) -> int:
    """Return the newer touch's lane's knowledge of a column of a CTA in its cluster."""
    held = found.after.view.known[plane, found.row, found.after.row_of[found.after_lane], slot % wave.clocks.cluster]
    return int(held[column]) if column < len(held) else 0


def _older(found: Conflict) -> tuple[int, int, int]:
    """Return in which CTA the older touch was, in which column it counts, and how far that had come."""
    old = found.before
    row = int(np.searchsorted(old.slots, found.after.slots[found.row]))
    counts = old.counts[min(row, len(old.counts) - 1)]
    return int(old.agents[row]), int(old.columns[found.before_lane]), int(counts[found.before_lane])


def _of_guesses(wave: Wave, found: Conflict) -> Reason | None:
    """See whether a try has seen it that may fail just as well."""
    slot, column, count = _older(found)
    guesses = wave.patterns.guesses(int(found.after.agents[found.row]), slot % wave.clocks.cluster, column, count)
    every = sorted(guesses, key=lambda wait: not _is_by(found, wait.threads))
    if not every:
        return None
    guess = every[0].instruction  # by the thread itself, or by one that it may have met
    return Reason(None, given_up(guess), guess if _is_by(found, every[0].threads) else None)


def _of_waits(wave: Wave, found: Conflict) -> Reason | None:
    """Check whether a relaxed wait of the newer touch's thread has seen the older one without showing it."""
    slot, column, count = _older(found)
    agent, rank = int(found.after.agents[found.row]), slot % wave.clocks.cluster
    for wait in reversed(wave.patterns.waits):
        row = int(np.searchsorted(wait.slots, agent))
        if row == len(wait.slots) or wait.slots[row] != agent or not _is_by(found, wait.threads):
            continue
        seen = wait.far[SEEN, row, rank]
        if column < len(seen) and seen[column] >= count:
            return Reason("too-weak-semantics", Diagnosis("relaxed-wait", line=_line(wait.instruction)))
    return None


def _of_phases(wave: Wave, found: Conflict) -> Reason | None:
    """Check whether the reading thread waited for the writing copy's mbarrier, and saw an earlier phase."""
    copy, reader, lane = found.before, found.after, found.after_lane
    _, column, count = _older(found)
    if found.read_first:
        copy, reader, lane = found.after, found.before, found.before_lane
        column = int(copy.columns[found.after_lane])
        count = int(copy.counts[min(found.row, len(copy.counts) - 1)][found.after_lane])
    channel = wave.clocks.channel(column) if copy.threads is None else None
    if channel is None or channel[0] != "mbarrier" or wave.ends_mbarriers or reader.access == "write":
        return None  # who overwrites bytes waits for no copy
    warps = reader.warps if reader.threads is None else reader.threads[lane : lane + 1] // WARP
    keys = [(channel[1], warp) for warp in (() if warps is None else warps.tolist())]
    seen = [wave.passed[key] for key in keys if key in wave.passed]
    phase = count - 1
    if not seen or seen[0][1] >= phase:
        return None
    wait, over = seen[0]
    line, parity = _line(wait), phase % 2
    if over < 0:
        early = Diagnosis("wait-at-new-mbarrier", line=line, phase=phase, parity=parity)
    else:
        early = Diagnosis("wait-for-earlier-phase", line=line, over=over, phase=phase, parity=parity)
    return Reason(None, early, is_early=True)


def _is_by(found: Conflict, threads: Array) -> bool:
    """Return whether the newer touch may be by one of some threads: those of a copy are not known here."""
    new = found.after
    return new.threads is None or bool(np.isin(new.threads[found.after_lane], threads))


def _of_arrivals(wave: Wave, found: Conflict) -> Reason | None:
    """See whether the older touch's warp arrived after it, and the newer one's lane waited for that, in vain."""
    slot, old = _older(found)[0], found.before
    warp = None if old.threads is None else int(old.threads[found.before_lane]) // WARP
    for arrival in reversed(wave.arrivals.last):
        if arrival.number <= old.when:
            return None
        row = int(np.searchsorted(arrival.slots, slot))
        if arrival.column is None or row == len(arrival.slots) or arrival.slots[row] != slot:
            continue
        lanes = np.flatnonzero(arrival.threads // WARP == warp) if warp is not None else np.arange(1)
        if not len(lanes):
            continue
        at = row, int(lanes[0])
        if _known(wave, found, DONE, int(arrival.of[at]), arrival.column) <= arrival.phases[at]:
            continue
        name, line = arrival.instruction.name, _line(arrival.instruction)
        if scope_of(arrival.instruction) < CLUSTER and arrival.of[at] != arrival.slots[at[0]]:
            return Reason("too-narrow-scope", Diagnosis("arrival-of-one-cta", line=line, arrival=name))
        if arrival.is_relaxed:
            return Reason("too-weak-semantics", Diagnosis("relaxed-arrival", line=line))
    return None


def _of_flags(wave: Wave, flags: Flags, found: Conflict) -> Reason | None:
    """See whether a flag was raised after the older touch, and found by the newer one's CTA, that shows nothing."""
    slot, column, count = _older(found)
    blocks, size = wave.residents.blocks, wave.clocks.cluster
    before = ThreadProgress((flags.launch, int(blocks[slot // size * size])), slot % size, column, count)
    why = flags.too_weak(before, int(blocks[found.after.agents[found.row]]))
    return None if why is None else Reason("too-weak-semantics", why)


def _of_places(wave: Wave, code: Sequence[Instruction], found: Conflict) -> Reason | None:
    """See whether one of both comes just after an arrival that the other waited for, and that says nothing of it."""
    old, new = found.before, found.after
    at_old, at_new = _older(found)[0], int(new.agents[found.row])
    clocks, rank = wave.clocks, at_new % wave.clocks.cluster

    def of_newer(thread: int) -> int:
        return _known(wave, found, DONE, at_old, thread)

    def of_older(thread: int) -> int:
        # What is known now to who came first; if that is a copy, to whoever may have issued it.
        if old.threads is None:
            return int(clocks.best_of(at_old, rank)[thread])
        at = np.array([at_old]), old.threads[found.before_lane : found.before_lane + 1]
        return int(clocks.held(DONE, *at, np.array([rank]), np.array([thread]))[0])

    return _comes_late(wave, code, old, at_old, found.before_lane, of_newer) or _comes_late(
        wave, code, new, at_new, found.after_lane, of_older
    )


def _comes_late(
    wave: Wave, code: Sequence[Instruction], touch: AccessRecord, slot: int, lane: int, known: Callable[[int], int]
) -> Reason | None:
    """See whether a touch comes just after an arrival of its warp, the last one that is known to the other side."""
    if touch.threads is None:
        return None
    warp = int(touch.threads[lane]) // WARP
    for arrival in reversed(wave.arrivals.last):
        for thread in arrival.threads[arrival.threads // WARP == warp].tolist():
            at = arrival.lane(slot, thread)
            if at is None or arrival.is_relaxed or known(thread) != arrival.counts[at]:
                continue
            if not _stands_before(arrival.instruction, touch.instruction, code):
                return None
            access, line = "write" if touch.writes else "read", _line(arrival.instruction)
            return Reason(None, Diagnosis("access-after-arrival", line=line, access=access))
    return None


def _stands_before(arrival: Instruction, access: Instruction, code: Sequence[Instruction]) -> bool:
    """Return whether an arrival comes before an access in the code, with no wait between, and none comes after."""
    if arrival.index > access.index or any(map(_waits, code[arrival.index : access.index])):
        return False
    for i in code[access.index :]:
        if _waits(i) or _ends(i):
            return True
        if _arrives(i):
            return False
    return True


def _waits(i: Instruction) -> bool:
    is_wait = i.traits.barrier in ("named", "cluster") and not i.traits.arrives
    return is_wait or i.traits.tries or i.traits.kind == "wgmma"


def _arrives(i: Instruction) -> bool:
    return i.traits.kind == "barrier" and i.traits.arrives


def _ends(i: Instruction) -> bool:
    """Return whether the code goes on elsewhere: it ends, or begins a round anew."""
    targets = [place.target for place in i.operands if isinstance(place, Label)]
    return "ends" in i.traits.qualities or (i.traits.branches and any(target <= i.index for target in targets))


def _line(i: Instruction) -> str:
    """Name the line of an instruction, and the nearest one that called it."""
    side = Side("", "", i)
    return side.line + "".join(f", called at {caller}," for caller in side.callers[:1])
