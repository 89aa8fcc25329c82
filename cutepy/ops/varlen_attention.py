"""Attention of sequences of different lengths as an operation of PyTorch, and its gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch

from cutepy.host.launches import Launches, described
from cutepy.kernels.attention import reference
from cutepy.kernels.attention.choice import heads_packed
from cutepy.kernels.attention.config import Lengths
from cutepy.kernels.attention.op import launch_backward, plan_forward
from cutepy.ops import shardings
from cutepy.ops.attention_arguments import (
    ALL_KEYS,
    Window,
    adds_in_order,
    check,
    check_has_gradients,
    check_no_dropout,
    grads_like,
    reachable,
    settings,
    way_to,
)
from cutepy.ops.registration import register_both
from cutepy.runtime.execution import EXECUTION

Launch = Callable[..., tuple[torch.Tensor, torch.Tensor]]

_launches: Launches[Launch] = Launches()


def attention_varlen(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    cu_seqlens_q: torch.Tensor | None = None,
    cu_seqlens_k: torch.Tensor | None = None,
    seqused_q: torch.Tensor | None = None,
    seqused_k: torch.Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    causal: bool = False,
    window: Window = ALL_KEYS,
    scale: float | None = None,
    return_lse: bool = False,
    deterministic: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Compute softmax(scale q k^T) v for each head of each sequence of a batch, whose lengths only the device knows.

    Tensors are packed, with the tokens of one sequence behind those of another and their bounds in `cu_seqlens_q` and
    `cu_seqlens_k`, or have a batch of as many rows each, of which `seqused_q` and `seqused_k` may say how many are
    used. Tokens beyond a sequence's are not read, and their outputs are zeros. In each sequence the last query is at
    the position of the last key. A query that sees no key has an output of zeros.

    Parameters
    ----------
    q : Tensor (queries, heads, head) with `cu_seqlens_q`, else (batch, queries, heads, head)
        float16 or bfloat16, head a multiple of 16 up to 256.
    k : Tensor (keys, kv heads, head) with `cu_seqlens_k`, else (batch, keys, kv heads, head)
    v : Tensor, as k, (..., head of v)
    cu_seqlens_q, cu_seqlens_k : Tensor (batch + 1,), int32, optional
        First token of each sequence, which begins where the one before ends, from 0 on.
    seqused_q, seqused_k : Tensor (batch,), int32, optional
        Tokens of each sequence that are used, the first ones.
    max_seqlen_q, max_seqlen_k : int, optional
        Tokens of the longest sequence, by which tiles are chosen: a hint, on which no result depends.
    causal : bool
        True if a query sees no key behind its position.
    window : (int or None, int or None)
        Keys before and behind a query's position that it sees; -1 or None for all. A number -n below -1 begins
        n behind its position, or ends n before it.
    scale : float, optional
        Positive factor of the scores; 1 / sqrt(head) if not given.
    return_lse : bool
        True to return the natural logarithms of the rows' sums of exp(score) too.
    deterministic : bool
        True for gradients that are the same from run to run, as of `cutepy.ops.attention`.

    Returns
    -------
    Tensor, as q, (..., head of v), or a pair of it and a Tensor of float32, (heads, queries) or (batch, heads, queries)
        Differentiable, where head, the same for v, is at most 128.

    Raises
    ------
    TypeError
        If the dtypes are others, or differ.
    ValueError
        If the shapes don't match, or a setting is out of range.

    Examples
    --------
    >>> import torch
    >>> q, k, v = (torch.randn(100, 4, 64, dtype=torch.bfloat16) for _ in range(3))
    >>> bounds = torch.tensor([0, 30, 30, 100], dtype=torch.int32)
    >>> attention_varlen(q, k, v, cu_seqlens_q=bounds, cu_seqlens_k=bounds, causal=True).shape
    torch.Size([100, 4, 64])
    """
    scale, left, right = settings(q, window, scale, causal=causal)
    lengths = cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k
    batch = _check_lengths(q, k, v, Lengths(*lengths))
    packed_q = q if cu_seqlens_q is not None else q.flatten(0, 1)
    packed_k, packed_v = (k, v) if cu_seqlens_k is not None else (k.flatten(0, 1), v.flatten(0, 1))
    most_q, most_k = (
        given if given is not None else -(-tensor.shape[0] // (batch if cu is None else 1))
        for given, tensor, cu in ((max_seqlen_q, packed_q, cu_seqlens_q), (max_seqlen_k, packed_k, cu_seqlens_k))
    )
    o, lse = _attention_varlen(
        packed_q, packed_k, packed_v, *lengths, most_q, most_k, scale, left, right, deterministic
    )
    if cu_seqlens_q is None:
        o, lse = o.unflatten(0, q.shape[:2]), lse.unflatten(1, q.shape[:2]).transpose(0, 1)
    return (o, lse) if return_lse else o


def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = ALL_KEYS,
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: torch.Tensor | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor, None]:
    """Compute attention with the arguments of flash-attn's `flash_attn_varlen_func`.

    With `return_attn_probs` the results are those that it has without dropout: the output, the logarithms of the rows'
    sums, and None.

    Raises
    ------
    NotImplementedError
        If there is dropout, a soft cap, slopes, or a block table.
    """
    check_no_dropout(dropout_p)
    for name, given in (("softcap", softcap or None), ("alibi_slopes", alibi_slopes), ("block_table", block_table)):
        if given is not None:
            raise NotImplementedError(
                f"attention of sequences in one matrix takes no {name}, got "
                f"{tuple(given.shape) if isinstance(given, torch.Tensor) else given}"
            )
    o, lse = attention_varlen(
        q,
        k,
        v,
        cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_k=cu_seqlens_k,
        max_seqlen_q=max_seqlen_q,
        max_seqlen_k=max_seqlen_k,
        causal=causal,
        window=window_size,
        scale=softmax_scale,
        deterministic=deterministic,
        return_lse=True,
    )
    return (o, lse, None) if return_attn_probs else o


def _check_lengths(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: Lengths) -> int:
    """Check the lengths against the tensors; return the number of sequences."""
    batches: dict[str, int] = {}
    for name, tensor, cu, used in (
        ("q", q, lengths.q_begins, lengths.q_used),
        ("k", k, lengths.k_begins, lengths.k_used),
        ("v", v, lengths.k_begins, lengths.k_used),
    ):
        side = "k" if name == "v" else name
        if tensor.dim() != (4 if cu is None else 3):
            wanted = "(tokens, heads, head)" if cu is not None else "(batch, tokens, heads, head)"
            given = "without" if cu is None else "with"
            raise ValueError(f"{name} must be {wanted} {given} cu_seqlens_{side}, got shape {tuple(tensor.shape)}")
        for what, each in ((f"cu_seqlens_{side}", cu), (f"seqused_{side}", used)):
            if each is None:
                continue
            if each.dtype != torch.int32 or each.dim() != 1 or not each.is_contiguous() or each.device != q.device:
                raise ValueError(
                    f"{what} must be a contiguous vector of int32 on {q.device}, got {each.dtype} of shape "
                    f"{tuple(each.shape)} on {each.device}"
                )
            batches[what] = int(each.shape[0]) - (each is cu)
        if cu is None:
            batches[name] = int(tensor.shape[0])
    if len(set(batches.values())) > 1 or min(batches.values()) < 0:
        raise ValueError(
            "all must have one number of sequences, cu_seqlens_q and cu_seqlens_k one value more, got "
            + ", ".join(f"{count} of {name}" for name, count in batches.items())
        )
    return next(iter(batches.values()))


def _results(q: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    tokens, heads, _ = q.shape
    return q.new_empty(tokens, heads, v.shape[-1]), q.new_empty(heads, tokens, dtype=torch.float32)


def _fake(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: Any) -> tuple[torch.Tensor, torch.Tensor]:  # noqa: ANN401
    *_, scale, _, _, _ = rest
    check(q, k, v, scale, is_packed=True)
    return _results(q, v)


def _spans(rows: int, begins: torch.Tensor | None, used: torch.Tensor | None, count: int) -> list[tuple[int, int]]:
    """Return the first row of each sequence, and that behind its last, as the kernels read them."""
    first = [rows // max(count, 1) * n for n in range(count + 1)] if begins is None else begins.tolist()
    first = [min(max(n, 0), rows) for n in first]
    lengths = [end - begin for begin, end in pairwise(first)]
    if used is not None:
        lengths = [min(length, n) for length, n in zip(lengths, used.tolist(), strict=True)]
    return [(begin, begin + max(length, 0)) for begin, length in zip(first, lengths, strict=False)]


def _each_sequence(q: torch.Tensor, k: torch.Tensor, lengths: Lengths) -> list[tuple[slice, slice]]:
    """Return the queries and the keys of each sequence."""
    count = lengths.count
    spans = (
        _spans(q.shape[0], lengths.q_begins, lengths.q_used, count),
        _spans(k.shape[0], lengths.k_begins, lengths.k_used, count),
    )
    return [(slice(*rows), slice(*keys)) for rows, keys in zip(*spans, strict=True)]


def _reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    q_begins: torch.Tensor | None,
    k_begins: torch.Tensor | None,
    q_used: torch.Tensor | None,
    k_used: torch.Tensor | None,
    most_queries: int,
    most_keys: int,
    scale: float,
    left: int | None,
    right: int | None,
    deterministic: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    check(q, k, v, scale, is_packed=True)
    o, lse = _results(q, v)
    o.zero_()
    lse.fill_(-math.inf)
    for rows, keys in _each_sequence(q, k, Lengths(q_begins, k_begins, q_used, k_used)):
        o[rows], lse[:, rows] = (
            each[0] for each in reference.forward(q[None, rows], k[None, keys], v[None, keys], scale, left, right)
        )
    return o, lse


def _keep(ctx: Any, inputs: Sequence[Any], output: Sequence[torch.Tensor]) -> None:  # noqa: ANN401
    q, k, v, *lengths = inputs[:7]
    ctx.how = inputs[7:]
    ctx.save_for_backward(q, k, v, *lengths, *output)


def _backward(ctx: Any, do: torch.Tensor | None, dlse: torch.Tensor | None) -> tuple[Any, ...]:  # noqa: ANN401
    q, k, v, *lengths, o, lse = ctx.saved_tensors
    check_has_gradients(q, v)
    do = torch.zeros_like(o) if do is None else do
    grads = _attention_varlen_backward(do, q, k, v, o, lse, dlse, *lengths, *ctx.how)
    return *grads, *(None,) * 10


Shape = Sequence[int]


def _pairs(q: Shape, k: Shape, lengths: Sequence[Shape | None]) -> int:
    """Return the pairs of queries and keys, as if all sequences had one length: only the device knows the lengths."""
    given = zip(lengths, (1, 1, 0, 0), strict=True)
    count = next(shape[0] - beyond for shape, beyond in given if shape is not None)
    return q[0] * k[0] // max(count, 1)


def _flops(q: Shape, k: Shape, v: Shape, *lengths: Shape, **_: object) -> int:
    """Count the operations of both products, without masks.

    Examples
    --------
    >>> _flops((128, 2, 64), (256, 2, 64), (256, 2, 64), (3,), (3,), None, None)
    8388608
    """
    return 2 * q[1] * _pairs(q, k, lengths[:4]) * (q[2] + v[2])


_LENGTHS = "Tensor? q_begins, Tensor? k_begins, Tensor? q_used, Tensor? k_used, int most_queries, int most_keys"


@register_both(
    f"cutepy::attention_varlen(Tensor q, Tensor k, Tensor v, {_LENGTHS}, float scale, int? left, int? right, "
    "bool deterministic) -> (Tensor, Tensor)",
    reference=_reference,
    fake=_fake,
    setup_context=_keep,
    backward=_backward,
    autocast=("q", "k", "v"),
    sharding=shardings.of_attention_varlen,
    flops=_flops,
)
def _attention_varlen(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    q_begins: torch.Tensor | None,
    k_begins: torch.Tensor | None,
    q_used: torch.Tensor | None,
    k_used: torch.Tensor | None,
    most_queries: int,
    most_keys: int,
    scale: float,
    left: int | None,
    right: int | None,
    deterministic: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    lengths = Lengths(q_begins, k_begins, q_used, k_used)
    packed = heads_packed(q.shape[1] // max(k.shape[1], 1), q.shape[0], lengths.count)
    key = (scale, left, right, most_queries, packed, lengths.given, EXECUTION.backend is None, *described(q, k, v))
    launch = _launches.get(key)
    if launch is None:
        check(q, k, v, scale, is_packed=True)
        launch = _launches.keep(key, _find_launch(q, k, v, scale, left, right, lengths, most_queries, packed))
    return launch(q, k, v, lengths)


def _find_launch(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    left: int | None,
    right: int | None,
    lengths: Lengths,
    most_queries: int,
    packed: int,
) -> Launch:
    """Decide all that is done for tensors like these, and have the kernel compiled."""
    tokens, heads, _ = q.shape
    shape, rows = (tokens, heads, v.shape[-1]), (1, heads, tokens)
    if 0 in q.shape or not k.shape[0]:
        return lambda q, k, v, _: (q.new_zeros(shape), q.new_full(rows[1:], -math.inf, dtype=torch.float32))
    launch = plan_forward(q, k, v, scale, left, right, lengths.given, most_queries, packed=packed)
    ways, has_gaps = tuple(map(way_to, (q, k, v))), lengths.q_used is not None

    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: Lengths) -> tuple[torch.Tensor, torch.Tensor]:
        o, lse = q.new_empty(shape), q.new_empty(rows, dtype=torch.float32)
        if has_gaps:
            o.zero_()
            lse.fill_(-math.inf)
        given = (each if way is None else way(each) for way, each in zip(ways, (q, k, v), strict=True))
        launch(*given, o, lse, lengths)
        return o, lse[0]

    return run


def _fake_backward(do: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_: object) -> Any:  # noqa: ANN401
    return grads_like(q, k, v)


def _reference_backward(
    do: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
    dlse: torch.Tensor | None,
    q_begins: torch.Tensor | None,
    k_begins: torch.Tensor | None,
    q_used: torch.Tensor | None,
    k_used: torch.Tensor | None,
    most_queries: int,
    most_keys: int,
    scale: float,
    left: int | None,
    right: int | None,
    deterministic: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    grads = dq, dk, dv = grads_like(q, k, v)
    for each in grads:
        each.zero_()
    for rows, keys in _each_sequence(q, k, Lengths(q_begins, k_begins, q_used, k_used)):
        of_lse = None if dlse is None else dlse[None, :, rows]
        of_rows, of_keys = (do[None, rows], q[None, rows]), (k[None, keys], v[None, keys])
        found = reference.backward(*of_rows, *of_keys, of_lse, scale, left, right)
        dq[rows], dk[keys], dv[keys] = (each[0] for each in found)
    return grads


def _flops_backward(do: Shape, q: Shape, k: Shape, v: Shape, o: Shape, lse: Shape, dlse: Shape, *lengths: Shape) -> int:
    """Count the operations of the five products, as `_flops` does."""
    return 2 * q[1] * _pairs(q, k, lengths[:4]) * (3 * q[2] + 2 * v[2])


@register_both(
    "cutepy::attention_varlen_backward(Tensor do, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, Tensor? dlse, "
    f"{_LENGTHS}, float scale, int? left, int? right, bool deterministic) -> (Tensor, Tensor, Tensor)",
    reference=_reference_backward,
    fake=_fake_backward,
    sharding=shardings.of_attention_varlen_backward,
    flops=_flops_backward,
)
def _attention_varlen_backward(
    do: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
    dlse: torch.Tensor | None,
    q_begins: torch.Tensor | None,
    k_begins: torch.Tensor | None,
    q_used: torch.Tensor | None,
    k_used: torch.Tensor | None,
    most_queries: int,
    most_keys: int,
    scale: float,
    left: int | None,
    right: int | None,
    deterministic: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    grads, lengths = grads_like(q, k, v), Lengths(q_begins, k_begins, q_used, k_used)
    is_empty = 0 in q.shape or not k.shape[0]
    if is_empty or q_used is not None or k_used is not None:
        for each in grads:
            each.zero_()
    if is_empty:
        return grads
    do, q, k, v, o = map(reachable, (do, q, k, v, o))
    dlse = None if dlse is None else dlse.contiguous()[None]
    given = scale, left, right, lengths, most_keys
    is_ordered = adds_in_order(deterministic=deterministic)
    launch_backward(do, q, k, v, o, lse[None], dlse, grads, *given, is_ordered=is_ordered)
    return grads
