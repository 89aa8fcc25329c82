"""Where compiled functions execute: on the GPU, or on a backend that takes the launches of their host code.

All that a CPU backend needs to know of the DSL's internals is here, and checked on entry. A compiled function keeps
its host code as LLVM-dialect MLIR; what that calls of CUDA are functions without a body. A second execution engine
of the same module, with those functions served in Python, runs the real host code with no driver.

While `executing_on` is active, a few methods of the DSL are wrapped; they are restored when it ends.
"""

from __future__ import annotations

import ctypes
import importlib.util
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

from cutepy.dsl.callers import with_callers
from cutepy.dsl.device_tensors import DeviceTensor, is_tensor
from cutepy.dsl.entries import ServedEntry
from cutepy.dsl.host_calls import RUNNING, Backend as Backend, HostCalls, LaunchRequest as LaunchRequest, is_served
from cutepy.dsl.version import require

_ARCHITECTURE = "sm_90a"
_PACKED = ("TVMFFIJitCompiledFunction", "TVMFFIJitCompiledFunctionWithKwargs")
"""The DSL's classes of functions that TVM-FFI calls."""


class NoPtxError(RuntimeError):
    """A compiled function that kept no PTX was called on a backend that needs it."""


_active: list[Backend] = []
_for_gpu: ContextVar[bool] = ContextVar("for_gpu", default=False)


def active_backend() -> Backend | None:
    """Return the backend that compiled functions execute on, or None for the GPU."""
    return _active[-1] if _active else None


@contextmanager
def compiling_for_gpu() -> Iterator[None]:
    """Leave what is compiled meanwhile as it would be for a GPU, also where a backend is active."""
    token = _for_gpu.set(True)
    try:
        yield
    finally:
        _for_gpu.reset(token)


def backends() -> list[Backend]:
    """Give the list, always the same, whose last item is the active backend; empty for the GPU."""
    return _active


@contextmanager
def executing_on(backend: Backend) -> Iterator[None]:
    """Send the launches of every compiled function to `backend`, and keep the PTX of what is compiled meanwhile.

    It nests: the innermost backend takes the launches.

    Parameters
    ----------
    backend : Backend
        Takes the launches, of all threads.

    Raises
    ------
    ImportError
        If the DSL's internals are not those this was written for.
    RuntimeError
        If another thread has a backend active.
    """
    with _entered_by_one_thread() as outermost, ExitStack() as stack:
        if outermost:
            _wrap_the_dsl(stack)
        _active.append(backend)
        stack.callback(_active.pop)
        yield


_entering = threading.Lock()
_entered: list[threading.Thread] = []


@contextmanager
def _entered_by_one_thread() -> Iterator[bool]:
    """Tell whether this is the outermost of nested contexts; other threads would take each other's launches."""
    own = threading.current_thread()
    with _entering:
        if _entered and _entered[-1] is not own:
            raise RuntimeError(
                f"simulation is active in thread {_entered[-1].name!r}, and for all threads, so {own.name!r} cannot "
                "start another; enter it once, and call the kernels of every thread within it"
            )
        outermost = not _entered
        _entered.append(own)
    try:
        yield outermost
    finally:
        _entered.pop()


def _wrap_the_dsl(stack: ExitStack) -> None:
    """Change what compiling and calling does, until the stack is closed."""
    executor = require("cutlass.base_dsl.jit_executor", "JitCompiledFunction", "JitExecutor")
    base = require("cutlass.base_dsl.dsl", "BaseDSL")
    compiler = require("cutlass.base_dsl.compiler", "CompileOptions", "KeepPTX", "GenerateLineInfo")
    runtime = require("cutlass.cute.runtime", "_Tensor", "from_dlpack")
    dsl_class = require("cutlass.cutlass_dsl", "CuTeDSL").CuTeDSL
    operations = require("cutlass._mlir_helpers.op", "_get_location_from_frame_info", "_is_framework_stack_frame")
    require("cutlass._mlir.execution_engine", "ExecutionEngine")
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="cutepy-sim-"))
    dsl = dsl_class._get_dsl()
    _set(stack, dsl, "jit_cache", type(dsl.jit_cache)(max_elems=None))
    _set(stack, dsl.envar, "_arch", _ARCHITECTURE)
    _wrap(stack, compiler.CompileOptions, "apply_envar_settings", _keeping_ptx(compiler, folder, stack))
    _wrap(stack, executor.JitCompiledFunction, "run_compiled_program", _run)
    _wrap(stack, executor.JitCompiledFunction, "to", _to)
    if importlib.util.find_spec("tvm_ffi") is not None:
        compiled = require("cutlass.cutlass_dsl.tvm_ffi_provider", *_PACKED)
        for name in _PACKED:
            _wrap(stack, getattr(compiled, name), "__call__", _call_packed)
    _wrap(stack, base.BaseDSL, "_func_impl", _converting_tensors(runtime))
    _wrap(stack, runtime._Tensor, "__init__", _in_global_memory)
    _wrap(stack, operations, "_get_location_from_frame_info", _with_callers)


def _set(stack: ExitStack, owner: Any, name: str, value: Any) -> None:  # noqa: ANN401
    stack.callback(setattr, owner, name, getattr(owner, name))
    setattr(owner, name, value)


def _wrap(stack: ExitStack, owner: Any, name: str, wrapper: Callable[..., Any]) -> None:  # noqa: ANN401
    """Replace a method by one that gets the original as its first argument."""
    original = owner.__dict__[name]

    def method(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        return wrapper(original, *args, **kwargs)

    setattr(owner, name, method)
    stack.callback(setattr, owner, name, original)


def _keeping_ptx(compiler: Any, folder: str, stack: ExitStack) -> Callable[..., None]:  # noqa: ANN401
    """Make each compilation keep its PTX with line information, in a file of its own."""
    count = iter(range(1 << 62))

    def apply(original: Callable[..., None], options: Any, envar: Any, function_name: str) -> None:  # noqa: ANN401
        original(options, envar, function_name)
        if _for_gpu.get():
            return
        keep, lines = options.options[compiler.KeepPTX], options.options[compiler.GenerateLineInfo]
        for option in (keep, lines):
            stack.callback(setattr, option, "value", option.value)
            option.value = True
        # File names are not unique across compilations, so each gets a folder.
        path = Path(folder) / str(next(count))
        path.mkdir()
        options._set_artifact_dump_paths(keep, str(path), "kernel", _ARCHITECTURE, "ptx", "full_ptx_path")

    return apply


def _with_callers(original: Callable[[Any], Any], info: Any) -> Any:  # noqa: ANN401
    return original(info) if _for_gpu.get() else with_callers(original, info)


def _run(original: Callable[..., Any], function: Any, exe_args: Sequence[Any]) -> int:  # noqa: ANN401
    """Run a compiled function's host code, with its launches sent to the backend."""
    backend = active_backend()
    assert backend is not None
    with RUNNING:
        return _served(function, _HostProgram).run(exe_args, backend)


def _call_packed(original: Callable[..., Any], function: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
    """Call what was compiled for TVM-FFI through its own entry, with its launches sent to the backend."""
    backend = active_backend()
    assert backend is not None
    with RUNNING:
        return _served(function, ServedEntry)(backend, args, kwargs)


def _to(original: Callable[..., Any], function: Any, device: object = None) -> Any:  # noqa: ANN401
    """Bind a compiled function to a device: there is one, so the function itself will do."""
    return function


def _converting_tensors(runtime: Any) -> Callable[..., Any]:  # noqa: ANN401
    """Let a plain call of a `@cute.jit` function take torch tensors and numpy arrays, as compiled functions do."""
    ir = require("cutlass._mlir.ir", "Context", "InsertionPoint")

    def convert(value: Any) -> Any:  # noqa: ANN401
        if is_tensor(value):
            return runtime.from_dlpack(value).mark_layout_dynamic()
        if type(value) in (tuple, list):
            return type(value)(convert(item) for item in value)
        return value

    def call(original: Callable[..., Any], dsl: Any, body: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        if ir.Context.current is not None and ir.InsertionPoint.current is not None:
            return original(dsl, body, *args, **kwargs)
        args = tuple(convert(value) for value in args)
        return original(dsl, body, *args, **{name: convert(value) for name, value in kwargs.items()})

    return call


def _in_global_memory(original: Callable[..., None], self: Any, tensor: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
    """Show a CPU tensor to the DSL as one in global memory, so that it makes the PTX of a GPU."""
    backend = active_backend()
    if backend is not None and hasattr(tensor, "__dlpack__"):
        with RUNNING:
            backend.adopt(tensor)
        tensor = DeviceTensor(tensor)
    original(self, tensor, *args, **kwargs)


_programs: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

_Served = TypeVar("_Served")


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


class _HostProgram:
    """The host code of one compiled function, in an engine whose CUDA calls are served here."""

    def __init__(self, function: Any, ptx: str) -> None:  # noqa: ANN401
        module, entry = function.ir_module, function.function_name
        self._calls = HostCalls(ptx)
        engine = require("cutlass._mlir.execution_engine").ExecutionEngine(module, opt_level=2, shared_libs=[])
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
