"""Choose the configuration of a grouped product, whose groups' extents the host doesn't know.

What the host knows is how many rows all groups have together. Groups are taken to have 0.5 to 1.5 times their share of
them, and the model of the GEMM (`cutepy.kernels.gemm.model`) tells what a batch of such products takes.
"""

from functools import lru_cache
from typing import NamedTuple

from cutepy.device.rules import check_multicast
from cutepy.kernels.gemm.model import MN_TILES, TILES, Choice
from cutepy.kernels.gemm.signature import GemmSignature
from cutepy.kernels.grouped.config import Along, GroupedConfig
from cutepy.runtime.invariance import INVARIANCE

_SPREAD = (0.5, 1.0, 1.5)
"""The extents of groups, as parts of the mean, that a configuration is to be fast for."""
_TURNING = 1.02
"""By how much the transposed product must be expected to be faster, for its results are stored the slower way."""
_CLUSTERS = ((1, 1), (2, 1), (1, 2))
_TURNED: dict[Along, Along] = {"m": "n", "n": "m", "k": "k"}


class GroupedChoice(NamedTuple):
    """How a grouped product is computed.

    Attributes
    ----------
    transposed : bool
        Whether as the transposed product, with A and B exchanged.
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
    sm_count: int = 132,
    *,
    padded: bool = False,
) -> GroupedChoice:
    """Choose the configuration that is expected to be fastest, of the transposed product too.

    Parameters
    ----------
    signature : GemmSignature
        Types and majors.
    along : "m", "n" or "k"
        Whose extents the groups have.
    mnk : tuple of int
        Extents, positive; the one along which groups are, for all of them together, or where they are padded for each,
        of which half is taken to be used.
    groups : int
        How many.
    sm_count : int
        SMs of the GPU.
    padded : bool
        Whether each group has matrices of its own there too.

    Examples
    --------
    >>> half = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16")
    >>> transposed, config = select_grouped(half, "m", (4096, 4096, 7168), 8)
    >>> transposed, config.along, config.gemm.tile_m, config.gemm.tile_n
    (False, 'm', 128, 256)
    """
    place = "mnk".index(along)
    mean = mnk[place] / (2 if padded else groups)
    extents = [*mnk]
    extents[place] = _rounded(mean)
    m, n, k = extents
    return _select(signature, along, (m, n, k), groups, sm_count, padded, INVARIANCE.on)


def _rounded(mean: float) -> int:
    """Round to a quarter of the power of 2 below, so that about as many tokens find the same choice."""
    unit = max(1, 1 << max(0, int(mean).bit_length() - 3))
    return max(1, round(mean / unit) * unit)


@lru_cache(maxsize=4096)
def _select(
    signature: GemmSignature,
    along: Along,
    mnk: tuple[int, int, int],
    groups: int,
    sm_count: int,
    padded: bool,
    whole: bool,
) -> GroupedChoice:
    m, n, k = mnk
    straight = _configurations(signature, along, mnk, groups, sm_count, padded, whole)
    found = [(cost, False, config) for cost, config in straight]
    if signature.transposed is not None:
        turned = _configurations(signature.transposed, _TURNED[along], (n, m, k), groups, sm_count, padded, whole)
        found += [(cost * _TURNING, True, config) for cost, config in turned]
    if not found:
        raise ValueError(f"no configuration computes groups along {along} of {signature}")
    _, transposed, config = min(found, key=lambda each: each[0])
    return GroupedChoice(transposed, config)


def _configurations(
    signature: GemmSignature,
    along: Along,
    mnk: tuple[int, int, int],
    groups: int,
    sm_count: int,
    padded: bool,
    whole: bool,
) -> list[tuple[float, GroupedConfig]]:
    """Give the fastest configuration and the microseconds that are expected of it, if there is one."""
    place = "mnk".index(along)
    samples = [(*mnk[:place], max(1, round(mnk[place] * part)), *mnk[place + 1 :]) for part in _SPREAD]
    largest = list(map(max, zip(*samples, strict=True)))
    ranked = []
    for choice in _choices(signature, largest, along, whole):
        costs = [choice.estimate_us(m, n, k, signature.operand_bits, sm_count, batch=groups) for m, n, k in samples]
        ranked.append((sum(costs) / len(samples), choice))
    for cost, choice in sorted(ranked, key=lambda each: each[0]):
        try:
            return [(cost, GroupedConfig(gemm=choice.config(signature, mnk[2]), along=along, padded=padded))]
        except ValueError:
            continue
    return []


def _choices(signature: GemmSignature, extents: list[int], along: Along, whole: bool) -> list[Choice]:
    """List what may be chosen: no tile that is mostly empty, no cluster with nothing to share, no K that differs.

    Where K is to be `whole`, none that splits it.
    """
    m, n, k = extents
    bits, found = signature.operand_bits, []
    for tile in MN_TILES if signature.b_major == "mn" else TILES:
        if along == "k" and tile.consumers > 1:
            continue
        if tile.split_k > 1 and (whole or along == "k"):
            continue
        if tile.m >= 2 * max(64, m) or tile.n >= 2 * max(16, n):
            continue
        if tile.split_k > 1 and k * bits < 2 * tile.split_k * tile.k_spans * 1024:
            continue
        for cluster_m, cluster_n in _CLUSTERS if tile.split_k <= 2 else _CLUSTERS[:1]:
            try:
                check_multicast((tile.m, tile.n), (cluster_m, cluster_n))
            except ValueError:
                continue
            if (cluster_m == 1 or m > tile.m) and (cluster_n == 1 or n > tile.n):
                found.append(Choice(tile, cluster_m, cluster_n))
    return found
