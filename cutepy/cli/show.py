"""`cutepy show`: a layout, an atom or a descriptor as a picture, in the terminal or in a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutepy.layouts import parse
from cutepy.layouts.grids.text import Drawing, draw_text
from cutepy.layouts.render.drawing import picture_of
from cutepy.layouts.render.output import HEIGHT, save, terminal_width
from cutepy.layouts.render.palette import fill

if TYPE_CHECKING:
    from rich.console import Console

    from cutepy.layouts.grids.grid import Grid, Picture

STYLES = {
    "title": "bold",
    "label": "dim",
    "caption": "dim",
    "mark": "bold reverse",
    **{f"colour{key}": f"#000000 on {fill(key).lower()}" for key in range(8)},
}
"""Styles of a drawing's spans, by rich's names."""

_SIXTEEN = "bright_blue bright_magenta green bright_yellow bright_cyan bright_red cyan white".split()
SIXTEEN_COLOURS = {**STYLES, **{f"colour{key}": f"black on {name}" for key, name in enumerate(_SIXTEEN)}}
"""Styles on a terminal with at most 16 colours, to which those above would come down as six."""


def draw(text: str, files: list[Path], *, width: int | None, tile: str | None, **options: Any) -> None:  # noqa: ANN401
    """Draw the value of a text: into files, or to the terminal if none is named.

    Parameters
    ----------
    text : str
        Of the layout notation, or an atom's name.
    files : list of Path
        Their suffixes decide the formats.
    width : int or None
        Columns of characters; None for the terminal's.
    tile : str or None
        Shape or layout of the tile of a thread-value layout, in the notation.
    **options
        As of `picture_of`; those that are None or False are not passed on.

    Raises
    ------
    ValueError, TypeError
        If the text or an option is wrong: LayoutError, ParseError, or errors of `picture_of` and `save`.
    """
    given = {name: value for name, value in options.items() if value is not None and value is not False}
    if tile is not None:
        given["tile"] = parse(tile)
    picture = picture_of(text, **given)
    for file in files:
        save(picture, file)
    if not files:
        paint(picture, width)


def paint(picture: Grid | Picture, width: int | None = None) -> None:
    """Write a picture to standard output: in colour on a terminal, unless NO_COLOR is set."""
    paint_drawing(draw_text(picture, width=terminal_width() if width is None else width, height=HEIGHT))


def paint_drawing(drawing: Drawing) -> None:
    """Write a drawing to standard output: in colour on a terminal, unless NO_COLOR is set."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    if console.is_terminal and not console.no_color:  # NO_COLOR and FORCE_COLOR decide, too
        _paint(console, drawing)
    else:
        print(drawing.text)


def _paint(console: Console, drawing: Drawing) -> None:
    from rich.text import Text

    styles = STYLES if console.color_system in ("truecolor", "256") else SIXTEEN_COLOURS
    text = Text(drawing.text, no_wrap=True, end="\n")
    for start, end, style in drawing.spans:
        text.stylize(styles[style], start, end)
    console.print(text)
