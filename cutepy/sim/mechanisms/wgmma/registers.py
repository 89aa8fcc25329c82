"""Accumulators and fragments of A: as registers of threads, and as the matrices that MMAs compute with.

Which thread holds what is said by the thread-value layouts of `wgmma_traits`. Elements are row by row in matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from cutepy.layouts import sm90
from cutepy.sim.arithmetic import floats
from cutepy.sim.arithmetic.minifloat import to_numbers
from cutepy.sim.arithmetic.sparsity import places
from cutepy.sim.machine.group import Group
from cutepy.sim.machine.lanes import WARP, WARPGROUP, Array
from cutepy.sim.machine.layout_tables import by_value_and_thread
from cutepy.sim.translate.wgmma_shapes import M, Shape


@cache
def _traits(shape: Shape) -> sm90.WgmmaTraits:
    """Return the traits of the dense MMA with these fragments: of the kept elements of a sparse A, of bits as bytes."""
    bits = shape.a_tile.bits
    a, b = ("u8", "u8") if shape.a == "b1" else (shape.a, shape.b)
    types = (shape.d + a + b).upper()
    source = "RS" if shape.from_registers else "SS"
    suffix = "" if bits == 16 else "_TN"
    return sm90.wgmma_traits(f"SM90_64x{shape.n}x{shape.a_tile.k}_{types}_{source}{suffix}")


@cache
def _accumulator_index(shape: Shape) -> Array:
    """Return (value, thread) -> position in a row-major (64, N) matrix."""
    colex = by_value_and_thread(_traits(shape).c_layout)
    position: Array = colex % M * shape.n + colex // M
    return position


@cache
def _operand_index(shape: Shape) -> Array:
    """Return (value, thread) -> position in a row-major (64, K) matrix, of an A in registers."""
    colex = by_value_and_thread(_traits(shape).a_layout)
    position: Array = colex % M * shape.a_tile.k + colex // M
    return position


def read_accumulators(g: Group, shape: Shape, registers: Sequence[int]) -> Array:
    """Make the matrix of accumulators that are in registers: (CTA, warpgroup, 64, N)."""
    size = (g.ctas.count, g.threads.count)
    stacked = np.empty((len(registers), *size), np.uint32)
    for n, register in enumerate(registers):
        stacked[n] = g.registers[register].view(np.uint32)
    if shape.d == "f32":
        values = stacked.view(np.float32)
    elif shape.d == "s32":
        values = stacked.view(np.int32).astype(np.int64)
    else:
        pairs = np.stack([stacked.astype(np.uint16), (stacked >> np.uint32(16)).astype(np.uint16)], axis=1)
        values = pairs.reshape(-1, *size).view(np.float16).astype(np.float32)
    groups = g.threads.count // WARPGROUP
    by_group = values.reshape(len(values), g.ctas.count, groups, WARPGROUP).transpose(1, 2, 0, 3)
    matrix = np.empty((g.ctas.count, groups, M * shape.n), values.dtype)
    matrix[:, :, _accumulator_index(shape)] = by_group
    return matrix.reshape(g.ctas.count, groups, M, shape.n)


def write_accumulators(g: Group, shape: Shape, matrix: Array, registers: Sequence[int], kinds: Sequence[str]) -> None:
    """Write a matrix of accumulators to registers, of these kinds."""
    ctas, groups = matrix.shape[:2]
    flat = matrix.reshape(ctas, groups, -1)[:, :, _accumulator_index(shape)]
    values = np.ascontiguousarray(flat.transpose(2, 0, 1, 3)).reshape(-1, ctas, groups * WARPGROUP)
    if shape.d != "s32":
        values = floats.canonical(values)
    if shape.d == "f16":
        halves = values.astype(np.float16).view(np.uint16)
        values = halves[::2] | halves[1::2].astype(np.uint32) << np.uint32(16)
    elif shape.d == "s32":
        values = values.astype(np.int32).view(np.uint32)
    for register, value in zip(registers, values, strict=True):
        g.registers[register] = value if value.dtype.str[1:] == kinds[register] else value.view(kinds[register])


def fragments(g: Group, shape: Shape, registers: tuple[Array, ...]) -> Array:
    """Make the matrix of A, or of its kept elements, from registers: (CTA, warpgroup, 64, K)."""
    size = (g.ctas.count, g.threads.count)
    words = np.stack([np.broadcast_to(r, size) for r in registers], axis=-1)
    tile = shape.a_tile
    elements = np.ascontiguousarray(words).view(f"u{tile.bits // 8}")
    groups = g.threads.count // WARPGROUP
    by_group = elements.reshape(g.ctas.count, groups, WARPGROUP, -1).transpose(0, 1, 3, 2)
    matrix = np.empty((g.ctas.count, groups, M * tile.k), elements.dtype)
    matrix[:, :, _operand_index(shape)] = by_group
    return numbers(matrix.reshape(g.ctas.count, groups, M, tile.k), shape.a)


def numbers(elements: Array, kind: str) -> Array:
    """Return the values of operands' elements; of bytes of single bits, the bits along the last axis."""
    if kind == "b1":
        return np.unpackbits(elements, axis=-1, bitorder="little").astype(np.float32)
    return to_numbers(elements, kind)


def kept_places(g: Group, shape: Shape, metadata: Array) -> Array:
    """Return where in their rows the elements are that a sparse A keeps: (CTA, warpgroup, 64, K / 2)."""
    assert shape.selector is not None
    words = np.ascontiguousarray(np.broadcast_to(metadata, (g.ctas.count, g.threads.count)))
    by_warp = words.reshape(g.ctas.count, g.threads.count // WARPGROUP, WARPGROUP // WARP, WARP)
    found = places(by_warp, shape.k, shape.a, shape.selector)
    return found.reshape(*by_warp.shape[:2], M, shape.a_k)
