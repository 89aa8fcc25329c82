"""Softmax and its logarithm as operations of PyTorch: `softmax` and `log_softmax`, and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from cutepy.host.launches import Launches, described
from cutepy.kernels.rows.compilation import as_rows
from cutepy.kernels.rows.plans import plan_softmax, plan_softmax_backward
from cutepy.ops import shardings
from cutepy.ops.checking import as_tensor
from cutepy.ops.registration import register_both
from cutepy.ops.row_tensors import check_row_tensors, widened_by_autocast
from cutepy.runtime.execution import EXECUTION

_launches: Launches[Callable[..., torch.Tensor]] = Launches()


def softmax(input: torch.Tensor, dim: int = -1, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Compute exp(input) / sum(exp(input)) along a dimension: `torch.nn.functional.softmax`.

    Parameters
    ----------
    input : Tensor
        float16, bfloat16 or float32, of any shape and strides; rows along the dimension that are not contiguous are
        copied.
    dim : int
        Of at most 262,144 elements.
    dtype : dtype, optional
        Of the result: that of the input if not given, but float32 within `torch.autocast("cuda")`, as torch's.

    Returns
    -------
    Tensor, as input
        Differentiable. All is computed in fp32, and rounded once. Rows with NaN or inf, or of -inf alone, are NaN.

    Raises
    ------
    TypeError, ValueError
        If the dtype or extent is another.

    Examples
    --------
    >>> import torch
    >>> softmax(torch.tensor([0.0, 0.0, -torch.inf]))
    tensor([0.5000, 0.5000, 0.0000])
    """
    return _along(input, dim, dtype, logarithm=False)


def log_softmax(input: torch.Tensor, dim: int = -1, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Compute input - log(sum(exp(input))) along a dimension: `torch.nn.functional.log_softmax`.

    Parameters, results and errors are those of `softmax`.

    Examples
    --------
    >>> import torch
    >>> log_softmax(torch.tensor([1e4, 1e4]))
    tensor([-0.6931, -0.6931])
    """
    return _along(input, dim, dtype, logarithm=True)


def _along(x: torch.Tensor, dim: int, dtype: torch.dtype | None, *, logarithm: bool) -> torch.Tensor:
    if as_tensor("input", x).dim() == 0:
        return _along(x[None], dim, dtype, logarithm=logarithm)[0]
    if dtype is None and widened_by_autocast(x, "cuda"):
        dtype = torch.float32
    if dim in (-1, x.dim() - 1):
        return _softmax(x, logarithm, dtype)
    return _softmax(x.movedim(dim, -1), logarithm, dtype).movedim(-1, dim)


def _empty(x: torch.Tensor, logarithm: bool, dtype: torch.dtype | None) -> torch.Tensor:
    check_row_tensors("log_softmax" if logarithm else "softmax", dtype, input=x)
    return x.new_empty(x.shape, dtype=dtype or x.dtype)


def _reference(x: torch.Tensor, logarithm: bool, dtype: torch.dtype | None) -> torch.Tensor:
    y = _empty(x, logarithm, dtype)
    function = torch.log_softmax if logarithm else torch.softmax
    return function(x.float(), -1).to(y.dtype).contiguous()


def _keep(ctx: Any, inputs: Sequence[Any], output: torch.Tensor) -> None:  # noqa: ANN401
    x, ctx.logarithm, _ = inputs
    ctx.dtype = x.dtype
    ctx.save_for_backward(output)


def _backward(ctx: Any, dy: torch.Tensor) -> tuple[Any, ...]:  # noqa: ANN401
    (y,) = ctx.saved_tensors
    return _softmax_backward(dy, y, ctx.logarithm, ctx.dtype), None, None


@register_both(
    "cutepy::softmax",
    reference=_reference,
    fake=_empty,
    setup_context=_keep,
    backward=_backward,
    sharding=shardings.of_softmax,
    is_invariant=True,
)
def _softmax(x: torch.Tensor, logarithm: bool, dtype: torch.dtype | None) -> torch.Tensor:
    key = ("forward", logarithm, dtype, EXECUTION.backend is None, *described(x))
    launch = _launches.get(key)
    if launch is None:
        launch = _launches.keep(key, _find_launch(x, logarithm, dtype))
    return launch(x)


def _find_launch(x: torch.Tensor, logarithm: bool, dtype: torch.dtype | None) -> Callable[..., torch.Tensor]:
    y = _empty(x, logarithm, dtype)
    kind = y.dtype
    if not x.numel():
        return lambda x: x.new_empty(x.shape, dtype=kind)
    function = plan_softmax(as_rows(x), as_rows(y), logarithm=logarithm)

    def run(x: torch.Tensor) -> torch.Tensor:
        y = x.new_empty(x.shape, dtype=kind)
        function(as_rows(x), as_rows(y))
        return y

    return run


def _empty_gradient(dy: torch.Tensor, y: torch.Tensor, logarithm: bool, dtype: torch.dtype) -> torch.Tensor:
    return y.new_empty(y.shape, dtype=dtype)


def _reference_backward(dy: torch.Tensor, y: torch.Tensor, logarithm: bool, dtype: torch.dtype) -> torch.Tensor:
    wide, grad = y.float(), dy.float()
    if logarithm:
        dx = grad - wide.exp() * grad.sum(-1, keepdim=True)
    else:
        dx = wide * (grad - (wide * grad).sum(-1, keepdim=True))
    return dx.to(dtype).contiguous()


@register_both(
    "cutepy::softmax_backward",
    reference=_reference_backward,
    fake=_empty_gradient,
    sharding=shardings.of_softmax_backward,
    is_invariant=True,
)
def _softmax_backward(dy: torch.Tensor, y: torch.Tensor, logarithm: bool, dtype: torch.dtype) -> torch.Tensor:
    dx = _empty_gradient(dy, y, logarithm, dtype)
    if dx.numel():
        key = ("backward", logarithm, dtype, EXECUTION.backend is None, *described(dy, y))
        rows = as_rows(dy), as_rows(y), as_rows(dx)
        launch = _launches.get(key)
        if launch is None:
            launch = _launches.keep(key, plan_softmax_backward(*rows, logarithm=logarithm))  # type: ignore[arg-type]
        launch(*rows)
    return dx
