"""Grids, and their text."""

import pytest

from cutepy.layouts import Layout, LayoutError, Swizzle, make_composed_layout, make_identity_layout
from cutepy.layouts.render import Grid, layout_grid, render_text


def test_a_layout_is_drawn_with_mode_0_down():
    assert render_text(layout_grid(Layout((2, 3), (3, 1)))) == "\n".join(
        [
            "    0   1   2",
            "  +---+---+---+",
            "0 | 0 | 1 | 2 |",
            "  +---+---+---+",
            "1 | 3 | 4 | 5 |",
            "  +---+---+---+",
        ]
    )


def test_rank_1_is_a_column_and_hierarchy_is_flat():
    assert layout_grid(Layout(3, 5)).cells == (("0",), ("5",), ("10",))
    assert layout_grid(Layout(((2, 2), 1), ((1, 8), 0))).cells == (("0",), ("1",), ("8",), ("9",))
    with pytest.raises(LayoutError, match="rank must be 1 or 2, got 3; group modes first"):
        layout_grid(Layout((2, 2, 2)))


def test_composed_layouts_and_coordinates_are_drawn():
    swizzled = make_composed_layout(Swizzle(1, 0, 1), 0, Layout((2, 2), (2, 1)))
    assert layout_grid(swizzled).cells == (("0", "1"), ("3", "2"))
    assert layout_grid(make_identity_layout((1, 2)), cell=lambda c: f"{c[0]};{c[1]}").cells == (("0;0", "0;1"),)


def test_notes_stand_beside_rows_and_under_columns():
    grid = Grid((("1",), ("22",)), ("a", "b"), ("x",), corner="ab", row_notes=("", "+1"), column_notes=("n",))
    assert render_text(grid) == "\n".join(
        ["ab    x", "      n", "   +----+", " a |  1 |", "   +----+", " b | 22 | +1", "   +----+"]
    )


@pytest.mark.parametrize(
    ("arguments", "keywords", "message"),
    [
        (((("1",),), ("a", "b"), ("x",)), {}, "row_labels must have 1 texts, got 2"),
        (((("1", "2"),), ("a",), ("x",)), {}, "one cell for each of 1 column labels, got 2"),
        (((("1",),), ("a",), ("x",)), {"row_notes": ("", "")}, "row_notes must have 1 texts, got 2"),
        (((("1",),), ("a",), ("x",)), {"column_notes": ("", "")}, "column_notes must have 1 texts, got 2"),
    ],
)
def test_labels_must_match_the_cells(arguments, keywords, message):
    with pytest.raises(ValueError, match=message):
        Grid(*arguments, **keywords)


def test_corner_and_notes_are_given_by_keyword():
    cells, labels = (("a",),), ("0",)
    assert Grid(cells, labels, labels, corner="m", row_notes=labels, column_notes=labels).corner == "m"
    for extra in ((labels,), (labels, labels), ("m",)):
        with pytest.raises(TypeError, match="positional"):
            Grid(cells, labels, labels, *extra)
