"""Scales of 8-bit results of rows: the largest magnitudes, and where scales of blocks go (traced)."""

import cutlass.cute as cute
from cutlass import Float32, Uint32

from cutepy.device import reduce
from cutepy.device.held_rows import HeldRows
from cutepy.device.primitives import select

MAGNITUDE = 2**31 - 1
"""All bits of an fp32 number but its sign."""


def largest_finite(rows: HeldRows, value):
    """Return the largest finite magnitude of a vector; 0 if there is none."""
    found = rows.empty_part()
    for place in range(rows.tiling.elems):
        magnitude = cute.arch.fmax(value[place], -value[place])
        found[place] = select(magnitude < Float32.inf, magnitude, Float32(0.0))
    return rows.fold(found, reduce.maximum)


def largest_magnitude(rows: HeldRows, value, index, columns):
    """Return the largest magnitude of vector `index`, of elements within the columns; NaN if one of these is."""
    found = rows.empty_part()
    for place in range(rows.tiling.elems):
        found[place] = reduce.maximum(value[place], -value[place])
    rows.fill_part_beyond(found, index, columns, 0.0)
    return rows.fold(found, reduce.maximum)


@cute.jit
def join_largest(rows: HeldRows, largest, amax: cute.Tensor):
    """Join each thread's largest magnitude to that of a tensor (1,), by one atomic of a CTA; all its threads call.

    Bits of magnitudes are ordered as the magnitudes, and those of NaN come last: any order of CTAs gives the same bits.
    The first turn of `HeldRows.reduce` is used.
    """
    thread = rows.group * rows.tiling.threads + rows.thread
    slots = rows.slots["of_warps"]
    largest = reduce.block_reduce(largest, slots, thread, rows.tiling.cta, rows.barrier, reduce.maximum, 0)
    if thread == 0:
        bits = largest.bitcast(Uint32) & Uint32(MAGNITUDE)
        cute.arch.atomic_max(cute.recast_ptr(amax.iterator, dtype=Uint32), bits, sem="relaxed", scope="gpu")


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
