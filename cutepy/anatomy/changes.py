"""Changes of recorded traces, which predict a launch without a slow place.

A change gives warps other facts; the barriers then need the contributions that are left.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any

from cutepy.predict.trace import (
    LINE_BYTES,
    Arrive,
    Commit,
    CtaTrace,
    Global,
    Mma,
    Shared,
    Trace,
    Wait,
    WaitGroup,
    WarpTrace,
)
from cutepy.sim.machine.activity import SECTOR_BYTES

Facts = list[Any]
Change = Callable[[WarpTrace], dict[int, Facts]]
"""Facts that replace those of a warp, by index of the instruction."""


def with_changes(trace: Trace, change: Change) -> Trace:
    """Return a trace whose warps have other facts, with the contributions that their barriers then need."""
    clusters = [
        [CtaTrace(cta.block, cta.rank, [_warp(warp, change(warp)) for warp in cta.warps]) for cta in cluster]
        for cluster in trace.clusters
    ]
    return replace(trace, clusters=clusters)


def _warp(warp: WarpTrace, other: dict[int, Facts]) -> WarpTrace:
    return WarpTrace(warp.path, defaultdict(list, {**warp.facts, **other})) if other else warp


def of_kind(facts: Iterable[Any], kind: type) -> list[Any]:
    """Return the facts of a kind."""
    return [fact for fact in facts if isinstance(fact, kind)]


def places_of(warp: WarpTrace, group: Collection[int], kind: type) -> list[tuple[int, int, int]]:
    """List facts of some instructions in their order: position in the path, instruction, place among its facts."""
    return sorted(
        (fact.at, n, place) for n in group for place, fact in enumerate(warp.facts.get(n, ())) if isinstance(fact, kind)
    )


def later(warp: WarpTrace, group: Collection[int]) -> dict[int, Facts]:
    """Let waits for groups leave one more in flight, but the last wait of the warp."""
    found: dict[int, Facts] = {n: list(warp.facts[n]) for n in group if n in warp.facts}
    for _, n, place in places_of(warp, group, WaitGroup)[:-1]:
        found[n][place] = found[n][place]._replace(remaining=found[n][place].remaining + 1)
    return found


def shifted(warp: WarpTrace, group: Collection[int], stages: int) -> dict[int, Facts]:
    """Let the waits of a producer be for stages that were released so many tiles earlier."""
    waits = places_of(warp, group, Wait)
    if not waits:
        return {}
    keys = [of_kind(warp.facts[n][place : place + 1], Wait)[0].key for _, n, place in waits]
    found: dict[int, Facts] = {n: list(warp.facts[n]) for _, n, _ in waits}
    gone: defaultdict[int, set[int]] = defaultdict(set)
    for number, (_, n, place) in enumerate(waits):
        if number < stages:
            gone[n].add(place)
        else:
            found[n][place] = found[n][place]._replace(key=keys[number - stages])
    return {n: [fact for place, fact in enumerate(facts) if place not in gone[n]] for n, facts in found.items()}


def without_keys(warp: WarpTrace, group: Collection[int], keys: Collection[int]) -> dict[int, Facts]:
    """Drop waits for some phases, and arrivals that are for them alone, at some instructions."""

    def stays(fact: object) -> bool:
        if isinstance(fact, Wait):
            return fact.key not in keys
        return not (isinstance(fact, Arrive) and fact.keys and all(key in keys for key in fact.keys))

    return {n: [fact for fact in warp.facts[n] if stays(fact)] for n in group if n in warp.facts}


def serial(trace: Trace) -> Trace:
    """Return a trace in which a wait follows each MMA."""

    def change(warp: WarpTrace) -> dict[int, Facts]:
        found: dict[int, Facts] = {}
        for n, facts in warp.facts.items():
            if of_kind(facts, Mma):
                found[n] = [
                    each
                    for fact in facts
                    for each in (fact, Commit(fact.at, "wgmma group"), WaitGroup(fact.at, "wgmma group", 0, False))
                ]
        return found

    return with_changes(trace, change)


def with_fewest(trace: Trace, shares: dict[int, float]) -> Trace:
    """Return a trace in which some accesses take so much of their wavefronts or sectors."""
    less: Counter[int] = Counter()
    written_less: Counter[int] = Counter()

    def change(warp: WarpTrace) -> dict[int, Facts]:
        found: dict[int, Facts] = {}
        for n, share in shares.items():
            facts = warp.facts.get(n, ())
            if not facts:
                continue
            changed = [_scaled(fact, share) for fact in facts]
            for old, new in zip(facts, changed, strict=True):
                if isinstance(old, Global) and old.kind == "load":
                    less[old.region] += old.new_sectors - new.new_sectors
                elif isinstance(old, Global):
                    written_less[old.region] += old.sectors - new.sectors
            found[n] = changed
        return found

    made = with_changes(trace, change)
    regions = [
        replace(
            region,
            reads=_lessened(region.reads, SECTOR_BYTES * less[number]),
            writes=_lessened(region.writes, SECTOR_BYTES * written_less[number]),
        )
        for number, region in enumerate(trace.regions)
    ]
    return replace(made, regions=regions)


def _lessened(bytes_of: Counter[int], saved_bytes: float) -> Counter[int]:
    """Return the bytes of each CTA after so many fewer in all, in equal shares."""
    share = max(0.0, 1.0 - saved_bytes / max(bytes_of.total(), 1))
    return Counter({cta: round(share * each) for cta, each in bytes_of.items()})


def _scaled(fact: Any, share: float) -> Any:  # noqa: ANN401
    """Return an access with a share of its wavefronts, or of its sectors, whole and beside each other."""
    if isinstance(fact, Shared):
        return fact._replace(wavefronts=fact.wavefronts * share)
    if isinstance(fact, Global):
        sectors = fact.sectors * share
        lines = min(fact.lines, max(1.0, sectors * SECTOR_BYTES / LINE_BYTES))
        return fact._replace(sectors=sectors, new_sectors=min(fact.new_sectors, sectors), lines=lines, part_sectors=0.0)
    return fact
