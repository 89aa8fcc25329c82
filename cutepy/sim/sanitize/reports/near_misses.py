"""Near misses of two unordered accesses: arrivals, waits and fences that look as if they ordered them.

Each function reads the last steps of both sides, the first that tells of the older access and the last before the newer
one, and yields why these do not meet. It yields nothing where a step may have been for something else.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cutepy.sim.advice import Diagnosis
from cutepy.sim.machine.events import Barrier, ClusterWait, Fence, MbarrierAt, NamedBarrier, NamedBarrierJoin, WarpSync
from cutepy.sim.machine.lanes import WARP, WARPGROUP, listed
from cutepy.sim.ptx.barrier_names import barrier_name
from cutepy.sim.ptx.memory_order import fenced_spaces
from cutepy.sim.ptx.model import Immediate
from cutepy.sim.sanitize.hazards import NearMiss, Side
from cutepy.sim.sanitize.kinds import RACES
from cutepy.sim.sanitize.order.clocks import DONE, FENCED
from cutepy.sim.sanitize.order.wave import BULK, COPIES, GROUP, MMAS

if TYPE_CHECKING:
    from cutepy.sim.machine.lanes import Array
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.sanitize.memory.access_record import AccessRecord, Conflict
    from cutepy.sim.sanitize.memory.global_access_record import GlobalAccessRecord, GlobalConflict
    from cutepy.sim.sanitize.order.last_steps import Step
    from cutepy.sim.sanitize.order.wave import Wave

_MOST = 2
"""Near misses that are told of two accesses."""
_GROUPS = (BULK, COPIES, MMAS)
"""Channels that count groups: of bulk copies and of copies each thread's own, of MMAs each warpgroup's own."""


class _Actor(NamedTuple):
    """The threads of a CTA that accessed memory, or issued the copy that did.

    Attributes
    ----------
    slot : int
    threads : array of int
        The lane that is told, or all threads that issue an MMA.
    number : int
        Number of earlier steps of synchronisation.
    every : array of int
        All threads of the CTA that executed the instruction.
    is_async : bool
        True if the async proxy accessed memory for them.
    """

    slot: int
    threads: Array
    number: int
    every: Array
    is_async: bool

    @property
    def warp(self) -> int:
        """The first of their warps."""
        return int(self.threads[0]) // WARP


class _Pair(NamedTuple):
    """Two accesses that nothing orders: by whom they are, and the column and count that tell that the older is over.

    Attributes
    ----------
    older, newer : _Actor
    at : int
        The CTA in whose columns the older one counts.
    column, over : int
        Column that counts it, and the count by which it is over.
    space : "shared" or "global"
    overwrites : bool
        True if the newer one writes.
    is_of_writes : bool
        True if both do.
    """

    older: _Actor
    newer: _Actor
    at: int
    column: int
    over: int
    space: str
    overwrites: bool
    is_of_writes: bool

    def knows(self, wave: Wave, slot: int, threads: Array, plane: int = DONE) -> Array:
        """Tell which threads of a CTA know now that the older access is over, or know it in another plane."""
        size = wave.clocks.cluster
        if slot // size != self.at // size:
            return np.zeros(len(threads), bool)
        slots, ranks, columns = (np.full(len(threads), n) for n in (slot, self.at % size, self.column))
        found: Array = wave.clocks.held(plane, slots, threads, ranks, columns) >= self.over
        return found


def near_misses(wave: Wave, found: Conflict) -> tuple[NearMiss, ...]:
    """Return the near misses of two touches of shared memory that nothing orders."""
    old, new = found.before, found.after
    if old is new:
        return ()
    if found.read_first:
        return _first([_waits_for_another(wave, _reversed(found))])
    pair = _pair_of(found)
    if found.lacks == "fence":
        return _first([_fences(wave, pair)])
    early = tuple(_released_early(wave, found, pair)) or tuple(_overwrites_freed(wave, pair))
    return early or _of_groups(wave, pair) or _first(_misses(wave, pair))


def global_near_misses(wave: Wave, found: GlobalConflict) -> tuple[NearMiss, ...]:
    """Return the near misses of two touches of global memory by CTAs that are resident together."""
    old, new = found.before, found.after
    is_of_fences = found.kind in ("missing-proxy-fence", "unfenced-overwrite")
    if old is new or old.launch != new.launch or not (is_of_fences or found.kind in RACES):
        return ()
    older, newer = _global_actor(wave, old, found.before_lane), _global_actor(wave, new, found.after_lane)
    if older is None or newer is None:
        return ()
    row, lane = divmod(found.before_lane, old.lanes)
    shape, size = (len(old.ctas), old.lanes), wave.clocks.cluster
    column, count = (int(np.broadcast_to(x, shape)[row, lane]) for x in (old.columns, old.counts))
    at = older.slot // size * size + int(old.ranks[row])
    pair = _Pair(older, newer, at, column, count, "global", new.writes, old.writes and new.writes)
    if is_of_fences:
        return _first([_fences(wave, pair)])
    return _of_groups(wave, pair) or _first(_misses(wave, pair))


def _first(found: list[Iterator[NearMiss]]) -> tuple[NearMiss, ...]:
    return tuple(islice(chain(*found), _MOST))


def _of_groups(wave: Wave, pair: _Pair) -> tuple[NearMiss, ...]:
    """Return waits for groups that are none for that of the older access."""
    kind, issuers = issuers_of(wave, pair.column)
    if not kind:
        return ()
    short = falls_short(wave, pair.column, pair.at, pair.over, pair.older.number)
    own = waits_for_its_own(wave, kind, pair.at, issuers, pair.older.number)
    return _first([nothing_to_wait_for(wave, kind, pair.at, issuers), short]) or _first([own])


def _misses(wave: Wave, pair: _Pair) -> list[Iterator[NearMiss]]:
    """List the near misses to report where any order is missing, the surest first."""
    return [
        _waited_elsewhere(wave, pair),
        _waits_for_another(wave, pair),
        _only_arrives(wave, pair),
        _arrives_elsewhere(wave, pair),
        _meets_too_few(wave, pair),
    ]


def _pair_of(found: Conflict) -> _Pair:
    old, new = found.before, found.after
    row = _row(found)
    count = int(old.counts[min(row, len(old.counts) - 1)][found.before_lane])
    sides = _actor(old, row, found.before_lane), _actor(new, found.row, found.after_lane)
    return _Pair(
        *sides,
        int(old.agents[row]),
        int(old.columns[found.before_lane]),
        count,
        "shared",
        new.writes,
        old.writes and new.writes,
    )


def _reversed(found: Conflict) -> _Pair:
    """Return a write and the read that came before it, which should have come after."""
    old, new = found.before, found.after
    count = int(new.counts[min(found.row, len(new.counts) - 1)][found.after_lane])
    sides = _actor(new, found.row, found.after_lane), _actor(old, _row(found), found.before_lane)
    return _Pair(*sides, int(new.agents[found.row]), int(new.columns[found.after_lane]), count, "shared", False, False)


def _row(found: Conflict) -> int:
    """Return the position, in the older touch, of the CTA whose memory it is."""
    return int(np.searchsorted(found.before.slots, found.after.slots[found.row]))


def _actor(touch: AccessRecord, row: int, lane: int) -> _Actor:
    if touch.threads is not None:
        return _Actor(int(touch.agents[row]), touch.threads[lane : lane + 1], touch.when, touch.threads, False)
    assert touch.issue is not None
    slots, threads, number = touch.issue
    if len(touch.row_of) > 1:
        threads = threads[lane : lane + 1]
    return _Actor(int(slots[row]), threads, number, threads, True)


def _global_actor(wave: Wave, touch: GlobalAccessRecord, lane: int) -> _Actor | None:
    """Return the thread or copy that touched global memory; None if that is unknown, or has ended."""
    row, column = divmod(lane, touch.lanes)
    slot = int(touch.slots[row])
    if slot >= len(wave.residents.blocks) or wave.residents.blocks[slot] != touch.ctas[row]:
        return None
    if touch.threads is not None:
        return _Actor(slot, touch.threads[column : column + 1], touch.when, touch.threads, False)
    if touch.issuers is None:
        return None
    threads = touch.issuers[column : column + 1]
    return _Actor(slot, threads, touch.when, threads, True)


def groups_of_one_barrier(
    wave: Wave, kind: str, where: object, before: Side | None, after: Side
) -> tuple[NearMiss, ...]:
    """Return the other use of a named barrier where two groups mix, each of which is as many as it expects."""
    if not isinstance(where, NamedBarrier):
        return ()
    if kind != "mixed-generation" or before is None or before.instruction is None or after.instruction is None:
        return ()
    came = [wave.came.get((where, side.instruction.index), set()) for side in (before, after) if side.instruction]
    if before.instruction is after.instruction or not came[0].isdisjoint(came[1]):
        return ()
    if any(_count(side.instruction) != len(warps) * WARP for side, warps in zip((before, after), came, strict=True)):
        return ()
    first, others = (listed("warp", warps) for warps in came)
    threads, others_threads = (len(warps) * WARP for warps in came)
    why = Diagnosis(
        "two-groups-at-one-barrier", first=first, threads=threads, others=others, others_threads=others_threads
    )
    return (NearMiss("shared-barrier", why, before),)


def _count(i: Instruction | None) -> int:
    """Return how many threads an instruction lets a named barrier expect; 0 for all, or if it is in a register."""
    counts = [x.value for x in (() if i is None else i.operands[1:]) if isinstance(x, Immediate)]
    return counts[0] if counts else 0


def issuers_of(wave: Wave, column: int) -> tuple[str, Array]:
    """Return the kind of groups that a column counts, and the threads that own them; "" if it counts none."""
    channel = wave.clocks.channel(column)
    if channel is None or channel[0] not in _GROUPS:
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
    """Yield waits for groups by threads of a CTA that have closed none so far: first of those that issued something."""
    for of, i, slots, threads in wave.idle.values():
        none = threads[wave.closed[of][slot, threads] == 0]
        never = none[np.isin(none, issuers)]
        if of == kind and slot in slots and len(never):
            why = Diagnosis("no-commit")
            yield NearMiss("never-committed", why, _side(wave, i, slot, int(never[0])))
        elif of == kind and slot in slots and len(none):
            why = Diagnosis(
                "no-bulk-group" if kind == BULK else "no-group-of-copies" if kind == COPIES else "no-group-of-mmas"
            )
            yield NearMiss("nothing-to-wait-for", why, _side(wave, i, slot, int(none[0])))


def falls_short(wave: Wave, column: int, slot: int, over: int, issued: int) -> Iterator[NearMiss]:
    """Yield the last wait for groups of the thread that issued an operation, if it does not wait for that.

    Parameters
    ----------
    wave : Wave
    column, over : int
        Column that counts the operation, and the count by which it is complete.
    slot : int
        The CTA that issued it.
    issued : int
        Number of earlier steps.
    """
    kind, issuers = issuers_of(wave, column)
    wait = wave.waits.get((kind, int(issuers[0]))) if kind else None
    if wait is None or slot not in wait.slots or wait.number <= issued:
        return
    thread, channel = int(issuers[0]), wave.clocks.channel(column)
    side = _side(wave, wait.instruction, slot, thread)
    closed = int(wait.closed[wait.slots == slot, wait.threads == thread][0])
    if over > closed:
        if wave.closed[kind][slot, thread] >= over:
            yield NearMiss("late-commit", Diagnosis("commit-behind-wait"), side)
        elif closed:
            yield NearMiss("never-committed", Diagnosis("commit-before-operation"), side)
    elif over > closed - wait.left * GROUP:
        yield NearMiss("leaves-groups", left_in_flight(wait.left), side)
    elif wait.is_of_reads and channel is not None and channel[1] == "write":
        yield NearMiss("reads-only", Diagnosis("waits-for-the-source"), side)


def left_in_flight(groups: int) -> Diagnosis:
    """Diagnose a wait that leaves the youngest groups in flight, with the operation in one of these groups."""
    return Diagnosis("leaves-many-groups", left=groups) if groups > 1 else Diagnosis("leaves-one-group")


def waits_for_its_own(wave: Wave, kind: str, slot: int, issuers: Array, issued: int) -> Iterator[NearMiss]:
    """Yield the last wait for groups behind an operation that is not by the thread whose group it is in.

    Nothing is yielded where that thread has waited too, or other warps than that thread's wait for MMAs, as they must.

    Parameters
    ----------
    wave : Wave
    kind : str
        BULK or COPIES.
    slot : int
        The CTA that issued the operation.
    issuers : array of int
        The thread that did.
    issued : int
        Number of earlier steps.
    """
    if kind == MMAS or not len(issuers):
        return
    issuer = int(issuers[0])
    own = wave.waits.get((kind, issuer))
    if own is not None and slot in own.slots and own.number > issued:
        return
    waits = [
        (wait.number, thread, wait)
        for (of, thread), wait in wave.waits.items()
        if of == kind and slot in wait.slots and wait.number > issued
    ]
    if waits:
        _, thread, wait = max(waits, key=lambda found: (found[0], -found[1]))
        waiter, owner = (f"thread {n}" for n in (thread, issuer))
        why = Diagnosis("waits-for-own-groups", waiter=waiter, issuer=owner)
        yield NearMiss("others-groups", why, _side(wave, wait.instruction, slot, thread))


def beside_the_end(wave: Wave, kind: str, slot: int, before: Side) -> tuple[NearMiss, ...]:
    """Return the wait that looks as if it ended the operations in flight at the end of a CTA."""
    issuers = issuers_at(before, kind)
    found = [nothing_to_wait_for(wave, kind, slot, issuers)]
    if kind in wave.issues and len(issuers):
        thread = int(issuers[0])
        column = wave.clocks.known_column((BULK, "read", thread) if kind == BULK else (COPIES, thread))
        over = 0
        if kind == COPIES:
            over = int(wave.copied.counts[slot, thread])
        elif column in wave.last:
            over = int(wave.last[column][1][slot])
        if column is not None and over:
            found.append(falls_short(wave, column, slot, over, int(wave.issues[kind][slot, thread])))
    found.append(
        waits_for_its_own(wave, kind, slot, issuers, int(wave.issues[kind][slot, int(issuers[0])]))
        if kind in wave.issues and len(issuers)
        else iter(())
    )
    return tuple(islice(chain(*found), 1))


def _released_early(wave: Wave, found: Conflict, pair: _Pair) -> Iterator[NearMiss]:
    """Yield the last arrival of the older operation's issuers, if the newer one has waited for it.

    It stands before the wait for that operation. Where a copy fills bytes anew, it may stand before the operation too,
    and behind the wait for the last fill.
    """
    kind, issuers = issuers_of(wave, pair.column)
    if not pair.older.is_async and not kind:
        issuers = pair.older.warp * WARP + np.arange(WARP)  # one of which arrives for all
    last, issued = _last_wait(wave, pair.newer), found.before.when
    filled = _last_fill(wave, found, pair, issuers)
    for arrival in reversed(wave.arrivals.last):
        is_behind = arrival.number > issued
        if is_behind and not kind:
            continue  # it orders what threads themselves did before
        if not is_behind and (last is None or arrival.number < filled):
            return
        row = int(np.searchsorted(arrival.slots, pair.at))
        if row == len(arrival.slots) or arrival.slots[row] != pair.at or arrival.column is None:
            continue
        for lane in np.flatnonzero(np.isin(arrival.threads, issuers)).tolist():
            of, phase = int(arrival.of[row, lane]), int(arrival.phases[row, lane])
            awaited = last and (wave.clocks.known_column(("mbarrier", last.address)), last.slot)
            if awaited not in (None, (arrival.column, of)) or _knows(wave, found, of, arrival.column) <= phase:
                continue
            side = _side(wave, arrival.instruction, pair.at, int(arrival.threads[lane]))
            if is_behind:
                if kind == MMAS:
                    why = Diagnosis("free-before-mmas-end")
                else:
                    why = Diagnosis("filled-before-copy-ends" if found.before.writes else "free-before-copy-ends")
                yield NearMiss("early-release", why, side)
            elif last is not None and last.phase == phase:
                use = _USES.get(kind, f"the access that {'writes' if found.before.writes else 'reads'} them")
                yield NearMiss("release-before-use", Diagnosis("free-before-use", use=use), side)
            return


def _overwrites_freed(wave: Wave, pair: _Pair) -> Iterator[NearMiss]:
    """Yield the arrival by which a writing thread freed the bytes, if the thread that refills them waited for it."""
    newer, last = pair.newer, _last_wait(wave, pair.older) if pair.older.is_async else None
    if last is None or newer.is_async or not pair.is_of_writes:
        return
    for step in wave.steps.back(newer.number):
        threads = step.by(newer.slot, newer.warp * WARP + np.arange(WARP)) if step.is_release else newer.threads[:0]
        if len(threads) and step.object(newer.slot, int(threads[0])) == (MbarrierAt(last.address), last.slot):
            if step.phase(newer.slot, int(threads[0])) == last.phase:
                why = Diagnosis("free-before-write")
                yield NearMiss("release-before-use", why, _side(wave, step.instruction, newer.slot, int(threads[0])))
            return


_USES = {MMAS: "the MMAs that read them", BULK: "the copy that reads them"}


class _Wait(NamedTuple):
    """A wait at an mbarrier: its address, the CTA that has it, and the phase that was over."""

    address: int
    slot: int
    phase: int


def _last_wait(wave: Wave, actor: _Actor) -> _Wait | None:
    """Return the last wait at an mbarrier of threads before an access; None if there is none."""
    for step in wave.steps.back(actor.number):
        here = step.by(actor.slot, actor.threads) if step.is_wait else actor.threads[:0]
        if len(here):
            barrier, slot = step.object(actor.slot, int(here[0]))
            assert isinstance(barrier, MbarrierAt)
            return _Wait(barrier.address, slot, step.phase(actor.slot, int(here[0])))
    return None


def _last_fill(wave: Wave, found: Conflict, pair: _Pair, issuers: Array) -> int:
    """Return the step by which issuers saw the last fill of bytes that a copy fills anew; their operation's if none."""
    channel = wave.clocks.channel(int(found.after.columns[found.after_lane])) if pair.newer.is_async else None
    if channel is not None and channel[0] == "mbarrier":
        full = MbarrierAt(int(channel[1]))
        for step in wave.steps.back(found.before.when):
            if step.is_wait and step.barrier == full and len(step.by(pair.at, issuers)):
                return step.number
    return found.before.when


def _knows(wave: Wave, found: Conflict, slot: int, column: int) -> int:
    """Return the newer touch's lane's knowledge of a column of a CTA in its cluster."""
    new = found.after
    held = new.view.known[DONE, found.row, new.row_of[found.after_lane], slot % wave.clocks.cluster]
    return int(held[column]) if column < len(held) else 0


def _waited_elsewhere(wave: Wave, pair: _Pair) -> Iterator[NearMiss]:
    """Yield the wait of another thread of the newer access's CTA, which knows by it that the older one is over."""
    newer = pair.newer
    unaware = newer.threads[~pair.knows(wave, newer.slot, newer.threads)]
    if not len(unaware) or newer.slot // wave.clocks.cluster != pair.at // wave.clocks.cluster:
        return
    steps = [step for step in wave.steps.back(newer.number, pair.older.number) if _shows(wave, pair, step)]
    for step in steps:
        aware = step.by(newer.slot, step.threads)
        aware = aware[pair.knows(wave, newer.slot, aware) & ~np.isin(aware, unaware)]
        if not len(aware):
            continue
        thread, other = int(aware[0]), int(unaware[0])
        behind = wave.steps.between(step.number, newer.number)
        told = [s for s in behind if s.is_release and len(s.by(newer.slot, aware[:1]))]
        if thread // WARP != other // WARP and not all(_is_for_others(wave, pair, s) for s in told):
            return  # it has told them
        every = np.concatenate([s.by(newer.slot, s.threads) for s in steps])
        waited = {*(every[pair.knows(wave, newer.slot, every)] // WARP).tolist()}
        readers = newer.threads if newer.is_async else newer.every
        if waited.issuperset((readers // WARP).tolist()):
            why = Diagnosis("lane-not-after-wait", lane=other % WARP, warp=other // WARP)
        else:
            warp = next(each for each in (other // WARP, *(readers // WARP).tolist()) if each not in waited)
            why = Diagnosis("warp-not-after-wait", warp=warp)
        yield NearMiss("no-barrier-behind", why, _side(wave, step.instruction, newer.slot, thread))
        if other // WARP != thread // WARP:
            yield from _meets_its_warp(wave, step, newer.slot, thread, other)
        return


def _meets_its_warp(wave: Wave, wait: Step, slot: int, thread: int, other: int) -> Iterator[NearMiss]:
    """Yield the bar.warp.sync behind a wait of a thread that another warp should have heard of."""
    for step in wave.steps.between(wait.number, wave.steps.number):
        if step.kind is WarpSync and len(step.by(slot, np.array([thread]))):
            yield _of_a_warp(wave, step, slot, thread, other)
            return


def _shows(wave: Wave, pair: _Pair, step: Step) -> bool:
    """Return whether a step is a wait that may show the older access: of its own barrier or group, or its thread's."""
    channel = wave.clocks.channel(pair.column)
    if channel is not None and channel[0] == "mbarrier":
        return step.is_wait and step.barrier == MbarrierAt(int(channel[1]))
    if channel is not None and channel[0] in _GROUPS:
        if channel[0] == COPIES and step.is_wait:
            return True  # mbarriers track copies too
        return bool(step.groups == channel[0])
    if pair.older.is_async or not step.is_wait:
        return False
    return any(step.barrier == other.barrier and other.number < step.number for other in _releases(wave, pair))


def _releases(wave: Wave, pair: _Pair) -> list[Step]:
    """List the releases by the threads of the older access, after that access."""
    older = pair.older
    steps = wave.steps.between(older.number, wave.steps.number)
    return [step for step in steps if step.is_release and len(step.by(older.slot, older.threads))]


def _announces(step: Step) -> bool:
    """Return whether an arrival announces bytes, which is its purpose then."""
    return step.instruction.traits.announces_bytes


def _is_for_others(wave: Wave, pair: _Pair, arrival: Step) -> bool:
    """Return whether an arrival is for others than the newer access's threads, as that which frees a stage of a ring.

    Others wait at that mbarrier then, and none of them arrives there.
    """
    if not isinstance(arrival.barrier, MbarrierAt):
        return False
    steps = [step for step in wave.steps.between(0, wave.steps.number) if step.barrier == arrival.barrier]
    waits = {warp for step in steps if step.is_wait for warp in (step.threads // WARP).tolist()}
    arrives = {warp for step in steps if step.is_release for warp in (step.threads // WARP).tolist()}
    return bool(waits) and waits.isdisjoint(arrives) and waits.isdisjoint((pair.newer.every // WARP).tolist())


def _waits_for_another(wave: Wave, pair: _Pair) -> Iterator[NearMiss]:
    """Yield a wait before the newer access that is for another mbarrier than the one that counts a copy's bytes."""
    channel, newer = wave.clocks.channel(pair.column), pair.newer
    if channel is None or channel[0] != "mbarrier" or not pair.older.is_async or pair.overwrites:
        return  # who overwrites bytes waits for those who read them
    own, at = MbarrierAt(int(channel[1])), pair.at
    is_late = pair.older.number > newer.number  # the copy is issued behind the access
    is_met = False
    for step in wave.steps.back(newer.number, 0 if is_late else pair.older.number):
        here = step.by(newer.slot, newer.threads)
        if step.is_wait:
            those = here if len(here) or not is_met else _heard_of(wave, pair, step)
            if len(those):
                thread = int(those[0])
                if step.object(newer.slot, thread) != (own, at):
                    why = Diagnosis("wait-for-other-bytes", wait=_name(wave, step.barrier), bytes=_name(wave, own))
                    yield NearMiss("other-barrier", why, _side(wave, step.instruction, newer.slot, thread))
                return
        elif step.is_acquire and len(here):
            if step.kind is ClusterWait or is_met or is_late:
                return
            is_met = True


def _heard_of(wave: Wave, pair: _Pair, step: Step) -> Array:
    """Return the threads of the newer access's CTA that took a wait of which that knows."""
    clocks, newer = wave.clocks, pair.newer
    threads = step.by(newer.slot, step.threads)
    slots, rank = np.full(len(threads), newer.slot), np.full(len(threads), newer.slot % clocks.cluster)
    ended = clocks.counts(np.array([newer.slot]), clocks.ends(threads))[0] if len(threads) else threads
    held = clocks.held(DONE, slots, np.full(len(threads), newer.threads[0]), rank, clocks.ends(threads))
    found: Array = threads[held >= ended]
    return found


def _only_arrives(wave: Wave, pair: _Pair) -> Iterator[NearMiss]:
    """Yield the newer access's arrival at the barrier at which the older one's threads arrive, if it waits for none."""
    older, newer = pair.older, pair.newer
    if older.is_async and not pair.knows(wave, older.slot, older.threads).any():
        return
    for step in wave.steps.back(newer.number, older.number):
        here = step.by(newer.slot, newer.threads)
        if not len(here) or not (step.is_release or step.is_acquire):
            continue
        if step.is_acquire and not _leaves_at_once(step):
            return
        if step.is_release and not _announces(step):
            if _is_for_others(wave, pair, step):
                continue
            at = step.object(newer.slot, int(here[0]))
            if at in _come(wave, pair):
                assert step.barrier is not None
                why = Diagnosis("arrives-and-goes-on", instruction=step.barrier.wait)
                yield NearMiss("arrives-only", why, _side(wave, step.instruction, newer.slot, int(here[0])))
            return


def _leaves_at_once(step: Step) -> bool:
    """Return whether threads came by `bar.arrive`, of which a meeting tells too."""
    return step.is_meeting and step.instruction.traits.arrives


def _come(wave: Wave, pair: _Pair) -> set[tuple[Barrier | None, int]]:
    """Return the barriers at which the older access's threads arrive behind it."""
    older = pair.older
    return {
        step.object(older.slot, int(step.by(older.slot, older.threads)[0]))
        for step in _releases(wave, pair)
        if not _announces(step)
    }


def _arrives_elsewhere(wave: Wave, pair: _Pair) -> Iterator[NearMiss]:
    """Yield an arrival behind the older access, and a wait before the newer one, where these are at two barriers."""
    older, newer = pair.older, pair.newer
    channel = wave.clocks.channel(pair.column)
    if (channel is not None and channel[0] == "mbarrier") or pair.is_of_writes:
        return  # no arrival tells of these bytes; who writes again waits for those who read
    acquire = next(
        (
            step
            for step in wave.steps.back(newer.number, older.number)
            if step.is_acquire and len(step.by(newer.slot, newer.threads))
        ),
        None,
    )
    releases = [step for step in _releases(wave, pair) if not (_announces(step) or _is_for_others(wave, pair, step))]
    if acquire is None or not releases:
        return
    release, waits = releases[0], int(acquire.by(newer.slot, newer.threads)[0])
    arrives = int(release.by(older.slot, older.threads)[0])
    if type(release.barrier) is not type(acquire.barrier):
        return
    is_of_mbarriers, is_named = (isinstance(release.barrier, kind) for kind in (MbarrierAt, NamedBarrier))
    if not (is_of_mbarriers or (is_named and older.slot == newer.slot)):
        return
    to, of = release.object(older.slot, arrives), acquire.object(newer.slot, waits)
    if to == of:
        if is_of_mbarriers and not wave.ends_mbarriers:
            over, phase = acquire.phase(newer.slot, waits), release.phase(older.slot, arrives)
            if over < phase:
                if over < 0:
                    why = Diagnosis("passed-before-first-phase", phase=phase)
                else:
                    why = Diagnosis("passed-at-earlier-phase", over=over, phase=phase)
                yield NearMiss("earlier-phase", why, _side(wave, acquire.instruction, newer.slot, waits))
        return
    if _meet(wave, pair):
        return
    where, other = _name(wave, release.barrier), _name(wave, acquire.barrier)
    if where == other:
        where, other = (f"{where} of CTA {wave.residents.coordinate(slot)}" for slot in (to[1], of[1]))
    after = Diagnosis("arrives-elsewhere", arrival=where, warp=newer.warp, wait=other)
    yield NearMiss("other-arrival", after, _side(wave, release.instruction, older.slot, arrives))
    why = Diagnosis("waits-elsewhere", wait=other, warp=older.warp, arrival=where)
    yield NearMiss("other-barrier", why, _side(wave, acquire.instruction, newer.slot, waits))


def _meet(wave: Wave, pair: _Pair) -> bool:
    """Return whether the newer access's threads wait somewhere at a barrier at which the older one's arrive."""
    older, newer, come = pair.older, pair.newer, _come(wave, pair)
    for step in wave.steps.between(older.number, newer.number):
        here = step.by(newer.slot, newer.threads) if step.is_acquire else newer.threads[:0]
        if len(here) and step.object(newer.slot, int(here[0])) in come:
            return True
    return False


def _meets_too_few(wave: Wave, pair: _Pair) -> Iterator[NearMiss]:
    """Yield the barrier behind the older access that the newer one's threads can have no part in."""
    older, newer = pair.older, pair.newer
    if older.is_async:
        return
    for step in wave.steps.between(older.number, wave.steps.number):
        if not len(step.by(older.slot, older.threads)):
            continue
        thread = int(older.threads[0])
        if step.kind is WarpSync and older.slot == newer.slot and older.warp != newer.warp:
            if all(map(_announces, _releases(wave, pair))):
                yield _of_a_warp(wave, step, older.slot, thread, int(newer.threads[0]))
            return
        if step.kind is NamedBarrierJoin and older.slot != newer.slot:
            first, second = (str(wave.residents.coordinate(slot)) for slot in (older.slot, newer.slot))
            why = Diagnosis("orders-each-cta-alone", first=first, second=second)
            yield NearMiss("cta-barrier", why, _side(wave, step.instruction, older.slot, thread))
            return
        if step.is_release and not _announces(step):
            if isinstance(step.barrier, NamedBarrier) and _is_over_without(wave, step, newer):
                why = Diagnosis("no-part-in-barrier", warp=newer.warp, barrier=_name(wave, step.barrier))
                yield NearMiss("barrier-of-others", why, _side(wave, step.instruction, older.slot, thread))
            return


def _is_over_without(wave: Wave, release: Step, newer: _Actor) -> bool:
    """Return whether all threads of a named barrier have come, and those of an access were not among them."""
    steps = [s for s in wave.steps.between(release.number - 1, wave.steps.number) if s.barrier == release.barrier]
    is_over = any(step.is_meeting and newer.slot in step.slots for step in steps)
    return is_over and not any(len(step.by(newer.slot, newer.threads)) for step in steps)


def _of_a_warp(wave: Wave, step: Step, slot: int, thread: int, other: int) -> NearMiss:
    why = Diagnosis("orders-each-warp-alone", first=thread // WARP, second=other // WARP)
    return NearMiss("warp-barrier", why, _side(wave, step.instruction, slot, thread))


# Fences.


def _fences(wave: Wave, pair: _Pair) -> Iterator[NearMiss]:
    """Yield fences that order all but these accesses, where a proxy fence alone is missing."""
    older, newer = pair.older, pair.newer
    if older.is_async:
        return
    thread = older.threads[:1]
    steps = [step for step in wave.steps.between(0, wave.steps.number) if step.kind is Fence]
    fences = [step for step in steps if step.instruction.traits.fences]  # not of registers
    covering = [step for step in fences if pair.space in fenced_spaces(step.instruction.opcode)]
    late = [step for step in covering if step.number > older.number and len(step.by(older.slot, thread))]
    if late:
        yield from _late(wave, pair, late[0])
        return
    others = [step for step in fences if step not in covering and step.number > older.number]
    found = [
        *_of_other_proxies(wave, pair, [step for step in others if "proxy" in step.instruction.parts]),
        *_early(wave, pair, covering),
        *_by_others(wave, pair, [step for step in covering if older.number < step.number <= newer.number]),
    ]
    # One that makes mbarriers known has its own purpose.
    of_threads = [step for step in others if not {"proxy", "mbarrier_init"} & set(step.instruction.parts)]
    yield from found or _of_other_proxies(wave, pair, of_threads)


def _of_other_proxies(wave: Wave, pair: _Pair, fences: list[Step]) -> Iterator[NearMiss]:
    """Yield the first of some fences that stands where a proxy fence would count."""
    for step in fences:
        for actor in (pair.older, pair.newer):
            here = step.by(actor.slot, actor.threads)
            if len(here) and (actor is pair.older or step.number <= actor.number):
                why = _other_fence(step.instruction, pair.space)
                yield NearMiss("other-fence", why, _side(wave, step.instruction, actor.slot, int(here[0])))
                return


def _late(wave: Wave, pair: _Pair, fence: Step) -> Iterator[NearMiss]:
    """Yield a fence of the older access's thread that does not count, though it comes behind."""
    older, newer = pair.older, pair.newer
    side = _side(wave, fence.instruction, older.slot, int(older.threads[0]))
    if pair.space == "global" and older.slot != newer.slot:
        cta, other = (str(wave.residents.coordinate(actor.slot)) for actor in (older, newer))
        why = Diagnosis("fence-in-another-cta", cta=cta, other=other)
        yield NearMiss("fence-elsewhere", why, side)
        return
    channel = wave.clocks.channel(pair.column)
    if channel is not None and channel[0] == COPIES:
        ahead = wave.steps.between(fence.number, wave.steps.number)
        if any(_shows(wave, pair, step) and len(step.by(older.slot, older.threads)) for step in ahead):
            yield NearMiss("early-fence", Diagnosis("fence-before-wait"), side)
        return
    told = [
        step
        for step in wave.steps.between(older.number, fence.number)
        if (step.is_release or step.kind is WarpSync) and len(step.by(older.slot, older.threads))
    ]
    if told:
        if told[0].kind is WarpSync:
            why = Diagnosis("fence-behind-warp-sync")
        else:
            why = Diagnosis("fence-behind-arrival", barrier=_name(wave, told[0].barrier))
        yield NearMiss("late-fence", why, side)


def _early(wave: Wave, pair: _Pair, covering: list[Step]) -> Iterator[NearMiss]:
    """Yield the fence just before the older access, by its thread, with no other step of that between."""
    older = pair.older
    for step in wave.steps.back(older.number):
        if len(step.by(older.slot, older.threads)):
            if step in covering:
                why = Diagnosis("fence-before-access")
                yield NearMiss("early-fence", why, _side(wave, step.instruction, older.slot, int(older.threads[0])))
            return


def _by_others(wave: Wave, pair: _Pair, covering: list[Step]) -> Iterator[NearMiss]:
    """Yield a fence of threads that did not know of the older access, or whose fence the newer one does not know."""
    older, newer = pair.older, pair.newer
    for step in covering:
        threads = step.by(newer.slot, step.threads)
        if not len(threads):
            continue
        here = newer.threads[np.isin(newer.threads, threads)]
        thread = int(here[0]) if len(here) else int(threads[0])
        plane = FENCED if pair.space == "shared" else wave.clocks.fenced_global
        if plane is None or newer.slot // wave.clocks.cluster != pair.at // wave.clocks.cluster:
            return
        if pair.knows(wave, newer.slot, np.array([thread]), plane)[0]:
            why = Diagnosis("copy-not-after-fence")
        else:
            why = Diagnosis("fence-does-not-know", warp=older.warp)
        yield NearMiss("fence-elsewhere", why, _side(wave, step.instruction, newer.slot, thread))
        return


def _other_fence(i: Instruction, space: str) -> Diagnosis:
    """Return the order that a fence makes which is none between the proxies in a state space."""
    spaces = fenced_spaces(i.opcode)
    if spaces:
        fenced = " and ".join(sorted(spaces))
        return Diagnosis("fence-of-other-memory", fenced=fenced, space=space)
    return Diagnosis("fence-of-another-proxy" if "proxy" in i.parts else "fence-of-threads")


# Sides.


def _name(wave: Wave, barrier: Barrier | None) -> str:
    """Name a barrier by its holder, where that is known."""
    if isinstance(barrier, NamedBarrier):
        return f"barrier {barrier.number}"
    made = {address: making.instruction for address, making in wave.inits.items()}
    if not isinstance(barrier, MbarrierAt) or barrier.address not in made:
        return str(barrier)
    return barrier_name(barrier.address, made)


def _side(wave: Wave, i: Instruction, slot: int, thread: int) -> Side:
    return Side.of_thread(i.name, wave.residents.coordinate(slot), thread, i)
