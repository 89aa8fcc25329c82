"""Scales of 8-bit results of rows: the largest finite magnitudes, and where scales of blocks go (traced)."""

import cutlass.cute as cute
from cutlass import Float32

from cutepy.device import reduce
from cutepy.device.held_rows import HeldRows
from cutepy.device.primitives import select


def largest_finite(rows: HeldRows, value):
    """Return the largest finite magnitude of a vector; 0 if there is none."""
    found = rows.empty_part()
    for place in range(rows.tiling.elems):
        magnitude = cute.arch.fmax(value[place], -value[place])
        found[place] = select(magnitude < Float32.inf, magnitude, Float32(0.0))
    return rows.fold(found, reduce.maximum)


@cute.jit
def store_block_scale(rows: HeldRows, row, index, scales: cute.Tensor, scale):
    """Store the scale of the block that a vector is of, by the first of its lanes."""
    lanes = rows.tiling.block_lanes
    block = rows.vector(index) // lanes
    exists = (row < cute.size(scales, mode=[0])) & (block < cute.size(scales, mode=[1]))
    if exists and rows.vector(index) % lanes == 0:
        scales[row, block] = scale


@cute.jit
def store_of_row(rows: HeldRows, row, numbers: cute.Tensor, number):
    """Store a number of a row to (rows, 1), by the first of its threads."""
    if row < cute.size(numbers, mode=[0]) and rows.thread == 0 and rows.rank == 0:
        numbers[row, 0] = number
