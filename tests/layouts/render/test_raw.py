"""Pictures as plain values: against plain arithmetic, and all at once against cell by cell."""

import itertools
import json

import pytest
from hypothesis import given

from cutepy.layouts import Layout, flatten, logical_divide, parse
from cutepy.layouts.render import compare, picture_of, render_raw, steps, tv_grid
from cutepy.testing import strategies as lst
from tests.messages import pins


def coordinates(grid):
    """Put the coordinates of cells together, as the documentation says."""
    for down, across in itertools.product(grid["rows"]["coordinates"], grid["columns"]["coordinates"]):
        modes = [(across if mode % 2 else down)[mode // 2] for mode in range(len(down) + len(across))]
        yield modes[0] if grid["coordinate"] == "integer" else f"({','.join(modes)})"


def indices(grid):
    return [i + j for i, j in itertools.product(grid["rows"]["index"], grid["columns"]["index"])]


def colexicographic(shape):
    """Yield all coordinates of a flat shape, the first mode fastest: not the library's."""
    return [crd[::-1] for crd in itertools.product(*(range(extent) for extent in shape[::-1]))]


@given(lst.layouts())
def test_offsets_are_sums_of_products(layout):
    (grid,) = json.loads(json.dumps(render_raw(picture_of(layout, bits=16))))["grids"]
    wrapped = layout if isinstance(layout.shape, tuple) else Layout((layout.shape,), (layout.stride,))
    flat = flatten(wrapped)
    shape, stride = flat.shape, flat.stride
    by_index = [sum(c * d for c, d in zip(crd, stride, strict=True)) for crd in colexicographic(shape)]
    offsets = [by_index[index] for index in indices(grid)]
    assert grid["cells"]["offset"] == offsets
    assert grid["cells"]["byte"] == [2 * offset for offset in offsets]
    assert grid["cells"]["bank"] == [offset // 2 % 32 for offset in offsets]
    read = [parse(text) for text in coordinates(grid)]
    assert [layout(crd) for crd in read] == offsets


@given(lst.layouts() | lst.composed_layouts())
def test_all_at_once_is_cell_by_cell(layout):
    width = getattr(getattr(layout, "offset", None), "bits", 16)
    for options in ({}, {"bits": width}, {"bits": width, "banks": True}):
        grid = picture_of(layout, **options)
        if grid.bulk is not None:
            same_by_cells(grid)


def same_by_cells(grid):
    (fast,) = render_raw(grid)["grids"]
    (slow,) = render_raw(grid.but(cell=grid.cell, parts=None))["grids"]
    assert grid.bulk is not None
    cells = fast["cells"]
    if cells["text"] == "owner":
        cells["text"] = [f"T{thread}\nV{value}" for thread, value in zip(cells["thread"], cells["value"], strict=True)]
    elif isinstance(cells["text"], str):
        cells["text"] = [str(number) for number in cells[cells["text"]]]
    if "group" in cells:
        group, groups = cells.pop("group"), cells.pop("groups")
        for name, texts in groups.pop("notes", {}).items():
            cells.setdefault("notes", {})[name] = [texts[k] for k in group]
        cells |= {name: [known[k] for k in group] for name, known in groups.items()}
    for name, notes in cells.get("notes", {}).items():
        cells["notes"][name] = [note if note is None else str(note) for note in notes]
    assert fast == slow


@pytest.mark.parametrize(
    ("layout", "tile"),
    [
        ("((4,8,4),(2,2,8)):((128,1,16),(64,8,512))", "(64,64)"),
        ("((4,8),(2,2)):((32,1),(16,8))", "(16,8)"),
        ("(128,(8,8)):(0,(1,8))", "(8,8)"),
        ("(4,2):(0,1)", "4"),
        ("(1,4):(0,1)", "(2,2)"),
        ("(4,3):(1,1)", "(2,3)"),
        ("(4,2):(1,4)", "(2,4):(4,1)"),
    ],
)
def test_owners_all_at_once_are_those_of_cells(layout, tile):
    tile = parse(tile)
    same_by_cells(tv_grid(parse(layout), tile))


@given(lst.layouts(), lst.layouts())
def test_comparisons_all_at_once_are_those_of_cells(first, second):
    for grid in compare(first, second).grids:
        same_by_cells(grid)


def test_steps_all_at_once_are_those_of_cells():
    for grid in steps(logical_divide, parse("(8,12):(12,1)"), (4, 3)).grids:
        same_by_cells(grid)


def test_what_is_too_large_is_summarised():
    (grid,) = render_raw(picture_of(Layout((512, 512))))["grids"]
    assert grid["summarised"]
    assert len(grid["cells"]["offset"]) <= 16384
    pins(" ".join(grid["caption"]))


def test_nothing_and_coordinates():
    assert render_raw(picture_of(Layout((0, 3))))["grids"][0]["cells"]["offset"] == []
    (grid,) = render_raw(picture_of(parse("(2,2):(1@0,1@1)")))["grids"]
    assert grid["cells"]["offset"] == ["(0,0)", "(0,1)", "(1,0)", "(1,1)"]
