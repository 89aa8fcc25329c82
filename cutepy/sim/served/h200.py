"""What the simulated device says of itself: an H200."""

from __future__ import annotations

from dataclasses import dataclass

from cutepy.layouts.sm90.arch import SMEM_BYTES_PER_CTA

NAME = "NVIDIA H200"
CAPABILITY = (9, 0)
SM_COUNT = 132
TOTAL_BYTES = 150_109_880_320
L2_BYTES = 62_914_560
DRIVER_VERSION = 13000
SMEM_BYTES_PER_SM = 233_472

# CUdevice_attribute, and cudaDeviceAttr of the same number -> value.
ATTRIBUTES = {
    1: 1024,  # threads of a block
    2: 1024,
    3: 1024,
    4: 64,  # block extents
    5: 2**31 - 1,
    6: 65535,
    7: 65535,  # grid extents
    8: 49_152,  # shared memory of a block, by default
    9: 65_536,  # constant memory
    10: 32,  # warp
    12: 65_536,  # registers of a block
    13: 1_980_000,  # clock, kHz
    16: SM_COUNT,
    18: 0,  # integrated
    36: 3_201_000,  # memory clock, kHz
    37: 6144,  # bus width
    38: L2_BYTES,
    39: 2048,  # threads of an SM
    41: 1,  # unified addressing
    75: CAPABILITY[0],
    76: CAPABILITY[1],
    81: SMEM_BYTES_PER_SM,
    82: 65_536,  # registers of an SM
    95: 1,  # cooperative launch
    97: SMEM_BYTES_PER_CTA,
    106: 32,  # blocks of an SM
    111: 1024,  # shared memory that is reserved
    120: 1,  # cluster launch
}


@dataclass(frozen=True)
class Properties:
    """What `torch.cuda.get_device_properties` returns."""

    name: str = NAME
    major: int = CAPABILITY[0]
    minor: int = CAPABILITY[1]
    total_memory: int = TOTAL_BYTES
    multi_processor_count: int = SM_COUNT
    warp_size: int = 32
    max_threads_per_multi_processor: int = 2048
    max_threads_per_block: int = 1024
    regs_per_multiprocessor: int = 65_536
    shared_memory_per_block: int = 49_152
    shared_memory_per_block_optin: int = SMEM_BYTES_PER_CTA
    shared_memory_per_multiprocessor: int = SMEM_BYTES_PER_SM
    L2_cache_size: int = L2_BYTES
    clock_rate: int = 1_980_000
    memory_clock_rate: int = 3_201_000
    memory_bus_width: int = 6144
    is_integrated: int = 0
    is_multi_gpu_board: int = 0
    gcnArchName: str = NAME
    pci_bus_id: int = 0
    pci_device_id: int = 0
    pci_domain_id: int = 0


def max_active_clusters(cluster_size: int) -> int:
    """Return how many clusters are resident at once, one CTA an SM."""
    if not 0 < cluster_size <= 32:
        raise ValueError(f"a cluster must have 1 to 32 CTAs, got {cluster_size}")
    return SM_COUNT // cluster_size
