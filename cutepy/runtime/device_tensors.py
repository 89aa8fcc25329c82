"""Tensors of other libraries: host tensors exported as CUDA device 0's, and the read-only flag.

References
----------
DLPack 1.0: `DLManagedTensorVersioned`, `DLPACK_FLAG_BITMASK_READ_ONLY`; Python array API, `__dlpack__(max_version=)`.
"""

from __future__ import annotations

import ctypes
from typing import Any

_TYPES = ("torch.Tensor", "numpy.ndarray")
_CUDA = 2
_VERSIONED = b"dltensor_versioned"
_FLAGS_AT, _IS_READ_ONLY = 24, 1
"""Offset and mask of a DLManagedTensorVersioned's flags, after a version of 8 bytes and two pointers."""


def is_tensor(value: object) -> bool:
    """Return whether a value is a torch tensor or a numpy array; loads neither package."""
    return any(f"{t.__module__}.{t.__qualname__}" in _TYPES for t in type(value).__mro__)


def is_read_only(value: Any) -> bool:  # noqa: ANN401
    """Return whether a value is an array that may not be written to, by numpy's interface or by DLPack's flag.

    Torch's tensors have neither: they may be.

    Examples
    --------
    >>> import numpy
    >>> array = numpy.zeros(4)
    >>> is_read_only(array)
    False
    >>> array.flags.writeable = False
    >>> is_read_only(array)
    True
    """
    if hasattr(value, "data_ptr"):
        return False
    if hasattr(value, "__array_interface__"):
        return bool(value.__array_interface__["data"][1])
    if not hasattr(value, "__dlpack__"):
        return False
    try:
        capsule = value.__dlpack__(max_version=(1, 0))
    except TypeError:
        return False  # it exports by DLPack before 1.0, which has no flags
    name, address = _named_pointer(capsule)
    return name == _VERSIONED and bool(ctypes.c_uint64.from_address(address + _FLAGS_AT).value & _IS_READ_ONLY)


def _named_pointer(capsule: object) -> tuple[bytes, int]:
    """Return the name of a capsule, and the address of its struct."""
    get_name = ctypes.pythonapi.PyCapsule_GetName
    get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    name: bytes = get_name(capsule)
    return name, get_pointer(capsule, name)


class DeviceTensor:
    """A tensor in host memory whose DLPack capsule says CUDA.

    A DLManagedTensor starts with the data pointer, then {int32 device type, int32 device id}; a versioned one has 32
    bytes more in front of that. Each export makes a fresh struct, so writing to it harms nobody.
    """

    def __init__(self, tensor: Any) -> None:  # noqa: ANN401
        self._tensor = tensor

    def __dlpack__(self, **_: object) -> object:
        capsule = self._tensor.detach().__dlpack__() if hasattr(self._tensor, "detach") else self._tensor.__dlpack__()
        name, address = _named_pointer(capsule)
        ctypes.c_int32.from_address(address + (40 if name == _VERSIONED else 8)).value = _CUDA
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CUDA, 0
