"""Composed layouts as functions and as values."""

import copy
import itertools
import pickle

import pytest
from hypothesis import assume, given, strategies as st

from cutepy.layouts import (
    ComposedLayout,
    Layout,
    LayoutError,
    ScaledBasis,
    SmemPtr,
    Swizzle,
    composition,
    domain_offset,
    get_nonswizzle_portion,
    get_swizzle_portion,
    make_composed_layout,
    make_identity_layout,
    slice_and_offset,
)
from cutepy.testing import strategies as lst
from tests.layouts import brute_force as bf
from tests.messages import refuses


def check_a_composed_layout_applies_its_parts_in_turn(layout):
    assert [layout(i) for i in range(layout.size())] == bf.table(layout)
    assert [layout(c) for c in bf.coordinates(layout.shape)] == bf.table(layout)


@given(st.data(), lst.composed_layouts())
def test_any_nesting_of_a_coordinate_gives_the_same_index(data, layout):
    crd = data.draw(lst.coordinates(layout))
    expected = bf.table(layout)[Layout(layout.shape)(crd)]
    assert layout(crd) == expected
    if isinstance(crd, tuple) and len(crd) > 1:
        assert layout(*crd) == expected


def check_the_domain_is_that_of_the_inner_layout(layout):
    inner = layout.layoutA
    assert (layout.shape, layout.size(), layout.rank(), layout.depth(), len(layout)) == (
        inner.shape,
        inner.size(),
        inner.rank(),
        inner.depth(),
        len(inner),
    )
    assert layout.cosize() == inner.cosize()


def check_modes_stay_under_the_same_offset_and_outer_function(layout):
    for i, mode in enumerate(layout):
        assert mode == layout[i]
        inner = layout.layoutA[i]
        assert bf.table(mode) == bf.table(ComposedLayout(layout.layoutB, layout.offset, inner))


@given(lst.composed_layouts(nested=True))
def test_any_composed_layout(layout):
    check_a_composed_layout_applies_its_parts_in_turn(layout)
    check_the_domain_is_that_of_the_inner_layout(layout)
    check_modes_stay_under_the_same_offset_and_outer_function(layout)


@given(lst.layouts(max_size=16), st.integers(0, 5), lst.composed_layouts())
def test_composition_is_associative_as_a_function(outer, offset, inner):
    left = ComposedLayout(ComposedLayout(outer, 0, inner.layoutB), inner.offset, inner.layoutA)
    right = ComposedLayout(outer, 0, inner)
    assert [left(i) for i in range(left.size())] == [right(i) for i in range(right.size())]


@given(lst.layouts(powers_of_two=True), st.sampled_from((8, 16, 32)), st.integers(1, 3))
def test_a_pointer_swizzle_permutes_byte_addresses(layout, bits, swizzle_bits):
    composed = ComposedLayout(Swizzle(swizzle_bits, 4, 3), SmemPtr(bits), layout)
    width = bits // 8
    expected = [bf.swizzle(Swizzle(swizzle_bits, 4, 3), i * width) // width for i in bf.table(layout)]
    assert [composed(i) for i in range(composed.size())] == expected
    assert bf.table(composed.position_independent()) == expected


@given(lst.layouts((9, 9)), st.tuples(st.integers(0, 4), st.integers(0, 4)))
def test_an_offset_may_be_a_coordinate(outer, offset):
    moved = ComposedLayout(outer, offset, make_identity_layout((5, 5)))
    expected = [at(outer, offset[0] + m, offset[1] + n) for m, n in bf.coordinates((5, 5))]
    assert [moved(i) for i in range(moved.size())] == expected


def at(layout, m, n):
    return bf.at(layout.shape, layout.stride, (m, n))


@given(lst.composed_layouts(nested=True, pointers=True), lst.composed_layouts(nested=True, pointers=True))
def test_composed_layouts_are_values(a, b):
    parts = (a.layoutB, a.offset, a.layoutA)
    assert make_composed_layout(*parts) == a
    assert hash(make_composed_layout(*parts)) == hash(a)
    assert (a == b) == (repr(a) == repr(b))
    assert pickle.loads(pickle.dumps(a)) == a
    assert copy.deepcopy(a) == a
    assert a != a.layoutA


@given(st.builds(SmemPtr, st.integers(1, 64), st.none() | st.integers(0, 1 << 20)))
def test_pointers_are_values(pointer):
    assert SmemPtr(pointer.bits, pointer.address) == pointer
    assert eval(repr(pointer)) == pointer
    assert pickle.loads(pickle.dumps(pointer)) == pointer
    assert hash(SmemPtr(pointer.bits, pointer.address)) == hash(pointer)
    assert pointer != SmemPtr(pointer.bits + 1, pointer.address)
    assert pointer != (pointer.bits, pointer.address)
    for change in (lambda: setattr(pointer, "bits", 1), lambda: delattr(pointer, "bits")):
        with pytest.raises(AttributeError):
            change()


def test_offsets_of_different_kinds_differ():
    layout = Layout((8, 8))
    assert ComposedLayout(Swizzle(1, 0, 1), 1, layout) != ComposedLayout(Swizzle(1, 0, 1), (1,), layout)
    assert ComposedLayout(Swizzle(0, 4, 3), 0, layout) != layout


def test_an_identity_swizzle_vanishes():
    assert composition(Swizzle(0, 4, 3), Layout((8, 8))) == Layout((8, 8))


def test_portions():
    layout = Layout((8, 8))
    swizzled = ComposedLayout(Swizzle(2, 0, 3), 0, layout)
    assert get_swizzle_portion(swizzled) == Swizzle(2, 0, 3)
    assert get_swizzle_portion(layout) == Swizzle(0, 4, 3)
    assert get_nonswizzle_portion(swizzled) == get_nonswizzle_portion(layout) == layout


PLAIN = ComposedLayout(Layout(8), 0, Layout(8))
POINTER = ComposedLayout(Swizzle(3, 4, 3), SmemPtr(16), Layout((64, 8)))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: ComposedLayout(3, 0, Layout(8)), TypeError),
        (lambda: ComposedLayout(Swizzle(1, 0, 1), 0, 8), TypeError),
        (lambda: ComposedLayout(Swizzle(1, 0, 1), True, Layout(8)), TypeError),
        (lambda: ComposedLayout(Swizzle(1, 0, 1), 0.5, Layout(8)), TypeError),
        (lambda: SmemPtr(0), LayoutError),
        (lambda: SmemPtr(8, -1), LayoutError),
        (lambda: get_swizzle_portion(PLAIN), LayoutError),
        (lambda: slice_and_offset((None, 1), POINTER), LayoutError),
        (lambda: domain_offset((0, 1), POINTER), LayoutError),
        (lambda: setattr(PLAIN, "offset", 1), AttributeError),
    ],
)
def test_operands_that_do_not_fit(call, error):
    with refuses(error):
        call()


def test_a_basis_may_be_the_offset():
    layout = ComposedLayout(Layout((8, 8)), ScaledBasis(2, (1,)), make_identity_layout((4, 4)))
    assert layout(1, 1) == 1 + 3 * 8


def test_a_layout_of_byte_addresses_may_keep_all_its_modes():
    for crd in (None, (None, None)):
        assert slice_and_offset(crd, POINTER) == (POINTER, 0)


@st.composite
def layouts_of_disjoint_bits(draw):
    """Modes of powers of two, a run of bits each, and an offset of the bits that are left."""
    places, modes, free = draw(st.permutations(range(9))), [], 0
    for bit in sorted(places[:6]):
        if modes and draw(st.booleans()) and modes[-1][0] * modes[-1][1] == 1 << bit:
            modes[-1] = (2 * modes[-1][0], modes[-1][1])
        else:
            modes.append((2, 1 << bit))
    for bit in places[6:]:
        free |= draw(st.integers(0, 1)) << bit
    modes = draw(st.permutations(modes))
    return ComposedLayout(draw(lst.swizzles()), free, Layout(tuple(s for s, _ in modes), tuple(d for _, d in modes)))


@given(st.data(), layouts_of_disjoint_bits())
def test_slices_of_disjoint_bits_have_the_values_of_the_layout(data, layout):
    crd = tuple(data.draw(st.none() | st.integers(0, s - 1)) for s in layout.shape)
    assume(None in crd)
    kept, offset = slice_and_offset(crd, layout)
    extents = [range(s) if c is None else (c,) for s, c in zip(layout.shape, crd, strict=True)]
    expected = [layout(tuple(reversed(c))) for c in itertools.product(*reversed(extents))]
    assert [kept(i) + offset for i in range(kept.size())] == expected


def test_a_slice_of_bits_that_add_up_is_that_of_cute():
    layout = ComposedLayout(Swizzle(2, 1, 3), 5, Layout((4, 4), (4, 1)))
    kept, offset = slice_and_offset((None, 0), layout)
    assert (kept, offset) == (Layout((4,), (4,)), 5)
    assert [kept(i) + offset for i in range(4)] != [layout(i, 0) for i in range(4)]


def test_a_slice_that_keeps_both_bits_of_a_swizzle_stays_under_it():
    """The lowest kept bit counts too."""
    layout = ComposedLayout(Swizzle(1, 0, 1), 0, Layout((2, 2, 2), (1, 2, 4)))
    kept, offset = slice_and_offset((None, None, 0), layout)
    assert (kept, offset) == (ComposedLayout(Swizzle(1, 0, 1), 0, Layout((2, 2), (1, 2))), 0)
    assert [kept(i) for i in range(4)] == [0, 1, 3, 2]
