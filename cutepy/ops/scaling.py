"""Scales among the arguments of an operation of PyTorch, and what they mean to its reference and derivative."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from cutepy.epilogues.graph import Graph
from cutepy.kernels.gemm.scales import Block, Scales
from cutepy.ops.quantising import expanded


def passed(scales: Scales | None) -> tuple[Any, ...]:
    """Give the operation's last arguments: both scales, what they stand for, and whether sums are promoted."""
    return () if scales is None else (scales.a, scales.b, [*scales.of_a, *scales.of_b], scales.promotes)


def scales_of(
    a: torch.Tensor | None, b: torch.Tensor | None, blocks: Sequence[int] = (), promotes: bool = False
) -> Scales | None:
    """Give the scales of these arguments, None without any."""
    if a is None or b is None:
        return None
    return Scales(a, b, Block(*blocks[:2]), Block(*blocks[2:]), promotes)


def in_double(
    graph: Graph, a: torch.Tensor, b: torch.Tensor, operands: Mapping[str, Any], scales: Scales | None
) -> tuple[Graph, torch.Tensor, torch.Tensor, dict[str, Any]]:
    """Give what is computed with scales: a graph, float64 operands of the product, and the graph's own."""
    wide, named = [a.double(), b.double()], dict(operands)
    if scales is not None:
        graph = scales.before(graph)
        named |= dict(zip((operand.name for operand in graph.operands), scales.of_results, strict=False))
        for n, (scale, block) in enumerate(zip(scales.along_k(False), (scales.of_a, scales.of_b), strict=True)):
            if scale is not None:
                wide[n] *= expanded(scale.double(), block, wide[n].shape)
    return graph, wide[0], wide[1], named


def refuse_gradients(a: torch.Tensor, b: torch.Tensor, *scales: torch.Tensor | None) -> None:
    """Refuse gradients by scales and by 8-bit operands.

    Raises
    ------
    NotImplementedError
        If one of them requires grad.
    """
    for name, scale in zip(("scale_a", "scale_b"), scales, strict=False):
        if scale is not None and scale.requires_grad:
            raise NotImplementedError(f"products have no derivative by scales; detach {name}")
    if a.dtype.itemsize == 1 and (a.requires_grad or b.requires_grad):
        raise NotImplementedError(
            "products have no derivative by 8-bit operands, since gradients would need scales of their own; "
            "detach the operands, or convert them to bfloat16"
        )
