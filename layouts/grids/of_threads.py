"""Grids of thread-value layouts: the thread that holds each element, and the index among its values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from ..basis import add_coordinates
from ..errors import LayoutError
from ..int_tuple import IntTuple
from ..layout import Layout, is_layout
from ..modes import LayoutBase, rank
from ..writer import to_text
from .axes import Side, joined, orientation, parts_of, place_of, sides
from .grid import Cell, Grid, Owner, Picture, ranges
from .owners import Owners, groups_of, owners_of

_LONGEST = 11


def tv_grid(
    layout: Any,  # noqa: ANN401 - Layout or ComposedLayout
    tile: IntTuple | Layout | None = None,
    *,
    title: str | None = None,
    names: Sequence[str] = (),
) -> Grid:
    r"""Return the grid of a thread-value layout's tile: the owner of each element.

    Parameters
    ----------
    layout : Layout or ComposedLayout
        (thread, value) -> index. Values count the registers, or the elements seen in shared memory.
    tile : IntTuple or Layout, optional
        Coordinate -> index: a shape, indexed colexicographically as CuTe does, or a layout. Default: one mode as long
        as the layout reaches.
    title : str, optional
        Default: the layout's text.
    names : sequence of str, optional
        Names of the tile's modes, for the caption.

    Raises
    ------
    LayoutError
        If the layout's rank is not 2, or it maps elements beyond the tile.

    Examples
    --------
    >>> grid = tv_grid(Layout(((2, 2), 2), ((2, 1), 4)), (2, 4))
    >>> [[cell.text.replace("\n", " ") for cell in row] for row in grid.cells]
    [['T0 V0', 'T1 V0', 'T0 V1', 'T1 V1'], ['T2 V0', 'T3 V0', 'T2 V1', 'T3 V1']]
    """
    if not is_layout(layout) or rank(layout) != 2:
        raise LayoutError("tv_grid", (layout, tile), f"a layout of rank 2, (thread, value), is needed, got {layout}")
    owners = owners_of(layout)
    called = title if title is not None else to_text(layout)
    untold = ("the tile's shape is not told: tile=(M, N) draws its rows and columns",) if tile is None else ()
    return owned_grid(
        owners, tile, threads=layout[0].size(), title=called, names=names, operands=(layout, tile), caption=untold
    )


def owned_grid(
    owners: Mapping[Any, tuple[Owner, ...]],
    tile: IntTuple | Layout | None,
    *,
    threads: int,
    title: str,
    names: Sequence[str] = (),
    operands: tuple[object, ...] = (),
    caption: Sequence[str] = (),
) -> Grid:
    """Return the grid of a tile with known owners of its elements.

    Parameters
    ----------
    owners : mapping
        Index -> owners; see `owners_of`.
    tile : IntTuple or Layout
        Coordinate -> index, as in `tv_grid`.
    threads : int
        Number of threads: an element that all of them hold is written T*.
    title, names, caption
        As of `tv_grid` and `Grid`.
    operands : tuple
        Operands for errors.

    Raises
    ------
    LayoutError
        If an index lies beyond the tile.
    """
    if tile is None:
        tile = max((index for index in owners if index.__class__ is int), default=-1) + 1
    to_index = tile if isinstance(tile, LayoutBase) else Layout(tile)
    rows, columns = sides(to_index.shape, names)
    indices = _indices(to_index, rows, columns)
    beyond = sorted(owners.keys() - set(indices), key=repr)
    if beyond:
        raise LayoutError(
            "tv_grid", operands, f"the tile {to_text(to_index)} has no element {beyond[0]}, which the layout maps to"
        )

    def cell(i: int, j: int) -> Cell:
        coordinate = joined(to_index.shape, rows.coordinate(i), columns.coordinate(j))
        index = indices[i * columns.axis.size + j]
        held = owners.get(index, ())
        colour = held[0][0][0] % 8 if held and len(held[0][0]) < threads else None
        return Cell(
            _written(held, threads), coordinate, rows.flat(i) + columns.flat(j), index, owners=held, colour=colour
        )

    said = [f"{orientation(rows.axis, columns.axis)}; T thread, V its value", *caption]
    groups = groups_of(owners)
    held_by_all = any(len(group) == threads > 1 for group in groups)
    if held_by_all:
        said.append(f"T*: each of the {threads} threads")
    if any("+" in _holders(group, threads) for group in groups):
        said.append("T0+1: thread 0 and 1 more")
    if len(owners) < to_index.size():
        said.append("- : no thread's")
    return Grid(
        rows.axis,
        columns.axis,
        cell,
        title=title,
        caption=said,
        colours="" if held_by_all else "thread mod 8",
        bulk=lambda: _bulk(indices, owners, threads),
        parts=parts_of(rows, columns),
        place=place_of(rows, columns),
    )


def _indices(to_index: Any, rows: Side, columns: Side) -> list[Any]:  # noqa: ANN401 - Layout or ComposedLayout
    """Return the index of each element of a tile, row by row; of a plain layout by adding rows and columns."""
    down, across = ([side.coordinate(position) for position in range(side.axis.size)] for side in (rows, columns))
    if isinstance(to_index, Layout):
        whole = isinstance(to_index.shape, tuple)
        starts, steps = ([to_index(part if whole else part[0]) for part in parts] for parts in (down, across))
        if all(part.__class__ is int for parts in (starts, steps) for part in parts):
            return [start + step for start in starts for step in steps]
        return [add_coordinates(start, step) for start in starts for step in steps]
    return [to_index(joined(to_index.shape, i, j)) for i in down for j in across]


def _bulk(indices: Sequence[Any], owners: Mapping[Any, tuple[Owner, ...]], threads: int) -> dict[str, Any]:
    """Return the facts of all cells: as `cell` of `owned_grid`, with each set of threads formatted once."""
    if isinstance(owners, Owners) and (single := owners.alone(indices)) is not None and threads > 1:
        holders, values = single
        colours = [thread % 8 for thread in holders]
        offsets = [_number(index) for index in indices]
        return {"text": "owner", "offset": offsets, "colour": colours, "thread": holders, "value": values}
    written: dict[int, str] = {}
    columns: dict[str, list[Any]] = {name: [] for name in ("text", "colour", "thread", "value", "owners")}
    for index in indices:
        held = owners.get(index, ())
        first = held[0][0] if held else ()
        alone = len(held) == 1 == len(first)
        if alone:
            text = f"T{first[0]}\nV{held[0][1]}"
        elif len(held) == 1:
            if id(first) not in written:
                written[id(first)] = _holders(first, threads)
            text = f"T{written[id(first)]}\nV{held[0][1]}"
        else:
            text = _written(held, threads)
        columns["text"].append(text)
        columns["colour"].append(first[0] % 8 if held and len(first) < threads else None)
        columns["thread"].append(first[0] if held else None)
        columns["value"].append(held[0][1] if held else None)
        columns["owners"].append(None if alone else told(held))
    known = {name: values for name, values in columns.items() if any(value is not None for value in values)}
    return {"offset": [_number(index) for index in indices], **known}


@lru_cache(maxsize=1 << 15)
def told(owners: tuple[Owner, ...]) -> str | None:
    """Describe the owners of an element, where the first thread and its value are not all.

    >>> told((((0, 1, 2), 5), ((7,), 0))), told((((3,), 1),))
    ('thread 0-2 value 5; thread 7 value 0', None)
    """
    if not owners or (len(owners) == 1 and len(owners[0][0]) == 1):
        return None
    return "; ".join(f"thread {ranges(threads)} value {value}" for threads, value in owners)


def _number(index: Any) -> Any:  # noqa: ANN401 - int or coordinate
    return index if index.__class__ is int else to_text(index)


def marked(picture: Grid | Picture, thread: int) -> Grid | Picture:
    """Mark the elements that a thread holds."""
    if isinstance(picture, Picture):
        return picture._replace(grids=tuple(_marked(grid, thread) for grid in picture.grids))
    return _marked(picture, thread)


def _marked(grid: Grid, thread: int) -> Grid:
    def cell(i: int, j: int) -> Cell:
        found = grid.cell(i, j)
        holds = any(thread in threads for threads, _ in found.owners)
        return found._replace(marks=(*found.marks, f"thread {thread}")) if holds else found

    return grid.but(cell=cell, caption=(*grid.caption, f"marked: what thread {thread} holds"))


def _written(held: tuple[Owner, ...], threads: int) -> str:
    if not held:
        return "-"
    first, _ = held[0]
    values = [value for alike, value in held if alike == first]
    others = "&" if len(values) < len(held) else ""
    return f"T{_holders(first, threads)}\nV{ranges(values)}{others}"


def _holders(some: tuple[int, ...], threads: int) -> str:
    """Format the threads that hold an element: * for all, a range for a run, else the first and their number."""
    if len(some) == threads > 1:
        return "*"
    written = ranges(some)
    return written if len(written) <= _LONGEST else f"{some[0]}+{len(some) - 1}"
