"""Tensors of other libraries: host tensors exported as CUDA device 0's, and the read-only flag.

References
----------
DLPack 1.0: `DLManagedTensorVersioned`, `DLPACK_FLAG_BITMASK_READ_ONLY`; Python array API, `__dlpack__(max_version=)`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_TYPES = ("torch.Tensor", "numpy.ndarray")
_CUDA = 2
_VERSIONED = b"dltensor_versioned"
_FLAGS_AT, _IS_READ_ONLY = 24, 1
"""Offset and mask of a DLManagedTensorVersioned's flags, after a version of 8 bytes and two pointers."""

_AS_GIVEN = "_cutepy_given"
"""Attribute of a tensor of the DSL that was made in a simulation: the array that it was made of."""

Input = tuple[int, int, str]
"""Start, end and description of memory that a kernel may read and not write."""

_inputs: ContextVar[tuple[Input, ...]] = ContextVar("inputs", default=())


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
    value = getattr(value, _AS_GIVEN, value)
    if hasattr(value, "data_ptr"):
        return False
    if hasattr(value, "__array_interface__"):
        data = value.__array_interface__.get("data")
        return isinstance(data, tuple) and bool(data[1])
    if not hasattr(value, "__dlpack__"):
        return False
    try:
        capsule = value.__dlpack__(max_version=(1, 0))
    except TypeError:
        return False  # it exports by DLPack before 1.0, which has no flags
    name, address = _named_pointer(capsule)
    return name == _VERSIONED and bool(ctypes.c_uint64.from_address(address + _FLAGS_AT).value & _IS_READ_ONLY)


def as_tensor(value: Any) -> Any:  # noqa: ANN401
    """See another library's array, which exports its memory by DLPack alone, as a torch tensor; gives others back."""
    if hasattr(value, "data_ptr") or hasattr(value, "__array_interface__") or not hasattr(value, "__dlpack__"):
        return value
    import torch

    return torch.utils.dlpack.from_dlpack(value)


def is_numpy(value: object) -> bool:
    """Return whether a value is a numpy array; numpy isn't loaded for that."""
    return any(f"{t.__module__}.{t.__qualname__}" == "numpy.ndarray" for t in type(value).__mro__)


def element_range(value: Any) -> tuple[int, int] | None:  # noqa: ANN401
    """Return the address of an array's first byte, and the bytes to the end of its last; None where it has no memory.

    Examples
    --------
    >>> import numpy
    >>> array = numpy.zeros((4, 4), numpy.float32)
    >>> element_range(array[::-1, 1:3]) == (array.ctypes.data + 4, 56)
    True
    """
    value = as_tensor(getattr(value, _AS_GIVEN, value))
    if is_numpy(value):
        import numpy as np

        low, high = np.lib.array_utils.byte_bounds(value)
        return int(low), int(high - low)
    if not hasattr(value, "untyped_storage") or "strided" not in str(value.layout) or hasattr(value, "fake_mode"):
        return None
    steps = sum((extent - 1) * stride for extent, stride in zip(value.shape, value.stride(), strict=True))
    return value.data_ptr(), (steps + 1) * value.element_size() if value.numel() else 0


def inputs_of(
    values: Iterable[Any], reach: Callable[[Any], tuple[int, int] | None] = element_range
) -> tuple[Input, ...]:
    """Return the memory of read-only arrays, without ranges of arrays that may be written to.

    Parameters
    ----------
    values : iterable
        All arguments of a call.
    reach : function
        Gives address and bytes of the memory that a kernel may access of an array that may be written to.
    """
    values = [*values]
    read_only = [value for value in values if is_read_only(value)]
    if not read_only:
        return ()
    found: list[Input] = []
    for value in read_only:
        start, size = element_range(value) or (0, 0)
        given = as_tensor(getattr(value, _AS_GIVEN, value))
        name = f"shape {tuple(given.shape)} and type {str(given.dtype).removeprefix('torch.')}"
        found.append((start, start + size, name))
    for value in values:
        if not any(value is one for one in read_only) and (hasattr(value, "__dlpack__") or hasattr(value, _AS_GIVEN)):
            start, size = reach(getattr(value, _AS_GIVEN, value)) or (0, 0)
            found = [part for one in found for part in _without(one, start, start + size)]
    return tuple(one for one in found if one[0] < one[1])


def _without(one: Input, start: int, end: int) -> list[Input]:
    """Return the rest of a range, whose name stays, without the bytes from one address up to another."""
    if start >= end or end <= one[0] or one[1] <= start:
        return [one]
    return [(one[0], max(one[0], start), one[2]), (min(one[1], end), one[1], one[2])]


@contextmanager
def inputs_kept(inputs: tuple[Input, ...]) -> Iterator[None]:
    """Let the launches of host code in the context, captured ones too, store to none of the given memory."""
    token = _inputs.set(inputs)
    try:
        yield
    finally:
        _inputs.reset(token)


def inputs_now() -> tuple[Input, ...]:
    """Return the memory that the launches of the host code that runs may not store to."""
    return _inputs.get()


def remember_given(made: Any, given: Any) -> None:  # noqa: ANN401
    """Keep the array that a tensor of the DSL was made of, so that its flag can be asked at each call."""
    setattr(made, _AS_GIVEN, given)


def _named_pointer(capsule: object) -> tuple[bytes, int]:
    """Return the name of a capsule, and the address of its struct."""
    get_name = ctypes.pythonapi.PyCapsule_GetName
    get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    name: bytes = get_name(capsule)
    return name, get_pointer(capsule, name)


def _exported(tensor: Any) -> object:  # noqa: ANN401
    """Export a tensor's memory by DLPack before 1.0, in which numpy exports no array that is read-only."""
    if hasattr(tensor, "detach"):
        tensor = tensor.detach()
    elif is_numpy(tensor) and not tensor.flags.writeable:
        import numpy as np

        start, size = element_range(tensor) or (0, 0)
        memory = memoryview((ctypes.c_uint8 * size).from_address(start))
        tensor = np.ndarray(tensor.shape, tensor.dtype, memory, tensor.ctypes.data - start, tensor.strides)
    return tensor.__dlpack__()


class DeviceTensor:
    """A tensor in host memory whose DLPack capsule says CUDA.

    A DLManagedTensor starts with the data pointer, then {int32 device type, int32 device id}; a versioned one has 32
    bytes more in front of that. Each export makes a fresh struct, so writing to it harms nobody.
    """

    def __init__(self, tensor: Any) -> None:  # noqa: ANN401
        self._tensor = tensor

    def __dlpack__(self, **_: object) -> object:
        capsule = _exported(self._tensor)
        name, address = _named_pointer(capsule)
        ctypes.c_int32.from_address(address + (40 if name == _VERSIONED else 8)).value = _CUDA
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CUDA, 0
