"""Text renderer: ASCII tables fitted to a width, with the spans to colour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .fold import kept, left_out
from .grid import Cell, Grid, Picture

MARK = "*"
"""Prefix of the text of a marked cell."""

_GAP = "..."
_APART = "    "
_NARROW = 44
"""Columns to which titles and remarks are wrapped where pictures may stand side by side."""
Position = int | None


class Span(NamedTuple):
    """Range of a text with a style: ``title``, ``label``, ``caption``, ``mark``, ``colour0`` to ``colour7``."""

    start: int
    end: int
    style: str


class Drawing(NamedTuple):
    """Text with its styled spans, in order and disjoint."""

    text: str
    spans: tuple[Span, ...]


Line = list[tuple[str, str]]
"""Line in pieces: (text, style or nothing)."""


def render_text(picture: Grid | Picture, *, width: int | None = None, height: int | None = None) -> str:
    """Draw a picture in ASCII.

    Parameters
    ----------
    picture : Grid or Picture
    width : int, optional
        Columns of characters; wider tables continue in bands below. Default: no limit.
    height : int, optional
        Lines for each table; a larger table is drawn in larger units, or with its middle left out, and a note.
        Default: no limit.

    Examples
    --------
    >>> from cutepy.layouts import Layout
    >>> from cutepy.layouts.render import layout_grid
    >>> print(render_text(layout_grid(Layout((2, (2, 2)), (4, (2, 1))), title="")))
        0 1   2 3
      +-----+-----+
    0 | 0 2 | 1 3 |
    1 | 4 6 | 5 7 |
      +-----+-----+
    mode 0 down, mode 1 across; offsets in elements
    colour: offset mod 8
    """
    return draw_text(picture, width=width, height=height).text


def draw_text(picture: Grid | Picture, *, width: int | None = None, height: int | None = None) -> Drawing:
    """Draw a picture as `render_text`, with the spans to colour."""
    if isinstance(picture, Grid):
        return _joined(_grid(picture, width, height))
    lines: list[Line] = []
    if picture.title:
        lines += [[(part, "title")] for part in wrapped(picture.title, width)]
    narrow = None if width is None or len(picture.grids) == 1 else min(width, _NARROW)
    for row in _rows([_grid(grid, width, height, narrow) for grid in picture.grids], width):
        if lines:
            lines.append([])
        lines += row
    return _joined(lines)


def wrapped(text: str, width: int | None) -> list[str]:
    """Break a text into lines of at most `width` characters, between words where possible.

    >>> wrapped("one two three", 8), wrapped("(1,2,3,4)", 6)
    (['one two', 'three'], ['(1,2,3', ',4)'])
    """
    lines = []
    while width is not None and len(text) > width:
        cut = text.rfind(" ", 1, width + 1)
        cut = width if cut < 0 else cut
        lines.append(text[:cut])
        text = text[cut:].lstrip(" ")
    return [*lines, text]


def _rows(blocks: list[list[Line]], width: int | None) -> list[list[Line]]:
    """Put blocks side by side as long as they fit."""
    rows: list[list[Line]] = []
    used = 0
    for block in blocks:
        extent = max(map(_length, block))
        if rows and width is not None and used + len(_APART) + extent <= width:
            left = rows[-1]
            for k in range(max(len(left), len(block))):
                if k == len(left):
                    left.append([])
                fill = " " * (used - _length(left[k]))
                if k < len(block):
                    left[k] = [*left[k], (fill + _APART, ""), *block[k]]
            used += len(_APART) + extent
        else:
            rows.append(list(block))
            used = extent
    return rows


def _length(line: Line) -> int:
    return sum(len(text) for text, _ in line)


def _joined(lines: list[Line]) -> Drawing:
    written, spans, at = [], [], 0
    for line in lines:
        if line and not line[-1][1]:
            line[-1] = (line[-1][0].rstrip(), "")
        for piece, style in line:
            text = piece if piece.isprintable() else _harmless(piece)
            if style and text:
                spans.append(Span(at, at + len(text), style))
            written.append(text)
            at += len(text)
        written.append("\n")
        at += 1
    return Drawing("".join(written)[:-1], tuple(spans))


def _grid(grid: Grid, width: int | None, height: int | None, narrow: int | None = None) -> list[Line]:
    table = _fitted(grid, width, height)
    if table is None and grid.coarser is not None:
        return _grid(grid.coarser(), width, height, narrow)
    notes: list[str] = []
    if table is None:
        table, notes = _elided(grid, width, height)
    if narrow is not None:
        width = max(narrow, *map(_length, table))
    above: list[Line] = [[(part, "title")] for part in wrapped(grid.title, width)] if grid.title else []
    remarks = [part for remark in (*notes, *grid.remarks()) for part in wrapped(remark, width)]
    return [*above, *table, *([(remark, "caption")] for remark in remarks)]


def _harmless(text: str) -> str:
    """Return text without terminal control sequences."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def _fitted(grid: Grid, width: int | None, height: int | None) -> list[Line] | None:
    """Draw a whole grid; None if that takes more lines than allowed."""
    if width is not None and height is not None and 2 * grid.size > width * height:
        return None
    if not grid.size:
        return [[("(no elements)", "caption")]]
    table = _Table(grid, range(grid.rows.size), range(grid.columns.size))
    lines = [line for band in table.bands(width) for line in table.lines(band)]
    return lines if height is None or len(lines) <= height else None


def _elided(grid: Grid, width: int | None, height: int | None) -> tuple[list[Line], list[str]]:
    """Draw the beginning and the end of each axis, in one band, and note the part left out."""
    room = grid.rows.size
    if height is not None:
        room = max(3, height - 5)
    count = grid.columns.size if width is None else min(grid.columns.size, max(1, width // 2))
    while True:
        rows = kept(grid.rows.size, room)
        table = _Table(grid, rows, kept(grid.columns.size, count))
        lines = table.lines(range(len(table.columns)))
        longest = max(map(_length, lines))
        if height is not None and len(lines) > height and room > 3:
            room = max(3, room - (len(lines) - height))
        elif width is not None and longest > width and count > 1:
            count = max(1, min(count - 1, count * width // longest))
        else:
            break
    notes = []
    for name, axis, drawn in (("rows", grid.rows, rows), ("columns", grid.columns, table.columns)):
        missing = left_out(axis.size, drawn)
        if missing:
            ends = f"{axis.label(missing[0])} to {axis.label(missing[-1])}"
            count = missing.stop - missing.start  # may be more than `len` can return
            notes.append(f"too large to draw: {count} of {axis.size} {name} are left out, {ends}")
    return lines, notes


class _Table:
    """Texts of the cells of chosen rows and columns, with the width of each column."""

    def __init__(self, grid: Grid, rows: Sequence[Position], columns: Sequence[Position]) -> None:
        self.grid, self.rows, self.columns = grid, rows, columns
        empty = Cell(_GAP)
        self.cells = [[empty if i is None or j is None else grid.cell(i, j) for j in columns] for i in rows]
        self.texts = [[_written(cell) for cell in row] for row in self.cells]
        self.labels = [_GAP if i is None else grid.rows.label(i) for i in rows]
        self.heads = [_GAP if j is None else grid.columns.label(j) for j in columns]
        self.notes = ["" if j is None else grid.columns.note(j) for j in columns]
        stacked = zip(self.heads, self.notes, *self.texts, strict=True)
        self.widths = [max(map(len, column)) for column in stacked]
        self.left = max(map(len, (grid.corner, *self.labels)), default=0)
        levels = [
            0 if j is None or not k or columns[k - 1] is None else grid.columns.level(j) for k, j in enumerate(columns)
        ]
        self.levels = levels
        spaced = any(" " in text for row in self.texts for text in row)
        space = "  " if spaced else " "
        self.gaps = [space if not level else " | " if level == 1 else " || " for level in levels]
        self.drawn_notes = ["" if i is None else grid.rows.note(i) for i in rows]

    def bands(self, width: int | None) -> list[range]:
        """Split the columns into runs that fit, at ends of tiles if possible."""
        if width is None:
            return [range(len(self.columns))]
        notes = max(map(len, self.drawn_notes), default=0)
        room = width - self.left - len(" |  |") - (notes + 1 if notes else 0)
        bands, start, used = [], 0, 0
        place = None  # the last column before which a tile ends
        for j, column in enumerate(self.widths):
            gap = len(self.gaps[j]) if j > start else 0
            if j > start and used + gap + column > room:
                cut = j if place is None else place
                bands.append(range(start, cut))
                start, place = cut, None
                gap = len(self.gaps[j]) if j > start else 0
                used = sum(self.widths[start:j]) + sum(map(len, self.gaps[start + 1 : j]))
            if j > start and self.levels[j]:
                place = j
            used += gap + column
        return [*bands, range(start, len(self.columns))]

    def lines(self, band: range) -> list[Line]:
        """Draw some of the columns."""
        grid, rule = self.grid, self._rule(band, "-")
        lines: list[Line] = []
        if grid.corner or any(self.heads[j] for j in band):
            lines.append(self._line(grid.corner.ljust(self.left), "  ", self.heads, band, "label"))
        if any(self.notes[j] for j in band):
            lines.append(self._line(" " * self.left, "  ", self.notes, band, "label"))
        lines.append(rule)
        for position, i in enumerate(self.rows):
            level = grid.rows.level(i) if i is not None and position and self.rows[position - 1] is not None else 0
            if level:
                lines.append(self._rule(band, "-" if level == 1 else "="))
            line = self._line(self.labels[position].rjust(self.left), " |", self.texts[position], band, "")
            for k, j in enumerate(band):
                line[2 * k + 2] = (line[2 * k + 2][0], _style(self.cells[position][j]))
            line.append((f" | {self.drawn_notes[position]}", ""))
            lines.append(line)
        return [*lines, rule]

    def _line(self, label: str, edge: str, texts: Sequence[str], band: range, style: str) -> Line:
        line: Line = [(label, "label")]
        for k, j in enumerate(band):
            gap = self.gaps[j] if edge == " |" else " " * len(self.gaps[j])
            line += [(gap if k else f"{edge} ", ""), (texts[j].rjust(self.widths[j]), style)]
        return line

    def _rule(self, band: range, dash: str) -> Line:
        drawn = [" " * self.left, " +", dash]
        for k, j in enumerate(band):
            drawn.append("".join(dash if character == " " else "+" for character in self.gaps[j]) if k else "")
            drawn.append(dash * self.widths[j])
        return [("".join([*drawn, dash, "+"]), "")]


def _written(cell: Cell) -> str:
    text = cell.text.replace("\n", "")
    return MARK + text if cell.marks else text


def _style(cell: Cell) -> str:
    if cell.marks:
        return "mark"
    return "" if cell.colour is None else f"colour{cell.colour % 8}"
