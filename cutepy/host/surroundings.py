"""What a program's process has set up in Python and the DSL, and what these go by while the program is traced."""

import _abc  # type: ignore[import-not-found]
import logging
import sys
from abc import ABCMeta
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType
from typing import Any

from cutepy.host import sources

LEVEL_NAMES = frozenset(
    {"disabled", "filters", "getEffectiveLevel", "handlers", "hasHandlers", "isEnabledFor", "level", "propagate"}
)
"""Attributes of loggers that tell how they were set up."""


def logging_setup() -> list[tuple[object, ...]]:
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
            if type(value) is FunctionType:
                if value.__code__.co_filename not in _own_files and _is_foreign(value):
                    yield f"{name}.{key}", value
            elif isinstance(value, type) and value.__module__ == name:
                for attribute, method in list(vars(value).items()):
                    function = _METHODS[type(method)](method) if type(method) in _METHODS else method
                    if type(function) is FunctionType and function.__code__.co_filename not in _own_files:
                        if _is_foreign(function):
                            yield f"{name}.{key}.{attribute}", function


_own_files: set[str] = set()  # of Python and the pinned packages, as met so far


def _is_foreign(function: FunctionType) -> bool:
    path = function.__code__.co_filename
    if path.startswith("<") or sources.is_pinned_file(path):
        _own_files.add(path)
        return False
    # typing_extensions stands for what later versions of Python have.
    return not str(function.__globals__.get("__name__")).startswith(("cutepy.dsl.", "cutepy.sim.", "typing_extensions"))


_METHODS: dict[type, Callable[[Any], object]] = {
    classmethod: lambda method: method.__func__,
    property: lambda method: method.fget,
    staticmethod: lambda method: method.__func__,
}
