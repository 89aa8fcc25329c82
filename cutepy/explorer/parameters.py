"""Request parameters: parsed and bounded, with errors that name the field."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from cutepy.layouts import ComposedLayout, Layout, parse, product
from cutepy.layouts.errors import ParseError
from cutepy.layouts.modes import LayoutBase

MAX_TEXT = 4000
"""Largest number of characters of a parameter."""
MAX_ELEMENTS = 1 << 16
"""Largest number of elements that are evaluated one by one: thread-value layouts, steps and comparisons."""
MAX_DIGITS = 15
"""Largest number of digits: offsets in any memory."""

_NUMBER = re.compile(rf"\d{{{MAX_DIGITS + 1},}}")
_SWIZZLE = re.compile(r"S[wW]?(?:<|&lt;|_)[^>:()]*?\d{3}")

T = TypeVar("T")
C = TypeVar("C", bound=str)


class BadParameterError(ValueError):
    """Error of an invalid parameter.

    Attributes
    ----------
    field : str
        Its name.
    position : int or None
        Of the offending character, where the text does not parse.
    """

    def __init__(self, field: str, message: str, position: int | None = None) -> None:
        super().__init__(message)
        self.field = field
        self.position = position


class Parameters:
    """Parameters of one question: name -> text.

    Examples
    --------
    >>> asked = Parameters({"expression": "(4,8):(8,x)", "bits": "16"})
    >>> asked.number("bits", 1, 128)
    16
    >>> asked.value("expression")
    Traceback (most recent call last):
        ...
    cutepy.explorer.parameters.BadParameterError: expected an integer, '_', '(', '<' or a swizzle, got 'x' at character 9:
      (4,8):(8,x)
               ^
    """  # noqa: E501 - what the reader says

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given

    def known(self, *names: str) -> None:
        """Raise unless every parameter is one of these."""
        for name in self._given:
            if name not in names:
                raise BadParameterError(name, f"there is no parameter {name!r} here; there are {', '.join(names)}")

    def has(self, name: str) -> bool:
        """Return whether a parameter is given and not blank."""
        return bool(self._given.get(name, "").strip())

    def text(self, name: str, default: str | None = None) -> str:
        """Return a parameter's text."""
        if not self.has(name):
            if default is None:
                raise BadParameterError(name, f"{name} must be given")
            return default
        text = self._given[name]
        if len(text) > MAX_TEXT:
            raise BadParameterError(name, f"{name} may have {MAX_TEXT} characters, got {len(text)}")
        if found := _NUMBER.search(text):
            raise BadParameterError(
                name, f"numbers may have {MAX_DIGITS} digits here, got {len(found[0])}", found.start()
            )
        if found := _SWIZZLE.search(text):
            raise BadParameterError(
                name, f"the parameters of a swizzle may have 2 digits here, got {found[0]!r}", found.start()
            )
        return text

    def choice(self, name: str, choices: Sequence[C], default: C | None = None) -> C:
        """Return a parameter that is one of some words."""
        text = self.text(name, default)
        for choice in choices:
            if text == choice:
                return choice
        raise BadParameterError(name, f"{name} must be one of {', '.join(choices)}, got {text!r}")

    def number(self, name: str, low: int, high: int, default: int | None = None) -> int:
        """Return a parameter that is a whole number, decimal or 0x-hexadecimal."""
        text = self.text(name, None if default is None else str(default)).strip()
        try:
            number = int(text, 16 if text.lower().startswith("0x") else 10)
        except ValueError:
            raise BadParameterError(name, f"{name} must be a whole number, got {text!r}") from None
        if not low <= number <= high:
            raise BadParameterError(name, f"{name} must be {low} to {high}, got {number}")
        return number

    def width(self) -> int | None:
        """Return the width of an element in bits, None if it is not given."""
        return self.number("bits", 1, 128) if self.has("bits") else None

    def value(self, name: str, read: Callable[[str], T] = parse) -> T:
        """Parse a parameter as a value of the notation."""
        text = self.text(name)
        try:
            return read(text)
        except ParseError as error:
            raise BadParameterError(name, str(error), error.position) from error
        except (ValueError, TypeError) as error:
            raise BadParameterError(name, str(error)) from error

    def layout(self, name: str, limit: int | None = MAX_ELEMENTS) -> Layout | ComposedLayout:
        """Return a parameter that is a layout, of at most a given number of elements."""
        value: Any = self.value(name)
        if isinstance(value, int | tuple):
            value = self.value(name, lambda text: Layout(parse(text)))
        if not isinstance(value, LayoutBase):
            raise BadParameterError(name, f"{name} must be a layout such as (4,8):(8,1), got {value}")
        if limit is not None:
            bounded(name, value, limit)
        return value  # type: ignore[return-value]


def bounded(name: str, value: Any, limit: int = MAX_ELEMENTS) -> None:  # noqa: ANN401 - what the notation writes
    """Raise if a value has too many elements to evaluate one by one."""
    shape = value.shape if isinstance(value, LayoutBase) else None
    size = 0 if shape is None else product(shape)
    if size > limit:
        raise BadParameterError(name, f"{size} elements are too many here: at most {limit} are looked at one by one")
