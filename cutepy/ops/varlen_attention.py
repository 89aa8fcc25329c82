"""Attention of sequences of different lengths as an operation of PyTorch, and its gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch

from cutepy.epilogues.scores import MaskFunction, ScoreFunction
from cutepy.host.launches import Launches, described, maker_of
from cutepy.kernels.attention import reference
from cutepy.kernels.attention.choice import heads_packed
from cutepy.kernels.attention.config import Lengths
from cutepy.kernels.attention.op import forward_reads, plan_forward
from cutepy.kernels.gemm.operands import dtype_name
from cutepy.ops import shardings
from cutepy.ops.attention_arguments import (
    ALL_KEYS,
    BACKWARD,
    DTYPES,
    FORWARD,
    Window,
    adds_in_order,
    check,
    check_dropout,
    go,
    grads_like,
    settings,
    way_to,
)
from cutepy.ops.attention_functions import (
    Tensors,
    beside,
    check_scoring,
    derived_of,
    dsinks_like,
    dsinks_of,
    dtables_like,
    gradients_of,
    read_by,
    scoring_of,
)
from cutepy.ops.attention_gradients import GradientSettings, launch_gradients
from cutepy.ops.attention_scales import FLOAT8, QuantisedArguments, quantised, refuse_scales
from cutepy.ops.checking import require_tensors
from cutepy.ops.decode_attention import check_lengths
from cutepy.ops.foreign_arguments import refuse_unknown
from cutepy.ops.registration import register_both
from cutepy.ops.repaging import is_repaged, repaged
from cutepy.ops.schemas import schema_of
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
    block_table: torch.Tensor | None = None,
    causal: bool = False,
    window: Window = ALL_KEYS,
    scale: float | None = None,
    return_lse: bool = False,
    soft_cap: float | None = None,
    alibi_slopes: torch.Tensor | None = None,
    score: ScoreFunction | None = None,
    mask: MaskFunction | None = None,
    operands: Mapping[str, Any] | None = None,
    sinks: torch.Tensor | None = None,
    deterministic: bool = False,
    dropout_p: float = 0.0,
    q_scale: torch.Tensor | None = None,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Compute softmax(scale q k^T) v for each head of each sequence of a batch, whose lengths only the device knows.

    Tensors are packed, with the tokens of one sequence after those of another and their bounds in `cu_seqlens_q` and
    `cu_seqlens_k`, or have a batch of as many rows each, of which `seqused_q` and `seqused_k` may say how many are
    used. Keys may be in pages. Tokens beyond a sequence's are not read, and their outputs are zeros. In each sequence
    the last query is at the position of the last key. A query that sees no key has an output of zeros.

    Parameters
    ----------
    q : Tensor (queries, heads, head) with `cu_seqlens_q`, else (batch, queries, heads, head)
        float16, bfloat16 or float8_e4m3fn, head a multiple of 16 up to 256.
    k : Tensor (keys, kv heads, head) with `cu_seqlens_k`, else (batch, keys, kv heads, head)
        With `block_table` (pages, keys of a page, kv heads, head), whose first two modes are one in memory.
    v : Tensor, as k, (..., head of v)
    cu_seqlens_q, cu_seqlens_k : Tensor (batch + 1,), int32, optional
        First token of each sequence, which begins where the one before ends, from 0 on.
    seqused_q, seqused_k : Tensor (batch,), int32, optional
        Tokens of each sequence that are used, the first ones.
    max_seqlen_q, max_seqlen_k : int, optional
        Tokens of the longest sequence, by which tiles are chosen: a hint, on which no result depends.
    block_table : Tensor (batch, pages of a sequence), int32, optional
        The numbers of each sequence's pages, of any number of keys. `seqused_k` says how many keys are used. Without
        gradients.
    causal : bool
        True if a query sees no key after its position.
    window : (int or None, int or None)
        Keys before and after a query's position that it sees; -1 or None for all. A number -n below -1 begins
        n after its position, or ends n before it.
    scale : float, optional
        Positive factor of the scores; 1 / sqrt(head) if not given.
    return_lse : bool
        True to return the natural logarithms of the rows' sums of exp(score) too.
    soft_cap, alibi_slopes, score, mask, operands, sinks
        As of `cutepy.ops.attention`. The batch is the sequence, and its queries and keys are counted from its own first
        ones: `queries` and `keys` are its lengths.
    deterministic : bool
        True for gradients that are the same from run to run, as of `cutepy.ops.attention`.
    dropout_p : float
        As of `cutepy.ops.attention`.
    q_scale, k_scale, v_scale : Tensor, optional
        Positive factors of float8_e4m3fn, float32: one element, or (batch, kv heads) for each sequence and head.
    out_dtype : float16 or bfloat16, optional
        Of the output of float8_e4m3fn; bfloat16 if not given.

    Returns
    -------
    Tensor, as q, (..., head of v), or a pair of it and a Tensor of float32, (heads, queries) or (batch, heads, queries)
        Differentiable, but for float8_e4m3fn.

    Raises
    ------
    TypeError
        If the dtypes are others, or differ.
    ValueError
        If the shapes don't match, or a setting is out of range.
    NotImplementedError
        If a gradient, or dropout, is asked for that there isn't.

    Examples
    --------
    >>> import torch
    >>> q, k, v = (torch.randn(100, 4, 64, dtype=torch.bfloat16) for _ in range(3))
    >>> bounds = torch.tensor([0, 30, 30, 100], dtype=torch.int32)
    >>> attention_varlen(q, k, v, cu_seqlens_q=bounds, cu_seqlens_k=bounds, causal=True).shape
    torch.Size([100, 4, 64])
    """
    try:
        scale, left, right = settings(q, window, scale, causal=causal)
        check_dropout(dropout_p)
        for name, most in (("max_seqlen_q", max_seqlen_q), ("max_seqlen_k", max_seqlen_k)):
            if isinstance(most, (torch.Tensor, float, str)):
                raise TypeError(
                    f"{name} must be an integer that the host knows, got {type(most).__name__}; leave it out"
                )
        lengths = cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k
        batch = _check_lengths(q, k, v, Lengths(*lengths), is_paged=block_table is not None)
        page = 0 if block_table is None else k.shape[1]
        packed_q = q if cu_seqlens_q is not None else q.flatten(0, 1)
        if cu_seqlens_k is not None:
            packed_k, packed_v = k, v
        else:
            packed_k, packed_v = (
                _rows_of_all(*each) if page else each[1].flatten(0, 1) for each in (("k", k), ("v", v))
            )
        most_q, most_k = (
            given if given is not None else -(-tensor.shape[0] // (batch if cu is None else 1))
            for given, tensor, cu in ((max_seqlen_q, packed_q, cu_seqlens_q), (max_seqlen_k, packed_k, cu_seqlens_k))
        )
        tensors, scales = (packed_q, packed_k, packed_v), (q_scale, k_scale, v_scale)
        is_quantised = q.dtype == FLOAT8
        read = read_by(q, (soft_cap, alibi_slopes, score, mask, operands), sinks, 0.0 if is_quantised else dropout_p)
        given = *lengths, block_table, *read, page, most_q, most_k, scale, left, right, deterministic
        if is_quantised:
            made = quantised(tensors, scales, out_dtype, sinks, dropout_p, batch)
            o, lse = _quantised_attention_varlen(*tensors, *made, *given)
        else:
            refuse_scales(q, scales, out_dtype)
            o, lse = _attention_varlen(*tensors, *given)
        if cu_seqlens_q is None:
            o, lse = o.unflatten(0, q.shape[:2]), lse.unflatten(1, q.shape[:2]).transpose(0, 1)
        return (o, lse) if return_lse else o
    except (AttributeError, IndexError, TypeError, ValueError):
        require_tensors(attention_varlen, locals())
        raise


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
    learnable_sink: torch.Tensor | None = None,
    q_descale: torch.Tensor | None = None,
    k_descale: torch.Tensor | None = None,
    v_descale: torch.Tensor | None = None,
    **unknown: object,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor, None]:
    """Compute attention with the arguments of flash-attn's `flash_attn_varlen_func`.

    With `return_attn_probs` the results are the output, the logarithms of the rows' sums, and None for probabilities.
    With `block_table` the lengths of the keys are those of `cu_seqlens_k`. The last three are `q_scale`, `k_scale` and
    `v_scale` of `attention_varlen`, for float8_e4m3fn.
    """
    if unknown:
        refuse_unknown(flash_attn_varlen_func, unknown)
    try:
        has_pages = block_table is not None
        results = attention_varlen(
            q,
            k,
            v,
            cu_seqlens_q=cu_seqlens_q,
            cu_seqlens_k=None if has_pages else cu_seqlens_k,
            seqused_k=cu_seqlens_k.diff() if has_pages else None,
            max_seqlen_q=max_seqlen_q,
            max_seqlen_k=max_seqlen_k,
            block_table=block_table,
            causal=causal,
            window=window_size,
            scale=softmax_scale,
            soft_cap=softcap or None,
            alibi_slopes=alibi_slopes,
            sinks=learnable_sink,
            deterministic=deterministic,
            dropout_p=dropout_p,
            return_lse=return_attn_probs,
            q_scale=q_descale,
            k_scale=k_descale,
            v_scale=v_descale,
        )
        return (*results, None) if return_attn_probs else results
    except (AttributeError, IndexError, TypeError, ValueError):
        require_tensors(flash_attn_varlen_func, locals())
        raise


def _check_lengths(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: Lengths, *, is_paged: bool) -> int:
    """Check the lengths against the tensors; return the number of sequences."""
    if is_paged and (lengths.k_begins is not None or lengths.k_used is None):
        raise ValueError(
            "a block_table needs seqused_k, how many keys each sequence has, and no cu_seqlens_k, got "
            + ("cu_seqlens_k" if lengths.k_begins is not None else "neither")
            + "; pass cu_seqlens_k.diff() as seqused_k"
        )
    if lengths.q_begins is lengths.k_begins is lengths.q_used is lengths.k_used is None:
        raise ValueError(
            "lengths of sequences must be given, cu_seqlens_q and cu_seqlens_k or seqused_q and seqused_k, got none; "
            "cutepy.ops.attention computes sequences of one length"
        )
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
            raise ValueError(
                f"{name} must be {wanted} {given} cu_seqlens_{side}, got shape {tuple(tensor.shape)}; view it so"
            )
        for what, each in ((f"cu_seqlens_{side}", cu), (f"seqused_{side}", used)):
            if each is None:
                continue
            if each is cu and each.shape == (0,):
                raise ValueError(
                    f"{what} must have a first token of each sequence and the last's end, got none; pass [0]"
                )
            if each.dtype != torch.int32 or each.dim() != 1 or not each.is_contiguous() or each.device != q.device:
                raise ValueError(
                    f"{what} must be a contiguous vector of int32 on {q.device}, got {each.dtype} of shape "
                    f"{tuple(each.shape)} on {each.device}; convert it"
                )
            batches[what] = int(each.shape[0]) - (each is cu)
        if cu is None and not (is_paged and side == "k"):
            batches[name] = int(tensor.shape[0])
    if len(set(batches.values())) > 1:
        raise ValueError(
            "all must have one number of sequences, cu_seqlens_q and cu_seqlens_k one value more, got "
            + ", ".join(f"{count} of {name}" for name, count in batches.items())
            + "; slice them"
        )
    return next(iter(batches.values()))


def _rows_of_all(name: str, cache: torch.Tensor) -> torch.Tensor:
    """View the first two modes of a cache as one."""
    try:
        return cache.view(-1, *cache.shape[2:])
    except RuntimeError:
        raise ValueError(
            f"{name} must have its first two modes as one in memory, each page or sequence after the one before; got "
            f"strides {cache.stride()} of shape {tuple(cache.shape)}; copy it"
        ) from None


class _AttentionArguments(NamedTuple):
    """Arguments of the operation after q, k and v: matrices of the tokens of all sequences.

    Attributes
    ----------
    q_begins, k_begins, q_used, k_used : Tensor or None
        As of `Lengths`.
    table : Tensor (sequences, pages), int32, or None
    sinks : Tensor (heads,), float32, or None
    tables : list of Tensor
    functions : str
        As of `cutepy.ops.attention_functions`.
    page : int
        Keys of a page; 0 if keys are not in pages.
    most_queries, most_keys : int
        Of the longest sequence.
    scale : float
    left, right : int or None
        The band's bounds.
    deterministic : bool
    """

    q_begins: torch.Tensor | None
    k_begins: torch.Tensor | None
    q_used: torch.Tensor | None
    k_used: torch.Tensor | None
    table: torch.Tensor | None
    sinks: torch.Tensor | None
    tables: Tensors
    functions: str
    page: int
    most_queries: int
    most_keys: int
    scale: float
    left: int | None
    right: int | None
    deterministic: bool

    @property
    def lengths(self) -> Lengths:
        """Lengths of the sequences."""
        return Lengths(self.q_begins, self.k_begins, self.q_used, self.k_used)

    @property
    def how(self) -> tuple[float, int | None, int | None]:
        """Scale and bounds."""
        return self.scale, self.left, self.right


def _check(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    given: _AttentionArguments,
    scaled: QuantisedArguments | None = None,
) -> None:
    """Check all that can be told without data, but for the lengths."""
    check(q, k, v, given.scale, is_packed=True, dtypes=DTYPES if scaled is None else (FLOAT8,))
    if given.k_used is not None and given.table is not None:
        check_lengths(given.k_used, given.page, given.k_used, given.table)
    check_scoring(q, given.sinks, given.tables, given.functions, (given.lengths.count, None, None))
    if scaled is not None:
        scaled.check_sequences(given.lengths.count, k.shape[1])


def _results(q: torch.Tensor, v: torch.Tensor, dtype: torch.dtype | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    tokens, heads, _ = q.shape
    return q.new_empty(tokens, heads, v.shape[-1], dtype=dtype), q.new_empty(heads, tokens, dtype=torch.float32)


def _fake(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: Any) -> tuple[torch.Tensor, torch.Tensor]:  # noqa: ANN401
    _check(q, k, v, _AttentionArguments(*rest))
    return _results(q, v)


def _fake_quantised(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *rest: Any,  # noqa: ANN401
) -> tuple[torch.Tensor, torch.Tensor]:
    scaled, given = _parted(rest)
    _check(q, k, v, given, scaled)
    return _results(q, v, scaled.out_dtype)


def _parted(rest: Sequence[Any]) -> tuple[QuantisedArguments, _AttentionArguments]:
    """Return the arguments after q, k and v of the operation of 8-bit floats."""
    count = len(QuantisedArguments._fields)
    return QuantisedArguments(*rest[:count]), _AttentionArguments(*rest[count:])


def _spans(rows: int, begins: torch.Tensor | None, used: torch.Tensor | None, count: int) -> list[tuple[int, int]]:
    """Return the first row of each sequence, and that after its last, as the kernels read them."""
    first = [rows // max(count, 1) * n for n in range(count + 1)] if begins is None else begins.tolist()
    first = [min(max(n, 0), rows) for n in first]
    lengths = [end - begin for begin, end in pairwise(first)]
    if used is not None:
        lengths = [min(length, n) for length, n in zip(lengths, used.tolist(), strict=True)]
    return [(begin, begin + max(length, 0)) for begin, length in zip(first, lengths, strict=False)]


def _each_sequence(
    q: torch.Tensor, k: torch.Tensor, given: _AttentionArguments, derived: Sequence[int] = ()
) -> Iterator[tuple[slice, torch.Tensor, reference.ReferenceAttention]]:
    """Yield the queries and the keys of each sequence, and the reference of its attention."""
    lengths, table, page = given.lengths, given.table, given.page
    count, held = lengths.count, k.shape[0] if table is None else table.numel() * page
    rows = torch.arange(held, device=k.device)
    if table is not None:  # rows of the pages that each sequence may have
        within = torch.arange(page, device=k.device)
        rows = (table.flatten().long()[:, None] * page + within).flatten()
    spans = (
        _spans(q.shape[0], lengths.q_begins, lengths.q_used, count),
        _spans(held, lengths.k_begins, lengths.k_used, count),
    )
    for n, (queries, keys) in enumerate(zip(*spans, strict=True)):
        scored = reference.ReferenceAttention(
            given.functions, given.tables, given.sinks, first_batch=n, derived=derived
        )
        yield slice(*queries), rows[slice(*keys)], scored


def _reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: Any) -> tuple[torch.Tensor, torch.Tensor]:  # noqa: ANN401
    return _attend_each(q, k, v, _AttentionArguments(*rest), None)


def _reference_quantised(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *rest: Any,  # noqa: ANN401
) -> tuple[torch.Tensor, torch.Tensor]:
    scaled, given = _parted(rest)
    return _attend_each(q, k, v, given, scaled)


def _attend_each(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, given: _AttentionArguments, scaled: QuantisedArguments | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute attention of each sequence in plain torch."""
    _check(q, k, v, given, scaled)
    o, lse = _results(q, v, None if scaled is None else scaled.out_dtype)
    o.zero_()
    lse.fill_(-math.inf)
    for n, (rows, keys, scored) in enumerate(_each_sequence(q, k, given)):
        of_each = q[None, rows], k[None, keys], v[None, keys]
        if scaled is not None:
            of_each = scaled.dequantised(of_each, n)
        found = scored.forward(*of_each, *given.how)
        o[rows], lse[:, rows] = (each[0] for each in found)
    return o, lse


def _keep(ctx: Any, inputs: Sequence[Any], output: Sequence[torch.Tensor]) -> None:  # noqa: ANN401
    ctx.set_materialize_grads(False)
    given = _AttentionArguments(*inputs[3:])
    ctx.derived, ctx.how = derived_of(given.functions, ctx.needs_input_grad[9]), given[7:]
    ctx.save_for_backward(*inputs[:3], *output, *given[:6], *given.tables)


def _backward(ctx: Any, do: torch.Tensor | None, dlse: torch.Tensor | None) -> tuple[Any, ...]:  # noqa: ANN401
    q, k, v, o, lse, *rest = ctx.saved_tensors
    given, derived = _AttentionArguments._make([*rest[:6], rest[6:], *ctx.how]), ctx.derived
    if given.table is not None:
        raise NotImplementedError("keys in pages have no gradients; use torch.no_grad(), or give them in one matrix")
    do = torch.zeros_like(o) if do is None else do
    dq, dk, dv, dsinks, dtables = _attention_varlen_backward(do, q, k, v, o, lse, dlse, *given, derived)
    grads = None if given.sinks is None else dsinks, gradients_of(dtables, given.tables, derived)
    return dq, dk, dv, *(None,) * 5, *grads, *(None,) * (len(_AttentionArguments._fields) - 7)


Shape = Sequence[int]


def _pairs(q: Shape, k: Shape, rest: Sequence[Any]) -> int:
    """Return the pairs of queries and keys, as if all sequences had one length: only the device knows the lengths."""
    given = _AttentionArguments(*rest[: len(_AttentionArguments._fields)])
    lengths = zip(rest, (1, 1, 0, 0), strict=False)
    count = next(shape[0] - beyond for shape, beyond in lengths if shape is not None)
    keys: int = k[0] if given.table is None else math.prod(given.table) * given.page
    pairs: int = q[0] * keys // max(count, 1)
    return pairs


def _flops(q: Shape, k: Shape, v: Shape, *rest: Any, **_: object) -> int:  # noqa: ANN401
    """Count the operations of both products, without masks.

    Examples
    --------
    >>> how = None, None, [], "", 0, 64, 128, 0.125, None, None, False
    >>> _flops((128, 2, 64), (256, 2, 64), (256, 2, 64), (3,), (3,), None, None, *how)
    8388608
    """
    return 2 * q[1] * _pairs(q, k, rest) * (q[2] + v[2])


@register_both(
    f"cutepy::attention_varlen({FORWARD}, {schema_of(_AttentionArguments)}) -> (Tensor, Tensor)",
    reference=_reference,
    fake=_fake,
    setup_context=_keep,
    backward=_backward,
    autocast=("q", "k", "v"),
    sharding=shardings.of_attention_varlen,
    flops=_flops,
    touches_all=False,
)
def _attention_varlen(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *rest: Any,  # noqa: ANN401
) -> tuple[torch.Tensor, torch.Tensor]:
    return _attend(q, k, v, _AttentionArguments(*rest), None)


@register_both(
    f"cutepy::quantised_attention_varlen({FORWARD}, {schema_of(QuantisedArguments)}, {schema_of(_AttentionArguments)}) "
    "-> (Tensor, Tensor)",
    reference=_reference_quantised,
    fake=_fake_quantised,
    sharding=shardings.of_quantised_attention_varlen,
    flops=lambda q, k, v, *rest, **_: _flops(q, k, v, *rest[len(QuantisedArguments._fields) :]),
    touches_all=False,
)
def _quantised_attention_varlen(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *rest: Any,  # noqa: ANN401
) -> tuple[torch.Tensor, torch.Tensor]:
    scaled, given = _parted(rest)
    return _attend(q, k, v, given, scaled)


def _attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, given: _AttentionArguments, scaled: QuantisedArguments | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Launch attention of sequences."""
    k, v, given = _to_launch(q, k, v, given)
    table, used = given.table, given.k_used
    if scaled is not None and table is not None and used is not None and table.numel() and is_repaged(given.page):
        _check(q, k, v, given, scaled)
        (k, v), table = repaged([each.unflatten(0, (-1, given.page)) for each in (k, v)], table, used)
        k, v, given = k.flatten(0, 1), v.flatten(0, 1), given._replace(table=table, page=k.shape[1])
    lengths, scales = given.lengths, () if scaled is None else scaled.scales
    packed = heads_packed(q.shape[1] // max(k.shape[1], 1), q.shape[0], lengths.count)
    # A function's tables may have an element for each sequence, as scales have.
    count = lengths.count if given.tables or given.page or scaled is not None else 0
    dtype = None if scaled is None else scaled.out_dtype
    key = (packed, *given[7:10], *given.how, *map(type, lengths.tensors), count, dtype, EXECUTION.backend is None)
    key = (*key, *described(q, k, v, given.table, given.sinks, *scales, *given.tables))
    launch = _launches.get(key)
    if launch is None:
        _check(q, k, v, given, scaled)
        launch = _launches.keep(key, _find_launch(q, k, v, given, packed, scaled))
    return launch(q, k, v, given, lengths, scales)


def _to_launch(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, given: _AttentionArguments
) -> tuple[torch.Tensor, torch.Tensor, _AttentionArguments]:
    """Return the arguments of the launch: tables beside q; and where there are no keys, one that no sequence has."""
    if given.tables:
        given = given._replace(tables=beside(q, given.tables))
    if k.shape[0]:
        return k, v, given
    k, v = (each.new_zeros(1, *each.shape[1:]) for each in (k, v))
    begins = q.new_zeros(given.lengths.count + 1, dtype=torch.int32)
    return k, v, given._replace(k_begins=begins, k_used=None, table=None, page=0)


def _find_launch(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    given: _AttentionArguments,
    packed: int,
    scaled: QuantisedArguments | None,
) -> Launch:
    """Plan the launch for tensors of this description, and compile the kernel."""
    tokens, heads, _ = q.shape
    shape, rows, dtype = (tokens, heads, v.shape[-1]), (1, heads, tokens), None if scaled is None else scaled.out_dtype
    if 0 in q.shape:
        return lambda q, k, v, *_: _results(q, v, dtype)
    scoring, lengths = scoring_of(given.functions, given.tables, given.sinks), given.lengths
    # Of no sequences there are no scales.
    scales = () if scaled is None or not lengths.count else scaled.given
    result = "" if dtype is None else dtype_name(dtype)
    how = lengths.given, given.most_queries, scoring
    launch = plan_forward(q, k, v, *given.how, *how, result=result, scales=scales, page=given.page, packed=packed)
    ways, has_gaps = tuple(map(way_to, (q, k, v))), lengths.q_used is not None
    make_o, make_lse = maker_of(q, shape, dtype), maker_of(q, rows, torch.float32)

    def run(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        given: _AttentionArguments,
        lengths: Lengths,
        given_scales: Sequence[torch.Tensor | None],
    ) -> tuple[torch.Tensor, torch.Tensor]:
        o, lse = make_o(), make_lse()
        if has_gaps:
            o.zero_()
            lse.fill_(-math.inf)
        made = go(ways, (q, k, v))
        read = forward_reads(given.tables, given.sinks, (), given_scales if scales else ())
        launch(*made, o, lse, lengths.tensors, read, given.table)
        return o, lse[0]

    return run


Grads = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
"""Gradients of q, k, v and the sinks, and those of tables, one after another."""


def _fake_backward(
    do: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
    dlse: torch.Tensor | None,
    *rest: Any,  # noqa: ANN401
) -> Grads:
    *asked, derived = rest
    given = _AttentionArguments(*asked)
    return *grads_like(q, k, v), dsinks_like(q, given.sinks), dtables_like(q, given.tables, derived)


def _reference_backward(
    do: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
    dlse: torch.Tensor | None,
    *rest: Any,  # noqa: ANN401
) -> Grads:
    *asked, derived = rest
    given = _AttentionArguments(*asked)
    grads = *grads_like(q, k, v), dsinks_like(q, given.sinks), dtables_like(q, given.tables, derived)
    dq, dk, dv, dsinks, dtables = grads
    for each in grads:
        each.zero_()
    for rows, keys, scored in _each_sequence(q, k, given, derived):
        of_lse = None if dlse is None else dlse[None, :, rows]
        of_each = q[None, rows], k[None, keys], v[None, keys]
        found = scored.backward(do[None, rows], *of_each, of_lse, *given.how)
        dq[rows], dk[keys], dv[keys] = (each[0] for each in found[:3])
        of_sinks = found[3]
        if of_sinks is not None:
            dsinks += of_sinks
        dtables += found[4]
    return grads


def _flops_backward(
    do: Shape,
    q: Shape,
    k: Shape,
    v: Shape,
    o: Shape,
    lse: Shape,
    dlse: Shape,
    *rest: Any,  # noqa: ANN401
    **_: object,
) -> int:
    """Count the operations of the five products, as `_flops` does."""
    return 2 * q[1] * _pairs(q, k, rest) * (3 * q[2] + 2 * v[2])


@register_both(
    f"cutepy::attention_varlen_backward({BACKWARD}, {schema_of(_AttentionArguments)}, int[] derived) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    reference=_reference_backward,
    fake=_fake_backward,
    sharding=shardings.of_attention_varlen_backward,
    flops=_flops_backward,
    touches_all=False,
)
def _attention_varlen_backward(
    do: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
    dlse: torch.Tensor | None,
    *rest: Any,  # noqa: ANN401
) -> Grads:
    *asked, derived = rest
    keys = k.shape[0]
    k, v, given = _to_launch(q, k, v, _AttentionArguments(*asked))
    grads, dsinks, sinks = grads_like(q, k, v), dsinks_like(q, given.sinks), given.sinks
    dtables = dtables_like(q, given.tables, derived)
    if 0 in q.shape or given.q_used is not None or given.k_used is not None:
        for each in (*grads, dsinks):
            each.zero_()
    if 0 not in q.shape:
        dlse = None if dlse is None else dlse[None]
        is_ordered = adds_in_order(deterministic=given.deterministic, has_tables=bool(derived))
        gradient_settings = GradientSettings(*given.how, is_ordered, given.functions, (), derived, given.most_keys)
        taken = gradient_settings, given.tables, dtables, (), given.lengths
        stats = launch_gradients((do, q, k, v, o), lse[None], dlse, grads, *taken)
        dsinks = dsinks if sinks is None else dsinks_of(sinks, stats)
    dq, dk, dv = grads
    return (dq, dk, dv, dsinks, dtables) if keys else (dq, dk[:0], dv[:0], dsinks, dtables)
