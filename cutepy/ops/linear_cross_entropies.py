"""Cross entropy of a linear layer's results as an operation of PyTorch, whose logits are never whole in memory.

The forward pass computes rows in chunks: the logits, the losses, and the gradient of the logits in their place. Each
chunk also adds its part to the gradients of input, weight and bias, which are complete when the forward pass ends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from cutepy.epilogues.standard import standard
from cutepy.host.launches import OptionalTensor
from cutepy.kernels.rows.tiling import MOST_COLUMNS, power_of_two
from cutepy.ops import shardings
from cutepy.ops.checking import as_tensor, check_precision
from cutepy.ops.cross_entropies import (
    LABELS,
    Options,
    check_options,
    compute_losses,
    counted,
    dtype_of_losses,
    reference_gradient,
    reference_losses,
    write_gradient,
)
from cutepy.ops.multiply import multiply
from cutepy.ops.registration import register_both
from cutepy.ops.row_tensors import check_row_tensors
from cutepy.ops.schemas import schema_of

Results = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
"""Losses of the rows, float32, and gradients of input, weight and bias."""

_PRODUCT, _ADDED = standard().text, standard(c=True).text
_WITH_BIAS = standard(bias=True).text
_UNIT = 8
"""Logits that rows are multiples of apart: 16 bytes at least."""
LEAST_CHUNK = 256
"""Rows of a chunk, at least, if there are as many."""


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
        Rows whose logits are in memory at a time, by default as many as take the weight's memory: `rows_of_chunk`.
        Fewer take less memory and more time, for the weight's gradient is read and written once for each chunk. Classes
        or features that are no multiple of 8 cost copies of a chunk's logits, or of the weight.
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
    # Their default is chosen when it runs: a traced program, whose rows may be a symbol, is for any number.
    options = ignore_index, label_smoothing, z_loss, chunk_rows or 0
    dtype = out_dtype or dtype_of_losses(input)
    if reduction == "none":
        losses = _linear_losses(x, linear_weight, labels, linear_bias, weight, *options)
        return losses.to(dtype).reshape(target.shape)
    needs = [
        torch.is_grad_enabled() and each is not None and each.requires_grad for each in (x, linear_weight, linear_bias)
    ]
    inplace = inplace_backward and not torch.compiler.is_compiling()
    given = x, linear_weight, labels, linear_bias, weight, *options
    total = _linear_cross_entropy(*given, None, *needs, inplace)[0]
    if reduction == "mean":
        # Gradients are divided afterwards: those of logits would be too small for float16 before.
        divisor = counted(labels, weight, ignore_index, classes).sum()
        total = torch.where(divisor == 0, torch.nan, total / torch.where(divisor == 0, 1, divisor))
    return total.to(dtype)


def rows_of_chunk(rows: int, features: int) -> int:
    """Return the rows whose logits are in memory at a time: as many as a row has features, and at least `LEAST_CHUNK`.

    So they take no more memory than the weight's gradient, which each chunk reads and writes (8192 x 4096 x 128256 on
    an H200, 2026-11-30: 41.0 ms, 2.2 GB at most; chunks of 256 rows 61.9 ms, 1.2 GB; torch 41.7 ms, 6.3 GB).

    Examples
    --------
    >>> rows_of_chunk(8192, 4096), rows_of_chunk(100, 64)
    (4096, 128)
    """
    return min(power_of_two(max(1, rows)), power_of_two(max(LEAST_CHUNK, features)))


class LossRequest(NamedTuple):
    """Arguments of `cutepy::linear_cross_entropy` in the schema's order; `cutepy::linear_losses` has the first nine.

    Attributes
    ----------
    x, matrix : Tensor (rows, features), (classes, features)
    target : Tensor (rows,)
    bias, weight : Tensor (classes,), or None
    ignore_index, label_smoothing, z_loss
        As of `linear_cross_entropy`.
    chunk_rows : int
        As of `linear_cross_entropy`; 0 for the number that `rows_of_chunk` returns.
    factors : Tensor (rows,), float32, or None
        Of the losses in their sum, 1 if not given.
    needs_x, needs_matrix, needs_bias : bool
        Gradients of the sum that are asked for.
    inplace : bool
        True if the backward pass scales them in their place.
    """

    x: torch.Tensor
    matrix: torch.Tensor
    target: torch.Tensor
    bias: torch.Tensor | None
    weight: torch.Tensor | None
    ignore_index: int
    label_smoothing: float
    z_loss: float
    chunk_rows: int
    factors: torch.Tensor | None = None
    needs_x: bool = False
    needs_matrix: bool = False
    needs_bias: bool = False
    inplace: bool = False

    @property
    def options(self) -> Options:
        """Options of the cross entropy."""
        return self.ignore_index, self.label_smoothing, self.z_loss

    @property
    def needs_any(self) -> bool:
        """True if there are gradients."""
        return self.needs_x or self.needs_matrix or self.needs_bias

    def check(self) -> None:
        """Check shapes, dtypes and devices.

        Raises
        ------
        TypeError, ValueError
            If they are others.
        """
        x, matrix, target = self.x, self.matrix, self.target
        given = {"linear_bias": self.bias, "weight": self.weight}
        check_row_tensors("linear_cross_entropy", input=x, linear_weight=matrix, **given)
        if matrix.shape[1] != x.shape[1] or matrix.dtype != x.dtype:
            raise ValueError(
                f"linear_weight must be (classes, {x.shape[1]}) of {x.dtype}, got {tuple(matrix.shape)} of "
                f"{matrix.dtype}"
            )
        if not 1 <= matrix.shape[0] <= MOST_COLUMNS:
            raise ValueError(f"linear_weight must have 1 to {MOST_COLUMNS} classes, got {matrix.shape[0]}")
        _check_vectors(matrix, self.bias, self.weight)
        if target.dtype not in LABELS or target.device != x.device:
            raise TypeError(f"target must be int64 or int32 on {x.device}, got {target.dtype} on {target.device}")

    def empty(self) -> Results:
        """Make empty losses and gradients; those that are not asked for have no elements."""
        x, matrix, bias = self.x, self.matrix, self.bias
        return (
            x.new_empty(x.shape[:1], dtype=torch.float32),
            x.new_empty(x.shape if self.needs_x else 0),
            x.new_empty(matrix.shape if self.needs_matrix else 0),
            x.new_empty(matrix.shape[:1] if self.needs_bias else 0, dtype=x.dtype if bias is None else bias.dtype),
        )

    def total(self, results: Results) -> Results:
        """Sum up the losses."""
        losses, dx, dmatrix, dbias = results
        return (losses if self.factors is None else losses * self.factors).sum(), dx, dmatrix, dbias


def _check_vectors(matrix: torch.Tensor, bias: OptionalTensor, weight: OptionalTensor) -> None:
    for name, each in (("linear_bias", bias), ("weight", weight)):
        if each is not None and as_tensor(name, each).shape != matrix.shape[:1]:
            raise ValueError(f"{name} must have shape ({matrix.shape[0]},), got {tuple(each.shape)}")


def _chunked(asked: LossRequest) -> Results:
    """Compute losses and gradients chunk by chunk."""
    x, matrix, bias, weight, options = asked.x, asked.matrix, asked.bias, asked.weight, asked.options
    losses, dx, dmatrix, dbias = results = asked.empty()
    rows, classes, chunk_rows = x.shape[0], matrix.shape[0], asked.chunk_rows or rows_of_chunk(*x.shape)
    factors = torch.ones_like(losses) if asked.factors is None else asked.factors
    sums = x.new_zeros(dbias.shape, dtype=torch.float32)
    if not rows:
        dmatrix.zero_()
    room = x.new_empty(min(chunk_rows, rows), -(-classes // _UNIT) * _UNIT)
    for first in range(0, rows, chunk_rows):
        chunk = slice(first, min(first + chunk_rows, rows))
        part, labels, logits = x[chunk], asked.target[chunk], room[: chunk.stop - first, :classes]
        if bias is None:
            multiply(part, matrix, _PRODUCT, outs=(logits,))
        else:
            multiply(part, matrix, _WITH_BIAS, (bias,), outs=(logits,))
        own, lse = losses[chunk], torch.empty_like(losses[chunk])
        compute_losses(logits, labels, weight, options, own, lse)
        if not asked.needs_any:
            continue
        write_gradient(factors[chunk], logits, labels, weight, lse, options, logits)
        if asked.needs_x:
            multiply(logits, matrix.t(), _PRODUCT, outs=(dx[chunk],))
        if asked.needs_matrix:
            epilogue, operands = (_ADDED, (dmatrix,)) if first else (_PRODUCT, ())
            multiply(logits.t(), part.t(), epilogue, operands, outs=(dmatrix,))
        if asked.needs_bias:
            sums += logits.sum(0, dtype=torch.float32)
    dbias.copy_(sums)
    return results


def _by_torch(asked: LossRequest) -> Results:
    """Compute the same in plain torch."""
    check_precision("input", asked.x)
    _, dx, dmatrix, dbias = asked.empty()
    x, matrix, dtype = asked.x.double(), asked.matrix.double(), asked.x.dtype
    logits = x @ matrix.t()
    logits = (logits if asked.bias is None else logits + asked.bias.double()).to(dtype)
    losses, lse = reference_losses(logits, asked.target, asked.weight, *asked.options)
    if asked.needs_any:
        factors = torch.ones_like(losses) if asked.factors is None else asked.factors
        dlogits = reference_gradient(factors, logits, asked.target, asked.weight, lse, *asked.options).double()
        dx = (dlogits @ matrix).to(dtype) if asked.needs_x else dx
        dmatrix = (dlogits.t() @ x).to(dtype) if asked.needs_matrix else dmatrix
        dbias = dlogits.sum(0).to(dbias.dtype) if asked.needs_bias else dbias
    return losses, dx, dmatrix, dbias


def _fake(*given: Any) -> Results:  # noqa: ANN401
    asked = LossRequest(*given)
    asked.check()
    losses, dx, dmatrix, dbias = asked.empty()
    return losses.new_empty(()), dx, dmatrix, dbias


def _reference(*given: Any) -> Results:  # noqa: ANN401
    asked = LossRequest(*given)
    asked.check()
    return asked.total(_by_torch(asked))


def _keep(ctx: Any, inputs: Sequence[Any], output: Sequence[torch.Tensor]) -> None:  # noqa: ANN401
    ctx.set_materialize_grads(False)  # of the gradients, zeros for which would take their memory
    asked = LossRequest(*inputs)
    ctx.needs, ctx.inplace = (asked.needs_x, asked.needs_matrix, asked.needs_bias), asked.inplace
    ctx.save_for_backward(*output[1:])
    ctx.mark_non_differentiable(*output[1:])


def _backward(ctx: Any, dtotal: OptionalTensor, *_: object) -> tuple[Any, ...]:  # noqa: ANN401
    if dtotal is None:
        return (None,) * len(LossRequest._fields)
    inplace = ctx.inplace and not torch.compiler.is_compiling()
    inplace = inplace and torch._C._functorch.peek_interpreter_stack() is None
    dx, dmatrix, dbias = (
        None if not needed else each.detach().mul_(dtotal) if inplace else (each * dtotal).to(each.dtype)
        for each, needed in zip(ctx.saved_tensors, ctx.needs, strict=True)
    )
    return dx, dmatrix, None, dbias, *[None] * (len(LossRequest._fields) - 4)


def _flops(*given: Any, **_: object) -> int:  # noqa: ANN401
    """Count the products: the logits, and the gradients of x and the matrix where they are asked for."""
    asked = LossRequest(*given)
    x: Any = asked.x  # of a tensor its shape
    matrix: Any = asked.matrix
    return int(2 * math.prod(x) * matrix[0] * (1 + asked.needs_x + asked.needs_matrix))


@register_both(
    f"cutepy::linear_cross_entropy({schema_of(LossRequest)}) -> (Tensor, Tensor, Tensor, Tensor)",
    reference=_reference,
    fake=_fake,
    setup_context=_keep,
    backward=_backward,
    autocast=("x", "matrix"),
    sharding=shardings.of_linear_cross_entropy,
    flops=_flops,
)
def _linear_cross_entropy(*given: Any) -> Results:  # noqa: ANN401
    """Compute sum(factors * losses), and its gradients with respect to x, the matrix and the bias."""
    asked = LossRequest(*given)
    asked.check()
    return asked.total(_chunked(asked))


def _fake_losses(*given: Any) -> torch.Tensor:  # noqa: ANN401
    asked = LossRequest(*given)
    asked.check()
    return asked.empty()[0]


def _reference_losses(*given: Any) -> torch.Tensor:  # noqa: ANN401
    asked = LossRequest(*given)
    asked.check()
    return _by_torch(asked)[0]


def _keep_inputs(ctx: Any, inputs: Sequence[Any], output: torch.Tensor) -> None:  # noqa: ANN401
    ctx.save_for_backward(*inputs[:5])
    ctx.options = inputs[5:]


def _backward_of_losses(ctx: Any, dlosses: torch.Tensor) -> tuple[Any, ...]:  # noqa: ANN401
    tensors = (each if each is None else each.detach() for each in ctx.saved_tensors)
    needs = [ctx.needs_input_grad[n] for n in (0, 1, 3)]
    found = _linear_cross_entropy(*tensors, *ctx.options, dlosses.float(), *needs, False)
    dx, dmatrix, dbias = (each if needed else None for each, needed in zip(found[1:], needs, strict=True))
    return dx, dmatrix, None, dbias, *[None] * 5


@register_both(
    "cutepy::linear_losses(Tensor x, Tensor matrix, Tensor target, Tensor? bias, Tensor? weight, int ignore_index, "
    "float label_smoothing, float z_loss, int chunk_rows) -> Tensor",
    reference=_reference_losses,
    fake=_fake_losses,
    setup_context=_keep_inputs,
    backward=_backward_of_losses,
    autocast=("x", "matrix"),
    sharding=shardings.of_linear_losses,
    flops=_flops,
)
def _linear_losses(*given: Any) -> torch.Tensor:  # noqa: ANN401
    """Compute the loss of each row."""
    asked = LossRequest(*given)
    asked.check()
    return _chunked(asked)[0]
