"""The process as it was before a launch, kept by the system: a fork, whose memory is copied where it is written to.

The forked process does nothing but fork again. Each child plays the launch, with the addresses and values of the
snapshot. The system copies a page only at a write, so tensors of any size cost nothing until a write.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import warnings
import weakref
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from cutepy.sim.parallel.mappings import any_shared
from cutepy.sim.replay.outcomes import Outcome
from cutepy.sim.replay.snapshot_process import Keeper, Player

if TYPE_CHECKING:
    from cutepy.sim.machine.lanes import Array
    from cutepy.sim.replay.outcomes import Request
    from cutepy.sim.replay.search.search import Search, SearchResult

_FOREVER_S = 1e6


class SharedMemoryError(RuntimeError):
    """Memory can't be kept as it is, since processes share it."""


class Snapshot:
    """Memory as it was when this was made, to play a launch in.

    Parameters
    ----------
    player : Player
    ranges : sequence of (int, int)
        The memory that kernels may touch.

    Raises
    ------
    RuntimeError
        If processes can't be forked.
    SharedMemoryError
        If some of that memory would be shared with them.
    """

    def __init__(self, player: Player, ranges: Sequence[tuple[int, int]]) -> None:
        if sys.platform != "linux" or multiprocessing.current_process().daemon:
            raise RuntimeError("launches are played again in forked processes, on Linux and not in a daemon")
        if any_shared(ranges):
            raise SharedMemoryError(
                "a launch on memory that processes share, by share_memory_() or numpy.memmap(mode='r+'), can't be "
                "played again: what is written there stays; pass copies"
            )
        ours, theirs = multiprocessing.Pipe()
        with warnings.catch_warnings():
            # Python 3.12 warns of forks of processes with threads: a keeper calls numpy and nothing else.
            warnings.simplefilter("ignore", DeprecationWarning)
            process = os.fork()
        if not process:
            try:
                ours.close()
                Keeper(theirs, player, ranges).run()
            finally:
                os._exit(0)
        theirs.close()
        self._connection = ours
        self.close = weakref.finalize(self, _end, os.getpid(), process, ours)

    def play(
        self,
        requests: Sequence[Request],
        tell: Callable[[int, Outcome], None],
        processes: int = 1,
        timeout_s: float = 600.0,
    ) -> None:
        """Play the launch once for each request, and yield the outcomes, in any order."""
        self._asked((list(requests), processes, timeout_s), tell)

    def search(self, request: Search) -> SearchResult:
        """Play the launch under all schedules."""
        found: list[SearchResult | Outcome] = []
        self._asked(([request], 1, _FOREVER_S), lambda _, answer: found.append(answer))
        if isinstance(found[0], Outcome):
            raise RuntimeError(f"schedules could not be played: {found[0].error}")
        return found[0]

    def _asked(self, question: object, tell: Callable[[int, Any], None]) -> None:
        try:
            self._connection.send(question)
            while (answer := self._connection.recv()) is not None:
                tell(*answer)
        except BaseException:
            self.close()  # what is under way answers no more
            raise

    def read(self, starts: Array, ends: Array) -> Array:
        """Return the old contents of ranges of memory, one after another, as bytes."""
        self._connection.send((starts, ends))
        found: Array = self._connection.recv()
        return found


def _end(owner: int, process: int, connection: Connection) -> None:
    if os.getpid() != owner:  # a fork of the one that made it
        return
    connection.close()
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
