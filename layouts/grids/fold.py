"""Reduction of large pictures: in larger units, by tiles, or with the middle left out, with a note."""

from __future__ import annotations

from collections.abc import Sequence

from .grid import Axis, Cell, Grid


def summarised(grid: Grid, limit: int) -> Grid:
    """Return a grid of at most `limit` cells: itself, in larger units, or by tiles, of which the first cell is shown.

    Examples
    --------
    >>> large = Grid(Axis(8), Axis(8, tiles=(4,)), lambda i, j: Cell(str(8 * i + j)))
    >>> small = summarised(large, 4)
    >>> [[cell.text for cell in row] for row in small.cells], small.caption
    ([['0', '4'], ['32', '36']], ('64 cells are too many here: each stands for 4 x 4 of them and shows the first',))
    """
    while grid.size > limit and grid.coarser is not None:
        grid = grid.coarser()
    rows = columns = 1
    while -(-grid.rows.size // rows) * -(-grid.columns.size // columns) > limit:
        if grid.rows.size // rows >= grid.columns.size // columns:
            rows = _larger(grid.rows, rows)
        else:
            columns = _larger(grid.columns, columns)
    return grid if rows == columns == 1 else _by_tiles(grid, rows, columns)


def kept(size: int, room: int) -> list[int | None]:
    """Return the positions to draw where there is room for `room`, None standing for those left out in the middle.

    >>> kept(5, 5), kept(10, 5), kept(10, 1)
    ([0, 1, 2, 3, 4], [0, 1, 2, None, 9], [0])
    """
    if size <= room:
        return list(range(size))
    if room < 3:
        return list(range(room))
    tail = max(1, (room - 1) // 4)
    return [*range(room - 1 - tail), None, *range(size - tail, size)]


def left_out(size: int, drawn: Sequence[int | None]) -> range:
    """Return the contiguous positions that `kept` leaves out; no axis is walked for it.

    >>> left_out(10, kept(10, 5)), left_out(10, kept(10, 2)), left_out(5, kept(5, 5))
    (range(3, 9), range(2, 10), range(5, 5))
    """
    gap = drawn.index(None) if None in drawn else len(drawn)
    return range(gap, size - len(drawn[gap + 1 :]))


def _larger(axis: Axis, factor: int) -> int:
    return next((tile for tile in axis.tiles if tile > factor), 2 * factor)


def _by_tiles(grid: Grid, rows: int, columns: int) -> Grid:
    def cell(i: int, j: int) -> Cell:
        first = grid.cell(i * rows, j * columns)
        return first._replace(notes=(*first.notes, ("stands for", f"{rows} x {columns} cells")))

    note = f"{grid.size} cells are too many here: each stands for {rows} x {columns} of them and shows the first"
    return grid.but(
        rows=_axis(grid.rows, rows), columns=_axis(grid.columns, columns), cell=cell, caption=(*grid.caption, note)
    )


def _axis(axis: Axis, factor: int) -> Axis:
    tiles = [tile // factor for tile in axis.tiles if tile > factor and tile % factor == 0]
    size = -(-axis.size // factor)
    notes = [axis.note(i * factor) for i in range(size)] if axis.notes else ()
    return Axis(size, label=lambda i: axis.label(i * factor), tiles=tiles, notes=notes, names=axis.names)
