"""Errors of the layout algebra: what was asked, of what, and which condition failed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class LayoutError(ValueError):
    """An operation on layouts whose precondition does not hold: what CuTe C++ rejects at compile time.

    Parameters
    ----------
    operation : str
        Name of the public function that was called.
    operands : tuple
        Its operands; written in the message in the one notation.
    condition : str
        The violated condition: what was required and what was got.
    hint : str, optional
        What to do about it.
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
        self.operation = operation
        self.operands = operands
        self.condition = condition
        self.hint = hint
        self.origin = origin
        message = f"{self.call}: {condition}"
        if origin and origin != self.call:
            message += f" (in {origin})"
        if hint:
            message += f"; {hint}"
        super().__init__(message)

    @property
    def call(self) -> str:
        """The failed call as it would be written: ``composition((8,8):(8,1), 4:3)``."""
        return f"{self.operation}({', '.join(map(_show, self.operands))})"

    def within(self, operation: str, operands: tuple[object, ...]) -> LayoutError:
        """Return the same violation as an error of the enclosing public call."""
        return LayoutError(operation, operands, self.condition, self.hint, self.origin or self.call)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.operation, self.operands, self.condition, self.hint, self.origin)


class ParseError(LayoutError):
    """Text that is not in the notation; the message shows it with a caret under the offending character.

    Parameters
    ----------
    text : str
        The whole text.
    position : int
        Index in `text` of the offending character (``len(text)`` at its end).
    condition : str
        What was expected there and what stands there.
    """

    def __init__(self, text: str, position: int, condition: str) -> None:
        self.text = text
        self.position = position
        super().__init__("parse", (text,), condition)
        self.args = (f"{condition} at character {position}:\n  {_one_line(text)}\n  {' ' * position}^",)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.text, self.position, self.condition)


def operation(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a public function so that violations inside it are reported as its own.

    A division by zero (a shape or stride of zero where CuTe divides by it) is a violation too: the C++ compiler
    rejects the constant expression.
    """
    name = function.__name__

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except ParseError:
            raise
        except LayoutError as error:
            operands = (*args, *kwargs.values())
            if error.operation == name and error.operands == operands:
                raise
            raise error.within(name, operands) from error
        except ZeroDivisionError as error:
            raise LayoutError(
                name, (*args, *kwargs.values()), "division by zero: a shape or stride is 0 where one is divided by it"
            ) from error

    return wrapper


def _one_line(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)


def _show(operand: object) -> str:
    from .notation import to_text

    if isinstance(operand, str):
        return repr(operand)
    try:
        return to_text(operand)
    except (TypeError, ValueError, RecursionError):
        return repr(operand)
