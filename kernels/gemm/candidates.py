"""What is expected of many choices at once: the model, computed in columns of a table."""

from collections.abc import Iterable, Iterator, Sequence
from math import gcd
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cutepy.kernels.gemm.model import (
    EPILOGUE_BYTES,
    FULL,
    H200,
    RESIDENT,
    SHORT_K,
    Choice,
    Costs,
    Extents,
    epilogue_columns,
)
from cutepy.kernels.gemm.refinement import h200
from cutepy.layouts.sm90 import arch

WIDEST_SWIZZLE_BITS = 1024
NARROW = 32
"""Columns of an MN-major B that may fill less than the span of the widest swizzle.

(On an H200, 2026-11-23, 1617x1080x4688 with such a B took 56 us by 128x112, whose swizzle has 32 bytes, and cuBLAS 34.)
"""
LINE_BYTES = 128
"""Of the L2 cache, of which rows that begin elsewhere touch one more."""
SHORTLIST = 16
"""So many that the model expects to be fastest are refined."""


class Ranked(NamedTuple):
    """Some of the candidates, in an order, and the microseconds that are expected of them."""

    expected_us: NDArray[np.float64]
    rows: NDArray[np.int64]
    choices: Sequence[Choice]

    def each(self) -> Iterator[tuple[float, Choice]]:
        """Give them one by one: mostly the first is taken, of hundreds."""
        return ((float(us), self.choices[row]) for us, row in zip(self.expected_us, self.rows, strict=True))


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
        self._resident = np.array([RESIDENT[size] for size in self._cluster.tolist()], np.int64)
        self._epilogue_columns = {
            is_short: np.array([epilogue_columns(choice.tile, k) for choice in self.choices], np.int64)
            for is_short, k in ((True, SHORT_K), (False, SHORT_K + 1))
        }

    def suit(self, problem: Extents) -> NDArray[np.bool_]:
        """Tell which are worth a thought: no tile that is mostly empty, no cluster with nothing to share by TMA."""
        m, n, k, operand_bits = problem[:4]
        unit = problem.unit
        suits: NDArray[np.bool_] = (self._m < 2 * max(64, m)) & (self._n < 2 * max(16, unit, n)) & (self._n % unit == 0)
        suits &= ((self._cluster_m == 1) | (m > self._m)) & ((self._cluster_n == 1) | (n > self._n))
        is_long = (k * operand_bits >= 2048 * self._split_k * self._k_spans) & (not problem.whole)
        suits &= (self._split_k == 1) | is_long
        suits &= ((self._cluster_n == 1) | (not problem.a_copies)) & ((self._cluster_m == 1) | (not problem.b_copies))
        if problem.strip:
            suits &= self._n % problem.strip == 0
        if problem.b_mn_major:
            suits &= (self._n * operand_bits % WIDEST_SWIZZLE_BITS == 0) | (self._n <= NARROW)
        return suits

    def expected_us(self, problem: Extents, sm_count: int = arch.SM_COUNT, costs: Costs = H200) -> NDArray[np.float64]:
        """Estimate the microseconds that each takes."""
        clusters = problem.batch * -(-problem.m // (self._m * self._cluster_m))
        clusters *= -(-problem.n // (self._n * self._cluster_n))
        resident = np.maximum(1, sm_count * self._resident // arch.SM_COUNT // self._cluster)
        waves, ctas = -(-clusters // resident), np.minimum(clusters, resident) * self._cluster
        elements = self._m * self._n
        multiply = self._multiply_us(problem, ctas, costs)
        subtiles = elements / (64 * self._warpgroups * self._epilogue_columns[problem.k <= SHORT_K])
        store = costs.store + costs.store_element * elements + costs.subtile * subtiles
        in_turns = waves * _most(multiply, store / 2) + store
        body = np.where(self._consumers == 2, in_turns, waves * (multiply + store))
        exchanged = costs.split_element * elements * (self._split_k - 1) / self._split_k
        body += np.where(self._split_k > 1, waves * (costs.split * np.log2(self._split_k) + exchanged), 0)
        lost = np.where(ctas >= FULL * sm_count, 0, costs.idle * (1 - ctas / sm_count))
        memory = costs.memory_byte * problem.moved_bytes * (1 + lost)
        return _most(costs.launch + costs.fill + body, costs.launch + costs.memory + memory)

    def ranked(self, problem: Extents, sm_count: int) -> Ranked:
        """Give those that suit, and the microseconds that are expected of each: what is fastest first."""
        expected, suits = self.expected_us(problem, sm_count), self.suit(problem)
        order = np.argsort(np.where(suits, expected, np.inf), kind="stable")[: suits.sum()]
        if problem.table == "refined":
            first = order[:SHORTLIST]
            expected[first] *= np.exp(h200().sums(self._facts(problem, first, expected, sm_count)))
            expected[order[SHORTLIST:]] *= 2  # they come last
            order = order[np.argsort(expected[order], kind="stable")]
        return Ranked(expected[order], order, self.choices)

    def _facts(
        self, problem: Extents, rows: NDArray[np.int64], expected: NDArray[np.float64], sm_count: int
    ) -> NDArray[np.float64]:
        """Tell what trees decide by, of some of the candidates: (rows, facts)."""
        m, n, k, bits = problem[:4]
        tile_m, tile_n, cluster_m, cluster_n = (
            each[rows] for each in (self._m, self._n, self._cluster_m, self._cluster_n)
        )
        split_k, k_spans, cluster = self._split_k[rows], self._k_spans[rows], self._cluster[rows]
        covered_m = -(-m // (tile_m * cluster_m)) * tile_m * cluster_m
        covered_n = -(-n // (tile_n * cluster_n)) * tile_n * cluster_n
        clusters = problem.batch * (covered_m // (tile_m * cluster_m)) * (covered_n // (tile_n * cluster_n))
        resident = np.maximum(1, sm_count * self._resident[rows] // arch.SM_COUNT // cluster)
        waves = clusters / resident
        facts: list[NDArray[Any] | float] = [
            *(np.log(expected[rows]), np.log(m), np.log(n), np.log(k * bits), bits, problem.turned),
            *(np.log(tile_m), np.log(tile_n), k_spans, self._consumers[rows]),
            *(np.log2(split_k), np.log2(cluster_m), np.log2(cluster_n)),
            _swizzle_bytes(tile_m // cluster_n, bits, problem.a_mn_major),
            _swizzle_bytes(tile_n // cluster_m, bits, problem.b_mn_major),
            *(np.ceil(waves) / waves, np.minimum(waves, 20)),
            np.log(np.ceil(np.ceil(k * bits / (1024 * k_spans)) / split_k)),
            m * n / (covered_m * covered_n),
            np.minimum(clusters, resident) * cluster / sm_count,
            np.log(tile_m * tile_n),
            _alignment(m if problem.a_mn_major else k, bits),
            _alignment(n if problem.b_mn_major else k, bits),
        ]
        return np.array(np.broadcast_arrays(*facts)).T

    def _multiply_us(self, problem: Extents, ctas: NDArray[np.int64], costs: Costs) -> NDArray[np.float64]:
        """Estimate the time of a CTA's main loop, of which so many run at a time."""
        span_bytes = 128 * self._k_spans
        steps = np.ceil(np.ceil(problem.k * problem.operand_bits / (8 * span_bytes)) / self._split_k)
        rows_bytes = span_bytes * np.minimum(problem.m, self._m)
        columns_bytes = span_bytes * np.minimum(problem.n, self._n)
        stage_bytes = span_bytes * (self._m + self._n)
        exchange_bytes = 4 * self._m * self._n * (self._split_k - 1) // self._split_k
        room_bytes = arch.SMEM_BYTES_PER_CTA - EPILOGUE_BYTES - exchange_bytes
        stages = np.clip(room_bytes // stage_bytes, 2, 8)
        filled = rows_bytes + columns_bytes
        step = _most(
            costs.span * self._k_spans,
            costs.latency / (stages - 1),
            costs.cycle * self._m / 64 * self._k_spans * 4 * self._n / 2,
            costs.copy * span_bytes * (self._m * problem.a_copies + self._n * problem.b_copies),
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


def _alignment(extent: int, bits: int) -> float:
    """Give the bytes that rows of so many elements are multiples of, up to a line of the L2 cache."""
    return float(gcd(extent * bits // 8, LINE_BYTES))


def _swizzle_bytes(extent: NDArray[np.int64], bits: int, mn_major: bool) -> NDArray[np.int64]:
    """Give the widest swizzle that rows of so many elements fill, if they lie along them; else the widest there is."""
    if not mn_major:
        return np.full(len(extent), 128)
    row_bytes = extent * bits // 8
    swizzles: NDArray[np.int64] = np.minimum(row_bytes & -row_bytes, 128)
    return swizzles
