"""The waves of a launch spread over processes, with the results of one.

The process runs waves from the first on, as it would alone. After a while it forks workers, which see memory as it is
at the fork and run shares of the grid from the end on. Their writes are private, and come back as bytes. When the two
ends meet, the writes are put into memory in the order of the waves. If a share has read a byte that another share wrote
meanwhile, or has failed, the results of the workers are discarded, and the process runs the rest alone. So values,
errors and memory are always those of one process. Writes to memory that forked processes share could not be discarded,
so a launch that may write there runs in one process.

Workers call numpy and nothing else, so that other threads of the parent do not matter to them.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.machine.activity import Traffic
from cutepy.sim.machine.lanes import Array, Residents
from cutepy.sim.machine.launch import has_tiles
from cutepy.sim.parallel.footprint import Footprint, Ranges, meets_others, put, take
from cutepy.sim.parallel.mappings import any_shared

if TYPE_CHECKING:
    from multiprocessing.context import ForkProcess

    from cutepy.sim.engine import Engine
    from cutepy.sim.machine.cluster_queue import ClusterQueue

_PATIENCE_S = 0.1
"""Time that one process runs before it calls for others: about four times the cost of a fork."""

_LONG_WAVE_S = 0.5
"""Time that a wave is waited for before workers are forked: the next one may begin by compiling what took long."""

_POLL_S = 0.01
_SHARES_PER_PROCESS = 3
_PR_SET_PDEATHSIG = 1


def default_processes() -> int:
    """Count the processes that a launch may be spread over: the cores that this one may use, where it can fork."""
    if sys.platform != "linux" or multiprocessing.current_process().daemon:
        return 1
    return len(os.sched_getaffinity(0))


@dataclass
class _Report:
    """Result of a worker: the waves from `first` on, their counts, output and writes, and the last wave's CTAs."""

    first: int
    executed: list[int]
    stats: dict[str, int]
    text: list[str]
    reads: Ranges
    writes: Ranges
    data: Array
    shared: Array


class Team:
    """The processes of one launch: the one that launches, and its workers.

    Parameters
    ----------
    make_engine : callable
        Makes an engine for the launch, without observers.
    clusters : ClusterQueue
        The CTAs of each wave.
    processes : int
        At most, with this one.
    keep : callable
        Called with the engine when CTAs have ended, or were stopped.

    Attributes
    ----------
    engine : Engine
        This process's; in the end it has the counts and the output of all.
    used : int
        Processes whose work counted.
    """

    def __init__(
        self,
        make_engine: Callable[[], Engine],
        clusters: ClusterQueue,
        processes: int,
        keep: Callable[[Engine], None],
    ) -> None:
        self.engine = make_engine()
        self.used = 1
        self._keep = keep
        self._make_engine, self._clusters, self._processes = make_engine, clusters, processes
        self._waves = clusters.waves
        self._next, self._end = 0, len(self._waves)
        self._workers: dict[Connection, ForkProcess] = {}
        self._busy: set[Connection] = set()
        self._reports: list[_Report] = []
        self._may_fork = True
        self._due = self._began = 0.0
        self._is_fresh = False

    def run(self) -> None:
        """Run all waves.

        Raises
        ------
        SimulationError
            Of the first wave that fails, those before it being complete.
        """
        self._began = time.perf_counter()
        self._due = self._began + _PATIENCE_S
        if self._processes > 1:
            self.engine.schedule.each_round = self._tend
        try:
            while self._next < len(self._waves):
                while self._next < self._end:
                    self._run_next()
                if self._reports or self._busy:
                    self._finish()
        except KeyboardInterrupt as error:
            if not getattr(error, "__notes__", ()):  # none of this process's lanes ran
                name = self.engine.launch.name
                error.add_note(f"{name} was stopped in other processes; simulate(processes=1) says where its lanes are")
            raise
        finally:
            self.engine.schedule.each_round = None
            self._stop()

    def _run_next(self) -> None:
        self._next, self._is_fresh = self._next + 1, True
        self._look_ahead(self.engine, self._next, self._end, self._processes)
        blocks = self._clusters.begin(self._next - 1)
        if not len(blocks):  # all of its clusters are cancelled
            return
        try:
            self.engine.run(blocks)
        finally:
            self._keep(self.engine)

    @staticmethod
    def _look_ahead(engine: Engine, begun: int, end: int, processes: int) -> None:
        """Tell an engine how many waves have begun, and how many are to come: half of one, and a share of others."""
        engine.begun, engine.to_come = begun, 0.5 + (end - begun) / processes

    def _tend(self) -> None:
        """Fork workers once it is worth it, and keep them busy."""
        is_fresh, self._is_fresh = self._is_fresh, False
        now = time.perf_counter()
        if now < self._due:
            return
        self._due = now + _POLL_S
        self.engine.interruptions += 1
        if self._busy:
            self._listen(0)
        elif self._may_fork and not self._compiles_soon(now, is_fresh):
            self._may_fork = False
            # As much is to come as has been: the waves so far have told how long the others take.
            if self._end - self._next >= self._next and not any_shared(self.engine.memory.known.ranges()):
                self._fork(min(self._processes - 1, self._end - self._next))

    def _compiles_soon(self, now: float, is_fresh: bool) -> bool:
        """Return whether slow code may soon be machine code, which workers have if they are forked after that."""
        is_early = self._next == 1 or (self._next == 2 and is_fresh)
        return is_early and now < self._began + _LONG_WAVE_S and not has_tiles(self.engine.launch.entry)

    def _fork(self, count: int) -> None:
        self.engine.activity.traffic = Footprint(self.engine.activity.stats)
        context = multiprocessing.get_context("fork")
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=self._work, args=(theirs,), name="cutepy simulator", daemon=True)
            try:
                with warnings.catch_warnings():
                    # Python 3.12 warns of forks of processes with threads; see the top.
                    warnings.simplefilter("ignore", DeprecationWarning)
                    process.start()
            except OSError:  # no memory, or too many processes: there are enough
                ours.close()
                return
            finally:
                theirs.close()
            self._workers[ours] = process
            self._assign(ours)

    def _assign(self, worker: Connection) -> None:
        """Give a worker a share from the end, or let it go."""
        left = self._end - self._next
        share = None
        if left:
            size = max(1, left // (_SHARES_PER_PROCESS * self._processes))
            share = self._end - size, self._end
            self._end -= size
            self._busy.add(worker)
        worker.send(share)

    def _listen(self, timeout: float | None) -> None:
        """Take the reports that have come, and give out more."""
        try:
            for worker in wait(list(self._busy), timeout):
                assert isinstance(worker, Connection)
                self._reports.append(worker.recv())
                self._busy.remove(worker)
                self._assign(worker)
        except (EOFError, OSError):
            # A worker has failed: this process will find the first error in the order of the waves, if there is one.
            self._forget()

    def _forget(self) -> None:
        """Let this process run the remaining waves alone."""
        self._stop()
        self.engine.activity.traffic = Traffic(self.engine.activity.stats)
        self._reports.clear()
        self._end = len(self._waves)

    def _stop(self) -> None:
        """End all workers."""
        for worker, process in self._workers.items():
            process.kill()
            worker.close()
        for process in self._workers.values():
            process.join()
        self._workers.clear()
        self._busy.clear()

    def _finish(self) -> None:
        """Wait for the workers, and adopt their results in this process, or forget them."""
        while self._busy:
            self._listen(None)
        reports = sorted(self._reports, key=lambda report: report.first)
        if reports and self._are_independent(reports):
            self._take_over(reports)
        else:
            self._forget()

    def _are_independent(self, reports: Sequence[_Report]) -> bool:
        """Return whether no worker has read memory that another process wrote meanwhile."""
        assert isinstance(self.engine.activity.traffic, Footprint)
        written = [self.engine.activity.traffic.writes, *(report.writes for report in reports)]
        every = np.sort(np.concatenate([w.starts for w in written])), np.sort(np.concatenate([w.ends for w in written]))
        return not any(meets_others(report.reads, report.writes, every) for report in reports)

    def _take_over(self, reports: Sequence[_Report]) -> None:
        """Adopt the workers' results in this process."""
        for report in reports:
            put(report.writes, report.data)
            self.engine.absorb(report.executed, report.stats, report.text)
        launch, memory = self.engine.launch, self.engine.memory
        now = memory.residents
        memory.residents = Residents(
            launch.grid,
            launch.cluster,
            self._waves[-1],
            ranked=now.ranked,
            sm_count=now.sm_count,
            in_clusters=now.in_clusters,
        )
        memory.shared = reports[-1].shared
        self._keep(self.engine)
        self._next = len(self._waves)
        self.used = 1 + len(self._workers)

    # In a worker.

    def _work(self, connection: Connection) -> None:
        """Run shares until there are no more, or one fails."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        gc.freeze()  # nothing of the parent's is to be finalised here
        try:
            while (share := connection.recv()) is not None:
                connection.send(self._report(*share))
        except Exception:  # whatever it is, the parent runs into it
            connection.close()

    def _report(self, first: int, end: int) -> _Report:
        engine = self._make_engine()
        activity = engine.activity
        footprint = activity.traffic = Footprint(activity.stats)
        for n, blocks in enumerate(self._waves[first:end]):
            self._look_ahead(engine, self._next + n + 1, self._next + end - first, 1)
            engine.run(blocks)
        writes = footprint.writes
        is_last = end == len(self._waves)
        shared = engine.memory.shared if is_last else np.zeros(0, np.uint8)
        executed = engine.schedule.executed
        return _Report(first, executed, activity.stats, activity.printed, footprint.reads, writes, take(writes), shared)
