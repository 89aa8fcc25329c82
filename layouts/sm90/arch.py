"""Constants of Hopper (compute capability 9.0a).

References
----------
PTX ISA: "Asynchronous Warpgroup Level Matrix Instructions", "Matrix Descriptor Format", "Tensor Copies";
CUDA C++ Programming Guide, table of compute capabilities; CuTe ``arch/mma_sm90_desc.hpp``, ``arch/copy_sm90_desc.hpp``.
"""

from __future__ import annotations

from typing import Final

from ..capacity import SMEM_BYTES_PER_CTA as SMEM_BYTES_PER_CTA
from ..hardware import (
    CORE_MATRIX_ROWS as CORE_MATRIX_ROWS,
    MAJORS as MAJORS,
    SMEM_BANK_BYTES as SMEM_BANK_BYTES,
    SMEM_BANKS as SMEM_BANKS,
    SWIZZLES,
    UNIT_BITS as UNIT_BITS,
    UNIT_BYTES as UNIT_BYTES,
    WARP_THREADS as WARP_THREADS,
    WARPGROUP_THREADS as WARPGROUP_THREADS,
    AnySwizzleMode as AnySwizzleMode,
    Major as Major,
    SwizzleMode as SwizzleMode,
    pattern_bytes as pattern_bytes,
    span_bytes as span_bytes,
)

SWIZZLE_MODES: Final[tuple[SwizzleMode, ...]] = ("INTER", "SW32", "SW64", "SW128")

SWIZZLE_BITS: Final[dict[SwizzleMode, int]] = {mode: SWIZZLES[mode][0] for mode in SWIZZLE_MODES}
"""B of ``Sw<B,4,3>``, the swizzle as a function on byte addresses."""

SWIZZLE_BASE_BYTES: Final = 4
"""M of ``Sw<B,4,3>``: units of 16 bytes stay whole."""

SWIZZLE_SHIFT: Final = 3
"""S of ``Sw<B,4,3>``: the 128-byte row index permutes the units."""

GMMA_LAYOUT_TYPE: Final[dict[SwizzleMode, int]] = {"INTER": 0, "SW128": 1, "SW64": 2, "SW32": 3}
"""Bits 62..63 of a matrix descriptor."""

TMA_SWIZZLE: Final[dict[AnySwizzleMode, tuple[int, int]]] = {
    "INTER": (0, 0), "SW32": (1, 0), "SW64": (2, 0), "SW128": (3, 0), "SW128_32B": (3, 1),
}  # fmt: skip
"""Swizzle mode and atomicity of the same patterns in a tensor map, by PTX's codes; in the order of CUtensorMapSwizzle.

SW128_32B is for Blackwell's tensor maps.
"""

TMA_UNSETTLED: Final = {(3, 2): "SWIZZLE_128B_ATOM_32B_FLIP_8B", (3, 3): "SWIZZLE_128B_ATOM_64B"}
"""Swizzles whose rows no public document settles, by the same codes; the next ones of CUtensorMapSwizzle."""

DTYPE_BITS: Final[dict[str, int]] = {
    "u8": 8, "s8": 8, "e4m3": 8, "e5m2": 8, "u16": 16, "f16": 16, "bf16": 16, "u32": 32, "s32": 32, "f32": 32,
    "f32.ftz": 32, "tf32": 32, "tf32.ftz": 32, "u64": 64, "s64": 64, "f64": 64,
}  # fmt: skip
"""Width of the element types of wgmma and TMA, by PTX's names."""

TMA_CODES: Final[dict[str, int]] = {
    "u8": 0, "u16": 1, "u32": 2, "s32": 3, "u64": 4, "s64": 5, "f16": 6, "f32": 7, "f32.ftz": 8, "f64": 9, "bf16": 10,
    "tf32": 11, "tf32.ftz": 12,
}  # fmt: skip
"""PTX's code of each TMA element type, as in tensormap.replace."""

TMA_ALIASES: Final = {"e4m3": "u8", "e5m2": "u8", "s8": "u8"}
"""Types that TMA moves as others: it has no 8-bit floats, and no signed bytes."""

WGMMA_M: Final = 64

SMEM_BYTES_PER_SM: Final = 228 * 1024
REGISTERS_PER_SM: Final = 64 * 1024
MAX_REGISTERS_PER_THREAD: Final = 255
MAX_THREADS_PER_CTA: Final = 1024
MAX_WARPS_PER_SM: Final = 64
MAX_CTAS_PER_SM: Final = 32

SM_COUNT: Final = 132
"""SMs of an H200, and of an H100 SXM."""

RESERVED_SMEM_BYTES: Final = 1024
"""Shared memory of each CTA that the system reserves."""


def swizzle_bits(mode: str) -> int:
    """Return B of ``Sw<B,4,3>`` of a swizzle mode, named in any case.

    Examples
    --------
    >>> swizzle_bits("SW128"), swizzle_bits("inter")
    (3, 0)
    """
    name = mode.upper()
    for known, bits in SWIZZLE_BITS.items():
        if known == name:
            return bits
    raise ValueError(f"swizzle must be one of {', '.join(SWIZZLE_MODES)}, got {mode!r}")
