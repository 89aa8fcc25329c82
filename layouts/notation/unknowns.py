"""Unknown numbers of a text, ``?``: divisor, width, and position in the layout."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from ..errors import ParseError

_DIVISOR = re.compile(r"div\s*=\s*(\d+)")
_WIDTH = re.compile(r"\bu?i(?:nt)?(\d+)(?:_t)?\b")


class Unknown(NamedTuple):
    """A number that only the running program knows: the CuTe DSL writes ``?``, ``?{div=8}``, ``?{i64 div=8}``.

    Attributes
    ----------
    text : str
        As printed.
    position : int
        Index of its first character.
    role : "extent", "stride", "start" or "value"
        Description: the shape or stride of a layout, or the start of a tensor.
    mode : tuple of int
        Path of the mode, outermost first: ``(1, 0)`` is mode 0 of mode 1.
    """

    text: str
    position: int
    role: Literal["extent", "stride", "start", "value"] = "value"
    mode: tuple[int, ...] = ()

    @property
    def divisor(self) -> int:
        """Known divisor of the number; 1 where none is known."""
        found = _DIVISOR.search(self.text)
        return int(found[1]) if found else 1

    @property
    def bits(self) -> int:
        """Width of the integer: 64 of C++'s ``long``, 32 where none is printed."""
        found = _WIDTH.search(self.text)
        return int(found[1]) if found else 64 if "long" in self.text else 32

    @property
    def place(self) -> str:
        """Role and mode of the number, in words.

        >>> Unknown("?", 4, "stride", (1, 0)).place
        'stride of mode 0 of mode 1'
        """
        modes = "".join(f" of mode {mode}" for mode in reversed(self.mode))
        return f"{self.role}{modes}"

    def __str__(self) -> str:
        known = f"{self.bits} bits" if self.divisor == 1 else f"{self.bits} bits, a multiple of {self.divisor}"
        return f"{self.place}: {known}"

    def check(self, text: str, value: int) -> None:
        """Refuse a value that contradicts the known divisor or width.

        Raises
        ------
        ParseError
            If the divisor does not divide it, or it has more bits.
        """
        if self.divisor and value % self.divisor:
            raise ParseError(text, self.position, f"{self.text} is a multiple of {self.divisor}, {value} is not")
        if not -(1 << self.bits - 1) <= value < 1 << self.bits - 1:
            raise ParseError(text, self.position, f"{self.text} is an integer of {self.bits} bits, {value} is not")


class RuntimeValue(NamedTuple):
    """Value with unknown numbers, which cannot be computed with or drawn until they are given.

    Attributes
    ----------
    text : str
        As printed.
    unknowns : tuple of Unknown
        In the order of the text.
    kind : str
        Name of the class that it is once they are given.
    """

    text: str
    unknowns: tuple[Unknown, ...]
    kind: str

    def __str__(self) -> str:
        return self.text


class GivenNumbers:
    """Values for the unknown numbers of texts, handed out from left to right.

    Parameters
    ----------
    values : sequence of int or None
        None: stand-ins, for texts of which only the structure is read.
    """

    def __init__(self, values: Sequence[int] | None = ()) -> None:
        self.values = values
        self.taken = 0

    def take(self, text: str, unknown: Unknown) -> int:
        """Return the next value.

        Raises
        ------
        ParseError
            If there is none left, or it contradicts a known property.
        """
        if self.values is None:
            return max(unknown.divisor, 1)
        if self.taken == len(self.values):
            what = f"{unknown.text} is known only at run time; parse(text, given=...) takes a value for each ?"
            taken = f", and {self.taken} were given" if self.taken else ""
            raise ParseError(text, unknown.position, what + taken)
        value = self.values[self.taken]
        self.taken += 1
        unknown.check(text, value)
        return value
