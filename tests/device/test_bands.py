"""Bands of an attention matrix: the tiles that a tile sees, and those that need no mask, against the matrix itself."""

import pytest

pytest.importorskip("cutlass")

from hypothesis import given, strategies as st

from cutepy.device.bands import Band

BOUNDS = st.none() | st.integers(0, 40)


@given(st.integers(1, 60), st.integers(1, 60), BOUNDS, BOUNDS, st.integers(1, 9), st.integers(1, 9), st.booleans())
def test_tiles_cover_what_is_seen_and_whole_ones_need_no_mask(queries, keys, left, right, rows, width, turned):
    band = Band(queries, keys, left, right)
    offset = keys - queries
    seen = {
        (i, j)
        for i in range(queries)
        for j in range(keys)
        if (left is None or j >= i + offset - left) and (right is None or j <= i + offset + right)
    }
    if turned:
        band, seen, queries, keys = band.transposed(), {(j, i) for i, j in seen}, keys, queries
    for first in range(0, queries, rows):
        tiles = band.tiles(first, rows, width)
        assert 0 <= tiles.begin < tiles.end
        assert tiles.begin <= tiles.whole_begin <= tiles.end
        assert tiles.begin <= tiles.whole_end <= tiles.end
        held = range(first, min(first + rows, queries))
        for i in held:
            assert all(tiles.begin <= j // width < tiles.end for j in range(keys) if (i, j) in seen)
            assert all((band.begin(i) <= j < band.end(i)) == ((i, j) in seen) for j in range(keys))
        for tile in range(max(tiles.whole_begin, tiles.begin), min(tiles.whole_end, tiles.end)):
            assert all((i, j) in seen for i in held for j in range(tile * width, (tile + 1) * width))
        if first + rows > queries:
            continue  # the last tile's bounds are those of rows that there are not
        whole = [
            n for n in range(-(-keys // width)) if all((i, n * width + x) in seen for i in held for x in range(width))
        ]
        assert whole == [*range(tiles.whole_begin, tiles.whole_end)]
        if all(any((i, j) in seen for j in range(keys)) for i in held):
            assert {j // width for i, j in seen if i in held} == {*range(tiles.begin, tiles.end)}
        else:
            assert not any((i, j) in seen for i in held for j in range(keys)) or tiles.end <= -(-keys // width)


@pytest.mark.parametrize("sharing", [1, 2, 3, 8])
@pytest.mark.parametrize(("left", "right"), [(None, None), (None, 0), (5, 0), (0, 3), (2, None)])
def test_queries_that_share_a_position_see_the_same_keys(sharing, left, right):
    """Those of the query that they are all of, in a band of queries that share none."""
    for queries, keys in ((1, 1), (3, 7), (7, 3), (6, 6)):
        shared, alone = Band(queries * sharing, keys, left, right, sharing), Band(queries, keys, left, right)
        for query in range(queries):
            assert alone.position(query) == query + keys - queries
            for each in range(query * sharing, (query + 1) * sharing):
                assert shared.position(each) == alone.position(query)
                assert (shared.begin(each), shared.end(each)) == (alone.begin(query), alone.end(query))
