"""Fragments of warps' matrices: every lane holds its share, and what is placed is found again."""

import numpy as np
import pytest

from cutepy.sim.arithmetic.fragments import (
    BITS,
    WARP,
    Fragment,
    accumulator_index,
    elements,
    operand_index,
    packed,
    placed,
)

SHAPES = {
    "f16": [(16, 16, 16), (32, 8, 16), (8, 32, 16)],
    "bf16": [(16, 16, 16), (32, 8, 16), (8, 32, 16)],
    "u8": [(16, 16, 16), (32, 8, 16), (8, 32, 16)],
    "tf32": [(16, 16, 8)],
    "s4": [(8, 8, 32)],
    "b1": [(8, 8, 128)],
}
FRAGMENTS = [
    Fragment(operand, *shape, kind if operand in "ab" else "f32", "row")
    for kind, shapes in SHAPES.items()
    for shape in shapes
    for operand in "abcd"
]


@pytest.mark.parametrize("fragment", FRAGMENTS, ids=str)
def test_a_warp_holds_every_element_as_often(fragment):
    """Of A and B in f16 eight registers whatever the shape, so that small matrices are held several times."""
    rows, columns = fragment.extents
    index = fragment.index
    assert len(index) == WARP
    times = np.bincount(index.reshape(-1), minlength=rows * columns)
    assert len(times) == rows * columns
    expected = WARP * 16 // (rows * columns) if fragment.kind == "f16" else 1
    assert set(times.tolist()) == {expected}


@pytest.mark.parametrize("fragment", FRAGMENTS, ids=str)
def test_what_is_placed_is_found_again(fragment):
    matrix = np.arange(np.prod(fragment.extents))
    assert np.array_equal(placed(matrix[fragment.index], fragment.index), matrix)


@pytest.mark.parametrize("bits", sorted({*BITS.values()}))
def test_elements_are_the_bits_of_words_from_the_lowest_on(bits):
    words = np.random.default_rng(3).integers(0, 1 << 32, (2, WARP, 4), dtype=np.uint32)
    codes = elements(words, bits)
    whole = [sum(int(word) << 32 * n for n, word in enumerate(lane)) for lane in words.reshape(-1, 4)]
    expected = [[value >> bits * n & (1 << bits) - 1 for n in range(128 // bits)] for value in whole]
    assert codes.reshape(-1, 128 // bits).tolist() == expected
    if bits >= 8:
        assert np.array_equal(packed(codes), words)


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize("rows", [8, 16])
def test_four_lanes_hold_a_row(rows, bits):
    """Of operands lane 4 r + q has words q of row r, and of accumulators two columns each."""
    pack = 32 // bits
    for lane, row in enumerate(operand_index(rows, 8 * pack, bits)):
        assert row[0] == lane // 4 * 8 * pack + lane % 4 * pack
    for lane, row in enumerate(accumulator_index(rows, 8)):
        assert row[:2].tolist() == [lane // 4 * 8 + lane % 4 * 2 + n for n in range(2)]
