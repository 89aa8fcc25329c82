"""`cutepy parse`: what a text of the layout notation denotes, in words and as a table."""

from cutepy.layouts import ComposedLayout, Layout, cosize, depth, parse, rank, size, to_text
from cutepy.layouts.render import layout_grid, render_text

# A table up to this many rows and columns fits a terminal.
MAX_ROWS, MAX_COLUMNS = 32, 32


def describe(text: str) -> str:
    """Describe `text` of the layout notation.

    Parameters
    ----------
    text : str
        Anything that `cutepy.layouts.parse` reads.

    Returns
    -------
    str
        The canonical text and the kind; for a layout its extents, and for a small one of rank 1 or 2 the table of its
        offsets, mode 0 down and mode 1 across.

    Raises
    ------
    ParseError
        If `text` is not of the notation.

    Examples
    --------
    >>> print(describe("(_2,_3):(_3,_1)"))
    (2,3):(3,1)
    Layout: rank 2, depth 1, size 6, cosize 6
        0   1   2
      +---+---+---+
    0 | 0 | 1 | 2 |
      +---+---+---+
    1 | 3 | 4 | 5 |
      +---+---+---+
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
        if _fits(value):
            lines.append(render_text(layout_grid(value)))
    return "\n".join(lines)


def _fits(layout: Layout | ComposedLayout) -> bool:
    if rank(layout) == 1:
        return 0 < size(layout) <= MAX_ROWS
    return rank(layout) == 2 and 0 < size(layout, 0) <= MAX_ROWS and 0 < size(layout, 1) <= MAX_COLUMNS
