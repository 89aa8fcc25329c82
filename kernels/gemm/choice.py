"""Choose the configuration of a problem: the one that the model of the kernel expects to be fastest (`model`)."""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from cutepy.kernels.gemm.config import GemmConfig
from cutepy.kernels.gemm.model import H200, MN_TILES, PROMOTED_TILES, TILES, Choice, Extents, Tile
from cutepy.kernels.gemm.signature import GemmSignature
from cutepy.runtime.invariance import INVARIANCE

_CLUSTERS = {1: ((1, 1), (2, 1), (1, 2), (2, 2)), 2: ((1, 1), (2, 1), (1, 2)), 4: ((1, 1),), 8: ((1, 1),)}
"""Clusters along M and N that are tried, by the CTAs that share K."""
_FEW_ROWS = 32
"""So many rows, or fewer, are always computed as columns, by which the model is not sure that it is faster."""


def _tiles(problem: Extents) -> tuple[Tile, ...]:
    if problem.promotes:
        return PROMOTED_TILES
    return MN_TILES if problem.mn_major else TILES


def _choices(problem: Extents) -> Iterator[Choice]:
    """Give what may be chosen for a problem: no tile that is mostly empty, no cluster with nothing to share."""
    m, n, k, operand_bits = problem[:4]
    for tile in _tiles(problem):
        if tile.m >= 2 * max(64, m) or tile.n >= 2 * max(16, n):
            continue
        if problem.whole and tile.split_k > 1:
            continue
        if tile.split_k > 1 and k * operand_bits < 2 * tile.split_k * tile.k_spans * 1024:
            continue
        for cluster_m, cluster_n in _CLUSTERS[tile.split_k]:
            if (cluster_m == 1 or m > tile.m) and (cluster_n == 1 or n > tile.n) and tile.m % (8 * cluster_n) == 0:
                if tile.n % (8 * cluster_m) == 0:
                    yield Choice(tile, cluster_m, cluster_n)


@lru_cache(maxsize=4096)
def _ranked(problem: Extents, sm_count: int) -> tuple[tuple[float, Choice], ...]:
    """Give what may be chosen for a problem, by the time that is expected of it."""
    m, n, k, batch = problem.m, problem.n, problem.k, problem.batch
    if min(m, n, k, batch) < 1:
        raise ValueError(
            f"m, n, k and batch must be positive, got {m}, {n}, {k}, {batch}; an empty product needs no kernel"
        )
    found = ((choice.expected_us(problem, sm_count, H200), choice) for choice in _choices(problem))
    return tuple(sorted(found, key=lambda each: each[0]))


def select_config(
    signature: GemmSignature, m: int, n: int, k: int, sm_count: int = 132, *, batch: int = 1
) -> GemmConfig:
    """Choose the configuration that is expected to be fastest for a problem, of those whose shared memory suffices.

    Parameters
    ----------
    signature : GemmSignature
        Types and majors.
    m, n, k : int
        Extents, positive.
    sm_count : int
        SMs of the GPU.
    batch : int
        Products of these extents, positive: their tiles fill the waves together.

    Raises
    ------
    ValueError
        If an extent is not positive, or no tile leaves room for the epilogue.

    Examples
    --------
    >>> half = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16")
    >>> for m, n, k in ((512, 512, 512), (4096, 4096, 4096), (8192, 8192, 512), (64, 64, 8192)):
    ...     config = select_config(half, m, n, k)
    ...     print(m, n, k, config.tile_m, config.tile_n, config.consumers, config.split_k)
    512 512 512 64 32 1 1
    4096 4096 4096 128 256 1 1
    8192 8192 512 128 192 2 1
    64 64 8192 64 16 1 8
    """
    _, config = _fitting(signature, m, n, k, sm_count, batch)
    return config


def _fitting(signature: GemmSignature, m: int, n: int, k: int, sm_count: int, batch: int) -> tuple[float, GemmConfig]:
    """Give the fastest configuration that a kernel can have, and the time that is expected of it."""
    columns, refusal = 16 * signature.graph.widest, ""
    for expected, choice in _ranked(_extents(signature, m, n, k, batch), sm_count):
        if choice.tile.n % columns == 0:
            try:
                return expected, choice.config(signature, k)
            except ValueError as error:
                refusal = str(error)
    raise ValueError(f"no tile leaves room for the epilogue's operands and results; use fewer of them ({refusal})")


def expected_us(
    m: int,
    n: int,
    k: int,
    operand_bits: int,
    sm_count: int = 132,
    *,
    batch: int = 1,
    shared: bool = False,
) -> float:
    """Estimate the microseconds that the fastest configuration takes on the GPU.

    A batch may share one B.

    Examples
    --------
    >>> [round(expected_us(4096 // parts, 4096, 4096, 16, batch=parts)) for parts in (1, 32, 128)]
    [187, 288, 1077]
    """
    extents = Extents(m, n, k, operand_bits, batch, shared, INVARIANCE.on)
    expected, _ = _ranked(extents, sm_count)[0]
    return expected


class Chosen(NamedTuple):
    """How a problem is computed.

    Attributes
    ----------
    transposed : bool
        Whether as the transposed product, with A and B exchanged.
    config : GemmConfig
        The kernel.
    """

    transposed: bool
    config: GemmConfig


def choose(signature: GemmSignature, m: int, n: int, k: int, sm_count: int = 132, *, batch: int = 1) -> Chosen:
    """Choose as `select_config` does, of the transposed product too, where the epilogue has a place in it.

    With few rows that is faster: wgmma multiplies 64 rows of A at least, but 8 of B.

    Examples
    --------
    >>> half = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16")
    >>> choose(half, 16, 8192, 8192).transposed, choose(half, 8192, 8192, 8192).transposed
    (True, False)
    """
    found: list[tuple[float, Chosen]] = []
    refusals: list[ValueError] = []
    for transposed, kind, rows, columns in ((False, signature, m, n), (True, signature.transposed, n, m)):
        if kind is not None:
            try:
                expected, config = _fitting(kind, rows, columns, k, sm_count, batch)
            except ValueError as error:
                refusals.append(error)
                continue
            found.append((expected, Chosen(transposed, config)))
    if not found:
        raise refusals[0]
    if m <= _FEW_ROWS < n and found[-1][1].transposed:
        return found[-1][1]
    return min(found, key=lambda each: each[0])[1]


def _extents(signature: GemmSignature, m: int, n: int, k: int, batch: int) -> Extents:
    return Extents(
        *(m, n, k, signature.operand_bits, batch),
        whole=INVARIANCE.on,
        mn_major=signature.b_major == "mn",
        promotes=signature.scale_rows is not None,
    )
