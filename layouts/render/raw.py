"""Raw renderer: pictures as plain values for JSON, for pages that draw by themselves.

One column for each kind of fact, row by row, in place of an object for each cell: small, and quick to write. Labels,
and contributions of rows and columns to coordinates and indices, are stored once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..grids.fold import summarised
from ..grids.grid import Axis, Cell, Grid, Parts, Picture
from ..grids.of_threads import told
from ..writer import to_text
from .markup import MAX_CELLS


def render_raw(picture: Grid | Picture, limit: int = MAX_CELLS) -> dict[str, Any]:
    """Return a picture as a value for ``json.dumps``.

    Parameters
    ----------
    picture : Grid or Picture
    limit : int
        Cells of a grid above which it is summarised, with a note in its caption.

    Returns
    -------
    dict
        ``title`` and ``grids``. A grid has ``title``, ``caption``, ``colours`` and ``corner`` as `Grid` has them;
        ``rows`` and ``columns``, each with ``size``, ``labels``, ``tiles``, ``names``, ``notes``, ``index`` and
        ``coordinates``; and ``cells``, lists over all cells, row by row, under the names of what they know. The index
        of cell (i, j) is ``rows.index[i] + columns.index[j]``, where there is one. Of its coordinate,
        ``rows.coordinates[i]`` are the modes 0, 2, 4 ... and ``columns.coordinates[j]`` the modes 1, 3, 5 ..., as
        texts; ``coordinate`` says whether it is a "tuple" of them, or an "integer", the one mode there is.
        ``cells.text`` is a name where the texts are the numbers of that column, or "owner" where they are "T" and the
        thread and, on another line, "V" and the value; ``cells.notes`` holds lists of texts or numbers by their names.
        Where many cells know the same, ``cells.group`` has their group's number, and ``cells.groups`` has what groups
        know: ``colour``, ``marks`` and ``notes``, a value for each group.

    Examples
    --------
    >>> from cutepy.layouts import Layout
    >>> from cutepy.layouts.render import layout_grid
    >>> (grid,) = render_raw(layout_grid(Layout((2, 3), (3, 1))))["grids"]
    >>> grid["cells"]
    {'text': 'offset', 'offset': [0, 1, 2, 3, 4, 5], 'colour': [0, 1, 2, 3, 4, 5]}
    >>> grid["rows"]["index"], grid["columns"]["index"], grid["columns"]["coordinates"]
    ([0, 1], [0, 2, 4], [['0'], ['1'], ['2']])
    """
    if isinstance(picture, Grid):
        picture = Picture((picture,))
    return {"title": picture.title, "grids": [_raw_grid(grid, limit) for grid in picture.grids]}


def _raw_grid(grid: Grid, limit: int) -> dict[str, Any]:
    drawn = grid if grid.size <= limit else summarised(grid, limit)
    down, across = drawn.parts()
    first = drawn.cell(0, 0).coordinate if drawn.size else None
    return {
        "title": drawn.title,
        "caption": list(drawn.caption),
        "colours": drawn.colours,
        "corner": drawn.corner,
        "summarised": drawn is not grid,
        "coordinate": None if first is None else "tuple" if isinstance(first, tuple) else "integer",
        "rows": _raw_axis(drawn.rows, down),
        "columns": _raw_axis(drawn.columns, across),
        "cells": _columns(drawn),
    }


def _raw_axis(axis: Axis, parts: Parts) -> dict[str, Any]:
    return {
        "size": axis.size,
        "labels": [axis.label(position) for position in range(axis.size)],
        "tiles": list(axis.tiles),
        "names": axis.names,
        "notes": list(axis.notes),
        "index": parts.indices,
        "coordinates": parts.coordinates,
    }


def _columns(grid: Grid) -> dict[str, Any]:
    if grid.bulk is not None:
        return grid.bulk()
    cells = [cell for row in grid.cells for cell in row]
    columns: dict[str, list[Any]] = {
        "text": [cell.text for cell in cells],
        "offset": [_number(cell.offset) for cell in cells],
        "byte": [cell.byte for cell in cells],
        "bank": [cell.bank for cell in cells],
        "colour": [cell.colour for cell in cells],
        "data": [cell.data for cell in cells],
        "thread": [cell.thread for cell in cells],
        "value": [cell.value for cell in cells],
        "owners": [told(cell.owners) for cell in cells],
        "marks": [list(cell.marks) or None for cell in cells],
    }
    known = {name: values for name, values in columns.items() if any(value is not None for value in values)}
    notes = _notes(cells)
    return {**known, "notes": notes} if notes else known


def _notes(cells: Sequence[Cell]) -> dict[str, list[str | None]]:
    """Return the further notes of all cells, one list for each name."""
    found: dict[str, list[str | None]] = {}
    for k, cell in enumerate(cells):
        for name, text in cell.notes:
            found.setdefault(name, [None] * len(cells))[k] = text
    return found


def _number(offset: Any) -> int | str | None:  # noqa: ANN401 - int, coordinate or None
    return offset if offset is None or offset.__class__ is int else to_text(offset)
