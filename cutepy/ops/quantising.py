"""8-bit numbers with scales: `quantise` makes them, `dequantise` gives what they stand for.

The shape of a scale tells the block of the matrix that one of its numbers covers: the whole matrix, a row, 128 elements
of a row, or 128 x 128 elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import eq
from typing import Any

import torch

from cutepy.device.rules import K_BLOCK
from cutepy.epilogues.reference import same_shape, surely_same_shape
from cutepy.epilogues.symbols import are_known, by_hint, surely
from cutepy.host.launches import Launches, described
from cutepy.kernels.gemm.operands import dtype_name
from cutepy.kernels.gemm.scales import ROW, TENSOR, Block
from cutepy.kernels.rows.compilation import as_rows
from cutepy.kernels.rows.config import LIMITS
from cutepy.kernels.rows.plans import plan_quantise
from cutepy.kernels.rows.tiling import MOST_COLUMNS
from cutepy.ops.checking import as_tensor
from cutepy.ops.distributed import Sharding, compute_here, holds_distributed, removable
from cutepy.ops.registration import one_by_one, register_both
from cutepy.ops.row_tensors import ROW_DTYPES
from cutepy.ops.shardings import of_dequantise, of_quantise
from cutepy.runtime.execution import EXECUTION

KERNEL_DTYPES = (torch.float8_e4m3fn, torch.int8)
ROW_BLOCK, SQUARE = Block(1, K_BLOCK), Block(K_BLOCK, K_BLOCK)
"""One scale for each 128 of a row, and for each 128 x 128."""

_launches: Launches[Callable[..., None]] = Launches()


def quantise(
    x: torch.Tensor, block: tuple[int, int] = ROW_BLOCK, dtype: torch.dtype = torch.float8_e4m3fn
) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise to 8 bits: (..., K) -> (x / scale, scale), the largest of each block at the dtype's largest.

    A kernel quantises float16, bfloat16 and float32 to float8_e4m3fn and int8, but for blocks of 128 x 128; plain torch
    computes the same of all else, and where a gradient is asked for.

    For every finite x of at most 32 bits, `dequantise` gives x within 2**-4 |x| + 2**-10 scale for float8_e4m3fn, and
    within 2**-3 |x| + 2**-17 scale for float8_e5m2: half of the last bit of a number, or of the smallest one; of int8
    within half a scale. Scales of denormal floats are rounded up, never to zero. Inf and NaN have no part in their
    block's scale, so that the block's other elements keep their values: NaN stays NaN, and inf stays inf in
    float8_e5m2 and becomes NaN in float8_e4m3fn, which has no inf; int8 has 0 for NaN, and its largest for inf. A
    float64 beyond the range of float32 counts as inf.

    Parameters
    ----------
    x : Tensor, (..., K), floats
        Leading dimensions are rows.
    block : (int, int)
        Rows and columns that share a scale; 0 for all: (0, 0), (1, 0), (1, 128) or (128, 128).
    dtype : float8_e4m3fn, float8_e5m2 or int8
        int8 is from -127 to 127.

    Returns
    -------
    Tensor, (..., K), dtype
    Tensor, (), (..., 1), (..., ceil(K / 128)) or (ceil(rows / 128), ceil(K / 128)), float32
        Of (1, 128) with the rows' extent contiguous, as `torch.nn.functional.scaled_mm` wants it. Positive and finite;
        1 for a block without a finite number other than zero.

    Raises
    ------
    ValueError, TypeError
        If there is no such block or dtype.

    Examples
    --------
    >>> import torch
    >>> q, scale = quantise(torch.tensor([[1.0, -2.0], [0.0, 0.0]]))
    >>> q.float(), (scale * 448).tolist()
    (tensor([[ 224., -448.],
            [   0.,    0.]]), [[2.0], [448.0]])
    """
    as_tensor("x", x)
    if block not in (TENSOR, ROW, ROW_BLOCK, SQUARE) or not all(type(extent) is int for extent in block):
        raise ValueError(f"block must be (0, 0), (1, 0), (1, {K_BLOCK}) or ({K_BLOCK}, {K_BLOCK}), got {block}")
    if dtype_name(dtype) not in LIMITS or not x.is_floating_point() or x.dim() < 1:
        raise TypeError(
            f"a tensor (..., K) of floats is quantised to {' or '.join(LIMITS)}, got shape {tuple(x.shape)} of "
            f"{dtype_name(x.dtype)} and {dtype_name(dtype)}"
        )
    if holds_distributed((x,)):
        return compute_here(quantise, _sharding_of_quantise, (x, tuple(block), dtype))  # type: ignore[no-any-return]
    has_gradient = torch.is_grad_enabled() and x.requires_grad
    if block == SQUARE or dtype not in KERNEL_DTYPES or x.dtype not in ROW_DTYPES or has_gradient:
        return by_torch(x, block, dtype)
    return by_torch(x, block, dtype) if x.shape[-1] > MOST_COLUMNS else _quantised(x, *block, dtype)


def by_torch(x: torch.Tensor, block: tuple[int, int], dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise in plain torch."""
    block, limit = Block(*block), LIMITS[dtype_name(dtype)]
    flat = x.float().reshape(_count(x.shape[:-1]), x.shape[-1])
    m, k = flat.shape
    rows, columns = block.rows or max(m, 1), block.k or max(k, 1)
    down, along = max(1, -(-m // rows)), max(1, -(-k // columns))
    if block == SQUARE and not by_hint(m > rows):  # a traced program is for one row of blocks, or for more: as torch's
        down = 1
    magnitudes = flat.abs().nan_to_num(nan=0.0, posinf=0.0)
    padded = torch.nn.functional.pad(magnitudes, (0, along * columns - k, 0, down * rows - m))
    largest = padded.view(down, rows, along, columns).amax((1, 3))
    # By a number, torch's CUDA kernel multiplies with the reciprocal, which may round to another scale.
    scale = torch.where(largest == 0, 1.0, _rounded_up(largest / largest.new_full((), limit)))
    if block == TENSOR:
        scale = scale.reshape(())
    elif block == ROW_BLOCK:
        scale = scale.t().contiguous().t()
    within = (flat / expanded(scale, block, flat.shape)).clamp(-limit, limit)
    if dtype == torch.int8:
        within = within.nan_to_num(nan=0.0).round()
    else:
        within = torch.where(flat.isinf(), flat if dtype == torch.float8_e5m2 else math.nan, within)
    quantised = within.to(dtype).view(x.shape)
    if block.rows != 1:
        return quantised, scale
    return quantised, scale[:m].unflatten(0, x.shape[:-1]) if x.dim() > 1 else scale[0]


def _sharding_of_quantise(x: torch.Tensor, block: tuple[int, int], dtype: torch.dtype) -> Sharding:
    return of_quantise(x, block, by_torch(x, block, dtype)[1])


def _sharding_of_quantised(x: torch.Tensor, rows: int, columns: int, dtype: torch.dtype) -> Sharding:
    return _sharding_of_quantise(x, (rows, columns), dtype)


def _empty(x: torch.Tensor, rows: int, columns: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Make empty results; scales of blocks have the rows' extent contiguous."""
    y, leading = x.new_empty(x.shape, dtype=dtype), x.shape[:-1]
    if not rows:
        return y, x.new_empty((), dtype=torch.float32)
    if not columns:
        return y, x.new_empty((*leading, 1), dtype=torch.float32)
    blocks = max(1, -(-x.shape[-1] // columns))
    scales = x.new_empty((blocks, _count(leading)), dtype=torch.float32).t()
    return y, scales.view(*leading, blocks) if len(leading) != 1 else scales


def _reference(x: torch.Tensor, rows: int, columns: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    return by_torch(x, (rows, columns), dtype)


def _vmap(info: Any, in_dims: tuple[Any, ...], x: torch.Tensor, rows: int, *rest: Any) -> tuple[Any, Any]:  # noqa: ANN401
    """Make the rows of all examples one tensor's; one by one where each example has one scale."""
    if not rows:
        return one_by_one(_quantised)(info, in_dims, x, rows, *rest)  # type: ignore[no-any-return]
    return _quantised(x.movedim(in_dims[0], 0), rows, *rest), (0, 0)


@register_both(
    "cutepy::quantise",
    reference=_reference,
    fake=_empty,
    vmap=_vmap,
    sharding=_sharding_of_quantised,
    is_invariant=True,
)
def _quantised(x: torch.Tensor, rows: int, columns: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    if not x.numel():
        return by_torch(x, (rows, columns), dtype)
    y, scales = _empty(x, rows, columns, dtype)
    scaled = "block" if columns else "row" if rows else "tensor"
    given = as_rows(x), as_rows(y), scales.view(-1, scales.shape[-1]) if rows else scales.view(1)
    key = (scaled, EXECUTION.backend is None, *described(*given))
    launch = _launches.get(key)
    if launch is None:
        launch = _launches.keep(key, plan_quantise(given[0], given[1], scaled=scaled))
    launch(*given)
    return y, scales


def _rounded_up(scale: torch.Tensor) -> torch.Tensor:
    """Round positive scales up where float32 is denormal, and none to zero; normal scales stay.

    A denormal scale that was rounded to nearest would put the block's largest value beyond the format's largest, by up
    to all of it. One more step of a denormal costs nothing, since the quantised values are floats themselves.
    """
    scale = scale + _DENORMAL_STEP
    # Where denormals are flushed (torch.set_flush_denormal), the step is zero, and the smallest normal does.
    return torch.where(scale == 0, _SMALLEST_NORMAL, scale)


_DENORMAL_STEP, _SMALLEST_NORMAL = 2.0**-149, 2.0**-126
"""Of float32."""


def dequantise(x: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Multiply quantised values by their scales: (..., K) -> (..., K).

    Parameters
    ----------
    x : Tensor, (..., K)
        Leading dimensions are rows.
    scale : Tensor
        As `scaled_gemm` takes it, and `quantise` gives it.
    dtype : torch.dtype
        Of the result, which is computed in float32, or in float64 where this is float64, and rounded once.

    Raises
    ------
    ValueError
        If the scale has no shape of those that there are.

    Examples
    --------
    >>> import torch
    >>> x = torch.randn(256, 300)
    >>> error = dequantise(*quantise(x)) - x
    >>> bool((error.abs() <= 2**-4 * x.abs() + 2**-10).all())
    True
    """
    for name, given in (("x", x), ("scale", scale)):
        as_tensor(name, given)
    if holds_distributed((x, scale)):
        return compute_here(dequantise, _sharding_of_dequantise, (x, scale, dtype))  # type: ignore[no-any-return]
    scale, block = read_scale("scale", scale, x.shape)
    wide = torch.promote_types(dtype, torch.float32)
    flat = x.reshape(_count(x.shape[:-1]), x.shape[-1]).to(wide)
    return (flat * expanded(scale.to(wide), block, flat.shape)).to(dtype).view(x.shape)


def _sharding_of_dequantise(x: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> Sharding:
    return of_dequantise(x, scale, read_scale("scale", scale, x.shape)[1])


def expanded(scale: torch.Tensor, block: Block, shape: torch.Size | tuple[int, ...]) -> torch.Tensor:
    """Give each element of a matrix, or of a batch of them with blocks of scales, its own, or what broadcasts to it."""
    if block == ROW:
        return scale.reshape(-1, 1)[: shape[0]]
    for dim, elements in ((-2, block.rows), (-1, block.k)):
        if elements:
            blocks = torch.arange(shape[dim], device=scale.device) // elements
            scale = scale.index_select(dim, blocks)
    return scale


def read_scale(name: str, scale: torch.Tensor, shape: torch.Size) -> tuple[torch.Tensor, Block]:
    """Return the block of a tensor (rows..., K) that one number of a scale covers, by the shape of the scale.

    The scale is returned in a shape of `Scales`: (), (rows,), or blocks, with all dimensions of rows joined.

    Raises
    ------
    ValueError
        If the scale has none of these shapes.
    """
    if not scale.dim():
        return scale, TENSOR
    scale = removable(scale)
    rows, k, known = _count(shape[:-1]), shape[-1], are_known(*scale.shape, *shape)
    if len(shape) != 2 and scale.dim() == len(shape) and (known or not surely(scale.numel() == 1)):
        same = eq if known else same_shape
        if same(scale.shape[:-1], shape[:-1]):
            scale = scale.reshape(rows, scale.shape[-1])
    block = scale_block(name, scale, (rows, k), known=known)
    return (scale if block.k else scale.reshape((rows,) if block.rows else ())), block


def _count(extents: Sequence[int]) -> int:
    """Count the rows of leading dimensions; `torch.Size.numel` would make numbers of symbols."""
    return math.prod(extents)


def read_group_scale(
    name: str, scale: torch.Tensor, shape: torch.Size, groups: int, along_k: bool
) -> tuple[torch.Tensor, Block]:
    """Return the block that one number of a scale covers, in a tensor of groups of rows, of K, or of matrices.

    Gives it as `Scales` has it, or with the groups first.

    Raises
    ------
    ValueError
        If it is none of the shapes.
    """
    scale = removable(scale)
    (rows, k), got = shape[-2:], tuple(scale.shape)
    if scale.numel() == 1:
        return scale.reshape(()), TENSOR
    if scale.dim() == 2 and len(shape) == 3:
        scale = scale.unsqueeze(-1)
    found = tuple(scale.shape)
    if scale.dim() == 3 and (len(shape) == 3 or along_k):
        same = eq if are_known(groups, rows, *found) else same_shape
        if same(found, (groups, 1, 1)) or same(found, (groups, rows, 1)):
            return scale.reshape(groups, found[1]).expand(groups, rows), ROW
        if len(shape) == 3 and found[0] == groups:
            return scale, scale_block(name, scale.new_empty(found[1:]), (rows, k))
    elif scale.dim() < 3 and len(shape) == 2:
        try:
            block = scale_block(name, scale, (rows, k))
        except ValueError as error:
            none = "" if along_k else f"; rows that are in groups have no blocks of {K_BLOCK} x {K_BLOCK}"
            raise ValueError(f"{error}{none}") from None
        if block.rows <= 1 or along_k:
            return (scale if block.k else scale.reshape(rows)), block
    blocks = f"({rows}, {-(-k // K_BLOCK)}) for each {K_BLOCK} of a row"
    squares = f", ({-(-rows // K_BLOCK)}, {-(-k // K_BLOCK)}) for blocks of {K_BLOCK} x {K_BLOCK}"
    if len(shape) == 3:
        each = f"for each of {groups} groups: (1, 1), ({rows}, 1) for rows, {blocks}{squares}"
    elif along_k:
        each = f"({rows}, 1) for rows, {blocks}{squares}, or ({groups}, 1, 1) or ({groups}, {rows}, 1) for each group"
    else:
        each = f"({rows}, 1) for rows, or {blocks}: a group may begin within {K_BLOCK} rows"
    raise ValueError(f"{name} must have one element, or shape {each}; got {got}")


def scale_block(name: str, scale: torch.Tensor, shape: tuple[int, int], *, known: bool | None = None) -> Block:
    """Return the block of a matrix (rows, K) that one number of a scale covers, by the shape of the scale.

    Where two blocks fit the shape, both cover the same elements. `known` is True if no extent is a symbol, and None if
    the caller does not know.

    Raises
    ------
    ValueError
        If the scale has none of these shapes.

    Examples
    --------
    >>> import torch
    >>> [scale_block("scale_a", torch.ones(s), (300, 512)) for s in ((), (300, 1), (300, 4), (3, 4))]
    [Block(rows=0, k=0), Block(rows=1, k=0), Block(rows=1, k=128), Block(rows=128, k=128)]
    """
    rows, k = shape
    k_blocks, row_blocks = -(-k // K_BLOCK), -(-rows // K_BLOCK)
    found = tuple(scale.shape)
    known = are_known(rows, k, *found) if known is None else known
    # What fits whatever the symbols are comes before what they are asked for.
    for true, same in ((bool, eq),) if known else ((surely, surely_same_shape), (bool, same_shape)):
        if true(scale.numel() == 1):
            return TENSOR
        if same(found, (rows, 1)) or same(found, (rows,)):
            return ROW
        if same(found, (rows, k_blocks)):
            return ROW_BLOCK
        if same(found, (row_blocks, k_blocks)) or same(found, (max(1, row_blocks), max(1, k_blocks))):
            return SQUARE
    hint = f"; pass {name}.t()" if found in ((1, rows), (k_blocks, rows), (k_blocks, row_blocks)) else ""
    raise ValueError(
        f"{name} must have one element, or shape ({rows}, 1) for rows, ({rows}, {k_blocks}) for each 128 of a row, or "
        f"({row_blocks}, {k_blocks}) for blocks of 128 x 128, got {tuple(scale.shape)}{hint}"
    )
