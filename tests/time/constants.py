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
    """Unit of a constant, and the range of all its numbers."""

    unit: str
    low: float
    high: float


CONSTANTS = {
    "clock.idle_hz": Constant(HERTZ, 3e8, 2.1e9),
    "clock.alu_hz": Constant(HERTZ, 1e9, 2.1e9),
    "clock.memory_hz": Constant(HERTZ, 1e9, 2.1e9),
    "clock.tensor_hz": Constant(HERTZ, 8e8, 2.1e9),
    "clock.tensor_zeros_hz": Constant(HERTZ, 1e9, 2.1e9),
    "clock.tensor_ramp": Constant(HERTZ, 3e8, 2.1e9),
    "clock.globaltimer_step": Constant(NS, 1, 2000),
    "tensor.sustained_flops": Constant("FLOP/s", 4e14, 1.1e15),
    "power.tensor_w": Constant("W", 100, 1500),
    "power.limit_w": Constant("W", 200, 1500),
    "instr.latency": Constant(CYCLES, 3.5, 70),
    "instr.interval": Constant(CYCLES, 0.9, 40),
    "instr.interval_one_warp": Constant(CYCLES, 0.9, 40),
    "instr.chain_interval": Constant(CYCLES, 0.9, 6),
    "instr.dual": Constant(CYCLES, 1.5, 12),
    "icache.interval": Constant(CYCLES, 0.9, 40),
    "branch.latency": Constant(CYCLES, 0, 60),
    "smem.latency": Constant(CYCLES, 18, 90),
    "smem.interval": Constant(CYCLES, 0.9, 20),
    "smem.bandwidth": Constant(SM_RATE, 100, 132),
    "smem.conflict": Constant(CYCLES, 0.9, 70),
    "smem.wavefront": Constant(CYCLES, 0.9, 3),
    "smem.store_load": Constant(CYCLES, 20, 80),
    "smem.atomic_same": Constant(CYCLES, 1, 200),
    "dsmem.latency": Constant(CYCLES, 120, 350),
    "dsmem.bandwidth": Constant(SM_RATE, 5, 130),
    "l1.latency": Constant(CYCLES, 25, 55),
    "l1.bandwidth": Constant(SM_RATE, 60, 132),
    "l2.latency": Constant(CYCLES, 180, 400),
    "l2.latency_distribution": Constant(CYCLES, 120, 800),
    "l2.latency_by_sm": Constant(CYCLES, 150, 500),
    "l2.bandwidth": Constant(RATE, 3e12, 1.2e13),
    "l2.write_bandwidth": Constant(RATE, 1.5e12, 1.2e13),
    "l2.bandwidth_sm": Constant(SM_RATE, 20, 132),
    "l2.bandwidth_cycle": Constant(SM_RATE, 12, 70),
    "l2.curve": Constant(RATE, 5e11, 1.2e13),
    "dram.latency": Constant(CYCLES, 400, 1500),
    "dram.latency_ns": Constant(NS, 250, 1000),
    "tlb.latency": Constant(CYCLES, 150, 3000),
    "dram.bandwidth": Constant(RATE, 1.8e12, 4.9e12),
    "dram.write_bandwidth": Constant(RATE, 1.5e12, 4.9e12),
    "dram.copy_bandwidth": Constant(RATE, 1.5e12, 4.9e12),
    "dram.bandwidth_sm": Constant(SM_RATE, 10, 100),
    "dram.little": Constant(RATE, 5e9, 4.9e12),
    "l2.little": Constant(RATE, 5e9, 1.2e13),
    "dram.little_sm": Constant(SM_RATE, 0.05, 100),
    "l2.little_sm": Constant(SM_RATE, 0.05, 132),
    "global.interval": Constant(CYCLES, 0.9, 40),
    "global.sectors": Constant(CYCLES, 0.9, 80),
    "atomic.latency": Constant(CYCLES, 150, 900),
    "atomic.red_interval": Constant(CYCLES, 0.9, 200),
    "atomic.red_same": Constant("1/s", 1e9, 5e12),
    "atomic.red_distinct": Constant("1/s", 1e10, 5e12),
    "cpasync.latency": Constant(CYCLES, 200, 700),
    "cpasync.interval": Constant(CYCLES, 4, 40),
    "cpasync.bandwidth": Constant(SM_RATE, 20, 132),
    "barrier.sync": Constant(CYCLES, 5, 120),
    "barrier.named_handover": Constant(CYCLES, 5, 100),
    "mbarrier.arrive": Constant(CYCLES, 1, 80),
    "mbarrier.expect_tx": Constant(CYCLES, 1, 80),
    "mbarrier.try_wait": Constant(CYCLES, 1, 80),
    "mbarrier.handover": Constant(CYCLES, 20, 300),
    "mbarrier.handover_cluster": Constant(CYCLES, 100, 700),
    "cluster.sync": Constant(CYCLES, 60, 600),
    "fence": Constant(CYCLES, 0.5, 3000),
    "grid.barrier": Constant(CYCLES, 500, 6000),
    "flag.handover": Constant(CYCLES, 300, 3000),
    "tma.issue": Constant(CYCLES, 1, 300),
    "tma.latency": Constant(CYCLES, 300, 4000),
    "tma.latency_tensor": Constant(CYCLES, 300, 3000),
    "tma.latency_swizzle": Constant(CYCLES, 300, 2000),
    "tma.interval": Constant(CYCLES, 5, 1500),
    "tma.bandwidth_in_flight": Constant(SM_RATE, 4, 132),
    "tma.bandwidth_all": Constant(SM_RATE, 4, 70),
    "tma.multicast": Constant("cycles and bytes/cycle/SM", 4, 3000),
    "tma.store_latency": Constant(CYCLES, 150, 3000),
    "tma.store_read_latency": Constant(CYCLES, 30, 1500),
    "tma.store_bandwidth": Constant(SM_RATE, 10, 132),
    "tma.store_bandwidth_all": Constant(RATE, 1e12, 1.2e13),
    "tma.reduce_bandwidth": Constant(SM_RATE, 4, 132),
    "tma.reduce_bandwidth_all": Constant(RATE, 3e11, 1.2e13),
    "wgmma.cycles": Constant(CYCLES, 6, 300),
    "wgmma.cycles_warpgroups": Constant(CYCLES, 20, 140),
    "wgmma.latency": Constant(CYCLES, 30, 400),
    "wgmma.latency_rs": Constant(CYCLES, 30, 400),
    "wgmma.chain": Constant(CYCLES, 6, 140),
    "wgmma.serial": Constant(CYCLES, 20, 300),
    "wgmma.group4": Constant(CYCLES, 20, 200),
    "wgmma.fence": Constant(CYCLES, 0.5, 60),
    "wgmma.commit_wait": Constant(CYCLES, 0.5, 80),
    "mma.cycles": Constant(CYCLES, 7, 70),
    "mma.latency": Constant(CYCLES, 14, 70),
    "setmaxnreg": Constant(CYCLES, 1, 500),
    "launch.graph_empty": Constant(NS, 500, 5000),
    "launch.interval": Constant(NS, 500, 10000),
    "launch.interval_pdl": Constant(NS, 200, 10000),
    "launch.interval_cluster": Constant(NS, 500, 10000),
    "launch.stream": Constant(NS, 500, 20000),
    "launch.kernel": Constant(NS, 20, 10000),
    "launch.gap": Constant(NS, 200, 5000),
    "launch.gap_pdl": Constant(NS, -3000, 5000),
    "cta.rate": Constant("CTA/cycle", 0.05, 20),
    "cta.rate_hz": Constant("CTA/s", 1e8, 4e10),
    "cta.turnaround": Constant(CYCLES, 20, 3000),
    "cta.start_skew": Constant(NS, 0, 5000),
}
