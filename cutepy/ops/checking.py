"""What the tensors of a product must be, of any shape and strides: types, extents, devices; each refusal names one."""

from __future__ import annotations

import torch

from cutepy.kernels.gemm.config import ACTIVATIONS
from cutepy.kernels.gemm.operands import OPERAND_DTYPES, OUTPUT_DTYPES, dtype_name


def describe_result(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    out_dtype: torch.dtype | None,
) -> tuple[list[int], torch.dtype]:
    """Check all that can be told without data; gives the result's shape and dtype."""
    check_tensor("a", a, OPERAND_DTYPES)
    check_tensor("b", b, OPERAND_DTYPES)
    if a.dtype != b.dtype and a.dtype.itemsize + b.dtype.itemsize != 2:
        raise TypeError(
            f"b must have a's dtype {dtype_name(a.dtype)} (only 8-bit floats mix), got {dtype_name(b.dtype)}; "
            "convert one of them"
        )
    if activation not in (None, *ACTIVATIONS):
        raise ValueError(f"activation must be {', '.join(ACTIVATIONS)} or None, got {activation!r}")
    check_dimensions(a.shape, b.shape)
    if a.shape[-1] != b.shape[-1]:
        raise ValueError(
            f"b must be (..., N, K) with a's K = {a.shape[-1]}, got shape {tuple(b.shape)}; gemm computes a @ b.mT, so "
            "pass the transpose of what a @ b takes"
        )
    n = b.shape[-2]
    if bias is not None:
        check_tensor("bias", bias, OUTPUT_DTYPES)
        if bias.dim() != 1 or bias.shape[0] != n:
            raise ValueError(f"bias must have shape (N,) = ({n},), got {tuple(bias.shape)}")
    for name, tensor in (("b", b), ("bias", bias)):
        if tensor is not None and tensor.device != a.device:
            raise ValueError(f"{name} must be on a's device {a.device}, got {tensor.device}")
    dtype = out_dtype or (torch.bfloat16 if a.dtype.itemsize == 1 else a.dtype)
    if dtype not in OUTPUT_DTYPES:
        got = dtype_name(dtype) if isinstance(dtype, torch.dtype) else f"{dtype!r}, which is no torch.dtype"
        raise TypeError(f"out_dtype must be torch.float16, torch.bfloat16 or torch.float32, got {got}")
    if b.dim() == 2:
        return [*a.shape[:-1], n], dtype
    try:
        batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except RuntimeError as error:
        raise ValueError(
            f"the batches of a and b must broadcast, got shapes {tuple(a.shape)} and {tuple(b.shape)}"
        ) from error
    return [*batch, a.shape[-2], n], dtype


def check_dimensions(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    """Check how many dimensions the operands have."""
    if len(a) < 1 or len(b) < 2 or (len(b) > 2 and len(a) < 2):
        raise ValueError(
            f"a must be (..., K) and b (N, K), or a (..., M, K) and b (..., N, K), got {tuple(a)} and {tuple(b)}"
        )


def check_tensor(name: str, tensor: object, allowed: tuple[torch.dtype, ...]) -> None:
    """Check that an argument is a dense tensor of an allowed dtype."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(tensor).__name__}")
    if tensor.is_nested or tensor.layout != torch.strided:
        raise TypeError(f"{name} must be a dense tensor, got {'a nested one' if tensor.is_nested else tensor.layout}")
    if tensor.dtype not in allowed:
        *most, last = map(dtype_name, allowed)
        autocast = ", or call within torch.autocast" if tensor.dtype == torch.float32 else ""
        raise TypeError(
            f"{name} must have dtype {', '.join(most)} or {last}, got {dtype_name(tensor.dtype)}; convert it with "
            f"{name}.to(torch.bfloat16){autocast}"
        )
