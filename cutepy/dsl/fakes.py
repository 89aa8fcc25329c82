"""Fake arguments at compile time: tensors with extents that vary, and streams."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from cutepy.dsl.element_types import dtype_of, element_type
from cutepy.dsl.version import require


class Symbols:
    """Symbolic integers of a function's arguments, by name.

    Parameters
    ----------
    divisibility : mapping of str to int
        Divisor of the value of a name; 1 for the rest.
    """

    def __init__(self, divisibility: Mapping[str, int]) -> None:
        self._cute = require("cutlass.cute", "sym_int", "sym_int64")
        self._divisibility = divisibility
        self._made: dict[tuple[str, int], Any] = {}

    def extent(self, value: int | str) -> Any:  # noqa: ANN401
        """Return a number, or the symbolic 32-bit integer of a name."""
        return self._symbol(value, 32)

    def stride(self, value: int | str) -> Any:  # noqa: ANN401
        """Return a number, or the symbolic 64-bit integer of a name."""
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
    """Make a fake tensor in global memory.

    Parameters
    ----------
    dtype : str
        Torch's name of the element type.
    shape : sequence of int or str
        Extents, numbers or names.
    symbols : Symbols
        Values of the names; one object for all tensors of a function.
    strides : sequence of int or str, optional
        In elements. Without them the tensor is compact in `stride_order`, by default the last dimension first.
    stride_order : sequence of int, optional
        Place of each dimension in the order of strides, 0 the contiguous one.
    align_bytes : int
        Alignment of the address.
    """
    runtime = require("cutlass.cute.runtime", "make_fake_tensor", "make_fake_compact_tensor")
    kind, extents = element_type(dtype), tuple(map(symbols.extent, shape))
    if strides is not None:
        return runtime.make_fake_tensor(kind, extents, tuple(map(symbols.stride, strides)), assumed_align=align_bytes)
    order = tuple(reversed(range(len(extents)))) if stride_order is None else tuple(stride_order)
    return runtime.make_fake_compact_tensor(kind, extents, stride_order=order, assumed_align=align_bytes)


def fake_pointer(dtype: str, space: str, align_bytes: int) -> Any:  # noqa: ANN401
    """Make a fake pointer into a memory space."""
    runtime = require("cutlass.cute.runtime", "nullptr")
    spaces = require("cutlass.cute", "AddressSpace").AddressSpace
    return runtime.nullptr(element_type(dtype), getattr(spaces, space), assumed_align=align_bytes)


def from_dsl_pointer(pointer: Any) -> dict[str, Any]:  # noqa: ANN401
    """Describe one of the DSL's pointers: dtype, align in bytes, and space."""
    bits = pointer.dtype.width
    align = getattr(pointer, "_assumed_align", None) or max(bits // 8, 1)
    return {"dtype": dtype_of(pointer.dtype), "align": align, "space": pointer.memspace.name}


def dsl_number(value: float, annotation: object) -> Any:  # noqa: ANN401
    """Make one of the DSL's numbers: of the annotated type, or of its default type for a Python number."""
    cutlass = require("cutlass", "Numeric", "Boolean", "Int32", "Float32")
    if isinstance(annotation, type) and issubclass(annotation, cutlass.Numeric):
        return annotation(1)
    kind = cutlass.Boolean if isinstance(value, bool) else cutlass.Int32 if isinstance(value, int) else cutlass.Float32
    return kind(1)


# Within the text of a tensor's type: an extent or stride known only at a call, with its bits and its divisor.
_ENTRY = re.compile(r"(\d+)|\?(?:\{(?:i(?P<bits>\d+))?\s*(?:div=(?P<div>\d+))?\})?")


def in_global_memory(tensor: Any) -> Any:  # noqa: ANN401
    """Return a fake in global memory of a DSL tensor: a real one, from `from_dlpack`, may be on the CPU."""
    if not hasattr(tensor, "_dlpack_data"):
        return tensor
    ir = require("cutlass._mlir.ir", "Context", "Location")
    require("cutlass.cutlass_dsl", "CuTeDSL._get_dsl").CuTeDSL._get_dsl()
    tensor.__c_pointers__()  # only now does its type contain the divisibility of strides
    with ir.Context(), ir.Location.unknown():
        text = str(tensor.mlir_type)
    layout = text[text.index('"') + 1 : text.rindex('"')]
    shape, strides = (_entries(part, bits) for part, bits in zip(layout.split(":"), (32, 64), strict=True))
    runtime = require("cutlass.cute.runtime", "make_fake_tensor")
    align = tensor._assumed_align or max(tensor.element_type.width // 8, 1)
    return runtime.make_fake_tensor(tensor.element_type, shape, strides, assumed_align=align)


def _entries(text: str, bits: int) -> tuple[Any, ...]:
    cute = require("cutlass.cute", "sym_int", "sym_int64")
    found: list[Any] = []
    for match in _ENTRY.finditer(text):
        if match[1]:
            found.append(int(match[1]))
        else:
            make = cute.sym_int64 if int(match["bits"] or 32) == 64 else cute.sym_int
            found.append(make(divisibility=int(match["div"] or 1)))
    return tuple(found)


def described_fake(tensor: Any, names: dict[int, str]) -> dict[str, Any]:  # noqa: ANN401
    """Describe one of the DSL's fake tensors in the terms of a TensorSpec.

    Parameters
    ----------
    tensor : the DSL's fake tensor
    names : dict of int to str
        Name of each symbolic integer that was met before, by identity; grows.
    """
    divisors: dict[str, int] = {}

    def named(value: Any, kind: str) -> int | str:  # noqa: ANN401
        if isinstance(value, int):
            return value
        name = names.setdefault(id(value), f"n{len(names)}") + kind
        divisors[name] = value.divisibility
        return name

    shape = tuple(named(extent, "") for extent in tensor.shape)
    strides = tuple(named(stride, "_stride") for stride in tensor.stride)
    align = tensor._assumed_align
    return {
        "dtype": dtype_of(tensor.element_type),
        "shape": shape,
        "strides": strides,
        "divisibility": {name: divisor for name, divisor in divisors.items() if divisor > 1},
        "align": align,
    }


def fake_stream(*, asked_for: bool = True) -> Any:  # noqa: ANN401
    """Make a fake of the stream that is current at a call; callers do not pass it.

    Compiled code asks for it, by the GPU of a tensor; without a tensor, `asked_for` must be false, and it is passed.

    It says that it is a `CUstream`: the DSL takes its own fake for a parameter annotated as one, but holds it against
    a union such as `CUstream | None`, and then only an instance of a member will do.
    """
    return _stream_type()(use_tvm_ffi_env_stream=asked_for)


@cache
def _stream_type() -> type:
    fake = type(require("cutlass.cute.runtime", "make_fake_stream").make_fake_stream())
    driver = require("cuda.bindings.driver", "CUstream")
    return type("FakeStream", (fake,), {"__class__": property(lambda self: driver.CUstream)})
