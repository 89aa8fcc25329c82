"""The device guard that torch's C++ code asks for before it touches a device.

A CPU build of torch has no device guard for CUDA, and raises an error. Torch has a guard without effect, for fake
tensors on machines whose CUDA build finds no device. It replaces a registered guard that reports no devices. So this
module registers a guard that reports no devices, and torch's replaces it at once.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch

_DEVICE_CUDA = 1
_REGISTRY = "_ZN3c104impl26device_guard_impl_registryE"
_REGISTER = "_ZN3c104impl19registerDeviceGuardENS_10DeviceTypeEPKNS0_24DeviceGuardImplInterfaceE"
_REPLACE = "_ZN3c104impl24ensureCUDADeviceGuardSetEv"
_METHODS = 64
"""More than the virtual methods of the interface: whichever is asked how many devices there are, answers 0."""


def install() -> None:
    """Register the guard that does nothing for CUDA, unless there is one; it stays for the life of the process.

    Raises
    ------
    ImportError
        If this torch does not export a needed name.
    """
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    try:
        guards = (ctypes.c_void_p * (_DEVICE_CUDA + 1)).in_dll(library, _REGISTRY)
        register, replace = getattr(library, _REGISTER), getattr(library, _REPLACE)
    except (AttributeError, ValueError) as error:
        raise ImportError(
            f"serving the cuda device needs c10::impl::registerDeviceGuard and ensureCUDADeviceGuardSet, which torch "
            f"{torch.__version__} does not export; torch 2.13 does"
        ) from error
    if guards[_DEVICE_CUDA]:
        return
    none = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(lambda _: 0)
    address = ctypes.cast(none, ctypes.c_void_p).value
    methods = (ctypes.c_void_p * _METHODS)(*[address] * _METHODS)
    without_devices = ctypes.c_void_p(ctypes.addressof(methods))
    register.restype, register.argtypes = None, [ctypes.c_int8, ctypes.c_void_p]
    replace.restype, replace.argtypes = None, []
    register(_DEVICE_CUDA, ctypes.addressof(without_devices))
    replace()
    if guards[_DEVICE_CUDA] == ctypes.addressof(without_devices):
        guards[_DEVICE_CUDA] = None
        raise ImportError(f"torch {torch.__version__} kept a device guard that reports no devices; torch 2.13 does not")
