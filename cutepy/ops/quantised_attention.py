"""Attention of 8-bit floats and their scales as an operation of PyTorch, without gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from cutepy.host.launches import Launches, OptionalTensor, described
from cutepy.kernels.attention import reference
from cutepy.ops import shardings
from cutepy.ops.attention_arguments import check, flops, results_like
from cutepy.ops.attention_functions import Tensors, beside, check_scoring, scoring_of
from cutepy.ops.attention_scales import (
    BLOCK,
    FLOAT8,
    NAMES,
    Three,
    check_out_dtype,
    dequantised,
    quantised,
)
from cutepy.ops.registration import register_both
from cutepy.ops.schemas import schema_of
from cutepy.ops.scored_attention import find_launch, prepare
from cutepy.runtime.execution import EXECUTION
from cutepy.runtime.invariance import INVARIANCE

_launches: Launches[Any] = Launches()


def quantised_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scales: Three,
    functions: tuple[Any, ...],
    block_mask: Any,  # noqa: ANN401
    sinks: OptionalTensor,
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
    made = quantised((q, k, v), scales, out_dtype, sinks, dropout_p)
    check(q, k, v, scale, dtypes=(FLOAT8,))
    prepared = prepare(q, k, functions, block_mask, sinks, left, right)
    how = scale, left, right, made.out_dtype
    result: tuple[torch.Tensor, torch.Tensor] = _quantised(q, k, v, *made.scales, *prepared, *how)
    return result


def _check_scales(q: torch.Tensor, k: torch.Tensor, scales: Three) -> None:
    """Check the shapes of scales (batch, heads, blocks)."""
    kv_heads = k.shape[2]
    of_each = zip(NAMES, (q, k, k), ({q.shape[2], kv_heads}, {kv_heads}, {kv_heads}), scales, strict=True)
    for name, tensor, heads, scale in of_each:
        if scale is None:
            continue
        blocks = -(-tensor.shape[1] // BLOCK)
        if scale.dim() != 3 or not (
            scale.shape[0] == tensor.shape[0] and scale.shape[1] in heads and scale.shape[2] in (1, blocks)
        ):
            shape = f"({tensor.shape[0]}, {' or '.join(map(str, sorted(heads)))}"
            raise ValueError(
                f"{name} must have one element, or shape {shape}) for heads, or {shape}, {blocks}) for each {BLOCK} "
                f"tokens of these, got {tuple(scale.shape)}; expand it"
            )


class _AttentionRequest(NamedTuple):
    """Arguments of `cutepy::quantised_attention`, in the order of its schema."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    q_scale: OptionalTensor
    k_scale: OptionalTensor
    v_scale: OptionalTensor
    sinks: OptionalTensor
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
        check_out_dtype(self.out_dtype)


def _fake(*given: Any) -> tuple[torch.Tensor, torch.Tensor]:  # noqa: ANN401
    asked = _AttentionRequest(*given)
    asked.check()
    return results_like(asked.q, asked.v, asked.out_dtype)


def _reference(*given: Any) -> tuple[torch.Tensor, torch.Tensor]:  # noqa: ANN401
    asked = _AttentionRequest(*given)
    asked.check()
    q, k, v = map(dequantised, asked[:3], asked.scales)
    scored = reference.ReferenceAttention(asked.functions, asked.tables, asked.sinks, asked.blocks, asked.block_size)
    o, lse = scored.forward(q, k, v, asked.scale, asked.left, asked.right)
    return o.to(asked.out_dtype).contiguous(), lse


@register_both(
    f"cutepy::quantised_attention({schema_of(_AttentionRequest)}) -> (Tensor, Tensor)",
    reference=_reference,
    fake=_fake,
    sharding=shardings.of_quantised_attention,
    flops=flops,
)
def _quantised(*given: Any) -> tuple[torch.Tensor, torch.Tensor]:  # noqa: ANN401
    asked = _AttentionRequest(*given)
    tables = beside(asked.q, asked.tables)
    key = (asked.functions, *asked.block_size, *asked[11:], EXECUTION.backend is None, INVARIANCE.on, len(tables))
    key = (*key, *described(*asked[:7], *tables, *asked.blocks))
    launch = _launches.get(key)
    if launch is None:
        asked.check()
        launch = _launches.keep(key, _find_launch(asked._replace(tables=tables)))
    return launch(asked[:3], asked.sinks, tables, asked.blocks, asked.scales)  # type: ignore[no-any-return]


def _find_launch(asked: _AttentionRequest) -> Any:  # noqa: ANN401
    """Plan the launch for tensors of this description, and compile the kernel."""
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
        given: tuple[torch.Tensor, ...], sinks: OptionalTensor, tables: Tensors, blocks: Tensors, scales: Three
    ) -> tuple[torch.Tensor, torch.Tensor]:
        each_block = [s if s is None else s.expand(-1, -1, count) for s, count in zip(scales, counts, strict=True)]
        return launch(given, sinks, tables, blocks, each_block)  # type: ignore[no-any-return]

    return in_blocks
