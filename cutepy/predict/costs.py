"""Costs of operations in cycles, from a GPU's constants: MMAs, accesses, barriers, fences."""

from __future__ import annotations

from functools import cached_property
from math import log1p
from statistics import median
from typing import NamedTuple

from cutepy.predict.code import ALU, XU
from cutepy.predict.gpu import Gpu, interpolated
from cutepy.predict.memory import L2_BYTES
from cutepy.predict.trace import Mma, WarpTrace

INSTRUCTION_BYTES = 16
_OWN = {
    "mbarrier.handover": 41.0, "tma.issue": 52.0, "barrier.sync": 8.4, "wgmma.serial": 23.1, "tma.latency_tensor": 60.6,
    "tma.store_read_latency": 27.0,
}  # fmt: skip
"""Cycles that the model gives the instructions of a turn of these benchmarks, were the operation itself free.

A kernel's own instructions take as long, and count apart.
"""
_BOXES = {
    512: 64, 2048: 256, 4096: 512, 8192: 1024, 16384: 2048, 32768: 2048, 49152: 2048, 65536: 4096, 98304: 4096,
    131072: 4096, 196608: 8192,
}  # fmt: skip
"""Bytes of each box, by the bytes in flight to an SM, of the benchmark of Little's curve."""
_SWIZZLED_BYTES = 8192
"""Bytes of a box of the benchmark of swizzles."""
_COPIED_LINES = 4
"""Lines of a warp's copy of 16 bytes a lane, which the benchmark makes."""
_BOX_BYTES, _BOX_ROWS = 8192, 64
"""Box of the benchmark of rows outside."""


_STRAIGHT_BYTES = 2048
"""Code of the benchmark of starts: all of it comes within one wait."""


JUMPED_BYTES = 128
"""Least code that is jumped over, and not executed under a predicate."""
_BRANCH_STALL = 5
"""Cycles until the instruction after a branch, as its control field has them, which count apart."""


class Code(NamedTuple):
    """Instruction cache.

    Attributes
    ----------
    size_bytes : int
    lacking, first : float
        Cycles of an instruction that it lacks, and those of the first code of a launch.
    taken : float
        Cycles of a jump over code beyond those of a branch that is not taken.
    ahead_bytes : int
        Code that is fetched ahead of the first: passing over more of it takes longer.
    jumps : tuple of (float, float)
        By bytes of code that is skipped, the cycles that the first jump over it takes longer than the next ones.
    """

    size_bytes: int
    lacking: float
    first: float
    taken: float
    ahead_bytes: int
    jumps: tuple[tuple[float, float], ...]

    def jump(self, skipped_bytes: float) -> float:
        """Return the cycles of the first jump over so much code."""
        return self.first if skipped_bytes >= self.ahead_bytes else interpolated(self.jumps, skipped_bytes)


class Costs:
    """Costs on a GPU, each looked up once.

    Attributes
    ----------
    wavefront, l1, l2, atomic, try_wait : float
        Cycles of a wavefront of shared memory, latencies of loads and atomics, a test of an mbarrier.
    mma_queue : int
        MMAs of a warp that are issued before they begin, at most.
    mma_lead : float
        Cycles from an MMA's issue until idle tensor cores begin it, which its latency counts with its end.
    handover : (float, float)
        From an arrival to the warp that waits: at an mbarrier of the CTA's own, and of another's.
    tma_issue, tma_latency : float
        Cycles of the issuing warp, and until a box of 1 KiB in L2 has come.
    store_latency, store_end, store_rate : float
        Until a bulk store has read its bytes, from then until its end, and the cycles of a byte.
    cp_async : (float, float)
        Latency above a load's, and cycles of a line that a warp copies.
    """

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self.wavefront = gpu.value("smem.wavefront")
        # mbarrier.handover_cluster has the fences of .release.cluster and .acquire.cluster in it, which have own steps.
        handover = gpu.value("mbarrier.handover") - _OWN["mbarrier.handover"]
        self.handover = handover, handover + gpu.value("dsmem.latency")
        self.mma_queue, self.mma_lead = self._queue_of_mmas()
        self.l1, self.l2 = gpu.value("l1.latency"), gpu.value("l2.latency")
        self.tma_issue = gpu.at("tma.issue", "tensor") - _OWN["tma.issue"]
        self.tma_latency = gpu.at("tma.latency_tensor", "l2", 1024) - _OWN["tma.latency_tensor"]
        self.store_latency = gpu.at("tma.store_read_latency", 512) - _OWN["tma.store_read_latency"]
        self.store_end = gpu.at("tma.store_latency", 512) - gpu.at("tma.store_read_latency", 512)
        self.store_rate = 1.0 / gpu.value("tma.store_bandwidth")
        self.atomic = gpu.at("atomic.latency", "atom_add_u32")
        self.cp_async = gpu.value("cpasync.latency") - self.l2, gpu.value("cpasync.interval") / _COPIED_LINES
        self.try_wait = gpu.value("mbarrier.try_wait")
        self._mmas: dict[tuple[str, int, str], tuple[float, float]] = {}
        self._intervals: dict[int, float] = {}
        self._kinds: dict[str, tuple[float, float]] = {}
        self._late_tma: dict[float, float] = {}
        self._syncs: dict[int, float] = {}

    @cached_property
    def code(self) -> Code:
        """Instruction cache of an SM."""
        gpu = self._gpu
        intervals: dict[int, float] = {int(size): cycles for size, cycles in gpu.constants["icache.interval"].items()}
        least = min(intervals.values())
        cached = max(size for size, cycles in intervals.items() if cycles <= 1.1 * least)
        lacking, first = gpu.at("icache.interval", 2 * cached) - least, gpu.at("start.code", "again", _STRAIGHT_BYTES)
        taken = max(0.0, gpu.at("branch.jump", "second", JUMPED_BYTES) - _BRANCH_STALL)
        passed = {int(size): cycles for size, cycles in gpu.constants["start.code"]["again"].items()}
        ahead = max(size for size in passed if all(passed[n] <= 1.1 * first for n in passed if n <= size))
        later = gpu.constants["branch.jump"]
        jumps = ((float(n), max(0.0, later["first"][n] - later["second"][n])) for n in later["first"])
        return Code(cached, lacking, first, taken, ahead, tuple(sorted(jumps)))

    def first_access(self, name: str) -> float:
        """Return how much longer the first access of a launch takes than the second: "global" or "tensor_map"."""
        return max(0.0, self._gpu.at("start.accesses", name, "first") - self._gpu.at("start.accesses", name, "second"))

    def outside(self, size_bytes: float, outside_bytes: float) -> float:
        """Return the cycles of a box of which some rows are outside of the tensor, while all SMs load such boxes.

        Rows outside come from few places of L2: 64 rows of 128 bytes of which one is inside take four times as long as
        64 rows inside, though one SM alone loads them as fast.
        """
        inside = 1.0 - outside_bytes / size_bytes
        return size_bytes / _BOX_BYTES * self._gpu.at("tma.outside", "apart", _BOX_ROWS * inside)

    def part_of_sector(self, footprint_bytes: float) -> float:
        """Return the bytes of whole sectors that are stored in the time in which a part of one is.

        It was measured by words of matrices of 4 and of 64 MiB, which L2 holds and does not hold.
        """
        pitch = 4096 if footprint_bytes < L2_BYTES else 16384
        return 4.0 * self._gpu.value("l2.write_bandwidth") / self._gpu.at("l2.part_writes", pitch)

    @cached_property
    def tma_row(self) -> float:
        """Cycles of TMA for a row of a box: of 8 KiB, rows of 32 bytes come that much later than half as many of 64."""
        latency = self._gpu.constants["tma.latency_swizzle"]
        return max(0.0, float(latency["32"] - latency["64"]) / (_SWIZZLED_BYTES // 64))

    @cached_property
    def part_of_line(self) -> float:
        """L2's time for a line of which a row needs a part, in that of a whole line: rows that begin amid one."""
        across = self._gpu.constants["tma.pitch"]["l2"]["across"]
        return max(0.0, float(across["0"] / across["16"]) - 1.0)

    @cached_property
    def short_runs(self) -> float:
        """Device memory's time for rows of 128 bytes that lie apart, in that of bytes that follow each other."""
        table = self._gpu.constants["tma.pitch"]["dram"]
        return max(1.0, float(table["across"]["0"] / table["along"]["0"]))

    @cached_property
    def _queues(self) -> list[tuple[float, float]]:
        """By bytes of device memory in flight to each SM, the cycles that a load waits for others.

        Copies that all SMs make take so much longer than one copy of that size alone. The time by the bandwidth is in
        it: a load that waits for the SM's share of that waits no less, and not for both.
        """
        gpu = self._gpu
        found = [(0.0, 0.0)]
        for size, box in _BOXES.items():
            took = size * gpu.sms * gpu.value("clock.idle_hz") / gpu.at("dram.little", size)
            found.append((float(size), max(0.0, took - gpu.at("tma.latency", "dram", box))))
        return found

    @cached_property
    def _spread(self) -> float:
        """Scale of the exponential distribution of device memory's latency.

        The slowest of so many loads that one SM makes at once comes later than one alone by that scale times
        1/2 + 1/3 + ..., besides what loads of L2 take longer.
        """
        found = []
        few, l2 = (self._gpu.at("dram.together", where, 1) for where in ("one", "l2"))
        for count in (2, 4, 8, 16, 32):
            later = self._gpu.at("dram.together", "one", count) - few - self._gpu.at("dram.together", "l2", count) + l2
            found.append(later / sum(1 / n for n in range(2, count + 1)))
        return max(0.0, median(found))

    def later(self, lines: float, quantile: float) -> float:
        """Return how much later than one line on average so many lines of device memory are all there.

        The quantile is that of the slowest line's latency, below 1.
        """
        return self._spread * (-log1p(-(quantile ** (1.0 / max(lines, 1.0)))) - 1.0)

    def queue(self, in_flight_bytes: float) -> float:
        """Return the cycles that a load of device memory waits while so many bytes are in flight to each SM."""
        return interpolated(self._queues, in_flight_bytes)

    def sync(self, warps: int) -> float:
        """Return the cycles of a named barrier of so many warps."""
        if warps not in self._syncs:
            self._syncs[warps] = max(0.0, self._gpu.at("barrier.sync", 32 * warps) - _OWN["barrier.sync"])
        return self._syncs[warps]

    def cluster_sync(self, ctas: int, relaxed: bool) -> float:
        """Return the cycles of a cluster's barrier, which orders memory unless it is relaxed."""
        return self._gpu.value("dsmem.latency") if relaxed else self._gpu.at("cluster.sync", ctas)

    def mma(self, fact: Mma) -> tuple[float, float]:
        """Return the cycles of tensor cores that a wgmma takes, and those until its result is there afterwards."""
        key = fact.type, fact.n, fact.operands
        if key not in self._mmas:
            gpu = self._gpu
            kind = {"e5m2": "e4m3", "u8": "s8"}.get(fact.type, fact.type)
            cycles = gpu.at("wgmma.cycles", kind, fact.n, fact.operands)
            base = "bf16" if kind not in gpu.constants["wgmma.latency"] else kind
            later = gpu.at("wgmma.latency", base, fact.n) - gpu.at("wgmma.latency", "bf16", fact.n)
            drain = gpu.at("wgmma.serial", fact.n) + later - gpu.at("wgmma.cycles", base, fact.n, "ss")
            self._mmas[key] = cycles, max(drain - _OWN["wgmma.serial"], 0.0)
        return self._mmas[key]

    def _queue_of_mmas(self) -> tuple[int, float]:
        """Return how many MMAs wait at most, and the cycles until the first one begins.

        The last of a long group is issued once so many others have run, each for its cycles, as the difference between
        two N tells; those that neither have run nor run wait with it.
        """
        gpu, count, (small, large) = self._gpu, 16, (64, 256)
        cycles = {n: gpu.at("wgmma.cycles", "bf16", n, "ss") for n in (small, large)}
        last = {n: gpu.at("wgmma.issue", n, count, "first") for n in (small, large)}
        run = (last[large] - last[small]) / (cycles[large] - cycles[small])
        lead = last[small] - run * cycles[small] - gpu.at("wgmma.issue", small, 1, "first")
        return count - 1 - round(run), max(0.0, lead)

    @cached_property
    def pipe_units(self) -> list[float]:
        """Cycles of each pipe that an instruction takes."""
        found = [self._gpu.at("instr.interval", name) for name in ("ffma", "iadd3", "ex2", "dfma")]
        return [*found, self._gpu.at("mma.cycles", "bf16_m16n8k16")]

    @cached_property
    def beside_mmas(self) -> dict[int, float]:
        """By pipe of a sub-partition how much longer instructions take while its tensor core works.

        Instructions of two warpgroups, which alone take so long, end so late beside MMAs of a third, which end earlier.
        """
        found = {}
        for pipe, name in ((ALU, "fmnmx"), (XU, "ex2")):
            alone, end, mmas = (
                self._gpu.at("wgmma.company", *path)
                for path in (("0", name, "others"), ("ss128", name, "others"), ("ss128", name, "mma"))
            )
            found[pipe] = max(1.0, mmas / (alone - max(0.0, end - mmas)))
        return found

    def mma_interval(self, n: int) -> float:
        """Return the cycles from a warp's MMA of so many columns to its next one, while the queue has room."""
        if n not in self._intervals:
            few, many = (self._gpu.at("wgmma.issue", n, count, "first") for count in (1, 4))
            self._intervals[n] = (many - few) / 3
        return self._intervals[n]

    def tensor_cycles(self, warp: WarpTrace) -> float:
        """Return the cycles of tensor cores that a warp's wgmmas take."""
        return sum(self.mma(fact)[0] for facts in warp.facts.values() for fact in facts if isinstance(fact, Mma))

    def shared(self, kind: str) -> tuple[float, float]:
        """Return the interval and the latency of a class of accesses to shared memory."""
        if kind not in self._kinds:
            gpu = self._gpu
            table, latencies = gpu.constants["smem.interval"], gpu.constants["smem.latency"]
            latency = latencies.get(kind) or latencies.get(kind.replace("_x2", "_x4")) or latencies["lds32"]
            self._kinds[kind] = float(table.get(kind) or self.wavefront), float(latency)
        return self._kinds[kind]

    def global_interval(self, kind: str) -> float:
        """Return the interval of a class of accesses to global memory."""
        return self._gpu.constants["global.interval"].get(kind) or 1.0

    def late_tma(self, box_bytes: float) -> float:
        """Return how much later a box comes from device memory than from L2."""
        if box_bytes not in self._late_tma:
            far, near = (self._gpu.at("tma.latency", where, box_bytes) for where in ("dram", "l2"))
            self._late_tma[box_bytes] = far - near
        return self._late_tma[box_bytes]

    def fence(self, opcode: str) -> float:
        """Return the cycles of a fence, or of setmaxnreg."""
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
