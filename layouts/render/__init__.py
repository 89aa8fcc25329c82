"""Pictures of layouts: one model, `Grid`, and its renderers.

Every value becomes a `Grid`, or a `Picture` of several; text, SVG, HTML and LaTeX are drawn from these alone.

>>> from cutepy.layouts import Layout
>>> from cutepy.layouts.render import picture_of, render_text
>>> print(render_text(picture_of(Layout((2, 3), (3, 1)), title="")))
    0 1 2
  +-------+
0 | 0 1 2 |
1 | 3 4 5 |
  +-------+
mode 0 down, mode 1 across; offsets in elements
colour: offset mod 8
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .comparison import compare as compare
    from .drawing import picture_of as picture_of
    from .grid import Axis as Axis, Cell as Cell, Grid as Grid, Picture as Picture, table as table
    from .html import render_html as render_html, render_page as render_page
    from .latex import render_latex as render_latex
    from .of_data import tensor_grid as tensor_grid
    from .of_layouts import layout_grid as layout_grid
    from .of_threads import owned_grid as owned_grid, tv_grid as tv_grid
    from .operations import steps as steps
    from .output import save as save, show as show
    from .raw import render_raw as render_raw
    from .svg import render_svg as render_svg
    from .text import Drawing as Drawing, Span as Span, draw_text as draw_text, render_text as render_text

_HOMES = {
    "Axis": "grid",
    "Cell": "grid",
    "Drawing": "text",
    "Grid": "grid",
    "Picture": "grid",
    "Span": "text",
    "compare": "comparison",
    "draw_text": "text",
    "layout_grid": "of_layouts",
    "owned_grid": "of_threads",
    "picture_of": "drawing",
    "render_html": "html",
    "render_latex": "latex",
    "render_page": "html",
    "render_raw": "raw",
    "render_svg": "svg",
    "render_text": "text",
    "save": "output",
    "show": "output",
    "steps": "operations",
    "table": "grid",
    "tensor_grid": "of_data",
    "tv_grid": "of_threads",
}
"""Public name -> its module, loaded on first use: text needs no SVG, and objects that are not drawn need neither."""

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Import a public name on first use (PEP 562)."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the names, including those that are imported on first use."""
    return sorted({*globals(), *_HOMES})
