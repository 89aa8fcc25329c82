"""The compiler of machine code: there is one if a front end has brought it, and none of the simulator's own."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Protocol

_IMPORTING, _A_MODULE, _A_LINE = 0.6, 0.01, 6e-5
"""Seconds, about, that it takes to import the compiler, and to compile a module and each of its lines."""

_KEPT = 1024


class Code(Protocol):
    """Compiled functions, which take the address of an array of 64-bit numbers."""

    def function(self, name: str) -> Callable[[int], None]:
        """Return a function by name."""


class Compiler(Protocol):
    """Makes machine code of MLIR."""

    def is_imported(self) -> bool:
        """Return whether the compiler is imported; the import takes a second."""

    def kept(self, text: str) -> Code | None:
        """Return the compiled code of a text from the disk; None if the disk has none."""

    def compiled(self, text: str) -> Code:
        """Compile a module in MLIR's dialect of LLVM; raise ImportError if the compiler can't be imported."""


_provided: list[Compiler] = []
_codes: OrderedDict[bytes, Code | None] = OrderedDict()
"""By a text's digest; None of what was not on the disk when it was asked for first."""


def provide(compiler: Compiler) -> None:
    """Bring a compiler; the last that was brought is taken."""
    _provided[:] = [compiler]
    _codes.clear()


def is_there() -> bool:
    """Return whether there is a compiler."""
    return bool(_provided)


def seconds(texts: Iterable[str]) -> float:
    """Tell about how long compiling modules takes, of which some may have been compiled before.

    Parameters
    ----------
    texts : iterable of str
        Modules in MLIR's dialect of LLVM.
    """
    missing = [text for text in texts if _known(text) is None]
    if not missing:
        return 0.0
    is_imported = any(compiler.is_imported() for compiler in _provided)
    return (0.0 if is_imported else _IMPORTING) + sum(_A_MODULE + _A_LINE * text.count("\n") for text in missing)


def compiled(text: str) -> Code:
    """Compile a module in MLIR's dialect of LLVM, or take the code of an earlier compilation.

    Raises
    ------
    ImportError
        If there is no compiler.
    """
    code = _known(text)
    if code is None:
        for compiler in _provided:
            code = _codes[_digest(text)] = compiler.compiled(text)
    if code is None:
        raise ImportError("there is no compiler of machine code")
    return code


def _known(text: str) -> Code | None:
    key = _digest(text)
    if key not in _codes:
        _codes[key] = next((compiler.kept(text) for compiler in _provided), None)
        while len(_codes) > _KEPT:
            _codes.popitem(last=False)
    return _codes[key]


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
