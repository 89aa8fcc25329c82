"""Operations on bits, against a search bit by bit."""

import numpy as np
from hypothesis import given, strategies as st

from cutepy.sim.arithmetic.integers import fns


@given(st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 31), st.integers(-33, 33)), min_size=1, max_size=8))
def test_the_nth_bit_that_is_set_is_found_upwards_and_downwards(cases):
    """PTX ISA, "fns": from the base on, which counts itself; the base alone for 0; all ones where there is none."""
    columns = zip(zip(*cases, strict=True), ("u4", "u4", "i4"), strict=True)
    masks, bases, offsets = (np.array([column], kind) for column, kind in columns)
    expected = []
    for mask, base, offset in cases:
        step = -1 if offset < 0 else 1
        left, place = abs(offset) or 1, base
        while 0 <= place < 32 and (left := left - (mask >> place & 1)) > 0 and offset != 0:
            place += step
        expected.append(place if left == 0 else 0xFFFFFFFF)
    assert fns(masks, bases, offsets).tolist() == [expected]
