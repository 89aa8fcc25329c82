"""Choose how a product of few rows is parted, and list what `cutepy tune gemm` tries beside the GEMM's kernels."""

from collections.abc import Mapping
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any

from cutepy.kernels.gemm.choice import Chosen
from cutepy.kernels.gemm.signature import GemmSignature
from cutepy.kernels.gemv.config import GemvConfig
from cutepy.kernels.gemv.model import expected_us
from cutepy.layouts.sm90 import arch
from cutepy.tune import Space

MOST_ROWS = 8
"""Rows that multiply-adds keep up with memory for: an SM's 128 a cycle, where it reads 18 bytes, are 14 for 16 bits."""
MOST = 24
"""Candidates that are tried: those that the model expects to be fastest."""

SPACE = (
    Space({"columns": (1, 2, 4, 8), "unroll": (1, 2, 4, 8), "warps": (4, 8), "k_warps": (1, 2, 4, 8)})
    .where("more sums than lanes", lambda columns, tile_m: columns * tile_m <= arch.WARP_THREADS)
    .where("more warps for K than there are", lambda warps, k_warps: k_warps <= warps)
    .where("more read at once than a lane has registers for", lambda columns, unroll: columns * unroll <= 16)
    .where("less than a step along K", lambda k_warps, unroll, pieces: k_warps * unroll * arch.WARP_THREADS <= pieces)
)
"""What is searched, for so many rows and pieces of 16 bytes along K; what the kernel refuses is left out besides."""


@lru_cache(maxsize=1024)
def configs(
    signature: GemmSignature, m: int, n: int, k: int, sm_count: int = arch.SM_COUNT
) -> tuple[tuple[float, GemvConfig], ...]:
    """List what may compute a product, and the microseconds that are expected: what is fastest first.

    Empty of types, majors and epilogues that the kernel doesn't take.
    """
    tile_m = next(rows for rows in (1, 2, 4, 8) if rows >= min(m, MOST_ROWS))
    found = []
    pieces = max(arch.WARP_THREADS, -(-k * signature.operand_bits // arch.UNIT_BITS))
    for point in SPACE.candidates({"tile_m": tile_m, "pieces": pieces}):
        settings: dict[str, int] = {name: int(str(value)) for name, value in point.items()}
        try:
            config = GemvConfig(signature=signature, tile_m=tile_m, **settings)
        except ValueError:
            continue
        found.append((expected_us(config, m, n, k, sm_count), config))
    return tuple(sorted(found, key=lambda each: each[0]))


def select_gemv(signature: GemmSignature, m: int, n: int, k: int, sm_count: int = arch.SM_COUNT) -> GemvConfig:
    """Choose the configuration that is expected to be fastest, of those that sum in the same order for any M.

    Raises
    ------
    ValueError
        If the kernel doesn't take such types, majors or epilogues.

    Examples
    --------
    >>> half = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16")
    >>> for m in (1, 4):
    ...     config = select_gemv(half, m, 4096, 7168)
    ...     print(config.tile_m, config.columns, config.unroll, config.warps, config.k_warps, config.ctas_per_sm)
    1 8 1 4 4 4
    4 8 2 4 4 2
    """
    of_one_row = configs(signature, 1, n, k, sm_count)
    if not of_one_row:
        return GemvConfig(signature=signature)  # says why
    k_warps = of_one_row[0][1].k_warps
    return next(config for _, config in configs(signature, m, n, k, sm_count) if config.k_warps == k_warps)


def choose_gemv(
    signature: GemmSignature,
    m: int,
    n: int,
    k: int,
    sm_count: int = arch.SM_COUNT,
    settings: Mapping[str, int] | None = None,
) -> Chosen:
    """Choose as `select_gemv` does, of the transposed product where B has fewer rows than A and the epilogue allows it.

    Settings are fields of `GemvConfig` that are not to be chosen.
    """
    turned = signature.transposed if n < m else None
    kind, m, n = (signature, m, n) if turned is None else (turned, n, m)
    config = select_gemv(kind, m, n, k, sm_count)
    if settings:
        changed: dict[str, Any] = {"ctas_per_sm": 0, **settings}
        config = replace(config, **changed)
    return Chosen(turned is not None, config)


def settings_of(config: GemvConfig) -> dict[str, int]:
    """Describe a configuration of a signature in plain values."""
    return {each.name: getattr(config, each.name) for each in fields(config) if each.name != "signature"}
