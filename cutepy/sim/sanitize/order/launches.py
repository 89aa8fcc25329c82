"""Happens-before between launches: streams, events, the host, and programmatic dependent launch.

What is known to be complete is a set of operations, by number, kept as the bits of an int: to an operation when it
begins, to a stream (what comes next there), an event and the host. So no operation is too far back to be told apart. A
kernel of a programmatic dependent launch begins when the threads of the kernel before it have let it, or have ended. It
begins with what that one began with; and of those whose threads must have ended by then, it knows that they read no
more, not that their writes can be seen. griddepcontrol.wait, which is a column of the clocks, says that the kernel
before is complete; what that one ran beside is complete if it has waited.

References
----------
CUDA C++ Programming Guide, "Streams", "Programmatic Dependent Launch and Synchronization"; CUDA Runtime API, "Stream
synchronization behavior", cudaGraphEdgeData, cudaGraphKernelNodePortProgrammatic; PTX ISA, "griddepcontrol".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.machine.host_events import HostAccess
from cutepy.sim.machine.launch import Launch

if TYPE_CHECKING:
    from cutepy.sim.machine.events import Fence
    from cutepy.sim.machine.host_events import StreamEvent
    from cutepy.sim.sanitize.order.wave import Wave

Known = int
"""Operations that are complete, and whose writes can be seen: bit n stands for operation n."""

_LEGACY = 0
_SAME_AS_LEGACY = 1
"""cudaStreamLegacy: another name of stream 0."""

_NOTHING = HostAccess("", False, np.zeros(0, np.intp), 0, _LEGACY)
"""Stands before the first operation."""


@dataclass(eq=False)
class Operation:
    """A launch, or an access of the host to memory.

    Attributes
    ----------
    what : Launch or HostAccess
    stream : int
    base : Known
        Operations that are complete when it begins.
    ended : Known
        Operations that have ended their reads when it begins, beside those.
    waits : Known
        Operations that are complete after griddepcontrol.wait.
    covers : Known
        Operations that are complete once it is, beside its base: itself, and those that its threads have waited for.
    triggers : bool
        True if threads of it have executed griddepcontrol.launch_dependents.
    """

    what: Launch | HostAccess
    stream: int
    base: Known
    ended: Known
    waits: Known
    covers: Known
    triggers: bool = False


@dataclass(eq=False)
class _Event:
    """Operations complete at an event: those at its record, or those at the start of a launch that records it.

    Attributes
    ----------
    known : Known
    early : Operation or None
        That launch, whose end griddepcontrol.wait awaits in kernels that wait for the event.
    """

    known: Known = 0
    early: Operation | None = None


class Launches:
    """The launches of a run, and the host's operations beside them.

    Attributes
    ----------
    now : int
        The number of the running operation.
    """

    def __init__(self) -> None:
        self.now = 0
        self._forgotten = 0
        self._operations: dict[int, Launch | HostAccess] = {}
        self._stream_of: dict[int, int] = {}
        self._here = Operation(_NOTHING, _LEGACY, 0, 0, 0, 0)
        self._streams: dict[int, Known] = {}
        self._apart: set[int] = set()
        self._events: dict[int, _Event] = {}
        self._host: Known = 0
        self._last: dict[int, Operation] = {}
        self._early: dict[int, list[Operation]] = {}
        self._graphs = 0  # that are being launched, one within another

    # Host code.

    def tell(self, event: StreamEvent) -> None:
        """Take an operation on streams and events."""
        stream = self._name(event.stream)
        if event.operation == "create":
            (self._apart.discard if event.blocking else self._apart.add)(stream)
        elif event.operation == "record" and event.event is not None:
            self._events[event.event] = _Event(self._known_to(stream))
        elif event.operation == "wait" and event.event in self._events:
            found = self._events[event.event]
            self._streams[stream] = self._known_to(stream) | found.known
            self._last.pop(stream, None)  # what comes next is not launched early
            if found.early is not None:
                self._early.setdefault(stream, []).append(found.early)
        elif event.operation == "synchronise":
            self._synchronise(event)
        elif event.operation in ("graph", "end_graph"):
            self._graphs += 1 if event.operation == "graph" else -1
            self._last.pop(stream, None)

    def _synchronise(self, event: StreamEvent) -> None:
        if event.event is not None:
            self._host |= self._events.get(event.event, _Event()).known
        elif event.stream is not None:
            self._host |= self._known_to(self._name(event.stream))
        else:
            self._host = _up_to(self.now)

    def _name(self, stream: int | None) -> int:
        return _LEGACY if stream is None or stream == _SAME_AS_LEGACY else stream

    def _known_to(self, stream: int) -> Known:
        """Return the operations complete when an operation of a stream begins, without those the host has seen."""
        return self._streams.get(stream, 0) | self._from_others(stream)

    def _from_others(self, stream: int) -> Known:
        """Return the operations that stream 0 and other streams wait for in each other."""
        if stream == _LEGACY:
            return _union(known for other, known in self._streams.items() if other not in {stream, *self._apart})
        return 0 if stream in self._apart else self._streams.get(_LEGACY, 0)

    # Operations.

    def begin(self, what: Launch | HostAccess) -> bool:
        """Begin an operation; return whether all earlier operations have ended."""
        self.now += 1
        stream = self._name(what.stream)
        before = self._last.get(stream)
        known = self._known_to(stream)
        waits = _union(early.covers for early in self._early.pop(stream, ()))
        ended: Known = 0
        if before is not None and _is_programmatic(what) and isinstance(before.what, Launch):
            base = before.base | self._from_others(stream)
            ended = before.ended | (0 if before.triggers else before.covers)
            waits |= before.covers
        elif before is not None and self._graphs:  # its edge is from one node, not from what that ran beside
            base, ended = before.base | before.covers, before.ended
        else:
            base = known
        base |= self._host | _up_to(self._forgotten)
        self._here = here = Operation(what, stream, base, ended, waits, 1 << self.now)
        self._operations[self.now], self._stream_of[self.now] = what, stream
        self._last[stream] = here
        self._streams[stream] = known | base | here.covers
        for event in getattr(what, "early_events", ()):
            self._events[event] = _Event(base, here)
        return self.all_precede(_up_to(self.now - 1))

    def forget(self, last: int) -> None:
        """Forget operations up to a number, which all that follow come after."""
        self._forgotten = max(self._forgotten, last)
        self._here.base |= _up_to(self._forgotten)
        for number in [number for number in self._operations if number <= last]:
            del self._operations[number], self._stream_of[number]

    def operation(self, number: int) -> Launch | HostAccess:
        """Return the operation with a number."""
        return self._operations[number]

    def precedes(self, number: int) -> bool:
        """Return whether an operation was complete before this one began, and its writes can be seen."""
        return bool(self._here.base >> number & 1)

    @property
    def before(self) -> Known:
        """Operations, as bits, complete before this one began, except those that every operation comes after."""
        return self._here.base & ~_up_to(self._forgotten)

    def all_precede(self, numbers: Known) -> bool:
        """Tell whether each of several operations was complete, and its writes visible, before this operation began."""
        return not numbers & ~self._here.base

    def reads_no_more(self, number: int) -> bool:
        """Return whether the threads of an operation had ended before this one began."""
        return bool((self._here.base | self._here.ended) >> number & 1)

    @property
    def host_knows_all(self) -> bool:
        """True if the host has seen all operations before this one complete."""
        return not _up_to(self.now - 1) & ~(self._host | _up_to(self._forgotten))

    # Programmatic dependent launch.

    def depend(self, wave: Wave, event: Fence) -> None:
        """Take a griddepcontrol."""
        here = self._here
        if "launch_dependents" in event.instruction.parts:
            here.triggers = True
            return
        if here.waits:
            here.covers |= here.waits
            self._streams[here.stream] |= here.waits
            clocks, slots = wave.clocks, event.ctas.slots
            column = wave.over_column(here.waits)
            what = clocks.nothing(len(slots), len(clocks.owner))
            what[:, :, 0, column] = 1
            clocks.learn(slots, event.threads.ids, what)

    def waits(self, number: int) -> bool:
        """Return whether griddepcontrol.wait waits for an operation."""
        return bool(self._here.waits >> number & 1)

    @property
    def is_programmatic(self) -> bool:
        """True if the current operation is a programmatic dependent launch."""
        return _is_programmatic(self._here.what)

    def share_stream(self, number: int) -> bool:
        """Return whether another operation is of this one's stream."""
        return self._here.stream == self._stream_of[number]


def _up_to(number: int) -> Known:
    """Return all operations up to a number."""
    return (1 << number + 1) - 1


def _union(sets: Iterable[Known]) -> Known:
    return reduce(or_, sets, 0)


def _is_programmatic(what: Launch | HostAccess) -> bool:
    return isinstance(what, Launch) and what.programmatic
