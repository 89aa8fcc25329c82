"""Divides cut a layout into tiles and lose nothing; products place copies of a block and overlap nothing."""

import itertools

import pytest
from hypothesis import given, strategies as st

from cutepy.layouts import (
    ComposedLayout,
    Layout,
    LayoutError,
    Swizzle,
    append,
    blocked_product,
    compatible,
    complement,
    composition,
    flat_divide,
    flat_product,
    hier_unzip,
    logical_divide,
    logical_product,
    make_layout,
    product_each,
    raked_product,
    tile_to_shape,
    tile_unzip,
    tiled_divide,
    tiled_product,
    zipped_divide,
    zipped_product,
)
from cutepy.testing import strategies as lst
from tests.layouts import brute_force as bf
from tests.messages import refuses

DIVIDES = {"logical": logical_divide, "zipped": zipped_divide, "tiled": tiled_divide, "flat": flat_divide}
PRODUCTS = {"logical": logical_product, "zipped": zipped_product, "tiled": tiled_product, "flat": flat_product}


@st.composite
def divisions(draw, keep=False, **options):
    layout = draw(lst.layouts(**options))
    return layout, draw(lst.tilers(layout, keep=keep))


@st.composite
def products_by_mode(draw):
    """A block, and a tuple with a tiler for each of its modes."""
    operands = draw(st.lists(lst.product_operands(), min_size=1, max_size=2))
    return make_layout(*(block for block, _ in operands)), tuple(tiler for _, tiler in operands)


def unzipped(layout, tiler):
    """(tiles, rests) of a logical divide or product, as lists of modes in the nesting of a tuple tiler."""
    if not isinstance(tiler, tuple):
        tile, rest = layout
        return tile, rest
    pairs = [unzipped(mode, t) for mode, t in zip(layout, tiler, strict=False)]
    return make_layout(*(p[0] for p in pairs)), make_layout(*(p[1] for p in pairs), *list(layout)[len(tiler) :])


def spread(layout):
    """The modes of a layout that has several, or the layout itself."""
    return list(layout) if layout.rank() > 1 else [layout]


def check_regrouping(functions, layout, tiler):
    logical = functions["logical"](layout, tiler)
    first, second = unzipped(logical, tiler)
    assert functions["zipped"](layout, tiler) == make_layout(first, second)
    assert functions["tiled"](layout, tiler) == make_layout(first, *spread(second))
    assert functions["flat"](layout, tiler) == make_layout(*spread(first), *spread(second))
    assert hier_unzip(functions["logical"], layout, tiler) == make_layout(first, second)


# ---------------------------------------------------------------------------------------------------------------------
# Divide
# ---------------------------------------------------------------------------------------------------------------------


def check_a_divide_keeps_every_element(pair):
    layout, tiler = pair
    for divide in DIVIDES.values():
        assert sorted(bf.table(divide(layout, tiler))) == sorted(bf.table(layout))


@given(divisions(keep=True, signed=True))
def test_a_logical_divide_keeps_every_element_also_of_modes_left_whole(pair):
    layout, tiler = pair
    assert sorted(bf.table(logical_divide(layout, tiler))) == sorted(bf.table(layout))


def check_the_tile_is_the_composition_with_the_tiler(data, layout):
    tiler = data.draw(lst.tiler_layouts(layout))
    tile, rest = logical_divide(layout, tiler)
    assert bf.table(tile) == [bf.extended(layout, i) for i in bf.table(tiler)]
    assert compatible(tiler, tile)
    starts = bf.greedy_complement(bf.table(tiler), rest.size())
    assert bf.table(rest) == [bf.extended(layout, i) for i in starts]


@given(st.data(), lst.layouts(compact=True))
def test_the_divide_of_a_compact_layout_is_its_composition_with_the_tiler_and_its_complement(data, layout):
    tiler = data.draw(lst.tiler_layouts(layout))
    whole = make_layout(tiler, complement(tiler, layout.size()))
    assert sorted(bf.table(whole)) == list(range(layout.size()))
    assert bf.table(logical_divide(layout, tiler)) == bf.table(composition(layout, whole))


def check_a_tuple_divides_mode_by_mode(data, layout):
    tilers = tuple(data.draw(lst.tilers(mode)) for mode in list(layout)[: data.draw(st.integers(1, layout.rank()))])
    modes = list(layout)
    divided = [logical_divide(mode, tiler) for mode, tiler in zip(modes, tilers, strict=False)]
    assert list(logical_divide(layout, tilers)) == divided + modes[len(tilers) :]


@given(st.data(), lst.layouts(signed=True))
def test_tilers_of_any_layout(data, layout):
    check_the_tile_is_the_composition_with_the_tiler(data, layout)
    check_a_tuple_divides_mode_by_mode(data, layout)


@given(divisions(signed=True))
def test_divides_are_regroupings_of_the_logical_divide(pair):
    check_regrouping(DIVIDES, *pair)


def check_an_integer_divides_as_a_compact_layout_does(pair):
    layout, tiler = pair
    if isinstance(tiler, int):
        assert logical_divide(layout, tiler) == logical_divide(layout, Layout(tiler))
    assert logical_divide(layout, None) is layout


@given(divisions())
def test_any_division(pair):
    check_a_divide_keeps_every_element(pair)
    check_an_integer_divides_as_a_compact_layout_does(pair)


@given(st.data(), lst.composed_layouts())
def test_a_divide_of_a_composed_layout_divides_its_domain(data, layout):
    tiler = data.draw(lst.tilers(layout.layoutA, keep=False))
    elements = sorted(bf.table(layout))
    for divide in DIVIDES.values():
        table = bf.table(divide(layout, tiler))
        assert table == bf.table(ComposedLayout(layout.layoutB, layout.offset, divide(layout.layoutA, tiler)))
        assert sorted(table) == elements


def test_divides_of_all_small_compact_layouts():
    for m, n in itertools.product(range(1, 7), repeat=2):
        for layout in (Layout((m, n)), Layout((m, n), (n, 1))):
            for tile_m, tile_n in itertools.product(range(1, m + 1), range(1, n + 1)):
                if m % tile_m == 0 and n % tile_n == 0:
                    divided = zipped_divide(layout, (tile_m, tile_n))
                    assert divided.shape == ((tile_m, tile_n), (m // tile_m, n // tile_n))
                    for i, j in itertools.product(range(m), range(n)):
                        inside, outside = (i % tile_m, j % tile_n), (i // tile_m, j // tile_n)
                        assert divided(inside, outside) == layout(i, j)


# ---------------------------------------------------------------------------------------------------------------------
# Product
# ---------------------------------------------------------------------------------------------------------------------


def check_a_product_is_the_block_and_copies_where_it_leaves_room(pair):
    block, tiler = pair
    inside, copies = logical_product(block, tiler)
    room = bf.greedy_complement(bf.table(block), tiler.cosize())
    assert inside == block
    assert compatible(tiler, copies)
    assert bf.table(copies) == [room[i] for i in bf.table(tiler)]


def check_the_copies_of_a_product_are_shifted_blocks_that_do_not_overlap(pair):
    block, tiler = pair
    room = bf.greedy_complement(bf.table(block), tiler.cosize())
    copies = sorted(b + room[i] for b in bf.table(block) for i in bf.table(tiler))
    for product in PRODUCTS.values():
        table = bf.table(product(block, tiler))
        assert sorted(table) == copies
        assert len(set(table)) == block.size() * tiler.size()


def check_products_are_regroupings_of_the_logical_product(pair):
    check_regrouping(PRODUCTS, *pair)


@given(products_by_mode())
def test_a_tuple_multiplies_mode_by_mode(operands):
    block, tilers = operands
    expected = [logical_product(mode, tiler) for mode, tiler in zip(block, tilers, strict=True)]
    assert list(logical_product(block, tilers)) == expected
    assert list(logical_product(block, (None,) * len(tilers))) == list(block)
    check_regrouping(PRODUCTS, block, tilers)


@given(lst.layouts(compact=True), st.integers(1, 6))
def test_an_integer_multiplies_as_a_compact_layout_does(block, n):
    assert logical_product(block, n) == logical_product(block, Layout(n))
    assert bf.table(logical_product(block, n)) == [i + block.size() * j for j in range(n) for i in bf.table(block)]


def with_modes(layout):
    """The layout with a tuple as its shape."""
    return layout if isinstance(layout.shape, tuple) else make_layout(layout)


def check_blocked_and_raked_products_pair_the_modes(pair):
    block, tiler = map(with_modes, pair)
    rank = max(block.rank(), tiler.rank())
    inside, copies = logical_product(append(block, rank), append(tiler, rank))
    blocked, raked = blocked_product(block, tiler), raked_product(block, tiler)
    assert [list(mode) for mode in blocked] == [[inside[i], copies[i]] for i in range(rank)]
    assert [list(mode) for mode in raked] == [[copies[i], inside[i]] for i in range(rank)]
    assert sorted(bf.table(blocked)) == sorted(bf.table(raked)) == sorted(bf.table(logical_product(block, tiler)))


@given(lst.product_operands())
def test_any_product(pair):
    check_a_product_is_the_block_and_copies_where_it_leaves_room(pair)
    check_the_copies_of_a_product_are_shifted_blocks_that_do_not_overlap(pair)
    check_products_are_regroupings_of_the_logical_product(pair)
    check_blocked_and_raked_products_pair_the_modes(pair)


@given(st.data(), lst.layouts(max_depth=1, max_size=16, compact=True))
def test_raked_products_deal_neighbours_to_different_copies(data, block):
    block = with_modes(block)
    copies = Layout(tuple(data.draw(st.integers(1, 3)) for _ in block))
    blocked, raked = blocked_product(block, copies), raked_product(block, copies)
    for inside, outside in itertools.product(bf.coordinates(block.shape), bf.coordinates(copies.shape)):
        index = block(inside) + block.size() * copies(outside)
        assert blocked(tuple(zip(inside, outside, strict=True))) == index
        assert raked(tuple(zip(outside, inside, strict=True))) == index


@given(st.data(), lst.composed_layouts(lst.layouts(compact=True)))
def test_a_product_of_a_composed_block_multiplies_its_domain(data, block):
    n = data.draw(st.integers(1, 4))
    inside = logical_product(block.layoutA, n)
    assert bf.table(logical_product(block, n)) == bf.table(ComposedLayout(block.layoutB, block.offset, inside))


@given(lst.swizzles(max_base=2), lst.layouts(compact=True, powers_of_two=True, max_size=16))
def test_a_swizzled_tiler_swizzles_the_copies(swizzle, block):
    tiler = composition(swizzle, Layout(swizzle.size()))
    result = logical_product(block, tiler)
    if swizzle.bits == 0:
        assert isinstance(result, Layout)
        return
    copies = [bf.swizzle(swizzle, i) for i in range(swizzle.size())]
    assert bf.table(result) == [b + block.size() * i for i in copies for b in bf.table(block)]


# ---------------------------------------------------------------------------------------------------------------------
# Tile to shape
# ---------------------------------------------------------------------------------------------------------------------


@st.composite
def fillings(draw):
    block = draw(lst.layouts(max_size=16, compact=True))
    shape = draw(lst.target_shapes(block))
    return block, shape, draw(st.none() | st.permutations(range(len(shape))).map(tuple))


def fill(block, shape, order):
    return tile_to_shape(block, shape) if order is None else tile_to_shape(block, shape, order)


def check_tile_to_shape_fills_its_shape_one_to_one(filling):
    _, shape, _ = filling
    result = fill(*filling)
    assert product_each(result.shape) == shape
    assert sorted(bf.table(result)) == list(range(bf.size(shape)))
    assert compatible(shape, result)


def check_each_tile_is_a_shifted_block(filling):
    block, shape, order = filling
    block = append(with_modes(block), len(shape))
    copies = tuple(s // bf.size(mode.shape) for s, mode in zip(shape, block, strict=True))
    by_order = sorted(range(len(shape)), key=range(len(shape)).__getitem__ if order is None else order.__getitem__)
    number = {}
    for copy in sorted(bf.coordinates(copies), key=lambda copy: [copy[mode] for mode in reversed(by_order)]):
        number[copy] = len(number)
    result = fill(block, shape, order)
    for copy, inside in itertools.product(number, bf.coordinates(block.shape)):
        assert result(tuple(zip(inside, copy, strict=True))) == block.size() * number[copy] + block(inside)


@given(fillings())
def test_any_filling(filling):
    check_tile_to_shape_fills_its_shape_one_to_one(filling)
    check_each_tile_is_a_shifted_block(filling)


@given(fillings(), lst.swizzles(), st.integers(0, 32))
def test_tile_to_shape_of_a_composed_block_fills_its_domain(filling, swizzle, offset):
    block, shape, order = filling
    inside = fill(block, shape, order)
    result = fill(ComposedLayout(swizzle, offset, block), shape, order)
    assert bf.table(result) == [bf.swizzle(swizzle, offset + i) for i in bf.table(inside)]


# ---------------------------------------------------------------------------------------------------------------------
# Single cases
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda: logical_divide(Layout((4, 4), (1, 5)), (2, 2, 2)),
        lambda: logical_divide(Layout((4, 3), (1, 5)), 6),
        lambda: zipped_divide(Layout((4, 4)), (2, None)),
        lambda: tile_unzip(Layout((4, 4)), (2, 2, 2)),
        lambda: logical_product(Layout((2, 2), (2, 12)), (5,)),
        lambda: logical_product(Layout((2, 2), (1, 1)), 5),
        lambda: tile_to_shape(Layout((8, 8, 2)), (16, 16)),
        lambda: tile_to_shape(Layout((8, 64)), (100, 64)),
        lambda: logical_product(Layout(4), ComposedLayout(Swizzle(1, 0, 1), 3, Layout(4))),
    ],
)
def test_operands_that_do_not_fit(call):
    with refuses(LayoutError):
        call()


@pytest.mark.parametrize("function", [logical_divide, logical_product, blocked_product, raked_product, tile_to_shape])
def test_operands_that_are_no_layouts(function):
    with refuses(TypeError):
        function("text", 4)


@pytest.mark.parametrize("function", [logical_divide, logical_product, blocked_product, raked_product])
def test_tilers_that_are_no_tilers(function):
    with refuses(TypeError):
        function(Layout(4), "text")


@pytest.mark.parametrize("function", [blocked_product, raked_product])
def test_ranked_products_take_an_integer(function):
    assert function(Layout(4), 2) == function(Layout(4), Layout(2))
