"""Grids as plain text."""

from __future__ import annotations

from .grid import Grid


def render_text(grid: Grid) -> str:
    """Draw a grid with ruled cells, in ASCII.

    Examples
    --------
    >>> print(render_text(Grid((("0", "8"), ("1", "9")), ("a", "b"), ("c", "d"), "rc")))
    rc   c   d
       +---+---+
     a | 0 | 8 |
       +---+---+
     b | 1 | 9 |
       +---+---+
    """
    label_width = max(map(len, (grid.corner, *grid.row_labels)))
    columns = zip(grid.column_labels, *grid.cells, strict=True)
    widths = [max(map(len, column)) for column in columns]
    rule = " " * label_width + " +" + "".join("-" * (width + 2) + "+" for width in widths)
    header = (
        grid.corner.ljust(label_width)
        + "  "
        + "".join(f" {c:>{w}}  " for c, w in zip(grid.column_labels, widths, strict=True))
    )
    lines = [header.rstrip(), rule]
    for label, row in zip(grid.row_labels, grid.cells, strict=True):
        lines.append(
            label.rjust(label_width) + " |" + "".join(f" {c:>{w}} |" for c, w in zip(row, widths, strict=True))
        )
        lines.append(rule)
    return "\n".join(lines)
