"""What becomes of text that is not understood."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from cutepy.sim.ptx.model import Unread
from cutepy.sim.ptx.tokens import PtxSyntaxError

_T = TypeVar("_T")

_NOT_UNDERSTOOD = (PtxSyntaxError, AssertionError, LookupError, TypeError, ValueError)
"""What parsing a statement may raise that is of another form than those known."""


class Reading:
    """What becomes of statements that are not understood: they are listed, or end the reading."""

    def __init__(self, unread: list[Unread] | None) -> None:
        self._unread = unread
        self.strict = unread is None

    def attempt(self, read: Callable[[], _T], line: int, text: str, otherwise: _T) -> _T:
        """Give what reading a text gives, or something else."""
        if self._unread is None:
            return read()
        try:
            return read()
        except _NOT_UNDERSTOOD as error:
            words = " ".join(text.split())
            self._unread.append(Unread(line, words[:80], str(error) or "of a form that is not known"))
            return otherwise


def refuse(text: str) -> None:
    """Raise for a statement of no known form."""
    raise PtxSyntaxError(f"cannot read {text[:80]!r}")


def closing_brace(text: str, position: int) -> int:
    """Return where the braces end that were opened before a position."""
    depth = 1
    for match in re.compile(r"[{}]").finditer(text, position):
        depth += 1 if match[0] == "{" else -1
        if depth == 0:
            return match.end()
    raise PtxSyntaxError("the body of a function does not end")
