"""`torch.cuda` on the simulated device: what is served, and refusals by name for the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from cutepy.sim.served import h200, streams
from cutepy.sim.served.errors import not_served
from cutepy.sim.served.storage import allocations


def _nothing(*_: object, **__: object) -> None:
    """Do nothing: nothing is pending, cached or to be seeded apart from the CPU's generator."""


def _index(device: Any = None) -> int:  # noqa: ANN401
    """Return the index of a device, of which there is one."""
    index = device if isinstance(device, int) else torch.device("cuda" if device is None else device).index or 0
    if index > 0:
        raise RuntimeError(f"CUDA error: invalid device ordinal: the simulated machine has one device, got {device}")
    return index


def _set_device(device: object) -> None:
    _index(device)


class _Device:
    """What `torch.cuda.device` and `torch.cuda.device_of` make: a choice among one."""

    def __init__(self, device: Any = None) -> None:  # noqa: ANN401
        self.idx = 0 if isinstance(device, torch.Tensor) else _index(device)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


@contextmanager
def _graphs(*_: object, **__: object) -> Iterator[None]:
    not_served("torch.cuda.graph")()
    yield


def _properties(device: object = None) -> h200.Properties:
    _index(device)
    return h200.Properties()


def _memory_info(device: object = None) -> tuple[int, int]:
    return h200.TOTAL_BYTES - allocations.size_bytes, h200.TOTAL_BYTES


def _seeded(seed: int) -> None:
    torch.default_generator.manual_seed(seed)


_SERVED: dict[str, Any] = {
    "_lazy_init": _nothing,
    "_lazy_call": _nothing,
    "_sleep": _nothing,
    "init": _nothing,
    "is_available": lambda: True,
    "is_initialized": lambda: True,
    "is_bf16_supported": lambda including_emulation=True: True,
    "is_tf32_supported": lambda: True,
    "is_current_stream_capturing": lambda: streams.captures.active(streams.current_stream().cuda_stream),
    "device_count": lambda: 1,
    "current_device": lambda: 0,
    "set_device": _set_device,
    "get_device_name": lambda device=None: h200.NAME,
    "get_device_capability": lambda device=None: h200.CAPABILITY,
    "get_device_properties": _properties,
    "get_arch_list": lambda: ["sm_90", "sm_90a"],
    "can_device_access_peer": lambda device, peer_device: False,
    "device": _Device,
    "device_of": _Device,
    "synchronize": _nothing,
    "Stream": streams.Stream,
    "ExternalStream": streams.ExternalStream,
    "Event": streams.Event,
    "current_stream": streams.current_stream,
    "default_stream": streams.default_stream,
    "set_stream": streams.set_stream,
    "stream": streams.using,
    "empty_cache": allocations.release_freed,
    "ipc_collect": _nothing,
    "reset_peak_memory_stats": _nothing,
    "reset_max_memory_allocated": _nothing,
    "mem_get_info": _memory_info,
    "memory_allocated": lambda device=None: allocations.size_bytes,
    "memory_reserved": lambda device=None: allocations.size_bytes,
    "max_memory_allocated": lambda device=None: allocations.size_bytes,
    "max_memory_reserved": lambda device=None: allocations.size_bytes,
    "manual_seed": _seeded,
    "manual_seed_all": _seeded,
    "seed": torch.seed,
    "initial_seed": torch.initial_seed,
    "get_rng_state": lambda device="cuda": torch.get_rng_state(),
    "set_rng_state": lambda new_state, device="cuda": torch.set_rng_state(new_state),
}


def serve(put: Callable[[Any, str, Any], None]) -> None:
    """Replace the functions of `torch.cuda`, through `put(owner, name, value)`."""
    for name in (*torch.cuda.__all__, *_SERVED):
        if name in _SERVED:
            put(torch.cuda, name, _SERVED[name])
        elif callable(getattr(torch.cuda, name, None)) and not _is_kept(getattr(torch.cuda, name)):
            put(torch.cuda, name, not_served(f"torch.cuda.{name}"))
    put(torch.cuda, "graph", _graphs)
    put(torch.cuda, "CUDAGraph", not_served("torch.cuda.CUDAGraph"))
    put(torch.Tensor, "record_stream", _nothing)
    put(torch.Tensor, "pin_memory", lambda tensor, device=None: tensor.clone())
    put(torch.Tensor, "is_pinned", lambda tensor, device=None: False)
    put(torch, "compile", _eager)
    run_backward = _backward(torch.autograd.graph._engine_run_backward)
    for module in (torch.autograd, torch.autograd.graph):
        put(module, "_engine_run_backward", run_backward)


def _is_kept(value: object) -> bool:
    """Tell whether a name of torch.cuda is a type that needs no device: tensor types, errors."""
    return isinstance(value, type) and (issubclass(value, Exception) or value.__module__ == "torch.cuda")


def _eager(model: Any = None, **_: object) -> Any:  # noqa: ANN401
    """Return what torch.compile was given: eager execution computes the same."""
    return (lambda function: function) if model is None else model


def _backward(original: Callable[..., Any]) -> Callable[..., Any]:
    def run(t_outputs: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        if any(isinstance(t, torch.Tensor) and t.is_cuda for t in t_outputs):
            not_served("backward() of tensors on cuda")()
        return original(t_outputs, *args, **kwargs)

    return run
