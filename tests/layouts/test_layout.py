"""Layout: a function of coordinates, an immutable value, and its constructors."""

import copy
import pickle

import pytest
from hypothesis import given, strategies as st

from cutepy.layouts import (
    ComposedLayout,
    Layout,
    LayoutError,
    ScaledBasis,
    SmemPtr,
    Swizzle,
    append,
    coalesce,
    composition,
    coprofile,
    coshape,
    cosize,
    crd2idx,
    depth,
    flatten,
    get_1d_coord,
    get_flat_coord,
    get_hier_coord,
    group,
    idx2crd,
    is_layout,
    make_fragment_like,
    make_identity_layout,
    make_layout,
    make_layout_left,
    make_layout_like,
    make_layout_right,
    make_ordered_layout,
    parse,
    prepend,
    rank,
    select,
    shape,
    size,
    slice_,
    stride,
    take,
    to_text,
    transform_layout,
)
from cutepy.testing import strategies as lst
from tests.layouts import brute_force as bf
from tests.messages import refuses


def check_a_layout_maps_integers_and_coordinates_to_the_inner_product(layout):
    assert [layout(i) for i in range(layout.size())] == bf.table(layout)
    assert [layout(c) for c in bf.coordinates(layout.shape)] == bf.table(layout)


def check_scaled_bases_add_up_to_coordinates(layout):
    assert [bf.coordinate_entries(layout(i)) for i in range(layout.size())] == bf.basis_table(layout)


@given(lst.layouts())
def test_separate_arguments_are_a_coordinate(layout):
    for crd in bf.coordinates(layout.shape):
        if isinstance(crd, tuple) and len(crd) > 1:
            assert layout(*crd) == layout(crd)


def check_size_cosize_rank_depth(layout):
    values = bf.table(Layout(layout.shape, abs_strides(layout.stride)))
    assert layout.size() == size(layout) == len(values)
    assert layout.cosize() == cosize(layout) == max(values) + 1 == coshape(layout)
    assert layout.rank() == rank(layout) == len(layout) == len(list(layout))
    assert layout.depth() == depth(layout) == depth(layout.shape)
    assert (shape(layout), stride(layout)) == (layout.shape, layout.stride)
    assert coprofile(layout) == 0


def abs_strides(t):
    return tuple(map(abs_strides, t)) if isinstance(t, tuple) else abs(t)


def check_coshape_of_scaled_bases_bounds_every_coordinate(layout):
    reach = bf.coordinate_entries(coshape(layout))
    values = bf.basis_table(layout)
    paths = {path for value in values for path in value}
    for path in paths:
        assert reach[path] == 1 + max(value.get(path, 0) for value in values)
    assert all(extent == 1 for path, extent in reach.items() if path not in paths)
    assert set(map(len, reach)) <= {1, 2}


@given(lst.basis_layouts())
def test_any_layout_of_bases(layout):
    check_scaled_bases_add_up_to_coordinates(layout)
    check_coshape_of_scaled_bases_bounds_every_coordinate(layout)


def check_modes_by_index_iteration_and_slice(layout):
    modes = list(layout)
    assert modes == [layout[i] for i in range(len(layout))]
    assert make_layout(*modes) == make_layout(modes) == make_layout(iter(modes))
    assert bf.table(make_layout(*modes)) == bf.table(layout)
    assert layout[-1] == modes[-1]
    if isinstance(layout.shape, tuple):
        assert make_layout(*modes) == layout
        assert list(layout[1:]) == modes[1:]


@given(lst.layouts(signed=True))
def test_any_layout(layout):
    check_a_layout_maps_integers_and_coordinates_to_the_inner_product(layout)
    check_size_cosize_rank_depth(layout)
    check_modes_by_index_iteration_and_slice(layout)


NAMES = {cls.__name__: cls for cls in (ComposedLayout, Layout, ScaledBasis, SmemPtr, Swizzle)}


@given(lst.any_layouts())
def test_layouts_are_values(layout):
    same = parse(to_text(layout))
    assert same == layout
    assert hash(same) == hash(layout)
    assert not same != layout
    assert pickle.loads(pickle.dumps(layout)) == layout
    assert copy.copy(layout) == layout
    assert copy.deepcopy(layout) == layout
    assert eval(repr(layout), NAMES) == layout
    assert str(layout) == to_text(layout)
    assert is_layout(layout)
    assert {layout: 1}[same] == 1
    for name in ("shape", "layoutA", "anything"):
        with pytest.raises(AttributeError):
            setattr(layout, name, 1)
    with pytest.raises(AttributeError):
        del layout.offset


@given(lst.layouts(), lst.layouts())
def test_equality_is_that_of_shape_and_stride(a, b):
    assert (a == b) == ((a.shape, a.stride) == (b.shape, b.stride))
    assert a != (a.shape, a.stride)
    assert a != ComposedLayout(Swizzle(0, 0, 0), 0, a)


@given(st.data(), lst.layouts(signed=True))
def test_a_slice_plus_the_fixed_part_is_the_function(data, layout):
    crd = data.draw(lst.slice_coordinates(layout))
    kept = layout(crd)
    fixed = layout(zeros_for_none(crd))
    free = [c for c in bf.coordinates(layout.shape) if fits(c, crd, layout.shape)]
    assert [fixed + i for i in bf.table(kept)] == [bf.at(layout.shape, layout.stride, c) for c in free]


def zeros_for_none(crd):
    return tuple(map(zeros_for_none, crd)) if isinstance(crd, tuple) else (0 if crd is None else crd)


def fits(full, crd, shape):
    """Return True if the coordinate `full` of the whole nesting agrees with `crd` where that is not None."""
    if crd is None:
        return True
    if isinstance(crd, tuple):
        return all(fits(*row) for row in zip(full, crd, shape, strict=True))
    return bf.coordinates(shape)[crd] == full


def check_default_strides_are_column_major(shape):
    assert bf.table(Layout(shape)) == list(range(bf.size(shape)))
    assert Layout(shape) == make_layout(shape) == make_layout_left(shape)


def check_row_major_is_column_major_read_backwards(shape):
    def mirrored(t):
        return tuple(map(mirrored, reversed(t))) if isinstance(t, tuple) else t

    assert mirrored(make_layout_right(shape).stride) == make_layout_left(mirrored(shape)).stride


@given(st.data(), lst.shapes(max_depth=1))
def test_ordered_layouts_are_compact_and_ordered(data, shape):
    order = tuple(data.draw(st.permutations(range(len(bf.leaves(shape))))))
    layout = make_ordered_layout(shape, order if isinstance(shape, tuple) else 0)
    assert sorted(bf.table(layout)) == list(range(layout.size()))
    large = [(o, d) for o, (s, d) in zip(order, bf.modes(layout), strict=True) if s > 1]
    assert [d for _, d in sorted(large)] == sorted(d for _, d in large)


@given(lst.layouts(injective=True, zero_strides=True))
def test_a_layout_like_another_is_compact_in_its_order(layout):
    like = make_layout_like(layout)
    assert like.shape == layout.shape
    pairs = [(old, new) for (s, old), (_, new) in zip(bf.modes(layout), bf.modes(like), strict=True) if s > 1 and old]
    assert sorted(pairs) == sorted(pairs, key=lambda pair: pair[1])
    assert set(bf.table(like)) == set(range(len(set(bf.table(layout)))))
    assert all(new == 0 for old, new in zip(bf.leaves(layout.stride), bf.leaves(like.stride), strict=True) if not old)


@given(lst.layouts(injective=True))
def test_a_fragment_is_compact_with_its_first_mode_fastest(layout):
    fragment = make_fragment_like(layout)
    assert fragment.size() == layout.size()
    assert sorted(bf.table(fragment)) == list(range(layout.size()))
    assert bf.table(fragment[0]) == list(range(layout[0].size()))
    assert make_fragment_like(ComposedLayout(Swizzle(1, 0, 1), 0, layout)) == fragment


def check_the_identity_layout_maps_coordinates_to_themselves(shape):
    identity = make_identity_layout(shape)
    assert [identity(i) for i in range(bf.size(shape))] == bf.coordinates(shape)
    assert [identity(c) for c in bf.coordinates(shape)] == bf.coordinates(shape)


@given(lst.shapes())
def test_layouts_of_any_shape(shape):
    check_default_strides_are_column_major(shape)
    check_row_major_is_column_major_read_backwards(shape)
    check_the_identity_layout_maps_coordinates_to_themselves(shape)


@given(lst.layouts(compact=True))
def test_coordinates_of_an_index_of_a_compact_layout(layout):
    for i, (crd, idx) in enumerate(zip(bf.coordinates(layout.shape), bf.table(layout), strict=True)):
        assert layout.get_hier_coord(idx) == get_hier_coord(layout, idx) == crd
        assert layout.get_1d_coord(idx) == get_1d_coord(layout, idx) == i
        flat = layout.get_flat_coord(idx)
        assert flat == get_flat_coord(layout, idx)
        assert layout(flat) == idx
        assert not any(isinstance(c, tuple) for c in (flat if isinstance(flat, tuple) else (flat,)))


def test_operands_become_plain_integers_and_tuples():
    class Index:
        def __index__(self):
            return 4

    class Shape(tuple):
        __slots__ = ()

    layout = Layout(Shape((Index(), 2)), (1, Index()))
    assert (type(layout.shape), layout.shape, layout.stride) == (tuple, (4, 2), (1, 4))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: Layout((4, 8), (1, (2, 3))), LayoutError),
        (lambda: Layout((4, 8), 1), LayoutError),
        (lambda: Layout((4, 8), (1, (2,))), LayoutError),
        (lambda: Layout((4, (8,)), (1, 2)), LayoutError),
        (lambda: Layout((2, 2), ((1, 2), (3, 4))), LayoutError),
        (lambda: Layout((4, (2, 2)), (1, (1, 2, 3))), LayoutError),
        (lambda: Layout((4, -8)), LayoutError),
        (lambda: Layout((4, -1), (1, 4)), LayoutError),
        (lambda: Layout((-1, 4), (1, 2)), LayoutError),
        (lambda: Layout((-1,), (1,)), LayoutError),
        (lambda: Layout((-1, -2), (1, 1)), LayoutError),
        (lambda: Layout((4, (2, -1)), (1, (1, 2))), LayoutError),
        (lambda: Layout(-1, 2), LayoutError),
        (lambda: Layout(True), TypeError),
        (lambda: Layout((4, None)), TypeError),
        (lambda: Layout((4,), (1.0,)), TypeError),
        (lambda: Layout((4, 8), (1, 2.0)), TypeError),
        (lambda: Layout(ScaledBasis(1, (0,))), TypeError),
        (lambda: make_layout(), LayoutError),
        (lambda: make_layout([]), LayoutError),
        (lambda: make_layout(4, 1, 2), LayoutError),
        (lambda: make_layout(Layout(4), 3), TypeError),
        (lambda: make_ordered_layout((2, 3), (1, 2, 3)), LayoutError),
        (lambda: Layout((4, 2))(1, 2, 3), LayoutError),
        (lambda: stride(ComposedLayout(Swizzle(1, 0, 1), 0, Layout(4))), LayoutError),
    ],
)
def test_operands_that_do_not_fit(call, error):
    with refuses(error):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: Layout((4, 8))(1.5),
        lambda: Layout((4, 8))(1, "x"),
        lambda: Layout(4)("x"),
        lambda: crd2idx("x", 4),
        lambda: idx2crd(0.5, (4, 8), (1, 4)),
        lambda: slice_("x", Layout(4)),
        lambda: size("x"),
        lambda: cosize(4),
        lambda: make_layout_like(4),
    ],
)
def test_operands_of_another_type_are_named(call):
    with refuses(TypeError):
        call()


def test_a_mode_that_is_not_there_is_an_index_error():
    with refuses(IndexError):
        Layout((4, 8))[2]
    with refuses(IndexError):
        Layout(4)[1]


def test_flattening_a_flat_layout_gives_it_back():
    layout = Layout((4, 8), (8, 1))
    assert flatten(layout) is layout


def test_transform_layout_maps_modes_and_keeps_what_is_left():
    pairs = Layout(((2, 3), (4, 5)))
    assert transform_layout(coalesce, pairs) == Layout((6, 20), (1, 6))
    assert transform_layout(composition, pairs, (Layout(2),)) == Layout((2, (4, 5)), (1, (6, 24)))
    assert transform_layout(composition, pairs[:1], (Layout(2), Layout(7, 3))) == Layout((2, 7), (1, 3))


def test_make_layout_of_a_swizzle_and_by_keyword():
    assert str(make_layout(Swizzle(1, 0, 1))) == "Sw<1,0,1> o 0 o 4:1"
    assert make_layout((4, 8), stride=(8, 1)) == Layout((4, 8), (8, 1))


def test_methods_on_modes_are_the_functions():
    layout = Layout((4, (2, 8), 3), (2, (1, 8), 64))
    swizzled = ComposedLayout(Swizzle(2, 0, 3), 0, layout)
    extra = Layout(5, 7)
    for x in (layout, swizzled):
        assert x.flatten() == flatten(x)
        assert x.take(1, 3) == take(x, 1, 3)
        assert x.select(2, 0) == select(x, (2, 0))
        assert x.group(0, 2) == group(x, 0, 2)
        assert (x.append(extra), x.append(5)) == (append(x, extra), append(x, 5))
        assert (x.prepend(extra), x.prepend(5, extra)) == (prepend(x, extra), prepend(x, 5, extra))


def test_extents_may_be_zero_in_any_form():
    for layout in (Layout(0), Layout(0, 3), Layout((0, 4)), Layout((4, 0), (1, 4)), Layout((4, (0, 2)), (1, (4, 8)))):
        assert layout.size() == 0
    assert Layout(()).shape == ()


def test_the_codomain_counts_strides_by_magnitude():
    assert [Layout((4, 2), d).cosize() for d in ((1, 4), (-1, 4), (1, -4), (-1, -4))] == [8] * 4
    assert Layout((4, 2), (0, -1)).cosize() == 2


def test_a_mode_of_stride_zero_beside_a_basis_adds_nothing_to_the_codomain():
    layout = Layout((4, 2), (ScaledBasis(1, (0,)), 0))
    assert (layout.coshape(), layout.cosize()) == ((4,), 4)


def test_with_shape_takes_a_shape_or_its_modes():
    layout = Layout((8, 2), (2, 1))
    assert layout.with_shape(4) == composition(layout, Layout(4))
    assert layout.with_shape((4, 4)) == layout.with_shape(4, 4) == composition(layout, Layout((4, 4)))


def test_methods_forward_to_the_algebra():
    layout = Layout((4, 8), (8, 1))
    assert str(layout.compose(Layout(4, 2))) == "(2,2):(16,1)"
    assert str(layout.compose(2, 4)) == "(2,4):(8,1)"
    assert str(layout.with_shape(2, 16)) == "(2,(2,8)):(8,(16,1))"
    assert str(layout.tile(2, 4)) == "((2,4),2,2):((8,1),16,4)"
