"""Tensors of device `cuda` whose memory is the host's.

A DLPack capsule says which device its memory is on, and torch believes it: the capsule of a CPU tensor, relabelled,
comes back as a tensor that is on `cuda` through and through (dispatch key, storage, `.device`, `.is_cuda`) and whose
data pointer is the host's. Relabelled the other way, it is the CPU tensor that operators compute on.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from cutepy.frontends import stream_state
from cutepy.frontends.backend import is_watched, tell
from cutepy.frontends.torch_device import streams
from cutepy.frontends.torch_device.errors import NotServedError
from cutepy.frontends.torch_device.touches import touched
from cutepy.runtime import devices
from cutepy.sim.machine import host_memory
from cutepy.sim.machine.host_events import REUSE, Allocation

_CPU, _CUDA = 1, 2
_ALIGNMENT = 512
"""Alignment of CUDA's allocator, in bytes."""

_LAZY_BYTES = 1 << 30
"""From here on memory is there once it is touched: a tensor may have more than the host."""

_SMALL_BYTES = 1 << 20
"""Up to here torch's allocator keeps memory apart from what is larger (`kSmallSize` of CUDACachingAllocator)."""

_FREED_BYTES = 1 << 28
"""Freed memory that stays mapped."""

_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


@dataclass
class _Allocation:
    """A storage of the device, and the host tensor that owns its memory.

    Attributes
    ----------
    address, size_bytes : int
    storage : StorageWeakRef
    owner : Tensor
    stream : int or None
        Where torch's allocator may give the memory away once it is freed; None once it has, and where it waits for
        other streams first.
    """

    address: int
    size_bytes: int
    storage: StorageWeakRef
    owner: torch.Tensor
    stream: int | None


class Allocations:
    """Allocations of the served device.

    As CUDA's caching allocator does, what was freed stays mapped for a while: scripts that free a tensor before the
    kernel that uses it work on a GPU, so they work here.
    """

    def __init__(self) -> None:
        self._live: list[_Allocation] = []
        self._freed: deque[_Allocation] = deque()
        self._lock = threading.Lock()
        self._added = 0
        self._noted_bytes = self._peak_bytes = 0

    def add(self, storage: torch.UntypedStorage, owner: torch.Tensor) -> None:
        """Note a storage, for as long as it lives."""
        stream = stream_state.current()
        allocation = _Allocation(storage.data_ptr(), storage.nbytes(), StorageWeakRef(storage), owner, stream)
        with self._lock:
            self._live.append(allocation)
            self._added += 1
            self._noted_bytes += allocation.size_bytes
            if self._added % 256 == 0 or self._noted_bytes > self._peak_bytes:
                self._sweep()
                self._noted_bytes = sum(a.size_bytes for a in self._live)
                self._peak_bytes = max(self._peak_bytes, self._noted_bytes)

    def keep(self, address: int, beside: int | None = None) -> None:
        """Count the memory of a storage as never reused after it is freed, unless `beside` is the storage's own stream.

        `beside` is a stream that uses the storage (`record_stream`). Torch's allocator waits for the work in that
        stream.
        """
        with self._lock:
            for allocation in self._live:
                if allocation.address == address and allocation.stream != beside:
                    allocation.stream = None

    def free_and_total(self) -> tuple[int, int]:
        """Return the bytes of the device that are free, and all that it has."""
        total = devices.device().total_bytes
        return total - self.size_bytes, total

    def given_away(self, size_bytes: int, stream: int) -> tuple[int, int] | None:
        """Return address and bytes of the block that torch's allocator would give a new tensor: the best fit."""
        with self._lock:
            self._sweep()
            fits = [
                a
                for a in self._freed
                if a.stream == stream
                and a.size_bytes >= size_bytes
                and (a.size_bytes > _SMALL_BYTES) == (size_bytes > _SMALL_BYTES)
            ]
            if not fits:
                return None
            best = min(fits, key=lambda a: a.size_bytes)
            best.stream = None
            return best.address, best.size_bytes

    def ranges(self) -> list[tuple[int, int]]:
        """Return address and bytes of the memory that kernels may access: live storages, and those freed of late."""
        with self._lock:
            self._sweep()
            return [(a.address, a.size_bytes) for a in (*self._live, *self._freed)]

    @property
    def size_bytes(self) -> int:
        """Bytes of all live storages."""
        with self._lock:
            self._sweep()
            return sum({a.address: a.size_bytes for a in self._live}.values())

    @property
    def peak_bytes(self) -> int:
        """The most bytes that were live at a time."""
        return max(self._peak_bytes, self.size_bytes)

    def reset_peak(self) -> None:
        """Forget how many bytes were live before."""
        size_bytes = self.size_bytes
        with self._lock:
            self._peak_bytes = self._noted_bytes = size_bytes

    def release_freed(self) -> None:
        """Release freed memory."""
        with self._lock:
            self._sweep()
            self._freed.clear()

    def _sweep(self) -> None:
        expired = [a for a in self._live if a.storage.expired()]
        if expired:
            self._live = [a for a in self._live if not a.storage.expired()]
            self._freed.extend(expired)
            kept = sum(a.size_bytes for a in self._freed)
            while kept > _FREED_BYTES:
                kept -= self._freed.popleft().size_bytes


allocations = Allocations()


def empty(size: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Allocate a tensor of device `cuda` with arbitrary contents."""
    return _strided(_on_cuda(_aligned(_extent(size, stride), dtype), written=False), size, stride)


def _extent(size: Sequence[int], stride: Sequence[int]) -> int:
    """Return how many elements a tensor reaches over, at least one."""
    return 1 + (sum((n - 1) * s for n, s in zip(size, stride, strict=True)) if 0 not in size else 0)


def _aligned(elements: int, dtype: torch.dtype) -> torch.Tensor:
    """Allocate host memory that is aligned as CUDA's allocator aligns."""
    size_bytes = elements * dtype.itemsize
    if size_bytes >= _LAZY_BYTES:
        return torch.frombuffer(host_memory.reserve(size_bytes), dtype=dtype, count=elements)
    block = torch.empty(size_bytes + _ALIGNMENT, dtype=torch.uint8, device="cpu")
    start = -block.data_ptr() % _ALIGNMENT
    return block[start : start + size_bytes].view(dtype).as_strided((elements,), (1,))


def zero(tensor: torch.Tensor) -> torch.Tensor:
    """Fill a tensor of device `cuda` with zeros; a large one gives its memory back, and takes it as it is touched."""
    if tensor.nbytes >= _LAZY_BYTES and tensor.is_contiguous():
        host_memory.clear(tensor.data_ptr(), tensor.nbytes)
    else:
        host(tensor).zero_()
    return tensor


def served(tensor: torch.Tensor) -> torch.Tensor:
    """Return a fresh CPU tensor, the result of an operator, as one of device `cuda`."""
    if tensor.layout != torch.strided:
        raise NotServedError(f"a tensor of layout {tensor.layout} is not served on the simulated cuda device")
    if not tensor.numel():
        return empty(tensor.shape, tensor.stride(), tensor.dtype)
    if tensor.data_ptr() % _ALIGNMENT:  # the host's allocator aligns to 64 bytes
        flat = tensor.as_strided((_extent(tensor.shape, tensor.stride()),), (1,))
        return _strided(_on_cuda(_aligned(len(flat), tensor.dtype).copy_(flat)), tensor.shape, tensor.stride())
    result = _on_cuda(tensor)
    return result if result.stride() == tensor.stride() else _strided(result, tensor.shape, tensor.stride())


def host(tensor: torch.Tensor) -> torch.Tensor:
    """Return the CPU tensor that shares the memory of a tensor of device `cuda`."""
    return _relabelled(tensor, _CPU)


def storages_made_by(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return the constructor of `torch.UntypedStorage`: of device `cuda` here, of other devices by `original`."""

    def make(cls: type, *args: Any, device: Any = None, **kwargs: Any) -> Any:  # noqa: ANN401
        if device is None or torch.device(device).type != "cuda":
            return original(cls, *args, **({} if device is None else {"device": device}), **kwargs)
        given = args[0] if args else 0
        factory = torch.empty if isinstance(given, int) else torch.tensor
        return factory(given, dtype=torch.uint8, device=device).untyped_storage()

    return make


def _on_cuda(tensor: torch.Tensor, written: bool = True) -> torch.Tensor:
    result = _relabelled(tensor, _CUDA)
    memory = result.untyped_storage()
    _give_away(memory.nbytes())
    allocations.add(memory, tensor)
    tell(Allocation(memory.data_ptr(), memory.nbytes(), written))
    return result


def _give_away(size_bytes: int) -> None:
    """Tell of freed memory that torch's allocator may give to a new tensor: on a GPU that tensor would write there.

    The allocator asks only whether the stream that the memory was made in is the one that it is wanted in.
    """
    stream = stream_state.current()
    if is_watched() and streams.are_several() and stream_state.allocates():
        found = allocations.given_away(size_bytes, stream)
        if found is not None:
            touched(REUSE, *found, stream, writes=True)


def record_stream(tensor: torch.Tensor, stream: streams.Stream) -> None:
    """Keep the memory of a tensor allocated until the work queued in a stream is complete."""
    allocations.keep(tensor.untyped_storage().data_ptr(), stream_state.handle_of(stream))


def _relabelled(tensor: torch.Tensor, device_type: int) -> torch.Tensor:
    """Return the same memory as a tensor of a DLPack device type; each keeps the memory alive."""
    capsule = torch._C._to_dlpack(tensor)
    # A DLManagedTensor starts with the data pointer, then {int32 device type, int32 device id}.
    address = _get_pointer(capsule, b"dltensor")
    ctypes.c_int32.from_address(address + 8).value = device_type
    ctypes.c_int32.from_address(address + 12).value = 0
    result: torch.Tensor = torch._C._from_dlpack(capsule)
    return result


def _strided(tensor: torch.Tensor, size: Sequence[int], stride: Sequence[int]) -> torch.Tensor:
    # The CPU's kernel of as_strided touches no memory, and keeps the device of what it is given.
    kernel = torch.ops.aten.as_strided.default._op_dk
    result: torch.Tensor = kernel(torch._C.DispatchKey.CPU, tensor, list(size), list(stride), 0)
    return result
