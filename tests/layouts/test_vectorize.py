"""Common vectors and alignments are as wide as their definition allows, and no wider."""

import itertools

import pytest
from hypothesis import given, strategies as st

from cutepy.layouts import (
    ComposedLayout,
    Layout,
    LayoutError,
    SmemPtr,
    Swizzle,
    coalesce,
    domain_distribute,
    logical_divide,
    max_alignment,
    max_common_layout,
    max_common_vector,
    upcast,
)
from cutepy.testing import strategies as lst
from tests.layouts import brute_force as bf
from tests.messages import refuses


@st.composite
def pairs_of_one_shape(draw, **options):
    a = draw(lst.layouts(max_depth=1, **options))
    return a, draw(lst.layouts(a.shape, **options))


def agreement(a, b):
    """Count the indices 0, 1, ... that two bijections give to the same coordinates."""
    return next((i for i, (x, y) in enumerate(zip(*map(inverse, (a, b)), strict=True)) if x != y), a.size())


def inverse(layout):
    table = bf.table(layout)
    return [table.index(i) for i in range(len(table))]


def check_common_layout(a, b):
    common = max_common_layout(a, b)
    for layout in (a, b):
        assert [bf.extended(layout, i) for i in bf.table(common)] == list(range(common.size()))
    return common


@given(pairs_of_one_shape(compact=True))
def test_the_common_layout_of_bijections_is_all_that_they_agree_on(pair):
    a, b = pair
    common = check_common_layout(a, b)
    assert common.size() == agreement(a, b) == max_common_vector(a, b)


@given(pairs_of_one_shape(injective=True))
def test_two_layouts_agree_on_their_common_layout(pair):
    a, b = pair
    try:
        common = check_common_layout(a, b)
    except LayoutError as error:
        assert "divisibility" in str(error)
    else:
        assert max_common_vector(a, b) == common.size()


@given(lst.layouts(compact=True))
def test_a_bijection_agrees_with_itself_everywhere(layout):
    assert max_common_vector(layout, layout) == layout.size()
    assert check_common_layout(layout, layout).size() == layout.size()


def test_common_layouts_of_all_small_bijections():
    for shape in itertools.product(range(1, 5), repeat=3):
        orders = [
            Layout(shape, tuple(bf.size(tuple(shape[j] for j in order[: order.index(i)])) for i in range(3)))
            for order in itertools.permutations(range(3))
        ]
        for a, b in itertools.product(orders, repeat=2):
            assert max_common_vector(a, b) == check_common_layout(a, b).size() == agreement(a, b)


@given(pairs_of_one_shape(compact=True, powers_of_two=True), lst.swizzles())
def test_a_swizzle_limits_a_common_vector_to_the_bits_that_it_keeps(pair, swizzle):
    a, b = pair
    swizzled, kept = ComposedLayout(swizzle, 0, a), 1 << swizzle.base
    vector = max_common_vector(a, b)
    assert max_common_vector(swizzled, b) == max_common_vector(b, swizzled) == min(vector, kept)
    common = max_common_layout(swizzled, b)
    assert common == max_common_layout(b, swizzled)
    assert common.size() == min(vector, kept)
    assert [bf.extended(swizzled, i) for i in bf.table(common)] == list(range(common.size()))
    assert max_common_vector(swizzled, ComposedLayout(swizzle, 0, b)) == vector


def is_made_of_blocks(indices, n):
    """Return True if the indices are whole aligned runs of `n`."""
    return all(i - i % n + k in indices for i in indices for k in range(n))


@given(lst.layouts(injective=True))
def test_max_alignment_is_the_widest_aligned_run_that_makes_up_the_indices(layout):
    indices = set(bf.table(layout))
    widest = max(n for n in range(1, len(indices) + 1) if is_made_of_blocks(indices, n))
    assert max_alignment(layout) == widest


def test_max_alignment_of_all_small_injective_layouts():
    checked = 0
    for layout in bf.small_layouts(max_extent=4, strides=range(1, 9)):
        indices = set(bf.table(layout))
        if len(indices) == layout.size():
            n = max_alignment(layout)
            assert is_made_of_blocks(indices, n)
            checked += 1
    assert checked > 500


@given(lst.layouts(injective=True, powers_of_two=True))
def test_max_alignment_is_what_upcast_can_widen_by(layout):
    n = max_alignment(layout)
    assert upcast(layout, n).size() * n == layout.size()


@given(lst.layouts(injective=True, powers_of_two=True), lst.swizzles(), st.integers(0, 32))
def test_max_alignment_under_a_swizzle(layout, swizzle, offset):
    composed = ComposedLayout(swizzle, offset, layout)
    assert is_made_of_blocks(set(bf.table(composed)), max_alignment(composed))
    assert max_alignment(composed) == max(
        n
        for n in (1, 2, 4, 8, 16, 32, 64)
        if (offset % n, (1 << swizzle.base) % n, max_alignment(layout) % n) == (0, 0, 0)
    )


@given(lst.shapes(), st.integers(1, 64))
def test_domain_distribute_takes_a_part_that_tiles_the_domain(shape, n):
    taken = domain_distribute(shape, n)
    indices = bf.table(taken)
    assert taken.size() <= n
    assert bf.size(shape) % taken.size() == 0
    assert len(set(indices)) == len(indices)
    assert set(indices) <= set(range(bf.size(shape)))
    assert coalesce(taken) == taken
    assert sorted(bf.table(logical_divide(Layout(shape), taken))) == list(range(bf.size(shape)))


@given(lst.shapes(powers_of_two=True), st.integers(0, 6))
def test_domain_distribute_takes_as_many_as_are_there(shape, log2):
    assert bf.table(domain_distribute(shape, 1 << log2)) == list(range(min(bf.size(shape), 1 << log2)))
    assert domain_distribute(Layout(shape), 1 << log2) == domain_distribute(shape, 1 << log2)


def test_max_alignment_of_other_things():
    assert max_alignment(Swizzle(3, 4, 3)) == 16
    assert max_alignment(12) == 12
    assert max_alignment(ComposedLayout(Layout(8), 0, Layout(8))) == 1
    assert max_alignment(ComposedLayout(Swizzle(3, 4, 3), SmemPtr(16), Layout((64, 8)))) == 16


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: domain_distribute((4, 8), 0), LayoutError),
        (lambda: domain_distribute((4, 8), True), LayoutError),
        (lambda: max_common_vector(ComposedLayout(Layout(8), 0, Layout(8)), Layout(8)), LayoutError),
        (lambda: max_common_vector(Layout(4), 4), TypeError),
        (lambda: max_common_layout(4, Layout(4)), TypeError),
        (lambda: max_alignment("text"), TypeError),
    ],
)
def test_operands_that_do_not_fit(call, error):
    with refuses(error):
        call()
