"""Zero columns of B: the descriptor with which tcgen05.mma.ws skips columns, and begins at a later one.

A mask is made of spans that take turns: columns that are used, and columns that are zeros. M = 64 and 32 have one for
each half or quarter of N. The ISA's table calls the spans the other way round than its examples and CUTLASS, which
agree; the examples count here.

References
----------
PTX ISA, "Zero-Column Mask Descriptor". CuTe ``arch/mma_sm100_desc.hpp``, ``MaskAndShiftB``.
"""

from __future__ import annotations

import numpy as np

from cutepy.layouts.bit_field import Field, stray_bits
from cutepy.layouts.sm100 import InstrDescriptor
from cutepy.layouts.sm100.arch import TMEM_LANES
from cutepy.sim.errors import DescriptorError, UnknownInstructionError
from cutepy.sim.machine.group import Group
from cutepy.sim.machine.lanes import Array
from cutepy.sim.ptx.model import Instruction

_STARTS, _BEGINS_WITH_ZEROS = Field(0, 8), Field(32, 1)
"""The first of four each."""
_IS_MASKED, _SKIPPED, _USED, _SHIFT = Field(39, 1), Field(40, 8), Field(48, 8), Field(56, 6)
_RESERVED = Field(36, 3).mask | Field(62, 2).mask


def used_columns(g: Group, i: Instruction, shape: InstrDescriptor, word: int) -> Array | None:
    """Return the first column of B that is read, behind those that a shift skips, and N; None if all are read.

    The other columns are zeros.
    """
    if not word:
        return None
    if stray := stray_bits(word, ~_RESERVED):
        raise DescriptorError(f"the zero-column mask {word:#018x} sets {stray}", i, g.describe())
    shift = _SHIFT.read(word)
    most = min(shape.max_shift, 16 if shape.m == 32 else 32)
    if shift > most:
        raise DescriptorError(
            f"the zero-column mask shifts B by {shift} columns: the instruction descriptor allows {most}",
            i,
            g.describe(),
        )
    count = TMEM_LANES // shape.m
    parts = [_part(g, i, word, n, shape.n // count) for n in range(count)]
    return np.concatenate([np.zeros(shift, bool), *parts])


def _part(g: Group, i: Instruction, word: int, number: int, extent: int) -> Array:
    if not _IS_MASKED.read(word):
        return np.ones(extent, bool)
    used, skipped = _USED.read(word) + 1, _SKIPPED.read(word) + 1
    begins_with_zeros, start = bool(_BEGINS_WITH_ZEROS.read(word, number)), _STARTS.read(word, number)
    first = skipped if begins_with_zeros else used
    if start >= first:
        raise UnknownInstructionError(
            i,
            refusal=f"a zero-column mask that starts at {start} of a first span of {first} columns is not simulated: "
            "the ISA has no example of it",
        )
    at = (np.arange(extent) + start + (used if begins_with_zeros else 0)) % (used + skipped)
    return np.asarray(at < used)
