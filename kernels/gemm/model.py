"""A model of the kernel on an H200: what each of the tiles in clusters is expected to take for a problem.

The model knows no problem and no table of problems. It follows what a CTA does: it fills its ring, takes steps along K
at the pace of whatever is slowest, the tensor cores, its own loads and their latency, or the loads of all CTAs from
L2, and stores; CTAs take their tiles in waves; nothing is faster than device memory. Sixteen constants say what each
costs.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cutepy.kernels.gemm.config import GemmConfig
from cutepy.kernels.gemm.signature import GemmSignature
from cutepy.kernels.gemm.tiles import Tile
from cutepy.layouts.sm90 import arch


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
_FULL = 0.9
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
    return ctas >= _FULL * sm_count


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


class Candidates:
    """Choices as columns of a table: what each of them is expected to take is computed for all at once.

    Attributes
    ----------
    choices : tuple of Choice
        The rows.
    """

    def __init__(self, choices: Iterable[Choice]) -> None:
        self.choices = tuple(choices)
        rows = [(*tile, tile.warpgroups, *cluster) for tile, *cluster in self.choices]
        columns = np.array(rows, np.int64).reshape(-1, 8).T
        self._m, self._n, self._k_spans, self._consumers, self._split_k = columns[:5]
        self._warpgroups, self._cluster_m, self._cluster_n = columns[5:]
        self._cluster = self._cluster_m * self._cluster_n * self._split_k
        self._resident = np.array([_RESIDENT[size] for size in self._cluster.tolist()], np.int64)
        self._epilogue_columns = {
            is_short: np.array([epilogue_columns(choice.tile, k) for choice in self.choices], np.int64)
            for is_short, k in ((True, _SHORT_K), (False, _SHORT_K + 1))
        }

    def suit(self, problem: Extents) -> NDArray[np.bool_]:
        """Tell which are worth a thought: no tile that is mostly empty, no cluster with nothing to share."""
        m, n, k, operand_bits = problem[:4]
        suits: NDArray[np.bool_] = (self._m < 2 * max(64, m)) & (self._n < 2 * max(16, n))
        suits &= ((self._cluster_m == 1) | (m > self._m)) & ((self._cluster_n == 1) | (n > self._n))
        is_long = (k * operand_bits >= 2048 * self._split_k * self._k_spans) & (not problem.whole)
        suits &= (self._split_k == 1) | is_long
        return suits

    def expected_us(self, problem: Extents, sm_count: int = arch.SM_COUNT, costs: Costs = H200) -> NDArray[np.float64]:
        """Estimate the microseconds that each takes."""
        clusters = problem.batch * -(-problem.m // (self._m * self._cluster_m))
        clusters *= -(-problem.n // (self._n * self._cluster_n))
        resident = np.maximum(1, sm_count * self._resident // arch.SM_COUNT // self._cluster)
        waves, ctas = -(-clusters // resident), np.minimum(clusters, resident) * self._cluster
        elements = self._m * self._n
        multiply = self._multiply_us(problem, ctas, costs)
        subtiles = elements / (64 * self._warpgroups * self._epilogue_columns[problem.k <= _SHORT_K])
        store = costs.store + costs.store_element * elements + costs.subtile * subtiles
        in_turns = waves * _most(multiply, store / 2) + store
        body = np.where(self._consumers == 2, in_turns, waves * (multiply + store))
        exchanged = costs.split_element * elements * (self._split_k - 1) / self._split_k
        body += np.where(self._split_k > 1, waves * (costs.split * np.log2(self._split_k) + exchanged), 0)
        lost = np.where(ctas >= _FULL * sm_count, 0, costs.idle * (1 - ctas / sm_count))
        memory = costs.memory_byte * problem.moved_bytes * (1 + lost)
        return _most(costs.launch + costs.fill + body, costs.launch + costs.memory + memory)

    def _multiply_us(self, problem: Extents, ctas: NDArray[np.int64], costs: Costs) -> NDArray[np.float64]:
        """Estimate the time of a CTA's main loop, of which so many run at a time."""
        span_bytes = 128 * self._k_spans
        steps = np.ceil(np.ceil(problem.k * problem.operand_bits / (8 * span_bytes)) / self._split_k)
        rows_bytes = span_bytes * np.minimum(problem.m, self._m)
        columns_bytes = span_bytes * np.minimum(problem.n, self._n)
        stage_bytes = span_bytes * (self._m + self._n)
        exchange_bytes = 4 * self._m * self._n * (self._split_k - 1) // self._split_k
        room_bytes = arch.SMEM_BYTES_PER_CTA - _EPILOGUE_BYTES - exchange_bytes
        stages = np.clip(room_bytes // stage_bytes, 2, 8)
        filled = rows_bytes + columns_bytes
        step = _most(
            costs.span * self._k_spans,
            costs.latency / (stages - 1),
            costs.cycle * self._m / 64 * self._k_spans * 4 * self._n / 2,
            costs.l2_byte * ctas * (rows_bytes / self._cluster_n + columns_bytes / self._cluster_m),
            costs.sm_byte * filled + costs.empty_byte * (stage_bytes - filled),
        )
        times: NDArray[np.float64] = step * steps
        return times


def _most(*times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Give the longest of times that overlap, and somewhat more where others come close."""
    squares = [time * time for time in times]
    sums = sum((square * square * square for square in squares), np.zeros(1))
    powers: NDArray[np.float64] = np.cbrt(np.sqrt(sums))
    return powers


def epilogue_columns(tile: Tile, k: int) -> int:
    """Choose the columns of an epilogue subtile: more where stores decide, fewer where a split needs many owners."""
    if tile.split_k == 1 and k <= _SHORT_K and tile.n % 64 == 0:
        return 64
    subtiles = tile.m // (64 * tile.warpgroups) * tile.n // 32
    if tile.n % 32 == 0 and (tile.split_k == 1 or subtiles >= tile.split_k):
        return 32
    return next(columns for columns in (16, 24, 40, 56, 8) if tile.n % columns == 0)
