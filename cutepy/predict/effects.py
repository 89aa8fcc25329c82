"""Effects of what warps execute, on the servers of SMs and on barriers: MMAs, copies, accesses, arrivals, waits."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from cutepy.predict.code import LSU, SCHEDULERS
from cutepy.predict.costs import Costs
from cutepy.predict.gpu import Gpu
from cutepy.predict.memory import Traffic
from cutepy.predict.rates import Rates
from cutepy.predict.state import (
    BARRIERS,
    CAUSES,
    COPIES,
    FENCES,
    GLOBAL,
    SHARED,
    STORES,
    TENSOR,
    WORK,
    Cluster,
    Event,
    Group,
    IssuedMma,
    LatestArrival,
    Node,
    Outcome,
    Sm,
    TensorCore,
    Warp,
)
from cutepy.predict.trace import (
    LINE_BYTES,
    Arrive,
    Barrier,
    Commit,
    Control,
    Global,
    Load,
    Mma,
    Shared,
    Store,
    WaitGroup,
)
from cutepy.sim.machine.activity import SECTOR_BYTES

GOLDEN = (5**0.5 - 1) / 2
"""Its multiples, less their integers, are spread evenly: quantiles of latencies, in order of the loads of an SM."""
_QUEUE_CYCLES = 64
"""Queue of the LSU in cycles of work: a warp that issues an access waits while more is ahead."""


def _served(free: float, time: float, work: float, fastest: float, credit: float) -> tuple[float, float]:
    """Serve work of a shared resource: returns when the SM's share of it is free again, and when the work is done."""
    free = max(free, time - credit) + work
    return free, max(free, time + fastest)


class Effects:
    """Effects of facts on servers, warps and barriers.

    Parameters
    ----------
    gpu : Gpu
    needed : mapping of int to int
        Contributions that complete each barrier's phase.
    barriers : mapping of int to Barrier
    traffic : sequence of Traffic
        By region.
    credit : float
        Cycles of unused share of L2 that an SM may catch up on.
    fetches_maps : bool
        Whether the kernel fetches its tensor maps before it needs them.
    keeps_events : bool
        Whether to keep the timeline.

    Attributes
    ----------
    written : float
        Time at which all that was stored so far has left; minus infinity before any store.
    waited, lets_begin, let_begin : float, bool, float
        As of `Outcome`.
    """

    def __init__(
        self,
        gpu: Gpu,
        needed: dict[int, int],
        barriers: dict[int, Barrier],
        traffic: Sequence[Traffic],
        *,
        credit: float,
        fetches_maps: bool,
        keeps_events: bool,
    ) -> None:
        self._costs, self._needed, self._barriers = Costs(gpu), needed, barriers
        self._miss = [each.miss for each in traffic]
        late = gpu.value("dram.latency") - gpu.value("l2.latency")
        self._late = [each.late * late for each in traffic]
        self._is_late = [each.late for each in traffic]
        self._in_l1 = [each.in_l1 for each in traffic]
        self._along = [each.along for each in traffic]
        self._part_bytes = [self._costs.part_of_sector(each.dram_write_bytes) for each in traffic]
        # Of a part of a sector, half of it on average, beyond its own bytes.
        self._more_bytes = [max(0.0, each - SECTOR_BYTES / 2) for each in self._part_bytes]
        self.keeps_events, self._credit = keeps_events, credit
        self._new_page = self._costs.first_access("global")
        self._new_map = 0.0 if fetches_maps else self._costs.first_access("tensor_map")

    def begin(self, out: Outcome, wake: Callable[[Warp | TensorCore, float], None]) -> None:
        """Begin a simulation whose results are kept, and whose warps `wake` lets go on at a time."""
        self.out, self._push = out, wake
        self.written, self.waited = float("-inf"), 0.0
        self.lets_begin, self.let_begin = False, 0.0

    def stalled(self, warp: Warp, cause: int, cycles: float, where: int) -> None:
        """Note that a warp waited at a line."""
        warp.causes[cause] += cycles
        warp.since[cause] += cycles
        self.out.stalls[where, CAUSES[cause]] += cycles  # type: ignore[assignment]

    def released(self, warp: Warp, key: int, ready: float, line: int) -> None:
        """Let a warp go on from a barrier whose phase is complete."""
        warp.before = warp.time
        if ready > warp.time:
            late = warp.cluster.late[key]
            cause = late.cause
            self.stalled(warp, cause, ready - warp.time, line)
            if self.keeps_events:
                self.out.events.append(Event(warp.sm, warp.name, f"wait: {CAUSES[cause]}", warp.time, ready, line))
            warp.node = Node(ready, CAUSES[cause], late, warp.node, warp.causes[:])
            warp.time = ready

    def contribute(self, cluster: Cluster, key: int, time: float, warp: Warp, cause: int) -> None:
        """Count towards a phase of a barrier from a time on; the last contribution lets those go on that wait."""
        left = cluster.left.get(key)
        left = (self._needed[key] if left is None else left) - 1
        cluster.left[key] = left
        late = cluster.late.get(key)
        if late is None or time > late.time:
            cluster.late[key] = LatestArrival(time, warp, warp.time, warp.node, warp.causes[:], cause)
        if left <= 0:
            cluster.done[key] = cluster.late[key].time
            for waiter in cluster.waiting.pop(key, ()):
                self._push(waiter, cluster.done[key])

    def do(self, warp: Warp, sm: Sm, fact: Any, kind: str, line: int, place: tuple[int, int] = (0, 0)) -> float:  # noqa: ANN401
        """Apply a fact other than a wait for a barrier; returns the time of its result.

        `place` is the number of its instruction, and that of its execution by the warp.
        """
        time = warp.time
        if isinstance(fact, Mma):
            return self._multiply(warp, sm, fact, line)
        if isinstance(fact, Shared):
            interval, latency = self._costs.shared(kind)
            start = sm.lsu if sm.lsu > time else time
            cost = max(min(interval, 1.0), fact.wavefronts * self._costs.wavefront)
            sm.lsu = start + cost
            sm.pipe_work[LSU] += cost
            sm.smem_bytes += 128 * fact.wavefronts
            warp.reason[:] = [SHARED] * 6
            if start - time > _QUEUE_CYCLES:
                self.stalled(warp, SHARED, start - time - _QUEUE_CYCLES, line)
                warp.time = start - _QUEUE_CYCLES
            return start + cost + latency
        if isinstance(fact, Arrive):
            own = warp.cta.block
            for key in fact.keys:
                barrier = self._barriers[key]
                if barrier.kind == "mbarrier":
                    latency = self._costs.handover[barrier.block != own]
                elif barrier.kind == "bar":
                    latency = self._costs.sync(self._needed[key])
                else:
                    latency = self._costs.cluster_sync(len(warp.cluster.traces), fact.how == "relaxed")
                waits = fact.how == "copies"
                start = max(time, warp.copies_open, *warp.copies[-1:]) if waits else time
                self.contribute(warp.cluster, key, start + latency, warp, COPIES if waits else BARRIERS)
            return time
        if isinstance(fact, Load):
            return self._load(warp, sm, fact, line)
        if isinstance(fact, Global):
            return self._access(warp, sm, fact, kind, line, place)
        if isinstance(fact, Store):
            rates = warp.cluster.rates
            size = fact.size_bytes
            sm.store = max(sm.store, time) + size * self._costs.store_rate
            l2 = rates.l2_write * (size + self._more_bytes[fact.region] * fact.part_sectors)
            moved = self._move(sm, time, l2, size * rates.dram_write, size * rates.port)
            read = self._costs.store_latency
            end = max(sm.store, moved) + read + self._costs.store_end
            self.written = max(self.written, max(sm.store, sm.l2, time) + read)
            old = warp.bulk_open
            warp.bulk_open = max(old[0], sm.store + read), max(old[1], end)
            warp.time = time + self._costs.tma_issue
            if self.keeps_events:
                self.out.events.append(Event(warp.sm, "bulk stores", f"store {fact.size_bytes} bytes", time, end, line))
            return sm.store
        if isinstance(fact, Commit):
            if fact.groups == "wgmma group":
                warp.mmas.append(warp.mma_open)
                warp.mma_open = Group()
            elif fact.groups == "bulk_group":
                warp.bulk.append(warp.bulk_open)
            else:
                warp.copies.append(warp.copies_open)
            return time
        if isinstance(fact, WaitGroup):
            return self._await(warp, fact, line)
        if isinstance(fact, Control):
            if "launch_dependents" in fact.opcode:
                self.lets_begin = True
                self.let_begin = max(self.let_begin, time)
            elif fact.opcode.startswith("griddepcontrol") and warp.cluster.is_first:
                self.waited = max(self.waited, time)
            cost = self._costs.fence(fact.opcode)
            self.stalled(warp, FENCES, cost, line)
            warp.time = time + cost
            return warp.time
        raise AssertionError(fact)

    def must_wait(self, warp: Warp, sm: Sm, fact: Any) -> bool:  # noqa: ANN401
        """Tell whether a warp must wait for its own MMAs before a fact, and let them wake it.

        An MMA is issued once the queue has room, behind a fence, too.
        """
        if isinstance(fact, Mma):
            warp.held = len(sm.tensor[warp.smsp].queues.get(warp, ())) >= self._costs.mma_queue
            return warp.held
        if isinstance(fact, WaitGroup) and fact.groups == "wgmma group" and len(warp.mmas) > fact.remaining:
            group = warp.mmas[len(warp.mmas) - fact.remaining - 1]
            group.waiter = warp if group.left else None
            return group.left > 0
        return False

    def _multiply(self, warp: Warp, sm: Sm, fact: Mma, line: int) -> float:
        """Issue an MMA once the one before has been and the queue has room; its SM's tensor cores begin it in turn."""
        cycles, drain = self._costs.mma(fact)
        free = max(warp.mma_next, warp.mma_room)
        if free > warp.time:
            self.stalled(warp, TENSOR, free - warp.time, line)
            warp.time = free
        warp.mma_next = warp.time + self._costs.mma_interval(fact.n)
        core = sm.tensor[warp.smsp]
        name = f"m64n{fact.n} {fact.type} of warp {warp.number}" if self.keeps_events and warp.smsp == 0 else ""
        queued = IssuedMma(warp.time, cycles, drain, warp.mma_open, warp.since, name, line)
        warp.mma_open.left += 1
        warp.since = [0.0] * len(CAUSES)
        core.queues.setdefault(warp, deque()).append(queued)
        sm.tensor_work += cycles
        sm.smem_bytes += fact.smem_bytes / SCHEDULERS
        if not core.awake:
            core.awake = True
            self._push(core, max(core.free, warp.time))
        return warp.time

    def begin_mma(self, core: TensorCore, time: float) -> None:
        """Let a tensor core begin the MMA of the warp whose turn it is, and wake who waits for that."""
        warp = next((w for w, queue in core.queues.items() if queue[0].time <= time), None)
        if warp is not None:
            queue = core.queues.pop(warp)
            mma = queue.popleft()
            if queue:
                core.queues[warp] = queue
            self._idled(core, mma, time)
            core.free = time + mma.cycles
            group = mma.group
            group.left -= 1
            group.end = max(group.end, core.free + mma.drain)
            if len(queue) + 1 >= self._costs.mma_queue:
                warp.mma_room = time + self._costs.mma_lead
            if not group.left and group.waiter is not None:
                self._push(group.waiter, group.end)
            if warp.held:
                warp.held = False
                self._push(warp, warp.mma_room)
            if mma.name:
                self.out.events.append(Event(core.sm, "tensor cores", mma.name, time, core.free, mma.line))
        core.awake = bool(core.queues)
        if core.awake:
            self._push(core, max(core.free, min(queue[0].time for queue in core.queues.values())))

    def _idled(self, core: TensorCore, mma: IssuedMma, time: float) -> None:
        """Note why a tensor core idled before an MMA."""
        idle, waited = time - core.free, sum(mma.since)
        causes = self.out.sms[core.sm].idle
        for n, part in enumerate(mma.since):
            if part and idle > 0:
                causes[CAUSES[n]] += idle * part / max(waited, idle)  # type: ignore[assignment]
        if waited < idle:
            causes[CAUSES[WORK]] += idle - waited  # type: ignore[assignment]

    def _await(self, warp: Warp, fact: WaitGroup, line: int) -> float:
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
            ready = last.end if isinstance(last, Group) else last
            if isinstance(ready, tuple):
                ready = ready[0 if fact.reads_only else 1]
            if not fact.reads_only:
                del groups[:over]
            if ready > warp.time:
                self.stalled(warp, cause, ready - warp.time, line)
                if self.keeps_events:
                    self.out.events.append(Event(warp.sm, warp.name, f"wait: {CAUSES[cause]}", warp.time, ready, line))
                warp.time = ready
        return warp.time

    def _load(self, warp: Warp, sm: Sm, fact: Load, line: int) -> float:
        time, rates, size = warp.time, warp.cluster.rates, fact.size_bytes
        costs, each, inside = self._costs, size / max(fact.boxes, 1), size - fact.outside_bytes
        sm.tma = max(sm.tma, time) + max(size * rates.port, fact.runs * costs.tma_row)
        parts = max(0.0, fact.lines - inside / LINE_BYTES) * costs.part_of_line
        l2 = (inside + parts * LINE_BYTES) * rates.tma
        dram = inside * rates.dram * self._miss[fact.region]
        if fact.outside_bytes and inside:
            l2 = max(l2, costs.outside(size, fact.outside_bytes) * rates.crowd)
        if self._along[fact.region] and inside <= 1.01 * fact.runs * LINE_BYTES:
            dram *= costs.short_runs
        dram += self._ramp(sm, rates, inside * self._miss[fact.region])
        arrival = max(sm.tma, self._move(sm, time, l2, dram, inside * rates.port))
        late = self._is_late[fact.region]
        latency = costs.tma_latency + late * costs.late_tma(each) * rates.pace
        arrival = max(arrival, time + late * self._queue(sm, rates, time, inside * self._miss[fact.region]))
        latency += self._first(sm, fact.region, by_tma=True)
        awaited = time
        for rank, key, part in fact.to:
            to = self.out.sms[warp.sm if len(warp.cluster.traces) == 1 else rank]
            to.port = max(to.port, time) + part * rates.port
            to.port_work += part * rates.port
            end = max(arrival, to.port) + latency
            to.flight += part * (end - time)
            awaited = max(awaited, end)
            self.contribute(warp.cluster, key, end, warp, COPIES)
            if self.keeps_events:
                self.out.events.append(Event(rank, "copies", f"load {part} bytes", time, end, line))
        # What several CTAs get is moved once.
        self._awaits(sm, awaited, inside * self._miss[fact.region])
        warp.time = time + costs.tma_issue
        return warp.time

    @staticmethod
    def _ramp(sm: Sm, rates: Rates, size: float) -> float:
        """Return the cycles by which bytes of device memory come later, because it has not reached its bandwidth."""
        before = rates.lost(sm.dram_read)
        sm.dram_read += size
        return rates.lost(sm.dram_read) - before

    def _queue(self, sm: Sm, rates: Rates, time: float, own_bytes: float) -> float:
        """Return the cycles that a load of device memory waits for those that are in flight with it."""
        while sm.awaited and sm.awaited[0][0] <= time:
            sm.awaited_bytes -= heapq.heappop(sm.awaited)[1]
        return rates.pace * self._costs.queue((sm.awaited_bytes + own_bytes) * rates.crowd)

    @staticmethod
    def _awaits(sm: Sm, end: float, size: float) -> None:
        heapq.heappush(sm.awaited, (end, size))
        sm.awaited_bytes += size

    def _first(self, sm: Sm, region: int, *, by_tma: bool) -> float:
        """Return how much later the first access of an SM comes: its page is unknown, or its tensor map."""
        if (region, by_tma) in sm.known:
            return 0.0
        sm.known.add((region, by_tma))
        return self._new_map if by_tma else self._new_page

    def _access(self, warp: Warp, sm: Sm, fact: Global, kind: str, line: int, place: tuple[int, int]) -> float:
        time, rates = warp.time, warp.cluster.rates
        new_sectors, comes = fact.new_sectors, 0.0
        if fact.kind == "load":
            # Warps that execute an instruction for the same time read together: what is new for one of them is there
            # for the others once it has come, and in the SM's L1 for all CTAs if they read the same.
            stays = self._in_l1[fact.region]
            read = (None if stays else warp.cluster, *place)
            if stays and read in sm.read:
                new_sectors = 0.0
            if not new_sectors:
                comes = sm.read.get(read, 0.0)
        size = 32.0 * new_sectors
        # Stores leave L1 by a port of their own, which the intervals of stores have been measured at.
        cost = max(self._costs.global_interval(kind.replace("stg", "ldg")), fact.lines)
        if fact.kind == "cp_async":
            cost *= self._costs.cp_async[1]
        start = sm.lsu if sm.lsu > time else time
        sm.lsu = start + cost
        sm.pipe_work[LSU] += cost
        if start - time > _QUEUE_CYCLES:
            self.stalled(warp, GLOBAL, start - time - _QUEUE_CYCLES, line)
            warp.time = time = start - _QUEUE_CYCLES
        if fact.kind in ("load", "cp_async"):
            # Copies keep no registers waiting, and get as much of L2 as those of TMA.
            l2 = size * (rates.l2 if fact.kind == "load" else rates.tma)
            dram = size * rates.dram * self._miss[fact.region]
            dram += self._ramp(sm, rates, size * self._miss[fact.region])
        else:
            # The ECC of L2 is that of a sector: a store of a part of it reads the rest.
            whole = fact.sectors - fact.part_sectors
            l2 = rates.l2_write * (32.0 * whole + self._part_bytes[fact.region] * fact.part_sectors)
            dram = 32.0 * fact.sectors * rates.dram_write
            sm.store = max(sm.store, time) + 32.0 * fact.sectors * self._costs.store_rate
            if fact.kind == "atomic":
                dram = 0.0
        moved = self._move(sm, time, l2, dram, size * rates.port) if l2 else 0.0
        latency = self._costs.l1
        if new_sectors:
            late = self._late[fact.region] * rates.pace
            latency = self._costs.l2 + late if fact.kind != "atomic" else self._costs.atomic
            if late and fact.kind in ("load", "cp_async"):
                sm.draws = (sm.draws + GOLDEN) % 1.0
                lines = max(1.0, fact.lines * new_sectors / fact.sectors)
                latency += rates.pace * self._is_late[fact.region] * self._costs.later(lines, sm.draws)
            if fact.kind in ("load", "cp_async"):
                own = size * self._miss[fact.region]
                moved = max(moved, time + self._is_late[fact.region] * self._queue(sm, rates, time, own))
            latency += self._first(sm, fact.region, by_tma=False)
        end = max(max(sm.lsu, moved) + latency, comes)
        if new_sectors and fact.kind == "load":
            sm.read[read] = max(end, sm.read.get(read, 0.0))
        warp.reason[:] = [GLOBAL] * 6
        if fact.kind in ("store", "atomic"):
            self.written = max(self.written, sm.lsu, sm.store, sm.l2, time)
        if fact.kind == "cp_async":
            end += self._costs.cp_async[0]
            warp.copies_open = max(warp.copies_open, end)
        if fact.kind in ("load", "cp_async"):
            sm.flight += size * (end - time)
            self._awaits(sm, end, size * self._miss[fact.region])
        return end

    def _move(self, sm: Sm, time: float, l2: float, dram: float, fastest: float) -> float:
        """Take an SM's share of L2 and of device memory for some work; returns when that is done.

        SMs that began together with the same work ask device memory at the same times: what none has asked for is lost.
        L2 gives more than the share to those that read the same (l2.shared), which catching up stands for.
        Before an SM's first request the other SMs have not asked for anything either, so that it has nothing to catch
        up on.
        """
        if not sm.l2_work:
            sm.l2 = sm.dram = time
        sm.l2_work += l2
        sm.dram_work += dram
        sm.l2, by_l2 = _served(sm.l2, time, l2, fastest, self._credit)
        sm.dram, by_dram = _served(sm.dram, time, dram, fastest, 0.0)
        return max(by_l2, by_dram)
