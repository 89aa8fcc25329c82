"""``exact=True``: refused, at the first coordinate that differs, if and only if the tables of the functions differ."""

import itertools
import pickle
import random
from math import prod

import pytest
from hypothesis import assume, given, strategies as st

from cutepy.layouts import (
    ComposedLayout,
    E,
    InexactError,
    Layout,
    LayoutError,
    SmemPtr,
    Swizzle,
    blocked_product,
    coalesce,
    complement,
    composition,
    cosize,
    crd2idx,
    flat_divide,
    idx2crd,
    logical_divide,
    logical_product,
    make_identity_layout,
    raked_product,
    size,
    sm90,
    tile_to_shape,
    tiled_divide,
    zipped_divide,
    zipped_product,
)
from cutepy.testing import strategies as lst
from tests.layouts import brute_force as bf
from tests.messages import refuses

DIVIDES = (logical_divide, zipped_divide, tiled_divide, flat_divide)
SIGNED = lst.layouts(signed=True, max_stride=16)


def check(a, b, result=None):
    """Hold ``exact=True`` against the tables: composed or refused rightly. Return whether it is exact."""
    result = composition(a, b) if result is None else result
    expected, got = [bf.extended(a, x) for x in bf.table(b)], bf.table(result)
    first = next((i for i, (x, y) in enumerate(zip(expected, got, strict=True)) if x != y), None)
    if first is None:
        assert composition(a, b, exact=True) == result
        return True
    with pytest.raises(InexactError) as caught:
        composition(a, b, exact=True)
    error = caught.value
    assert error.coordinate == idx2crd(first, result.shape)
    assert (error.element, error.expected, error.got) == (bf.table(b)[first], expected[first], got[first])
    assert all(str(x) in str(error) for x in (error.element, error.expected, error.got))
    return False


def carries(a, b):
    """The two conditions of docs/layout_algebra.md, of steps >= 0, by the page alone: (first broken, second broken)."""
    extents, follow = [], None
    for s, d in bf.modes(a):
        if s == 1 and (s, d) != bf.modes(a)[-1]:
            continue
        if follow is not None and d == follow:
            extents[-1] *= s
        else:
            extents.append(s)
        follow = s * d
    taken, uneven = [0] * len(extents), False
    for n, step in bf.modes(b):
        for mode, extent in enumerate(extents[:-1]):
            if n == 1 or step == 0:
                break
            if step % extent == 0:
                step //= extent
                continue
            here = min(n, -(-extent // step))
            taken[mode] += (here - 1) * step
            n //= here
            uneven |= n > 1 and extent % step != 0
            step = 1
    return uneven, any(t >= extent for t, extent in zip(taken[:-1], extents[:-1], strict=True))


def compositions(lefts, rights):
    for a, b in itertools.product(lefts, rights):
        try:
            yield a, b, composition(a, b)
        except LayoutError:
            pass


# ---------------------------------------------------------------------------------------------------------------------
# Composition
# ---------------------------------------------------------------------------------------------------------------------


def test_all_small_compositions():
    lefts = [a for a in bf.small_layouts(max_extent=4, strides=(0, 1, 3, 5)) if size(a) > 3]
    rights = [b for b in bf.small_layouts(max_extent=4, strides=(0, 1, 2, 3)) if 1 not in bf.leaves(b.shape)]
    counts = {True: 0, False: 0}
    for number, (a, b, result) in enumerate(compositions(lefts, rights)):
        if number % 7 == 0:
            counts[check(a, b, result)] += 1
    assert counts[True] > 1000
    assert counts[False] > 100


def test_small_compositions_of_three_modes_on_the_left():
    generator = random.Random(5)
    wrong = 0
    for _ in range(3000):
        shape = [generator.randint(2, 4) for _ in range(3)]
        a = Layout(tuple(shape), tuple(generator.choice((0, 1, 1, 2, -1, 4)) for _ in shape))
        b = Layout((generator.randint(2, 5), 2), (generator.randint(-6, 12), generator.randint(-6, 12)))
        try:
            wrong += not check(a, b)
        except InexactError:
            raise
        except LayoutError:
            continue
    assert wrong > 100


@given(SIGNED, SIGNED)
def test_compositions_of_any_two_layouts(a, b):
    try:
        result = composition(a, b)
    except LayoutError:
        assume(False)
    check(a, b, result)


@given(lst.composable_pairs(SIGNED))
def test_compositions_of_operands_that_fit(pair):
    assert check(*pair)


def test_the_conditions_of_the_page():
    """The second condition decides where the first holds; where it does not, only strides of 0 make up for it."""
    lefts = [
        Layout(shape, stride)
        for shape in itertools.product((2, 3, 4), repeat=3)
        for stride in ((1, 7, 30), (0, 1, 1), (1, 0, 1), (1, 1, 1), (0, 1, 0), (2, -1, 3), (1, 0, 5))
    ]
    rights = [Layout(s, d) for s in ((2, 2), (3, 2), (4, 3)) for d in itertools.product((1, 2, 3, 4, 6, 8), repeat=2)]
    seen = dict.fromkeys(itertools.product((True, False), repeat=3), 0)
    for a, b, result in compositions(lefts, rights):
        exact = bf.table(result) == [bf.extended(a, x) for x in bf.table(b)]
        first, second = carries(a, b)
        seen[first, second, exact] += 1
        if not first:
            assert exact != second, (a, b)
        elif 0 not in bf.leaves(a.stride):
            assert not exact, (a, b)
    assert min(seen[False, False, True], seen[False, True, False], seen[True, False, False]) > 100
    assert seen[True, False, True] + seen[True, True, True] > 0  # strides of 0
    assert seen[False, False, False] == seen[False, True, True] == 0


@pytest.mark.parametrize(
    ("a", "b", "coordinate", "element", "expected", "got"),
    [
        (Layout((6, 2), (1, 7)), Layout((3, 2), (2, 3)), (2, 1), 7, 8, 7),
        (Layout((3, 3), (1, 10)), Layout(4, 2), (0, 1), 4, 11, 10),
        (Layout((4, 2), (1, 8)), Layout(4, 3), (0, 1), 6, 10, 8),
        (Layout((2, 2), (0, 1)), Layout((2, 2), (1, 1)), (1, 1), 2, 1, 0),
        (Layout((4, 4), (1, 10)), Layout((2, 2), (4, -1)), (1, 1), 3, 3, 9),
        (Layout((2, 4), (1, 5)), Layout(2, -3), 1, -3, -6, -10),
        (Layout((3, 2, 2), (0, 1, 1)), Layout((4, 2), (2, 1)), ((1, 0), 1), 3, 1, 0),  # after a carry that cancels
        (Layout((5, 2, 2), (0, 2, 2)), Layout((4, 2), (4, 3)), ((1, 0), 1), 7, 2, 0),
    ],
)
def test_the_first_coordinate_that_differs(a, b, coordinate, element, expected, got):
    with pytest.raises(InexactError) as caught:
        composition(a, b, exact=True)
    error = caught.value
    assert (error.coordinate, error.element, error.expected, error.got) == (coordinate, element, expected, got)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.coordinate, again.expected) == (str(error), coordinate, expected)
    assert check(a, b) is False
    exact = ComposedLayout(a, 0, b)
    assert [exact(i) for i in range(size(b))] == [bf.extended(a, x) for x in bf.table(b)]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (Layout((2, 2, 4), (0, 1, 1)), Layout((2, 2), (4, -1))),  # a borrow through two modes that cancels
        (Layout((3, 2, 5), (0, 1, 1)), Layout((4, 2), (2, 6))),  # carries that cancel
        (Layout((5, 2, 4), (0, 1, 1)), Layout((2, 4), (1, 3))),
        (Layout((5, 4), (0, 1)), Layout(4, 3)),  # 3 does not divide 5, which has stride 0
        (Layout((2, 4), (1, 1)), Layout(2, -3)),
        (Layout((6, 2), (1, 7)), Layout((3, 0), (2, 0))),  # no coordinates
    ],
)
def test_what_is_right_although_the_conditions_fail(a, b):
    assert check(a, b)


@given(st.data())
def test_large_domains(data):
    """The first difference where coordinates are not enumerated: none is found before it."""
    scale = data.draw(st.sampled_from((1 << 9, 3**5, 1000)))
    small = data.draw(st.sampled_from((((6, 2), (3, 2), (2, 3)), ((3, 4), (2, 3), (1, 1)), ((4, 4), (2, 2), (1, 2)))))
    extents, shape, steps = small
    a = Layout((extents[0] * scale, extents[1] * scale), (1, data.draw(st.sampled_from((7, 0, -1, 1 << 40)))))
    b = Layout((scale, *shape, scale), (1, *(d * scale for d in steps), extents[0] * scale))
    result = composition(a, b)

    def differs(i):
        return bf.extended(a, b(i)) != result(i)

    try:
        composition(a, b, exact=True)
        first = size(b)
    except InexactError as error:
        first = crd2idx(error.coordinate, result.shape)
        assert differs(first)
        assert (error.element, error.expected, error.got) == (b(first), a(b(first)), result(first))
    last = first - 1
    assert not any(differs(data.draw(st.integers(0, last))) for _ in range(20))
    assert not any(differs(i) for i in range(max(0, first - 50), first))


def test_domains_of_2_to_the_30():
    a, wrong = Layout((1 << 20, 1 << 10), (1, 1 << 21)), Layout((3 << 18, 2), (1, 3 << 19))
    assert size(composition(a, Layout((1 << 10, 1 << 20), (1 << 20, 1)), exact=True)) == 1 << 30
    with pytest.raises(InexactError) as caught:
        composition(Layout((1 << 20, 1 << 10), (1, 3)), Layout((3 << 18, 1 << 8), (1, 1 << 18)), exact=True)
    assert caught.value.element == 1 << 20
    with pytest.raises(LayoutError):
        composition(a, wrong, exact=True)


def test_steps_of_both_signs_are_compared_up_to_a_bound():
    """Beyond the bound a composition that carries, and yet is right as far as compared, is refused as not shown."""
    a, b = Layout((2, 2, 1 << 20), (0, 1, 1)), Layout((2, 2, 1 << 20), (4, -1, 0))
    assert composition(a, Layout((2, 2, 1 << 13), (4, -1, 0)), exact=True)
    with refuses(InexactError) as caught:
        composition(a, b, exact=True)
    assert caught.value.coordinate is None


# ---------------------------------------------------------------------------------------------------------------------
# Other operands
# ---------------------------------------------------------------------------------------------------------------------


@given(st.data(), st.lists(SIGNED, min_size=1, max_size=3))
def test_tilers_by_mode(data, modes):
    a = Layout(tuple(mode.shape for mode in modes), tuple(mode.stride for mode in modes))
    tilers = tuple(data.draw(st.none() | st.integers(1, 9) | SIGNED) for _ in modes)
    try:
        parts = [mode if t is None else composition(mode, t) for mode, t in zip(modes, tilers, strict=True)]
    except LayoutError:
        assume(False)
    first = 0
    for mode, t, part in zip(modes, tilers, parts, strict=True):
        right = mode if t is None else Layout(t) if isinstance(t, int) else t
        expected = bf.table(mode) if t is None else [bf.extended(mode, x) for x in bf.table(right)]
        wrong = [i for i, (x, y) in enumerate(zip(expected, bf.table(part), strict=True)) if x != y]
        if wrong:
            with pytest.raises(InexactError) as caught:
                composition(a, tilers, exact=True)
            index = wrong[0] * prod(size(p) for p in parts[: parts.index(part, first)])
            assert crd2idx(caught.value.coordinate, composition(a, tilers).shape) == index
            assert (caught.value.expected, caught.value.got) == (expected[wrong[0]], bf.table(part)[wrong[0]])
            return
        first += 1
    assert composition(a, tilers, exact=True) == composition(a, tilers)


def test_a_mode_that_carries_beside_one_that_borrows():
    """The first borrows and is right, which only a scan tells; the second carries at its last coordinate."""
    a = Layout(((2, 2, 4), (6, 2)), ((0, 1, 1), (1, 7)))
    tilers = (Layout((2, 2), (4, -1)), Layout((4, 2), (1, 3)))
    with pytest.raises(InexactError) as caught:
        composition(a, tilers, exact=True)
    assert (caught.value.element, caught.value.expected, caught.value.got) == ((0, 6), 7, 6)
    assert caught.value.coordinate == ((0, 0), (3, 1))


WRONG = (Layout((6, 2), (1, 7)), Layout((3, 2), (2, 3)))


@pytest.mark.parametrize(
    "outer", [Swizzle(2, 0, 2), Layout((8, 4), (4, 1)), ComposedLayout(Swizzle(1, 0, 1), 2, Layout(99))]
)
@pytest.mark.parametrize("offset", [0, 3])
def test_composed_layouts_on_the_left(outer, offset):
    a, b = WRONG
    composed = ComposedLayout(outer, offset, a)
    with pytest.raises(InexactError) as caught:
        composition(composed, b, exact=True)
    assert caught.value.coordinate == (2, 1)
    assert (caught.value.expected, caught.value.got) == (outer(offset + 8), outer(offset + 7))
    assert composition(composed, Layout(6), exact=True) == composition(composed, Layout(6))
    pointed = ComposedLayout(Swizzle(3, 4, 3), SmemPtr(16), a)
    with pytest.raises(InexactError):
        composition(pointed, b, exact=True)


def test_an_outer_function_that_makes_the_values_equal():
    a, b = WRONG
    constant = ComposedLayout(Layout(9, 0), 0, a)
    assert composition(constant, b, exact=True) == composition(constant, b)


def test_coordinates_as_values_and_as_steps():
    b = WRONG[1]
    with pytest.raises(InexactError) as caught:
        composition(make_identity_layout((6, 2)), b, exact=True)
    assert (caught.value.coordinate, caught.value.expected) == ((2, 1), (1, 1))
    nested = Layout(((6, 2), 4), ((1, 7), 50))
    with pytest.raises(InexactError) as caught:
        composition(nested, Layout((4, 3, 2), (E(1), 2 * E(0), 3 * E(0))), exact=True)
    assert (caught.value.coordinate, caught.value.element, caught.value.expected) == ((0, 2, 1), (7, 0), 8)
    assert composition(nested, make_identity_layout(nested.shape), exact=True).shape == nested.shape
    with pytest.raises(InexactError) as caught:
        composition(nested, (b,), exact=True)
    assert (caught.value.coordinate, caught.value.element, caught.value.expected) == (((2, 1),), (7, 0), 8)
    assert composition(nested, Layout((4, 2), (E(1), 6 * E(0))), exact=True)


@given(
    lst.swizzles(max_base=2), lst.layouts(powers_of_two=True), st.none() | lst.layouts(max_size=32, powers_of_two=True)
)
def test_swizzles_on_the_right(swizzle, a, domain):
    tiler = swizzle if domain is None else ComposedLayout(swizzle, 0, domain)
    try:
        result = composition(a, tiler)
    except LayoutError:
        assume(False)
    images = range(size(a)) if domain is None else bf.table(domain)
    expected = [bf.extended(a, bf.swizzle(swizzle, x)) for x in images]
    if bf.table(result) == expected:
        assert composition(a, tiler, exact=True) == result
    else:
        first = next(i for i, (x, y) in enumerate(zip(expected, bf.table(result), strict=True)) if x != y)
        with pytest.raises(InexactError) as caught:
            composition(a, tiler, exact=True)
        assert caught.value.coordinate == idx2crd(first, result.shape)


@pytest.mark.parametrize("swizzle", [Swizzle(1, 0, 1), Swizzle(1, 1, 1), Swizzle(1, 0, -2), Swizzle(1, 1, -1)], ids=str)
def test_swizzles_of_three_bits_after_every_small_layout(swizzle):
    """Strides that put two fields of bits into one, or a field just below another, are where only the tables decide."""
    for stride in itertools.product((0, 1, 2, 4), repeat=3):
        a = Layout((2, 2, 2), stride)
        try:
            result = composition(a, swizzle)
        except LayoutError:
            continue
        expected = [bf.extended(a, bf.swizzle(swizzle, x)) for x in range(8)]
        if bf.table(result) == expected:
            assert composition(a, swizzle, exact=True) == result
        else:
            with pytest.raises(InexactError):
                composition(a, swizzle, exact=True)


def test_swizzles_among_tilers_and_of_coordinates():
    a = Layout((4, 4), (1, 5))
    assert composition(a, (Swizzle(0, 0, 0), 2), exact=True) == composition(a, (4, 2))
    of_coordinates = ComposedLayout(Swizzle(1, 0, 1), 0, make_identity_layout((4, 4)))
    assert composition(Layout((4, 4)), of_coordinates).shape == (4, 4)
    with refuses(InexactError):
        composition(Layout((4, 4)), of_coordinates, exact=True)


def test_large_swizzled_tiles():
    atom = sm90.gmma_layout_atom("K", "SW128", 16)
    tile = tile_to_shape(atom, (1024, 1024))
    rows = Layout((64, 1 << 24), (1 << 24, 1))
    assert composition(rows, tile, exact=True) == composition(rows, tile)
    for left in (Layout((1 << 15, 1 << 15), (1 << 15, 1)), ComposedLayout(Swizzle(2, 4, 3), 0, Layout(1 << 30))):
        assert composition(left, Swizzle(3, 3, 3), exact=True) == composition(left, Swizzle(3, 3, 3))
    with pytest.raises(InexactError) as caught:  # bits 1 and 3 add up to what the swizzle reads
        composition(Layout((2, 2, 2, 2), (1, 2, 4, 2)), Swizzle(1, 0, 2), exact=True)
    assert caught.value.coordinate == (0, 1, 0, 1)
    reordered = Layout((2, 2, 2, 1 << 20), (2, 1, 4, 8))
    with pytest.raises(InexactError):
        composition(reordered, Swizzle(2, 0, 10), exact=True)


@given(lst.any_layouts(), lst.layouts())
def test_swizzles_on_the_left_are_exact(layout, b):
    swizzle = Swizzle(2, 1, 3)
    assert composition(swizzle, b, exact=True) == composition(swizzle, b)
    assert composition(layout, None, exact=True) == composition(layout, None)


# ---------------------------------------------------------------------------------------------------------------------
# Divides and products
# ---------------------------------------------------------------------------------------------------------------------


def divided_exactly(layout, tiler):
    """Return True if (tile, rest) of one mode have each element of `layout` once, and its value."""
    tile = Layout(tiler) if isinstance(tiler, int) else tiler
    rest = complement(tile, coalesce(layout).shape)
    elements = [x + y for y in bf.table(rest) for x in bf.table(tile)]
    return sorted(elements) == list(range(size(layout))) and bf.table(logical_divide(layout, tiler)) == [
        bf.extended(layout, x) for x in elements
    ]


@given(st.data(), lst.layouts())
def test_divides_have_each_element_once_or_are_refused(data, layout):
    tiler = data.draw(st.integers(1, 9) | lst.layouts(max_size=16, max_stride=16) | lst.tilers(layout, keep=False))
    modes = list(zip(layout, tiler, strict=False)) if isinstance(tiler, tuple) else [(layout, tiler)]
    try:
        logical_divide(layout, tiler)
        exact = all(divided_exactly(mode, t) for mode, t in modes if not isinstance(t, tuple))
    except LayoutError:
        assume(False)
    assume(not any(isinstance(t, tuple) for _, t in modes))
    for divide in DIVIDES:
        if exact:
            assert divide(layout, tiler, exact=True) == divide(layout, tiler)
        else:
            with pytest.raises(InexactError) as caught:
                divide(layout, tiler, exact=True)
            assert caught.value.operation == divide.__name__


def test_cells_beyond_the_layout():
    with refuses(InexactError) as caught:
        zipped_divide(Layout((5, 4)), (2, 2), exact=True)
    assert (caught.value.coordinate, caught.value.element) == (((1, 2), (0, 0)), (5, 0))
    with refuses(InexactError) as caught:
        logical_divide(Layout(8), Layout(2, -1), exact=True)
    assert caught.value.element == -1
    with refuses(InexactError):
        logical_divide(Layout(6), Layout((2, 2), (1, 3)), exact=True)
    with refuses(InexactError):
        logical_divide(Layout(4), Layout((2, 2), (0, 1)), exact=True)
    with refuses(InexactError):  # and as many left out
        logical_divide(Layout(16), Layout((2, 2, 2, 2), (0, 1, 3, 8)), exact=True)
    with refuses(InexactError):
        logical_divide(ComposedLayout(Swizzle(3, 3, 3), 0, Layout((5, 2), (1, 7))), (2, 2), exact=True)
    large = Layout((1 << 15, 1 << 15), (1 << 15, 1))
    assert flat_divide(large, (128, 64), exact=True) == flat_divide(large, (128, 64))
    with pytest.raises(InexactError) as caught:
        logical_divide(large, (None, 96), exact=True)
    assert caught.value.element == (0, 1 << 15)


@given(st.data(), lst.layouts(injective=True, zero_strides=True))
def test_products_place_their_copies_or_are_refused(data, block):
    tiler = data.draw(lst.layouts(max_size=16, max_stride=8))
    try:
        result = logical_product(block, tiler)
    except LayoutError:
        assume(False)
    free = complement(block, size(block) * cosize(tiler))
    exact = bf.table(result[1]) == [bf.extended(free, x) for x in bf.table(tiler)]
    products = [logical_product, zipped_product, blocked_product, raked_product]
    alike = isinstance(block.shape, tuple) and isinstance(tiler.shape, tuple) and block.rank() == tiler.rank()
    for product in products if alike else products[:2]:
        if exact:
            assert product(block, tiler, exact=True) == product(block, tiler)
        else:
            with pytest.raises(InexactError) as caught:
                product(block, tiler, exact=True)
            assert caught.value.operation == product.__name__
            assert caught.value.expected != caught.value.got


def test_copies_that_are_not_where_the_tiler_places_them():
    block = Layout((2, 2), (1, 6))  # leaves room for 3 copies, then for more at 12
    for call in (
        lambda **exact: logical_product(block, Layout((2, 2)), **exact),
        lambda **exact: raked_product(block, Layout((2, 2)), **exact),
        lambda **exact: tile_to_shape(block, (4, 4), **exact),
        lambda **exact: tile_to_shape(ComposedLayout(Swizzle(1, 0, 1), 0, block), (4, 4), **exact),
        lambda **exact: logical_product(Layout((block.shape, 2), (block.stride, 40)), (Layout((2, 2)), None), **exact),
    ):
        call()
        with pytest.raises(InexactError) as caught:
            call(exact=True)
        assert (caught.value.coordinate, caught.value.element) == ((1, 1), 3)
        assert (caught.value.expected, caught.value.got) == (12, 6)
    atom = sm90.gmma_layout_atom("K", "SW128", 16)
    assert tile_to_shape(atom, (256, 256, 4), exact=True) == tile_to_shape(atom, (256, 256, 4))
