"""The host code of functions that the DSL compiled, run with CUDA's functions served.

A compiled function keeps its host code as LLVM-dialect MLIR; what that calls of CUDA are functions without a body. A
second execution engine of the same module, with those functions served in Python, runs the real host code with no
driver.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from cutepy.dsl.entries import ServedEntry
from cutepy.dsl.host_calls import Backend, HostCalls, is_served
from cutepy.dsl.version import require


class NoPtxError(RuntimeError):
    """A compiled function that kept no PTX was called on a backend that needs it."""


_programs: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

_Served = TypeVar("_Served")


def served_program(function: Any) -> HostProgram:  # noqa: ANN401
    """Give the host code of a function that the DSL compiled for its own calls."""
    return _served(function, HostProgram)


def served_entry(function: Any) -> ServedEntry:  # noqa: ANN401
    """Give the entry of a function that the DSL compiled for TVM-FFI."""
    return _served(function, ServedEntry)


def _served(function: Any, kind: Callable[[Any, str], _Served]) -> _Served:  # noqa: ANN401
    """Give a compiled function's host code, as it is called on a backend."""
    program: _Served | None = _programs.get(function)
    if program is None:
        text = _kept_ptx(function)
        if text is None:
            raise NoPtxError(
                f"{function.function_name} was compiled without keeping its PTX, which the simulator runs; compile it "
                "inside `with cutepy.simulate()`, or with cute.compile(..., options='--keep-ptx --dump-dir=DIR')"
            )
        program = _programs[function] = kind(function, text)
    return program


def _kept_ptx(function: Any) -> str | None:  # noqa: ANN401
    """Return the PTX that a compilation kept, or None.

    The DSL replaces the file's name by its text, where it finds the file; some of its compilers choose another name
    in the same folder.
    """
    kept = function.artifacts.PTX if function.artifacts is not None else None
    if not kept:
        return None
    text = kept if isinstance(kept, str) else kept.decode()
    if ".version" not in text:
        found = sorted(Path(text).parent.glob("*.ptx"))
        if len(found) != 1:
            return None
        text = found[0].read_text()
    return text.rstrip("\0")


class HostProgram:
    """The host code of one compiled function, in an engine whose CUDA calls are served here."""

    def __init__(self, function: Any, ptx: str) -> None:  # noqa: ANN401
        module, entry = function.ir_module, function.function_name
        self._calls = HostCalls(ptx)
        engines = require("cutlass._mlir.execution_engine", "ExecutionEngine")
        engine = engines.ExecutionEngine(module, opt_level=2, shared_libs=[])
        self._engine = engine
        self._callbacks = self._calls.callbacks(_undefined_functions(module))
        for name, callback in self._callbacks.items():
            engine.raw_register_runtime(name, ctypes.cast(callback, ctypes.c_void_p))
        self._library = ctypes.c_void_p()
        self._load(engine)
        self._entry = engine.lookup(entry)
        self._arity = _arity(module, entry)

    def _load(self, engine: Any) -> None:  # noqa: ANN401
        """Let the host code load its library and look up its kernels."""
        library = ctypes.pointer(self._library)
        indirect, error, device = ctypes.pointer(library), ctypes.c_int32(0), ctypes.c_int32(0)
        addresses = [ctypes.addressof(x) for x in (indirect, error)]
        with_device = [ctypes.addressof(x) for x in (indirect, device, error)]
        for name, arguments in (("cuda_init", addresses), ("cuda_load_to_device", with_device)):
            address = engine.raw_lookup(name)
            if address:
                packed = (ctypes.c_void_p * len(arguments))(*arguments)
                ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)(ctypes.cast(packed, ctypes.c_void_p))
                self._calls.check(error.value)

    def run(self, exe_args: Sequence[Any], backend: Backend) -> int:
        """Call the host function with the DSL's own packed arguments."""
        result = ctypes.c_int32(0)
        addresses = [a if isinstance(a, int) else ctypes.c_void_p(a).value for a in map(_address, exe_args)]
        if self._arity is not None and len(addresses) != self._arity:
            raise TypeError(
                f"a compiled function that takes {self._arity} values at run time got {len(addresses)}; "
                "pass what it was compiled for: None stays None, and constants stay constants"
            )
        packed = (ctypes.c_void_p * (len(addresses) + 1))(*addresses, ctypes.addressof(result))
        with self._calls.launching_on(backend):
            self._entry(packed)
        self._calls.check(result.value)
        return 0


def _arity(module: Any, entry: str) -> int | None:  # noqa: ANN401
    """Count the arguments of a host function."""
    for operation in module.body.operations:
        if operation.name == "llvm.func" and operation.attributes["sym_name"].value == entry:
            return len(operation.regions[0].blocks[0].arguments)
    return None


def _address(argument: Any) -> Any:  # noqa: ANN401
    return argument.value if isinstance(argument, ctypes.c_void_p) else argument


def _undefined_functions(module: Any) -> list[str]:  # noqa: ANN401
    """List the functions of the DSL's runtime that are declared; C's own, such as printf, are the process's."""
    declared = []
    for operation in module.body.operations:
        if operation.name == "llvm.func" and not len(operation.regions[0].blocks):
            declared.append(operation.attributes["sym_name"].value)
    return [name for name in declared if is_served(name)]
