"""Constants that are measured: the unit of each, and the range outside of which it is doubted.

Ranges are wide: a number beyond them says that a benchmark is broken, rather than that the GPU is unusual.

References
----------
Luo et al., "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture", arXiv:2402.13499: latencies of shared
memory (29 cycles), L1 (41), L2 (263) and global memory (479) of an H100 PCIe; 128 cycles of wgmma m64n256k16, half as
many at N 128; 180 cycles to another SM's shared memory. Luo et al., "Dissecting the NVIDIA Hopper Architecture
through Microbenchmarking and Multiple Level Analysis", arXiv:2501.12084: far and near L2, TMA latencies of 170 cycles
above a load's, throughput of DSM. NVIDIA, "H200 Tensor Core GPU" data sheet: 4.8 TB/s, 989 TFLOP/s of dense bf16.
"""

from __future__ import annotations

from dataclasses import dataclass

CYCLES, HERTZ, NS, RATE, SM_RATE = "cycles", "Hz", "ns", "B/s", "bytes/cycle/SM"


@dataclass(frozen=True)
class Constant:
    """Benchmark and unit of a constant, and the range of all its numbers."""

    benchmark: str
    unit: str
    low: float
    high: float


_ROWS: dict[str, dict[str, tuple[str, float, float]]] = {
    "instructions.classes": {
        "instr.latency": (CYCLES, 3.5, 70),
        "instr.interval": (CYCLES, 0.9, 40),
        "instr.interval_one_warp": (CYCLES, 0.9, 40),
    },
    "instructions.warps": {
        "instr.chain_interval": (CYCLES, 0.9, 6),
    },
    "instructions.dual": {
        "instr.dual": (CYCLES, 1, 12),
    },
    "instructions.chains": {
        "instr.chains": (CYCLES, 0.9, 6),
    },
    "instructions.jumps": {
        "branch.jump": (CYCLES, -20, 2000),
    },
    "instructions.straight": {
        "icache.interval": (CYCLES, 0.9, 40),
    },
    "instructions.branch": {
        "branch.latency": (CYCLES, 0, 60),
    },
    "shared_memory.latency": {
        "smem.latency": (CYCLES, 18, 90),
    },
    "shared_memory.interval": {
        "smem.interval": (CYCLES, 0.9, 20),
        "smem.bandwidth": (SM_RATE, 100, 132),
    },
    "shared_memory.conflicts": {
        "smem.conflict": (CYCLES, 0.9, 70),
        "smem.wavefront": (CYCLES, 0.9, 3),
    },
    "shared_memory.others": {
        "smem.store_load": (CYCLES, 20, 80),
        "smem.atomic_same": (CYCLES, 1, 200),
    },
    "shared_memory.distributed": {
        "dsmem.latency": (CYCLES, 120, 350),
        "dsmem.bandwidth": (SM_RATE, 5, 130),
    },
    "barriers.threads": {
        "barrier.sync": (CYCLES, 5, 120),
    },
    "barriers.named": {
        "barrier.named_handover": (CYCLES, 5, 100),
    },
    "barriers.mbarriers": {
        "mbarrier.arrive": (CYCLES, 1, 80),
        "mbarrier.expect_tx": (CYCLES, 1, 80),
        "mbarrier.try_wait": (CYCLES, 1, 80),
        "mbarrier.handover": (CYCLES, 20, 300),
    },
    "barriers.clusters": {
        "mbarrier.handover_cluster": (CYCLES, 100, 700),
        "cluster.sync": (CYCLES, 60, 600),
    },
    "barriers.fences": {
        "fence": (CYCLES, 0.5, 3000),
    },
    "barriers.grid": {
        "grid.barrier": (CYCLES, 500, 6000),
        "flag.handover": (CYCLES, 300, 3000),
    },
    "global_memory.latency": {
        "l1.latency": (CYCLES, 25, 55),
        "l2.latency": (CYCLES, 180, 400),
    },
    "global_memory.distribution": {
        "l2.latency_distribution": (CYCLES, 120, 800),
        "l2.latency_by_sm": (CYCLES, 150, 500),
    },
    "global_memory.dram": {
        "dram.latency": (CYCLES, 400, 1500),
        "dram.latency_ns": (NS, 250, 1000),
    },
    "global_memory.tlb": {
        "tlb.latency": (CYCLES, 150, 3000),
    },
    "global_memory.tlb_far": {
        "tlb.latency_far": (CYCLES, 150, 3000),
    },
    "global_memory.bandwidth": {
        "l2.bandwidth": (RATE, 3e12, 1.2e13),
        "l2.write_bandwidth": (RATE, 1.5e12, 1.2e13),
        "dram.bandwidth": (RATE, 1.8e12, 4.9e12),
        "dram.write_bandwidth": (RATE, 1.5e12, 4.9e12),
        "dram.copy_bandwidth": (RATE, 1.5e12, 4.9e12),
        "l2.bandwidth_cycle": (SM_RATE, 12, 70),
    },
    "global_memory.both_ways": {
        "l2.copy_bandwidth": (RATE, 1.5e12, 1.5e13),
    },
    "global_memory.curve": {
        "l2.curve": (RATE, 5e11, 1.2e13),
    },
    "global_memory.together": {
        "dram.together": (CYCLES, 300, 6000),
    },
    "global_memory.parts": {
        "l2.part_writes": (RATE, 1e10, 4e12),
    },
    "global_memory.beside": {
        "global.beside": (CYCLES, 0.9, 200),
    },
    "global_memory.accesses": {
        "global.interval": (CYCLES, 0.9, 40),
        "l1.bandwidth": (SM_RATE, 60, 132),
        "global.sectors": (CYCLES, 0.9, 80),
    },
    "global_memory.atomics": {
        "atomic.latency": (CYCLES, 150, 900),
        "atomic.red_interval": (CYCLES, 0.9, 200),
        "atomic.red_same": ("1/s", 1e9, 5e12),
        "atomic.red_distinct": ("1/s", 1e10, 5e12),
    },
    "global_memory.copies": {
        "cpasync.latency": (CYCLES, 200, 700),
        "cpasync.interval": (CYCLES, 4, 40),
        "cpasync.bandwidth": (SM_RATE, 20, 132),
    },
    "copies.latency": {
        "tma.latency": (CYCLES, 300, 4000),
        "tma.latency_tensor": (CYCLES, 300, 3000),
        "tma.latency_swizzle": (CYCLES, 300, 2000),
    },
    "copies.flight": {
        "tma.interval": (CYCLES, 5, 1500),
        "tma.bandwidth_in_flight": (SM_RATE, 4, 132),
        "tma.bandwidth_all": (SM_RATE, 4, 70),
    },
    "copies.little": {
        "l2.little": (RATE, 5e9, 1.2e13),
        "l2.little_sm": (SM_RATE, 0.05, 132),
        "dram.little": (RATE, 5e9, 4.9e12),
        "dram.little_sm": (SM_RATE, 0.05, 132),
        "l2.bandwidth_sm": (SM_RATE, 20, 132),
        "dram.bandwidth_sm": (SM_RATE, 10, 132),
    },
    "copies.shared": {
        "l2.shared": (RATE, 1e12, 2.5e13),
        "l2.groups": (RATE, 1e12, 2.5e13),
    },
    "copies.pitches": {
        "tma.pitch": (RATE, 5e11, 1.4e13),
    },
    "copies.outside": {
        "tma.outside": (CYCLES, 1, 5000),
    },
    "copies.issue": {
        "tma.issue": (CYCLES, 1, 300),
    },
    "copies.multicast": {
        "tma.multicast": ("cycles and bytes/cycle/SM", 4, 4000),
        "tma.multicast_tensor": ("cycles and bytes/cycle/SM", 4, 4000),
    },
    "copies.stores": {
        "tma.store_latency": (CYCLES, 50, 3000),
        "tma.store_read_latency": (CYCLES, 30, 1500),
        "tma.store_bandwidth": (SM_RATE, 10, 132),
        "tma.store_bandwidth_all": (RATE, 1e12, 1.2e13),
        "tma.reduce_bandwidth": (SM_RATE, 4, 132),
        "tma.reduce_bandwidth_all": (RATE, 3e11, 1.2e13),
    },
    "copies.short": {
        "tma.short": (CYCLES, 5, 5000),
    },
    "copies.rows": {
        "tma.store_rows": (RATE, 1e11, 1.2e13),
    },
    "tensor_cores.rates": {
        "wgmma.cycles": (CYCLES, 6, 300),
    },
    "tensor_cores.warpgroups": {
        "wgmma.cycles_warpgroups": (CYCLES, 20, 140),
    },
    "tensor_cores.latency": {
        "wgmma.latency": (CYCLES, 30, 400),
        "wgmma.latency_rs": (CYCLES, 30, 400),
        "wgmma.chain": (CYCLES, 6, 140),
        "wgmma.serial": (CYCLES, 20, 300),
        "wgmma.group4": (CYCLES, 20, 200),
        "wgmma.fence": (CYCLES, 0.5, 60),
        "wgmma.commit_wait": (CYCLES, 0.5, 80),
    },
    "tensor_cores.issue": {
        "wgmma.issue": (CYCLES, 1, 5000),
    },
    "tensor_cores.company": {
        "wgmma.company": (CYCLES, 500, 5000),
    },
    "tensor_cores.mma": {
        "mma.cycles": (CYCLES, 4, 70),
        "mma.latency": (CYCLES, 8, 70),
    },
    "tensor_cores.registers": {
        "setmaxnreg": (CYCLES, 1, 500),
    },
    "launches.intervals": {
        "launch.graph_empty": (NS, 500, 5000),
        "launch.interval": (NS, 500, 10000),
        "launch.interval_pdl": (NS, 200, 10000),
        "launch.interval_cluster": (NS, 500, 10000),
        "launch.stream": (NS, 500, 20000),
    },
    "launches.parameters": {
        "launch.parameters": (NS, 200, 10_000),
    },
    "launches.neighbours": {
        "launch.neighbours": (NS, 1000, 20000),
    },
    "launches.gaps": {
        "launch.kernel": (NS, 20, 10000),
        "cta.start_skew": (NS, 0, 5000),
    },
    "launches.ctas": {
        "cta.rate": ("CTA/cycle", 0.05, 20),
        "cta.rate_hz": ("CTA/s", 1e8, 4e10),
        "cta.turnaround": (CYCLES, 20, 3000),
    },
    "launches.rounds": {
        "cta.round": (CYCLES, 0, 20_000),
    },
    "starts.code": {
        "start.code": (CYCLES, 0, 20_000),
    },
    "starts.accesses": {
        "start.accesses": (CYCLES, 2, 5000),
    },
    "starts.overheads": {
        "launch.overhead": (NS, 0, 5000),
        "launch.gap": (NS, 200, 5000),
        "launch.gap_pdl": (NS, 100, 5000),
    },
    "starts.cold": {
        "launch.cold": (NS, 0, 5000),
    },
    "starts.clustered": {
        "launch.clusters": (NS, 0, 5000),
    },
    "starts.counted": {
        "launch.counted": (NS, -1000, 5000),
    },
    "starts.clusters": {
        "cluster.most": ("clusters", 1, 200),
    },
    "starts.reads": {
        "launch.reads": (NS, 500, 100_000),
    },
    "starts.copies": {
        "launch.copies": (NS, 500, 100_000),
    },
    "clocks.clocks": {
        "clock.idle_hz": (HERTZ, 3e8, 2.1e9),
        "clock.alu_hz": (HERTZ, 1e9, 2.1e9),
        "clock.memory_hz": (HERTZ, 1e9, 2.1e9),
        "clock.globaltimer_step": (NS, 1, 2000),
    },
    "clocks.sustained": {
        "clock.tensor_hz": (HERTZ, 8e8, 2.1e9),
        "clock.tensor_zeros_hz": (HERTZ, 1e9, 2.1e9),
        "clock.tensor_ramp": (HERTZ, 3e8, 2.1e9),
        "power.tensor_w": ("W", 100, 1500),
        "power.limit_w": ("W", 200, 1500),
        "tensor.sustained_flops": ("FLOP/s", 4e14, 1.1e15),
    },
}
CONSTANTS = {key: Constant(benchmark, *row) for benchmark, rows in _ROWS.items() for key, row in rows.items()}
