"""Declared sources: a key made of files and values, so that a process that finds the program need not trace.

To trace takes the DSL, whose import alone takes half a second. A package that ships kernels declares the files that
decide what is compiled; arguments count by value. The declaration is not checked by default: `verify` traces as well,
and fails if the same key stands for another program.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import hashlib
import importlib
import json
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any

from cutepy.dsl.version import installed_parts
from cutepy.host import environment
from cutepy.host.entry import VERSION
from cutepy.host.inputs import compiler_digest, named_files, sources
from cutepy.host.specs import TensorSpec, dtype_name
from cutepy.runtime.packed import plain_number
from cutepy.runtime.program import HOPPER

OWN_SOURCES = ("cutepy.dsl", "cutepy.host", "cutepy.layouts", "cutepy.runtime")
"""Sources of cutepy that decide the code of any program."""


class StaleSourcesError(RuntimeError):
    """Error of declared sources that do not determine the program: the same files and values gave another trace."""


class Deferred:
    """Function to compile that is imported, or made, only when it has to be traced.

    Parameters
    ----------
    name : str
        "package.module:name" of a `@cute.jit` function; or, with arguments, of what gives one when it is called with
        them, such as a class whose objects are callable.
    *arguments
        Frozen dataclasses, tuples, strings, numbers and None, which count by value.

    Raises
    ------
    ValueError
        If `name` is of another form.

    Examples
    --------
    >>> Deferred("cutepy.kernels.gemm.kernel:Gemm", (128, 256))
    Deferred('cutepy.kernels.gemm.kernel:Gemm', (128, 256))
    """

    def __init__(self, name: str, *arguments: object) -> None:
        module, _, attribute = name.partition(":")
        if not module or not attribute:
            raise ValueError(f'a deferred function must be named "package.module:name", got {name!r}')
        self.name = name
        self.arguments = arguments

    def __repr__(self) -> str:
        return f"Deferred({', '.join([repr(self.name), *map(repr, self.arguments)])})"

    def __call__(self) -> Callable[..., Any]:
        """Import the function, or make it."""
        module, _, path = self.name.partition(":")
        found: Any = importlib.import_module(module)
        for attribute in path.split("."):
            found = getattr(found, attribute)
        made: Callable[..., Any] = found(*self.arguments) if self.arguments else found
        return made


def deferred(function: object) -> Deferred:
    """Convert a function to a `Deferred` by its module and name.

    Raises
    ------
    TypeError
        If it has no name by which to import it: then nothing identifies its contents.
    """
    if isinstance(function, Deferred):
        return function
    name = f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', '')}"
    if isinstance(function, FunctionType) and "<" not in name and not name.startswith("__main__:"):
        found = Deferred(name)
        with contextlib.suppress(AttributeError, ImportError):
            if found() is function:
                return found
    raise TypeError(
        f"with declared sources, a function must be one that its module has under its name, or a cutepy.Deferred, got "
        f"{function!r}"
    )


def declared_key(
    function: Deferred,
    declared: tuple[str | Path, ...],
    arguments: Sequence[object],
    named: Mapping[str, object],
    options: str,
    arch: str = HOPPER,
) -> str:
    """Return the key of a program, a hash of files and values: SHA-256, in hexadecimal.

    Raises
    ------
    TypeError
        If a value has no content to compare.
    ModuleNotFoundError
        If a source does not exist.
    """
    parts = {
        "format": VERSION,
        "arch": arch,
        "function": [function.name, [content(value) for value in function.arguments]],
        "arguments": [content(value) for value in arguments],
        "named": {name: content(value) for name, value in named.items()},
        "options": [options, named_files(options)],
        "sources": sources(*OWN_SOURCES, *declared).digest,
        "compiler": [compiler_digest(), *installed_parts()],
        "environment": environment.dsl_variables(),
        "machine": platform.machine(),
        "python": sys.version_info[:2],
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def content(value: Any) -> Any:  # noqa: ANN401
    """Convert a value to JSON's types, with its Python types.

    Raises
    ------
    TypeError
        If it is not made of tensors, dataclasses, tuples, lists, strings, numbers, dtypes, enumerations, classes that
        a module has under their names, and None.

    Examples
    --------
    >>> content((1, True, 2.0, "a"))
    ['tuple', 1, True, ['float', '0x1.0000000000000p+1'], 'a']
    """
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return ["float", value.hex()]
    if isinstance(value, type):
        return ["class", _class(value)]
    if isinstance(value, enum.Enum):
        return ["member", _class(type(value)), value.name]
    if dataclasses.is_dataclass(value):
        fields = {field.name: content(getattr(value, field.name)) for field in dataclasses.fields(value)}
        held = vars(value).keys() - fields.keys() if hasattr(value, "__dict__") else set()
        # Values of cached properties follow from the fields.
        if beyond := {n for n in held if not isinstance(getattr(type(value), n, None), functools.cached_property)}:
            raise TypeError(
                f"with declared sources, a dataclass must hold its fields alone, and {value!r} holds "
                f"{', '.join(sorted(beyond))} too"
            )
        return [_class(type(value)), fields]
    if isinstance(value, (tuple, list)):
        named = hasattr(value, "_fields")
        return [_class(type(value)) if named else "tuple", *map(content, value)]
    if type(value) is dict:
        return ["dict", *([content(key), content(item)] for key, item in value.items())]
    if (number := plain_number(value)) is not None and type(value).__module__.partition(".")[0] == "numpy":
        return content(number)
    if hasattr(value, "shape") and (hasattr(value, "data_ptr") or hasattr(value, "__array_interface__")):
        return content(TensorSpec.like(value))
    if type(value).__name__ == "dtype":
        return ["dtype", dtype_name(value)]
    raise TypeError(
        "with declared sources, values must be tensors, or made of dataclasses, tuples, strings, numbers, dtypes and "
        f"None, got {value!r}"
    )


def _class(cls: type) -> list[str]:
    """Return the name of a class, with the hash of its file.

    Raises
    ------
    TypeError
        If nothing identifies it but itself.
    """
    module = sys.modules.get(cls.__module__)
    found: Any = module
    for part in cls.__qualname__.split("."):
        found = getattr(found, part, None)
    if found is not cls:
        raise TypeError(
            f"with declared sources, classes must be what their modules have under their names, got {cls!r}; define it "
            "at the top level of a module"
        )
    name = f"{cls.__module__}:{cls.__qualname__}"
    if cls.__module__.partition(".")[0] in _KNOWN_BY_VERSION:
        return [name]
    file = getattr(module, "__file__", None)
    if file is None:
        raise TypeError(f"with declared sources, classes must come from files, got {cls!r}")
    return [name, sources(Path(file)).digest]


_KNOWN_BY_VERSION = frozenset({"builtins", "cutlass", "cutepy", "numpy", "torch"})
"""Packages whose classes their versions determine, or whose files count anyway."""
