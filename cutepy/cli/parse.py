"""`cutepy parse`: what a text of the layout notation denotes, in words and as a table."""

from cutepy.layouts import ComposedLayout, Layout, cosize, depth, parse, rank, size, to_text
from cutepy.layouts.render.of_layouts import layout_grid
from cutepy.layouts.render.output import HEIGHT
from cutepy.layouts.render.text import render_text


def describe(text: str, width: int = 80) -> str:
    """Describe `text` of the layout notation.

    Parameters
    ----------
    text : str
        Anything that `cutepy.layouts.parse` reads.
    width : int
        Columns of characters to which a table is fitted.

    Returns
    -------
    str
        The canonical text and the kind; for a layout its extents and the table of its offsets, folded where it is
        large.

    Raises
    ------
    ParseError
        If `text` is not of the notation.

    Examples
    --------
    >>> print(describe("(_2,_3):(_3,_1)"))
    (2,3):(3,1)
    Layout: rank 2, depth 1, size 6, cosize 6
        0 1 2
      +-------+
    0 | 0 1 2 |
    1 | 3 4 5 |
      +-------+
    mode 0 down, mode 1 across; offsets in elements
    >>> print(describe("Sw&lt;3,4,3&gt;"))
    Sw<3,4,3>
    Swizzle
    """
    value = parse(text)
    lines = [to_text(value), type(value).__name__]
    if isinstance(value, Layout | ComposedLayout):
        lines[1] += f": rank {rank(value)}, depth {depth(value)}, size {size(value)}"
        if isinstance(value, Layout):
            lines[1] += f", cosize {cosize(value)}"
        picture = layout_grid(value, title="").but(colours="")
        lines.append(render_text(picture, width=width, height=HEIGHT))
    return "\n".join(lines)
