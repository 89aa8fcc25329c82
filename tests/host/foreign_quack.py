"""Calls QuACK's public operators, each compiled for a few types: a script for `python -m tests.host.foreign`.

PYTHONPATH=FOLDER_OF_QUACK QUACK_CACHE_ENABLED=0 python -m tests.host.foreign tests/host/foreign_quack.py
"""

import sys
import traceback
from collections.abc import Callable

import torch
from quack import gemm_interface as gemms
from quack.cross_entropy import cross_entropy_bwd, cross_entropy_fwd
from quack.rmsnorm import layernorm_fwd, rmsnorm, rmsnorm_bwd
from quack.rotary import apply_rotary_emb
from quack.softmax import softmax_bwd, softmax_fwd
from quack.topk import topk_bwd, topk_fwd
from quack.transform.hadamard import hadamard_transform

HALF = torch.bfloat16


def made(*shape: int, dtype: torch.dtype = HALF) -> torch.Tensor:
    """Make a tensor."""
    return torch.randn(*shape, device="cuda", dtype=dtype)


def attempt(name: str, call: Callable[[], object]) -> None:
    """Call an operator; what fails doesn't stop the others."""
    try:
        call()
    except Exception:
        print(name, file=sys.stderr)
        traceback.print_exc()


def norms(n: int, dtype: torch.dtype) -> None:
    """Softmax, norms, loss and top k over rows of n, and their gradients."""
    x, w, column = made(64, n, dtype=dtype), made(n, dtype=torch.float32), made(64, dtype=torch.float32)
    attempt("softmax", lambda: softmax_fwd(x))
    attempt("softmax's gradient", lambda: softmax_bwd(x, x))
    attempt("rmsnorm", lambda: rmsnorm(x, w))
    attempt("rmsnorm of residuals", lambda: rmsnorm(x, w, residual=x.clone(), prenorm=True))
    attempt("rmsnorm's gradient", lambda: rmsnorm_bwd(x, w, x.clone(), column))
    attempt("layernorm", lambda: layernorm_fwd(x, w, return_rstd=True, return_mean=True))
    target = torch.randint(0, n, (64,), device="cuda")
    attempt("cross_entropy", lambda: cross_entropy_fwd(x, target))
    attempt("cross_entropy's gradient", lambda: cross_entropy_bwd(x, target, column, column.clone()))
    if n <= 4096:
        attempt("topk", lambda: topk_fwd(x, 8, softmax=True))
        best = torch.zeros(64, 8, device="cuda", dtype=torch.int32)
        attempt("topk's gradient", lambda: topk_bwd(x[:, :8].clone(), x[:, :8].clone(), best, n, softmax=True))
        attempt("hadamard", lambda: hadamard_transform(x))


def products(m: int, n: int, k: int) -> None:
    """GEMMs, with what may be fused with them."""
    a, b, c = made(m, k), made(n, k).mT, made(m, n)
    bias, column = made(n, dtype=torch.float32), made(m, dtype=torch.float32)
    attempt("gemm", lambda: gemms.gemm(a, b, tuned=False))
    attempt("gemm with a bias", lambda: gemms.gemm(a, b, bias=bias, tuned=False))
    attempt("gemm of batches", lambda: gemms.gemm(a.expand(2, m, k).clone(), b.expand(2, k, n).clone(), tuned=False))
    attempt("gemm_add", lambda: gemms.gemm_add(a, b, c, tuned=False))
    attempt("gemm_act", lambda: gemms.gemm_act(a, b, activation="gelu_tanh_approx", tuned=False))
    attempt("gemm_gated", lambda: gemms.gemm_act(a, b, activation="swiglu", tuned=False))
    attempt("gemm_dact", lambda: gemms.gemm_dact(a, b, c, activation="relu", tuned=False))
    attempt("gemm_dgated", lambda: gemms.gemm_dact(a, b, made(m, 2 * n), activation="swiglu", tuned=False))
    attempt("gemm_symmetric", lambda: gemms.gemm_symmetric(a, a.mT))
    attempt("gemm_rms", lambda: gemms.gemm_rms(a, b, tuned=False))
    attempt("gemm_norm_act", lambda: gemms.gemm_norm_act(a, b, column, activation="relu", tuned=False))
    lengths = torch.tensor([0, m // 2, m], device="cuda", dtype=torch.int32)
    attempt("gemm of lengths", lambda: gemms.gemm(a, b.expand(2, k, n).contiguous(), cu_seqlens_m=lengths, tuned=False))


def main() -> None:
    """Call all."""
    for n, dtype in ((1024, HALF), (1128, torch.float16), (4096, torch.float32), (32768, HALF)):
        norms(n, dtype)
    products(256, 512, 256)
    cosine, sine = (torch.randn(32, 32, device="cuda", dtype=HALF) for _ in range(2))
    for interleaved in (False, True):
        x = made(2, 32, 4, 64)
        attempt("rotary", lambda x=x, i=interleaved: apply_rotary_emb(x, cosine, sine, interleaved=i))


if __name__ == "__main__":
    main()
