"""Operands of MMAs in shared memory, by the warps that have the sums of their rows."""

import pytest

from cutepy.sim.sanitize.memory.operands import _warps_of_rows
from cutepy.sim.translate.wgmma_shapes import M, SharedTile


@pytest.mark.parametrize("major", ["K", "MN"])
@pytest.mark.parametrize(("bits", "k"), [(16, 16), (32, 8), (8, 32)])
@pytest.mark.parametrize("granule", [16, 4])
def test_granules_of_a_belong_to_the_warp_that_has_their_rows(major, bits, k, granule):
    """Of each unit of 16 bytes, in the order of the tile, the row of its first element says which warp that is."""
    tile, per_unit = SharedTile(major, M, k, bits), 128 // bits
    if major == "K":
        rows = [row for row in range(M) for _ in range(k // per_unit)]
    else:
        rows = [unit * per_unit for _ in range(k) for unit in range(M // per_unit)]
    expected = [row // 16 for row in rows for _ in range(16 // granule)]
    assert _warps_of_rows(tile, len(expected)).tolist() == expected
