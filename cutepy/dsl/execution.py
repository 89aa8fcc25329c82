"""Where compiled functions execute: on the GPU, or on a backend that takes the launches of their host code.

All that a CPU backend needs to know of the DSL's internals is here, and checked on entry. A compiled function keeps
its host code as LLVM-dialect MLIR; what that calls of CUDA are functions without a body. A second execution engine
of the same module, with those functions served in Python, runs the real host code with no driver.

While `executing_on` is active, a few methods of the DSL are wrapped; they are restored when it ends.
"""

from __future__ import annotations

import ctypes
import re
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from cutepy.dsl.version import require

_ARCHITECTURE = "sm_90a"
_CLUSTER, _COOPERATIVE, _PROGRAMMATIC = 4, 2, 6
_ATTRIBUTE_BYTES = 72
_LAUNCH_FAILED = 719
_NOT_SUPPORTED = 801

# cudaDeviceAttr -> what an H200 answers: threads, shared memory (default, reserved, opt-in, per SM), SMs, capability.
_DEVICE_ATTRIBUTES = {
    1: 1024,
    8: 49152,
    10: 32,
    16: 132,
    39: 2048,
    75: 9,
    76: 0,
    81: 233472,
    95: 1,
    97: 232448,
    106: 32,
    111: 1024,
    120: 1,
}


@dataclass(frozen=True)
class LaunchRequest:
    """One kernel launch, as the host code asked for it.

    Attributes
    ----------
    kernel : str
        Name of the entry function.
    ptx : str
        The module that defines it.
    grid, block, cluster : (int, int, int)
        Extents; a cluster of (1, 1, 1) where the launch has no such attribute.
    dynamic_smem_bytes : int
        Dynamic shared memory.
    cooperative : bool
        Whether all CTAs must be resident at once.
    stream : int
        Handle of the stream.
    parameters : int
        Address of the array of pointers to parameters; valid during the call only.
    """

    kernel: str
    ptx: str = field(repr=False)
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    dynamic_smem_bytes: int
    cooperative: bool
    stream: int
    parameters: int = field(repr=False)

    def parameter(self, index: int, size_bytes: int) -> bytes:
        """Copy the bytes of a parameter."""
        pointer = ctypes.c_void_p.from_address(self.parameters + 8 * index).value
        return ctypes.string_at(pointer or 0, size_bytes)


class Backend(Protocol):
    """What takes the place of the GPU."""

    def launch(self, request: LaunchRequest) -> None:
        """Run a kernel; what it raises ends the host function and reaches the caller."""

    def adopt(self, tensor: object) -> None:
        """Learn of a tensor that was passed to a compiled function."""


class NoPtxError(RuntimeError):
    """A compiled function that kept no PTX was called on a backend that needs it."""


_active: list[Backend] = []


def active_backend() -> Backend | None:
    """Return the backend that compiled functions execute on, or None for the GPU."""
    return _active[-1] if _active else None


@contextmanager
def executing_on(backend: Backend) -> Iterator[None]:
    """Send the launches of every compiled function to `backend`, and keep the PTX of what is compiled meanwhile.

    Parameters
    ----------
    backend : Backend
        Takes the launches.

    Raises
    ------
    ImportError
        If the DSL's internals are not those this was written for.
    """
    executor = require("cutlass.base_dsl.jit_executor", "JitCompiledFunction", "JitExecutor", "ExecutionArgs")
    base = require("cutlass.base_dsl.dsl", "BaseDSL")
    compiler = require("cutlass.base_dsl.compiler", "CompileOptions", "KeepPTX", "GenerateLineInfo", "EnableTVMFFI")
    runtime = require("cutlass.cute.runtime", "_Tensor", "from_dlpack")
    dsl_class = require("cutlass.cutlass_dsl", "CuTeDSL").CuTeDSL
    require("cutlass._mlir.execution_engine", "ExecutionEngine")
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="cutepy-sim-"))
        dsl = dsl_class._get_dsl()
        _set(stack, dsl, "jit_cache", type(dsl.jit_cache)(max_elems=None))
        _set(stack, dsl.envar, "_arch", _ARCHITECTURE)
        _wrap(stack, compiler.CompileOptions, "apply_envar_settings", _keeping_ptx(compiler, folder, stack))
        _wrap(stack, executor.JitCompiledFunction, "run_compiled_program", _run)
        _wrap(stack, executor.JitCompiledFunction, "to", _to)
        _wrap(stack, executor.ExecutionArgs, "record_arg_specs_from_compile_args", _recording_signature)
        _wrap(stack, executor.ExecutionArgs, "generate_execution_args", _as_compiled)
        _wrap(stack, base.BaseDSL, "_func_impl", _converting_tensors(runtime))
        _wrap(stack, runtime._Tensor, "__init__", _in_global_memory)
        _active.append(backend)
        stack.callback(_active.pop)
        yield


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
        keep, lines = options.options[compiler.KeepPTX], options.options[compiler.GenerateLineInfo]
        # TVM-FFI is another way to pass arguments to the same host code; here they are passed in the DSL's own.
        for option, value in ((keep, True), (lines, True), (options.options[compiler.EnableTVMFFI], False)):
            stack.callback(setattr, option, "value", option.value)
            option.value = value
        # File names are not unique across compilations, so each gets a folder.
        path = Path(folder) / str(next(count))
        path.mkdir()
        options._set_artifact_dump_paths(keep, str(path), "kernel", _ARCHITECTURE, "ptx", "full_ptx_path")

    return apply


def _run(original: Callable[..., Any], function: Any, exe_args: Sequence[Any]) -> int:  # noqa: ANN401
    """Run a compiled function's host code, with its launches sent to the backend."""
    backend = active_backend()
    assert backend is not None
    return _host_program(function).run(exe_args, backend)


def _to(original: Callable[..., Any], function: Any, device: object = None) -> Any:  # noqa: ANN401
    """Bind a compiled function to a device: there is one, so the function itself will do."""
    return function


@dataclass(frozen=True)
class _Signature:
    """What a function was compiled for, which TVM-FFI keeps and the DSL's own way of passing arguments does not.

    Attributes
    ----------
    streams : list of int
        Positions of the arguments that TVM-FFI takes from its environment, which callers leave out.
    types : list
        Of each argument: a numeric type, a tuple of these for a tuple, or None.
    """

    streams: list[int]
    types: list[Any]


_signatures: weakref.WeakKeyDictionary[Any, _Signature] = weakref.WeakKeyDictionary()


def _recording_signature(original: Callable[..., None], binder: Any, args: Any, kwargs: Any) -> None:  # noqa: ANN401
    """Note what a function is being compiled for."""
    original(binder, args, kwargs)
    numeric = require("cutlass.base_dsl.typing", "Numeric").Numeric
    values = list(binder.bound_call_arguments(args, kwargs).values())
    streams = [n for n, value in enumerate(values) if getattr(value, "use_tvm_ffi_env_stream", False)]
    _signatures[binder] = _Signature(streams, [_numeric_types(value, numeric) for value in values])


def _numeric_types(value: Any, numeric: type) -> Any:  # noqa: ANN401
    if isinstance(value, (tuple, list)):
        return tuple(_numeric_types(item, numeric) for item in value)
    return type(value) if isinstance(value, numeric) else None


def _as_typed(value: Any, types: Any) -> Any:  # noqa: ANN401
    """Give Python's numbers the types that they were compiled for, and make tensors within tuples the DSL's."""
    if isinstance(types, tuple) and isinstance(value, (tuple, list)) and len(types) == len(value):
        items = [_as_typed(_adapted(item), kind) for item, kind in zip(value, types, strict=True)]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return types(value) if isinstance(types, type) and isinstance(value, (bool, int, float)) else value


def _adapted(value: Any) -> Any:  # noqa: ANN401
    """Make a torch tensor what the DSL makes of it as an argument of its own."""
    if not _is_tensor(value):
        return value
    registry = require("cutlass.base_dsl.runtime.jit_arg_adapters", "JitArgAdapterRegistry").JitArgAdapterRegistry
    adapter = registry.get_registered_adapter(value)
    return value if adapter is None else adapter(value)


def _as_compiled(original: Callable[..., Any], binder: Any, args: Sequence[Any], kwargs: Any) -> Any:  # noqa: ANN401
    """Pass arguments as TVM-FFI would: with the stream of its environment, and numbers of the types compiled for."""
    signature = _signatures.get(binder)
    if signature is None:
        return original(binder, args, kwargs)
    args, kwargs = list(args), dict(kwargs)
    names = list(binder.signature.parameters)
    if signature.streams and len(args) + len(kwargs) <= len(names) - len(signature.streams):
        stream = require("cuda.bindings.driver", "CUstream").CUstream(0)
        for n in signature.streams:
            if n <= len(args):
                args.insert(n, stream)
            else:
                kwargs[names[n]] = stream
    args[: len(names)] = [_as_typed(a, t) for a, t in zip(args, signature.types, strict=False)]
    pointers, adapted = original(binder, tuple(args), kwargs)
    return pointers, [*adapted, args, kwargs]  # the pointers point into these


_TENSOR_TYPES = ("torch.Tensor", "numpy.ndarray")


def _is_tensor(value: object) -> bool:
    return any(f"{t.__module__}.{t.__qualname__}" in _TENSOR_TYPES for t in type(value).__mro__)


def _converting_tensors(runtime: Any) -> Callable[..., Any]:  # noqa: ANN401
    """Let a plain call of a `@cute.jit` function take torch tensors and numpy arrays, as compiled functions do."""
    ir = require("cutlass._mlir.ir", "Context", "InsertionPoint")

    def convert(value: Any) -> Any:  # noqa: ANN401
        if _is_tensor(value):
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
        backend.adopt(tensor)
        tensor = _DeviceTensor(tensor)
        kwargs.pop("enable_tvm_ffi", None)
    original(self, tensor, *args, **kwargs)


class _DeviceTensor:
    """A tensor in host memory whose DLPack capsule says CUDA.

    A DLManagedTensor starts with the data pointer, then {int32 device type, int32 device id}; a versioned one has 24
    bytes more in front of that. Each export makes a fresh struct, so writing to it harms nobody.
    """

    _CUDA = 2

    def __init__(self, tensor: Any) -> None:  # noqa: ANN401
        self._tensor = tensor

    def __dlpack__(self, **_: object) -> object:
        capsule = self._tensor.detach().__dlpack__() if hasattr(self._tensor, "detach") else self._tensor.__dlpack__()
        get_name = ctypes.pythonapi.PyCapsule_GetName
        get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
        get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
        get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        name = get_name(capsule)
        address = get_pointer(capsule, name) + (32 if name == b"dltensor_versioned" else 0)
        ctypes.c_int32.from_address(address + 8).value = self._CUDA
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._CUDA, 0


_programs: weakref.WeakKeyDictionary[Any, _HostProgram] = weakref.WeakKeyDictionary()


def _host_program(function: Any) -> _HostProgram:  # noqa: ANN401
    program = _programs.get(function)
    if program is None:
        text = _kept_ptx(function)
        if text is None:
            raise NoPtxError(
                f"{function.function_name} was compiled without keeping its PTX, which the simulator runs; compile it "
                "inside `with cutepy.simulate()`, or with cute.compile(..., options='--keep-ptx --dump-dir=DIR')"
            )
        program = _programs[function] = _HostProgram(function.ir_module, function.function_name, text)
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

    _C_TYPES: ClassVar[dict[str, Any]] = {"ptr": ctypes.c_void_p, "i32": ctypes.c_int32, "i64": ctypes.c_int64}

    def __init__(self, module: Any, entry: str, ptx: str) -> None:  # noqa: ANN401
        self._ptx = ptx
        self._backend: Backend | None = None
        self._failure: BaseException | None = None
        self._names: dict[int, str] = {}
        engine = require("cutlass._mlir.execution_engine").ExecutionEngine(module, opt_level=2, shared_libs=[])
        self._engine = engine
        self._callbacks = []
        for name, signature in _undefined_functions(module):
            handler = getattr(self, name, None)
            types = [self._C_TYPES[t] for t in signature]
            callback = ctypes.CFUNCTYPE(ctypes.c_int32, *types)(self._guard(name, handler))
            self._callbacks.append(callback)
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
                self._check(error.value)

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
        self._backend = backend
        try:
            self._entry(packed)
        finally:
            self._backend = None
        self._check(result.value)
        return 0

    def _check(self, code: int) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        if code:
            raise RuntimeError(f"the host code of a compiled function returned CUDA error {code}")

    def _guard(self, name: str, handler: Callable[..., int] | None) -> Callable[..., int]:
        def serve(*args: Any) -> int:  # noqa: ANN401
            try:
                if handler is None:
                    raise NotImplementedError(f"the host code calls {name}, which the simulator does not serve")
                return handler(*args)
            except BaseException as error:  # crosses C frames, so it is kept and raised again by _check
                self._failure = self._failure or error
                return _LAUNCH_FAILED

        return serve

    # The functions of the DSL's runtime, by its names for them.

    def _cudaLibraryLoadData(self, library: int, *_: object) -> int:
        ctypes.c_uint64.from_address(library).value = 1
        return 0

    def _cudaLibraryGetKernel(self, kernel: int, library: int, name: int) -> int:
        handle = 0x1000 + 16 * len(self._names)
        self._names[handle] = ctypes.string_at(name).decode()
        ctypes.c_uint64.from_address(kernel).value = handle
        return 0

    def _cudaDeviceGetAttribute(self, value: int, attribute: int, device: int) -> int:
        if attribute not in _DEVICE_ATTRIBUTES:
            raise NotImplementedError(f"the host code asks for device attribute {attribute}, which is not served")
        ctypes.c_int32.from_address(value).value = _DEVICE_ATTRIBUTES[attribute]
        return 0

    def _cudaGetDevice(self, device: int) -> int:
        ctypes.c_int32.from_address(device).value = 0
        return 0

    def _cudaKernelSetAttributeForDevice(self, *_: object) -> int:
        return 0

    def _cuKernelGetAttribute(self, value: int, *_: object) -> int:
        # Asked for the static shared memory, to which the host code adds the dynamic; the simulator checks their sum.
        ctypes.c_int32.from_address(value).value = 0
        return 0

    def _cudaFuncSetAttribute(self, *_: object) -> int:
        return 0

    def _cudaOccupancyMaxActiveBlocksPerMultiprocessor(self, blocks: int, *_: object) -> int:
        ctypes.c_int32.from_address(blocks).value = 1
        return 0

    def _cudaLaunchKernel(
        self, kernel: int, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, params: int, smem: int, stream: int
    ) -> int:
        return self._launch(kernel, (gx, gy, gz), (bx, by, bz), smem, stream, {}, params)

    def _cudaLaunchKernelEx(self, config: int, kernel: int, params: int) -> int:
        extents = (ctypes.c_int32 * 6).from_address(config)
        smem = ctypes.c_int64.from_address(config + 24).value
        stream = ctypes.c_uint64.from_address(config + 32).value
        attributes = ctypes.c_uint64.from_address(config + 40).value
        count = ctypes.c_int32.from_address(config + 48).value
        values = {}
        for index in range(count):
            address = attributes + _ATTRIBUTE_BYTES * index
            identity = ctypes.c_int32.from_address(address).value
            values[identity] = tuple((ctypes.c_int32 * 3).from_address(address + 8))
        x = tuple(extents)
        return self._launch(kernel, (x[0], x[1], x[2]), (x[3], x[4], x[5]), smem, stream, values, params)

    def _launch(
        self,
        kernel: int,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        smem: int,
        stream: int | None,
        attributes: dict[int, tuple[int, ...]],
        params: int,
    ) -> int:
        assert self._backend is not None
        cx, cy, cz = attributes.get(_CLUSTER, (1, 1, 1))
        cooperative = bool(attributes.get(_COOPERATIVE, (0,))[0])
        name = self._names[kernel]
        self._backend.launch(
            LaunchRequest(name, self._ptx, grid, block, (cx, cy, cz), smem, cooperative, stream or 0, params or 0)
        )
        return 0


def _arity(module: Any, entry: str) -> int | None:  # noqa: ANN401
    """Count the arguments of a host function."""
    for operation in module.body.operations:
        if operation.name == "llvm.func" and operation.attributes["sym_name"].value == entry:
            return len(operation.regions[0].blocks[0].arguments)
    return None


def _address(argument: Any) -> Any:  # noqa: ANN401
    return argument.value if isinstance(argument, ctypes.c_void_p) else argument


def _undefined_functions(module: Any) -> list[tuple[str, list[str]]]:  # noqa: ANN401
    """List the functions without a body, with their argument types; C's variadic printf is the process's own."""
    found = []
    for operation in module.body.operations:
        if operation.name != "llvm.func" or len(operation.regions[0].blocks):
            continue
        name = operation.attributes["sym_name"].value
        signature = str(operation.attributes["function_type"])
        match = re.search(r"i32 \(([^.]*)\)>", signature)
        if name.startswith("_cu") and match:
            found.append((name, [part.strip() for part in match[1].split(",") if part.strip()]))
    return found
