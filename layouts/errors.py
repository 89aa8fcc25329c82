"""Errors of the layout algebra: what was asked, of what, and which condition failed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

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


# inspect.CO_VARARGS | inspect.CO_VARKEYWORDS; importing inspect would take longer than this package.
_VARIADIC = 0x04 | 0x08


def operation(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a public function so that violations inside it are reported as its own.

    A division by zero (a shape or stride of zero where CuTe divides by it) is a violation too: the C++ compiler
    rejects the constant expression.
    """
    code = function.__code__
    operands = code.co_varnames[: code.co_argcount]
    fixed = not code.co_flags & _VARIADIC and not code.co_kwonlyargcount
    if fixed and len(operands) in (1, 2):
        wrapper = _unary(function) if len(operands) == 1 else _binary(function)
        # Operands may be given by their names.
        inner = wrapper.__code__
        wrapper.__code__ = inner.replace(co_varnames=operands + inner.co_varnames[len(operands) :])
        wrapper.__defaults__ = function.__defaults__
    else:
        wrapper = _any_arity(function)
    return functools.wraps(function)(wrapper)


def _any_arity(function: Callable[..., Any]) -> Any:  # noqa: ANN401 - a function
    def wrapper(*args: object, **kwargs: object) -> object:
        try:
            return function(*args, **kwargs)
        except (LayoutError, ZeroDivisionError) as error:
            _report(error, function.__name__, (*args, *kwargs.values()))
            raise

    return wrapper


# Passing operands on as *args and **kwargs would double the time of small calls.


def _unary(function: Callable[..., Any]) -> Any:  # noqa: ANN401 - a function
    def wrapper(operand: object) -> object:
        try:
            return function(operand)
        except (LayoutError, ZeroDivisionError) as error:
            _report(error, function.__name__, (operand,))
            raise

    return wrapper


def _binary(function: Callable[..., Any]) -> Any:  # noqa: ANN401 - a function
    def wrapper(first: object, second: object) -> object:
        try:
            return function(first, second)
        except (LayoutError, ZeroDivisionError) as error:
            left_out = function.__defaults__ is not None and second is function.__defaults__[-1]
            _report(error, function.__name__, (first,) if left_out else (first, second))
            raise

    return wrapper


def _report(error: Exception, name: str, operands: tuple[object, ...]) -> None:
    """Raise a violation as an error of the public call, unless it is one already."""
    if isinstance(error, ZeroDivisionError):
        condition = "division by zero: a shape or stride is 0 where one is divided by it"
        raise LayoutError(name, operands, condition) from error
    if isinstance(error, LayoutError) and not isinstance(error, ParseError):
        if error.operation != name or error.operands != operands:
            raise error.within(name, operands) from error


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
