"""Choose the configuration of a product of few rows, and list the candidates for `cutepy tune gemm`."""

from collections.abc import Mapping
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any, NamedTuple

from cutepy.kernels.gemm.gpu import H200, Gpu
from cutepy.kernels.gemm.heuristic.choice import ChosenKernel, choose, chosen_us
from cutepy.kernels.gemm.signature import GemmSignature
from cutepy.kernels.gemv.config import GemvConfig
from cutepy.kernels.gemv.model import expected_us
from cutepy.layouts.sm90 import arch
from cutepy.runtime.invariance import INVARIANCE
from cutepy.tune import Space

MOST_ROWS = 8
"""Most rows for which multiply-adds keep up with memory: an SM's 128 a cycle against 18 bytes read a cycle allow 14 for
16 bits.
"""
MOST = 24
"""Largest number of candidates tried: those with the shortest expected times."""

_LAUNCH_US, _OUTPUT_US, _CHUNK_US, _CHUNK_ROW_US = 1.38, 0.0062, 0.413, 0.024
_US_PER_MB = {
    **{(16, 1): 0.224, (16, 2): 0.232, (16, 4): 0.277, (16, 8): 0.436},
    **{(8, 1): 0.239, (8, 2): 0.294, (8, 4): 0.489, (8, 8): 0.876},
}
_NORM = 4
"""Times of a launch; of an SM's output; of a chunk of K, whose loads the lanes of all warps that share K begin at once,
and for each row of that; of a megabyte of B, by the bits of an element and `tile_m`. The sum of the last two is a
smooth maximum: chunks arrive while memory is read. A launch takes 1.33 us.

Fitted to 109 device times on an H200, 2026-11-30, back to back and in company, and to 35 larger ones of 2026-11-24; by
a fit to the others, the choice of a family in each of three runs is 2.1%, 2.1% and 1.1% slower than the faster family.
Of 57 products in the journals of 2026-11-30 and 12-01 that both families were timed for, it is 1.7% slower, which a
test checks: trees that are fitted anew change what is expected of tensor cores, and the time of a launch with it.
"""
_STEADY = {
    (16, 1): {"columns": 2, "unroll": 2},
    (16, 2): {"columns": 4, "unroll": 2},
    (16, 4): {"columns": 4, "unroll": 2},
    (8, 1): {"columns": 4, "unroll": 1},
    (8, 2): {"columns": 4, "unroll": 1},
}
"""Default configurations, fast wherever K is long and there are columns enough, with four warps that share K. An H200,
2026-11-24: 2,576 device times of 45 products, B of 2 to 134 MB in bfloat16 or float8, the whole search space. Of 16
bits the default is 1.2% slower than the fastest for a row and 3.4% for two, of 8 bits 3.5% for a row.
"""
_MOST_COVERED, _MOST_UNROLLED, _LEAST_FILLED = 1.2, 1.15, 0.85
"""Limits: K covered beyond its extent by more warps, and by more unrolling; and the evenness with which CTAs fill SMs.
An H100, 2026-11-25: 1,100 device times of 32 products of 1408 to 20000 columns and K of 520 to 2744. The choice of
`_steady` was timed for 31 of them: it is 5% slower than the fastest, in the geometric mean, and 20% at most (the
previous rule: 13%, 34%).
"""

SPACE = (
    Space({"columns": (1, 2, 4, 8), "unroll": (1, 2, 4, 8), "warps": (4, 8), "k_warps": (1, 2, 4, 8)})
    .where("more sums than lanes", lambda columns, tile_m: columns * tile_m <= arch.WARP_THREADS)
    .where("more warps for K than there are", lambda warps, k_warps: k_warps <= warps)
    .where("more read at once than a lane has registers for", lambda columns, unroll: columns * unroll <= 16)
    .where("less than a step along K", lambda k_warps, unroll, pieces: k_warps * unroll * arch.WARP_THREADS <= pieces)
)
"""Search space, for so many rows and 16-byte pieces along K; the kernel refuses some of it besides."""


@lru_cache(maxsize=1024)
def configs(
    signature: GemmSignature, m: int, n: int, k: int, sm_count: int = arch.SM_COUNT
) -> tuple[tuple[float, GemvConfig], ...]:
    """List configurations of a product with their expected microseconds, fastest first.

    Empty for types, majors and epilogues that the kernel doesn't take.
    """
    tile_m = _tile_m(m)
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
    """Choose a configuration whose order of summation is the same for any M: the default, or else the model's.

    Raises
    ------
    ValueError
        If the kernel doesn't take such types, majors or epilogues.

    Examples
    --------
    >>> half = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16")
    >>> for m, k in ((1, 7168), (4, 7168), (4, 1024)):
    ...     config = select_gemv(half, m, 4096, k)
    ...     print(config.tile_m, config.columns, config.unroll, config.warps, config.k_warps, config.ctas_per_sm)
    1 2 2 4 4 8
    4 4 2 4 4 4
    4 4 1 4 4 4
    """
    if steady := _steady(signature, m, n, k, sm_count):
        return steady
    ranked = configs(signature, 1, n, k, sm_count)
    if not ranked:
        return GemvConfig(signature=signature)  # the kernel's error says why
    steady = _steady(signature, 1, n, k, sm_count)
    # Eight rows have fewer columns, so fewer warps may share K where an epilogue splits columns into groups.
    of_any = {config.k_warps for _, config in configs(signature, MOST_ROWS, n, k, sm_count)}
    preferred = ([steady] if steady else []) + [config for _, config in ranked]
    k_warps = next(config.k_warps for config in preferred if config.k_warps in of_any)
    return next(config for _, config in configs(signature, m, n, k, sm_count) if config.k_warps == k_warps)


def _steady(signature: GemmSignature, m: int, n: int, k: int, sm_count: int) -> GemvConfig | None:
    """Return the default configuration adapted to N and K, if the kernel takes it.

    Warps share K, and lanes load at once, where the steps of both cover little more than K. CTAs take fewer columns
    where more would leave SMs idle. Only columns and unrolling depend on M.
    """
    bits, tile_m = signature.operand_bits, _tile_m(m)
    settings = _STEADY.get((bits, tile_m))
    if settings is None:
        return None
    pieces, columns, warps = _pieces(k, bits), settings["columns"], 4

    def covered(k_warps: int, unroll: int) -> float:
        step = k_warps * unroll * arch.WARP_THREADS
        return -(-pieces // step) * step / pieces

    has_steps = [shared for shared in (4, 2) if shared * arch.WARP_THREADS <= pieces]
    k_warps = next((shared for shared in has_steps if covered(shared, 1) <= _MOST_COVERED), 1)
    unroll = settings["unroll"] if covered(k_warps, settings["unroll"]) <= _MOST_UNROLLED * covered(k_warps, 1) else 1
    while columns > 1 and _filled(-(-n // (columns * warps // k_warps)), sm_count) < _LEAST_FILLED:
        columns //= 2
    try:
        return GemvConfig(
            signature=signature, tile_m=tile_m, columns=columns, unroll=unroll, warps=warps, k_warps=k_warps
        )
    except ValueError:
        return None


def _filled(ctas: int, sm_count: int) -> float:
    """Return the mean load of SMs in CTAs as a fraction of the busiest SM's."""
    ctas = max(ctas, 1)
    return ctas / (-(-ctas // sm_count) * sm_count)


def fastest(signature: GemmSignature, m: int, n: int, k: int, *, batch: int = 1, gpu: Gpu = H200) -> ChosenKernel:
    """Choose between this family and the GEMM by expected time.

    Examples
    --------
    >>> half = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16")
    >>> for m, n, k in ((1, 8192, 8192), (8192, 1, 8192), (4, 8192, 8192), (4, 2048, 1024)):
    ...     transposed, config = fastest(half, m, n, k)
    ...     print(transposed, type(config).__name__)
    False GemvConfig
    True GemvConfig
    True GemmConfig
    False GemvConfig
    """
    found = expected(signature, m, n, k, batch=batch, gpu=gpu)
    if found is not None and found.us < chosen_us(signature, m, n, k, batch=batch, gpu=gpu):
        return found.chosen
    return choose(signature, m, n, k, batch=batch, gpu=gpu)


class GemvChoice(NamedTuple):
    """Choice of this family for a product.

    Attributes
    ----------
    chosen : ChosenKernel
        The kernel.
    parts : dict of str to float
        Parts of its expected time in microseconds; the last two overlap.
    """

    chosen: ChosenKernel
    parts: dict[str, float]

    @property
    def us(self) -> float:
        """Expected microseconds."""
        launch, outputs, *loads = self.parts.values()
        return launch + outputs + float(sum(us**_NORM for us in loads) ** (1 / _NORM))


def expected(signature: GemmSignature, m: int, n: int, k: int, *, batch: int = 1, gpu: Gpu = H200) -> GemvChoice | None:
    """Return this family's choice with its expected time; None for products that it isn't chosen for."""
    pace = _US_PER_MB.get((signature.operand_bits, _tile_m(min(m, n))))
    if pace is None or min(m, n) > MOST_ROWS or batch > 1 or INVARIANCE.on:
        return None
    try:
        found = choose_gemv(signature, m, n, k, gpu.sm_count)
    except ValueError:  # a ValueError: types, majors or an epilogue that the kernel doesn't take
        return None
    if min(m, n) != (n if found.transposed else m):
        return None
    config = found.config
    assert isinstance(config, GemvConfig)
    step = config.k_warps * config.unroll * arch.WARP_THREADS
    chunks = -(-_pieces(k, signature.operand_bits) // step) * config.unroll
    streamed_mb = max(m, n) * k * signature.operand_bits / 8e6
    parts = {
        "launch": _LAUNCH_US,
        "epilogue": _OUTPUT_US * config.tile_m * max(m, n) / gpu.sm_count,
        "device memory": pace * H200.memory_tbs / gpu.memory_tbs * streamed_mb,
        "load latency": chunks * (_CHUNK_US + _CHUNK_ROW_US * config.tile_m),
    }
    return GemvChoice(found, parts)


def choose_gemv(
    signature: GemmSignature,
    m: int,
    n: int,
    k: int,
    sm_count: int = arch.SM_COUNT,
    settings: Mapping[str, int] | None = None,
) -> ChosenKernel:
    """Choose as `select_gemv` does, of the transposed product where B has fewer rows than A and the epilogue allows it.

    Settings are fields of `GemvConfig` with given values.
    """
    transposed = signature.transposed if n < m else None
    kind, m, n = (signature, m, n) if transposed is None else (transposed, n, m)
    config = select_gemv(kind, m, n, k, sm_count)
    if settings:
        names = list(settings_of(config))
        if unknown := ", ".join(name for name in settings if name not in names):
            raise ValueError(f"settings must be among {', '.join(names)}, got {unknown}")
        changed: dict[str, Any] = {"ctas_per_sm": 0, **settings}
        config = replace(config, **changed)
    return ChosenKernel(transposed is not None, config)


def settings_of(config: GemvConfig) -> dict[str, int]:
    """Describe a configuration of a signature in plain values."""
    return {each.name: getattr(config, each.name) for each in fields(config) if each.name != "signature"}


def _pieces(k: int, bits: int) -> int:
    """Return the number of 16-byte pieces along K."""
    return max(1, -(-k * bits // arch.UNIT_BITS))


def _tile_m(m: int) -> int:
    return next(rows for rows in (1, 2, 4, 8) if rows >= min(m, MOST_ROWS))
