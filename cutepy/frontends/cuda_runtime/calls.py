"""The CUDA runtime as host code of CUDA C++ calls it, served in Python.

References
----------
CUDA Runtime API. What nvcc's host code calls beside it, to register and launch kernels: `crt/host_runtime.h`.
"""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from cutepy.frontends.backend import loaded_module
from cutepy.frontends.cuda_runtime.images import IMAGE_SIGNATURES, Extent, ImageCalls
from cutepy.runtime import h200
from cutepy.runtime.host_calls import COOPERATIVE, HostCalls, Library, cluster_of, launch_attributes, serve
from cutepy.runtime.tensor_maps import encode_im2col
from cutepy.sim.machine.lanes import Array

_POINTER, _INT, _LONG = ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint64
_KINDS = {"p": _POINTER, "i": _INT, "l": _LONG, "e": Extent}
_INVALID_VALUE, _MEMORY_ALLOCATION, _NO_SYMBOL = 1, 2, 13
_ALIGNMENT = 256
_DRIVER = {
    "cuTensorMapEncodeTiled": "piipppppiiii",
    "cuTensorMapEncodeIm2col": "piipppppiipiiii",
    "cuTensorMapReplaceAddress": "pp",
}
"""The functions of the driver that host code may ask for, and their parameters."""
_VERSION = 13000

SIGNATURES = {
    "__cudaRegisterFatBinary": "p",
    "__cudaRegisterFatBinaryEnd": "p",
    "__cudaInitModule": "p",
    "__cudaRegisterFunction": "ppppipppppp",
    "__cudaRegisterVar": "ppppilii",
    "__cudaPushCallConfiguration": "lililp",
    "__cudaPopCallConfiguration": "pppp",
    "__cudaGetKernel": "pp",
    "__cudaLaunchKernel": "pliliplp",
    "cudaLaunchKernel": "pliliplp",
    "cudaLaunchKernelExC": "ppp",
    "cudaLaunchCooperativeKernel": "pliliplp",
    "cudaMalloc": "pl",
    "cudaMallocAsync": "plp",
    "cudaMallocManaged": "pli",
    "cudaFree": "p",
    "cudaFreeAsync": "pp",
    "cudaMemcpy": "ppli",
    "cudaMemcpyAsync": "pplip",
    "cudaMemset": "pil",
    "cudaMemsetAsync": "pilp",
    "cudaMemcpyToSymbol": "pplli",
    "cudaMemcpyFromSymbol": "pplli",
    "cudaGetSymbolAddress": "pp",
    "cudaGetDevice": "p",
    "cudaSetDevice": "i",
    "cudaGetDeviceCount": "p",
    "cudaDeviceGetAttribute": "pii",
    "cudaDeviceSynchronize": "",
    "cudaStreamSynchronize": "p",
    "cudaStreamCreate": "p",
    "cudaStreamDestroy": "p",
    "cudaGetLastError": "",
    "cudaPeekAtLastError": "",
    "cudaGetErrorString": "i",
    "cudaGetErrorName": "i",
    "cudaFuncSetAttribute": "pii",
    "cudaFuncSetCacheConfig": "pi",
    "cudaOccupancyMaxActiveBlocksPerMultiprocessor": "ppil",
    "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags": "ppili",
    "cudaOccupancyMaxActiveClusters": "ppp",
    "cudaDriverGetVersion": "p",
    "cudaRuntimeGetVersion": "p",
    "cudaGetDriverEntryPoint": "pplp",
    "cudaGetDriverEntryPointByVersion": "ppilp",
    **IMAGE_SIGNATURES,
}
"""The parameters of each function: pointers, ints and what has 64 bits. A dim3 goes as one of 64 and one of 32."""

_POINTER_RESULTS = ("__cudaRegisterFatBinary", "cudaGetErrorString", "cudaGetErrorName", "cudaCreateChannelDesc")


@dataclass(frozen=True)
class Loaded:
    """A module whose host code has been loaded."""

    ptx: str
    library: Library


class RuntimeCalls(ImageCalls, HostCalls):
    """The runtime of a process: its modules, kernels and memory."""

    def __init__(self) -> None:
        HostCalls.__init__(self, "")
        ImageCalls.__init__(self)
        self.stand_in: object = None
        self.loading: Loaded | None = None
        self._kernels: dict[int, tuple[str, Loaded]] = {}
        self._variables: dict[int, tuple[str, Loaded]] = {}
        self._memory: dict[int, Array] = {}
        self._configuration: list[tuple[Any, ...]] = []
        self._handle = ctypes.c_uint64(0)
        self._text = ctypes.create_string_buffer(b"see the Python exception")
        self._driver = {name: self._made(f"_{name}", kinds, _INT) for name, kinds in _DRIVER.items()}

    def functions(self) -> dict[str, Any]:
        """Return a C function for each name."""
        return {
            name: self._made(name, kinds, _POINTER if name in _POINTER_RESULTS else _INT)
            for name, kinds in SIGNATURES.items()
        }

    def _made(self, name: str, kinds: str, result: Any) -> Any:  # noqa: ANN401
        # What the DSL's host code calls too is served by the methods that serve it there.
        handler = next(
            (getattr(self, x) for x in (f"do_{name.strip('_')}", f"_{name}", name) if hasattr(self, x)), None
        )
        prototype = ctypes.CFUNCTYPE(result, *(_KINDS[kind] for kind in kinds))
        return prototype(partial(serve, self, name, handler))

    def adopt_all(self) -> None:
        """Let the backend know the memory that was allocated."""
        assert self._backend is not None
        for data in self._memory.values():
            self._backend.adopt(data)

    # Modules: what runs as a library is loaded.

    def do_cudaRegisterFatBinary(self, binary: int) -> int:
        """Give a handle, which is asked for nothing."""
        return ctypes.addressof(self._handle)

    def _ignored(self, *_: object) -> int:
        return 0

    do_cudaRegisterFatBinaryEnd = do_cudaInitModule = _ignored
    do_cudaStreamDestroy = do_cudaFuncSetCacheConfig = do_cudaGetLastError = do_cudaPeekAtLastError = _ignored

    def do_cudaRegisterFunction(self, handle: int, function: int, stub: int, name: int, *_: object) -> int:
        """Note which kernel a function of the host launches."""
        assert self.loading is not None
        self._kernels[function] = ctypes.string_at(name).decode(), self.loading
        return 0

    def do_cudaRegisterVar(self, handle: int, variable: int, address: int, name: int, *_: object) -> int:
        """Note which variable of the device one of the host stands for."""
        assert self.loading is not None
        self._variables[variable] = ctypes.string_at(name).decode(), self.loading
        return 0

    def do_cudaGetErrorString(self, code: int) -> int:
        """Refer to the exception that says what went wrong."""
        return ctypes.addressof(self._text)

    do_cudaGetErrorName = do_cudaGetErrorString

    # Launches.

    def do_cudaPushCallConfiguration(self, *configuration: int) -> int:
        """Keep what stands between the angle brackets."""
        self._configuration.append(configuration)
        return 0

    def do_cudaPopCallConfiguration(self, grid: int, block: int, smem: int, stream: int) -> int:
        """Give it to the function that launches."""
        gxy, gz, bxy, bz, bytes_, at = self._configuration.pop()
        for target, xy, z in ((grid, gxy, gz), (block, bxy, bz)):
            (ctypes.c_uint32 * 3).from_address(target)[:] = list(_dim3(xy, z))
        ctypes.c_uint64.from_address(smem).value = bytes_
        ctypes.c_uint64.from_address(stream).value = at or 0
        return 0

    def do_cudaGetKernel(self, kernel: int, function: int) -> int:
        """Take the function for its kernel."""
        ctypes.c_uint64.from_address(kernel).value = function
        return 0

    def do_cudaLaunchKernel(
        self, function: int, gxy: int, gz: int, bxy: int, bz: int, arguments: int, smem: int, stream: int | None
    ) -> int:
        """Launch a kernel."""
        return self._launch(function, _dim3(gxy, gz), _dim3(bxy, bz), smem, stream, {}, arguments)

    def do_cudaLaunchCooperativeKernel(
        self, function: int, gxy: int, gz: int, bxy: int, bz: int, arguments: int, smem: int, stream: int | None
    ) -> int:
        """Launch a kernel whose CTAs are all resident at once."""
        attributes = {COOPERATIVE: (1,)}
        return self._launch(function, _dim3(gxy, gz), _dim3(bxy, bz), smem, stream, attributes, arguments)

    def do_cudaLaunchKernelExC(self, config: int, function: int, arguments: int) -> int:
        """Launch a kernel with attributes."""
        return self._cudaLaunchKernelEx(config, function, arguments)

    def _launched(self, kernel: int) -> tuple[str, str, Library]:
        if self._backend is None:
            raise RuntimeError("a kernel is launched where nothing simulates: use CudaLibrary.call")
        self.adopt_all()
        name, loaded = self._kernels[kernel]
        return name, loaded.ptx, loaded.library

    # Memory, which is the host's.

    def do_cudaMalloc(self, pointer: int, size: int, *_: object) -> int:
        """Give memory of the host."""
        data = np.zeros(size + _ALIGNMENT, np.uint8)
        start = -data.ctypes.data % _ALIGNMENT
        mine = data[start : start + size]
        self._memory[mine.ctypes.data] = mine
        ctypes.c_uint64.from_address(pointer).value = mine.ctypes.data if size else 0
        return 0

    do_cudaMallocAsync = do_cudaMallocManaged = do_cudaMalloc

    def do_cudaFree(self, pointer: int | None, *_: object) -> int:
        """Let memory go."""
        if pointer and self._memory.pop(pointer, None) is None:
            return _INVALID_VALUE
        return 0

    do_cudaFreeAsync = do_cudaFree

    def do_cudaMemcpy(self, target: int, source: int, size: int, *_: object) -> int:
        """Copy at once."""
        ctypes.memmove(target, source, size)
        return 0

    do_cudaMemcpyAsync = do_cudaMemcpy

    def do_cudaMemset(self, target: int, value: int, size: int, *_: object) -> int:
        """Fill at once."""
        ctypes.memset(target, value, size)
        return 0

    do_cudaMemsetAsync = do_cudaMemset

    def _address_of(self, symbol: int) -> int:
        name, loaded = self._variables[symbol]
        return loaded_module(loaded.library, loaded.ptx).variables[name].address

    def do_cudaGetSymbolAddress(self, pointer: int, symbol: int) -> int:
        """Say where a variable of the device is."""
        if symbol not in self._variables:
            return _NO_SYMBOL
        ctypes.c_uint64.from_address(pointer).value = self._address_of(symbol)
        return 0

    def do_cudaMemcpyToSymbol(self, symbol: int, source: int, size: int, offset: int, *_: object) -> int:
        """Write a variable of the device."""
        if symbol not in self._variables:
            return _NO_SYMBOL
        return self.do_cudaMemcpy(self._address_of(symbol) + offset, source, size)

    def do_cudaMemcpyFromSymbol(self, target: int, symbol: int, size: int, offset: int, *_: object) -> int:
        """Read a variable of the device."""
        if symbol not in self._variables:
            return _NO_SYMBOL
        return self.do_cudaMemcpy(target, self._address_of(symbol) + offset, size)

    def do_cudaStreamCreate(self, stream: int) -> int:
        """Give the default stream: launches run in order."""
        ctypes.c_uint64.from_address(stream).value = 0
        return 0

    # The device.

    def do_cudaOccupancyMaxActiveBlocksPerMultiprocessor(self, blocks: int, *_: object) -> int:
        """Say one."""
        ctypes.c_int32.from_address(blocks).value = 1
        return 0

    do_cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags = do_cudaOccupancyMaxActiveBlocksPerMultiprocessor

    def do_cudaOccupancyMaxActiveClusters(self, clusters: int, function: int, config: int) -> int:
        """Say how many there are at once, one CTA an SM."""
        size = math.prod(cluster_of(launch_attributes(config)))
        ctypes.c_int32.from_address(clusters).value = h200.max_active_clusters(size)
        return 0

    def do_cudaGetDriverEntryPoint(self, name: int, pointer: int, flags: int, status: int | None) -> int:
        """Give a function of the driver, if it is served: those that encode tensor maps are."""
        found = self._driver.get(ctypes.string_at(name).decode())
        target = None if found is None else ctypes.cast(found, ctypes.c_void_p).value
        ctypes.c_uint64.from_address(pointer).value = target or 0
        if status:
            ctypes.c_int32.from_address(status).value = int(found is None)
        return 0

    def _cuTensorMapEncodeIm2col(
        self,
        target: int,
        dtype: int,
        rank: int,
        address: int,
        dims: int,
        strides: int,
        lower: int,
        upper: int,
        channels: int,
        pixels: int,
        steps: int,
        *modes: int,
    ) -> int:
        encode_im2col(target, dtype, rank, address, dims, strides, lower, upper, channels, pixels, steps, modes)
        return 0

    def do_cudaDriverGetVersion(self, version: int) -> int:
        """Say the version of CUDA."""
        ctypes.c_int32.from_address(version).value = _VERSION
        return 0

    do_cudaRuntimeGetVersion = do_cudaDriverGetVersion

    def do_cudaGetDriverEntryPointByVersion(
        self, name: int, pointer: int, version: int, flags: int, status: int | None
    ) -> int:
        """Give a function of the driver."""
        return self.do_cudaGetDriverEntryPoint(name, pointer, flags, status)


def _dim3(xy: int, z: int) -> tuple[int, int, int]:
    """Return the extents of a dim3, of which x and y come as one number."""
    return xy & 0xFFFFFFFF, xy >> 32, z
