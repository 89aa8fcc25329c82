"""The DSL's compiled functions, executed on a backend that takes the launches of their host code.

While `executing_on` is active, a few methods of the DSL are wrapped, so that compiled functions run their host code in
`host_programs`; they are restored when it ends. What of the DSL's internals is used is checked on entry.
"""

from __future__ import annotations

import functools
import importlib.util
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import CodeType
from typing import Any

from cutepy.dsl.line_info import lines_known
from cutepy.dsl.tma_arguments import check_tensor_maps, tensor_names
from cutepy.dsl.version import require
from cutepy.frontends.backend import loaded_module
from cutepy.frontends.dsl.host_printing import print_from_host
from cutepy.frontends.dsl.host_programs import NoPtxError, served_entry, served_program
from cutepy.frontends.dsl.refusals import REFUSAL_ADDRESS, refusals_raised
from cutepy.frontends.kernel_handles import handle_of_module
from cutepy.host.arguments import leaves
from cutepy.runtime.device_tensors import (
    DeviceTensor,
    as_tensor,
    inputs_kept,
    inputs_now,
    inputs_of,
    is_tensor,
    remember_given,
)
from cutepy.runtime.devices import device
from cutepy.runtime.execution import EXECUTION, Backend, compiles_for_gpu
from cutepy.runtime.host_calls import RUNNING
from cutepy.runtime.interrupts import interrupts_held, interrupts_let_through
from cutepy.runtime.untraced import keep_untraced, untraced

_FIRST_CALL = "_preprocess_and_replace_code"
"""The method of the DSL that a `@cute.jit` function calls first."""


@contextmanager
def executing_on(backend: Backend, *, lends: bool = False) -> Iterator[None]:
    """Send the launches of every compiled function to `backend`, and keep the PTX that is compiled meanwhile.

    It nests: the innermost backend takes the launches.

    Parameters
    ----------
    backend : Backend
        Takes the launches, of all threads.
    lends : bool
        As of `Execution.on`.

    Raises
    ------
    ImportError
        If the DSL's internals are not those this was written for.
    RuntimeError
        If another thread has a backend active.
    """
    with EXECUTION.on(backend, lends=lends) as outermost, ExitStack() as stack:
        if outermost:
            _wrap_the_dsl(stack)
        _compile_for(stack, device().arch, is_outermost=outermost)
        yield


def _compile_for(stack: ExitStack, arch: str, *, is_outermost: bool) -> None:
    """Compile for an architecture until the stack is closed, with a cache of its own of compiled functions."""
    dsl = require("cutlass.cutlass_dsl", "CuTeDSL._get_dsl").CuTeDSL._get_dsl()
    if is_outermost or dsl.envar._arch != arch:
        _set(stack, dsl, "jit_cache", type(dsl.jit_cache)(max_elems=None))
        _set(stack, dsl.envar, "_arch", arch)


def _wrap_the_dsl(stack: ExitStack) -> None:
    """Replace the DSL's compile and call functions, until the stack is closed."""
    executor = require(
        "cutlass.base_dsl.jit_executor", "JitCompiledFunction.run_compiled_program", "JitCompiledFunction.to"
    )
    base = require("cutlass.base_dsl.dsl", "BaseDSL._func_impl", "BaseDSL.generate_original_ir")
    compiler = require(
        "cutlass.base_dsl.compiler", "CompileOptions.apply_envar_settings", "KeepPTX", "GenerateLineInfo"
    )
    runtime = require("cutlass.cute.runtime", "_Tensor", "from_dlpack")
    views = require("cutlass._mlir.dialects.cute", "print_view")
    binary = require("cutlass.base_dsl.export.external_binary_module", "ExternalBinaryModule.__getattr__")
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="cutepy-sim-"))
    _wrap(stack, compiler.CompileOptions, "apply_envar_settings", _keeping_ptx(compiler, folder, stack))
    _wrap(stack, executor.JitCompiledFunction, "run_compiled_program", _run)
    _wrap(stack, executor.JitCompiledFunction, "__call__", _call)
    compiled = require("cutlass.cutlass_dsl.cuda_jit_executor", "CudaDialectJitCompiledFunction.library")
    for owner in (executor.JitCompiledFunction, compiled.CudaDialectJitCompiledFunction):
        _wrap(stack, owner, "to", _to)
    library = compiled.CudaDialectJitCompiledFunction.library
    _set(stack, compiled.CudaDialectJitCompiledFunction, "library", property(functools.partial(_library, library)))
    if importlib.util.find_spec("tvm_ffi") is not None:
        ffi = require(
            "cutlass.cutlass_dsl.tvm_ffi_provider", "TVMFFIJitCompiledFunction", "TVMFFIJitCompiledFunctionWithKwargs"
        )
        for packed in (ffi.TVMFFIJitCompiledFunction, ffi.TVMFFIJitCompiledFunctionWithKwargs):
            _wrap(stack, packed, "__call__", _call_packed)
    _wrap(stack, base.BaseDSL, "_func_impl", _converting_tensors(runtime))
    _wrap(stack, base.BaseDSL, "generate_original_ir", _checking_tensor_maps)
    _wrap(stack, runtime._Tensor, "__init__", _in_global_memory)
    _wrap(stack, views, "print_view", _print_view)
    _wrap(stack, binary.ExternalBinaryModule, "__getattr__", _loaded)
    stack.enter_context(lines_known())
    _keep_from_dynamo(stack, base.BaseDSL)


def _keep_from_dynamo(stack: ExitStack, base: Any) -> None:  # noqa: ANN401
    """Let `torch.compile` follow no call of a `@cute.jit` function: its wrapper begins by a call that is marked."""
    (wrapper,) = _codes_called("jit_wrapper", base.jit_runner.__code__) or (None,)
    original = base.__dict__.get(_FIRST_CALL)
    if wrapper is None or not isinstance(original, staticmethod):
        return

    @untraced("a @cute.jit function in the simulator", wrapper)
    def first(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        return original(*args, **kwargs)

    setattr(base, _FIRST_CALL, staticmethod(first))
    stack.callback(setattr, base, _FIRST_CALL, original)
    keep_untraced()


def _codes_called(name: str, code: CodeType) -> list[CodeType]:
    """Find the code of a function that is defined within another one, at any depth."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return [each for each in inner if each.co_name == name] + [c for each in inner for c in _codes_called(name, each)]


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
        if compiles_for_gpu():
            return
        keep, lines = options.options[compiler.KeepPTX], options.options[compiler.GenerateLineInfo]
        for option in (keep, lines):
            stack.callback(setattr, option, "value", option.value)
            option.value = True
        # File names are not unique across compilations, so each gets a folder.
        path = Path(folder) / str(next(count))
        path.mkdir()
        keep.dump_path, keep.full_ptx_path = str(path / "kernel"), str(path / f"kernel.{device().arch}.ptx")

    return apply


def _checking_tensor_maps(
    original: Callable[..., Any],
    dsl: Any,  # noqa: ANN401
    *parts: Any,  # noqa: ANN401
    **named: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """Trace a function, and let its host code refuse tensors that TMA can't address."""
    if compiles_for_gpu():
        return original(dsl, *parts, **named)
    arguments, only_named, signature = parts[6:9]
    given = {**dict(zip(signature.parameters, arguments, strict=False)), **only_named}

    def check(_: object, module: Any, name: str) -> None:  # noqa: ANN401
        packed = dsl.compile_options.enable_tvm_ffi  # such functions raise themselves
        check_tensor_maps(module, tensor_names(given), None if packed else REFUSAL_ADDRESS)

    with dsl.trace_finalize_hooks(check):
        return original(dsl, *parts, **named)


def _run(original: Callable[..., Any], function: Any, exe_args: Sequence[Any]) -> int:  # noqa: ANN401
    """Run a compiled function's host code, with its launches sent to the backend."""
    backend = EXECUTION.backend
    assert backend is not None
    if function.load_from_binary and not function.has_gpu_module:
        return int(original(function, exe_args))
    with interrupts_let_through(), RUNNING, refusals_raised():
        served_program(function).run(exe_args, backend)
    return 0  # as CUDA says that all is well


def _call_packed(original: Callable[..., Any], function: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
    """Call a function compiled for TVM-FFI through its own entry, with its launches sent to the backend."""
    backend = EXECUTION.backend
    assert backend is not None
    with interrupts_let_through(), RUNNING, inputs_kept(inputs_of(leaves((*args, *kwargs.values())))):
        return served_entry(function)(backend, args, kwargs)


def _call(original: Callable[..., Any], function: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
    """Call a function compiled for the DSL's own arguments, which stores to no read-only argument."""
    with inputs_kept(inputs_of(leaves((*args, *kwargs.values()))) or inputs_now()):
        return original(function, *args, **kwargs)


def _print_view(original: Callable[..., Any], view: Any, **options: Any) -> Any:  # noqa: ANN401
    """Let host code print tensors, all of which are in host memory here."""
    return original(view, **options) if compiles_for_gpu() else print_from_host(original, view, **options)


def _loaded(original: Callable[..., Any], module: Any, name: str) -> Any:  # noqa: ANN401
    """Give a function of a loaded object; one that only runs on a GPU says so when it is called on a backend."""
    found = original(module, name)
    if not module.enable_tvm_ffi or name.startswith("__"):
        return found

    def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        if EXECUTION.backend is not None:
            raise NoPtxError.of_an_object(name)
        return found(*args, **kwargs)

    return functools.update_wrapper(call, found, assigned=())


def _to(original: Callable[..., Any], function: Any, device: object = None) -> Any:  # noqa: ANN401
    """Bind a compiled function to a device: there is one, so the function itself will do."""
    return function


def _library(original: Any, function: Any) -> Any:  # noqa: ANN401
    """Give the handle of a compiled function's module, of which `kernel_handles` answers CUDA's questions."""
    if EXECUTION.backend is None or not function.has_gpu_module or hasattr(function, "__tvm_ffi_object__"):
        return original.fget(function)
    handle = require("cuda.bindings.runtime", "cudaLibrary_t").cudaLibrary_t
    library, ptx = served_program(function).module
    return handle(handle_of_module(loaded_module(library, ptx)))


def _converting_tensors(runtime: Any) -> Callable[..., Any]:  # noqa: ANN401
    """Let a plain call of a `@cute.jit` function take torch tensors and numpy arrays, as compiled functions do."""
    ir = require("cutlass._mlir.ir", "Context", "InsertionPoint")

    def convert(value: Any) -> Any:  # noqa: ANN401
        if is_tensor(value) or (hasattr(value, "__dlpack__") and not isinstance(value, runtime._Tensor)):
            return runtime.from_dlpack(value).mark_layout_dynamic()
        if type(value) in (tuple, list):
            return type(value)(convert(item) for item in value)
        return value

    def call(original: Callable[..., Any], dsl: Any, body: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        if ir.Context.current is not None and ir.InsertionPoint.current is not None:
            return original(dsl, body, *args, **kwargs)
        inputs = inputs_of(leaves((*args, *kwargs.values())))
        args = tuple(convert(value) for value in args)
        with interrupts_held(), inputs_kept(inputs):
            return original(dsl, body, *args, **{name: convert(value) for name, value in kwargs.items()})

    return call


def _in_global_memory(original: Callable[..., None], self: Any, tensor: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
    """Show a CPU tensor to the DSL as one in global memory, so that it makes the PTX of a GPU."""
    backend = EXECUTION.backend
    if backend is not None and hasattr(tensor, "__dlpack__"):
        remember_given(self, tensor)
        tensor = as_tensor(tensor)
        with RUNNING:
            backend.adopt(tensor)
        tensor = DeviceTensor(tensor)
    original(self, tensor, *args, **kwargs)
