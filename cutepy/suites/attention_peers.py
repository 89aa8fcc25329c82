"""Peers for attention: each takes a problem and its buffers, and returns what computes a set's result."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    import torch

    from cutepy.suites.attention_problems import AttentionProblem, Buffers, Result

Peer = Callable[["AttentionProblem", "Buffers"], "Result | None"]
"""Function that returns what computes a problem's results; None if unsupported."""


def ours(problem: AttentionProblem, made: Buffers) -> Result:
    """Compute by cutepy."""
    from cutepy.ops import attention, attention_decode, attention_varlen

    if problem.suite == "decode":
        return lambda i: attention_decode(  # type: ignore[return-value]
            made.q[i], made.k[i], made.v[i], cache_seqlens=made.lengths, block_table=made.table
        )
    if problem.suite == "varlen":
        bounds = {"cu_seqlens_q": made.bounds, "cu_seqlens_k": made.bounds, "max_seqlen_q": max(problem.lengths)}
        return lambda i: attention_varlen(made.q[i], made.k[i], made.v[i], **bounds, causal=problem.causal)  # type: ignore[return-value,arg-type]
    return _either(problem, made, partial(attention, causal=problem.causal))


def cudnn(problem: AttentionProblem, made: Buffers) -> Result | None:
    """Compute by cuDNN, through torch; of one length and 16 bits only."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    if problem.suite in ("varlen", "decode", "e4m3"):
        return None

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = (each.transpose(1, 2) for each in (q, k, v))
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=problem.causal)
        return o.transpose(1, 2)

    return _either(problem, made, attend)


def flash_attention_4(problem: AttentionProblem, made: Buffers) -> Result | None:
    """Compute by FlashAttention's kernels in the CuTe DSL, which must be installed."""
    from flash_attn.cute import interface  # type: ignore[import-not-found]

    return _flash_attention(problem, made, interface.flash_attn_func, interface.flash_attn_varlen_func)


def flash_attention_3(problem: AttentionProblem, made: Buffers) -> Result | None:
    """Compute by FlashAttention 3, which must be installed."""
    import flash_attn_interface as interface  # type: ignore[import-not-found]

    if problem.suite == "decode":
        options = {"cache_seqlens": made.lengths, "page_table": made.table}
        return lambda i: _first(interface.flash_attn_with_kvcache(made.q[i], made.k[i], made.v[i], **options))
    return _flash_attention(problem, made, interface.flash_attn_func, interface.flash_attn_varlen_func)


def _flash_attention(
    problem: AttentionProblem, made: Buffers, plain: Callable[..., Any], varlen: Callable[..., Any]
) -> Result:
    causal = {"causal": problem.causal}
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
    import torch

    if problem.suite in ("forward", "e4m3"):
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


PEERS: dict[str, Peer] = {"cuDNN": cudnn, "FA4": flash_attention_4, "FA3": flash_attention_3}
"""Peers that `--peer` knows."""
