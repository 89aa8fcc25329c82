"""Memory of the CUDA runtime: host memory, which copies and fills write at once."""

from __future__ import annotations

import ctypes

import numpy as np

from cutepy.frontends.backend import active_run, tell
from cutepy.frontends.cuda_runtime.streams import put
from cutepy.frontends.stream_state import issue
from cutepy.runtime import devices
from cutepy.sim.machine.events import Allocation, HostAccess, StreamEvent
from cutepy.sim.machine.lanes import Array

_INVALID_VALUE, _INVALID_DIRECTION = 1, 21
_ALIGNMENT = 256
_PITCH_BYTES = 512
_KINDS = range(5)
"""cudaMemcpyKind: in what direction makes no difference."""


class MemoryCalls:
    """Allocations, copies and fills."""

    def __init__(self, *arguments: str) -> None:
        super().__init__(*arguments)
        self._memory: dict[int, Array] = {}

    def do_cudaMalloc(self, pointer: int, size: int, *_: object) -> int:
        """Give memory of the host."""
        data = np.zeros(size + _ALIGNMENT, np.uint8)
        start = -data.ctypes.data % _ALIGNMENT
        mine = data[start : start + size]
        self._memory[mine.ctypes.data] = mine
        tell(Allocation(mine.ctypes.data, size))
        return put(pointer, mine.ctypes.data if size else 0)

    do_cudaMallocAsync = do_cudaMallocFromPoolAsync = do_cudaMallocManaged = do_cudaMalloc
    do_cudaMallocHost = do_cudaHostAlloc = do_cudaMalloc

    def do_cudaMallocPitch(self, pointer: int, pitch: int, width: int, height: int) -> int:
        """Allocate rows whose pitch is a multiple of 512 bytes."""
        row = -(-width // _PITCH_BYTES) * _PITCH_BYTES
        ctypes.c_uint64.from_address(pitch).value = row
        return self.do_cudaMalloc(pointer, row * height)

    def do_cudaFree(self, pointer: int | None, *_: object) -> int:
        """Let memory go."""
        if pointer and self._memory.pop(pointer, None) is None:
            return _INVALID_VALUE
        return 0

    do_cudaFreeHost = do_cudaFree

    def do_cudaFreeAsync(self, pointer: int | None, stream: int | None, *_: object) -> int:
        """Free memory after the earlier work of a stream; other uses of the memory are reported."""
        if pointer and pointer in self._memory:
            self._touched("cudaFreeAsync", pointer, self._memory[pointer].nbytes, stream, True)
        return self.do_cudaFree(pointer)

    def do_cudaMemcpy(self, target: int | None, source: int | None, size: int, kind: int, *_: object) -> int:
        """Copy, and wait."""
        code = self.do_cudaMemcpyAsync(target, source, size, kind, 0)
        tell(StreamEvent("synchronise", 0))
        return code

    def do_cudaMemcpyAsync(
        self, target: int | None, source: int | None, size: int, kind: int, stream: int | None, *_: object
    ) -> int:
        """Copy."""
        if kind not in _KINDS:
            return _INVALID_DIRECTION
        if target and source:
            ends = source, target

            def copy(place: int) -> None:
                ctypes.memmove(ends[1], ends[0], size)
                for address, writes in zip(ends, (False, True), strict=True):
                    self._touched("cudaMemcpy", address, size, place, writes)

            issue(stream or 0, copy)
            return 0
        return _INVALID_VALUE if size else 0

    def _touched(self, what: str, address: int, size: int, stream: int | None, writes: bool) -> None:
        if size:
            run = active_run()
            if run is not None and run.is_watched:  # an observer knows what memory there is
                for start, data in self._memory.items():
                    if start <= address < start + data.nbytes:
                        run.adopt(data)
            tell(HostAccess(what, writes, np.array([address]), size, stream or 0))

    def do_cudaMemcpy2D(self, *arguments: int) -> int:
        """Copy rows, and wait."""
        code = self.do_cudaMemcpy2DAsync(*arguments[:7], 0)
        tell(StreamEvent("synchronise", 0))
        return code

    def do_cudaMemcpy2DAsync(
        self,
        target: int,
        to_pitch: int,
        source: int,
        from_pitch: int,
        width: int,
        height: int,
        kind: int,
        stream: int | None,
        *_: object,
    ) -> int:
        """Copy rows."""
        if width > min(to_pitch, from_pitch) or not (target and source):
            return _INVALID_VALUE
        for row in range(height):
            to, start = target + row * to_pitch, source + row * from_pitch
            if code := self.do_cudaMemcpyAsync(to, start, width, kind, stream):
                return code
        return 0

    def do_cudaMemset(self, target: int | None, value: int, size: int, stream: int | None = 0, *_: object) -> int:
        """Fill."""
        if target:
            start = target

            def fill(place: int) -> None:
                ctypes.memset(start, value, size)
                self._touched("cudaMemset", start, size, place, True)

            issue(stream or 0, fill)
            return 0
        return _INVALID_VALUE if size else 0

    do_cudaMemsetAsync = do_cudaMemset

    def do_cudaMemset2D(
        self, target: int, pitch: int, value: int, width: int, height: int, stream: int | None = 0, *_: object
    ) -> int:
        """Fill rows."""
        if width > pitch or not target:
            return _INVALID_VALUE
        for row in range(height):
            self.do_cudaMemset(target + row * pitch, value, width, stream)
        return 0

    do_cudaMemset2DAsync = do_cudaMemset2D

    def do_cudaMemGetInfo(self, free: int, total: int) -> int:
        """Return free and total memory."""
        put(free, devices.device().total_bytes - sum(data.nbytes for data in self._memory.values()))
        return put(total, devices.device().total_bytes)

    def do_cudaDeviceGetDefaultMemPool(self, pool: int, device: int) -> int:
        """Give the only one."""
        return put(pool, 1)

    do_cudaDeviceGetMemPool = do_cudaDeviceGetDefaultMemPool

    def do_cudaMemPoolSetAttribute(self, *_: object) -> int:
        """Do nothing: a pool keeps nothing that was freed."""
        return 0

    do_cudaMemPoolTrimTo = do_cudaMemPoolSetAttribute
