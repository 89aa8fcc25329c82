"""Describe tensors of rows, and compile the kernels of this folder for them."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from cutepy.host.compilation import compile
from cutepy.host.declared import Deferred
from cutepy.host.function import Function
from cutepy.host.launches import OptionalTensor
from cutepy.host.specs import TensorSpec, dtype_name
from cutepy.kernels.gemm.gpu import HOPPER

SOURCES = ("cutepy.layouts", "cutepy.device", "cutepy.epilogues", "cutepy.kernels.rows")
VECTOR_BYTES = 16
MOST_ROWS = 2**30
"""Rows of a launch, whose indices have 32 bits."""
SCALE = TensorSpec("float32", (1,), align=4)
SCALES = TensorSpec("float32", ("rows", "blocks"), strides=("row", "block"), align=4)
"""A number of each row, or of each block of it."""


@cache
def compile_rows(kernel: str, config: Any, *arguments: TensorSpec | float | None) -> Function:  # noqa: ANN401
    """Compile a kernel of this folder, "module:Class", of a configuration."""
    kernels = Deferred(f"cutepy.kernels.rows.{kernel}", config)
    return compile(kernels, *arguments, arch=HOPPER, sources=SOURCES).without_lazy_check()


def check_rows(rows: int, parts: int = 1) -> None:
    """Refuse more rows than a launch has indices for, each of a given number of parts that CTAs have.

    Raises
    ------
    ValueError
        If there are.
    """
    if rows > (most := MOST_ROWS // parts):
        raise ValueError(f"there must be {most} rows at most, got {rows}; part them")


def elems_of(first: torch.Tensor, *others: OptionalTensor) -> int:
    """Return how many elements the vectors of tensors have, (rows, columns) or (columns,): a power of 2.

    As many as 16 bytes hold of the first, which is read most, and as the addresses and strides of all allow. A tensor
    of wider elements has several vectors of 16 bytes for one of the first.
    """
    given = [first, *(each for each in others if each is not None)]
    elems = VECTOR_BYTES // first.element_size()
    while elems > 1 and not all(_allows(each, elems) for each in given):
        elems //= 2
    return elems


def _allows(tensor: torch.Tensor, elems: int) -> bool:
    """Tell whether each row begins with a whole vector; of one row too, whose vectors are then those of a batch."""
    size = tensor.element_size()
    unit = min(VECTOR_BYTES, elems * size)
    return all(place % unit == 0 for place in (tensor.data_ptr(), *(step * size for step in tensor.stride()[:-1])))


def as_rows(tensor: torch.Tensor) -> torch.Tensor:
    """View a tensor (..., columns) as rows of contiguous elements, or copy it where there is no such view."""
    if tensor.stride(-1) != 1:
        tensor = tensor.clone(memory_format=torch.contiguous_format)
    return tensor if tensor.dim() == 2 else tensor.reshape(-1, tensor.shape[-1])


def row_spec(name: str, dtype: torch.dtype, elems: int, *, is_whole: bool, rows: str = "rows") -> TensorSpec:
    """Describe a matrix of rows that are any whole vectors apart; `is_whole` if they end with a vector."""
    unit = min(VECTOR_BYTES, elems * dtype.itemsize)
    divisibility = {name: unit // dtype.itemsize} | ({"columns": elems} if is_whole else {})
    strides = (name, 1)
    return TensorSpec(dtype_name(dtype), (rows, "columns"), strides=strides, divisibility=divisibility, align=unit)


def specs_of(elems: int, **tensors: OptionalTensor) -> list[TensorSpec | None]:
    """Describe tensors (rows, columns), and vectors (columns,), by their names."""
    return [None if each is None else _spec(name, each, elems) for name, each in tensors.items()]


def _spec(name: str, tensor: torch.Tensor, elems: int) -> TensorSpec:
    is_whole = tensor.shape[-1] % elems == 0
    if tensor.dim() > 1:
        return row_spec(name, tensor.dtype, elems, is_whole=is_whole)
    unit = min(VECTOR_BYTES, elems * tensor.element_size())
    divisibility = {"columns": elems} if is_whole else {}
    return TensorSpec(dtype_name(tensor.dtype), ("columns",), divisibility=divisibility, align=unit)


def numbers_spec(dtype: torch.dtype = torch.float32) -> TensorSpec:
    """Describe a tensor of a number of each row."""
    return TensorSpec(dtype_name(dtype), ("rows",), align=dtype.itemsize)
