"""Staged tiles without a swizzle: each element has a place of its own, the contiguous ones beside each other."""

import pytest

from cutepy.layouts.sm90.staged import DenseTile


@pytest.mark.parametrize("contiguous_mode", [0, 1])
def test_contiguous_elements_of_a_dense_tile_are_adjacent(contiguous_mode):
    rows, columns, stages = 8, 24, 2
    layout = DenseTile((rows, columns), stages=stages, bits=16, contiguous_mode=contiguous_mode).layout.layoutA
    for stage in range(stages):
        for i in range(rows):
            for j in range(columns):
                within = i * columns + j if contiguous_mode else j * rows + i
                assert layout(i, j, stage) == stage * rows * columns + within
