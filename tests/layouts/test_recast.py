"""Recasting to elements of another width keeps the bytes."""

import pytest
from hypothesis import given, strategies as st

from cutepy.layouts import (
    ComposedLayout,
    Layout,
    LayoutError,
    ScaledBasis,
    SmemPtr,
    Swizzle,
    downcast,
    make_layout,
    recast_layout,
    upcast,
)
from cutepy.testing import strategies as lst
from tests.layouts import brute_force as bf
from tests.messages import refuses

FACTORS = st.integers(1, 4)
POWERS = st.sampled_from((1, 2, 4, 8))


@st.composite
def adjacent(draw, **options):
    """A layout that has one mode of stride 1, of any extent but 1."""
    layout = draw(lst.layouts(injective=True, size_one=False, max_size=32, **options))
    smallest = min(d for _, d in bf.modes(layout))
    return Layout(layout.shape, divided(layout.stride, smallest))


def divided(stride, n):
    return tuple(divided(d, n) for d in stride) if isinstance(stride, tuple) else stride // n


def covered(layout, width):
    """The units that elements of `width` units cover, each as often as it is covered."""
    return sorted(i * width + unit for i in bf.table(layout) for unit in range(width))


def check_downcast_covers_the_same_units(layout, n):
    assert covered(downcast(layout, n), 1) == covered(layout, n)


def check_upcast_undoes_downcast(layout, n):
    assert upcast(downcast(layout, n), n) == layout


@given(adjacent(), FACTORS)
def test_casts_of_adjacent_elements(layout, n):
    check_downcast_covers_the_same_units(layout, n)
    check_upcast_undoes_downcast(layout, n)


def check_upcast_undoes_downcast_wherever_that_exists(layout, n):
    if 1 in bf.leaves(layout.stride):
        assert upcast(downcast(layout, n), n) == layout
    else:
        with pytest.raises(LayoutError):
            downcast(layout, n)


def test_a_stride_of_minus_one_is_adjacent_too():
    assert str(downcast(Layout((4, 2), (-1, 1)), 2)) == "(8,4):(-1,1)"
    assert str(downcast(Layout((4, 2), (-2, 1)), 2)) == "(4,4):(-4,1)"
    assert str(upcast(Layout((8, 4), (-1, 1)), 2)) == "(4,2):(-1,1)"


@given(st.data(), POWERS)
def test_upcast_covers_the_same_units(data, n):
    block = data.draw(adjacent(powers_of_two=True))
    layout = make_layout(Layout(n, 1), downcast_strides(block, n))
    wide = upcast(layout, n)
    assert covered(wide, n) == covered(layout, 1)
    assert bf.congruent(wide.shape, layout.shape)


def downcast_strides(layout, n):
    def scaled(stride):
        return tuple(map(scaled, stride)) if isinstance(stride, tuple) else stride * n

    return Layout(layout.shape, scaled(layout.stride))


@given(lst.layouts(injective=True, powers_of_two=True), POWERS)
def test_upcast_reaches_the_wide_elements_that_hold_the_narrow_ones(layout, n):
    assert set(bf.table(upcast(layout, n))) == {i // n for i in bf.table(layout)}


def check_upcast_exists_where_strides_and_factor_divide(layout, n):
    strides = [d for d in bf.leaves(layout.stride) if d]
    if all(d % n == 0 or n % d == 0 for d in strides):
        assert bf.congruent(upcast(layout, n).shape, layout.shape)
    else:
        with pytest.raises(LayoutError):
            upcast(layout, n)


@given(lst.layouts(signed=True), FACTORS)
def test_casts_of_any_layout(layout, n):
    check_upcast_undoes_downcast_wherever_that_exists(layout, n)
    check_upcast_exists_where_strides_and_factor_divide(layout, n)


@given(adjacent(powers_of_two=True), POWERS, POWERS)
def test_casts_multiply(layout, m, n):
    assert downcast(downcast(layout, m), n) == downcast(layout, m * n)
    narrow = downcast(layout, m * n)
    assert upcast(upcast(narrow, m), n) == upcast(narrow, m * n) == layout


@given(st.data(), st.sampled_from((8, 16, 32, 64)), st.sampled_from((8, 16, 32, 64)))
def test_recast_layout_covers_the_same_bits(data, old, new):
    layout = downcast(data.draw(adjacent(powers_of_two=True)), max(1, new // old))
    assert covered(recast_layout(layout, old, new), new // 8) == covered(layout, old // 8)
    assert recast_layout(layout, old, old) == layout


@given(adjacent(powers_of_two=True))
def test_recast_layout_is_the_cast_by_the_ratio(layout):
    assert recast_layout(downcast(layout, 2), 8, 16) == layout
    assert recast_layout(layout, 32, 8) == downcast(layout, 4)


@given(lst.swizzles(max_base=4), POWERS)
def test_casts_of_a_swizzle_act_on_the_bits_that_remain(swizzle, n):
    wide, narrow = upcast(swizzle, n), downcast(swizzle, n)
    bits = n.bit_length() - 1
    for i in range(swizzle.size()):
        assert bf.swizzle(narrow, i * n) == bf.swizzle(swizzle, i) * n
        if bits <= swizzle.base:
            assert bf.swizzle(wide, i) * n == bf.swizzle(swizzle, i * n)
    assert upcast(narrow, n) == swizzle


@given(adjacent(powers_of_two=True), lst.swizzles(max_base=2), st.integers(0, 8), POWERS)
def test_casts_of_a_composed_layout_cover_the_same_units(layout, swizzle, offset, n):
    composed = ComposedLayout(swizzle, offset, layout)
    narrow = downcast(composed, n)
    assert covered(narrow, 1) == covered(composed, n)
    assert bf.table(upcast(narrow, n)) == bf.table(composed)


@given(adjacent(powers_of_two=True), st.sampled_from((8, 16, 32)), st.sampled_from((8, 16, 32)))
def test_recast_keeps_the_bytes_under_a_pointer(layout, old, new):
    if new > old:
        layout = downcast(layout, new // old)
    composed = ComposedLayout(Swizzle(1, 4, 3), SmemPtr(old), layout)
    recast = recast_layout(composed, old, new)
    assert recast.layoutB == composed.layoutB
    assert recast.offset == SmemPtr(new)
    before, after = composed.position_independent(), recast.position_independent()
    assert covered(after, new // 8) == covered(before, old // 8)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: upcast(Layout(8, 3), 2), LayoutError),
        (lambda: upcast(Layout(8), 0), LayoutError),
        (lambda: upcast(Layout(8), True), LayoutError),
        (lambda: upcast("text", 2), TypeError),
        (lambda: downcast("text", 2), TypeError),
        (lambda: upcast(7, 2), LayoutError),
        (lambda: upcast(Swizzle(1, 4, 3), 3), LayoutError),
        (lambda: upcast(Layout(4, ScaledBasis(1, (0,))), 2), LayoutError),
        (lambda: recast_layout(Layout(8), 0, 8), LayoutError),
        (lambda: downcast(ComposedLayout(Swizzle(1, 4, 3), SmemPtr(8), Layout(8)), 16), LayoutError),
    ],
)
def test_operands_that_do_not_fit(call, error):
    with refuses(error):
        call()
