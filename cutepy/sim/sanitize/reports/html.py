"""Reports as HTML, for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from cutepy.sim.sanitize.reports.text import Line

_CSS = {
    "bold red": "color:#c62828;font-weight:bold",
    "bold yellow": "color:#b26a00;font-weight:bold",
    "bold green": "color:#2e7d32;font-weight:bold",
    "blue": "color:#1565c0",
    "bold": "font-weight:bold",
    "dim": "opacity:.6",
}
"""Readable on white and on black."""


def as_html(lines: Sequence[Line]) -> str:
    """Return lines as preformatted text."""
    text = "\n".join("".join(_span(escape(piece), style) for piece, style in line) for line in lines)
    return f'<pre style="white-space:pre;overflow-x:auto;line-height:1.3">{text}</pre>'


def _span(text: str, style: str) -> str:
    return f'<span style="{_CSS[style]}">{text}</span>' if style else text
