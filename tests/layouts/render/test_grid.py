"""The model: axes, cells, grids of layouts, and folding."""

import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import assume, given, strategies as st

from cutepy.layouts import (
    Layout,
    LayoutError,
    Swizzle,
    make_composed_layout,
    make_identity_layout,
    parse,
    sm90,
    tile_to_shape,
    zipped_divide,
)
from cutepy.layouts.grids.fold import kept, left_out, summarised
from cutepy.layouts.grids.of_layouts import each
from cutepy.layouts.grids.units import in_units
from cutepy.layouts.render import (
    Axis,
    Cell,
    Grid,
    Picture,
    compare,
    layout_grid,
    picture_of,
    render_html,
    render_latex,
    render_svg,
    render_text,
    save,
    steps,
    table,
)
from cutepy.layouts.render.markup import drawable, folded
from cutepy.layouts.render.palette import FILLS, INK
from cutepy.testing.strategies import layouts
from tests.layouts import brute_force
from tests.layouts.render.readers import read_text
from tests.messages import pins, refuses
from tests.processor_time import is_below

SW128 = sm90.gmma_layout_atom("K", "SW128", 16)


def texts(grid):
    return [[cell.text for cell in row] for row in grid.cells]


def test_a_layout_without_modes_is_a_single_element():
    grid = layout_grid(Layout((), ()))
    assert texts(grid) == [["0"]]
    assert grid.caption[0] == "a single element; offsets in elements"


def test_mode_0_runs_down_and_mode_1_across():
    assert texts(layout_grid(Layout((2, 3), (3, 1)))) == [["0", "1", "2"], ["3", "4", "5"]]
    assert texts(layout_grid(Layout(3, 5))) == [["0"], ["5"], ["10"]]
    assert texts(layout_grid(Layout(()))) == [["0"]]


def test_later_modes_repeat_the_tile_outside():
    grid = layout_grid(Layout((2, 2, 3, 2), (1, 10, 100, 1000)))
    assert texts(grid)[3] == ["101", "111", "1101", "1111"]
    assert [grid.rows.label(i) for i in range(6)] == ["0,0", "1,0", "0,1", "1,1", "0,2", "1,2"]
    assert [grid.rows.level(i) for i in range(6)] == [0, 0, 1, 0, 1, 0]


def test_tiles_end_where_hierarchical_modes_do():
    grid = layout_grid(Layout((((2, 1), 3), 4, 2)))
    assert grid.rows.tiles == (2, 6)
    assert [grid.rows.level(i) for i in range(8)] == [0, 0, 1, 0, 1, 0, 2, 0]


def test_composed_layouts_and_coordinates_are_drawn():
    swizzled = make_composed_layout(Swizzle(1, 0, 1), 0, Layout((2, 2), (2, 1)))
    assert texts(layout_grid(swizzled)) == [["0", "1"], ["3", "2"]]
    assert texts(layout_grid(make_identity_layout((1, 2)))) == [["(0,0)", "(0,1)"]]
    nested = parse("(Sw<1,0,1> o 1 o (2,2):(1,2)) o 0 o (2,2):(2,1)")
    assert texts(layout_grid(nested)) == [[str(nested(i, j)) for j in range(2)] for i in range(2)]


def test_extents_of_nothing_draw_nothing():
    grid = layout_grid(Layout((0, 3)))
    assert grid.cells == ()
    pins(render_text(grid))
    assert "<svg" in render_svg(grid)


@pytest.mark.parametrize(
    "arguments",
    [
        {"bits": 0},
        {"bits": True},
        {"bits": "16"},
        {"banks": True},
        {"address": -1},
    ],
)
def test_wrong_options_are_told(arguments):
    with refuses(LayoutError):
        layout_grid(Layout((2, 2)), **arguments)


def test_bits_must_be_the_pointers():
    pointed = sm90.gmma_layout_atom("K", "SW128", 16, pointer_swizzle=True)
    assert layout_grid(pointed).cell(0, 9).byte == 18
    with refuses(LayoutError):
        layout_grid(pointed, bits=32)
    with refuses(LayoutError):
        layout_grid(make_identity_layout((2, 2)), bits=16, banks=True)


def test_both_forms_of_an_atom_have_one_picture():
    pointed = sm90.gmma_layout_atom("MN", "SW64", 8, pointer_swizzle=True)
    assert texts(layout_grid(pointed)) == texts(layout_grid(sm90.gmma_layout_atom("MN", "SW64", 8)))


@pytest.mark.parametrize(
    "make",
    [
        lambda: table((("1",),), ("a", "b"), ("x",)),
        lambda: table((("1", "2"),), ("a",), ("x",)),
        lambda: table((("1",),), ("a",), ("x",), row_notes=("", "")),
        lambda: Axis(8, tiles=(2, 3)),
        lambda: Axis(8, tiles=(0,)),
    ],
)
def test_a_table_must_fit_together(make):
    with refuses(ValueError):
        make()


# ---------------------------------------------------------------------------------------------------------------------
# Folding
# ---------------------------------------------------------------------------------------------------------------------


def flat(layout, coordinate):
    """A natural coordinate with one integer for each mode."""

    def index(crd, shape):
        if not isinstance(crd, tuple):
            return crd
        total = 0
        for c, s in zip(reversed(crd), reversed(shape), strict=True):
            total = index(c, s) + brute_force.size(s) * total
        return total

    return [index(c, s) for c, s in zip(coordinate, layout.shape, strict=True)]


@given(
    st.sampled_from(("MN", "K")),
    st.sampled_from(("INTER", "SW32", "SW64", "SW128")),
    st.sampled_from((4, 8, 16, 32, 64)),
    st.booleans(),
    st.sampled_from((None, (2, 1), (1, 0))),
)
def test_units_are_sixteen_bytes_in_a_row(major, swizzle, bits, pointed, order):
    atom = sm90.gmma_layout_atom(major, swizzle, bits, pointer_swizzle=pointed)
    layout = tile_to_shape(atom, (atom.shape[0], 2 * atom.shape[1]), order)
    units = layout_grid(layout, bits=bits).coarser()
    assert units.size == layout.size() * bits // 128
    seen = set()
    for i, row in enumerate(units.cells):
        for j, cell in enumerate(row):
            seen.add(cell.offset)
            if (i + 3 * j) % 4:
                continue
            assert layout(cell.coordinate) == layout(cell.flat) == cell.offset
            assert (units.rows.label(i), units.columns.label(j)) == tuple(map(str, flat(layout, cell.coordinate)))
            assert cell.byte == cell.offset * bits // 8
            assert cell.text == str(cell.byte // 16)
            # The elements beside the first in its contiguous mode follow in memory.
            last = flat(layout, cell.coordinate)
            last[0 if major == "MN" else 1] += 128 // bits - 1
            assert layout(*last) == cell.offset + 128 // bits - 1
    assert len(seen) == units.size


@given(layouts(signed=True), st.sampled_from((8, 16)), st.integers(0, 3))
def test_a_layout_without_whole_units_is_not_drawn_in_them(layout, bits, start):
    coarser = layout_grid(layout, bits=bits, address=start).coarser
    if coarser is not None:
        for row in coarser().cells:
            for cell in row:
                assert cell.byte % 16 == 0
                assert layout(cell.flat) == cell.offset
        held = brute_force.table(layout)
        starts = {16 * 8 // bits * (i * bits // 128) for i in held}
        assert starts == {cell.offset for row in coarser().cells for cell in row}
        assert all(i + k in held for i in starts for k in range(128 // bits))


def test_a_swizzle_within_units_is_not_hidden():
    assert layout_grid(Layout((4, 2, 3), (1, 2, 8)), bits=16).coarser is None  # overlaps itself
    with refuses(LayoutError):
        layout_grid(Layout((8, 3)), bits=8, units=True)
    with refuses(LayoutError):
        layout_grid(Layout((8, 8)), units=True)
    grid = layout_grid(Layout((8, 64), (64, 1)), bits=16, units=True)
    assert grid.caption[1] == "a cell is a unit, labelled by its first element"
    assert grid.size == 64
    assert layout_grid(parse("Sw<1,0,3> o 0 o (8,16):(16,1)"), bits=16).coarser is None
    assert layout_grid(parse("Sw<1,3,3> o 4 o (8,16):(16,1)"), bits=16).coarser is None
    assert layout_grid(Layout((8, 16), (-16, 1)), bits=16).coarser is None
    assert layout_grid(Layout((8, 16), (16, 1)), bits=16).coarser is not None


@given(st.integers(1, 300), st.integers(1, 40))
def test_what_is_kept_has_both_ends(size, room):
    positions = kept(size, room)
    assert len(positions) <= max(room, 1)
    assert [p for p in positions if p is not None] == sorted({p for p in positions if p is not None})
    if size <= room:
        assert positions == list(range(size))
    elif room >= 3:
        assert positions[0] == 0
        assert positions[-1] == size - 1
        assert positions.count(None) == 1


@given(layouts(max_leaves=6, max_size=4096, max_extent=64), st.integers(1, 200))
def test_a_summary_shows_the_first_of_each_tile(layout, limit):
    whole = layout_grid(layout)
    small = summarised(whole, limit)
    assert small.size <= limit
    if small is whole:
        return
    rows, columns = map(int, small.caption[-1].partition("stands for ")[2].split(" of ")[0].split(" x "))
    for i in range(small.rows.size):
        for j in range(small.columns.size):
            assert small.cell(i, j).offset == whole.cell(i * rows, j * columns).offset
            assert small.rows.label(i) == whole.rows.label(i * rows)
    assert small.rows.size == -(-whole.rows.size // rows)
    assert small.columns.size == -(-whole.columns.size // columns)


@given(
    st.sampled_from((Layout((40, 40)), Layout((16, 64), (64, 1)), tile_to_shape(SW128, (16, 64, 2)), Layout(600))),
    st.sampled_from((40, 80, 140)),
    st.integers(12, 60),
    st.booleans(),
)
def test_folded_text_fits_and_every_cell_is_true(layout, width, height, known):
    grid = layout_grid(layout, bits=16 if known else None)
    text = render_text(grid, width=width, height=height)
    lines = text.splitlines()
    assert all(len(line) <= width for line in lines)
    table_lines = [line for line in lines if "|" in line or "+" in line]
    assert len(table_lines) <= height
    assert ("too large" in text) or ("too many" in text) or len(read_text(text)) == layout.size()
    cells = {place: cell for place, cell in read_text(text).items() if "..." not in (*place, cell)}
    assert cells
    unit = 8 if "units of 16 bytes" in " ".join(text.split()) else 1
    for (row, column), cell in cells.items():
        crd = [0] * len(layout.shape if isinstance(layout.shape, tuple) else (1,))
        crd[0::2] = [int(part) for part in row.split(",")]
        crd[1::2] = [int(part) for part in column.split(",") if part]
        assert layout(*crd) == unit * int(cell)


@pytest.mark.parametrize("layout", [Layout((999, 4)), Layout(((4, 250), 4)), Layout(((2, 5, 100), 4))], ids=str)
def test_folded_text_uses_the_height(layout):
    for height in range(12, 60):
        lines = render_text(layout_grid(layout), width=80, height=height).splitlines()
        table = [line for line in lines if "|" in line or "+" in line]
        rules = sum("+-" in line for line in table)
        assert height - 2 - rules <= len(table) <= height


@pytest.mark.parametrize("shift", range(-3, 4))
def test_offsets_are_swizzled_all_at_once_as_one_by_one(shift):
    for bits in range(abs(shift) + 1):
        for base in range(3):
            swizzle = Swizzle(bits, base, shift)
            assert each(swizzle, list(range(512))) == list(map(swizzle, range(512)))


def test_units_have_modes_that_repeat_elements():
    whole, elements = in_units(Layout((8, 64), (64, 1)), 16)
    for shape, stride in ((1, 0), (4, 0), (4, 512)):
        units, counts = in_units(Layout((8, 64, shape), (64, 1, stride)), 16)
        assert units == Layout((*whole.shape, shape), (*whole.stride, stride // 8))
        assert counts == (*elements, 1)
    assert in_units(Layout((8, 64, 4), (64, 1, -64)), 16) is None


def in_a_text_file(picture):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "picture.txt"
        save(picture, file)
        return file.read_text()


def in_a_terminal(picture):
    return render_text(picture, width=80, height=200)


THOUSAND = Layout((1024, 1024), (1024, 1))
LARGE = {
    "a swizzled tile": lambda: layout_grid(tile_to_shape(SW128, (1024, 1024)), bits=16),
    "threads and values": lambda: picture_of(Layout((128, 8192), (8192, 1)), tv=True, tile=(1024, 1024)),
    "swizzled threads": lambda: picture_of(parse("Sw<3,4,3> o 0 o (128,8192):(8192,1)"), tv=True, tile=(1024, 1024)),
    "a comparison": lambda: compare(THOUSAND, Layout((1024, 1024))),
    "a division": lambda: steps(zipped_divide, THOUSAND, (16, 16)),
}


RENDERERS = (render_svg, render_html, render_latex, in_a_terminal, in_a_text_file)


@pytest.mark.integration
@pytest.mark.parametrize(("what", "render"), list(zip(LARGE, RENDERERS, strict=True)))
def test_a_thousand_squared_takes_less_than_a_second(what, render):
    def drawing() -> float:
        start = time.process_time()
        assert len(render(LARGE[what]())) < 3_000_000
        return time.process_time() - start

    assert is_below(1, drawing)


def test_huge_layouts_are_not_walked():
    start = time.process_time()
    render_text(layout_grid(Layout((1 << 20, 1 << 20))), width=80, height=100)
    render_svg(layout_grid(Layout((1 << 20, 1 << 20)), bits=32))
    render_text(layout_grid(Layout((999999999, 99999999999), (1, 7))), width=80, height=100)
    render_text(compare(Layout((1 << 30, 1 << 70)), Layout((1 << 30, 1 << 70), (1 << 70, 1))), width=80, height=100)
    assert time.process_time() - start < 20  # a walk takes hours; a process that holds much may stop for a second


def test_what_differs_is_marked_in_pictures_too_large_to_count():
    wide, last = Layout((300, 400)), (299, 399)
    both = compare(wide, Layout((300, 401))).grids
    assert not both[0].cell(*last).marks
    assert not both[1].cell(*last).marks
    for first_or_last in (0, 299):
        assert dict(both[1].cell(first_or_last, 400).facts())["other"] == "nothing"
    both = compare(wide, Layout((300, 400), (400, 1))).grids
    assert dict(both[0].cell(*last).facts()).get("other") is None
    assert dict(both[0].cell(1, 0).facts())["other"] == "400"
    assert dict(both[1].cell(1, 0).facts())["other"] == "1"


@pytest.mark.parametrize("rows", [3, 300])
def test_tables_are_compared_at_once_where_they_have_offsets_and_few_cells(rows):
    both = compare(Layout((rows, 400)), Layout((rows, 400), (400, 1)))
    assert [grid.bulk is not None for grid in both.grids] == [rows == 3] * 2
    mixed = compare(Layout((rows, 400)), parse(f"({rows},400):(1@1,1@0)"))
    assert [grid.bulk is not None for grid in mixed.grids] == [rows == 3, False]


@pytest.mark.parametrize("width", range(1, 16))
def test_a_table_keeps_its_first_column_however_narrow(width):
    text = render_text(layout_grid(Layout((4, 50), (1, 10**9))), width=width, height=100)
    assert [read_text(text)[str(i), "0"] for i in range(4)] == ["0", "1", "2", "3"]


@given(st.integers(1, 12), st.integers(0, 14))
def test_what_is_left_out_is_what_is_not_drawn(size, room):
    drawn = kept(size, room)
    assert list(left_out(size, drawn)) == [position for position in range(size) if position not in drawn]


def test_too_many_threads_and_values_are_refused():
    with refuses(LayoutError):
        picture_of(Layout((1 << 20, 1 << 20)), tv=True)


def test_what_fits_is_drawn_in_full():
    assert drawable(layout_grid(Layout((128, 128)))).grids[0].size == 128 * 128


# ---------------------------------------------------------------------------------------------------------------------
# Colours
# ---------------------------------------------------------------------------------------------------------------------


def luminance(colour):
    """Relative luminance as WCAG 2 defines it."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a, b):
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def as_dichromat(colour, kind):
    """A colour as a dichromat sees it, by the matrices of Viénot, Brettel and Mollon (1999), in linear RGB."""
    matrix = {
        "protan": ((0.11238, 0.88762, 0.0), (0.11238, 0.88762, 0.0), (0.00401, -0.00401, 1.0)),
        "deutan": ((0.29275, 0.70725, 0.0), (0.29275, 0.70725, 0.0), (-0.02234, 0.02234, 1.0)),
    }[kind]
    rgb = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb]
    return [sum(m * c for m, c in zip(row, linear, strict=True)) for row in matrix]


def test_text_can_be_read_on_every_colour():
    assert all(contrast(fill, INK) >= 7 for fill in FILLS)  # WCAG 2, level AAA


@pytest.mark.parametrize("kind", ["protan", "deutan"])
def test_dichromats_see_eight_colours(kind):
    seen = [as_dichromat(fill, kind) for fill in FILLS]
    for i, a in enumerate(seen):
        for b in seen[:i]:
            assert max(abs(x - y) for x, y in zip(a, b, strict=True)) > 0.04


def test_pictures_are_drawn_as_they_are():
    grid = Grid(Axis(1), Axis(1), lambda i, j: Cell("x"))
    assert picture_of(grid) is grid
    with refuses(TypeError):
        picture_of(grid, bits=16)


@given(layouts())
def test_facts_are_the_layouts(layout):
    assume(layout.size())
    cell = layout_grid(layout, bits=32, address=64).cell(0, 0)
    assert dict(cell.facts())["byte"] == "64"
    assert (cell.thread, cell.value) == (None, None)


def test_captions_say_what_stands_in_the_cells():
    said = []
    for text, options in (
        ("(8,16):(16,1)", {}),
        ("(8,16):(16,1)", {"bits": 16}),
        ("(8,16):(16,1)", {"bits": 16, "banks": True}),
        ("(8,16):(16,1)", {"bits": 16, "units": True}),
        ("(8,16):(16,1)", {"bits": 16, "banks": True, "units": True}),
        ("(2,2):(1@0,1@1)", {}),
        ("Sw<1,0,2> o 0 o (4,4):(4,1)", {}),
        ("Sw<0,0,2> o 1 o (4,4):(4,1)", {}),
        ("Sw<3,4,3> o smem_ptr[16b](0x80) o (8,64):(64,1)", {}),
        ("Sw<3,4,3> o smem_ptr[16b](unset) o (1024,128):(128,1)", {}),
        ("(2,2):(1,3) o 0 o (2,2):(1,3)", {}),
        ("(2,2):(1,3) o 1 o (2,2):(1,3)", {}),
        ("(2,2):(1,3) o 0 o (2,2):(1,2)", {}),
    ):
        grid = layout_grid(parse(text), **options)
        said += [f"{text} {options}", *(f"    {line}" for line in grid.caption), f"    {grid.colours}"]
    pins("\n".join(said))


def test_pictures_beyond_16384_cells_are_drawn_in_at_most_4096():
    def drawn(shape, *limit):
        return drawable(layout_grid(Layout(shape)), *limit).grids[0].size

    assert drawn((128, 128)) == 16384
    assert drawn((128, 129)) == 32 * 65
    assert drawn((5, 3277)) < 16384
    assert drawn((17, 4 * 241)) == 17 * 121
    assert drawn((256, 256)) == 4096
    assert drawn((64, 64), 4096) == 4096
    assert drawn((64, 65), 4096) == 64 * 33
    assert drawn((64, 65), 64 * 65) == 64 * 65
    assert drawn((64, 64), 1024) == 1024


def test_pictures_are_folded_until_they_fit():
    """All cells are drawn where they fit; else cells of each grid go, then the last grids, then cells again."""
    found = []
    for characters in (60, 100, 2000):
        for count, size in ((1, 16), (1, 128), (1, 256), (3, 128), (64, 8), (64, 64), (40, 32)):
            picture = Picture((layout_grid(Layout((size, size))),) * count, "")
            tried = []

            def draw(drawn, tried=tried, characters=characters):
                notes = [note.split(" for ")[0] for note in drawn.grids[-1].caption[1:] if "cells are" not in note]
                notes = [note.partition(" pictures:")[0] for note in notes]
                tried.append(", ".join([f"{len(drawn.grids)} of {drawn.grids[-1].size}", *notes]))
                return "x" * (characters * sum(grid.size for grid in drawn.grids))

            assert len(folded(picture, draw)) <= 300_000
            found.append(f"{count} of {size * size}, {characters} characters a cell: {'; '.join(tried)}")
    pins("\n".join(found))


def test_a_notebook_keeps_300000_characters_of_a_picture():
    picture = layout_grid(Layout((4, 4)))
    assert len(folded(picture, lambda drawn: "x" * (300_000 if drawn.grids[0].size == 16 else 1))) == 300_000
    assert len(folded(picture, lambda drawn: "x" * (300_001 if drawn.grids[0].size == 16 else 1))) == 1
    assert folded(Picture(()), lambda drawn: f"{len(drawn.grids)} grids") == "0 grids"
