"""Results of an epilogue: their descriptions, and the buffers that a kernel writes for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from cutepy.device import rules
from cutepy.epilogues.functions import identity
from cutepy.epilogues.graph import Graph, Reduction
from cutepy.kernels.gemm.elements import SUMS
from cutepy.kernels.gemm.families import ProductConfig
from cutepy.kernels.gemm.operands import (
    INTEGER_DTYPES,
    SUMS_DTYPE,
    Description,
    default_dtype,
    dtype_name,
    new_result,
    whole_units,
)

_JOINED: Mapping[str, Callable[..., torch.Tensor]] = {"sum": torch.sum, "max": torch.amax, "min": torch.amin}


def result_descriptions(
    graph: Graph, a: torch.Tensor, b: torch.Tensor, out_dtype: torch.dtype | None, out_major: str
) -> list[Description]:
    """Describe an epilogue's results for A (L, M, K) and B (L, N, K), or both without L.

    Raises
    ------
    TypeError
        If the epilogue can't give results of a dtype.
    """
    if out_dtype == SUMS_DTYPE and (a.dtype not in INTEGER_DTYPES or graph != identity.graph):
        raise TypeError(
            f"out_dtype {SUMS} is for sums of products of integers as they are, and an epilogue computes in fp32, got "
            f"{dtype_name(a.dtype)} and {graph}; leave out the epilogue, or take a float dtype"
        )
    batch, m, n = tuple(a.shape[:-2]), a.shape[-2], b.shape[-2]
    found = []
    for result in graph.results:
        columns, reduction, rounded = n // graph.width(result), graph.reduction(result), graph.dtype(result)
        dtype = getattr(torch, rounded) if rounded else out_dtype or default_dtype(a)
        if reduction is not None:
            shape = (*batch, *{0: (columns,), 1: (m,), None: ()}[reduction.dim])
        else:
            shape = (*batch, m, columns)
        found.append(new_result(shape, dtype, "row" if reduction else out_major, a.device))
    return found


class Written(NamedTuple):
    """How a result comes about.

    Attributes
    ----------
    result : Description
    kernel : Description
        Of what the kernel writes: the result, or one with more columns, or partial reductions.
    reduction : Reduction or None
        Of the kernel's results, which are transposed if the product is.
    take : callable or None
        What the kernel writes to of a result that there is already.
    in_pairs : bool
        Whether partial sums are added in an order that follows from their count alone.
    """

    result: Description
    kernel: Description
    reduction: Reduction | None = None
    take: Callable[[Any], Any] | None = None
    in_pairs: bool = False

    def begin(self, out: torch.Tensor | None = None) -> torch.Tensor:
        """Give what the kernel writes to."""
        return self.kernel.new() if out is None or self.take is None else self.take(out)

    def finished(self, got: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """Give the result of what the kernel has written."""
        if self.reduction is not None:
            if self.in_pairs and self.reduction.kind == "sum":
                whole = self.reduction.dim is None
                return added_in_pairs(got.flatten(-2).unsqueeze(-1))[..., 0] if whole else added_in_pairs(got)
            return _JOINED[self.reduction.kind](got, dim=(-2, -1) if self.reduction.dim is None else -2)
        if got is out or self.kernel is self.result:
            return got
        rows, columns = self.result.shape[-2:]
        return (self.result.new() if out is None else out).copy_(got[..., :rows, :columns])


def added_in_pairs(parts: torch.Tensor) -> torch.Tensor:
    """Sum rows pairwise, (..., parts, N) -> (..., N), in an order that depends on their count alone.

    The order of `torch.sum` depends on N too. The parts are overwritten.

    Examples
    --------
    >>> added_in_pairs(torch.arange(10.0).reshape(5, 2))
    tensor([20., 25.])
    """
    while (count := parts.shape[-2]) > 1:
        left = -(-count // 2)
        parts[..., : count - left, :] += parts[..., left:, :]
        parts = parts[..., :left, :]
    return parts.squeeze(-2)


def partial_description(
    graph: Graph, place: int, config: ProductConfig, batch: tuple[int, ...], m: int, n: int, device: torch.device
) -> Description:
    """Describe the partial reductions of a result, for a kernel of M x N products."""
    result = graph.results[place]
    reduction, width = graph.reduction(result), graph.width(result)
    assert reduction is not None
    rows, columns = rules.partial_shape(reduction.dim, m, n // width, config.epi_n // width)
    shape = (*batch, rows, columns)
    return new_result(shape, torch.float32, "row", device)


def widened(each: Description) -> Description:
    """Describe matrices like these, with contiguous rows of whole units of 16 bytes."""
    shape = (*each.shape[:-1], whole_units(each.shape[-1], each.dtype))
    return new_result(shape, each.dtype, "row", each.device)
