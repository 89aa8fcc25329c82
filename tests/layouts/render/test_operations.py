"""Steps of operations and comparisons, against the tables of the layouts."""

import pytest
from hypothesis import given, strategies as st

from cutepy.layouts import (
    ComposedLayout,
    Layout,
    LayoutError,
    Swizzle,
    blocked_product,
    coalesce,
    compare,
    complement,
    composition,
    flat_divide,
    flat_product,
    logical_divide,
    logical_product,
    make_layout,
    parse,
    raked_product,
    right_inverse,
    sm90,
    steps,
    tile_to_shape,
    tiled_divide,
    tiled_product,
    zipped_divide,
    zipped_product,
)
from cutepy.layouts.render import picture_of, render_html, render_svg, render_text
from cutepy.testing.strategies import layouts
from tests.layouts import brute_force
from tests.layouts.render.readers import SvgGrid, read_text
from tests.messages import pins, refuses


def titles(picture):
    return [grid.title for grid in picture.grids]


def cells(grid):
    return [cell for row in grid.cells for cell in row]


def marked(grid):
    return {cell.offset for cell in cells(grid) if cell.marks}


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.booleans(), st.booleans())
def test_tiles_keep_their_colour_through_a_division(m, n, rest_m, rest_n, row_major, zipped):
    shape = (m * rest_m, n * rest_n)
    layout = Layout(shape, (shape[1], 1)) if row_major else Layout(shape)
    operation = zipped_divide if zipped else logical_divide
    picture = steps(operation, layout, (m, n))
    assert len(picture.grids) == 2 + zipped
    steps_of = (shape[1], 1) if row_major else (1, shape[0])
    for grid in picture.grids:
        for cell in cells(grid):
            i, j = cell.offset // steps_of[0] % shape[0], cell.offset // steps_of[1] % shape[1]
            number = i // m + rest_m * (j // n)
            assert cell.colour == number % 8
            assert bool(cell.marks) == (number == 0)
            assert dict(cell.notes)["tile"] == str(number)


def test_a_tiler_that_is_a_layout_is_drawn_with_its_complement():
    picture = steps(logical_divide, Layout(24), Layout(4, 2))
    assert titles(picture) == [
        "layout 24:1",
        "tiler 4:2",
        "its complement (2,3):(1,8)",
        "logical_divide (4,(2,3)):(2,(1,8))",
    ]
    assert picture.title == "logical_divide(24:1, 4:2)"
    assert marked(picture.grids[0]) == {0, 2, 4, 6}
    assert titles(steps(tiled_divide, Layout(24), Layout(4, 2)))[-2] == "logical_divide (4,(2,3)):(2,(1,8))"


def test_the_complement_is_the_one_that_the_divide_composes_with():
    layout, tile = Layout((5, 2), (0, 1)), Layout((1, 1, 2), (0, 0, 4))
    rest = complement(tile, coalesce(layout).shape)
    assert rest != complement(tile, layout.size())
    assert f"its complement {rest}" in titles(steps(logical_divide, layout, tile))
    assert logical_divide(layout, tile) == composition(layout, make_layout(tile, rest))


@pytest.mark.parametrize("operation", [blocked_product, raked_product, logical_product])
@pytest.mark.parametrize("block", [Layout((2, 3), (3, 1)), parse("Sw<1,0,2> o 0 o (2,4):(4,1)")])
def test_copies_keep_their_colour_through_a_product(operation, block):
    tiler = Layout((2, 2), (2, 1))
    picture = steps(operation, block, tiler)
    result = operation(block, tiler)
    assert [cell.offset for cell in cells(picture.grids[-1])] != []
    assert marked(picture.grids[0]) == set(brute_force.table(block))
    assert marked(picture.grids[-1]) == set(brute_force.table(block))
    sizes = {}
    for cell in cells(picture.grids[-1]):
        sizes[cell.colour] = sizes.get(cell.colour, 0) + 1
    assert sizes == dict.fromkeys(range(4), block.size())
    arrangement = picture.grids[1]
    assert [cell.colour for cell in cells(arrangement)] == [0, 2, 1, 3]
    assert picture.grids[-1].title.endswith(str(result))


@pytest.mark.parametrize("operation", [zipped_product, tiled_product, flat_product, blocked_product, logical_product])
def test_a_product_is_shown_by_way_of_the_logical_product(operation):
    block, tiler = Layout((2, 3), (3, 1)), Layout(4)
    shown = [title.partition(" ")[0] for title in titles(steps(operation, block, tiler))]
    assert shown == ["block", "copies", *["logical_product"] * (operation is not logical_product), operation.__name__]


def test_tile_to_shape_shows_atom_arrangement_and_result():
    atom = sm90.gmma_layout_atom("MN", "SW32", 16)
    picture = steps(tile_to_shape, atom, (32, 16, 2), (1, 0, 2))
    assert titles(picture)[1] == "copies (2,2,2):(2,1,4)"
    assert titles(picture)[-1] == f"tile_to_shape {tile_to_shape(atom, (32, 16, 2), (1, 0, 2))}"
    assert marked(picture.grids[-1]) == set(brute_force.table(atom))
    assert {cell.colour for cell in cells(picture.grids[-1])} == set(range(8))
    assert titles(steps(tile_to_shape, Layout((2, 2)), (4, 4)))[1] == "copies (2,2):(1,2)"


def test_composition_marks_what_it_takes():
    picture = steps(composition, Layout((4, 6)), Layout(6, 2))
    assert marked(picture.grids[0]) == {0, 2, 4, 6, 8, 10}
    assert len(picture.grids) == 3
    assert len(steps(composition, Layout((4, 6)), (2, 3)).grids) == 2
    swizzled = steps(composition, parse("Sw<1,0,1>"), Layout((2, 2)))
    assert swizzled.grids[-1].title == "composition Sw<1,0,1> o 0 o (2,2):(1,2)"


def test_a_partition_marks_what_the_thread_gets():
    mma = sm90.TiledMMA(sm90.wgmma_traits("SM90_64x8x16_F16F16F16_SS"))
    tile, part = steps(mma.partition_C, Layout((64, 8)), 5).grids
    assert marked(tile) == {1 + 64 * 2, 1 + 64 * 3, 9 + 64 * 2, 9 + 64 * 3}
    assert part.title.endswith("129 onwards")
    assert [cell.offset for cell in cells(part)] == [0, 64, 8, 72]


def test_other_operations_show_operands_and_result():
    assert titles(steps(coalesce, Layout((2, (1, 6)), (1, (6, 2))))) == [
        "(2,(1,6)):(1,(6,2))",
        "coalesce 12:1",
    ]
    assert titles(steps(complement, Layout(4, 2), 24))[-1] == "complement (2,3):(1,8)"
    assert titles(steps(right_inverse, Layout((2, 4), (4, 1))))[-1].startswith("right_inverse")
    with refuses(TypeError):
        steps(len, (1, 2))
    with refuses(TypeError):
        steps("logical_divide", Layout(4), 2)
    with pytest.raises(LayoutError):
        steps(composition, Layout((8, 8), (8, 1)), Layout(4, 3))


def remarks(picture):
    return [line for grid in picture.grids for line in grid.caption if "inexact" in line or "another" in line]


@pytest.mark.parametrize(
    ("operation", "operands", "told"),
    [
        (composition, (Layout((6, 2), (1, 7)), Layout((3, 2), (2, 3))), ("(2,1)", "7", "8")),
        (composition, (ComposedLayout(Swizzle(1, 0, 1), 0, Layout((4, 2), (1, 8))), Layout((2, 2), (2, 4))), ()),
        (composition, (Layout((4, 2), (1, 8)), Layout(4, 3)), ("(0,1)", "6", "10", "8")),
        (logical_divide, (Layout(5), 2), ("beyond", "(1,2)", "5")),
        (zipped_divide, (Layout((5, 4)), (2, 2)), ("beyond", "(5,0)")),
        (tiled_divide, (Layout(6), Layout((2, 2), (1, 3))), ("left out",)),
        (flat_divide, (Layout(4), Layout((2, 2), (0, 1))), ("repeated",)),
        (zipped_divide, (Layout((4, 4)), (2, 2)), ()),
        (logical_product, (Layout((2, 2), (1, 6)), Layout((2, 2))), ("copy (1,1)", "12", "6")),
        (raked_product, (Layout((2, 2), (1, 6)), Layout((2, 2))), ("copy (1,1)", "12", "6")),
        (blocked_product, (Layout((2, 2)), Layout((2, 2))), ()),
        (tile_to_shape, (Layout((2, 2), (1, 6)), (4, 4)), ("copy (1,1)", "12", "6")),
    ],
)
def test_a_result_that_is_another_function_is_drawn_with_a_remark(operation, operands, told):
    picture = steps(operation, *operands)
    assert bool(remarks(picture)) == bool(told)
    assert all(word in remarks(picture)[0] for word in told)
    assert (picture.grids[-1].caption[-1] in remarks(picture)) == bool(told)
    for render in (render_text, render_svg, render_html):
        assert ("inexact" in render(picture)) == bool(told)


def test_a_partition_of_a_tile_that_does_not_divide_is_drawn_with_a_remark():
    mma = sm90.TiledMMA(sm90.wgmma_traits("SM90_64x8x16_F16F16F16_SS"))
    (remark,) = remarks(steps(mma.partition_C, Layout((65, 8)), 5))
    assert all(word in remark for word in ("beyond", "(65,2)", "(65,8)"))
    wide = ComposedLayout(Swizzle(1, 3, 3), 0, Layout((64, 12), (16, 1)))
    assert "beyond" in remarks(steps(mma.partition_C, wide, 7))[0]
    assert not remarks(steps(mma.partition_C, wide, 5))
    (remark,) = remarks(steps(mma.partition_C, Layout((64, (2, 6))), 7))
    assert "beyond" in remark
    assert not remarks(steps(mma.partition_C, Layout((128, (8, 2))), 5))


def test_a_layout_after_a_layout_is_drawn_as_the_function_that_it_is():
    a, b = Layout((6, 2), (1, 7)), Layout((3, 2), (2, 3))
    exact = ComposedLayout(a, 0, b)
    both = compare(composition(a, b), exact)
    assert both.title == "1 of 6 elements differ"
    (remark,) = remarks(both)
    assert all(word in remark for word in ("composition", str(composition(a, b)), "(2,1)"))
    assert remark in picture_of(exact).caption
    assert "another" not in " ".join(picture_of(ComposedLayout(a, 0, Layout(6))).caption)
    assert "another" not in " ".join(picture_of(ComposedLayout(a, 0, Layout(5, 5))).caption)  # no composition


def test_a_kept_mode_is_drawn_without_following():
    picture = steps(logical_divide, Layout((4, 6)), (2, None))
    assert picture.grids[-1].title == "logical_divide ((2,2),6):((1,2),4)"


@pytest.mark.parametrize("render", [render_text, render_svg, render_html])
def test_steps_are_drawn_by_every_renderer(render):
    assert "blocked_product" in render(steps(blocked_product, Layout((2, 2)), Layout((2, 2))))


@given(layouts((2, (3, 2)), max_stride=8), layouts(((2, 3), 2), max_stride=8))
def test_exactly_what_differs_is_marked(a, b):
    picture = compare(a, b)
    ours, theirs = brute_force.table(a), brute_force.table(b)
    differing = {index for index in range(12) if ours[index] != theirs[index]}
    for grid in picture.grids:
        assert {cell.flat for cell in cells(grid) if cell.marks} == differing
    expected = f"{len(differing)} of 12 elements differ" if differing else "all 12 elements equal"
    assert picture.title == expected
    drawn = read_text(render_text(picture.grids[0].but(title="")))
    assert sum(text.startswith("*") for text in drawn.values()) == len(differing)


def test_sizes_may_differ_and_texts_are_read():
    picture = compare(Layout(4), "6:1")
    assert picture.title == "2 of 6 elements differ; the sizes are 4 and 6"
    assert marked(picture.grids[1]) == {4, 5}
    assert ("other", "nothing") in picture.grids[1].cell(4, 0).notes
    assert compare("S<3,4,3> o 0 o (8,64):(64,1)", sm90.gmma_layout_atom("K", "SW128", 16), bits=16).title == (
        "all 512 elements equal"
    )
    big = compare(Layout((512, 512)), Layout((512, 512), (512, 1)))
    pins(big.title)
    with refuses(TypeError):
        compare(sm90.wgmma_traits("SM90_64x8x16_F16F16F16_SS"), Layout(4))


def test_owners_compare_too():
    a = sm90.wgmma_traits("SM90_64x8x16_F16F16F16_SS")
    b = sm90.wgmma_traits("SM90_64x8x16_F16F16F16_RS")
    assert compare(a, b, operand="C").title == "all 512 elements equal"
    assert compare(a, b, operand="A").title == "1024 of 1024 elements differ"


def test_marks_reach_the_svg():
    svg = SvgGrid(render_svg(compare(Layout(2), Layout(2, 2))))
    assert svg.title == "1 of 2 elements differ"
    assert sorted(svg.edges.values(), key=str) == ["#D55E00", None]
