"""Choose the configuration of a grouped product, whose groups' extents the host doesn't know.

The host knows the total extent of all groups. Each group is assumed to have 0.5 to 1.5 times the mean, and the model of
the GEMM (`cutepy.kernels.gemm.heuristic.model`) estimates a batch of such products.
"""

from dataclasses import replace
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cutepy.kernels.gemm.gpu import H200, Gpu
from cutepy.kernels.gemm.heuristic.candidates import Candidates
from cutepy.kernels.gemm.heuristic.choice import PAIRS, candidates, in_clusters
from cutepy.kernels.gemm.heuristic.model import Choice, Extents, Table, column_scales, costs_of, epilogue_unit
from cutepy.kernels.gemm.heuristic.tiles import OutputTile
from cutepy.kernels.gemm.signature import GemmSignature
from cutepy.kernels.grouped.config import Along, GroupedConfig, unit
from cutepy.layouts.sm90 import arch
from cutepy.runtime.invariance import INVARIANCE

_SPREAD = (0.5, 1.0, 1.5)
"""Extents of groups, as fractions of the mean, that the expected time averages over."""
_TRANSPOSED_FACTOR = 1.02
"""Factor by which the transposed product must be expected to be faster, for its results are stored more slowly."""
_LARGEST_CLUSTER = 2
"""Largest cluster: larger ones were not measured."""
_FEW_ROWS = 128
"""Mean rows of a group up to which reading the other operand takes longer than multiplying. As groups larger than a
tile read that again for each, a cluster's tiles cover twice the mean there, and no tile by itself, of which half would
be empty; those of `_FLAT` come first. On an H100, 2026-11-25, 64 groups of 64 rows by 4096x7168, equal ones and such as
fall off like 1, 1/2, 1/3, ..., took 1369 and 1450 us by tiles of 64x256 in clusters of 2x1, 1345 and 1441 by 256x64
(transposed) in clusters of 1x2, 1390 and 1569 by 64x192 in 2x1, 1301 and 1771 by 64x128 without clusters, and 1452 and
1609 by 128x256.
"""
_FLAT = 256
_FLAT_TILES = tuple(OutputTile(_FLAT, n) for n in (128, 96, 80, 64, 48, 32, 16))
"""Further candidates: few rows by many columns, transposed."""
_TRANSPOSED_ALONG: dict[Along, Along] = {"m": "n", "n": "m", "k": "k"}


class GroupedChoice(NamedTuple):
    """Chosen kernel of a grouped product, and whether it computes the transposed product.

    Attributes
    ----------
    transposed : bool
        True to compute the transposed product, with A and B exchanged.
    config : GroupedConfig
        The kernel.
    """

    transposed: bool
    config: GroupedConfig


def select_grouped(
    signature: GemmSignature,
    along: Along,
    mnk: tuple[int, int, int],
    groups: int,
    sm_count: int | None = None,
    *,
    padded: bool = False,
    gpu: Gpu = H200,
) -> GroupedChoice:
    """Choose the configuration that is expected to be fastest, of the transposed product too.

    Parameters
    ----------
    signature : GemmSignature
        Types and majors.
    along : "m", "n" or "k"
        Extent that the groups divide.
    mnk : tuple of int
        Extents, positive; the one along which groups are, for all of them together, or where they are padded for each,
        of which half is taken to be used.
    groups : int
        Number of groups.
    sm_count : int, optional
        SMs, if not as many as `gpu` has.
    padded : bool
        True if each group has matrices of its own there too.
    gpu : Gpu
        GPU that computes the product, an H200 by default.

    Examples
    --------
    >>> half = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16")
    >>> transposed, config = select_grouped(half, "m", (4096, 4096, 7168), 8)
    >>> transposed, config.along, config.gemm.tile_m, config.gemm.tile_n
    (False, 'm', 128, 256)
    """
    gpu = gpu if sm_count is None else replace(gpu, sm_count=sm_count)
    mean = mnk["mnk".index(along)] / (2 if padded else groups)
    return _select(signature, along, _grown(mnk, along, _rounded(mean)), groups, gpu, padded, INVARIANCE.on)


@cache
def _candidates(promotes: bool) -> Candidates:
    """Return the candidates: the model's tables and flat tiles, in clusters of two at most."""
    table: Table = "promoted" if promotes else "model"
    first = candidates(table).choices
    every = (*first, *in_clusters(_FLAT_TILES, {1: PAIRS}))
    small = (each for each in every if each.cluster_m * each.cluster_n <= _LARGEST_CLUSTER)
    return Candidates(dict.fromkeys(small), costs_of(table))


def _in_order(
    table: Candidates, suits: NDArray[np.bool_], expected: NDArray[np.float64], along: Along, mean: int
) -> list[int]:
    """List the suitable candidates by expected time, those for few rows of a group first."""
    is_few = along != "k" and mean <= _FEW_ROWS
    later = np.array([_later(choice, along, mean) if is_few else 0 for choice in table.choices])
    order: list[int] = np.lexsort((expected, later, ~suits))[: suits.sum()].tolist()
    return order


def _later(choice: Choice, along: Along, mean: int) -> int:
    """Rank tiles for few rows of a group: 0 flat tiles whose cluster covers it, 1 other tiles that do, 2 all others."""
    (m, n), clusters = choice.tile[:2], (choice.cluster_m, choice.cluster_n)
    rows, across, cluster = (m, n, clusters[0]) if along == "m" else (n, m, clusters[1])
    covers = rows * cluster >= 2 * mean and rows < max(2 * mean, arch.WGMMA_M + 1)
    return 2 if not covers else int(across != _FLAT)


def _grown(mnk: tuple[int, int, int], along: Along, extent: int) -> tuple[int, int, int]:
    """Return extents with one mode's replaced."""
    m, n, k = (extent if mode == along else own for mode, own in zip("mnk", mnk, strict=True))
    return m, n, k


def _rounded(mean: float) -> int:
    """Round to a quarter of the power of 2 below, so that similar token counts share a choice."""
    unit = max(1, 1 << max(0, int(mean).bit_length() - 3))
    return max(1, round(mean / unit) * unit)


@lru_cache(maxsize=4096)
def _select(
    signature: GemmSignature,
    along: Along,
    mnk: tuple[int, int, int],
    groups: int,
    gpu: Gpu,
    padded: bool,
    whole: bool,
) -> GroupedChoice:
    refusal = "no tile suits it"

    def fastest(kind: GemmSignature, along: Along, mnk: tuple[int, int, int]) -> tuple[float, GroupedConfig] | None:
        """Return the fastest configuration and its expected microseconds, None if there is none."""
        nonlocal refusal
        samples = [_grown(mnk, along, max(1, round(mnk["mnk".index(along)] * part))) for part in _SPREAD]
        table, bits = _candidates(kind.scale_rows is not None), kind.operand_bits
        problems = [Extents(*each, bits, groups, column_scales=column_scales(kind)) for each in samples]
        expected = table.expected_us(problems, gpu).mean(axis=0)
        m, n, k = samples[-1]  # the largest
        if unit(along, bits) > 1:
            m = max(m, 65)  # with stages of 128 of K, promotion works with tiles of 128 rows
        largest = Extents(m, n, k, bits, groups, whole=whole or along == "k", b_mn_major=kind.b_major == "mn")
        (suits,) = table.suit([largest._replace(unit=epilogue_unit(kind))])
        for row in _in_order(table, suits, expected, along, mnk["mnk".index(along)]):
            choice = table.choices[row]
            if along == "k" and choice.tile.consumers > 1:
                continue
            try:
                config = GroupedConfig(gemm=choice.config(kind, mnk[2]), along=along, padded=padded)
            except ValueError as error:
                refusal = str(error)
                continue
            return float(expected[row]), config
        return None

    found = []
    if straight := fastest(signature, along, mnk):
        found.append((straight[0], GroupedChoice(False, straight[1])))
    (m, n, k), kind = mnk, signature.transposed
    if kind is not None and (transposed := fastest(kind, _TRANSPOSED_ALONG[along], (n, m, k))):
        found.append((transposed[0] * _TRANSPOSED_FACTOR, GroupedChoice(True, transposed[1])))
    if not found:
        raise ValueError(
            f"no configuration computes groups along {along} of {signature} (the last one failed with: {refusal})"
        )
    return min(found, key=lambda each: each[0])[1]
