"""What a run keeps to play its launches again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cutepy.sim.parallel.workers import default_processes
from cutepy.sim.replay.episodes import Episode, Kept
from cutepy.sim.replay.exploring import Exploration, ScheduleError, explore
from cutepy.sim.replay.playing import LaunchPlayer
from cutepy.sim.replay.reproducers.scripts import write_script
from cutepy.sim.replay.snapshots import Snapshot
from cutepy.sim.replay.witnesses import Witness, other_orders, witness

if TYPE_CHECKING:
    from cutepy.sim.machine.launch import Launch
    from cutepy.sim.machine.memory import GlobalMemory
    from cutepy.sim.sanitize.hazards import Hazard

_KEPT = 16
"""Launches with hazards of which the memory before them is kept."""

_RECENT = 4
"""Launches of which it is kept in any case: a hazard may begin in one and end in a later one."""


class Replays:
    """Launches of a run, played again under other schedules.

    Parameters
    ----------
    schedules : int
        Seeded schedules of each launch that are compared with it as soon as it has run.
    seed : int
        The first of their seeds.
    keep : bool
        Whether to keep memory as it was before launches: of the last one, and of those with hazards.
    exact_mma : bool

    Attributes
    ----------
    explorations : list of Exploration
    """

    def __init__(self, schedules: int, seed: int, keep: bool, exact_mma: bool) -> None:
        if schedules < 0 or seed < 0:
            raise ValueError(f"schedules and seed must not be negative, got {schedules} and {seed}")
        self.explorations: list[Exploration] = []
        self._schedules, self._seed, self._keep, self._exact_mma = schedules, seed, keep, exact_mma
        self._with_hazards = 0
        self._of: dict[tuple[object, ...], Episode] = {}
        self._recent: deque[Kept] = deque(maxlen=_RECENT)
        self._launches = 0

    @contextmanager
    def around(self, launch: Launch, memory: GlobalMemory, hazards: Callable[[], Sequence[Hazard]]) -> Iterator[None]:
        """Keep memory as it is before a launch, explore its schedules after it, and note which hazards it has."""
        self._launches += 1
        if not (self._schedules or self._keep):
            yield
            return
        player = LaunchPlayer(launch, memory, self._exact_mma)
        known = memory.ranges()
        kept = Kept(self._launches - 1, launch, memory, Snapshot(player, known), known)
        before = {hazard.key for hazard in hazards()}
        self._recent.append(kept)
        try:
            yield
        finally:
            new = [h for h in hazards() if h.key not in before]
            if self._keep and new and self._with_hazards < _KEPT:
                self._with_hazards += 1
                self._of |= {hazard.key: self._episode(hazard) for hazard in new}
        if self._schedules:
            self.explorations.append(self._explored(kept, range(self._seed, self._seed + self._schedules)))
        if not self._keep:
            self._recent.clear()
            kept.snapshot.close()

    def _episode(self, hazard: Hazard) -> Episode:
        """Return the launches that a hazard spans, as far as they are still kept: the last one found it."""
        begins = None if hazard.before is None else hazard.before.launch
        recent = list(self._recent)
        first = next((n for n, kept in enumerate(recent) if kept.launch is begins), len(recent) - 1)
        return Episode(tuple(recent[first:]))

    def restart(self) -> None:
        """Forget the launches so far."""
        self.explorations.clear()
        self._of.clear()
        self._recent.clear()
        self._with_hazards = self._launches = 0

    def _explored(self, kept: Kept, seeds: range) -> Exploration:
        return explore(kept.snapshot, kept.memory, kept.launch.name, kept.index, seeds, default_processes())

    def explore(self, schedules: int, seed: int) -> Exploration:
        """Play the last launch under seeded schedules."""
        if not self._recent:
            raise RuntimeError("a launch is played again on memory as it was: use simulate(replay=True)")
        return self._explored(self._recent[-1], range(seed, seed + schedules))

    def check(self) -> None:
        """Raise ScheduleError if a schedule came to something else."""
        found = [one for one in self.explorations if one.divergences]
        if found:
            raise ScheduleError(found)

    def _launches_of(self, hazard: Hazard) -> Episode:
        if not self._keep:
            raise RuntimeError("a hazard is replayed on memory as it was: use simulate(sanitize=True, replay=True)")
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
        episode = self._launches_of(hazard)
        others = other_orders(hazard, episode, default_processes())
        return write_script(hazard, episode, others, Path(path))
