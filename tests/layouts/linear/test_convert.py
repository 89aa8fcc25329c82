"""Conversion from and to CuTe's layouts is exact, and refuses exactly what is not linear."""

import pytest
from hypothesis import given, strategies as st

from cutepy.layouts import (
    ComposedLayout,
    Layout,
    LayoutError,
    SmemPtr,
    composition,
    make_identity_layout,
    parse,
    sm90,
    tile_to_shape,
)
from cutepy.layouts.linear import LinearLayout, to_layout, to_linear
from cutepy.testing import strategies as lst
from tests.layouts.linear.drawing import linear_layouts
from tests.messages import refuses

EXTENTS = st.sampled_from([1, 2, 4, 8])
STRIDES = st.one_of(st.sampled_from([0, 1, 2, 4, 8, 16, 32, 64]), st.integers(0, 40))


@st.composite
def power_layouts(draw):
    """Layouts of extents of powers of two, nested at times."""
    modes = draw(st.lists(st.lists(st.tuples(EXTENTS, STRIDES), min_size=1, max_size=2), min_size=1, max_size=3))
    shape = tuple(tuple(e for e, _ in mode) if len(mode) > 1 else mode[0][0] for mode in modes)
    stride = tuple(tuple(d for _, d in mode) if len(mode) > 1 else mode[0][1] for mode in modes)
    return Layout(shape, stride)


def first_failure(layout):
    """The smallest input at which a function is not the exclusive or of its values at the input's bits."""
    for x in range(layout.size()):
        total = 0
        for bit in range(x.bit_length()):
            if x >> bit & 1:
                total ^= layout(1 << bit)
        if layout(x) != total:
            return x
    return None


def composed(layout, swizzle, offset):
    return ComposedLayout(swizzle, offset, layout)


@given(power_layouts(), st.none() | lst.swizzles(), st.sampled_from([0, 0, 0, 1, 8]))
def test_what_is_linear_is_converted_exactly_and_the_rest_refused_with_the_smallest_witness(layout, swizzle, offset):
    if swizzle is not None:
        layout = composed(layout, swizzle, offset)
    failure = first_failure(layout)
    if failure is None:
        linear = to_linear(layout)
        assert [linear(x) for x in range(layout.size())] == [layout(x) for x in range(layout.size())]
        assert linear.size() == layout.size()
        return
    with pytest.raises(LayoutError, match=rf"not linear over F2: at {failure}\b"):
        to_linear(layout)


@given(power_layouts(), power_layouts())
def test_functions_of_other_layouts_are_compared_everywhere(inner, outer):
    layout = ComposedLayout(outer, 0, inner)
    failure = first_failure(layout)
    if failure is None:
        assert list(map(to_linear(layout), range(layout.size()))) == list(map(layout, range(layout.size())))
    else:
        with pytest.raises(LayoutError, match=rf"at {failure}\b"):
            to_linear(layout)


@given(lst.swizzles())
def test_swizzles_are_linear(swizzle):
    linear = to_linear(swizzle)
    assert list(linear.in_dims) == list(linear.out_dims) == ["offset"]
    assert linear.is_invertible
    assert linear.invert() == linear
    assert all(linear(i) == swizzle(i) for i in range(0, swizzle.size(), max(1, swizzle.size() // 64)))


@given(linear_layouts())
def test_a_map_becomes_a_layout_of_the_same_function_or_has_common_bits(linear):
    try:
        layout = to_layout(linear)
    except LayoutError as error:
        assert "share bits" in str(error)
        assert any(a & b for i, a in enumerate(linear.columns) for b in linear.columns[:i])
        return
    flat = linear.flatten_outs()
    assert [layout(i) for i in range(layout.size())] == [flat(i) for i in range(flat.size())]
    assert layout.size() == linear.size()
    if len(linear.in_dims) > 1:
        assert [mode.size() for mode in layout] == list(linear.in_dims.values())


@given(power_layouts(), st.none() | lst.swizzles())
def test_there_and_back_is_the_same_function(layout, swizzle):
    if swizzle is not None:
        layout = composed(layout, swizzle, 0)
    try:
        linear = to_linear(layout)
    except LayoutError:
        return
    again = to_layout(linear)
    assert [again(i) for i in range(again.size())] == [layout(i) for i in range(layout.size())]


@pytest.mark.parametrize("mode", ["SW32", "SW64", "SW128"])
@pytest.mark.parametrize("bits", [8, 16, 32])
def test_gmma_tiles_go_there_and_back(mode, bits):
    tile = tile_to_shape(sm90.gmma_layout_atom("K", mode, bits), (64, 1024 // bits))
    linear = to_linear(tile, ["m", "k"], ["offset"])
    assert linear.is_invertible
    assert linear(3, 5) == tile(3, 5)
    again = to_layout(linear)
    assert again.layoutB == tile.layoutB
    assert all(again(i, j) == tile(i, j) for i in range(64) for j in range(0, 1024 // bits, 3))
    pointer = sm90.gmma_layout_atom("K", mode, bits, pointer_swizzle=True)
    assert isinstance(pointer.offset, SmemPtr)
    assert to_linear(pointer) == to_linear(sm90.gmma_layout_atom("K", mode, bits))


def test_a_thread_value_layout_in_triton_s_dimensions():
    """The wgmma accumulator of 64x8, as Triton's linear layout of NVIDIA's version 3."""
    linear = to_linear(
        sm90.accumulator_layout(8), {"lane": 32, "warp": 4, "register": 4}, {"dim0": 64, "dim1": 8}
    ).transpose_ins(["register", "lane", "warp"])
    assert linear.bases == {
        "register": [[0, 1], [8, 0]],
        "lane": [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]],
        "warp": [[16, 0], [32, 0]],
    }
    for thread in (0, 5, 77, 127):
        for value in range(4):
            index = sm90.accumulator_layout(8)(thread, value)
            assert linear(value, thread % 32, thread // 32) == (index % 64, index // 64)


def test_layouts_of_coordinates():
    linear = to_linear(composition(make_identity_layout((8, 4)), Layout((4, 8), (8, 1))), ["thread", "value"])
    assert linear.out_dims == {"dim0": 8, "dim1": 4}
    assert linear(3, 5) == (5, 3)
    named = to_linear(sm90.accumulator_row_layout(4), {"lane": 32}, {"m": 16, "n": 16})
    assert named(17) == (1, 8)


@pytest.mark.parametrize(
    ("layout", "options"),
    [
        (Layout((3, 4)), {}),
        (Layout((4, 4), (-1, 4)), {}),
        (parse("Sw<1,0,2> o 3 o (4,2):(1,4)"), {}),
        (Layout((2, 2), (1, 1)), {}),
        (Layout((2, 2)), {"ins": ["i"]}),
        (Layout((2, 2)), {"outs": ["i", "j"]}),
        (Layout((2, 2)), {"outs": {"x": 2}}),
        (Layout((2, 2)), {"ins": {"x": 8}}),
    ],
)
def test_refusals(layout, options):
    with refuses(LayoutError):
        to_linear(layout, **options)


def test_what_is_no_layout_is_a_type_error():
    with refuses(TypeError):
        to_linear(3)


def test_a_map_that_is_no_layout_is_refused_with_two_inputs():
    with refuses(LayoutError):
        to_layout(LinearLayout({"i": [3, 1, 2]}, ["o"]))
    low = LinearLayout({"i": [3, 1]}, ["o"])
    assert [to_layout(low)(i) for i in range(4)] == [low(i) for i in range(4)] == [0, 3, 1, 2]
    assert to_layout(LinearLayout({"i": []}, ["o"])) == Layout(1, 0)
