"""Stand-ins for arguments at compile time: tensors with extents that vary, and streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from cutepy.dsl.element_types import element_type
from cutepy.dsl.version import require


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
    """Stand for the stream that is current at a call; callers do not pass it.

    It says that it is a `CUstream`: the DSL takes its own fake for a parameter annotated as one, but holds it against
    a union such as `CUstream | None`, and then only an instance of a member will do.
    """
    return _stream_type()(use_tvm_ffi_env_stream=True)


@cache
def _stream_type() -> type:
    fake = type(require("cutlass.cute.runtime", "make_fake_stream").make_fake_stream())
    driver = require("cuda.bindings.driver", "CUstream")
    return type("FakeStream", (fake,), {"__class__": property(lambda self: driver.CUstream)})
