"""Every renderer's drawing, read back, equals the layout by brute force."""

import re

import pytest
from hypothesis import given, strategies as st

from cutepy.layouts import ComposedLayout, Layout, SmemPtr
from cutepy.layouts.basis import has_basis
from cutepy.layouts.render import (
    Axis,
    Cell,
    Grid,
    Picture,
    draw_text,
    layout_grid,
    render_html,
    render_latex,
    render_page,
    render_svg,
    render_text,
    table,
)
from cutepy.testing.strategies import basis_layouts, composed_layouts, layouts
from tests.layouts import brute_force
from tests.layouts.render.readers import HtmlGrid, SvgGrid, read_latex, read_text
from tests.messages import pins


def drawn_layouts():
    return st.one_of(layouts(signed=True), composed_layouts(pointers=True), basis_layouts(max_size=32))


def values(layout):
    """Values of a layout at 0, 1, ..., as the notation writes them."""
    if isinstance(layout, ComposedLayout) and isinstance(layout.offset, SmemPtr):
        # A swizzle of byte addresses moves elements of 1, 2 or 4 bytes whole.
        width = layout.offset.bits // 8
        return [brute_force.swizzle(layout.layoutB, width * i) // width for i in brute_force.table(layout.layoutA)]
    if isinstance(layout, Layout) and has_basis(layout.stride):
        return [entries(layout(i)) for i in range(layout.size())]  # brute_force.basis_table has it from the definition
    return brute_force.table(layout)


def entries(coordinate):
    return coordinate if isinstance(coordinate, int) else "(" + ",".join(str(entries(x)) for x in coordinate) + ")"


def flat_coordinates(layout):
    """For each integer coordinate its place: the coordinates of even modes, and of odd ones."""
    shape = layout.shape if isinstance(layout.shape, tuple) else (layout.shape,)
    sizes = [brute_force.size(mode) for mode in shape]
    found = []
    for index in range(brute_force.size(shape)):
        flat = []
        for extent in sizes:
            flat.append(index % extent)
            index //= extent
        found.append((",".join(map(str, flat[0::2])), ",".join(map(str, flat[1::2]))))
    return found


def expected(layout):
    return dict(zip(flat_coordinates(layout), map(str, values(layout)), strict=True))


@given(drawn_layouts(), st.sampled_from((None, 24, 40, 80, 140)))
def test_text_is_the_layout(layout, width):
    text = render_text(layout_grid(layout, title=""), width=width)
    assert read_text(text) == expected(layout)
    if width == 140:
        assert all(len(line) <= width for line in text.splitlines())


def check_svg_is_the_layout(layout):
    svg = SvgGrid(render_svg(layout_grid(layout)))
    svg.check_places()
    labels = sorted(expected(layout))
    rows = list(dict.fromkeys(row for row, _ in sorted(labels, key=lambda label: order(label[0]))))
    columns = list(dict.fromkeys(column for _, column in sorted(labels, key=lambda label: order(label[1]))))
    assert {(rows[i], columns[j]): text for (i, j), text in svg.cells.items()} == expected(layout)
    assert svg.title == str(layout)


def order(label):
    """Later modes lie outside."""
    return [int(part) for part in reversed(label.split(",")) if part]


@given(drawn_layouts(), st.sampled_from((None, 8, 16, 32)))
def test_html_is_the_layout_and_its_tooltips_say_where_elements_lie(layout, bits):
    if isinstance(layout, ComposedLayout) and isinstance(layout.offset, SmemPtr):
        bits = layout.offset.bits
    html = HtmlGrid(render_html(layout_grid(layout, bits=bits)))
    assert html.links == []
    cells = html.cells()
    assert {place: text for place, (text, _, _) in cells.items()} == expected(layout)
    for index, (place, value) in enumerate(zip(flat_coordinates(layout), values(layout), strict=True)):
        _, facts, _ = cells[place]
        assert facts["index"] == str(index)
        assert facts["offset"] == str(value)
        if bits and isinstance(value, int):
            start = layout.offset.address or 0 if getattr(layout, "offset", None).__class__ is SmemPtr else 0
            assert int(facts["byte"]) == start + value * bits // 8
            assert int(facts["bank"]) == (start + value * bits // 8) // 4 % 32
        else:
            assert "byte" not in facts
    natural = [facts["coordinate"] for _, facts, _ in cells.values()]
    spelled = [entries(crd) for crd in brute_force.coordinates(layout.shape)]
    assert sorted(natural) == sorted(map(str, spelled))


def check_latex_is_the_layout(layout):
    (cells, labels), *others = read_latex(render_latex(layout_grid(layout)))
    assert not others
    named = {(labels[i, -1], labels[-1, j]): text for (i, j), (text, _) in cells.items()}
    assert named == expected(layout)


@given(drawn_layouts())
def test_any_layout_is_drawn_as_it_is(layout):
    check_svg_is_the_layout(layout)
    check_latex_is_the_layout(layout)


@given(layouts(), st.sampled_from((8, 16, 32)))
def test_equal_colours_are_equal_units_of_a_line(layout, bits):
    svg = SvgGrid(render_svg(layout_grid(layout, bits=bits)))
    unit_of = {}
    for place, facts in svg.facts.items():
        unit = int(facts["byte"]) // 16 % 8
        assert unit_of.setdefault(svg.fills[place], unit) == unit
    assert len(set(unit_of.values())) == len(unit_of)


@given(layouts(max_rank=2), st.sampled_from((8, 16, 32, 64)), st.integers(0, 5))
def test_banks_are_words_of_four_bytes_modulo_32(layout, bits, lines):
    text = render_text(layout_grid(layout, bits=bits, banks=True, address=128 * lines + 16, title=""))
    banks = [(128 * lines + 16 + i * bits // 8) // 4 % 32 for i in brute_force.table(layout)]
    assert read_text(text) == dict(zip(flat_coordinates(layout), map(str, banks), strict=True))


HOSTILE = '<a href="x">&amp;\\section{%}_^~$#|`\'"</td>'


@pytest.mark.parametrize("text", [HOSTILE, "\x00\x1b[31m\ufffe", "a\nb<c", "é漢", ""])
def test_every_text_is_escaped(text):
    grid = Grid(
        Axis(1, label=[text]),
        Axis(1, label=[text], notes=[text]),
        lambda i, j: Cell(text, data=text, notes=(("note", text),), marks=(text,)),
        title=text,
        caption=(text,),
        colours=text,
        corner=text,
    )
    clean = "".join("\ufffd" if character in "\x00\x1b\ufffe" else character for character in text)
    svg = SvgGrid(render_svg(Picture((grid, grid), text)))
    assert svg.cells[0, 0] == clean
    for html in (HtmlGrid(render_html(grid)), HtmlGrid(render_page(grid))):
        assert html.links == []
        ((shown, facts, attributes),) = html.cells().values()
        assert shown == clean
        assert facts["data"] == clean.split("\n")[0]
        assert set(attributes) == {"class", "title"}
    plain = "".join(c if " " <= c <= "~" else "\n" if c == "\n" else "?" for c in text)
    ((cells, _),) = read_latex(render_latex(grid))
    assert cells[0, 0][0] == plain
    assert "\x1b" not in render_text(grid)


def test_a_page_needs_nothing_else():
    page = render_page(layout_grid(Layout((2, 2))))
    assert HtmlGrid(page).links == []
    assert "http" not in page
    assert "@import" not in page
    assert re.search(r"url\(", page) is None
    assert "http" not in render_svg(layout_grid(Layout(4))).replace("http://www.w3.org/2000/svg", "")


def test_a_picture_draws_each_grid_and_its_title():
    grids = (layout_grid(Layout((2, 2))), layout_grid(Layout((2, 2), (2, 1))))
    picture = Picture(grids, "a & b")
    assert SvgGrid(render_svg(picture)).title == "a & b"
    assert len(HtmlGrid(render_html(picture)).tables) == 2
    assert len(read_latex(render_latex(picture))) == 2
    wide, narrow = render_text(picture, width=140), render_text(picture, width=60)
    assert len(wide.splitlines()) < len(narrow.splitlines())
    assert narrow.splitlines()[0] == "a & b"


def test_latex_draws_lines_where_tiles_end_and_wider_ones_where_tiles_of_tiles_do():
    grid = Grid(Axis(8, tiles=(2, 4)), Axis(6, tiles=(3,)), lambda i, j: Cell(""))
    lines = [line for line in render_latex(grid).split("\n") if line.startswith(r"\draw")]
    assert lines == [
        r"\draw[line width=2pt] (1.5,-0.5) -- (1.5,5.5);",
        r"\draw[line width=3pt] (3.5,-0.5) -- (3.5,5.5);",
        r"\draw[line width=2pt] (5.5,-0.5) -- (5.5,5.5);",
        r"\draw[line width=2pt] (-0.5,2.5) -- (7.5,2.5);",
    ]


def test_cells_of_latex_have_room_for_their_lines():
    for lines, letters in ((1, 1), (1, 9), (2, 3), (3, 9), (7, 1)):
        cell = Cell("\n".join("x" * letters for _ in range(lines)))
        drawn = render_latex(Grid(Axis(2), Axis(2), lambda i, j, cell=cell: cell if i == j else Cell("")))
        (step,) = re.findall(r"x=\{\(0cm,(.*?)cm\)\},y=\{\((.*?)cm,0cm\)\}", drawn)
        (least,) = re.findall(r"minimum width=(.*?)cm,minimum height=(.*?)cm", drawn)
        width, height = map(float, least)
        assert (float(step[1]), -float(step[0])) == (width, height)
        assert height >= max(0.8, 0.4 * lines)
        assert width >= max(0.8, 0.2 * letters)


def test_marks_stand_out_in_every_format():
    grid = Grid(Axis(1), Axis(2), lambda i, j: Cell(str(j), marks=("odd",) if j else ()))
    assert read_text(render_text(grid)) == {("0", "0"): "0", ("0", "1"): "*1"}
    assert SvgGrid(render_svg(grid)).edges == {(0, 0): None, (0, 1): "#D55E00"}
    marked = [attributes.get("class") for _, _, attributes in HtmlGrid(render_html(grid)).cells().values()]
    assert marked == [None, "m"]
    assert "mark" in read_latex(render_latex(grid))[0][0][0, 1][1]


@given(drawn_layouts(), st.sampled_from((None, 16)))
def test_spans_cover_the_texts_of_the_cells(layout, bits):
    pointed = isinstance(layout, ComposedLayout) and isinstance(layout.offset, SmemPtr)
    drawing = draw_text(layout_grid(layout, bits=None if pointed else bits), width=80)
    ends = 0
    coloured = []
    for start, end, style in drawing.spans:
        assert ends <= start < end
        ends = end
        assert "\n" not in drawing.text[start:end]
        if style.startswith("colour"):
            coloured.append((drawing.text[start:end].strip(), style))
    if isinstance(layout, Layout) and not has_basis(layout.stride) and bits is None:
        assert sorted(coloured) == sorted((str(i), f"colour{i % 8}") for i in brute_force.table(layout))


def test_tables_of_texts_keep_notes_and_corner():
    grid = table((("1",), ("22",)), ("a", "b"), ("x",), corner="ab", row_notes=("", "+1"), column_notes=("n",))
    assert render_text(grid).splitlines() == [
        "ab    x",
        "      n",
        "   +----+",
        " a |  1 |",
        " b | 22 | +1",
        "   +----+",
    ]
    html = render_html(grid)
    assert "<th>n</th>" in html
    assert ">+1</th>" in html
    assert ">+1</text>" in render_svg(grid)


def test_the_places_of_texts_and_cells_in_an_svg():
    """Two grids side by side, with titles of one line and of two, tiles, notes, a mark, and a cell of two lines."""
    first = Grid(
        Axis(3, tiles=(2,), notes=["", "+1", ""]),
        Axis(2, label=["a", "longer"], notes=["n", ""]),
        lambda i, j: Cell("1\n22" if (i, j) == (1, 0) else str(i + j), marks=("odd",) * (i == j == 1), colour=i),
        title="a title that is longer than what it stands above, so that it is written in two lines",
        caption=("a caption that is longer than what it stands under, so that it takes two lines too",),
        colours="i",
        corner="ij",
    )
    second = Grid(Axis(1), Axis(2), lambda i, j: Cell(""), title="short")
    pins(render_svg(Picture((first, second), "two of them")).replace("><", ">\n<"))
    pins(render_svg(Grid(Axis(0), Axis(2), lambda i, j: Cell(""))).replace("><", ">\n<"))
