"""Choice of tiles for products with promoted accumulators."""

import json
import lzma
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from cutepy.kernels.gemm import GemmSignature
from cutepy.kernels.gemm.gpu import H100, H200
from cutepy.kernels.gemm.heuristic.choice import candidates, choose, extents_of
from cutepy.kernels.gemm.heuristic.model import Choice
from cutepy.kernels.gemm.heuristic.tiles import PROMOTED_TILES, OutputTile
from cutepy.kernels.grouped.choice import select_grouped

TIMED = Path(__file__).parent / "timed" / "promoted" / "h100.jsonl.xz"
FLOATS8 = {"a_dtype": "float8_e4m3fn", "b_dtype": "float8_e4m3fn", "out_dtype": "bfloat16"}


def signature(rows):
    return GemmSignature(**FLOATS8, scale_rows=rows)


def expected(rows, tile):
    """Give what a tile without a cluster is expected to take where tensor cores decide."""
    table = candidates("promoted")
    (us,) = table.expected_us([extents_of(signature(rows), 8192, 8192, 8192, 1, False)], H200)
    return us[table.choices.index(Choice(tile, 1, 1))]


def test_scales_of_columns_cost_more_than_those_that_columns_share():
    for tile in (tile for tile in PROMOTED_TILES if tile.split_k == 1 and tile.m * tile.n >= 128 * 96):
        of_all, of_blocks, of_columns = (expected(rows, tile) for rows in ((0, 0), (1, 128), (1, 1)))
        assert of_all == of_blocks < of_columns


def test_scales_of_columns_turn_with_the_product():
    kind = signature((1, 128))
    straight, transposed = (extents_of(each, 512, 512, 512, 1, False) for each in (kind, kind.transposed))
    assert (straight.column_scales, transposed.column_scales) == (False, True)


@pytest.mark.parametrize(
    ("extents", "tile"),
    [
        ((8192, 8192, 8192), OutputTile(192, 128)),
        ((4096, 2112, 7168), OutputTile(192, 128)),
        ((4096, 4096, 7168), OutputTile(256, 128)),
        ((128, 7168, 4096), OutputTile(64, 128, k_spans=2)),
    ],
)
def test_what_was_fastest_on_an_h100_is_chosen(extents, tile):
    transposed, config = choose(signature((1, 128)), *extents, gpu=H100)
    assert not transposed
    assert (config.tile_m, config.tile_n, config.tile_k) == (tile.m, tile.n, 128 * tile.k_spans)
    assert config.warpgroups == tile.warpgroups


def chosen_of(extents, timed):
    """Give the microseconds of what is expected to be fastest on an H100 of `PROMOTED_TILES` that were timed."""
    m, n, k = extents
    table, kind = candidates("promoted"), signature((1, 128))
    problems = extents_of(kind, m, n, k, 1, False), extents_of(kind.transposed, n, m, k, 1, True)
    expected = table.expected_us(problems, H100)
    places = {choice: place for place, choice in enumerate(table.choices)}
    return min(
        (expected[transposed, places[choice]], us) for (transposed, choice), us in timed.items() if choice in places
    )[1]


def test_what_is_chosen_is_hardly_slower_than_the_fastest_of_all_that_were_timed():
    slower = defaultdict(list)
    for extents, rows in map(json.loads, lzma.open(TIMED, "rt")):
        timed = {(transposed, Choice(OutputTile(*numbers[:5]), *numbers[5:])): us for transposed, *numbers, us in rows}
        slower[tuple(extents)].append(np.log(chosen_of(extents, timed) / min(timed.values())))
    assert len(slower) == 28
    mean = np.exp(np.mean([np.mean(runs) for runs in slower.values()]))
    assert mean < 1.0175, "PROMOTED_COSTS and timed/history.md say 1.7%"


def test_groups_have_the_same_costs():
    """Of 64 experts: what was chosen before was transposed on an H100 too, where scales of columns cost time."""
    asked = signature((1, 128)), "m", (4096, 7168, 4096), 64
    transposed, config = select_grouped(*asked, gpu=H100)
    assert (transposed, config.gemm.tile_m, config.gemm.tile_n, config.gemm.tile_k) == (False, 64, 128, 256)
    transposed, config = select_grouped(*asked)
    assert (transposed, config.gemm.tile_m, config.gemm.tile_n) == (True, 256, 64)
