"""Interface of compiled host code: C declarations of the functions that it calls, and the CUDA functions behind.

The DSL compiles the host code of a `@cute.jit` function against a small runtime: CUDA's functions under a name with an
underscore in front, TVM-FFI's, and some helpers of its own. This table is the one place that says what they are. Made
from it are the callbacks that answer them in the simulator (`host_calls`), the addresses that a program is linked with
on a GPU (`cutepy.runtime.cuda`), the C++ that serves them in what is exported, and the check of what that serves
(`cutepy.aot`).
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

MINIMUM_DRIVER = (12, 0)
"""Least CUDA version of a driver: it has `cuLibraryLoadData`, and all others of the table."""

_DECLARATION = re.compile(r"(.*?)(\w+)\((.*)\)")
_TYPES = {"void": None, "int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64}


@dataclass(frozen=True)
class HostFunction:
    """Function that host code calls.

    Attributes
    ----------
    declaration : str
        In C, with the names of its parameters.
    driver : str
        The function of CUDA's driver that does it, where one does.
    passes : str
        Its arguments: names of parameters, and 0. The parameters in order, if not given.
    runtime : str
        The function of CUDA's runtime, of the same parameters, that does it in a process whose devices the runtime
        keeps, as torch's does.
    exported : bool
        True if exported libraries serve it too.
    """

    declaration: str
    driver: str = ""
    passes: str = ""
    runtime: str = ""
    exported: bool = True

    @cached_property
    def _parts(self) -> tuple[str, ...]:
        found = _DECLARATION.fullmatch(self.declaration)
        assert found is not None, self.declaration
        return found.groups()

    @property
    def name(self) -> str:
        """Name in host code."""
        return self._parts[1]

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """The ctypes type of each parameter."""
        split = (text.rpartition(" ") for text in self._parts[2].split(", ") if text != "void")
        return {name: _ctype(kind) for kind, _, name in split}

    @property
    def passed(self) -> list[str]:
        """Arguments of the driver's function, in C."""
        return self.passes.replace("0", "nullptr").split() or list(self.parameters)

    @property
    def prototype(self) -> Any:  # noqa: ANN401
        """The ctypes type of the function."""
        return ctypes.CFUNCTYPE(_ctype(self._parts[0].strip()), *self.parameters.values())

    def adapted(self, target: Any) -> Callable[..., int]:  # noqa: ANN401
        """Call the driver's function at an address, with this function's arguments converted."""
        kinds = [self.parameters.get(name, ctypes.c_void_p) for name in self.passed]
        call = ctypes.CFUNCTYPE(ctypes.c_int32, *kinds)(target)
        names = list(self.parameters)
        places = [names.index(name) if name in names else None for name in self.passed]
        return lambda *given: int(call(*(0 if place is None else given[place] for place in places)))


def _ctype(kind: str) -> Any:  # noqa: ANN401
    return ctypes.c_void_p if kind.endswith("*") else _TYPES[kind]


_F = HostFunction
_TABLE = (
    # Loading, once for each device.
    _F("int32_t cuda_dialect_init_library_once(void** library, void* load, void* load_to_device, void* unused)"),
    _F("void cuda_dialect_unload_library_once(void** library)"),
    _F(
        "int32_t _cudaLibraryLoadData(void** library, const void* image, void* options, void** values, "
        "int32_t count, void* library_options, void** library_values, int32_t library_count)",
        driver="cuLibraryLoadData",
    ),
    _F("int32_t _cudaLibraryGetKernel(void** kernel, void* library, const char* name)", driver="cuLibraryGetKernel"),
    _F(
        "int32_t _cuKernelGetAttribute(int32_t* value, int32_t attribute, void* kernel, int32_t device)",
        driver="cuKernelGetAttribute",
    ),
    _F(
        "int32_t _cudaKernelSetAttributeForDevice(void* kernel, int32_t attribute, int32_t value, int32_t device)",
        driver="cuKernelSetAttribute",
        passes="attribute value kernel device",
    ),
    _F(
        "int32_t _cudaFuncSetAttribute(void* kernel, int32_t attribute, int32_t value)",
        runtime="cudaFuncSetAttribute",
    ),
    _F(
        "int32_t _cudaOccupancyMaxActiveBlocksPerMultiprocessor("
        "int32_t* blocks, void* kernel, int32_t threads, int64_t smem_bytes)",
        driver="cuOccupancyMaxActiveBlocksPerMultiprocessor",
    ),
    # Devices. The runtime's attributes have the driver's numbers.
    _F("int32_t _cudaGetDevice(int32_t* device)", runtime="cudaGetDevice"),
    _F("int32_t _cudaSetDevice(int32_t device)", runtime="cudaSetDevice"),
    _F("int32_t _cudaGetDeviceCount(int32_t* count)", driver="cuDeviceGetCount"),
    _F("int32_t _cuDeviceGet(int32_t* device, int32_t ordinal)", driver="cuDeviceGet"),
    _F(
        "int32_t _cudaDeviceGetAttribute(int32_t* value, int32_t attribute, int32_t device)",
        driver="cuDeviceGetAttribute",
    ),
    # Not for exported libraries: they launch on their callers' streams, under graph capture too.
    _F("int32_t _cudaDeviceSynchronize(void)", driver="cuCtxSynchronize", exported=False),
    _F("int32_t _cudaStreamSynchronize(void* stream)", driver="cuStreamSynchronize", exported=False),
    # Launching. The runtime's configuration is laid out as CUlaunchConfig: its 64-bit count of bytes ends in zeros.
    _F(
        "int32_t _cudaLaunchKernelEx(const void* config, void* kernel, void** parameters)",
        driver="cuLaunchKernelEx",
        passes="config kernel parameters 0",
    ),
    _F(
        "int32_t _cudaLaunchKernel(void* kernel, int32_t grid_x, int32_t grid_y, int32_t grid_z, int32_t block_x, "
        "int32_t block_y, int32_t block_z, void** parameters, int64_t smem_bytes, void* stream)",
        driver="cuLaunchKernel",
        passes="kernel grid_x grid_y grid_z block_x block_y block_z smem_bytes stream parameters 0",
    ),
    _F(
        "int32_t _cuTensorMapEncodeTiled(void* map, int32_t dtype, int32_t rank, void* address, const void* extents, "
        "const void* strides, const void* box, const void* steps, int32_t interleave, int32_t swizzle, "
        "int32_t promotion, int32_t fill)",
        driver="cuTensorMapEncodeTiled",
    ),
    _F("int32_t _cuTensorMapReplaceAddress(void* map, void* address)", driver="cuTensorMapReplaceAddress"),
    # The caller's stream and errors. In process the two setters are TVM-FFI's own; `raise_parts` is the second of them.
    _F("void* TVMFFIEnvGetStream(int32_t device_type, int32_t device)"),
    _F("void TVMFFIErrorSetRaisedFromCStr(const char* kind, const char* message)"),
    _F("void TVMFFIErrorSetRaisedFromCStrParts(const char* kind, const char** parts, int32_t count)"),
    _F("void CuteDSLRT_TVMFFISetRaisedCudaError(void* raise_parts, int32_t code)"),
    _F("void CuteDSLRT_TVMFFISetRaisedCudaLaunchError(void* raise_parts, int32_t code)"),
    # Functions that the DSL calls itself: its own implementations end the process.
    _F("int32_t cuda_dialect_assert_success(int32_t code)", exported=False),
    _F("int32_t cuda_dialect_print_on_error(int32_t code)", exported=False),
)
FUNCTIONS = {function.name: function for function in _TABLE}
"""Functions by their names in host code."""


def is_host_function(name: str) -> bool:
    """Return whether the runtime must define a function; the other functions of host code are C's.

    Examples
    --------
    >>> [is_host_function(name) for name in ("_cudaGetDevice", "TVMFFIEnvGetStream", "printf")]
    [True, True, False]
    """
    return name.startswith(("_cu", "cu", "TVMFFI", "CuteDSL", "_mlir"))


def address_of(function: Any) -> int:  # noqa: ANN401 - a function or a callback of ctypes
    """Return the address of a C function or a callback, which is never null."""
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address


def cuda_error_setters(describe: Callable[[int], str]) -> dict[str, Any]:
    """Make the functions by which host code raises errors of CUDA: a RuntimeError with the code's description."""

    def raise_cuda(raise_parts: int, code: int) -> None:
        kind, text = ctypes.c_char_p(b"RuntimeError"), ctypes.c_char_p(describe(code).encode())
        raise_error = FUNCTIONS["TVMFFIErrorSetRaisedFromCStrParts"].prototype(raise_parts)
        raise_error(ctypes.cast(kind, ctypes.c_void_p), ctypes.addressof(text), 1)

    names = ("CuteDSLRT_TVMFFISetRaisedCudaError", "CuteDSLRT_TVMFFISetRaisedCudaLaunchError")
    return {name: FUNCTIONS[name].prototype(raise_cuda) for name in names}


_RAISED_ALREADY = b"CUDA Error Code: -1"


def error_setters(
    raise_text: Callable[[int, int], None], raise_parts: Callable[[int, int, int], None]
) -> dict[str, Any]:
    """Make the functions by which host code raises errors, so that the first error stays.

    The entries of the DSL 4.6 raise again when the host function has raised, with the code alone, none of CUDA's.
    """

    def text(kind: int, message: int) -> None:
        if ctypes.string_at(message) != _RAISED_ALREADY:
            raise_text(kind, message)

    def parts(kind: int, messages: int, count: int) -> None:
        if b"".join(part or b"" for part in (ctypes.c_char_p * count).from_address(messages)) != _RAISED_ALREADY:
            raise_parts(kind, messages, count)

    setters = {"TVMFFIErrorSetRaisedFromCStr": text, "TVMFFIErrorSetRaisedFromCStrParts": parts}
    return {name: FUNCTIONS[name].prototype(setter) for name, setter in setters.items()}
