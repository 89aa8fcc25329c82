"""The results of an epilogue: what they are, and what of them a kernel writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from cutepy.device import rules
from cutepy.epilogues.graph import Graph, Reduction
from cutepy.kernels.gemm.config import GemmConfig
from cutepy.kernels.gemm.operands import UNIT_BYTES, Description

_JOINED: Mapping[str, Callable[..., torch.Tensor]] = {"sum": torch.sum, "max": torch.amax, "min": torch.amin}


def result_descriptions(
    graph: Graph, a: torch.Tensor, b: torch.Tensor, out_dtype: torch.dtype | None, out_major: str
) -> list[Description]:
    """Describe an epilogue's results for A (L, M, K) and B (L, N, K), or both without L."""
    batch, m, n = tuple(a.shape[:-2]), a.shape[-2], b.shape[-2]
    found = []
    for result in graph.results:
        columns, reduction, rounded = n // graph.width(result), graph.reduction(result), graph.dtype(result)
        dtype = getattr(torch, rounded) if rounded else out_dtype or _default_dtype(a)
        if reduction is not None:
            shape = (*batch, *{0: (columns,), 1: (m,), None: ()}[reduction.dim])
            turned = False
        else:
            shape, turned = (*batch, m, columns), out_major == "col"
        stride: list[Any] = []
        step: Any = 1
        for extent in reversed((*shape[:-2], shape[-1], shape[-2]) if turned else shape):
            stride.insert(0, step)
            step = step * torch.sym_max(extent, 1)
        if turned:
            stride[-2:] = stride[-1], stride[-2]
        found.append(Description(shape, tuple(stride), dtype, a.device))
    return found


def _default_dtype(a: torch.Tensor) -> torch.dtype:
    return torch.bfloat16 if a.dtype.itemsize == 1 else a.dtype


class Written(NamedTuple):
    """How a result comes about.

    Attributes
    ----------
    result : Description
    kernel : Description
        Of what the kernel writes: the result, or one with more columns, or partial reductions.
    reduction : Reduction or None
        Of the kernel's results, which are transposed if the product is.
    """

    result: Description
    kernel: Description
    reduction: Reduction | None

    def finished(self, got: torch.Tensor) -> torch.Tensor:
        """Give the result of what the kernel has written."""
        if self.reduction is not None:
            return _JOINED[self.reduction.kind](got, dim=(-2, -1) if self.reduction.dim is None else -2)
        if self.kernel is self.result:
            return got
        return self.result.new().copy_(got[..., : self.result.shape[-1]])


def partial_description(
    graph: Graph, place: int, config: GemmConfig, batch: tuple[int, ...], m: int, n: int, device: torch.device
) -> Description:
    """Describe the partial reductions of a result, of a kernel that computes products of M x N."""
    result = graph.results[place]
    reduction, width = graph.reduction(result), graph.width(result)
    assert reduction is not None
    rows, columns = rules.partial_shape(reduction.dim, m, n // width, config.epi_n // width)
    shape = (*batch, rows, columns)
    return Description(shape, contiguous(shape), torch.float32, device)


def widened(each: Description) -> Description:
    """Describe matrices like these, with contiguous rows of whole units of 16 bytes."""
    unit = UNIT_BYTES // each.dtype.itemsize
    shape = (*each.shape[:-1], -(-each.shape[-1] // unit) * unit)
    return each._replace(shape=shape, stride=contiguous(shape))


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Give the strides of a contiguous tensor."""
    steps = [1]
    for extent in reversed(shape[1:]):
        steps.insert(0, steps[0] * extent)
    return tuple(steps)
