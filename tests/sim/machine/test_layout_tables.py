"""Layouts as arrays, against the layouts themselves, index by index."""

import numpy as np
from hypothesis import given, strategies as st

from cutepy.layouts import Layout
from cutepy.sim.machine.layout_tables import by_value_and_thread, values

modes = st.integers(1, 3).flatmap(
    lambda rank: st.tuples(*[st.lists(st.integers(low, 4), min_size=rank, max_size=rank).map(tuple) for low in (1, 0)])
)


@given(modes)
def test_values_are_those_of_all_indices_in_order(mode):
    layout = Layout(*mode)
    assert values(layout).tolist() == [layout(n) for n in range(layout.size())]


@given(modes, modes)
def test_rows_are_values_and_columns_are_threads(thread, value):
    layout = Layout((thread[0], value[0]), (thread[1], value[1]))
    threads, held = layout[0].size(), layout[1].size()
    expected = [[layout((t, v)) for t in range(threads)] for v in range(held)]
    assert np.array_equal(by_value_and_thread(layout), expected)
