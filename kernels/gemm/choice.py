"""Choose the configuration of a problem: the one that a model of the kernel on an H200 expects to be fastest.

The model knows no problem and no table of problems. It follows what a CTA does: it fills its ring, takes steps along K
at the pace of whatever is slowest, the tensor cores, its own loads and their latency, or the loads of all CTAs from
L2, and stores; CTAs take their tiles in waves; nothing is faster than device memory. Fourteen constants say what each
costs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from cutepy.kernels.gemm.config import GemmConfig, GemmSignature
from cutepy.layouts.sm90 import arch


class Tile(NamedTuple):
    """An output tile, and how it is computed.

    Attributes
    ----------
    m, n : int
        Extents.
    k_spans : int
        Times 128 bytes of K make a stage. Small tiles gain from longer stages: TMA reads longer rows.
    consumers : int
        Which take tiles in turn.
    split_k : int
        CTAs that share the K of a tile.
    """

    m: int
    n: int
    k_spans: int = 1
    consumers: int = 1
    split_k: int = 1


TILES = (
    *(Tile(128, n) for n in (256, 224, 192, 160, 128, 96, 64, 48, 32, 16)),
    *(Tile(64, n) for n in (256, 224, 192, 160, 128, 96, 64, 48, 32, 16)),
    *(Tile(64, n, k_spans=2) for n in (96, 64, 48, 32, 16)),
    *(Tile(128, n, consumers=2) for n in (192, 160, 128, 96)),
    *(Tile(64, n, consumers=2) for n in (256, 224, 192, 160)),
    *(Tile(128, n, split_k=2) for n in (128, 96, 16)),
    *(Tile(64, n, split_k=2) for n in (256, 224, 192, 160, 128, 96)),
    *(Tile(64, n, k_spans=2, split_k=split) for n in (64, 48, 32, 16) for split in (2, 4, 8)),
    *(Tile(128, n, split_k=4) for n in (128, 96)),
    *(Tile(64, n, split_k=8) for n in (128, 96)),
)
"""What is chosen from. Of all tiles tried on 196 problems, the best 45 came within 0.1% of the best of each."""


@dataclass(frozen=True)
class Costs:
    """What the parts of a launch cost, in microseconds.

    Attributes
    ----------
    launch, fill : float
        Before the first CTA runs; until its first stage has arrived.
    step, latency : float
        A step along K, at least; a load, in which all stages but one are loaded.
    cycle : float
        Of a tensor core, by the rate of which a wgmma of N columns takes N / 2.
    narrow : float
        Columns more that a wgmma seems to have.
    l2_byte, sm_byte, memory_byte : float
        Loaded from L2 by all CTAs; into one SM; moved to or from device memory.
    memory : float
        Added to the last of these.
    store, store_element : float
        The epilogue of a tile; of each element of it.
    split, split_element : float
        The exchange of a tile's sums; of each element of those that are exchanged.
    """

    launch: float
    fill: float
    step: float
    latency: float
    cycle: float
    narrow: float
    l2_byte: float
    sm_byte: float
    memory_byte: float
    memory: float
    store: float
    store_element: float
    split: float
    split_element: float


H200 = Costs(
    launch=1.68,
    fill=0.582,
    step=0.0411,
    latency=0.871,
    cycle=5.87e-4,
    narrow=5.22,
    l2_byte=9.86e-8,
    sm_byte=9.38e-6,
    memory_byte=2.84e-7,
    memory=0.89,
    store=0.0266,
    store_element=9.48e-5,
    split=0.46,
    split_element=1.65e-4,
)
"""Fitted to 14,000 device times of 316 problems on an H200, 2026-11-23: random ones, M, N and K log-uniform up to
16384, bfloat16 in all majors and float8, and 46 that were chosen. On a quarter of them that the fit had not seen, the
choice was 3.4% slower than the best of the tiles, in the geometric mean.
"""

_RESIDENT = {1: 132, 2: 132, 4: 120, 8: 120}
"""The SMs of 132 that clusters of so many CTAs fill: an H200 holds 30 of 4 and 15 of 8 at once, 2026-11-23."""
_CLUSTERS = {1: ((1, 1), (2, 1), (1, 2)), 2: ((1, 1), (2, 1), (1, 2)), 4: ((1, 1),), 8: ((1, 1),)}
"""Clusters along M and N that are tried, by the CTAs that share K."""
_SHARPNESS = 6
_EPILOGUE_BYTES = 32768
_SHORT_K = 256


class _Extents(NamedTuple):
    """What is computed: a batch of products, of one B if it is shared, to which C may be added."""

    m: int
    n: int
    k: int
    operand_bits: int
    batch: int
    shared: bool = False
    adds: bool = False


def fillable_sms(cluster: int, sm_count: int) -> int:
    """Count the SMs that clusters of so many CTAs fill, one cluster's at least.

    Examples
    --------
    >>> fillable_sms(2, 132), fillable_sms(8, 132)
    (132, 120)
    """
    return max(cluster, sm_count * _RESIDENT[cluster] // arch.SM_COUNT)


class Choice(NamedTuple):
    """A tile in a cluster."""

    tile: Tile
    cluster_m: int
    cluster_n: int

    def config(self, signature: GemmSignature, k: int) -> GemmConfig:
        """Configure the kernel; where K is short, the epilogue gets shared memory that the ring doesn't need."""
        tile = self.tile
        warpgroups = tile.m // 64 if tile.consumers == 1 else 1
        return GemmConfig(
            signature=signature,
            tile_m=tile.m,
            tile_n=tile.n,
            tile_k=tile.k_spans * 1024 // signature.operand_bits,
            warpgroups=warpgroups,
            consumers=tile.consumers,
            cluster_m=self.cluster_m,
            cluster_n=self.cluster_n,
            split_k=tile.split_k,
            epi_n=max(_epilogue_columns(tile, warpgroups, k), 16 * (signature.graph.widest if signature.graph else 1)),
        )

    def estimate_us(
        self, m: int, n: int, k: int, operand_bits: int, sm_count: int = arch.SM_COUNT, *, batch: int = 1
    ) -> float:
        """Estimate the microseconds that a problem takes."""
        return self.expected_us(_Extents(m, n, k, operand_bits, batch), sm_count, H200)

    def expected_us(self, problem: "_Extents", sm_count: int, costs: Costs) -> float:
        """Estimate the time of a problem."""
        m, n, k, operand_bits, batch, shared, _ = problem
        tile, split = self.tile, self.tile.split_k
        cluster = self.cluster_m * self.cluster_n * split
        clusters = -(-m // (tile.m * self.cluster_m)) * -(-n // (tile.n * self.cluster_n)) * batch
        resident = fillable_sms(cluster, sm_count) // cluster
        waves, ctas = -(-clusters // resident), min(clusters, resident) * cluster
        span_bytes, elements = 128 * tile.k_spans, tile.m * tile.n
        spans = -(-k * operand_bits // (8 * span_bytes))
        steps = -(-spans // split)
        cycles = tile.m / 64 * tile.k_spans * 4 * (tile.n + costs.narrow) / 2
        rows_bytes, columns_bytes = span_bytes * min(m, tile.m), span_bytes * min(n, tile.n)
        l2_bytes = ctas * (rows_bytes / self.cluster_n + columns_bytes / self.cluster_m)
        stage_bytes = span_bytes * (tile.m + tile.n)
        room_bytes = arch.SMEM_BYTES_PER_CTA - _EPILOGUE_BYTES - (4 * elements * (split - 1) // split)
        stages = max(2, min(8, room_bytes // stage_bytes))
        step = _most(
            costs.step,
            costs.latency / (stages - 1),
            costs.cycle * cycles,
            costs.l2_byte * l2_bytes,
            costs.sm_byte * stage_bytes,
        )
        multiply, store = step * steps, costs.store + costs.store_element * elements
        if tile.consumers == 2:
            body = waves * _most(multiply, store / 2) + store
        else:
            body = waves * (multiply + store)
        if split > 1:
            body += waves * (costs.split + costs.split_element * elements * (split - 1) / split)
        moved = batch * (operand_bits / 8 * k * m + 2.0 * m * n) + operand_bits / 8 * k * n * (1 if shared else batch)
        return _most(costs.launch + costs.fill + body, costs.launch + costs.memory + costs.memory_byte * moved)


def _most(*times: float) -> float:
    """Give the longest of times that overlap, and somewhat more where others come close."""
    return float(sum(time**_SHARPNESS for time in times) ** (1 / _SHARPNESS))


def _epilogue_columns(tile: Tile, warpgroups: int, k: int) -> int:
    """Choose the columns of an epilogue subtile: more where stores decide, fewer where a split needs many owners."""
    if tile.split_k == 1 and k <= _SHORT_K and tile.n % 64 == 0:
        return 64
    subtiles = tile.m // (64 * warpgroups) * tile.n // 32
    return 32 if tile.n % 32 == 0 and (tile.split_k == 1 or subtiles >= tile.split_k) else 16


def _choices(problem: _Extents) -> Iterator[Choice]:
    """Give what may be chosen for a problem: no tile that is mostly empty, no cluster with nothing to share."""
    m, n, k, operand_bits, _, _, adds = problem
    for tile in TILES:
        if tile.consumers > 1 and adds:
            continue
        if tile.m >= 2 * max(64, m) or tile.n >= 2 * max(16, n):
            continue
        if tile.split_k > 1 and k * operand_bits < 2 * tile.split_k * tile.k_spans * 1024:
            continue
        for cluster_m, cluster_n in _CLUSTERS[tile.split_k]:
            if (cluster_m == 1 or m > tile.m) and (cluster_n == 1 or n > tile.n) and tile.m % (8 * cluster_n) == 0:
                if tile.n % (8 * cluster_m) == 0:
                    yield Choice(tile, cluster_m, cluster_n)


@lru_cache(maxsize=4096)
def _best(problem: _Extents, sm_count: int) -> tuple[float, Choice]:
    m, n, k, _, batch, _, _ = problem
    if min(m, n, k, batch) < 1:
        raise ValueError(
            f"m, n, k and batch must be positive, got {m}, {n}, {k}, {batch}; an empty product needs no kernel"
        )
    found = ((choice.expected_us(problem, sm_count, H200), choice) for choice in _choices(problem))
    return min(found, key=lambda each: each[0])


def select_config(
    signature: GemmSignature, m: int, n: int, k: int, sm_count: int = 132, *, batch: int = 1
) -> GemmConfig:
    """Choose the configuration that is expected to be fastest for a problem.

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
    problem = _Extents(m, n, k, signature.operand_bits, batch, adds=signature.adds)
    if signature.graph is not None:
        return _fitting(signature, problem, sm_count)
    _, choice = _best(problem, sm_count)
    return choice.config(signature, k)


def _fitting(signature: GemmSignature, problem: _Extents, sm_count: int) -> GemmConfig:
    """Choose the fastest of those whose tiles can be parted, and that leave room for an epilogue's tiles."""
    graph, refusal = signature.graph, ""
    assert graph is not None
    columns = 16 * graph.widest
    choices = sorted(_choices(problem), key=lambda choice: choice.expected_us(problem, sm_count, H200))
    for choice in choices:
        if choice.tile.n % columns == 0:
            try:
                return choice.config(signature, problem.k)
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
    adds: bool = False,
) -> float:
    """Estimate the microseconds that the fastest configuration takes on the GPU; a batch may share one B, and add C.

    Examples
    --------
    >>> [round(expected_us(4096 // parts, 4096, 4096, 16, batch=parts)) for parts in (1, 32, 128)]
    [179, 328, 1242]
    """
    expected, _ = _best(_Extents(m, n, k, operand_bits, batch, shared, adds), sm_count)
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
    """Choose as `select_config` does, of the transposed product too, in which a bias has no place.

    With few rows that is faster: wgmma multiplies 64 rows of A at least, but 8 of B.

    Examples
    --------
    >>> half = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16")
    >>> choose(half, 16, 8192, 8192).transposed, choose(half, 8192, 8192, 8192).transposed
    (True, False)
    """
    bits, adds = signature.operand_bits, bool(signature.c_dtype)
    straight, across = (expected_us(*mn, k, bits, sm_count, batch=batch, adds=adds) for mn in ((m, n), (n, m)))
    if signature.bias_dtype is None and across < straight:
        return Chosen(True, select_config(signature.transposed, n, m, k, sm_count, batch=batch))
    return Chosen(False, select_config(signature, m, n, k, sm_count, batch=batch))
