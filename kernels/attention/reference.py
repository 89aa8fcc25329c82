"""Attention in plain torch, in float64: results and gradients by their formulas."""

import math

import torch


def probabilities(
    q: torch.Tensor, k: torch.Tensor, scale: float, left: int | None, right: int | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute softmax(scale q k^T) of (batch, heads, tokens, head), of one number of heads, and its rows' log-sums."""
    scores = q @ k.mT * scale
    queries, keys = scores.shape[-2:]
    place = torch.arange(queries, device=q.device)[:, None] + (keys - queries)
    key = torch.arange(keys, device=q.device)
    hidden = torch.zeros(queries, keys, dtype=torch.bool, device=q.device)
    if left is not None:
        hidden |= key < place - left
    if right is not None:
        hidden |= key > place + right
    scores = scores.masked_fill(hidden, -math.inf)
    lse = scores.logsumexp(-1) if keys else scores.new_full(scores.shape[:-1], -math.inf)
    shifted = torch.where(lse == -math.inf, 0.0, lse)
    return torch.exp(scores - shifted[..., None]), lse


def heads_first(q: torch.Tensor, *others: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Convert (batch, tokens, heads, head) to float64 with heads first, each as many as q has."""
    group = q.shape[2] // max(others[0].shape[2], 1) if others else 1
    wide = [q.double().transpose(1, 2)]
    wide += [each.double().transpose(1, 2).repeat_interleave(group, 1) for each in others]
    return tuple(wide)


def forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, left: int | None, right: int | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute O, of q's dtype, and the logarithms of the rows' sums."""
    wide_q, wide_k, wide_v = heads_first(q, k, v)
    p, lse = probabilities(wide_q, wide_k, scale, left, right)
    return (p @ wide_v).transpose(1, 2).to(q.dtype), lse.float()


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
    wide_q, wide_k, wide_v = heads_first(q, k, v)
    (wide_do,) = heads_first(do)
    p, _ = probabilities(wide_q, wide_k, scale, left, right)
    dp = wide_do @ wide_v.mT
    delta = (p * dp).sum(-1, keepdim=True)
    if dlse is not None:
        delta = delta - dlse.double()[..., None]
    ds = p * (dp - delta)
    dq, dk, dv = scale * (ds @ wide_k), scale * (ds.mT @ wide_q), p.mT @ wide_do

    def of_heads(grad: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        grouped = grad.unflatten(1, (like.shape[2], -1)).sum(2) if like.shape[2] else grad
        return grouped.transpose(1, 2).to(like.dtype)

    return dq.transpose(1, 2).to(q.dtype), of_heads(dk, k), of_heads(dv, v)
