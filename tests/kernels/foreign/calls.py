"""Recorded calls of a test, and refusals by an argument's name."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


class Calls:
    """Count of the calls of cutepy's attention."""

    count = 0


CALLS = Calls()


class RefusedError(Exception):
    """An argument that cutepy's attention does not take."""


def refuse(name: str) -> NoReturn:
    """Refuse an argument by its name.

    Raises
    ------
    RefusedError
        Always.
    """
    raise RefusedError(name)


def refusing(function: Function) -> Function:
    """Count calls of a function, and turn errors by which cutepy refuses arguments into refusals."""

    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        CALLS.count += 1
        try:
            return function(*arguments, **named)
        except (NotImplementedError, TypeError, ValueError) as error:
            raise RefusedError(str(error).splitlines()[0]) from error

    return call  # type: ignore[return-value]
