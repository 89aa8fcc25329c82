"""Attention of 8-bit floats and their scales as an operation of PyTorch, without gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from cutepy.host.launches import Launches, described
from cutepy.kernels.attention import reference
from cutepy.kernels.gemm.operands import dtype_name
from cutepy.ops import shardings
from cutepy.ops.attention_arguments import DTYPES, check, flops, results_like
from cutepy.ops.attention_functions import Tensors, beside, check_scoring, scoring_of
from cutepy.ops.registration import register_both, requires_grad
from cutepy.ops.scored_attention import find_launch, prepare
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


class _Asked(NamedTuple):
    """All that `cutepy::quantised_attention` is asked, as its schema has it."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    q_scale: Given
    k_scale: Given
    v_scale: Given
    sinks: Given
    tables: Tensors
    blocks: Tensors
    functions: str
    block_size: Sequence[int]
    scale: float
    left: int | None
    right: int | None
    out_dtype: torch.dtype

    @property
    def scales(self) -> Three:
        """The scales of Q, K and V."""
        return self.q_scale, self.k_scale, self.v_scale

    def check(self) -> None:
        """Check all that can be told without data."""
        q, k = self.q, self.k
        check(q, k, self.v, self.scale, dtypes=(FLOAT8,))
        _check_scales(q, k, self.scales)
        check_scoring(q, self.sinks, self.tables, self.functions, (*q.shape[:2], k.shape[1]))
        if self.out_dtype not in DTYPES:
            wanted = " or ".join(map(dtype_name, DTYPES))
            raise TypeError(f"out_dtype must be {wanted}, got {dtype_name(self.out_dtype)}")


def _dequantised(tensor: torch.Tensor, scale: Given) -> torch.Tensor:
    """Return what 8-bit floats (batch, tokens, heads, head) stand for, in float64."""
    wide = tensor.double()
    if scale is None or not tensor.numel():
        return wide
    each = scale.double().repeat_interleave(tensor.shape[2] // scale.shape[1], 1)
    if each.shape[2] > 1:
        each = each.repeat_interleave(BLOCK, 2)[..., : tensor.shape[1]]
    return wide * each.transpose(1, 2)[..., None]


def _fake(*given: Any) -> tuple[torch.Tensor, torch.Tensor]:  # noqa: ANN401
    asked = _Asked(*given)
    asked.check()
    return results_like(asked.q, asked.v, asked.out_dtype)


def _reference(*given: Any) -> tuple[torch.Tensor, torch.Tensor]:  # noqa: ANN401
    asked = _Asked(*given)
    asked.check()
    q, k, v = map(_dequantised, asked[:3], asked.scales)
    scored = reference.Scored(asked.functions, asked.tables, asked.sinks, asked.blocks, asked.block_size)
    o, lse = scored.forward(q, k, v, asked.scale, asked.left, asked.right)
    return o.to(asked.out_dtype).contiguous(), lse


@register_both(
    "cutepy::quantised_attention(Tensor q, Tensor k, Tensor v, Tensor? q_scale, Tensor? k_scale, Tensor? v_scale, "
    "Tensor? sinks, Tensor[] tables, Tensor[] blocks, str functions, int[] block_size, float scale, int? left, "
    "int? right, ScalarType out_dtype) -> (Tensor, Tensor)",
    reference=_reference,
    fake=_fake,
    sharding=shardings.of_quantised_attention,
    flops=flops,
)
def _quantised(*given: Any) -> tuple[torch.Tensor, torch.Tensor]:  # noqa: ANN401
    asked = _Asked(*given)
    tables = beside(asked.q, asked.tables)
    key = (asked.functions, *asked.block_size, *asked[11:], EXECUTION.backend is None, len(tables))
    key = (*key, *described(*asked[:7], *tables, *asked.blocks))
    launch = _launches.get(key)
    if launch is None:
        asked.check()
        launch = _launches.keep(key, _find_launch(asked._replace(tables=tables)))
    return launch(asked[:3], asked.sinks, tables, asked.blocks, asked.scales)  # type: ignore[no-any-return]


def _find_launch(asked: _Asked) -> Any:  # noqa: ANN401
    """Decide all that is done for tensors like these, and have the kernel compiled."""
    is_blocked = any(each is not None and each.shape[2] > 1 for each in asked.scales)
    launch = find_launch(
        *(*asked[:3], asked.scale, asked.left, asked.right),
        scoring_of(asked.functions, asked.tables, asked.sinks, asked.block_size),
        asked.out_dtype,
        scales=tuple(each is not None for each in asked.scales),
        block=BLOCK if is_blocked else 0,
    )
    if not is_blocked:
        return launch
    counts = [-(-each.shape[1] // BLOCK) for each in asked[:3]]

    def in_blocks(
        given: tuple[torch.Tensor, ...], sinks: Given, tables: Tensors, blocks: Tensors, scales: Three
    ) -> tuple[torch.Tensor, torch.Tensor]:
        each_block = [s if s is None else s.expand(-1, -1, count) for s, count in zip(scales, counts, strict=True)]
        return launch(given, sinks, tables, blocks, each_block)  # type: ignore[no-any-return]

    return in_blocks
