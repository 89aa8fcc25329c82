"""Host memory: addresses of tensors and arrays, and lazily mapped tensors of tens of gigabytes.

Pages are the system's zero page, or map one block of values repeatedly. A write to a page copies it first.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from cutepy.sim.machine.lanes import Array

_PAGE = mmap.PAGESIZE
_BLOCK_BYTES = 1 << 26
"""Bytes mapped at once: of smaller blocks a process may not map enough (vm.max_map_count is 65530)."""

_MAP_FIXED, _MAP_NORESERVE = 0x10, 0x4000  # linux/mman.h, of x86 and of ARM
_MADV_DONTNEED = 4


def lazy_tensor(shape: int | Sequence[int], dtype: Any, *, fill: Any = 0) -> Any:  # noqa: ANN401
    """Make a tensor that takes memory where it is written to, and nowhere else.

    What is read and was not written has the values of `fill`. Pages of it may be set before a launch, and looked at
    after it; what touches all of it, such as `randn` or `copy_`, takes all of the memory.

    Parameters
    ----------
    shape : int or sequence of int
        In row-major order.
    dtype : torch dtype, or numpy dtype or its name
        A torch dtype makes a torch tensor, another a numpy array.
    fill : number, or tensor or array
        The values that it begins with; several are repeated in order, over all of it. An access that wraps around at
        2^31 elements or 2^32 bytes goes unseen where their number divides that: take a multiple of 3.

    Returns
    -------
    torch.Tensor or numpy.ndarray
        Starts at a page; a kernel may touch its elements and not a byte after them.

    Raises
    ------
    OSError
        If there is not as much address space.

    Examples
    --------
    >>> c = lazy_tensor((200_000, 100_000), "float16")
    >>> c.nbytes / 1e9, c[-1, -1]
    (40.0, np.float16(0.0))
    >>> c[-1, -2:] = 7
    >>> c[-1, -3:]
    array([0., 7., 7.], dtype=float16)
    >>> lazy_tensor(10**10, "int32", fill=np.arange(3))[-4:]
    array([0, 1, 2, 0], dtype=int32)
    """
    extents = (shape,) if isinstance(shape, int) else tuple(shape)
    of_torch = type(dtype).__module__ == "torch"
    size = dtype.itemsize if of_torch else np.dtype(dtype).itemsize
    elements = math.prod(extents)
    memory = reserve(max(elements * size, 1))
    pattern = _pattern(fill, dtype, of_torch)
    if pattern.any():
        _repeat(memory, pattern)
    if of_torch:
        import torch

        flat = torch.frombuffer(memory, dtype=dtype, count=elements) if elements else torch.empty(0, dtype=dtype)
        return flat.view(extents)
    return np.frombuffer(memory, dtype, elements).reshape(extents)


def reserve(size_bytes: int) -> mmap.mmap:
    """Map zeroed memory whose pages are allocated at the first write."""
    lazily = _MAP_NORESERVE if sys.platform == "linux" else 0
    return mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | lazily)


def clear(address: int, size_bytes: int) -> None:
    """Zero the memory that `reserve` has mapped, from an address on, and give the memory of whole pages back."""
    start, end = -(-address // _PAGE) * _PAGE, (address + size_bytes) // _PAGE * _PAGE
    if start >= end:
        ctypes.memset(address, 0, size_bytes)
        return
    ctypes.memset(address, 0, start - address)
    ctypes.memset(end, 0, address + size_bytes - end)
    if _libc().madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_DONTNEED):
        raise OSError(ctypes.get_errno(), "madvise")


def _pattern(fill: Any, dtype: Any, of_torch: bool) -> Array:  # noqa: ANN401
    """Return the bytes that are repeated."""
    if of_torch:
        import torch

        return torch.as_tensor(fill).to(dtype).reshape(-1).contiguous().view(torch.uint8).numpy()
    return np.ascontiguousarray(np.asarray(fill).astype(dtype).reshape(-1)).view(np.uint8)


def _repeat(memory: mmap.mmap, pattern: Array) -> None:
    """Map a pattern over all of the memory, one block of it for all."""
    if not hasattr(os, "memfd_create"):
        raise NotImplementedError("lazy_tensor has zeros only where the system is not Linux; leave fill out")
    period = math.lcm(len(pattern), _PAGE)
    block = -(-min(_BLOCK_BYTES, len(memory)) // period) * period
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    descriptor = os.memfd_create("cutepy lazy_tensor")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            for _ in range(block // period):
                file.write(np.tile(pattern, period // len(pattern)).tobytes())
        for start in range(0, len(memory), block):
            _map_over(address + start, min(block, len(memory) - start), descriptor)
    finally:
        os.close(descriptor)


def _map_over(address: int, size_bytes: int, descriptor: int) -> None:
    """Map the start of a file over an existing mapping."""
    flags = mmap.MAP_PRIVATE | _MAP_FIXED | _MAP_NORESERVE
    found = _libc().mmap(
        ctypes.c_void_p(address),
        ctypes.c_size_t(size_bytes),
        mmap.PROT_READ | mmap.PROT_WRITE,
        flags,
        descriptor,
        ctypes.c_long(0),
    )
    if found != address:
        raise OSError(ctypes.get_errno(), "mmap")


def _libc() -> Any:  # noqa: ANN401
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    return library


def storage_range(tensor: Any) -> tuple[int, int]:  # noqa: ANN401
    """Return address and bytes of the memory that a tensor or array lives in."""
    if hasattr(tensor, "untyped_storage"):
        storage = tensor.untyped_storage()
        return storage.data_ptr(), storage.nbytes()
    if isinstance(tensor, np.ndarray):
        low, high = np.lib.array_utils.byte_bounds(tensor)
        return int(low), int(high - low)
    interface = getattr(tensor, "__array_interface__", None)
    if interface is None:
        raise TypeError(f"expected a torch tensor or a numpy array in host memory, got {type(tensor).__name__}")
    return storage_range(np.asarray(tensor))


def described(tensor: Any) -> str:  # noqa: ANN401
    """Describe a tensor."""
    return f"a tensor of shape {tuple(tensor.shape)} and type {str(tensor.dtype).removeprefix('torch.')},"
