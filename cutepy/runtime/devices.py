"""GPUs that are simulated, as host code sees them on a machine without one: attributes, properties, occupancy.

References
----------
All that an H200 answers, driver 13.0, November 2026. Of a B200, a B300 and an RTX 5090 what differs is published:
NVIDIA's data sheets, and the "Compute Capabilities" of the CUDA C++ Programming Guide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from cutepy.layouts.capacity import SMEM_BYTES_PER_CTA_OF_SM120
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
from cutepy.layouts.sm90.occupancy import occupancy

DRIVER_VERSION = 13000
MAX_THREADS_PER_SM = MAX_WARPS_PER_SM * WARP_THREADS
DEFAULT_SMEM_BYTES_PER_CTA = 49_152
UUID = bytes(16)
PCI_BUS_ID = "0000:00:00.0"
LIMITS = {0: 1024, 1: 8_650_752, 2: 8_388_608, 4: 2048, 5: 64, 6: 11_796_480, 7: SMEM_BYTES_PER_CTA, 8: 0}
"""Values of CUlimit, and of cudaLimit of the same number, in a new context."""


@dataclass(frozen=True)
class Device:
    """A GPU.

    Attributes
    ----------
    name : str
    arch : str
        The target that code is compiled for, such as "sm_90a".
    sm_count : int
    total_bytes, l2_bytes : int
    clock_khz, memory_clock_khz, memory_bus_bits : int
    warps_per_sm, ctas_per_sm : int
        The most that are resident on an SM.
    smem_bytes_per_sm, smem_bytes_per_cta : int
    """

    name: str
    arch: str
    sm_count: int
    total_bytes: int
    l2_bytes: int
    clock_khz: int
    memory_clock_khz: int
    memory_bus_bits: int
    warps_per_sm: int = MAX_WARPS_PER_SM
    ctas_per_sm: int = MAX_CTAS_PER_SM
    smem_bytes_per_sm: int = SMEM_BYTES_PER_SM
    smem_bytes_per_cta: int = SMEM_BYTES_PER_CTA

    @property
    def family(self) -> str:
        """Name of the architecture: "Hopper" or "Blackwell"."""
        return {9: "Hopper", 10: "Blackwell", 12: "Blackwell"}[self.capability[0]]

    @property
    def capability(self) -> tuple[int, int]:
        """Compute capability, such as (9, 0)."""
        return divmod(int(self.arch.removeprefix("sm_").rstrip("af")), 10)

    @cached_property
    def attributes(self) -> Mapping[int, int]:
        """CUdevice_attribute, and cudaDeviceAttr of the same number -> value."""
        major, minor = self.capability
        own = {13: self.clock_khz, 16: self.sm_count, 36: self.memory_clock_khz, 37: self.memory_bus_bits}
        own |= {39: self.warps_per_sm * WARP_THREADS, 81: self.smem_bytes_per_sm, 97: self.smem_bytes_per_cta}
        return _ATTRIBUTES | own | {38: self.l2_bytes, 75: major, 76: minor, 106: self.ctas_per_sm}

    @property
    def properties(self) -> Properties:
        """Result of `torch.cuda.get_device_properties`."""
        return Properties(
            self.name,
            *self.capability,
            self.total_bytes,
            self.sm_count,
            max_threads_per_multi_processor=self.warps_per_sm * WARP_THREADS,
            shared_memory_per_block_optin=self.smem_bytes_per_cta,
            shared_memory_per_multiprocessor=self.smem_bytes_per_sm,
            L2_cache_size=self.l2_bytes,
            clock_rate=self.clock_khz,
            memory_clock_rate=self.memory_clock_khz,
            memory_bus_width=self.memory_bus_bits,
            gcnArchName=self.name,
        )

    def resident_ctas(self, registers: int, threads: int, smem_bytes: int) -> int:
        """Return the CTAs of a kernel that an SM holds at a time."""
        each = smem_bytes + RESERVED_SMEM_BYTES
        of_gpu = self.ctas_per_sm, self.warps_per_sm // -(-threads // WARP_THREADS), self.smem_bytes_per_sm // each
        return min(occupancy(registers, threads, smem_bytes).ctas_per_sm, *of_gpu)

    def max_active_clusters(self, cluster_size: int) -> int:
        """Return the number of clusters resident at once, with one CTA on an SM."""
        if not 0 < cluster_size <= 32:
            raise ValueError(f"a cluster must have 1 to 32 CTAs, got {cluster_size}")
        return self.sm_count // cluster_size


# Of an H200, but for its place on the PCI bus (33, 34, 50) and what `Device.attributes` says of each GPU.
_ATTRIBUTES = {
    # threads, grids, memory, clock
    1: MAX_THREADS_PER_CTA, 2: 1024, 3: 1024, 4: 64, 5: 2**31 - 1, 6: 65535, 7: 65535, 8: DEFAULT_SMEM_BYTES_PER_CTA,
    9: 65536, 10: WARP_THREADS, 11: 2**31 - 1, 12: REGISTERS_PER_SM, 14: 512, 15: 1,
    17: 0, 18: 0, 19: 1, 20: 0,
    # texture sizes
    21: 131072, 22: 131072, 23: 65536, 24: 16384, 25: 16384, 26: 16384, 27: 32768, 28: 32768, 29: 2048, 30: 512,
    # concurrency, identification, memory
    31: 1, 32: 1, 33: 0, 34: 0, 35: 0,
    40: 3, 41: 1,
    # texture and surface sizes
    42: 32768, 43: 2048, 44: 1, 45: 32768, 46: 32768, 47: 8192, 48: 8192, 49: 32768, 50: 0, 51: 32, 52: 32768,
    53: 32768, 54: 2046, 55: 32768, 56: 131072, 57: 65536, 58: 16384, 59: 16384, 60: 16384, 61: 32768, 62: 2048,
    63: 32768, 64: 32768, 65: 2048, 66: 32768, 67: 32768, 68: 2046, 69: 268435456, 70: 131072, 71: 65000, 72: 2097120,
    73: 32768, 74: 32768,
    # compute capability, multiprocessors, memory on demand
    77: 32768, 78: 1, 79: 1, 80: 1, 82: REGISTERS_PER_SM,
    83: 1, 84: 0, 85: 0, 86: 0, 87: 2, 88: 0, 89: 1, 90: 1, 91: 1, 92: 0, 93: 0, 94: 0, 95: 1, 96: 1,
    98: 0,
    # host memory, residency, pools
    99: 1, 100: 0, 101: 0, 102: 1, 103: 1, 104: 0, 105: 0, 107: 1, 108: 39321600,
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

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    warp_size: int = WARP_THREADS
    max_threads_per_multi_processor: int = MAX_THREADS_PER_SM
    max_threads_per_block: int = MAX_THREADS_PER_CTA
    regs_per_multiprocessor: int = REGISTERS_PER_SM
    shared_memory_per_block: int = DEFAULT_SMEM_BYTES_PER_CTA
    shared_memory_per_block_optin: int = SMEM_BYTES_PER_CTA
    shared_memory_per_multiprocessor: int = SMEM_BYTES_PER_SM
    L2_cache_size: int = 0
    clock_rate: int = 0
    memory_clock_rate: int = 0
    memory_bus_width: int = 0
    is_integrated: int = 0
    is_multi_gpu_board: int = 0
    gcnArchName: str = ""
    pci_bus_id: int = 0
    pci_device_id: int = 0
    pci_domain_id: int = 0
    uuid: str = "00000000-0000-0000-0000-000000000000"


H200 = Device("NVIDIA H200", "sm_90a", SM_COUNT, 150_109_880_320, 62_914_560, 1_980_000, 3_201_000, 6016)
B200 = Device("NVIDIA B200", "sm_100a", 148, 191_503_138_816, 132_644_864, 1_965_000, 3_996_000, 8192)
B300 = Device("NVIDIA B300", "sm_103a", 148, 287_428_050_944, 132_644_864, 1_920_000, 3_996_000, 8192)
RTX_5090 = Device(
    *("NVIDIA GeForce RTX 5090", "sm_120a", 170, 34_190_917_632, 100_663_296, 2_407_000, 14_001_000, 512),
    warps_per_sm=48,
    ctas_per_sm=24,
    smem_bytes_per_sm=102_400,
    smem_bytes_per_cta=SMEM_BYTES_PER_CTA_OF_SM120,
)
DEVICES = {device.arch: device for device in (H200, B200, B300, RTX_5090)}
"""The GPUs that there are, by the target that code is compiled for."""

_current: list[Device] = []
_asked: list[str | None] = []
"""Beside them the architecture that the innermost context was asked for, or one around it."""


def device() -> Device:
    """Return the GPU that is simulated now, in all threads."""
    return _current[-1] if _current else H200


def is_chosen() -> bool:
    """Return whether a context has chosen the GPU."""
    return bool(_current)


def asked_arch() -> str | None:
    """Return the architecture that a context was asked for by name; None where all took the default."""
    return _asked[-1] if _asked else None


def checked_arch(arch: str) -> str:
    """Return an architecture that kernels are compiled for and simulated on.

    Raises
    ------
    ValueError
        If it is none of `DEVICES`.

    Examples
    --------
    >>> checked_arch("sm_100")
    Traceback (most recent call last):
    ...
    ValueError: the architecture must be one of sm_90a, sm_100a, sm_103a, sm_120a, got 'sm_100'
    """
    if arch not in DEVICES:
        raise ValueError(f"the architecture must be one of {', '.join(DEVICES)}, got {arch!r}")
    return arch


@contextmanager
def simulating(chosen: Device, asked: str | None = None) -> Iterator[Device]:
    """Simulate a GPU within the context, whose architecture was asked for by name or taken by default."""
    _current.append(chosen)
    _asked.append(asked or asked_arch())
    try:
        yield chosen
    finally:
        _current.pop()
        _asked.pop()
