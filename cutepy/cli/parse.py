"""`cutepy parse`: what a text of the layout notation denotes, in words and as a table."""

from cutepy.layouts import ComposedLayout, Layout, cosize, depth, parse, rank, size, to_text

# A table up to this many rows and columns fits a terminal.
MAX_ROWS, MAX_COLUMNS = 64, 32


def describe(text: str) -> str:
    """Describe `text` of the layout notation.

    Parameters
    ----------
    text : str
        Anything that `cutepy.layouts.parse` reads.

    Returns
    -------
    str
        The canonical text and the kind; for a layout its extents, and for a small one the table of its offsets.

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
    0 | 0 1 2
    1 | 3 4 5
    >>> print(describe("Sw&lt;3,4,3&gt;"))
    Sw<3,4,3>
    Swizzle
    """
    value = parse(text)
    lines = [to_text(value)]
    if isinstance(value, Layout):
        lines.append(f"Layout: rank {rank(value)}, depth {depth(value)}, size {size(value)}, cosize {cosize(value)}")
        lines += table(value)
    elif isinstance(value, ComposedLayout):
        lines.append(f"ComposedLayout: rank {rank(value)}, size {size(value)}")
        lines += table(value)
    else:
        lines.append(type(value).__name__)
    return "\n".join(lines)


def table(layout: Layout | ComposedLayout) -> list[str]:
    """Draw a layout of rank 1 or 2 as a table, mode 0 down and mode 1 across.

    Parameters
    ----------
    layout : Layout or ComposedLayout
        The function to tabulate.

    Returns
    -------
    list of str
        The lines; none where the rank is another, or the table would not fit a terminal.
    """
    if rank(layout) not in (1, 2):
        return []
    rows = size(layout, 0)
    columns = size(layout, 1) if rank(layout) == 2 else 1
    if rows > MAX_ROWS or columns > MAX_COLUMNS:
        return []
    if rank(layout) == 2:
        cells = [[str(layout(i, j)) for j in range(columns)] for i in range(rows)]
    else:
        cells = [[str(layout(i))] for i in range(rows)]
    width = max(len(cell) for row in [*cells, [str(columns - 1), str(rows - 1)]] for cell in row)
    header = " ".join(f"{j:>{width}}" for j in range(columns))
    lines = [" " * (width + 3) + header]
    lines += [f"{i:>{width}} | " + " ".join(f"{cell:>{width}}" for cell in row) for i, row in enumerate(cells)]
    return [line.rstrip() for line in lines]
