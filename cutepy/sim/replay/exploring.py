"""A launch under many seeded schedules: what all agree on, and the seeds of those that don't."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cutepy.sim.errors import SimulationError
from cutepy.sim.machine.interleaving import RandomSchedule
from cutepy.sim.replay.outcomes import Outcome, Request, difference

if TYPE_CHECKING:
    from cutepy.sim.machine.memory import GlobalMemory
    from cutepy.sim.replay.snapshots import Snapshot


@dataclass(frozen=True)
class Divergence:
    """A schedule that comes to something else.

    Attributes
    ----------
    seed : int
        Plays it: ``cutepy.simulate(policy="schedule:SEED")``.
    kind : "values", "hang" or "error"
    what : str
    """

    seed: int
    kind: str
    what: str

    def __str__(self) -> str:
        return f"seed {self.seed}, {self.kind}: {self.what}"


@dataclass(frozen=True)
class Exploration:
    """A launch under seeded schedules, compared with the one that runs by default, bit for bit.

    Attributes
    ----------
    kernel : str
    launch : int
        Its index among the launches of the run.
    seeds : range
    divergences : tuple of Divergence
    reordered : tuple of int
        The seeds that differ by the order in which atomics add floats, and by nothing else.
    """

    kernel: str
    launch: int
    seeds: range
    divergences: tuple[Divergence, ...]
    reordered: tuple[int, ...] = ()

    def __str__(self) -> str:
        seeds = f"seeds {self.seeds.start} to {self.seeds.stop - 1}"
        said = f"launch {self.launch}, {self.kernel}: {len(self.seeds)} schedules, {seeds}: "
        if not self.divergences:
            reordered = f"the same, but for the order of sums of floats under {len(self.reordered)}"
            return said + (reordered if self.reordered else "the same, bit for bit")
        lines = [said + f"{len(self.divergences)} come to something else"]
        lines += ["  " + str(d).replace("\n", "\n    ") for d in self.divergences[:_TOLD]]
        if len(self.divergences) > _TOLD:
            lines.append(f"  and seeds {', '.join(str(d.seed) for d in self.divergences[_TOLD:])}")
        first = self.divergences[0].seed
        return "\n".join([*lines, f'  to play one: cutepy.simulate(policy="schedule:{first}")'])


_TOLD = 3


class ScheduleError(SimulationError):
    """What a launch comes to depends on its schedule.

    Attributes
    ----------
    explorations : tuple of Exploration
        Those with divergences.
    """

    def __init__(self, explorations: Sequence[Exploration]) -> None:
        self.explorations = tuple(explorations)
        super().__init__("\n".join(map(str, explorations)))


def reference(snapshot: Snapshot, *, with_reads: bool = False) -> Outcome:
    """Return what a launch comes to by default."""
    return played(snapshot, [Request(with_reads=with_reads)])[0]


def played(snapshot: Snapshot, requests: Sequence[Request], processes: int = 1) -> list[Outcome]:
    """Play a launch under some requests."""
    outcomes: dict[int, Outcome] = {}
    snapshot.play(requests, outcomes.__setitem__, processes)
    return [outcomes[n] for n in range(len(requests))]


def explore(
    snapshot: Snapshot, memory: GlobalMemory, kernel: str, launch: int, seeds: range, processes: int
) -> Exploration:
    """Play a launch under the schedules of some seeds.

    Parameters
    ----------
    snapshot : Snapshot
        Memory before the launch.
    memory : GlobalMemory
        Knows the tensors.
    kernel : str
    launch : int
        How it is called in the report.
    seeds : range
    processes : int
        How many play at the same time.

    Raises
    ------
    SimulationError
        If the launch fails by default.
    """
    expected = reference(snapshot)
    if expected.error:
        raise SimulationError(f"{kernel} fails by default, so there is nothing to compare with: {expected.error}")
    found, reordered = [], list[int]()
    for first in range(0, len(seeds), _AT_ONCE):
        part = seeds[first : first + _AT_ONCE]
        requests = [Request(RandomSchedule(seed), expected.digest) for seed in part]
        differing = []
        for seed, outcome in zip(part, played(snapshot, requests, processes), strict=True):
            what = difference(expected, outcome, snapshot.read, memory)
            if what is not None:
                differing.append(Divergence(seed, outcome.kind, what))
        only = _reordered(snapshot, memory, [d.seed for d in differing if d.kind == "values"], processes)
        reordered += only
        found += [d for d in differing if d.seed not in only]
    return Exploration(kernel, launch, seeds, tuple(found), tuple(reordered))


def _reordered(snapshot: Snapshot, memory: GlobalMemory, seeds: Sequence[int], processes: int) -> list[int]:
    """Return the seeds whose values are the same where atomics add floats as integers, in whatever order."""
    if not seeds:
        return []
    expected = played(snapshot, [Request(integer_sums=True)])[0]
    requests = [Request(RandomSchedule(seed), expected.digest, integer_sums=True) for seed in seeds]
    outcomes = played(snapshot, requests, processes)
    return [
        seed for seed, o in zip(seeds, outcomes, strict=True) if difference(expected, o, snapshot.read, memory) is None
    ]


_AT_ONCE = 32
"""Schedules whose outcomes are held at the same time."""
