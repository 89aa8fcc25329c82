"""Grids as plain text."""

from __future__ import annotations

from collections.abc import Sequence

from .grid import Grid


def render_text(grid: Grid) -> str:
    """Draw a grid with ruled cells, in ASCII.

    Examples
    --------
    >>> print(render_text(Grid((("0", "8"), ("1", "9")), ("a", "b"), ("c", "d"), corner="rc")))
    rc   c   d
       +---+---+
     a | 0 | 8 |
       +---+---+
     b | 1 | 9 |
       +---+---+
    """
    left = max(map(len, (grid.corner, *grid.row_labels)))
    columns = zip(grid.column_labels, grid.column_notes or grid.column_labels, *grid.cells, strict=True)
    widths = [max(map(len, column)) for column in columns]
    rule = " " * left + " +" + "".join("-" * (width + 2) + "+" for width in widths)
    lines = [grid.corner.ljust(left) + _row("  ", grid.column_labels, widths, "  ")]
    if any(grid.column_notes):
        lines.append(" " * left + _row("  ", grid.column_notes, widths, "  "))
    lines.append(rule)
    notes = grid.row_notes or ("",) * len(grid.cells)
    for label, row, note in zip(grid.row_labels, grid.cells, notes, strict=True):
        lines += [label.rjust(left) + _row(" |", row, widths, " |") + f" {note}", rule]
    return "\n".join(line.rstrip() for line in lines)


def _row(start: str, texts: Sequence[str], widths: Sequence[int], end: str) -> str:
    return start + "".join(f" {text:>{width}}{end}" for text, width in zip(texts, widths, strict=True))
