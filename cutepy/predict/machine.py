"""Discrete events of the SMs that a cluster's CTAs run on: schedulers, pipes, tensor cores, copies, barriers.

Warps execute the steps of their traces. A resource is a server with the time at which it is free next; a request
occupies the server for as long as its work lasts. A warp executes until it must wait, or until another warp is earlier
in time.

Times are cycles of an SM.
"""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cutepy.predict.code import LSU, Step, Variants
from cutepy.predict.gpu import Gpu
from cutepy.predict.memory import Traffic
from cutepy.predict.trace import (
    Arrive,
    Awaited,
    Barrier,
    Commit,
    CtaTrace,
    Fenced,
    Global,
    Load,
    Mma,
    Shared,
    Store,
    Wait,
    WarpTrace,
)

SCHEDULERS = 4
_QUEUE_CYCLES = 64
"""Queue of the LSU in cycles of work: a warp that issues an access waits while more is ahead."""
_SLACK = 16.0
"""Cycles by which a warp may run ahead of the others: fewer switches between warps, at the cost of exact order."""
CAUSES = (
    "instructions", "dependencies", "issue slots", "pipes", "registers", "shared memory", "global memory", "copies",
    "barriers", "tensor cores", "stores", "fences", "instruction cache",
)  # fmt: skip
"""Causes of a warp's time: work, or a wait."""
(WORK, DEPENDENCIES, ISSUE, PIPE, REGISTERS, SHARED, GLOBAL, COPIES, BARRIERS, TENSOR, STORES, FENCES, FETCHES) = range(
    len(CAUSES)
)


@dataclass(frozen=True)
class Rates:
    """Cycles that a byte of one SM takes at each level of memory, while `active` SMs run.

    Attributes
    ----------
    l2, tma, l2_write, dram, dram_write : float
        At the SM's share of the bandwidth of all SMs: of L2 by loads and by TMA, of device memory.
    port : float
        At the bandwidth into one SM.
    """

    l2: float
    tma: float
    l2_write: float
    dram: float
    dram_write: float
    port: float

    @classmethod
    def of(cls, gpu: Gpu, active: int, clock_hz: float, slowdown: float = 1.0) -> Rates:
        """Return the rates of `active` SMs; `slowdown` is that of device memory by writes between reads."""

        def share(key: str, most: float) -> float:
            return 1.0 / min(gpu.value(key) / clock_hz / active, most)

        one, of_dram = gpu.value("l2.bandwidth_sm"), gpu.value("dram.bandwidth_sm")
        # It was measured with all SMs at the highest clock, which L2 does not follow.
        by_tma = gpu.at("tma.bandwidth_all", 8) * gpu.sms * gpu.value("clock.idle_hz")
        return cls(
            share("l2.bandwidth", one),
            1.0 / min(by_tma / clock_hz / active, one),
            share("l2.write_bandwidth", one),
            share("dram.bandwidth", of_dram) * slowdown,
            share("dram.write_bandwidth", of_dram) * slowdown,
            1.0 / one,
        )


class Sm:
    """Servers of one SM, and their work."""

    def __init__(self) -> None:
        self.issue = [0.0] * SCHEDULERS
        self.pipes = [[0.0] * LSU for _ in range(SCHEDULERS)]
        self.tensor = [0.0] * SCHEDULERS
        self.code: OrderedDict[int, int] = OrderedDict()  # blocks in the instruction cache, and their bytes
        self.code_bytes = 0
        self.lsu = self.tma = self.store = self.l2 = self.port = self.dram = 0.0
        self.slots = 0
        self.pipe_work = [0.0] * (LSU + 1)
        self.tensor_work = self.smem_bytes = self.l2_work = self.dram_work = self.port_work = 0.0
        self.idle: Counter[str] = Counter()  # of the tensor cores, by cause
        self.flight = 0.0  # bytes times cycles of loads


@dataclass
class Event:
    """Span of a timeline: where it is, its name, and its cycles."""

    sm: int
    track: str
    name: str
    start: float
    end: float


class Late(NamedTuple):
    """Latest contribution to a phase: its time, the warp that made it and when, and the cause of waits for it."""

    time: float
    by: _Warp
    acted: float
    node: Node | None
    causes: list[float]
    cause: int


@dataclass(eq=False)
class Node:
    """Wait on a path: its end, its cause, the warp that ended it, the wait before, and cycles by cause until then."""

    released: float
    what: str
    late: Late
    before: Node | None
    causes: list[float]


def _served(free: float, time: float, work: float, fastest: float, credit: float) -> tuple[float, float]:
    """Serve work of a shared resource: returns when the SM's share of it is free again, and when the work is done."""
    free = max(free, time - credit) + work
    return free, max(free, time + fastest)


class _Cluster:
    """State of a running cluster: the phases of its barriers, by key."""

    def __init__(self, traces: Sequence[CtaTrace], rates: Rates, start: float) -> None:
        self.traces, self.rates, self.start = traces, rates, start
        self.left: dict[int, int] = {}
        self.late: dict[int, Late] = {}
        self.done: dict[int, float] = {}
        self.waiting: defaultdict[int, list[_Warp]] = defaultdict(list)
        self.running = 0
        self.last: _Warp | None = None


class _Warp:
    """State of a warp."""

    __slots__ = (
        "async_time",
        "before",
        "bulk",
        "bulk_open",
        "causes",
        "cluster",
        "copies",
        "copies_open",
        "cta",
        "facts",
        "in_action",
        "mma_open",
        "mmas",
        "name",
        "node",
        "number",
        "path",
        "position",
        "readable",
        "reason",
        "score",
        "seen",
        "since",
        "sm",
        "smsp",
        "step",
        "steps",
        "time",
        "turns",
    )  # fmt: skip

    def __init__(
        self, trace: WarpTrace, cta: CtaTrace, number: int, cluster: _Cluster, sm: int, smsp: int, time: float
    ) -> None:
        self.path, self.facts, self.cta, self.number = trace.path, trace.facts, cta, number
        self.cluster, self.sm, self.smsp, self.time = cluster, sm, smsp, time
        self.name = f"CTA {cta.block} warp {number}"
        self.position = -1
        self.steps: list[Step] = []
        self.step = 0
        self.in_action = False
        self.seen: dict[int, int] = {}  # facts of each instruction that are over
        self.turns: dict[int, int] = {}
        self.score = [0.0] * 6
        self.reason = [REGISTERS] * 6
        self.mmas: list[float] = []
        self.bulk: list[tuple[float, float]] = []
        self.copies: list[float] = []
        self.mma_open = self.copies_open = time
        self.bulk_open = (time, time)
        self.causes = [0.0] * len(CAUSES)
        self.since = [0.0] * len(CAUSES)
        self.before = time
        self.node: Node | None = None


@dataclass
class Outcome:
    """Result of a simulation of SMs.

    Attributes
    ----------
    cycles : float
        From the first CTA's start to the last one's end.
    spans : list of (float, float)
        Start and end of each cluster, in order.
    sms : list of Sm
    causes : Counter
        Cycles of warps by cause, summed.
    stalls : Counter
        Cycles that warps waited by (instruction's index, cause).
    path : Counter
        Cycles of the critical path by what they are.
    events : list of Event
    steps : int
        Steps that were executed.
    """

    cycles: float = 0.0
    spans: list[tuple[float, float]] = field(default_factory=list)
    sms: list[Sm] = field(default_factory=list)
    causes: Counter[str] = field(default_factory=Counter)
    stalls: Counter[tuple[int, str]] = field(default_factory=Counter)
    path: Counter[str] = field(default_factory=Counter)
    events: list[Event] = field(default_factory=list)
    steps: int = 0


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
        Cycles of unused share of L2 and of device memory that an SM may catch up on: other SMs use less at that time.
    keeps_events : bool
        Whether to keep the timeline.
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
        keeps_events: bool = False,
    ) -> None:
        self._gpu, self._steps, self._needed, self._barriers = gpu, steps, needed, barriers
        self._miss = [each.miss for each in traffic]
        late = gpu.value("dram.latency") - gpu.value("l2.latency")
        self._late = [each.late * late for each in traffic]
        self._is_late = [each.late for each in traffic]
        self._in_l1 = [each.in_l1 for each in traffic]
        self._keeps, self._credit = keeps_events, credit
        slots = [[sum(step.slots for step in variant) for variant in variants] for variants in steps]
        intervals: dict[int, float] = {int(size): cycles for size, cycles in gpu.constants["icache.interval"].items()}
        least = min(intervals.values())
        self._cached_bytes = max(size for size, cycles in intervals.items() if cycles <= 1.1 * least)
        missed: float = gpu.at("icache.interval", 2 * self._cached_bytes) - least
        self._code_bytes = [16 * sum(each) for each in slots]
        self._fetches: list[float] = [missed * sum(each) / max(len(each), 1) for each in slots]
        self._wave = gpu.value("smem.wavefront")
        # mbarrier.handover_cluster has the fences of .release.cluster and .acquire.cluster in it, which have own steps.
        handover = gpu.value("mbarrier.handover")
        self._handover = handover, handover + gpu.value("dsmem.latency")
        self._l1, self._l2 = gpu.value("l1.latency"), gpu.value("l2.latency")
        self._tma_issue = gpu.at("tma.issue", "tensor")
        self._tma_latency = gpu.at("tma.latency_tensor", "l2", 1024)
        self._store_latency = gpu.at("tma.store_read_latency", 512)
        self._store_rate = 1.0 / gpu.value("tma.store_bandwidth")
        self._atomic = gpu.at("atomic.latency", "atom_add_u32")
        self._cp_async = gpu.value("cpasync.latency") - self._l2, gpu.value("cpasync.interval")
        self._try = gpu.value("mbarrier.try_wait")
        self._mma: dict[tuple[str, int, str], tuple[float, float]] = {}
        self._kinds: dict[str, tuple[float, float]] = {}
        self._late_tma: dict[float, float] = {}
        self._sync: dict[int, float] = {}

    def _sync_cycles(self, warps: int) -> float:
        if warps not in self._sync:
            self._sync[warps] = self._gpu.at("barrier.sync", 32 * warps)
        return self._sync[warps]

    def _mma_cost(self, fact: Mma) -> tuple[float, float]:
        key = fact.type, fact.n, fact.operands
        if key not in self._mma:
            gpu = self._gpu
            kind = {"e5m2": "e4m3", "u8": "s8"}.get(fact.type, fact.type)
            cycles = gpu.at("wgmma.cycles", kind, fact.n, fact.operands)
            base = "bf16" if kind not in gpu.constants["wgmma.latency"] else kind
            drain = gpu.at("wgmma.latency", base, fact.n) - gpu.at("wgmma.cycles", base, fact.n, "ss")
            self._mma[key] = cycles, max(drain - gpu.value("wgmma.fence"), 0.0)
        return self._mma[key]

    def tensor_cycles(self, warp: WarpTrace) -> float:
        """Return the cycles of tensor cores that a warp's wgmmas take."""
        return sum(self._mma_cost(fact)[0] for facts in warp.facts.values() for fact in facts if isinstance(fact, Mma))

    def _kind_cost(self, kind: str) -> tuple[float, float]:
        """Return the interval and the latency of a class of accesses to shared memory."""
        if kind not in self._kinds:
            gpu = self._gpu
            table, latencies = gpu.constants["smem.interval"], gpu.constants["smem.latency"]
            latency = latencies.get(kind) or latencies.get(kind.replace("_x2", "_x4")) or latencies["lds32"]
            self._kinds[kind] = float(table.get(kind) or self._wave), float(latency)
        return self._kinds[kind]

    def run(
        self,
        clusters: Sequence[tuple[Sequence[CtaTrace], Rates]],
        resident: int,
        turnaround: float,
        start: float = 0.0,
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
            Cycles until the first ones execute.
        """
        out = self.out = Outcome()
        out.sms = [Sm() for _ in range(max(len(traces) for traces, _ in clusters))]
        self._heap: list[tuple[float, int, _Warp]] = []
        self._count = 0
        queue = list(clusters)[::-1]
        self._last: _Warp | None = None
        self._written = 0.0  # a launch is over once all that it stored is in L2
        for _ in range(min(resident, len(queue))):
            self._begin(*queue.pop(), start)
        while self._heap:
            _time, _, warp = heapq.heappop(self._heap)
            until = self._heap[0][0] if self._heap else float("inf")
            if self._advance(warp, until):
                continue
            cluster = warp.cluster  # the warp has ended
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
                    after = Late(last.time, last, last.time, last.node, last.causes[:], WORK)
                    self._begin(*queue.pop(), last.time + turnaround, after)
        ended = max((end for _, end in out.spans), default=0.0)
        out.cycles = max(ended, self._written)
        out.path = _critical_path(self._last)
        out.path["stores"] += out.cycles - ended  # type: ignore[assignment]
        return out

    def _begin(self, traces: Sequence[CtaTrace], rates: Rates, time: float, after: Late | None = None) -> None:
        cluster = _Cluster(traces, rates, time)
        for sm, cta in enumerate(traces):
            for number, trace in enumerate(cta.warps):
                warp = _Warp(trace, cta, number, cluster, sm, number % SCHEDULERS, time)
                if after is not None:
                    warp.node = Node(time, "start of a CTA", after, None, warp.causes[:])
                cluster.running += 1
                self._push(warp)

    def _push(self, warp: _Warp, ready: float = 0.0) -> None:
        """Queue a warp for its time, or for the time at which its wait ends."""
        self._count += 1
        heapq.heappush(self._heap, (max(warp.time, ready), self._count, warp))

    def _advance(self, warp: _Warp, until: float) -> bool:
        """Execute a warp's steps while it is the first in time; tells whether it goes on later."""
        sm, score, causes = self.out.sms[warp.sm], warp.score, warp.causes
        issue, pipes = sm.issue, sm.pipes[warp.smsp]
        smsp, time = warp.smsp, warp.time
        while True:
            if warp.step >= len(warp.steps):
                if not self._next_block(warp):
                    warp.time = time
                    return False
                fetched = self._fetch(sm, warp.path[warp.position])
                if fetched:
                    causes[FETCHES] += fetched
                    time += fetched
                continue
            step = warp.steps[warp.step]
            if not warp.in_action:
                for n in step.waits:
                    if score[n] > time:
                        self._stalled(warp, warp.reason[n], score[n] - time, step.line)
                        time = score[n]
                if time > until + _SLACK:
                    warp.time = time
                    self._push(warp)
                    return True
                self.out.steps += 1
                if step.slots:
                    free = issue[smsp]
                    start = free if free > time else time
                    issue[smsp] = start + step.slots
                    sm.slots += step.slots
                    end = alone = time + step.cycles
                    if start + step.slots > end:
                        causes[ISSUE] += start + step.slots - end
                        end = start + step.slots
                    for pipe, work in step.pipes:
                        sm.pipe_work[pipe] += work
                        if pipe == LSU:
                            sm.lsu = max(sm.lsu, time) + work
                            continue
                        free = pipes[pipe]
                        pipes[pipe] = free = (free if free > time else time) + work
                        if free > end:
                            causes[PIPE] += free - end
                            end = free
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

    def _next_block(self, warp: _Warp) -> bool:
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

    def _fetch(self, sm: Sm, block: int) -> float:
        """Return the cycles that a block's instructions take to come to the SM's cache; the least recent ones go."""
        code = sm.code
        if block in code:
            code.move_to_end(block)
            return 0.0
        code[block] = size = self._code_bytes[block]
        sm.code_bytes += size
        while sm.code_bytes > self._cached_bytes and len(code) > 1:
            sm.code_bytes -= code.popitem(last=False)[1]
        return self._fetches[block]

    def _stalled(self, warp: _Warp, cause: int, cycles: float, where: int) -> None:
        warp.causes[cause] += cycles
        warp.since[cause] += cycles
        self.out.stalls[where, CAUSES[cause]] += cycles  # type: ignore[assignment]

    def _act(self, warp: _Warp, sm: Sm, step: Step) -> bool:
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
                    self._released(warp, key, ready, step.line)
                    done = max(done, warp.time + (self._try if ready <= warp.before else 0.0))
                else:
                    done = max(done, self._do(warp, sm, fact, action.kind, step.line))
                n += 1
            warp.seen[action.number] = n
        for which in (action.sets, action.releases):
            if which is not None:
                warp.score[which] = done if which == action.sets else min(done, warp.time + 20.0)
        return True

    def _released(self, warp: _Warp, key: int, ready: float, line: int) -> None:
        """Let a warp go on from a barrier whose phase is complete."""
        warp.before = warp.time
        if ready > warp.time:
            late = warp.cluster.late[key]
            cause = late.cause
            self._stalled(warp, cause, ready - warp.time, line)
            if self._keeps:
                self.out.events.append(Event(warp.sm, warp.name, f"wait: {CAUSES[cause]}", warp.time, ready))
            warp.node = Node(ready, CAUSES[cause], late, warp.node, warp.causes[:])
            warp.time = ready

    def _contribute(self, cluster: _Cluster, key: int, time: float, warp: _Warp, cause: int) -> None:
        left = cluster.left.get(key)
        left = (self._needed[key] if left is None else left) - 1
        cluster.left[key] = left
        late = cluster.late.get(key)
        if late is None or time > late.time:
            cluster.late[key] = Late(time, warp, warp.time, warp.node, warp.causes[:], cause)
        if left <= 0:
            cluster.done[key] = cluster.late[key].time
            for waiter in cluster.waiting.pop(key, ()):
                self._push(waiter, cluster.done[key])

    def _do(self, warp: _Warp, sm: Sm, fact: Any, kind: str, line: int) -> float:  # noqa: ANN401
        """Apply a fact other than a wait for a barrier; returns the time of its result."""
        time, gpu = warp.time, self._gpu
        if isinstance(fact, Mma):
            return self._multiply(warp, sm, fact, line)
        if isinstance(fact, Shared):
            interval, latency = self._kind_cost(kind)
            start = sm.lsu if sm.lsu > time else time
            cost = max(interval, fact.wavefronts * self._wave)
            sm.lsu = start + cost
            sm.pipe_work[LSU] += cost
            sm.smem_bytes += 128 * fact.wavefronts
            warp.reason[:] = [SHARED] * 6
            if start - time > _QUEUE_CYCLES:
                self._stalled(warp, SHARED, start - time - _QUEUE_CYCLES, line)
                warp.time = start - _QUEUE_CYCLES
            return start + cost + latency
        if isinstance(fact, Arrive):
            own = warp.cta.block
            for key in fact.keys:
                barrier = self._barriers[key]
                if barrier.kind == "mbarrier":
                    latency = self._handover[barrier.block != own]
                elif barrier.kind == "bar":
                    latency = self._sync_cycles(self._needed[key])
                elif fact.how == "relaxed":
                    latency = gpu.value("dsmem.latency")
                else:
                    latency = gpu.at("cluster.sync", len(warp.cluster.traces))
                waits = fact.how == "copies"
                start = max(time, warp.copies_open, *warp.copies[-1:]) if waits else time
                self._contribute(warp.cluster, key, start + latency, warp, COPIES if waits else BARRIERS)
            return time
        if isinstance(fact, Load):
            return self._load(warp, sm, fact)
        if isinstance(fact, Global):
            return self._access(warp, sm, fact, kind, line)
        if isinstance(fact, Store):
            rates = warp.cluster.rates
            size = fact.size_bytes
            sm.store = max(sm.store, time) + size * self._store_rate
            moved = self._move(sm, time, size * rates.l2_write, size * rates.dram_write, size * rates.port)
            read = self._store_latency
            end = max(sm.store, moved) + read + self._l2
            self._written = max(self._written, max(sm.store, sm.l2, time) + read + self._l2)
            old = warp.bulk_open
            warp.bulk_open = max(old[0], sm.store + read), max(old[1], end)
            warp.time = time + self._tma_issue
            if self._keeps:
                self.out.events.append(Event(warp.sm, "bulk stores", f"store {fact.size_bytes} bytes", time, end))
            return sm.store
        if isinstance(fact, Commit):
            if fact.groups == "wgmma group":
                warp.mmas.append(warp.mma_open)
            elif fact.groups == "bulk_group":
                warp.bulk.append(warp.bulk_open)
            else:
                warp.copies.append(warp.copies_open)
            return time
        if isinstance(fact, Awaited):
            return self._await(warp, fact, line)
        if isinstance(fact, Fenced):
            cost = self._fence(fact.opcode)
            self._stalled(warp, FENCES, cost, line)
            warp.time = time + cost
            return warp.time
        raise AssertionError(fact)

    def _multiply(self, warp: _Warp, sm: Sm, fact: Mma, line: int) -> float:
        cycles, drain = self._mma_cost(fact)
        free, time = sm.tensor[warp.smsp], warp.time
        start = free if free > time else time
        if time > free:
            waited = sum(warp.since)
            for n, part in enumerate(warp.since):
                if part:
                    sm.idle[CAUSES[n]] += (time - free) * part / max(waited, time - free)  # type: ignore[assignment]
            if waited < time - free:
                sm.idle[CAUSES[WORK]] += time - free - waited  # type: ignore[assignment]
        elif free > time:
            self._stalled(warp, TENSOR, start - time, line)
        warp.since = [0.0] * len(CAUSES)
        sm.tensor[warp.smsp] = start + cycles
        sm.tensor_work += cycles
        sm.smem_bytes += fact.smem_bytes / SCHEDULERS
        warp.mma_open = start + cycles + drain
        if self._keeps and warp.smsp == 0:
            name = f"m64n{fact.n} {fact.type} of warp {warp.number}"
            self.out.events.append(Event(warp.sm, "tensor cores", name, start, start + cycles))
        warp.time = start
        return start

    def _await(self, warp: _Warp, fact: Awaited, line: int) -> float:
        groups: list[Any]
        if fact.groups == "wgmma group":
            groups, cause = warp.mmas, TENSOR
        elif fact.groups == "bulk_group":
            groups, cause = warp.bulk, STORES
        else:
            groups, cause = warp.copies, COPIES
        over = len(groups) - fact.remaining
        if over > 0:
            last = groups[over - 1]
            ready = last[0 if fact.reads_only else 1] if isinstance(last, tuple) else last
            if not fact.reads_only:
                del groups[:over]
            if ready > warp.time:
                self._stalled(warp, cause, ready - warp.time, line)
                if self._keeps:
                    self.out.events.append(Event(warp.sm, warp.name, f"wait: {CAUSES[cause]}", warp.time, ready))
                warp.time = ready
        return warp.time

    def _load(self, warp: _Warp, sm: Sm, fact: Load) -> float:
        time, rates, size = warp.time, warp.cluster.rates, fact.size_bytes
        each = size / max(fact.boxes, 1)
        if each not in self._late_tma:
            gpu = self._gpu
            self._late_tma[each] = gpu.at("tma.latency", "dram", each) - gpu.at("tma.latency", "l2", each)
        sm.tma = max(sm.tma, time) + size * rates.port
        l2, dram = size * rates.tma, size * rates.dram * self._miss[fact.region]
        arrival = max(sm.tma, self._move(sm, time, l2, dram, size * rates.port))
        latency = self._tma_latency + self._is_late[fact.region] * self._late_tma[each]
        for rank, key, part in fact.to:
            to = self.out.sms[warp.sm if len(warp.cluster.traces) == 1 else rank]
            to.port = max(to.port, time) + part * rates.port
            to.port_work += part * rates.port
            end = max(arrival, to.port) + latency
            to.flight += part * (end - time)
            self._contribute(warp.cluster, key, end, warp, COPIES)
            if self._keeps:
                self.out.events.append(Event(rank, "copies", f"load {part} bytes", time, end))
        warp.time = time + self._tma_issue
        return warp.time

    def _access(self, warp: _Warp, sm: Sm, fact: Global, kind: str, line: int) -> float:
        time, rates = warp.time, warp.cluster.rates
        new_sectors = 0.0 if self._in_l1[fact.region] and fact.kind == "load" else fact.new_sectors
        size = 32.0 * new_sectors
        interval = self._gpu.constants["global.interval"].get(kind) or 1.0
        cost = max(interval, fact.sectors / 4)
        if fact.kind == "cp_async":
            cost = max(cost, self._cp_async[1])
        start = sm.lsu if sm.lsu > time else time
        sm.lsu = start + cost
        sm.pipe_work[LSU] += cost
        if start - time > _QUEUE_CYCLES:
            self._stalled(warp, GLOBAL, start - time - _QUEUE_CYCLES, line)
            warp.time = time = start - _QUEUE_CYCLES
        if fact.kind in ("load", "cp_async"):
            l2, dram = size * rates.l2, size * rates.dram * self._miss[fact.region]
        else:
            l2, dram = 32.0 * fact.sectors * rates.l2_write, 32.0 * fact.sectors * rates.dram_write
            if fact.kind == "atomic":
                dram = 0.0
        moved = self._move(sm, time, l2, dram, size * rates.port) if l2 else 0.0
        latency = self._l1
        if new_sectors:
            latency = self._l2 + self._late[fact.region] if fact.kind != "atomic" else self._atomic
        end = max(sm.lsu, moved) + latency
        warp.reason[:] = [GLOBAL] * 6
        if fact.kind in ("store", "atomic"):
            self._written = max(self._written, max(sm.lsu, sm.l2, time) + self._l2)
        if fact.kind == "cp_async":
            end += self._cp_async[0]
            warp.copies_open = max(warp.copies_open, end)
        if fact.kind in ("load", "cp_async"):
            sm.flight += size * (end - time)
        return end

    def _move(self, sm: Sm, time: float, l2: float, dram: float, fastest: float) -> float:
        """Take an SM's share of L2 and of device memory for some work; returns when that is done."""
        sm.l2_work += l2
        sm.dram_work += dram
        sm.l2, by_l2 = _served(sm.l2, time, l2, fastest, self._credit)
        sm.dram, by_dram = _served(sm.dram, time, dram, fastest, self._credit)
        return max(by_l2, by_dram)

    def _fence(self, opcode: str) -> float:
        gpu, parts = self._gpu, opcode.split(".")
        if parts[0] == "setmaxnreg":
            return gpu.at("setmaxnreg", "inc" if "inc" in parts else "dec")
        if parts[0] == "wgmma":
            return gpu.value("wgmma.fence")
        if parts[0] == "griddepcontrol":
            return 0.0
        if "proxy" in parts:
            return gpu.at("fence", "proxy_async")
        if "mbarrier_init" in parts:
            return gpu.at("fence", "mbarrier_init")
        scope = next((s for s in ("cta", "cluster", "gpu", "sys") if s in parts), "gpu")
        return gpu.at("fence", f"acq_rel_{scope}")


def _critical_path(last: _Warp | None) -> Counter[str]:
    """Walk back from the last warp's end: its own time by cause, then whoever ended its latest wait, and so on."""
    found: Counter[str] = Counter()
    if last is None:
        return found
    node, upper = last.node, last.causes
    while True:
        lower = [0.0] * len(CAUSES) if node is None else node.causes
        for cause, more, less in zip(CAUSES, upper, lower, strict=True):
            found[cause] += more - less  # type: ignore[assignment]
        if node is None:
            return found
        late = node.late
        found[node.what] += node.released - late.acted  # type: ignore[assignment]
        node, upper = late.node, late.causes
