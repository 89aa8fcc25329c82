"""Reentrant contexts: made once, entered any number of times."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ContextDecorator, contextmanager
from types import TracebackType
from typing import Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Context(ContextDecorator, Generic[T]):
    """Context that starts anew at each entry, also within itself."""

    def __init__(self, make: Callable[[], AbstractContextManager[T]]) -> None:
        self._make = make
        self._entered: list[AbstractContextManager[T]] = []

    def __enter__(self) -> T:
        entered = self._make()
        result = entered.__enter__()
        self._entered.append(entered)
        return result

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._entered.pop().__exit__(kind, error, trace)


def reentrant(function: Callable[P, Iterator[T]]) -> Callable[P, Context[T]]:
    """Make a reentrant context of a generator, as `contextlib.contextmanager` makes a single-use one.

    Examples
    --------
    >>> @reentrant
    ... def counted(n):
    ...     yield n
    >>> context = counted(3)
    >>> with context as outer, context as inner:
    ...     print(outer, inner)
    3 3
    """
    once = contextmanager(function)

    @functools.wraps(function)
    def make(*arguments: P.args, **named: P.kwargs) -> Context[T]:
        return Context(functools.partial(once, *arguments, **named))

    return make
