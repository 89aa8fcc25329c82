"""Scales of 8-bit Q, K and V as operations of attention take them: checks, views, and dequantised values."""

from __future__ import annotations

from typing import NamedTuple

import torch

from cutepy.host.launches import OptionalTensor
from cutepy.kernels.gemm.operands import dtype_name
from cutepy.ops.attention_arguments import DTYPES
from cutepy.ops.registration import requires_grad

FLOAT8 = torch.float8_e4m3fn
BLOCK = 128
"""Tokens of a block that has a scale."""

Three = tuple[OptionalTensor, OptionalTensor, OptionalTensor]
"""Of Q, K and V."""


class QuantisedArguments(NamedTuple):
    """Arguments of an operation of 8-bit floats.

    Attributes
    ----------
    q_scale, k_scale, v_scale : Tensor (batch, heads, blocks), float32, or None
    out_dtype : dtype
    """

    q_scale: torch.Tensor | None
    k_scale: torch.Tensor | None
    v_scale: torch.Tensor | None
    out_dtype: torch.dtype

    @property
    def scales(self) -> Three:
        """The scales of Q, K and V."""
        return self.q_scale, self.k_scale, self.v_scale

    @property
    def given(self) -> tuple[bool, ...]:
        """True for each given scale; empty if no scale is given."""
        found = tuple(each is not None for each in self.scales)
        return found if any(found) else ()

    def dequantised(
        self, tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor], sequence: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return q, k and v of a sequence with their scales, in float64, each (1, tokens, heads, head)."""
        scales = (None if scale is None else scale[sequence : sequence + 1] for scale in self.scales)
        q, k, v = map(dequantised, tensors, scales)
        return q, k, v

    def check_sequences(self, sequences: int, kv_heads: int) -> None:
        """Check the scales of sequences, which have one for each head of K and V.

        Raises
        ------
        TypeError
            If results are to be of another dtype.
        ValueError
            If the shapes are others.
        """
        check_out_dtype(self.out_dtype)
        for name, scale in zip(NAMES, self.scales, strict=True):
            if scale is not None and scale.shape != (sequences, kv_heads, 1):
                shape = scale.shape[: 2 if scale.shape[-1] == 1 else 3]
                raise ValueError(
                    f"{name} must have one element, or shape ({sequences}, {kv_heads}), one for each sequence and head "
                    f"of k and v, got {tuple(shape)}; expand it"
                )


NAMES = ("q_scale", "k_scale", "v_scale")


def check_out_dtype(out_dtype: torch.dtype) -> None:
    """Check the dtype of results of 8-bit floats.

    Raises
    ------
    TypeError
        If it is another.
    """
    if out_dtype not in DTYPES:
        wanted = " or ".join(map(dtype_name, DTYPES))
        raise TypeError(f"out_dtype must be {wanted}, got {dtype_name(out_dtype)}; convert the result")


def quantised(
    tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    scales: Three,
    out_dtype: torch.dtype | None,
    beside: OptionalTensor,
    dropout_p: float = 0.0,
    batch: int | None = None,
) -> QuantisedArguments:
    """Return the operation's arguments for scales; shapes are not checked.

    Parameters
    ----------
    tensors : (Tensor, Tensor, Tensor)
        q, k and v, of float8_e4m3fn.
    beside : Tensor, optional
        Sinks.
    batch : int, optional
        Sequences, where the first mode of the tensors is another.

    Raises
    ------
    NotImplementedError
        If a tensor requires grad, or there is dropout, of which e4m3 has no range.
    TypeError
        If scales are not of float32.
    """
    if dropout_p:
        raise NotImplementedError(f"attention of float8_e4m3fn has no dropout, got dropout_p {dropout_p}; use bfloat16")
    if torch.is_grad_enabled() and requires_grad((*tensors, *scales, beside)):
        raise NotImplementedError(
            "attention of float8_e4m3fn has no gradients, got a tensor that requires grad; use torch.no_grad(), or "
            "float16 or bfloat16"
        )
    q, k, _ = tensors
    # Rows of heads that share keys may be rows of one tile: of sequences Q's scales are those of K's heads.
    heads = (q.shape[-2] if batch is None else k.shape[-2]), k.shape[-2], k.shape[-2]
    of_each = zip(NAMES, scales, heads, strict=True)
    count = q.shape[0] if batch is None else batch
    of_q, of_k, of_v = (_in_blocks(name, scale, q.device, count, head) for name, scale, head in of_each)
    return QuantisedArguments(of_q, of_k, of_v, torch.bfloat16 if out_dtype is None else out_dtype)


def refuse_scales(q: torch.Tensor, scales: Three, out_dtype: torch.dtype | None) -> None:
    """Refuse arguments that only 8-bit floats have.

    Raises
    ------
    TypeError
        If there are scales, or results are to be of another dtype than q.
    """
    q_scale, k_scale, v_scale = scales
    has_scales = q_scale is not None or k_scale is not None or v_scale is not None
    if has_scales or (out_dtype is not None and out_dtype != q.dtype):
        raise TypeError(
            f"q_scale, k_scale, v_scale and out_dtype are for q, k and v of float8_e4m3fn, got {q.dtype}; multiply "
            "scale, or convert the result"
        )


def _in_blocks(name: str, scale: OptionalTensor, device: torch.device, batch: int, heads: int) -> OptionalTensor:
    """View a scale as (batch, heads, blocks): one for all, for each head, or for each 128 tokens of it.

    Raises
    ------
    TypeError
        If it is not of float32, or is elsewhere.
    ValueError
        If it has another number of dimensions.
    """
    if scale is None:
        return None
    if scale.dtype != torch.float32 or scale.device != device:
        raise TypeError(f"{name} must be float32 on {device}, got {scale.dtype} on {scale.device}; convert it")
    if scale.numel() == 1:
        return scale.reshape(()).expand(batch, heads, 1)
    if scale.dim() not in (2, 3):
        raise ValueError(
            f"{name} must be one element, (batch, heads) or (batch, heads, blocks), got shape {tuple(scale.shape)}; "
            "view it so"
        )
    return scale if scale.dim() == 3 else scale.unsqueeze(-1)


def dequantised(tensor: torch.Tensor, scale: OptionalTensor) -> torch.Tensor:
    """Return the values of 8-bit floats (batch, tokens, heads, head) with their scales, in float64."""
    wide = tensor.double()
    if scale is None or not tensor.numel():
        return wide
    each = scale.double().repeat_interleave(tensor.shape[2] // scale.shape[1], 1)
    if each.shape[2] > 1:
        each = each.repeat_interleave(BLOCK, 2)[..., : tensor.shape[1]]
    return wide * each.transpose(1, 2)[..., None]
