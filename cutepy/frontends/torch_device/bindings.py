"""`cuda.bindings.driver` and `cuda.bindings.runtime`: the calls that scripts use, and refusals by name for the rest."""

from __future__ import annotations

import ctypes
import importlib
import inspect
import re
from collections.abc import Callable
from functools import wraps
from typing import Any

from cutepy.frontends.backend import tell
from cutepy.frontends.kernel_handles import INVALID_VALUE, HandleError
from cutepy.frontends.stream_state import LEGACY, CaptureError, captures, handle_of, issue
from cutepy.frontends.torch_device import questions, streams
from cutepy.frontends.torch_device.errors import NotServedError, not_served
from cutepy.frontends.torch_device.graphs import Graph
from cutepy.frontends.torch_device.storage import allocations
from cutepy.frontends.torch_device.touches import touched
from cutepy.runtime import devices
from cutepy.runtime.host_calls import INVALID_DEVICE
from cutepy.sim.machine.events import StreamEvent

_Pair = tuple[Any, Any]


class _Api:
    """One of the two modules: calls return (error code, values...)."""

    def __init__(
        self,
        module: Any,  # noqa: ANN401
        codes: tuple[Any, Any, Any],
        capturing: _Pair,
        event: Any,  # noqa: ANN401
        stream: Any,  # noqa: ANN401
        update_info: Any,  # noqa: ANN401
    ) -> None:
        self._module, self._capturing = module, capturing
        self._success, self._not_ready, self._update_failed = codes
        self._update_info = update_info
        self._event, self._stream = event, stream
        self._events: dict[int, streams.Event] = {}
        self._memory: dict[int, Any] = {}

    def ok(self, *values: Any) -> tuple[Any, ...]:  # noqa: ANN401
        return (self._success, *values)

    def nothing(self, *_: object, **__: object) -> tuple[Any, ...]:
        return self.ok()

    def attribute(self, attribute: Any, device: object = 0) -> tuple[Any, ...]:  # noqa: ANN401
        if int(attribute) not in devices.device().attributes:
            raise HandleError(INVALID_VALUE)  # as the driver says to a number that it does not know
        return self.ok(devices.device().attributes[int(attribute)])

    # Streams and events.

    def create_stream(self, flags: object, *_: object) -> tuple[Any, ...]:
        made = streams.Stream(blocking=not int(flags))  # type: ignore[call-overload]
        return self.ok(self._stream(made.cuda_stream))

    def create_blocking_stream(self) -> tuple[Any, ...]:
        return self.create_stream(0)

    def create_event(self, *_: object) -> tuple[Any, ...]:
        event = streams.Event(enable_timing=True)  # CUDA's own events have times by default
        self._events[event.cuda_event] = event
        return self.ok(self._event(event.cuda_event))

    def record_event(self, event: Any, stream: Any = 0, *_: object) -> tuple[Any, ...]:  # noqa: ANN401
        self._events[int(event)].record(streams.ExternalStream(handle_of(stream)))
        return self.ok()

    def wait_event(self, stream: Any, event: Any, *_: object) -> tuple[Any, ...]:  # noqa: ANN401
        streams.polled.let_wait(handle_of(stream), int(event))
        return self.ok()

    def synchronize(self, *_: object) -> tuple[Any, ...]:
        streams.polled.wait_for_all()
        return self.ok()

    def synchronize_stream(self, stream: Any) -> tuple[Any, ...]:  # noqa: ANN401
        streams.polled.wait_for_stream(handle_of(stream))
        return self.ok()

    def query_stream(self, stream: Any) -> tuple[Any, ...]:  # noqa: ANN401
        return self.ok() if streams.polled.is_stream_over(handle_of(stream)) else (self._not_ready,)

    def synchronize_event(self, event: Any) -> tuple[Any, ...]:  # noqa: ANN401
        streams.polled.wait_for_event(int(event))
        return self.ok()

    def query_event(self, event: Any) -> tuple[Any, ...]:  # noqa: ANN401
        return self.ok() if streams.polled.is_event_over(int(event)) else (self._not_ready,)

    def destroy_event(self, event: Any) -> tuple[Any, ...]:  # noqa: ANN401
        self._events.pop(int(event), None)
        return self.ok()

    def elapsed_ms(self, start: Any, end: Any) -> tuple[Any, ...]:  # noqa: ANN401
        return self.ok(self._events[int(start)].elapsed_time(self._events[int(end)]))

    # Memory.

    def allocate(self, size_bytes: int, *_: object) -> tuple[Any, ...]:
        import torch

        block = torch.empty(max(size_bytes, 1), dtype=torch.uint8, device="cuda")
        allocations.keep(block.data_ptr())  # not torch's to give away
        self._memory[block.data_ptr()] = block
        wrap = getattr(self._module, "CUdeviceptr", int)
        return self.ok(wrap(block.data_ptr()))

    def free(self, pointer: Any, *_: object) -> tuple[Any, ...]:  # noqa: ANN401
        del self._memory[int(pointer)]
        return self.ok()

    def copy(self, waits: bool) -> Callable[..., tuple[Any, ...]]:
        """Return the copy function; the synchronous forms go to stream 0, and the host waits."""

        def copy(to: Any, source: Any, size_bytes: int, *more: Any) -> tuple[Any, ...]:  # noqa: ANN401
            target, start = _address(to), _address(source)

            def work(stream: int) -> None:
                ctypes.memmove(target, start, size_bytes)
                touched("memcpy", start, size_bytes, stream, writes=False)
                touched("memcpy", target, size_bytes, stream, writes=True)

            issue(LEGACY if waits or not more else handle_of(more[-1]), work)
            if waits:
                tell(StreamEvent("synchronise", LEGACY))
            return self.ok()

        return copy

    def fill(self, width: int, waits: bool = True) -> Callable[..., tuple[Any, ...]]:
        def fill(to: Any, value: int, count: int, *more: Any) -> tuple[Any, ...]:  # noqa: ANN401
            address, size = int(to), width * count
            if not any(start <= address and address + size <= start + n for start, n in allocations.ranges()):
                raise NotServedError(f"memset of {size} bytes at {address:#x}, which is no memory of the cuda device")

            def work(stream: int) -> None:
                ctypes.memmove(address, (value & (1 << 8 * width) - 1).to_bytes(width, "little") * count, size)
                touched("memset", address, size, stream, writes=True)

            issue(LEGACY if waits or not more else handle_of(more[-1]), work)
            return self.ok()

        return fill

    # Graphs.

    def begin_capture(self, stream: Any, *_: object) -> tuple[Any, ...]:  # noqa: ANN401
        captures.begin(handle_of(stream))
        return self.ok()

    def end_capture(self, stream: Any) -> tuple[Any, ...]:  # noqa: ANN401
        return self.ok(Graph.of(captures.end(handle_of(stream))))

    def is_capturing(self, stream: Any) -> tuple[Any, ...]:  # noqa: ANN401
        return self.ok(self._capturing[captures.of(handle_of(stream)) is not None])

    def graph_nodes(self, graph: Graph, *_: object) -> tuple[Any, ...]:
        return self.ok([], graph.nodes)

    def instantiate_graph(self, graph: Graph, *_: object) -> tuple[Any, ...]:
        return self.ok(graph.copy())

    def update_graph(self, graph: Graph, other: Graph, *_: object) -> tuple[Any, ...]:
        """Give an executable graph the work of another, of as many nodes: CUDA compares their kinds and edges too."""
        if graph.nodes != other.nodes:
            return self._update_failed, self._update_info()
        graph.updated_by(other)
        return self.ok(self._update_info())

    def launch_graph(self, graph: Graph, stream: Any = None, *_: object) -> tuple[Any, ...]:  # noqa: ANN401
        graph.launch(handle_of(stream))
        return self.ok()


def _address(pointer: Any) -> int:  # noqa: ANN401
    if hasattr(pointer, "__array_interface__"):
        return int(pointer.__array_interface__["data"][0])
    if isinstance(pointer, ctypes.Array):
        return ctypes.addressof(pointer)
    return int(pointer)


def _of_both(api: _Api, prefix: str) -> dict[str, Any]:
    """Return the functions that the driver and the runtime have under names that differ in their prefix only."""
    served: dict[str, Any] = {
        "DriverGetVersion": lambda: api.ok(devices.DRIVER_VERSION),
        "DeviceGetAttribute": api.attribute,
        "StreamCreateWithPriority": api.create_stream,
        "StreamBeginCapture": api.begin_capture,
        "StreamEndCapture": api.end_capture,
        "StreamIsCapturing": api.is_capturing,
        "GraphGetNodes": api.graph_nodes,
        "GraphInstantiate": api.instantiate_graph,
        "GraphInstantiateWithParams": api.instantiate_graph,
        "GraphExecUpdate": api.update_graph,
        "GraphLaunch": api.launch_graph,
        "EventCreate": api.create_event,
        "EventRecord": api.record_event,
        "EventRecordWithFlags": api.record_event,
        "StreamWaitEvent": api.wait_event,
        "StreamSynchronize": api.synchronize_stream,
        "EventSynchronize": api.synchronize_event,
        "StreamQuery": api.query_stream,
        "EventQuery": api.query_event,
        "EventElapsedTime": api.elapsed_ms,
        "EventDestroy": api.destroy_event,
        "MemGetInfo": lambda: api.ok(*allocations.free_and_total()),
        "GetErrorName": lambda error: api.ok(error.name.encode()),
        "GetErrorString": lambda error: api.ok(error.name.encode()),
    }
    return {prefix + name: function for name, function in served.items()}


def _driver(module: Any) -> dict[str, Any]:  # noqa: ANN401
    status = module.CUstreamCaptureStatus
    capturing = status.CU_STREAM_CAPTURE_STATUS_NONE, status.CU_STREAM_CAPTURE_STATUS_ACTIVE
    codes = (
        module.CUresult.CUDA_SUCCESS,
        module.CUresult.CUDA_ERROR_NOT_READY,
        module.CUresult.CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
    )
    api = _Api(module, codes, capturing, module.CUevent, module.CUstream, module.CUgraphExecUpdateResultInfo)
    context, device = module.CUcontext(1), module.CUdevice(0)
    served = _of_both(api, "cu") | {
        "cuDeviceGetCount": lambda: api.ok(1),
        "cuDeviceGet": lambda ordinal: api.ok(device),
        "cuDeviceGetName": lambda length, device: api.ok(devices.device().name.encode().ljust(length, b"\0")),
        "cuDeviceTotalMem": lambda device: api.ok(devices.device().total_bytes),
        "cuCtxGetCurrent": lambda: api.ok(context),
        "cuCtxGetDevice": lambda: api.ok(device),
        "cuCtxCreate": lambda *_: api.ok(context),
        "cuCtxGetStreamPriorityRange": lambda: api.ok(0, -5),
        "cuDevicePrimaryCtxRetain": lambda device: api.ok(context),
        "cuStreamCreate": api.create_stream,
        "cuCtxSynchronize": api.synchronize,
    }
    served |= questions.of_driver(module, api.ok)
    nothing = (
        "cuInit", "cuCtxSetCurrent", "cuCtxDestroy", "cuDevicePrimaryCtxRelease",
        "cuStreamDestroy", "cuGraphDestroy", "cuGraphExecDestroy", "cuGraphUpload",
    )  # fmt: skip
    served |= dict.fromkeys(nothing, api.nothing)
    for ending in ("", "Async"):
        served[f"cuMemAlloc{ending}"], served[f"cuMemFree{ending}"] = api.allocate, api.free
        waits = not ending
        served |= {f"cuMemcpy{way}{ending}": api.copy(waits) for way in ("", "HtoD", "DtoH", "DtoD")}
        served |= {f"cuMemsetD{8 * width}{ending}": api.fill(width, waits) for width in (1, 2, 4)}
    return served


def _runtime(module: Any) -> dict[str, Any]:  # noqa: ANN401
    status = module.cudaStreamCaptureStatus
    capturing = status.cudaStreamCaptureStatusNone, status.cudaStreamCaptureStatusActive
    codes = (
        module.cudaError_t.cudaSuccess,
        module.cudaError_t.cudaErrorNotReady,
        module.cudaError_t.cudaErrorGraphExecUpdateFailure,
    )
    api = _Api(module, codes, capturing, module.cudaEvent_t, module.cudaStream_t, module.cudaGraphExecUpdateResultInfo)
    served = _of_both(api, "cuda") | {
        "cudaRuntimeGetVersion": lambda: api.ok(devices.DRIVER_VERSION),
        "cudaGetDeviceCount": lambda: api.ok(1),
        "cudaGetDevice": lambda: api.ok(0),
        "cudaStreamCreate": api.create_blocking_stream,
        "cudaStreamCreateWithFlags": api.create_stream,
        "cudaDeviceGetStreamPriorityRange": lambda: api.ok(0, -5),
        "cudaGraphInstantiateWithFlags": api.instantiate_graph,
        "cudaEventCreateWithFlags": api.create_event,
        "cudaDeviceSynchronize": api.synchronize,
        "cudaMalloc": api.allocate,
        "cudaMallocAsync": api.allocate,
        "cudaFree": api.free,
        "cudaFreeAsync": api.free,
        "cudaMemcpy": api.copy(True),
        "cudaMemcpyAsync": api.copy(False),
        "cudaMemset": api.fill(1),
        "cudaMemsetAsync": api.fill(1, False),
    }
    served |= questions.of_runtime(module, api.ok)
    nothing = (
        "cudaSetDevice", "cudaStreamDestroy", "cudaGetLastError",
        "cudaPeekAtLastError",
        "cudaProfilerStart", "cudaProfilerStop", "cudaGraphDestroy", "cudaGraphExecDestroy", "cudaGraphUpload",
    )  # fmt: skip
    return served | dict.fromkeys(nothing, api.nothing)


_LOADS = re.compile("(?:cuda|cu)(?:Module|Library)Load.*|cuLaunch.*|cudaLaunch.*")
_INSTEAD_OF_LOADING = "load PTX and launch its kernels by cutepy.load_ptx"
_INSTEAD = "use what simulates (docs: The simulator)"
_MODULES = (
    ("cuda.bindings.driver", "cu", "CUresult", _driver),
    ("cuda.bindings.runtime", "cuda", "cudaError_t", _runtime),
)


_OF_DEVICES = frozenset("ordinal dev peerDev device peerDevice".split())
"""Parameters that are a device's number."""


def _refusing(
    call: Callable[..., tuple[Any, ...]],
    codes: Any,  # noqa: ANN401
    original: Callable[..., Any],
) -> Callable[..., tuple[Any, ...]]:
    """Return a call that gives the error's code where CUDA would refuse: a capture, a wrong handle or device."""
    signature, values = inspect.signature(original), [None] * (getattr(call, "__func__", None) is not _Api.nothing)
    takes_device = not _OF_DEVICES.isdisjoint(signature.parameters)

    @wraps(call)
    def checked(*args: Any, **kwargs: Any) -> tuple[Any, ...]:  # noqa: ANN401
        try:
            if takes_device:
                named = signature.bind_partial(*args, **kwargs).arguments
                if any(int(value) for name, value in named.items() if name in _OF_DEVICES):
                    raise HandleError(INVALID_DEVICE)
            return call(*args, **kwargs)
        except (CaptureError, HandleError) as error:
            return (codes(error.code), *values)

    return checked


def serve(put: Callable[[Any, str, Any], None]) -> None:
    """Replace the functions of both modules, through `put(owner, name, value)`."""
    for name, prefix, codes_name, make in _MODULES:
        module = importlib.import_module(name)
        served, codes = make(module), getattr(module, codes_name)
        for attribute in dir(module):
            value = getattr(module, attribute)
            if attribute in served:
                put(module, attribute, _refusing(served[attribute], codes, value))
            elif (
                attribute.startswith(prefix)
                and attribute[len(prefix) : len(prefix) + 1].isupper()
                and callable(value)
                and not isinstance(value, type)
            ):
                instead = _INSTEAD_OF_LOADING if _LOADS.fullmatch(attribute) else _INSTEAD
                put(module, attribute, not_served(f"{name}.{attribute}", instead))
