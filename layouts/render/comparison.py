"""compare: two pictures side by side, and where they differ."""

from __future__ import annotations

from typing import Any

from .drawing import picture_of
from .grid import Cell, Grid, Picture

MAX_COUNTED = 1 << 16
"""Elements up to which differences are counted; beyond, they are marked where they are drawn."""


def compare(a: Any, b: Any, **options: Any) -> Picture:  # noqa: ANN401 - what picture_of draws
    """Return the pictures of two values, with the elements marked at which they differ.

    Elements are compared by their colexicographic index, so layouts of one size compare as functions whatever their
    nesting: what one maps element i to, with what the other does; of thread-value layouts, who holds it.

    Parameters
    ----------
    a, b : object
        What has one grid as its picture: a layout, its text (what C++ CuTe or the DSL print), a tensor.
    **options
        As of `picture_of`, for both.

    Returns
    -------
    Picture
        Its title tells how many differ.

    Raises
    ------
    TypeError
        If one has several grids.

    Examples
    --------
    >>> from cutepy.layouts import Layout
    >>> both = compare(Layout((2, 4)), "(2,4):(4,1)")
    >>> both.title
    '6 of 8 elements differ'
    >>> [cell.text for cell in both.grids[0].cells[1] if cell.marks]
    ['1', '3', '5']
    """
    first, second = (_single(x, options) for x in (a, b))
    sides = (_Side(first), _Side(second))
    sizes = first.size, second.size
    if max(sizes) <= MAX_COUNTED:
        known = [side.table() for side in sides]
        indices = known[0].keys() | known[1].keys()
        differing = sum(known[0].get(index) != known[1].get(index) for index in indices)
        title = f"{differing} of {len(indices)} elements differ" if differing else f"all {len(indices)} elements equal"
    else:
        title = "differences are marked where they are drawn"
    if sizes[0] != sizes[1]:
        title += f"; the sizes are {sizes[0]} and {sizes[1]}"
    return Picture((_marked(first, sides[1]), _marked(second, sides[0])), title)


class _Side:
    """Contents by index."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.known: dict[int, Any] = {}

    def table(self) -> dict[int, Any]:
        """Return what each index holds."""
        if not self.known:
            for i in range(self.grid.rows.size):
                for j in range(self.grid.columns.size):
                    cell = self.grid.cell(i, j)
                    self.known[-1 if cell.flat is None else cell.flat] = _content(cell)
        return self.known


def _marked(grid: Grid, other: _Side) -> Grid:
    def cell(i: int, j: int) -> Cell:
        found = grid.cell(i, j)
        theirs = other.table().get(-1 if found.flat is None else found.flat, "nothing")
        if _content(found) == theirs:
            return found
        return found._replace(marks=("differs",), notes=(*found.notes, ("other", _told(theirs))))

    return grid.but(cell=cell, caption=(*grid.caption, "marked (* or outlined): differs"), coarser=None)


def _content(cell: Cell) -> Any:  # noqa: ANN401 - an offset, owners or an element
    return cell.data if cell.data is not None else cell.owners or cell.offset


def _told(content: object) -> str:
    return str(content).replace(" ", "")


def _single(x: Any, options: dict[str, Any]) -> Grid:  # noqa: ANN401 - what picture_of draws
    picture = picture_of(x, **options)
    if isinstance(picture, Picture):
        if len(picture.grids) != 1:
            raise TypeError(f"compare takes what has one grid; {picture.title} has {len(picture.grids)}: pass operand=")
        picture = picture.grids[0]
    return picture
