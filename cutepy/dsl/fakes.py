"""Stand-ins for arguments at compile time: tensors with extents that vary, and streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cutepy.dsl.version import require

# Torch's name of an element type -> the DSL's.
_TYPES = {
    "float16": "Float16",
    "bfloat16": "BFloat16",
    "float32": "Float32",
    "float64": "Float64",
    "float8_e4m3fn": "Float8E4M3FN",
    "float8_e5m2": "Float8E5M2",
    "float8_e8m0fnu": "Float8E8M0FNU",
    "float4_e2m1fn_x2": "Float4E2M1FN",
    "int8": "Int8",
    "int16": "Int16",
    "int32": "Int32",
    "int64": "Int64",
    "uint8": "Uint8",
    "uint16": "Uint16",
    "uint32": "Uint32",
    "uint64": "Uint64",
    "bool": "Boolean",
}


def element_type(dtype: str) -> Any:  # noqa: ANN401
    """Give the DSL's element type of a name of torch's.

    Raises
    ------
    ValueError
        If the DSL has none.
    """
    if dtype not in _TYPES:
        raise ValueError(f"dtype must be one of {', '.join(_TYPES)}, got {dtype}")
    return getattr(require("cutlass", _TYPES[dtype]), _TYPES[dtype])


class Symbols:
    """The integers that a function is compiled without knowing, by name.

    Parameters
    ----------
    divisibility : mapping of str to int
        What the value of a name is a multiple of; 1 for the rest.
    """

    def __init__(self, divisibility: Mapping[str, int]) -> None:
        self._cute = require("cutlass.cute", "sym_int", "sym_int64")
        self._divisibility = divisibility
        self._made: dict[tuple[str, int], Any] = {}

    def extent(self, value: int | str) -> Any:  # noqa: ANN401
        """Give a number, or the 32-bit integer of a name."""
        return self._symbol(value, 32)

    def stride(self, value: int | str) -> Any:  # noqa: ANN401
        """Give a number, or the 64-bit integer of a name."""
        return self._symbol(value, 64)

    def _symbol(self, value: int | str, bits: int) -> Any:  # noqa: ANN401
        if isinstance(value, int):
            return value
        if (value, bits) not in self._made:
            make = self._cute.sym_int if bits == 32 else self._cute.sym_int64
            self._made[value, bits] = make(divisibility=self._divisibility.get(value, 1))
        return self._made[value, bits]


def fake_tensor(
    dtype: str,
    shape: Sequence[int | str],
    symbols: Symbols,
    *,
    strides: Sequence[int | str] | None = None,
    stride_order: Sequence[int] | None = None,
    align_bytes: int = 16,
) -> Any:  # noqa: ANN401
    """Stand for a tensor in global memory.

    Parameters
    ----------
    dtype : str
        Torch's name of the element type.
    shape : sequence of int or str
        Extents, numbers or names.
    symbols : Symbols
        What the names stand for; one for all tensors of a function.
    strides : sequence of int or str, optional
        In elements. Without them the tensor is compact in `stride_order`, by default the last dimension first.
    stride_order : sequence of int, optional
        Place of each dimension in the order of strides, 0 the contiguous one.
    align_bytes : int
        What the address is a multiple of.
    """
    runtime = require("cutlass.cute.runtime", "make_fake_tensor", "make_fake_compact_tensor")
    kind, extents = element_type(dtype), tuple(map(symbols.extent, shape))
    if strides is not None:
        return runtime.make_fake_tensor(kind, extents, tuple(map(symbols.stride, strides)), assumed_align=align_bytes)
    order = tuple(reversed(range(len(extents)))) if stride_order is None else tuple(stride_order)
    return runtime.make_fake_compact_tensor(kind, extents, stride_order=order, assumed_align=align_bytes)


def fake_stream() -> Any:  # noqa: ANN401
    """Stand for the stream that is current at a call; callers do not pass it."""
    return require("cutlass.cute.runtime", "make_fake_stream").make_fake_stream(use_tvm_ffi_env_stream=True)
