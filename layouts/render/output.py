"""show and save: pictures in the terminal, in notebooks and in files."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from ..grids.text import render_text
from .drawing import picture_of
from .markup import drawable

HEIGHT = 200
"""Default number of lines of a table."""

SUFFIXES = (".svg", ".html", ".tex", ".txt")


def show(x: Any, *, width: int | None = None, height: int | None = HEIGHT, **options: Any) -> None:  # noqa: ANN401
    """Draw a value: in a notebook as a table to hover over, else as text fitted to the terminal.

    Parameters
    ----------
    x : object
        Value that `picture_of` draws: layouts, the objects of `cutepy.layouts.sm90`, tensors.
    width : int, optional
        Columns of characters. Default: the terminal's, 80 where there is none.
    height : int, optional
        Lines for each table, beyond which it is folded; None for no limit.
    **options
        As of `picture_of`: ``bits=16``, ``banks=True``, ``tv=True``, ``tile=(64, 16)``, ...

    Examples
    --------
    >>> from cutepy.layouts import Layout
    >>> show(Layout((2, 4), (4, 1)), bits=32, banks=True)
    (2,4):(4,1)
        0 1 2 3
      +---------+
    0 | 0 1 2 3 |
    1 | 4 5 6 7 |
      +---------+
    mode 0 down, mode 1 across; banks of 4 bytes; elements of 32 bits
    colour: the 16-byte unit of its line of 32 banks (byte / 16 mod 8)
    """
    picture = picture_of(x, **options)
    if width is None and _in_notebook():
        from .html import render_html

        sys.modules["IPython.display"].display(sys.modules["IPython.display"].HTML(render_html(picture)))
        return
    print(render_text(picture, width=terminal_width() if width is None else width, height=height))


def save(x: Any, path: str | os.PathLike[str], **options: Any) -> None:  # noqa: ANN401
    """Draw a value into a file in the format of its suffix.

    Parameters
    ----------
    x : object
        Value that `picture_of` draws.
    path : str or path
        ``.svg``; ``.html``, a page that needs nothing else; ``.tex``, a standalone LaTeX document; or ``.txt``.
        Grids of more than 16384 cells are summarised, with a note, in LaTeX of more than 4096.
    **options
        As of `picture_of`.

    Raises
    ------
    ValueError
        If the suffix is another.

    Examples
    --------
    >>> from cutepy.layouts import Layout
    >>> save(Layout(4), "picture.png")
    Traceback (most recent call last):
        ...
    ValueError: a picture's file must end in .svg, .html, .tex or .txt, got 'picture.png'
    """
    file = Path(path)
    suffix = file.suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(
            f"a picture's file must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}, got {str(path)!r}"
        )
    picture = picture_of(x, **options)
    if suffix == ".svg":
        from .svg import render_svg

        text = render_svg(picture) + "\n"
    elif suffix == ".html":
        from .html import render_page

        text = render_page(picture)
    elif suffix == ".tex":
        from .latex import render_latex

        text = render_latex(picture)
    else:
        text = render_text(drawable(picture)) + "\n"
    file.write_text(text, encoding="utf-8")


def terminal_width(otherwise: int = 80) -> int:
    """Return the columns of the terminal: COLUMNS if set, else the terminal's own."""
    return shutil.get_terminal_size((otherwise, 0)).columns


def _in_notebook() -> bool:
    """Return whether this is a Jupyter kernel with a front end that shows HTML."""
    shell = sys.modules.get("IPython")
    running = shell.get_ipython() if shell is not None else None
    kernels = any(base.__name__ == "ZMQInteractiveShell" for base in type(running).__mro__)
    return kernels and "IPython.display" in sys.modules
