"""Arguments that attention has in other libraries, and not under the same name here, with the call to make instead."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

_VARLEN = "call cutepy.ops.attention_varlen, which takes seqused_q and seqused_k, and cu_seqlens_q beside pages"
_NEW_KEYS = "write new keys and values to the cache before, as cutepy.ops.rotary_cached does in one launch"
_SPARSE = "there is no sparse attention of latent rows"


_REMEDIES = {
    "attention_chunk": "give a mask to cutepy.ops.attention, attention_varlen or attention_decode",
    "attn_sink": "there are no sinks of latent rows; cutepy.ops.attention_decode has them",
    "cache_batch_idx": "pass block_table=cache_batch_idx[:, None], sequences as pages",
    "cache_leftpad": "begin each sequence at the cache's first row",
    "cu_seqlens_k_new": _NEW_KEYS,
    "cu_seqlens_q": _VARLEN,
    "descale_k": "pass rows of quantise_mla_cache, which have their scales",
    "descale_q": "pass rows of quantise_mla_cache, which have their scales",
    "extra_indices_in_kvcache": _SPARSE,
    "extra_k_cache": _SPARSE,
    "extra_topk_length": _SPARSE,
    "indices": _SPARSE,
    "k": _NEW_KEYS,
    "kernel_options": "tiles are chosen; `cutepy tune attention` finds others",
    "learnable_sink": "call cutepy.ops.attention with sinks",
    "mask_mod": "call cutepy.ops.attention with mask, a function (b, h, i, j)",
    "max_seqlen_q": _VARLEN,
    "num_splits": "the host chooses the parts of the keys",
    "pack_gqa": "heads that share keys are packed where that is faster",
    "page_table": "pass it as block_table",
    "qv": "call cutepy.ops.attention_mla, of queries and latent rows of 576 columns",
    "return_aux": "pass return_lse",
    "return_lse": "pass return_attn_probs",
    "rotary_cos": "rotate before, by cutepy.ops.rotary_cached, which writes to the cache too",
    "rotary_interleaved": "rotate before, by cutepy.ops.rotary_cached, which has interleaved",
    "rotary_seqlens": "rotate before, by cutepy.ops.rotary_cached, by the sequences' lengths",
    "rotary_sin": "rotate before, by cutepy.ops.rotary_cached, which writes to the cache too",
    "scheduler_metadata": "the device deals out the keys itself",
    "score_mod": "call cutepy.ops.attention with score, a function (s, b, h, i, j)",
    "seqused_k": _VARLEN,
    "seqused_q": _VARLEN,
    "sm_margin": "kernels take all SMs",
    "topk_length": _SPARSE,
    "v": _NEW_KEYS,
}
"""Calls to make instead, by the names of arguments of flash-attn, FlashMLA and FlexAttention."""
_HARMLESS: dict[str, tuple[object, ...]] = {
    "attention_chunk": (0,),
    "num_splits": (0, 1),
    "return_lse": (False,),
    "rotary_interleaved": (False, True),
    "sm_margin": (0,),
}
"""Values that mean as much as None does, by the names of arguments."""


def refuse_unknown(function: Callable[..., Any], unknown: Mapping[str, object]) -> None:
    """Refuse arguments that a function of another library has, and the one of its name here has not.

    Those whose value means as much as none are left out.

    Raises
    ------
    TypeError
        If there is another.
    """
    name = function.__name__
    for argument, value in unknown.items():
        remedy = _REMEDIES.get(argument)
        if remedy is None:
            taken = [each for each in inspect.signature(function).parameters if each != "unknown"]
            raise TypeError(f"{name} takes {', '.join(taken)}, got {argument}; leave it out")
        is_plain = isinstance(value, (bool, int, float, str))
        if not (value is None or (is_plain and value in _HARMLESS.get(argument, ()))):
            got = repr(value) if is_plain else type(value).__name__
            raise TypeError(f"{argument} must be left out of {name}, got {got}; {remedy}")
