"""The foundation's GEMM: all types and majors, ragged extents, an addend, clusters, several tiles for each CTA.

With small integers every partial sum is exact; with normal values the tensor core's rounding shows.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np
import torch

from cutepy.frontends import simulate
from cutepy.host.function import Function
from cutepy.kernels.gemm import GemmConfig, GemmSignature
from cutepy.kernels.gemm.compilation import compile_gemm
from tests.sim.hardware.corpus import Case

_HALF = {"a_dtype": "float16", "b_dtype": "float16", "out_dtype": "float16"}
_TILE = {"tile_m": 128, "tile_n": 128, "warpgroups": 2}

# Name -> (signature, tile, M N K, SMs): fewer SMs than tiles, and each CTA has several.
KERNELS: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[int, int, int], int]] = {
    "f16": (_HALF, _TILE, (200, 136, 72), 132),
    "f16.mn_mn.col": (_HALF | {"a_major": "mn", "b_major": "mn", "out_major": "col"}, _TILE, (136, 264, 70), 132),
    "f16.k_mn.f32": (_HALF | {"b_major": "mn", "out_dtype": "float32"}, _TILE, (130, 72, 128), 132),
    "bf16.mn_k": ({k: "bfloat16" for k in _HALF} | {"a_major": "mn"}, _TILE, (136, 128, 136), 132),
    "e4m3.e5m2.bf16": (
        {"a_dtype": "float8_e4m3fn", "b_dtype": "float8_e5m2", "out_dtype": "bfloat16"},
        _TILE,
        (128, 136, 272),
        132,
    ),
    "e4m3.f32.long": (
        {"a_dtype": "float8_e4m3fn", "b_dtype": "float8_e4m3fn", "out_dtype": "float32"},
        _TILE,
        (72, 64, 2048),
        132,
    ),
    "f16.f32.long": (_HALF | {"out_dtype": "float32"}, _TILE | {"tile_n": 64}, (72, 64, 2048), 132),
    "f16.cluster2x2.persistent": (_HALF, _TILE | {"cluster_m": 2, "cluster_n": 2}, (520, 392, 128), 4),
    "f16.cluster4x1.small": (
        _HALF | {"out_dtype": "float32", "out_major": "col"},
        {"tile_m": 64, "tile_n": 64, "warpgroups": 1, "cluster_m": 4},
        (260, 200, 96),
        132,
    ),
    "f16.plus_f32": (_HALF | {"c_dtype": "float32", "c_major": "row"}, _TILE, (264, 136, 64), 2),
    "bf16.plus_f16.col": (
        {k: "bfloat16" for k in _HALF} | {"c_dtype": "float16", "c_major": "col"},
        _TILE,
        (136, 136, 64),
        132,
    ),
    "f16.wide": (_HALF, {"tile_m": 128, "tile_n": 256, "warpgroups": 2, "stages": 2}, (128, 512, 320), 1),
}


@cache
def _compiled(name: str) -> Function:
    signature, tile, _, _ = KERNELS[name]
    return compile_gemm(GemmConfig(signature=GemmSignature.standard(**signature), **tile))


def _matrix(rng: np.random.Generator, shape: tuple[int, int], dtype: str, last: bool, exact: bool) -> torch.Tensor:
    """Draw a matrix whose last extent is contiguous, or its first; rows are padded to 16 bytes."""
    order = shape if last else shape[::-1]
    values = rng.integers(-3, 4, order).astype(np.float32) if exact else rng.normal(size=order).astype(np.float32)
    kind = getattr(torch, dtype)
    pitch = -(-order[1] * kind.itemsize // 16) * 16 // kind.itemsize
    # 96 is exact in every type, and no result.
    padded = torch.full((order[0], pitch), 96.0).to(kind)
    padded[:, : order[1]] = torch.from_numpy(values).to(kind)
    matrix = padded[:, : order[1]]
    return matrix if last else matrix.t()


def _multiply(name: str, exact: bool) -> None:
    signature, _, (m, n, k), sms = KERNELS[name]
    kind = GemmSignature.standard(**signature)
    kinds = {name: (getattr(kind, f"{name}_dtype"), getattr(kind, f"{name}_major")) for name in ("a", "b", "out")}
    kinds |= {operand.name: types for operand, types in zip(kind.graph.operands, kind.operand_types, strict=True)}
    rng = np.random.default_rng(list(name.encode()))
    shapes = {"a": (m, k), "b": (n, k), "c": (m, n), "out": (m, n)}
    with simulate():
        arguments: list[torch.Tensor | None] = []
        for operand, shape in shapes.items():
            dtype, major = kinds.get(operand, (None, None))
            if dtype is None:
                arguments.append(None)
                continue
            arguments.append(_matrix(rng, shape, dtype, major in ("k", "row"), exact))
        _compiled(name)(*arguments, sms, None)


def cases() -> list[Case]:
    """Return the cases of this module."""
    return [
        Case(f"gemm.{values}.{name}", partial(_multiply, name, values == "exact"), dsl=True)
        for values in ("exact", "normal")
        for name in KERNELS
    ]
