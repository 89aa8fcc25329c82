"""Descriptions of a product's tensors, and the test whether TMA or threads can load them in place.

Tensors are matrices, or batches of them: the last two modes are the matrices'.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from cutepy.device import rules
from cutepy.device.rules import ragged as groups
from cutepy.epilogues.graph import Graph
from cutepy.kernels.gemm.elements import INPUTS, INTEGERS, OUTPUTS, SUMS
from cutepy.kernels.gemm.limits import MOST_EXTENT
from cutepy.kernels.gemm.output_signature import OutputMajor
from cutepy.kernels.gemm.signature import GemmSignature, OperandMajor

OPERAND_DTYPES = tuple(getattr(torch, name) for name in INPUTS)
INTEGER_DTYPES = tuple(getattr(torch, name) for name in INTEGERS)
OUTPUT_DTYPES = tuple(getattr(torch, name) for name in OUTPUTS)
SUMS_DTYPE: torch.dtype = getattr(torch, SUMS)
"""Element type of integer accumulators."""
UNIT_BYTES = 16
"""Unit of TMA's addresses and strides, in bytes."""
OPERAND_MAJORS: tuple[OperandMajor, OperandMajor] = ("mn", "k")
OUTPUT_MAJORS: tuple[OutputMajor, OutputMajor] = ("col", "row")
"""Names of majors by the index of the contiguous mode."""


def address_bytes(tensor: torch.Tensor | None) -> int:
    """Return the alignment of a tensor's address in bytes, 16 at most; 16 where there is none."""
    return UNIT_BYTES if tensor is None else math.gcd(tensor.data_ptr(), UNIT_BYTES)


class Description(NamedTuple):
    """Dtype, shape, strides and address alignment (16 bytes at most) of a dense tensor."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    address_bytes: int = UNIT_BYTES

    @classmethod
    def of(cls, tensor: torch.Tensor) -> "Description":
        """Describe a tensor whose address counts as aligned to whole units."""
        return cls(tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device)

    @classmethod
    def at(cls, tensor: torch.Tensor) -> "Description":
        """Describe a tensor with the alignment of its address."""
        return cls(tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device, address_bytes(tensor))

    @classmethod
    def each(cls, values: Sequence[Any]) -> "tuple[Description | None, ...]":
        """Describe the tensors among values, with the alignments of their addresses; None stands for the others."""
        return tuple(cls.at(value) if isinstance(value, torch.Tensor) else None for value in values)

    @property
    def stored_bytes(self) -> int:
        """Bytes of the distinct elements: a broadcast batch counts once."""
        *batch, rows, columns = self.shape
        once = (extent for extent, step in zip(batch, self.stride[:-2], strict=True) if step)
        return math.prod(once) * rows * columns * self.dtype.itemsize

    @property
    def span_bytes(self) -> int:
        """Bytes from the first element to the end of the last; 0 without elements."""
        if 0 in self.shape:
            return 0
        last = sum((extent - 1) * stride for extent, stride in zip(self.shape, self.stride, strict=True))
        return (last + 1) * self.dtype.itemsize

    def new(self) -> torch.Tensor:
        """Allocate a tensor of this description."""
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=self.device)

    def __str__(self) -> str:
        return f"shape {tuple(self.shape)} with strides {tuple(self.stride)}"


def new_result(shape: Sequence[int], dtype: torch.dtype, major: str, device: torch.device) -> Description:
    """Describe a newly allocated result: packed matrices in the requested order."""
    transposed = major == "col" and len(shape) > 1
    order = (*shape[:-2], shape[-1], shape[-2]) if transposed else shape
    stride: list[int] = []
    step = 1
    for extent in reversed(order):
        stride.insert(0, step)
        step = step * torch.sym_max(extent, 1)
    if transposed:
        stride[-2:] = stride[-1], stride[-2]
    return Description(tuple(shape), tuple(stride), dtype, device)


class Problem(NamedTuple):
    """An epilogue of one product a @ b.mT, or of a batch of them, of tensors of these descriptions.

    Attributes
    ----------
    epilogue : str
        The text of its graph, which multiplies by scales first where operands have such.
    a, b : Description
        (..., K) and (N, K), or (..., M, K) and (..., N, K).
    operands : tuple of (Description or None)
        Of the epilogue; None of a number.
    results : tuple of Description
    scale_rows : (int, int) or None
    tma_scales : (bool, bool)
        Of the kernel's signature.
    """

    epilogue: str
    a: Description
    b: Description
    operands: tuple[Description | None, ...]
    results: tuple[Description, ...]
    scale_rows: tuple[int, int] | None = None
    tma_scales: tuple[bool, bool] = (False, False)

    @property
    def graph(self) -> Graph:
        """The epilogue's graph."""
        return Graph.parse(self.epilogue)

    @property
    def leading(self) -> tuple[int, ...]:
        """The extents of the product before N: rows, or a batch and M."""
        if len(self.b.shape) == 2:
            return self.a.shape[:-1]
        return (*torch.broadcast_shapes(self.a.shape[:-2], self.b.shape[:-2]), self.a.shape[-2])

    def at(
        self,
        a: Description,
        b: Description,
        operands: "Sequence[Description | None]" = (),
        outs: "Sequence[Description | None]" = (),
    ) -> "Problem":
        """Place the tensors: results are where they are allocated unless there are `outs`."""
        pairs = zip(self.results, outs or self.results, strict=True)
        results = (each if out is None else each._replace(address_bytes=out.address_bytes) for each, out in pairs)
        return self._replace(a=a, b=b, operands=tuple(operands), results=tuple(results))


class Matrix(NamedTuple):
    """Major, strides and unit by which a kernel loads a matrix, or a batch of them, in place.

    Attributes
    ----------
    contiguous_mode : 0 or 1
        The mode of stride 1.
    stride : tuple of int
        In elements, meant for all modes even where an extent of 1 makes one meaningless.
    unit_bytes : 16, 8 or 4
        TMA's unit, or the width of threads' copies.
    """

    contiguous_mode: int
    stride: tuple[int, ...]
    unit_bytes: int = UNIT_BYTES


def matrix(
    tensor: Description, ragged: int | None = None, *, is_operand: bool = False, by_threads: bool = False
) -> Matrix | None:
    """Return the layout by which TMA reaches a matrix, or a batch of them, in place; None if it cannot.

    It begins at a unit of 16 bytes. One extent is contiguous and in whole units: TMA stores no less, so it would write
    beyond an end within one. The other stride is whole units, without overlap; matrices of a batch may lie anywhere,
    whole units apart. The stride of an extent of 1 is never used, so any will do. wgmma transposes 16-bit elements
    only, so rows of 8-bit ones must be contiguous, and those of 32-bit ones of an operand, A or B. TMA holds extents
    below 2**31, to which a cluster's tile must not be rounded up, and strides below 2**40 bytes. Where groups follow
    one another along a mode, `ragged`, that one is not contiguous, and its stride below 2**34 bytes.

    If threads may load it (`by_threads`, of operands), all this may be true of 8 or 4 bytes instead, but of float32,
    which TMA rounds.
    """
    if by_threads and tensor.dtype != torch.float32:
        units = (_matrix_of_units(tensor, each, ragged, is_operand=True) for each in rules.CP_ASYNC_BYTES[::-1])
        return next((found for found in units if found is not None), None)
    return _matrix_of_units(tensor, UNIT_BYTES, ragged, is_operand=is_operand or by_threads)


def _matrix_of_units(tensor: Description, unit_bytes: int, ragged: int | None, *, is_operand: bool) -> Matrix | None:
    """Return the layout by which a matrix is reached in units of a given number of bytes; None if it isn't."""
    unit, shape = unit_bytes // tensor.dtype.itemsize, tensor.shape[-2:]
    if tensor.address_bytes % unit_bytes:
        return None
    strides = [stride if extent > 1 else None for extent, stride in zip(shape, tensor.stride[-2:], strict=True)]
    for mode in (1, 0) if tensor.dtype.itemsize == 2 or (tensor.dtype.itemsize > 2 and not is_operand) else (1,):
        extent, leading = shape[mode], strides[1 - mode]
        fits = leading is None or (leading % unit == 0 and leading >= extent)
        if strides[mode] in (None, 1) and extent % unit == 0 and fits:
            break
    else:
        return None
    pitch = extent if leading is None else leading
    batch = [
        0 if count == 1 and stride % unit else stride
        for count, stride in zip(tensor.shape[:-2], tensor.stride[:-2], strict=True)
    ]
    farthest_bytes = max((pitch, *batch)) * tensor.dtype.itemsize
    if any(stride % unit for stride in batch) or max(tensor.shape) > MOST_EXTENT or farthest_bytes >= 2**40:
        return None
    if ragged == mode or (ragged is not None and pitch * tensor.dtype.itemsize >= groups.PITCH_END_BYTES):
        return None
    return Matrix(mode, (*batch, pitch, 1) if mode == 1 else (*batch, 1, pitch), unit_bytes)


def default_dtype(a: torch.dtype, *, sums: bool = False) -> torch.dtype:
    """Return the default dtype of results by the dtype of A: that dtype, or bfloat16 for 8-bit operands.

    With `sums`, products of integers have the dtype of their accumulators.
    """
    if a in INTEGER_DTYPES and sums:
        return SUMS_DTYPE
    return torch.bfloat16 if a.itemsize == 1 else a


def reached(name: str, tensor: Description, ragged: int | None = None, *, by_threads: bool = False) -> Matrix:
    """Return the layout by which TMA, or threads, reach a tensor that has been copied if necessary.

    Raises
    ------
    ValueError
        If an extent or stride is more than TMA holds.
    """
    found = matrix(tensor, ragged, by_threads=by_threads)
    if found is None:  # everything else has been copied to where TMA reaches it
        raise ValueError(
            f"{name} must have extents of at most {MOST_EXTENT} and strides below 2**40 bytes, which TMA can hold, "
            f"2**34 between rows of groups, got {tensor}; split it"
        )
    return found


def signature_of(
    graph: Graph,
    a: Description,
    b: Description,
    operands: Sequence[Description | None],
    results: Sequence[Description],
    **more: Any,  # noqa: ANN401
) -> GemmSignature:
    """Return the signature of a kernel for operands as they are reached; None stands for a number of the host."""
    matrix_a, matrix_b = (reached(name, each, by_threads=True) for name, each in (("a", a), ("b", b)))
    types = []
    for operand, given in zip(graph.operands, operands, strict=True):
        major = OUTPUT_MAJORS[reached(operand.name, given).contiguous_mode] if given and operand.shape == "tile" else ""
        types.append((dtype_name(given.dtype) if given else "", major))
    tiles = [result for result in graph.results if graph.reduction(result) is None]
    open_dtypes = [each.dtype for result, each in zip(tiles, results, strict=True) if graph.dtype(result) is None]
    return GemmSignature(
        a_dtype=dtype_name(a.dtype),
        b_dtype=dtype_name(b.dtype),
        out_dtype=dtype_name(open_dtypes[0]) if open_dtypes else "float32",
        a_major=OPERAND_MAJORS[matrix_a.contiguous_mode],
        b_major=OPERAND_MAJORS[matrix_b.contiguous_mode],
        a_align=matrix_a.unit_bytes,
        b_align=matrix_b.unit_bytes,
        out_major=OUTPUT_MAJORS[reached("out", results[0]).contiguous_mode] if results else "row",
        epilogue=graph.text,
        operand_types=tuple(types),
        **more,
    )


def whole_units(columns: Any, dtype: torch.dtype) -> Any:  # noqa: ANN401
    """Round a number of elements up to whole units of 16 bytes."""
    unit = UNIT_BYTES // dtype.itemsize
    return -(-columns // unit) * unit


def padded_copy(tensor: torch.Tensor, columns: int, place: int = -2) -> torch.Tensor:
    """Copy matrices into rows padded with zeros to more columns; a broadcast batch is copied once.

    The first `place` modes of the batch have larger strides than the rows, as in the result, so that the modes fold.
    """
    if tensor.dtype.itemsize == 1 and tensor.dtype != torch.uint8:  # torch has few operations on 8-bit floats
        return padded_copy(tensor.view(torch.uint8), columns, place).view(tensor.dtype)
    *extents, given = tensor.shape
    once = tensor
    for dimension in range(tensor.dim() - 2):
        if tensor.stride(dimension) == 0:
            once = once.narrow(dimension, 0, 1)
    once = once.movedim(-2, place)
    copy = once.new_empty((*once.shape[:-1], columns))
    copy[..., :given] = once
    if columns > given:
        copy[..., given:] = 0
    return copy.movedim(place, -2).expand(*extents, columns)


def reachable(tensor: torch.Tensor, mode: int = 1) -> torch.Tensor:
    """Copy matrices to where TMA reaches them, contiguous along a mode; empty ones become zeros."""
    if mode == 0:
        return reachable(tensor.mT).mT
    *batch, rows, columns = tensor.shape
    if not rows or not columns:
        rows, columns = max(rows, 1), max(columns, 1)
        tensor = tensor.new_zeros(*batch, rows, columns, dtype=torch.uint8).to(tensor.dtype)
    return padded_copy(tensor, whole_units(columns, tensor.dtype))


def dtype_name(dtype: object) -> str:
    """Return torch's short name of a dtype, such as "float16"."""
    return str(dtype).removeprefix("torch.")
