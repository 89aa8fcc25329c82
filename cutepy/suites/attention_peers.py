"""Peers for attention: each takes a problem and its buffers, and returns the function of a set's result."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import typer
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from cutepy.ops import attention, attention_decode, attention_mla, attention_varlen
from cutepy.suites.attention_problems import PAGED, SOFT_CAP, WINDOW, AttentionProblem, Buffers, Result

Peer = Callable[["AttentionProblem", "Buffers"], "Result | None"]
"""Function that returns what computes a problem's results; None if unsupported."""


def ours(problem: AttentionProblem, made: Buffers) -> Result:
    """Compute by cutepy."""
    if problem.suite == "mla":
        pages = {"cache_seqlens": made.lengths, "block_table": made.table}
        return lambda i: attention_mla(made.q[i], made.k[i], **pages, causal=problem.causal)  # type: ignore[return-value,arg-type]

    if problem.suite == "decode":
        return lambda i: attention_decode(  # type: ignore[return-value]
            made.q[i], made.k[i], made.v[i], cache_seqlens=made.lengths, block_table=made.table
        )
    if problem.suite == "varlen":
        bounds = {"cu_seqlens_q": made.bounds, "cu_seqlens_k": made.bounds, "max_seqlen_q": max(problem.lengths)}
        return lambda i: attention_varlen(made.q[i], made.k[i], made.v[i], **bounds, causal=problem.causal)  # type: ignore[return-value,arg-type]
    if problem.rule == "documents":
        return _either(problem, made, partial(attention, block_mask=_block_mask(problem, made)))
    window = (WINDOW - 1, 0) if problem.rule == "window" else (None, None)
    soft_cap = SOFT_CAP if problem.rule == "soft cap" else None
    return _either(problem, made, partial(attention, causal=problem.causal, window=window, soft_cap=soft_cap))


def _block_mask(problem: AttentionProblem, made: Buffers) -> Any:  # noqa: ANN401
    """Return torch's block mask of the keys up to a query's position: of its document, or of the window."""
    device, extents = made.q[0].device, (None, None, problem.keys, problem.keys)
    if problem.rule == "documents":
        which = torch.repeat_interleave(torch.tensor(problem.documents, device=device))
        return create_block_mask(lambda b, h, i, j: (i >= j) & (which[i] == which[j]), *extents, device=device.type)
    reach = WINDOW if problem.rule == "window" else problem.keys
    return create_block_mask(lambda b, h, i, j: (i >= j) & (i - j < reach), *extents, device=device.type)


def cudnn(problem: AttentionProblem, made: Buffers) -> Result | None:
    """Compute by cuDNN, through torch; of one length and 16 bits only."""
    if problem.suite not in ("forward", "backward"):
        return None

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = (each.transpose(1, 2) for each in (q, k, v))
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=problem.causal)
        return o.transpose(1, 2)

    return _either(problem, made, attend)


def torch_compile(problem: AttentionProblem, made: Buffers) -> Result | None:
    """Compute by torch.compile's code: of flex_attention, or of gathered pages and their products."""
    if problem.suite not in ("forward", "backward", "masks", *PAGED):
        return None
    if problem.suite in PAGED:
        products = torch.compile(paged, dynamic=False)
        return lambda i: products(made.q[i], made.k[i], made.v[i], made.table, problem.keys, problem.causal)
    compiled = torch.compile(flex_attention, dynamic=False)
    mask = _block_mask(problem, made) if problem.causal else None
    options: dict[str, Any] = {"enable_gqa": problem.heads != problem.kv_heads}
    if problem.rule == "soft cap":
        options["score_mod"] = lambda s, b, h, i, j: SOFT_CAP * torch.tanh(s / SOFT_CAP)

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = (each.transpose(1, 2) for each in (q, k, v))
        o: torch.Tensor = compiled(q, k, v, block_mask=mask, **options)
        return o.transpose(1, 2)

    return _either(problem, made, attend)


def paged(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, table: torch.Tensor, keys: int, causal: bool
) -> torch.Tensor:
    """Attend by torch's products: q (batch, queries, heads, columns), pages of k and v, table (batch, pages)."""
    k, v = (each[table.long()].flatten(1, 2)[:, :keys] for each in (k, v))
    grouped = q.unflatten(2, (k.shape[2], -1))  # heads that share keys, which are not repeated
    scores = torch.einsum("bqngc,bknc->bngqk", grouped, k) * q.shape[-1] ** -0.5
    if causal:
        hidden = torch.ones(q.shape[1], keys, dtype=torch.bool, device=q.device).triu(1 + keys - q.shape[1])
        scores = scores.masked_fill(hidden, -torch.inf)
    return torch.einsum("bngqk,bknc->bqngc", scores.float().softmax(-1).to(v.dtype), v).flatten(2, 3)


def flash_mla(problem: AttentionProblem, made: Buffers) -> Result | None:
    """Compute by FlashMLA, which must be installed; of the mla suite only."""
    import flash_mla as theirs  # type: ignore[import-not-found]

    if problem.suite != "mla":
        return None
    schedule = theirs.get_mla_metadata(made.lengths, problem.new * problem.heads, 1)
    rest = made.table, made.lengths, problem.value, *schedule
    return lambda i: _first(theirs.flash_mla_with_kvcache(made.q[i], made.k[i], *rest, causal=problem.causal))


def flash_attention_4(problem: AttentionProblem, made: Buffers) -> Result | None:
    """Compute by FlashAttention's kernels in the CuTe DSL, which must be installed."""
    from flash_attn.cute import interface  # type: ignore[import-not-found]

    if problem.suite == "mla":
        return None

    return _flash_attention(problem, made, interface.flash_attn_func, interface.flash_attn_varlen_func)


def flash_attention_3(problem: AttentionProblem, made: Buffers) -> Result | None:
    """Compute by FlashAttention 3, which must be installed."""
    import flash_attn_interface as interface  # type: ignore[import-not-found]

    if problem.suite == "mla":
        return None

    if problem.suite == "decode":
        options = {"cache_seqlens": made.lengths, "page_table": made.table}
        return lambda i: _first(interface.flash_attn_with_kvcache(made.q[i], made.k[i], made.v[i], **options))
    return _flash_attention(problem, made, interface.flash_attn_func, interface.flash_attn_varlen_func)


def _flash_attention(
    problem: AttentionProblem, made: Buffers, plain: Callable[..., Any], varlen: Callable[..., Any]
) -> Result | None:
    causal: dict[str, Any] = {"causal": problem.causal}
    if problem.rule == "documents":
        return None  # only by other kernels, of packed sequences
    if problem.rule == "window":
        causal["window_size"] = WINDOW - 1, 0
    if problem.rule == "soft cap":
        causal["softcap"] = SOFT_CAP
    if problem.suite == "decode":
        pages = {"page_table": made.table, "seqused_k": made.lengths}
        return lambda i: _first(plain(made.q[i], made.k[i], made.v[i], **pages))
    if problem.suite == "varlen":
        bounds: dict[str, Any] = {"cu_seqlens_q": made.bounds, "cu_seqlens_k": made.bounds}
        bounds |= {"max_seqlen_q": max(problem.lengths), "max_seqlen_k": max(problem.lengths)}
        return lambda i: _first(varlen(made.q[i], made.k[i], made.v[i], **bounds, **causal))
    return _either(problem, made, lambda *given: _first(plain(*given, **causal)))


def _first(found: Any) -> torch.Tensor:  # noqa: ANN401
    """Return O, which some versions return in a tuple."""
    o: torch.Tensor = found[0] if isinstance(found, tuple) else found
    return o


def _either(problem: AttentionProblem, made: Buffers, attend: Callable[..., Any]) -> Result:
    """Return forward, or backward of results that are there."""
    if problem.suite in ("forward", "masks", "e4m3"):
        return lambda i: attend(made.q[i], made.k[i], made.v[i])
    kept: dict[tuple[int, object], tuple[list[torch.Tensor], torch.Tensor]] = {}

    def gradients(i: int) -> torch.Tensor:
        # Autograd computes a gradient on the stream of the result, and hands it on on that of the input's first use.
        # Results of other streams stay: graphs that were captured there read them.
        stream = torch.cuda.current_stream() if made.q[i].is_cuda else None
        if (i, stream) not in kept:
            own = [each[i].detach().requires_grad_() for each in made[:3]]
            kept[i, stream] = own, attend(*own)
        inputs, result = kept[i, stream]
        grads = torch.autograd.grad(result, inputs, made.do[i], retain_graph=True)
        return grads if i else torch.stack(grads)  # type: ignore[return-value]

    return gradients


def available(peer: Peer, problem: AttentionProblem, made: Buffers) -> Result | None:
    """Return a peer's function, or None, with a word on why, where it does not take a problem."""
    try:
        found = peer(problem, made)
        if found is not None:
            found(0)
    except (AttributeError, RuntimeError, TypeError, ValueError, NotImplementedError, AssertionError) as error:
        text = str(error).strip().splitlines()
        typer.echo(f"a peer doesn't compute {problem}: {text[0] if text else type(error).__name__}", err=True)
        return None
    return found


PEERS: dict[str, Peer] = {
    "cuDNN": cudnn,
    "FA4": flash_attention_4,
    "FA3": flash_attention_3,
    "FlashMLA": flash_mla,
    "torch.compile": torch_compile,
}
"""Peers that `--peer` knows."""
