"""What SVG and HTML have in common: escaped text, and how many cells a picture holds."""

from __future__ import annotations

import re

from .fold import summarised
from .grid import Cell, Grid, Picture

MAX_CELLS = 16384
"""Cells of a drawn grid, a tile of 128 x 128: larger ones are summarised."""

SUMMARY_CELLS = 4096
"""Cells of a summary."""

_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"}
_REPLACED = re.compile("[&<>\"']|[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def escaped(text: str) -> str:
    """Return text for an element or an attribute; characters that XML has no place for become U+FFFD.

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


def tooltip(cell: Cell) -> str:
    """Return all that is known of a cell, one fact a line."""
    return "\n".join(f"{name} {text}" for name, text in cell.facts())


def described(picture: Picture) -> tuple[str, str]:
    """Return a picture's title and what is said under it, in one line each."""
    titles = [picture.title] if picture.title else [grid.title for grid in picture.grids if grid.title]
    remarks = dict.fromkeys(remark for grid in picture.grids for remark in grid.remarks())
    return "; ".join(titles) or "layout", ". ".join(remarks)
