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
UUID = bytes(16)
PCI_BUS_ID = "0000:00:00.0"
LIMITS = {0: 1024, 1: 8_650_752, 2: 8_388_608, 4: 2048, 5: 64, 6: 11_796_480, 7: SMEM_BYTES_PER_CTA, 8: 0}
"""Values of CUlimit, and of cudaLimit of the same number, in a new context."""
CLOCK_KHZ = 1_980_000
MEMORY_CLOCK_KHZ = 3_201_000
MEMORY_BUS_BITS = 6016

# CUdevice_attribute, and cudaDeviceAttr of the same number -> value; all that an H200 answers (driver 13.0, November
# 2026), but for its place on the PCI bus (33, 34, 50).
ATTRIBUTES = {
    # threads, grids, memory, clock
    1: MAX_THREADS_PER_CTA, 2: 1024, 3: 1024, 4: 64, 5: 2**31 - 1, 6: 65535, 7: 65535, 8: DEFAULT_SMEM_BYTES_PER_CTA,
    9: 65536, 10: WARP_THREADS, 11: 2**31 - 1, 12: REGISTERS_PER_SM, 13: CLOCK_KHZ, 14: 512, 15: 1, 16: SM_COUNT,
    17: 0, 18: 0, 19: 1, 20: 0,
    # texture sizes
    21: 131072, 22: 131072, 23: 65536, 24: 16384, 25: 16384, 26: 16384, 27: 32768, 28: 32768, 29: 2048, 30: 512,
    # concurrency, identification, memory
    31: 1, 32: 1, 33: 0, 34: 0, 35: 0, 36: MEMORY_CLOCK_KHZ, 37: MEMORY_BUS_BITS, 38: L2_BYTES,
    39: MAX_THREADS_PER_SM, 40: 3, 41: 1,
    # texture and surface sizes
    42: 32768, 43: 2048, 44: 1, 45: 32768, 46: 32768, 47: 8192, 48: 8192, 49: 32768, 50: 0, 51: 32, 52: 32768,
    53: 32768, 54: 2046, 55: 32768, 56: 131072, 57: 65536, 58: 16384, 59: 16384, 60: 16384, 61: 32768, 62: 2048,
    63: 32768, 64: 32768, 65: 2048, 66: 32768, 67: 32768, 68: 2046, 69: 268435456, 70: 131072, 71: 65000, 72: 2097120,
    73: 32768, 74: 32768,
    # compute capability, multiprocessors, memory on demand
    75: CAPABILITY[0], 76: CAPABILITY[1], 77: 32768, 78: 1, 79: 1, 80: 1, 81: SMEM_BYTES_PER_SM, 82: REGISTERS_PER_SM,
    83: 1, 84: 0, 85: 0, 86: 0, 87: 2, 88: 0, 89: 1, 90: 1, 91: 1, 92: 0, 93: 0, 94: 0, 95: 1, 96: 1,
    97: SMEM_BYTES_PER_CTA, 98: 0,
    # host memory, residency, pools
    99: 1, 100: 0, 101: 0, 102: 1, 103: 1, 104: 0, 105: 0, 106: MAX_CTAS_PER_SM, 107: 1, 108: 39321600,
    109: 134217728, 110: 1, 111: RESERVED_SMEM_BYTES, 112: 1, 113: 1, 114: 1, 115: 1, 116: 1, 117: 1, 118: 100,
    119: 9,
    # clusters, NUMA, multicast, decompression
    120: 1, 121: 1, 122: 1, 123: 1, 124: 1, 125: 1, 126: 4, 127: 1, 128: 1, 129: 1, 130: 0, 131: -1, 132: 0, 133: 0,
    134: 0, 135: 0, 136: 0, 137: 0, 138: 0, 139: 590680286, 140: 415174878, 141: 1, 142: 1, 143: 0, 144: 1, 145: 1,
    146: 0, 147: 0,
}  # fmt: skip


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
