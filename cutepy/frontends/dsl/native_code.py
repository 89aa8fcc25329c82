"""Machine code for this CPU, by the compiler that the DSL compiles host code with: its input is MLIR's dialect of LLVM.

It is imported when it is asked for first: the DSL takes a second for that, if nothing else has imported it.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

from cutepy.dsl.version import first, require


def is_imported() -> bool:
    """Tell whether the compiler has been imported already."""
    return "cutlass._mlir.ir" in sys.modules


def compiled(text: str) -> NativeCode:
    """Compile a module of MLIR, in its dialect of LLVM."""
    return NativeCode(text)


@cache
def _context(ir: Any) -> Any:  # noqa: ANN401 - the DSL is untyped
    context = ir.Context()
    context.enable_multithreading(False)  # processes that hold it may fork
    return context


class NativeCode:
    """Compiled functions, which take the address of an array of 64-bit numbers.

    Parameters
    ----------
    text : str
        A module of MLIR, in its dialect of LLVM.

    Raises
    ------
    ImportError
        If the DSL is absent, or its version has no such compiler.
    """

    def __init__(self, text: str) -> None:
        ir: Any = require("cutlass._mlir.ir", "Context", "Module")
        engine = first("cutlass._mlir.execution_engine:ExecutionEngine")
        with _context(ir):
            self._engine = engine(ir.Module.parse(text), opt_level=2, shared_libs=[])

    def function(self, name: str) -> NativeFunction:
        """Return a function by name."""
        return NativeFunction(self, int(self._engine.raw_lookup(name)))


class NativeFunction:
    """A compiled function of one pointer; keeps its code alive."""

    def __init__(self, code: NativeCode, address: int) -> None:
        self._code = code
        self._call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)
        # The engine's wrapper takes a table of pointers to the arguments.
        self._argument = ctypes.c_void_p()
        self._table = (ctypes.c_void_p * 1)(ctypes.addressof(self._argument))
        self._at = ctypes.addressof(self._table)

    def __call__(self, address: int) -> None:
        """Call it."""
        self._argument.value = address
        self._call(self._at)
