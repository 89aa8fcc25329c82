"""Which launches come before which: streams, events, the host, and programmatic dependent launch.

Of each stream is known how many of its operations are complete: for an operation when it begins, for an event, and for
the host. A kernel of a programmatic dependent launch begins with what the kernel before it began with, if that lets it;
after griddepcontrol.wait, which is a column of the clocks, it knows that kernel to be complete, and what that one has
waited for itself.

References
----------
CUDA C++ Programming Guide, "Streams", "Programmatic Dependent Launch and Synchronization"; CUDA Runtime API, "Stream
synchronization behavior"; PTX ISA, "griddepcontrol".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.sanitize.order.clocks import FENCED

if TYPE_CHECKING:
    from cutepy.sim.machine.events import BarrierEvent
    from cutepy.sim.machine.host_events import HostAccess, StreamEvent
    from cutepy.sim.machine.launch import Launch
    from cutepy.sim.sanitize.order.wave import Wave

Prefix = dict[int, int]
"""Stream -> how many of its operations are complete."""

_LEGACY = 0
_SAME_AS_LEGACY = 1
"""cudaStreamLegacy: another name of stream 0."""


@dataclass(eq=False)
class Operation:
    """A launch, or what the host does to memory.

    Attributes
    ----------
    what : Launch or HostAccess
    stream, place : int
        Where it stands.
    base : Prefix
        What is complete when it begins.
    waits : set of int
        The launches that griddepcontrol.wait waits for, by number.
    triggers, waited : bool
        Whether threads of it have executed griddepcontrol.launch_dependents, and griddepcontrol.wait.
    """

    what: Launch | HostAccess
    stream: int
    place: int
    base: Prefix
    waits: set[int] = field(default_factory=set)
    triggers: bool = False
    waited: bool = False


def _join(into: Prefix, other: Prefix) -> Prefix:
    for stream, count in other.items():
        into[stream] = max(into.get(stream, 0), count)
    return into


class Launches:
    """The launches of a run, and what the host does beside them.

    Attributes
    ----------
    now : int
        The number of what runs.
    """

    def __init__(self) -> None:
        self.now = 0
        self._operations: dict[int, Operation] = {}
        self._streams: dict[int, Prefix] = {}
        self._apart: set[int] = set()
        self._events: dict[int, tuple[Prefix, set[int]]] = {}
        self._host: Prefix = {}
        self._last: dict[int, int] = {}
        self._early: dict[int, set[int]] = {}
        self._graph = False

    # What host code does.

    def tell(self, event: StreamEvent) -> None:
        """Take an operation on streams and events."""
        stream = self._name(event.stream)
        if event.operation == "create" and not event.blocking:
            self._apart.add(stream)
        elif event.operation == "record" and event.event is not None:
            self._events[event.event] = dict(self._known_to(stream)), set()
        elif event.operation == "wait" and event.event in self._events:
            known, launches = self._events[event.event]
            self._streams[stream] = _join(self._known_to(stream), known)
            self._last.pop(stream, None)  # what comes next is not launched early
            self._early.setdefault(stream, set()).update(launches)
        elif event.operation == "synchronise":
            self._synchronise(event)
        elif event.operation in ("graph", "end_graph"):
            self._graph = event.operation == "graph"
            self._meet()

    def _synchronise(self, event: StreamEvent) -> None:
        if event.event is not None:
            _join(self._host, self._events.get(event.event, ({}, set()))[0])
        elif event.stream is not None:
            _join(self._host, self._known_to(self._name(event.stream)))
        else:
            for known in self._streams.values():
                _join(self._host, known)

    def _meet(self) -> None:
        """Let all that comes after come after all that was before."""
        for known in self._streams.values():
            _join(self._host, known)

    def _name(self, stream: int | None) -> int:
        return _LEGACY if stream is None or stream == _SAME_AS_LEGACY or self._graph else stream

    def _known_to(self, stream: int) -> Prefix:
        """Return what is complete when an operation of a stream begins, without what the host has seen."""
        known = dict(self._streams.get(stream, {}))
        if stream == _LEGACY:
            for other, theirs in self._streams.items():
                if other not in self._apart:
                    _join(known, theirs)
        elif stream not in self._apart:
            _join(known, self._streams.get(_LEGACY, {}))
        return known

    # Operations.

    def begin(self, what: Launch | HostAccess) -> bool:
        """Begin with an operation; tells whether all that was before it is over."""
        self.now += 1
        stream = self._name(what.stream)
        full = _join(self._known_to(stream), self._host)
        place = full.get(stream, 0) + 1
        before = self._operations.get(self._last.get(stream, 0))
        base, waits = full, set(self._early.pop(stream, ()))
        if getattr(what, "programmatic", False) and before is not None and before.triggers:
            base = _join(dict(before.base), self._host)
            waits = {self._last[stream]} | (before.waits if before.waited else set())
        self._operations[self.now] = Operation(what, stream, place, base, waits)
        self._streams[stream] = {**full, stream: place}
        self._last[stream] = self.now
        for event in getattr(what, "early_events", ()):
            self._events[event] = dict(base), {self.now}
        return all(self.precedes(number) for number in self._operations if number != self.now)

    def forget(self, last: int) -> None:
        """Forget operations up to a number, which all that follow come after."""
        for number in [number for number in self._operations if number <= last]:
            del self._operations[number]

    def operation(self, number: int) -> Launch | HostAccess:
        """Return what has a number."""
        return self._operations[number].what

    def precedes(self, number: int) -> bool:
        """Tell whether an operation was over before this one began."""
        found = self._operations.get(number)
        return found is None or self._operations[self.now].base.get(found.stream, 0) >= found.place

    @property
    def host_knows_all(self) -> bool:
        """Whether the host has seen all operations before this one complete."""
        return all(self._host.get(o.stream, 0) >= o.place for n, o in self._operations.items() if n != self.now)

    # Programmatic dependent launch.

    def depend(self, wave: Wave, event: BarrierEvent) -> None:
        """Take a griddepcontrol."""
        here = self._operations[self.now]
        if "launch_dependents" in event.instruction.parts:
            here.triggers = True
            return
        here.waited = True
        if here.waits:
            clocks, slots = wave.clocks, event.ctas.slots
            columns = [clocks.column(self.channel(number)) for number in here.waits]
            what = np.zeros((FENCED + 1, len(slots), clocks.cluster, len(clocks.owner)), np.int32)
            what[:, :, 0, columns] = 1
            clocks.learn(slots, event.threads.ids, what)

    def waits(self, number: int) -> bool:
        """Tell whether griddepcontrol.wait waits for an operation."""
        return number in self._operations[self.now].waits

    def channel(self, number: int) -> tuple[str, int]:
        """Return the channel that says that a launch is over."""
        return "launch", number

    def share_stream(self, number: int) -> bool:
        """Tell whether another operation is of this one's stream."""
        mine, theirs = self._operations[self.now], self._operations[number]
        return mine.stream == theirs.stream
