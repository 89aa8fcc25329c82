"""Cross entropy of a linear layer's results as an operation of PyTorch, whose logits are never whole in memory.

Rows are computed in chunks: logits, losses, the logits' gradient in their place, and what it adds to the gradients of
input, weight and bias, which are there when the forward pass ends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from cutepy.epilogues.standard import standard
from cutepy.kernels.rows.tiling import MOST_COLUMNS
from cutepy.ops import shardings
from cutepy.ops.checking import as_tensor, check_precision
from cutepy.ops.cross_entropies import (
    LABELS,
    Options,
    check_options,
    compute_losses,
    counted,
    reference_gradient,
    reference_losses,
    write_gradient,
)
from cutepy.ops.multiply import multiply
from cutepy.ops.registration import register_both
from cutepy.ops.row_tensors import check_row_tensors

Given = torch.Tensor | None
Results = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
"""Losses of the rows, float32, and gradients of input, weight and bias."""

_PRODUCT, _ADDED = standard().text, standard(c=True).text
_WITH_BIAS = standard(bias=True).text
_UNIT = 8
"""Logits that rows are multiples of apart: 16 bytes at least."""


def linear_cross_entropy(
    input: torch.Tensor,
    linear_weight: torch.Tensor,
    target: torch.Tensor,
    *,
    linear_bias: torch.Tensor | None = None,
    weight: torch.Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    chunk_rows: int | None = None,
    inplace_backward: bool = True,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Compute the cross entropy of input @ linear_weight.T + linear_bias: `torch.nn.functional.linear_cross_entropy`.

    Logits have the input's dtype, and are in memory for some rows at a time. Gradients are computed in the forward
    pass, those of the weight as sums of the chunks' in its dtype; with reduction "none" in the backward pass, which
    computes logits again.

    Parameters
    ----------
    input : Tensor (..., features)
        float16, bfloat16, or float32 where torch's settings let it be rounded to tf32.
    linear_weight : Tensor (classes, features), as input
        1 to 262,144 classes.
    target, weight, reduction, ignore_index, label_smoothing, z_loss, out_dtype
        As of `cross_entropy`; target (...).
    linear_bias : Tensor (classes,), optional
    chunk_rows : int, optional
        Rows whose logits are in memory at a time: by default as many as take the input's memory, rounded up to a power
        of 2. More take less time, for the weight's gradient is read and written once for each chunk.
    inplace_backward : bool
        True to have the backward pass scale gradients in their place, which takes no memory: a second one is refused.
        Compiled programs and transforms of torch.func ignore it.

    Returns
    -------
    Tensor, () or as the target
        Differentiable with respect to input, linear_weight and linear_bias.

    Raises
    ------
    TypeError, ValueError
        If dtypes, shapes or options are others.

    Examples
    --------
    >>> import torch
    >>> x, classes = torch.eye(2, 8).bfloat16(), torch.zeros(5, 8).bfloat16()
    >>> linear_cross_entropy(x, classes, torch.tensor([1, -100]), out_dtype=torch.float32)
    tensor(1.6094)
    """
    ignore_index = -100 if ignore_index is None else ignore_index
    check_options(reduction, ignore_index, label_smoothing, z_loss)
    if chunk_rows is not None and chunk_rows < 1:
        raise ValueError(f"chunk_rows must be 1 or more, got {chunk_rows}")
    if as_tensor("target", target).shape != as_tensor("input", input).shape[:-1] or not input.dim():
        raise ValueError(
            f"target must have input's shape without features, got {tuple(target.shape)} for {tuple(input.shape)}"
        )
    if as_tensor("linear_weight", linear_weight).dim() != 2:
        raise ValueError(f"linear_weight must be (classes, features), got {tuple(linear_weight.shape)}")
    _check_vectors(linear_weight, linear_bias, weight)
    x, labels, classes = input.reshape(-1, input.shape[-1]), target.reshape(-1), linear_weight.shape[0]
    chunk = chunk_rows or rows_of_chunk(x.shape[0], x.shape[1], classes)
    options = ignore_index, label_smoothing, z_loss, chunk
    dtype = out_dtype or input.dtype
    if reduction == "none":
        losses = _linear_losses(x, linear_weight, labels, linear_bias, weight, *options)
        return losses.to(dtype).reshape(target.shape)
    needs = [
        torch.is_grad_enabled() and each is not None and each.requires_grad for each in (x, linear_weight, linear_bias)
    ]
    inplace = inplace_backward and not torch.compiler.is_compiling()
    total = _linear_cross_entropy(x, linear_weight, labels, linear_bias, weight, None, *options, *needs, inplace)[0]
    if reduction == "mean":
        # Gradients are divided afterwards: those of logits would be too small for float16 before.
        divisor = counted(labels, weight, ignore_index, classes).sum()
        total = torch.where(divisor == 0, torch.nan, total / torch.where(divisor == 0, 1, divisor))
    return total.to(dtype)


def rows_of_chunk(rows: int, features: int, classes: int) -> int:
    """Return the rows whose logits are in memory at a time.

    Examples
    --------
    >>> rows_of_chunk(8192, 4096, 128256), rows_of_chunk(100, 64, 32)
    (256, 128)
    """
    parts = max(1, -(-classes // max(1, features)))
    return 1 << (max(1, -(-rows // parts)) - 1).bit_length()


def _check(x: torch.Tensor, matrix: torch.Tensor, target: torch.Tensor, bias: Given, weight: Given) -> None:
    check_row_tensors("linear_cross_entropy", input=x, linear_weight=matrix, linear_bias=bias, weight=weight)
    if matrix.shape[1] != x.shape[1] or matrix.dtype != x.dtype:
        raise ValueError(
            f"linear_weight must be (classes, {x.shape[1]}) of {x.dtype}, got {tuple(matrix.shape)} of {matrix.dtype}"
        )
    if not 1 <= matrix.shape[0] <= MOST_COLUMNS:
        raise ValueError(f"linear_weight must have 1 to {MOST_COLUMNS} classes, got {matrix.shape[0]}")
    _check_vectors(matrix, bias, weight)
    if target.dtype not in LABELS or target.device != x.device:
        raise TypeError(f"target must be int64 or int32 on {x.device}, got {target.dtype} on {target.device}")


def _check_vectors(matrix: torch.Tensor, bias: Given, weight: Given) -> None:
    for name, each in (("linear_bias", bias), ("weight", weight)):
        if each is not None and each.shape != matrix.shape[:1]:
            raise ValueError(f"{name} must have shape ({matrix.shape[0]},), got {tuple(each.shape)}")


def _empty(
    x: torch.Tensor, matrix: torch.Tensor, bias: Given, needs_x: bool, needs_matrix: bool, needs_bias: bool
) -> Results:
    """Make empty losses and gradients; those that are not asked for have no elements."""
    return (
        x.new_empty(x.shape[:1], dtype=torch.float32),
        x.new_empty(x.shape if needs_x else 0),
        x.new_empty(matrix.shape if needs_matrix else 0),
        x.new_empty(matrix.shape[:1] if needs_bias else 0, dtype=x.dtype if bias is None else bias.dtype),
    )


def _chunked(
    x: torch.Tensor,
    matrix: torch.Tensor,
    target: torch.Tensor,
    bias: Given,
    weight: Given,
    factors: Given,
    options: Options,
    chunk_rows: int,
    needs: Sequence[bool],
) -> Results:
    """Compute losses and gradients chunk by chunk."""
    losses, dx, dmatrix, dbias = results = _empty(x, matrix, bias, *needs)
    needs_x, needs_matrix, needs_bias = needs
    rows, classes = x.shape[0], matrix.shape[0]
    factors = torch.ones_like(losses) if factors is None else factors
    sums = x.new_zeros(classes if needs_bias else 0, dtype=torch.float32)
    if not rows:
        dmatrix.zero_()
    room = x.new_empty(min(chunk_rows, rows), -(-classes // _UNIT) * _UNIT)
    for first in range(0, rows, chunk_rows):
        chunk = slice(first, min(first + chunk_rows, rows))
        part, labels, logits = x[chunk], target[chunk], room[: chunk.stop - first, :classes]
        added = (_PRODUCT, ()) if bias is None else (_WITH_BIAS, (bias,))
        multiply(part, matrix, *added, outs=(logits,))
        own, lse = losses[chunk], torch.empty_like(losses[chunk])
        compute_losses(logits, labels, weight, options, own, lse)
        if not any(needs):
            continue
        write_gradient(factors[chunk], logits, labels, weight, lse, options, logits)
        if needs_x:
            multiply(logits, matrix.t(), _PRODUCT, outs=(dx[chunk],))
        if needs_matrix:
            added = (_ADDED, (dmatrix,)) if first else (_PRODUCT, ())
            multiply(logits.t(), part.t(), *added, outs=(dmatrix,))
        if needs_bias:
            sums += logits.sum(0, dtype=torch.float32)
    if needs_bias:
        dbias.copy_(sums)
    return results


def _by_torch(
    x: torch.Tensor,
    matrix: torch.Tensor,
    target: torch.Tensor,
    bias: Given,
    weight: Given,
    factors: Given,
    options: Options,
    needs: Sequence[bool],
) -> Results:
    """Compute the same in plain torch."""
    check_precision("input", x)
    losses, dx, dmatrix, dbias = _empty(x, matrix, bias, *needs)
    wide, factor = x.double(), matrix.double()
    logits = wide @ factor.t()
    logits = (logits if bias is None else logits + bias.double()).to(x.dtype)
    losses, lse = reference_losses(logits, target, weight, *options, False)
    if any(needs):
        factors = torch.ones_like(losses) if factors is None else factors
        dlogits = reference_gradient(factors, logits, target, weight, lse, *options).double()
        needs_x, needs_matrix, needs_bias = needs
        dx = (dlogits @ factor).to(dx.dtype) if needs_x else dx
        dmatrix = (dlogits.t() @ wide).to(dmatrix.dtype) if needs_matrix else dmatrix
        dbias = dlogits.sum(0).to(dbias.dtype) if needs_bias else dbias
    return losses, dx, dmatrix, dbias


def _total(results: Results, factors: Given) -> Results:
    losses, dx, dmatrix, dbias = results
    return (losses if factors is None else losses * factors).sum(), dx, dmatrix, dbias


def _fake(
    x: torch.Tensor,
    matrix: torch.Tensor,
    target: torch.Tensor,
    bias: Given,
    weight: Given,
    factors: Given,
    ignore_index: int,
    label_smoothing: float,
    z_loss: float,
    chunk_rows: int,
    needs_x: bool,
    needs_matrix: bool,
    needs_bias: bool,
    inplace: bool,
) -> Results:
    _check(x, matrix, target, bias, weight)
    _, dx, dmatrix, dbias = _empty(x, matrix, bias, needs_x, needs_matrix, needs_bias)
    return x.new_empty((), dtype=torch.float32), dx, dmatrix, dbias


def _reference(
    x: torch.Tensor,
    matrix: torch.Tensor,
    target: torch.Tensor,
    bias: Given,
    weight: Given,
    factors: Given,
    ignore_index: int,
    label_smoothing: float,
    z_loss: float,
    chunk_rows: int,
    needs_x: bool,
    needs_matrix: bool,
    needs_bias: bool,
    inplace: bool,
) -> Results:
    _check(x, matrix, target, bias, weight)
    options, needs = (ignore_index, label_smoothing, z_loss), (needs_x, needs_matrix, needs_bias)
    return _total(_by_torch(x, matrix, target, bias, weight, factors, options, needs), factors)


def _keep(ctx: Any, inputs: Sequence[Any], output: Sequence[torch.Tensor]) -> None:  # noqa: ANN401
    ctx.set_materialize_grads(False)  # of the gradients, zeros for which would take their memory
    ctx.needs, ctx.inplace = inputs[-4:-1], inputs[-1]
    ctx.save_for_backward(*output[1:])
    ctx.mark_non_differentiable(*output[1:])


def _backward(ctx: Any, dtotal: torch.Tensor, *_: object) -> tuple[Any, ...]:  # noqa: ANN401
    inplace = ctx.inplace and not torch.compiler.is_compiling()
    inplace = inplace and torch._C._functorch.peek_interpreter_stack() is None
    dx, dmatrix, dbias = (
        None if not needed else each.detach().mul_(dtotal) if inplace else (each * dtotal).to(each.dtype)
        for each, needed in zip(ctx.saved_tensors, ctx.needs, strict=True)
    )
    return dx, dmatrix, None, dbias, *[None] * 10


def _flops(x: Sequence[int], matrix: Sequence[int], *rest: Any, **_: object) -> int:  # noqa: ANN401
    """Count the products: the logits, and the gradients of x and the matrix where they are asked for."""
    needs_x, needs_matrix = rest[8:10]
    return 2 * math.prod(x) * matrix[0] * (1 + needs_x + needs_matrix)


@register_both(
    "cutepy::linear_cross_entropy",
    reference=_reference,
    fake=_fake,
    setup_context=_keep,
    backward=_backward,
    autocast=("x", "matrix"),
    sharding=shardings.of_linear_cross_entropy,
    flops=_flops,
)
def _linear_cross_entropy(
    x: torch.Tensor,
    matrix: torch.Tensor,
    target: torch.Tensor,
    bias: Given,
    weight: Given,
    factors: Given,
    ignore_index: int,
    label_smoothing: float,
    z_loss: float,
    chunk_rows: int,
    needs_x: bool,
    needs_matrix: bool,
    needs_bias: bool,
    inplace: bool,
) -> Results:
    """Compute sum(factors * losses), and its gradients with respect to x, the matrix and the bias."""
    _check(x, matrix, target, bias, weight)
    options, needs = (ignore_index, label_smoothing, z_loss), (needs_x, needs_matrix, needs_bias)
    return _total(_chunked(x, matrix, target, bias, weight, factors, options, chunk_rows, needs), factors)


_NONE = False, False, False


def _fake_losses(
    x: torch.Tensor, matrix: torch.Tensor, target: torch.Tensor, bias: Given, weight: Given, *_: object
) -> torch.Tensor:
    _check(x, matrix, target, bias, weight)
    return _empty(x, matrix, bias, *_NONE)[0]


def _reference_losses(
    x: torch.Tensor,
    matrix: torch.Tensor,
    target: torch.Tensor,
    bias: Given,
    weight: Given,
    ignore_index: int,
    label_smoothing: float,
    z_loss: float,
    chunk_rows: int,
) -> torch.Tensor:
    _check(x, matrix, target, bias, weight)
    return _by_torch(x, matrix, target, bias, weight, None, (ignore_index, label_smoothing, z_loss), _NONE)[0]


def _keep_inputs(ctx: Any, inputs: Sequence[Any], output: torch.Tensor) -> None:  # noqa: ANN401
    *tensors, ctx.ignore_index, ctx.label_smoothing, ctx.z_loss, ctx.chunk_rows = inputs
    ctx.save_for_backward(*tensors)


def _backward_of_losses(ctx: Any, dlosses: torch.Tensor) -> tuple[Any, ...]:  # noqa: ANN401
    x, matrix, target, bias, weight = ctx.saved_tensors
    options = ctx.ignore_index, ctx.label_smoothing, ctx.z_loss, ctx.chunk_rows
    needs = [ctx.needs_input_grad[n] for n in (0, 1, 3)]
    given = x, matrix, target, bias, weight, dlosses.float()
    found = _linear_cross_entropy(*(each if each is None else each.detach() for each in given), *options, *needs, False)
    dx, dmatrix, dbias = (each if needed else None for each, needed in zip(found[1:], needs, strict=True))
    return dx, dmatrix, None, dbias, *[None] * 5


def _flops_of_losses(x: Sequence[int], matrix: Sequence[int], *_: object, **__: object) -> int:
    return 2 * math.prod(x) * matrix[0]


@register_both(
    "cutepy::linear_losses",
    reference=_reference_losses,
    fake=_fake_losses,
    setup_context=_keep_inputs,
    backward=_backward_of_losses,
    autocast=("x", "matrix"),
    sharding=shardings.of_linear_losses,
    flops=_flops_of_losses,
)
def _linear_losses(
    x: torch.Tensor,
    matrix: torch.Tensor,
    target: torch.Tensor,
    bias: Given,
    weight: Given,
    ignore_index: int,
    label_smoothing: float,
    z_loss: float,
    chunk_rows: int,
) -> torch.Tensor:
    """Compute the loss of each row."""
    _check(x, matrix, target, bias, weight)
    options = ignore_index, label_smoothing, z_loss
    return _chunked(x, matrix, target, bias, weight, None, options, chunk_rows, _NONE)[0]
