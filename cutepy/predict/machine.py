"""Discrete events of the SMs that a cluster's CTAs run on: schedulers, pipes, and whose turn it is.

Warps execute the steps of their traces. A resource is a server with the time at which it is free next; a request
occupies the server for as long as its work lasts. A warp executes until it must wait, or until another warp is earlier
in time. `effects` has what an access, an MMA or an arrival does.

Times are cycles of an SM.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from cutepy.predict.code import CONSTANT_BYTES, FIRST_PARAMETER, LSU, SCHEDULERS, Step, Variants
from cutepy.predict.costs import INSTRUCTION_BYTES, JUMPED_BYTES, Costs
from cutepy.predict.effects import Effects
from cutepy.predict.gpu import Gpu
from cutepy.predict.memory import Traffic
from cutepy.predict.rates import Rates
from cutepy.predict.state import (
    CAUSES,
    DEPENDENCIES,
    FETCHES,
    ISSUE,
    PIPE,
    REGISTERS,
    WORK,
    Cluster,
    Event,
    LatestArrival,
    Node,
    Outcome,
    Sm,
    TensorCore,
    Warp,
    critical_path,
)
from cutepy.predict.trace import Barrier, CtaTrace, Wait

_SLACK = 16.0
"""Cycles by which a warp may run ahead of the others: fewer switches between warps, at the cost of exact order."""


class StuckError(RuntimeError):
    """Error of a trace whose barriers never complete, so that there is no time to predict."""


class Machine:
    """SMs that run the CTAs of clusters, one SM for each CTA of a cluster.

    Parameters
    ----------
    gpu : Gpu
    steps : sequence of Variants
        By block of the program.
    needed : mapping of int to int
        Contributions that complete each barrier's phase.
    barriers : mapping of int to Barrier
    traffic : sequence of Traffic
        By region.
    credit : float
        Cycles in which an SM has asked for less than its share of L2 that it may catch up on.
    fetches_maps : bool
        Whether the kernel fetches its tensor maps before it needs them.
    keeps_events : bool
        Whether to keep the timeline.
    falls : sequence of bool
        Whether a block ends without a branch. Default: none does.
    """

    def __init__(
        self,
        gpu: Gpu,
        steps: Sequence[Variants],
        needed: dict[int, int],
        barriers: dict[int, Barrier],
        traffic: Sequence[Traffic],
        *,
        credit: float = 0.0,
        fetches_maps: bool = True,
        keeps_events: bool = False,
        falls: Sequence[bool] = (),
    ) -> None:
        self._steps, self._needed, self._barriers = steps, needed, barriers
        self._effects = Effects(
            gpu, needed, barriers, traffic, credit=credit, fetches_maps=fetches_maps, keeps_events=keeps_events
        )
        slots = [[sum(step.slots for step in variant) for variant in variants] for variants in steps]
        costs = Costs(gpu)
        self._code, self._beside, self._units = costs.code, costs.beside_mmas, costs.pipe_units
        self._code_bytes = [INSTRUCTION_BYTES * sum(each) for each in slots]
        self._falls = falls or [False] * len(steps)
        self._ends = [*accumulate(self._code_bytes)]
        self._starts = [end - size for end, size in zip(self._ends, self._code_bytes, strict=True)]
        self._instructions = [sum(each) / max(len(each), 1) for each in slots]
        self._try = gpu.value("mbarrier.try_wait")
        self._parameter = gpu.at("start.accesses", "parameters", "first") - gpu.at(
            "start.accesses", "parameters", "second"
        )

    def run(
        self,
        clusters: Sequence[tuple[Sequence[CtaTrace], Rates]],
        resident: int,
        turnaround: float,
        start: float = 0.0,
        interval: float = 0.0,
    ) -> Outcome:
        """Run clusters one after the other, so many at once.

        Parameters
        ----------
        clusters : sequence of (traces of CTAs, Rates)
        resident : int
            Clusters that are resident at once.
        turnaround : float
            Cycles from the end of one to the start of the next.
        start : float
            Cycles until the first one executes.
        interval : float
            Cycles from one's start to the next one's, at least: the GPU starts CTAs one after the other.
        """
        out = self.out = Outcome()
        out.sms = [Sm(n) for n in range(max(len(traces) for traces, _ in clusters))]
        for sm in out.sms:  # the first line comes before the CTAs execute
            sm.constants.update(dict.fromkeys(range(FIRST_PARAMETER // CONSTANT_BYTES + 1), start))
        self._heap: list[tuple[float, int, Warp | TensorCore]] = []
        self._count = 0
        queue = list(clusters)[::-1]
        self._last: Warp | None = None
        self._effects.begin(out, self._push)
        self._interval, self._next = interval, start
        self._begun: list[Cluster] = []
        for _ in range(min(resident, len(queue))):
            self._begin(*queue.pop(), start)
        while self._heap:
            time, _, warp = heapq.heappop(self._heap)
            if isinstance(warp, TensorCore):
                self._effects.begin_mma(warp, time)
                continue
            until = self._heap[0][0] if self._heap else float("inf")
            if self._advance(warp, until):
                continue
            cluster = warp.cluster  # the warp has ended
            if self._effects.keeps_events:
                out.events.append(Event(warp.sm, warp.name, "runs", cluster.start, warp.time))
            for n, cause in enumerate(CAUSES):
                out.causes[cause] += warp.causes[n]  # type: ignore[assignment]
            cluster.running -= 1
            if cluster.last is None or warp.time > cluster.last.time:
                cluster.last = warp
            if cluster.running == 0:
                last = cluster.last
                if self._last is None or last.time > self._last.time:
                    self._last = last
                out.spans.append((cluster.start, last.time))
                if queue:
                    after = LatestArrival(last.time, last, last.time, last.node, last.causes[:], WORK)
                    self._begin(*queue.pop(), last.time + turnaround, after)
        if len(out.spans) < len(clusters):
            raise StuckError(self._stuck(self._begun))
        out.cycles = max((end for _, end in out.spans), default=0.0)
        out.stored = self._effects.written
        out.waited, out.lets_begin = self._effects.waited, self._effects.lets_begin
        out.let_begin = self._effects.let_begin
        out.path = critical_path(self._last)
        return out

    def _begin(self, traces: Sequence[CtaTrace], rates: Rates, time: float, after: LatestArrival | None = None) -> None:
        time = max(time, self._next)
        self._next = time + self._interval
        cluster = Cluster(traces, rates, time, after is None)
        self._begun.append(cluster)
        for sm, cta in enumerate(traces):
            for number, trace in enumerate(cta.warps):
                warp = Warp(trace, cta, number, cluster, sm, number % SCHEDULERS, time)
                if after is not None:
                    warp.node = Node(time, "start of a CTA", after, None, warp.causes[:])
                cluster.running += 1
                self._push(warp)

    def _stuck(self, clusters: Sequence[Cluster]) -> str:
        """Say which barrier nobody completes."""
        cluster, key, warps = next((c, key, warps) for c in clusters for key, warps in c.waiting.items())
        barrier = self._barriers[key]
        return (
            f"the model of {warps[0].name} waits without end for the {barrier.kind} {barrier.place} of CTA "
            f"{barrier.block}: its trace lacks {cluster.left.get(key, self._needed.get(key, 0))} arrivals or copies"
        )

    def _push(self, warp: Warp | TensorCore, ready: float = 0.0) -> None:
        """Queue a warp for its time, or for the time at which its wait ends; or a tensor core for its next MMA."""
        self._count += 1
        time = max(warp.time, ready) if isinstance(warp, Warp) else ready
        heapq.heappush(self._heap, (time, self._count, warp))

    def _advance(self, warp: Warp, until: float) -> bool:
        """Execute a warp's steps while it is the first in time; tells whether it goes on later."""
        sm, score, causes = self.out.sms[warp.sm], warp.score, warp.causes
        issue, pipes = sm.issue, sm.pipes[warp.smsp]
        smsp, time, tensor = warp.smsp, warp.time, sm.tensor[warp.smsp]
        beside, units = self._beside, self._units
        while True:
            if warp.step >= len(warp.steps):
                if not self._next_block(warp):
                    warp.time = time
                    return False
                block = warp.path[warp.position]
                fetched = self._fetch(sm, block, time)
                if warp.position and self._starts[block] - self._ends[warp.path[warp.position - 1]] >= JUMPED_BYTES:
                    fetched += self._code.taken
                if fetched:
                    causes[FETCHES] += fetched
                    time += fetched
                continue
            step = warp.steps[warp.step]
            if not warp.in_action:
                for n in step.waits:
                    if score[n] > time:
                        self._effects.stalled(warp, warp.reason[n], score[n] - time, step.line)
                        time = score[n]
                if time > until + _SLACK:
                    warp.time = time
                    self._push(warp)
                    return True
                self.out.steps += 1
                for line in step.constants:
                    if sm.constants.setdefault(line, time + self._parameter) > time:
                        causes[FETCHES] += sm.constants[line] - time
                        time = sm.constants[line]
                if step.slots:
                    free = issue[smsp]
                    start = free if free > time else time
                    issued = start + step.slots + step.conflicts
                    issue[smsp] = issued
                    sm.slots += step.slots + step.conflicts
                    end = alone = time + step.cycles
                    if issued > end:
                        causes[ISSUE] += issued - end
                        end = issued
                    for pipe, work in step.pipes:
                        sm.pipe_work[pipe] += work
                        if pipe == LSU:
                            sm.lsu = max(sm.lsu, time) + work
                            continue
                        last = units[pipe]
                        if tensor.free > time:
                            slower = beside.get(pipe, 1.0)
                            work, last = work * slower, last * slower
                        free = pipes[pipe]
                        pipes[pipe] = free = (free if free > time else time) + work
                        if free - last > end:  # the last instruction has been issued by then
                            causes[PIPE] += free - last - end
                            end = free - last
                    causes[WORK] += step.slots
                    causes[DEPENDENCIES] += alone - time - step.slots
                    time = end
                    for n, cycles in step.sets:
                        score[n] = time + cycles
                        warp.reason[n] = REGISTERS
            if step.action is not None:
                warp.time, warp.in_action = time, True
                if not self._act(warp, sm, step):
                    return True  # it waits for a barrier
                warp.in_action, time = False, warp.time
                until = self._heap[0][0] if self._heap else until  # it may have woken others
            warp.step += 1

    def _next_block(self, warp: Warp) -> bool:
        warp.position += 1
        if warp.position >= len(warp.path):
            return False
        block = warp.path[warp.position]
        variants = self._steps[block]
        if len(variants) == 1:
            warp.steps = variants[0]
        else:
            turn = warp.turns.get(block, 0)
            warp.turns[block] = turn + 1
            warp.steps = variants[turn % len(variants)]
        warp.step = 0
        return True

    def _fetch(self, sm: Sm, block: int, time: float) -> float:
        """Return the cycles until a block's instructions are in the SM's cache, from which the least recent ones go.

        Other warps that ask for them meanwhile wait, too.
        """
        code = sm.code
        if block in code:
            code.move_to_end(block)
            return max(0.0, code[block] - time)
        if block in sm.fetched:
            cycles = self._code.lacking * self._instructions[block]
        else:
            cycles = self._new_code(sm, block)
            sm.fetched.add(block)
        code[block] = time + cycles
        sm.code_bytes += self._code_bytes[block]
        while sm.code_bytes > self._code.size_bytes and len(code) > 1:
            sm.code_bytes -= self._code_bytes[code.popitem(last=False)[0]]
        return cycles

    def _new_code(self, sm: Sm, block: int) -> float:
        """Return the cycles until code comes that is new in the launch: what is near was fetched with the code before.

        Few instructions between them that no branch ends are skipped under a predicate.
        """
        skipped, falls = 0, True
        for before in range(block - 1, -1, -1):
            if before in sm.fetched:
                near = skipped < JUMPED_BYTES and falls
                return 0.0 if near else self._code.jump(skipped)
            skipped += self._code_bytes[before]
            falls = falls and self._falls[before]
        return self._code.first

    def _act(self, warp: Warp, sm: Sm, step: Step) -> bool:
        """Apply the facts of an instruction; tells whether the warp goes on."""
        action = step.action
        assert action is not None
        facts = warp.facts.get(action.number)
        done = warp.time + 2.0
        if facts:
            n = warp.seen.get(action.number, 0)
            while n < len(facts) and facts[n].at <= warp.position:
                fact: Any = facts[n]
                if isinstance(fact, Wait):
                    key, cluster = fact.key, warp.cluster
                    ready = cluster.done.get(key)
                    if ready is None:
                        cluster.waiting[key].append(warp)
                        warp.seen[action.number] = n
                        return False
                    self._effects.released(warp, key, ready, step.line)
                    done = max(done, warp.time + (self._try if ready <= warp.before else 0.0))
                elif self._effects.must_wait(warp, sm, fact):
                    warp.seen[action.number] = n
                    return False
                else:
                    done = max(done, self._effects.do(warp, sm, fact, action.kind, step.line, (action.number, n)))
                n += 1
            warp.seen[action.number] = n
        for which in (action.sets, action.releases):
            if which is not None:
                warp.score[which] = done - action.ago if which == action.sets else min(done, warp.time + 20.0)
        return True
