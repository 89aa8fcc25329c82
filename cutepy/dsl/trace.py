"""Trace of a `@cute.jit` function, and the hash of everything that determines its compiled result.

The DSL's front end runs the function once and writes MLIR. Everything that tracing read (globals, files, the
environment) is in the MLIR, so the key of a compiled program is a hash of that module and of the compiler's other
inputs: the pipeline with its options, the DSL's settings, the compiler's libraries, the linked files, and the calling
convention of the entry. Nothing is predicted. If the program is not found, the trace that made the key goes on into the
compiler.
"""

from __future__ import annotations

import gc
import hashlib
import inspect
import io
import os
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, TypeVar, get_origin

from cutepy.dsl import locations
from cutepy.dsl.line_info import lines_known
from cutepy.dsl.preprocessing import FunctionStore, preprocessed_once
from cutepy.dsl.shared_change import replaced
from cutepy.dsl.version import require
from cutepy.runtime.execution import compiling_for_gpu
from cutepy.runtime.interrupts import interrupts_held

_T = TypeVar("_T")

FOLDER = "{folder}"
"""Placeholder in options for the folder where the compiler keeps files."""

_TRACING = threading.RLock()
"""Lock: the DSL traces one function at a time."""


class TracedFunction:
    """Traced function, within `trace`: a module before compilation.

    Attributes
    ----------
    function : str
        Name of the Python function, by which its compiled checks call it.
    module : ir.Module
        Traced module; compiled in place by `compile`.
    seconds : float
        Seconds of tracing.
    folder : str
        Folder of the compiler's files, such as the PTX; there once it runs.
    """

    def __init__(
        self,
        function: str,
        module: Any,  # noqa: ANN401
        pipeline: str,
        settings: str,
        convention: object,
        added: object,
        folder: str,
        seconds: float,
        run: Callable[[], Any],
    ) -> None:
        self.function = function
        self.module = module
        self.folder = folder
        self.seconds = seconds
        self._pipeline = pipeline
        self._settings = settings
        self._convention = convention
        self._added = added
        self._run = run

    @property
    def pipeline(self) -> str:
        """Compiler passes with all options, except the place of kept files."""
        return self._pipeline.replace(self.folder, "")

    @cached_property
    def _bytecode(self) -> bytes:
        """Bytecode of the module as traced; readers take it before the module is compiled."""
        return _bytecode(self.module.operation)

    @property
    def files(self) -> dict[str, str]:
        """Source files of the module: name in the hash -> path here."""
        return locations.files(self._bytecode)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the traced module and its compiler inputs; equal in other processes and folders."""
        parts = (
            _without_locations(self.module),
            locations.canonical(self._bytecode),
            self.pipeline.encode(),
            self._settings.encode(),
            described(self._convention).encode(),
            described(self._added).encode(),
            self.function.encode(),
        )
        total = hashlib.sha256()
        for part in parts:
            total.update(b"%d:" % len(part))
            total.update(part)
        return total.hexdigest()

    def compile(self) -> Any:  # noqa: ANN401
        """Run the compiler; return the compiled module."""
        compiled = self._run()
        return self.module if compiled is None else compiled  # older compilers work in place, and return None


class _TraceResult(BaseException):
    """Carrier of a result past the DSL: its frames are left once a trace was used; no error handler sees it."""

    def __init__(self, result: object) -> None:
        self.result = result


def trace(
    function: Callable[..., Any],
    arguments: Sequence[object],
    named: Mapping[str, object],
    use: Callable[[TracedFunction], _T],
    *,
    classes: Collection[str] = (),
    options: str = "",
    shelf: FunctionStore | None = None,
    add: Callable[..., object] | None = None,
    added: object = None,
) -> _T:
    """Trace a function, and return the result of `use`, before the compiler runs.

    Parameters
    ----------
    function : callable
        A `@cute.jit` function, or an object whose `__call__` is one.
    arguments, named
        Examples as the DSL takes them.
    use : callable
        Called while the traced module lives.
    classes : collection of str
        Names of the parameters whose arguments are classes, which are compiled in.
    options : str
        For the DSL's compiler, with `FOLDER` for where it may keep files.
    shelf : FunctionStore, optional
        Storage of the functions that the DSL rewrites.
    add : callable, optional
        Called with the module and `added` before the compiler runs, to add to it what follows from them alone.
    added : optional
        Data of `add` besides the module.

    Raises
    ------
    Exception
        Any error of the function while it is traced, of the DSL, or of `use`.
    """
    cute = require("cutlass.cute", "compile")
    provider = require("cutlass.base_dsl.compiler", "Compiler.compile").Compiler
    plain = _plain(function)
    tracer = tracer_of(plain)
    thread, start = threading.get_ident(), time.perf_counter()

    def instead(original: Any, *arguments: Any, **given: Any) -> Any:  # noqa: ANN401
        if threading.get_ident() != thread:
            return original(*arguments, **given)
        seconds = time.perf_counter() - start
        _, module, pipeline, *_ = arguments

        def run() -> Any:  # noqa: ANN401
            if add is not None:
                add(module, added)
            os.mkdir(folder, 0o700)  # noqa: PTH102
            return original(*arguments, **given)

        settings = _settings(tracer.envar)
        raise _TraceResult(
            use(TracedFunction(plain.__name__, module, pipeline, settings, conventions, added, folder, seconds, run))
        )

    with (
        interrupts_held(),
        _TRACING,
        _folder_to_be() as folder,
        compiling_for_gpu(),
        lines_known(),
        preprocessed_once(shelf, tracer.envar),
        _no_collection(),
        replaced(provider, "compile", instead),
        _conventions(tracer, {*classes, *class_parameter(function)}) as conventions,
    ):
        try:
            # The DSL's own engine would compile the host code a second time, for this process only.
            cute.compile(function, *arguments, **named, options=options.replace(FOLDER, folder), no_jit_engine=True)
        except _TraceResult as used:
            result: _T = used.result  # type: ignore[assignment]
            return result
    raise RuntimeError(
        f"the DSL compiled {plain.__name__} without calling its compiler; this cutepy does not support that version"
    )


def _settings(environment: Any) -> str:  # noqa: ANN401
    """Describe the DSL's settings that may affect compilation; older versions don't mark them."""
    if hasattr(environment, "cache_key_str"):
        return str(environment.cache_key_str())
    return repr([(name, value) for name, value in vars(environment).items() if isinstance(value, (int, str))])


def class_parameter(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the name of the parameter of a classmethod that takes the class; empty for other functions."""
    if not inspect.ismethod(function) or not isinstance(function.__self__, type):
        return ()
    return tuple(inspect.signature(function.__func__).parameters)[:1]


def _plain(function: Any) -> Any:  # noqa: ANN401
    """Return the Python function to trace, as the DSL finds it."""
    if inspect.ismethod(function):
        function = function.__func__
    elif not inspect.isfunction(function):
        function = getattr(type(function).__call__, "__func__", type(function).__call__)
    return inspect.unwrap(function, stop=_refuse_kernel)


def _refuse_kernel(function: Any) -> bool:  # noqa: ANN401
    """Refuse a kernel, which older versions compile as host code that ends the process; False continues to unwrap."""
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None)
    if code and cells and code.co_filename == require("cutlass.base_dsl.dsl").__file__:
        held = {name: cell.cell_contents for name, cell in zip(code.co_freevars, cells, strict=True)}
        if held.get("executor_name") == "_kernel_helper":
            raise TypeError(f"{function.__qualname__} is a @cute.kernel; compile a @cute.jit function that launches it")
    return False


def tracer_of(plain: Any) -> Any:  # noqa: ANN401
    """Return the DSL's tracer object for a function: one for each dialect of decorators."""
    base = require("cutlass.base_dsl.dsl", "BaseDSL._lazy_initialize_dsl").BaseDSL
    base._lazy_initialize_dsl(plain)
    if not hasattr(plain, "_dsl_object"):
        raise TypeError(f"a function to compile must be decorated with @cute.jit, got {plain!r}")
    return plain._dsl_object


@contextmanager
def _folder_to_be() -> Iterator[str]:
    """Reserve the name of a folder without creating it, as most programs are found; remove it in the end."""
    folder = os.path.join(tempfile.gettempdir(), f"cutepy-{secrets.token_hex(16)}")  # noqa: PTH118
    try:
        yield folder
    finally:
        if os.path.isdir(folder):  # noqa: PTH112
            shutil.rmtree(folder)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Disable Python's garbage collection: among all objects of the DSL and torch it takes a tenth of a trace."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def _conventions(tracer: Any, classes: Collection[str]) -> Iterator[list[object]]:  # noqa: ANN401
    """Collect the calling conventions of packed entries, as the DSL describes them to their builder.

    The DSL's tracer takes a class as it is, where the parameter is annotated as `type[...]` or not at all, and so the
    class that a classmethod is bound to. The part that describes packed entries asks for `cutlass.Constexpr` instead,
    and fails as it does for its own faults. So it is told that these parameters are annotated so. And what is compiled
    in within a tuple or dataclass is nothing that a call passes, whatever its type.
    """
    module = require("cutlass.cute._tvm_ffi_args_spec_converter", "_tvm_ffi_args_spec_converter", "_convert_single_arg")
    constexpr = require("cutlass", "Constexpr").Constexpr
    spec = require("cutlass.base_dsl.tvm_ffi_builder", "spec").spec
    thread, collected = threading.get_ident(), []

    def convert(function: str, signature: inspect.Signature, *arguments: Any) -> Any:  # noqa: ANN401
        if threading.get_ident() == thread:
            parameters = signature.parameters.items()
            signature = signature.replace(
                parameters=[p.replace(annotation=constexpr) if name in classes else p for name, p in parameters]
            )
        found = module._tvm_ffi_args_spec_converter(function, signature, *arguments)
        if threading.get_ident() == thread:
            collected.append(found)
        return found

    def convert_one(original: Any, value: Any, name: str, *more: Any, is_constexpr: bool = False) -> Any:  # noqa: ANN401
        annotation, *others = more
        if annotation in (None, inspect.Parameter.empty) and hasattr(value, "_fields"):
            annotation = type(value)  # an object that lists its fields
        if is_constexpr or annotation is constexpr or get_origin(annotation) is constexpr:
            return spec.ConstNone(name)
        return original(value, name, annotation, *others)

    before, tracer._tvm_ffi_args_spec_converter = getattr(tracer, "_tvm_ffi_args_spec_converter", None), convert
    try:
        with replaced(module, "_convert_single_arg", convert_one):
            yield collected
    finally:
        tracer._tvm_ffi_args_spec_converter = before


def _bytecode(operation: Any) -> bytes:  # noqa: ANN401
    buffer = io.BytesIO()
    operation.write_bytecode(buffer)
    return buffer.getvalue()


def _without_locations(module: Any) -> bytes:  # noqa: ANN401
    """Write a module without source locations."""
    passes = require("cutlass._mlir.passmanager", "PassManager").PassManager
    copy = module.operation.clone()
    with module.context:
        strip = passes.parse("builtin.module(strip-debuginfo)")
        # half of the time is verification, which a module that is only hashed does not need
        strip.enable_verifier(False)
        strip.run(copy)
    return _bytecode(copy)


def described(value: object) -> str:
    """Return a canonical text of a tree of the DSL's descriptions, equal for equal trees in any process.

    An object at several places, such as an extent that two tensors share, is written as its number.
    """
    numbers: dict[int, int] = {}
    held: list[object] = []  # keeps the object alive, so that no id is reused

    def spelled(value: Any) -> str:  # noqa: ANN401
        if value is None or isinstance(value, (bool, int, float, str, bytes)):
            return repr(value)
        if isinstance(value, (list, tuple, set, frozenset)):
            items = [spelled(item) for item in value]
            return f"{type(value).__name__}({','.join(items if isinstance(value, (list, tuple)) else sorted(items))})"
        if isinstance(value, dict):
            return f"dict({','.join(f'{spelled(k)}={spelled(v)}' for k, v in value.items())})"
        if isinstance(value, type) or callable(value):
            return (
                f"{value.__module__}:{value.__qualname__}" if hasattr(value, "__qualname__") else type(value).__name__
            )
        if id(value) in numbers:
            return f"#{numbers[id(value)]}"
        numbers[id(value)] = len(numbers)
        held.append(value)
        parts = getattr(value, "__dict__", None)
        if parts is None:
            return f"{type(value).__qualname__}({value})"
        return f"{type(value).__qualname__}({','.join(f'{n}={spelled(v)}' for n, v in sorted(parts.items()))})"

    return spelled(value)
