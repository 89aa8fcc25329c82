"""Attention in plain torch, in float64: results and gradients by their formulas."""

import math
from collections.abc import Sequence

import torch

from cutepy.epilogues.derivatives import GRADIENT, with_derivative
from cutepy.epilogues.graph import Graph
from cutepy.epilogues.reference import compute_scores


def hidden_by_band(scores: torch.Tensor, left: int | None, right: int | None) -> torch.Tensor:
    """Return which keys a query does not see: those beyond `left` before its position, and `right` after it."""
    queries, keys = scores.shape[-2:]
    device = scores.device
    place = torch.arange(queries, device=device)[:, None] + (keys - queries)
    key = torch.arange(keys, device=device)
    hidden = torch.zeros(queries, keys, dtype=torch.bool, device=device)
    if left is not None:
        hidden |= key < place - left
    if right is not None:
        hidden |= key > place + right
    return hidden


def of_heads(grad: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Sum the gradients of heads that share one of K or V, and return it as that is."""
    grouped = grad.unflatten(1, (like.shape[2], -1)).sum(2) if like.shape[2] else grad
    return grouped.transpose(1, 2).to(like.dtype)


def heads_first(q: torch.Tensor, *others: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Convert (batch, tokens, heads, head) to float64 with heads first, each as many as q has."""
    group = q.shape[2] // max(others[0].shape[2], 1) if others else 1
    wide = [q.double().transpose(1, 2)]
    wide += [each.double().transpose(1, 2).repeat_interleave(group, 1) for each in others]
    return tuple(wide)


class ReferenceAttention:
    """Attention with functions of its scores, sinks and blocks, by its formulas.

    Parameters
    ----------
    functions : str
        Text of the graph; empty for none.
    tables : sequence of Tensor
        Of the graph.
    sinks : Tensor (heads,), optional
    blocks : sequence of Tensor
        Lists of a block mask (`cutepy.ops.block_masks`), or none.
    block_size : sequence of int
        Queries and keys of a block.
    first_batch : int
        Index of the first of the batch, as of a sequence by itself.
    derived : sequence of int
        Places of the tables that `backward` computes gradients of.
    """

    def __init__(
        self,
        functions: str = "",
        tables: Sequence[torch.Tensor] = (),
        sinks: torch.Tensor | None = None,
        blocks: Sequence[torch.Tensor] = (),
        block_size: Sequence[int] = (),
        first_batch: int = 0,
        derived: Sequence[int] = (),
    ) -> None:
        self.functions, self.tables, self.sinks = functions, tables, sinks
        self.blocks, self.block_size, self.first_batch, self.derived = blocks, block_size, first_batch, derived

    def scores(
        self, products: torch.Tensor, left: int | None, right: int | None
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """Compute scores of scaled products (batch, heads, queries, keys), their derivatives, and weights; None if 1.

        Scores are minus infinity where nothing is seen.
        """
        found, derivative, weights = products, None, None
        hidden = hidden_by_band(products, left, right)
        if self.functions:
            graph = Graph.parse(self.functions)
            if any(result.name == "score" for result in graph.results):
                graph = with_derivative(graph)
            results = compute_scores(graph, products, self.tables, products.dtype, first_batch=self.first_batch)
            found, derivative = results.get("score", products).expand(products.shape), results.get("derivative")
            weights = results.get("weight")
            if "mask" in results:
                hidden = hidden | ~results["mask"]
        return found.masked_fill(hidden, -math.inf), derivative, weights

    def gradients(self, products: torch.Tensor, differences: torch.Tensor) -> torch.Tensor:
        """Compute the gradients of the derived tables, in float32, one after another, from those of the scores."""
        sums = {n: torch.zeros_like(self.tables[n], dtype=products.dtype) for n in self.derived}
        if sums:
            graph = Graph.parse(self.functions)
            places = {table.name: n for n, table in enumerate(graph.tables)}
            graph = with_derivative(graph, tables=tuple(name for name, n in places.items() if n in sums))
            results = compute_scores(
                graph,
                products,
                self.tables,
                products.dtype,
                first_batch=self.first_batch,
                differences=differences,
            )
            for result in graph.results:
                if result.name.startswith(GRADIENT):
                    sums[places[str(graph.nodes[result.node].value)]] += results[result.name]
        return torch.cat([products.new_zeros(0), *(each.flatten() for each in sums.values())]).float()

    def probabilities(self, scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute the probabilities of scores, and the logarithms of the rows' sums."""
        lse = scores.logsumexp(-1) if scores.shape[-1] else scores.new_full(scores.shape[:-1], -math.inf)
        if self.sinks is not None:
            lse = torch.logaddexp(lse, self.sinks.to(lse)[:, None])
        return torch.exp(scores - torch.where(lse == -math.inf, 0.0, lse)[..., None]), lse

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        scale: float,
        left: int | None,
        right: int | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute O, of q's dtype, and the logarithms of the rows' sums."""
        wide_q, wide_k, wide_v = heads_first(q, k, v)
        scores, _, weights = self.scores(wide_q @ wide_k.mT * scale, left, right)
        p, lse = self.probabilities(scores)
        p = p if weights is None else p * weights
        return (p @ wide_v).transpose(1, 2).to(q.dtype), lse.float()

    def backward(
        self,
        do: torch.Tensor,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        dlse: torch.Tensor | None,
        scale: float,
        left: int | None,
        right: int | None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor]:
        """Compute the gradients of Q, K, V and the sinks, and those of `gradients`."""
        wide_q, wide_k, wide_v = heads_first(q, k, v)
        (wide_do,) = heads_first(do)
        products = wide_q @ wide_k.mT * scale
        scores, derivative, weights = self.scores(products, left, right)
        p, lse = self.probabilities(scores)
        dp = wide_do @ wide_v.mT
        weighed = p if weights is None else p * weights
        dp = dp if weights is None else dp * weights
        delta = (p * dp).sum(-1, keepdim=True)
        if dlse is not None:
            delta = delta - dlse.double()[..., None]
        ds = p * (dp - delta)
        dtables = self.gradients(products, ds)
        if derivative is not None:
            ds = torch.where(p == 0, 0.0, ds * derivative)
        dsinks = None
        if self.sinks is not None:
            shares = torch.exp(self.sinks.double()[:, None] - lse.masked_fill(lse == -math.inf, math.inf))
            dsinks = -(shares * delta[..., 0]).sum((0, 2)).to(self.sinks.dtype)
        dq, dk, dv = scale * (ds @ wide_k), scale * (ds.mT @ wide_q), weighed.mT @ wide_do
        return dq.transpose(1, 2).to(q.dtype), of_heads(dk, k), of_heads(dv, v), dsinks, dtables


forward = ReferenceAttention().forward
"""Compute O, of q's dtype, and the logarithms of the rows' sums, without functions, sinks and blocks."""


def backward(
    do: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dlse: torch.Tensor | None,
    scale: float,
    left: int | None,
    right: int | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Compute the gradients of Q, K and V."""
    dq, dk, dv, *_ = ReferenceAttention().backward(do, q, k, v, dlse, scale, left, right)
    return dq, dk, dv
