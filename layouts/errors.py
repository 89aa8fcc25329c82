"""Errors of the layout algebra: the operation, its operands, and the violated condition."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, ParamSpec, TypeVar

from .writer import to_text

P = ParamSpec("P")
R = TypeVar("R")


class LayoutError(ValueError):
    """Error of an operation on layouts whose precondition does not hold; CuTe C++ rejects it at compile time.

    Parameters
    ----------
    operation : str
        Name of the function whose condition it is. Where a public function called that one, the error is the public
        function's, and this call becomes `origin`.
    operands : tuple
        Its operands; written in the message in the one notation.
    condition : str
        The violated condition: the required value and the actual one.
    hint : str, optional
        Remedy.
    origin : str, optional
        The inner call in which the condition failed, where that is not the public function itself.

    Examples
    --------
    >>> from cutepy.layouts import Layout, composition
    >>> composition(Layout((8, 8), (8, 1)), Layout(4, 3))
    Traceback (most recent call last):
        ...
    cutepy.layouts.errors.LayoutError: composition((8,8):(8,1), 4:3): shape divisibility: \
the 4 elements left of the right operand must be a multiple of the 3 that mode 0 of the left operand (shape 8) \
takes at step 3
    """

    def __init__(
        self, operation: str, operands: tuple[object, ...], condition: str, hint: str = "", origin: str = ""
    ) -> None:
        self.operation, self.operands = operation, operands
        self.condition = condition
        self.hint = hint
        self.origin = origin
        public = None if origin else _public_call(sys._getframe(1))
        if public is not None and public != (operation, operands):
            self.origin = origin = self.call
            self.operation, self.operands = public
        message = f"{self.call}: {condition}"
        if origin and origin != self.call:
            message += f" (in {origin})"
        if hint:
            message += f"; {hint}"
        super().__init__(message)

    @property
    def call(self) -> str:
        """Failed call in the notation: ``composition((8,8):(8,1), 4:3)``."""
        return f"{self.operation}({', '.join(map(_show, self.operands))})"

    def within(self, operation: str, operands: tuple[object, ...]) -> LayoutError:
        """Return the same violation as an error of the enclosing public call."""
        return LayoutError(operation, operands, self.condition, self.hint, self.origin or self.call)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.operation, self.operands, self.condition, self.hint, self.origin)


class InexactError(LayoutError):
    """Error of ``exact=True``: the result differs from the function that defines its operation.

    C++ CuTe gives that result without a word; so do the operations without ``exact=True``.

    Parameters
    ----------
    operation, operands, condition, hint, origin
        As of LayoutError.
    coordinate : IntTuple, optional
        The first coordinate of the result that is wrong. None if none was found, or elements are repeated or left out.
    element : IntTuple, optional
        The coordinate of the left operand at which the right operand points there, ``B(coordinate)``.
    expected, got : IntTuple, optional
        ``A(B(coordinate))``, and the result's value. None if it is the element that is wrong.

    Examples
    --------
    >>> from cutepy.layouts import Layout, composition
    >>> try:
    ...     composition(Layout((6, 2), (1, 7)), Layout((3, 2), (2, 3)), exact=True)
    ... except InexactError as error:
    ...     print(error.coordinate, error.element, error.expected, error.got)
    (2, 1) 7 8 7
    """

    def __init__(
        self,
        operation: str,
        operands: tuple[object, ...],
        condition: str,
        hint: str = "",
        origin: str = "",
        *,
        coordinate: object = None,
        element: object = None,
        expected: object = None,
        got: object = None,
    ) -> None:
        super().__init__(operation, operands, condition, hint, origin)
        self.coordinate, self.element = coordinate, element
        self.expected, self.got = expected, got

    def __reduce__(self) -> tuple[object, ...]:
        found = {name: getattr(self, name) for name in ("coordinate", "element", "expected", "got")}
        return _inexact, (self.operation, self.operands, self.condition, self.hint, self.origin, found)


def _inexact(*parts: Any) -> InexactError:  # noqa: ANN401 - what __reduce__ gives
    *positional, found = parts
    return InexactError(*positional, **found)


class MismatchError(Exception):
    """Violated condition with the shape and stride that break it.

    A caller that holds the operands raises it as a LayoutError.
    """


class ParseError(LayoutError):
    """Text that is not in the notation; the message shows its line with a caret under the offending character.

    Parameters
    ----------
    text : str
        The whole text.
    position : int
        Index in `text` of the offending character (``len(text)`` at its end).
    condition : str
        Expected token and actual one.

    Attributes
    ----------
    place : str
        The character, counted from 0, and the line where the text has several.
    line : str
        The line of the character, as the message shows it.
    column : int
        Index of the character in `line`.
    """

    def __init__(self, text: str, position: int, condition: str) -> None:
        self.text = text
        self.position = position
        super().__init__("parse", (text,), condition, origin="parse")
        self.origin = ""
        start = text.rfind("\n", 0, position) + 1
        where = f" of line {text.count(_NEWLINE, 0, start) + 1}" if _NEWLINE in text.strip() else ""
        self.line = _one_line(text[start:].partition("\n")[0])
        self.column = position - start
        self.place = f"character {self.column}{where}"
        self.args = (f"{condition} at {self.place}:\n  {self.line}\n  {' ' * self.column}^",)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.text, self.position, self.condition)


_NEWLINE = "\n"


def operation(function: Callable[P, R]) -> Callable[P, R]:
    """Mark a public function: a violation anywhere below its call is reported as that call's.

    The function is returned as it is, so a call that succeeds costs nothing more. It must not rebind its parameters:
    the report shows what they hold.
    """
    _OPERATIONS[function.__code__] = function.__defaults__ or ()
    return function


_OPERATIONS: dict[CodeType, tuple[object, ...]] = {}
"""Code object of each public function, with the defaults of its parameters."""

_CO_VARARGS = 0x04  # same object as inspect's; importing inspect would take longer than this package


def _public_call(frame: FrameType | None) -> tuple[str, tuple[object, ...]] | None:
    """Return (name, operands) of the outermost public call among this package's frames, if there is one."""
    public = None
    while frame is not None and frame.f_globals.get("__name__", "").startswith(__package__):
        if frame.f_code in _OPERATIONS:
            public = frame
        frame = frame.f_back
    return None if public is None else (public.f_code.co_name, _operands_of(public))


def _operands_of(frame: FrameType) -> tuple[object, ...]:
    """Return the operands of a call: its arguments without flags and without trailing defaults."""
    code, values = frame.f_code, frame.f_locals
    operands = [values[name] for name in code.co_varnames[: code.co_argcount]]
    for default in reversed(_OPERATIONS[code]):
        if operands[-1] is not default:
            break
        operands.pop()
    rest = code.co_varnames[code.co_argcount :]
    keywords = [values[name] for name in rest[: code.co_kwonlyargcount]]
    if code.co_flags & _CO_VARARGS:
        operands.extend(values[rest[code.co_kwonlyargcount]])
    return (*operands, *(value for value in keywords if value is not None and not isinstance(value, bool)))


def _one_line(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)


def _show(operand: object) -> str:
    if isinstance(operand, str):
        return repr(operand)
    try:
        return to_text(operand)
    except (TypeError, ValueError, RecursionError):
        return repr(operand)
