"""Grid: the one model of a drawing, a labelled table of cells, that every renderer takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..errors import LayoutError
from ..modes import rank, size


@dataclass(frozen=True)
class Grid:
    """A table of texts with a label for each row and column.

    Parameters
    ----------
    cells : tuple of tuple of str
        Rows of cells, all of one length.
    row_labels, column_labels : tuple of str
        One for each row, one for each column.
    corner : str
        What stands where the labels meet: the names of the axes.
    row_notes, column_notes : tuple of str
        Remarks beside each row and under each column label; empty, or one for each.

    Raises
    ------
    ValueError
        If labels or notes do not match the cells.
    """

    cells: tuple[tuple[str, ...], ...]
    row_labels: tuple[str, ...]
    column_labels: tuple[str, ...]
    corner: str = field(default="", kw_only=True)
    row_notes: tuple[str, ...] = field(default=(), kw_only=True)
    column_notes: tuple[str, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        columns = len(self.column_labels)
        for row in self.cells:
            if len(row) != columns:
                raise ValueError(f"a row must have one cell for each of {columns} column labels, got {len(row)}")
        for name, texts, count in (
            ("row_labels", self.row_labels, len(self.cells)),
            ("row_notes", self.row_notes or self.row_labels, len(self.cells)),
            ("column_notes", self.column_notes or self.column_labels, columns),
        ):
            if len(texts) != count:
                raise ValueError(f"{name} must have {count} texts, got {len(texts)}")


def layout_grid(layout: Any, *, cell: Callable[[Any], str] = str) -> Grid:  # noqa: ANN401 - Layout or ComposedLayout
    """Return the grid of a layout of rank 1 or 2: mode 0 runs down, mode 1 runs across.

    Parameters
    ----------
    layout : Layout or ComposedLayout
        Of rank 1 or 2; a rank-1 layout is one column.
    cell : callable
        Writes an index (or a coordinate) into a cell.

    Raises
    ------
    LayoutError
        If the rank is another.

    Examples
    --------
    >>> from cutepy.layouts import Layout
    >>> layout_grid(Layout((2, 3), (3, 1))).cells
    (('0', '1', '2'), ('3', '4', '5'))
    """
    if rank(layout) not in (1, 2):
        raise LayoutError("layout_grid", (layout,), f"rank must be 1 or 2, got {rank(layout)}", "group modes first")
    flat = rank(layout) == 1
    rows, columns = size(layout, 0), 1 if flat else size(layout, 1)
    cells = tuple(tuple(cell(layout(i) if flat else layout(i, j)) for j in range(columns)) for i in range(rows))
    return Grid(cells, tuple(map(str, range(rows))), tuple(map(str, range(columns))))
