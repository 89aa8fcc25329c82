"""Attention of new queries with cached keys as an operation of PyTorch: of any lengths, in pages or not."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from cutepy.epilogues.scores import MaskFunction, ScoreFunction
from cutepy.host.launches import Launches, described, maker_of
from cutepy.kernels.attention import reference
from cutepy.kernels.attention.cascade import keys_shared, plan_cascade
from cutepy.kernels.attention.choice import DECODE_ROWS
from cutepy.kernels.attention.config import CachedKeys, Lengths
from cutepy.kernels.attention.op import NOTHING_READ, forward_reads, plan_cached, plan_decode
from cutepy.kernels.gemm.operands import dtype_name
from cutepy.kernels.gemm.routes import viewing
from cutepy.ops import shardings
from cutepy.ops.attention_arguments import (
    ALL_KEYS,
    DTYPES,
    FORWARD,
    Window,
    as_cached,
    check,
    go,
    is_reachable,
    results_like,
    settings,
    unread,
    way_to,
)
from cutepy.ops.attention_functions import Tensors, beside, check_reach, check_scoring, read_by, scoring_of
from cutepy.ops.attention_scales import FLOAT8, QuantisedArguments, quantised, refuse_scales
from cutepy.ops.checking import as_tensor, require_tensors
from cutepy.ops.foreign_arguments import refuse_unknown
from cutepy.ops.operation import GRADIENT, only_launches, road
from cutepy.ops.registration import register_both
from cutepy.ops.repaging import is_repaged, repaged
from cutepy.ops.schemas import schema_of
from cutepy.runtime.execution import EXECUTION
from cutepy.runtime.invariance import INVARIANCE

Launch = Callable[..., tuple[torch.Tensor, torch.Tensor]]

_launches: Launches[Launch] = Launches()


def attention_decode(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    *,
    cache_seqlens: torch.Tensor | None = None,
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
    common_prefix_len: int = 0,
    q_scale: torch.Tensor | None = None,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Compute softmax(scale q k^T) v of new queries with cached keys, whose numbers only the device knows.

    Where queries are few, several CTAs have parts of a sequence's keys, and a second kernel combines their results.
    Queries of heads that share keys are rows of one tile. The last query is at the position of the last key. Keys
    beyond a sequence's length are not read, nor the rest of the block table. A query that sees no key has an output of
    zeros.

    Parameters
    ----------
    q : Tensor (batch, queries, heads, head)
        float16, bfloat16 or float8_e4m3fn, head a multiple of 16 up to 256. Within autocast, float32 is cast to the
        cache's dtype.
    k_cache : Tensor (batch, keys, kv heads, head), or, with `block_table`, (pages, keys of a page, kv heads, head)
        Any strides by which pages, or sequences, are whole steps of keys apart: also a view
        `cache.transpose(1, 2)` of (pages, kv heads, keys of a page, head).
    v_cache : Tensor, as k_cache, (..., head of v)
    cache_seqlens : Tensor (batch,), int32, optional
        Keys of each sequence; all that the cache has if not given, which `block_table` needs.
    block_table : Tensor (batch, pages of a sequence), int32, optional
        The numbers of each sequence's pages. TMA copies pages of a multiple of 8 keys, and threads all others; those of
        8 bits are copied to larger pages first.
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
        As of `cutepy.ops.attention`. Query 0 is the first of q, and key 0 the sequence's first; `keys` is its length.
    common_prefix_len : int
        Keys at the beginning that are the same for all sequences, as of a system prompt, among their lengths. Those
        of the first sequence are read once, for up to 64 queries of each sequence that has so many keys and sees all.
        Others read their own, as all do with windows that have a beginning, with functions of the scores or sinks, of
        8-bit floats, and within `batch_invariant`.
    q_scale, k_scale, v_scale : Tensor, optional
        Positive factors of float8_e4m3fn, float32: one element, or (batch, kv heads) for each sequence and head.
    out_dtype : float16 or bfloat16, optional
        Of the output of float8_e4m3fn; bfloat16 if not given.

    Returns
    -------
    Tensor (batch, queries, heads, head of v), or a pair of it and a Tensor (batch, heads, queries) of float32
        Without derivatives.

    Raises
    ------
    TypeError
        If the dtypes are others, or differ.
    ValueError
        If the shapes don't match, or a setting is out of range.

    Examples
    --------
    >>> import torch
    >>> q = torch.randn(2, 1, 8, 64, dtype=torch.bfloat16)
    >>> k_cache, v_cache = (torch.randn(9, 16, 2, 64, dtype=torch.bfloat16) for _ in range(2))
    >>> table = torch.tensor([[3, 1, 8], [0, 2, 0]], dtype=torch.int32)
    >>> lengths = torch.tensor([40, 17], dtype=torch.int32)
    >>> attention_decode(q, k_cache, v_cache, cache_seqlens=lengths, block_table=table).shape
    torch.Size([2, 1, 8, 64])
    """
    try:
        q = as_cached(q, k_cache.dtype)
        scale, left, right = settings(q, window, scale, causal=causal)
        read, scales = read_by(q, (soft_cap, alibi_slopes, score, mask, operands), sinks), (q_scale, k_scale, v_scale)
        given: tuple[Any, ...] = (
            q,
            k_cache,
            v_cache,
            cache_seqlens,
            block_table,
            *read,
            scale,
            left,
            right,
            common_prefix_len,
        )
        if q.dtype == FLOAT8:
            of_8_bits = quantised((q, k_cache, v_cache), scales, out_dtype, sinks, batch=q.shape[0])
            given = (*given, *of_8_bits)
        else:
            refuse_scales(q, scales, out_dtype)
            given = (*given, None, None, None, None)
        return _attention_decode(*given) if return_lse else _output(given)
    except (AttributeError, IndexError, TypeError, ValueError):
        require_tensors(attention_decode, locals())
        raise


def flash_attn_with_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    cache_seqlens: torch.Tensor | int | None = None,
    block_table: torch.Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = ALL_KEYS,
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    return_softmax_lse: bool = False,
    learnable_sink: torch.Tensor | None = None,
    q_descale: torch.Tensor | None = None,
    k_descale: torch.Tensor | None = None,
    v_descale: torch.Tensor | None = None,
    **unknown: object,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Compute attention with the arguments of flash-attn's `flash_attn_with_kvcache`, of keys that are in the cache.

    The last three are `q_scale`, `k_scale` and `v_scale` of `attention_decode`, for float8_e4m3fn.
    """
    if unknown:
        refuse_unknown(flash_attn_with_kvcache, unknown)
    if isinstance(cache_seqlens, int):
        cache_seqlens = torch.full((as_tensor("q", q).shape[0],), cache_seqlens, dtype=torch.int32, device=q.device)
    return attention_decode(
        q,
        k_cache,
        v_cache,
        cache_seqlens=cache_seqlens,
        block_table=block_table,
        causal=causal,
        window=window_size,
        scale=softmax_scale,
        return_lse=return_softmax_lse,
        soft_cap=softcap or None,
        alibi_slopes=alibi_slopes,
        sinks=learnable_sink,
        q_scale=q_descale,
        k_scale=k_descale,
        v_scale=v_descale,
    )


def _output(given: tuple[Any, ...]) -> torch.Tensor:
    """Compute attention with all arguments of the operation, without the logarithms."""
    way = 0 if torch.compiler.is_compiling() else road((*given, *given[6]))
    if only_launches(way) and way < GRADIENT:
        o, _ = _attend(*given, has_lse=False)
    else:
        o, _ = _attention_decode.along(way, given)
    return o


class _AttentionArguments(NamedTuple):
    """Arguments of the operation after q, k and v.

    Attributes
    ----------
    lengths : Tensor (batch,), int32, or None
    table : Tensor (batch, pages), int32, or None
    sinks : Tensor (heads,), float32, or None
    tables : list of Tensor
    functions : str
        As of `cutepy.ops.attention_functions`.
    scale : float
    left, right : int or None
        The band's bounds.
    common : int
        Keys at the beginning that all sequences share.
    q_scale, k_scale, v_scale : Tensor (batch, kv heads, 1), float32, or None
        Of 8-bit floats.
    out_dtype : dtype or None
        Of their results.
    """

    lengths: torch.Tensor | None
    table: torch.Tensor | None
    sinks: torch.Tensor | None
    tables: Tensors
    functions: str
    scale: float
    left: int | None
    right: int | None
    common: int = 0
    q_scale: torch.Tensor | None = None
    k_scale: torch.Tensor | None = None
    v_scale: torch.Tensor | None = None
    out_dtype: torch.dtype | None = None

    @property
    def how(self) -> tuple[float, int | None, int | None]:
        """Scale and bounds."""
        return self.scale, self.left, self.right

    @property
    def quantised(self) -> QuantisedArguments | None:
        """Scales and the dtype of results of 8-bit floats; None of others."""
        return None if self.out_dtype is None else QuantisedArguments(*self[9:12], self.out_dtype)

    def check(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        """Check all that can be told without data."""
        quantised, table = self.quantised, self.table
        check(q, k, v, self.scale, has_batch=table is None, dtypes=DTYPES if quantised is None else (FLOAT8,))
        if k.shape[:2] != v.shape[:2]:
            raise ValueError(
                f"k_cache and v_cache must have the same pages, got {tuple(k.shape)} and {tuple(v.shape)}; slice one"
            )
        check_lengths(q, k.shape[1], self.lengths, table)
        keys = k.shape[1] if self.lengths is None else None
        check_scoring(q, self.sinks, self.tables, self.functions, (*q.shape[:2], keys))
        if quantised is not None:
            quantised.check_sequences(q.shape[0], k.shape[2])
        most = _most_keys(k, table)
        if not isinstance(self.common, (int, torch.SymInt)) or not 0 <= self.common <= most:
            raise ValueError(
                f"common_prefix_len must be an integer from 0 to the {most} keys that a sequence can have, got "
                f"{self.common!r}; 0 shares none"
            )


def _most_keys(k: torch.Tensor, table: torch.Tensor | None) -> int:
    """Return how many keys a sequence can have."""
    return k.shape[1] * (1 if table is None else table.shape[1])


def check_lengths(q: torch.Tensor, keys: int, lengths: torch.Tensor | None, table: torch.Tensor | None) -> None:
    """Check the lengths of cached sequences, and their table, beside queries and the keys of a page or a sequence.

    Raises
    ------
    ValueError
        If they are no such tensors, the lengths are missing, or pages have no keys.
    """
    for name, given, shape in (("cache_seqlens", lengths, (q.shape[0],)), ("block_table", table, (q.shape[0], None))):
        if given is None:
            continue
        is_shape = given.dim() == len(shape) and given.shape[0] == q.shape[0]
        if given.dtype != torch.int32 or not is_shape or not given.is_contiguous() or given.device != q.device:
            wanted = "(batch,)" if len(shape) == 1 else "(batch, pages)"
            raise ValueError(
                f"{name} must be a contiguous tensor {wanted} of int32 on {q.device}, with a batch of {q.shape[0]}, "
                f"got {given.dtype} of shape {tuple(given.shape)} on {given.device}; convert or copy it"
            )
    if table is None:
        return
    if lengths is None:
        raise ValueError("a block_table needs cache_seqlens: how many keys each sequence has, got None; pass them")
    if not keys:
        raise ValueError("pages must have at least one key, got 0; pass no block_table where there are no keys")


def pitch_of(name: str, cache: torch.Tensor) -> int:
    """Return the rows of a cache's matrix from one page, or sequence, to the next: those of other heads may be between.

    Raises
    ------
    ValueError
        If pages are not whole rows apart.
    """
    pages, keys = cache.shape[:2]
    page_step, row_step = cache.stride()[:2]
    if pages == 1:
        return keys
    if keys == 1:
        return 1
    if row_step <= 0 or page_step <= 0 or page_step % row_step:
        raise ValueError(
            f"pages, or sequences, of {name} must be whole steps of keys apart in memory, as those of "
            "(pages, keys, heads, head), and of (pages, heads, keys, head).transpose(1, 2); got strides "
            f"{cache.stride()} of shape {tuple(cache.shape)}; copy it"
        )
    return page_step // row_step


def _one_pitch(k: torch.Tensor, v: torch.Tensor) -> int:
    pitches = pitch_of("k_cache", k), pitch_of("v_cache", v)
    if pitches[0] != pitches[1]:
        raise ValueError(
            "pages, or sequences, of k_cache and v_cache must be as many rows apart, got "
            f"{pitches[0]} and {pitches[1]}; copy one of them"
        )
    return pitches[0]


def matrix_of(cache: torch.Tensor, pitch: int) -> torch.Tensor:
    """View a cache as one matrix for each head, (rows, kv heads, head), in which pages are so many rows apart."""
    pages, keys, heads, head = cache.shape
    steps = cache.stride()
    row_step = steps[0] if keys == 1 else steps[1]
    return cache.as_strided(((pages - 1) * pitch + keys, heads, head), (row_step, *steps[2:]))


def _fake(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: Any) -> tuple[torch.Tensor, torch.Tensor]:  # noqa: ANN401
    given = _AttentionArguments(*rest)
    given.check(q, k, v)
    return results_like(q, v, given.out_dtype)


def _reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: Any) -> tuple[torch.Tensor, torch.Tensor]:  # noqa: ANN401
    given = _AttentionArguments(*rest)
    given.check(q, k, v)
    lengths, table = given.lengths, given.table
    functions = given.functions, given.tables, given.sinks
    return attend_each(q, k, v, lengths, table, *given.how, *functions, quantised=given.quantised)


def attend_each(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    lengths: torch.Tensor | None,
    table: torch.Tensor | None,
    scale: float,
    left: int | None,
    right: int | None,
    functions: str = "",
    tables: Tensors = (),
    sinks: torch.Tensor | None = None,
    quantised: QuantisedArguments | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute attention of each sequence with its own keys in plain torch; arguments have been checked."""
    o, lse = results_like(q, v, None if quantised is None else quantised.out_dtype)
    page = k.shape[1]
    for batch in range(q.shape[0]):
        count = page if lengths is None else int(lengths[batch])
        if table is None:
            keys, values = k[batch, : max(count, 0)], v[batch, : max(count, 0)]
        else:
            count = min(max(count, 0), table.shape[1] * page)
            pages = table[batch, : -(-count // page)].long()
            keys, values = (each[pages].flatten(0, 1)[:count] for each in (k, v))
        scored = reference.ReferenceAttention(functions, tables, sinks, first_batch=batch)
        of_each = q[batch][None], keys[None], values[None]
        if quantised is not None:
            of_each = quantised.dequantised(of_each, batch)
        found = scored.forward(*of_each, scale, left, right)
        o[batch], lse[batch] = (each[0] for each in found)
    return o, lse


def _flops(
    q: tuple[int, ...],
    k: tuple[int, ...],
    v: tuple[int, ...],
    lengths: object,
    table: tuple[int, ...] | None,
    *_: object,
    **__: object,
) -> int:
    """Count the operations of both products with all keys that the cache may have.

    Examples
    --------
    >>> _flops((2, 1, 8, 64), (9, 16, 2, 64), (9, 16, 2, 64), (2,), (2, 3))
    196608
    """
    keys = k[1] * (1 if table is None else table[1])
    return 2 * math.prod(q[:3]) * keys * (q[3] + v[3])


@register_both(
    f"cutepy::attention_decode({FORWARD}, {schema_of(_AttentionArguments)}) -> (Tensor, Tensor)",
    reference=_reference,
    fake=_fake,
    sharding=shardings.of_attention_decode,
    flops=_flops,
    touches_all=False,
)
def _attention_decode(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *rest: Any,  # noqa: ANN401
) -> tuple[torch.Tensor, torch.Tensor]:
    return _attend(q, k, v, *rest, has_lse=True)


def _attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *rest: Any,  # noqa: ANN401
    has_lse: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Launch, with new memory for the logarithms only if `has_lse`."""
    lengths, table, sinks, tables, *how, q_scale, k_scale, v_scale, out_dtype = rest
    tables = beside(q, tables)
    read = sinks, q_scale, k_scale, v_scale, *tables
    key = (
        *how,
        out_dtype,
        has_lse,
        INVARIANCE.on,
        EXECUTION.backend is None,
        *described(q, k, v, lengths, table, *read),
    )
    launch = _launches.get(key)
    if launch is None:
        given = _AttentionArguments(*rest)._replace(tables=tables)
        given.check(q, k, v)
        launch = _launches.keep(key, _find_launch(q, k, v, given, has_lse=has_lse))
    return launch(q, k, v, lengths, table, read)


def _find_launch(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, asked: _AttentionArguments, *, has_lse: bool = True
) -> Launch:
    """Plan the launch for tensors of this description, and compile the kernels."""
    lengths, table, sinks, tables, functions, scale, left, right, common, *_ = asked
    batch, queries, heads, _ = q.shape
    kv_heads, head_v, group = k.shape[2], v.shape[3], heads // max(k.shape[2], 1)
    most_keys, dtype = _most_keys(k, table), asked.out_dtype
    if 0 in q.shape or not most_keys or 0 in k.shape:
        shape, of_rows = (batch, queries, heads, head_v), (batch, heads, queries)

        def of_nothing(q: torch.Tensor, *rest: Any) -> tuple[torch.Tensor, torch.Tensor]:  # noqa: ANN401
            lse, sinks = q.new_full(of_rows, -math.inf, dtype=torch.float32), rest[-1][0]
            return q.new_zeros(shape, dtype=dtype), lse if sinks is None else lse.copy_(sinks[:, None].expand_as(lse))

        return of_nothing
    # Threads that would copy keys of such pages one by one transpose 8-bit values.
    if table is not None and lengths is not None and asked.quantised is not None and is_repaged(k.shape[1]):
        (k, v), of_copies = repaged((k, v), table, lengths)
        of_pages = _find_launch(q, k, v, asked._replace(table=of_copies), has_lse=has_lse)

        def launch_copies(q: torch.Tensor, k: Any, v: Any, lengths: Any, table: Any, read: Any) -> Any:  # noqa: ANN401
            (k, v), table = repaged((k, v), table, lengths)
            return of_pages(q, k, v, lengths, table, read)

        return launch_copies
    page = 0 if table is None else k.shape[1]
    given = None if lengths is None else Lengths(k_used=True)
    is_packed = queries * group <= DECODE_ROWS and group > 1
    has_lengths, pitch = lengths is not None, k.shape[1]

    def rows_of(q: torch.Tensor) -> torch.Tensor:
        """View queries of heads that share keys as rows: (batch, queries * group, kv heads, head)."""
        grouped: torch.Tensor = q.unflatten(2, (kv_heads, group)).transpose(2, 3).flatten(1, 2)
        return grouped

    def in_sequence(q: torch.Tensor) -> torch.Tensor:
        """View queries of all sequences as those of one."""
        return q.flatten(0, 1)[None]

    def in_rows(cache: torch.Tensor) -> torch.Tensor:
        return matrix_of(cache, pitch)

    def copied(cache: torch.Tensor) -> torch.Tensor:
        return cache.contiguous().flatten(0, 1)

    scoring = scoring_of(functions, tables, sinks)
    if is_packed:
        scoring = scoring.of_packed_heads(group)
        check_reach(scoring.graph, tables)
    packed = rows_of(q) if is_packed else q
    ways, of_caches = [way_to(q, rows_of if is_packed else None)], None
    if has_lengths:
        of_caches = in_rows if all(map(is_reachable, (k, v))) else copied
        pitch = _one_pitch(k, v) if of_caches is in_rows else pitch
    ways += [way_to(each, of_caches) for each in (k, v)]
    caches = (k, v) if of_caches is None else (of_caches(k), of_caches(v))
    own_pitch = None if pitch == k.shape[1] else pitch
    cached = None if own_pitch is None else CachedKeys(own_pitch)
    sharing = group if is_packed else None
    shared = 0 if scoring.suffix or dtype is not None else keys_shared(q, v, common, left)
    of_8_bits: dict[str, Any] = {}
    if asked.quantised is not None and dtype is not None:
        of_8_bits = {"result": dtype_name(dtype), "scales": asked.quantised.given}
    if shared:
        launch = plan_cascade(
            packed, in_sequence(q), *caches, shared, scale, right, given, most_keys, page, sharing, own_pitch
        )
    elif queries <= DECODE_ROWS:
        launch = plan_decode(
            packed, *caches, scale, left, right, given, most_keys, page, sharing, scoring, cached, **of_8_bits
        )
    else:
        launch = plan_cached(packed, *caches, scale, left, right, given, page, scoring, cached, **of_8_bits)
    way_beside = way_to(q, in_sequence) or in_sequence
    reads_nothing = not (scoring.suffix or of_8_bits)
    of_o, of_lse = (batch, queries, heads, head_v), (batch, heads, queries)
    rows = queries * group
    o_rows = (batch, rows, kv_heads, head_v), (queries * heads * head_v, head_v, group * head_v, 1)
    lse_rows = (batch, kv_heads, rows), (kv_heads * rows, rows, 1)
    # Rows of one query, and O of all heads, lie in the results at one step; others are put in order afterwards.
    has_o_in_order, has_lse_in_order = queries == 1 or kv_heads == 1, queries == 1
    make_o, make_lse = maker_of(q, of_o, dtype), maker_of(q, of_lse, torch.float32)
    as_o, as_lse = viewing(o_rows), viewing(lse_rows)
    if not has_lse:
        kept = unread(q, lse_rows[0] if is_packed else of_lse)
        make_lse, as_lse, has_lse_in_order = lambda: kept, lambda lse: lse, True

    def run(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        lengths: torch.Tensor | None,
        table: torch.Tensor | None,
        read: tuple[torch.Tensor | None, ...],
    ) -> tuple[torch.Tensor, torch.Tensor]:
        used: Any = None if lengths is None else Lengths(k_used=lengths) if shared else (None, None, None, lengths)
        if shared:
            last: Any = way_beside(q)
        elif reads_nothing:
            last = NOTHING_READ
        else:
            sinks, q_scale, k_scale, v_scale, *tables = read
            last = forward_reads(tables, sinks, (), (q_scale, k_scale, v_scale))  # type: ignore[arg-type]
        made = go(ways, (q, k, v))
        o, lse = make_o(), make_lse()
        if not is_packed:
            launch(*made, o, lse, used, table, last)
            return o, lse
        packed_o = as_o(o) if has_o_in_order else o.view(o_rows[0])
        packed_lse = as_lse(lse) if has_lse_in_order else lse.view(lse_rows[0])
        launch(*made, packed_o, packed_lse, used, table, last)
        if not has_o_in_order:
            o = packed_o.unflatten(1, (queries, group)).transpose(2, 3).reshape(of_o)
        if not has_lse_in_order:
            lse = packed_lse.unflatten(2, (queries, group)).transpose(2, 3).reshape(of_lse)
        return o, lse

    return run
