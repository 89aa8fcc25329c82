"""Near misses of two accesses that nothing orders: arrivals and waits that look as if they did.

An arrival may stand before the wait for what it should report, another thread may have waited, or a thread may wait
for groups of which it has none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.machine.lanes import WARP, WARPGROUP
from cutepy.sim.ptx.model import Immediate
from cutepy.sim.sanitize.hazards import NearMiss, Side
from cutepy.sim.sanitize.order.clocks import DONE
from cutepy.sim.sanitize.order.wave import BULK, COPIES, GROUP, MMAS

if TYPE_CHECKING:
    from cutepy.sim.machine.lanes import Array
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.sanitize.memory.touch import Conflict
    from cutepy.sim.sanitize.order.wave import Wave

_NAMES = {
    BULK: "bulk groups are each thread's own",
    COPIES: "groups of copies are each thread's own",
    MMAS: "groups of MMAs are each warpgroup's own",
}


def near_misses(wave: Wave, found: Conflict) -> tuple[NearMiss, ...]:
    """Return the near misses of two touches that nothing orders."""
    if found.lacks == "fence" or found.before is found.after:
        return ()
    row = min(int(np.searchsorted(found.before.slots, found.after.slots[found.row])), len(found.before.counts) - 1)
    old, slot = found.before, int(found.before.agents[row])
    column, count = int(old.columns[found.before_lane]), int(old.counts[row][found.before_lane])
    kind, issuers = issuers_of(wave, column)
    idle = [*nothing_to_wait_for(wave, kind, slot, issuers), *_left(wave, kind, slot, issuers, count)] if kind else []
    early = [*_released_early(wave, found, slot, issuers)] if kind else []
    return tuple((early or idle or [*_waited_elsewhere(wave, found, slot, column, count)])[:2])


OF_ITS_OWN = "give each group of threads a named barrier of its own"


def groups_of_one_barrier(wave: Wave, kind: str, where: str, before: Side | None, after: Side) -> tuple[NearMiss, ...]:
    """Return the other use of a named barrier where two groups mix, each of which is as many as it expects."""
    if kind != "mixed-generation" or before is None or before.instruction is None or after.instruction is None:
        return ()
    came = [wave.came.get((where, side.instruction.index), set()) for side in (before, after) if side.instruction]
    if before.instruction is after.instruction or not came[0].isdisjoint(came[1]):
        return ()
    if any(_count(side.instruction) != len(warps) * WARP for side, warps in zip((before, after), came, strict=True)):
        return ()
    return (NearMiss("shared-barrier", "both groups come to this barrier, and each is as many as it expects", before),)


def _count(i: Instruction | None) -> int:
    """Return how many threads an instruction lets a named barrier expect; 0 for all, or if it is in a register."""
    counts = [x.value for x in (() if i is None else i.operands[1:]) if isinstance(x, Immediate)]
    return counts[0] if counts else 0


def issuers_of(wave: Wave, column: int) -> tuple[str, Array]:
    """Return what kind of groups a column counts, and the threads whose they are; "" if it counts none."""
    channel = wave.clocks.channel(column)
    if channel is None or channel[0] not in _NAMES:
        return "", np.zeros(0, np.intp)
    if channel[0] == MMAS:
        return MMAS, np.arange(WARPGROUP) + WARPGROUP * int(channel[1])
    return str(channel[0]), np.array([int(channel[-1])])


def issuers_at(side: Side, kind: str) -> Array:
    """Return the threads whose groups of a kind an operation is in, if its lane is known."""
    if side.warp is None or side.lane is None:
        return np.zeros(0, np.intp)
    thread = side.warp * WARP + side.lane
    return np.array([thread]) if kind != MMAS else np.arange(WARPGROUP) + thread // WARPGROUP * WARPGROUP


def nothing_to_wait_for(wave: Wave, kind: str, slot: int, issuers: Array) -> Iterator[NearMiss]:
    """Yield waits for groups by threads of a CTA that have closed none so far: first of those who issued something."""
    for of, i, slots, threads in wave.idle.values():
        none = threads[wave.closed[of][slot, threads] == 0]
        never = none[np.isin(none, issuers)]
        if of == kind and slot in slots and len(never):
            why = "this thread has issued an operation, and committed no group: the commit is missing"
            yield NearMiss("never-committed", why, _side(wave, i, slot, int(never[0])))
        elif of == kind and slot in slots and len(none):
            why = f"{_NAMES[kind]}, and this thread has none"
            yield NearMiss("nothing-to-wait-for", why, _side(wave, i, slot, int(none[0])))


def _left(wave: Wave, kind: str, slot: int, issuers: Array, count: int) -> Iterator[NearMiss]:
    """Yield the issuer's last wait for groups, if a wait for all of them would have ended the older operation."""
    for thread in issuers[:1].tolist():
        i, left, closed = wave.left.get((kind, thread), (None, 0, None))
        if i is not None and closed is not None and closed[slot] - left * GROUP < count <= closed[slot]:
            groups = "the latest group" if left == 1 else f"the latest {left} groups"
            why = f"it leaves {groups} in flight, and this operation with them"
            yield NearMiss("leaves-groups", why, _side(wave, i, slot, thread))


def _released_early(wave: Wave, found: Conflict, slot: int, issuers: Array) -> Iterator[NearMiss]:
    """Yield the last arrival of those who issued the older operation, of which the newer one knows."""
    for arrival in reversed(wave.arrivals.last):
        if arrival.number <= found.before.when:
            return
        row = int(np.searchsorted(arrival.slots, slot))
        if row == len(arrival.slots) or arrival.slots[row] != slot or arrival.column is None:
            continue
        for lane in np.flatnonzero(np.isin(arrival.threads, issuers)).tolist():
            of = int(arrival.of[row, lane])
            if _knows(wave, found, of, arrival.column) > arrival.phases[row, lane]:
                what = "MMAs" if found.before.instruction.parts[0] == "wgmma" else "copy"
                why = f"it says that the bytes are free, and stands before the wait for the {what}"
                yield NearMiss("early-release", why, _side(wave, arrival.instruction, slot, int(arrival.threads[lane])))
                return


def _knows(wave: Wave, found: Conflict, slot: int, column: int) -> int:
    """Return what the newer touch's lane knows of a column of a CTA in its cluster."""
    new = found.after
    held = new.view.known[DONE, found.row, new.row_of[found.after_lane], slot % wave.clocks.cluster]
    return int(held[column]) if column < len(held) else 0


def _waited_elsewhere(wave: Wave, found: Conflict, slot: int, column: int, count: int) -> Iterator[NearMiss]:
    """Yield the wait of another thread of the newer touch's CTA, which knows that the older one is over."""
    new, agent = found.after, int(found.after.agents[found.row])
    channel = wave.clocks.channel(column)
    if channel is None or new.threads is None or agent // wave.clocks.cluster != slot // wave.clocks.cluster:
        return
    thread = int(new.threads[found.after_lane])
    waits = _waits(wave, channel)
    for other, i in waits:
        at = np.array([agent]), np.array([other])
        held = int(wave.clocks.held(DONE, *at, np.array([slot % wave.clocks.cluster]), np.array([column]))[0])
        if held >= count and other // WARP != thread // WARP:
            why = f"nothing orders warp {thread // WARP} after this wait: a barrier must come behind it"
            yield NearMiss("no-barrier-behind", why, _side(wave, i, agent, other))
            return


def _waits(wave: Wave, channel: tuple[object, ...]) -> list[tuple[int, Instruction]]:
    """List the threads that have waited for what a channel counts, the first of each warp, and where."""
    if channel[0] == "mbarrier":
        return [(warp * WARP, i) for (address, warp), (i, _) in wave.passed.items() if address == channel[1]]
    return [(thread, i) for (kind, thread), i in wave.waited.items() if kind == channel[0]]


def _side(wave: Wave, i: Instruction, slot: int, thread: int) -> Side:
    cta = wave.residents.coordinate(slot)
    warp, lane = divmod(thread, WARP)
    return Side(
        ".".join(i.parts[: 4 if i.parts[0] == "cp" else 2]),
        f"warp {warp}, lane {lane} of CTA {cta}",
        i,
        cta,
        warp,
        lane,
    )
