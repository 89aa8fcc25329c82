"""Arithmetic and predicates on integers and nested tuples of them."""

import itertools
import math

import pytest
from hypothesis import given, strategies as st

from cutepy.layouts import (
    Integer,
    Layout,
    LayoutError,
    ScaledBasis,
    ceil_div,
    colex_geq,
    colex_gtr,
    colex_leq,
    colex_less,
    compatible,
    congruent,
    depth,
    elem_geq,
    elem_gtr,
    elem_leq,
    elem_less,
    elem_scale,
    evenly_divides,
    flatten,
    flatten_to_tuple,
    get,
    has_none,
    inner_product,
    is_int,
    is_tuple,
    lex_geq,
    lex_gtr,
    lex_leq,
    lex_less,
    product,
    product_each,
    product_like,
    repeat_like,
    round_up,
    shape_div,
    signum,
    transform_leaf,
    tuple_gcd,
    tuple_max,
    tuple_min,
    tuple_sum,
    unflatten,
    unwrap,
    weakly_compatible,
    weakly_congruent,
    wrap,
)
from cutepy.testing import strategies as lst
from tests.layouts import brute_force as bf
from tests.messages import refuses

SHAPES = lst.shapes(max_extent=4, max_leaves=3)
PAIRS_OF_SHAPES = SHAPES.flatmap(
    lambda a: st.tuples(st.just(a), SHAPES | st.just(a) | st.just(bf.size(a)) | st.just((a,)) | st.just(flatten(a)))
)


@st.composite
def congruent_tuples(draw, count=2, elements=None):
    profile = draw(lst.int_tuples())
    leaf = st.integers(-8, 8) if elements is None else elements
    return tuple(transform_leaf(lambda _: draw(leaf), profile) for _ in range(count))


@st.composite
def refinements(draw, shape):
    """A shape each of whose modes has the size of `shape`'s."""
    if isinstance(shape, tuple):
        return tuple(draw(refinements(mode)) for mode in shape)
    divisor = draw(st.sampled_from([n for n in range(1, shape + 1) if shape % n == 0]))
    return draw(st.sampled_from((shape, (shape,), (divisor, shape // divisor))))


def check_flatten_and_unflatten_are_inverse(t):
    assert list(flatten_to_tuple(t)) == bf.leaves(t)
    assert unflatten(flatten_to_tuple(t), t) == t
    assert not any(isinstance(x, tuple) for x in wrap(flatten(t)))


def check_products(t):
    assert product(t) == math.prod(bf.leaves(t))
    assert product_each(t) == tuple(math.prod(bf.leaves(mode)) for mode in wrap(t))
    assert product_like(t, repeat_like(t, 0)) == t
    assert product_like(t, 0) == product(t)
    assert tuple_max(t) == max(bf.leaves(t))
    assert tuple_min(t) == min(bf.leaves(t))
    assert tuple_sum(t) == sum(bf.leaves(t))
    assert tuple_gcd(t) == math.gcd(*bf.leaves(t))


@given(lst.int_tuples())
def test_any_tuple(t):
    check_flatten_and_unflatten_are_inverse(t)
    check_products(t)


@given(congruent_tuples())
def test_inner_product_sums_the_products_of_leaves(pair):
    a, b = pair
    expected = sum(x * y for x, y in zip(bf.leaves(a), bf.leaves(b), strict=True))
    assert inner_product(a, b) == expected == inner_product(b, a)


@given(congruent_tuples(3))
def test_elem_scale_multiplies_leaf_by_leaf(triple):
    a, b, _ = triple
    assert bf.leaves(elem_scale(a, b)) == [x * y for x, y in zip(bf.leaves(a), bf.leaves(b), strict=True)]
    assert elem_scale(a, repeat_like(a, 1)) == a


@given(st.data(), SHAPES)
def test_ceil_div_by_an_integer_uses_up_the_modes_from_the_left(data, shape):
    extents = bf.leaves(shape)
    mode = data.draw(st.integers(0, len(extents) - 1))
    part = data.draw(st.integers(1, extents[mode]))
    quotient = ceil_div(shape, math.prod(extents[:mode]) * part)
    assert bf.congruent(quotient, shape)
    assert bf.leaves(quotient) == [1] * mode + [math.ceil(extents[mode] / part)] + extents[mode + 1 :]


@given(st.integers(-20, 20), st.integers(-20, 20).filter(bool))
def test_ceil_div_truncates_as_cpp_does(a, b):
    assert ceil_div(a, b) == int((a + b - 1) / b)


def check_round_up_is_the_next_multiple(pair):
    a, b = pair
    for x, y, up in zip(bf.leaves(a), bf.leaves(b), bf.leaves(round_up(a, b)), strict=True):
        assert up % y == 0
        assert x <= up < x + y


@given(st.data(), lst.shapes())
def test_shape_div_by_a_leading_part_leaves_the_rest(data, shape):
    extents = bf.leaves(shape)
    count = data.draw(st.integers(0, len(extents)))
    n = math.prod(extents[:count])
    assert bf.leaves(shape_div(shape, n)) == [1] * count + extents[count:]
    assert bf.leaves(shape_div(shape, shape)) == [1] * len(extents)


def check_shape_div_exists_where_one_divides_the_other(pair):
    a, b = pair
    divisible = [x % y == 0 or y % x == 0 for x, y in zip(bf.leaves(a), bf.leaves(b), strict=True)]
    if all(divisible):
        quotients = zip(bf.leaves(a), bf.leaves(b), bf.leaves(shape_div(a, b)), strict=True)
        assert all(q == max(1, x // y) for x, y, q in quotients)
    else:
        with pytest.raises(LayoutError):
            shape_div(a, b)


# ---------------------------------------------------------------------------------------------------------------------
# Partial orders
# ---------------------------------------------------------------------------------------------------------------------


def is_refined(a, b):
    """Return True if every leaf of `a` faces a subtree of `b`."""
    if isinstance(a, tuple):
        return isinstance(b, tuple) and len(a) == len(b) and all(map(is_refined, a, b))
    return True


def check_congruent_is_one_nesting(pair):
    a, b = pair
    assert congruent(a, b) == bf.congruent(a, b)
    assert congruent(Layout(a), b) == congruent(a, Layout(b)) == congruent(a, b)


def check_weakly_congruent_is_a_partial_order_of_nestings(pair):
    a, b = pair
    assert weakly_congruent(a, b) == is_refined(a, b)
    assert weakly_congruent(a, a)
    assert (weakly_congruent(a, b) and weakly_congruent(b, a)) == congruent(a, b)


def check_compatible_shapes_take_each_others_coordinates(pair):
    a, b = pair
    assert compatible(a, a)
    if compatible(a, b):
        assert bf.size(a) == bf.size(b)
        layout = Layout(b)
        assert [layout(c) for c in bf.coordinates(a)] == list(range(bf.size(a)))
    if compatible(a, b) and compatible(b, a):
        assert a == b


@given(PAIRS_OF_SHAPES)
def test_any_two_shapes(pair):
    check_congruent_is_one_nesting(pair)
    check_weakly_congruent_is_a_partial_order_of_nestings(pair)
    check_compatible_shapes_take_each_others_coordinates(pair)


@given(st.data(), SHAPES)
def test_compatible_is_transitive_along_refinements(data, a):
    b = data.draw(refinements(a))
    c = data.draw(refinements(b))
    assert compatible(a, b)
    assert compatible(b, c)
    assert compatible(a, c)
    assert weakly_compatible(a, c)
    assert compatible(bf.size(a), c)


@given(st.data(), SHAPES, SHAPES)
def test_weakly_compatible_is_divisibility_at_the_leaves(data, a, b):
    def at_leaves(x, y):
        if isinstance(x, tuple):
            return isinstance(y, tuple) and len(x) == len(y) and all(map(at_leaves, x, y))
        return bf.size(y) % x == 0

    assert weakly_compatible(a, b) == at_leaves(a, b)
    assert weakly_compatible(a, transform_leaf(lambda s: 3 * s, data.draw(refinements(a))))


def check_evenly_divides_is_tiling_without_remainder(pair):
    shape, tile = pair
    expected = all(s % t == 0 for s, t in zip(bf.leaves(shape), bf.leaves(tile), strict=True))
    assert evenly_divides(shape, tile) == expected


@given(congruent_tuples(elements=st.integers(1, 12)))
def test_any_congruent_tuples(pair):
    check_round_up_is_the_next_multiple(pair)
    check_shape_div_exists_where_one_divides_the_other(pair)
    check_evenly_divides_is_tiling_without_remainder(pair)


@given(st.data(), lst.layouts(compact=True))
def test_evenly_divides_holds_for_tilers_drawn_to_divide(data, layout):
    assert evenly_divides(layout.shape, data.draw(lst.tilers(layout, keep=False)))


@given(congruent_tuples(3, st.integers(0, 3)))
def test_elementwise_comparisons(triple):
    a, b, _ = triple
    pairs = list(zip(bf.leaves(a), bf.leaves(b), strict=True))
    assert elem_less(a, b) == all(x < y for x, y in pairs)
    assert elem_gtr(a, b) == all(x > y for x, y in pairs)
    assert elem_leq(a, b) == (not elem_gtr(a, b))
    assert elem_geq(a, b) == (not elem_less(a, b))


@given(congruent_tuples(3, st.integers(0, 2)))
def test_walking_orders_are_strict_total_orders(triple):
    a, b, c = triple
    for less, key in ((lex_less, lambda t: t), (colex_less, lambda t: t[::-1])):
        assert less(a, b) == (key(tuple(bf.leaves(a))) < key(tuple(bf.leaves(b))))
        assert not less(a, a)
        assert less(a, b) + less(b, a) == (a != b)
        if less(a, b) and less(b, c):
            assert less(a, c)
    for orders in ((lex_less, lex_gtr, lex_leq, lex_geq), (colex_less, colex_gtr, colex_leq, colex_geq)):
        lt, gt, le, ge = (order(a, b) for order in orders)
        assert (gt, le, ge) == (not lt and a != b, lt or a == b, not lt)


@given(lst.shapes())
def test_colex_less_is_the_order_of_integer_coordinates(shape):
    crds = bf.coordinates(shape)
    assert all(colex_less(a, b) for a, b in itertools.pairwise(crds))


# ---------------------------------------------------------------------------------------------------------------------
# Single values
# ---------------------------------------------------------------------------------------------------------------------


def test_integers_are_ints_but_not_bools():
    assert is_int(3)
    assert not is_int(True)
    assert not is_int(3.0)
    assert isinstance(3, Integer)
    assert not isinstance(True, Integer)
    assert is_tuple(())
    assert not is_tuple([1])


def test_wrap_and_unwrap():
    assert wrap(3) == (3,)
    assert wrap((3, 4)) == (3, 4)
    assert unwrap(((3,),)) == 3
    assert unwrap(((3, 4),)) == (3, 4)
    assert [signum(n) for n in (-5, 0, 5)] == [-1, 0, 1]
    assert has_none((1, (2, None)))
    assert not has_none((1, (2, 3)))


@pytest.mark.parametrize(
    "call",
    [
        lambda: unflatten((1, 2, 3), (0, 0)),
        lambda: unflatten((1,), (0, 0)),
        lambda: inner_product((1, 2), (3,)),
        lambda: inner_product(1, (3, 4)),
        lambda: elem_scale((1, 2), 3),
        lambda: shape_div((6, 9), 4),
        lambda: shape_div((6, 9), (3, 3, 3)),
        lambda: shape_div(0, 4),
        lambda: ceil_div((2, 3), (1, 1, 1)),
        lambda: ceil_div(4, 0),
        lambda: round_up((2, 3), 2),
        lambda: elem_less(1, (2, 3)),
        lambda: weakly_compatible(0, 4),
        lambda: product_like((1, 2), (0, 0, 0)),
    ],
)
def test_operands_that_do_not_fit(call):
    with refuses(LayoutError):
        call()


def test_predicates_refuse_what_has_no_shape():
    with refuses(TypeError):
        congruent("a", 1)


def test_evenly_divides_single_cases():
    assert evenly_divides((8, 4), None) is False
    assert not evenly_divides(8, (4, 2))
    assert evenly_divides((8, 4), Layout(4, 2))
    assert evenly_divides(Layout((8, 4)), (4,))


def test_inner_product_with_bases_is_a_coordinate():
    assert inner_product((2, 3), (ScaledBasis(1, (1,)), ScaledBasis(4, (0,)))) == (12, 2)


def test_an_empty_tuple_is_one_level_deep():
    assert [depth(t) for t in (4, (), (4,), (4, ()))] == [0, 1, 1, 2]


def test_indices_count_from_either_end():
    assert [get((4, 8), i) for i in (-2, -1, 0, 1)] == [4, 8, 4, 8]
    for i in (-3, 2):
        with refuses(LayoutError):
            get((4, 8), i)


def test_walking_orders_at_their_limits():
    for less in (lex_less, colex_less):
        assert less((1, 2), (1, 2)) is False
        assert less((), ()) is False
        for operands in ((1, (1, 2)), ((1, 2), 1)):
            with refuses(LayoutError):
                less(*operands)
    assert lex_less((1,), (1, 2)) is True


def test_quotients_round_as_cpp_rounds_negative_numbers():
    """``(a + b - 1) / b``, towards zero."""
    assert [ceil_div(a, 3) for a in (-6, -3, -1, 0, 1, 3, 4)] == [-1, 0, 0, 0, 1, 1, 2]
    assert [shape_div(a, 3) for a in (-6, -3, 3, 6)] == [-1, 0, 1, 2]
