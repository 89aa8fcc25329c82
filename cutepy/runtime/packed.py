"""TVM-FFI's packed calling convention, by which compiled host code takes its arguments.

Every argument is a 16-byte tagged value; a tensor is a pointer to a `DLTensor`. The compiled code checks types,
extents, strides, alignment and devices itself, reads what it needs, and launches. On a GPU the package `tvm_ffi`
makes the values, in C; here they are made in Python, for the simulator and for tests.

References: tvm-ffi's `c_api.h` (`TVMFFIAny`, `TVMFFISafeCallType`) and DLPack's `dlpack.h`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from cutepy.runtime.device_tensors import DeviceTensor, is_tensor
from cutepy.runtime.dtypes import dlpack_type

_NONE, _INT, _BOOL, _FLOAT, _TENSOR, _ARRAY = 0, 1, 2, 3, 7, 71
CUDA = 2
"""Device type of CUDA in DLPack."""


class _Any(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int32), ("padding", ctypes.c_uint32), ("value", ctypes.c_uint64))


class _Device(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int32), ("index", ctypes.c_int32))


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("rank", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


def plain_number(value: object) -> bool | int | float | None:
    """Convert a Python number, numpy scalar or DSL number to Python's own; None for anything else.

    These are the numbers that `tvm_ffi` takes, and numpy's bool.

    Examples
    --------
    >>> import numpy as np
    >>> plain_number(np.float16(1.5)), plain_number(np.bool_(True)), plain_number(np.array(1.5)), plain_number("1")
    (1.5, True, None, None)
    """
    if isinstance(value, (bool, int, float)):
        return value
    if "numpy.generic" in (f"{base.__module__}.{base.__qualname__}" for base in type(value).__mro__):
        value = value.item()  # type: ignore[attr-defined]
    elif hasattr(value, "__tvm_ffi_int__"):
        value = value.__tvm_ffi_int__()
    elif hasattr(value, "__tvm_ffi_float__"):
        value = value.__tvm_ffi_float__()
    return value if isinstance(value, (bool, int, float)) else None


class PackedArguments:
    """Arguments in packed form, alive as long as this object.

    Parameters
    ----------
    arguments : sequence
        None, numbers (see `plain_number`), torch tensors and numpy arrays. A tensor is described as one on CUDA device
        0, wherever it is, so that host code compiled for a GPU takes it. Tuples of these, too.

    Raises
    ------
    TypeError
        If an argument is none of these.
    """

    def __init__(self, arguments: Sequence[object]) -> None:
        self._tensors: list[_Tensor] = []
        self._keep: list[object] = []
        self.count = len(arguments)
        self.values = (_Any * max(self.count, 1))(*map(self._packed, arguments))

    def _packed(self, argument: object) -> _Any:
        if argument is None:
            return _Any(_NONE, 0, 0)
        number = plain_number(argument)
        if isinstance(number, bool):
            return _Any(_BOOL, 0, int(number))
        if isinstance(number, int):
            if not -(2**63) <= number < 2**63:
                raise ValueError(f"a number must be from -2**63 to 2**63 - 1, got {number}")
            return _Any(_INT, 0, number & 0xFFFFFFFFFFFFFFFF)
        if isinstance(number, float):
            return _Any(_FLOAT, 0, ctypes.c_uint64.from_buffer(ctypes.c_double(number)).value)
        if hasattr(argument, "shape") and hasattr(argument, "dtype") and hasattr(argument, "__dlpack__"):
            return _Any(_TENSOR, 0, ctypes.addressof(self._described(argument)))
        if isinstance(argument, (tuple, list)):
            return self._array(argument)
        raise TypeError(
            f"an argument must be a tensor, an array, a number, None or a tuple of these, got {type(argument).__name__}"
        )

    def _array(self, items: Sequence[object]) -> _Any:
        """Make an array of TVM-FFI, which owns its values."""
        import tvm_ffi as ffi

        def converted(item: Any) -> Any:  # noqa: ANN401
            if isinstance(item, (tuple, list)):
                return tuple(map(converted, item))
            if (number := plain_number(item)) is not None:
                return number
            return ffi.from_dlpack(DeviceTensor(item)) if is_tensor(item) else item

        array = ffi.convert(tuple(map(converted, items)))
        self._keep.append(array)
        return _Any(_ARRAY, 0, array.__chandle__())

    def _described(self, tensor: Any) -> _Tensor:  # noqa: ANN401
        code, bits = dlpack_type(str(tensor.dtype).removeprefix("torch."))
        shape = tuple(tensor.shape)
        if hasattr(tensor, "data_ptr"):
            address, strides = tensor.data_ptr(), tensor.stride()
        else:
            address = tensor.__array_interface__["data"][0]
            strides = tuple(stride // tensor.itemsize for stride in tensor.strides)
        extents = (ctypes.c_int64 * max(len(shape), 1))(*shape)
        steps = (ctypes.c_int64 * max(len(shape), 1))(*strides)
        made = _Tensor(address, _Device(CUDA, 0), len(shape), _DataType(code, bits, 1), extents, steps, 0)
        self._tensors.append(made)
        self._keep += [extents, steps, tensor]
        return made


ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p)
"""Compiled entry: (handle, arguments, count, result) -> 0, or not 0 after it has set an error."""


def call(address: int, arguments: PackedArguments) -> int:
    """Call a compiled entry; return its result."""
    result = _Any()
    return int(ENTRY(address)(None, ctypes.addressof(arguments.values), arguments.count, ctypes.addressof(result)))
