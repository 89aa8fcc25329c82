"""A model of the kernel on an H200: which tiles there are to choose from, and what each is expected to take.

The model knows no problem and no table of problems. It follows what a CTA does: it fills its ring, takes steps along K
at the pace of whatever is slowest, the tensor cores, its own loads and their latency, or the loads of all CTAs from
L2, and stores; CTAs take their tiles in waves; nothing is faster than device memory. Sixteen constants say what each
costs.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

from cutepy.kernels.gemm.config import GemmConfig
from cutepy.kernels.gemm.signature import GemmSignature
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

    @property
    def warpgroups(self) -> int:
        """Warpgroups of a consumer: three have registers for 200 columns at most, so 256 rows have two."""
        if self.consumers > 1:
            return 1
        return 2 if self.m % 128 == 0 else self.m // 64


TILES = (
    # One consumer, K whole.
    *(Tile(64, n) for n in (144, 112, 96, 80, 64, 48, 32, 16)),
    *(Tile(64, n, k_spans=2) for n in (64, 32, 16)),
    *(Tile(128, n) for n in (256, 224, 208)),
    *(Tile(192, n) for n in (160,)),
    *(Tile(256, n) for n in (144,)),
    # Consumers in turns.
    *(Tile(64, n, consumers=2) for n in (160, 128, 96, 32)),
    *(Tile(64, n, k_spans=2, consumers=2) for n in (48, 32, 16)),
    *(Tile(128, n, consumers=2) for n in (192, 176, 160, 144, 128, 112, 96, 80, 48, 32, 16)),
    *(Tile(192, n, consumers=2) for n in (128, 112, 96, 80)),
    # K in parts.
    *(Tile(64, n, split_k=2) for n in (208, 192, 112, 96, 80, 48, 32, 16)),
    *(Tile(64, n, split_k=4) for n in (176, 80, 16)),
    *(Tile(64, n, split_k=8) for n in (112, 96, 80, 16)),
    *(Tile(64, n, k_spans=2, split_k=2) for n in (48, 32, 16)),
    *(Tile(64, n, k_spans=2, split_k=4) for n in (48, 16)),
    *(Tile(64, n, k_spans=2, split_k=8) for n in (48, 32, 16)),
    *(Tile(128, n, split_k=2) for n in (160, 144, 96, 80, 16)),
    *(Tile(128, n, split_k=4) for n in (160, 128, 48)),
    *(Tile(128, n, split_k=8) for n in (96,)),
)
"""What is chosen from: of 275 tiles tried on 415 problems, few enough whose best is within 0.3% of the best of all."""

MN_TILES = (
    *(tile for tile in TILES if tile.n % 64 == 0 or tile.n <= 32),
    *(Tile(64, n) for n in (256, 192, 128)),
    *(Tile(128, n) for n in (192, 128, 64)),
    *(Tile(64, n, consumers=2) for n in (192, 64)),
    *(Tile(64, n, split_k=2) for n in (128,)),
    *(Tile(64, n, split_k=8) for n in (128,)),
    *(Tile(64, 64, k_spans=2, split_k=split) for split in (2, 4, 8)),
    *(Tile(128, n, split_k=2) for n in (128,)),
    *(Tile(128, n, split_k=4) for n in (64,)),
)
"""What is chosen from where B is MN-major: 64 elements are the 128 bytes of the widest swizzle.

(On an H200, 2026-11-23, 1617x1080x4688 with such a B took 56 us by 128x112, whose swizzle has 32 bytes, and cuBLAS 34.)
"""

PROMOTED_TILES = (
    *(Tile(m, 128) for m in (256, 128)),
    *(Tile(128, n) for n in (192, 160, 112, 96, 64, 48, 32, 16)),
    *(Tile(64, n, k_spans=2) for n in (128, 96, 64, 48, 32, 16)),
    *(Tile(128, n, split_k=2) for n in (128, 96, 64)),
    *(Tile(64, n, k_spans=2, split_k=split) for n in (64, 48, 32, 16) for split in (2, 4, 8)),
)
"""What is chosen from where sums are promoted: while some are added up, others are multiplied, by another warpgroup or
in another block of the stage.
"""


@dataclass(frozen=True)
class Costs:
    """What the parts of a launch cost, in microseconds.

    Attributes
    ----------
    launch, fill : float
        Before the first CTA runs; until its first stage has arrived.
    span, latency : float
        128 bytes of K, at least; a load, in which all stages but one are loaded.
    cycle : float
        Of a tensor core, by the rate of which a wgmma of N columns takes N / 2.
    l2_byte, sm_byte, empty_byte, memory_byte : float
        Loaded from L2 by all CTAs; into one SM; filled with zeros there, beyond the end of A or B; moved to or from
        device memory.
    memory, idle : float
        Added to the last of these; the part of it that is lost where SMs are idle, times the part of these.
    store, store_element, subtile : float
        The epilogue of a tile; of each element of it; of each subtile.
    split, split_element : float
        The exchange of a tile's sums between two, and each time that twice as many take part; of each element of those
        that are exchanged.
    """

    launch: float
    fill: float
    span: float
    latency: float
    cycle: float
    l2_byte: float
    sm_byte: float
    empty_byte: float
    memory_byte: float
    memory: float
    idle: float
    store: float
    store_element: float
    subtile: float
    split: float
    split_element: float


H200 = Costs(
    launch=1.154,
    fill=0.441,
    span=0.1039,
    latency=0.959,
    cycle=6.0e-4,
    l2_byte=1.193e-7,
    sm_byte=9.61e-6,
    empty_byte=1.696e-5,
    memory_byte=2.445e-7,
    memory=1.659,
    idle=0.2,
    store=0.394,
    store_element=9.9e-5,
    subtile=0.03135,
    split=0.2455,
    split_element=2.184e-4,
)
"""Fitted to 9,400 device times of 415 problems on an H200, 2026-11-23, launched one after another.

Random ones, M, N and K log-uniform up to 16384, bfloat16 and float8, and 31 that were chosen. On fifths of them that a
fit had not seen, the choice among some 20 tiles that were timed was 4.8% slower than the fastest measurement, in the
geometric mean.
"""

_RESIDENT = {1: 132, 2: 132, 4: 120, 8: 120}
"""The SMs of 132 that clusters of so many CTAs fill: an H200 holds 30 of 4 and 15 of 8 at once, 2026-11-23."""
_SHARPNESS = 6
_EPILOGUE_BYTES = 32768
_SHORT_K = 256


class Extents(NamedTuple):
    """What is computed: a batch of products, of one B if it is shared, and in which way."""

    m: int
    n: int
    k: int
    operand_bits: int
    batch: int
    shared: bool = False
    whole: bool = False
    mn_major: bool = False
    promotes: bool = False

    @property
    def moved_bytes(self) -> float:
        """Bytes of A, B, and a result of 16-bit elements."""
        a_and_d = self.batch * (self.operand_bits / 8 * self.k * self.m + 2.0 * self.m * self.n)
        return a_and_d + self.operand_bits / 8 * self.k * self.n * (1 if self.shared else self.batch)


def fillable_sms(cluster: int, sm_count: int) -> int:
    """Count the SMs that clusters of so many CTAs fill, one cluster's at least.

    Examples
    --------
    >>> fillable_sms(2, 132), fillable_sms(8, 132)
    (132, 120)
    """
    return max(cluster, sm_count * _RESIDENT[cluster] // arch.SM_COUNT)


def fills(ctas: int, sm_count: int) -> bool:
    """Tell whether so many CTAs leave hardly an SM idle: then the next launch may begin on those that they leave."""
    return 10 * ctas >= 9 * sm_count


class Choice(NamedTuple):
    """A tile in a cluster."""

    tile: Tile
    cluster_m: int
    cluster_n: int

    def config(self, signature: GemmSignature, k: int) -> GemmConfig:
        """Configure the kernel; where K is short, the epilogue gets shared memory that the ring doesn't need."""
        tile = self.tile
        return GemmConfig(
            signature=signature,
            tile_m=tile.m,
            tile_n=tile.n,
            tile_k=tile.k_spans * 1024 // signature.operand_bits,
            warpgroups=tile.warpgroups,
            consumers=tile.consumers,
            cluster_m=self.cluster_m,
            cluster_n=self.cluster_n,
            split_k=tile.split_k,
            epi_n=max(epilogue_columns(tile, k), 16 * signature.graph.widest),
        )

    def estimate_us(
        self, m: int, n: int, k: int, operand_bits: int, sm_count: int = arch.SM_COUNT, *, batch: int = 1
    ) -> float:
        """Estimate the microseconds that a problem takes."""
        return self.expected_us(Extents(m, n, k, operand_bits, batch), sm_count, H200)

    def expected_us(self, problem: Extents, sm_count: int, costs: Costs) -> float:
        """Estimate the time of a problem."""
        tile, split = self.tile, self.tile.split_k
        cluster = self.cluster_m * self.cluster_n * split
        clusters = -(-problem.m // (tile.m * self.cluster_m)) * -(-problem.n // (tile.n * self.cluster_n))
        clusters *= problem.batch
        resident = fillable_sms(cluster, sm_count) // cluster
        waves, ctas = -(-clusters // resident), min(clusters, resident) * cluster
        elements = tile.m * tile.n
        multiply = self._multiply_us(problem, ctas, costs)
        subtiles = elements / (64 * tile.warpgroups * epilogue_columns(tile, problem.k))
        store = costs.store + costs.store_element * elements + costs.subtile * subtiles
        if tile.consumers == 2:
            body = waves * _most(multiply, store / 2) + store
        else:
            body = waves * (multiply + store)
        if split > 1:
            exchanged = elements * (split - 1) / split
            body += waves * (costs.split * math.log2(split) + costs.split_element * exchanged)
        memory = costs.memory_byte * problem.moved_bytes
        if not fills(ctas, sm_count):
            memory *= 1 + costs.idle * (1 - ctas / sm_count)
        return _most(costs.launch + costs.fill + body, costs.launch + costs.memory + memory)

    def _multiply_us(self, problem: Extents, ctas: int, costs: Costs) -> float:
        """Estimate the time of a CTA's main loop, of which so many run at a time."""
        tile, split = self.tile, self.tile.split_k
        span_bytes = 128 * tile.k_spans
        steps = math.ceil(math.ceil(problem.k * problem.operand_bits / (8 * span_bytes)) / split)
        rows_bytes, columns_bytes = span_bytes * min(problem.m, tile.m), span_bytes * min(problem.n, tile.n)
        stage_bytes = span_bytes * (tile.m + tile.n)
        exchange_bytes = 4 * tile.m * tile.n * (split - 1) // split
        room_bytes = arch.SMEM_BYTES_PER_CTA - _EPILOGUE_BYTES - exchange_bytes
        stages = max(2, min(8, room_bytes // stage_bytes))
        filled = rows_bytes + columns_bytes
        step = _most(
            costs.span * tile.k_spans,
            costs.latency / (stages - 1),
            costs.cycle * tile.m / 64 * tile.k_spans * 4 * tile.n / 2,
            costs.l2_byte * ctas * (rows_bytes / self.cluster_n + columns_bytes / self.cluster_m),
            costs.sm_byte * filled + costs.empty_byte * (stage_bytes - filled),
        )
        return step * steps


def _most(*times: float) -> float:
    """Give the longest of times that overlap, and somewhat more where others come close."""
    return float(sum(time**_SHARPNESS for time in times) ** (1 / _SHARPNESS))


def epilogue_columns(tile: Tile, k: int) -> int:
    """Choose the columns of an epilogue subtile: more where stores decide, fewer where a split needs many owners."""
    if tile.split_k == 1 and k <= _SHORT_K and tile.n % 64 == 0:
        return 64
    subtiles = tile.m // (64 * tile.warpgroups) * tile.n // 32
    return 32 if tile.n % 32 == 0 and (tile.split_k == 1 or subtiles >= tile.split_k) else 16
