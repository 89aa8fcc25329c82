"""Witnesses of hazards: a schedule that shows one, wrong value and all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from cutepy.sim.machine.interleaving import Interleaving, RandomSchedule
from cutepy.sim.machine.policies import POISON, HoldBack, Site
from cutepy.sim.replay.episodes import Episode
from cutepy.sim.replay.outcomes import Outcome, Request, difference, site_of
from cutepy.sim.replay.schedule_exploration import played, reference
from cutepy.sim.sanitize.hazards import Hazard

_SEEDS = range(16)

_ONE_MEMORY = "the simulator has one memory for all proxies, in which nothing is late that the fence would wait for"
_NO_SCHEDULE = {
    "missing-proxy-fence": _ONE_MEMORY,
    "unfenced-overwrite": _ONE_MEMORY,
    "too-weak-semantics": "the simulator has one memory, in which all see at once what is written",
    "missing-init-fence": _ONE_MEMORY,
    "missing-wgmma-fence": "the simulator reads registers as they are when an MMA is issued",
    "fragment-in-flight": "the simulator reads registers of A when an MMA is issued",
    "non-coherent-read": "the simulator has no cache that is not coherent",
    "missing-tensormap-fence": "the simulator reads a tensor map as it is in memory",
    "unmet-warps": "the simulator issues an MMA once all four warps have come to it",
    "layout-mismatch": "the values are as wrong in every schedule",
    "partial-warp": "the simulator executes lanes by themselves where the ISA does not say what happens",
    "undefined-shuffle": "the simulator gives a lane its own value where the ISA does not say which it gets",
}


_AT_EXIT = "in-flight-at-exit", "exited-peer"
_SELDOM = {
    "too-narrow-scope": "the simulator has one memory, in which all see at once what is written",
    "partial-overlap": "the simulator has one memory, in which a word is written at once",
    "overwritten-mbarrier": "the simulator keeps what an mbarrier counts beside memory",
    "partial-warpgroup": "the simulator executes warps by themselves where the ISA does not say what happens",
    "misused-setmaxnreg": "the simulator gives registers to warps by themselves",
}
"""Why schedules that were tried may have shown nothing."""


@dataclass(frozen=True)
class Witness:
    """A schedule that shows a hazard, or why there is none.

    Attributes
    ----------
    hazard : Hazard
    how : str
        The schedule.
    what : str or None
        Effect: the first value that differs, an error, or lanes that wait for ever. None if there is none.
    kind : str
        "values", "hang", "error", or "" without a change.
    policy : Interleaving or None
        Plays it: ``cutepy.simulate(policy=witness.policy)``. By its name, in any process: `schedule`.
    """

    hazard: Hazard
    how: str
    what: str | None = None
    kind: str = ""
    policy: Interleaving | None = field(default=None, repr=False)

    @property
    def said(self) -> str:
        """Schedule that shows a hazard, and its effect."""
        return f"nothing changes: {self.how}" if self.what is None else f"{self.how}: {self.kind}: {self.what}"

    @property
    def schedule(self) -> str:
        """The name of the policy, as ``simulate(policy=...)`` takes it; empty if there is none."""
        return "" if self.policy is None else repr(self.policy)

    def to_json(self) -> dict[str, object]:
        """Return it as `json.dump` takes it."""
        return {"policy": self.schedule or None, "how": self.how, "kind": self.kind or None, "what": self.what}

    def __str__(self) -> str:
        return f"{self.hazard.kind}: {self.said}"


def witness(hazard: Hazard, episode: Episode, processes: int) -> Witness:
    """Look for a schedule that shows a hazard: one that holds back the first side, then seeded ones."""
    if hazard.kind in _NO_SCHEDULE:
        return Witness(hazard, f"no schedule shows it here: {_NO_SCHEDULE[hazard.kind]}; `reproducer` is for a GPU")
    snapshot, memory = episode.parts[-1].snapshot, episode.parts[-1].memory
    expected = reference(snapshot)
    if expected.error:
        return Witness(hazard, "by default", expected.error, expected.kind)
    if len(episode.parts) > 1:
        return _of_launches(hazard, episode, expected)
    tried = list(_schedules(hazard))
    aimed = len(tried) - len(_SEEDS)
    for part in (*([one] for one in tried[:aimed]), tried[aimed:]):
        requests = [Request(policy, expected.digest) for policy, _ in part]
        for (policy, how), outcome in zip(part, played(snapshot, requests, processes), strict=True):
            what = difference(expected, outcome, snapshot.read, memory)
            if what is not None:
                return Witness(hazard, how, what, outcome.kind, policy)
    why = f"; {_SELDOM[hazard.kind]}" if hazard.kind in _SELDOM else ""
    some = ", ".join(how for _, how in tried[:2])
    return Witness(hazard, f"{len(tried)} schedules come to the same, {some}, ...{why}")


def _of_launches(hazard: Hazard, episode: Episode, expected: Outcome) -> Witness:
    """Play the last of some launches before the others."""
    how = f"{hazard.kernel} before the launches that it does not wait for"
    last, *_ = (*episode.last_first(), None)
    before, memory = episode.parts[-1].snapshot.read, episode.parts[-1].memory
    what = None if last is None else difference(expected, last, before, memory)
    return Witness(hazard, how, what, "" if what is None else "values")


def other_orders(hazard: Hazard, episode: Episode, processes: int) -> list[list[Outcome]]:
    """Return the outcomes of its launches, one after another, if the sides of a hazard come in another order.

    Parameters
    ----------
    hazard : Hazard
    episode : Episode
        The launches that it spans. Of two, the later one comes first; within one, a side is held back: of these
        schedules those count that end, and with other values.
    processes : int
        Processes that play at the same time.
    """
    if hazard.kind in _NO_SCHEDULE or episode.error:
        return []
    if len(episode.parts) > 1:
        return [found] if (found := episode.last_first()) else []
    requests = [Request(policy) for policy, _ in _aimed(hazard)]
    expected, *outcomes = played(episode.parts[0].snapshot, [Request(), *requests], processes)
    distinct = {outcome.digest: outcome for outcome in outcomes if not outcome.error}
    return [[outcome] for digest, outcome in distinct.items() if digest != expected.digest]


def _schedules(hazard: Hazard) -> Iterator[tuple[Interleaving, str]]:
    """Return schedules that may show a hazard, the likeliest first, and how they are called."""
    yield from _aimed(hazard)
    for seed in _SEEDS:
        yield RandomSchedule(seed), f'policy="schedule:{seed}"'


def _aimed(hazard: Hazard) -> Iterator[tuple[Interleaving, str]]:
    """Return those that hold back one of its sides."""
    before, after = hazard.before, hazard.after
    if hazard.kind == "uninitialised-read":
        yield HoldBack(None, POISON), "with NaN in shared memory where a CTA begins"
    elif hazard.kind == "unstarted-peer" and hazard.place is not None and (cta := hazard.place.cta) is not None:
        yield HoldBack(Site(0, cta=cta), POISON), f"holding back CTA {cta}"
    elif before is None and after.instruction is not None:
        for site in dict.fromkeys((site_of(after), replace(site_of(after), lane=None))):
            yield HoldBack(site), f"holding back the {after.what} of {_whose(site)} at {after.line}"
    elif before is not None and before.instruction is not None:
        lane = site_of(before)
        poison = POISON if hazard.kind in _AT_EXIT else None
        warp, every = replace(lane, lane=None), replace(lane, lane=None, warp=None)
        # Those who issue an operation may wait for it themselves, and others not: then they are late as a whole.
        issuers = [replace(site, is_operation=False) for site in (warp, lane) if site.warp is not None]
        for site in dict.fromkeys((warp, every, lane, *issuers)):
            yield HoldBack(site, poison), f"holding back the {before.what} of {_whose(site)} at {before.line}"
        if after.instruction is not None and hazard.kind == "unordered-read":
            # A read that came first may find, held back, what is written later.
            site = replace(site_of(after), lane=None)
            yield HoldBack(site), f"holding back the {after.what} of {_whose(site)} at {after.line}"


def _whose(site: Site) -> str:
    who = "all CTAs" if site.cta is None else f"CTA {site.cta}"
    if site.warp is None:
        return who
    return f"{'' if site.lane is None else f'lane {site.lane} of '}warp {site.warp} of {who}"
