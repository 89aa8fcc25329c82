"""Operators on 16-bit floats that CUDA computes in float32 and rounds once, where the CPU's kernels round each sum.

Operators that the CPU's kernels lack for 16-bit floats are computed in float32 too.
"""

from __future__ import annotations

import re
from typing import Any

import torch

_NARROW = (torch.float16, torch.bfloat16)
_IN_FLOAT32 = frozenset(
    f"aten::{name}"
    for name in """nll_loss_forward nll_loss2d_forward prod index_put index_put_ _index_put_impl_ convolution
    convolution_backward embedding_dense_backward _embedding_bag_dense_backward native_layer_norm_backward""".split()
)
"""Operators whose CPU kernels sum in 16 bits, found by the difference from float32."""

_NOT_IN_16_BITS = re.compile("not implemented for '(?:Half|BFloat16)'")


def call(operator: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
    """Call an operator of the CPU on tensors of the CPU, with the accuracy of CUDA's."""
    if getattr(operator, "_schema", None) is not None and operator._schema.name in _IN_FLOAT32:
        return _widened(operator, args, kwargs)
    try:
        return operator(*args, **kwargs)
    except NotImplementedError as error:
        if not _NOT_IN_16_BITS.search(str(error)):
            raise
    return _widened(operator, args, kwargs)


def _widened(operator: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
    pairs: list[tuple[torch.Tensor, torch.Tensor]] = []

    def wide(value: Any) -> Any:  # noqa: ANN401
        if isinstance(value, (list, tuple)):
            return type(value)(wide(v) for v in value)
        if not isinstance(value, torch.Tensor) or value.dtype not in _NARROW:
            return value
        pairs.append((value, value.float()))
        return pairs[-1][1]

    def narrow(value: Any) -> Any:  # noqa: ANN401
        if isinstance(value, (list, tuple)):
            return type(value)(narrow(v) for v in value)
        for given, widened in pairs:
            if value is widened:
                return given.resize_(widened.shape).copy_(widened)
        if isinstance(value, torch.Tensor) and value.dtype == torch.float32:
            return value.to(pairs[0][0].dtype)
        return value

    result = operator(*map(wide, args), **{name: wide(value) for name, value in kwargs.items()})
    return narrow(result) if pairs else result
