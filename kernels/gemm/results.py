"""Results of an epilogue: their descriptions, and the buffers that a kernel writes for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from cutepy.device import rules
from cutepy.epilogues.functions import identity
from cutepy.epilogues.graph import Graph, Reduction
from cutepy.kernels.gemm.elements import SUMS
from cutepy.kernels.gemm.operands import (
    INTEGER_DTYPES,
    SUMS_DTYPE,
    Description,
    default_dtype,
    dtype_name,
    new_result,
)

_JOINED: Mapping[str, Callable[..., torch.Tensor]] = {"sum": torch.sum, "max": torch.amax, "min": torch.amin}


def result_descriptions(
    graph: Graph,
    a: Description,
    b: Description,
    leading: Sequence[int],
    out_dtype: torch.dtype | None,
    out_major: str,
) -> list[Description]:
    """Describe an epilogue's results, each matrix in the order asked for.

    They follow from A and B, and from the product's extents but N: rows if B is one matrix, else a batch and M.

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
    batch, rows = (leading[:-1], leading[-1:]) if len(b.shape) > 2 else ((), leading)
    found = []
    for result in graph.results:
        columns, reduction, rounded = b.shape[-2] // graph.width(result), graph.reduction(result), graph.dtype(result)
        dtype = getattr(torch, rounded) if rounded else out_dtype or default_dtype(a.dtype)
        kept = (*rows, columns) if reduction is None else {0: (columns,), 1: rows, None: ()}[reduction.dim]
        found.append(new_result((*batch, *kept), dtype, "row" if reduction else out_major, a.device))
    return found


def finished(parts: torch.Tensor, reduction: Reduction, *, in_pairs: bool = False) -> torch.Tensor:
    """Join the partial reductions that a kernel has written: of the kernel's rows or columns, or of all.

    Sums are added `in_pairs` where the order must follow from their count alone.
    """
    if in_pairs and reduction.kind == "sum":
        if reduction.dim is None:
            return added_in_pairs(parts.flatten(-2).unsqueeze(-1))[..., 0]
        return added_in_pairs(parts)
    return _JOINED[reduction.kind](parts, dim=(-2, -1) if reduction.dim is None else -2)


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
    graph: Graph, place: int, epi_n: int, batch: tuple[int, ...], m: int, n: int, device: torch.device
) -> Description:
    """Describe the partial reductions of a result, for a kernel of M x N products with subtiles of so many columns."""
    result = graph.results[place]
    reduction, width = graph.reduction(result), graph.width(result)
    assert reduction is not None
    rows, columns = rules.partial_shape(reduction.dim, m, n // width, epi_n // width)
    shape = (*batch, rows, columns)
    return new_result(shape, torch.float32, "row", device)
