"""The forms of products of groups: what tensors they take, checked as far as can be without waiting for a GPU."""

from __future__ import annotations

from itertools import pairwise

import torch

from cutepy.kernels.gemm.operands import OUTPUT_DTYPES, Description, dtype_name, new_result
from cutepy.kernels.grouped.config import Along, unit
from cutepy.ops.checking import check_tensor
from cutepy.ops.tracing import untraced

SIXTEEN_BITS = (torch.float16, torch.bfloat16)
_FORMS: dict[tuple[int, int], Along] = {(2, 3): "m", (3, 2): "n", (2, 2): "k", (3, 3): "m"}


@untraced
def read_form(
    a: torch.Tensor, b: torch.Tensor, offs: torch.Tensor | None, counts: torch.Tensor | None
) -> tuple[torch.Tensor, Along]:
    """Tell by the dimensions along which extent groups are, and give their ends or counts.

    Raises
    ------
    ValueError
        If there is no such form, or it has the other of the two.
    """
    groups = offs if counts is None else counts
    along: Along | None = None
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        along = _FORMS.get((a.dim(), b.dim()))
    if along is None:
        got = [tuple(x.shape) if isinstance(x, torch.Tensor) else type(x).__name__ for x in (a, b)]
        raise ValueError(f"a must be (M, K) or (G, M, K), and b (N, K) or (G, N, K), got {got[0]} and {got[1]}")
    name, other = ("counts", "offs") if a.dim() == b.dim() == 3 else ("offs", "counts")
    if groups is None or (offs is not None and counts is not None) or (offs is None) != (name == "counts"):
        what = "rows" if name == "counts" else f"ends along {along.upper()}"
        raise ValueError(f"{name}, the groups' {what}, must be given with such a and b, and {other} must not")
    return groups, along


@untraced
def describe_groups(
    a: torch.Tensor,
    b: torch.Tensor,
    groups: torch.Tensor,
    along: Along,
    out_dtype: torch.dtype | None = None,
    out: torch.Tensor | None = None,
    dtypes: tuple[torch.dtype, ...] = SIXTEEN_BITS,
) -> Description:
    """Check all that can be told without data, and describe the result; a's dtypes, of which only 8-bit ones mix."""
    check_tensor("a", a, dtypes)
    check_tensor("b", b, (a.dtype,) if a.dtype in SIXTEEN_BITS else dtypes)
    name = "counts" if a.dim() == b.dim() == 3 else "offs"
    check_groups(name, groups)
    for other, tensor in (("b", b), (name, groups), ("out", out)):
        if tensor is not None and tensor.device != a.device:
            raise ValueError(f"{other} must be on a's device {a.device}, got {tensor.device}")
    if a.shape[-1] != b.shape[-1]:
        raise ValueError(
            f"b must be (..., N, K) with a's K = {a.shape[-1]}, got shape {tuple(b.shape)}; the product is "
            "a @ b.mT, so pass the transpose of what a @ b takes"
        )
    count = groups.shape[0]
    for other, tensor in (("a", a), ("b", b)):
        if tensor.dim() == 3 and tensor.shape[0] != count:
            raise ValueError(f"{other} must have a matrix for each of the {count} {name}, got {tuple(tensor.shape)}")
    padded = a.dim() == b.dim() == 3
    shape: tuple[int, ...] = (a.shape[-2], b.shape[-2])
    if padded or along == "k":
        shape = (count, *shape)
    dtype = out_dtype or (a.dtype if a.dtype in SIXTEEN_BITS else torch.bfloat16)
    if out is not None:
        check_tensor("out", out, OUTPUT_DTYPES)
        if tuple(out.shape) != tuple(shape):
            raise ValueError(f"out must have shape {tuple(shape)}, got {tuple(out.shape)}")
        result = Description.of(out)
    elif dtype in OUTPUT_DTYPES:
        result = new_result(shape, dtype, "col" if along == "n" else "row", a.device)
    else:
        raise TypeError(f"out_dtype must be torch.float16, torch.bfloat16 or torch.float32, got {dtype}")
    return result


def check_groups(name: str, groups: object) -> None:
    """Check the tensor that says where groups are, without its values."""
    if not isinstance(groups, torch.Tensor) or groups.dim() != 1:
        got = f"shape {tuple(groups.shape)}" if isinstance(groups, torch.Tensor) else type(groups).__name__
        raise ValueError(f"{name} must be a tensor (G,) with an element for each group, got {got}")
    if groups.dtype != torch.int32:
        raise TypeError(f"{name} must have dtype int32, got {dtype_name(groups.dtype)}; convert it with .int()")


def check_ends(a: torch.Tensor, groups: torch.Tensor, along: Along, *, padded: bool) -> None:
    """Check where groups end if the host has that, as on the CPU and in the simulator; a GPU isn't waited for.

    Raises
    ------
    ValueError
        If ends descend, or groups of 8-bit operands along K begin within 128.
    """
    if groups.device.type != "cpu" or padded:
        return
    ends, step = groups.tolist(), unit(along, 8 * a.dtype.itemsize)
    for group, (before, end) in enumerate(pairwise(ends), 1):
        if end < before:
            raise ValueError(
                f"offs must ascend, since each group begins where the one before it ends, got {end} behind {before} "
                f"for group {group}; give an empty group the end of the one before it"
            )
    for group, end in enumerate(ends):
        if end % step and end < a.shape[-1]:
            raise ValueError(
                f"offs along K must be multiples of {step}, or K, where operands have 8 bits, got {end} for group "
                f"{group}; fill each group up with zeros"
            )
