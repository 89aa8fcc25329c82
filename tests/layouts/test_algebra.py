"""The layout algebra against tables: coalesce, filter, composition, complement, inverses, nullspace."""

import itertools

import pytest
from hypothesis import given, strategies as st

from cutepy.layouts import (
    ComposedLayout,
    Layout,
    LayoutError,
    Swizzle,
    coalesce,
    compatible,
    complement,
    composition,
    cosize,
    filter as filter_layout,
    filter_zeros,
    left_inverse,
    make_identity_layout,
    make_layout,
    nullspace,
    repeat_like,
    right_inverse,
    transform_layout,
)
from cutepy.testing import strategies as lst
from tests.layouts import brute_force as bf
from tests.messages import refuses

ALL_OF_RANK_2 = list(bf.small_layouts())
INJECTIVE = lst.layouts(injective=True)
INJECTIVE_BUT_FOR_ZEROS = lst.layouts(injective=True, zero_strides=True)


def is_coalesced(layout):
    pairs = bf.modes(layout)
    if pairs == [(1, 0)]:
        return layout.shape == 1
    merges = any(s * d == after for (s, d), (_, after) in itertools.pairwise(pairs))
    flat = layout.shape if isinstance(layout.shape, tuple) else ()
    return not merges and len(flat) != 1 and all(s != 1 for s, _ in pairs) and not any(type(s) is tuple for s in flat)


# ---------------------------------------------------------------------------------------------------------------------
# Coalesce and filter
# ---------------------------------------------------------------------------------------------------------------------


def check_coalesce(layout):
    result = coalesce(layout)
    assert bf.table(result) == bf.table(layout)
    assert is_coalesced(result)
    assert coalesce(result) == result


def check_coalesce_is_the_same_function_of_the_fewest_modes(layout):
    check_coalesce(layout)


def test_coalesce_of_all_small_layouts():
    for layout in bf.small_layouts(max_rank=3, max_extent=3):
        check_coalesce(layout)


@given(lst.layouts(size_zero=True, signed=True), lst.layouts(size_zero=True))
def test_layouts_without_coordinates(layout, other):
    assert bf.table(coalesce(layout)) == bf.table(layout)
    kept = filter_layout(layout)
    assert (kept.size() == 0) == any(s == 0 and d for s, d in bf.modes(layout))
    try:
        result = composition(layout, other)
    except LayoutError:
        return
    assert result.size() == other.size()
    if not other.size():
        assert composition(layout, other, exact=True) == result


def check_coalesce_by_its_own_profile_keeps_every_coordinate(layout):
    result = coalesce(layout, layout.shape)
    assert bf.congruent(result.shape, layout.shape)
    assert bf.table(result) == bf.table(layout)
    assert all(d == 0 for s, d in bf.modes(result) if s == 1)


def check_coalesce_by_mode_coalesces_each_mode(layout):
    result = coalesce(layout, (1,) * layout.rank())
    assert [result[i] for i in range(result.rank())] == [coalesce(mode) for mode in layout]
    assert list(coalesce(layout, (1,))) == [coalesce(layout[0]), *list(layout)[1:]]


@given(lst.composed_layouts(nested=True))
def test_coalesce_of_a_composed_layout_keeps_the_function(layout):
    assert bf.table(coalesce(layout)) == bf.table(layout)


@given(lst.shapes())
def test_coalesce_of_a_shape_is_its_size(shape):
    assert coalesce(shape) == bf.size(shape)


def check_filter_keeps_each_index_once(layout):
    result = filter_layout(layout)
    assert sorted(bf.table(result)) == sorted(set(bf.table(layout)))
    assert is_coalesced(result)
    assert filter_layout(result) == result


def check_filter_drops_nothing_but_repetition(layout):
    kept = [(s, d) for s, d in bf.modes(layout) if d != 0]
    result = filter_layout(layout)
    assert bf.table(result) == bf.mode_table(kept)
    assert all(d != 0 for s, d in bf.modes(result) if s > 1)


@given(lst.layouts(), lst.swizzles())
def test_filter_of_a_composed_layout_filters_its_domain(layout, swizzle):
    composed = ComposedLayout(swizzle, 4, layout)
    ones = (1,) * layout.rank()
    assert filter_layout(composed) == ComposedLayout(swizzle, 4, filter_layout(layout))
    assert filter_layout(composed, ones) == ComposedLayout(swizzle, 4, filter_layout(layout, ones))
    assert filter_zeros(composed) == ComposedLayout(swizzle, 4, filter_zeros(layout))


@given(lst.layouts(), st.integers(0, 3))
def test_filter_zeros_gives_repetitions_size_1(layout, mode):
    result = filter_zeros(layout)
    assert result.stride == layout.stride
    assert bf.leaves(result.shape) == [s if d else 1 for s, d in bf.modes(layout)]
    assert bf.leaves(filter_zeros(layout.stride)) == [d if d else 1 for d in bf.leaves(layout.stride)]
    guide = tuple(int(i != mode) for i in range(layout.rank()))
    if isinstance(layout.shape, tuple):
        for i, (kept, old) in enumerate(zip(filter_zeros(layout, guide), layout, strict=True)):
            assert kept == (Layout(repeat_like(old.shape, 1), old.stride) if i == mode else old)


def check_filter_by_mode_filters_each_mode(layout):
    result = filter_layout(layout, (1,) * layout.rank())
    assert [result[i] for i in range(result.rank())] == [filter_layout(mode) for mode in layout]
    assert list(filter_layout(layout, (1,))) == [filter_layout(layout[0]), *list(layout)[1:]]


@given(lst.layouts(max_depth=1), lst.layouts(max_depth=1))
def test_transform_layout_keeps_the_modes_that_one_has_more(a, b):
    result = transform_layout(make_layout, a, b)
    both = min(a.rank(), b.rank())
    expected = [make_layout(x, y) for x, y in zip(a, b, strict=False)]
    assert list(result) == [*expected, *list(a)[both:], *list(b)[both:]]
    assert list(transform_layout(coalesce, a)) == [coalesce(mode) for mode in a]


# ---------------------------------------------------------------------------------------------------------------------
# Composition
# ---------------------------------------------------------------------------------------------------------------------


def check_composition_is_function_composition(pair):
    a, b = pair
    result = composition(a, b)
    assert bf.table(result) == [bf.extended(a, i) for i in bf.table(b)]
    assert compatible(b, result)
    assert bf.leaves(result.shape).count(1) == bf.leaves(b.shape).count(1)


@given(lst.composable_pairs(lst.layouts(signed=True)))
def test_composition_with_signed_strides_on_the_left(pair):
    a, b = pair
    assert bf.table(composition(a, b)) == [bf.extended(a, i) for i in bf.table(b)]


@given(lst.layouts(), lst.layouts())
def test_composition_is_compatible_with_its_right_operand_wherever_it_exists(a, b):
    try:
        result = composition(a, b)
    except LayoutError:
        return
    assert compatible(b, result)
    assert result(0) == 0


def test_composition_of_a_negative_step_over_a_mode_rounds_up_as_cute():
    assert composition(Layout((2, 4), (1, 5)), Layout(2, -3)) == Layout(2, -10)


def divides(pairs, shape, stride):
    """Return True if the steps ``i * stride`` for ``i < shape`` stay in step with the modes: composition must exist."""
    for extent, _ in pairs[:-1]:
        if stride == 0:
            return True
        if stride % extent == 0:
            stride //= extent
            continue
        if extent % stride:
            return False
        reach = extent // stride
        if shape <= reach:
            return True
        if shape % reach:
            return False
        shape, stride = shape // reach, 1
    return True


def test_composition_of_all_small_layouts():
    checked = 0
    for a in ALL_OF_RANK_2:
        pairs = bf.modes(a)
        for shape, stride in itertools.product(range(1, 7), range(7)):
            if divides(pairs, shape, stride):
                result = composition(a, Layout(shape, stride))
                assert bf.table(result) == [bf.extended(a, i * stride) for i in range(shape)]
                checked += 1
    assert checked > 10_000


def check_composition_with_the_identity_changes_nothing(layout):
    assert bf.table(composition(layout, Layout(layout.shape))) == bf.table(layout)
    assert composition(layout, None) is layout
    reach = max(bf.table(layout))
    if min(bf.table(layout)) >= 0:
        assert bf.table(composition(Layout(reach + 1), layout)) == bf.table(layout)


def check_composition_with_the_identity_of_coordinates_changes_nothing(layout):
    result = composition(layout, make_identity_layout(layout.shape))
    assert result.shape == layout.shape
    assert bf.table(result) == bf.table(layout)


@given(lst.layouts(signed=True))
def test_any_layout(layout):
    check_coalesce_is_the_same_function_of_the_fewest_modes(layout)
    check_coalesce_by_its_own_profile_keeps_every_coordinate(layout)
    check_coalesce_by_mode_coalesces_each_mode(layout)
    check_filter_drops_nothing_but_repetition(layout)
    check_composition_with_the_identity_changes_nothing(layout)
    check_composition_with_the_identity_of_coordinates_changes_nothing(layout)


@given(st.data(), lst.layouts(powers_of_two=True))
def test_composition_is_associative(data, a):
    b = data.draw(lst.tiler_layouts(a))
    c = data.draw(lst.tiler_layouts(b))
    left, right = composition(composition(a, b), c), composition(a, composition(b, c))
    assert bf.table(left) == bf.table(right) == [bf.extended(a, bf.table(b)[i]) for i in bf.table(c)]


def check_composition_distributes_over_the_modes_of_its_right_operand(pair):
    a, b = pair
    modes = [composition(a, mode) for mode in b]
    assert composition(a, b) == (make_layout(*modes) if isinstance(b.shape, tuple) else modes[0])


@given(lst.composable_pairs())
def test_compositions(pair):
    check_composition_is_function_composition(pair)
    check_composition_distributes_over_the_modes_of_its_right_operand(pair)


@given(st.data(), lst.layouts(signed=True))
def test_composition_with_a_tuple_acts_mode_by_mode(data, layout):
    tilers = tuple(data.draw(lst.tiler_layouts(mode) | st.none()) for mode in layout)
    result = composition(layout, tilers)
    expected = [mode if t is None else composition(mode, t) for mode, t in zip(layout, tilers, strict=True)]
    assert list(result) == expected
    assert list(composition(layout, tilers[:1])) == expected[:1]


@given(lst.layouts(signed=True), st.integers(1, 4))
def test_composition_with_an_integer_is_that_with_a_compact_layout(layout, n):
    try:
        expected = composition(layout, Layout(n, 1))
    except LayoutError:
        with pytest.raises(LayoutError):
            composition(layout, n)
    else:
        assert composition(layout, n) == expected


@given(lst.swizzles(), lst.layouts())
def test_composition_of_a_swizzle_and_a_layout(swizzle, layout):
    assert bf.table(composition(swizzle, layout)) == [bf.swizzle(swizzle, i) for i in bf.table(layout)]


def fields(swizzle):
    """The swizzle's domain as a shape: kept bits, a mask, the bits between, the other mask.

    A layout that keeps each of them whole carries the swizzle over. One that reorders the bits within a mask does not,
    and neither CuTe nor we notice.
    """
    mask = 1 << swizzle.bits
    return 1 << swizzle.base, mask, 1 << abs(swizzle.shift) - swizzle.bits, mask


@given(st.data(), lst.swizzles())
def test_composition_of_a_layout_and_a_swizzle_moves_the_swizzle_left(data, swizzle):
    layout = data.draw(lst.layouts(fields(swizzle), compact=True))
    result = composition(layout, swizzle)
    assert bf.table(result) == [bf.extended(layout, bf.swizzle(swizzle, i)) for i in range(layout.size())]


@given(lst.composed_layouts(), st.data())
def test_composition_of_a_composed_layout_composes_its_domain(layout, data):
    _, b = data.draw(lst.composable_pairs(st.just(layout.layoutA)))
    assert bf.table(composition(layout, b)) == [bf.extended(layout, i) for i in bf.table(b)]


@given(st.data())
def test_composition_of_swizzles_of_one_shift(data):
    shift, base = data.draw(st.integers(4, 6)), data.draw(st.integers(0, 3))
    split = data.draw(st.integers(1, 3))
    low, high = Swizzle(split, base, shift), Swizzle(4 - split, base + split, shift)
    both = composition(low, high)
    assert [both(i) for i in range(both.size())] == [bf.swizzle(low, bf.swizzle(high, i)) for i in range(both.size())]


# ---------------------------------------------------------------------------------------------------------------------
# Complement
# ---------------------------------------------------------------------------------------------------------------------


def check_complement(layout, cotarget):
    rest = complement(layout, cotarget)
    mine, free = sorted(set(bf.table(layout))), bf.table(rest)
    assert set(mine) & set(free) == {0}
    assert free == sorted(set(free))
    assert len({i + r for i in mine for r in free}) == len(mine) * len(free)
    return rest, {i + r for i in mine for r in free}


def check_complement_is_disjoint_ordered_and_completes(layout, cotarget):
    rest, reached = check_complement(layout, cotarget)
    assert reached >= set(range(cotarget))
    assert cosize(make_layout(layout, rest)) >= cotarget


def check_complement_is_the_greedy_tiling_of_the_indices(layout, cotarget):
    free = bf.table(complement(layout, cotarget))
    assert free == bf.greedy_complement(set(bf.table(layout)), len(free))


@given(INJECTIVE_BUT_FOR_ZEROS, st.integers(1, 200))
def test_complements(layout, cotarget):
    check_complement_is_disjoint_ordered_and_completes(layout, cotarget)
    check_complement_is_the_greedy_tiling_of_the_indices(layout, cotarget)


def test_complement_of_all_small_layouts():
    for layout in ALL_OF_RANK_2:
        for cotarget in (1, 12, 20):
            try:
                complement(layout, cotarget)
            except LayoutError as error:
                assert "injective" in str(error)
                ordered = sorted((d, s) for s, d in bf.modes(coalesce(layout)) if d)
                assert any(d * s > after for (d, s), (after, _) in itertools.pairwise(ordered))
            else:
                check_complement(layout, cotarget)


def overlaps(layout):
    """Return True if an index occurs twice, apart from modes of stride 0."""
    found = bf.mode_table([(s, d) for s, d in bf.modes(layout) if d])
    return len(set(found)) < len(found)


def test_complement_fills_everything_exactly_where_strides_are_multiples():
    seen = {True: 0, False: 0}
    for layout in bf.small_layouts(max_extent=3, strides=range(10)):
        try:
            rest = complement(layout, 60)
        except LayoutError:
            continue
        reached, multiples = 1, True
        for d, s in sorted((d, s) for s, d in bf.modes(coalesce(layout)) if d and s > 1):
            multiples &= d % reached == 0
            reached = s * d
        sums = sorted(x + y for x in set(bf.table(layout)) for y in bf.table(rest))
        assert len(set(sums)) == len(sums)
        assert (set(range(60)) <= set(sums)) == multiples
        seen[multiples] += 1
    assert min(seen.values()) > 50


@given(lst.layouts(compact=True), st.integers(1, 8))
def test_complement_of_a_compact_layout_counts_its_copies(layout, copies):
    rest = complement(layout, layout.size() * copies)
    assert bf.table(rest) == [layout.size() * i for i in range(copies)]


def check_complement_of_the_complement_fills_the_same_indices(layout):
    reach = max(s * d for s, d in bf.modes(layout))
    rest = complement(layout, reach)
    assert sorted(bf.table(complement(rest, reach))) == sorted(bf.table(layout))


def check_complement_without_a_target_fills_the_cosize(layout):
    assert complement(layout) == complement(layout, layout.cosize())
    assert complement(ComposedLayout(Swizzle(1, 0, 1), 3, layout)) == complement(layout)
    assert complement(layout, Layout(100, 2)) == complement(layout, 100)


@given(st.integers(1, 20), st.integers(1, 60))
def test_complement_of_an_integer_is_that_of_a_compact_layout(n, cotarget):
    assert complement(n, cotarget) == complement(Layout(n), cotarget)


# ---------------------------------------------------------------------------------------------------------------------
# Inverses and nullspace
# ---------------------------------------------------------------------------------------------------------------------


def check_right_inverse_is_undone_by_the_layout(layout):
    inverse = right_inverse(layout)
    assert [bf.extended(layout, i) for i in bf.table(inverse)] == list(range(inverse.size()))
    assert is_coalesced(inverse)


def check_right_inverse_reaches_as_far_as_the_indices_are_contiguous(layout):
    indices = set(bf.table(layout))
    missing = next(i for i in itertools.count() if i not in indices)
    assert right_inverse(layout).size() == missing


def test_right_inverse_is_the_largest_of_layouts_that_do_not_overlap():
    seen = 0
    for layout in bf.small_layouts(max_rank=3, max_extent=3, strides=(0, 1, 2, 3, 4, 6)):
        if not overlaps(layout):
            indices = set(bf.table(layout))
            assert right_inverse(layout).size() == next(i for i in itertools.count() if i not in indices)
            seen += 1
    assert seen > 1000


def test_left_inverse_is_a_quasi_inverse_of_layouts_that_do_not_overlap():
    seen = 0
    for layout in bf.small_layouts(max_rank=3, max_extent=3, strides=(0, 1, 2, 3, 4, 6)):
        if overlaps(layout):
            continue
        try:
            inverse = left_inverse(layout)
        except LayoutError:
            continue
        table = bf.table(layout)
        assert [bf.extended(layout, bf.extended(inverse, i)) for i in table] == table
        if len(set(table)) == len(table):
            assert [bf.extended(inverse, i) for i in table] == list(range(len(table)))
        seen += 1
    assert seen > 1000


def test_inverses_take_equal_strides_in_the_order_of_cute():
    assert right_inverse(Layout((2, 3), (1, 1))) == Layout(2, 1)
    assert right_inverse(Layout((3, 2, 2), (2, 2, 1))) == Layout((2, 2), (6, 3))


def check_left_inverse_undoes_an_injective_layout(layout):
    inverse = left_inverse(layout)
    assert [bf.extended(inverse, i) for i in bf.table(layout)] == list(range(layout.size()))
    assert inverse.size() >= layout.cosize()


@given(INJECTIVE)
def test_injective_layouts(layout):
    check_complement_of_the_complement_fills_the_same_indices(layout)
    check_complement_without_a_target_fills_the_cosize(layout)
    check_left_inverse_undoes_an_injective_layout(layout)


def check_left_inverse_is_a_quasi_inverse(layout):
    inverse = left_inverse(layout)
    table = bf.table(layout)
    assert [bf.extended(layout, bf.extended(inverse, i)) for i in table] == table


@given(lst.layouts(compact=True))
def test_both_inverses_of_a_bijection_are_its_inverse(layout):
    expected = [bf.table(layout).index(i) for i in range(layout.size())]
    assert bf.table(right_inverse(layout)) == expected
    assert bf.table(left_inverse(layout)) == expected
    assert bf.table(right_inverse(right_inverse(layout))) == bf.table(layout)


def test_inverses_of_all_small_layouts():
    for layout in ALL_OF_RANK_2:
        inverse = right_inverse(layout)
        assert [bf.extended(layout, i) for i in bf.table(inverse)] == list(range(inverse.size()))
        values = bf.table(layout)
        if len(set(values)) == len(values):
            try:
                inverse = left_inverse(layout)
            except LayoutError as error:
                assert "must be a multiple of" in str(error)
            else:
                assert [bf.extended(inverse, i) for i in values] == list(range(len(values)))


@given(st.data(), lst.swizzles(max_base=2))
def test_inverses_of_a_swizzled_bijection(data, swizzle):
    kept = data.draw(lst.layouts(fields(swizzle), compact=True))
    places = Layout(kept.shape).stride
    by_stride = sorted(zip(kept.stride, kept.shape, places, strict=True))
    layout = Layout(tuple(s for _, s, _ in by_stride), tuple(place for _, _, place in by_stride))
    swizzled = composition(swizzle, layout)
    for invert in (left_inverse, right_inverse):
        inverse = invert(swizzled)
        assert [bf.extended(inverse, i) for i in bf.table(swizzled)] == list(range(layout.size()))


@given(lst.layouts(compact=True, powers_of_two=True), lst.swizzles(), st.integers(1, 32))
def test_left_inverse_of_a_composed_layout_with_an_offset(layout, swizzle, offset):
    composed = ComposedLayout(swizzle, offset, layout)
    inverse = left_inverse(composed)
    assert [inverse(i) for i in bf.table(composed)] == list(range(layout.size()))


def check_nullspace_holds_the_coordinates_that_map_to_zero(layout):
    null = nullspace(layout)
    indices = bf.table(null)
    assert all(bf.extended(layout, i) == 0 for i in indices)
    assert len(set(indices)) == len(indices)
    if all(d or s == 1 for s, d in bf.modes(layout)):
        assert null.size() == 1


@given(lst.layouts())
def test_layouts_without_negative_strides(layout):
    check_filter_by_mode_filters_each_mode(layout)
    check_right_inverse_is_undone_by_the_layout(layout)
    check_nullspace_holds_the_coordinates_that_map_to_zero(layout)


def check_nullspace_is_all_of_what_maps_to_zero(layout):
    assert sorted(bf.table(nullspace(layout))) == [i for i, value in enumerate(bf.table(layout)) if value == 0]


@given(INJECTIVE_BUT_FOR_ZEROS)
def test_layouts_that_are_injective_but_for_zeros(layout):
    check_filter_keeps_each_index_once(layout)
    check_right_inverse_reaches_as_far_as_the_indices_are_contiguous(layout)
    check_left_inverse_is_a_quasi_inverse(layout)
    check_nullspace_is_all_of_what_maps_to_zero(layout)


# ---------------------------------------------------------------------------------------------------------------------
# Single cases
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("invert", [left_inverse, right_inverse])
def test_inverses_of_what_is_its_own_inverse(invert):
    assert invert(None) is None
    assert invert(Swizzle(2, 0, 3)) == Swizzle(2, 0, 3)
    assert invert(4) == Layout(4)


@pytest.mark.parametrize(
    "call",
    [
        lambda: composition(Layout((8, 8), (8, 1)), Layout(4, 3)),
        lambda: composition(Layout((6, 8), (8, 1)), Layout(4, 9)),
        lambda: composition(Layout((4, 4), (1, 5)), (2, 2, 2)),
        lambda: composition(Swizzle(1, 0, 1), Swizzle(1, 0, 2)),
        lambda: composition(Layout(8), ComposedLayout(Swizzle(1, 0, 1), 3, Layout(8))),
        lambda: complement(Layout((4, 4), (1, 2)), 20),
        lambda: complement(make_identity_layout((4, 4)), 20),
        lambda: left_inverse(Layout((5, 6), (12, 8))),
        lambda: right_inverse(make_identity_layout((4, 4))),
        lambda: coalesce(Layout((4, 4)), (1, 1, 1)),
    ],
)
def test_operands_that_do_not_fit(call):
    with refuses(LayoutError):
        call()


@pytest.mark.parametrize("function", [coalesce, complement, composition, filter_layout, left_inverse, nullspace])
def test_operands_that_are_no_layouts(function):
    operands = ("text", None) if function is composition else ("text",)
    with refuses(TypeError):
        function(*operands)


def test_profiles_keep_their_nesting():
    layout = Layout((2, (1, 6)), (1, (6, 2)))
    assert coalesce(layout, repeat_like(layout.shape, 1)) == Layout((2, (1, 6)), (1, (0, 2)))
    assert coalesce(layout, (1, 1)) == Layout((2, 6), (1, 2))
    assert nullspace(ComposedLayout(Swizzle(1, 0, 1), 0, Layout(4, 0))) == Layout(1, 0)
