"""Fingerprints of functions that other packages patch into the DSL's preprocessor.

QuACK, and FlashAttention with it, has the preprocessor fold conditions that are constant in part. The fingerprint of
such a function is its code and all that the code names, down to modules that are pure. A function that reaches state,
such as the environment, a file or a list that grows, has no fingerprint: it may act otherwise tomorrow.
"""

from __future__ import annotations

import builtins
import dis
from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType, CodeType, EllipsisType, FunctionType, ModuleType

_PURE = {"ast", "copy", "functools", "itertools", "operator", "textwrap", "typing"}
"""Modules of pure functions."""
_IMPURE = {
    *("__import__", "breakpoint", "compile", "delattr", "dir", "eval", "exec", "getattr", "globals", "hash", "id"),
    *("input", "locals", "open", "setattr", "vars"),
}
"""Built-in functions whose effects do not follow from their names."""
_GLOBALS = {"LOAD_GLOBAL", "LOAD_NAME"}
_ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"}
_REMEMBERS = {"DELETE_ATTR", "DELETE_GLOBAL", "STORE_ATTR", "STORE_DEREF", "STORE_GLOBAL"}


class NoFingerprintError(Exception):
    """Error of a function without fingerprint: it reads or changes state."""


def told(function: FunctionType, owner: Mapping[str, object], released: tuple[str, ...]) -> str:
    """Return the fingerprint of a function: equal ones act alike, in any process.

    Parameters
    ----------
    function : function
        Put into a class.
    owner : mapping
        Names and attributes of that class, which the function may use.
    released : tuple of str
        Folders of code that is as it was released, which is told by its name.

    Raises
    ------
    NoFingerprintError
        If it reaches anything else than functions, constants and modules that compute, or keeps anything.
    """
    try:
        return "\n".join(_Spelling(owner, released).of(function))
    except ValueError as error:  # a variable of a closure that is not bound yet
        raise NoFingerprintError(str(error)) from error


class _Spelling:
    def __init__(self, owner: Mapping[str, object], released: tuple[str, ...]) -> None:
        self._owner = owner
        self._released = released
        self._met: set[int] = set()

    def of(self, value: object) -> Iterator[str]:
        if isinstance(value, (classmethod, staticmethod)):
            value = value.__func__
        if value is None or isinstance(value, (bool, int, float, complex, str, bytes, EllipsisType)):
            yield repr(value)
        elif isinstance(value, (tuple, frozenset)):
            yield f"{len(value)} in"
            for item in value if isinstance(value, tuple) else sorted(value, key=repr):
                yield from self.of(item)
        elif isinstance(value, ModuleType) and value.__name__ in _PURE:
            yield value.__name__
        elif isinstance(value, (type, BuiltinFunctionType)) and value.__module__ in {*_PURE, "builtins"}:
            yield self._known(f"{value.__module__}.{value.__qualname__}")
        elif isinstance(value, CodeType):
            yield from self._code(value)
        elif isinstance(value, FunctionType):
            yield from self._function(value)
        else:
            raise NoFingerprintError(repr(value))

    def _known(self, name: str) -> str:
        if name.rpartition(".")[2] in _IMPURE:
            raise NoFingerprintError(name)
        return name

    def _function(self, function: FunctionType) -> Iterator[str]:
        if function.__code__.co_filename.startswith(self._released) and (
            function.__module__ in _PURE or function.__module__.endswith(".ast_preprocessor")
        ):
            yield self._known(f"{function.__module__}.{function.__qualname__}")
        elif id(function) not in self._met:
            self._met.add(id(function))
            yield from self._code(function.__code__)
            for held in (function.__defaults__, *(function.__kwdefaults__ or {}).items(), *vars(function).items()):
                yield from self.of(held)
            for cell in function.__closure__ or ():
                yield from self.of(cell.cell_contents)
            for name in sorted(_names(function.__code__, _GLOBALS)):
                yield name
                if name in function.__globals__:
                    yield from self.of(function.__globals__[name])
                else:
                    yield from self.of(getattr(builtins, name, self))
            for name in sorted(_names(function.__code__, _ATTRIBUTES) & self._owner.keys()):
                yield name
                yield from self.of(self._owner[name])

    def _code(self, code: CodeType) -> Iterator[str]:
        if met := sorted(
            i.opname for i in dis.get_instructions(code) if i.opname in _REMEMBERS or "IMPORT" in i.opname
        ):
            raise NoFingerprintError(met[0])
        names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
        yield f"{code.co_code.hex()} {code.co_exceptiontable.hex()} {code.co_flags} {code.co_argcount} {names}"
        yield from self.of(code.co_consts)


def _names(code: CodeType, instructions: set[str]) -> set[str]:
    """Return the names in such instructions of a function, and of functions within it."""
    found = {str(i.argval) for i in dis.get_instructions(code) if i.opname in instructions}
    return found.union(*(_names(inner, instructions) for inner in code.co_consts if isinstance(inner, CodeType)))
