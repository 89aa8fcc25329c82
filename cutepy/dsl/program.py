"""Compiled programs: all that is left of a `@cute.jit` function once it is compiled, and needs nothing of the DSL.

A program is host code as a relocatable object with one symbol, its entry, and the PTX of its kernels, whose ELF image
the object holds. The host code is for any x86-64, whatever machine compiled it. What a program is called with, on a GPU
or in the simulator, is TVM-FFI's packed convention (`packed`); what it calls, the loader serves (`objects`).
"""

from __future__ import annotations

import ctypes
import importlib.util
import inspect
import platform
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cutepy.dsl.callers import callers_known
from cutepy.dsl.class_arguments import class_parameter, left_out
from cutepy.dsl.entries import ServedHost, parameter_names
from cutepy.dsl.execution import compiling_for_gpu
from cutepy.dsl.host_calls import RUNNING, Backend
from cutepy.dsl.launches import LaunchFacts, read_launches
from cutepy.dsl.line_info import places_remembered
from cutepy.dsl.packed import PackedArguments, call
from cutepy.dsl.tma_arguments import check_tensor_maps, tensor_names
from cutepy.dsl.version import require

ARCH = "sm_90a"
ENTRY_SYMBOL = "cutepy_entry"


# Options that say what is compiled for, or where the results go.
_OURS = ("--gpu-arch", "--enable-tvm-ffi", "--dump-dir", "--keep-", "--host-target")


class CompilationError(RuntimeError):
    """What the DSL compiled is not what was asked for."""


@dataclass(frozen=True)
class Program:
    """A compiled `@cute.jit` function.

    Attributes
    ----------
    object : bytes
        Relocatable ELF object for x86-64; it defines `entry` and nothing else.
    entry : str
        Symbol of the host function, in TVM-FFI's packed convention.
    parameters : tuple of str
        Names of what the entry takes, in order: constexpr parameters and streams are not among them.
    ptx : str
        The PTX of its kernels; with line information, unless it was compiled without.
    cubin : bytes
        The kernels' ELF image, which `object` also holds.
    seconds : mapping of str to float
        What compilation spent: "trace" (Python to MLIR), "lower" (MLIR to PTX), "assemble" (PTX to cubin) and "host"
        (host code to object). What can't be told from the stage after it is part of that one.
    launches : tuple of LaunchFacts
        What the host code says of its launches.
    """

    object: bytes = field(repr=False)
    entry: str
    parameters: tuple[str, ...]
    ptx: str = field(repr=False)
    cubin: bytes = field(repr=False)
    seconds: Mapping[str, float]
    launches: tuple[LaunchFacts, ...] = ()


def compile_program(
    function: Callable[..., Any],
    arguments: Sequence[object],
    named: Mapping[str, object] | None = None,
    *,
    classes: Collection[str] = (),
    options: str = "",
    symbol: str = ENTRY_SYMBOL,
    line_info: bool = True,
) -> Program:
    """Compile a `@cute.jit` function for SM90a; needs no GPU.

    Parameters
    ----------
    function : callable
        A `@cute.jit` function, or an object whose `__call__` is one.
    arguments : sequence
        Example arguments as the DSL takes them: fake tensors, numbers, constexpr values, None, fake streams that use
        TVM-FFI's environment.
    named : mapping, optional
        Arguments by name.
    classes : collection of str
        Names of the parameters whose arguments are classes, which are compiled in.
    options : str
        More options for the DSL's compiler, such as "--opt-level 3".
    symbol : str
        What to call the entry, a C identifier.
    line_info : bool
        Whether PTX and cubin say which line of which file each instruction comes from. What is shipped to others
        should not: the paths are those of this machine.

    Raises
    ------
    ValueError
        If `options` has some that are decided here, such as the architecture.
    CompilationError
        If the result can't be called in the packed convention, or this machine is not x86-64.
    """
    if platform.machine() not in ("x86_64", "AMD64"):
        raise CompilationError(
            f"host code is compiled for x86-64 only, and this machine is {platform.machine()}; "
            "call the @cute.jit function itself, as the DSL compiles it"
        )
    if ours := [option for option in _OURS if option in options]:
        raise ValueError(f"options must leave {', '.join(ours)} to cutepy, got {options!r}")
    cute = require("cutlass.cute", "compile")
    if importlib.util.find_spec("tvm_ffi") is None:
        raise ImportError("compiling needs the package apache-tvm-ffi: pip install 'cutepy[dsl]'", name="tvm_ffi")
    marks = {"start": time.time()}
    tensors = tensor_names(inspect.signature(function).bind(*arguments, **(named or {})).arguments)

    def traced(_: object, module: Any, __: str) -> None:  # noqa: ANN401
        marks["trace"] = time.time()
        check_tensor_maps(module, tensors)

    with (
        tempfile.TemporaryDirectory(prefix="cutepy-") as folder,
        compiling_for_gpu(),
        places_remembered(),
        callers_known(),
    ):
        kept = f"--keep-ptx --keep-cubin --dump-dir={folder}{' --generate-line-info' if line_info else ''}"
        options = f"--gpu-arch={ARCH} --enable-tvm-ffi {kept} {options}"
        # The DSL's own engine would compile the host code a second time, for this process only.
        settings: dict[str, Any] = {"options": options, "trace_finalize_hooks": traced, "no_jit_engine": True}
        with left_out({*classes, *class_parameter(function)}):
            compiled = cute.compile(function, *arguments, **(named or {}), **settings)
        ptx, cubin = _artifact(compiled.artifacts.PTX, folder, "ptx"), compiled.artifacts.CUBIN
        # One call of the compiler goes from MLIR to the cubin: what it wrote when tells its stages apart.
        for stage, suffix in {"lower": "ptx", "assemble": "cubin"}.items():
            if times := [file.stat().st_mtime for file in Path(folder).rglob(f"*.{suffix}")]:
                marks[stage] = max(times)
    module = compiled.ir_module
    names = parameter_names(module)
    if names is None or not ptx:
        raise CompilationError(
            f"{function!r} was compiled to host code without a packed entry or without kernels; "
            "a function to compile launches at least one kernel"
        )
    launches = read_launches(module)
    image = _host_object(module, f"__tvm_ffi_{compiled.function_name}", symbol)
    marks["host"] = time.time()
    return Program(image, symbol, names, ptx, cubin, _differences(marks), launches)


def _differences(marks: Mapping[str, float]) -> dict[str, float]:
    """Turn the times at which stages ended into what each took; files bear times that may be some ms early."""
    (_, previous), *stages = marks.items()
    spent = {}
    for stage, mark in stages:
        spent[stage] = max(mark - previous, 0.0)
        previous = max(mark, previous)
    return spent


def _artifact(kept: Any, folder: str, suffix: str) -> str:  # noqa: ANN401
    """Read a text that the compiler kept; some of its stages leave the file's name instead."""
    text = kept.decode() if isinstance(kept, bytes) else str(kept or "")
    if ".version" not in text:
        files = sorted(Path(folder).rglob(f"*.{suffix}"))
        text = "".join(file.read_text() for file in files)
    return text.rstrip("\0")


def _host_object(module: Any, entry: str, symbol: str) -> bytes:  # noqa: ANN401
    """Emit host code as an object with one symbol, for a CPU without extensions.

    The compiler's default is the CPU it runs on: with AVX-512 there, a cached or shipped object would be an illegal
    instruction elsewhere. Internal linkage lets any number of objects be linked into one library. It is not optimised:
    a call of the GEMM's takes 0.10 us rather than 0.04 of the 3 us of a launch, and emitting it a third of the time.
    """
    ir = require("cutlass._mlir.ir", "StringAttr", "Attribute")
    export = require("cutlass._mlir._mlir_libs._cutlass_ir", "_aot_support")._aot_support.export_module_to_bytes
    with module.context:
        internal = ir.Attribute.parse("#llvm.linkage<internal>")
        features = ir.Attribute.parse('#llvm.target_features<["+sse2"]>')
        for operation in module.body.operations:
            if operation.name != "llvm.func" or not len(operation.regions[0].blocks):
                continue
            operation.attributes["target_cpu"] = ir.StringAttr.get("x86-64")
            operation.attributes["target_features"] = features
            if operation.attributes["sym_name"].value == entry:
                operation.attributes["sym_name"] = ir.StringAttr.get(symbol)
            else:
                operation.attributes["linkage"] = internal
    image: bytes = export(module, format="o", opt_level=0, enable_pic=True)
    return image


class ServedProgram:
    """A program loaded for a backend: its CUDA calls are answered here, and its launches sent on.

    Parameters
    ----------
    program : Program
        What to load.

    Examples
    --------
    `ServedProgram(program)(backend, tensor, 3)` runs the host code with these arguments.
    """

    def __init__(self, program: Program) -> None:
        self._error: tuple[str, str] = ("", "")
        self._functions = self._errors()
        errors = {name: ctypes.cast(f, ctypes.c_void_p).value or 0 for name, f in self._functions.items()}
        self._host = ServedHost(program.object, program.entry, program.ptx, errors)

    def __call__(self, backend: Backend, *arguments: object) -> None:
        """Run the host function; its launches go to the backend.

        Raises
        ------
        TypeError, ValueError
            If the compiled checks refuse an argument, in their words.
        """
        with RUNNING:
            self._run(backend, arguments)

    def _run(self, backend: Backend, arguments: Sequence[object]) -> None:
        self._adopt(backend, arguments)
        self._error = ("", "")
        with self._host.calls.launching_on(backend):
            code = call(self._host.address, PackedArguments(arguments))
        self._host.calls.check(0)
        kind, message = self._error
        if code:
            raise {"TypeError": TypeError, "ValueError": ValueError}.get(kind, RuntimeError)(message)

    def _adopt(self, backend: Backend, arguments: Sequence[object]) -> None:
        for argument in arguments:
            if isinstance(argument, (tuple, list)):
                self._adopt(backend, argument)
            elif hasattr(argument, "__dlpack__"):
                backend.adopt(argument)

    def _errors(self) -> dict[str, Any]:
        """Serve the functions by which an entry raises, without `tvm_ffi`."""
        pointer, integer = ctypes.c_void_p, ctypes.c_int32

        def note(kind: str, text: str) -> None:
            self._error = self._error if self._error[0] else (kind, text)  # what comes later only follows from it

        def raise_parts(kind: int, parts: int, count: int) -> None:
            texts = (ctypes.c_char_p * count).from_address(parts)
            note(ctypes.string_at(kind).decode(), "".join(text.decode() for text in texts if text))

        def raise_text(kind: int, text: int) -> None:
            note(ctypes.string_at(kind).decode(), ctypes.string_at(text).decode())

        def raise_cuda(_: int, code: int) -> None:
            note("RuntimeError", f"the host code of a compiled function returned CUDA error {code}")

        return {
            "TVMFFIErrorSetRaisedFromCStr": ctypes.CFUNCTYPE(None, pointer, pointer)(raise_text),
            "TVMFFIErrorSetRaisedFromCStrParts": ctypes.CFUNCTYPE(None, pointer, pointer, integer)(raise_parts),
            "CuteDSLRT_TVMFFISetRaisedCudaError": ctypes.CFUNCTYPE(None, pointer, integer)(raise_cuda),
            "CuteDSLRT_TVMFFISetRaisedCudaLaunchError": ctypes.CFUNCTYPE(None, pointer, integer)(raise_cuda),
        }
