"""`torch.cuda` on the simulated device: the served functions, and refusals by name for the rest."""

from __future__ import annotations

import importlib
import inspect
from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
import torch.accelerator
import torch.backends.cuda
import torch.backends.cudnn
import torch.cuda.nvtx
import torch.cuda.profiler
import torch.utils._device

from cutepy.frontends import stream_state
from cutepy.frontends.torch_device import graphs, streams, tensor_types
from cutepy.frontends.torch_device.devices import index_of, require_device
from cutepy.frontends.torch_device.errors import NotServedError, not_served
from cutepy.frontends.torch_device.storage import allocations, record_stream, storages_made_by
from cutepy.runtime import devices


def _nothing(*_: object, **__: object) -> None:
    """Do nothing: nothing is pending, cached or to be seeded apart from the CPU's generator."""


def _set_device(device: object) -> None:
    index_of(device)


class _Device:
    """Result of `torch.cuda.device` and `torch.cuda.device_of`: a choice among one."""

    def __init__(self, device: Any = None) -> None:  # noqa: ANN401
        self.idx = 0 if isinstance(device, torch.Tensor) else index_of(device)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def _described(answer: Callable[[], Any]) -> Callable[..., Any]:
    """Return a function that describes a device, of which there is one."""

    def describe(device: object = None) -> Any:  # noqa: ANN401
        require_device(device)
        return answer()

    return describe


def _can_access_peer(device: object, peer_device: object) -> bool:
    require_device(device)
    require_device(peer_device)
    return False


def _of_device(answer: Callable[[], Any]) -> Callable[..., Any]:
    """Return a function of a device, of which there is one, that answers."""

    def of_device(device: object = None) -> Any:  # noqa: ANN401
        index_of(device)
        return answer()

    return of_device


def _memory_info(device: object = None) -> tuple[int, int]:
    index_of(device)
    return allocations.free_and_total()


def _memory_stats() -> dict[str, Any]:
    """Return the statistics of CUDA's caching allocator, as nested as torch has them: bytes are true, counts are 0."""
    none = {"current": 0, "peak": 0, "allocated": 0, "freed": 0}
    current, peak = allocations.size_bytes, allocations.peak_bytes
    used = {**none, "current": current, "peak": peak, "allocated": peak, "freed": peak - current}
    pools = {"all": used, "large_pool": used, "small_pool": none}
    unused = dict.fromkeys(("all", "large_pool", "small_pool"), none)
    return {
        **dict.fromkeys(("active_bytes", "allocated_bytes", "requested_bytes", "reserved_bytes"), pools),
        **dict.fromkeys(("active", "allocation", "inactive_split", "inactive_split_bytes", "segment"), unused),
        "oversize_allocations": none,
        "oversize_segments": none,
        **dict.fromkeys(("num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc"), 0),
        "num_device_free": 0,
        "max_split_size": -1,
    }


def _flat(stats: dict[str, Any], prefix: str = "") -> OrderedDict[str, int]:
    flat: OrderedDict[str, int] = OrderedDict()
    for name, value in sorted(stats.items()):
        flat.update(_flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value})
    return flat


class _Cudart:
    """The functions of CUDA's runtime that `torch.cuda.cudart()` has: profilers are off, all else is refused."""

    def cudaProfilerStart(self) -> int:
        """Begin no profile."""
        return 0

    def cudaProfilerStop(self) -> int:
        """End no profile."""
        return 0

    def cudaMemGetInfo(self, device: int = 0) -> tuple[int, int]:
        """Return the free and the total bytes."""
        return _memory_info(device)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        if name.startswith("__"):
            raise AttributeError(name)
        return not_served(f"torch.cuda.cudart().{name}")


def _check_error(res: int) -> None:
    if res:
        raise RuntimeError(f"CUDA error: {res}")


def _set_sync_debug_mode(debug_mode: int | str) -> None:
    if debug_mode not in (0, "default"):
        instead = "nobody warns of calls that wait for the device: leave the mode at 0"
        not_served(f"torch.cuda.set_sync_debug_mode({debug_mode!r})", instead)()


def _set_memory_fraction(fraction: float, device: object = None) -> None:
    index_of(device)
    if fraction != 1.0:
        instead = "its memory is the host's, of which no part is kept free: set the fraction to 1.0"
        not_served(f"torch.cuda.set_per_process_memory_fraction({fraction!r})", instead)()


def _seeded(seed: int) -> None:
    torch.default_generator.manual_seed(seed)


def _set_rng_state(new_state: torch.Tensor, device: object = None) -> None:
    index_of(device)
    torch.set_rng_state(new_state)


_SERVED: dict[str, Any] = {
    "_lazy_init": _nothing,
    "_lazy_call": _nothing,
    "_sleep": _nothing,
    "init": _nothing,
    "is_available": lambda: True,
    "is_initialized": lambda: True,
    "is_bf16_supported": lambda including_emulation=True: True,
    "is_tf32_supported": lambda: True,
    "is_current_stream_capturing": lambda: streams.current_stream().is_capturing(),
    "device_count": lambda: 1,
    "current_device": lambda: 0,
    "set_device": _set_device,
    "get_device_name": _described(lambda: devices.device().name),
    "get_device_capability": _described(lambda: devices.device().capability),
    "get_gencode_flags": torch.cuda.get_gencode_flags,
    "get_sync_debug_mode": lambda: 0,
    "clock_rate": _of_device(lambda: devices.device().clock_khz // 1000),
    # There is no chip that could be warm or busy: what is asked of one is answered as of one that is idle.
    **dict.fromkeys(("utilization", "memory_usage", "temperature", "power_draw"), _of_device(lambda: 0)),
    "check_error": _check_error,
    "set_sync_debug_mode": _set_sync_debug_mode,
    "set_per_process_memory_fraction": _set_memory_fraction,
    **dict.fromkeys(("host_memory_stats", "host_memory_stats_as_nested_dict"), OrderedDict),  # nothing is pinned
    **dict.fromkeys(
        ("reset_accumulated_host_memory_stats", "reset_peak_host_memory_stats", "reset_accumulated_memory_stats"),
        _nothing,
    ),
    "cudart": lambda: _Cudart(),
    "get_device_properties": _described(lambda: devices.device().properties),
    "get_arch_list": lambda: [devices.device().arch.rstrip("a"), devices.device().arch],
    "can_device_access_peer": _can_access_peer,
    "device": _Device,
    "device_of": _Device,
    "synchronize": streams.synchronize,
    "Stream": streams.Stream,
    "ExternalStream": streams.ExternalStream,
    "Event": streams.Event,
    "current_stream": streams.current_stream,
    "default_stream": streams.default_stream,
    "set_stream": streams.set_stream,
    "stream": streams.using,
    "get_stream_from_external": streams.ExternalStream,
    "graph_pool_handle": graphs.pool_handle,
    "make_graphed_callables": torch.cuda.graphs.make_graphed_callables,
    "empty_cache": allocations.release_freed,
    "ipc_collect": _nothing,
    "mem_get_info": _memory_info,
    "device_memory_used": _of_device(lambda: allocations.size_bytes),
    "get_allocator_backend": lambda: "native",
    "get_per_process_memory_fraction": _of_device(lambda: 1.0),
    "memory_stats": _of_device(lambda: _flat(_memory_stats())),
    "memory_stats_as_nested_dict": _of_device(lambda: _memory_stats()),
    "memory_summary": torch.cuda.memory.memory_summary,  # a text of the statistics
    **dict.fromkeys(
        ("memory_allocated", "memory_reserved", "memory_cached"), _of_device(lambda: allocations.size_bytes)
    ),
    **dict.fromkeys(
        ("max_memory_allocated", "max_memory_reserved", "max_memory_cached"),
        _of_device(lambda: allocations.peak_bytes),
    ),
    **dict.fromkeys(
        ("reset_peak_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached"),
        _of_device(allocations.reset_peak),
    ),
    "manual_seed": _seeded,
    "manual_seed_all": _seeded,
    "seed": torch.seed,
    "initial_seed": torch.initial_seed,
    "seed_all": torch.seed,
    "default_generators": (torch.default_generator,),
    "get_rng_state_all": lambda: [torch.get_rng_state()],
    "set_rng_state_all": lambda new_states: torch.set_rng_state(new_states[0]),
    "get_rng_state": _of_device(torch.get_rng_state),
    "set_rng_state": _set_rng_state,
}


# Modules of torch.cuda, with what they serve beside what torch.cuda does. Nobody sees the ranges of NVTX.
_PARTS: dict[str, dict[str, Any]] = {
    "graphs": {"make_graphed_callables": torch.cuda.graphs.make_graphed_callables},
    "memory": {},
    "nccl": {
        "is_available": lambda tensors: False,
        "version": torch.cuda.nccl.version if hasattr(torch._C, "_nccl_version") else _nothing,
    },
    "nvtx": {
        "mark": _nothing,
        "range": torch.cuda.nvtx.range,
        "range_end": _nothing,
        "range_pop": lambda: 0,
        "range_push": lambda msg: 0,
        "range_start": lambda msg: 0,
        "device_range_start": lambda msg, stream=0: 0,
        "device_range_end": _nothing,
    },
    "profiler": {"profile": torch.cuda.profiler.profile, "start": _nothing, "stop": _nothing},
    "random": {},
    "streams": {},
    "tunable": {
        "get_results": tuple,
        "get_validators": tuple,
        "is_enabled": lambda: False,
        "record_untuned_is_enabled": lambda: False,
        "tuning_is_enabled": lambda: False,
    },
}

_ACCELERATOR: dict[str, Any] = {
    **{
        name: _SERVED[name]
        for name in (
            "current_stream",
            "device_count",
            "empty_cache",
            "is_available",
            "max_memory_allocated",
            "max_memory_reserved",
            "memory_allocated",
            "memory_reserved",
            "memory_stats",
            "reset_accumulated_memory_stats",
            "reset_peak_memory_stats",
            "set_stream",
            "synchronize",
        )
    },
    "current_device_idx": lambda: 0,
    "current_device_index": lambda: 0,
    "device_index": _Device,
    "empty_host_cache": _nothing,
    "get_memory_info": _memory_info,
    "set_device_idx": _set_device,
    "set_device_index": _set_device,
}
"""Functions of `torch.accelerator`; some go by other names there than in `torch.cuda`."""

_OF_ANY_ACCELERATOR = ("current_accelerator",)
"""Functions of `torch.accelerator` that ask torch's hooks, which know of the served device."""

_WORKSPACE_SIZES = ("blas_workspace_size", "cublas_workspace_size", "cublaslt_workspace_size")

_OF_THE_ALLOCATOR = """_dump_snapshot _get_current_allocator _record_memory_history _save_memory_usage
    _save_segment_usage _snapshot""".split()
"""Functions that torch documents under private names: they read the state of CUDA's allocator."""

_MAY_BE_PINNED = """arange bartlett_window blackman_window empty empty_like empty_permuted empty_strided eye full
    full_like hamming_window hann_window kaiser_window linspace logspace normal ones ones_like rand rand_like randint
    randint_like randn randn_like randperm scalar_tensor tensor tril_indices triu_indices zeros zeros_like""".split()
_METHODS_MAY_BE_PINNED = "new_empty new_empty_strided new_full new_ones new_zeros".split()


def serve(put: Callable[[Any, str, Any], None]) -> None:
    """Replace the functions of `torch.cuda`, through `put(owner, name, value)`."""
    for name in (*torch.cuda.__all__, *_SERVED):
        if name in _SERVED:
            put(torch.cuda, name, _SERVED[name])
        elif name in tensor_types.NAMES:
            put(torch.cuda, name, tensor_types.of(name))
        elif callable(getattr(torch.cuda, name, None)) and not _is_kept(getattr(torch.cuda, name)):
            put(torch.cuda, name, not_served(f"torch.cuda.{name}"))
    for part in _PARTS:
        _serve_part(put, part)
    for module in filter(None, (torch.accelerator, getattr(torch.accelerator, "memory", None))):
        for name in module.__all__:
            if name in _ACCELERATOR:
                put(module, name, _ACCELERATOR[name])
            elif name not in _OF_ANY_ACCELERATOR and callable(getattr(module, name)):
                put(module, name, not_served(f"{module.__name__}.{name}"))
    tensor_types.serve(put)
    put(torch.version, "cuda", f"{devices.DRIVER_VERSION // 1000}.{devices.DRIVER_VERSION % 1000 // 10}")
    put(torch.backends.cuda, "is_built", lambda: True)
    put(torch._C, "_cuda_CUDAAllocator_AllocatorState", _AllocatorState)
    for name in (name for name in _OF_THE_ALLOCATOR if hasattr(torch.cuda.memory, name)):
        put(torch.cuda.memory, name, not_served(f"torch.cuda.memory.{name}"))
    for name in (name for name in _WORKSPACE_SIZES if hasattr(torch.backends.cuda, name)):
        put(torch.backends.cuda, name, not_served(f"torch.backends.cuda.{name}", "there is no cuBLAS: leave it out"))
    for module in (torch.cuda, torch.cuda.graphs):
        put(module, "graph", graphs.GraphCapture)
        put(module, "CUDAGraph", graphs.Graph)
    put(torch.UntypedStorage, "__new__", storages_made_by(torch.UntypedStorage.__new__))
    put(torch.backends.cudnn, "is_acceptable", lambda tensor: False)
    put(torch.Tensor, "record_stream", record_stream)
    put(torch.Tensor, "pin_memory", lambda tensor, device=None: tensor.clone())
    put(torch.Tensor, "is_pinned", lambda tensor, device=None: False)
    torch.utils._device._device_constructors()  # keeps the factories, to tell them by identity: not the wrapped ones
    for owner, names in ((torch, _MAY_BE_PINNED), (torch.Tensor, _METHODS_MAY_BE_PINNED)):
        for name in names:
            put(owner, name, _unpinned(getattr(owner, name)))
    put(torch, "Generator", _Generator)
    put(torch, "compile", _eager)
    run_backward = _backward(torch.autograd.graph._engine_run_backward)
    for module in (torch.autograd, torch.autograd.graph):
        put(module, "_engine_run_backward", run_backward)


def _serve_part(put: Callable[[Any, str, Any], None], part: str) -> None:
    """Replace the functions of a module of `torch.cuda`."""
    module = importlib.import_module(f"torch.cuda.{part}")
    for name, value in list(vars(module).items()):
        if name.startswith("_") or not (inspect.isfunction(value) or inspect.isclass(value)):
            continue
        served = _PARTS[part].get(name, _SERVED.get(name) if value.__module__.startswith("torch.cuda") else None)
        if served is not None:
            put(module, name, served)
        elif value.__module__ == module.__name__ and (inspect.isfunction(value) or name in torch.cuda.__all__):
            put(module, name, not_served(f"{module.__name__}.{name}"))


def _unpinned(factory: Callable[..., Any]) -> Callable[..., Any]:
    """Return a factory of tensors that takes `pin_memory` and pins nothing: all memory is the host's."""

    @wraps(factory)
    def make(*args: Any, pin_memory: bool | None = False, **kwargs: Any) -> Any:  # noqa: ANN401
        return factory(*args, **kwargs)

    return make


class _AllocatorState:
    """A type that torch's CUDA graph trees import where CUDA is built; a CPU build of torch has none, and no trees."""


class _AnyGenerator(type(torch._C.Generator)):  # type: ignore[misc]
    """Makes generators of torch's own class instances of the one that stands for it."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch._C.Generator)


class _Generator(torch._C.Generator, metaclass=_AnyGenerator):
    """Result of `torch.Generator`: the CPU's, for the device too."""

    def __new__(cls, device: Any = "cpu") -> _Generator:  # noqa: ANN401
        return super().__new__(cls, "cpu" if torch.device(device).type == "cuda" else device)  # type: ignore[call-arg]

    def __init__(self, device: Any = "cpu") -> None:  # noqa: ANN401
        self._device = torch.device(device)
        if self._device.type == "cuda":
            self._device = torch.device("cuda", index_of(self._device))

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The device that it was made for."""
        return self._device


def _is_kept(value: object) -> bool:
    """Return whether a name of torch.cuda is a type that needs no device: tensor types, errors."""
    return isinstance(value, type) and (issubclass(value, Exception) or value.__module__ == "torch.cuda")


def _eager(model: Any = None, **_: object) -> Any:  # noqa: ANN401
    """Return torch.compile's function itself: eager execution computes the same."""
    return (lambda function: function) if model is None else model


def _backward(original: Callable[..., Any]) -> Callable[..., Any]:
    """Run backward passes in the stream of their caller, whichever threads compute them.

    Torch's engine starts its threads once; where it did so without one for the device, say what to do.
    """

    def run(t_outputs: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        try:
            with stream_state.lending_to_engine():
                return original(t_outputs, *args, **kwargs)
        except RuntimeError as error:
            if "device_ready_queues_" not in str(error):
                raise
            raise NotServedError(
                "backward() of tensors on cuda is not served in a process that has called backward() before the cuda "
                "device was served: torch's autograd engine makes its threads at the first call, one for each device; "
                "serve the device first (pytest --simulate, cutepy simulate FILE.py)"
            ) from error

    return run
