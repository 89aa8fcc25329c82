"""A GEMM for Triton's interpreter, tile for tile ours: the peer of `cutepy bench sim`.

Triton decides as it is imported whether kernels are compiled or interpreted: TRITON_INTERPRET=1 must be set before
this module is imported.
"""

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl


@cache
def _kernel() -> Any:  # noqa: ANN401
    """Return the kernel: `triton.jit` reads its source, and importing a module reads no files."""
    return triton.jit(_gemm_tile)


def _gemm_tile(  # type: ignore[no-untyped-def]  # noqa: ANN202
    a,  # noqa: ANN001
    b,  # noqa: ANN001
    d,  # noqa: ANN001
    n,  # noqa: ANN001
    k,  # noqa: ANN001
    tile_m: tl.constexpr,
    tile_n: tl.constexpr,
    tile_k: tl.constexpr,
):
    rows = tl.program_id(0) * tile_m + tl.arange(0, tile_m)
    columns = tl.program_id(1) * tile_n + tl.arange(0, tile_n)
    inner = tl.arange(0, tile_k)
    sums = tl.zeros((tile_m, tile_n), dtype=tl.float32)
    for start in range(0, k, tile_k):
        left = tl.load(a + rows[:, None] * k + (start + inner)[None, :])
        right = tl.load(b + columns[None, :] * k + (start + inner)[:, None])
        sums = tl.dot(left, right, sums)
    tl.store(d + rows[:, None] * n + columns[None, :], sums.to(tl.float16))


def gemm(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, tile: tuple[int, int, int]) -> None:
    """Compute D = A B^T.

    Parameters
    ----------
    a, b, out : Tensor, (M, K), (N, K), (M, N), float16, contiguous, on the CPU
        Their extents are multiples of the tile's.
    tile : (int, int, int)
        Of M, N and K.
    """
    grid = a.shape[0] // tile[0], b.shape[0] // tile[1]
    _kernel()[grid](a, b, out, b.shape[0], a.shape[1], *tile)
