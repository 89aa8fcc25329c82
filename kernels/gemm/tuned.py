"""Search space of `cutepy tune gemm`, and look-up of its winners: problems and candidates as plain values."""

from dataclasses import asdict
from itertools import islice
from typing import Any, NamedTuple

from cutepy.device import rules
from cutepy.kernels.gemm.config import GemmConfig
from cutepy.kernels.gemm.gpu import H200, Gpu
from cutepy.kernels.gemm.heuristic.choice import ChosenKernel, extents_of
from cutepy.kernels.gemm.heuristic.estimates import Estimator
from cutepy.kernels.gemm.heuristic.model import Choice, costs_of
from cutepy.kernels.gemm.heuristic.tiles import OutputTile
from cutepy.kernels.gemm.signature import GemmSignature
from cutepy.kernels.gemv import choice as gemv
from cutepy.kernels.gemv.config import GemvConfig
from cutepy.layouts.sm90.arch import SM_COUNT
from cutepy.tune import Settings, Space, winner

NAME = "gemm"
MOST = 100
"""Largest number of candidates timed for a problem: those with the shortest expected times."""


_WORTH_SHARING = 0.95
"""Stream-K is tried where its expected time is below this fraction of whole tiles' time."""
_DEALT = 1.05
"""Expected slowdown by dynamic scheduling: an H200 took 1.03 and 1.09."""
_SHARED, _SHARED_US, _SHARED_ELEMENT_US = 1.115, 2.3, 2.15e-4
"""Overhead of stream-K over its part of whole tiles: factor, minimum in microseconds, and microseconds for each
element. Fitted to 2,453 device times of 14 problems on an H200, 2026-11-24, with 14% of the fastest ones left
unexplained.
"""


def _of_waves(tile_m: int, tile_n: int, k_spans: int, m: int, n: int, spans: int, batch: int) -> float:
    """Return the fraction of whole tiles' steps that stream-K takes."""
    tiles, k_tiles = -(-m // tile_m) * -(-n // tile_n) * batch, -(-spans // k_spans)
    plan = rules.Shares(tiles, k_tiles, min(SM_COUNT, tiles * rules.parts_of(k_tiles)))
    return float(plan.steps / (-(-tiles // SM_COUNT) * k_tiles))


SPACE = (
    Space(
        {
            "tile_m": (64, 128, 192, 256),
            "tile_n": (*range(16, 257, 16), 24, 40, 56, 72, 120, 168, 200, 216),
            "consumers": (1, 2),
            "split_k": (1, 2, 4, 8),
            "k_spans": (1, 2),
            "stream_k": (False, True),
            "dynamic": (False, True),
            "cluster_m": (1, 2, 4),
            "cluster_n": (1, 2, 4),
            "epi_n": (16, 32, 64, 24, 40, 56, 72),
        }
    )
    .where("mostly empty rows", lambda tile_m, m: tile_m < 2 * max(64, m))
    .where("mostly empty columns", lambda tile_n, n: tile_n < 2 * max(16, n))
    .where("two consumers where K is split", lambda consumers, split_k: 1 in (consumers, split_k))
    .where("less than two steps along K", lambda split_k, k_spans, spans: split_k <= max(1, spans // (2 * k_spans)))
    .where("shares of what is split", lambda consumers, split_k, stream_k: not stream_k or consumers == split_k == 1)
    .where("wide subtiles of what is shared", lambda stream_k, epi_n: not stream_k or epi_n <= 32)
    .where(
        "even waves",
        lambda tile_m, tile_n, k_spans, stream_k, m, n, spans, batch: (
            not stream_k or _of_waves(tile_m, tile_n, k_spans, m, n, spans, batch) < _WORTH_SHARING
        ),
    )
    .where("two ways to deal tiles out", lambda stream_k, dynamic: not (stream_k and dynamic))
    .where(
        "a tile each",
        lambda tile_m, tile_n, split_k, dynamic, m, n, batch: (
            not dynamic or -(-m // tile_m) * -(-n // tile_n) * batch * split_k > SM_COUNT
        ),
    )
    .where("long stages of large tiles", lambda tile_n, k_spans: k_spans == 1 or tile_n <= 96)
    .where("no rows to share", lambda tile_m, cluster_m, m: tile_m * (cluster_m - 1) < m)
    .where("no columns to share", lambda tile_n, cluster_n, n: tile_n * (cluster_n - 1) < n)
    .where("large clusters", lambda cluster_m, cluster_n: cluster_m * cluster_n <= 4)
    .where("large clusters that share K", lambda split_k, cluster_m, cluster_n: cluster_m * cluster_n * split_k <= 8)
    .where("parts of subtiles in the epilogue", lambda tile_n, epi_n: tile_n % epi_n == 0)
    .where("odd subtiles of even tiles", lambda tile_n, epi_n: epi_n % 16 == 0 or tile_n % 32 > 0)
    .where("small subtiles in the epilogue", lambda tile_n, split_k, epi_n: epi_n > 16 or split_k > 1 or tile_n % 32)
)
"""Search space, for kernels of M rows, N columns and so many spans of 128 bytes along K. Candidates that the kernel
refuses or the model expects to be slow are left out besides.
"""

GEMV = "gemv"
_FAMILIES: dict[str, type[GemmConfig | GemvConfig]] = {NAME: GemmConfig, GEMV: GemvConfig}
"""Kernel families by the `family` of a candidate; the GEMM's candidates have none."""
_TILE = ("tile_m", "tile_n", "tile_k", "warpgroups", "consumers", "cluster_m", "cluster_n")
_CANDIDATE = (*_TILE, "split_k", "stream_k", "dynamic", "epi_n")


_USUAL: dict[str, Any] = {"a_align": rules.TMA_BYTES, "b_align": rules.TMA_BYTES, "tma_scales": "0 0"}
"""Defaults that are left out of a description, so that winners from before a field existed are found."""


def problem_of(signature: GemmSignature, m: int, n: int, k: int, batch: int = 1) -> dict[str, Any]:
    """Describe a problem, as requested and not transposed, in plain values."""
    operands = " ".join(":".join(each) for each in signature.operand_types)
    scales = signature.scale_rows and " ".join(map(str, signature.scale_rows))
    by_tma = " ".join(str(int(loads)) for loads in signature.tma_scales)
    types = {**asdict(signature), "operand_types": operands, "scale_rows": scales, "tma_scales": by_tma}
    for name, usual in _USUAL.items():
        if types[name] == usual:
            del types[name]
    return {"m": m, "n": n, "k": k, "batch": batch, **types}


def signature_of(problem: Settings) -> GemmSignature:
    """Return the signature of a described problem."""
    kept: dict[str, Any] = {name: value for name, value in problem.items() if name not in ("m", "n", "k", "batch")}
    kept["operand_types"] = tuple(tuple(each.split(":")) for each in kept["operand_types"].split())
    if kept["scale_rows"] is not None:
        kept["scale_rows"] = tuple(map(int, kept["scale_rows"].split()))
    kept["tma_scales"] = tuple(each == "1" for each in kept.get("tma_scales", _USUAL["tma_scales"]).split())
    return GemmSignature(**kept)


def candidate_of(chosen: ChosenKernel) -> dict[str, Any]:
    """Describe a choice in plain values; stages are as many as fit."""
    transposed, config = chosen
    if isinstance(config, GemvConfig):
        return {"transposed": transposed, "family": GEMV, **gemv.settings_of(config)}
    return {"transposed": transposed, **{name: getattr(config, name) for name in _CANDIDATE}}


def chosen_of(problem: Settings, candidate: Settings) -> ChosenKernel:
    """Return the choice that is described.

    Raises
    ------
    ValueError, TypeError
        If the kernel has no such configuration.
    """
    settings: dict[str, Any] = dict(candidate)
    transposed = bool(settings.pop("transposed"))
    asked = signature_of(problem)
    signature = asked.transposed if transposed else asked
    if signature is None:
        raise ValueError("an epilogue that parts columns has no place in the transposed product")
    family = _FAMILIES[settings.pop("family", NAME)]
    return ChosenKernel(transposed, family(signature=signature, **settings))


def candidates(problem: Settings, most: int = MOST) -> list[dict[str, Any]]:
    """List the candidates of a problem and of its transpose, shortest expected time first."""
    signature, (m, n, k, batch) = signature_of(problem), _extents(problem)
    found: list[tuple[float, dict[str, Any]]] = []
    for transposed, rows, columns in ((False, m, n), (True, n, m)):
        computed = signature.transposed if transposed else signature
        if computed is not None:
            found += _with_tensor_cores(computed, transposed, rows, columns, k, batch)
            found += _without_tensor_cores(computed, transposed, rows, columns, k, batch)
    ranked = (candidate for _, candidate in sorted(found, key=lambda each: each[0]))
    return list(islice((candidate for candidate in ranked if _has_kernel(problem, candidate)), most))


def _has_kernel(problem: Settings, candidate: Settings) -> bool:
    try:
        chosen_of(problem, candidate)
    except ValueError:
        return False
    return True


def _with_tensor_cores(
    signature: GemmSignature, transposed: bool, m: int, n: int, k: int, batch: int
) -> list[tuple[float, dict[str, Any]]]:
    """List tensor-core candidates with their expected times; the kernel may refuse some."""
    bits = signature.operand_bits
    points, choices, longer, added = [], [], [], []
    facts = {"m": m, "n": n, "spans": -(-k * bits // 1024), "batch": batch}
    for point in SPACE.candidates(facts):
        candidate: dict[str, Any] = {"transposed": transposed, **point}
        spans = candidate.pop("k_spans")
        candidate["tile_k"] = spans * 1024 // bits
        tile = OutputTile(candidate["tile_m"], candidate["tile_n"], spans, candidate["consumers"], candidate["split_k"])
        candidate["warpgroups"] = tile.warpgroups
        points.append(candidate)
        choices.append(Choice(tile, candidate["cluster_m"], candidate["cluster_n"]))
        if candidate["stream_k"]:
            longer.append(_SHARED * _of_waves(tile.m, tile.n, spans, **facts))
            added.append(_SHARED_US + _SHARED_ELEMENT_US * tile.m * tile.n)
        else:
            longer.append(_DEALT if candidate["dynamic"] else 1.0)
            added.append(0.0)
    extents = extents_of(signature, m, n, k, batch, transposed)
    expected = Estimator(choices, costs_of(extents.table))([extents], H200).us[0] * longer + added
    return list(zip(expected.tolist(), points, strict=True))


def _without_tensor_cores(
    signature: GemmSignature, transposed: bool, m: int, n: int, k: int, batch: int
) -> list[tuple[float, dict[str, Any]]]:
    """List candidates without tensor cores (`kernels.gemv`) with their expected times, for few rows."""
    if m > gemv.MOST_ROWS or batch > 1:
        return []
    ranked = gemv.configs(signature, m, n, k)[: gemv.MOST]
    return [(expected, candidate_of(ChosenKernel(transposed, config))) for expected, config in ranked]


def default(problem: Settings, gpu: Gpu = H200) -> dict[str, Any]:
    """Return the candidate that the heuristic chooses for a GPU."""
    m, n, k, batch = _extents(problem)
    return candidate_of(gemv.fastest(signature_of(problem), m, n, k, batch=batch, gpu=gpu))


class TunedKernel(NamedTuple):
    """Winner of a tuned problem.

    Attributes
    ----------
    chosen : ChosenKernel
    us : float
        Device time of a launch, in microseconds.
    """

    chosen: ChosenKernel
    us: float


def tuned(device: str, signature: GemmSignature, m: int, n: int, k: int, batch: int = 1) -> TunedKernel | None:
    """Look up the winner for a kind of GPU; None if there is none, or if its configuration is no longer valid."""
    problem = problem_of(signature, m, n, k, batch)
    found = winner(device, NAME, problem)
    if found is None:
        return None
    try:
        return TunedKernel(chosen_of(problem, found.candidate), found.us)
    except (ValueError, TypeError, KeyError):  # a winner of another version's kernel
        return None


def _extents(problem: Settings) -> tuple[int, int, int, int]:
    facts: dict[str, Any] = dict(problem)
    return facts["m"], facts["n"], facts["k"], facts["batch"]
