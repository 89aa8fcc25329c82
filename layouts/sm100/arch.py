"""Constants of Blackwell's data-centre GPUs (compute capabilities 10.0a and 10.3a).

References
----------
PTX ISA: "Tensor Memory", "Matrix Descriptor", "Instruction Descriptor"; CuTe ``arch/mma_sm100_desc.hpp``,
``arch/tmem_allocator_sm100.hpp``.
"""

from __future__ import annotations

from typing import Final, Literal

from ..hardware import AnySwizzleMode

TMEM_LANES: Final = 128
TMEM_COLUMNS: Final = 512
"""Columns of 32 bits in each lane of a CTA's tensor memory."""

TMEM_COLUMN_BITS: Final = 32
TMEM_QUARTER_LANES: Final = 32
"""Lanes that a warp reaches by tcgen05.ld and tcgen05.st: those of its number modulo 4."""

TMEM_LANE_SHIFT: Final = 16
"""The lane stands in bits 16 and on of an address of tensor memory, the column below."""

MIN_ALLOCATION_COLUMNS: Final = 32

CtaGroup = Literal[1, 2]
"""CTAs that run an MMA together: one, or the pair of a cluster whose ranks differ in bit 0 only."""

CTA_GROUPS: Final[tuple[CtaGroup, ...]] = (1, 2)

SMEM_LAYOUT_TYPE: Final[dict[AnySwizzleMode, int]] = {"INTER": 0, "SW128_32B": 1, "SW128": 2, "SW64": 4, "SW32": 6}
"""Bits 61..63 of a shared-memory descriptor of tcgen05."""

SMEM_DESCRIPTOR_VERSION: Final = 1
"""Bits 46..48 of a shared-memory descriptor of tcgen05."""
