"""Candidates of a problem: filter the choices that suit it, and rank them by expected time."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import gcd, log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cutepy.kernels.gemm.gpu import Gpu
from cutepy.kernels.gemm.heuristic.estimates import Array, Columns, Estimates, Estimator, root
from cutepy.kernels.gemm.heuristic.model import SHORT_K, Choice, Costs, Extents, epilogue_columns
from cutepy.kernels.gemm.heuristic.refinement import hopper

WIDEST_SWIZZLE_BYTES = 128
NARROW = 32
"""Columns of an MN-major B whose tile may be narrower than the span of the widest swizzle. (On an H200, 2026-11-23,
1617x1080x4688 with such a B took 56 us by 128x112, whose swizzle has 32 bytes, and cuBLAS 34.)
"""
LINE_BYTES = 128
"""Bytes of an L2 cache line; a row that begins inside a line touches one line more."""
SHORTLIST = 48
"""Number of candidates that the trees refine: the fastest by the model, and those tied with the last of them."""


class TimedChoice(NamedTuple):
    """A choice for one of the problems, with its expected time and the index of the problem."""

    us: float
    problem: int
    choice: Choice


class RankedChoices(NamedTuple):
    """Candidates of some problems in order of expected time.

    The order of most of them is computed only when it is asked for.

    Attributes
    ----------
    expected_us : float array
        Expected times of the first candidates.
    indices : int array
        Indices of these candidates, in a row of all choices for each of the problems.
    choices : sequence of Choice
        All of them.
    rest : callable
        Puts the others in order.
    """

    expected_us: Array
    indices: NDArray[np.intp]
    choices: Sequence[Choice]
    rest: Callable[[], "RankedChoices"] | None

    def each(self) -> Iterator[TimedChoice]:
        """Iterate over the candidates in order."""
        for us, place in zip(self.expected_us.tolist(), self.indices.tolist(), strict=True):
            problem, row = divmod(place, len(self.choices))
            yield TimedChoice(us, problem, self.choices[row])
        if self.rest is not None:
            yield from self.rest().each()


class Candidates:
    """Table of choices: the expected time of all choices is computed at once.

    All methods take several problems, most often a product and the transposed one, and give arrays (problems, choices).

    Attributes
    ----------
    choices : tuple of Choice
    """

    def __init__(self, choices: Iterable[Choice], costs: Costs) -> None:
        self.choices = tuple(choices)
        self._own = own = Columns.of(self.choices)
        self.estimates = Estimator(self.choices, costs)
        self._least = np.array([choice.least for choice in self.choices], np.float64).T
        self._allowed: dict[tuple[object, ...], NDArray[np.bool_]] = {}
        powers = own.split_k, own.cluster_m, own.cluster_n
        logs = np.log([own.m, own.n, own.m * own.n])
        self._facts_of_choices = np.stack([*logs, own.k_spans, own.consumers, *np.log2(powers)])
        self._across_n, self._narrower = own.n * own.cluster_n, _narrower(self.choices)
        self._narrowest = self._narrower == np.arange(len(self.choices))
        self._area = own.m * own.cluster_m * own.n * own.cluster_n
        self._staged_n = own.staged_n
        parts = np.array([own.m / own.cluster_n, self._staged_n[1] / own.cluster_m]).astype(np.int64)
        self._powers_within = parts & -parts

    def suit(self, problems: Sequence[Extents]) -> NDArray[np.bool_]:
        """Return which choices suit the problems.

        A suitable tile is not mostly empty, its cluster shares something by TMA, and no narrower tile with subtiles as
        wide covers N as often.
        """
        rows = [(each.m, each.n, each.k * each.operand_bits, max(16, each.unit, each.n)) for each in problems]
        m, n, k_bits, columns = np.array(rows, np.float64).T[:, :, None]
        suits: NDArray[np.bool_] = (self._own.m < 2 * np.maximum(64, m)) & (self._own.n < 2 * columns)
        for extent, least in zip((m, n, k_bits), self._least, strict=True):
            suits &= least <= extent
        count = np.ceil(n / self._across_n)
        wider = count == count.take(self._narrower, axis=1)
        for row, wide, problem in zip(suits, wider, problems, strict=True):
            allowed = self._allow(problem)
            row &= allowed
            row &= ~(wide & allowed.take(self._narrower)) | self._narrowest
        return suits

    def _allow(self, problem: Extents) -> NDArray[np.bool_]:
        """Return the choices that suit problems of this kind, of any extents."""
        mn_major_bits = problem.operand_bits if problem.b_mn_major else 0
        kind = (problem.unit, problem.strip, problem.whole, problem.a_copies > 0, problem.b_copies > 0, mn_major_bits)
        if kind not in self._allowed:
            own, strip = self._own, problem.strip or 1
            allowed = (own.n % problem.unit == 0) & (own.n % strip == 0) & ((own.split_k == 1) | (not problem.whole))
            allowed &= ((own.cluster_n == 1) | (not problem.a_copies)) & ((own.cluster_m == 1) | (not problem.b_copies))
            columns = self._staged_n[int(problem.widens_b)]
            allowed &= (columns * mn_major_bits % (8 * WIDEST_SWIZZLE_BYTES) == 0) | (columns <= NARROW)
            self._allowed[kind] = allowed
        return self._allowed[kind]

    def expected_us(self, problems: Sequence[Extents], gpu: Gpu) -> Array:
        """Estimate the microseconds that each choice takes, by the model alone."""
        return self.estimates(problems, gpu).us

    def ranked(self, problems: Sequence[Extents], gpu: Gpu) -> RankedChoices:
        """Return the suitable candidates, fastest first.

        Where the model is refined, the shortlist of each problem comes first, in refined order, then the others by the
        model alone.
        """
        estimates = self.estimates(problems, gpu)
        sixths = np.where(self.suit(problems), estimates.sixths, np.inf)
        if problems[0].table != "refined":
            return self._by_model(sixths)
        first = shortlist(sixths)
        expected = np.log(sixths.take(first)) / 6
        expected += hopper().sums(self.facts(problems, estimates, first, gpu))
        order = expected.argsort(kind="stable")

        def rest() -> RankedChoices:
            sixths = np.where(self.suit(problems), self.estimates(problems, gpu).sixths, np.inf)
            sixths.put(first, np.inf)
            return self._by_model(sixths)

        return RankedChoices(np.exp(expected[order]), first[order], self.choices, rest)

    def _by_model(self, sixths: Array) -> RankedChoices:
        """Return the choices with a finite estimate, in the model's order."""
        order = sixths.argsort(axis=None, kind="stable")[: np.count_nonzero(sixths < np.inf)]
        return RankedChoices(root(sixths.take(order)), order, self.choices, None)

    def facts(
        self, problems: Sequence[Extents], estimates: Estimates, indices: NDArray[np.intp], gpu: Gpu
    ) -> NDArray[np.float32]:
        """Return the features that the trees compare, of choices by their index in a row of all for each problem.

        The result is (facts, indices). The facts are those of the choice, of the problem, the widest swizzles that rows
        of A and B fill, and those of both.
        """
        problem, row = np.divmod(indices, len(self.choices))
        of_problems = np.array([_facts_of(each) for each in problems]).T.take(problem, axis=1)
        elements, a_bytes, b_bytes = of_problems[:3]
        swizzles = np.minimum(self._powers_within.take(row, axis=1) * (a_bytes, b_bytes), WIDEST_SWIZZLE_BYTES)
        sixths, clusters, waves, ctas, steps = (each.take(indices) for each in estimates[:5])
        of_both = (
            *(np.log(sixths) / 6, np.ceil(waves) / waves, np.minimum(waves, 20), np.log(steps)),
            *(elements / (clusters * self._area.take(row)), ctas / gpu.sm_count),
            np.full(len(indices), gpu.memory_tbs),
        )
        every = (self._facts_of_choices.take(row, axis=1), of_problems[3:], swizzles, of_both)
        return np.concatenate(every, dtype=np.float32)


def _narrower(choices: Sequence[Choice]) -> NDArray[np.intp]:
    """Return the index of the next narrower tile with subtiles as wide, for each choice; its own if there is none."""
    subtiles = [epilogue_columns(choice.tile, SHORT_K + 1) for choice in choices]
    families: dict[tuple[object, ...], list[int]] = {}
    for place in sorted(range(len(choices)), key=lambda place: choices[place].tile.n):
        tile, *cluster = choices[place]
        families.setdefault((tile._replace(n=0), *cluster), []).append(place)
    found = np.arange(len(choices))
    for family in families.values():
        for count, place in enumerate(family):
            narrower = (other for other in reversed(family[:count]) if subtiles[other] >= subtiles[place])
            found[place] = next(narrower, place)
    return found


def shortlist(times: Array) -> NDArray[np.intp]:
    """Return the indices of the shortest finite times of each problem, ties with the last included."""
    last = min(SHORTLIST, times.shape[1]) - 1
    longest = np.partition(times, last)[:, last, None]
    return np.flatnonzero((times <= longest) & (times < np.inf))


def _facts_of(problem: Extents) -> tuple[float, ...]:
    """Return a problem's features for the trees: extents, and bytes of an element of A and B for swizzles.

    Rows that lie along K fill the widest swizzle; elements that wide stand for them.
    """
    m, n, k, bits, batch = problem[:5]
    (a_bytes, a_row), (b_bytes, b_row) = (
        (bits // 8, extent) if mn_major else (WIDEST_SWIZZLE_BYTES, k)
        for extent, mn_major in ((m, problem.a_mn_major), (n, problem.b_mn_major))
    )
    alignments = (gcd(row * bits // 8, LINE_BYTES) for row in (a_row, b_row))
    return (m * n * batch, a_bytes, b_bytes, log(m), log(n), log(k * bits), bits, problem.transposed, *alignments)
