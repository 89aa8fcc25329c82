"""Common parts of the SVG and HTML renderers: escaping, and limits on the number of cells."""

from __future__ import annotations

import re
from collections.abc import Callable

from ..grids.fold import summarised
from ..grids.grid import Cell, Grid, Picture

MAX_CELLS = 16384
"""Largest number of cells of a grid, a tile of 128 x 128: larger ones are summarised."""

SUMMARY_CELLS = 4096
"""Number of cells of a summary."""

NOTEBOOK_CHARACTERS = 300_000
"""Largest number of characters that a notebook keeps of one value."""
_CELL_CHARACTERS, _FEWEST_CELLS = 60, 256
"""Fewest characters of a cell; and fewest cells of a folded grid while there are several."""

_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"}
_REPLACED = re.compile("[&<>\"']|[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def escaped(text: str) -> str:
    """Escape text for an element or an attribute; characters that are invalid in XML become U+FFFD.

    >>> escaped('<a & "b">'), escaped(chr(0)) == chr(0xFFFD)
    ('&lt;a &amp; &quot;b&quot;&gt;', True)
    """
    # Most texts need nothing, and looking takes half the time of replacing.
    if _REPLACED.search(text) is None:
        return text
    return _REPLACED.sub(lambda found: _ENTITIES.get(found[0], "\ufffd"), text)


def drawable(picture: Grid | Picture, limit: int = MAX_CELLS) -> Picture:
    """Return a picture whose grids have at most `limit` cells each: larger ones are summarised."""
    if isinstance(picture, Grid):
        picture = Picture((picture,))
    small = min(limit, SUMMARY_CELLS)
    return picture._replace(grids=tuple(g if g.size <= limit else summarised(g, small) for g in picture.grids))


def folded(picture: Grid | Picture, draw: Callable[[Picture], str], most: int = NOTEBOOK_CHARACTERS) -> str:
    """Draw a picture in at most so many characters: fold its grids until they fit, and leave out the last of many.

    A notebook keeps what it shows, so a value that is only named in a cell must not cost megabytes.
    """
    if isinstance(picture, Grid):
        picture = Picture((picture,))
    limit = min(MAX_CELLS, most // _CELL_CHARACTERS // max(1, len(picture.grids)))
    while True:
        drawn = draw(_noted(picture, limit))
        if len(drawn) <= most or (limit <= 1 and len(picture.grids) == 1):
            return drawn
        if limit > _FEWEST_CELLS or len(picture.grids) == 1:
            limit = max(1, min(limit // 2, limit * most // len(drawn)))
        else:
            limit, picture = limit * 2, _shorter(picture)


def _noted(picture: Picture, limit: int) -> Picture:
    """Fold the larger grids, and add a note on how to see them."""
    drawn = drawable(picture, max(1, limit))
    if all(folded is grid for folded, grid in zip(drawn.grids, picture.grids, strict=True)):
        return drawn
    *before, last = drawn.grids
    said = "folded for the notebook: show(...) and save(...) draw more of it"
    return drawn._replace(grids=(*before, last.but(caption=(*last.caption, said))))


def _shorter(picture: Picture) -> Picture:
    """Leave out the second half of the grids."""
    kept = picture.grids[: len(picture.grids) // 2]
    said = f"only the first {len(kept)} pictures: show(...) and save(...) draw all"
    return Picture((*kept[:-1], kept[-1].but(caption=(*kept[-1].caption, said))), picture.title)


def tooltip(cell: Cell) -> str:
    """Return all facts of a cell, one a line."""
    return "\n".join(f"{name} {text}" for name, text in cell.facts())


def described(picture: Picture) -> tuple[str, str]:
    """Return a picture's title and remarks, one line each."""
    titles = [picture.title] if picture.title else [grid.title for grid in picture.grids if grid.title]
    remarks = dict.fromkeys(remark for grid in picture.grids for remark in grid.remarks())
    return "; ".join(titles) or "layout", ". ".join(remarks)
