"""Attention with functions of its scores as an operation of PyTorch, and its gradients.

Functions are passed as `cutepy.ops.attention_functions` has them. Lists of blocks (`cutepy.ops.block_masks`) are a list
of tensors too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from cutepy.host.launches import Launches, described
from cutepy.kernels.attention import reference
from cutepy.kernels.attention.config import Scoring
from cutepy.kernels.attention.op import backward_reads, forward_reads, launch_backward, plan_forward
from cutepy.kernels.gemm.operands import dtype_name
from cutepy.ops import shardings
from cutepy.ops.attention_arguments import (
    adds_in_order,
    check,
    flops,
    flops_backward,
    go,
    grads_like,
    reachable,
    results_like,
    way_to,
)
from cutepy.ops.attention_functions import (
    Tensors,
    beside,
    check_no_gradients,
    check_scoring,
    dsinks_like,
    dsinks_of,
    read_by,
    scoring_of,
)
from cutepy.ops.block_masks import lists_of
from cutepy.ops.registration import register_both
from cutepy.runtime.execution import EXECUTION

_launches: Launches[Any] = Launches()


def scored_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    functions: tuple[Any, ...],
    block_mask: Any,  # noqa: ANN401
    sinks: torch.Tensor | None,
    scale: float,
    left: int | None,
    right: int | None,
    deterministic: bool,
    dropout_p: float = 0.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Trace what makes scores, masks and weights, and compute attention with it; arguments are those of `prepare`."""
    prepared = prepare(q, k, functions, block_mask, sinks, left, right, dropout_p)
    result: tuple[torch.Tensor, torch.Tensor] = _scored(q, k, v, *prepared, scale, left, right, deterministic)
    return result


def prepare(
    q: torch.Tensor,
    k: torch.Tensor,
    functions: tuple[Any, ...],
    block_mask: Any,  # noqa: ANN401
    sinks: torch.Tensor | None,
    left: int | None,
    right: int | None,
    dropout_p: float = 0.0,
) -> tuple[torch.Tensor | None, list[torch.Tensor], list[torch.Tensor], str, list[int]]:
    """Return the sinks, tables, lists of blocks, text of functions, and extents of a block that an operation takes.

    Parameters
    ----------
    functions : tuple
        A soft cap, slopes, a score function, a mask function, and their operands, each None if there is none: those of
        `cutepy.ops.attention`, as all others.
    """
    blocks: list[torch.Tensor] = []
    size: list[int] = []
    if block_mask is not None:
        if functions[3] is not None or left is not None or right is not None:
            raise ValueError(
                "a block mask is all that hides keys, got also a mask, a window or causal; put it into the function "
                "that the block mask is made of"
            )
        functions = (*functions[:3], block_mask.mask_mod, functions[4])
        blocks, size = lists_of(block_mask, q, k)
    sinks, tables, text = read_by(q, functions, sinks, dropout_p)
    return sinks, tables, blocks, text, size


def _fake(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    sinks: torch.Tensor | None,
    tables: Tensors,
    *rest: Any,  # noqa: ANN401
) -> tuple[torch.Tensor, torch.Tensor]:
    _, functions, _, scale, *_ = rest
    check(q, k, v, scale)
    check_scoring(q, sinks, tables, functions, (*q.shape[:2], k.shape[1]))
    return results_like(q, v)


def _reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    sinks: torch.Tensor | None,
    tables: Tensors,
    blocks: Tensors,
    functions: str,
    block_size: Sequence[int],
    scale: float,
    left: int | None,
    right: int | None,
    deterministic: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    check(q, k, v, scale)
    check_scoring(q, sinks, tables, functions, (*q.shape[:2], k.shape[1]))
    scored = reference.Scored(functions, tables, sinks, blocks, block_size)
    o, lse = scored.forward(q, k, v, scale, left, right)
    return o.contiguous(), lse


def _keep(ctx: Any, inputs: Sequence[Any], output: Sequence[torch.Tensor]) -> None:  # noqa: ANN401
    ctx.set_materialize_grads(False)
    q, k, v, sinks, tables, blocks, *ctx.how = inputs
    check_no_gradients(tables)
    ctx.save_for_backward(q, k, v, *output, *([] if sinks is None else [sinks]), *tables, *blocks)
    ctx.counts = int(sinks is not None), len(tables)


def _backward(ctx: Any, do: torch.Tensor | None, dlse: torch.Tensor | None) -> tuple[Any, ...]:  # noqa: ANN401
    q, k, v, o, lse, *rest = ctx.saved_tensors
    has_sinks, count = ctx.counts
    sinks, tables, blocks = (rest[0] if has_sinks else None), rest[has_sinks:][:count], rest[has_sinks + count :]
    do = torch.zeros_like(o) if do is None else do
    dq, dk, dv, dsinks = _scored_backward(do, q, k, v, o, lse, dlse, sinks, tables, blocks, *ctx.how)
    return dq, dk, dv, (dsinks if has_sinks else None), None, None, None, None, None, None, None, None


@register_both(
    "cutepy::scored_attention(Tensor q, Tensor k, Tensor v, Tensor? sinks, Tensor[] tables, Tensor[] blocks, "
    "str functions, int[] block_size, float scale, int? left, int? right, bool deterministic) -> (Tensor, Tensor)",
    reference=_reference,
    fake=_fake,
    setup_context=_keep,
    backward=_backward,
    autocast=("q", "k", "v"),
    sharding=shardings.of_scored_attention,
    flops=flops,
)
def _scored(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    sinks: torch.Tensor | None,
    tables: Tensors,
    blocks: Tensors,
    functions: str,
    block_size: Sequence[int],
    scale: float,
    left: int | None,
    right: int | None,
    deterministic: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    tables = beside(q, tables)
    key = (functions, *block_size, scale, left, right, EXECUTION.backend is None, len(tables))
    key = (*key, *described(q, k, v, sinks, *tables, *blocks))
    launch = _launches.get(key)
    if launch is None:
        check(q, k, v, scale)
        check_scoring(q, sinks, tables, functions, (*q.shape[:2], k.shape[1]))
        scoring = scoring_of(functions, tables, sinks, block_size)
        launch = _launches.keep(key, find_launch(q, k, v, scale, left, right, scoring))
    return launch((q, k, v), sinks, tables, blocks)  # type: ignore[no-any-return]


def find_launch(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    left: int | None,
    right: int | None,
    scoring: Scoring,
    dtype: torch.dtype | None = None,
    **options: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """Decide all that is done for tensors like these, and have the kernel compiled.

    Results have q's dtype, or another; `options` are those of `plan_forward`.
    """
    if 0 in q.shape or not k.shape[1]:
        return partial(_of_nothing, dtype)
    result = "" if dtype is None else dtype_name(dtype)
    launch = plan_forward(q, k, v, scale, left, right, scoring=scoring, result=result, **options)
    ways = tuple(map(way_to, (q, k, v)))

    def run(
        given: tuple[torch.Tensor, ...],
        sinks: torch.Tensor | None,
        tables: Tensors,
        blocks: Tensors,
        scales: Sequence[torch.Tensor | None] = (),
    ) -> tuple[torch.Tensor, torch.Tensor]:
        o, lse = results_like(given[0], given[2], dtype)
        launch(*go(ways, given), o, lse, None, forward_reads(tables, sinks, blocks[:4], scales))
        return o, lse

    return run


def _of_nothing(
    dtype: torch.dtype | None, given: tuple[torch.Tensor, ...], sinks: torch.Tensor | None, *_: object
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the results of no queries, or of no keys: sinks are all that rows have."""
    o, lse = results_like(given[0], given[2], dtype)
    return o.zero_(), lse.fill_(-math.inf) if sinks is None else lse.copy_(sinks[:, None].expand_as(lse))


def _fake_backward(
    do: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
    dlse: torch.Tensor | None,
    sinks: torch.Tensor | None,
    *_: object,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    return *grads_like(q, k, v), dsinks_like(q, sinks)


def _reference_backward(
    do: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
    dlse: torch.Tensor | None,
    sinks: torch.Tensor | None,
    tables: Tensors,
    blocks: Tensors,
    functions: str,
    block_size: Sequence[int],
    scale: float,
    left: int | None,
    right: int | None,
    deterministic: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    scored = reference.Scored(functions, tables, sinks, blocks, block_size)
    dq, dk, dv, dsinks = scored.backward(do, q, k, v, dlse, scale, left, right)
    return dq.contiguous(), dk.contiguous(), dv.contiguous(), dsinks_like(q, sinks) if dsinks is None else dsinks


@register_both(
    "cutepy::scored_attention_backward(Tensor do, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, Tensor? dlse, "
    "Tensor? sinks, Tensor[] tables, Tensor[] blocks, str functions, int[] block_size, float scale, int? left, "
    "int? right, bool deterministic) -> (Tensor, Tensor, Tensor, Tensor)",
    reference=_reference_backward,
    fake=_fake_backward,
    sharding=shardings.of_scored_attention_backward,
    flops=flops_backward,
)
def _scored_backward(
    do: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
    dlse: torch.Tensor | None,
    sinks: torch.Tensor | None,
    tables: Tensors,
    blocks: Tensors,
    functions: str,
    block_size: Sequence[int],
    scale: float,
    left: int | None,
    right: int | None,
    deterministic: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    is_ordered = adds_in_order(deterministic=deterministic, has_lists=bool(blocks))
    grads, dsinks = grads_like(q, k, v), dsinks_like(q, sinks)
    tables = beside(q, tables)
    if 0 in q.shape or not k.shape[1]:
        for each in (*grads, dsinks):
            each.zero_()
        if sinks is not None and dlse is not None:
            dsinks += dlse.sum((0, 2))
        return *grads, dsinks
    scoring = scoring_of(functions, tables, None, block_size)
    read = backward_reads(tables, blocks[4:])
    do, q, k, v, o = reachable(do, q, k, v, o)
    given = do, q, k, v, o, lse, dlse, grads, scale, left, right
    stats = launch_backward(*given, scoring=scoring, read=read, is_ordered=is_ordered)
    return *grads, dsinks if sinks is None else dsinks_of(sinks, stats)
