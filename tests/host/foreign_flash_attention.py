"""Calls FlashAttention's CuTe kernels for Hopper: a script for `python -m tests.host.foreign`.

PYTHONPATH=FOLDER_OF_FLASH_ATTENTION:FOLDER_OF_QUACK python -m tests.host.foreign tests/host/foreign_flash_attention.py
"""

import sys
import traceback
from collections.abc import Callable
from typing import Any

import torch
from flash_attn.cute import interface


def made(*shape: int) -> torch.Tensor:
    """Make a tensor."""
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def attempt(name: str, call: Callable[..., object], *arguments: object, **named: object) -> Any:
    """Call a function; what fails doesn't stop the others."""
    try:
        return call(*arguments, **named)
    except Exception:
        print(name, file=sys.stderr)
        traceback.print_exc()


def main() -> None:
    """Call all."""
    plain, causal, window = {}, {"causal": True}, {"window_size_left": 64, "window_size_right": 0}
    cases = [(64, 4, plain), (128, 4, plain), (128, 2, plain), (128, 2, causal), (256, 2, causal)]
    for width, heads, settings in [*cases, (128, 2, window), (128, 2, {"softcap": 15.0})]:
        q, k, v = made(1, 128, 4, width), made(1, 128, heads, width), made(1, 128, heads, width)
        name = f"{width}, {heads} heads, {settings}"
        found = attempt(name, interface._flash_attn_fwd, q, k, v, return_lse=True, **settings)
        lse = found[1] if found is not None else torch.zeros(1, 4, 128, device="cuda")
        attempt(f"gradients of {name}", interface._flash_attn_bwd, q, k, v, torch.empty_like(q), q, lse, **settings)
    attempt("sink", interface.flash_attn_func, q, k, v, learnable_sink=made(4))
    attempt("splits", interface.flash_attn_func, q, k, v, num_splits=2)
    q, k, v = made(200, 4, 128), made(200, 2, 128), made(200, 2, 128)
    at = torch.tensor([0, 72, 200], device="cuda", dtype=torch.int32)
    lengths = {"cu_seqlens_q": at, "cu_seqlens_k": at, "max_seqlen_q": 128, "max_seqlen_k": 128}
    attempt("lengths", interface._flash_attn_fwd, q, k, v, **lengths, **causal)
    lse = torch.zeros(4, 200, device="cuda")
    attempt("gradients of lengths", interface._flash_attn_bwd, q, k, v, q, q, lse, **lengths, **causal)
    parts, sums = torch.randn(2, 1, 128, 4, 128, device="cuda"), torch.randn(2, 1, 128, 4, device="cuda")
    attempt("combine", interface.flash_attn_combine, parts, sums.mT.contiguous().mT, out_dtype=torch.bfloat16)


if __name__ == "__main__":
    main()
