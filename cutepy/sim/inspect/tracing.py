"""Timeline of a CTA in the Trace Event Format that chrome://tracing and Perfetto show.

Time is a counter of steps: one for each event of the launch, of whatever CTA. It is an order, not a timing.

Beside it stands a log of writes to shared memory, their places and bytes, as long as there is room.

References
----------
Chromium, "Trace Event Format".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cutepy.sim.machine.events import (
    PASSES,
    Access,
    AsyncOperation,
    BarrierEvent,
    BarrierState,
    MbarrierEvent,
    MbarrierInit,
    TmaEvent,
    WgmmaEvent,
)
from cutepy.sim.machine.lanes import Array, Ctas, Threads
from cutepy.sim.machine.launch import Launch
from cutepy.sim.machine.observer import Observer
from cutepy.sim.machine.wait_sources import WaitBegins
from cutepy.sim.ptx.model import Instruction

KEPT_EVENTS = 1 << 20
"""Events after which those of earlier launches are given up; a launch keeps its own, however many they are."""


@dataclass(frozen=True, slots=True)
class Event:
    """One step: an event of some lanes. `operation` numbers asynchronous operations; `effect` is the written memory.

    `is_init` is true for the init of an mbarrier.
    """

    phase: str  # "begin", "wait", "issue", "complete", "do", or "effect": part of another's completion
    name: str
    category: str
    instruction: Instruction
    ctas: Ctas
    threads: Threads
    operation: int = -1
    effect: BarrierState | Write | WgmmaEvent | tuple[TmaEvent, ...] | None = None
    is_init: bool = False


class Recorder(Observer):
    """Record the events of every launch: barriers, stores, MMAs, asynchronous operations.

    Parameters
    ----------
    shared : callable, optional
        Gives shared memory as it is now, and its bytes for each slot: with it the writes to it are kept.

    Attributes
    ----------
    forgotten : int
        Number of first launches without events any more: there would be more than `KEPT_EVENTS`.
    """

    def __init__(self, shared: Callable[[], tuple[Array, int]] | None = None) -> None:
        self.launches: list[Launch] = []
        self.writes = None if shared is None else Follower(shared)
        self._boxes: list[TmaEvent] = []
        self._events: list[list[Event]] = []
        self._operations: dict[int, int] = {}
        self._issued = self._count = self.forgotten = 0

    def clear(self) -> None:
        """Forget all launches."""
        self.launches.clear()
        self._events.clear()
        self._count = self.forgotten = 0

    def on_launch(self, launch: Launch) -> None:
        """Begin the record of another launch."""
        self.launches.append(launch)
        while self._count > KEPT_EVENTS and self.forgotten < len(self._events):
            self._count -= len(self._events[self.forgotten])
            self._events[self.forgotten] = []
            self.forgotten += 1
        self._events.append([])
        if self.writes is not None:
            self.writes.start(launch)

    def _add(
        self,
        phase: str,
        name: str,
        category: str,
        what: Any,  # noqa: ANN401
        operation: int = -1,
        effect: Any = None,  # noqa: ANN401
    ) -> None:
        about = what.instruction, what.ctas, what.threads
        is_init = isinstance(what, MbarrierInit)
        self._count += 1
        self._events[-1].append(Event(phase, name, category, *about, operation, effect, is_init))

    def on_wait(self, event: WaitBegins) -> None:
        """Record lanes that begin to wait."""
        self._add("begin", str(event.barrier), "barrier", event)

    def on_barrier(self, event: BarrierEvent) -> None:
        """Record an operation on a barrier."""
        phase, state = "wait" if isinstance(event, PASSES) else "do", None
        if isinstance(event, MbarrierEvent):
            state = event.state
        self._add(phase, f"{event.operation} {event.barrier}", "barrier", event, effect=state)

    def on_access(self, access: Access) -> None:
        """Record a store by threads, and writes of asynchronous copies to shared memory."""
        if access.operation == "read" or access.space == "local":
            return
        written = None
        if access.space == "shared" and self.writes is not None:
            written = self.writes.follow(access)
        if access.proxy == "generic":
            name = f"{access.operation} {access.space}, {access.size_bytes} bytes a lane"
            self._add("do", name, "store", access, effect=written)
        elif written is not None:
            self._add("effect", f"{access.operation} shared", "write", access, effect=written)

    def on_tma(self, event: TmaEvent) -> None:
        """Note a box of the tensor copy that is about to be issued."""
        self._boxes.append(event)

    def on_wgmma(self, event: WgmmaEvent) -> None:
        """Record an MMA as it is issued."""
        shape = event.shape
        self._add("do", f"wgmma m64n{shape.n}k{shape.k} {shape.d}.{shape.a}.{shape.b}", "wgmma", event, effect=event)

    def on_issue(self, operation: AsyncOperation) -> None:
        """Record an asynchronous operation issued."""
        self._operations[id(operation)] = self._issued
        boxes, self._boxes = tuple(self._boxes), []
        name = f"{operation.kind}: {operation.detail}"
        self._add("issue", name, operation.kind, operation, self._issued, boxes or None)
        self._issued += 1

    def on_complete(self, operation: AsyncOperation) -> None:
        """Record an asynchronous operation complete."""
        number = self._operations.pop(id(operation))
        self._add("complete", f"{operation.kind}: {operation.detail}", operation.kind, operation, number)

    def trace(self, launch: int, cta: Sequence[int]) -> dict[str, Any]:
        """Return the trace of one CTA of a launch."""
        number = range(len(self._events))[launch]
        events: list[dict[str, Any]] = [
            {
                "ph": "M",
                "name": "process_name",
                "pid": number,
                "args": {"name": f"{self.launches[number].name} {cta}"},
            }
        ]
        warps: set[int] = set()
        waiting: dict[tuple[int, int], int] = {}
        for step, event in self._of(number, cta):
            warps.update(event.threads.warps.tolist())
            events += _shown(event, step, number, waiting)
        for warp in sorted(warps):
            name = {"name": f"warp {warp}"}
            events.append({"ph": "M", "name": "thread_name", "pid": number, "tid": warp, "args": name})
        return {"traceEvents": events, "otherData": {"time": "steps of the simulator: an order, not a timing"}}

    def _of(self, launch: int, cta: Sequence[int]) -> Iterator[tuple[int, Event]]:
        """Yield the events that a CTA takes part in, and their steps."""
        for step, event, slot in self.resident_with(launch, cta):
            if slot in event.ctas.slots:
                yield step, event

    def resident_with(self, launch: int, cta: Sequence[int]) -> Iterator[tuple[int, Event, int]]:
        """Yield the steps and events of all CTAs that are resident together with one, and that one's slot."""
        if range(len(self._events))[launch] < self.forgotten:
            raise LookupError(
                f"the events of launch {launch} were given up: a run keeps {KEPT_EVENTS:,}, and then those of its last "
                "launches; simulate fewer launches in a run"
            )
        slots: dict[int, int | None] = {}
        for step, event in enumerate(self._events[launch]):
            residents = event.ctas.residents
            if id(residents) not in slots:
                slots[id(residents)] = residents.slot_of(cta)
            slot = slots[id(residents)]
            if slot is not None:
                yield step, event, slot


def _shown(event: Event, step: int, pid: int, waiting: dict[tuple[int, int], int]) -> Iterator[dict[str, Any]]:
    """Yield the trace events of one step: one for each warp, and the span of an asynchronous operation."""
    if event.phase == "effect":
        return
    i = event.instruction
    about = {"line": str(i.source or "?"), "ptx": i.text, "threads": event.threads.describe()}
    common = {"name": event.name, "cat": event.category, "pid": pid, "args": about}
    if event.phase == "begin":
        for warp in event.threads.warps.tolist():
            waiting.setdefault((warp, i.index), step)
        return
    if event.phase in ("issue", "complete"):
        phase = "b" if event.phase == "issue" else "e"
        tid = int(event.threads.warps[0])
        yield {**common, "ph": phase, "ts": step, "id": event.operation, "tid": tid}
    if event.phase == "complete":
        return
    name = f"issue {event.name}" if event.phase == "issue" else event.name
    for warp in event.threads.warps.tolist():
        start = waiting.pop((warp, i.index), step) if event.phase == "wait" else step
        yield {**common, "name": name, "ph": "X", "ts": start, "dur": step + 1 - start, "tid": warp}


FOLLOWED_CTAS = 16
"""CTAs of a launch whose shared memory is followed: the first, whole clusters."""
ROOM_BYTES = 128 << 20
"""Bound on the log of a run, in bytes; later writes are dropped."""


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes that one step wrote to shared memory.

    Attributes
    ----------
    starts : array of int
        Starts of the pieces: ``slot * slot_bytes + offset``.
    contents : array of uint8, (pieces, bytes)
    slot_bytes : int
    """

    starts: Array
    contents: Array
    slot_bytes: int

    def of(self, slot: int) -> tuple[Array, Array]:
        """Return the writes of one CTA: offsets of bytes, rising and each once, and the bytes."""
        here = self.starts // self.slot_bytes == slot
        offsets = (self.starts[here] - slot * self.slot_bytes)[:, None] + np.arange(self.contents.shape[1])
        places, first = np.unique(offsets.reshape(-1), return_index=True)
        return places, self.contents[here].reshape(-1)[first]


class Follower:
    """Keeps the writes to the shared memory of a launch's first CTAs.

    Parameters
    ----------
    shared : callable
        Gives shared memory as it is now, all slots, and the bytes of a slot.

    Attributes
    ----------
    full : bool
        True if something was not kept for want of room.
    """

    def __init__(self, shared: Callable[[], tuple[Array, int]]) -> None:
        self._shared = shared
        self._kept = 0
        self._launches: list[Array] = []
        self._slots: tuple[object, Array] | None = None
        self.full = False

    def start(self, launch: Launch) -> None:
        """Begin another launch."""
        size = launch.cluster[0] * launch.cluster[1] * launch.cluster[2]
        first = launch.order[: max(size, FOLLOWED_CTAS // size * size)]
        self._launches.append(first)
        self._slots = None

    def followed(self, launch: int) -> Array:
        """Return the CTAs of a launch that are followed, by their linear index in the grid."""
        return self._launches[launch]

    def follow(self, access: Access) -> Write | None:
        """Keep the bytes that an access has just written; None if it wrote to no followed CTA."""
        residents = access.ctas.residents
        if self._slots is None or self._slots[0] is not residents:
            self._slots = residents, np.isin(residents.blocks, self._launches[-1])
        data, slot_bytes = self._shared()
        starts = np.asarray(access.addresses).reshape(-1).astype(np.int64)
        starts = starts[self._slots[1][starts // slot_bytes]]
        size = len(starts) * (access.size_bytes + starts.itemsize)
        if not size:
            return None
        if self._kept + size > ROOM_BYTES:
            self.full = True
            return None
        self._kept += size
        return Write(starts, data[starts[:, None] + np.arange(access.size_bytes)], slot_bytes)
