"""Predicted time of a launch, from the traces of sampled CTAs.

The model runs the clusters of one SM, or of as many SMs as a cluster has CTAs: one after the other, as many at once as
are resident. Of many rounds it runs the first ones, and extrapolates at the pace of their later half. Where CTAs differ
in their work, it runs the shortest, the median and the longest sample, interpolates the others by their lengths, and
assigns all to the SMs in order.
"""

from __future__ import annotations

import heapq
import math
import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from cutepy.binaries.cubin import KernelResources
from cutepy.binaries.machine_code import MachineInstruction, read_code
from cutepy.binaries.ptxas import assemble
from cutepy.layouts.sm90.occupancy import Occupancy, occupancy
from cutepy.predict.code import LSU, PIPES, SCHEDULERS, Variants, block_steps
from cutepy.predict.costs import Costs
from cutepy.predict.gpu import Gpu, interpolated
from cutepy.predict.machine import Machine
from cutepy.predict.memory import Traffic, mixed, slowdown, traffic_of
from cutepy.predict.rates import NO_RAMP, Rates
from cutepy.predict.state import Event, Outcome, Sm
from cutepy.predict.trace import CtaTrace, Trace
from cutepy.sim.machine.launch import Launch, waits_for_others
from cutepy.sim.ptx.source_lines import line_of

_ROUNDS = 4
"""Rounds of resident clusters that are simulated; later rounds are extrapolated."""
_MOST_STEPS = 400_000
"""Steps after which no further round is simulated."""
_CREDIT = {False: 0.0, True: 20_000.0}
"""Cycles of L2's unused bandwidth that an SM may catch up on, without and with several rounds of clusters."""
_ALIKE = 0.02
"""Largest difference of the samples' lengths, relative to the longest, at which CTAs count as equal in work."""
_LARGE_BYTES = 100_000
"""Shared memory of a CTA from which an SM has room for one or two."""
_ROUND = 128
"""Threads of a CTA, of so many at least, whose rounds are not bound by the rate at which a GPU starts CTAs."""
_FULL_POWER, _SAME_CLOCK = 0.9, 0.03
"""Utilisation of the tensor cores at which the clock is the sustained one; relative difference of clocks to ignore."""
AFTER = "after the last MMA"
"""Cause of idle tensor cores: the epilogue of the last CTA."""
_SATURATED = 0.8
"""Share of its peak from which a resource bounds a kernel."""


@dataclass(frozen=True)
class Stall:
    """Time that warps wait at a line.

    Attributes
    ----------
    line : str
        Line of the source, or of the PTX.
    cause : str
        One of `state.CAUSES`.
    share : float
        Share of the time of all warps.
    us : float
        Mean of the warps that wait there, in microseconds.
    """

    line: str
    cause: str
    share: float
    us: float


@dataclass(frozen=True)
class Prediction:
    """Predicted time of one launch, and what bounds it.

    Attributes
    ----------
    kernel : str
    gpu : str
    grid, block, cluster : (int, int, int)
    us, low_us, high_us : float
        Time from launch to launch, back to back: at the expected clock, at the highest clock, and at the lowest, to
        which the power limit throttles tensor cores. `low_us` and `high_us` include the sampling error.
    kernel_us, launch_us : float
        Time from the first CTA's start to the last one's end, and the overhead of a launch.
    own_us : float
        Duration of the kernel alone, as CUPTI counts it: with its launch, the end of its stores included, but without
        what lies between it and the next one.
    clock_hz : float
    bound : str
        Bound of the kernel: a resource, "latency", "tail" or "launch".
    use : dict of str to float
        Resource -> utilisation on a busy SM, as a share of its peak.
    idle : dict of str to float
        Cause -> share of a busy SM's time in which its tensor cores idle, by what warps did before their next MMA, and
        `AFTER` the last one; it adds up to one with the use of the tensor cores.
    critical : dict of str to float
        Cause -> share of the critical path: warps at work, or a wait.
    stalls : tuple of Stall
        Lines where warps wait longest.
    traffic : tuple of Traffic
    occupancy : Occupancy
    waves : float
        Rounds of resident clusters.
    tail : float
        Share of the time in which SMs have run out of CTAs.
    in_flight_bytes, needed_bytes : float
        Bytes in flight to an SM on average, and those that full bandwidth needs by Little's law.
    sampled_ctas, sampling_error : int, float
        Number of simulated CTAs, and the relative error of a CTA's time that is predicted from the others.
    seconds : float
        Time that the prediction took, without the simulator's.
    events : tuple of Event
        Timeline of the SMs of one cluster, in cycles.
    """

    kernel: str
    gpu: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    us: float
    low_us: float
    high_us: float
    kernel_us: float
    launch_us: float
    own_us: float
    clock_hz: float
    bound: str
    use: dict[str, float]
    idle: dict[str, float]
    critical: dict[str, float]
    stalls: tuple[Stall, ...]
    traffic: tuple[Traffic, ...]
    occupancy: Occupancy
    waves: float
    tail: float
    in_flight_bytes: float
    needed_bytes: float
    sampled_ctas: int
    sampling_error: float
    seconds: float
    events: tuple[Event, ...] = field(default=(), repr=False)


@lru_cache(maxsize=64)
def _assembled(ptx: str, kernel: str, target: str) -> tuple[tuple[MachineInstruction, ...], KernelResources]:
    made = assemble(ptx, target)
    resources = next(each for each in made.resources if each.name == kernel)
    return read_code(made.image, kernel), resources


@dataclass
class _Schedule:
    """Cycles of a launch, and the simulation that they are of."""

    cycles: float
    tail: float
    error: float
    outcome: Outcome


class Predictor:
    """Predicts one launch.

    Parameters
    ----------
    launch : Launch
    trace : Trace
        Of its sampled clusters.
    gpu : Gpu
    without : collection of str
        Verbs of machine code that are taken to be absent, such as "LDL" and "STL" of spills.
    resident : int, optional
        CTAs that an SM runs at once. Default: as many as fit.

    Attributes
    ----------
    code : sequence of MachineInstruction
    resources : KernelResources
    """

    def __init__(
        self,
        launch: Launch,
        trace: Trace,
        gpu: Gpu,
        *,
        without: Collection[str] = (),
        resident: int | None = None,
    ) -> None:
        self._launch, self._trace, self._gpu = launch, trace, gpu
        code, self.resources = _assembled(launch.ptx, launch.kernel, launch.entry.module.target)
        self.code = [_idle(i) if i.verb in without else i for i in code] if without else code
        x, y, z = launch.block
        self._occupancy = occupancy(self.resources.registers, x * y * z, launch.smem_bytes)
        cx, cy, cz = launch.cluster
        self._size = cx * cy * cz
        self._groups = max(1, self._clusters_at_once())
        self._resident = resident or max(1, self._occupancy.ctas_per_sm)
        self._clusters = launch.ctas // self._size
        self._begun = gpu.at("start.accesses", "parameters", "first")  # they come to an SM's constants once
        self._sampled = sum(len(cluster) for cluster in trace.clusters)
        concurrent = min(launch.ctas, self._groups * self._size * self._resident)
        self._weights = weights([cluster[0].block for cluster in trace.clusters], self._clusters)
        stands_for = {
            cta.block: weight for cluster, weight in zip(trace.clusters, self._weights, strict=True) for cta in cluster
        }
        self._traffic = traffic_of(trace.regions, stands_for, concurrent)
        self._slowdown, self._mixed = slowdown(gpu, self._traffic), mixed(self._traffic)
        factual = {i for cluster in trace.clusters for cta in cluster for warp in cta.warps for i in warp.facts}
        program = launch.entry.program(frozenset(), frozenset())
        self._steps: list[Variants] = block_steps(program.flow.blocks, self.code, factual, gpu)
        self._falls = [block.branch is None for block in program.flow.blocks]
        self._lines = {i.line: i for i in program.function.instructions}
        self._named: dict[int, str] = {}

    def _clusters_at_once(self) -> int:
        """Return how many clusters of one CTA an SM the GPU holds: each within one GPC, whose SMs others leave over."""
        table = self._gpu.constants["cluster.most"]
        known = table.get(str(self._size))
        return int(known) if known else self._gpu.sms // self._size

    def predict(self, *, keeps_events: bool = False) -> Prediction:
        """Return the prediction."""
        began = time.perf_counter()
        gpu = self._gpu
        fast, slow, idle_hz = (gpu.value(f"clock.{name}_hz") for name in ("memory", "tensor", "idle"))
        busy = self._expected_tensor_use(fast)
        clock = fast + (slow - fast) * busy
        found = self._schedule(clock, keeps_events=keeps_events)
        if busy:  # the clock follows the power, which tensor cores take as they are busy
            working = self._tensor_use(found.outcome) * (1.0 - found.tail)
            expected = fast + (slow - fast) * min(1.0, working / _FULL_POWER)
            changed, clock = abs(expected / clock - 1) > _SAME_CLOCK, expected
            if changed:
                found = self._schedule(clock, keeps_events=keeps_events)
        launch_us = self._launch_us(found.outcome, clock)
        kernel_us = self._bounded_us(found.cycles / clock * 1e6)
        margin = found.error
        out = found.outcome
        sm = max(out.sms, key=lambda each: each.slots)
        # The launch takes at least as long as its bytes take all SMs, though one SM's simulated CTAs may catch up.
        stretch = max(1.0, kernel_us * clock / 1e6 / max(found.cycles, 1.0))
        cycles = max(out.cycles * stretch, 1.0)
        use = self._use(sm, cycles)
        idle = self._idle(sm, cycles)
        us = kernel_us + launch_us
        # Memory has a clock of its own: the critical path's share of it stays as it is.
        by_memory = found.outcome.path["copies"] + found.outcome.path["global memory"]
        fixed = (
            by_memory / max(sum(found.outcome.path.values()), 1.0)
            if max(use["L2"], use["device memory"]) > 0.8
            else 0.0
        )
        quick, tardy = (kernel_us * (fixed + (1 - fixed) * clock / hz) for hz in (idle_hz, slow if busy else clock))
        rates = self._rates(min(gpu.sms, self._launch.ctas), clock)
        latency = gpu.at("tma.latency_tensor", "l2", 1024)
        latency += max((t.late for t in self._traffic if t.l2_read_bytes), default=0.0) * (
            gpu.value("dram.latency") - gpu.value("l2.latency")
        )
        slowest = max([rates.tma, *(rates.dram * t.miss for t in self._traffic)])
        return Prediction(
            self._launch.name,
            gpu.name,
            self._launch.grid,
            self._launch.block,
            self._launch.cluster,
            us,
            min(us, quick + launch_us) * (1 - margin),
            max(us, tardy + launch_us) * (1 + margin),
            kernel_us,
            launch_us,
            kernel_us + self._counted_us(out, clock),
            clock,
            self._bound(use, found.tail, launch_us / us),
            use,
            idle,
            self._critical(out),
            self._stalls(out, clock),
            tuple(self._traffic),
            self._occupancy,
            self._clusters / (self._groups * self._resident),
            found.tail,
            sm.flight / cycles,
            latency / slowest,
            self._sampled,
            found.error,
            time.perf_counter() - began,
            tuple(replace(event, where=self._where(event.line)) if event.line else event for event in out.events),
        )

    def _where(self, line: int) -> str:
        """Name the source line of a line of PTX."""
        if line not in self._named:
            i = self._lines.get(line)
            self._named[line] = line_of(i) if i is not None else "machine code"
        return self._named[line]

    def _machine(self, keeps_events: bool) -> Machine:
        trace = self._trace
        return Machine(
            self._gpu,
            self._steps,
            trace.needed,
            trace.barriers,
            self._traffic,
            credit=_CREDIT[self._clusters > self._groups * self._resident],
            fetches_maps="prefetch.tensormap" in self._launch.ptx or "prefetch.param.tensormap" in self._launch.ptx,
            keeps_events=keeps_events,
            falls=self._falls,
        )

    def _schedule(self, clock_hz: float, *, keeps_events: bool = False) -> _Schedule:
        lengths = [_length(cluster) for cluster in self._trace.clusters]
        if max(lengths) - min(lengths) <= _ALIKE * max(lengths):
            return self._rounds(self._trace.clusters, clock_hz, keeps_events)
        if self._are_dealt_tiles():
            return self._balanced(clock_hz, keeps_events)
        return self._dealt(clock_hz, keeps_events)

    def _are_dealt_tiles(self) -> bool:
        """Tell whether CTAs that begin at once share out work: they see what others store, and differ in their MMAs."""
        if self._clusters > self._groups * self._resident or not waits_for_others(self._launch):
            return False
        costs = Costs(self._gpu)
        cycles = [
            sum(costs.tensor_cycles(warp) for cta in cluster for warp in cta.warps) for cluster in self._trace.clusters
        ]
        return max(cycles) - min(cycles) > _ALIKE * max(cycles)

    def _balanced(self, clock_hz: float, keeps_events: bool) -> _Schedule:
        """Simulate the sample with about the mean work: a GPU's CTAs end together, as the one that is free takes more.

        The simulator's CTAs take tiles in another order, and differ in work.
        """
        lengths = {id(cluster): float(_length(cluster)) for cluster in self._trace.clusters}
        mean = self._trace.executed / self._clusters or sum(lengths.values()) / len(lengths)
        sample = min(self._trace.clusters, key=lambda cluster: abs(lengths[id(cluster)] - mean))
        found = self._rounds([sample], clock_hz, keeps_events)
        share = mean / lengths[id(sample)]
        return replace(found, cycles=found.cycles * share, error=abs(1.0 - share) / 4)

    def _rates(self, active: int, clock_hz: float) -> Rates:
        return Rates.of(self._gpu, active, clock_hz, self._slowdown, self._mixed)

    def _turnaround(self) -> float:
        """Return the cycles from a CTA's end to the start of the next in its place, by threads.

        CTAs of which an SM has one, for their shared memory, were measured apart.
        """
        table = self._gpu.constants["cta.round"]["stores"]
        by_threads = {float(threads): float(cycles) for threads, cycles in table.items() if int(threads) >= _ROUND}
        if self._launch.smem_bytes > _LARGE_BYTES:
            alone = self._gpu.constants["cta.turnaround"]
            names = [name.partition("x") for name in alone if name.endswith("x200000")]
            by_threads = {float(threads): float(alone[f"{threads}x{smem}"]) for threads, _, smem in names}
        return interpolated(sorted(by_threads.items()), math.prod(self._launch.block))

    def _starts(self, clock_hz: float) -> tuple[float, float]:
        """Return the cycles until the first cluster of an SM executes, and those between the starts of its clusters."""
        at_once = min(self._launch.ctas, self._groups * self._size)
        return self._begun, clock_hz * at_once / self._ctas_hz()

    def _ctas_hz(self) -> float:
        """Return how many CTAs the GPU starts in a second: half as many in a programmatic launch."""
        if not self._launch.programmatic:
            return self._gpu.value("cta.rate_hz")
        few, many = (self._gpu.at("launch.interval_pdl", f"{ctas}x128x0") for ctas in (132, 1056))
        return (1056 - 132) / (many - few) * 1e9

    def _rounds(self, samples: Sequence[Sequence[CtaTrace]], clock_hz: float, keeps_events: bool) -> _Schedule:
        """Simulate the clusters of one SM, where all CTAs have about as much work."""
        each, rest = divmod(self._clusters, self._groups)
        count = each + (rest > 0)
        active = min(self._clusters, self._groups) * self._size
        rates = self._rates(active, clock_hz)
        last = self._rates(rest * self._size, clock_hz) if rest and each else rates
        length = _length(samples[0])
        most = max(2 * self._resident, min(_ROUNDS * self._resident, _MOST_STEPS // max(length, 1)))
        simulated = min(count, most)
        if simulated < count:  # the pace of later rounds is that of streaming
            rates = replace(rates, ramp=NO_RAMP)
        order = [(samples[n % len(samples)], rates) for n in range(simulated)]
        if simulated == count and rest and each:
            order[-1] = order[-1][0], last
        out = self._machine(keeps_events).run(order, self._resident, self._turnaround(), *self._starts(clock_hz))
        cycles, error = out.cycles, 0.0
        ends = sorted(end for _, end in out.spans)
        if simulated < count:
            half = len(ends) // 2
            pace = (ends[-1] - ends[half - 1]) / (len(ends) - half)
            early = (ends[half - 1] - ends[0]) / max(half - 1, 1)
            further = self._clusters / self._groups - simulated
            cycles += further * pace
            error = min(0.5, abs(pace - early) * further / cycles) / 4
        work = self._clusters / self._groups / count
        return _Schedule(cycles, max(0.0, 1.0 - work) if count <= most else 0.0, error, out)

    def _dealt(self, clock_hz: float, keeps_events: bool) -> _Schedule:
        """Simulate the samples with the least, the median and the most work, and assign the whole grid to the SMs.

        A sample's time follows from its length, and another cluster's is that of the nearest sample. Where all begin at
        once, those that have ended leave their share of the bandwidth to the others: the mean number of SMs is active.
        """
        active = min(self._clusters, self._groups) * self._size
        if self._clusters <= self._groups * self._resident:
            lengths = [_length(cluster) for cluster in self._trace.clusters]
            work = sum(weight * length for weight, length in zip(self._weights, lengths, strict=True))
            active = max(1, round(active * work / sum(self._weights) / max(lengths)))
        rates, turnaround = self._rates(active, clock_hz), self._turnaround()
        resident = min(self._resident, -(-self._clusters // self._groups))
        ordered = sorted(self._trace.clusters, key=_length)
        all_at_once = self._clusters <= self._groups * self._resident
        if not all_at_once:
            rates = replace(rates, ramp=NO_RAMP)
        picked = [ordered[-1]] if all_at_once else [ordered[0], ordered[len(ordered) // 2], ordered[-1]]
        outcomes = [
            self._machine(keeps_events and sample is ordered[-1]).run(
                [(sample, rates)] * resident, resident, turnaround, *self._starts(clock_hz)
            )
            for sample in picked
        ]
        by_length = [(float(_length(sample)), out.cycles) for sample, out in zip(picked, outcomes, strict=True)]
        if all_at_once:
            by_length = [(0.0, 0.0), *by_length]  # the longest is what counts; the others tell how long SMs idle
        times = [
            (c[0].block / self._size, interpolated(by_length, _length(c)) + turnaround) for c in self._trace.clusters
        ]
        slots = [0.0] * (self._groups * resident)
        total = 0.0
        nearest = 0
        for n in range(self._clusters):
            while nearest + 1 < len(times) and abs(times[nearest + 1][0] - n) <= abs(times[nearest][0] - n):
                nearest += 1
            total += times[nearest][1]
            heapq.heapreplace(slots, slots[0] + times[nearest][1])
        cycles = max(slots) - turnaround
        every = [each for _, each in times]
        mean = sum(every) / len(every)
        spread = (sum((each - mean) ** 2 for each in every) / len(every)) ** 0.5
        error = 0.0 if all_at_once else spread / mean / len(every) ** 0.5
        tail = max(0.0, 1.0 - total / len(slots) / cycles)
        return _Schedule(cycles, tail, error, outcomes[-1])

    def _launch_us(self, out: Outcome, clock_hz: float) -> float:
        """Return the overhead of a launch beyond its CTAs, back to back with others.

        Of a programmatic launch, what comes before its wait may run while the launch before it ends, once that has let
        it begin: at once where there is room for the CTAs of both, else on each SM that the other leaves.
        """
        launch, table = self._launch, self._gpu.constants["launch.overhead"]
        shape = self._shape
        how = "programmatic, begins early" if out.lets_begin else "programmatic"
        without, stores = (how, f"{how}, stores") if launch.programmatic else ("plain", "stores")
        late = (out.stored - out.cycles) / clock_hz * 1e6
        us: float = max(table[without][shape] / 1e3, table[stores][shape] / 1e3 + late)
        us -= self._hidden_us(out, clock_hz, us)
        if self._size > 1:
            of_clusters = self._gpu.at("launch.interval_cluster", self._size)
            us += (of_clusters - self._gpu.at("launch.interval", "132x384x200000")) / 1e3
        return us

    def _hidden_us(self, out: Outcome, clock_hz: float, overhead_us: float) -> float:
        """Return how much of what comes before a programmatic launch's wait runs while the launch before it ends."""
        if not (self._launch.programmatic and out.lets_begin):
            return 0.0
        before, turnaround = out.waited / clock_hz * 1e6, self._turnaround() / clock_hz * 1e6
        each = -(-self._launch.ctas // self._gpu.sms)
        has_room = 2 * each <= self._occupancy.ctas_per_sm
        return before if has_room else before - max(0.0, before + turnaround - overhead_us)

    @property
    def _shape(self) -> str:
        """Shape of the benchmarks of launches that is like this one."""
        smem = self._launch.smem_bytes
        return "132x384x200000" if smem > 100_000 else "132x384x100000" if smem > 16_384 else "132x128x0"

    def _counted_us(self, out: Outcome, clock_hz: float) -> float:
        """Return what CUPTI counts of a launch beyond its CTAs.

        A launch that begins while the one before it ends counts from that one's end: launches whose CTAs wait for it
        for microseconds have the same durations as plain ones (launch.counted).
        """
        table = self._gpu.constants["launch.counted"]
        without, stores = ("programmatic", "programmatic, stores") if self._launch.programmatic else ("plain", "stores")
        late = (out.stored - out.cycles) / clock_hz * 1e6
        us = float(max(table[without][self._shape] / 1e3, table[stores][self._shape] / 1e3 + late))
        return us - self._hidden_us(out, clock_hz, us)

    def _bounded_us(self, us: float) -> float:
        """Return a time that is at least that of moving the launch's bytes."""
        gpu = self._gpu
        read = sum(t.dram_read_bytes for t in self._traffic) / gpu.value("dram.bandwidth")
        written = sum(t.dram_write_bytes for t in self._traffic) / gpu.value("dram.write_bandwidth")
        by_tma = gpu.at("tma.bandwidth_all", 8) * gpu.sms * gpu.value("clock.idle_hz")
        asked = sum(t.l2_read_bytes for t in self._traffic) / max(gpu.value("l2.bandwidth"), by_tma)
        begun = self._launch.ctas / self._ctas_hz()
        lost = self._rates(1, 1.0).lost(sum(t.dram_read_bytes for t in self._traffic))  # of a clock of 1 Hz: seconds
        # The first bytes come once the kernel has begun and device memory has answered.
        first = self._begun + gpu.at("start.code", "again", 2048) + gpu.value("dram.latency") if read else 0.0
        by_bytes = first / gpu.value("clock.memory_hz") + (read + written) * self._slowdown + lost
        return 1e6 * max(us / 1e6, by_bytes, asked, begun)

    @staticmethod
    def _tensor_use(out: Outcome) -> float:
        return max(sm.tensor_work for sm in out.sms) / SCHEDULERS / max(out.cycles, 1.0)

    def _expected_tensor_use(self, clock_hz: float) -> float:
        """Return the utilisation of the tensor cores if only MMAs and memory took time: the clock depends on it."""
        sample = self._longest
        rates = self._rates(min(self._launch.ctas, self._groups * self._size), clock_hz)
        costs, cta = Costs(self._gpu), sample[0]
        tensor = sum(costs.tensor_cycles(warp) for warp in cta.warps) / 4
        share = len(sample) / max(self._launch.ctas, 1)
        l2 = sum(t.l2_read_bytes for t in self._traffic) * share * rates.l2 / len(sample)
        dram = sum(t.dram_read_bytes + t.dram_write_bytes for t in self._traffic) * share * rates.dram / len(sample)
        return tensor / max(tensor, l2, dram, 1.0) if tensor else 0.0

    @property
    def _longest(self) -> list[CtaTrace]:
        return max(self._trace.clusters, key=_length)

    def _use(self, sm: Sm, cycles: float) -> dict[str, float]:
        """Return the share of the time that each resource works, the busiest first.

        A resource that was asked for more than the SM's share, as of memory, works until it has done that.
        """
        use = {
            "tensor cores": sm.tensor_work / SCHEDULERS / cycles,
            "issue slots": sm.slots / SCHEDULERS / cycles,
            "shared memory": max(sm.pipe_work[LSU], sm.smem_bytes / self._gpu.value("smem.bandwidth")) / cycles,
            "L2": sm.l2_work / cycles,
            "device memory": sm.dram_work / cycles,
            "port of the SM": sm.port_work / cycles,
        }
        for n, name in enumerate(PIPES[:LSU]):
            if sm.pipe_work[n]:
                use[f"{name} pipe"] = sm.pipe_work[n] / SCHEDULERS / cycles
        return {name: min(1.0, share) for name, share in sorted(use.items(), key=lambda item: -item[1])}

    @staticmethod
    def _idle(sm: Sm, cycles: float) -> dict[str, float]:
        """Return by cause how long tensor cores idle: before an MMA, and after the last one."""
        found = {cause: share / SCHEDULERS / cycles for cause, share in sm.idle.items()}
        if sm.tensor_work:
            found[AFTER] = max(0.0, 1.0 - sum(core.free for core in sm.tensor) / SCHEDULERS / cycles)
        return {cause: share for cause, share in sorted(found.items(), key=lambda item: -item[1]) if share > 0.001}

    @staticmethod
    def _bound(use: dict[str, float], tail: float, launch: float) -> str:
        name, most = next(iter(use.items()))
        if launch > 0.5:
            return "launch"
        if most >= _SATURATED:
            return name
        if tail > 0.25:
            return "tail"
        return "latency"

    @staticmethod
    def _critical(out: Outcome) -> dict[str, float]:
        whole = sum(out.path.values()) or 1.0
        return {what: cycles / whole for what, cycles in out.path.most_common() if cycles > 0.001 * whole}

    def _stalls(self, out: Outcome, clock_hz: float) -> tuple[Stall, ...]:
        everything = sum(out.causes.values()) or 1.0
        warps = sum(len(cta.warps) for cta in self._trace.clusters[0])
        by_line: defaultdict[tuple[str, str], float] = defaultdict(float)
        for (line, cause), cycles in out.stalls.items():
            by_line[self._where(line), cause] += cycles
        return tuple(
            Stall(where, cause, cycles / everything, cycles / warps / clock_hz * 1e6)
            for (where, cause), cycles in sorted(by_line.items(), key=lambda item: -item[1])[:12]
        )


def _idle(i: MachineInstruction) -> MachineInstruction:
    """Return an instruction that takes an issue slot and nothing else, so that branches keep their targets."""
    return replace(i, opcode="NOP", operands="", stall=1, sets=None, releases=None, waits=())


def weights(blocks: Sequence[int], clusters: int) -> list[float]:
    """Return how many clusters each sampled one stands for, by the linear index of its first CTA.

    The last one may be at an edge of the problem, and stands for itself alone, and so does the first; those between
    share the others.

    Examples
    --------
    >>> weights([0, 50, 99], 100), weights([0, 1], 2), weights([0, 99], 100)
    ([1.0, 98.0, 1.0], [1.0, 1.0], [99.0, 1.0])
    """
    count = len(blocks)
    if count >= clusters:
        return [clusters / count] * count
    last = max(range(count), key=blocks.__getitem__)
    first = min(range(count), key=blocks.__getitem__)
    if count < 3:
        return [clusters - count + 1.0 if n == first else 1.0 for n in range(count)]
    return [1.0 if n in (first, last) else (clusters - 2) / (count - 2) for n in range(count)]


def _length(cluster: Sequence[CtaTrace]) -> int:
    return sum(len(warp.path) for cta in cluster for warp in cta.warps)
