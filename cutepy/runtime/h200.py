"""Device attributes of an H200, for host code on a machine without a GPU."""

from __future__ import annotations

from dataclasses import dataclass

from cutepy.layouts.sm90.arch import (
    MAX_CTAS_PER_SM,
    MAX_THREADS_PER_CTA,
    MAX_WARPS_PER_SM,
    REGISTERS_PER_SM,
    RESERVED_SMEM_BYTES,
    SM_COUNT,
    SMEM_BYTES_PER_CTA,
    SMEM_BYTES_PER_SM,
    WARP_THREADS,
)

NAME = "NVIDIA H200"
CAPABILITY = (9, 0)
TOTAL_BYTES = 150_109_880_320
L2_BYTES = 62_914_560
DRIVER_VERSION = 13000
MAX_THREADS_PER_SM = MAX_WARPS_PER_SM * WARP_THREADS
DEFAULT_SMEM_BYTES_PER_CTA = 49_152
CLOCK_KHZ = 1_980_000
MEMORY_CLOCK_KHZ = 3_201_000
MEMORY_BUS_BITS = 6144

# CUdevice_attribute, and cudaDeviceAttr of the same number -> value.
ATTRIBUTES = {
    1: MAX_THREADS_PER_CTA,
    2: 1024,
    3: 1024,
    4: 64,  # block extents
    5: 2**31 - 1,
    6: 65535,
    7: 65535,  # grid extents
    8: DEFAULT_SMEM_BYTES_PER_CTA,
    9: 65_536,  # constant memory
    10: WARP_THREADS,
    12: REGISTERS_PER_SM,  # of a block
    13: CLOCK_KHZ,
    16: SM_COUNT,
    18: 0,  # integrated
    36: MEMORY_CLOCK_KHZ,
    37: MEMORY_BUS_BITS,
    38: L2_BYTES,
    39: MAX_THREADS_PER_SM,
    41: 1,  # unified addressing
    75: CAPABILITY[0],
    76: CAPABILITY[1],
    81: SMEM_BYTES_PER_SM,
    82: REGISTERS_PER_SM,
    95: 1,  # cooperative launch
    97: SMEM_BYTES_PER_CTA,
    106: MAX_CTAS_PER_SM,
    111: RESERVED_SMEM_BYTES,
    120: 1,  # cluster launch
}


@dataclass(frozen=True)
class Properties:
    """Result of `torch.cuda.get_device_properties`."""

    name: str = NAME
    major: int = CAPABILITY[0]
    minor: int = CAPABILITY[1]
    total_memory: int = TOTAL_BYTES
    multi_processor_count: int = SM_COUNT
    warp_size: int = WARP_THREADS
    max_threads_per_multi_processor: int = MAX_THREADS_PER_SM
    max_threads_per_block: int = MAX_THREADS_PER_CTA
    regs_per_multiprocessor: int = REGISTERS_PER_SM
    shared_memory_per_block: int = DEFAULT_SMEM_BYTES_PER_CTA
    shared_memory_per_block_optin: int = SMEM_BYTES_PER_CTA
    shared_memory_per_multiprocessor: int = SMEM_BYTES_PER_SM
    L2_cache_size: int = L2_BYTES
    clock_rate: int = CLOCK_KHZ
    memory_clock_rate: int = MEMORY_CLOCK_KHZ
    memory_bus_width: int = MEMORY_BUS_BITS
    is_integrated: int = 0
    is_multi_gpu_board: int = 0
    gcnArchName: str = NAME
    pci_bus_id: int = 0
    pci_device_id: int = 0
    pci_domain_id: int = 0
    uuid: str = "00000000-0000-0000-0000-000000000000"


def max_active_clusters(cluster_size: int) -> int:
    """Return the number of clusters resident at once, with one CTA on an SM."""
    if not 0 < cluster_size <= 32:
        raise ValueError(f"a cluster must have 1 to 32 CTAs, got {cluster_size}")
    return SM_COUNT // cluster_size
