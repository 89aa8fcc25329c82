"""CUDA functions of compiled host code, served in Python: launches go to a backend, other calls are answered.

Each function that the host code calls (`host_abi`) is answered as an H200 would, so that the real host code runs
without a driver.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from cutepy.runtime import devices
from cutepy.runtime.host_abi import FUNCTIONS
from cutepy.runtime.interrupts import Interrupts, interrupts_kept
from cutepy.runtime.tensor_maps import encode_tiled, replace_address

if TYPE_CHECKING:
    from cutepy.layouts.sm90 import SmemPlan

_CLUSTER, COOPERATIVE, _PROGRAMMATIC = 4, 2, 6
_EARLY_EVENTS = 7, 12
"""Attributes of a launch, `cudaLaunchAttributeID`."""
_ATTRIBUTE_BYTES = 72
INVALID_DEVICE, _LAUNCH_FAILED = 101, 719

_LOAD = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
_LOAD_TO_DEVICE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32)

RUNNING = threading.RLock()
"""Lock held while host code runs on a backend: a backend runs one kernel at a time."""


class Library:
    """Loaded module: its variables keep their values between launches, for as long as it lives.

    Attributes
    ----------
    memory : dict
        State that a backend keeps for the module.
    """

    def __init__(self) -> None:
        self.memory: dict[str, Any] = {}


@dataclass(frozen=True)
class LaunchRequest:
    """Kernel launch, as host code requested it.

    Attributes
    ----------
    kernel : str
        Name of the entry function.
    ptx : str
        The module that defines it.
    grid, block : (int, int, int)
        Extents.
    cluster : (int, int, int) or None
        Extents of a cluster; None where the launch has no such attribute.
    dynamic_smem_bytes : int
        Dynamic shared memory.
    cooperative : bool
        True if all CTAs must be resident at once.
    stream : int
        Handle of the stream.
    parameters : int
        Address of the array of pointers to parameters; valid during the call only.
    library : Library
        The module that was loaded.
    programmatic : bool
        True if it may begin before the kernel before it in its stream is over.
    early_events : tuple of int
        Handles of events that the launch itself records, before it is over.
    plan : SmemPlan or None
        By which the kernel shares memory, where that is known.
    """

    kernel: str
    ptx: str = field(repr=False)
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int] | None
    dynamic_smem_bytes: int
    cooperative: bool
    stream: int
    parameters: int = field(repr=False)
    library: Library = field(repr=False, compare=False)
    programmatic: bool = False
    early_events: tuple[int, ...] = ()
    plan: SmemPlan | None = field(default=None, repr=False)

    def parameter(self, index: int, size_bytes: int) -> bytes:
        """Copy the bytes of a parameter."""
        pointer = ctypes.c_void_p.from_address(self.parameters + 8 * index).value
        return ctypes.string_at(pointer or 0, size_bytes)


class Backend(Protocol):
    """Stand-in for the GPU; by default it has the default stream alone."""

    def launch(self, request: LaunchRequest) -> None:
        """Run a kernel; an exception ends the host function and reaches the caller."""

    def adopt(self, tensor: object) -> None:
        """Register a tensor that was passed to a compiled function."""

    def current_stream(self) -> int:
        """Return the handle of the stream for host code's environment: torch's current one."""
        return 0

    def capture_of(self, stream: int) -> int:
        """Return the id of the CUDA graph capture that a stream takes part in; 0 if there is none."""
        return 0

    def synchronise(self, stream: int | None) -> None:
        """Wait for the work of a stream, or of all."""


def launch_attributes(config: int) -> dict[int, tuple[int, ...]]:
    """Read the attributes of the `cudaLaunchConfig_t` at an address: number -> first three words."""
    first = ctypes.c_uint64.from_address(config + 40).value
    count = ctypes.c_int32.from_address(config + 48).value
    found = {}
    for address in range(first, first + _ATTRIBUTE_BYTES * count, _ATTRIBUTE_BYTES):
        number = ctypes.c_int32.from_address(address).value
        found[number] = tuple((ctypes.c_int32 * 3).from_address(address + 8))
    return found


def cluster_of(attributes: Mapping[int, tuple[int, ...]]) -> tuple[int, int, int] | None:
    """Return the extents of a cluster from a launch's attributes; None for a launch without clusters."""
    if _CLUSTER not in attributes:
        return None
    x, y, z = attributes[_CLUSTER]
    return x, y, z


def serve(calls: HostCalls, name: str, handler: Callable[..., int] | None, *arguments: Any) -> int:  # noqa: ANN401
    """Serve a call of host code: an exception can't cross C frames, so it is kept, and raised again by `check`."""
    try:
        return calls.answer(name, handler, arguments)
    except BaseException as error:
        calls.note(error)
        return _LAUNCH_FAILED


class HostCalls:
    """CUDA runtime of one compiled function, with the kernels of `ptx` and their shared-memory plan.

    An exception can't cross the host code's C frames: a served function notes it and returns an error, which the host
    code hands on or asserts on, and `check` raises it again. From then on no call does anything.
    """

    def __init__(self, ptx: str, plan: SmemPlan | None = None) -> None:
        self._ptx, self._plan = ptx, plan
        self._backend: Backend | None = None
        self._failure: BaseException | None = None
        self._interrupts = Interrupts(lambda number, frame: None)
        self._names: dict[int, str] = {}
        self._loaded = False
        self._library = Library()

    @property
    def module(self) -> tuple[Library, str]:
        """The module as it was last loaded, and its PTX."""
        return self._library, self._ptx

    def callbacks(self, names: Iterable[str]) -> dict[str, Any]:
        """Make a C function for each name; an unserved one fails by name when it is called."""
        made = {}
        for name in names:
            prototype = FUNCTIONS[name].prototype if name in FUNCTIONS else ctypes.CFUNCTYPE(ctypes.c_int32)
            made[name] = prototype(partial(serve, self, name, getattr(self, name, None)))
        return made

    @contextmanager
    def launching_on(self, backend: Backend) -> Iterator[None]:
        """Send the launches to a backend within the context."""
        previous, self._backend = self._backend, backend
        self._failure = None  # an interrupt may have replaced the exception that `check` would have raised
        try:
            with interrupts_kept(serve.__code__) as self._interrupts:
                yield
        finally:
            self._backend = previous

    def check(self, code: int) -> None:
        """Raise the exception of a served function, or of an error code."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        if code:
            raise RuntimeError(f"the host code of a compiled function returned CUDA error {code}")

    def answer(self, name: str, handler: Callable[..., int] | None, arguments: tuple[Any, ...]) -> int:
        """Serve one call; raise its handler's exception, or an interrupt that came since the last call."""
        self._interrupts.deliver()
        if self._failure is not None:
            return _LAUNCH_FAILED  # host code may run on to its end, but later calls do nothing
        if handler is None:
            raise NotImplementedError(f"the host code calls {name}, which the simulator does not serve")
        return handler(*arguments)

    def note(self, failure: BaseException) -> None:
        """Keep the first exception of host code's calls, for `check`."""
        self._failure = self._failure or failure

    # The functions of `host_abi`, by their names.

    def cuda_dialect_init_library_once(self, library: int, load: int, load_to_device: int, *_: object) -> int:
        """Load the kernels, which is done once."""
        if self._loaded:
            return 0
        code = int(_LOAD(load)(library) or _LOAD_TO_DEVICE(load_to_device)(library, 0))
        self._loaded = code == 0
        return code

    def cuda_dialect_unload_library_once(self, library: int) -> int:
        """Keep the kernels."""
        return 0

    def TVMFFIEnvGetStream(self, *_: object) -> int:
        """Return torch's current stream."""
        assert self._backend is not None
        return self._backend.current_stream()

    def _cudaLibraryLoadData(self, library: int, *_: object) -> int:
        self._library = Library()
        ctypes.c_uint64.from_address(library).value = 1
        return 0

    def _cudaLibraryGetKernel(self, kernel: int, library: int, name: int) -> int:
        handle = 0x1000 + 16 * len(self._names)
        self._names[handle] = ctypes.string_at(name).decode()
        ctypes.c_uint64.from_address(kernel).value = handle
        return 0

    def _cudaDeviceGetAttribute(self, value: int, attribute: int, device: int) -> int:
        if attribute not in devices.device().attributes:
            raise NotImplementedError(f"the host code asks for device attribute {attribute}, which is not served")
        ctypes.c_int32.from_address(value).value = devices.device().attributes[attribute]
        return INVALID_DEVICE if device else 0

    def _cudaGetDevice(self, device: int) -> int:
        ctypes.c_int32.from_address(device).value = 0
        return 0

    def _cudaSetDevice(self, device: int) -> int:
        return INVALID_DEVICE if device else 0

    def _cudaKernelSetAttributeForDevice(self, *_: object) -> int:
        return 0

    def _cuKernelGetAttribute(self, value: int, *_: object) -> int:
        # The caller asks for the static shared memory, to which host code adds the dynamic; the simulator checks their
        # sum.
        ctypes.c_int32.from_address(value).value = 0
        return 0

    def _cudaFuncSetAttribute(self, *_: object) -> int:
        return 0

    def _cudaOccupancyMaxActiveBlocksPerMultiprocessor(self, blocks: int, *_: object) -> int:
        ctypes.c_int32.from_address(blocks).value = 1
        return 0

    def _cudaGetDeviceCount(self, count: int) -> int:
        ctypes.c_int32.from_address(count).value = 1
        return 0

    def _cuDeviceGet(self, device: int, ordinal: int) -> int:
        ctypes.c_int32.from_address(device).value = ordinal
        return INVALID_DEVICE if ordinal else 0

    def _cudaDeviceSynchronize(self) -> int:
        assert self._backend is not None
        self._backend.synchronise(None)
        return 0

    def _cudaStreamSynchronize(self, stream: int | None) -> int:
        assert self._backend is not None
        self._backend.synchronise(stream or 0)
        return 0

    def _cuTensorMapEncodeTiled(
        self,
        target: int,
        dtype: int,
        rank: int,
        address: int,
        dims: int,
        strides: int,
        box: int,
        steps: int,
        *modes: int,
    ) -> int:
        encode_tiled(target, dtype, rank, address, dims, strides, box, steps, modes)
        return 0

    def _cuTensorMapReplaceAddress(self, target: int, address: int) -> int:
        replace_address(target, address)
        return 0

    def _assert_success(self, code: int) -> int:
        # The DSL's own function ends the process; here failures are exceptions, and this one was noted before.
        if code:
            raise RuntimeError(f"the host code asserts that a call of CUDA succeeds, and it returned error {code}")
        return 0

    cuda_dialect_assert_success = cuda_dialect_print_on_error = _assert_success

    def _cudaLaunchKernel(
        self, kernel: int, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, params: int, smem: int, stream: int
    ) -> int:
        return self._launch(kernel, (gx, gy, gz), (bx, by, bz), smem, stream, {}, params)

    def _cudaLaunchKernelEx(self, config: int, kernel: int, params: int) -> int:
        x = tuple((ctypes.c_int32 * 6).from_address(config))
        smem = ctypes.c_int64.from_address(config + 24).value
        stream = ctypes.c_uint64.from_address(config + 32).value
        attributes = launch_attributes(config)
        return self._launch(kernel, (x[0], x[1], x[2]), (x[3], x[4], x[5]), smem, stream, attributes, params)

    def _launched(self, kernel: int) -> tuple[str, str, Library]:
        """Return the name of a launched kernel, the PTX that has it, and its library."""
        return self._names[kernel], self._ptx, self._library

    def _launch(
        self,
        kernel: int,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        smem: int,
        stream: int | None,
        attributes: Mapping[int, tuple[int, ...]],
        params: int,
    ) -> int:
        name, ptx, library = self._launched(kernel)
        assert self._backend is not None
        cooperative, programmatic = (bool(attributes.get(x, (0,))[0]) for x in (COOPERATIVE, _PROGRAMMATIC))
        given = (attributes[x] for x in _EARLY_EVENTS if x in attributes)
        events = tuple(low & 0xFFFFFFFF | (high & 0xFFFFFFFF) << 32 for low, high, *_ in given)
        self._backend.launch(
            LaunchRequest(
                name,
                ptx,
                grid,
                block,
                cluster_of(attributes),
                smem,
                cooperative,
                stream or 0,
                params or 0,
                library,
                programmatic,
                events,
                self._plan,
            )
        )
        return 0
