"""`flex_attention`: attention with the arguments of torch's FlexAttention."""

from __future__ import annotations

from typing import Any

import torch

from cutepy.epilogues.scores import ScoreFunction
from cutepy.ops.checking import require_tensors
from cutepy.ops.dot_product_attention import attention
from cutepy.ops.foreign_arguments import refuse_unknown


def flex_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score_mod: ScoreFunction | None = None,
    block_mask: Any = None,  # noqa: ANN401
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    **unknown: object,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Compute attention with the arguments of `torch.nn.attention.flex_attention.flex_attention`.

    Functions are traced to a graph that the kernels compute, with gradients of query, key and value. They may use what
    `cutepy.epilogues` has, torch's functions and operators of the same names, and tensors, indexed by integers that
    they compute, of which they have gradients too; those that only decide what is seen have none.

    Parameters
    ----------
    query : Tensor (batch, heads, queries, head)
        float16, bfloat16 or, without scales, float8_e4m3fn.
    key, value : Tensor (batch, kv heads, keys, head)
    score_mod : callable, optional
        ``score_mod(score, b, h, q_idx, kv_idx)``, the score from the scaled one.
    block_mask : BlockMask, optional
        Of `cutepy.ops.block_mask`, or of torch's `create_block_mask`, with blocks of multiples of 128. Its `mask_mod`
        is computed in the blocks that it cuts.
    scale : float, optional
        Positive factor of the scores; 1 / sqrt(head) if not given.
    enable_gqa : bool
        True if several heads of query may share one of key and value.
    return_lse : bool
        True to return the natural logarithms of the rows' sums too.

    Raises
    ------
    EpilogueError
        If a function does something that no kernel can compute; the message has the line.
    ValueError
        If shapes don't match, or the block mask was made for others.

    Examples
    --------
    >>> import torch
    >>> q, k, v = (torch.randn(1, 4, 100, 64, dtype=torch.bfloat16) for _ in range(3))
    >>> slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625])
    >>> flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + slopes[h] * (j - i)).shape
    torch.Size([1, 4, 100, 64])
    """
    if unknown:
        refuse_unknown(flex_attention, unknown)
    try:
        if query.dim() != 4 or key.dim() != 4:
            raise ValueError(
                f"query and key must be (batch, heads, tokens, head), got shapes {tuple(query.shape)} and "
                f"{tuple(key.shape)}; view them so"
            )
        if not enable_gqa and query.shape[1] != key.shape[1]:
            raise ValueError(
                f"query and key must have the same heads, got {query.shape[1]} and {key.shape[1]}; use enable_gqa=True"
            )
        q, k, v = (each.transpose(1, 2) for each in (query, key, value))
        o, lse = attention(q, k, v, scale=scale, score=score_mod, block_mask=block_mask, return_lse=True)
        o = o.transpose(1, 2)
        return (o, lse) if return_lse else o
    except (AttributeError, IndexError, TypeError, ValueError):
        require_tensors(flex_attention, locals())
        raise
