"""Grid: the one model of a picture, a table of cells whose axes nest, that every renderer takes.

Rank is no special case. A layout's modes 0, 2, 4 ... run down and 1, 3, 5 ... across, the later ones outside, so that a
mode beyond the second, a stage for instance, repeats the tile before it, as the outer part of a hierarchical mode
does. An axis knows at which positions tiles end; renderers draw the ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..drawable import Drawable, notebook_picture
from ..writer import to_text

Owner = tuple[tuple[int, ...], int]
"""Threads that hold an element, and the index of the element among their values."""


class Cell(NamedTuple):
    """One element of a picture, or one tile of elements.

    Attributes
    ----------
    text : str
        Text of the cell. A line break parts text that may stand on two lines.
    coordinate : IntTuple
        The natural, hierarchical coordinate.
    flat : int
        The same as one colexicographic integer.
    offset : int or IntTuple
        Value of the layout, in elements; a coordinate where strides are scaled bases.
    byte, bank : int
        Offset in memory, where the width of an element is known, and bank of shared memory.
    owners : tuple of (tuple of int, int)
        Owners of the element: (threads, value). Several where registers repeat it.
    data : str
        The element itself, of a tensor.
    colour : int
        Colour key, taken modulo 8; None for none.
    marks : tuple of str
        Why the cell stands out; empty where it does not.
    notes : tuple of (str, str)
        Further facts, as names and texts.
    """

    text: str
    coordinate: Any = None
    flat: int | None = None
    offset: Any = None
    byte: int | None = None
    bank: int | None = None
    owners: tuple[Owner, ...] = ()
    data: str | None = None
    colour: int | None = None
    marks: tuple[str, ...] = ()
    notes: tuple[tuple[str, str], ...] = ()

    @property
    def thread(self) -> int | None:
        """The first thread that holds the element."""
        return self.owners[0][0][0] if self.owners else None

    @property
    def value(self) -> int | None:
        """Index of the element among that thread's values."""
        return self.owners[0][1] if self.owners else None

    def facts(self) -> list[tuple[str, str]]:
        """List all known facts of the element, as names and texts.

        >>> Cell("8", (0, 1), 4, 8, 16, 4).facts()
        [('coordinate', '(0,1)'), ('index', '4'), ('offset', '8'), ('byte', '16'), ('bank', '4')]
        """
        known = [
            (name, str(value) if value.__class__ is int else to_text(value))
            for name, value in (("coordinate", self.coordinate), ("index", self.flat), ("offset", self.offset))
            if value is not None
        ]
        known += [(name, str(x)) for name, x in (("byte", self.byte), ("bank", self.bank)) if x is not None]
        for threads, value in self.owners:
            known += [("thread", ranges(threads)), ("value", str(value))]
        if self.data is not None:
            known.append(("data", self.data))
        return [*known, *self.notes, *(("mark", mark) for mark in self.marks)]


class Axis:
    """One axis of a grid: the labels of its positions, and the ends of tiles.

    Parameters
    ----------
    size : int
        Number of positions.
    label : callable or sequence of str, optional
        Position -> the label beside it; default: its number.
    tiles : sequence of int, optional
        Positions of a tile, of a tile of tiles, and so on: each a multiple of the one before.
    notes : sequence of str, optional
        Remarks, one for each position.
    names : str, optional
        Modes along the axis, for captions: ``"mode 0"``.

    Raises
    ------
    ValueError
        If labels or notes are not one for each position, or a tile does not divide the next.

    Examples
    --------
    >>> axis = Axis(8, tiles=(2, 4))
    >>> [axis.level(i) for i in range(8)]
    [0, 0, 1, 0, 2, 0, 1, 0]
    """

    __slots__ = ("_label", "names", "notes", "size", "tiles")

    def __init__(
        self,
        size: int,
        *,
        label: Callable[[int], str] | Sequence[str] = str,
        tiles: Sequence[int] = (),
        notes: Sequence[str] = (),
        names: str = "",
    ) -> None:
        for name, texts in (("labels", label), ("notes", notes)):
            if not callable(texts) and len(texts) != (size if texts or name == "labels" else 0):
                raise ValueError(f"{name} must be {size} texts, one for each position, got {len(texts)}")
        for inner, outer in zip((1, *tiles), tiles, strict=False):
            if outer < 1 or outer % inner:
                raise ValueError(f"each of the tiles {tuple(tiles)} must be a multiple of the one before")
        self.size = size
        self.tiles = tuple(tiles)
        self.notes = tuple(notes)
        self.names = names
        self._label = label if callable(label) else label.__getitem__

    def label(self, position: int) -> str:
        """Return the label of a position."""
        return self._label(position)

    def called(self, label: Callable[[int], str]) -> Axis:
        """Return this axis with other labels."""
        return Axis(self.size, label=label, tiles=self.tiles, notes=self.notes, names=self.names)

    def tiled(self, *tiles: int) -> Axis:
        """Return this axis with other tiles; those that reach its end are left out."""
        within = [tile for tile in tiles if tile < self.size]
        return Axis(self.size, label=self._label, tiles=within, notes=self.notes, names=self.names)

    def note(self, position: int) -> str:
        """Return the remark on a position; empty if there is none."""
        return self.notes[position] if self.notes else ""

    def level(self, position: int) -> int:
        """Return the number of tiles, one within the other, that end before a position; 0 at the start."""
        return sum(position % tile == 0 for tile in self.tiles) if position else 0


class Parts(NamedTuple):
    """Contribution of each position of an axis to its cells.

    Attributes
    ----------
    indices : list of int
        To the colexicographic index: that of a cell is the sum of its row's and its column's. Empty if cells have none.
    coordinates : list of list of str
        To the coordinate: the texts of the modes that run along the axis. Empty if cells have none.
    """

    indices: list[int]
    coordinates: list[list[str]]


class Grid(Drawable):
    """Picture: cells by row and column, with titles, labels and captions.

    Cells are made when they are asked for, so that of a large grid only what is drawn costs time.

    Parameters
    ----------
    rows, columns : Axis
    cell : callable
        (row, column) -> Cell.
    title : str
        The object, in its notation.
    caption : sequence of str
        Meaning of the texts in the cells, with their units; and remarks.
    colours : str
        Meaning of the colours; empty where there are none.
    corner : str
        Text where the labels meet.
    coarser : callable, optional
        Makes the same picture in larger units, for renderers that have no room for this one.
    bulk : callable, optional
        Gives what `cell` would of all cells at once, row by row, for renderers that draw all: lists by the names of
        what cells know; ``text`` may be the name of the list whose numbers are the texts. `raw` has the form.
    parts : callable, optional
        Gives the contributions of rows and of columns, instead of a call for each cell.
    place : callable, optional
        Colexicographic index -> (row, column), to find one cell among very many.

    Examples
    --------
    >>> grid = Grid(Axis(2), Axis(3), lambda i, j: Cell(str(3 * i + j)))
    >>> [[cell.text for cell in row] for row in grid.cells]
    [['0', '1', '2'], ['3', '4', '5']]
    """

    __slots__ = (
        "bulk",
        "caption",
        "cell",
        "coarser",
        "colours",
        "columns",
        "corner",
        "parts",
        "place",
        "rows",
        "title",
    )

    def __init__(
        self,
        rows: Axis,
        columns: Axis,
        cell: Callable[[int, int], Cell],
        *,
        title: str = "",
        caption: Sequence[str] = (),
        colours: str = "",
        corner: str = "",
        coarser: Callable[[], Grid] | None = None,
        bulk: Callable[[], dict[str, Any]] | None = None,
        parts: Callable[[], tuple[Parts, Parts]] | None = None,
        place: Callable[[int], tuple[int, int]] | None = None,
    ) -> None:
        self.rows = rows
        self.columns = columns
        self.cell = cell
        self.title = title
        self.caption = tuple(caption)
        self.colours = colours
        self.corner = corner
        self.coarser = coarser
        self.bulk = bulk
        self.parts = parts or self._parts_of_cells
        self.place = place

    @property
    def cells(self) -> tuple[tuple[Cell, ...], ...]:
        """All cells, row by row."""
        columns = range(self.columns.size)
        return tuple([tuple([self.cell(i, j) for j in columns]) for i in range(self.rows.size)])

    @property
    def size(self) -> int:
        """Number of cells."""
        return self.rows.size * self.columns.size

    def _parts_of_cells(self) -> tuple[Parts, Parts]:
        """Return the contributions of rows and columns, from the first column's and the first row's cells."""
        if not self.size:
            return Parts([], []), Parts([], [])
        down = [self.cell(i, 0) for i in range(self.rows.size)]
        across = [self.cell(0, j) for j in range(self.columns.size)]
        return _parts(down, 0, 0), _parts(across, 1, down[0].flat or 0)

    def remarks(self) -> tuple[str, ...]:
        """Return the lines under the picture: the caption, and the meaning of the colours."""
        return (*self.caption, f"colour: {self.colours}") if self.colours else self.caption

    def but(self, **changed: Any) -> Grid:  # noqa: ANN401 - as the parameters
        """Return this grid with other values of some parameters.

        >>> Grid(Axis(1), Axis(1), lambda i, j: Cell("7")).but(title="a").title
        'a'
        """
        lost = {"bulk"} if "cell" in changed else set()
        lost |= {"parts"} if changed.keys() & {"rows", "columns"} else set()
        kept = {name: getattr(self, name) for name in self.__slots__ if name not in lost}
        return Grid(**kept | changed)


def _parts(cells: Sequence[Cell], first_mode: int, start: int) -> Parts:
    index = [cell.flat - start for cell in cells if cell.flat is not None]
    return Parts(index, [_modes(cell.coordinate, first_mode) for cell in cells if cell.coordinate is not None])


def _modes(coordinate: Any, first_mode: int) -> list[str]:  # noqa: ANN401 - IntTuple
    modes = coordinate if isinstance(coordinate, tuple) else (coordinate,)
    return [to_text(mode) for mode in modes[first_mode::2]]


class Picture(NamedTuple):
    """Grids in a row: the operands of an instruction, the steps of an operation.

    Attributes
    ----------
    grids : tuple of Grid
    title : str
        Title of all grids; empty where each has its own only.
    """

    grids: tuple[Grid, ...]
    title: str = ""

    # As Drawable has them: a NamedTuple has no other base.
    def _repr_html_(self) -> str | None:
        return notebook_picture("html", self)

    def _repr_svg_(self) -> str | None:
        return notebook_picture("svg", self)


def table(
    texts: Sequence[Sequence[str]],
    row_labels: Sequence[str],
    column_labels: Sequence[str],
    *,
    corner: str = "",
    row_notes: Sequence[str] = (),
    column_notes: Sequence[str] = (),
) -> Grid:
    """Return the grid of a table of texts.

    Raises
    ------
    ValueError
        If labels or notes do not match the texts.

    Examples
    --------
    >>> table((("a", "b"),), ("0",), ("x", "y")).cell(0, 1).text
    'b'
    """
    for row in texts:
        if len(row) != len(column_labels):
            raise ValueError(f"a row must have one text for each of {len(column_labels)} columns, got {len(row)}")
    return Grid(
        Axis(len(texts), label=row_labels, notes=row_notes),
        Axis(len(column_labels), label=column_labels, notes=column_notes),
        lambda i, j: Cell(texts[i][j]),
        corner=corner,
    )


def ranges(numbers: Sequence[int]) -> str:
    """Format rising integers, with runs as ranges.

    >>> ranges((0, 1, 2, 3, 8, 16, 17))
    '0-3,8,16,17'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    return ",".join(f"{run[0]},{run[-1]}" if run[-1] == run[0] + 1 else "-".join(map(str, run)) for run in runs)
