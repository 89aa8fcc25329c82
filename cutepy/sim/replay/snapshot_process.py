"""The process that keeps a snapshot: it forks children that play, and forwards their outcomes.

A child plays several requests one after another, and restores memory after each. That is done only for memory that is
small enough to copy quickly; with more memory a child plays once. If a child dies, only its current request is lost,
and another child plays the others.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Protocol

import numpy as np

from cutepy.sim.machine.lanes import Array
from cutepy.sim.parallel.footprint import Ranges, take
from cutepy.sim.replay.outcomes import Outcome, Request
from cutepy.sim.replay.search.search import Search, SearchResult

_COPIED_BYTES = 32 << 20
_SMALL_BYTES = 1 << 20
"""Ranges of memory that are put back whole."""
_AT_ONCE = 16
"""Requests that one child plays."""


class Player(Protocol):
    """Plays a launch."""

    def ready(self, request: Request | Search) -> None:
        """Do once the preparations that every child needs."""

    def play(self, request: Request) -> Outcome:
        """Run the launch to its end."""

    def search(self, request: Search, rewind: Callable[[Ranges], None]) -> SearchResult:
        """Run the launch under all schedules; `rewind` puts memory back, of which ranges were written."""

    @property
    def changes_memory_only(self) -> bool:
        """True if a launch changes nothing but global memory."""


@dataclass
class _Child:
    """A process that plays: the requests that it has not answered, and when it must have answered the next."""

    process: int
    indices: list[int]
    deadline: float


class Keeper:
    """Server of a snapshot: it answers requests until the client's process has ended.

    Parameters
    ----------
    connection : Connection
        Question: a list of requests, how many play at the same time, and how long one may take, in seconds; then
        (index, outcome) of each, and None. Or starts and ends of ranges; then the bytes there.
    player : Player
    ranges : sequence of (int, int)
        The memory that the launch may touch.
    """

    def __init__(self, connection: Connection, player: Player, ranges: Sequence[tuple[int, int]]) -> None:
        self._connection, self._player, self._ranges = connection, player, ranges
        is_small = sum(end - start for start, end in ranges) <= _COPIED_BYTES
        self._at_once = _AT_ONCE if is_small and player.changes_memory_only else 1

    def run(self) -> None:
        """Answer."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        gc.freeze()  # nothing of the parent's is to be finalised here
        while True:
            try:
                asked = self._connection.recv()
            except (EOFError, OSError):
                return
            if len(asked) == 2:
                self._connection.send(take(Ranges(*asked)).view(np.uint8))
            else:
                self._answer(*asked)
                self._connection.send(None)

    def _answer(self, requests: list[Request] | list[Search], processes: int, timeout_s: float) -> None:
        size = max(1, min(self._at_once, -(-len(requests) // processes)))
        waiting = [list(range(first, min(first + size, len(requests)))) for first in range(0, len(requests), size)]
        children: dict[Connection, _Child] = {}
        while waiting or children:
            while waiting and len(children) < processes:
                indices = waiting.pop(0)
                pipe, process = self._start([requests[n] for n in indices])
                children[pipe] = _Child(process, indices, time.monotonic() + timeout_s)
            soonest = min(child.deadline for child in children.values())
            ready = wait(list(children), max(0.0, soonest - time.monotonic()))
            for pipe, child in list(children.items()):
                outcome: Outcome | SearchResult | None = None
                if pipe in ready:
                    try:
                        outcome = pipe.recv()
                        child.deadline = time.monotonic() + timeout_s
                    except (EOFError, OSError):
                        outcome = Outcome("the process that played it died")
                        child.deadline = 0.0
                elif child.deadline <= time.monotonic():
                    outcome = Outcome(f"it went on for {timeout_s:.0f} s and was stopped")
                if outcome is None:
                    continue
                self._connection.send((child.indices.pop(0), outcome))
                if not child.indices or child.deadline <= time.monotonic():
                    del children[pipe]
                    _end(child.process, pipe)
                    waiting += [child.indices] if child.indices else []

    def _start(self, requests: Sequence[Request | Search]) -> tuple[Connection, int]:
        """Fork a child that plays some requests."""
        for request in requests:
            self._player.ready(request)
        ours, theirs = multiprocessing.Pipe(duplex=False)
        process = os.fork()
        if not process:
            try:
                ours.close()
                self._play(theirs, requests)
            finally:
                os._exit(0)
        theirs.close()
        return ours, process

    def _play(self, pipe: Connection, requests: Sequence[Request | Search]) -> None:
        is_search = isinstance(requests[0], Search)
        memory = MemorySnapshot(self._ranges if is_search or len(requests) > 1 else ())
        for number, request in enumerate(requests):
            if isinstance(request, Search):
                pipe.send(self._player.search(request, memory.rewind))
            else:
                if number:
                    memory.rewind()
                pipe.send(self._player.play(request))


def _end(process: int, pipe: Connection) -> None:
    pipe.close()
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)


class MemorySnapshot:
    """Copy of ranges of memory at its construction, from which they are restored.

    Parameters
    ----------
    ranges : sequence of (int, int)
        Starts and ends.
    """

    def __init__(self, ranges: Sequence[tuple[int, int]]) -> None:
        self._kept = [(start, here := _bytes_at(start, end), here.copy()) for start, end in ranges]

    def rewind(self, written: Ranges | None = None) -> None:
        """Restore memory: all of it, or the written parts of large ranges."""
        for start, here, before in self._kept:
            if written is None or len(here) <= _SMALL_BYTES:
                if not np.array_equal(here, before):  # memory that is mapped for reading may not even be written so
                    here[:] = before
                continue
            # A written range may cross into adjacent memory.
            firsts, lasts = (np.clip(each - start, 0, len(here)) for each in (written.starts, written.ends))
            inside = firsts < lasts
            for first, last in zip(firsts[inside].tolist(), lasts[inside].tolist(), strict=True):
                here[first:last] = before[first:last]


def _bytes_at(start: int, end: int) -> Array:
    return np.frombuffer(memoryview((ctypes.c_uint8 * (end - start)).from_address(start)), np.uint8)
