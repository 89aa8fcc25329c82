"""Coordinates of accumulators, as sums of a thread's and a register's, are those of the tiled MMA's partition."""

import pytest

from cutepy.layouts import Layout
from cutepy.layouts.basis import E
from cutepy.layouts.errors import LayoutError
from cutepy.layouts.sm90 import AccumulatorCoordinates, TiledMMA, wgmma_traits
from tests.messages import refuses


@pytest.mark.parametrize(("tile", "warpgroups"), [((64, 16), 1), ((128, 24), 1), ((128, 64), 2), ((256, 32), 2)])
def test_thread_and_register_add_up_to_the_partition(tile, warpgroups):
    tiling = TiledMMA(wgmma_traits(f"SM90_64x{tile[1]}x16_F32F16F16_SS"), Layout((warpgroups, 1, 1)))
    found = AccumulatorCoordinates(tiling, tile)
    seen = set()
    for thread in range(tiling.thr_size):
        part, offset = tiling.partition_C(Layout(tile, (E(0), E(1))), thread)
        here = tuple(found.of_thread(mode)(thread) for mode in (0, 1))
        assert here == offset
        for index, (row, column) in enumerate(found.registers):
            place = (here[0] + row, here[1] + column)
            assert place == tuple(a + b for a, b in zip(offset, part(index), strict=True))
            seen.add(place)
    assert len(seen) == tile[0] * tile[1] == tiling.thr_size * len(found.registers)
    assert not found.by_lane(0), "each warp has rows of its own"
    assert found.by_lane(1), "and all columns"


def test_a_tile_that_is_not_whole_mmas_is_refused():
    tiling = TiledMMA(wgmma_traits("SM90_64x128x16_F32F16F16_SS"), Layout((2, 1, 1)))
    for tile in ((128, 64), (64, 128), (192, 128)):
        with refuses(LayoutError):
            AccumulatorCoordinates(tiling, tile)
