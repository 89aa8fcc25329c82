"""What threads publish and learn where they synchronise."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.machine.lanes import WARPGROUP
from cutepy.sim.sanitize.clocks import DONE, FENCED, SEEN, Meeting
from cutepy.sim.sanitize.hazards import Side
from cutepy.sim.sanitize.making import INITS, check_made, fence_inits
from cutepy.sim.sanitize.wave import BULK, COPIES, MMAS

if TYPE_CHECKING:
    from cutepy.sim.machine.events import BarrierEvent
    from cutepy.sim.sanitize.wave import Wave


def synchronise(wave: Wave, event: BarrierEvent, report: Callable[[str, str, Side, Side], None]) -> None:
    """Take what threads publish, and let them know what others have; what uses an mbarrier too early is reported."""
    kind = event.barrier.partition(" ")[0]
    slots, threads = event.ctas.slots, event.threads.ids
    if event.operation == "fence":
        _fence(wave, event)
    elif event.operation == "commit":
        wave.closed[event.barrier][np.ix_(slots, threads)] += 1
    elif kind == "mbarrier":
        found = check_made(wave, event)
        if found is not None:
            kind_of_hazard, before, after = found
            report(kind_of_hazard, event.barrier, before, after)
        _mbarrier(wave, event)
    elif event.barrier == "bar.warp":
        wave.clocks.synchronise(slots, threads)
    elif kind == "bar":
        assert event.counted is not None
        meeting = wave.meeting(event.barrier)
        generation = np.broadcast_to(event.counted, (len(slots), len(threads)))[:, 0]
        if event.operation == "sync":
            what = meeting.published(slots, generation)
            assert what is not None
            wave.clocks.learn(slots, threads, what, together=True)
        else:
            meeting.add(slots, generation, wave.clocks.publish(slots, threads))
    elif event.operation.startswith("cluster"):
        _cluster(wave, event)
    elif event.operation == "wait":
        _group(wave, event)


def _fence(wave: Wave, event: BarrierEvent) -> None:
    parts = event.instruction.parts
    slots, threads = event.ctas.slots, event.threads.ids
    if parts[0] == "fence" and "proxy" in parts:
        wave.clocks.fence(slots, threads)
    if parts[0] == "fence" and ("proxy" in parts or "mbarrier_init" in parts):
        fence_inits(wave, slots, threads)


def _cluster(wave: Wave, event: BarrierEvent) -> None:
    assert event.counted is not None
    slots, threads, size = event.ctas.slots, event.threads.ids, wave.clocks.cluster
    meeting = wave.meeting("cluster")
    generation = np.broadcast_to(event.counted, (len(slots), len(threads)))[:, 0]
    if event.operation == "cluster_arrive":
        if "relaxed" in event.instruction.parts:
            what = wave.clocks.joint(slots, threads)
            what[..., ~wave.clocks.is_channel(INITS, what.shape[-1])] = 0
        else:
            what = wave.clocks.publish(slots, threads)
        for rank in range(size):
            here = slots % size == rank
            if here.any():
                meeting.add(slots[here] // size * size, generation[here], what[:, here])
        return
    found = meeting.published(slots // size * size, generation)
    if found is not None:
        wave.clocks.learn(slots, threads, found)


def _mbarrier(wave: Wave, event: BarrierEvent) -> None:
    state, clocks = event.state, wave.clocks
    assert state is not None
    meeting = wave.meeting(("mbarrier", state.address))
    parts = event.instruction.parts
    if event.operation == "wait":
        assert event.counted is not None
        assert event.slots is not None
        _wait(wave, event, meeting)
    elif event.operation == "complete_tx" and event.part_of is not None:
        assert event.counted is not None
        issued = wave.issued[id(event.part_of)]
        phases = np.broadcast_to(event.counted, state.slots.shape)
        issued.signals.append((state.address, state.slots, phases))
        column = clocks.column(("mbarrier", state.address))
        issuers = event.part_of.ctas.slots
        at = wave.issuers(issuers, state.slots)
        what = clocks.padded(issued.known[:, at].copy())
        what[..., event.part_of.threads.ids] = 0  # an issue releases nothing
        what[:, np.arange(len(at)), state.slots % clocks.cluster, column] = phases + 1
        meeting.add(state.slots, phases, what)
    elif event.operation == "arrive" and event.part_of is not None:
        _copies_arrive(wave, event, meeting)
    elif event.operation == "arrive" and "relaxed" not in parts:
        _arrive(wave, event, meeting)


def _copies_arrive(wave: Wave, event: BarrierEvent, meeting: Meeting) -> None:
    """Publish the copies that threads had issued before they let an mbarrier track them: that, and nothing else."""
    clocks, slots, threads = wave.clocks, event.ctas.slots, event.threads.ids
    assert event.counted is not None
    what = np.zeros((FENCED + 1, len(slots), clocks.cluster, len(clocks.owner)), np.int32)
    for thread in threads.tolist():
        column = clocks.known_column((COPIES, thread))
        if column is not None:
            what[: SEEN + 1, np.arange(len(slots)), slots % clocks.cluster, column] = (
                wave.closed[COPIES][slots, thread] + 1
            )
    phases = np.broadcast_to(event.counted, (len(slots), len(threads)))[:, 0]
    of = slots if event.slots is None else np.broadcast_to(event.slots, (len(slots), len(threads)))[:, 0]
    for rank in range(clocks.cluster):
        here = slots % clocks.cluster == rank
        if here.any():
            meeting.add(of[here], phases[here], what[:, here])


def _arrive(wave: Wave, event: BarrierEvent, meeting: Meeting) -> None:
    clocks, slots, threads = wave.clocks, event.ctas.slots, event.threads.ids
    assert event.counted is not None
    assert event.slots is not None
    shape = (len(slots), len(threads))
    of, phases = np.broadcast_to(event.slots, shape), np.broadcast_to(event.counted, shape)
    if (of == slots[:, None]).all():
        meeting.add(slots, phases[:, 0], clocks.publish(slots, threads))
        return
    wide = "cluster" in event.instruction.parts
    for column, thread in enumerate(threads.tolist()):
        what = clocks.publish(slots, np.array([thread]))
        for rank in range(clocks.cluster):
            here = slots % clocks.cluster == rank
            if here.any():
                sent = what[:, here].copy()
                if not wide:  # others learn that it is over, and see nothing of it
                    sent[DONE + 1 :, of[here, column] != slots[here]] = 0
                meeting.add(of[here, column], phases[here, column], sent)


def _wait(wave: Wave, event: BarrierEvent, meeting: Meeting) -> None:
    slots, threads = event.ctas.slots, event.threads.ids
    assert event.counted is not None
    assert event.slots is not None
    shape = (len(slots), len(threads))
    seen, of = np.broadcast_to(event.counted, shape), np.broadcast_to(event.slots, shape)
    for at in np.unique(of - slots[:, None]).tolist():
        lanes = (of - slots[:, None] == at) & (seen >= 0)
        if not lanes.any():
            continue
        columns = lanes.any(axis=0)
        rows = lanes[:, columns].all(axis=1)
        what = meeting.published(slots[rows] + at, seen[rows][:, columns][:, 0]) if rows.any() else None
        if what is not None:
            wave.clocks.learn(slots[rows], threads[columns], what)
        for row in np.flatnonzero(lanes.any(axis=1) & ~rows).tolist():
            here = lanes[row]
            what = meeting.published(slots[row : row + 1] + at, seen[row, here][:1])
            if what is not None:
                wave.clocks.learn(slots[row : row + 1], threads[here], what)


def _group(wave: Wave, event: BarrierEvent) -> None:
    """Let threads know that their groups are complete."""
    clocks, slots, threads = wave.clocks, event.ctas.slots, event.threads.ids
    words = event.barrier.split()
    kind = {"bulk_group": BULK, "wgmma.wait_group": MMAS, "cp.async": COPIES}.get(words[0])
    if kind is None:
        return
    everything = event.barrier == "cp.async"
    left = next((int(w) for w in words if w.isdecimal()), 0)
    closed = wave.closed[kind][np.ix_(slots, threads)]
    done = closed + 1 if everything else np.maximum(closed - left, 0)
    if kind == MMAS:
        for group in np.unique(threads // WARPGROUP).tolist():
            column = clocks.column((MMAS, group))
            here = threads // WARPGROUP == group
            what = np.zeros((SEEN + 2, len(slots), clocks.cluster, len(clocks.owner)), np.int32)
            what[: SEEN + 1, np.arange(len(slots)), slots % clocks.cluster, column] = done[:, here][:, 0]
            clocks.learn(slots, threads[here], what)
        return
    names: tuple[object, ...] = (BULK, "read") if kind == BULK else (kind,)
    for n, thread in enumerate(threads.tolist()):
        known = clocks.known_column((*names, thread))
        if known is not None:
            at = np.array([known])
            for plane in (DONE, SEEN):
                clocks.set_own(plane, slots, at, done[:, n : n + 1])
