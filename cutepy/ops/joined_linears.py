"""`joined_linear`: products of one input with several weights, one launch where the weights adjoin in memory.

Tensors adjoin if each begins where the one before it ends, in the same storage: then one view has all of them. Each
launch checks that, below autograd and compilers, so that weights may be moved at any time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from cutepy.epilogues.standard import standard
from cutepy.kernels.gemm.routes import view
from cutepy.ops import shardings
from cutepy.ops.checking import as_tensor
from cutepy.ops.dense_gemm import gemm
from cutepy.ops.multiply import multiply
from cutepy.ops.operands import as_matrix
from cutepy.ops.registration import register_both

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
Tensors = Sequence[torch.Tensor]


def joined_linear(x: torch.Tensor, weights: Tensors, biases: Tensors = ()) -> torch.Tensor:
    """Multiply a tensor by several weights, side by side: (..., K) -> (..., sum of N).

    It is `torch.cat([linear(x, weight, bias) for ...], -1)`. Weights that adjoin, such as the parts that
    `torch.split` gives of one tensor (sum of N, K), are one product, and so are the gradients: of x, whose summands are
    not rounded then, and of the weights, which are parts of one tensor. Otherwise each weight is a launch, and nothing
    is joined by a copy.

    Parameters
    ----------
    x : Tensor (..., K)
        float16, bfloat16, or float32 where `cutepy.ops.gemm` takes it.
    weights : sequence of Tensor (N, K), of x's dtype
        Each of its own N.
    biases : sequence of Tensor (N,), of x's dtype
        As many, or none. They must adjoin too, if there are.

    Returns
    -------
    Tensor (..., sum of N)
        Contiguous. Differentiable.

    Raises
    ------
    TypeError, ValueError
        If dtypes, shapes or counts are others.

    Examples
    --------
    >>> import torch
    >>> q, k, v = torch.ones(10, 16).bfloat16().split((6, 2, 2))
    >>> joined_linear(torch.ones(3, 16).bfloat16(), (q, k, v)).shape
    torch.Size([3, 10])
    """
    matrices, vectors = (
        [as_tensor(name, one) for one in of] for name, of in (("weights", weights), ("biases", biases))
    )
    result: torch.Tensor = _joined_linear(as_tensor("x", x), matrices, vectors)
    return result


def adjoining(tensors: Tensors) -> torch.Tensor | None:
    """Give the tensor that tensors (N, ...) make together in memory, or None if they do not adjoin.

    Its gradients are not recorded.

    Examples
    --------
    >>> import torch
    >>> whole = torch.arange(6).view(3, 2)
    >>> adjoining((whole[:1], whole[1:])), adjoining((whole[1:], whole[:1]))
    (tensor([[0, 1],
            [2, 3],
            [4, 5]]), None)
    """
    first, *others = tensors
    dtype, shape = first.dtype, first.shape
    rows, rest = shape[0], shape[1:]
    if not first.is_contiguous() or first.is_neg():
        return None
    place = first.storage_offset() + first.numel()
    for each in others:
        of_each = each.shape
        if (
            each.storage_offset() != place
            or of_each[1:] != rest
            or each.dtype != dtype
            or not each.is_contiguous()
            or each.is_neg()
            or not torch._C._is_alias_of(first, each)  # type: ignore[attr-defined]
        ):
            return None
        place += each.numel()
        rows += of_each[0]
    strides = (rest[0], 1) if len(rest) == 1 else tuple(math.prod(rest[n:]) for n in range(len(rest) + 1))
    return view(first, (rows, *rest), strides)


def _product(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    c: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Multiply past autograd."""
    finish = standard(c is not None, bias is not None, None)
    given = [each for each in (c, bias) if each is not None]
    (result,) = multiply(a, b, finish.text, given, None, "row", (out,), None, True)
    return result


def _check(x: torch.Tensor, weights: Tensors, biases: Tensors) -> list[int]:
    """Check the operands; return the N of each weight."""
    if not weights or (biases and len(biases) != len(weights)):
        raise ValueError(
            f"joined_linear needs weights, and as many biases or none, got {len(weights)} weights and {len(biases)} "
            "biases"
        )
    if x.dtype not in DTYPES or not x.dim():
        raise TypeError(f"x must be float16, bfloat16 or float32 of shape (..., K), got {x.dtype} {tuple(x.shape)}")
    for n, weight in enumerate(weights):
        bias = biases[n] if biases else None
        if weight.dim() != 2 or weight.shape[1] != x.shape[-1] or (bias is not None and bias.shape != weight.shape[:1]):
            raise ValueError(
                f"weight {n} must be (N, {x.shape[-1]}), as x has columns, and its bias (N,), got {tuple(weight.shape)}"
                f"{'' if bias is None else f' and {tuple(bias.shape)}'}"
            )
        if any(each.dtype != x.dtype or each.device != x.device for each in (weight, bias) if each is not None):
            raise TypeError(
                f"weight {n} and its bias must be {x.dtype} on {x.device}, as x, got {weight.dtype} on {weight.device}"
                f"{'' if bias is None else f' and {bias.dtype} on {bias.device}'}"
            )
    return [weight.shape[0] for weight in weights]


def _empty(x: torch.Tensor, weights: Tensors, biases: Tensors) -> torch.Tensor:
    return x.new_empty((*x.shape[:-1], sum(_check(x, weights, biases))))


def _compute(x: torch.Tensor, weights: Tensors, biases: Tensors) -> torch.Tensor:
    sizes = _check(x, weights, biases)
    whole, bias = adjoining(weights), adjoining(biases) if biases else None
    if whole is not None and (bias is not None or not biases):
        return _product(x, whole, bias=bias)
    y = x.new_empty((*x.shape[:-1], sum(sizes)))
    for n, (weight, part) in enumerate(zip(weights, y.split(sizes, -1), strict=True)):
        _product(x, weight, bias=biases[n] if biases else None, out=part)
    return y


def _keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:  # noqa: ANN401
    x, weights, biases = inputs
    of_x, of_weights, _ = ctx.needs_input_grad
    ctx.sizes, ctx.count, ctx.dtype = [each.shape[0] for each in weights], len(biases), x.dtype
    ctx.save_for_backward(x if any(of_weights) else None, *(weights if of_x else ()))


def _backward(ctx: Any, dy: torch.Tensor) -> tuple[Any, ...]:  # noqa: ANN401
    x, *weights = ctx.saved_tensors
    of_x, of_weights, of_biases = ctx.needs_input_grad
    dx = input_gradient(dy, weights) if of_x else None
    dweights = weight_gradients(dy, x, of_weights, ctx.sizes)
    return dx, dweights, bias_gradients(dy, of_biases, ctx.sizes, ctx.dtype) if ctx.count else None


def bias_gradients(dy: torch.Tensor, needed: Sequence[bool], sizes: Sequence[int], dtype: torch.dtype) -> list[Any]:
    """Return the gradient of each bias, the sum of the rows of dy, or None where it is not needed."""
    if not any(needed):
        return [None] * len(needed)
    sums = as_matrix(dy).sum(0, dtype=torch.float32).to(dtype).split([*sizes])
    return [part if wanted else None for part, wanted in zip(sums, needed, strict=True)]


def weight_gradients(dy: torch.Tensor, x: torch.Tensor, needed: Sequence[bool], sizes: Sequence[int]) -> list[Any]:
    """Return the gradient of each weight, dy.T @ x, or None where it is not needed."""
    if not any(needed):
        return [None] * len(sizes)
    rows, by_row = as_matrix(dy).mT, as_matrix(x).mT
    if all(needed):
        return [*gemm(rows, by_row).split([*sizes])]
    parts = zip(needed, rows.split([*sizes]), strict=True)
    return [gemm(part, by_row) if wanted else None for wanted, part in parts]


def _parts(dy: torch.Tensor, weights: Tensors) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Pair weights with their columns."""
    return zip(dy.split([each.shape[0] for each in weights], -1), weights, strict=True)


def _empty_gradient(dy: torch.Tensor, weights: Tensors) -> torch.Tensor:
    return dy.new_empty((*dy.shape[:-1], weights[0].shape[1]))


def _compute_gradient(dy: torch.Tensor, weights: Tensors) -> torch.Tensor:
    whole = adjoining(weights)
    if whole is not None:
        return _product(dy, whole.mT)
    (columns, weight), *others = _parts(dy, weights)
    dx = _product(columns, weight.mT)
    for columns, weight in others:
        _product(columns, weight.mT, c=dx, out=dx)
    return dx


def _keep_gradient(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:  # noqa: ANN401
    dy, weights = inputs
    ctx.sizes = [each.shape[0] for each in weights]
    ctx.save_for_backward(dy, *weights)


def _backward_gradient(ctx: Any, g: torch.Tensor) -> tuple[Any, ...]:  # noqa: ANN401
    dy, *weights = ctx.saved_tensors
    of_dy, of_weights = ctx.needs_input_grad
    ddy = _joined_linear(g, weights, []) if of_dy else None
    return ddy, weight_gradients(dy, g, of_weights, ctx.sizes)


def _of_products(x: Sequence[int], weights: Sequence[Sequence[int]], *_: object, **__: object) -> int:
    """Count 2 M N K of each weight (N, K)."""
    return 2 * math.prod(x) * sum(weight[0] for weight in weights)


def _of_gradients(dy: Sequence[int], weights: Sequence[Sequence[int]], *_: object, **__: object) -> int:
    return 2 * math.prod(dy) * weights[0][1]


_joined_linear = register_both(
    "cutepy::joined_linear(Tensor x, Tensor[] weights, Tensor[] biases) -> Tensor",
    reference=_compute,
    fake=_empty,
    setup_context=_keep,
    backward=_backward,
    autocast=("x", "weights", "biases"),
    sharding=shardings.of_joined_linear,
    flops=_of_products,
)(_compute)

input_gradient = register_both(
    "cutepy::joined_linear_gradient(Tensor dy, Tensor[] weights) -> Tensor",
    reference=_compute_gradient,
    fake=_empty_gradient,
    setup_context=_keep_gradient,
    backward=_backward_gradient,
    sharding=shardings.of_joined_linear_gradient,
    flops=_of_gradients,
)(_compute_gradient)
