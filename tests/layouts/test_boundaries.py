"""Boundary operands: where one step further the answer is another, or the call is refused."""

import pytest

from cutepy.layouts import (
    Layout,
    LayoutError,
    Swizzle,
    complement,
    composition,
    domain_distribute,
    downcast,
    logical_divide,
    logical_product,
    make_identity_layout,
    make_swizzle,
    max_common_layout,
    max_common_vector,
    recast_layout,
    right_inverse,
    shiftl,
    shiftr,
    sm90,
    upcast,
)
from tests.messages import refuses


def test_shifts_of_one_and_none_either_way():
    assert [shiftl(6, s) for s in (-2, -1, 0, 1, 2)] == [1, 3, 6, 12, 24]
    assert [shiftr(6, s) for s in (-2, -1, 0, 1, 2)] == [24, 12, 6, 3, 1]


def test_swizzles_by_one_bit_either_way():
    assert [Swizzle(1, 0, 1)(i) for i in range(4)] == [0, 1, 3, 2]
    assert [Swizzle(1, 0, -1)(i) for i in range(4)] == [0, 3, 2, 1]
    assert [Swizzle(0, 0, 0)(i) for i in range(4)] == [0, 1, 2, 3]


def test_swizzle_parameters_at_their_limits():
    assert Swizzle(0, 0, 0).size() == 1
    for bits, base, shift in ((-1, 0, 3), (0, -1, 3), (3, 0, 2), (3, 0, -2)):
        with pytest.raises(LayoutError):
            Swizzle(bits, base, shift)


def test_equality_with_strangers_is_false_not_none():
    for value in (Swizzle(1, 0, 1), Layout(4, 1)):
        assert (value == 4) is False
        assert (value != 4) is True


def test_make_swizzle_of_empty_masks_is_the_identity():
    assert make_swizzle(0, 0).bits == 0
    for masks in ((0, 1), (1, 0), (0b11, 0b100), (0b101, 0b1010)):
        with pytest.raises(LayoutError):
            make_swizzle(*masks)


def test_factors_of_casts_at_their_limits():
    for cast in (upcast, downcast):
        assert cast(Layout((4, 2), (1, 4)), 1) == Layout((4, 2), (1, 4))
        assert cast(Swizzle(3, 4, 3), 1) == Swizzle(3, 4, 3)
        for factor in (0, -1, True, 2.0):
            with pytest.raises(LayoutError):
                cast(Layout((4, 2), (1, 4)), factor)
        with pytest.raises(LayoutError):
            cast(Swizzle(3, 4, 3), 3)
        with refuses(TypeError):
            cast("4:1", 2)


def test_widths_of_recasts_at_their_limits():
    layout = Layout((8, 2), (1, 8))
    assert recast_layout(layout, 8, 1) == Layout((64, 2), (1, 64))
    assert recast_layout(layout, 1, 8) == Layout((1, 2), (1, 1))
    for old, new in ((8, 0), (0, 8), (8, -8), (-8, 8)):
        with refuses(LayoutError):
            recast_layout(layout, old, new)


def test_a_recast_to_the_same_width_changes_nothing():
    for layout in (make_identity_layout((4, 4)), Layout((4, 4), (2, 8)), Layout((4, 4), (0, 0))):
        assert recast_layout(layout, 16, 16) == layout


def test_a_wider_recast_needs_no_adjacent_elements():
    """Only narrowing looks for a stride of 1."""
    assert recast_layout(Layout((4, 4), (0, 4)), 8, 16) == Layout((4, 4), (0, 2))


def test_common_vectors_want_layouts():
    for common in (max_common_layout, max_common_vector):
        for operands in ((Layout(4), 4), (4, Layout(4)), (Layout(4), (2, 2)), ((2, 2), Layout(4))):
            with refuses(TypeError):
                common(*operands)


def test_composition_with_a_layout_of_one_element():
    """A left operand of size 1 still strides."""
    assert composition(Layout(1, 5), Layout(3, 2)) == Layout(3, 10)
    assert composition(Layout((1, 1), (5, 7)), Layout(3, 2)) == Layout(3, 14)


def test_nothing_is_divided_by_an_extent_of_zero():
    """The left operand walks over its modes by division, the complement by what smaller strides reach."""
    for step in (3, 1, -3):
        with refuses(LayoutError):
            composition(Layout((0, 4), (1, 5)), Layout(2, step))
    for layout in (Layout(0, 1), Layout((0, 4), (1, 5))):
        for cotarget in (24, (24, 5)):
            with refuses(LayoutError):
                complement(layout, cotarget)


def test_a_right_operand_without_modes_is_refused():
    with refuses(LayoutError):
        composition(Layout((4, 2)), Layout((), ()))


ATOM = sm90.wgmma_traits("SM90_64x8x16_F16F16F16_SS")
NEGATIVE = {
    "Layout": lambda: Layout((-4, 8)),
    "Layout with strides": lambda: Layout((4, (2, -8)), (1, (4, 8))),
    "composition with an int": lambda: composition(Layout((8, 4)), -4),
    "composition by mode": lambda: composition(Layout((8, 4)), (4, -2)),
    "a method": lambda: Layout((8, 4)).with_shape(-4, 8),
    "complement": lambda: complement(Layout(4, 2), -24),
    "complement in a shape": lambda: complement(Layout(4, 2), (4, -6)),
    "domain_distribute": lambda: domain_distribute((-15, 14), 6),
    "an identity": lambda: make_identity_layout((4, -8)),
    "an inverse": lambda: right_inverse(-4),
    "a tiler": lambda: logical_divide(Layout((8, 4)), (4, -2)),
    "a product": lambda: logical_product(Layout((8, 4)), -2),
    "an MMA's permutation": lambda: sm90.TiledMMA(
        sm90.wgmma_traits("SM90_64x8x16_F16F16F16_SS"), permutation_mnk=(-64, 8, 16)
    ),
}


@pytest.mark.parametrize("call", NEGATIVE.values(), ids=NEGATIVE)
def test_no_extent_is_negative(call):
    with refuses(LayoutError):
        call()
