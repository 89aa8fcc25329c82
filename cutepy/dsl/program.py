"""Compilation of a `@cute.jit` function to a program without the DSL (`cutepy.runtime.program`)."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from cutepy.dsl.empty_arguments import check_not_empty
from cutepy.dsl.entries import emit_object, parameter_names
from cutepy.dsl.launches import read_launches
from cutepy.dsl.preprocessing import FunctionStore
from cutepy.dsl.tma_arguments import check_tensor_maps, tensor_names
from cutepy.dsl.trace import FOLDER, TracedFunction, trace
from cutepy.dsl.version import require
from cutepy.extras import require as require_packages
from cutepy.runtime.objects import check_machine
from cutepy.runtime.program import HOPPER, Program

ENTRY_SYMBOL = "cutepy_entry"

_ENTRY_PREFIX = "__tvm_ffi_"
_T = TypeVar("_T")

# Options that select the target, or the place of the results.
_OURS = ("--gpu-arch", "--dump-dir", "--keep-", "--host-target")


class CompilationError(RuntimeError):
    """Error of a compiled module that differs from the request."""


def compile_program(
    function: Callable[..., Any],
    arguments: Sequence[object],
    named: Mapping[str, object] | None = None,
    *,
    arch: str = HOPPER,
    classes: Collection[str] = (),
    options: str = "",
    nonempty: Mapping[str, Sequence[int]] | None = None,
    symbol: str = ENTRY_SYMBOL,
    line_info: bool = True,
) -> Program:
    """Compile a `@cute.jit` function; needs no GPU.

    Parameters
    ----------
    function : callable
        A `@cute.jit` function, or an object whose `__call__` is one.
    arguments : sequence
        Example arguments as the DSL takes them: fake tensors, numbers, constexpr values, None, fake streams that use
        TVM-FFI's environment.
    named : mapping, optional
        Arguments by name.
    arch : str
        Architecture to compile for, such as "sm_100a".
    classes : collection of str
        Names of the parameters whose arguments are classes, which are compiled in.
    options : str
        More options for the DSL's compiler, such as "--opt-level 3".
    nonempty : mapping of str to sequence of int, optional
        Dimensions of tensors whose extents are never 0, by the tensor's name; calls with others are refused.
    symbol : str
        Name of the entry, a C identifier.
    line_info : bool
        Whether PTX and cubin say which line of which file each instruction comes from. What is shipped to others
        should not: the paths are those of this machine.

    Raises
    ------
    ValueError
        If `options` has some that are decided here, such as the architecture.
    CompilationError
        If the result can't be called in the packed convention.
    WrongMachineError
        If this machine is not x86-64.
    """
    return trace_program(
        function,
        arguments,
        named or {},
        lambda traced: to_program(traced, arch, symbol),
        arch=arch,
        classes=classes,
        options=options,
        nonempty=nonempty,
        line_info=line_info,
    )


def trace_program(
    function: Callable[..., Any],
    arguments: Sequence[object],
    named: Mapping[str, object],
    use: Callable[[TracedFunction], _T],
    *,
    arch: str = HOPPER,
    classes: Collection[str] = (),
    options: str = "",
    nonempty: Mapping[str, Sequence[int]] | None = None,
    line_info: bool = True,
    shelf: FunctionStore | None = None,
) -> _T:
    """Trace a `@cute.jit` function for an architecture, and return the result of `use`, such as `to_program`.

    Parameters and errors are those of `compile_program`; `shelf` caches the functions that the DSL rewrites
    (`preprocessing`).
    """
    check_machine()
    words = [word.partition("=")[0] for word in options.split() if word.startswith("--")]
    # The DSL accepts a prefix of an option's name for the option.
    if ours := [option for option in _OURS if any(w.startswith(option) or option.startswith(w) for w in words)]:
        remedy = "; give arch=" if "--gpu-arch" in ours else ""
        raise ValueError(f"options must leave {', '.join(ours)} to cutepy, got {options!r}{remedy}")
    require_packages("cutepy.compile", "tvm_ffi")
    lines = " --generate-line-info" if line_info else ""
    decided = f"--gpu-arch={arch} --enable-tvm-ffi --keep-ptx --keep-cubin --dump-dir={FOLDER}{lines}"
    tensors = tensor_names(inspect.signature(function).bind(*arguments, **named).arguments)
    return trace(
        function,
        arguments,
        named,
        use,
        classes=classes,
        options=f"{decided} {options}",
        shelf=shelf,
        add=_add_checks,
        added=(tensors, dict(nonempty or {})),
    )


def _add_checks(module: Any, added: tuple[Sequence[str], Mapping[str, Sequence[int]]]) -> None:  # noqa: ANN401
    """Add the checks of `check_tensor_maps` and `check_not_empty` to host code."""
    names, nonempty = added
    check_tensor_maps(module, names)
    check_not_empty(module, names, nonempty)


def to_program(traced: TracedFunction, arch: str = HOPPER, symbol: str = ENTRY_SYMBOL) -> Program:
    """Compile a traced function: MLIR -> host code, PTX and ELF image.

    Raises
    ------
    CompilationError
        If it can't be called in the packed convention.
    """
    marks = {"start": time.time()}
    module = traced.compile()
    kept = {suffix: sorted(Path(traced.folder).rglob(f"*.{suffix}")) for suffix in ("ptx", "cubin")}
    # One call of the compiler goes from MLIR to the cubin: the times of its files separate the stages.
    for stage, suffix in {"lower": "ptx", "assemble": "cubin"}.items():
        if kept[suffix]:
            marks[stage] = max(file.stat().st_mtime for file in kept[suffix])
    entry = _packed_entry(module)
    names = parameter_names(module)
    ptx = "".join(file.read_text().rstrip("\0") for file in kept["ptx"])
    if entry is None or names is None or len(kept["cubin"]) > 1 or bool(ptx) != bool(kept["cubin"]):
        raise CompilationError(f"{traced.function} was compiled to host code without a packed entry or its kernels")
    launches = read_launches(module)
    if launches and not ptx:
        raise CompilationError(f"{traced.function} launches kernels, and the compiler left none of them")
    image = _host_object(module, entry, symbol)
    marks["host"] = time.time()
    spent = {"trace": traced.seconds, **_differences(marks)}
    cubin = b"".join(file.read_bytes() for file in kept["cubin"])
    return Program(image, symbol, names, ptx, cubin, spent, launches, arch=arch)


def _packed_entry(module: Any) -> str | None:  # noqa: ANN401
    """Find the symbol of a compiled module's packed entry: the host function's name after a prefix."""
    names = {op.attributes["sym_name"].value for op in module.body.operations if op.name == "llvm.func"}
    return next((name for name in names if name.removeprefix(_ENTRY_PREFIX) in names - {name}), None)


def _differences(marks: Mapping[str, float]) -> dict[str, float]:
    """Turn end times of stages into durations; times of files may be some ms early."""
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
    return emit_object(module, opt_level=0)
