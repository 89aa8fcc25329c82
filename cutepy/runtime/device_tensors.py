"""Tensors in host memory, shown to the DSL as ones on CUDA's device 0, so that it makes and takes what a GPU would."""

from __future__ import annotations

import ctypes
from typing import Any

_TYPES = ("torch.Tensor", "numpy.ndarray")
_CUDA = 2


def is_tensor(value: object) -> bool:
    """Tell whether a value is a torch tensor or a numpy array; loads neither package."""
    return any(f"{t.__module__}.{t.__qualname__}" in _TYPES for t in type(value).__mro__)


class DeviceTensor:
    """A tensor in host memory whose DLPack capsule says CUDA.

    A DLManagedTensor starts with the data pointer, then {int32 device type, int32 device id}; a versioned one has 24
    bytes more in front of that. Each export makes a fresh struct, so writing to it harms nobody.
    """

    def __init__(self, tensor: Any) -> None:  # noqa: ANN401
        self._tensor = tensor

    def __dlpack__(self, **_: object) -> object:
        capsule = self._tensor.detach().__dlpack__() if hasattr(self._tensor, "detach") else self._tensor.__dlpack__()
        get_name = ctypes.pythonapi.PyCapsule_GetName
        get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
        get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
        get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        name = get_name(capsule)
        address = get_pointer(capsule, name) + (32 if name == b"dltensor_versioned" else 0)
        ctypes.c_int32.from_address(address + 8).value = _CUDA
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CUDA, 0
