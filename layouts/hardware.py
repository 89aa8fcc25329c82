"""Constants that Hopper and Blackwell share: threads, banks, core matrices, and the swizzles of shared memory.

References
----------
PTX ISA, "Shared Memory Matrix Layout" and "Swizzling Modes" of wgmma, "Canonical Layouts" of tcgen05; CuTe
``arch/mma_sm90_desc.hpp``, ``arch/mma_sm100_desc.hpp``.
"""

from __future__ import annotations

from typing import Final, Literal

from .composed import Swizzle

WARP_THREADS: Final = 32
WARPGROUP_THREADS: Final = 128

SMEM_BANKS: Final = 32
SMEM_BANK_BYTES: Final = 4

UNIT_BYTES: Final = 16
"""A core matrix row, the unit of descriptor offsets and of most swizzles: one uint128_t."""

UNIT_BITS: Final = 128

CORE_MATRIX_ROWS: Final = 8
"""Rows of a core matrix, 16 bytes each."""

Major = Literal["MN", "K"]
"""Contiguous mode of an operand tile: M or N, or K."""

MAJORS: Final[tuple[Major, ...]] = ("MN", "K")

SwizzleMode = Literal["INTER", "SW32", "SW64", "SW128"]
"""CuTe's names of the swizzles of 16-byte units: none (core matrices interleaved), or spans of 32, 64 and 128 bytes."""

AnySwizzleMode = Literal["INTER", "SW32", "SW64", "SW128", "SW128_32B"]
"""All swizzles: SW128_32B, of Blackwell, exchanges units of 32 bytes within 128."""

SWIZZLES: Final[dict[AnySwizzleMode, tuple[int, int, int]]] = {
    "INTER": (0, 4, 3), "SW32": (1, 4, 3), "SW64": (2, 4, 3), "SW128": (3, 4, 3), "SW128_32B": (2, 5, 2),
}  # fmt: skip
"""``(B, M, S)`` of ``Sw<B,M,S>``, each swizzle as a function on byte addresses."""


def byte_swizzle(mode: str) -> Swizzle:
    """Return a mode's swizzle as a function on byte addresses; modes are named in any case.

    Raises
    ------
    ValueError
        If there is no such mode. The functions below raise it too.

    Examples
    --------
    >>> print(byte_swizzle("SW128"), byte_swizzle("sw128_32b"))
    Sw<3,4,3> Sw<2,5,2>
    """
    return Swizzle(*_parts(mode))


def span_bytes(mode: str) -> int:
    """Return the span of a swizzle mode in bytes, within which it exchanges units: 16, 32, 64 or 128.

    Examples
    --------
    >>> span_bytes("SW64"), span_bytes("SW128_32B")
    (64, 128)
    """
    bits, base, _ = _parts(mode)
    return 1 << bits + base


def pattern_rows(mode: str) -> int:
    """Return the spans after which a mode's pattern repeats: 8, or 4 of SW128_32B.

    Examples
    --------
    >>> [pattern_rows(mode) for mode in SWIZZLES]
    [8, 8, 8, 8, 4]
    """
    return 1 << _parts(mode)[2]


def pattern_bytes(mode: str) -> int:
    """Return the period of a mode's pattern in bytes, which is also the alignment of its tiles.

    Examples
    --------
    >>> [pattern_bytes(mode) for mode in SWIZZLES]
    [128, 256, 512, 1024, 512]
    """
    return 1 << sum(_parts(mode))


def _parts(mode: str) -> tuple[int, int, int]:
    for known, parts in SWIZZLES.items():
        if known == mode.upper():
            return parts
    raise ValueError(f"swizzle must be one of {', '.join(SWIZZLES)}, got {mode!r}")
