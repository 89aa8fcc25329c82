"""SVG renderer: one self-contained file or element."""

from __future__ import annotations

from typing import NamedTuple

from ..grids.grid import Axis, Cell, Grid, Picture
from ..grids.text import wrapped
from .drawing import picture_of
from .markup import described, drawable, escaped, folded, tooltip
from .palette import EMPTY, INK, LINE, MARK, MUTED, fill

_CHARACTER, _LINE = 6.7, 14
"""Width and height of a character of the cells' font, in pixels."""
_PAD, _BETWEEN, _TILE_GAP = 5, 36, 4
_MIN_CELL, _MIN_WIDTH = 24, 300


def render_svg(picture: Grid | Picture) -> str:
    """Draw a picture as an SVG element; hovering over a cell tells its coordinate, offset, byte, bank, thread, value.

    Grids of more than 16384 cells are summarised, with a note.

    >>> from cutepy.layouts.render import picture_of
    >>> svg = render_svg(picture_of("(2,3):(3,1)"))
    >>> svg[:46], svg.count("<rect")
    ('<svg xmlns="http://www.w3.org/2000/svg" role="', 7)
    """
    whole = drawable(picture)
    title, description = described(whole)
    parts: list[str] = []
    left, top, bottom = _PAD, _PAD, 0
    if whole.title:
        parts.append(_text(left, top + 11, whole.title, f'font-weight="bold" fill="{INK}"'))
        top += _LINE + _PAD
    plans = [_planned(grid) for grid in whole.grids]
    above = max((len(plan.titles) for plan in plans), default=0)
    for number, plan in enumerate(plans):
        if number:
            left += _BETWEEN
        bottom = max(bottom, _draw(parts, plan, left, top, above))
        left += plan.width
    right = max(left, _PAD + round(len(whole.title) * _CHARACTER)) + _PAD
    height = top + bottom + _PAD
    return "".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escaped(title)}" width="{right}"',
            f' height="{height}" viewBox="0 0 {right} {height}" font-family="ui-monospace,Menlo,Consolas,monospace"',
            f' font-size="11"><title>{escaped(title)}</title><desc>{escaped(description)}</desc>',
            f'<rect width="{right}" height="{height}" fill="{EMPTY}"/>',
            *parts,
            "</svg>",
        ]
    )


def in_notebook(value: object) -> str:
    """Return the SVG for a notebook."""
    return folded(picture_of(value), render_svg)


class _Sizes(NamedTuple):
    lefts: list[int]
    tops: list[int]
    width: int
    height: int


class _Plan(NamedTuple):
    """Layout of a drawn grid: the positions of its cells, and the lines around them."""

    grid: Grid
    cells: tuple[tuple[Cell, ...], ...]
    sizes: _Sizes
    side: int
    width: int
    titles: list[str]
    remarks: list[str]


def _planned(grid: Grid) -> _Plan:
    cells = grid.cells
    sizes = _sizes(grid, cells)
    labels = max((len(grid.rows.label(i)) for i in range(grid.rows.size)), default=0)
    notes = max(map(len, grid.rows.notes), default=0)
    side = round(max(labels, len(grid.corner)) * _CHARACTER) + 2 * _PAD
    inner = (sizes.lefts[-1] + sizes.width if sizes.lefts else 0) + 1
    width = max(side + inner + (round(notes * _CHARACTER) + _PAD if notes else 0), _MIN_WIDTH)
    characters = int(width / _CHARACTER)
    titles = wrapped(grid.title, characters) if grid.title else []
    remarks = [line for remark in grid.remarks() for line in wrapped(remark, characters)]
    return _Plan(grid, cells, sizes, side, width, titles, remarks)


def _draw(parts: list[str], plan: _Plan, left: int, top: int, above: int) -> int:
    """Draw a grid at a place, with room for a given number of lines of titles, and return its height."""
    grid, sizes = plan.grid, plan.sizes
    for k, line in enumerate(plan.titles):
        y = top + 11 + _LINE * (above - len(plan.titles) + k)
        parts.append(_text(left, y, line, f'font-weight="bold" fill="{INK}"'))
    y = top + _LINE * above + _LINE + 4 + (_LINE if any(grid.columns.notes) else 0)
    _draw_labels(parts, grid, sizes, (left, y), plan.side)
    parts.append(f'<g stroke="{LINE}" text-anchor="middle" fill="{INK}">')
    for i, row in enumerate(plan.cells):
        for j, cell in enumerate(row):
            parts.append(_cell(cell, i, j, left + plan.side + sizes.lefts[j], y + sizes.tops[i], sizes))
    parts.append("</g>")
    y += (sizes.tops[-1] + sizes.height if sizes.tops else 0) + _PAD
    for line in plan.remarks:
        y += _LINE
        parts.append(_text(left, y - 3, line, f'fill="{MUTED}"'))
    return y - top + _PAD


def _sizes(grid: Grid, cells: tuple[tuple[Cell, ...], ...]) -> _Sizes:
    pieces = [piece for row in cells for cell in row for piece in cell.text.split("\n")]
    labels = [grid.columns.label(j) for j in range(grid.columns.size)]
    longest = max(map(len, (*pieces, *labels, *grid.columns.notes)), default=0)
    lines = max((cell.text.count("\n") + 1 for row in cells for cell in row), default=1)
    width, height = max(_MIN_CELL, round(longest * _CHARACTER) + 8), max(_MIN_CELL, _LINE * lines + 6)
    return _Sizes(_starts(grid.columns, width), _starts(grid.rows, height), width, height)


def _starts(axis: Axis, extent: int) -> list[int]:
    starts, at = [], 0
    for position in range(axis.size):
        at += _TILE_GAP * axis.level(position)
        starts.append(at)
        at += extent
    return starts


def _draw_labels(parts: list[str], grid: Grid, sizes: _Sizes, origin: tuple[int, int], side: int) -> None:
    left, top = origin
    parts.append(f'<g fill="{MUTED}" text-anchor="end">')
    if grid.corner:
        parts.append(_text(left + side - _PAD, top - 4, grid.corner))
    for i, start in enumerate(sizes.tops):
        parts.append(_text(left + side - _PAD, top + start + sizes.height // 2 + 4, grid.rows.label(i)))
    parts.append(f'</g><g fill="{MUTED}" text-anchor="middle">')
    above = _LINE if any(grid.columns.notes) else 0
    for j, start in enumerate(sizes.lefts):
        middle = left + side + start + sizes.width // 2
        parts.append(_text(middle, top - 4 - above, grid.columns.label(j)))
        if grid.columns.note(j):
            parts.append(_text(middle, top - 4, grid.columns.note(j)))
    parts.append(f'</g><g fill="{MUTED}">')
    for i, start in enumerate(sizes.tops):
        if grid.rows.note(i):
            right = left + side + sizes.lefts[-1] + sizes.width + _PAD
            parts.append(_text(right, top + start + sizes.height // 2 + 4, grid.rows.note(i)))
    parts.append("</g>")


def _cell(cell: Cell, i: int, j: int, x: int, y: int, sizes: _Sizes) -> str:
    edge = f' stroke="{MARK}" stroke-width="3"' if cell.marks else ""
    bold = ' font-weight="bold"' if cell.marks else ""
    pieces = cell.text.split("\n")
    middle = x + sizes.width // 2
    base = y + sizes.height // 2 + 4 - _LINE * (len(pieces) - 1) // 2
    if len(pieces) == 1:
        written = escaped(cell.text)
    else:
        written = "".join(
            f'<tspan x="{middle}" y="{base + _LINE * k}">{escaped(piece)}</tspan>' for k, piece in enumerate(pieces)
        )
    return (
        f'<g data-row="{i}" data-column="{j}"><title>{escaped(tooltip(cell))}</title>'
        f'<rect x="{x}" y="{y}" width="{sizes.width}" height="{sizes.height}" fill="{fill(cell.colour)}"{edge}/>'
        f'<text x="{middle}" y="{base}" stroke="none"{bold}>{written}</text></g>'
    )


def _text(x: int, y: int, text: str, attributes: str = "") -> str:
    return f'<text x="{x}" y="{y}"{" " + attributes if attributes else ""} xml:space="preserve">{escaped(text)}</text>'
