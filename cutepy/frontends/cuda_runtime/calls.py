"""The CUDA runtime as host code of CUDA C++ calls it, served in Python.

References
----------
CUDA Runtime API. What nvcc's host code calls beside it, to register and launch kernels: `crt/host_runtime.h`.
"""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from cutepy.frontends.backend import loaded_module
from cutepy.frontends.cuda_runtime.memory import MemoryCalls
from cutepy.frontends.cuda_runtime.properties import DeviceCalls
from cutepy.frontends.cuda_runtime.signatures import DRIVER, POINTER_RESULTS, SIGNATURES
from cutepy.frontends.cuda_runtime.streams import StreamCalls, put
from cutepy.frontends.kernel_handles import FUNCTION_ATTRIBUTES, HandleError, LoadedKernel
from cutepy.runtime.host_abi import address_of
from cutepy.runtime.host_calls import COOPERATIVE, HostCalls, Library, cluster_of, launch_attributes, serve
from cutepy.runtime.tensor_maps import encode_im2col
from cutepy.sim.machine.loaded_module import PlacedVariable

_POINTER, _INT, _LONG = ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint64
_KINDS = {"p": _POINTER, "i": _INT, "l": _LONG}
_NO_SYMBOL, _NO_KERNEL = 13, 98
_BLOCK_AT, _SMEM_AT = 12, 24
"""Offsets in `cudaLaunchConfig_t`."""
_PER_THREAD = re.compile("_pt[ds][sz]$")
"""Suffix of names where each thread has a default stream; the simulator has one."""


class _FunctionAttributes(ctypes.Structure):
    _fields_ = [
        ("sharedSizeBytes", ctypes.c_uint64),
        ("constSizeBytes", ctypes.c_uint64),
        ("localSizeBytes", ctypes.c_uint64),
        ("maxThreadsPerBlock", _INT),
        ("numRegs", _INT),
        ("ptxVersion", _INT),
        ("binaryVersion", _INT),
        ("cacheModeCA", _INT),
        ("maxDynamicSharedSizeBytes", _INT),
        ("preferredShmemCarveout", _INT),
        ("clusterDimMustBeSet", _INT),
        ("requiredClusterWidth", _INT),
        ("requiredClusterHeight", _INT),
        ("requiredClusterDepth", _INT),
        ("clusterSchedulingPolicyPreference", _INT),
        ("nonPortableClusterSizeAllowed", _INT),
        ("rest", _INT * 16),
    ]


@dataclass(frozen=True)
class LoadedCudaModule:
    """A module whose host code has been loaded."""

    ptx: str
    library: Library


class RuntimeCalls(DeviceCalls, MemoryCalls, StreamCalls, HostCalls):
    """The runtime of a process: its modules and kernels, beside the device, memory and streams."""

    def __init__(self) -> None:
        super().__init__("")
        self.stand_ins: list[object] = []
        self.loading: LoadedCudaModule | None = None
        self._kernels: dict[int, tuple[str, LoadedCudaModule]] = {}
        self._descriptions: dict[int, LoadedKernel] = {}
        self._variables: dict[int, tuple[str, LoadedCudaModule]] = {}
        self._configuration: list[tuple[Any, ...]] = []
        self._handle = ctypes.c_uint64(0)
        self._driver = self.functions(DRIVER)

    def functions(self, names: Iterable[str] = SIGNATURES) -> dict[str, Any]:
        """Return a C function for each name; one that is not served says so when it is called."""
        return {name: self._made(_PER_THREAD.sub("", name)) for name in names}

    def _made(self, name: str) -> Any:  # noqa: ANN401
        # What the DSL's host code calls too is served by the methods that serve it there.
        names = (f"do_{name.strip('_')}", f"_{name}", name)
        handler = next((getattr(self, x) for x in names if hasattr(self, x)), None)
        kinds = [_KINDS[kind] for kind in SIGNATURES.get(name, "")]
        if name in POINTER_RESULTS and handler is not None:
            return ctypes.CFUNCTYPE(_POINTER, *kinds)(handler)
        return ctypes.CFUNCTYPE(_INT, *kinds)(partial(serve, self, name, handler))

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

    do_cudaRegisterFatBinaryEnd = do_cudaUnregisterFatBinary = do_cudaInitModule = _ignored

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

    # Launches.

    def do_cudaPushCallConfiguration(self, *configuration: int) -> int:
        """Store the configuration between the angle brackets."""
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
        return put(kernel, function)

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

    def do_cudaFuncGetAttributes(self, attributes: int, function: int) -> int:
        """Answer with a kernel's attributes by its PTX, and its registers by ptxas, or the most without ptxas."""
        if function not in self._kernels:
            return _NO_KERNEL
        kernel = self._described(function)
        found = _FunctionAttributes(**{name: kernel.attribute(number) for name, number in FUNCTION_ATTRIBUTES.items()})
        ctypes.memmove(attributes, ctypes.addressof(found), ctypes.sizeof(found))
        return 0

    def do_cudaFuncSetAttribute(self, function: int, attribute: int, value: int) -> int:
        """Keep the attribute of a kernel, which questions about it are answered by."""
        if function not in self._kernels:
            return _NO_KERNEL
        try:
            self._described(function).set_attribute(attribute, value)
        except HandleError as error:
            return error.code
        return 0

    def _described(self, function: int) -> LoadedKernel:
        if function not in self._descriptions:
            name, loaded = self._kernels[function]
            self._descriptions[function] = LoadedKernel(loaded_module(loaded.library, loaded.ptx), name)
        return self._descriptions[function]

    def do_cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        self, blocks: int, function: int, threads: int, smem: int, *_: object
    ) -> int:
        """Answer with the number of CTAs of a kernel that an SM holds."""
        if function not in self._kernels:
            return _NO_KERNEL
        try:
            return put(blocks, self._described(function).ctas_per_sm(threads, smem), _INT)
        except HandleError as error:
            return error.code

    do_cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags = do_cudaOccupancyMaxActiveBlocksPerMultiprocessor

    def do_cudaOccupancyMaxActiveClusters(self, clusters: int, function: int, config: int) -> int:
        """Answer with the number of clusters of a kernel that the GPU holds, as if no GPC left SMs idle."""
        if function not in self._kernels:
            return _NO_KERNEL
        x, y, z = (ctypes.c_uint32 * 3).from_address(config + _BLOCK_AT)
        smem = ctypes.c_uint64.from_address(config + _SMEM_AT).value
        size = math.prod(cluster_of(launch_attributes(config)) or (1,))
        try:
            return put(clusters, self._described(function).active_clusters(x * y * z, smem, size), _INT)
        except HandleError as error:
            return error.code

    # Variables.

    def _placed(self, symbol: int) -> PlacedVariable | None:
        name, loaded = self._variables.get(symbol, ("", None))
        return None if loaded is None else loaded_module(loaded.library, loaded.ptx).variables[name]

    def do_cudaGetSymbolAddress(self, pointer: int, symbol: int) -> int:
        """Answer with the address of a device variable."""
        placed = self._placed(symbol)
        return _NO_SYMBOL if placed is None else put(pointer, placed.address)

    def do_cudaGetSymbolSize(self, size: int, symbol: int) -> int:
        """Answer with the size of a device variable in bytes."""
        placed = self._placed(symbol)
        return _NO_SYMBOL if placed is None else put(size, len(placed.bytes))

    def do_cudaMemcpyToSymbol(self, symbol: int, source: int, size: int, offset: int, kind: int, *_: object) -> int:
        """Write a variable of the device."""
        placed = self._placed(symbol)
        return _NO_SYMBOL if placed is None else self.do_cudaMemcpy(placed.address + offset, source, size, kind)

    def do_cudaMemcpyFromSymbol(self, target: int, symbol: int, size: int, offset: int, kind: int, *_: object) -> int:
        """Read a variable of the device."""
        placed = self._placed(symbol)
        return _NO_SYMBOL if placed is None else self.do_cudaMemcpy(target, placed.address + offset, size, kind)

    do_cudaMemcpyToSymbolAsync, do_cudaMemcpyFromSymbolAsync = do_cudaMemcpyToSymbol, do_cudaMemcpyFromSymbol

    # The driver.

    def do_cudaGetDriverEntryPoint(self, name: int, pointer: int, flags: int, status: int | None) -> int:
        """Give a function of the driver, if it is served."""
        found = self._driver.get(ctypes.string_at(name).decode())
        put(pointer, 0 if found is None else address_of(found))
        if status:
            put(status, int(found is None), ctypes.c_int32)
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

    def do_cudaGetDriverEntryPointByVersion(
        self, name: int, pointer: int, version: int, flags: int, status: int | None
    ) -> int:
        """Give a function of the driver."""
        return self.do_cudaGetDriverEntryPoint(name, pointer, flags, status)


def _dim3(xy: int, z: int) -> tuple[int, int, int]:
    """Return the extents of a dim3, of which x and y come as one number."""
    return xy & 0xFFFFFFFF, xy >> 32, z
