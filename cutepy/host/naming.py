"""What functions and classes are called, where they come from, and which of them a version pins."""

import functools
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

from cutepy.host import sources
from cutepy.host.bytecode import line_of

_BY_FILE = frozenset({"cutepy.dsl.version", "cutepy.host", "cutepy.layouts.errors"})
_MADE_BY_PYTHON = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class that was made while the process runs


def code_of(function: FunctionType) -> CodeType:
    """Return a function's code as it was written: tracing replaces it by a rewritten one."""
    original = function.__dict__.get("_original_code")
    return original if isinstance(original, CodeType) else function.__code__


def label_of(thing: Any) -> str:  # noqa: ANN401
    """Name a function or class for people: `package.module:Class.method`.

    A decorator's wrapper is named after the decorator that made it, whatever it says.
    """
    if isinstance(thing, FunctionType):
        code = code_of(thing)
        name = thing.__qualname__ if code.co_filename.startswith("<") else code.co_qualname
        return f"{thing.__globals__.get('__name__', '<generated>')}:{name}"
    return f"{thing.__module__}:{thing.__qualname__}"


def is_pinned(thing: Any) -> bool:  # noqa: ANN401
    """Tell whether a function or class is what a pinned package has under its name, so that a version tells all."""
    module = getattr(thing, "__module__", None)
    name = getattr(thing, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or not sources.pinned_package(module):
        return False
    if isinstance(thing, type) and not thing.__flags__ & _MADE_BY_PYTHON:
        return True  # such as NoneType, which has no name in its module
    if isinstance(thing, FunctionType) and is_foreign(thing):
        return False  # a patch that took over the name, as `functools.wraps` does
    found: object = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is thing


def is_foreign(function: FunctionType) -> bool:
    """Tell whether the code of a function, or of what it wraps, is from no pinned package: quick where it is."""
    while True:
        path = function.__code__.co_filename
        if path not in _own_files:
            # typing_extensions stands for what later versions of Python have.
            home = str(function.__globals__.get("__name__"))
            if not (path.startswith("<") or sources.is_pinned_file(path) or home.startswith("typing_extensions")):
                return True
            _own_files.add(path)
        inner = function.__dict__.get("__wrapped__")
        if type(inner) is not FunctionType or inner is function:
            return False
        function = inner


_own_files: set[str] = set()  # of Python and the pinned packages, as met so far


def name_root(function: object) -> str:
    """Name what is called, or its class."""
    named = function if isinstance(function, FunctionType | type) else type(function)
    return label_of(named)


def is_by_file(module: str) -> bool:
    """Tell whether a module of cutepy counts by its file: its state says nothing of what is traced.

    The host runs around tracing, never within, and changes with every compilation. The errors of layouts read who
    called whom, but only to word a message. What imports the DSL's modules by name gives what a version pins.
    """
    return module in _BY_FILE or module.startswith("cutepy.host.")


def is_dunder(name: str) -> bool:
    """Tell whether Python itself may use a name."""
    return name.startswith("__") and name.endswith("__")


def functions_of(value: object) -> Iterator[FunctionType]:
    """Give the functions of a class's attribute that are not a pinned package's own."""
    if isinstance(value, property):
        for function in (value.fget, value.fset, value.fdel):
            yield from functions_of(function)
    elif isinstance(value, staticmethod | classmethod):
        yield from functions_of(value.__func__)
    elif isinstance(value, functools.cached_property):
        yield from functions_of(value.func)
    elif type(value) is FunctionType and not is_pinned(value):
        wrapped = value.__dict__.get("__wrapped__")
        yield from functions_of(wrapped) if type(wrapped) is FunctionType else (value,)


class Where:
    """Where a function uses a name; looked up only for a message."""

    def __init__(self, function: FunctionType, name: str) -> None:
        self._code = code_of(function)
        self._name = name

    @property
    def lines(self) -> str:
        """File and line."""
        return f"{self._code.co_filename}:{line_of(self._code, self._name)}"
