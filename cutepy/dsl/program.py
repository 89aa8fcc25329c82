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
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from cutepy.dsl.entries import ServedHost, parameter_names
from cutepy.dsl.host_calls import RUNNING, Backend
from cutepy.dsl.launches import LaunchFacts, read_launches
from cutepy.dsl.packed import PackedArguments, call
from cutepy.dsl.tma_arguments import check_tensor_maps, tensor_names
from cutepy.dsl.trace import FOLDER, Traced, trace
from cutepy.dsl.version import require

ARCH = "sm_90a"
ENTRY_SYMBOL = "cutepy_entry"

_ENTRY_PREFIX = "__tvm_ffi_"
_T = TypeVar("_T")

# Options that say what is compiled for, or where the results go.
_OURS = ("--gpu-arch", "--dump-dir", "--keep-", "--host-target")


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
    return trace_program(
        function,
        arguments,
        named or {},
        lambda traced: to_program(traced, symbol),
        classes=classes,
        options=options,
        line_info=line_info,
    )


def trace_program(
    function: Callable[..., Any],
    arguments: Sequence[object],
    named: Mapping[str, object],
    use: Callable[[Traced], _T],
    *,
    classes: Collection[str] = (),
    options: str = "",
    line_info: bool = True,
) -> _T:
    """Trace a `@cute.jit` function for SM90a, and give what `use` makes of it, such as `to_program`.

    Parameters and errors are those of `compile_program`.
    """
    if platform.machine() not in ("x86_64", "AMD64"):
        raise CompilationError(
            f"host code is compiled for x86-64 only, and this machine is {platform.machine()}; "
            "call the @cute.jit function itself, as the DSL compiles it"
        )
    if ours := [option for option in _OURS if option in options]:
        raise ValueError(f"options must leave {', '.join(ours)} to cutepy, got {options!r}")
    if importlib.util.find_spec("tvm_ffi") is None:
        raise ImportError("compiling needs the package apache-tvm-ffi: pip install 'cutepy[dsl]'", name="tvm_ffi")
    lines = " --generate-line-info" if line_info else ""
    decided = f"--gpu-arch={ARCH} --enable-tvm-ffi --keep-ptx --keep-cubin --dump-dir={FOLDER}{lines}"
    tensors = tensor_names(inspect.signature(function).bind(*arguments, **named).arguments)

    def use_checked(traced: Traced) -> _T:
        check_tensor_maps(traced.module, tensors)
        return use(traced)

    return trace(function, arguments, named, use_checked, classes=classes, options=f"{decided} {options}")


def to_program(traced: Traced, symbol: str = ENTRY_SYMBOL) -> Program:
    """Compile what was traced: MLIR -> host code, PTX and ELF image.

    Raises
    ------
    CompilationError
        If it can't be called in the packed convention, or launches no kernel.
    """
    marks = {"start": time.time()}
    module = traced.compile()
    kept = {suffix: sorted(Path(traced.folder).rglob(f"*.{suffix}")) for suffix in ("ptx", "cubin")}
    # One call of the compiler goes from MLIR to the cubin: what it wrote when tells its stages apart.
    for stage, suffix in {"lower": "ptx", "assemble": "cubin"}.items():
        if kept[suffix]:
            marks[stage] = max(file.stat().st_mtime for file in kept[suffix])
    entry = _packed_entry(module)
    names = parameter_names(module)
    ptx = "".join(file.read_text().rstrip("\0") for file in kept["ptx"])
    if entry is None or names is None or not ptx or len(kept["cubin"]) != 1:
        raise CompilationError(
            f"{traced.function} was compiled to host code without a packed entry or without kernels; "
            "a function to compile launches at least one kernel"
        )
    launches = read_launches(module)
    image = _host_object(module, entry, symbol)
    marks["host"] = time.time()
    spent = {"trace": traced.seconds, **_differences(marks)}
    return Program(image, symbol, names, ptx, kept["cubin"][0].read_bytes(), spent, launches)


def _packed_entry(module: Any) -> str | None:  # noqa: ANN401
    """Find the symbol of a compiled module's packed entry: that of the host function, after a prefix."""
    names = {op.attributes["sym_name"].value for op in module.body.operations if op.name == "llvm.func"}
    return next((name for name in names if name.removeprefix(_ENTRY_PREFIX) in names - {name}), None)


def _differences(marks: Mapping[str, float]) -> dict[str, float]:
    """Turn the times at which stages ended into what each took; files bear times that may be some ms early."""
    (_, previous), *stages = marks.items()
    spent = {}
    for stage, mark in stages:
        spent[stage] = max(mark - previous, 0.0)
        previous = max(mark, previous)
    return spent


def _host_object(module: Any, entry: str, symbol: str) -> bytes:  # noqa: ANN401
    """Emit host code as an object with one symbol, for a CPU without extensions.

    The compiler's default is the CPU it runs on: with AVX-512 there, a cached or shipped object would be an illegal
    instruction elsewhere. Internal linkage lets any number of objects be linked into one library. It is not optimised:
    a call of the GEMM's takes 0.10 us rather than 0.04 of the 3 us of a launch, and emitting it a third of the time.
    """
    ir = require("cutlass._mlir.ir", "StringAttr", "Attribute")
    support = require("cutlass._mlir._mlir_libs._cutlass_ir", "_aot_support.export_module_to_bytes")._aot_support
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
    image: bytes = support.export_module_to_bytes(module, format="o", opt_level=0, enable_pic=True)
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
        with self._host.calls.launching_on(backend):
            code = call(self._host.address, PackedArguments(arguments))
        self._host.calls.check(0)
        kind, message = self._error
        if code:
            self._error = ("", "")
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

        def raise_parts(kind: int, parts: int, count: int) -> None:
            texts = (ctypes.c_char_p * count).from_address(parts)
            self._error = (ctypes.string_at(kind).decode(), "".join(text.decode() for text in texts if text))

        def raise_text(kind: int, text: int) -> None:
            self._error = (ctypes.string_at(kind).decode(), ctypes.string_at(text).decode())

        def raise_cuda(_: int, code: int) -> None:
            self._error = ("RuntimeError", f"the host code of a compiled function returned CUDA error {code}")

        return {
            "TVMFFIErrorSetRaisedFromCStr": ctypes.CFUNCTYPE(None, pointer, pointer)(raise_text),
            "TVMFFIErrorSetRaisedFromCStrParts": ctypes.CFUNCTYPE(None, pointer, pointer, integer)(raise_parts),
            "CuteDSLRT_TVMFFISetRaisedCudaError": ctypes.CFUNCTYPE(None, pointer, integer)(raise_cuda),
            "CuteDSLRT_TVMFFISetRaisedCudaLaunchError": ctypes.CFUNCTYPE(None, pointer, integer)(raise_cuda),
        }
