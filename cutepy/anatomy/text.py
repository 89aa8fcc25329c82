"""Explanations as plain text fitted to a width, with the spans to colour."""

from __future__ import annotations

from cutepy.anatomy.model import Findings
from cutepy.anatomy.sections import Entry, sections
from cutepy.anatomy.words import several
from cutepy.layouts.grids.text import Drawing, Span, draw_text, wrapped

_INDENT = 2
_PICTURE_LINES = 40


class _Writer:
    """Lines of text, and the spans in them."""

    def __init__(self, width: int | None) -> None:
        self._width = width
        self._parts: list[str] = []
        self._spans: list[Span] = []
        self._at = 0

    def line(self, text: str = "", style: str = "", indent: int = 0) -> None:
        """Write a text, wrapped if necessary."""
        room = None if self._width is None else max(self._width - indent, 8)
        for part in wrapped(text, room):
            self._one(" " * indent, part, style)

    def named(self, name: str, text: str, column: int, indent: int) -> None:
        """Write a name, and a text beside it."""
        head = name.ljust(column)
        room = None if self._width is None else max(self._width - indent - column, 8)
        for number, part in enumerate(wrapped(text, room)):
            at = self._at + indent
            if number == 0 and name:
                self._spans.append(Span(at, at + len(name), "label"))
            self._one(" " * indent + (head if number == 0 else " " * column), part, "")

    def picture(self, drawing: Drawing, indent: int) -> None:
        """Write a picture."""
        at = 0
        for text in drawing.text.split("\n"):
            start = self._at + indent
            for span in drawing.spans:
                if at <= span.start and span.end <= at + len(text):
                    self._spans.append(Span(start + span.start - at, start + span.end - at, span.style))
            self._one(" " * indent, text, "")
            at += len(text) + 1

    def _one(self, before: str, text: str, style: str) -> None:
        text = "".join(c if c.isprintable() else "\ufffd" for c in text)
        whole = (before + text).rstrip()
        if style and text:
            start = self._at + len(before)
            self._spans.append(Span(start, start + len(text), style))
        self._parts.append(whole)
        self._at += len(whole) + 1

    def drawing(self) -> Drawing:
        """Return the written text with its spans."""
        return Drawing("\n".join(self._parts), tuple(self._spans))


def draw(findings: Findings, width: int | None = 80) -> Drawing:
    """Write an explanation.

    Parameters
    ----------
    findings : Findings
    width : int or None
        Characters of a line; None for any number.
    """
    out = _Writer(width)
    made = f"PTX {findings.ptx_version}" if findings.ptx_version else "PTX"
    kernels = several(len(findings.kernels), "kernel")
    out.line(f"{findings.source}: {kernels}, {made} for {findings.target or 'an unknown target'}", "title")
    for note in findings.notes:
        out.line(note, "caption")
    for kernel in findings.kernels:
        out.line()
        out.line(f"Kernel {kernel.name}", "title")
        if kernel.entry != kernel.name:
            out.line(kernel.entry, "caption", _INDENT)
        for section in sections(kernel):
            out.line()
            out.line(section.title + (f": {section.remark}" if section.remark else ""), "title")
            for number, entry in enumerate(section.entries):
                if number and (entry.facts or entry.picture):
                    out.line()
                _entry(out, entry, width)
    return out.drawing()


def _entry(out: _Writer, entry: Entry, width: int | None) -> None:
    if entry.title:
        out.line(entry.title, "label", _INDENT)
    indent = 2 * _INDENT if entry.title else _INDENT
    column = max((len(name) for name, _ in entry.facts), default=0) + 2
    last = None
    for name, text in entry.facts:
        out.named("" if name == last else name, text, column, indent)
        last = name
    if entry.picture is not None:
        room = None if width is None else max(width - indent, 20)
        out.picture(draw_text(entry.picture, width=room, height=_PICTURE_LINES), indent)
