"""Launch attention of sequences whose first keys are the same: these are read once, for the queries of all sequences.

Three kernels: the shared keys with all queries as rows of tiles, each sequence's other keys as `plan_decode` has them,
and the combination of both. (FlashInfer and FlashAttention call it cascade attention.)
"""

from collections.abc import Callable
from typing import Any

import torch

from cutepy.host.specs import dtype_name
from cutepy.kernels.attention.choice import DECODE_ROWS, choose_decode, choose_shared, heads_together, splits_of
from cutepy.kernels.attention.config import CachedKeys, Lengths, SharedKeys
from cutepy.kernels.attention.op import NOTHING_READ, compile_combine, compile_forward
from cutepy.kernels.gemm.gpu import gpu_of
from cutepy.runtime.invariance import INVARIANCE


def keys_shared(q: torch.Tensor, v: torch.Tensor, common: int, left: int | None = None) -> int:
    """Return how many of a given number of common keys are read once: whole tiles, if they are.

    They are not of one sequence, of queries of more than a tile, and where windows end `left` keys before a query. Nor
    are they where a result may not depend on what else is in a batch, such as the keys that are common.

    Examples
    --------
    >>> q, v = torch.empty(2, 1, 8, 128, dtype=torch.float16), torch.empty(9, 16, 8, 128, dtype=torch.float16)
    >>> keys_shared(q, v, 300), keys_shared(q[:1], v, 300)
    (256, 0)
    """
    if INVARIANCE.on or left is not None or q.shape[0] == 1 or q.shape[1] > DECODE_ROWS:
        return 0
    config = choose_decode(dtype_name(q.dtype), q.shape[3], v.shape[3], left=False, right=False, page=0, is_split=True)
    return common // config.tile_n * config.tile_n


def plan_cascade(
    q: torch.Tensor,
    tokens: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    keys: int,
    scale: float,
    right: int | None,
    given: Lengths | None,
    most_keys: int,
    page: int = 0,
    sharing: int | None = None,
    pitch: int | None = None,
) -> Callable[..., None]:
    """Choose and compile `plan_decode`'s kernels for sequences that all share the keys of the first one's beginning.

    A sequence that has fewer, or whose queries don't see all of them, is computed by itself.

    Parameters
    ----------
    q, k, v, scale, right, given, most_keys, page, sharing
        As of `plan_decode`.
    tokens : Tensor (1, batch * queries, heads, head)
        The queries, one sequence after another, with all heads.
    keys : int
        Keys that are shared (`keys_shared`).
    pitch : int, optional
        Rows from one page, or one sequence, to the next.

    Returns
    -------
    callable
        Takes what `plan_decode`'s does, and tokens.
    """
    dtype, head, head_v, sm_count = dtype_name(q.dtype), q.shape[3], v.shape[-1], gpu_of(q.device).sm_count
    (batch, queries, heads, _), (rows, all_heads) = q.shape, tokens.shape[1:3]
    own = choose_decode(dtype, head, head_v, left=False, right=right is not None, page=page, is_split=True)
    splits = splits_of(batch * heads, max(most_keys - keys, 1), own.tile_n, sm_count)
    packed = heads_together(all_heads // k.shape[-2])
    shared = choose_shared(dtype, head, head_v, rows, page=page, packed=packed)
    tiles = -(-rows * packed // shared.tile_m) * (all_heads // packed)
    shared_splits = splits_of(tiles, keys, shared.tile_n, sm_count)
    of_own, of_shared = CachedKeys(pitch, shared=keys), CachedKeys(pitch, most=keys if given else None)
    how: dict[str, Any] = {"is_cached": True, "is_paged": page > 0}
    attend = compile_forward(own, given, **how, sharing=sharing, cached=of_own.given)
    attend_shared = compile_forward(shared, given, **how, cached=of_shared.given)
    has_lengths, has_both = given is not None, (right is not None, sharing is not None)
    combine = compile_combine(own, SharedKeys(None, None, 1, 1, has_lengths, *has_both))

    def launch(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        o: torch.Tensor,
        lse: torch.Tensor,
        lengths: Lengths | None,
        table: torch.Tensor | None,
        tokens: torch.Tensor,
    ) -> None:
        parts = q.new_empty(batch, queries, splits * heads, head_v, dtype=torch.float32)
        lses = q.new_empty(batch, splits * heads, queries, dtype=torch.float32)
        shared_parts = q.new_empty(1, rows, shared_splits * all_heads, head_v, dtype=torch.float32)
        shared_lses = q.new_empty(1, shared_splits * all_heads, rows, dtype=torch.float32)
        used, first = (None, None) if lengths is None else (lengths.k_used, Lengths(k_used=lengths.k_used[:1]))
        first_k, first_v = (k, v) if lengths is not None else (k[:1, :keys], v[:1, :keys])
        first_pages = None if table is None else table[:1]
        every, rest = (scale, 0, 0, 1 << 30), (scale, 0, right or 0, 1 << 30)
        attend_shared(
            tokens,
            first_k,
            first_v,
            shared_parts,
            shared_lses,
            *every,
            first,
            first_pages,
            shared_splits,
            None,
            *NOTHING_READ,
            of_shared,
            None,
        )
        attend(q, k, v, parts, lses, *rest, lengths, table, splits, sharing, *NOTHING_READ, of_own, None)
        combine(parts, lses, o, lse, SharedKeys(shared_parts[0], shared_lses[0], keys, most_keys, used, right, sharing))

    return launch
