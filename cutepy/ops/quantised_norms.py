"""Normalisation of rows to 8-bit floats and their scales as an operation of PyTorch, without gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from cutepy.device.rules import K_BLOCK
from cutepy.epilogues.operations import LARGEST
from cutepy.host.launches import Launches, OptionalTensor, described
from cutepy.host.specs import dtype_name
from cutepy.kernels.gemm.scales import ROW, Block
from cutepy.kernels.rows.compilation import as_rows
from cutepy.kernels.rows.norm_plans import plan_norm
from cutepy.ops import shardings
from cutepy.ops.normalising import check, empty_total, normalised, of_examples, rows_of, vector_of
from cutepy.ops.quantising import ROW_BLOCK, expanded, quantise
from cutepy.ops.registration import one_by_one, register_both, requires_grad
from cutepy.runtime.execution import EXECUTION

Scale = torch.Tensor | tuple[int, int] | None
Results = tuple[torch.Tensor, torch.Tensor, torch.Tensor]

_launches: Launches[Callable[..., Results]] = Launches()


def quantised_norm(
    x: torch.Tensor,
    residual: OptionalTensor,
    weight: OptionalTensor,
    bias: OptionalTensor,
    eps: float,
    centres: bool,
    dtype: torch.dtype,
    scale: Scale,
    return_amax: bool = False,
) -> Results:
    """Normalise rows to 8-bit floats; `scale` is one element that divides all, or the shape of a block with a scale.

    Returns
    -------
    Tensor, Tensor, Tensor
        The norm; the scales as `quantise` gives them, or of a given scale the largest magnitude before the division, or
        nothing; the sum with the residual.

    Raises
    ------
    NotImplementedError
        If a tensor requires grad.
    ValueError
        If there is no such scale, or the largest magnitude is asked for without a scale of one element.
    """
    if torch.is_grad_enabled() and requires_grad((x, residual, weight, bias)):
        raise NotImplementedError(
            f"a norm of {dtype_name(dtype)} has no gradients, got a tensor that requires grad; use torch.no_grad(), or "
            "float16 or bfloat16"
        )
    if isinstance(scale, torch.Tensor):
        if scale.numel() != 1 or scale.dtype != torch.float32:
            raise ValueError(f"scale of a norm must be one float32, got {dtype_name(scale.dtype)} {tuple(scale.shape)}")
        return _quantised(x, residual, weight, bias, scale.reshape(1), eps, centres, dtype, 0, return_amax)
    if scale not in (ROW, ROW_BLOCK):
        raise ValueError(
            f"a norm of {dtype_name(dtype)} must have a scale: a tensor of one element, (1, 0) for one of each row, or "
            f"(1, {K_BLOCK}) for one of each {K_BLOCK} of a row, got {scale}"
        )
    if return_amax:
        raise ValueError(
            f"return_amax of a norm needs a scale of one element, got {scale}, whose scales are returned; give a "
            "tensor, or leave out return_amax"
        )
    return _quantised(x, residual, weight, bias, None, eps, centres, dtype, scale[1])


def _check(
    x: torch.Tensor,
    residual: OptionalTensor,
    weight: OptionalTensor,
    bias: OptionalTensor,
    scale: OptionalTensor,
    dtype: torch.dtype,
) -> None:
    check(x, residual, weight, bias, None)
    if dtype_name(dtype) not in LARGEST:
        raise TypeError(f"norms are quantised to {' or '.join(LARGEST)}, got {dtype}")
    if scale is not None and scale.device != x.device:
        raise ValueError(f"tensors of a norm must be on one device, got scale on {scale.device}, not {x.device}")


def _empty(
    x: torch.Tensor, residual: OptionalTensor, scale: OptionalTensor, dtype: torch.dtype, block: int, return_amax: bool
) -> Results:
    """Make empty results; scales have the rows' extent contiguous, as `scaled_gemm` reads them fastest."""
    y, total = x.new_empty(x.shape, dtype=dtype), empty_total(x, residual)
    if scale is not None:
        return y, x.new_empty(() if return_amax else 0, dtype=torch.float32), total
    leading, columns, rows = x.shape[:-1], x.shape[-1], math.prod(x.shape[:-1])
    blocks = max(1, -(-columns // block)) if block else 1
    scales = x.new_empty((blocks, rows), dtype=torch.float32).t()
    return y, scales.view(*leading, blocks) if len(leading) != 1 else scales, total


def _fake(
    x: torch.Tensor,
    residual: OptionalTensor,
    weight: OptionalTensor,
    bias: OptionalTensor,
    scale: OptionalTensor,
    eps: float,
    centres: bool,
    dtype: torch.dtype,
    block: int,
    return_amax: bool = False,
) -> Results:
    _check(x, residual, weight, bias, scale, dtype)
    return _empty(x, residual, scale, dtype, block, return_amax)


def _reference(
    x: torch.Tensor,
    residual: OptionalTensor,
    weight: OptionalTensor,
    bias: OptionalTensor,
    scale: OptionalTensor,
    eps: float,
    centres: bool,
    dtype: torch.dtype,
    block: int,
    return_amax: bool = False,
) -> Results:
    _check(x, residual, weight, bias, scale, dtype)
    y, total, _, _ = normalised(x, residual, weight, bias, eps, centres)
    results, scales, _ = _empty(x, residual, scale, dtype, block, return_amax)
    limit, divisor = LARGEST[dtype_name(dtype)], scale
    if divisor is None:
        scales.copy_(quantise(y, (1, block), dtype)[1].clamp(min=_SMALLEST_NORMAL))
        flat = scales.reshape(-1, scales.shape[-1])
        divisor = expanded(flat, Block(1, block), (flat.shape[0], x.shape[-1])).reshape(*x.shape[:-1], -1)
    if return_amax:
        scales.copy_(y.abs().amax() if y.numel() else y.new_zeros(()))
    return results.copy_((y / divisor).clamp(-limit, limit)), scales, total


_SMALLEST_NORMAL = 2.0**-126
"""Of float32: inverses of smaller numbers are not finite."""


def _vmap(info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:  # noqa: ANN401
    """Make the rows of all examples one tensor's: one launch. One by one where each has a vector or amax of its own."""
    if any(in_dims[n] is not None for n in (2, 3, 4)) or any(arguments[9:]):
        return one_by_one(_quantised)(info, in_dims, *arguments)  # type: ignore[no-any-return]
    x, residual = (of_examples(arguments[n], in_dims[n], info.batch_size) for n in (0, 1))
    results = _quantised(x, residual, *arguments[2:])  # type: ignore[arg-type]
    return results, (0, 0 if arguments[4] is None else None, None if residual is None else 0)


@register_both(
    "cutepy::norm_quantised",
    reference=_reference,
    fake=_fake,
    vmap=_vmap,
    sharding=shardings.of_norm_quantised,
    is_invariant=True,
)
def _quantised(
    x: torch.Tensor,
    residual: OptionalTensor,
    weight: OptionalTensor,
    bias: OptionalTensor,
    scale: OptionalTensor,
    eps: float,
    centres: bool,
    dtype: torch.dtype,
    block: int,
    return_amax: bool = False,
) -> Results:
    key = (centres, dtype, block, return_amax, EXECUTION.backend is None, *described(x, residual, weight, bias, scale))
    launch = _launches.get(key)
    if launch is None:
        _check(x, residual, weight, bias, scale, dtype)
        given = x, residual, weight, bias, scale, centres, dtype, block
        launch = _launches.keep(key, _find_launch(*given, return_amax))
    return launch(x, residual, weight, bias, scale, eps)


def _find_launch(
    x: torch.Tensor,
    residual: OptionalTensor,
    weight: OptionalTensor,
    bias: OptionalTensor,
    scale: OptionalTensor,
    centres: bool,
    dtype: torch.dtype,
    block: int,
    return_amax: bool,
) -> Callable[..., Results]:
    """Plan the launch for tensors of this description, and compile the kernel."""
    if not x.numel():

        def nothing(x: torch.Tensor, residual: OptionalTensor, *rest: Any) -> Results:  # noqa: ANN401
            y, scales, total = _empty(x, residual, scale, dtype, block, return_amax)
            return y, scales.fill_(0.0 if return_amax else 1.0), total

        return nothing

    def seen(
        x: torch.Tensor, residual: OptionalTensor, weight: OptionalTensor, bias: OptionalTensor, results: Results
    ) -> tuple[Any, ...]:
        y, _, total = results
        of_total = None if residual is None else as_rows(total)
        return as_rows(x), rows_of(residual), vector_of(weight), vector_of(bias), as_rows(y), of_total

    scaled = "tensor" if scale is not None else "block" if block else "row"
    given = seen(x, residual, weight, bias, _empty(x, residual, scale, dtype, block, return_amax))
    function = plan_norm(*given, centres=centres, scaled=scaled, has_amax=return_amax)

    def run(
        x: torch.Tensor,
        residual: OptionalTensor,
        weight: OptionalTensor,
        bias: OptionalTensor,
        scale: OptionalTensor,
        eps: float,
    ) -> Results:
        results = _empty(x, residual, scale, dtype, block, return_amax)
        given = seen(x, residual, weight, bias, results)
        scales = results[1].view(given[0].shape[0], -1) if scale is None else None
        amax = results[1].zero_().view(1) if return_amax else None
        function(*given, None, None, scale, scales, amax, eps)
        return results

    return run
