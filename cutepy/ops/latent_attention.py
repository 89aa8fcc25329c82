"""Multi-head latent attention with cached keys as an operation of PyTorch: of any lengths, in pages or not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from cutepy.host.launches import Launches, described, maker_of
from cutepy.kernels.gemm.routes import viewing_whole
from cutepy.kernels.mla.config import HEAD, LATENT, QUANTISED_BYTES
from cutepy.kernels.mla.op import plan
from cutepy.ops import shardings
from cutepy.ops.attention_arguments import DTYPES, View, as_cached, check_scale, results_like, way_to
from cutepy.ops.checking import require_tensors
from cutepy.ops.decode_attention import attend_each, check_lengths, matrix_of, pitch_of
from cutepy.ops.foreign_arguments import refuse_unknown
from cutepy.ops.latent_cache import dequantise_mla_cache
from cutepy.ops.registration import register_both
from cutepy.ops.repaging import is_repaged, repaged
from cutepy.runtime.execution import EXECUTION
from cutepy.runtime.invariance import INVARIANCE

Launch = Callable[..., tuple[torch.Tensor, torch.Tensor]]

_launches: Launches[Launch] = Launches()


def attention_mla(
    q: torch.Tensor,
    cache: torch.Tensor,
    *,
    cache_seqlens: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    return_lse: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Compute softmax(scale q k^T) v of new queries with cached latent rows: k is a row, and v its first 512 columns.

    Queries have absorbed the projection from the latent space, so that all heads share one row a token (DeepSeek-V2's
    multi-head latent attention). The keys of all sequences are dealt out to the SMs in equal parts, which the device
    computes from the lengths; a second kernel combines partial results. The last query is at the position of the last
    key. Keys beyond a sequence's length are not read, nor the rest of the block table. A query that sees no key has an
    output of zeros.

    Parameters
    ----------
    q : Tensor (batch, queries, heads, 576)
        float16 or bfloat16. Within autocast, float32 is cast to the cache's dtype, or to bfloat16 beside one of bytes.
    cache : Tensor (batch, keys, 576), or, with `block_table`, (pages, keys of a page, 576)
        A mode of one head may be before the last. Pages, or sequences, are whole steps of rows apart. Or, for q of
        bfloat16, rows of 656 bytes, uint8 or float8_e4m3fn, as `quantise_mla_cache` makes them: FlashMLA's format.
        Their latent columns are dequantised to bfloat16 in shared memory.
    cache_seqlens : Tensor (batch,), int32, optional
        Keys of each sequence; all that the cache has if not given, which `block_table` needs.
    block_table : Tensor (batch, pages of a sequence), int32, optional
        The numbers of each sequence's pages. Pages of other numbers of keys than multiples of 8 are copied first.
    causal : bool
        True if a query sees no key after its position.
    scale : float, optional
        Positive factor of the scores; 1 / sqrt(576) if not given.
    return_lse : bool
        True to return the natural logarithms of the rows' sums of exp(score) too.

    Returns
    -------
    Tensor (batch, queries, heads, 512), or a pair of it and a Tensor (batch, heads, queries) of float32
        Without derivatives.

    Raises
    ------
    TypeError
        If the dtypes are others, or differ.
    ValueError
        If the shapes don't match, or the scale is not positive.

    Examples
    --------
    >>> import torch
    >>> q = torch.randn(2, 1, 16, 576, dtype=torch.bfloat16)
    >>> cache = torch.randn(9, 64, 576, dtype=torch.bfloat16)
    >>> table = torch.tensor([[3, 1, 8], [0, 2, 0]], dtype=torch.int32)
    >>> lengths = torch.tensor([140, 67], dtype=torch.int32)
    >>> attention_mla(q, cache, cache_seqlens=lengths, block_table=table).shape
    torch.Size([2, 1, 16, 512])
    """
    try:
        scale = HEAD**-0.5 if scale is None else scale
        if cache.dtype == torch.float8_e4m3fn:
            cache = cache.view(torch.uint8)
        q = as_cached(q, torch.bfloat16 if cache.dtype == torch.uint8 else cache.dtype)
        o, lse = _attention_mla(q, cache, cache_seqlens, block_table, scale, causal)
        return (o, lse) if return_lse else o
    except (AttributeError, IndexError, TypeError, ValueError):
        require_tensors(attention_mla, locals())
        raise


def flash_mla_with_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    block_table: torch.Tensor,
    cache_seqlens: torch.Tensor,
    head_dim_v: int = LATENT,
    tile_scheduler_metadata: object = None,
    num_splits: object = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    is_fp8_kvcache: bool = False,
    **unknown: object,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute latent attention with the arguments of FlashMLA's function of this name; schedules are not read."""
    if unknown:
        refuse_unknown(flash_mla_with_kvcache, unknown)
    try:
        if head_dim_v != LATENT:
            raise ValueError(f"head_dim_v must be {LATENT}, got {head_dim_v}; call attention_decode for others")
        if is_fp8_kvcache != (k_cache.element_size() == 1):
            raise ValueError(
                f"is_fp8_kvcache must be True for a cache of bytes, and False for others, got {is_fp8_kvcache} and "
                f"{k_cache.dtype}; quantise_mla_cache makes bytes"
            )
        o, lse = attention_mla(
            q,
            k_cache,
            cache_seqlens=cache_seqlens,
            block_table=block_table,
            causal=causal,
            scale=softmax_scale,
            return_lse=True,
        )
        return o, lse
    except (AttributeError, IndexError, TypeError, ValueError):
        require_tensors(flash_mla_with_kvcache, locals())
        raise


def _check(
    q: torch.Tensor, cache: torch.Tensor, lengths: torch.Tensor | None, table: torch.Tensor | None, scale: float
) -> None:
    """Check all that can be told without data."""
    has_head = cache.dim() == 4 and cache.shape[2] == 1
    is_quantised = cache.dtype == torch.uint8
    columns = QUANTISED_BYTES if is_quantised else HEAD
    if q.dim() != 4 or q.shape[3] != HEAD or not (has_head or cache.dim() == 3) or cache.shape[-1] != columns:
        raise ValueError(
            f"q must be (batch, queries, heads, {HEAD}) and the cache (batch or pages, keys, {columns}), got shapes "
            f"{tuple(q.shape)} and {tuple(cache.shape)}; concatenate latent and rotated columns"
        )
    if q.dtype not in DTYPES or (cache.dtype != q.dtype and not (is_quantised and q.dtype == torch.bfloat16)):
        raise TypeError(
            "q and the cache must be both float16 or both bfloat16, or bfloat16 and bytes, got "
            f"{q.dtype} and {cache.dtype}; convert them"
        )
    if cache.device != q.device:
        raise ValueError(f"q and the cache must be on one device, got {q.device} and {cache.device}; move one")
    if table is None and cache.shape[0] != q.shape[0]:
        raise ValueError(
            f"without a block_table q and the cache must have one batch, got {q.shape[0]} and {cache.shape[0]}; "
            "pass a block_table"
        )
    check_scale(scale)
    check_lengths(q, cache.shape[1], lengths, table)


def _fake(
    q: torch.Tensor,
    cache: torch.Tensor,
    lengths: torch.Tensor | None,
    table: torch.Tensor | None,
    scale: float,
    causal: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    _check(q, cache, lengths, table, scale)
    return results_like(q, q[..., :LATENT])


def _reference(
    q: torch.Tensor,
    cache: torch.Tensor,
    lengths: torch.Tensor | None,
    table: torch.Tensor | None,
    scale: float,
    causal: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    _check(q, cache, lengths, table, scale)
    rows = dequantise_mla_cache(cache) if cache.dtype == torch.uint8 else cache
    keys = rows.view(*rows.shape[:2], 1, HEAD)
    return attend_each(q, keys, keys[..., :LATENT], lengths, table, scale, None, 0 if causal else None)


def _flops(
    q: tuple[int, ...],
    cache: tuple[int, ...],
    lengths: object,
    table: tuple[int, ...] | None,
    *_: object,
    **__: object,
) -> int:
    """Count the operations of both products with all keys that the cache may have.

    Examples
    --------
    >>> _flops((2, 1, 8, 576), (9, 16, 576), (2,), (2, 3))
    1671168
    """
    keys = cache[1] * (1 if table is None else table[1])
    return 2 * math.prod(q[:3]) * keys * (HEAD + LATENT)


@register_both(
    "cutepy::attention_mla",
    reference=_reference,
    fake=_fake,
    sharding=shardings.of_attention_mla,
    flops=_flops,
    touches_all=False,
)
def _attention_mla(
    q: torch.Tensor,
    cache: torch.Tensor,
    lengths: torch.Tensor | None,
    table: torch.Tensor | None,
    scale: float,
    causal: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    key = (scale, causal, INVARIANCE.on, EXECUTION.backend is None, *described(q, cache, lengths, table))
    launch = _launches.get(key)
    if launch is None:
        _check(q, cache, lengths, table, scale)
        launch = _launches.keep(key, _find_launch(q, cache, lengths, table, scale, causal=causal))
    return launch(q, cache, lengths, table)


def _find_launch(
    q: torch.Tensor,
    cache: torch.Tensor,
    lengths: torch.Tensor | None,
    table: torch.Tensor | None,
    scale: float,
    *,
    causal: bool,
) -> Launch:
    """Plan the launch for tensors of this description, and compile the kernels."""
    batch, queries, heads, _ = q.shape
    page = 0 if table is None else cache.shape[1]
    most_keys = cache.shape[1] * (1 if table is None else table.shape[1])
    of_o, of_lse = (batch, queries, heads, LATENT), (batch, heads, queries)
    if 0 in q.shape or not most_keys or 0 in cache.shape:
        return lambda q, *_: (q.new_zeros(of_o), q.new_full(of_lse, -math.inf, dtype=torch.float32))

    if lengths is not None and table is not None and is_repaged(page):
        (copy,), of_copy = repaged([cache], table, lengths)
        of_pages = _find_launch(q, copy, lengths, of_copy, scale, causal=causal)

        def launch_copy(q: torch.Tensor, cache: torch.Tensor, lengths: Any, table: Any) -> Any:  # noqa: ANN401
            (copy,), of_copy = repaged([cache], table, lengths)
            return of_pages(q, copy, lengths, of_copy)

        return launch_copy

    def rows_of(q: torch.Tensor) -> torch.Tensor:
        """View queries and heads as rows."""
        rows: torch.Tensor = q.flatten(1, 2)
        return rows

    def with_head(cache: torch.Tensor) -> torch.Tensor:
        return cache if cache.dim() == 4 else cache.unsqueeze(2)

    pitch = pitch_of("the cache", with_head(cache))

    def all_of(cache: torch.Tensor) -> torch.Tensor:
        """View all pages, or sequences, as one matrix."""
        return matrix_of(with_head(cache), pitch).squeeze(1)

    ways = way_to(q, rows_of), way_to(cache, all_of)
    launch = plan(
        *_seen(ways, q, cache),
        scale,
        heads,
        causal=causal and queries > 1,
        page=page,
        most_keys=most_keys,
        has_lengths=lengths is not None,
        pitch=None if pitch == cache.shape[1] else pitch,
    )

    make_o, make_lse = maker_of(q, of_o), maker_of(q, (batch, queries * heads), torch.float32)
    as_rows, as_heads = viewing_whole((batch, queries * heads, LATENT)), viewing_whole(of_lse)

    def run(
        q: torch.Tensor, cache: torch.Tensor, lengths: torch.Tensor | None, table: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        rows, keys = _seen(ways, q, cache)
        o, lse = make_o(), make_lse()
        launch(rows, keys, as_rows(o), lse, lengths, table)
        if queries == 1:
            return o, as_heads(lse)
        return o, lse.view(batch, queries, heads).transpose(1, 2).contiguous()

    return run


def _seen(
    ways: tuple[View | None, View | None], q: torch.Tensor, cache: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the queries and the cache as the kernel takes them."""
    of_q, of_cache = ways
    return (q if of_q is None else of_q(q)), (cache if of_cache is None else of_cache(cache))
