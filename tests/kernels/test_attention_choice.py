"""Tiles of attention: what is chosen fits, and the layouts between its kernels hold all there is."""

import math
from dataclasses import replace

import pytest

pytest.importorskip("cutlass")

from cutepy.kernels.attention.choice import (
    SHORT,
    are_few,
    choose_backward,
    choose_forward,
    ctas_of,
    for_batches,
    has_cta_each,
)
from cutepy.kernels.attention.config import DQ_COLUMNS, BackwardConfig, ScoreSettings, epilogue_stages
from cutepy.kernels.attention.op import scored_forward
from cutepy.layouts.sm90 import arch
from tests.messages import refuses

HEADS = range(16, 257, 16)


@pytest.mark.parametrize("queries", [1, 1024, 1025, 16384])
def test_tiles_of_every_extent_fit(queries):
    """Accumulators of O and S share 240 registers of a thread with two warpgroups, and 160 with three."""
    for head in HEADS:
        for head_v in HEADS:
            config = choose_forward("float16", head, head_v, queries, left=False, right=True)
            assert config.tile_m == 64 * config.warpgroups
            assert config.warpgroups == (3 if max(head, head_v) <= 64 and queries > 1024 else 2)
            assert config.head_v // 2 + config.tile_n // 2 < (240 if config.warpgroups == 2 else 160)
            assert config.smem.size_bytes <= arch.SMEM_BYTES_PER_CTA


@pytest.mark.parametrize("keys", [128, 256, 384])
def test_tiles_are_whole_parts_of_a_masks_blocks(keys):
    for head in HEADS:
        chosen = choose_forward("bfloat16", head, head, 4096, left=False, right=False)
        config = scored_forward(chosen, ScoreSettings(blocks=(128, keys)))
        assert (128 % config.tile_m, keys % config.tile_n) == (0, 0)
        assert config.smem.size_bytes <= arch.SMEM_BYTES_PER_CTA


@pytest.mark.parametrize("head", HEADS)
def test_a_result_leaves_in_whole_turns_of_two_stages_or_more(head):
    columns, stages = epilogue_stages(head)
    assert columns < head
    assert stages >= 2
    assert head % (columns * stages) == 0


@pytest.mark.parametrize("head", [16, 48, 64, 80, 128, 144, 192, 256])
@pytest.mark.parametrize("queries", [1, 64, 65, 200])
def test_sums_of_dq_hold_every_tile_of_queries(head, queries):
    config: BackwardConfig = choose_backward("float16", head, 16, left=False, right=False)
    assert config.width % 64 == 0
    assert head <= config.width < head + 64
    assert math.prod(config.dq_part) * config.warpgroups == config.tile_q * config.width
    assert config.smem.fits
    tiles = -(-queries // config.tile_q)
    rows, columns = config.sums_shape(tiles)
    assert (rows * columns, columns) == (tiles * config.tile_q * config.width, DQ_COLUMNS)


SCORED = ScoreSettings(
    "(t0: f32[1])\n  v0 = acc()\n  v1 = head_index()\n  v2 = gather(v1, 't0')\n  v3 = add(v0, v2)\n  return score: v3"
)


@pytest.mark.parametrize("scoring", [ScoreSettings(), SCORED, replace(SCORED, derived=("t0",))])
def test_gradients_of_every_extent_fit(scoring):
    """Beside dK's and dV's accumulators, or one of them, a thread's 240 registers hold those of S and dP, or of dQ."""
    for head in HEADS:
        for head_v in HEADS:
            config = choose_backward("float16", head, head_v, left=False, right=True, scoring=scoring)
            sums = config.width // 2 if config.shares_keys else config.width
            if config.transposes_sums:
                sums = (config.width + config.width_v) * config.own_keys // 128
            assert sums + max(config.own_queries, config.dq_registers) <= 208
            assert config.smem.fits


@pytest.mark.parametrize(
    ("queries", "right", "gradients_of", "is_limited"),
    [
        (1024, True, 0, True),
        (1025, True, 0, False),
        (1024, False, 0, True),
        (4096, False, 0, True),
        (512, True, 64, True),
        (512, True, 128, False),
        (512, False, 128, True),
    ],
)
def test_long_tiles_below_a_diagonal_have_a_cta_each(queries, right, gradients_of, is_limited):
    assert (ctas_of(queries, right, 132, gradients_of) == 132) == is_limited


def test_gradients_of_few_queries_take_small_tiles():
    for queries, right, tile_q in ((1024, True, 64), (1025, True, 80), (512, False, 64), (513, False, 80)):
        is_short = are_few(queries, right=right)
        assert choose_backward("bfloat16", 128, 128, left=False, right=right, is_short=is_short).tile_q == tile_q


@pytest.mark.parametrize(
    ("head", "head_v", "tile_n"),
    [(64, 64, 128), (128, 128, 128), (192, 128, 128), (144, 144, 96), (192, 192, 96), (208, 16, 64), (256, 256, 64)],
)
def test_wide_rows_take_fewer_keys(head, head_v, tile_n):
    assert choose_forward("bfloat16", head, head_v, 512, left=False, right=False).tile_n == tile_n


@pytest.mark.parametrize(
    ("head", "queries", "left", "right", "tile"),
    [
        (64, SHORT + 1, False, False, (192, 160)),
        (64, SHORT, False, False, (128, 160)),
        (80, SHORT + 1, False, True, (128, 224)),
        (128, SHORT + 1, True, True, (128, 192)),
        (128, SHORT, True, True, (128, 160)),
        (144, SHORT + 1, False, False, (128, 160)),
        (192, SHORT + 1, False, False, (128, 160)),
        (208, SHORT + 1, False, False, (128, 128)),
    ],
)
def test_rows_of_8_bits_take_more_keys(head, queries, left, right, tile):
    for heads in ((head, head), (head, 64), (64, head)):
        config = choose_forward("float8_e4m3fn", *heads, queries, left=left, right=right)
        assert (config.tile_m, config.tile_n) == tile


@pytest.mark.parametrize("queries", [1, SHORT, SHORT + 1, 16384])
@pytest.mark.parametrize("right", [False, True])
def test_ends_of_tiles_fit_whatever_the_rows_are(queries, right):
    for head in HEADS:
        for head_v in {head, 64, 128, 256}:
            plain = choose_forward("bfloat16", head, head_v, queries, left=False, right=right)
            config = for_batches(plain, queries)
            assert config.smem.fits
            _, stages = config.out_stages
            subtiles = -(-head_v // config.out_stages[0])
            assert stages == subtiles or subtiles % stages == 0
            assert config.q_stages == 2 or not config.begins_early
            # The last tile of a CTA has no next one, whose first product would be issued.
            assert not (config.begins_early and has_cta_each(queries, is_uneven=right))


def test_ends_of_tiles_with_lengths_are_refused():
    from cutepy.kernels.attention.op import forward_variant

    config = for_batches(choose_forward("bfloat16", 64, 64, 512, left=False, right=False), 512)
    with refuses(ValueError):
        forward_variant(config, (True, True, False, False))
