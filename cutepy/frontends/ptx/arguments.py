"""Kernel arguments as bytes, checked by how PTX declares the parameters.

References
----------
PTX ISA, "State Spaces: Kernel Function Parameters", "Fundamental Types"; CUDA driver API, cuLaunchKernel.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from cutepy.runtime.device_tensors import is_tensor
from cutepy.sim.ptx.model import Parameter

Argument: TypeAlias = Any
"""A torch tensor or numpy array, bytes or what has a buffer of them, a number, or None."""

_FLOATS = {"f16": "<e", "f32": "<f", "f64": "<d"}
_POINTER_BYTES = 8


def pack_all(kernel: str, parameters: Sequence[Parameter], arguments: Sequence[Argument]) -> list[bytes]:
    """Return the bytes of each argument of a kernel.

    Raises
    ------
    TypeError
        If there are more or fewer arguments than parameters, or one is of a type that its parameter does not take.
    ValueError
        If a number is out of its type's range, or bytes are more or fewer than the parameter's.

    Examples
    --------
    >>> declared = [Parameter("n", 4, 4, "u32"), Parameter("scale", 4, 4, "f32"), Parameter("pair", 4, 2, "b16")]
    >>> [data.hex() for data in pack_all("k", declared, [-1, 0.5, bytes(4)])]
    ['ffffffff', '0000003f', '00000000']
    """
    if len(parameters) != len(arguments):
        declared = ", ".join(_declaration(p) for p in parameters) or "none"
        raise TypeError(
            f"{kernel} takes {len(parameters)} arguments, got {len(arguments)}; its parameters are: {declared}"
        )
    return [
        _packed(f"{kernel}, argument {n} ({_declaration(p)})", p, value)
        for n, (p, value) in enumerate(zip(parameters, arguments, strict=True))
    ]


def _declaration(parameter: Parameter) -> str:
    count = parameter.size_bytes // _element_bytes(parameter)
    return f".{parameter.type} {parameter.name}" + (f"[{count}]" if count > 1 else "")


def _element_bytes(parameter: Parameter) -> int:
    return int(parameter.type[1:]) // 8


def _packed(where: str, parameter: Parameter, value: Argument) -> bytes:
    if value is None or is_tensor(value):
        return _pointer(where, parameter, value)
    if isinstance(value, (bool, int, float, np.number, np.bool_)):
        if parameter.size_bytes != _element_bytes(parameter):
            raise TypeError(
                f"{where}: expected {parameter.size_bytes} bytes, got the number {value!r}; pack it with struct"
            )
        return _number(where, parameter, value)
    try:
        data = bytes(memoryview(value))
    except TypeError:
        raise TypeError(
            f"{where}: expected a torch tensor, a numpy array, bytes or a number, got {type(value).__name__}"
        ) from None
    if len(data) != parameter.size_bytes:
        raise ValueError(f"{where}: expected {parameter.size_bytes} bytes, got {len(data)}")
    return data


def _pointer(where: str, parameter: Parameter, tensor: Any) -> bytes:  # noqa: ANN401
    """Return the address of a tensor; that of None is 0."""
    if parameter.size_bytes != _POINTER_BYTES or parameter.type not in ("u64", "b64", "s64"):
        what = "None" if tensor is None else f"a {type(tensor).__name__}, which is passed as its address of 64 bits"
        raise TypeError(f"{where}: expected a value of this type, got {what}; pass a struct that holds it as bytes")
    return struct.pack("<Q", 0 if tensor is None else address_of(where, tensor))


def address_of(where: str, tensor: Any) -> int:  # noqa: ANN401
    """Return where a tensor's or array's first element is, which must be in host memory."""
    if isinstance(tensor, np.ndarray):
        return tensor.ctypes.data
    import torch

    on_gpu = tensor.device.type == "cuda" and hasattr(torch._C, "_cuda_init")  # a build for the CPU has no such thing
    if on_gpu or tensor.device.type not in ("cpu", "cuda"):
        raise TypeError(f"{where}: expected a tensor in host memory, got one on {tensor.device}; pass tensor.cpu()")
    if tensor.layout != torch.strided:
        raise TypeError(f"{where}: expected a dense tensor, got one of layout {tensor.layout}; pass tensor.to_dense()")
    return int(tensor.data_ptr())


def _number(where: str, parameter: Parameter, value: Any) -> bytes:  # noqa: ANN401
    kind = parameter.type
    if kind in _FLOATS:
        return _float(where, kind, float(value))
    if kind[0] not in "bsu":
        raise TypeError(f"{where}: expected bytes of type {kind}, got the number {value!r}")
    if isinstance(value, np.floating) and kind[0] == "b" and value.nbytes == parameter.size_bytes:
        return value.tobytes()
    if isinstance(value, (float, np.floating)):
        hint = f"; say which float it is: np.float{kind[1:]}({value!r})" if kind in ("b16", "b32", "b64") else ""
        raise TypeError(f"{where}: expected an integer, got {value!r}{hint}")
    return _integer(where, kind, int(value))


def _float(where: str, kind: str, value: float) -> bytes:
    try:
        return struct.pack(_FLOATS[kind], value)
    except OverflowError:
        largest = {"f16": 65504.0, "f32": float(np.finfo(np.float32).max)}[kind]
        raise ValueError(f"{where}: expected at most {largest:g}, got {value!r}; pass math.inf for infinity") from None


def _integer(where: str, kind: str, value: int) -> bytes:
    """Return an integer, modulo 2^bits where it has no sign: C++ compilers declare `int` as .u32."""
    bits = int(kind[1:])
    low, high = -(1 << bits - 1), (1 << bits - (kind[0] == "s")) - 1
    if not low <= value <= high:
        raise ValueError(f"{where}: expected an integer from {low} to {high}, got {value}")
    return (value % (1 << bits)).to_bytes(bits // 8, "little")
