"""LaTeX renderer: a standalone document of TikZ nodes at (row, column), in the manner of CuTe's ``print_latex``."""

from __future__ import annotations

from ..grids.grid import Axis, Cell, Grid, Picture
from .markup import drawable
from .palette import FILLS, MARK

MAX_CELLS = 4096
"""Largest number of cells: TeX takes seconds for more."""

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "`": r"\textasciigrave{}",
    **{character: "\\" + character for character in "&%$#_"},
}


def render_latex(picture: Grid | Picture) -> str:
    r"""Draw a picture as a LaTeX document of class ``standalone``.

    Parameters
    ----------
    picture : Grid or Picture
        Grids of more than 4096 cells are summarised, with a note.

    Examples
    --------
    >>> from cutepy.layouts import Layout
    >>> from cutepy.layouts.render import layout_grid
    >>> [line for line in render_latex(layout_grid(Layout(2, 3))).splitlines() if line.startswith(r"\node[cell")]
    ['\\node[cell,fill=c0] at (0,0) {0};', '\\node[cell,fill=c3] at (1,0) {3};']
    """
    whole = drawable(picture, MAX_CELLS)
    lines = [
        r"\documentclass[border=4pt]{standalone}",
        r"\usepackage{tikz}",
        r"\usepackage[T1]{fontenc}",
        r"\usepackage[utf8]{inputenc}",
        r"\usepackage{textcomp}",
        *(rf"\definecolor{{c{key}}}{{HTML}}{{{colour[1:]}}}" for key, colour in enumerate(FILLS)),
        rf"\definecolor{{mark}}{{HTML}}{{{MARK[1:]}}}",
        r"\begin{document}",
    ]
    if whole.title:
        lines.append(rf"% {_comment(whole.title)}")
    for number, grid in enumerate(whole.grids):
        lines += [r"\qquad"] if number else []  # side by side on one page
        lines += _grid(grid)
    return "\n".join([*lines, r"\end{document}", ""])


def latex_escaped(text: str) -> str:
    r"""Escape text for LaTeX; non-ASCII characters become question marks.

    >>> latex_escaped("a_b {50%}")
    'a\\_b \\{50\\%\\}'
    """
    return "".join(_SPECIAL.get(character, character) for character in _comment(text))


def _comment(text: str) -> str:
    """Return text in ASCII without control characters, which a comment of LaTeX may hold."""
    return "".join(character if " " <= character <= "~" else "?" for character in text)


def _grid(grid: Grid) -> list[str]:
    cells = grid.cells
    longest = max((len(piece) for row in cells for cell in row for piece in cell.text.split("\n")), default=1)
    width, lines = max(0.8, 0.2 * longest + 0.3), 1 + max((c.text.count("\n") for row in cells for c in row), default=0)
    height = max(0.8, 0.4 * lines + 0.3)
    drawn = [
        rf"\begin{{tikzpicture}}[x={{(0cm,-{height:g}cm)}},y={{({width:g}cm,0cm)}},",
        rf"  cell/.style={{draw,minimum width={width:g}cm,minimum height={height:g}cm,inner sep=0pt,align=center,",
        r"    font=\footnotesize\ttfamily},axis/.style={font=\footnotesize\ttfamily,text=darkgray},",
        r"  baseline=(current bounding box.north)]",
    ]
    for i, row in enumerate(cells):
        drawn += [_cell(cell, i, j) for j, cell in enumerate(row)]
    drawn += [rf"\node[axis] at ({i},-1) {{{latex_escaped(grid.rows.label(i))}}};" for i in range(grid.rows.size)]
    across = range(grid.columns.size)
    drawn += [rf"\node[axis] at (-1,{j}) {{{latex_escaped(grid.columns.label(j))}}};" for j in across]
    drawn += _edges(grid.rows, lambda at: f"({at},-0.5) -- ({at},{grid.columns.size - 0.5:g})")
    drawn += _edges(grid.columns, lambda at: f"(-0.5,{at}) -- ({grid.rows.size - 0.5:g},{at})")
    below = [rf"\bfseries {latex_escaped(grid.title)}"] if grid.title else []
    below += [latex_escaped(remark) for remark in grid.remarks()]
    drawn += [
        rf"\node[anchor=north west,font=\footnotesize] at ({grid.rows.size - 0.4 + 0.6 * k:g},-0.5) {{{text}}};"
        for k, text in enumerate(below)
    ]
    return [*drawn, r"\end{tikzpicture}"]


def _cell(cell: Cell, i: int, j: int) -> str:
    style = "cell" if cell.colour is None else f"cell,fill=c{cell.colour % len(FILLS)}"
    if cell.marks:
        style += ",draw=mark,line width=2pt"
    text = r"\\".join(map(latex_escaped, cell.text.split("\n")))
    return rf"\node[{style}] at ({i},{j}) {{{text}}};"


def _edges(axis: Axis, path: object) -> list[str]:
    return [
        rf"\draw[line width={1 + axis.level(position)}pt] {path(f'{position - 0.5:g}')};"  # type: ignore[operator]
        for position in range(axis.size)
        if axis.level(position)
    ]
