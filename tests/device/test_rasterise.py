"""The order of output tiles."""

import itertools
import math

from hypothesis import given, strategies as st

from cutepy.device.rasterise import Divisors, coordinates_of, tile_of

EXTENTS = st.integers(1, 40)


def place(index, rows, columns, band_rows):
    return tile_of(index, rows, band_rows, Divisors.of(rows, columns, band_rows))


@given(EXTENTS, EXTENTS, st.integers(1, 20))
def test_every_tile_is_visited_once(rows, columns, band_rows):
    visited = {place(index, rows, columns, band_rows) for index in range(rows * columns)}
    assert visited == {(row, column) for row in range(rows) for column in range(columns)}


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_coordinates_run_through_a_batch_in_order(extents):
    count = math.prod(extents)
    assert [coordinates_of(index, extents) for index in range(count)] == list(itertools.product(*map(range, extents)))


@given(st.integers(8, 60), st.integers(17, 60))
def test_a_wave_touches_few_panels(rows, columns):
    """Of 132 consecutive tiles in bands of 8 rows, at most two bands of rows and 18 + 2 columns are touched."""
    for start in range(0, rows * columns, 132):
        wave = [place(i, rows, columns, 8) for i in range(start, min(start + 132, rows * columns))]
        rows_touched, columns_touched = (len(set(panel)) for panel in zip(*wave, strict=True))
        assert rows_touched <= 16
        assert columns_touched <= 40 or rows % 8, "a full band is 8 tiles high, so 132 tiles are 17 columns of it"


def test_down_a_band_then_across():
    assert [place(i, 5, 2, 3) for i in range(10)] == [
        (0, 0),
        (1, 0),
        (2, 0),
        (0, 1),
        (1, 1),
        (2, 1),
        (3, 0),
        (4, 0),
        (3, 1),
        (4, 1),
    ]
