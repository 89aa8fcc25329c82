"""Tables of a GPU: entries between numbers, below them and beyond."""

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st

from cutepy.predict.gpu import ConstantError, Gpu, interpolated

numbers = st.integers(-(1 << 20), 1 << 20)
tables = st.dictionaries(st.integers(0, 4096), numbers, min_size=1, max_size=6)


def entry(table, at):
    """Return an entry of a table of numbers, on the line through its two neighbours, or through the last two."""
    places = sorted(table)
    if at <= places[0] or len(places) == 1:
        return table[places[0]]
    low, high = next(((low, high) for low, high in itertools.pairwise(places) if at <= high), places[-2:])
    return (
        np.interp(at, [low, high], [table[low], table[high]])
        if at <= high
        else (table[high] + (at - high) * (table[high] - table[low]) / (high - low))
    )


def gpu(table):
    return Gpu("toy", 1, {"key": table})


def texts(table):
    return {str(place): value for place, value in table.items()}


@given(tables, st.integers(0, 5000))
def test_entries_lie_on_lines(table, at):
    assert gpu(texts(table)).at("key", at) == pytest.approx(entry(table, at))
    for place, value in table.items():
        assert gpu(texts(table)).at("key", place) == value


@given(
    st.dictionaries(st.integers(0, 4096), tables, min_size=1, max_size=4), st.integers(0, 5000), st.integers(0, 5000)
)
def test_tables_of_tables_are_read_from_the_innermost_out(table, row, column):
    told = {str(place): texts(inner) for place, inner in table.items()}
    expected = entry({place: entry(inner, column) for place, inner in table.items()}, row)
    assert gpu(told).at("key", row, column) == pytest.approx(expected, abs=1e-6)
    assert gpu({"x": told, "y": 3}).at("key", "x", row, column) == pytest.approx(expected, abs=1e-6)


@given(tables)
def test_what_a_table_has_not_is_refused(table):
    empty = {place: {} for place in texts(table)}
    for told, path in (({"x": 1.0}, ()), ({"x": 1.0}, ("y",)), (texts(table), ("x",)), (empty, (1, 2)), ({}, (1,))):
        with pytest.raises(ConstantError):
            gpu(told).at("key", *path)


@given(tables, st.floats(-100, 5000))
def test_curves_are_level_beyond_their_ends(table, at):
    points = sorted(table.items())
    assert interpolated(points, at) == pytest.approx(np.interp(at, *zip(*points, strict=True)), abs=1e-6)
