"""Operations on modes keep the function, or change it by exactly the modes that they add, drop or move."""

import pytest
from hypothesis import given, strategies as st

from cutepy.layouts import (
    ComposedLayout,
    Layout,
    LayoutError,
    ScaledBasis,
    Swizzle,
    append,
    coprofile,
    cosize,
    depth,
    dice,
    domain_offset,
    filter_zeros,
    flatten,
    get,
    group,
    make_layout,
    prepend,
    rank,
    replace,
    select,
    shape,
    size,
    slice_,
    slice_and_offset,
    stride,
    take,
    unflatten,
    zip_modes,
)
from cutepy.testing import strategies as lst
from tests.layouts import brute_force as bf
from tests.messages import refuses

LAYOUTS = lst.layouts(signed=True)
FLAT = lst.layouts(max_depth=1, signed=True)


@given(LAYOUTS)
def test_flatten_keeps_the_function(layout):
    flat = flatten(layout)
    assert bf.table(flat) == bf.table(layout)
    assert flat.depth() <= 1
    assert unflatten(flat, layout.shape) == layout
    assert flatten(flat) == flat


@given(lst.composed_layouts(nested=True))
def test_regrouping_a_composed_layout_keeps_the_function(layout):
    table = bf.table(layout)
    assert bf.table(flatten(layout)) == table
    assert bf.table(group(layout, 0, layout.rank())) == table
    assert bf.table(append(layout, Layout(1, 0))) == table
    assert bf.table(prepend(layout, Layout(1, 0))) == table


@given(st.data(), LAYOUTS)
def test_group_keeps_the_function_and_nests_the_modes(data, layout):
    begin = data.draw(st.integers(0, layout.rank()))
    end = data.draw(st.integers(begin, layout.rank()))
    grouped = group(layout, begin, end)
    assert bf.table(grouped) == bf.table(layout)
    modes, new = list(layout), list(grouped)
    if begin < end:
        assert new == [*modes[:begin], make_layout(*modes[begin:end]), *modes[end:]]
        assert group(layout, begin, -1 if end == layout.rank() else end) == grouped
    else:
        assert new == modes


@given(st.data(), LAYOUTS)
def test_take_and_select_keep_their_modes(data, layout):
    modes = list(layout)
    begin = data.draw(st.integers(0, layout.rank() - 1))
    end = data.draw(st.integers(begin + 1, layout.rank()))
    assert list(take(layout, begin, end)) == modes[begin:end]
    chosen = data.draw(st.lists(st.integers(0, layout.rank() - 1), min_size=1, max_size=4))
    assert list(select(layout, tuple(chosen))) == list(select(layout, *chosen)) == [modes[i] for i in chosen]
    assert take(layout, begin, end) == select(layout, *range(begin, end))


@given(LAYOUTS, FLAT)
def test_append_and_prepend_add_the_sum_over_the_new_mode(layout, mode):
    table, steps = bf.table(layout), bf.table(mode)
    assert bf.table(append(layout, mode)) == [i + step for step in steps for i in table]
    assert bf.table(prepend(layout, mode)) == [i + step for i in table for step in steps]
    assert list(append(layout, mode)) == [*layout, mode]
    assert list(prepend(layout, mode)) == [mode, *layout]


@given(LAYOUTS, st.integers(0, 3))
def test_padding_with_unit_modes_keeps_the_function(layout, more):
    n = layout.rank() + more
    for pad in (append, prepend):
        assert pad(layout, n).rank() == n
        assert bf.table(pad(layout, n)) == bf.table(layout)
        assert pad(layout, n) == pad(layout, n, Layout(1, 0))


@given(st.data(), LAYOUTS, FLAT)
def test_replace_changes_one_mode(data, layout, mode):
    n = data.draw(st.integers(0, layout.rank() - 1))
    modes = list(layout)
    assert list(replace(layout, n, mode)) == ([*modes[:n], mode, *modes[n + 1 :]] if layout.depth() else list(mode))


@given(st.data(), LAYOUTS)
def test_get_walks_down_a_path(data, layout):
    path, mode = [], layout
    while isinstance(mode.shape, tuple) and data.draw(st.booleans()):
        path.append(data.draw(st.integers(0, mode.rank() - 1)))
        mode = mode[path[-1]]
    assert get(layout, *path) == mode
    assert (shape(layout, *path), stride(layout, *path)) == (mode.shape, mode.stride)
    assert (rank(layout, *path), size(layout, *path), depth(layout, *path)) == (mode.rank(), mode.size(), mode.depth())
    assert (get(layout.shape, *path), size(layout.shape, *path)) == (mode.shape, mode.size())
    assert cosize(layout, *path) == mode.cosize()


@given(lst.layouts())
def test_filter_zeros_keeps_each_index_and_the_nesting(layout):
    result = filter_zeros(layout)
    assert bf.congruent(result.shape, layout.shape)
    assert result.stride == layout.stride
    assert bf.table(result) == bf.mode_table([(s, d) for s, d in bf.modes(layout) if d])
    guide = tuple(range(layout.rank())) if isinstance(layout.shape, tuple) else 0
    first_dropped = filter_zeros(layout, guide)
    assert [m.size() for m in first_dropped] == [1, *(m.size() for m in list(layout)[1:])]


@given(st.lists(st.tuples(FLAT, FLAT), min_size=1, max_size=3))
def test_zip_swaps_the_two_outer_levels(pairs):
    rows = make_layout(*(make_layout(a, b) for a, b in pairs))
    columns = make_layout(make_layout(*(a for a, _ in pairs)), make_layout(*(b for _, b in pairs)))
    assert zip_modes(rows) == columns
    assert zip_modes(columns) == rows
    assert zip_modes(*columns) == rows


@given(lst.int_tuples())
def test_tuples_and_the_shapes_of_layouts_have_the_same_modes(t):
    positive = unflatten(tuple(abs(x) + 1 for x in bf.leaves(t)), t)
    layout = Layout(positive)
    n = layout.rank()
    assert flatten(positive) == flatten(layout).shape
    assert group(positive, 0, n) == group(layout, 0, n).shape
    assert select(positive, (n - 1, 0)) == select(layout, (n - 1, 0)).shape
    assert take(positive, 0, -1) == take(layout, 0, n).shape
    assert append(positive, 7) == append(layout, Layout(7)).shape
    assert prepend(positive, n + 2, 7) == prepend(layout, n + 2, Layout(7)).shape
    assert append(append(positive, 7), n + 1, 8) == append(positive, 7)


# ---------------------------------------------------------------------------------------------------------------------
# Slices
# ---------------------------------------------------------------------------------------------------------------------


def completed(crd, shape):
    """Coordinates of the whole shape that agree with `crd`, in colexicographic order of what it leaves free."""

    def choices(c, s):
        if c is None:
            return bf.coordinates(s)
        if isinstance(c, tuple):
            return bf_product([choices(*pair) for pair in zip(c, s, strict=True)])
        return [bf.coordinates(s)[c]]

    return choices(crd, shape)


def bf_product(lists):
    result = [()]
    for options in lists:
        result = [(*head, option) for option in options for head in result]
    return result


def sliced_values(layout, crd):
    """The values of a layout where its coordinate agrees with `crd`."""
    numbers = {c: i for i, c in enumerate(bf.coordinates(layout.shape))}
    table = bf.table(layout)
    return [table[numbers[c]] for c in completed(crd, layout.shape)]


def check_slice(layout, crd):
    kept, offset = slice_and_offset(crd, layout)
    assert [i + offset for i in bf.table(kept)] == sliced_values(layout, crd)
    assert slice_(crd, layout) == kept == layout(crd)
    return kept


@given(st.data(), LAYOUTS)
def test_a_slice_and_its_offset_are_the_function(data, layout):
    crd = data.draw(lst.slice_coordinates(layout))
    kept = check_slice(layout, crd)
    assert kept.shape == slice_(crd, layout.shape)
    assert dice(crd, layout).shape == dice(crd, layout.shape)


@given(st.data(), lst.layouts(compact=True, powers_of_two=True), lst.swizzles(max_base=2))
def test_a_slice_under_a_swizzle_and_its_offset_are_the_function(data, layout, swizzle):
    composed = ComposedLayout(swizzle, 0, layout)
    check_slice(composed, data.draw(lst.slice_coordinates(composed)))


@given(st.data(), lst.layouts(injective=True, powers_of_two=True), lst.swizzles(max_base=2), st.integers(0, 4))
def test_a_slice_under_a_swizzle_with_an_aligned_offset(data, layout, swizzle, rows):
    offset = rows * max(swizzle.size(), 1 << (layout.cosize() - 1).bit_length())
    composed = ComposedLayout(swizzle, offset, layout)
    kept, rest = slice_and_offset(crd := data.draw(lst.slice_coordinates(composed)), composed)
    assert [i + rest for i in bf.table(kept)] == sliced_values(composed, crd)


def test_a_slice_that_no_swizzled_bit_crosses_is_a_plain_layout_with_signed_strides():
    rows = ComposedLayout(Swizzle(3, 0, 3), 0, Layout((8, 8)))
    signed = 0
    for row in range(8):
        kept, offset = slice_and_offset((None, row), rows)
        assert isinstance(kept, Layout)
        assert [offset + i for i in bf.table(kept)] == [bf.swizzle(Swizzle(3, 0, 3), 8 * row + i) for i in range(8)]
        signed += any(d < 0 for _, d in bf.modes(kept))
    assert signed == 7


@given(st.data(), lst.layouts(max_size=16), st.integers(0, 8), lst.layouts())
def test_a_slice_under_a_plain_layout_moves_the_offset_inside(data, outer, offset, inner):
    composed = ComposedLayout(outer, offset, inner)
    check_slice(composed, data.draw(lst.slice_coordinates(composed)))


@given(lst.composed_layouts(nested=True, pointers=True))
def test_a_slice_that_keeps_all_changes_nothing(layout):
    kept, offset = slice_and_offset(None, layout)
    assert offset == 0
    assert [kept(i) for i in range(kept.size())] == [layout(i) for i in range(layout.size())]


@given(st.data(), LAYOUTS | lst.composed_layouts())
def test_domain_offset_moves_the_origin(data, layout):
    crd = data.draw(lst.coordinates(layout))
    moved, offset = domain_offset(crd, layout)
    inner = layout.layoutA if isinstance(layout, ComposedLayout) else layout
    start = bf.table(inner)[Layout(layout.shape)(crd)]
    if isinstance(layout, Layout):
        assert (moved, offset) == (layout, start)
    else:
        expected = ComposedLayout(layout.layoutB, layout.offset + start, inner)
        assert offset == 0
        assert bf.table(moved) == bf.table(expected)


# ---------------------------------------------------------------------------------------------------------------------
# Single cases
# ---------------------------------------------------------------------------------------------------------------------

SWIZZLED = ComposedLayout(Swizzle(1, 0, 1), 0, Layout((4, 8)))


@pytest.mark.parametrize(
    "call",
    [
        lambda: get((4, (2, 8)), 1, 2),
        lambda: rank(Layout(4), 1),
        lambda: stride(SWIZZLED),
        lambda: take(Layout((4, 8)), 1, 1),
        lambda: group((4, 8), 1, 3),
        lambda: append((4, 8), 1, 2),
        lambda: append(Layout((4, 8)), 1),
        lambda: append((4, 8)),
        lambda: replace((4, 8), 2, 1),
        lambda: replace(4, 1, 1),
        lambda: unflatten(Layout((4, 8)), (0, (0, 0))),
        lambda: zip_modes(((1, 2), 3)),
        lambda: slice_((0, 0, None), Layout((4, 8))),
        lambda: filter_zeros(Layout((4, 8)), (0, 0, 0)),
    ],
)
def test_operands_that_do_not_fit(call):
    with refuses(LayoutError):
        call()


@pytest.mark.parametrize("change", [append, prepend])
def test_what_is_added_must_be_of_the_same_kind(change):
    with refuses(TypeError):
        change(Layout(4), (4, 2))
    with refuses(TypeError):
        change((4, 2), Layout(4))
    with refuses(TypeError):
        replace(Layout(4), 0, 4)


def test_swizzles_and_bases():
    assert (size(Swizzle(2, 0, 3)), cosize(Swizzle(2, 0, 3))) == (32, 32)
    assert (size(SWIZZLED), cosize(SWIZZLED), rank(SWIZZLED, 1), depth(SWIZZLED)) == (32, 32, 1, 1)
    assert coprofile(Layout((4, 2), (ScaledBasis(1, (0, 1)), ScaledBasis(3, (1,))))) == ((0, 0), 0)
    assert list(SWIZZLED)[1] == SWIZZLED[1] == get(SWIZZLED, 1)
    assert zip_modes(()) == ()
    assert zip_modes((1, 2)) == ((1, 2),)


@pytest.mark.parametrize("extend", [append, prepend])
def test_an_element_to_add_is_required(extend):
    with refuses(LayoutError):
        extend((4, 8))


def test_two_operands_are_zipped_as_a_pair():
    assert zip_modes((1, 2), (3, 4)) == zip_modes(((1, 2), (3, 4))) == ((1, 3), (2, 4))
    assert zip_modes(Layout((4, 2)), Layout((3, 5))) == Layout(((4, 3), (2, 5)), ((1, 1), (4, 3)))


def test_ranges_of_modes_at_their_limits():
    layout = Layout((4, 2, 8))
    assert [take((4, 2, 8), 0, end) for end in (1, 2, 3, -1)] == [(4,), (4, 2), (4, 2, 8), (4, 2, 8)]
    assert take(layout, 0, 2) == Layout((4, 2))
    for x, begin, end in ((layout, 0, -1), (layout, 1, 1), (layout, 0, 4), ((4, 2), -1, 1), ((4, 2), 0, 3)):
        with refuses(LayoutError):
            take(x, begin, end)
    for begin, end in ((-1, 1), (2, 1), (0, 4)):
        with refuses(LayoutError):
            group(layout, begin, end)
    assert group((4, 2, 8), 0, -1) == ((4, 2, 8),)
