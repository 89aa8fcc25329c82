"""A GPU through the CUDA driver, for scripts that need nothing else: kernels are compiled, and launched."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterable
from typing import Any

FILL = """.version 8.0
.target sm_90
.address_size 64
.extern .shared .align 16 .b8 smem[];
.visible .entry fill(.param .u32 bytes) {
    .reg .pred %p; .reg .b32 %r<6>;
    ld.param.u32 %r0, [bytes]; mov.u32 %r1, %tid.x; shl.b32 %r1, %r1, 2; mov.u32 %r2, smem; mov.u32 %r3, -1;
LOOP:
    add.u32 %r4, %r2, %r1; st.volatile.shared.u32 [%r4], %r3; add.u32 %r1, %r1, 4096; setp.lt.u32 %p, %r1, %r0;
    @%p bra LOOP;
    ret;
}
"""
FILLED_BYTES = 227 << 10
"""All that a CTA may have: one that fills comes to a multiprocessor before the kernel's, or once that has ended."""

FILLING = {"grid": [8448, 1, 1], "block": [1024, 1, 1], "smem_bytes": FILLED_BYTES}
_MAX_DYNAMIC_SMEM, _NON_PORTABLE_CLUSTER = 8, 14  # CUfunction_attribute
_COOPERATIVE, _CLUSTER, _PROGRAMMATIC = 2, 4, 6  # CUlaunchAttributeID
_NOT_READY = 600  # CUDA_ERROR_NOT_READY


class Attribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = (("identity", ctypes.c_int32), ("pad", ctypes.c_int32), ("value", ctypes.c_uint32 * 16))


class Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("smem_bytes", ctypes.c_uint32),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint32),
    )


class Gpu:
    """The first GPU, through the CUDA driver."""

    def __init__(self) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        device, context = ctypes.c_int32(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def call(self, name: str, *arguments: Any) -> None:  # noqa: ANN401
        """Call the driver, and raise its error."""
        self._check(name, getattr(self.cuda, name)(*arguments))

    def _check(self, name: str, code: int) -> None:
        if code:
            text = ctypes.c_char_p()
            self.cuda.cuGetErrorString(code, ctypes.byref(text))
            raise RuntimeError(f"{name}: {(text.value or b'').decode() or code}")

    def load(self, ptx: str) -> ctypes.c_void_p:
        """Compile a module."""
        log = ctypes.create_string_buffer(8192)
        options = (ctypes.c_int32 * 2)(5, 6)  # CU_JIT_ERROR_LOG_BUFFER, and its size
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), len(log))
        module = ctypes.c_void_p()
        code = self.cuda.cuModuleLoadDataEx(ctypes.byref(module), ptx.encode() + b"\0", 2, options, values)
        if code:
            raise RuntimeError(f"cuModuleLoadDataEx: {log.value.decode(errors='replace').strip() or code}")
        return module

    def function(self, module: ctypes.c_void_p, name: str, smem_bytes: int, cluster: int) -> ctypes.c_void_p:
        """Return a kernel that may have so much shared memory."""
        function = ctypes.c_void_p()
        self.call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        if smem_bytes > 48 << 10:
            self.call("cuFuncSetAttribute", function, _MAX_DYNAMIC_SMEM, smem_bytes)
        if cluster > 8:
            self.call("cuFuncSetAttribute", function, _NON_PORTABLE_CLUSTER, 1)
        return function

    def stream(self, is_first: bool) -> ctypes.c_void_p:
        """Make a stream whose CTAs come first, or last."""
        least, greatest, stream = ctypes.c_int32(), ctypes.c_int32(), ctypes.c_void_p()
        self.call("cuCtxGetStreamPriorityRange", ctypes.byref(least), ctypes.byref(greatest))
        self.call("cuStreamCreateWithPriority", ctypes.byref(stream), 1, greatest if is_first else least)
        return stream

    def launch(
        self, function: ctypes.c_void_p, what: dict[str, Any], parameters: list[bytes], stream: ctypes.c_void_p
    ) -> None:
        """Launch a kernel, without waiting for it."""
        attributes, count = (Attribute * 3)(), 0
        if what.get("in_clusters"):
            attributes[count].identity = _CLUSTER
            attributes[count].value[0:3] = what["cluster"]
            count += 1
        if what.get("cooperative"):
            attributes[count].identity, attributes[count].value[0] = _COOPERATIVE, 1
            count += 1
        if what.get("programmatic"):
            attributes[count].identity, attributes[count].value[0] = _PROGRAMMATIC, 1
            count += 1
        extents = (ctypes.c_uint32 * 3)(*what["grid"]), (ctypes.c_uint32 * 3)(*what["block"])
        config = Config(*extents, what["smem_bytes"], stream, ctypes.addressof(attributes), count)
        aligned = [_aligned(data) for data in parameters]
        table = (ctypes.c_void_p * max(1, len(aligned)))(*(address for _, address in aligned))
        self.call("cuLaunchKernelEx", ctypes.byref(config), function, table, None)

    def has_ended(self, streams: Iterable[ctypes.c_void_p], seconds: float) -> bool:
        """Wait for the launches to end, for a limited time."""
        last = time.monotonic() + seconds
        for stream in streams:
            while (code := self.cuda.cuStreamQuery(stream)) == _NOT_READY:
                if time.monotonic() > last:
                    return False
            self._check("cuStreamQuery", code)
        return True


def _aligned(data: bytes) -> tuple[Any, int]:
    """Copy a parameter to where tensor maps may be."""
    block = ctypes.create_string_buffer(len(data) + 128)
    address = -(-ctypes.addressof(block) // 128) * 128
    ctypes.memmove(address, data, len(data))
    return block, address
