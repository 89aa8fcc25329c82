"""HTML renderer: tables whose cells show coordinate, offset, byte, bank, thread and value on hover.

Nothing is loaded from elsewhere. A fragment, for notebooks, has no script and shows facts as tooltips; a document shows
them at once in a line below, and outlines the other cells of the same thread or the same offset.
"""

from __future__ import annotations

from ..grids.grid import Axis, Cell, Grid, Picture
from .drawing import picture_of
from .markup import described, drawable, escaped, folded, tooltip
from .palette import EMPTY, FILLS, INK, LINE, MARK, MUTED

_STYLE = "".join(
    [
        f".cutepy{{color:{INK};background:{EMPTY};font:12px ui-monospace,Menlo,Consolas,monospace;overflow-x:auto}}",
        ".cutepy figure{display:inline-block;margin:8px 24px 8px 0;vertical-align:top}",
        ".cutepy table{border-collapse:collapse;margin:4px 0;width:auto}",
        f".cutepy td{{border:1px solid {LINE};padding:3px 5px;min-width:1.8em;text-align:center;white-space:nowrap;"
        f"color:{INK};background:{EMPTY}}}",
        f".cutepy th{{color:{MUTED};font-weight:normal;padding:2px 5px;text-align:center;background:{EMPTY}}}",
        ".cutepy tbody th{text-align:right}.cutepy th.n{text-align:left}",
        f".cutepy .l1{{border-left:3px solid {INK}}}.cutepy .l2{{border-left:6px double {INK}}}",
        f".cutepy .t1 td{{border-top:3px solid {INK}}}.cutepy .t2 td{{border-top:6px double {INK}}}",
        f".cutepy .m{{outline:3px solid {MARK};outline-offset:-3px;font-weight:bold}}",
        *(f".cutepy .c{key}{{background:{colour}}}" for key, colour in enumerate(FILLS)),
        f".cutepy figcaption,.cutepy p{{color:{MUTED};margin:2px 0;max-width:100ch}}",
        f".cutepy .title{{color:{INK};font-weight:bold}}",
        f".cutepy td.same{{box-shadow:inset 0 0 0 2px {INK}}}",
    ]
)
_PAGE_STYLE = (
    "body{margin:12px}#facts{position:sticky;bottom:0;min-height:2.6em;padding:6px;margin:0;"
    f"background:{EMPTY};border-top:1px solid {LINE};color:{INK}}}"
)
_SCRIPT = (
    "const facts=document.getElementById('facts');let lit=[];"
    "document.addEventListener('mouseover',e=>{const d=e.target.closest('td');"
    "lit.forEach(x=>x.classList.remove('same'));lit=[];if(!d){return}"
    "facts.textContent=d.title.split('\\n').join(' \\u00b7 ');"
    "const by=d.dataset.thread!==undefined?'thread':'offset';if(d.dataset[by]!==undefined){"
    "lit=[...document.querySelectorAll('td')].filter(x=>x.dataset[by]===d.dataset[by]);"
    "lit.forEach(x=>x.classList.add('same'))}})"
)


def render_html(picture: Grid | Picture) -> str:
    """Draw a picture as an HTML fragment with its style, for a notebook or a page.

    Parameters
    ----------
    picture : Grid or Picture
        Grids of more than 16384 cells are summarised, with a note.

    Examples
    --------
    >>> from cutepy.layouts import Layout
    >>> from cutepy.layouts.render import layout_grid
    >>> render_html(layout_grid(Layout((2, 3), (3, 1)))).count("<td")
    6
    """
    whole = drawable(picture)
    title, description = described(whole)
    heading = f'<p class="title">{escaped(whole.title)}</p>' if whole.title else ""
    figures = "".join(map(_figure, whole.grids))
    label = escaped(f"{title}. {description}")
    return f'<div class="cutepy" role="group" aria-label="{label}"><style>{_STYLE}</style>{heading}{figures}</div>'


def render_page(picture: Grid | Picture) -> str:
    """Draw a picture as an HTML document.

    >>> from cutepy.layouts import Layout
    >>> from cutepy.layouts.render import layout_grid
    >>> render_page(layout_grid(Layout(1)))[:15]
    '<!DOCTYPE html>'
    """
    whole = drawable(picture)
    title, _ = described(whole)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width"><title>{escaped(title)}</title><style>{_PAGE_STYLE}</style></head>\n<body>'
        f'{render_html(whole)}\n<p id="facts" class="cutepy" aria-live="polite">Point at a cell.</p>\n'
        f"<script>{_SCRIPT}</script></body></html>\n"
    )


def in_notebook(value: object) -> str:
    """Return the HTML fragment for a notebook."""
    return folded(picture_of(value), render_html)


def _figure(grid: Grid) -> str:
    parts = ["<figure>"]
    if grid.title:
        parts.append(f'<p class="title">{escaped(grid.title)}</p>')
    parts.append(f'<table><thead><tr><th scope="col">{escaped(grid.corner)}</th>')
    columns, rows = range(grid.columns.size), range(grid.rows.size)
    parts += [f'<th scope="col">{escaped(grid.columns.label(j))}</th>' for j in columns]
    parts.append("</tr>")
    if any(grid.columns.notes):
        parts += ["<tr><th></th>", *(f"<th>{escaped(grid.columns.note(j))}</th>" for j in columns), "</tr>"]
    parts.append("</thead><tbody>")
    edges = [_edge(grid.columns, j, "l") for j in columns]
    for i, row in zip(rows, grid.cells, strict=True):
        top = _edge(grid.rows, i, "t")
        parts.append(f'<tr class="{top}">' if top else "<tr>")
        parts.append(f'<th scope="row">{escaped(grid.rows.label(i))}</th>')
        parts += map(_cell, row, edges)
        if grid.rows.note(i):
            parts.append(f'<th class="n">{escaped(grid.rows.note(i))}</th>')
        parts.append("</tr>")
    parts.append("</tbody></table>")
    parts += [f"<figcaption>{escaped(remark)}</figcaption>" for remark in grid.remarks()]
    parts.append("</figure>")
    return "".join(parts)


def _edge(axis: Axis, position: int, side: str) -> str:
    level = axis.level(position)
    return f"{side}{min(level, 2)}" if level else ""


def _cell(cell: Cell, edge: str) -> str:
    classes = [edge] if edge else []
    if cell.colour is not None:
        classes.append(f"c{cell.colour % len(FILLS)}")
    if cell.marks:
        classes.append("m")
    named = f' class="{" ".join(classes)}"' if classes else ""
    thread = f' data-thread="{cell.thread}"' if cell.owners else ""
    offset = f' data-offset="{escaped(str(cell.offset))}"' if cell.offset is not None else ""
    text = escaped(cell.text).replace("\n", "<br>")
    return f'<td{named}{thread}{offset} title="{escaped(tooltip(cell))}">{text}</td>'
