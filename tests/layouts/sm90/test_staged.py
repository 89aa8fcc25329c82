"""Staged tiles without a swizzle: each element has a place of its own, the contiguous ones beside each other."""

import pytest

from cutepy.layouts.sm90.staged import DenseTile, StagedTile, staged_subtile


@pytest.mark.parametrize("contiguous_mode", [0, 1])
def test_contiguous_elements_of_a_dense_tile_are_adjacent(contiguous_mode):
    rows, columns, stages = 8, 24, 2
    layout = DenseTile((rows, columns), stages=stages, bits=16, contiguous_mode=contiguous_mode).layout.layoutA
    for stage in range(stages):
        for i in range(rows):
            for j in range(columns):
                within = i * columns + j if contiguous_mode else j * rows + i
                assert layout(i, j, stage) == stage * rows * columns + within


@pytest.mark.parametrize("contiguous_mode", [0, 1])
@pytest.mark.parametrize(("bits", "unit"), [(8, 16), (16, 8), (32, 4)])
def test_subtiles_are_swizzled_by_all_their_units_if_these_are_even(contiguous_mode, bits, unit):
    """Rows of an odd number of 16-byte units lie in different banks as they are; one unit has no swizzle."""
    modes = {1: "INTER", 2: "SW32", 4: "SW64", 6: "SW32", 8: "SW128", 16: "SW128"}
    for units in range(1, 17):
        tile = (64, units * unit) if contiguous_mode else (units * unit, 64)
        found = staged_subtile(tile, 2, bits, contiguous_mode)
        assert type(found) is (DenseTile if units in (3, 5, 7, 9, 11, 13, 15) else StagedTile)
        assert units not in modes or found.swizzle == modes[units]
