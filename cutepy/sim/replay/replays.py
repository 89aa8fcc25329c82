"""Record of a run that its launches are played again from."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal

from cutepy.sim.errors import DeadlockError
from cutepy.sim.machine.events import CompletionPolicy
from cutepy.sim.machine.launch import Launch
from cutepy.sim.machine.memory import GlobalMemory
from cutepy.sim.options import checked_count, checked_script
from cutepy.sim.parallel.workers import default_processes
from cutepy.sim.replay.episodes import Episode, RecordedLaunch
from cutepy.sim.replay.launch_player import LaunchPlayer
from cutepy.sim.replay.read_effects import are_discarded, late_writes
from cutepy.sim.replay.reproducers.scripts import write_script
from cutepy.sim.replay.schedule_exploration import LIMIT, Exploration, ScheduleError, explore, explore_all
from cutepy.sim.replay.snapshots import SharedMemoryError, Snapshot
from cutepy.sim.replay.witnesses import Witness, other_orders, witness
from cutepy.sim.sanitize import Sanitizer
from cutepy.sim.sanitize.certificate.weak_memory import beyond_schedules
from cutepy.sim.sanitize.hazards import Hazard

Schedules = int | Literal["all"]

_SEARCHED_BYTES = 1 << 30
"""Memory that is put back after each of all schedules."""

_LEAVES_MORE = "malloc", "vprintf"
"""State that a launch may leave beside global memory."""

_KEPT = 16
"""Launches with hazards of which the memory before them is kept."""

_RECENT = 4
"""Launches of which it is kept in any case: a hazard may begin in one and end in a later one."""


class Replays:
    """Launches of a run, played again under other schedules.

    Parameters
    ----------
    schedules : int or "all"
        Seeded schedules of each launch that are compared with it as soon as it has run, or all that there are.
    seed : int or None
        The first of their seeds; None is 0.
    limit : int or None
        Most schedules that are played of all; None is `LIMIT`.
    keep : bool
        True to keep memory as it was before launches: of the last few, and of those with hazards.
    exact_mma : bool
    sanitizer : Sanitizer or None
        The run's: what it looks for is looked for in each schedule, and certificates are withdrawn where one differs.
    policy : CompletionPolicy or None
        The run's.

    Attributes
    ----------
    explorations : list of Exploration
    """

    def __init__(
        self,
        schedules: Schedules,
        seed: int | None,
        limit: int | None,
        keep: bool,
        exact_mma: bool,
        sanitizer: Sanitizer | None,
        policy: CompletionPolicy | None = None,
    ) -> None:
        self.explorations: list[Exploration] = []
        self._asked = _checked(schedules, seed, limit)
        self._keep, self._exact_mma, self._sanitizer, self._policy = keep, exact_mma, sanitizer, policy
        self._with_hazards = 0
        self._of: dict[tuple[object, ...], Episode] = {}
        self._recent: deque[RecordedLaunch] = deque(maxlen=_RECENT)
        self._launches = 0

    @contextmanager
    def around(self, launch: Launch, memory: GlobalMemory, hazards: Callable[[], Sequence[Hazard]]) -> Iterator[None]:
        """Keep memory as it is before a launch, explore its schedules after it, and note which hazards it has."""
        self._launches += 1
        kept = self._before(launch, memory) if self._asked or self._keep else None
        if kept is None:
            with self._blaming(launch, memory, None):
                yield
            self._judge(launch, memory, None)
            return
        before = {hazard.key for hazard in hazards()}
        self._recent.append(kept)
        try:
            with self._blaming(launch, memory, kept.snapshot):
                yield
            self._judge(launch, memory, kept.snapshot)
        finally:
            new = [h for h in hazards() if h.key not in before]
            if self._keep and new and self._with_hazards < _KEPT:
                self._with_hazards += 1
                self._of |= {hazard.key: self._episode(hazard) for hazard in new}
        if self._asked:
            self.explorations.append(self._explored(kept, self._asked))
        if not self._keep:
            self._recent.clear()
            kept.snapshot.close()

    def _episode(self, hazard: Hazard) -> Episode:
        """Return the launches that a hazard spans, as far as they are still kept: the last one found it."""
        begins = None if hazard.before is None else hazard.before.launch
        recent = list(self._recent)
        first = next((n for n, kept in enumerate(recent) if kept.launch is begins), len(recent) - 1)
        return Episode(tuple(recent[first:]))

    @contextmanager
    def _blaming(self, launch: Launch, memory: GlobalMemory, before: Snapshot | None) -> Iterator[None]:
        """If a launch hangs before its input is written, look for the operation that would write it.

        Then that may never be issued: where who reads is held back, it is.
        """
        try:
            yield
        except DeadlockError:
            sanitizer = self._sanitizer
            reads = sanitizer.unwritten_reads if sanitizer else ()
            snapshot = self._snapshot(launch, memory, before) if reads else None
            if sanitizer and snapshot:
                for read, found in late_writes(reads, snapshot, default_processes()):
                    sanitizer.explain_unwritten(read, found)
                if before is None:
                    snapshot.close()
            raise

    def _before(self, launch: Launch, memory: GlobalMemory) -> RecordedLaunch | None:
        """Keep memory as it is before a launch; None, with a warning, if other processes share it."""
        sanitizer = None if self._sanitizer is None else self._sanitizer.fresh
        player, known = LaunchPlayer(launch, memory, self._exact_mma, sanitizer), memory.ranges()
        try:
            return RecordedLaunch(self._launches - 1, launch, memory, Snapshot(player, known), known)
        except SharedMemoryError as reason:
            told = f"launch {self._launches - 1}, {launch.name}, is simulated once: {reason}"
            warnings.warn(told, RuntimeWarning, stacklevel=2)
            return None

    def _snapshot(self, launch: Launch, memory: GlobalMemory, before: Snapshot | None) -> Snapshot | None:
        """Return memory before a launch, or after it if nothing else is kept; None if it can't be played again."""
        if before is not None or self._sanitizer is None:
            return before
        try:
            player = LaunchPlayer(launch, memory, self._exact_mma, self._sanitizer.fresh)
            return Snapshot(player, memory.ranges())
        except RuntimeError:
            return None

    def _judge(self, launch: Launch, memory: GlobalMemory, before: Snapshot | None) -> None:
        """Make reads of unwritten shared memory advisories if nothing depends on them."""
        sanitizer = self._sanitizer
        reads = sanitizer.unwritten_reads if sanitizer else ()
        if not sanitizer or not reads or launch.entry.calls(*_LEAVES_MORE):
            return
        snapshot = self._snapshot(launch, memory, before)
        if snapshot is None:  # they stay hazards
            return
        if are_discarded(reads, snapshot, before is not None, self._policy, default_processes()):
            sanitizer.discard_unwritten()
        if before is None:
            snapshot.close()

    def judge_for(self, sanitizer: Sanitizer | None) -> None:
        """Take another sanitizer for the run's, or none."""
        self._sanitizer = sanitizer

    def restart(self) -> None:
        """Forget the launches so far."""
        self.explorations.clear()
        self._of.clear()
        self._recent.clear()
        self._with_hazards = self._launches = 0

    def _explored(self, kept: RecordedLaunch, asked: range | int) -> Exploration:
        of = kept.snapshot, kept.memory, kept.launch.name, kept.index
        if isinstance(asked, range):
            found = explore(*of, asked, default_processes())
        else:
            _check_size(kept.launch, kept.memory)
            found = explore_all(*of, asked)
        found = replace(found, uncovered=beyond_schedules(kept.launch.entry))
        if found.divergences and self._sanitizer is not None:
            first, *_ = str(found.divergences[0]).splitlines()
            self._sanitizer.withdraw(kept.launch, f"it depends on the schedule: {first}")
        return found

    def explore(self, schedules: Schedules, seed: int | None, limit: int | None) -> Exploration:
        """Play the last launch under seeded schedules, or all."""
        asked = _checked(schedules, seed, limit)
        if not asked:
            raise ValueError('schedules must be at least 1, or "all", got 0')
        if not self._recent:
            raise RuntimeError("a launch is played again on memory as it was: use simulate(replay=True)")
        return self._explored(self._recent[-1], asked)

    def check(self) -> None:
        """Raise ScheduleError if a schedule ended with another result."""
        found = [one for one in self.explorations if one.divergences]
        if found:
            raise ScheduleError(found)

    def need_memory(self) -> None:
        """Raise if memory is not kept as it was before launches."""
        if not self._keep:
            raise RuntimeError("a hazard is replayed on memory as it was: use simulate(sanitize=True, replay=True)")

    def _launches_of(self, hazard: Hazard) -> Episode:
        self.need_memory()
        if hazard.key not in self._of:
            raise RuntimeError(
                f"{hazard.kind} was found after {_KEPT} launches with hazards, which is all that is kept"
            )
        return self._of[hazard.key]

    def replay(self, hazard: Hazard) -> Witness:
        """Look for a schedule that shows a hazard."""
        return witness(hazard, self._launches_of(hazard), default_processes())

    def reproducer(self, hazard: Hazard, path: str | Path) -> Path:
        """Write a script that looks for a hazard on a GPU."""
        script = checked_script(path)
        episode = self._launches_of(hazard)
        others = other_orders(hazard, episode, default_processes())
        return write_script(hazard, episode, others, script)


def _checked(schedules: Schedules, seed: int | None, limit: int | None) -> range | int:
    """Return the seeds to play, none if none are asked for, or how many schedules to play of all."""
    if isinstance(schedules, str):
        if schedules != "all":
            raise ValueError(f'schedules must be a number of seeds or "all", got {schedules!r}')
        if seed is not None:
            raise ValueError(f"seed is the first of a number of schedules, and all are asked for, got {seed!r}")
        return LIMIT if limit is None else checked_count("limit", limit, 1)
    count = checked_count("schedules", schedules, 0, ', or "all"')
    if limit is not None:
        raise ValueError(f'limit is of all schedules: use schedules="all" with it, got {limit!r}')
    if seed is not None and not count:
        raise ValueError(f"seed is the first of a number of schedules: use schedules=100 with it, got {seed!r}")
    first = 0 if seed is None else checked_count("seed", seed, 0)
    return range(first, first + count)


def _check_size(launch: Launch, memory: GlobalMemory) -> None:
    size = sum(end - start for start, end in memory.ranges())
    if size > _SEARCHED_BYTES or launch.entry.calls("malloc"):
        what = "calls malloc" if size <= _SEARCHED_BYTES else f"may touch {size} bytes"
        raise RuntimeError(
            f"all schedules are played on memory that is put back each time, at most {_SEARCHED_BYTES} bytes and none "
            f"of malloc, and {launch.name} {what}: give it smaller tensors, or use schedules=100"
        )
