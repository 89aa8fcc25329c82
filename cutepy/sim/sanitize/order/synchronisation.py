"""Synchronisation events: barriers, mbarriers, fences and groups update the vector clocks of the threads at them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from cutepy.sim.advice import Diagnosis
from cutepy.sim.errors import REGISTERS
from cutepy.sim.machine.events import (
    BarrierEvent,
    ClusterArrive,
    ClusterWait,
    Fence,
    GroupCommit,
    GroupWait,
    MbarrierArrive,
    MbarrierCompleteTx,
    MbarrierCount,
    MbarrierEvent,
    MbarrierInvalidate,
    MbarrierTry,
    MbarrierWait,
    NamedBarrierArrive,
    NamedBarrierEvent,
    NamedBarrierSync,
    SetRegisters,
    WarpSync,
)
from cutepy.sim.machine.lanes import WARP, WARPGROUP, Array, spread
from cutepy.sim.ptx.memory_order import CLUSTER, fenced_spaces, strength
from cutepy.sim.sanitize.hazards import Side, Where
from cutepy.sim.sanitize.order.clocks import DONE, SEEN, BarrierGeneration, alike, neighbours, rectangle
from cutepy.sim.sanitize.order.fences import Wait, scope_of
from cutepy.sim.sanitize.order.mbarrier_inits import INITS, check_made, fence_inits, side_of, used_by
from cutepy.sim.sanitize.order.peers import BEGUN
from cutepy.sim.sanitize.order.wave import BULK, COPIES, GROUP, MMAS, TENSOR, LastGroupWait, Wave

Report = Callable[[str, Where, Side | None, Side, Diagnosis | None], None]
"""Takes the kind of a hazard, its barrier, the two sides, and what is missing where the kind doesn't say."""


def synchronise(wave: Wave, event: BarrierEvent, report: Report) -> None:
    """Publish clocks of threads and join published ones to theirs; report uses of an mbarrier before its init."""
    slots, threads = event.ctas.slots, event.threads.ids
    if isinstance(event, MbarrierEvent):
        _on_mbarrier(wave, event, report)
    elif isinstance(event, NamedBarrierEvent):
        _named(wave, event)
    elif isinstance(event, Fence):
        _fence(wave, event)
    elif isinstance(event, GroupWait):
        _group(wave, event)
    elif isinstance(event, GroupCommit):
        wave.close(event.groups, slots, threads)
    elif isinstance(event, WarpSync):
        wave.clocks.synchronise(slots, threads)
    elif isinstance(event, ClusterArrive):
        _cluster_arrive(wave, event)
    elif isinstance(event, ClusterWait):
        _cluster_wait(wave, event)
    elif isinstance(event, SetRegisters):
        _set_registers(wave, event, report)


def _on_mbarrier(wave: Wave, event: MbarrierEvent, report: Report) -> None:
    wrong = wave.objects.see(event)
    if wrong is not None:
        report("repeated-init", event.barrier, None, side_of(wave, event), wrong)
    if isinstance(event, MbarrierInvalidate):
        used = wave.objects.still_used(event)
        if used is not None:
            wrong = Diagnosis("invalidated-while-used")
            report("unordered-write", event.barrier, used_by(wave, used), side_of(wave, event), wrong)
    elif wave.ends_mbarriers:
        wave.objects.use(event)
    found = check_made(wave, event)
    if found is not None:
        kind_of_hazard, before, after = found
        report(kind_of_hazard, event.barrier, before, after, None)
    _mbarrier(wave, event)


def _named(wave: Wave, event: NamedBarrierEvent) -> None:
    slots, threads = event.ctas.slots, event.threads.ids
    meeting = wave.meeting(event.barrier)
    generation = spread(event.generation, (len(slots), len(threads)))[:, 0]
    if isinstance(event, NamedBarrierSync):
        what = meeting.published(slots, generation)
        assert what is not None
        wave.clocks.learn(slots, threads, what, together=True)
        return
    if isinstance(event, NamedBarrierArrive):
        wave.arrivals.note(wave.clocks, event.instruction, slots, threads, slots[:, None], None, event.generation)
    meeting.add(slots, generation, wave.clocks.publish(slots, threads), is_fresh=True)


def _set_registers(wave: Wave, event: SetRegisters, report: Report) -> None:
    """Report warps that change how many registers they have, and have not met since they did so before."""
    i = event.instruction
    found = wave.register_changes.change(i, event.ctas.slots, event.threads.ids)
    # Like the end of a wait, what its thread issues after it comes after it: see `register_supply.py`.
    wave.clocks.end_waits(event.ctas.slots, event.threads.ids)
    if found is None:
        return
    slot, warp, other, last = found
    cta = wave.residents.coordinate(slot)
    before, after = (Side("setmaxnreg", f"warp {w} of CTA {cta}", by, cta, w) for w, by in ((other, last), (warp, i)))
    report("misused-setmaxnreg", REGISTERS, before, after, Diagnosis("warps-not-met"))


def converge(wave: Wave, slots: Array, threads: Array) -> None:
    """Share completed waits among the threads of each whole warp that executes a collective.

    They know nothing else of each other by it: of these only bar.warp.sync orders memory.
    """
    if not wave.apart.any():
        return
    warp_of, sizes = threads // WARP, wave.clocks.sizes
    whole = np.bincount(warp_of, minlength=len(sizes)) == sizes
    for rows, warps in _rectangles(wave.apart[neighbours(slots)] & whole):
        here = np.zeros_like(whole)
        here[warps] = True
        wave.clocks.meet(slots[rows], threads[here[warp_of]])
        wave.apart[slots[rows][:, None], warps] = False


def _fence(wave: Wave, event: Fence) -> None:
    parts = event.instruction.parts
    slots, threads = event.ctas.slots, event.threads.ids
    spaces = fenced_spaces(event.instruction.opcode)
    if spaces:
        wave.clocks.fence(slots, threads, spaces)
    if parts[:2] == ("fence", "mbarrier_init"):
        fence_inits(wave, slots, threads)
    wave.patterns.fence(strength(event.instruction.opcode), slots, threads, wave.hidden_from(event.instruction))


def _cluster_arrive(wave: Wave, event: ClusterArrive) -> None:
    slots, threads, size = event.ctas.slots, event.threads.ids, wave.clocks.cluster
    meeting, begun = wave.meeting("cluster"), wave.clocks.column(BEGUN)
    generation = spread(event.generation, (len(slots), len(threads)))[:, 0]
    first, column = (slots // size * size)[:, None], wave.clocks.column("cluster")
    wave.arrivals.note(wave.clocks, event.instruction, slots, threads, first, column, generation[:, None])
    if event.instruction.traits.is_relaxed:
        what = wave.clocks.joint(slots, threads)
        what[..., ~wave.clocks.is_channel((INITS,), what.shape[-1])] = 0
        what[DONE, np.arange(len(slots)), slots % size, begun] = 1
        if wave.patterns.has_fences:
            _, far = wave.patterns.released(event.instruction, slots, threads)
            what = np.maximum(what, far[..., : what.shape[-1]])
        wave.clocks.tick(slots, threads)
    else:
        what = wave.clocks.publish(slots, threads)
    for rank in range(size):
        here = slots % size == rank
        if here.any():
            meeting.add(slots[here] // size * size, generation[here], what[:, here])


def _cluster_wait(wave: Wave, event: ClusterWait) -> None:
    slots, threads, size = event.ctas.slots, event.threads.ids, wave.clocks.cluster
    generation = spread(event.generation, (len(slots), len(threads)))[:, 0]
    column = wave.clocks.column("cluster")
    found = wave.meeting("cluster").published(slots // size * size, generation)
    if found is None:
        found = wave.clocks.nothing(len(slots), wave.clocks.capacity)
    found = wave.clocks.padded(found).copy()
    found[: SEEN + 1, :, 0, column] = generation + 1
    wave.clocks.learn(slots, threads, found)


def _mbarrier(wave: Wave, event: MbarrierEvent) -> None:
    state, clocks = event.state, wave.clocks
    first = wave.count_phases(event)
    meeting = wave.meeting(("mbarrier", state.address))
    if isinstance(event, MbarrierWait):
        _wait(wave, event, meeting, first)
    elif isinstance(event, MbarrierCompleteTx) and event.part_of is not None:
        issued = wave.issued[id(event.part_of)]
        phases = spread(event.counted, state.slots.shape) + first[state.slots]
        column = clocks.column(("mbarrier", state.address))
        assert event.deliveries is not None
        to, rows, lanes = event.deliveries.T
        issued.note_signals(state.address, event.deliveries, phases[np.searchsorted(state.slots, to)])
        what = clocks.padded(issued.lanes(rows, lanes, releases=False))
        _hide(wave, what, issued.slots[rows] != to)
        if not np.array_equal(to, state.slots):
            by_slot = np.argsort(to, kind="stable")
            what = np.maximum.reduceat(what[:, by_slot], np.searchsorted(to[by_slot], state.slots), axis=1)
        # What the async proxy wrote its operations see then; what st.async did they don't without a fence.
        what[: SEEN + 1, np.arange(len(phases)), state.slots % clocks.cluster, column] = phases + 1
        meeting.add(state.slots, phases, what)
    elif isinstance(event, MbarrierArrive) and event.part_of is not None:
        _copies_arrive(wave, event, meeting, first)
    elif isinstance(event, MbarrierArrive):
        _arrive(wave, event, meeting, first)
    elif isinstance(event, MbarrierCount):
        _reach(wave, event, first)
        clocks.tick(event.ctas.slots, event.threads.ids)


def _copies_arrive(wave: Wave, event: MbarrierArrive, meeting: BarrierGeneration, first: Array) -> None:
    """Publish the operations that threads had issued before they let an mbarrier track them, and their knowledge."""
    clocks, slots, threads = wave.clocks, event.ctas.slots, event.threads.ids
    assert event.part_of is not None
    issued = wave.issued[id(event.part_of)]
    what = clocks.nothing(len(slots), len(clocks.owner))
    rows = np.searchsorted(event.part_of.ctas.slots, slots)
    for thread in np.searchsorted(event.part_of.threads.ids, threads).tolist():
        learned = clocks.padded(issued.lanes(rows, np.full(len(rows), thread), releases=False))
        what = np.maximum(clocks.padded(what), learned)
    for thread in threads.tolist():
        kind = TENSOR if event.part_of.kind == "tcgen05" else COPIES
        column, at = clocks.known_column((kind, thread)), int(np.searchsorted(event.part_of.threads.ids, thread))
        if column is not None:
            what[: SEEN + 1, np.arange(len(slots)), slots % clocks.cluster, column] = issued.count[rows, at]
    of = slots if event.slots is None else spread(event.slots, (len(slots), len(threads)))[:, 0]
    _hide(wave, what, of != slots)
    phases = spread(event.counted, (len(slots), len(threads)))[:, 0] + first[of]
    channel = clocks.column(("mbarrier", event.state.address))
    if event.part_of.kind != "tcgen05":
        wave.note(channel, event.instruction, of, phases + 1)
    else:
        column, about = clocks.column((TENSOR, int(threads[0]))), (event.instruction, int(of[0]), int(slots[0]))
        wave.peers.commit(*about, int(threads[0]), channel, int(phases[0]), column, int(issued.count[rows, 0][0]))
    for rank in range(clocks.cluster):
        here = slots % clocks.cluster == rank
        if here.any():
            meeting.add(of[here], phases[here], what[:, here])


def _arrive(wave: Wave, event: MbarrierArrive, meeting: BarrierGeneration, first: Array) -> None:
    clocks, slots, threads = wave.clocks, event.ctas.slots, event.threads.ids
    assert event.slots is not None
    shape = (len(slots), len(threads))
    of = spread(event.slots, shape)
    phases = spread(event.counted, shape) + first[of]
    i, channel = event.instruction, clocks.column(("mbarrier", event.state.address))
    is_relaxed, is_local = i.traits.is_relaxed, bool((of == slots[:, None]).all())
    wave.arrivals.note(wave.clocks, i, slots, threads, of, channel, phases)
    if not is_relaxed and is_local:
        meeting.add(slots, phases[:, 0], clocks.publish(slots, threads))
        return
    _reach(wave, event, first)
    for lanes in alike(of):
        column = int(lanes[0])
        near = far = clocks.publish(slots, threads[lanes])
        if is_relaxed:
            near, far = wave.patterns.released(i, slots, threads[lanes])
        elif scope_of(i) < CLUSTER:
            far = clocks.nothing(len(slots), clocks.capacity)
        for rank in range(clocks.cluster):
            here = slots % clocks.cluster == rank
            if here.any():
                sent, away = near[:, here].copy(), of[here, column] != slots[here]
                # Others learn that it has counted, and see of it what is released to them.
                sent[SEEN, away] = clocks.padded(far)[SEEN, here][away][..., : sent.shape[-1]]
                whole = sent.copy()
                if _hide(wave, sent, away):
                    distant = wave.meeting(("mbarrier", event.state.address, "cluster"))
                    distant.add(of[here, column], phases[here, column], whole)
                meeting.add(of[here, column], phases[here, column], sent)


def _reach(wave: Wave, event: MbarrierCount, first: Array) -> None:
    """Note which threads count, bytes too, at mbarriers of other CTAs, which must not have ended."""
    if event.slots is None:
        return
    slots, threads = event.ctas.slots, event.threads.ids
    shape, channel = (len(slots), len(threads)), wave.clocks.column(("mbarrier", event.state.address))
    of = spread(event.slots, shape)
    phases = spread(event.counted, shape) + first[of]
    away = np.argwhere(of != slots[:, None]).tolist()
    if not away:
        return
    counts = wave.clocks.counts(slots, threads)
    for row, column in away:
        to, thread = (int(of[row, column]), int(slots[row])), int(threads[column])
        wave.peers.arrive(event.instruction, *to, thread, channel, int(phases[row, column]), int(counts[row, column]))


def _hide(wave: Wave, what: Array, away: Array) -> bool:
    """Hide other CTAs' writes to global memory in a clock; return whether there were some to hide.

    Who waits at scope .cta does not see them: they may be in its multiprocessor's L1 cache as they were before.
    """
    columns = wave.of_global_memory(what.shape[-1]) if away.any() else ()
    if not len(columns):
        return False
    of = np.flatnonzero(away)[:, None, None]
    ranks = np.arange(wave.clocks.cluster)[:, None]
    found = bool(what[SEEN, of, ranks, columns].any())
    what[SEEN, of, ranks, columns] = 0
    return found


def _wait(wave: Wave, event: MbarrierWait, meeting: BarrierGeneration, first: Array) -> None:
    """Give lanes the clocks published in the phase that they saw complete, and the completion itself.

    A relaxed wait says that it is, and shows nothing, until a fence comes after it.
    """
    clocks, slots, threads = wave.clocks, event.ctas.slots, event.threads.ids
    for wait, over in _shown(wave, event, meeting, first):
        if event.instruction.traits.is_relaxed:
            wave.patterns.defer(wait)
            clocks.learn(wait.slots, wait.threads, over)
        else:
            sees_far = scope_of(event.instruction) >= CLUSTER
            clocks.learn(wait.slots, wait.threads, wait.far if sees_far else wait.near)
    for rows, columns in _rectangles(spread(event.counted >= -1, (len(slots), len(threads)))):
        clocks.end_waits(slots[rows], threads[columns])
        wave.apart[slots[rows][:, None], np.flatnonzero(np.bincount(threads[columns] // WARP))] = True


def _shown(wave: Wave, event: MbarrierTry, meeting: BarrierGeneration, first: Array) -> Iterator[tuple[Wait, Array]]:
    """Yield the clocks published in the phases that lanes see complete, and the completions as a clock."""
    clocks, slots, threads = wave.clocks, event.ctas.slots, event.threads.ids
    column = clocks.column(("mbarrier", event.state.address))
    distant = wave.meetings.get(("mbarrier", event.state.address, "cluster"))
    seen_complete = event.counted >= 0
    phases = np.where(seen_complete, event.counted, 0).max(axis=1) + first[slots]
    for rows, columns in _rectangles(spread(seen_complete, (len(slots), len(threads)))):
        objects = slots[rows]
        near = meeting.published(objects, phases[rows])
        if near is None:
            near = clocks.nothing(len(objects), clocks.capacity)
        far = near = clocks.padded(near).copy()
        published = None if distant is None else distant.published(objects, phases[rows])
        if published is not None:
            far = np.maximum(near, clocks.padded(published))
        place = np.arange(len(objects)), objects % clocks.cluster, column
        for seen in (near, far):
            seen[: SEEN + 1, *place] = np.maximum(seen[: SEEN + 1, *place], phases[rows] + 1)
        over = np.zeros_like(far)
        over[DONE, *place] = phases[rows] + 1
        yield Wait(event.instruction, objects, threads[columns], near, far), over


def overlook(wave: Wave, event: MbarrierTry) -> None:
    """Note the clock that a try has seen and that counts for nothing, as its thread would have gone on without it."""
    meeting, first = wave.meeting(("mbarrier", event.state.address)), wave.count_phases(event)
    for wait, _ in _shown(wave, event, meeting, first):
        wave.patterns.overlook(wait)


def _rectangles(lanes: Array) -> Iterator[tuple[Array, Array]]:
    """Cut a set of lanes, (CTA, thread), into rectangles of rows and columns."""
    if (lanes == lanes[:1]).all():
        if lanes[0].any():
            yield np.arange(len(lanes)), np.flatnonzero(lanes[0])
        return
    patterns, which = np.unique(lanes, axis=0, return_inverse=True)
    for n, pattern in enumerate(patterns):
        if pattern.any():
            yield np.flatnonzero(which.reshape(-1) == n), np.flatnonzero(pattern)


def _note_wait(wave: Wave, event: GroupWait, kind: str, left: int) -> None:
    """Note a wait for groups, for reports: its threads, the groups left in flight, and threads without any."""
    slots, threads, i = event.ctas.slots, event.threads.ids, event.instruction
    closed = wave.closed[kind][rectangle(slots, threads)].copy()
    wait = LastGroupWait(i, wave.steps.number, slots, threads, left, event.reads_only, closed)
    wave.waits.update(((kind, thread), wait) for thread in threads.tolist())
    none = closed == 0
    if none.any():
        wave.idle[i.index] = kind, i, slots[none.any(axis=1)], threads[none.any(axis=0)]


def _group(wave: Wave, event: GroupWait) -> None:
    """Join the completion of groups into the clocks of the waiting threads."""
    clocks, slots, threads = wave.clocks, event.ctas.slots, event.threads.ids
    kind, left = event.groups, event.remaining or 0
    if event.remaining is None:  # of all copies: it closes a group, and waits for it
        wave.close(kind, slots, threads)
    _note_wait(wave, event, kind, left)
    closed = wave.closed[kind][rectangle(slots, threads)]
    done = np.maximum(closed // GROUP - left, 0) * GROUP
    if kind == MMAS:
        for group in np.unique(threads // WARPGROUP).tolist():
            column = clocks.column((MMAS, group))
            here = threads // WARPGROUP == group
            at, rank, numbers = np.arange(len(slots)), slots % clocks.cluster, done[:, here][:, 0]
            what = clocks.nothing(len(slots), 1)
            what[: SEEN + 1, at, rank, 0] = numbers
            clocks.learn(slots, threads[here], what, first=column)
            ended = wave.mma_groups.ended(slots, group, numbers // GROUP)
            if ended is not None:
                what = clocks.nothing(len(slots), WARPGROUP)
                what[DONE, at, rank] = ended
                clocks.learn(slots, threads[here], what, first=int(wave.mma_groups.columns(group)[0]))
        return
    names: list[tuple[object, ...]] = [(BULK, "read")] if kind == BULK else [(kind,)]
    if kind == BULK and not event.reads_only:
        names.append((BULK, "write"))
    for name in names:
        columns = [clocks.known_column((*name, thread)) for thread in threads.tolist()]
        known = [n for n, column in enumerate(columns) if column is not None]
        at = np.array([column for column in columns if column is not None], np.intp)
        for plane in (DONE, SEEN) if known else ():
            clocks.set_own(plane, slots, at, done[:, known])
