"""What a program's process has set up in Python and the DSL, and what these go by while the program is traced."""

import _abc  # type: ignore[import-not-found]
import functools
import logging
import sys
import warnings
from abc import ABCMeta
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType
from typing import Any

from cutepy.host.naming import is_foreign


def _logging_setup() -> list[tuple[object, ...]]:
    """List how loggers were set up: (name, level, disabled, propagates, handlers, number of filters) of each.

    Those that nobody set up are left out, since any import may bring some.
    """
    manager = logging.Logger.manager
    found: list[tuple[object, ...]] = [("", manager.disable)]
    for name, logger in sorted({"root": manager.root, **manager.loggerDict}.items()):
        if isinstance(logger, logging.Logger):
            handlers = tuple((type(handler).__qualname__, handler.level) for handler in logger.handlers)
            if logger.level or logger.disabled or not logger.propagate or handlers or logger.filters:
                filters = len(logger.filters)
                found.append((name, logger.level, logger.disabled, logger.propagate, handlers, filters))
    return found


def _numpy_setup() -> tuple[object, ...]:
    numpy = sys.modules["numpy"]
    return numpy.geterr(), numpy.get_printoptions()


SETUPS: dict[str, tuple[frozenset[str] | None, Callable[[], object]]] = {
    "logging": (
        frozenset(
            {
                "disabled",
                "filters",
                "getEffectiveLevel",
                "handlers",
                "hasHandlers",
                "isEnabledFor",
                "level",
                "propagate",
            }
        ),
        _logging_setup,
    ),
    "numpy": (None, _numpy_setup),
    "warnings": (None, lambda: list(warnings.filters)),
}
"""Modules that answer by how they were set up: the names by which they do, None for any, and what tells their setup."""


def claimed(abstract: ABCMeta, classes: Iterable[type]) -> Iterator[type]:
    """Give the classes that count as subclasses of an abstract class without deriving from it."""
    for cls in classes:
        if abstract not in cls.__mro__:
            try:
                claims = issubclass(cls, abstract)
            except Exception:  # whatever the class does when it is asked, the program that asks will meet
                claims = False
            if claims:
                yield cls


def registered(abstract: ABCMeta) -> list[str]:
    """List the classes registered with an abstract class or those that derive from it, by name, in order."""
    names: set[str] = set()
    waiting: list[Any] = [abstract]
    while waiting:
        cls = waiting.pop()
        waiting += type.__subclasses__(cls)
        if "_abc_impl" in vars(cls):
            entries = [reference() for reference in _abc._get_dump(cls)[0]]
            names |= {f"{entry.__module__}:{entry.__qualname__}" for entry in entries if entry is not None}
    return sorted(names)


def patches_of_the_dsl() -> Iterator[tuple[str, FunctionType]]:
    """Give the functions that somebody put into the DSL's modules and classes, and their places there.

    Our own, which let compiled functions run in the simulator, are left out: they change nothing that is compiled. What
    the DSL generates of its own operations (`cutlass._mlir`) is not looked at.
    """
    for name, module in list(sys.modules.items()):
        if not (name == "cutlass" or name.startswith("cutlass.")) or name.startswith("cutlass._mlir"):
            continue
        for key, value in list(vars(module).items()):
            if isinstance(value, type):
                if value.__module__ == name:
                    yield from patches_of(value, f"{name}.{key}")
            elif type(value) in _KINDS and _sound.get(id(value)) is not value:
                if (function := _function_behind(value)) and key not in _KEPT:
                    yield f"{name}.{key}", function


def patches_of(cls: type, place: str) -> Iterator[tuple[str, FunctionType]]:
    """Give the functions that somebody put into a class of a pinned package."""
    for key, value in list(vars(cls).items()):
        if type(value) in _KINDS and _sound.get(id(value)) is not value and (function := _function_behind(value)):
            yield f"{place}.{key}", function


def _function_behind(value: object) -> FunctionType | None:
    """Give the function behind a module's or class's value, if it comes from elsewhere."""
    kind = type(value)
    function = value if kind is FunctionType else _METHODS[kind](value) if kind in _METHODS else None
    if type(function) is not FunctionType or not is_foreign(function):
        _sound[id(value)] = value
        return None
    return None if str(function.__globals__.get("__name__")).startswith(("cutepy.dsl.", "cutepy.sim.")) else function


_sound: dict[int, object] = {}  # what was looked at and is no patch, by identity
# What the DSL found when it was imported, to put it back.
_KEPT = frozenset({"_original_excepthook"})
_METHODS: dict[type, Callable[[Any], object]] = {
    classmethod: lambda method: method.__func__,
    functools.partial: lambda partial: partial.func,
    property: lambda method: method.fget,
    staticmethod: lambda method: method.__func__,
}
_KINDS = frozenset({FunctionType, *_METHODS})
