"""Contents of a pasted text: values, skipped parts with the reason, and errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..errors import ParseError

VALUES = "a table of values"
"""Reason for skipping the elements of a printed tensor."""


class PastedValue(NamedTuple):
    """A value found in a text.

    Attributes
    ----------
    value : object
        Result of `parse`; a Runtime where the text leaves numbers open.
    text : str
        Text of the value.
    line : int
        First line of the text, counted from 1.
    name : str
        Name before the text: ``"sA"``.
    bits : int or None
        Width of an element, where a pointer tells it.
    notes : tuple of str
        Further facts of the text, or missing ones.
    """

    value: Any
    text: str
    line: int
    name: str = ""
    bits: int | None = None
    notes: tuple[str, ...] = ()


COMMENT = "a comment"
"""Reason for skipping text after two slashes or a hash."""


class SkippedLines(NamedTuple):
    """Lines, or a part of one, without a value: `first` to `last`, counted from 1; `text` is the first one's.

    Where `part` is true, other parts of the line were read. Where `text` is empty the lines are not skipped, but not
    read as the whole that they are of: `why` says what is missing. `position` is the index of the first character.
    """

    first: int
    last: int
    text: str
    why: str
    part: bool = False
    position: int = 0

    def __str__(self) -> str:
        lines = f"line {self.first}" if self.first == self.last else f"lines {self.first}-{self.last}"
        shown = self.text.strip()
        if not shown:
            return f"{lines}: {self.why}"
        quoted = f": {shown[:40]}{'...' if len(shown) > 40 else ''}" if self.first == self.last else ""
        return f"skipped {'a part of ' if self.part else ''}{lines}, {self.why}{quoted}"


class Paste(NamedTuple):
    """Contents of a pasted text.

    Attributes
    ----------
    values : tuple of PastedValue
        In the order of the text.
    skipped : tuple of SkippedLines
        Parts without a value.
    errors : tuple of ParseError
        Errors of unreadable values.
    """

    values: tuple[PastedValue, ...]
    skipped: tuple[SkippedLines, ...]
    errors: tuple[ParseError, ...]


def merged(skipped: Sequence[SkippedLines]) -> tuple[SkippedLines, ...]:
    """Join neighbouring lines that are skipped for one reason."""
    merged: list[SkippedLines] = []
    for part in sorted(skipped, key=lambda part: part.first):
        last = merged[-1] if merged else None
        alike = last is not None and (last.why, last.part) == (part.why, part.part) == (part.why, False)
        if last is not None and alike and part.first <= last.last + 1:
            merged[-1] = last._replace(last=max(last.last, part.last))
        else:
            merged.append(part)
    return tuple(merged)
