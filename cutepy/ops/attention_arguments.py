"""Arguments and results of attention operations: checks, the views of tensors that TMA reaches, operations counted."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from cutepy.kernels.attention.choice import LARGEST_HEAD
from cutepy.kernels.gemm.operands import UNIT_BYTES, address_bytes, dtype_name
from cutepy.kernels.gemm.routes import viewing
from cutepy.ops.operation import AUTOCAST_KEYS

View = Callable[[torch.Tensor], torch.Tensor]

Window = tuple[int | None, int | None]

Tensors = Sequence[torch.Tensor]

ALL_KEYS: Window = (None, None)
DTYPES = (torch.float16, torch.bfloat16)
AS_THEY_ARE = (None, None, None)
"""Ways of q, k and v that need none."""


FORWARD = "Tensor q, Tensor k, Tensor v"
"""Arguments that schemas of attention begin with."""
BACKWARD = "Tensor do, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, Tensor? dlse"
"""Arguments that schemas of its gradients begin with."""


def check(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    *,
    has_batch: bool = True,
    is_packed: bool = False,
    dtypes: tuple[torch.dtype, ...] = DTYPES,
) -> None:
    """Check all that can be told without data.

    Raises
    ------
    TypeError
        If the dtypes are others, or differ.
    ValueError
        If the shapes don't match, or the scale is not positive.
    """
    shape = "(tokens, heads, head)" if is_packed else "(batch, tokens, heads, head)"
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.dim() != 4 - is_packed:
            raise ValueError(f"{name} must be {shape}, got shape {tuple(tensor.shape)}; view it so")
        if tensor.dtype not in dtypes or tensor.dtype != q.dtype:
            allowed = " or ".join(f"all {dtype_name(dtype)}" for dtype in dtypes)
            raise TypeError(f"q, k and v must be {allowed}, got {q.dtype}, {k.dtype} and {v.dtype}; convert them")
        if tensor.device != q.device:
            raise ValueError(f"q, k and v must be on one device, got {q.device}, {k.device} and {v.device}; move them")
        if not 16 <= tensor.shape[-1] <= LARGEST_HEAD or tensor.shape[-1] % 16:
            raise ValueError(
                f"rows of {name} must have a multiple of 16 elements up to {LARGEST_HEAD}, got {tensor.shape[-1]}; pad "
                "them with zeros"
            )
    shapes = f"got shapes {tuple(q.shape)}, {tuple(k.shape)} and {tuple(v.shape)}"
    if (
        k.shape[:-1] != v.shape[:-1]
        or q.shape[-1] != k.shape[-1]
        or (has_batch and not is_packed and q.shape[0] != k.shape[0])
    ):
        raise ValueError(
            f"q, k and v must have one batch, k and v one number of tokens and heads, and q and k one head, {shapes}; "
            "slice or expand them"
        )
    heads, kv_heads = q.shape[-2], k.shape[-2]
    if heads % kv_heads if kv_heads else heads:
        raise ValueError(f"the heads of q must be a multiple of those of k and v, {shapes}; repeat some")
    check_scale(scale)


def check_scale(scale: object) -> None:
    """Check the factor of the scores.

    Raises
    ------
    ValueError
        If it is not a positive number.
    """
    if not isinstance(scale, (int, float, torch.SymFloat)) or not (scale > 0 and math.isfinite(scale)):
        raise ValueError(f"scale must be a positive number, got {scale!r}; multiply q by others")


_FURTHEST = 1 << 30
"""Keys of the widest bound of a window: positions and tiles beside it still fit 32 bits."""


def as_cached(q: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Cast queries of float32 to the dtype of cached keys within autocast, which would cast the keys, too.

    Examples
    --------
    >>> q = torch.zeros(1)
    >>> with torch.autocast("cpu", torch.bfloat16):
    ...     as_cached(q, torch.float16).dtype
    torch.float16
    >>> as_cached(q, torch.float16).dtype
    torch.float32
    """
    if q.dtype != torch.float32 or dtype not in DTYPES or q.device.type not in AUTOCAST_KEYS:
        return q
    return q.to(dtype) if torch.is_autocast_enabled(q.device.type) else q


def settings(
    q: torch.Tensor, window: Window, scale: float | None, *, causal: bool
) -> tuple[float, int | None, int | None]:
    """Return the factor of the scores, and the keys before and after a query's position that it sees; None for all.

    Examples
    --------
    >>> settings(torch.empty(64), (-1, 3), None, causal=False), settings(torch.empty(4), (None, -5), 2.0, causal=True)
    ((0.125, None, 3), (2.0, None, -5))
    """
    left, right = bounds(window, causal=causal)
    return factor(q, scale), left, right


def bounds(window: Window, *, causal: bool) -> tuple[int | None, int | None]:
    """Return the keys before and after a query's position that it sees; None for all."""
    if not isinstance(window, (tuple, list)) or len(window) != 2:
        raise ValueError(
            f"window must be (left, right), keys before and after a query's position, got {window!r}; None is all"
        )
    left, right = window
    right = None if right == -1 else _bounded(right)
    if causal:
        right = 0 if right is None else min(right, 0)
    return None if left == -1 else _bounded(left), right


def factor(q: torch.Tensor, scale: float | None) -> float:
    """Return the factor of the scores."""
    return max(q.shape[-1], 1) ** -0.5 if scale is None else scale


def _bounded(keys: int | None) -> int | None:
    """Limit a bound of a window to the range that kernels add to positions: no matrix has as many keys."""
    if keys is None:
        return None
    if isinstance(keys, (bool, float)):
        raise ValueError(f"bounds of a window must be integers, or None, got {keys!r}; round them")
    return max(-_FURTHEST, min(keys, _FURTHEST))


def check_dropout(dropout_p: float) -> None:
    """Check a probability.

    Raises
    ------
    ValueError
        If the number is not between 0 and 1.
    """
    if not isinstance(dropout_p, (int, float, torch.SymFloat)) or not 0.0 <= dropout_p <= 1.0:
        raise ValueError(f"dropout_p must be a probability, from 0 to 1, got {dropout_p!r}; 0.0 drops no key")


def way_to(tensor: torch.Tensor, view: View | None = None) -> View | None:
    """Return the view or the copy that gives TMA a tensor like this one, seen by `view`; None for the tensor itself."""
    seen = tensor if view is None else view(tensor)
    is_view = seen is tensor or torch._C._is_alias_of(seen, tensor)  # type: ignore[attr-defined]
    if not is_reachable(seen):
        return _copied if view is None else lambda tensor: _copied(view(tensor))
    if not is_view:
        return view
    # The stride of a mode with one element means nothing, but a tensor map must have one.
    each = UNIT_BYTES // seen.element_size()
    plain = tuple(
        seen.shape[-1] * each if extent == 1 and _is_out_of_reach(stride, each) else stride
        for stride, extent in zip(seen.stride()[:-1], seen.shape[:-1], strict=True)
    )
    shape = seen.shape
    if shape == tensor.shape and plain == tensor.stride()[:-1]:
        return None
    return viewing((tuple(shape), (*plain, 1)))


def way_back(shape: Sequence[int], view: View | None) -> View | None:
    """Return the function that gives a contiguous result the shape of `view`; None as it is."""
    if view is None:
        return None
    seen = view(torch.empty(*shape, device="meta"))
    return viewing((tuple(seen.shape), seen.stride()))


def turned(tensor: torch.Tensor) -> torch.Tensor:
    """View heads before tokens where they were behind them, or the other way round."""
    return tensor.transpose(1, 2)


def is_reachable(tensor: torch.Tensor) -> bool:
    """Return whether TMA reaches a tensor, but for strides of modes with one element."""
    each = UNIT_BYTES // tensor.element_size()
    strides = [stride for stride, extent in zip(tensor.stride()[:-1], tensor.shape[:-1], strict=True) if extent > 1]
    is_row = tensor.stride(-1) == 1 and address_bytes(tensor) >= UNIT_BYTES
    return is_row and not any(_is_out_of_reach(stride, each) for stride in strides)


def _is_out_of_reach(stride: int, each: int) -> bool:
    """Return whether TMA can't make such steps, in elements of which it takes so many together."""
    return stride <= 0 or stride % each != 0


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone(memory_format=torch.contiguous_format)


def go(ways: Sequence[View | None], tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Return tensors as the ways to them give them to TMA."""
    return tuple([each if way is None else way(each) for each, way in zip(tensors, ways, strict=True)])


def adds_in_order(*, deterministic: bool, has_lists: bool = False, has_tables: bool = False) -> bool:
    """Return whether gradients must be the same from run to run: by an argument, or for all of torch.

    Parameters
    ----------
    has_lists : bool
        True if a block mask's lists decide which parts are added to dQ.
    has_tables : bool
        True if gradients of tables are computed.

    Raises
    ------
    NotImplementedError
        If they must be, and can't.
    """
    wanted = deterministic or torch.are_deterministic_algorithms_enabled()
    only_warns = not deterministic and torch.is_deterministic_algorithms_warn_only_enabled()
    if wanted and has_tables and not only_warns:
        raise NotImplementedError(
            "the gradients of tensors that a score function uses are not deterministic: scores are added in any order; "
            "detach the tensors, or allow it by deterministic=False and torch.use_deterministic_algorithms(False)"
        )
    if wanted and has_lists and not only_warns:
        raise NotImplementedError(
            "the gradients of a block mask are not deterministic: parts of dQ are added in any order; give the mask as "
            "a function, or allow it by torch.use_deterministic_algorithms(False)"
        )
    return wanted and not has_lists


_unread: dict[torch.device, list[torch.Tensor]] = {}


def unread(q: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Return float32 memory beside q for results that nobody reads.

    All launches on a GPU share it, and it is never freed: CUDA graphs keep its address.
    """
    elements = math.prod(shape)
    kept = _unread.setdefault(q.device, [])
    if not kept or kept[-1].numel() < elements:
        kept.append(q.new_empty(1 << (elements - 1).bit_length(), dtype=torch.float32))
    return kept[-1][:elements].view(shape)


def results_like(
    q: torch.Tensor, v: torch.Tensor, dtype: torch.dtype | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Make empty results: O, of q's dtype or another, and the logarithms of the rows' sums."""
    batch, queries, heads, _ = q.shape
    o = q.new_empty(batch, queries, heads, v.shape[3], dtype=dtype)
    return o, q.new_empty(batch, heads, queries, dtype=torch.float32)


def flops(q: Sequence[int], k: Sequence[int], v: Sequence[int], *_: object, **__: object) -> int:
    """Count the operations of both products, without masks, as torch does.

    Examples
    --------
    >>> flops((1, 128, 2, 64), (1, 256, 2, 64), (1, 256, 2, 64))
    16777216
    """
    return 2 * math.prod(q[:3]) * k[1] * (q[3] + v[3])


def grads_like(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Make empty gradients."""
    dq, dk, dv = (each.new_empty(each.shape) for each in (q, k, v))
    return dq, dk, dv


def flops_backward(
    do: Sequence[int], q: Sequence[int], k: Sequence[int], v: Sequence[int], *_: object, **__: object
) -> int:
    """Count the operations of the five products."""
    return 2 * math.prod(q[:3]) * k[1] * (3 * q[3] + 2 * v[3])
