"""Heuristic entry points: the configuration that the model expects to be fastest for a problem."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple

from cutepy.kernels.gemm.config import GemmConfig
from cutepy.kernels.gemm.families import ProductConfig
from cutepy.kernels.gemm.gpu import H200, Gpu
from cutepy.kernels.gemm.heuristic.model import Choice, Extents, Table, column_scales, costs_of, epilogue_unit
from cutepy.kernels.gemm.heuristic.tiles import MORE_TILES, PROMOTED_TILES, TILES, OutputTile
from cutepy.kernels.gemm.limits import check_extents
from cutepy.kernels.gemm.loading import copies_per_byte
from cutepy.kernels.gemm.signature import GemmSignature
from cutepy.runtime.invariance import INVARIANCE

if TYPE_CHECKING:
    from cutepy.kernels.gemm.heuristic.candidates import Candidates, RankedChoices

PAIRS = ((1, 1), (2, 1), (1, 2))
_CLUSTERS = {1: (*PAIRS, (2, 2)), 2: PAIRS, 4: PAIRS[:1], 8: PAIRS[:1]}
_FOURS = (*PAIRS, (2, 2), (4, 1), (1, 4))
_MORE_CLUSTERS = {1: _FOURS, 2: _FOURS, 4: PAIRS, 8: PAIRS[:1]}
"""Cluster shapes along M and N that are tried, by `split_k`: alone, and where the model is refined."""
_STRIPS = (32, 16, 64, 128)
"""Columns of a subtile with batch-invariant reductions, by preference: most tiles have the first width."""
_FROM = {
    "refined": ((*TILES, *MORE_TILES), _MORE_CLUSTERS),
    "model": (TILES, _CLUSTERS),
    "promoted": (PROMOTED_TILES, _CLUSTERS),
}


@cache
def candidates(table: Table) -> "Candidates":
    """Return the candidates: refined, by the model alone, or for promoted sums; tiles in clusters."""
    from cutepy.kernels.gemm.heuristic.candidates import Candidates  # import NumPy only when a choice is made

    tiles, clusters = _FROM[table]
    return Candidates(in_clusters(dict.fromkeys(tiles), clusters), costs_of(table))


def in_clusters(tiles: Iterable[OutputTile], clusters: Mapping[int, Iterable[tuple[int, int]]]) -> Iterator[Choice]:
    """Return tiles in the clusters whose CTAs can share them by multicast."""
    for tile in tiles:
        for cluster_m, cluster_n in clusters[tile.split_k]:
            if tile.m % (8 * cluster_n) == 0 == tile.n % (8 * cluster_m):
                yield Choice(tile, cluster_m, cluster_n)


@lru_cache(maxsize=4096)
def _ranked(problems: tuple[Extents, ...], gpu: Gpu) -> "RankedChoices":
    """Rank the candidates of a problem, or of the problem and its transpose."""
    return candidates(problems[0].table).ranked(problems, gpu)


def select_config(
    signature: GemmSignature,
    m: int,
    n: int,
    k: int,
    sm_count: int | None = None,
    *,
    batch: int = 1,
    gpu: Gpu = H200,
) -> GemmConfig:
    """Choose the configuration with the shortest expected time, of those that fit in shared memory.

    Parameters
    ----------
    signature : GemmSignature
        Types and majors.
    m, n, k : int
        Extents, positive.
    sm_count : int, optional
        SMs, if not as many as `gpu` has.
    batch : int
        Products of these extents, positive: their tiles fill the waves together.
    gpu : Gpu
        GPU that computes the product, an H200 by default.

    Raises
    ------
    TypeError
        If an extent is no integer.
    ValueError
        If one is not positive or more than kernels take, or no tile has a kernel with the epilogue.

    Examples
    --------
    >>> half = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16")
    >>> for m, n, k in ((512, 512, 512), (4096, 4096, 4096), (8192, 8192, 512), (64, 64, 8192)):
    ...     config = select_config(half, m, n, k)
    ...     print(m, n, k, config.tile_m * config.tile_n, config.consumers, config.split_k)
    512 512 512 2048 1 1
    4096 4096 4096 32768 1 1
    8192 8192 512 24576 2 1
    64 64 8192 1024 1 8
    """
    gpu = gpu if sm_count is None else replace(gpu, sm_count=sm_count)
    return _fitting(_candidates_of((signature,), (m, n, k, batch), gpu))[1]


def expected_us(m: int, n: int, k: int, operand_bits: int, gpu: Gpu, *, batch: int = 1, shared: bool = False) -> float:
    """Estimate the microseconds that the fastest configuration takes on a GPU.

    A batch may share one B.

    Examples
    --------
    >>> [round(expected_us(4096 // parts, 4096, 4096, 16, H200, batch=parts), -2) for parts in (1, 32, 128)]
    [200.0, 300.0, 1100.0]
    """
    check_extents(m, n, k, batch)
    extents = Extents(m, n, k, operand_bits, batch, shared, INVARIANCE.on)
    return float(_ranked((extents,), gpu).expected_us[0])


class ChosenKernel(NamedTuple):
    """Chosen kernel of a product, and whether it computes the transposed product.

    Attributes
    ----------
    transposed : bool
        True to compute the transposed product, with A and B exchanged.
    config : ProductConfig
        The kernel.
    """

    transposed: bool
    config: ProductConfig


def choose(signature: GemmSignature, m: int, n: int, k: int, *, batch: int = 1, gpu: Gpu = H200) -> ChosenKernel:
    """Choose among configurations of the product and, where the epilogue allows it, of the transposed product.

    With few rows the transposed product is faster: wgmma multiplies 64 rows of A at least, but 8 of B.

    Examples
    --------
    >>> half = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16")
    >>> choose(half, 16, 8192, 8192).transposed, choose(half, 8192, 16, 8192).transposed
    (True, False)
    """
    return ChosenKernel(*_fitting(straight_and_transposed(signature, (m, n, k, batch), gpu)))


def chosen_us(signature: GemmSignature, m: int, n: int, k: int, *, batch: int = 1, gpu: Gpu = H200) -> float:
    """Return the expected microseconds of the configuration that `choose` returns.

    Examples
    --------
    >>> types = {"a_dtype": "float16", "b_dtype": "float16", "out_dtype": "float16"}
    >>> by_tma, by_threads = GemmSignature(**types), GemmSignature(**types, a_align=4, b_align=4)
    >>> for m in (1, 4096):
    ...     print(*(round(chosen_us(signature, m, 4097, 4098), -1) for signature in (by_tma, by_threads)))
    10.0 10.0
    210.0 450.0
    """
    return next(iter(straight_and_transposed(signature, (m, n, k, batch), gpu))).expected_us


class Candidate(NamedTuple):
    """A candidate for the product or its transpose, with its expected time."""

    expected_us: float
    transposed: bool
    signature: GemmSignature
    choice: Choice
    k: int
    strip: int

    def config(self) -> GemmConfig:
        """Return the candidate's configuration."""
        return self.choice.config(self.signature, self.k, self.strip)


def straight_and_transposed(
    signature: GemmSignature, mnk_batch: tuple[int, int, int, int], gpu: Gpu
) -> Iterator[Candidate]:
    """Return the candidates of a product and of its transpose, by expected time."""
    return _candidates_of(ways_of(signature), mnk_batch, gpu)


def ways_of(signature: GemmSignature) -> tuple[GemmSignature, ...]:
    """Return the signatures that compute a product: its own, and that of the transposed product where there is one."""
    transposed = None if INVARIANCE.on and signature.graph.reductions else signature.transposed
    return (signature,) if transposed is None else (signature, transposed)


def _candidates_of(
    signatures: tuple[GemmSignature, ...], mnk_batch: tuple[int, int, int, int], gpu: Gpu
) -> Iterator[Candidate]:
    """Return the candidates of a product with one signature and of its transpose with another, by expected time."""
    problems, k = problems_of(signatures, mnk_batch), mnk_batch[2]
    for expected, transposed, choice in _ranked(problems, gpu).each():
        yield Candidate(expected, bool(transposed), signatures[transposed], choice, k, problems[transposed].strip)


def problems_of(signatures: tuple[GemmSignature, ...], mnk_batch: tuple[int, int, int, int]) -> tuple[Extents, ...]:
    """Describe a product with one signature, and its transpose with another, as the model takes them."""
    m, n, k, batch = mnk_batch
    check_extents(m, n, k, batch)
    extents = zip(signatures, ((m, n), (n, m)), (False, True), strict=False)
    return tuple(extents_of(signature, *mn, k, batch, transposed) for signature, mn, transposed in extents)


def _fitting(candidates: Iterable[Candidate]) -> tuple[bool, GemmConfig]:
    """Return the first candidate that a kernel exists for, and whether it is transposed."""
    refusal = "no tile width is a multiple of the epilogue's column groups"
    for candidate in candidates:
        try:
            return candidate.transposed, candidate.config()
        except ValueError as error:
            refusal = str(error)
    raise ValueError(
        "no tile has a kernel with this epilogue; use fewer or narrower operands and results, or fewer column groups "
        f"(the last tile failed with: {refusal})"
    )


def extents_of(signature: GemmSignature, m: int, n: int, k: int, batch: int, transposed: bool) -> Extents:
    """Describe a problem as the model takes it."""
    a_copies, b_copies = copies_per_byte(signature)
    return Extents(
        *(m, n, k, signature.operand_bits, batch),
        whole=INVARIANCE.on,
        a_mn_major=signature.a_major == "mn",
        b_mn_major=signature.b_major == "mn",
        promotes=signature.scale_rows is not None,
        column_scales=column_scales(signature),
        transposed=transposed,
        a_copies=a_copies,
        b_copies=b_copies,
        unit=epilogue_unit(signature),
        strip=strip_of(signature, n) if INVARIANCE.on and signature.graph.reductions else 0,
        instructions=signature.graph.instructions,
    )


@lru_cache(maxsize=1024)
def strip_of(signature: GemmSignature, n: int) -> int:
    """Choose the columns of a subtile with batch-invariant reductions: a function of N, not of M.

    A tile of 64 rows and so many columns suits any M, so a configuration always exists.

    Raises
    ------
    ValueError
        If none leaves room for the epilogue.

    Examples
    --------
    >>> half = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16")
    >>> strip_of(half, 4096), strip_of(half, 8)
    (32, 16)
    """
    unit, k_spans = epilogue_unit(signature), 1 if signature.scale_rows is None else 2
    strips = (strip for strip in _STRIPS if strip % unit == 0 and strip < 2 * max(16, unit, n))
    smallest = ((strip, Choice(OutputTile(64, strip, k_spans), 1, 1)) for strip in strips)
    return _fitting(Candidate(0.0, False, signature, choice, 0, strip) for strip, choice in smallest)[1].epi_n
