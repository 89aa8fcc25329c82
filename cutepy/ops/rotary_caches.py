"""Rotary embedding of new tokens whose keys and values go to a cache, as an operation of PyTorch: `rotary_cached`."""

from __future__ import annotations

from collections.abc import Callable

import torch

from cutepy.host.launches import Launches, OptionalTensor, described
from cutepy.kernels.rows.plans import plan_rotary_cached
from cutepy.ops import shardings
from cutepy.ops.checking import as_tensor, require_tensors
from cutepy.ops.registration import register_both
from cutepy.ops.rotaries import POSITIONS, check_angles, rotary
from cutepy.ops.row_tensors import check_row_tensors
from cutepy.runtime.execution import EXECUTION

_launches: Launches[Callable[..., None]] = Launches()


def rotary_cached(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    lengths: torch.Tensor,
    table: torch.Tensor | None = None,
    interleaved: bool = False,
) -> torch.Tensor:
    """Rotate queries and keys of new tokens by their positions, and write their keys and values to a cache: one launch.

    A token's position is its index, and the length of its sequence.

    Parameters
    ----------
    q : Tensor (batch, tokens, heads, head)
        float16, bfloat16 or float32, of any strides: parts of one product too.
    k, v : Tensor (batch, tokens, kv heads, head), of q's dtype
    cos, sin : Tensor (rows, width)
        As of `cutepy.ops.rotary`, a row for each position.
    keys, values : Tensor (batch, room, kv heads, head), or, with `table`, (pages, tokens of a page, kv heads, head)
        The cache, of q's dtype, whose heads are contiguous; is written to. Tokens that it has no place for are not
        written, and their queries become NaN.
    lengths : Tensor (batch,), int32 or int64
        Tokens that each sequence has; they are not counted up.
    table : Tensor (batch, pages of a sequence), int32, optional
        The numbers of each sequence's pages.
    interleaved : bool
        As of `cutepy.ops.rotary`.

    Returns
    -------
    Tensor, as q
        Rotated queries, contiguous. There are no gradients.

    Raises
    ------
    TypeError, ValueError
        If dtypes or shapes are others.

    Examples
    --------
    >>> import torch
    >>> q, k, v = torch.ones(1, 1, 2, 4), torch.ones(1, 1, 1, 4), torch.full((1, 1, 1, 4), 2.0)
    >>> keys, values = torch.zeros(1, 3, 1, 4), torch.zeros(1, 3, 1, 4)
    >>> quarter, length = torch.tensor([[0.0, 0.0]] * 3), torch.tensor([1])
    >>> rotary_cached(q, k, v, quarter, 1 - quarter, keys, values, length)[0, 0, 0]
    tensor([-1., -1.,  1.,  1.])
    >>> keys[0, :, 0, 0], values[0, :, 0, 0]
    (tensor([ 0., -1.,  0.]), tensor([0., 2., 0.]))
    """
    for name, tensor in (("q", q), ("k", k), ("v", v), ("keys", keys), ("values", values)):
        if as_tensor(name, tensor).dim() != 4:
            raise ValueError(f"{name} must have four dimensions, got shape {tuple(tensor.shape)}")
    require_tensors(rotary_cached, {"cos": cos, "sin": sin, "lengths": lengths, "table": table})
    return _rotary_cached(q, k, v, cos, sin, keys, values, lengths, table, interleaved)


def _check(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    lengths: torch.Tensor,
    table: OptionalTensor,
    interleaved: bool,
) -> torch.Tensor:
    """Check the arguments, and make an empty result."""
    check_row_tensors("rotary_cached", q=q, k=k, v=v, keys=keys, values=values, cos=cos, sin=sin)
    batch, tokens, _, head = q.shape
    check_angles("q", q, cos, sin)
    if len({each.dtype for each in (q, k, v, keys, values)}) > 1:
        raise TypeError(
            f"k, v, keys and values must be {q.dtype}, as q, got {[each.dtype for each in (k, v, keys, values)]}"
        )
    if k.shape != v.shape or k.shape[:2] != (batch, tokens) or k.shape[3] != head:
        raise ValueError(
            f"k and v must be {(batch, tokens, 'kv heads', head)}, got {tuple(k.shape)} and {tuple(v.shape)}"
        )
    first = batch if table is None else keys.shape[0]
    if keys.shape != values.shape or keys.shape[0] != first or keys.shape[2:] != k.shape[2:] or not keys.shape[1]:
        raise ValueError(
            f"keys and values must be {(first, 'room', *k.shape[2:])}, got {tuple(keys.shape)} and "
            f"{tuple(values.shape)}"
        )
    if keys.stride(3) != 1 or values.stride(3) != 1:
        raise ValueError(
            "heads of keys and values must be contiguous, since they are written in place; transpose the cache"
        )
    numbers: list[tuple[str, torch.Tensor, tuple[int, ...], tuple[torch.dtype, ...]]] = [
        ("lengths", lengths, (batch,), POSITIONS)
    ]
    if table is not None:
        numbers.append(("table", table, (batch, table.shape[-1]), (torch.int32,)))
    for name, each, shape, dtypes in numbers:
        if each.dtype not in dtypes or each.device != q.device or tuple(each.shape) != shape:
            raise TypeError(
                f"{name} must be {dtypes[-1]} {shape} on q's device {q.device}, got {each.dtype} {tuple(each.shape)} "
                f"on {each.device}"
            )
    return q.new_empty(q.shape)


def _reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    lengths: torch.Tensor,
    table: OptionalTensor,
    interleaved: bool,
) -> torch.Tensor:
    _check(q, k, v, cos, sin, keys, values, lengths, table, interleaved)
    positions = lengths[:, None].long() + torch.arange(q.shape[1], device=q.device)
    room = keys.shape[1]
    if table is None:
        first = torch.arange(len(positions), device=q.device)[:, None].expand_as(positions)
        places, fits = positions, (positions >= 0) & (positions < room)
    else:
        pages, places = positions // room, positions % room
        fits = (positions >= 0) & (pages < table.shape[1])
        first = table.gather(1, pages.clamp(0, table.shape[1] - 1)).long()
        fits = fits & (first >= 0) & (first < len(keys))
    for cache, new in ((keys, rotary(k, cos, sin, positions, interleaved)), (values, v)):
        cache[first[fits], places[fits]] = new[fits]
    return rotary(q, cos, sin, torch.where(fits, positions, -1), interleaved)


@register_both(
    "cutepy::rotary_cached(Tensor q, Tensor k, Tensor v, Tensor cos, Tensor sin, Tensor(a!) keys, Tensor(b!) values, "
    "Tensor lengths, Tensor? table, bool interleaved) -> Tensor",
    reference=_reference,
    fake=_check,
    sharding=shardings.of_rotary_cached,
    is_invariant=True,
)
def _rotary_cached(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    lengths: torch.Tensor,
    table: OptionalTensor,
    interleaved: bool,
) -> torch.Tensor:
    y = _check(q, k, v, cos, sin, keys, values, lengths, table, interleaved)
    if q.numel() and k.numel():
        whole = torch.contiguous_format
        q, k, v, cos, sin = (
            each if each.stride(-1) == 1 else each.clone(memory_format=whole) for each in (q, k, v, cos, sin)
        )
        table = table if table is None or table.stride(-1) == 1 else table.contiguous()
        given = q, k, v, cos, sin, lengths, table, y, keys, values
        key = (interleaved, EXECUTION.backend is None, *described(*given))
        launch = _launches.get(key)
        if launch is None:
            launch = _launches.keep(key, plan_rotary_cached(*given, interleaved=interleaved))
        launch(*given)
    return y
