"""Tables of elements below a value, as printers write them; their row lengths match the layout's extents.

=====================  ==============================================================================================
printer                table
=====================  ==============================================================================================
C++ ``print_tensor``   a row of ``size<1>`` numbers for each index of mode 0; of rank 1 a number a line, below ``:``;
                       of ranks 3 and 4 such planes with a line of dashes or equals signs between
C++ ``print_layout``   of rank 2: the numbers of the columns, then rows that begin with theirs, between borders
CuTe DSL               below ``=``: numbers in brackets with commas between, ``...`` for those left out; or a line
                       ``(0,1)= 1.5`` for each element, with its coordinate
=====================  ==============================================================================================
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from ..layout import Layout
from ..modes import LayoutBase
from .tokens import plain

_NUMBER = r"(?:[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|[+-]?(?:nan|inf)|0x[0-9a-f]+)"
_FLAGS = re.IGNORECASE | re.ASCII
_ENTRY = re.compile(_NUMBER, _FLAGS)
_COORDINATE = re.compile(r"\(_?\d[\d_,()]*\)", _FLAGS)
_AFTER = re.compile(r"[ \t]*(?P<announced>[:=])?[ \t\r]*(?P<opened>\(?)[ \t\r]*(?://.*|\#.*)?")
"""The rest of a value's line, where a table may follow."""
_BORDER = re.compile(r"[ \t]*\+?-{2,}(?:\+-+)*\+?[ \t\r]*|[ \t]*={2,}[ \t\r]*")
_OF_ELEMENT = re.compile(rf"[ \t]*\((?P<at>[\d,() ]+)\)[ \t]*=[ \t]*{_NUMBER}[ \t\r]*,?[ \t\r]*", _FLAGS)
_BRACKETED = re.compile(rf"[ \t]*(?:(?:{_NUMBER}(?=[\s,\])])|\.\.\.|[\[\](),])[ \t\r]*)+", _FLAGS)


@dataclass(frozen=True)
class ValueBeforeTable:
    """Value that a printed table of its elements may follow.

    Parameters
    ----------
    layout : LayoutBase
    sizes : tuple of int or None
        Extents of the layout's modes; None for one that the text leaves open.
    line_end : int
        Index of the end of the value's line.
    announced : bool
        True if the line ends in ``:`` or ``=``, as those that print a tensor do.
    opened : bool
        True if it opens a bracket behind that.
    of_coordinates : bool
        True if the elements are coordinates.
    """

    layout: LayoutBase
    sizes: tuple[int | None, ...]
    line_end: int
    announced: bool
    opened: bool
    of_coordinates: bool

    @classmethod
    def of(cls, value: Any, reader: Any, text: str) -> ValueBeforeTable | None:  # noqa: ANN401 - any value, Reader
        """Return the table position for a value just read from `text`; None if no table can follow."""
        if not isinstance(value, LayoutBase):
            return None
        shown = plain(reader.text)
        end = shown.find("\n", reader.end)
        after = _AFTER.fullmatch(shown, reader.end, end) if end >= 0 else None
        if after is None:
            return None
        shape = value.shape
        modes = shape if isinstance(shape, tuple) else (shape,)
        left_open = {(*unknown.mode, 0)[0] for unknown in reader.unknowns if unknown.role == "extent"}
        sizes = tuple(None if i in left_open else _product(mode) for i, mode in enumerate(modes))
        announced = bool(after["announced"]) or text.endswith("=")
        return cls(value, sizes, end, announced, bool(after["opened"]), re.search(r"@\d", text) is not None)

    def table(self, text: str, start: int) -> int | None:
        """Return the end of the table that begins at a position, at the end of its last line; None if there is none."""
        if start != self.line_end + 1:
            return None
        for read in (self._layout, self._tensor, self._elements, self._brackets):
            end = read(text, start)
            if end is not None:
                return end
        return None

    def _row(self, line: str, count: int | None) -> list[str] | None:
        """Return the entries of a row if their number is right, and nothing else is on it."""
        entries = line.split()
        entry = _COORDINATE if self.of_coordinates else _ENTRY
        fits = len(entries) == count if count is not None else bool(entries)
        return entries if fits and all(entry.fullmatch(part) for part in entries) else None

    def _tensor(self, text: str, start: int) -> int | None:
        """Match the rows of `print_tensor`."""
        if not 1 <= len(self.sizes) <= 4:
            return None
        rows, columns = (*self.sizes, 1)[:2]
        if columns == 1 and not self.announced:
            return None  # a number alone on a line is no table
        total = _product_or_none((rows, *self.sizes[2:]))
        found, end, position = 0, start, start
        while found != total and position <= len(text):
            line, after = _line(text, position)
            if self._row(line, columns) is not None:
                found, end = found + 1, after
            elif not (len(self.sizes) > 2 and rows and found % rows == 0 and _BORDER.fullmatch(line)):
                break
            position = after + 1
        return end if found and (total is None or found == total) else None

    def _layout(self, text: str, start: int) -> int | None:
        """Match the grid of `print_layout`, whose cells are the layout's offsets."""
        if len(self.sizes) != 2:
            return None
        rows, columns = self.sizes
        header, end = _line(text, start)
        names = self._row_of_ints(header)
        if names is None or names != list(range(len(names))) or columns not in (None, len(names)):
            return None
        border, end = _line(text, end + 1)
        if not _BORDER.fullmatch(border):
            return None
        found, last = 0, end
        while True:
            line, end = _line(text, last + 1)
            if found and _BORDER.fullmatch(line):
                last = end
                continue
            bare = re.sub(r"\|", " ", line)
            cells = bare.split()
            if "|" not in line or len(cells) != 1 + len(names) or cells[0] != str(found):
                break
            entry = _COORDINATE if self.of_coordinates else _ENTRY
            if not all(entry.fullmatch(cell) for cell in cells[1:]):
                return None
            known = isinstance(self.layout, Layout) and None not in self.sizes and not self.of_coordinates
            if known and cells[1:] != [str(self.layout((found, i))) for i in range(len(names))]:
                return None
            found, last = found + 1, end
        return last if found and rows in (None, found) else None

    def _row_of_ints(self, line: str) -> list[int] | None:
        parts = line.split()
        return (
            list(map(int, parts)) if parts and all(re.fullmatch(r"\d{1,9}", part, re.ASCII) for part in parts) else None
        )

    def _elements(self, text: str, start: int) -> int | None:
        """Match lines such as ``(0,1)= 1.5``, and the bracket that closes them."""
        if not (self.announced and self.opened):
            return None
        position, last, found = start, start, 0
        while match := _OF_ELEMENT.fullmatch(_line(text, position)[0]):
            at = [int(part) for part in re.findall(r"\d+", match["at"])]
            depth, indices = 0, 1
            for character in match["at"]:
                depth += {"(": 1, ")": -1}.get(character, 0)
                indices += character == "," and depth == 0
            if indices != len(self.sizes) or (
                len(at) == indices
                and any(size is not None and i >= size for i, size in zip(at, self.sizes, strict=True))
            ):
                return None
            last = _line(text, position)[1]
            found, position = found + 1, last + 1
        closing, end = _line(text, position)
        if found and re.fullmatch(r"[ \t]*\)+[ \t\r]*", closing):
            last = end
        total = _product_or_none(self.sizes)
        return last if found and (total is None or found <= total) else None

    def _brackets(self, text: str, start: int) -> int | None:
        """Match numbers in brackets: all elements, or fewer with dots in place of the others."""
        if not self.announced:
            return None
        depth, position, content = int(self.opened), start, ""
        if not depth and _line(text, start)[0].lstrip()[:1] not in ("(", "["):
            return None
        while True:
            line, end = _line(text, position)
            if not _BRACKETED.fullmatch(line):
                return None
            depth += sum(line.count(bracket) for bracket in "([") - sum(line.count(bracket) for bracket in ")]")
            content += f" {line}"
            if depth <= 0 or end >= len(text):
                break
            position = end + 1
        if depth not in (0, -1):  # -1: the bracket of tensor( is closed, too
            return None
        numbers = len(_ENTRY.findall(content.replace("...", " ")))
        total = _product_or_none(self.sizes)
        if total is None or numbers == total or ("..." in content and numbers < total):
            return end
        return None


def _line(text: str, start: int) -> tuple[str, int]:
    """Return the line that begins at a position, and its end."""
    end = text.find("\n", start)
    end = len(text) if end < 0 else end
    return text[start:end], end


def _product(mode: Any) -> int:  # noqa: ANN401 - IntTuple
    return math.prod(map(_product, mode)) if isinstance(mode, tuple) else int(mode)


def _product_or_none(sizes: tuple[int | None, ...]) -> int | None:
    return None if None in sizes else math.prod(size for size in sizes if size is not None)
