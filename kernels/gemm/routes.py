"""From tensors, an epilogue's graph and its operands to the kernel that is launched, compiled if need be."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

import torch

from cutepy.epilogues.graph import Graph
from cutepy.host.function import Function
from cutepy.kernels.gemm.compilation import compile_fused
from cutepy.kernels.gemm.model import fillable_sms
from cutepy.kernels.gemm.op import OPERAND_MAJORS, OUTPUT_MAJORS, check_tiles, choose_on, reached, sm_count_of
from cutepy.kernels.gemm.operands import UNIT_BYTES, Description, dtype_name, matrix
from cutepy.kernels.gemm.results import Written, contiguous, partial_description, result_descriptions, widened
from cutepy.kernels.gemm.scales import Scales
from cutepy.kernels.gemm.signature import GemmSignature
from cutepy.runtime.execution import EXECUTION
from cutepy.runtime.invariance import INVARIANCE

Take = Callable[[Any], Any]


def launch_fused(
    graph: Graph,
    a: torch.Tensor,
    b: torch.Tensor,
    operands: Mapping[str, Any],
    out_dtype: torch.dtype | None,
    out_major: str,
    scales: Scales | None = None,
) -> list[torch.Tensor]:
    """Compute an epilogue's results by its kernel: for A (M, K) and B (N, K), or for a batch (L, M, K) and (L, N, K).

    What TMA can't reach is copied first, and so are results that it can't write.
    """
    given = [operands[operand.name] for operand in graph.operands]
    return find_route(graph, a, b, given, out_dtype, out_major, scales).launch(a, b, given, scales)


def find_route(
    graph: Graph,
    a: torch.Tensor,
    b: torch.Tensor,
    operands: Sequence[Any],
    out_dtype: torch.dtype | None,
    out_major: str,
    scales: Scales | None = None,
) -> Route:
    """Decide what is done for tensors like these, once for each description of them; compiles if need be."""
    results = result_descriptions(graph, a, b, out_dtype, out_major)
    if scales is not None:
        graph, operands = scales.before(graph), (*scales.of_results, *operands)
    tensors = (a, b, *operands)
    return _route(
        graph.text,
        scales and scales.rows,
        tuple(Description.of(each) if isinstance(each, torch.Tensor) else None for each in tensors),
        tuple(isinstance(each, torch.Tensor) and each.data_ptr() % UNIT_BYTES != 0 for each in tensors),
        tuple(results),
        EXECUTION.backend is None,
        INVARIANCE.on,
    )


class Route(NamedTuple):
    """What is done for tensors of some descriptions.

    Attributes
    ----------
    kernel : Function
    sms : int
        To fill.
    turned : bool
        Whether the transposed product is computed.
    takes : tuple of callable
        How each of A, B and the operands, in the order given, becomes what the kernel takes.
    tiles : tuple of bool
        Which of the operands are.
    writes : tuple of Written
    device : int or None
        The GPU that must be current.
    """

    kernel: Function
    sms: int
    turned: bool
    takes: tuple[Take, ...]
    tiles: tuple[bool, ...]
    writes: tuple[Written, ...]
    device: int | None

    def launch(
        self, a: torch.Tensor, b: torch.Tensor, operands: Sequence[Any], scales: Scales | None = None
    ) -> list[torch.Tensor]:
        """Compute the results."""
        if self.device is not None and self.device != torch.cuda.current_device():
            with torch.cuda.device(self.device):
                return self.launch(a, b, operands, scales)
        scale_a = scale_b = None
        if scales is not None:
            operands = (*scales.of_results, *operands)
            scale_a, scale_b = scales.along_k(self.turned)
        take_a, take_b, *take = self.takes
        a, b = take_a(a), take_b(b)
        given = [each(value) for each, value in zip(take, operands, strict=True)]
        made = [each.kernel.new() for each in self.writes]
        results = made
        if self.turned:
            a, b = b, a
            given = [value.mT if tile else value for value, tile in zip(given, self.tiles, strict=True)]
            results = [got if each.reduction else got.mT for got, each in zip(made, self.writes, strict=True)]
        self.kernel(a, b, tuple(given) or None, tuple(results), self.sms, scale_a, scale_b)
        return [each.finished(got) for each, got in zip(self.writes, made, strict=True)]


@lru_cache(maxsize=4096)
def _route(
    text: str,
    scale_rows: tuple[int, int] | None,
    tensors: tuple[Description | None, ...],
    misaligned: tuple[bool, ...],
    results: tuple[Description, ...],
    on_device: bool,
    invariant: bool,
) -> Route:
    graph = Graph.parse(text)
    shapes = ("matrix", "matrix", *(operand.shape for operand in graph.operands))
    batch = tensors[0].shape[:-2] if tensors[0] else ()
    taken = [_taking(*each, batch) for each in zip(shapes, tensors, misaligned, strict=True)]
    takes, (a, b, *operands) = [take for take, _ in taken], [seen for _, seen in taken]
    for n, operand in enumerate(graph.operands):
        if operands[n] is None:
            takes[2 + n] = int if operand.type == "i32" else float
    tiles = [graph.reduction(result) is None for result in graph.results]
    direct = all(matrix(each) is not None for each, tile in zip(results, tiles, strict=True) if tile)
    writes = [each if direct or not tile else widened(each) for each, tile in zip(results, tiles, strict=True)]
    stored = [each for each, tile in zip(writes, tiles, strict=True) if tile]
    signature = replace(_signature(graph, a, b, operands, stored), scale_rows=scale_rows)
    m, n, count = a.shape[-2], b.shape[-2], math.prod(batch)
    turned, config = choose_on(a.device, signature, m, n, a.shape[-1], count)
    if turned:
        m, n = n, m
    check_tiles(config, m, n, count)
    final = config.signature.graph
    made = []
    for place, (result, each) in enumerate(zip(results, writes, strict=True)):
        reduction = final.reduction(final.results[place])
        seen = partial_description(final, place, config, batch, m, n, a.device) if reduction else each
        made.append(Written(result, seen, reduction))
    sms = fillable_sms(config.cluster_m * config.cluster_n * config.split_k, sm_count_of(a.device))
    device = a.device.index if on_device and a.device.type == "cuda" else None
    are_tiles = tuple(operand.shape == "tile" for operand in graph.operands)
    return Route(compile_fused(config), sms, turned, tuple(takes), are_tiles, tuple(made), device)


def _taking(shape: str, described: Description | None, misaligned: bool, batch: tuple[int, ...]) -> tuple[Take, Any]:
    """Tell how a tensor becomes what the kernel takes, and what that is; of a number, that there is none."""
    if described is None:
        return _as_it_is, None
    if shape not in ("matrix", "tile"):
        narrow = narrowed(described.dtype)
        extents = (1,) if shape == "scalar" else (*batch, described.shape[-1])
        return partial(as_vector, shape=extents, dtype=narrow), described._replace(dtype=narrow)
    found = None if misaligned or 0 in described.stride[-2:] else matrix(described)
    unit = UNIT_BYTES // described.dtype.itemsize
    columns = -(-described.shape[-1] // unit) * unit
    if found is None or (shape == "matrix" and columns != described.shape[-1]):
        whole = (*described.shape[:-1], columns)
        return partial(_padded, columns=columns), described._replace(shape=whole, stride=contiguous(whole))
    if found.stride != described.stride:  # an extent of 1 leaves a stride open
        return partial(_viewed, stride=found.stride), described._replace(stride=found.stride)
    return _as_it_is, described


def narrowed(dtype: torch.dtype) -> torch.dtype:
    """Give the type that rows, columns and scalars of a type are passed as: one of 32 bits at most."""
    return {torch.int64: torch.int32, torch.float64: torch.float32}.get(dtype, dtype)


def _as_it_is(given: Any) -> Any:  # noqa: ANN401
    return given


def as_vector(tensor: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Convert rows or columns, or a scalar; what all products of a batch share is repeated by a stride of 0."""
    return tensor.to(dtype).contiguous().expand(shape)


def _viewed(tensor: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor:
    return tensor.as_strided(tensor.shape, stride)


def _padded(tensor: torch.Tensor, columns: int) -> torch.Tensor:
    """Copy matrices to such with contiguous rows of these columns, those beyond their own zero."""
    bytes_of = tensor.view(torch.uint8) if tensor.itemsize == 1 else tensor  # torch has few operations on 8-bit floats
    copy = bytes_of.new_zeros(*tensor.shape[:-1], columns)
    copy[..., : tensor.shape[-1]] = bytes_of
    return copy.view(tensor.dtype)


def _signature(
    graph: Graph, a: Description, b: Description, operands: Sequence[Any], results: Sequence[Description]
) -> GemmSignature:
    """Name the types and majors of A, B, operands, and results that are tiles, as the kernel takes them."""
    types = []
    for operand, given in zip(graph.operands, operands, strict=True):
        if given is None:
            types.append(("", ""))
        elif operand.shape == "tile":
            types.append((dtype_name(given.dtype), OUTPUT_MAJORS[reached(operand.name, given).contiguous_mode]))
        else:
            types.append((dtype_name(given.dtype), ""))
    tiles = [result for result in graph.results if graph.reduction(result) is None]
    open_dtypes = [each.dtype for result, each in zip(tiles, results, strict=True) if graph.dtype(result) is None]
    return GemmSignature(
        a_dtype=dtype_name(a.dtype),
        b_dtype=dtype_name(b.dtype),
        out_dtype=dtype_name(open_dtypes[0]) if open_dtypes else "float32",
        a_major=OPERAND_MAJORS[reached("a", a).contiguous_mode],
        b_major=OPERAND_MAJORS[reached("b", b).contiguous_mode],
        out_major=OUTPUT_MAJORS[reached("out", results[0]).contiguous_mode] if results else "row",
        batch_modes=len(a.shape) - 2,
        epilogue=graph.text,
        operand_types=tuple(types),
    )
