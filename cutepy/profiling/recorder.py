"""Recorder of a profile: scopes as they are entered, and launches of the simulator beside a source's records."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

from cutepy.profiling.backward import BackwardScopes
from cutepy.profiling.recording import Record, Recording, ScopeCall
from cutepy.profiling.scopes import scope
from cutepy.profiling.sources import Source, gpu_name
from cutepy.runtime.launch_watch import IssuedLaunch


class _ThreadScopes(threading.local):
    """Scopes that a thread is in, the innermost last, each with the object that entered it."""

    def __init__(self) -> None:
        self.entered: list[tuple[scope | None, int]] = []


class Recorder:
    """Listener to scopes and to launches of the simulator, beside a source of a GPU's records.

    Parameters
    ----------
    source : Source or None
        A source that has been started; None where there is no GPU.
    """

    def __init__(self, source: Source | None) -> None:
        self._source = source
        self._calls: list[ScopeCall] = []
        self._simulated: list[Record] = []
        self._thread = _ThreadScopes()
        self._lock = threading.Lock()
        self.backward = BackwardScopes(self)

    @property
    def current(self) -> int | None:
        """The innermost scope of the calling thread, by its place; None outside any."""
        entered = self._thread.entered
        return entered[-1][1] if entered else None

    def enter(self, entered: scope) -> None:
        """Begin a scope in the calling thread."""
        self.push(entered, self.new_call(_call(entered, self.current)))

    def leave(self, left: scope) -> None:
        """End a scope in the calling thread; one that began before the profile is not known."""
        entered = self._thread.entered
        if entered and entered[-1][0] is left:
            place = entered[-1][1]
            self._calls[place] = _call(left, self._calls[place].parent)  # what it needs may be known at its end only
            self.pop()

    def new_call(self, call: ScopeCall) -> int:
        """Add a pass through a scope, and return its place."""
        with self._lock:
            self._calls.append(call)
            return len(self._calls) - 1

    def push(self, entered: scope | None, place: int) -> None:
        """Attribute the calling thread's launches to a pass until `pop`."""
        self._thread.entered.append((entered, place))
        self.backward.changed(place)
        if self._source is not None:
            self._source.push(place)

    def pop(self) -> None:
        """Undo the calling thread's last `push`."""
        if self._thread.entered:
            self._thread.entered.pop()
            self.backward.changed(self.current)
            if self._source is not None:
                self._source.pop()

    def issued(self, launch: IssuedLaunch) -> Callable[[int, bool], None]:
        """Note where a simulated launch was issued: a watcher of `cutepy.runtime.launch_watch`."""
        place, runs = self.current, itertools.count()

        def ran(stream: int, is_replay: bool) -> None:
            self._simulated.append(
                Record(
                    launch.kernel,
                    stream=stream,
                    scope=place,
                    graph_launch=next(runs) if is_replay else None,
                    grid=launch.grid,
                    block=launch.block,
                    cluster=launch.cluster or (1, 1, 1),
                    smem_bytes=launch.dynamic_smem_bytes,
                )
            )

        return ran

    def recording(self, notes: list[str]) -> Recording:
        """End the source, and return all that was recorded."""
        records = [] if self._source is None else [*self._source.stop()]
        told = [] if self._source is None else [*self._source.notes]
        known = len(self._calls)
        records = [each for each in records if each.scope is None or each.scope < known]
        records.sort(key=lambda each: each.start_ns or 0)
        name, gpu = ("", "") if self._source is None else (self._source.name, gpu_name())
        return Recording((*records, *self._simulated), tuple(self._calls), name, gpu, (*notes, *told))


def _call(of: scope, parent: int | None) -> ScopeCall:
    return ScopeCall(of.name, parent, of.flops, of.bytes, of.precision)
