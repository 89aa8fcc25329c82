"""FlashAttention's interface of attention in CuTe DSL, made of cutepy's: what its tests import and call.

Its package is not run, but for the reference that its tests compare with: the other modules are stand-ins, whose
functions refuse to be called.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from cutepy.ops import attention, attention_decode, attention_varlen
from tests.kernels.foreign.calls import RefusedError, refuse, refusing

PACKAGE = "flash_attn"
REAL = "flash_attn.cute.testing"
HINTS = (
    *("num_splits", "pack_gqa", "scheduler_metadata", "disable_scheduler_metadata", "min_seqlen_k", "tile_mn"),
    *("mma_pv_is_rs", "intra_wg_overlap", "num_threads", "score_mod_bwd"),
)
"""Arguments that change how something is computed, and no result."""
LENGTHS = ("cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k")


@refusing
def flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int | None, int | None] = (None, None),
    learnable_sink: torch.Tensor | None = None,
    softcap: float | None = None,
    deterministic: bool = False,
    return_lse: bool = False,
    **others: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute attention of matrices of a batch."""
    _check(q, k, v, window_size, others)
    o, lse = attention(
        q,
        k,
        v,
        scale=softmax_scale,
        causal=causal,
        window=window_size,
        sinks=learnable_sink,
        soft_cap=softcap or None,
        deterministic=deterministic,
        return_lse=True,
    )
    return o, lse if return_lse else lse.detach()


@refusing
def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    page_table: torch.Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int | None, int | None] = (None, None),
    learnable_sink: torch.Tensor | None = None,
    softcap: float | None = None,
    deterministic: bool = False,
    return_lse: bool = False,
    **others: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute attention of sequences, with keys in one matrix or in pages."""
    lengths = {name: others.pop(name, None) for name in LENGTHS}
    given: dict[str, Any] = {"scale": softmax_scale, "causal": causal, "window": window_size}
    if page_table is None and not any(each is not None for each in lengths.values()):
        result: tuple[torch.Tensor, torch.Tensor] = flash_attn_func(
            q,
            k,
            v,
            softmax_scale=softmax_scale,
            causal=causal,
            window_size=window_size,
            learnable_sink=learnable_sink,
            softcap=softcap,
            deterministic=deterministic,
            return_lse=return_lse,
            **others,
        )
        return result
    _check(q, k, v, window_size, others)
    given |= {"sinks": learnable_sink, "soft_cap": softcap or None}
    if page_table is not None and lengths["cu_seqlens_q"] is None and lengths["seqused_q"] is None:
        if lengths["cu_seqlens_k"] is not None:
            refuse("cu_seqlens_k with page_table")
        o, lse = attention_decode(
            q, k, v, cache_seqlens=lengths["seqused_k"], block_table=page_table, return_lse=True, **given
        )
        return o, lse
    given |= {"max_seqlen_q": _number(max_seqlen_q), "max_seqlen_k": _number(max_seqlen_k), "block_table": page_table}
    o, lse = attention_varlen(q, k, v, deterministic=deterministic, return_lse=True, **lengths, **given)
    return o, lse if return_lse else lse.detach()


def _flash_attn_fwd(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    window_size_left: int | None = None,
    window_size_right: int | None = None,
    **others: Any,
) -> tuple[torch.Tensor, torch.Tensor, None, None]:
    """Compute either, without gradients; the last two results are those of other hardware."""
    o, lse = flash_attn_varlen_func(
        *(each.detach() for each in (q, k, v)), window_size=(window_size_left, window_size_right), **others
    )
    for name, result in (("out", o), ("lse", lse)):
        if others.get(name) is not None:
            others[name].copy_(result)
    return o, lse, None, None


def _flash_attn_bwd(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    dout: torch.Tensor,
    lse: torch.Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    softcap: float = 0.0,
    window_size_left: int | None = None,
    window_size_right: int | None = None,
    *,
    dlse: torch.Tensor | None = None,
    dq: torch.Tensor | None = None,
    dk: torch.Tensor | None = None,
    dv: torch.Tensor | None = None,
    **others: Any,
) -> tuple[torch.Tensor, ...]:
    """Compute the gradients, by a forward pass and autograd."""
    given = [each.detach().requires_grad_() for each in (q, k, v)]
    found = flash_attn_varlen_func(
        *given,
        softmax_scale=softmax_scale,
        causal=causal,
        softcap=softcap,
        window_size=(window_size_left, window_size_right),
        return_lse=True,
        **others,
    )
    count = 1 if dlse is None else 2
    grads = torch.autograd.grad(found[:count], given, (dout, dlse)[:count])
    return tuple(grad if to is None else to.copy_(grad) for grad, to in zip(grads, (dq, dk, dv), strict=True))


def get_scheduler_metadata(**_: Any) -> None:
    """Return a schedule: there is none to make."""


def _check(
    q: torch.Tensor | None,
    k: torch.Tensor | None,
    v: torch.Tensor,
    window: tuple[int | None, int | None],
    others: dict[str, Any],
) -> None:
    """Refuse arguments that cutepy's attention hasn't, and a bound that has another meaning there."""
    for name, value in others.items():
        if value is not None and value is not False and name not in HINTS:
            refuse(name)
    if q is None or k is None or (k is v and v.shape[-1] == 512):
        refuse("qv")
    if -1 in window:
        refuse("window_size with -1, which means all keys in cutepy")


def _number(given: object) -> int | None:
    return None if given is None else int(given)  # type: ignore[call-overload,no-any-return]


class _StandIn(ModuleType):
    """Module whose functions refuse to be called."""

    __path__: Sequence[str] = ()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)

        def absent(*_: Any, **__: Any) -> None:
            raise RefusedError(f"{self.__name__}.{name}")

        return absent


class _Finder:
    """Finds FlashAttention's modules: the interface here, its reference in a checkout, and stand-ins for others."""

    def __init__(self, checkout: Path) -> None:
        self._checkout = checkout

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name == REAL:
            return importlib.util.spec_from_file_location(name, self._checkout / (name.replace(".", "/") + ".py"))
        if name.partition(".")[0] != PACKAGE or name.startswith(f"{PACKAGE}.layers"):
            return None
        return ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = _StandIn(spec.name)
        if spec.name in ("flash_attn.cute", "flash_attn.cute.interface"):
            for each in (flash_attn_func, flash_attn_varlen_func, _flash_attn_fwd, _flash_attn_bwd):
                setattr(module, each.__name__, each)
            module.get_scheduler_metadata = get_scheduler_metadata  # type: ignore[attr-defined]
        return module

    def exec_module(self, module: ModuleType) -> None:
        pass


@contextmanager
def in_place(checkout: Path) -> Iterator[None]:
    """Let FlashAttention's names be cutepy's."""
    finder = _Finder(checkout)
    sys.meta_path.insert(0, finder)  # type: ignore[arg-type]
    try:
        yield
    finally:
        sys.meta_path.remove(finder)  # type: ignore[arg-type]
        for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
            del sys.modules[name]
