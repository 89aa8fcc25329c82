"""Values behave as values: immutable, copied and pickled whole, equal only to their like."""

import copy
import pickle

import pytest

from cutepy.layouts import ComposedLayout, E, Layout, ScaledBasis, SmemPtr, Swizzle, composition, make_swizzle

SW = Swizzle(2, 3, 3)
VALUES = [
    Layout((4, (2, 3)), (1, (4, 8))),
    Layout(4, 2),
    Layout((4, 8), (E(0), E(1))),
    SW,
    ScaledBasis(3, (1, 0)),
    SmemPtr(16),
    SmemPtr(8, 0x400),
    ComposedLayout(SW, 8, Layout((8, 8), (8, 1))),
    ComposedLayout(SW, SmemPtr(16), Layout((8, 8), (8, 1))),
    ComposedLayout(Layout(64, 2), 4, Layout(8, 1)),
]


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_copies_and_pickles_are_equal(value: object):
    for twin in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert twin == value
        assert type(twin) is type(value)
        assert hash(twin) == hash(value)
        assert str(twin) == str(value)
        assert repr(twin) == repr(value)


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_nothing_can_be_set_or_deleted(value: object):
    for name in ("shape", "bits", "value", "layoutA", "anything"):
        with pytest.raises(AttributeError):
            setattr(value, name, 1)
        with pytest.raises(AttributeError):
            delattr(value, name)


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_equal_to_nothing_else(value: object):
    others = [other for other in VALUES if other is not value]
    for other in [*others, None, "4:2", (), 4]:
        assert (value == other) is False
        assert (value != other) is True


def test_each_part_counts_in_equality():
    assert SmemPtr(16) != SmemPtr(8)
    assert SmemPtr(8) != SmemPtr(8, 0)
    assert SmemPtr(8, 16) != SmemPtr(8, 32)
    assert Swizzle(2, 3, 3) != Swizzle(1, 3, 3)
    assert Swizzle(2, 3, 3) != Swizzle(2, 4, 3)
    assert Swizzle(2, 3, 3) != Swizzle(2, 3, 4)
    assert ScaledBasis(1, (0,)) != ScaledBasis(2, (0,))
    assert ScaledBasis(1, (0,)) != ScaledBasis(1, (1,))
    inner = Layout((8, 8), (8, 1))
    assert ComposedLayout(SW, 8, inner) != ComposedLayout(SW, 0, inner)
    assert ComposedLayout(SW, 0, inner) != ComposedLayout(Swizzle(1, 3, 3), 0, inner)
    assert ComposedLayout(SW, 0, inner) != ComposedLayout(SW, 0, Layout((8, 8)))
    assert ComposedLayout(SW, 0, inner) != ComposedLayout(SW, SmemPtr(8, 0), inner)
    assert Layout((4, 8), (1, 4)) != Layout((4, 8), (8, 1))
    assert Layout((4, 2), (1, 4)) != Layout((4, 3), (1, 4))


def test_swizzles_of_the_same_shift_cancel_or_merge():
    """C++: the XOR of the masks, which must be contiguous again."""
    assert composition(Swizzle(2, 3, 3), Swizzle(2, 3, 3)).bits == 0
    assert composition(Swizzle(2, 3, 3), Swizzle(1, 3, 3)) == Swizzle(1, 4, 3)
    assert make_swizzle(0b1000, 0b0100) == Swizzle(1, 2, 1)
    assert make_swizzle(0b11000000, 0b00000110) == Swizzle(2, 1, 5)
    assert make_swizzle(0b00000110, 0b11000000) == Swizzle(2, 1, -5)


def test_a_basis_is_negated_and_added_by_mode():
    assert -ScaledBasis(3, (1,)) == ScaledBasis(-3, (1,))
    assert E(0) + E(1) == (1, 1)
    assert 2 * E(0) + 3 * E(2) == (2, 0, 3)
    assert (5, 1) + 2 * E(1) == (5, 3)
