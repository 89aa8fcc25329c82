"""The compiler of machine code: there is one if a front end has brought it, and none of the simulator's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Code(Protocol):
    """Compiled functions, which take the address of an array of 64-bit numbers."""

    def function(self, name: str) -> Callable[[int], None]:
        """Return a function by name."""


class Compiler(Protocol):
    """Makes machine code of MLIR."""

    def is_imported(self) -> bool:
        """Tell whether compiling begins at once, and not with a second of imports."""

    def compiled(self, text: str) -> Code:
        """Compile a module in MLIR's dialect of LLVM; raise ImportError where it can't be had after all."""


_provided: list[Compiler] = []


def provide(compiler: Compiler) -> None:
    """Bring a compiler; the last that was brought is taken."""
    _provided[:] = [compiler]


def is_imported() -> bool:
    """Tell whether there is a compiler, and compiling begins at once."""
    return any(compiler.is_imported() for compiler in _provided)


def compiled(text: str) -> Code:
    """Compile a module in MLIR's dialect of LLVM.

    Raises
    ------
    ImportError
        If there is no compiler.
    """
    for compiler in _provided:
        return compiler.compiled(text)
    raise ImportError("there is no compiler of machine code")
