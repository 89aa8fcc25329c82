"""The k largest elements of rows as an operation of PyTorch: `topk`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from cutepy.host.launches import Launches, described
from cutepy.kernels.rows.compilation import as_rows
from cutepy.kernels.rows.plans import plan_topk
from cutepy.kernels.rows.tiling import MOST_K
from cutepy.ops import shardings
from cutepy.ops.checking import as_tensor
from cutepy.ops.registration import register_both
from cutepy.ops.row_tensors import check_row_tensors
from cutepy.runtime.execution import EXECUTION

_launches: Launches[Callable[..., None]] = Launches()


class TopK(NamedTuple):
    """The elements that `topk` selects, and where they were.

    Attributes
    ----------
    values : Tensor
    indices : Tensor, int64
    """

    values: torch.Tensor
    indices: torch.Tensor


def topk(input: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> TopK:
    """Select the k largest elements along a dimension, the largest first: `torch.topk`.

    Parameters
    ----------
    input : Tensor
        float16, bfloat16 or float32, of any shape and strides; rows along the dimension that are not contiguous are
        copied.
    k : int
        From 0 to 1,024, and to the extent of the dimension.
    dim : int
        Of at most 262,144 elements.
    largest : bool
        False for the smallest ones.
    sorted : bool
        Results are sorted in any case.

    Returns
    -------
    TopK
        Values, differentiable, and indices. NaN is larger than all numbers. Of equal elements the first come first, in
        every run.

    Raises
    ------
    TypeError, ValueError
        If the dtype, an extent or k is another.

    Examples
    --------
    >>> import torch
    >>> topk(torch.tensor([1.0, 3.0, 2.0, 3.0]), 3).indices
    tensor([1, 3, 2])
    """
    if as_tensor("input", input).dim() == 0:
        found = topk(input[None], k, 0, largest)
        return TopK(found.values.squeeze(0), found.indices.squeeze(0))
    if dim in (-1, input.dim() - 1):
        return TopK(*_topk(input, k, largest))
    values, indices = _topk(input.movedim(dim, -1), k, largest)
    return TopK(values.movedim(-1, dim), indices.movedim(-1, dim))


def _empty(x: torch.Tensor, k: int, largest: bool) -> tuple[torch.Tensor, torch.Tensor]:
    check_row_tensors("topk", input=x)
    if not 0 <= k <= min(MOST_K, x.shape[-1]):
        raise ValueError(f"k must be from 0 to {min(MOST_K, x.shape[-1])}, got {k}")
    shape = *x.shape[:-1], k
    return x.new_empty(shape), x.new_empty(shape, dtype=torch.int64)


def _reference(x: torch.Tensor, k: int, largest: bool) -> tuple[torch.Tensor, torch.Tensor]:
    _empty(x, k, largest)
    found = torch.sort(x, dim=-1, descending=largest, stable=True)
    return found.values[..., :k].contiguous(), found.indices[..., :k].contiguous()


def _keep(ctx: Any, inputs: Sequence[Any], output: Sequence[torch.Tensor]) -> None:  # noqa: ANN401
    ctx.columns = inputs[0].shape[-1]
    ctx.save_for_backward(output[1])
    ctx.mark_non_differentiable(output[1])


def _backward(ctx: Any, dvalues: torch.Tensor, _: object) -> tuple[Any, ...]:  # noqa: ANN401
    (indices,) = ctx.saved_tensors
    zeros = dvalues.new_zeros((*dvalues.shape[:-1], ctx.columns))
    return zeros.scatter(-1, indices, dvalues), None, None


def _vmap(info: Any, in_dims: tuple[Any, ...], x: torch.Tensor, *rest: Any) -> tuple[Any, Any]:  # noqa: ANN401
    """Make the rows of all examples one tensor's: one launch."""
    return _topk(x.movedim(in_dims[0], 0), *rest), (0, 0)


@register_both(
    "cutepy::topk",
    reference=_reference,
    fake=_empty,
    setup_context=_keep,
    backward=_backward,
    vmap=_vmap,
    sharding=shardings.of_topk,
    is_invariant=True,
)
def _topk(x: torch.Tensor, k: int, largest: bool) -> tuple[torch.Tensor, torch.Tensor]:
    y, indices = _empty(x, k, largest)
    if y.numel():
        given = as_rows(x), as_rows(y), as_rows(indices)
        key = (largest, EXECUTION.backend is None, *described(*given))
        launch = _launches.get(key)
        if launch is None:
            launch = _launches.keep(key, plan_topk(*given, largest=largest))
        launch(*given)
    return y, indices
