"""Slow places of a launch, each with its predicted cost: the launch is predicted as it is, and without that place.

A place is a line and a mechanism: an uncoalesced access, a bank conflict, a wait that comes early, a ring with too few
stages, a barrier that orders nothing, spills, low occupancy, a tail. "Without" is a change of the recorded trace, such
as an access with the fewest wavefronts, or a producer's wait for a stage that was released one tile earlier, as in a
ring with one more stage. The changed trace is run by the same model, so that a place off the critical path costs
nothing. Costs of several places do not add up.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from cutepy.anatomy.changes import later, of_kind, places_of, serial, shifted, with_changes, with_fewest, without_keys
from cutepy.anatomy.mmas import site_of
from cutepy.anatomy.model import SlowPlace
from cutepy.anatomy.words import several
from cutepy.binaries.ptxas import AssemblyError, assemble
from cutepy.binaries.sass import DisassemblyError
from cutepy.binaries.spills import spills
from cutepy.layouts.sm90.arch import RESERVED_SMEM_BYTES, SMEM_BYTES_PER_CTA, SMEM_BYTES_PER_SM
from cutepy.predict.launch import Prediction, Predictor
from cutepy.predict.timer import Timer
from cutepy.predict.trace import (
    Arrive,
    CtaTrace,
    Global,
    Load,
    Mma,
    Shared,
    Store,
    Trace,
    Wait,
    WaitGroup,
    WarpTrace,
)
from cutepy.sim.machine.launch import KernelCall, Launch
from cutepy.sim.machine.memory import GlobalMemory
from cutepy.sim.machine.observer import Observer
from cutepy.sim.ptx import Instruction
from cutepy.sim.ptx.barrier_names import stage_of
from cutepy.sim.translate.effects import accumulators, is_wgmma, read, written

LEAST_SHARE, LEAST_US = 0.01, 0.02
"""Share of a launch's time, and microseconds, from which on a place is told."""
MOST_SECONDS = 60.0
"""Time after which no further place is predicted."""
_TRIES = 4
"""Places of a kind that are predicted without, those with the most waits or excess first."""
_SERIAL = "C7510"
"""Advisory of ptxas: wgmmas are serialised."""


class Costs(Timer):
    """Timer that also looks for slow places, in the first launch of each kernel and grid.

    All CTAs of a launch run, so that a script may check its results; sampled ones are traced.

    Attributes
    ----------
    found : dict of (str, str) to (Prediction, tuple of SlowPlace)
        By PTX and kernel, those of its launch with the most time.
    unpredicted : dict of (str, str) to str
        Reasons of kernels that were not predicted.
    unfinished : set of (str, str)
        Kernels of which the search took too long, so that places may be missing.

    Examples
    --------
    >>> import cutepy
    >>> from cutepy.anatomy import Costs, Watch
    >>> def explained(my_function, *tensors):
    ...     watch, costs = Watch(), Costs("h200")
    ...     with cutepy.simulate(observers=[watch], time=costs):
    ...         my_function(*tensors)
    ...     return cutepy.explain(watch, costs=costs)
    """

    def __init__(self, gpu: str = "h200") -> None:
        super().__init__(gpu)
        self.found: dict[tuple[str, str], tuple[Prediction, tuple[SlowPlace, ...]]] = {}
        self.unpredicted: dict[tuple[str, str], str] = {}
        self.unfinished: set[tuple[str, str]] = set()
        self._known: set[tuple[object, ...]] = set()

    def begin(self, call: KernelCall, known: GlobalMemory) -> tuple[KernelCall, Observer]:
        """Return the call unchanged, and an observer that traces sampled CTAs of a new launch."""
        key = call.loaded.ptx, call.kernel, tuple(call.grid)
        self._traced = key not in self._known and call.loaded.module.target.startswith("sm_90")
        self._known.add(key)
        return call, super().begin(call, known)[1] if self._traced else Observer()

    def end(self, launch: Launch) -> None:
        """Predict a launch, and look for its slow places."""
        if not self._traced:
            return
        key = launch.ptx, launch.kernel
        try:
            search = Search(launch, self._tracer.trace, self._gpu)
        except (AssemblyError, DisassemblyError) as error:
            self.unpredicted[key] = str(error)
            return
        self.predictions.append(search.base)
        if key not in self.found or search.base.us > self.found[key][0].us:
            self.found[key] = search.base, tuple(search.places())
            self.unfinished.discard(key)
            if search.is_cut:
                self.unfinished.add(key)


class Search:
    """Search for the slow places of one launch.

    Parameters
    ----------
    launch : Launch
    trace : Trace
        Of its sampled clusters.
    gpu : Gpu

    Attributes
    ----------
    base : Prediction
        Of the launch as it is.
    is_cut : bool
        True if predictions took too long to look for all places.
    """

    def __init__(self, launch: Launch, trace: Trace, gpu: Any) -> None:  # noqa: ANN401 - a Gpu
        self._launch, self._gpu = launch, gpu
        self._began, self.is_cut = time.monotonic(), False
        self._instructions = launch.entry.function.instructions
        self._serialised = self._is_serialised()
        self._plain = trace
        self._trace = serial(trace) if self._serialised else trace
        self._predictor = Predictor(launch, self._trace, gpu)
        self.base = self._predictor.predict()
        self._blocks = launch.entry.program(frozenset(), frozenset()).flow.blocks
        self._warps = [warp for cluster in self._trace.clusters[:1] for cta in cluster for warp in cta.warps]

    def places(self) -> list[SlowPlace]:
        """List the slow places, the costliest first."""
        every = (
            self._accesses,
            self._group_waits,
            self._rings,
            self._copy_waits,
            self._barriers,
            self._spills,
            self._serialised_mmas,
            self._occupancy,
            self._tail,
        )
        found = [place for search in every for place in search()]
        least = max(LEAST_US, LEAST_SHARE * self.base.us)
        return sorted((place for place in found if place.us >= least), key=lambda place: -place.us)

    def _saved(self, trace: Trace | None = None, **options: Any) -> float:  # noqa: ANN401
        """Return how much shorter the launch is with another trace, or with other options of the predictor."""
        if time.monotonic() - self._began > MOST_SECONDS:
            self.is_cut = True
            return 0.0
        return self.base.us - Predictor(self._launch, trace or self._trace, self._gpu, **options).predict().us

    def _place(self, kind: str, indices: Iterable[int], said: str, remedy: str, us: float) -> SlowPlace:
        site = site_of([self._instructions[n] for n in sorted(indices)])
        return SlowPlace(kind, site, said, remedy, us, self.base.us)

    def _lines(self, indices: Iterable[int]) -> dict[object, list[int]]:
        """Group instructions by their line."""
        every = self._instructions
        return _classes(indices, lambda n: site_of([every[n]]).lines or every[n].line)

    def _stalled_us(self, indices: Collection[int]) -> float:
        """Return the time that a warp waits at some instructions on average, of the lines where most is waited."""
        lines = {str(place) for n in indices for place in site_of([self._instructions[n]]).lines}
        return sum(stall.us for stall in self.base.stalls if stall.line in lines)

    # Accesses

    def _accesses(self) -> Iterator[SlowPlace]:
        trace = self._trace
        costly = [n for n in trace.taken if trace.taken[n] > trace.fewest[n]]
        excess = {
            line: (sum(trace.taken[n] - trace.fewest[n] for n in group), group)
            for line, group in self._lines(costly).items()
        }
        for _, group in sorted(excess.values(), key=lambda each: -each[0])[: 2 * _TRIES]:
            taken, fewest = (sum(each[n] for n in group) for each in (trace.taken, trace.fewest))
            is_shared = self._is_shared(group)
            changed = with_fewest(trace, {n: trace.fewest[n] / trace.taken[n] for n in group})
            verb = self._instructions[group[0]].opcode
            if is_shared:
                said = f"{verb} takes {taken} wavefronts, where {fewest} would do; predicted with the fewest"
                yield self._place(
                    "bank conflicts",
                    group,
                    said,
                    "a swizzled layout, or rows padded by one access: see cutepy show, and banks.md",
                    self._saved(changed),
                )
            else:
                said = (
                    f"{verb} moves {taken} sectors of 32 bytes, where {fewest} hold what it asks for, in the CTAs that "
                    "were simulated; predicted with the fewest"
                )
                yield self._place(
                    "uncoalesced accesses",
                    group,
                    said,
                    "neighbouring threads take neighbouring addresses; transpose in shared memory, or load by TMA",
                    self._saved(changed),
                )

    def _is_shared(self, group: Sequence[int]) -> bool:
        return any(isinstance(fact, Shared) for warp in self._warps for n in group for fact in warp.facts.get(n, ()))

    # Waits

    def _group_waits(self) -> Iterator[SlowPlace]:
        """Yield waits for groups of MMAs, copies or stores that could leave one more in flight."""
        waits = {n for warp in self._warps for n, facts in warp.facts.items() if of_kind(facts, WaitGroup)}
        groups = sorted(self._lines(waits).values(), key=lambda group: -self._stalled_us(group))
        for group in groups[:_TRIES]:
            facts = [fact for warp in self._warps for n in group for fact in of_kind(warp.facts.get(n, ()), WaitGroup)]
            kind, remaining = facts[0].groups, min(fact.remaining for fact in facts)
            if not any(len(places_of(warp, group, WaitGroup)) > 2 for warp in self._warps):
                continue
            if kind == "wgmma group" and not self._may_stay_in_flight(group):
                continue
            changed = with_changes(self._trace, partial(later, group=group))
            name, what, how = {
                "wgmma group": ("serialised MMAs", "MMAs", "issue the next group before this wait"),
                "bulk_group": ("early wait for stores", "bulk stores", "another staging buffer, and a wait behind it"),
            }.get(kind, ("early wait for copies", "cp.async", "wait for all but the youngest group, one stage later"))
            said = f"the wait leaves {remaining} groups of {what} in flight; predicted with {remaining + 1}"
            yield self._place(name, group, said, how, self._saved(changed))

    def _may_stay_in_flight(self, group: Sequence[int]) -> bool:
        """Return whether between executions of a wait for MMAs nothing reads accumulators, mostly."""
        held = self._accumulators()
        reading = {
            number: [i.index for i in block.instructions if _reads(i, held)]
            for number, block in enumerate(self._blocks)
        }
        idle = used = 0
        for warp in self._warps:
            ats = [(at, n) for at, n, _ in places_of(warp, group, WaitGroup)]
            for (first, begin), (last, end) in pairwise(ats):
                span = warp.path[first : last + 1]
                inner = any(reading[block] for block in span[1:-1])
                outer = any(n > begin for n in reading[span[0]]) if len(span) > 1 else False
                outer = outer or any(n < end for n in reading[span[-1]])
                used += inner or outer
                idle += not (inner or outer)
        return idle > used

    def _accumulators(self) -> frozenset[Any]:
        """Return the accumulators' registers, and those that they are moved to and from."""
        held = {register for i in self._instructions if is_wgmma(i) for register in accumulators(i)}
        moves = [(set(read(i)), set(written(i))) for i in self._instructions if i.parts[0] == "mov"]
        grew = True
        while grew:
            before = len(held)
            for sources, results in moves:
                if sources & held or results & held:
                    held |= sources | results
            grew = len(held) > before
        return frozenset(held)

    def _rings(self) -> Iterator[SlowPlace]:
        """Yield waits of producers for stages: predicted with one more stage, and with twice as many."""
        loads = {key for cluster in self._trace.clusters for _, key in _loads(cluster)}
        waits = self._producer_waits(loads)
        groups = [group for line in self._lines(waits).values() for group in _classes(line, self._ring_of).values()]
        for group in groups:
            places = {place for n in group for place in self._places(n)}
            stages, ahead = len(places), len(places) - 1
            if len(groups) <= 2:
                ahead = max((_ahead(warp, group) for warp in self._warps), default=ahead)
            one, more = (
                self._saved(with_changes(self._trace, partial(shifted, group=group, stages=m))) for m in (1, stages)
            )
            stage_bytes = max((_bytes_between(warp, group, waits) for warp in self._warps), default=0)
            fits = int((SMEM_BYTES_PER_CTA - self._launch.smem_bytes) // max(stage_bytes, 1))
            if ahead < stages - 1:
                said = (
                    f"the producer waits until all tiles but {ahead} have been read, of a ring of {stages} stages; "
                    f"predicted with {ahead + 1}: {one:.2f} us less, with {ahead + stages}: {more:.2f} us less"
                )
                remedy = "wait for the stage that is filled next, and for no other"
                yield self._place("no overlap of loads and MMAs", group, said, remedy, max(one, more))
                continue
            said = (
                f"the producer waits until one of {several(stages, 'stage')} is free; predicted with {stages + 1}: "
                f"{one:.2f} us less" + (f", with {2 * stages}: {more:.2f} us less" if stages > 1 else "")
            )
            room = f"{fits} more of {stage_bytes} bytes fit into shared memory"
            yield self._place("too few stages", group, said, f"more stages; {room}", max(one, more))

    def _places(self, n: int) -> set[int]:
        """Return the addresses of the barriers that warps wait for at an instruction."""
        facts = (fact for warp in self._warps for fact in of_kind(warp.facts.get(n, ()), Wait))
        return {self._trace.barriers[fact.key].place for fact in facts}

    def _ring_of(self, n: int) -> object:
        """Return the name of the ring that warps wait for at an instruction; "" if the source doesn't tell."""
        made = self._trace.initialised
        names = {stage_of(place, made)[0] if place in made else "" for place in self._places(n)}
        return names.pop() if len(names) == 1 else ""

    def _producer_waits(self, loads: Collection[int]) -> list[int]:
        """Return the waits of loading warps for mbarriers that no load completes, but those after the last load."""
        found = set()
        for warp in self._warps:
            last = max((fact.at for facts in warp.facts.values() for fact in of_kind(facts, Load)), default=-1)
            for n, facts in warp.facts.items():
                waits = of_kind(facts, Wait)
                rings = (self._trace.barriers[wait.key].kind == "mbarrier" and wait.key not in loads for wait in waits)
                if waits and waits[0].at <= last and all(rings):
                    found.add(n)
        return sorted(found)

    def _copy_waits(self) -> Iterator[SlowPlace]:
        """Yield waits for loads: predicted as if all bytes were there."""
        loads = {key for cluster in self._trace.clusters for _, key in _loads(cluster)}
        waits = {
            n
            for warp in self._warps
            for n, facts in warp.facts.items()
            if any(fact.key in loads for fact in of_kind(facts, Wait))
        }
        groups = sorted(self._lines(waits).values(), key=lambda group: -self._stalled_us(group))
        for group in groups[:_TRIES]:
            changed = with_changes(self._trace, partial(without_keys, group=group, keys=loads))
            us = self._saved(changed)
            if us < 0.1 * self.base.us:  # all kernels wait for their first bytes
                continue
            use = self.base.use
            if self._reads_nothing(group):
                said = "warps wait here for loads whose bytes they do not read; predicted as if the bytes were there"
                remedy = "leave the wait to those who read"
                yield self._place("early wait for loads", group, said, remedy, us)
                continue
            said = (
                f"warps wait for loads, with {self.base.in_flight_bytes / 1024:.0f} KiB in flight to an SM, where full "
                f"bandwidth needs {self.base.needed_bytes / 1024:.0f}; predicted as if the bytes were there"
            )
            bound = next((name for name in ("device memory", "L2") if use.get(name, 0.0) > 0.8), None)
            remedy = "begin loads of later tiles before this wait, with a stage for each"
            if bound:
                remedy = f"{bound} is in use {use[bound]:.0%}: load less"
            yield self._place("loads are waited for", group, said, remedy, us)

    def _reads_nothing(self, group: Sequence[int]) -> bool:
        """Return whether the warps that wait for loads neither multiply nor load from shared memory."""
        return not any(
            of_kind(facts, Mma) or any(not self._writes(n, fact) for fact in of_kind(facts, Shared))
            for warp in self._warps
            if any(of_kind(warp.facts.get(n, ()), Wait) for n in group)
            for n, facts in warp.facts.items()
        )

    # Barriers

    def _barriers(self) -> Iterator[SlowPlace]:
        """Yield barriers that order nothing: no participant stores, or begins a copy, before or after them."""
        idle = self._idle_generations()
        for group in self._lines(dict.fromkeys(n for n, _ in idle)).values():
            keys = {key for n, key in idle if n in group}
            changed = with_changes(self._trace, partial(without_keys, group=group, keys=keys))
            said = (
                f"{len(keys)} times threads wait for each other, and none of them has stored or begun a copy since the "
                "barrier before, or does until the next; predicted without"
            )
            yield self._place("redundant barrier", group, said, "leave the barrier out", self._saved(changed))

    def _idle_generations(self) -> list[tuple[int, int]]:
        """Return (instruction, key) of generations of named barriers that order no access of their participants."""
        found: set[tuple[int, int]] = set()
        needed: set[int] = set()
        for warp in self._warps:
            ats: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
            writes = [
                (fact.at, n)
                for n, facts in warp.facts.items()
                for fact in facts
                if isinstance(fact, (Load, Store, Global, Shared)) and self._writes(n, fact)
            ]
            arrived = {key for facts in warp.facts.values() for fact in of_kind(facts, Arrive) for key in fact.keys}
            for n, facts in warp.facts.items():
                for fact in facts:
                    if not isinstance(fact, Wait) or self._trace.barriers[fact.key].kind != "bar":
                        continue
                    if fact.key not in arrived:
                        needed.add(fact.key)
                    ats[self._trace.barriers[fact.key].place].append((fact.at, n, fact.key))
            for own in ats.values():
                own.sort()
                for place, (_at, n, key) in enumerate(own):
                    before = own[place - 1] if place else None
                    after = own[place + 1] if place + 1 < len(own) else None
                    if before is None or after is None or any(before < each < after for each in writes):
                        needed.add(key)
                    else:
                        found.add((n, key))
        arrived_by = Counter(
            key
            for warp in self._warps
            for facts in warp.facts.values()
            for f in of_kind(facts, Arrive)
            for key in f.keys
        )
        waited_by = Counter(
            fact.key for warp in self._warps for facts in warp.facts.values() for fact in of_kind(facts, Wait)
        )
        return sorted((n, key) for n, key in found if key not in needed and arrived_by[key] == waited_by[key])

    def _writes(self, index: int, fact: object) -> bool:
        if isinstance(fact, Load | Store):
            return True
        return self._instructions[index].parts[0] not in ("ld", "ldmatrix", "ldu")

    # The whole launch

    def _spills(self) -> Iterator[SlowPlace]:
        resources = self._predictor.resources
        stored, loaded = resources.spill_store_bytes, resources.spill_load_bytes
        if not (stored or loaded):
            return
        made = assemble(self._launch.ptx, self._launch.entry.module.target)
        of_line: Counter[int] = Counter()
        for spill in spills(made.image, self._launch.kernel):
            weight = 1000 if spill.is_with_mmas else 100 if spill.is_in_loop else 1
            of_line[spill.line or 0] += weight * (spill.stored_bytes + spill.loaded_bytes)
        by_line = {i.line: i.index for i in self._instructions}
        at = [by_line[line] for line, _ in of_line.most_common() if line in by_line]
        group = next(iter(self._lines(at).values()), [0])
        said = (
            f"{stored} bytes of registers are stored to local memory and {loaded} loaded, by each thread, with "
            f"{resources.registers} registers; most at this line; predicted without these instructions"
        )
        yield self._place(
            "spills",
            group,
            said,
            "smaller tiles, or fewer threads that share the registers",
            self._saved(without=("LDL", "STL")),
        )

    def _is_serialised(self) -> bool:
        if not any(is_wgmma(i) for i in self._instructions):
            return False
        made = assemble(self._launch.ptx, self._launch.entry.module.target)
        own = (None, self._launch.kernel)
        return any(advice.code == _SERIAL and advice.function in own for advice in made.advice)

    def _serialised_mmas(self) -> Iterator[SlowPlace]:
        if self._serialised:
            group = next(iter(self._lines(i.index for i in self._instructions if is_wgmma(i)).values()))
            said = f"ptxas waits after each MMA ({_SERIAL}); predicted as the kernel was written"
            remedy = "the advisory says why: accumulators that are touched, or a call, while MMAs are in flight"
            yield self._place("serialised MMAs", group, said, remedy, self._saved(self._plain))

    def _occupancy(self) -> Iterator[SlowPlace]:
        base = self.base
        fits = base.occupancy.ctas_per_sm
        wanted = fits + 1
        if base.waves <= 1 or fits == 0 or fits * self._launch.block[0] >= 1024:
            return
        us = self._saved(resident=wanted)
        limits = base.occupancy.limited_by
        said = f"{fits} CTAs an SM, limited by {' and '.join(limits)}; predicted with {wanted}"
        bytes_each = SMEM_BYTES_PER_SM // wanted - RESERVED_SMEM_BYTES
        remedy = "fewer registers a thread"
        if "shared memory" in limits:
            remedy = f"at most {bytes_each} bytes of shared memory a CTA, in place of {self._launch.smem_bytes}"
        yield self._place("low occupancy", self._kernel_line(), said, remedy, us)

    def _tail(self) -> Iterator[SlowPlace]:
        base = self.base
        if base.waves < 1 and base.tail > 0.05:
            ctas, sms = self._launch.ctas, self._gpu.sms
            said = f"{ctas} CTAs leave {sms - ctas} of {sms} SMs idle; the cost is their share of the time"
            remedy = "smaller tiles, or K split among CTAs"
            yield self._place("too few CTAs", self._kernel_line(), said, remedy, base.tail * base.kernel_us)
        elif base.tail > 0.05:
            said = (
                f"{base.waves:.2f} rounds of CTAs: SMs have run out of work for {base.tail:.0%} of the time; the cost "
                "is that share of the kernel's time"
            )
            remedy = "tiles that divide the work evenly, or a persistent kernel that splits the last ones"
            yield self._place("tail", self._kernel_line(), said, remedy, base.tail * base.kernel_us)

    def _kernel_line(self) -> list[int]:
        """Return the first instruction that has a line."""
        return [next((i.index for i in self._instructions if i.source is not None), 0)]


def _reads(i: Instruction, held: frozenset[Any]) -> bool:
    return not is_wgmma(i) and i.parts[0] != "mov" and any(register in held for register in read(i))


def _loads(cluster: Sequence[CtaTrace]) -> Iterator[tuple[int, int]]:
    for cta in cluster:
        for warp in cta.warps:
            for facts in warp.facts.values():
                for fact in of_kind(facts, Load):
                    for rank, key, _ in fact.to:
                        yield rank, key


def _ahead(warp: WarpTrace, group: Collection[int]) -> int:
    """Return how many tiles a producer has loaded at most, at a wait, beyond those that it waits for."""
    waits = [(at, n) for at, n, _ in places_of(warp, group, Wait)]
    first: dict[int, tuple[int, int]] = {}
    for n, facts in warp.facts.items():
        for fact in of_kind(facts, Load):
            for _, key, _ in fact.to:
                first[key] = min(first.get(key, (fact.at, n)), (fact.at, n))
    fills = sorted(first.values())
    return max((bisect_left(fills, wait) - number - 1 for number, wait in enumerate(waits)), default=0)


def _bytes_between(warp: WarpTrace, group: Collection[int], waits: Collection[int]) -> int:
    """Return the bytes that a producer loads for a stage, on average: from a wait of a group up to the next wait."""
    every = places_of(warp, waits, Wait)
    loads = sorted((fact.at, n, fact.size_bytes) for n, facts in warp.facts.items() for fact in of_kind(facts, Load))
    at = [load[:2] for load in loads]
    spans = pairwise((*(wait[:2] for wait in every), (len(warp.path) + 1, 0)))
    each = [
        sum(size for *_, size in loads[bisect_left(at, begin) : bisect_left(at, end)])
        for begin, end in spans
        if begin[1] in group
    ]
    return round(sum(each) / len(each)) if each else 0


def _classes(indices: Iterable[int], key: Callable[[int], object]) -> dict[object, list[int]]:
    """Group instructions that have one key."""
    groups: dict[object, list[int]] = defaultdict(list)
    for n in indices:
        groups[key(n)].append(n)
    return groups
