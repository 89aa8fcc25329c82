"""What the tensors of a product must be, of any shape and strides: types, extents, devices; each refusal names one."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from cutepy.device import rules
from cutepy.epilogues.reference import broadcasts
from cutepy.kernels.gemm.elements import multipliable
from cutepy.kernels.gemm.operands import (
    INTEGER_DTYPES,
    OPERAND_DTYPES,
    OUTPUT_DTYPES,
    SUMS_DTYPE,
    Description,
    Problem,
    default_dtype,
    dtype_name,
    new_result,
)
from cutepy.kernels.gemm.signature import ACTIVATIONS, Activation
from cutepy.ops.precision import check_precision
from cutepy.ops.tracing import untraced


@untraced
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
            f"b must have a's dtype {dtype_name(a.dtype)} (only 8-bit floats mix, and 8-bit integers), got "
            f"{dtype_name(b.dtype)}; convert one of them"
        )
    if activation not in (None, *ACTIVATIONS):
        raise ValueError(f"activation must be {', '.join(ACTIVATIONS)} or None, got {activation!r}")
    if out_major not in ("row", "col"):
        raise ValueError(f'out_major must be "row" or "col", got {out_major!r}')
    shape = _result_shape(a, b)
    check_sums(a, b)
    added = [name for name, given in (("c", c), ("bias", bias), ("activation", activation)) if given is not None]
    results = (*OUTPUT_DTYPES, SUMS_DTYPE) if a.dtype in INTEGER_DTYPES and not added else OUTPUT_DTYPES
    for name, tensor in (("b", b), ("bias", bias), ("c", c), ("out", out)):
        if tensor is not None:
            if name != "b":
                check_tensor(name, tensor, results if name == "out" else OUTPUT_DTYPES)
            if tensor.device != a.device:
                raise ValueError(f"{name} must be on a's device {a.device}, got {tensor.device}")
    if bias is not None and (bias.dim() != 1 or bias.shape[0] != b.shape[-2]):
        raise ValueError(f"bias must have shape (N,) = ({b.shape[-2]},), got {tuple(bias.shape)}")
    if c is not None and not broadcasts(c.shape, shape):
        raise ValueError(f"c must have the result's shape {tuple(shape)}, or broadcast to it, got {tuple(c.shape)}")
    if out is None:
        result = new_result(shape, _result_dtype(a, out_dtype, results), out_major, a.device)
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


def check_sums(a: torch.Tensor, b: torch.Tensor) -> None:
    """Check that the tensor cores may sum products of these types: that float32 may be rounded, and int32 holds sums.

    Raises
    ------
    TypeError, ValueError
        If not.
    """
    check_precision("a", a)
    if a.dtype in INTEGER_DTYPES:
        most = rules.longest_sum(dtype_name(a.dtype), dtype_name(b.dtype))
        # A K that is not known yet is no reason to bound it: the launch is checked, too.
        if isinstance(a.shape[-1], int) and a.shape[-1] > most:
            raise ValueError(
                f"K must be at most {most} for {dtype_name(a.dtype)} by {dtype_name(b.dtype)}, whose sums int32 then "
                f"holds, got {a.shape[-1]}; multiply parts of K, and add their products in float64 or int64"
            )


def _result_dtype(a: torch.Tensor, out_dtype: torch.dtype | None, allowed: tuple[torch.dtype, ...]) -> torch.dtype:
    dtype = out_dtype or default_dtype(a, sums=SUMS_DTYPE in allowed)
    if dtype not in allowed:
        got = dtype_name(dtype) if isinstance(dtype, torch.dtype) else f"{dtype!r}, which is no torch.dtype"
        *most, last = (f"torch.{dtype_name(each)}" for each in allowed)
        why = f" ({SUMS_DTYPE} is for sums of products of integers as they are)" if dtype == SUMS_DTYPE else ""
        raise TypeError(f"out_dtype must be {', '.join(most)} or {last}, got {got}{why}")
    return dtype


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
        raise TypeError(
            f"{name} must have dtype {' or '.join(filter(None, (', '.join(most), last)))}, got "
            f"{dtype_name(tensor.dtype)}; {_remedy(name, tensor.dtype, names)}"
        )


def _remedy(name: str, dtype: torch.dtype, allowed: Sequence[str]) -> str:
    """Return what makes a tensor of an allowed dtype, and what a conversion would lose."""
    to = f".to(torch.{'bfloat16' if 'bfloat16' in allowed else allowed[0]})"
    if dtype.is_complex:  # .to() would drop the imaginary part
        parts = f"{name}.real{to} and {name}.imag{to}"
        return f"multiply {parts} on their own, or use torch.matmul, which multiplies complex numbers"
    remedy = f"convert it with {name}{to}"
    if dtype == torch.float32 and "bfloat16" in allowed:
        return f"{remedy}, or call within torch.autocast"
    if not dtype.is_floating_point and dtype != torch.bool and to == ".to(torch.bfloat16)":
        return f"{remedy}, which holds integers up to 256 exactly"
    return remedy
