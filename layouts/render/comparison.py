"""compare: two pictures side by side, with their differences marked."""

from __future__ import annotations

from functools import cached_property
from itertools import repeat
from operator import ne
from typing import Any

from ..grids.grid import Cell, Grid, Picture
from .drawing import picture_of

NOTHING = "nothing"
"""Content of an index that one of the two doesn't have."""

MAX_COUNTED = 1 << 16
"""Elements up to which differences are counted; beyond, they are only marked where they are drawn."""


def compare(a: Any, b: Any, **options: Any) -> Picture:  # noqa: ANN401 - what picture_of draws
    """Return the pictures of two values, with the differing elements marked.

    Elements are compared by their colexicographic index, so layouts of one size compare as functions whatever their
    nesting: what one maps element i to, with what the other does; of thread-value layouts, who holds it.

    Parameters
    ----------
    a, b : object
        Value whose picture is one grid: a layout, its text (of C++ CuTe or the DSL), a tensor.
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
        differing = sum(map(ne, map(known[0].get, indices), map(known[1].get, indices)))
        title = f"{differing} of {len(indices)} elements differ" if differing else f"all {len(indices)} elements equal"
    else:
        title = "differences are marked where they are drawn"
    if sizes[0] != sizes[1]:
        title += f"; the sizes are {sizes[0]} and {sizes[1]}"
    return Picture((_marked(*sides), _marked(*sides[::-1])), title)


class _Side:
    """Contents by index."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.known: dict[int, Any] = {}

    @cached_property
    def offsets(self) -> dict[str, Any] | None:
        """Facts of all cells at once, of a grid whose elements are offsets."""
        columns = None if self.grid.bulk is None else self.grid.bulk()
        return None if columns is None or "thread" in columns else columns

    def table(self) -> dict[int, Any]:
        """Return the content of each index."""
        if not self.known:
            grid = self.grid
            if self.offsets is not None:
                self.known = dict(zip(self.indices, self.offsets["offset"], strict=True))
            else:
                cells = [cell for row in grid.cells for cell in row]
                self.known = {-1 if cell.flat is None else cell.flat: _content(cell) for cell in cells}
        return self.known

    def content(self, index: int) -> Any:  # noqa: ANN401 - an offset, owners or an element
        """Return the content of one index; of a large grid without evaluating the others."""
        grid = self.grid
        if grid.size <= MAX_COUNTED or grid.place is None or index < 0:
            return self.table().get(index, NOTHING)
        return _content(grid.cell(*grid.place(index))) if index < grid.size else NOTHING

    @cached_property
    def indices(self) -> list[int]:
        """Return the index of each element, row by row: the sum of its row's and its column's contribution."""
        down, across = self.grid.parts()
        return [start + step for start in down.indices for step in across.indices]


def _marked(side: _Side, other: _Side) -> Grid:
    grid = side.grid

    def cell(i: int, j: int) -> Cell:
        found = grid.cell(i, j)
        theirs = other.content(-1 if found.flat is None else found.flat)
        if _content(found) == theirs:
            return found
        return found._replace(marks=("differs",), notes=(*found.notes, ("other", _told(theirs))))

    def bulk() -> dict[str, Any]:
        base = side.offsets
        assert base is not None
        if other.grid.size > MAX_COUNTED:
            found = [other.content(index) for index in side.indices]
        else:
            found = list(map(other.table().get, side.indices, repeat(NOTHING)))
        if found == base["offset"]:
            return base
        pairs = zip(found, base["offset"], strict=True)
        others = [None if x == ours else x if type(x) is int else _plain(x) for x, ours in pairs]
        groups = {"marks": [None, ["differs"]]}
        return {**base, "group": [int(x is not None) for x in others], "groups": groups, "notes": {"other": others}}

    return grid.but(
        cell=cell,
        caption=(*grid.caption, "marked (* or outlined): differs"),
        coarser=None,
        bulk=None if grid.size > MAX_COUNTED or side.offsets is None else bulk,
    )


def _content(cell: Cell) -> Any:  # noqa: ANN401 - an offset, owners or an element
    return cell.data if cell.data is not None else cell.owners or cell.offset


def _told(content: object) -> str:
    return str(_plain(content))


def _plain(content: object) -> int | str:
    return content if isinstance(content, int) else str(content).replace(" ", "")


def _single(x: Any, options: dict[str, Any]) -> Grid:  # noqa: ANN401 - what picture_of draws
    picture = picture_of(x, **options)
    if isinstance(picture, Picture):
        if len(picture.grids) != 1:
            raise TypeError(f"compare takes what has one grid; {picture.title} has {len(picture.grids)}: pass operand=")
        picture = picture.grids[0]
    return picture
