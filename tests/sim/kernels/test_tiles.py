"""Lanes of one converged warp that name different masks, as tiles of 8 or 16 of cooperative groups do.

PTX ISA, "vote.sync", "match.sync", "redux.sync", "shfl.sync", "elect.sync": a thread waits for those of its mask, which
execute the instruction with the same mask; each tile is of its own.
"""

import numpy as np
import pytest

from cutepy.sim import SimulationError
from tests.messages import refuses

from .launching import launch

_MASK = """mov.u32 %r1, %tid.x; mov.u32 %r2, %laneid; mad.wide.u32 %rd2, %r1, 4, %rd0; mad.wide.u32 %rd3, %r1, 4, %rd1;
ld.global.u32 %r0, [%rd2]; and.b32 %r3, %r2, {first}; mov.u32 %r4, {ones}; shl.b32 %r4, %r4, %r3;"""
"""%r0 is the value of the lane, %r4 the mask of its tile."""


def by_tile(tile, body, threads=96, seed=0, head=_MASK):
    """Run a body that leaves its result in %r5, and return values and results by (tile, lane of the tile)."""
    rng = np.random.default_rng([seed, tile])
    values = rng.integers(0, 4, threads).astype(np.uint32)
    out = np.full(threads, 12345, np.uint32)
    text = head.format(first=32 - tile, ones=(1 << tile) - 1)
    launch(f"{text} {body} st.global.u32 [%rd3], %r5;", [values, out], block=(threads, 1, 1))
    return values.reshape(-1, tile).astype(int), out.reshape(-1, tile)


def in_warp(tile, number, lanes):
    """Return the mask, in its warp, of some lanes of a tile."""
    return sum(1 << (number * tile % 32 + lane) for lane in lanes)


TILES = (1, 2, 8, 16, 32)


@pytest.mark.parametrize("tile", TILES)
def test_votes(tile):
    vote = "setp.eq.u32 %p0, %r0, 1; vote.sync.{} {}, %p0, %r4;".format
    for mode, rule in {"all": all, "any": any, "uni": lambda x: all(x) or not any(x)}.items():
        values, got = by_tile(tile, vote(f"{mode}.pred", "%p1") + "selp.u32 %r5, 1, 0, %p1;")
        np.testing.assert_array_equal(got, [[rule(row == 1)] * tile for row in values], err_msg=mode)
    values, got = by_tile(tile, vote("ballot.b32", "%r5"))
    expected = [[in_warp(tile, n, np.flatnonzero(row == 1))] * tile for n, row in enumerate(values)]
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("tile", TILES)
def test_matches(tile):
    values, got = by_tile(tile, "match.any.sync.b32 %r5, %r0, %r4;")
    expected = [[in_warp(tile, n, np.flatnonzero(row == x)) for x in row] for n, row in enumerate(values)]
    np.testing.assert_array_equal(got, expected)
    body = "setp.lt.u32 %p2, %r2, 16; selp.u32 %r0, 5, %r0, %p2; match.all.sync.b32 %r6|%p1, %r0, %r4;"
    values, got = by_tile(tile, f"{body} selp.u32 %r5, %r6, 77, %p1;")
    values.reshape(-1, 32)[:, :16] = 5
    expected = [
        [in_warp(tile, n, range(tile)) if len(set(row)) == 1 else 77] * tile for n, row in enumerate(values.tolist())
    ]
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("operation", ["add.u32", "min.s32", "max.u32", "and.b32", "or.b32", "xor.b32"])
def test_reductions(tile, operation):
    function = {"add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or}
    values, got = by_tile(tile, f"redux.sync.{operation} %r5, %r0, %r4;")
    reduced = function.get(operation[:3].rstrip("."), np.bitwise_xor).reduce(values, axis=1)
    np.testing.assert_array_equal(got, np.repeat(reduced[:, None], tile, axis=1))


@pytest.mark.parametrize("tile", TILES)
def test_elections(tile):
    _, got = by_tile(tile, "elect.sync %r6|%p1, %r4; selp.u32 %r5, %r6, 99, %p1;")
    leaders = np.arange(96).reshape(-1, tile) % 32
    np.testing.assert_array_equal(got, np.where(leaders == leaders[:, :1], leaders, 99))


def test_tiles_of_ctas_and_warps_that_differ():
    """Masks that differ by CTA too, and a warp of which a part has ended."""
    threads, ctas = 80, 3
    out = np.zeros((ctas, threads), np.uint32)
    body = """mov.u32 %r1, %tid.x; mov.u32 %r2, %laneid; mov.u32 %r3, %ctaid.x; mad.lo.u32 %r6, %r3, 80, %r1;
        mad.wide.u32 %rd2, %r6, 4, %rd0; setp.lt.u32 %p0, %r1, 4; @%p0 ret;
        mov.u32 %r7, 8; shl.b32 %r7, %r7, %r3; neg.s32 %r8, %r7; and.b32 %r8, %r8, 31; and.b32 %r3, %r2, %r8;
        mov.u32 %r4, 1; shl.b32 %r4, %r4, %r7; sub.u32 %r4, %r4, 1; setp.eq.u32 %p1, %r7, 32;
        selp.b32 %r4, -1, %r4, %p1; shl.b32 %r4, %r4, %r3; redux.sync.add.u32 %r5, %r1, %r4;
        st.global.u32 [%rd2], %r5;"""
    launch(body, [out], block=(threads, 1, 1), grid=(ctas, 1, 1))
    for cta in range(ctas):
        tile = 8 << cta
        for thread in range(4, threads):
            first = thread // 32 * 32 + thread % 32 // tile * tile
            assert out[cta, thread] == sum(t for t in range(first, min(first + tile, threads)) if t >= 4)


def test_lanes_of_one_mask_that_name_different_ones():
    """Each would wait for a thread that executes another instruction than its own."""
    with refuses(SimulationError):
        by_tile(2, "setp.eq.u32 %p0, %r2, 1; selp.b32 %r4, 2, %r4, %p0; vote.sync.ballot.b32 %r5, %p0, %r4;")


def test_one_mask_names_a_lane_that_is_elsewhere():
    """The lane is named by a smaller mask than another's, which is what was looked at."""
    body = """setp.eq.u32 %p0, %r2, 1; @%p0 bra END; setp.lt.u32 %p1, %r2, 2; selp.b32 %r4, 0x3, 0xfffffffc, %p1;
        shfl.sync.idx.b32 %r5, %r2, 0, 31, %r4; END:"""
    with refuses(SimulationError):
        by_tile(2, body)


def test_two_lanes_that_are_alone_each_in_its_own_tile():
    """A group of as few lanes as a mask may have entries."""
    out = np.zeros(2, np.uint32)
    body = """mov.u32 %r1, %tid.x; mad.wide.u32 %rd2, %r1, 4, %rd0; mov.u32 %r2, 1; shl.b32 %r2, %r2, %r1;
    setp.eq.u32 %p0, %r1, %r1; vote.sync.ballot.b32 %r3, %p0, %r2; st.global.u32 [%rd2], %r3;"""
    launch(body, [out], block=(2, 1, 1))
    assert out.tolist() == [1, 2]
