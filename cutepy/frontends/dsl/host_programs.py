"""The host code of functions that the DSL compiled, run with CUDA's functions served.

A compiled function keeps its host code as MLIR of the LLVM dialect, where CUDA's functions are declared without a
body. An object file of this module, loaded with Python implementations of these functions, needs no driver.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from cutepy.dsl.entries import emit_object
from cutepy.dsl.version import require
from cutepy.frontends.dsl.entries import ServedEntry
from cutepy.runtime.host_calls import Backend, Library
from cutepy.runtime.host_code import ServedHost
from cutepy.runtime.objects import check_machine


class NoPtxError(RuntimeError):
    """A compiled function that kept no PTX was called on a backend that needs it."""

    @classmethod
    def of_an_object(cls, name: str) -> NoPtxError:
        """Return the error of a function that was loaded from an object file."""
        return cls(
            f"{name} was loaded from an object file, which holds machine code and not the PTX that the simulator runs; "
            "call the function that the file was exported from, compiled inside `with cutepy.simulate()`; if a cache "
            "on disk loaded it, turn that cache off (QuACK: QUACK_CACHE_ENABLED=0)"
        )


_PACKED = "cutepy_packed"
_NO_KERNELS = ""
"""The PTX of a function that launches nothing."""
_programs: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

_Served = TypeVar("_Served")


def served_program(function: Any) -> HostProgram:  # noqa: ANN401
    """Return the host code of a function that the DSL compiled for its own calling convention."""
    return _served(function, HostProgram)


def served_entry(function: Any) -> ServedEntry:  # noqa: ANN401
    """Return the entry of a function that the DSL compiled for TVM-FFI's calling convention."""
    return _served(function, ServedEntry)


def _served(function: Any, kind: Callable[[Any, str], _Served]) -> _Served:  # noqa: ANN401
    """Give a compiled function's host code, as it is called on a backend."""
    program: _Served | None = _programs.get(function)
    if program is None:
        check_machine()
        if function.ir_module is None:
            raise NoPtxError.of_an_object(function.function_name)
        text = _kept_ptx(function) if function.has_gpu_module else _NO_KERNELS
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
    """The host code of one compiled function, which takes the DSL's own packed arguments."""

    def __init__(self, function: Any, ptx: str) -> None:  # noqa: ANN401
        image, self._arity = _emit_packed(function.ir_module, function.function_name)
        self._host = ServedHost(image, _PACKED, ptx, {})
        self._host.load_kernels()
        self._entry = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._host.address)

    @property
    def module(self) -> tuple[Library, str]:
        """The loaded module and its PTX."""
        return self._host.calls.module

    def run(self, exe_args: Sequence[Any], backend: Backend) -> None:
        """Call the host function with the DSL's own packed arguments."""
        result = ctypes.c_int32(0)
        addresses = [a if isinstance(a, int) else ctypes.c_void_p(a).value for a in map(_address, exe_args)]
        if len(addresses) != self._arity:
            raise TypeError(
                f"a compiled function that takes {self._arity} values at run time got {len(addresses)}; "
                "pass what it was compiled for: None stays None, and constants stay constants"
            )
        packed = (ctypes.c_void_p * (len(addresses) + 1))(*addresses, ctypes.addressof(result))
        with self._host.calls.launching_on(backend):
            self._entry(ctypes.addressof(packed))
        self._host.calls.check(result.value)


def _emit_packed(module: Any, name: str) -> tuple[bytes, int]:  # noqa: ANN401
    """Emit host code with an entry that loads its arguments, and stores its result, where an array of pointers says.

    Gives the object and the number of arguments. The host function itself takes structures by value.
    """
    ir = require("cutlass._mlir.ir", "Module", "InsertionPoint")
    (function,) = (
        op for op in module.body.operations if op.name == "llvm.func" and op.attributes["sym_name"].value == name
    )
    kinds = [str(argument.type) for argument in function.regions[0].blocks[0].arguments]
    places = "\n".join(
        f"%at{n} = llvm.getelementptr %packed[{n}] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr\n"
        f"%p{n} = llvm.load %at{n} : !llvm.ptr -> !llvm.ptr"
        for n, _ in enumerate([*kinds, "the result"])
    )
    loads = "\n".join(f"%v{n} = llvm.load %p{n} : !llvm.ptr -> {kind}" for n, kind in enumerate(kinds))
    passed = ", ".join(f"%v{n}" for n in range(len(kinds)))
    text = f"""
llvm.func @{name}({", ".join(kinds)}) -> i32
llvm.func @{_PACKED}(%packed: !llvm.ptr) {{
{places}
{loads}
%result = llvm.call @{name}({passed}) : ({", ".join(kinds)}) -> i32
llvm.store %result, %p{len(kinds)} : i32, !llvm.ptr
llvm.return
}}"""
    with module.context:
        parsed = ir.Module.parse(text)  # its operations live as long as it does
        _, added = parsed.body.operations
        wrapper = added.clone(ir.InsertionPoint(module.body))
    try:
        return emit_object(module), len(kinds)
    finally:
        wrapper.erase()


def _address(argument: Any) -> Any:  # noqa: ANN401
    return argument.value if isinstance(argument, ctypes.c_void_p) else argument
