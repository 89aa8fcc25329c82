"""A launch under many schedules, seeded ones or all: their common result, and those that end with another one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cutepy.sim.errors import SimulationError
from cutepy.sim.machine.interleaving import RandomSchedule
from cutepy.sim.machine.policies import policy_named
from cutepy.sim.replay.outcomes import Outcome, Request, difference
from cutepy.sim.replay.search.search import Search
from cutepy.sim.sanitize.reports import structured

if TYPE_CHECKING:
    from cutepy.sim.machine.memory import GlobalMemory
    from cutepy.sim.replay.snapshots import Snapshot
    from cutepy.sim.sanitize.hazards import Hazard

LIMIT = 1000
"""Schedules that are played where all are asked for."""


@dataclass(frozen=True)
class Divergence:
    """A schedule that ends with another result.

    Attributes
    ----------
    policy : str
        Plays it: ``cutepy.simulate(policy=divergence.policy)``.
    kind : "values", "hang", "error" or "hazard"
    what : str
    hazard : Hazard or None
        The one that it is.
    """

    policy: str
    kind: str
    what: str
    hazard: Hazard | None = field(default=None, repr=False)

    @property
    def seed(self) -> int | None:
        """The schedule's seed, if it has one."""
        name = self.policy.removeprefix("schedule:")
        return int(name) if name.isdecimal() else None

    def to_json(self) -> dict[str, object]:
        """Return it as `json.dump` takes it."""
        told: dict[str, object] = {"policy": self.policy, "seed": self.seed, "kind": self.kind, "what": self.what}
        return told if self.hazard is None else told | {"hazard": structured.of_hazard(self.hazard)}

    def __str__(self) -> str:
        return f"{self.policy if self.seed is None else f'seed {self.seed}'}, {self.kind}: {self.what}"


@dataclass(frozen=True)
class HazardSchedule:
    """Schedule that shows a hazard which the launch itself does not show.

    Attributes
    ----------
    schedule : str
        The name of the policy.
    """

    schedule: str

    @property
    def said(self) -> str:
        """Text of the finding."""
        return f"{self.schedule} shows it, and the launch by default does not"

    def to_json(self) -> dict[str, object]:
        """Return it as `json.dump` takes it."""
        return {"policy": self.schedule, "how": self.said, "kind": None, "what": None}


@dataclass(frozen=True)
class Exploration:
    """A launch under other schedules, compared with the one that runs by default, bit for bit.

    Attributes
    ----------
    kernel : str
    launch : int
        Its index among the launches of the run.
    seeds : range
        Empty where all schedules were asked for.
    divergences : tuple of Divergence
        One for each seed that differs, or for each result that some schedule has. A hazard that the default does not
        show is told with the first schedule that does.
    schedules : int
        Number of schedules played; of all, one of those that differ in the order of steps that commute.
    is_complete : bool
        True if these are all that there are.
    endless : str
        The policy that plays a schedule which was stopped, since it went on and on; empty if there is none.
    reordered : tuple of str
        The policies of those that differ by the order in which atomics add floats, and by nothing else.
    uncovered : tuple of str
        Orders that no schedule shows: a GPU may see strong accesses without a fence.sc between in others.
    run : int or None
        Number of its run, where a report is of several; launches are counted in each run.
    """

    kernel: str
    launch: int
    seeds: range
    divergences: tuple[Divergence, ...]
    schedules: int
    is_complete: bool = False
    endless: str = ""
    reordered: tuple[str, ...] = ()
    uncovered: tuple[str, ...] = ()
    run: int | None = None

    def to_json(self) -> dict[str, object]:
        """Return it as `json.dump` takes it."""
        return {
            "kernel": self.kernel,
            "run": self.run,
            "launch": self.launch,
            "seeds": {"first": self.seeds.start, "last": self.seeds.stop - 1} if self.seeds else None,
            "played": self.schedules,
            "is_complete": self.is_complete,
            "endless": self.endless or None,
            "differ": [divergence.to_json() for divergence in self.divergences],
            "reordered": [*self.reordered],
            "uncovered": [*self.uncovered],
        }

    def __str__(self) -> str:
        return "\n".join([self._found(), *(f"  not covered: {one}" for one in self.uncovered)])

    def _found(self) -> str:
        run = "" if self.run is None else f"run {self.run}, "
        said = f"{run}launch {self.launch}, {self.kernel}: {self._played()}: "
        if not self.divergences:
            reordered = f"the same, but for the order of sums of floats under {len(self.reordered)}"
            return said + (reordered if self.reordered else "the same, bit for bit")
        count = f"{len({d.policy for d in self.divergences})} end" if self.seeds else "some end"
        lines = [said + f"{count} with another result"]
        lines += ["  " + str(d).replace("\n", "\n    ") for d in self.divergences[:_TOLD]]
        others = self.divergences[_TOLD:]
        if others and self.seeds:
            lines.append(f"  and seeds {', '.join(str(d.seed) for d in others)}")
        elif others:
            lines.append(f"  and {len(others)} more")
        return "\n".join([*lines, f'  to play one: cutepy.simulate(policy="{self.divergences[0].policy}")'])

    def _played(self) -> str:
        if self.seeds:
            return f"{self.schedules} schedules, seeds {self.seeds.start} to {self.seeds.stop - 1}"
        if self.is_complete:
            return f"all {self.schedules} schedules, up to the order of steps that commute"
        why = f"{self.endless} goes on and on" if self.endless else "there are more"
        return f"{self.schedules} schedules, not all, since {why}"


_TOLD = 3


class ScheduleError(SimulationError):
    """Launch whose outcome depends on its schedule.

    Attributes
    ----------
    explorations : tuple of Exploration
        Those with divergences.
    """

    def __init__(self, explorations: Sequence[Exploration]) -> None:
        self.explorations = tuple(explorations)
        super().__init__("\n".join(map(str, explorations)))


def reference(snapshot: Snapshot, *, sanitizes: bool = False) -> Outcome:
    """Return the default outcome of a launch."""
    (outcome,) = played(snapshot, [Request(sanitizes=sanitizes)])
    return outcome


def played(snapshot: Snapshot, requests: Sequence[Request], processes: int = 1) -> list[Outcome]:
    """Play a launch under some requests."""
    outcomes: dict[int, Outcome] = {}
    snapshot.play(requests, outcomes.__setitem__, processes)
    return [outcomes[n] for n in range(len(requests))]


class Comparison:
    """Outcomes of schedules, beside that of the default.

    Parameters
    ----------
    snapshot : Snapshot
        Memory before the launch.
    memory : GlobalMemory
        Knows the tensors.
    kernel : str

    Raises
    ------
    SimulationError
        If the launch fails by default.
    """

    def __init__(self, snapshot: Snapshot, memory: GlobalMemory, kernel: str) -> None:
        self._snapshot, self._memory = snapshot, memory
        self.expected = reference(snapshot, sanitizes=True)
        if self.expected.error:
            raise SimulationError(
                f"{kernel} fails by default, so there is nothing to compare with: {self.expected.error}"
            )
        self._hazards = {name for name, _ in self.expected.hazards}
        self.divergences: list[Divergence] = []

    def add(self, policy: str, outcome: Outcome) -> None:
        """Compare the outcome of a schedule."""
        what = difference(self.expected, outcome, self._snapshot.read, self._memory)
        new = {name: hazard for name, hazard in outcome.hazards if name not in self._hazards}
        says_it = outcome.is_hang and any(hazard.kind == "deadlock" for hazard in new.values())
        if what is not None and not says_it:
            self.divergences.append(Divergence(policy, outcome.kind, what))
        for name, hazard in new.items():
            self._hazards.add(name)
            shown = replace(hazard, witness=HazardSchedule(policy))
            self.divergences.append(Divergence(policy, "hazard", str(hazard), shown))

    def parted(self, processes: int = 1) -> tuple[tuple[Divergence, ...], tuple[str, ...]]:
        """Return the differences, and the policies whose values are the same where atomics add floats as integers."""
        policies = [d.policy for d in self.divergences if d.kind == "values"]
        if not policies:
            return tuple(self.divergences), ()
        (expected,) = played(self._snapshot, [Request(integer_sums=True)])
        requests = [Request(policy_named(policy), expected.digest, integer_sums=True) for policy in policies]
        outcomes = zip(policies, played(self._snapshot, requests, processes), strict=True)
        reordered = tuple(p for p, o in outcomes if difference(expected, o, self._snapshot.read, self._memory) is None)
        kept = [d for d in self.divergences if d.kind != "values" or d.policy not in reordered]
        return tuple(kept), reordered


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
        Number of the launch in the report.
    seeds : range
    processes : int
        Processes that play at the same time.
    """
    compared = Comparison(snapshot, memory, kernel)
    for first in range(0, len(seeds), _AT_ONCE):
        part = seeds[first : first + _AT_ONCE]
        requests = [Request(RandomSchedule(seed), compared.expected.digest, sanitizes=True) for seed in part]
        for seed, outcome in zip(part, played(snapshot, requests, processes), strict=True):
            compared.add(f"schedule:{seed}", outcome)
    found, reordered = compared.parted(processes)
    return Exploration(kernel, launch, seeds, found, len(seeds), reordered=reordered)


def explore_all(snapshot: Snapshot, memory: GlobalMemory, kernel: str, launch: int, limit: int) -> Exploration:
    """Play a launch under all schedules, up to the order of steps that commute, or the first of them."""
    compared = Comparison(snapshot, memory, kernel)
    searched = snapshot.search(Search(limit))
    for policy, outcome in searched.found:
        compared.add(policy, outcome)
    found, reordered = compared.parted()
    complete, endless = searched.is_complete, searched.endless
    return Exploration(kernel, launch, range(0), found, searched.schedules, complete, endless, reordered)


_AT_ONCE = 32
"""Schedules whose outcomes are held at the same time."""
