"""Repeat captured launches on a GPU, through the CUDA driver alone: no toolkit, no framework.

The driver compiles the PTX. Memory is copied to fresh allocations whose addresses have the captured ones' remainder
modulo 1024, and what pointed at the old place points at the new one.

References
----------
CUDA Driver API: cuModuleLoadDataEx, cuLaunchKernelEx, CUlaunchConfig, CUlaunchAttribute.
"""

from __future__ import annotations

import ctypes
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np

from cutepy.runtime.launch_structures import (
    CLUSTER,
    COOPERATIVE,
    MAX_DYNAMIC_SMEM,
    NON_PORTABLE_CLUSTER,
    LaunchAttribute,
    LaunchConfig,
)
from tests.sim.hardware.launches import Block, CapturedLaunch, loadable, pointers_in, without_pointers

_ERROR_LOG, _ERROR_LOG_BYTES = 5, 6  # CUjit_option
_PORTABLE_CLUSTER = 8
_PAGE = 1024
_KEPT_MODULES = 8


class DriverError(RuntimeError):
    """A call of the CUDA driver failed."""

    def __init__(self, call: str, code: int, detail: str) -> None:
        super().__init__(f"{call}: {detail}")
        self.code = code


class Gpu:
    """The first GPU, with its primary context."""

    def __init__(self) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._modules: OrderedDict[tuple[str, str], ctypes.c_void_p] = OrderedDict()
        self._call("cuInit", 0)
        device, context = ctypes.c_int32(), ctypes.c_void_p()
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)
        name, version = ctypes.create_string_buffer(256), ctypes.c_int32()
        self._call("cuDeviceGetName", name, 256, device)
        self._call("cuDriverGetVersion", ctypes.byref(version))
        self.name = name.value.decode()
        self.driver = f"{_kernel_driver()}, CUDA {version.value // 1000}.{version.value % 1000 // 10}"

    def run(self, launch: CapturedLaunch) -> list[np.ndarray[Any, Any]]:
        """Launch, wait, and return the memory as it is then, with zeros in place of what points into it.

        Raises
        ------
        DriverError
            If a call fails; after a failed launch the context is of no more use.
        """
        function = self._function(launch)
        allocations, addresses = [], []
        try:
            for block in launch.before:
                base = ctypes.c_uint64()
                self._call("cuMemAlloc_v2", ctypes.byref(base), ctypes.c_size_t(len(block.data) + 2 * _PAGE))
                allocations.append(base)
                addresses.append(base.value + (block.phase - base.value) % _PAGE)
            for block, address in zip(launch.before, addresses, strict=True):
                data = _pointing(block, addresses)
                self._call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), _at(data), ctypes.c_size_t(len(data)))
            self._launch(function, launch, [_pointing(block, addresses) for block in launch.parameters])
            spans = [(at, at + len(block.data)) for block, at in zip(launch.before, addresses, strict=True)]
            return [self._read(start, end, spans) for start, end in spans]
        finally:
            for base in allocations:
                self._cuda.cuMemFree_v2(base)

    def _read(self, start: int, end: int, spans: list[tuple[int, int]]) -> np.ndarray[Any, Any]:
        data = np.zeros(end - start, np.uint8)
        self._call("cuMemcpyDtoH_v2", _at(data), ctypes.c_uint64(start), ctypes.c_size_t(len(data)))
        return without_pointers(data, pointers_in(data, spans, start % 8))

    def _launch(self, function: ctypes.c_void_p, launch: CapturedLaunch, parameters: list[Any]) -> None:
        attributes = (LaunchAttribute * 2)()
        count = 0
        if launch.cluster != (1, 1, 1):
            attributes[count].identity = CLUSTER
            attributes[count].value[0:3] = launch.cluster
            count += 1
        if launch.cooperative:
            attributes[count].identity = COOPERATIVE
            attributes[count].value[0] = 1
            count += 1
        config = LaunchConfig(launch.grid, launch.block, launch.dynamic_smem_bytes, None, attributes, count)
        table = (ctypes.c_void_p * max(1, len(parameters)))(*(p.ctypes.data for p in parameters))
        self._call("cuLaunchKernelEx", ctypes.byref(config), function, table, None)
        self._call("cuCtxSynchronize")

    def _function(self, launch: CapturedLaunch) -> ctypes.c_void_p:
        key = launch.ptx, launch.kernel
        if key not in self._modules:
            self._modules[key] = self._load(launch.ptx)
        self._modules.move_to_end(key)
        if len(self._modules) > _KEPT_MODULES:
            self._cuda.cuModuleUnload(self._modules.popitem(last=False)[1])
        function = ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(function), self._modules[key], launch.kernel.encode())
        if launch.dynamic_smem_bytes > 48 << 10:
            self._call("cuFuncSetAttribute", function, MAX_DYNAMIC_SMEM, launch.dynamic_smem_bytes)
        if int(np.prod(launch.cluster)) > _PORTABLE_CLUSTER:
            self._call("cuFuncSetAttribute", function, NON_PORTABLE_CLUSTER, 1)
        return function

    def _load(self, ptx: str) -> ctypes.c_void_p:
        log = ctypes.create_string_buffer(8192)
        options = (ctypes.c_int32 * 2)(_ERROR_LOG, _ERROR_LOG_BYTES)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), len(log))
        module = ctypes.c_void_p()
        text = loadable(ptx).encode() + b"\0"
        code = self._cuda.cuModuleLoadDataEx(ctypes.byref(module), text, 2, options, values)
        if code:
            raise DriverError("cuModuleLoadDataEx", code, log.value.decode(errors="replace").strip() or f"error {code}")
        return module

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._cuda, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self._cuda.cuGetErrorString(code, ctypes.byref(text))
            raise DriverError(name, code, (text.value or b"").decode() or f"error {code}")


def _at(data: np.ndarray[Any, Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(data.ctypes.data)


def _pointing(block: Block, addresses: list[int]) -> np.ndarray[Any, Any]:
    """Return a block's bytes with its pointers set."""
    data = np.ascontiguousarray(block.data.copy())
    for pointer in block.pointers:
        address = np.array([addresses[pointer.region] + pointer.offset], np.uint64)
        data[pointer.at : pointer.at + 8] = address.view(np.uint8)
    return data


def _kernel_driver() -> str:
    path = Path("/proc/driver/nvidia/version")
    words = path.read_text().split() if path.exists() else []
    return next((w for w in words if w[:1].isdigit() and w.count(".") >= 1), "driver of unknown version")
