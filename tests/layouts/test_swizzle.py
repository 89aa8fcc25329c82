"""Swizzles are involutions that permute the indices of their domain."""

import copy
import pickle

import pytest
from hypothesis import given, strategies as st

from cutepy.layouts import LayoutError, Swizzle, make_swizzle, parse, shiftl, shiftr
from cutepy.testing import strategies as lst
from tests.layouts import brute_force as bf
from tests.messages import refuses

INDICES = st.integers(0, 1 << 20)


def check_a_swizzle_flips_each_bit_whose_partner_is_set(swizzle, i):
    assert swizzle(i) == bf.swizzle(swizzle, i)


def check_a_swizzle_is_an_involution(swizzle, i):
    assert swizzle(swizzle(i)) == i


def check_a_swizzle_is_a_bijection_of_its_domain(swizzle):
    domain = range(swizzle.size())
    assert sorted(map(swizzle, domain)) == list(domain)
    assert swizzle.cosize() == swizzle.size()


def check_a_swizzle_keeps_what_lies_outside_its_domain_and_below_its_base(swizzle, i):
    assert swizzle(i) // swizzle.size() == i // swizzle.size()
    assert swizzle(i) % (1 << swizzle.base) == i % (1 << swizzle.base)
    assert swizzle(i) & swizzle.yyy_msk == i & swizzle.yyy_msk


@given(lst.swizzles(), INDICES)
def test_any_swizzle_of_any_index(swizzle, i):
    check_a_swizzle_flips_each_bit_whose_partner_is_set(swizzle, i)
    check_a_swizzle_is_an_involution(swizzle, i)
    check_a_swizzle_keeps_what_lies_outside_its_domain_and_below_its_base(swizzle, i)


@given(lst.swizzles(), INDICES, INDICES)
def test_a_swizzle_is_linear_over_bits(swizzle, i, j):
    assert swizzle(i ^ j) == swizzle(i) ^ swizzle(j)


def check_the_masks_lie_in_the_domain_and_reach_its_top(swizzle):
    masks = swizzle.yyy_msk | swizzle.zzz_msk
    assert masks.bit_count() == 2 * swizzle.bits
    assert masks.bit_length() == (swizzle.size().bit_length() - 1 if swizzle.bits else 0)


def check_make_swizzle_finds_the_swizzle_of_its_masks(swizzle):
    same = make_swizzle(swizzle.yyy_msk, swizzle.zzz_msk)
    assert same == swizzle or (swizzle.bits == 0 and same == Swizzle(0, 0, 0))
    assert (same.yyy_msk, same.zzz_msk) == (swizzle.yyy_msk, swizzle.zzz_msk)


@given(lst.swizzles())
def test_any_swizzle(swizzle):
    check_a_swizzle_is_a_bijection_of_its_domain(swizzle)
    check_the_masks_lie_in_the_domain_and_reach_its_top(swizzle)
    check_make_swizzle_finds_the_swizzle_of_its_masks(swizzle)


@given(lst.swizzles(), lst.swizzles())
def test_swizzles_are_values(swizzle, other):
    assert eval(repr(swizzle)) == swizzle
    assert parse(str(swizzle)) == swizzle
    assert pickle.loads(pickle.dumps(swizzle)) == swizzle
    assert copy.deepcopy(swizzle) == swizzle
    assert (swizzle == other) == (repr(swizzle) == repr(other))
    assert hash(swizzle) == hash(parse(str(swizzle)))
    assert swizzle != (swizzle.bits, swizzle.base, swizzle.shift)
    with pytest.raises(AttributeError):
        swizzle.bits = 1
    with pytest.raises(AttributeError):
        del swizzle.bits


@given(st.integers(0, 1000), st.integers(-8, 8))
def test_shifts_go_the_other_way_for_negative_distances(i, s):
    assert shiftl(i, s) == shiftr(i, -s) == int(i * 2**s)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: Swizzle(-1, 0, 1), LayoutError),
        (lambda: Swizzle(1, -2, 1), LayoutError),
        (lambda: Swizzle(3, 0, -2), LayoutError),
        (lambda: Swizzle(1.0, 0, 1), TypeError),
        (lambda: Swizzle(1, True, 1), TypeError),
        (lambda: make_swizzle(3, 4), LayoutError),
        (lambda: make_swizzle(5, 10), LayoutError),
        (lambda: make_swizzle(3, 6), LayoutError),
        (lambda: make_swizzle(-1, 6), LayoutError),
        (lambda: make_swizzle((1, 2), 6), TypeError),
    ],
)
def test_operands_that_do_not_fit(call, error):
    with refuses(error):
        call()
