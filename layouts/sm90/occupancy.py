"""Occupancy of a streaming multiprocessor of Hopper or Blackwell (sm_90, sm_100, sm_103): CTAs that fit, and the limit.

References
----------
CUDA C++ Programming Guide, "Compute Capabilities"; the rules of CUDA's occupancy calculator (cuda_occupancy.h).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from .arch import (
    MAX_CTAS_PER_SM,
    MAX_REGISTERS_PER_THREAD,
    MAX_THREADS_PER_CTA,
    MAX_WARPS_PER_SM,
    REGISTERS_PER_SM,
    RESERVED_SMEM_BYTES,
    SMEM_BYTES_PER_CTA,
    SMEM_BYTES_PER_SM,
    WARP_THREADS,
)

# Each quarter of an SM has a quarter of the registers, and runs its own warps.
_PARTITIONS = 4
_REGISTER_UNIT = 256
_SMEM_UNIT_BYTES = 128


class Occupancy(NamedTuple):
    """CTAs and warps of a kernel that are resident on one SM.

    Attributes
    ----------
    ctas_per_sm : int
        CTAs; 0 if the kernel can't be launched so.
    warps_per_sm : int
        Their warps, of 64.
    limits : mapping of str to int
        CTAs that "registers", "shared memory", "warps" and "CTAs" alone would allow.
    """

    ctas_per_sm: int
    warps_per_sm: int
    limits: Mapping[str, int]

    @property
    def limited_by(self) -> tuple[str, ...]:
        """Name the limiting resource."""
        return tuple(name for name, limit in self.limits.items() if limit == self.ctas_per_sm)


def occupancy(registers: int, threads: int, smem_bytes: int) -> Occupancy:
    """Compute the occupancy of a kernel: (registers a thread, threads a CTA, shared memory a CTA) -> CTAs an SM.

    Parameters
    ----------
    registers : int
        32-bit registers a thread, as the kernel is launched.
    threads : int
        Threads of a CTA.
    smem_bytes : int
        Shared memory of a CTA, static and dynamic.

    Examples
    --------
    >>> occupancy(registers=168, threads=384, smem_bytes=229440)
    Occupancy(ctas_per_sm=1, warps_per_sm=12, limits={'registers': 1, 'shared memory': 1, 'warps': 5, 'CTAs': 32})
    >>> occupancy(registers=32, threads=128, smem_bytes=0).limited_by
    ('registers', 'warps')
    """
    if threads < 1:
        raise ValueError(f"threads must be 1 or more, got {threads}")
    warps = -(-threads // WARP_THREADS)
    limits = {
        "registers": _by_registers(registers, warps),
        "shared memory": _by_smem(smem_bytes),
        "warps": MAX_WARPS_PER_SM // warps if threads <= MAX_THREADS_PER_CTA else 0,
        "CTAs": MAX_CTAS_PER_SM,
    }
    ctas = min(limits.values())
    return Occupancy(ctas, ctas * warps, limits)


def _by_registers(registers: int, warps: int) -> int:
    per_warp = _rounded_up(registers * WARP_THREADS, _REGISTER_UNIT)
    if registers > MAX_REGISTERS_PER_THREAD:
        return 0
    if per_warp == 0:
        return MAX_CTAS_PER_SM
    return REGISTERS_PER_SM // _PARTITIONS // per_warp * _PARTITIONS // warps


def _by_smem(smem_bytes: int) -> int:
    if smem_bytes > SMEM_BYTES_PER_CTA:
        return 0
    return SMEM_BYTES_PER_SM // _rounded_up(smem_bytes + RESERVED_SMEM_BYTES, _SMEM_UNIT_BYTES)


def _rounded_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
