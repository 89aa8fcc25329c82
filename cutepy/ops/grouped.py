"""`grouped_gemm`: products of groups whose extents only the device knows, as an operation of PyTorch."""

from __future__ import annotations

from typing import Any

import torch

from cutepy.epilogues.tracing import Epilogue
from cutepy.kernels.gemm.operands import dtype_name
from cutepy.kernels.grouped.config import GRADIENTS, Along
from cutepy.kernels.grouped.op import launch_groups
from cutepy.kernels.grouped.reference import grouped_reference
from cutepy.ops import shardings
from cutepy.ops.flops import of_groups
from cutepy.ops.fused import lowered_by_autocast
from cutepy.ops.grouped_forms import check_ends, describe_groups, read_form
from cutepy.ops.grouped_fused import grouped_with
from cutepy.ops.invariance import register_both
from cutepy.ops.naming import refuse_operands_of_none, refusing_its_own_names
from cutepy.ops.overlap import check_apart, overlaps_itself
from cutepy.runtime.execution import EXECUTION


@refusing_its_own_names
def grouped_gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    offs: torch.Tensor | None = None,
    counts: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    epilogue: Epilogue | None = None,
    **operands: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """Compute a @ b.mT for each group of rows, columns or K, by one launch that never waits for the host.

    Where the groups are is read on the device: `offs` has the end of each, where the next begins, as in
    `torch.nn.functional.grouped_mm`; ends need not be multiples of anything, and groups may be empty. Four forms, by
    the dimensions, with b as in `gemm`:

    - a (M, K), b (G, N, K), `offs` along M: out (M, N), rows of a by the matrix of their group (experts).
    - a (G, M, K), b (N, K), `offs` along N: out (M, N), its columns in groups; M is contiguous.
    - a (M, K), b (N, K), `offs` along K: out (G, M, N), a product of each group (gradients by the experts' weights).
    - a (G, M, K), b (G, N, K), and `counts`: out (G, M, N), only the first rows of each group, so many (masked).

    Rows (or columns) of out that belong to no group, behind the last end or beyond a count, are left as they are: of a
    new out they mean nothing. A group without K has a product of zeros.

    Ends must ascend. On the host that is checked; on the GPU nobody waits to look: rows of several groups then get
    results of one of them, not the same each time. Whatever ends and counts are, nothing beyond the tensors is read or
    written: those below 0 are taken for 0, and those beyond the extent for it.

    On the CPU the result is computed in float64 and rounded once, except within `cutepy.simulate()`, where the kernel
    runs. What TMA can't reach is copied first: tensors whose contiguous extent is no multiple of 16 bytes, or is the
    one along which groups are, and those that don't start, or whose rows are not apart, at such multiples.

    Parameters
    ----------
    a : Tensor, (M, K) or (G, M, K), float16 or bfloat16
    b : Tensor, (N, K) or (G, N, K), of a's dtype
    offs : Tensor, (G,), int32
        The groups' ends, ascending. Not with two tensors of three dimensions.
    counts : Tensor, (G,), int32
        The groups' rows, with two tensors of three dimensions.
    out : Tensor, optional
        Receives the result. It must share no memory with an input, and no argument may require grad.
    out_dtype : float16, bfloat16 or float32, optional
        Of the result; `out`'s or a's dtype if not given.
    epilogue : Epilogue, optional
        What is done with the fp32 sums before they are stored, as in `gemm`, but for reductions.
    **operands
        The epilogue's operands by name: numbers, and tensors on a's device. Rows have shape (N,), columns (M,), tiles
        the result's, or what broadcasts to it. Where groups don't follow one another along it, a row or column may be
        (G, N) or (G, M), one for each group, such as the experts' biases.

    Returns
    -------
    Tensor, (M, N) or (G, M, N), tuple or dict
        Or `out`. With an epilogue, what its function returns.

    Raises
    ------
    TypeError
        If an argument is no tensor, or has a dtype that the kernel lacks.
    ValueError
        If shapes, devices or memory don't fit; the message names the argument.

    Examples
    --------
    >>> import torch
    >>> tokens, weights = torch.ones(6, 8).bfloat16(), torch.ones(2, 4, 8).bfloat16()
    >>> grouped_gemm(tokens, weights, offs=torch.tensor([2, 6], dtype=torch.int32)).shape
    torch.Size([6, 4])
    """
    groups, along = read_form(a, b, offs, counts)
    if epilogue is not None or operands:
        return _with_epilogue(a, b, groups, along, epilogue, operands, out, out_dtype)
    if out is None:
        return _grouped(a, b, groups, along, out_dtype, False)
    if out_dtype not in (None, out.dtype):
        raise TypeError(f"out_dtype must be out's dtype {dtype_name(out.dtype)} or be left out, got {out_dtype}")
    _grouped_out(a, b, groups, along, out)
    return out


def _with_epilogue(
    a: torch.Tensor,
    b: torch.Tensor,
    groups: torch.Tensor,
    along: Along,
    epilogue: Epilogue | None,
    operands: dict[str, Any],
    out: torch.Tensor | None,
    out_dtype: torch.dtype | None,
) -> Any:  # noqa: ANN401
    if epilogue is None:
        refuse_operands_of_none("grouped_gemm", operands)
    if out is not None:
        raise ValueError("out must be left out with an epilogue, which makes all results")
    a, b = lowered_by_autocast(a), lowered_by_autocast(b)
    product = describe_groups(a, b, groups, along, out_dtype)
    return grouped_with(a, b, groups, along, epilogue, operands, product)


def multiply_groups(a: torch.Tensor, b: torch.Tensor, groups: torch.Tensor, along: Along, out: torch.Tensor) -> None:
    """Compute into out, unseen by autograd: by the kernel on the GPU or in the simulator, on the CPU by the reference.

    What belongs to no group stays.
    """
    check_ends(a, groups, along, padded=a.dim() == b.dim() == 3)
    if a.device.type == "cpu" and EXECUTION.backend is None:
        grouped_reference(a, b, groups, out, along)
    else:
        launch_groups(a, b, groups, along, (out,))


def _fake(
    a: torch.Tensor,
    b: torch.Tensor,
    groups: torch.Tensor,
    along: Along,
    out_dtype: torch.dtype | None = None,
    zero: bool = False,
) -> torch.Tensor:
    shape, stride, dtype = describe_groups(a, b, groups, along, out_dtype)[:3]
    return a.new_empty_strided(shape, stride, dtype=dtype)


def _compute(
    a: torch.Tensor,
    b: torch.Tensor,
    groups: torch.Tensor,
    along: Along,
    out_dtype: torch.dtype | None = None,
    zero: bool = False,
) -> torch.Tensor:
    out = describe_groups(a, b, groups, along, out_dtype).new()
    multiply_groups(a, b, groups, along, out.zero_() if zero else out)
    return out


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:  # noqa: ANN401
    a, b, groups, along, *_ = inputs
    ctx.save_for_backward(a, b, groups)
    ctx.along = along


def _backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # noqa: ANN401
    a, b, groups = ctx.saved_tensors
    grad = grad.to(a.dtype)
    grad_a, grad_b = None, None
    of_a, of_b = GRADIENTS[ctx.along]
    # What belongs to no group has no influence: its gradient is zero.
    if ctx.needs_input_grad[0]:
        grad_a = _grouped(grad, b.mT, groups, of_a, None, of_a != "k")
    if ctx.needs_input_grad[1]:
        grad_b = _grouped(grad.mT, a.mT, groups, of_b, None, of_b != "k")
    return grad_a, grad_b, None, None, None, None


_grouped = register_both(
    "cutepy::grouped_gemm(Tensor a, Tensor b, Tensor groups, str along, ScalarType? out_dtype=None, "
    "bool zero=False) -> Tensor",
    reference=_compute,
    fake=_fake,
    setup_context=_keep_for_backward,
    backward=_backward,
    autocast="lower",
    sharding=shardings.of_groups_product,
    flops=of_groups,
)(_compute)


def _check_out(a: torch.Tensor, b: torch.Tensor, groups: torch.Tensor, along: Along, out: torch.Tensor) -> None:
    """Check all that can be told without data; gives nothing, as the operation does: the result exists."""
    describe_groups(a, b, groups, along, out=out)


def _compute_into(a: torch.Tensor, b: torch.Tensor, groups: torch.Tensor, along: Along, out: torch.Tensor) -> None:
    if overlaps_itself(described_out := describe_groups(a, b, groups, along, out=out)):
        raise ValueError(f"out must not overlap itself, got {described_out}; pass one whose elements lie apart")
    check_apart(out, a=a, b=b, groups=groups)
    multiply_groups(a, b, groups, along, out)


_grouped_out = register_both(
    "cutepy::grouped_gemm_out(Tensor a, Tensor b, Tensor groups, str along, Tensor(a!) out) -> ()",
    reference=_compute_into,
    fake=_check_out,
    autocast="lower",
    sharding=shardings.of_groups_out,
    flops=of_groups,
)(_compute_into)
