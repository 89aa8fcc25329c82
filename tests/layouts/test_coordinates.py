"""Coordinates and indices are inverse to one another; compact strides number a shape's coordinates."""

import pytest
from hypothesis import given, strategies as st

from cutepy.layouts import (
    Layout,
    LayoutError,
    ScaledBasis,
    compact_col_major,
    compact_order,
    compact_row_major,
    crd2crd,
    crd2idx,
    dice,
    idx2crd,
    make_basis_like,
    prefix_product,
    slice_,
    suffix_product,
)
from cutepy.testing import strategies as lst
from tests.layouts import brute_force as bf
from tests.messages import refuses


def flat(crd):
    return tuple(bf.leaves(crd))


def check_idx2crd_enumerates_the_coordinates_colexicographically(shape):
    assert [idx2crd(i, shape) for i in range(bf.size(shape))] == bf.coordinates(shape)


def check_crd2idx_inverts_idx2crd(shape):
    assert [crd2idx(c, shape) for c in bf.coordinates(shape)] == list(range(bf.size(shape)))


@given(lst.layouts(signed=True))
def test_crd2idx_is_the_inner_product_with_the_strides(layout):
    shape, stride = layout.shape, layout.stride
    expected = [bf.at(shape, stride, c) for c in bf.coordinates(shape)]
    assert [crd2idx(c, shape, stride) for c in bf.coordinates(shape)] == expected
    assert [crd2idx(i, shape, stride) for i in range(len(expected))] == expected


@given(lst.layouts(), st.integers(0, 300))
def test_crd2idx_goes_on_in_the_last_mode_beyond_the_domain(layout, i):
    assert crd2idx(i, layout.shape, layout.stride) == bf.extended(layout, i)


@given(st.data(), lst.layouts(signed=True))
def test_any_nesting_of_a_coordinate_gives_the_same_index(data, layout):
    crd = data.draw(lst.coordinates(layout))
    assert crd2idx(crd, layout.shape, layout.stride) == bf.table(layout)[crd2idx(crd, layout.shape)]


@given(lst.layouts(compact=True))
def test_idx2crd_inverts_a_compact_layout(layout):
    crds = bf.coordinates(layout.shape)
    assert [idx2crd(bf.at(layout.shape, layout.stride, c), layout.shape, layout.stride) for c in crds] == crds
    assert [idx2crd(i, layout) for i in bf.table(layout)] == crds


@given(st.data(), lst.shapes(), st.integers(0, 63))
def test_idx2crd_keeps_the_index_also_beyond_the_shape(data, shape, i):
    assert crd2idx(idx2crd(i, shape), shape) == i


def check_crd2crd_keeps_the_index_and_takes_the_nesting_of_the_target(data, src):
    dst = data.draw(st.sampled_from((tuple(reversed(bf.leaves(src))), bf.size(src))))
    for i, crd in enumerate(bf.coordinates(src)):
        moved = crd2crd(crd2idx(crd, src), dst)
        assert moved == bf.coordinates(dst)[i]
        assert crd2crd(crd2idx(moved, dst), src) == crd
    if isinstance(dst, int):
        assert [crd2crd(c, dst, src) for c in bf.coordinates(src)] == list(range(dst))


def check_compact_col_major_counts_colexicographically(shape):
    strides = compact_col_major(shape)
    assert [bf.at(shape, strides, c) for c in bf.coordinates(shape)] == list(range(bf.size(shape)))
    assert all(d == 0 for s, d in zip(flat(shape), flat(strides), strict=True) if s == 1)


def check_compact_row_major_counts_lexicographically(shape):
    strides = compact_row_major(shape)
    in_order = sorted(bf.coordinates(shape), key=flat)
    assert [bf.at(shape, strides, c) for c in in_order] == list(range(bf.size(shape)))


@given(st.data(), lst.shapes(max_depth=1))
def test_compact_order_counts_in_the_order_given(data, shape):
    extents = bf.leaves(shape)
    order = data.draw(st.permutations(range(len(extents))))
    strides = compact_order(shape, tuple(order) if isinstance(shape, tuple) else order[0])
    by_order = sorted(range(len(extents)), key=lambda mode: -order[mode])
    in_order = sorted(bf.coordinates(shape), key=lambda c: [flat(c)[mode] for mode in by_order])
    assert [bf.at(shape, strides, c) for c in in_order] == list(range(bf.size(shape)))


def check_compact_order_by_ascending_integers_is_column_major(shape):
    count = iter(range(100))

    def number(t):
        return tuple(map(number, t)) if isinstance(t, tuple) else next(count)

    assert compact_order(shape, number(shape)) == compact_col_major(shape)


@given(lst.shapes(), st.integers(1, 5))
def test_prefix_and_suffix_products(shape, init):
    extents = flat(shape)
    before = [bf.size(extents[:i]) * init for i in range(len(extents))]
    after = [bf.size(extents[i + 1 :]) * init for i in range(len(extents))]
    assert flat(prefix_product(shape, init)) == tuple(before)
    assert flat(suffix_product(shape, init)) == tuple(after)
    assert bf.congruent(prefix_product(shape), shape)
    assert bf.congruent(suffix_product(shape), shape)


def check_basis_strides_map_every_coordinate_to_itself(shape):
    for crd in bf.coordinates(shape):
        assert crd2idx(crd, shape, make_basis_like(shape)) == crd


@given(lst.shapes())
def test_any_shape(shape):
    check_idx2crd_enumerates_the_coordinates_colexicographically(shape)
    check_crd2idx_inverts_idx2crd(shape)
    check_compact_col_major_counts_colexicographically(shape)
    check_compact_row_major_counts_lexicographically(shape)
    check_compact_order_by_ascending_integers_is_column_major(shape)
    check_basis_strides_map_every_coordinate_to_itself(shape)


def check_slice_keeps_where_dice_drops(data, shape):
    crd = data.draw(lst.slice_coordinates(shape) | lst.coordinates(shape))
    kept, dropped = slice_(crd, shape), dice(crd, shape)

    def split(c, s):
        if c is None:
            return bf.leaves(s), []
        if not isinstance(c, tuple):
            return [], bf.leaves(s)
        parts = [split(*pair) for pair in zip(c, s, strict=True)]
        return [leaf for kept, _ in parts for leaf in kept], [leaf for _, dropped in parts for leaf in dropped]

    assert (bf.leaves(kept), bf.leaves(dropped)) == split(crd, shape)


@given(st.data(), lst.shapes())
def test_coordinates_of_any_shape(data, shape):
    check_crd2crd_keeps_the_index_and_takes_the_nesting_of_the_target(data, shape)
    check_slice_keeps_where_dice_drops(data, shape)


@pytest.mark.parametrize(
    "call",
    [
        lambda: crd2idx((1, 2, 3), (4, 8)),
        lambda: crd2idx((1, (2, 3)), (4, 8), (1, 4)),
        lambda: crd2idx(1, (4, 8), (1, 4, 32)),
        lambda: idx2crd(3, (4, 8), (0, 1)),
        lambda: idx2crd((1, 2, 3), (4, 8)),
        lambda: crd2crd((1, 2), 32),
        lambda: compact_order((4, 8), (ScaledBasis(1, (0,)), 1)),
        lambda: slice_((None, 1, 2), (4, 8)),
    ],
)
def test_operands_that_do_not_fit(call):
    with refuses(LayoutError):
        call()


def test_none_counts_as_zero():
    assert crd2idx((None, 3), (4, 8), (8, 1)) == 3
    assert crd2idx((2, None), (4, 8)) == 2
    assert crd2idx(None, 4, 3) == 0


def test_a_layout_in_place_of_shape_and_stride():
    layout = Layout((4, 8), (8, 1))
    assert crd2idx((1, 2), layout) == 10
    assert idx2crd(10, layout) == (1, 2)


def test_negative_indices_split_as_cpp_divides():
    """Towards zero, with the sign of the dividend."""
    assert idx2crd(-5, (4, 8)) == idx2crd(-5, (4, 8), (1, 4)) == (-1, -1)
    assert idx2crd(-9, (4, 8)) == idx2crd(-9, (4, 8), (1, 4)) == (-1, -2)
    assert idx2crd(-1, (4, 8)) == idx2crd(-1, (4, 8), (1, 4)) == (-1, 0)
    assert [idx2crd(i, 4, -1) for i in (0, 1, 5)] == [0, -1, -1]
    assert [idx2crd(i, 4, 1) for i in (-1, -4, -5)] == [-1, 0, -1]


def test_an_integer_mode_splits_integers_only():
    for operands in (((1, 2), 4, 1), (3, 4, (1,)), ((1,), 4, (1,))):
        with refuses(LayoutError):
            idx2crd(*operands)


def test_negative_coordinates_split_as_cpp_divides():
    assert [crd2idx(i, (4, 8), (8, 1)) for i in (-1, -4, -5)] == [-8, -1, -9]
    assert [crd2idx(i, ((2, 2), 8), ((8, 16), 1)) for i in (-1, -4, -5)] == [-8, -1, -9]


def test_a_nested_mode_with_one_stride_counts_on_from_it():
    assert idx2crd(3, ((2, 2), 2), (1, 4)) == ((1, 1), 0)
    assert idx2crd(6, ((2, 2), 2), (1, 4)) == ((0, 1), 1)
    with refuses(LayoutError):
        crd2idx((1, 1), (2, 2), ((1, 2), 4))
    with refuses(LayoutError):
        crd2idx((1, 1), ((2, 2), 2), (1, 4))


def test_nothing_is_divided_by_an_extent_of_zero():
    for shape, stride in (((0, 2), (1, 2)), (((0, 2), 2), ((1, 2), 4)), (((2, 0), 2), ((1, 2), 4))):
        with refuses(LayoutError):
            crd2idx(3, shape, stride)
        with refuses(LayoutError):
            idx2crd(3, shape)
    with refuses(LayoutError):
        idx2crd(3, (0, 4), (1, 1))


def test_products_and_compact_strides_start_at_each_modes_own_stride():
    assert prefix_product((2, (3, 4)), (5, 7)) == (5, (7, 21))
    assert suffix_product((2, (3, 4)), (5, 7)) == (5, (28, 7))
    assert compact_col_major((2, (3, 4)), (5, 7)) == (5, (7, 21))
    assert compact_row_major((2, (3, 4)), (5, 7)) == (5, (28, 7))
    for function in (prefix_product, suffix_product, compact_col_major, compact_row_major):
        for operands in ((4, (1, 2)), ((2, 3), (1, 2, 3)), ((2, 3), (1,))):
            with refuses(LayoutError) as caught:
                function(*operands)
            assert not caught.value.origin


def test_tuples_of_one_rank_are_expressed_mode_by_mode():
    assert crd2crd((3, 5), ((2, 2), 8), (4, 8)) == ((1, 1), 5)
    assert crd2crd((3, 5), (4, 8)) == (3, 5)
    for operands in (((1, 2), (4,)), ((1, 2), (4, 8), (4,)), ((1,), (4, 8))):
        with refuses(LayoutError):
            crd2crd(*operands)
