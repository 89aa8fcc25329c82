"""A persistent GEMM in Triton, with TMA and autotuning: a peer of `cutepy bench gemm`."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

_BAND = 8


def _candidates() -> list[Any]:
    return [
        triton.Config({"tile_m": m, "tile_n": n, "tile_k": 64}, num_warps=8 if m == 128 else 4, num_stages=stages)
        for m, n, stages in ((128, 256, 3), (128, 256, 4), (128, 128, 4), (128, 64, 4), (64, 128, 4), (64, 64, 5))
    ]


def _fit(arguments: dict[str, Any]) -> None:
    """Give the descriptors the boxes of a candidate."""
    m, n, k = arguments["tile_m"], arguments["tile_n"], arguments["tile_k"]
    for name, box in (("a", [m, k]), ("b", [n, k]), ("d", [m, n])):
        arguments[name].block_shape = box


@cache
def _kernel() -> Any:  # noqa: ANN401
    """Return the kernel: `triton.jit` reads its source, and importing a module reads no files."""
    for config in (candidates := _candidates()):
        config.pre_hook = _fit
    return triton.autotune(candidates, key=["m", "n", "k"])(triton.jit(_gemm))


def _gemm(  # type: ignore[no-untyped-def]  # noqa: ANN202
    a,  # noqa: ANN001
    b,  # noqa: ANN001
    d,  # noqa: ANN001
    m,  # noqa: ANN001
    n,  # noqa: ANN001
    k,  # noqa: ANN001
    band: tl.constexpr,
    tile_m: tl.constexpr,
    tile_n: tl.constexpr,
    tile_k: tl.constexpr,
):
    rows, columns = tl.cdiv(m, tile_m), tl.cdiv(n, tile_n)
    for tile in tl.range(tl.program_id(0), rows * columns, tl.num_programs(0)):
        first = tile // (band * columns) * band
        height = min(rows - first, band)
        row = (first + tile % (band * columns) % height) * tile_m
        column = tile % (band * columns) // height * tile_n
        sums = tl.zeros((tile_m, tile_n), dtype=tl.float32)
        for inner in tl.range(0, tl.cdiv(k, tile_k)):
            sums = tl.dot(a.load([row, inner * tile_k]), b.load([column, inner * tile_k]).T, sums)
        d.store([row, column], sums.to(d.dtype))


def multiply(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    """Compute out = a b^T.

    Parameters
    ----------
    a, b, out : Tensor, (M, K), (N, K), (M, N), contiguous
    """
    (m, k), n = a.shape, b.shape[0]
    sm_count = torch.cuda.get_device_properties(a.device).multi_processor_count

    def grid(chosen: dict[str, int]) -> tuple[int]:
        return (min(sm_count, triton.cdiv(m, chosen["tile_m"]) * triton.cdiv(n, chosen["tile_n"])),)

    described = (TensorDescriptor.from_tensor(tensor, [1, 16]) for tensor in (a, b, out))
    _kernel()[grid](*described, m, n, k, _BAND)
