"""Plan launches of norms for tensors of rows."""

from __future__ import annotations

from collections.abc import Callable

import torch

from cutepy.device import rules
from cutepy.host.function import Function
from cutepy.host.launches import OptionalTensor, maker_of
from cutepy.host.specs import TensorSpec, dtype_name
from cutepy.kernels.gemm.gpu import Gpu, gpu_of
from cutepy.kernels.rows.compilation import (
    SCALE,
    SCALES,
    check_rows,
    compile_rows,
    elems_of,
    numbers_spec,
    row_spec,
    specs_of,
)
from cutepy.kernels.rows.tiling import (
    NORM,
    NORM_GRADIENT,
    SUM_WARPS,
    NormConfig,
    RowTiling,
    part_few_rows,
    staged_bytes,
    stages_rows,
    tile_rows,
)
from cutepy.layouts.sm90 import arch


def compile_norm(config: NormConfig, elems: int, **tensors: OptionalTensor) -> Function:
    """Compile the forward kernel for x, residual, weight, bias, y, total, in vectors of `elems` elements.

    Vectors have no more elements than the tiling's.
    """
    factors = means = scale = scales = None
    if not config.scaled:  # else without gradients
        factors, means = numbers_spec(), numbers_spec() if config.centres else None
    elif config.scaled == "tensor":
        scale = SCALE
    else:
        scales = SCALES
    amax = SCALE if config.has_amax else None
    return compile_rows("norm:Norm", config, *specs_of(elems, **tensors), factors, means, scale, scales, amax, 1.0)


def compile_norm_backward(config: NormConfig, given: tuple[bool, bool], **tensors: OptionalTensor) -> Function:
    """Compile the backward kernel for dy, dtotal, x, weight, dx; `given` tells of sums of weight and bias."""
    elems = config.tiling.elems
    *inputs, dx = specs_of(elems, **tensors)
    x = tensors["x"]
    assert x is not None
    sums = row_spec("sums", torch.float32, elems, is_whole=x.shape[1] % elems == 0, rows="groups")
    means = numbers_spec() if config.centres else None
    parts = (sums if each else None for each in given)
    return compile_rows("norm:NormBackward", config, *inputs, numbers_spec(), means, dx, *parts, 1)


def compile_sum(dtype: torch.dtype) -> Function:
    """Compile the sum over rows of fp32, rounded to a dtype."""
    x, y = TensorSpec("float32", ("rows", "columns"), align=4), TensorSpec(dtype_name(dtype), ("columns",), align=2)
    return compile_rows("sum:SumOfRows", SUM_WARPS, x, y)


def _ctas_per_sm(tiling: RowTiling) -> int:
    """Choose the CTAs of an SM that sum gradients of weights, each, or each cluster, a row of sums (as `RowFit`)."""
    threads = 512 if tiling.threads <= arch.WARP_THREADS or tiling.ctas == 2 else 1536 if tiling.ctas == 1 else 2048
    return max(1, threads // tiling.cta)


def groups_of_sums(rows: int, tiling: RowTiling, gpu: Gpu) -> int:
    """Return the CTAs, or clusters, that sum gradients of weights."""
    return min(-(-rows // tiling.rows), max(1, gpu.sm_count * _ctas_per_sm(tiling) // tiling.ctas))


def plan_norm(
    x: torch.Tensor,
    residual: OptionalTensor,
    weight: OptionalTensor,
    bias: OptionalTensor,
    y: torch.Tensor,
    total: OptionalTensor,
    *,
    centres: bool,
    scaled: str = "",
    has_amax: bool = False,
) -> Callable[..., None]:
    """Plan and compile the normalisation of rows of this description: matrices (rows, columns), vectors (columns,).

    Returns
    -------
    callable
        Launches: (x, residual, weight, bias, y, total, factors, means, scale, scales, amax, eps).
    """
    rows, columns = x.shape
    check_rows(rows)
    elems = elems_of(x, residual, weight, bias, y, total)
    sizes = [each.element_size() for each in (x, residual) if each is not None]
    staged = staged_bytes(columns, elems, *sizes)
    least, width = 1, elems
    if scaled:  # 8-bit floats are converted by fours, and a block has at most the lanes of a warp
        width = max(elems, 4)
        least = rules.K_BLOCK // width if scaled == "block" else 1
    tiling = part_few_rows(tile_rows(columns, width, NORM, staged, least), rows)
    named = {"x": x, "residual": residual, "weight": weight, "bias": bias, "y": y, "total": total}
    config = NormConfig(tiling, centres, scaled, stages_rows(tiling, rows, staged), has_amax)
    return compile_norm(config, elems, **named)


def plan_norm_backward(
    dy: torch.Tensor,
    dtotal: OptionalTensor,
    x: torch.Tensor,
    weight: OptionalTensor,
    dx: torch.Tensor,
    dweight: OptionalTensor,
    dbias: OptionalTensor,
    *,
    centres: bool,
) -> Callable[..., None]:
    """Plan and compile the gradients of a normalisation of rows of this description.

    Returns
    -------
    callable
        Launches: (dy, dtotal, x, weight, factors, means, dx, dweight, dbias).
    """
    rows, columns = x.shape
    check_rows(rows)
    sums = dweight is not None, dbias is not None
    elems = elems_of(dy, dtotal, x, weight, dx)
    staged = staged_bytes(columns, elems, x.element_size(), dy.element_size(), stages=2)
    tiling = tile_rows(columns, elems, NORM_GRADIENT, staged)
    groups = groups_of_sums(rows, tiling, gpu_of(x.device)) if any(sums) else -(-rows // tiling.rows)
    named = {"dy": dy, "dtotal": dtotal, "x": x, "weight": weight, "dx": dx}
    function = compile_norm_backward(NormConfig(tiling, centres, staged=staged > 0), sums, **named)
    adders = [None if each is None else compile_sum(each.dtype) for each in (dweight, dbias)]
    make_part = maker_of(x, (groups, columns), torch.float32)

    def launch(
        dy: torch.Tensor,
        dtotal: OptionalTensor,
        x: torch.Tensor,
        weight: OptionalTensor,
        factors: torch.Tensor,
        means: OptionalTensor,
        dx: torch.Tensor,
        *results: OptionalTensor,
    ) -> None:
        parts = [None if add is None else make_part() for add in adders]
        function(dy, dtotal, x, weight, factors, means, dx, *parts, groups)
        for add, part, result in zip(adders, parts, results, strict=True):
            if add is not None:
                add(part, result)

    return launch
