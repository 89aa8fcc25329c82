"""What the tensors of a product must be, of any shape and strides: types, extents, devices; each refusal names one."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from cutepy.kernels.gemm.operands import OPERAND_DTYPES, OUTPUT_DTYPES, Description, Problem, dtype_name
from cutepy.kernels.gemm.signature import ACTIVATIONS, Activation, multipliable


def describe(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: Activation | None,
    out_dtype: torch.dtype | None,
    c: torch.Tensor | None,
    out_major: str,
    out: torch.Tensor | None = None,
) -> Problem:
    """Check all that can be told without data, and describe the problem; the result, if there is none yet, too."""
    check_tensor("a", a, OPERAND_DTYPES)
    check_tensor("b", b, OPERAND_DTYPES)
    if not multipliable(dtype_name(a.dtype), dtype_name(b.dtype)):
        raise TypeError(
            f"b must have a's dtype {dtype_name(a.dtype)} (only 8-bit floats mix), got {dtype_name(b.dtype)}; "
            "convert one of them"
        )
    if activation not in (None, *ACTIVATIONS):
        raise ValueError(f"activation must be {', '.join(ACTIVATIONS)} or None, got {activation!r}")
    if out_major not in ("row", "col"):
        raise ValueError(f'out_major must be "row" or "col", got {out_major!r}')
    shape = _result_shape(a, b)
    for name, tensor in (("b", b), ("bias", bias), ("c", c), ("out", out)):
        if tensor is not None:
            if name != "b":
                check_tensor(name, tensor, OUTPUT_DTYPES)
            if tensor.device != a.device:
                raise ValueError(f"{name} must be on a's device {a.device}, got {tensor.device}")
    if bias is not None and (bias.dim() != 1 or bias.shape[0] != b.shape[-2]):
        raise ValueError(f"bias must have shape (N,) = ({b.shape[-2]},), got {tuple(bias.shape)}")
    if c is not None and not _broadcasts(c.shape, shape):
        raise ValueError(f"c must have the result's shape {tuple(shape)}, or broadcast to it, got {tuple(c.shape)}")
    if out is None:
        result = new_result(shape, _result_dtype(a, out_dtype), out_major, a.device)
    elif list(out.shape) != shape:
        raise ValueError(f"out must have shape {tuple(shape)}, got {tuple(out.shape)}")
    elif out_dtype not in (None, out.dtype):
        raise TypeError(
            f"out_dtype must be out's dtype {dtype_name(out.dtype)} or be left out, got {dtype_name(out_dtype)}"
        )
    else:
        result = Description.of(out)
    bias_dtype = None if bias is None else bias.dtype
    return Problem(
        Description.of(a), Description.of(b), c if c is None else Description.of(c), result, bias_dtype, activation
    )


def _result_shape(a: torch.Tensor, b: torch.Tensor) -> list[int]:
    check_dimensions(a.shape, b.shape)
    if a.shape[-1] != b.shape[-1]:
        raise ValueError(
            f"b must be (..., N, K) with a's K = {a.shape[-1]}, got shape {tuple(b.shape)}; gemm computes a @ b.mT, so "
            "pass the transpose of what a @ b takes"
        )
    if b.dim() == 2:
        return [*a.shape[:-1], b.shape[-2]]
    try:
        batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except RuntimeError as error:
        raise ValueError(
            f"the batches of a and b must broadcast, got shapes {tuple(a.shape)} and {tuple(b.shape)}"
        ) from error
    return [*batch, a.shape[-2], b.shape[-2]]


def _result_dtype(a: torch.Tensor, out_dtype: torch.dtype | None) -> torch.dtype:
    dtype = out_dtype or (torch.bfloat16 if a.dtype.itemsize == 1 else a.dtype)
    if dtype not in OUTPUT_DTYPES:
        got = dtype_name(dtype) if isinstance(dtype, torch.dtype) else f"{dtype!r}, which is no torch.dtype"
        raise TypeError(f"out_dtype must be torch.float16, torch.bfloat16 or torch.float32, got {got}")
    return dtype


def new_result(shape: Sequence[int], dtype: torch.dtype, major: str, device: torch.device) -> Description:
    """Describe a result that is allocated: its matrices one after another, each in the order asked for."""
    turned = major == "col" and len(shape) > 1
    order = (*shape[:-2], shape[-1], shape[-2]) if turned else shape
    stride: list[int] = []
    step = 1
    for extent in reversed(order):
        stride.insert(0, step)
        step = step * torch.sym_max(extent, 1)
    if turned:
        stride[-2:] = stride[-1], stride[-2]
    return Description(tuple(shape), tuple(stride), dtype, device)


def _broadcasts(shape: Sequence[int], to: Sequence[int]) -> bool:
    return len(shape) <= len(to) and all(
        extent in (1, wanted) for extent, wanted in zip(reversed(shape), reversed(to), strict=False)
    )


def check_dimensions(a: Sequence[int], b: Sequence[int]) -> None:
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
        *most, last = names = [dtype_name(dtype) for dtype in allowed]
        converted = "bfloat16" if "bfloat16" in names else names[0]
        autocast = ", or call within torch.autocast" if tensor.dtype == torch.float32 and "bfloat16" in names else ""
        raise TypeError(
            f"{name} must have dtype {' or '.join(filter(None, (', '.join(most), last)))}, got "
            f"{dtype_name(tensor.dtype)}; convert it with {name}.to(torch.{converted}){autocast}"
        )
