"""Attention of 8-bit floats and their scales as an operation of PyTorch, without gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from cutepy.host.launches import Launches, described
from cutepy.kernels.attention import reference
from cutepy.kernels.attention.op import forward_reads, plan_forward
from cutepy.kernels.gemm.operands import dtype_name
from cutepy.ops import shardings
from cutepy.ops.attention_arguments import AS_THEY_ARE, DTYPES, check, flops, results_like, way_to
from cutepy.ops.attention_functions import Tensors, beside, check_scoring, scoring_of
from cutepy.ops.registration import register_both, requires_grad
from cutepy.ops.scored_attention import of_nothing, prepare
from cutepy.runtime.execution import EXECUTION

FLOAT8 = torch.float8_e4m3fn
BLOCK = 128
"""Tokens of a block that has a scale."""

Given = torch.Tensor | None
Three = tuple[Given, Given, Given]
"""Of Q, K and V."""

_launches: Launches[Any] = Launches()


def quantised_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scales: Three,
    functions: tuple[Any, ...],
    block_mask: Any,  # noqa: ANN401
    sinks: Given,
    scale: float,
    left: int | None,
    right: int | None,
    out_dtype: torch.dtype | None,
    dropout_p: float = 0.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute attention of float8_e4m3fn; `functions` are those of `prepare`, others those of `cutepy.ops.attention`.

    Raises
    ------
    NotImplementedError
        If a tensor requires grad, or there is dropout, of which e4m3 has no range.
    """
    if dropout_p:
        raise NotImplementedError(f"attention of float8_e4m3fn has no dropout, got dropout_p {dropout_p}; use bfloat16")
    if torch.is_grad_enabled() and requires_grad((q, k, v, *scales, sinks)):
        raise NotImplementedError(
            "attention of float8_e4m3fn has no gradients, got a tensor that requires grad; use torch.no_grad(), or "
            "float16 or bfloat16"
        )
    check(q, k, v, scale, dtypes=(FLOAT8,))
    of_q, of_k, of_v = map(_in_blocks, ("q_scale", "k_scale", "v_scale"), scales, (q, k, v))
    prepared = prepare(q, k, functions, block_mask, sinks, left, right)
    how = scale, left, right, torch.bfloat16 if out_dtype is None else out_dtype
    result: tuple[torch.Tensor, torch.Tensor] = _quantised(q, k, v, of_q, of_k, of_v, *prepared, *how)
    return result


def refuse_scales(q: torch.Tensor, scales: Three, out_dtype: torch.dtype | None) -> None:
    """Refuse what only 8-bit floats have.

    Raises
    ------
    TypeError
        If there are scales, or results are to be of another dtype than q.
    """
    if any(each is not None for each in scales) or out_dtype not in (None, q.dtype):
        raise TypeError(
            f"q_scale, k_scale, v_scale and out_dtype are for q, k and v of float8_e4m3fn, got {q.dtype}; multiply "
            "scale, or convert the result"
        )


def _in_blocks(name: str, scale: Given, tensor: torch.Tensor) -> Given:
    """View a scale as (batch, heads, blocks): one for all, for each head, or for each 128 tokens of it.

    Raises
    ------
    TypeError
        If it is not of float32.
    ValueError
        If it has none of these shapes, or is elsewhere.
    """
    if scale is None:
        return None
    if scale.dtype != torch.float32 or scale.device != tensor.device:
        raise TypeError(f"{name} must be float32 on {tensor.device}, got {scale.dtype} on {scale.device}")
    if not scale.dim():
        return scale.expand(tensor.shape[0], tensor.shape[2], 1)
    return scale if scale.dim() == 3 else scale.unsqueeze(-1)


def _check_scales(q: torch.Tensor, k: torch.Tensor, scales: Three) -> None:
    """Check the shapes of scales (batch, heads, blocks)."""
    kv_heads = k.shape[2]
    names = (("q_scale", q, {q.shape[2], kv_heads}), ("k_scale", k, {kv_heads}), ("v_scale", k, {kv_heads}))
    for (name, tensor, heads), scale in zip(names, scales, strict=True):
        if scale is None:
            continue
        blocks = -(-tensor.shape[1] // BLOCK)
        if scale.dim() != 3 or not (
            scale.shape[0] == tensor.shape[0] and scale.shape[1] in heads and scale.shape[2] in (1, blocks)
        ):
            shape = f"({tensor.shape[0]}, {' or '.join(map(str, sorted(heads)))}"
            raise ValueError(
                f"{name} must have one element, or shape {shape}) for heads, or {shape}, {blocks}) for each {BLOCK} "
                f"tokens of these, got {tuple(scale.shape)}"
            )


def _check(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scales: Three,
    sinks: Given,
    tables: Tensors,
    functions: str,
    scale: float,
    out_dtype: torch.dtype,
) -> None:
    check(q, k, v, scale, dtypes=(FLOAT8,))
    _check_scales(q, k, scales)
    check_scoring(q, sinks, tables, functions, (*q.shape[:2], k.shape[1]))
    if out_dtype not in DTYPES:
        raise TypeError(f"out_dtype must be {' or '.join(map(dtype_name, DTYPES))}, got {dtype_name(out_dtype)}")


def _dequantised(tensor: torch.Tensor, scale: Given) -> torch.Tensor:
    """Return what 8-bit floats (batch, tokens, heads, head) stand for, in float64."""
    wide = tensor.double()
    if scale is None or not tensor.numel():
        return wide
    each = scale.double().repeat_interleave(tensor.shape[2] // scale.shape[1], 1)
    if each.shape[2] > 1:
        each = each.repeat_interleave(BLOCK, 2)[..., : tensor.shape[1]]
    return wide * each.transpose(1, 2)[..., None]


def _fake(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    q_scale: Given,
    k_scale: Given,
    v_scale: Given,
    sinks: Given,
    tables: Tensors,
    blocks: Tensors,
    functions: str,
    block_size: Sequence[int],
    scale: float,
    left: int | None,
    right: int | None,
    out_dtype: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor]:
    _check(q, k, v, (q_scale, k_scale, v_scale), sinks, tables, functions, scale, out_dtype)
    return results_like(q, v, out_dtype)


def _reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    q_scale: Given,
    k_scale: Given,
    v_scale: Given,
    sinks: Given,
    tables: Tensors,
    blocks: Tensors,
    functions: str,
    block_size: Sequence[int],
    scale: float,
    left: int | None,
    right: int | None,
    out_dtype: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor]:
    _check(q, k, v, (q_scale, k_scale, v_scale), sinks, tables, functions, scale, out_dtype)
    q, k, v = _dequantised(q, q_scale), _dequantised(k, k_scale), _dequantised(v, v_scale)
    o, lse = reference.Scored(functions, tables, sinks, blocks, block_size).forward(q, k, v, scale, left, right)
    return o.to(out_dtype).contiguous(), lse


@register_both(
    "cutepy::quantised_attention(Tensor q, Tensor k, Tensor v, Tensor? q_scale, Tensor? k_scale, Tensor? v_scale, "
    "Tensor? sinks, Tensor[] tables, Tensor[] blocks, str functions, int[] block_size, float scale, int? left, "
    "int? right, ScalarType out_dtype) -> (Tensor, Tensor)",
    reference=_reference,
    fake=_fake,
    sharding=shardings.of_quantised_attention,
    flops=flops,
)
def _quantised(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    q_scale: Given,
    k_scale: Given,
    v_scale: Given,
    sinks: Given,
    tables: Tensors,
    blocks: Tensors,
    functions: str,
    block_size: Sequence[int],
    scale: float,
    left: int | None,
    right: int | None,
    out_dtype: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor]:
    tables, scales = beside(q, tables), (q_scale, k_scale, v_scale)
    key = (functions, *block_size, scale, left, right, out_dtype, EXECUTION.backend is None, len(tables))
    key = (*key, *described(q, k, v, *scales, sinks, *tables, *blocks))
    launch = _launches.get(key)
    if launch is None:
        _check(q, k, v, scales, sinks, tables, functions, scale, out_dtype)
        found = _find_launch(q, k, v, scales, sinks, tables, functions, block_size, scale, left, right, out_dtype)
        launch = _launches.keep(key, found)
    return launch((q, k, v), scales, sinks, tables, blocks)  # type: ignore[no-any-return]


def _find_launch(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scales: Three,
    sinks: Given,
    tables: Tensors,
    functions: str,
    block_size: Sequence[int],
    scale: float,
    left: int | None,
    right: int | None,
    out_dtype: torch.dtype,
) -> Any:  # noqa: ANN401
    """Decide all that is done for tensors like these, and have the kernel compiled."""
    if 0 in q.shape or not k.shape[1]:
        return lambda given, scales, sinks, tables, blocks: of_nothing(given, sinks, dtype=out_dtype)
    has_scales = tuple(each is not None for each in scales)
    is_blocked = any(each is not None and each.shape[2] > 1 for each in scales)
    counts = [-(-each.shape[1] // BLOCK) for each in (q, k, v)]
    launch = plan_forward(
        q,
        k,
        v,
        scale,
        left,
        right,
        scoring=scoring_of(functions, tables, sinks, block_size),
        result=dtype_name(out_dtype),
        scales=has_scales,
        block=BLOCK if is_blocked else 0,
    )
    ways = tuple(map(way_to, (q, k, v)))

    def run(
        given: tuple[torch.Tensor, ...], scales: Sequence[Given], sinks: Given, tables: Tensors, blocks: Tensors
    ) -> tuple[torch.Tensor, torch.Tensor]:
        o, lse = results_like(given[0], given[2], out_dtype)
        if ways != AS_THEY_ARE:
            given = tuple(each if way is None else way(each) for way, each in zip(ways, given, strict=True))
        if is_blocked:
            scales = [
                None if each is None else each.expand(-1, -1, count) for each, count in zip(scales, counts, strict=True)
            ]
        launch(*given, o, lse, None, forward_reads(tables, sinks, blocks[:4], scales))
        return o, lse

    return run
