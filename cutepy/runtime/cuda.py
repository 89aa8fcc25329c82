"""Programs on the GPU: CUDA under the names of compiled host code, and loaded kernels.

Compiled host code calls the driver directly; only a few instructions of a stub, which ask whether the stream is being
captured, lie between. Python code does what happens once, such as loading the kernels and raising their limit of shared
memory, and it launches into captures.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from functools import cache
from typing import Any

from cutepy.runtime.captured_launches import PROTOTYPE, UNKNOWN_ERROR, CapturedLaunches, launch_code
from cutepy.runtime.execution import EXECUTION
from cutepy.runtime.host_abi import FUNCTIONS, MINIMUM_DRIVER, address_of, cuda_error_setters, error_setters
from cutepy.runtime.host_code import load_host
from cutepy.runtime.objects import executable
from cutepy.runtime.program import Program
from cutepy.runtime.ptx_text import version_of

_P, _I = ctypes.c_void_p, ctypes.c_int32
# x86-64 code. Kernels are loaded before the first call, so the check in each call returns at once: xor eax, eax; ret.
_RETURN_0 = b"\x31\xc0\xc3"
_KEPT: list[Any] = []
"""Functions that machine code jumps to, which lives as long as the process."""


class CudaError(RuntimeError):
    """Error of a CUDA call."""


@cache
def driver() -> ctypes.CDLL:
    """Open CUDA's driver.

    Raises
    ------
    CudaError
        If this machine has none, or one for a CUDA before 12.0.
    """
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise CudaError(
            "a compiled function needs a GPU and its driver (libcuda.so.1), which this machine lacks; "
            "run it on the CPU within `with cutepy.simulate():`"
        ) from error
    if (version := _version(library)) < MINIMUM_DRIVER:
        raise CudaError(
            f"a compiled function needs a driver for CUDA {MINIMUM_DRIVER[0]}.{MINIMUM_DRIVER[1]} or newer, and this "
            f"machine's is for CUDA {version[0]}.{version[1]}; update NVIDIA's driver"
        )
    return library


def _version(library: ctypes.CDLL) -> tuple[int, int]:
    """Return the CUDA version of a driver."""
    version = ctypes.c_int()
    library.cuDriverGetVersion(ctypes.byref(version))
    return version.value // 1000, version.value % 1000 // 10


@cache
def runtime() -> ctypes.CDLL:
    """Open CUDA's runtime: the one that torch has loaded, since each runtime has its own current device."""
    with open("/proc/self/maps") as maps:  # noqa: PTH123
        loaded = {line.split(None, 5)[-1].strip() for line in maps if "libcudart" in line}
    for path in [*sorted(loaded), "libcudart.so.13", "libcudart.so.12"]:
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    raise CudaError("CUDA's runtime (libcudart.so) must be loaded, and was not found; import torch first")


def check(code: int, what: str) -> None:
    """Raise if a call of the driver failed."""
    if code:
        raise CudaError(f"{what} failed with CUDA error {code} ({error_name(code)})")


def capture_of(stream: int) -> int:
    """Return the id of the CUDA graph capture that a stream takes part in; 0 if none."""
    if EXECUTION.backend is not None:
        return EXECUTION.backend.capture_of(stream)
    status, number = ctypes.c_int(), ctypes.c_uint64()
    rest = (None, None, None)  # the graph, and the dependencies of the next node
    code = driver().cuStreamGetCaptureInfo_v2(_P(stream), ctypes.byref(status), ctypes.byref(number), *rest)
    check(code, "cuStreamGetCaptureInfo")
    return number.value if status.value else 0


def _captured_dependencies(stream: int) -> tuple[int, frozenset[int]]:
    """Return the id of the capture that a stream takes part in, and the nodes that its next node will follow.

    None with a driver that can't tell: launches into its captures are plain.
    """
    library, status, number = driver(), ctypes.c_int(), ctypes.c_uint64()
    if not hasattr(library, "cuStreamGetCaptureInfo_v3"):  # before CUDA 12.3; v2 refuses edges that are programmatic
        return 0, frozenset()
    nodes, edges, count = ctypes.POINTER(_P)(), _P(), ctypes.c_size_t()
    rest = map(ctypes.byref, (nodes, edges, count))
    code = library.cuStreamGetCaptureInfo_v3(_P(stream), ctypes.byref(status), ctypes.byref(number), None, *rest)
    check(code, "cuStreamGetCaptureInfo")
    return number.value, frozenset(nodes[index] or 0 for index in range(count.value))


def error_name(code: int) -> str:
    """Return CUDA's name and description of an error."""
    texts = []
    for function in ("cuGetErrorName", "cuGetErrorString"):
        text = ctypes.c_char_p()
        getattr(driver(), function)(code, ctypes.byref(text))
        texts.append(text.value.decode() if text.value else "unknown")
    return ": ".join(texts)


def describe(code: int) -> str:
    """Describe an error of a launch: by CUDA's name, or by the call that failed if that was not CUDA."""
    failure = _captured_launches().failure if code == UNKNOWN_ERROR else None
    told = "" if failure is None else f"; launching into a capture failed with {type(failure).__name__}: {failure}"
    return f"CUDA error {code} ({error_name(code)}){told}"


@cache
def _captured_launches() -> CapturedLaunches:
    launch = driver().cuLaunchKernelEx
    launch.argtypes = (_P, _P, _P, _P)
    return CapturedLaunches(launch, _captured_dependencies)


@cache
def _stubs() -> dict[str, int]:
    """Write the machine code above to memory; return the address of each piece."""
    captured = PROTOTYPE(_captured_launches().launch)
    _KEPT.append(captured)
    addresses = map(address_of, (driver().cuStreamIsCapturing, driver().cuLaunchKernelEx, captured))
    code = {"_cudaLaunchKernelEx": launch_code(*addresses), "cuda_dialect_init_library_once": _RETURN_0}
    return {name: executable(piece) for name, piece in code.items()}


@cache
def _callbacks() -> dict[str, Any]:
    """Make the rarely called functions: those that raise errors, and those with other arguments in the driver."""
    # kernels stay loaded: they may be running when the process ends
    unload = FUNCTIONS["cuda_dialect_unload_library_once"].prototype(lambda _: None)
    made = {"cuda_dialect_unload_library_once": unload}
    for name, function in FUNCTIONS.items():
        if function.passes and name not in _stubs() and hasattr(driver(), function.driver):
            made[name] = function.prototype(function.adapted(address_of(getattr(driver(), function.driver))))
    names = ("TVMFFIErrorSetRaisedFromCStr", "TVMFFIErrorSetRaisedFromCStrParts")
    made |= error_setters(*(FUNCTIONS[name].prototype(address_of(getattr(_tvm_ffi(), name))) for name in names))
    return {**made, **cuda_error_setters(describe)}


def _symbol(name: str) -> int:
    """Return the address of a symbol that host code calls."""
    if name in _stubs():
        return _stubs()[name]
    if name in _callbacks():
        return address_of(_callbacks()[name])
    if name.startswith("TVMFFI"):
        return address_of(getattr(_tvm_ffi(), name))
    function = FUNCTIONS.get(name)
    if function is None or not (function.driver or function.runtime):
        raise CudaError(f"the host code calls {name}, which cutepy does not serve; call the @cute.jit function itself")
    real = function.runtime or function.driver
    library = runtime() if function.runtime else driver()
    if not hasattr(library, real):
        raise CudaError(f"the host code calls {name}, and this machine's CUDA has no {real}")
    return address_of(getattr(library, real))


def _ages(ptx: str) -> str:
    """Describe the versions of kernels that a driver did not load, and of the driver: it may be too old."""
    isa, (major, minor) = version_of(ptx), _version(driver())
    made = isa[0] + 4
    advice = f"; update it to one for CUDA {made}.0 or newer" if major < made else ""
    return f"; CUDA {made} made them (PTX ISA {isa[0]}.{isa[1]}), and the driver is for CUDA {major}.{minor}{advice}"


@cache
def _tvm_ffi() -> ctypes.CDLL:
    import tvm_ffi.libinfo

    return ctypes.CDLL(tvm_ffi.libinfo.find_libtvm_ffi())


class CudaProgram:
    """Program loaded for this process's GPUs.

    Attributes
    ----------
    function : tvm_ffi.Function
        Calls the program's entry: torch tensors on a GPU, numbers and None; launches on torch's current stream.
    devices : set of int
        Those on which the kernels are ready to be launched.
    """

    def __init__(self, program: Program, device: int) -> None:
        import tvm_ffi

        self._object = load_host(program.object, _symbol)
        self._library = ctypes.c_void_p()
        self._load = self._object.addresses.get("cuda_load_to_device")  # None for host code without kernels
        if self._load is not None:
            init = ctypes.CFUNCTYPE(_I, _P)(self._object.addresses["cuda_init"])
            if code := init(ctypes.addressof(self._library)):
                failure = f"loading the kernels failed with CUDA error {code} ({error_name(code)})"
                raise CudaError(failure + _ages(program.ptx))
        self.devices: set[int] = set()
        self.make_ready(device)
        entry = self._object.addresses[program.entry]
        self.function = tvm_ffi.Function.__from_extern_c__(entry, keep_alive_object=self)

    def make_ready(self, device: int) -> bool:
        """Prepare a device and this thread for launches; return whether anything was missing.

        The kernels' limits of shared memory and cluster size are raised once for each device. A thread that has not
        called CUDA's runtime yet has no current context, which the driver asks for.
        """
        context = ctypes.c_void_p()
        check(driver().cuCtxGetCurrent(ctypes.byref(context)), "asking for the context")
        lacking = context.value is None
        if lacking:
            check(runtime().cudaSetDevice(device), f"making device {device} current")
        if device not in self.devices:
            load = ctypes.CFUNCTYPE(_I, _P, _I)(self._load) if self._load is not None else lambda _, index: 0
            check(load(ctypes.addressof(self._library), device), f"loading the kernels on device {device}")
            self.devices.add(device)
            lacking = True
        return lacking
