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
    from ..grids.grid import Axis as Axis, Cell as Cell, Grid as Grid, Picture as Picture, table as table
    from ..grids.of_data import tensor_grid as tensor_grid
    from ..grids.of_layouts import layout_grid as layout_grid
    from ..grids.of_threads import owned_grid as owned_grid, tv_grid as tv_grid
    from ..grids.text import Drawing as Drawing, Span as Span, draw_text as draw_text, render_text as render_text
    from .comparison import compare as compare
    from .drawing import picture_of as picture_of
    from .html import render_html as render_html, render_page as render_page
    from .latex import render_latex as render_latex
    from .operations import steps as steps
    from .output import save as save, show as show
    from .raw import render_raw as render_raw
    from .svg import render_svg as render_svg

_HOMES = {
    "Axis": "..grids.grid",
    "Cell": "..grids.grid",
    "Drawing": "..grids.text",
    "Grid": "..grids.grid",
    "Picture": "..grids.grid",
    "Span": "..grids.text",
    "compare": "comparison",
    "draw_text": "..grids.text",
    "layout_grid": "..grids.of_layouts",
    "owned_grid": "..grids.of_threads",
    "picture_of": "drawing",
    "render_html": "html",
    "render_latex": "latex",
    "render_page": "html",
    "render_raw": "raw",
    "render_svg": "svg",
    "render_text": "..grids.text",
    "save": "output",
    "show": "output",
    "steps": "operations",
    "table": "..grids.grid",
    "tensor_grid": "..grids.of_data",
    "tv_grid": "..grids.of_threads",
}
"""Public name -> its module, loaded on first use: text needs no SVG, and objects that are not drawn need neither."""

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Import a public name on first use (PEP 562)."""
    if name in _HOMES:
        home = _HOMES[name]
        return getattr(importlib.import_module(home if home[0] == "." else f".{home}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the names, including those that are imported on first use."""
    return sorted({*globals(), *_HOMES})
