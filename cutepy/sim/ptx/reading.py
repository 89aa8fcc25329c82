"""Error recovery of the parser: statements that it does not understand, with their places."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from typing import NoReturn, TypeVar

from cutepy.sim.ptx.forms import Checks
from cutepy.sim.ptx.model import UnreadStatement
from cutepy.sim.ptx.tokens import PtxSyntaxError

_T = TypeVar("_T")

NOT_UNDERSTOOD = (
    PtxSyntaxError,
    ArithmeticError,
    AssertionError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)
"""Errors of Python that a statement of an unknown form may raise."""
_BRACE = re.compile(r'[{}"]')
_STRING_END = re.compile(r'[^"]*"')
_NOT_ALLOWED = re.compile(r"[\0\x80-\U0010ffff]")
_NO_SPACE = re.compile(r'"[^"]*"|[\v\x1c-\x1f]')
"""A string, or a character that Python takes for white space and ptxas does not."""
_SPACE = re.compile(r"\s*+")
_STATEMENT_END = re.compile(";")
_HEAD_END = re.compile(r"[;{]")
_LONGEST = 200
_CHECKS = Checks()


class StatementReader:
    """A text that is read: statements that are not understood are listed, or end the reading.

    Parameters
    ----------
    text : str
        Without comments: these are blanks, so that all else is where it was.
    file : str
        That it is of; empty if it is of none.
    unread : list of UnreadStatement, optional
        Gets what is not understood.
    checks : Checks, optional
        Of the operands of instructions; by default those of all texts.

    Attributes
    ----------
    inlined : set of int
        Positions of .loc directives of inline assembly in the text: they name no lines of the source.
    """

    def __init__(
        self, text: str, file: str = "", unread: list[UnreadStatement] | None = None, checks: Checks | None = None
    ) -> None:
        self.text = text
        self.checks = _CHECKS if checks is None else checks
        self.strict = unread is None
        self.file = file
        self.inlined: set[int] = set()
        self._unread = unread
        self._starts: list[int] = []

    def attempt(self, read: Callable[[], _T], at: int, otherwise: _T) -> _T:
        """Return the result of reading the statement at a position, or a default."""
        try:
            return read()
        except NOT_UNDERSTOOD as error:
            placed = self.placed(error, at)
            if self._unread is None:
                raise placed from error
            self._unread.append(UnreadStatement(placed.line, placed.statement[:80], placed.reason))
            return otherwise

    def placed(self, error: BaseException, at: int) -> PtxSyntaxError:
        """Return the error of the statement at a position, which names the place."""
        if isinstance(error, PtxSyntaxError) and error.line:
            return error
        text = self.text
        blank = _SPACE.match(text, at)
        start = blank.end() if blank is not None else at
        found = (_HEAD_END if text[start : start + 1] in (".", "{", "}") else _STATEMENT_END).search(text, start)
        end = found.end() if found is not None else len(text)
        statement = " ".join(text[start : min(end, start + _LONGEST)].split())
        reason, token = str(error) or "of a form that is not known", ""
        if isinstance(error, PtxSyntaxError):
            reason, token = error.reason, error.token
        elif isinstance(error, RecursionError):
            reason = "it is nested too deeply"
        elif isinstance(error, MemoryError):
            reason = "there is no memory for what it declares"
        elif not isinstance(error, ValueError):
            reason = "of a form that is not known"
        if token:
            word = re.compile(rf"(?<![\w$%.]){re.escape(token)}(?![\w$])").search(text, start, end)
            start = word.start() if word is not None else max(start, text.find(token, start, end))
        line, column = self.place(start)
        return PtxSyntaxError(reason, token, self.file, line, column, statement)

    def place(self, at: int) -> tuple[int, int]:
        """Return the line and column of a position, from 1."""
        if not self._starts:
            self._starts = [0, *(found.end() for found in re.finditer("\n", self.text))]
        line = bisect_right(self._starts, at)
        return line, at - self._starts[line - 1] + 1

    def check_characters(self, original: str) -> None:
        """Refuse characters that ptxas 13.0 does not read.

        Parameters
        ----------
        original : str
            The text with its comments, in which ptxas refuses NUL and what is not ASCII, too.
        """
        if not original.isascii() or "\0" in original:
            for found in _NOT_ALLOWED.finditer(original):
                self._refuse_character(found[0], found.start(), original)
        for found in _NO_SPACE.finditer(self.text):
            if found[0][0] != '"':
                self._refuse_character(found[0], found.start(), self.text)

    def _refuse_character(self, character: str, at: int, text: str) -> None:
        start = max(text.rfind(mark, 0, at) for mark in ";{}\n") + 1
        if character.isascii():
            reason = f"{character!r} is no character of PTX; delete it"
        else:
            reason = (
                f"{character!r} is no character of PTX, which is ASCII; ptxas refuses it in comments and strings, too"
            )
        line, column = self.place(at)
        statement = text[start : text.find("\n", start) % (len(text) + 1)].strip()[:_LONGEST]
        error = PtxSyntaxError(reason, character, self.file, line, column, statement or repr(character))
        self.attempt(lambda: fail(error), start, None)


def fail(error: BaseException) -> NoReturn:
    """Raise an error."""
    raise error


def refuse(reason: str, token: str = "") -> NoReturn:
    """Raise the error of a statement that is not understood."""
    raise PtxSyntaxError(reason, token)


def refuse_statement(text: str) -> NoReturn:
    """Raise for a statement of no known form."""
    raise PtxSyntaxError(f"cannot read {' '.join(text[:200].split())[:80]!r}")


def closing_brace(text: str, position: int) -> int:
    """Return where the braces end that were opened before a position."""
    depth = 1
    while (found := _BRACE.search(text, position)) is not None:
        mark, position = found[0], found.end()
        if mark == '"':
            string = _STRING_END.match(text, position)
            position = string.end() if string is not None else position
        else:
            depth += 1 if mark == "{" else -1
        if depth == 0:
            return position
    raise PtxSyntaxError("the braces that are opened here are not closed")
