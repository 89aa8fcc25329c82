"""Choose the configuration of a grouped product, whose groups' extents the host doesn't know.

What the host knows is how many rows all groups have together. Groups are taken to have 0.5 to 1.5 times their share of
them, and the model of the GEMM (`cutepy.kernels.gemm.model`) tells what a batch of such products takes.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from cutepy.kernels.gemm.choice import candidates
from cutepy.kernels.gemm.model import Extents, epilogue_unit
from cutepy.kernels.gemm.signature import GemmSignature
from cutepy.kernels.grouped.config import Along, GroupedConfig, unit
from cutepy.runtime.invariance import INVARIANCE

_SPREAD = (0.5, 1.0, 1.5)
"""The extents of groups, as parts of the mean, that a configuration is to be fast for."""
_TURNING = 1.02
"""By how much the transposed product must be expected to be faster, for its results are stored the slower way."""
_LARGEST_CLUSTER = 2
"""CTAs that share operands: larger ones were not measured."""
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
    mean = mnk["mnk".index(along)] / (2 if padded else groups)
    return _select(signature, along, _grown(mnk, along, _rounded(mean)), groups, sm_count, padded, INVARIANCE.on)


def _grown(mnk: tuple[int, int, int], along: Along, extent: int) -> tuple[int, int, int]:
    """Give extents with another one along a mode."""
    m, n, k = (extent if mode == along else own for mode, own in zip("mnk", mnk, strict=True))
    return m, n, k


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
    refusal = "no tile suits it"

    def fastest(kind: GemmSignature, along: Along, mnk: tuple[int, int, int]) -> tuple[float, GroupedConfig] | None:
        """Give the fastest configuration and the microseconds that are expected of it, if there is one."""
        nonlocal refusal
        samples = [_grown(mnk, along, max(1, round(mnk["mnk".index(along)] * part))) for part in _SPREAD]
        table, bits = candidates("model" if kind.scale_rows is None else "promoted"), kind.operand_bits
        expected = np.mean([table.expected_us(Extents(*each, bits, groups), sm_count) for each in samples], axis=0)
        m, n, k = samples[-1]  # the largest
        if unit(along, bits) > 1:
            m = max(m, 65)  # with stages of 128 of K, promoted sums have tiles of 128 rows
        largest = Extents(m, n, k, bits, groups, whole=whole or along == "k", b_mn_major=kind.b_major == "mn")
        suits = table.suit(largest._replace(unit=epilogue_unit(kind)))
        for row in np.argsort(np.where(suits, expected, np.inf), kind="stable")[: suits.sum()].tolist():
            choice = table.choices[row]
            if choice.cluster_m * choice.cluster_n > _LARGEST_CLUSTER or (along == "k" and choice.tile.consumers > 1):
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
    if kind is not None and (turned := fastest(kind, _TURNED[along], (n, m, k))):
        found.append((turned[0] * _TURNING, GroupedChoice(True, turned[1])))
    if not found:
        raise ValueError(
            f"no configuration computes groups along {along} of {signature} (what was tried last: {refusal})"
        )
    return min(found, key=lambda each: each[0])[1]
