"""A scheduler alone: every output tile and every tile of K is somebody's work, once."""

from dataclasses import dataclass

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

import cutlass  # noqa: E402
import cutlass.cute as cute  # noqa: E402

import cutepy  # noqa: E402
from cutepy.device.schedulers import LongestFirst, Persistent  # noqa: E402


@dataclass(frozen=True)
class Mark:
    """Count at each tile of the output and of K how often it is given, and carry how many tiles there were."""

    counts: cute.Tensor

    def first_state(self, k):
        return cutlass.Int32(0)

    @cute.jit
    def on_tile(self, work, state):
        for index in cutlass.range(work.k.count, unroll=1):
            place = (work.row, work.column, work.k[index], *work.batch)
            self.counts[place] = self.counts[place] + 1
        return state + 1


class Schedule:
    def __init__(self, cluster_mn, parts, turns=1):
        self.cluster_mn, self.parts, self.turns = cluster_mn, parts, turns

    @cute.jit
    def __call__(self, counts: cute.Tensor, carried: cute.Tensor):
        cluster_m, cluster_n = self.cluster_mn
        self.kernel(counts, carried).launch(
            grid=(3 * cluster_m, cluster_n, self.parts),
            block=(32, 1, 1),
            cluster=(cluster_m, cluster_n, self.parts),
        )

    @cute.kernel
    def kernel(self, counts: cute.Tensor, carried: cute.Tensor):
        cluster_m, cluster_n = self.cluster_mn
        rows, columns, k_tiles = (cute.size(counts, mode=[mode]) for mode in range(3))
        raster = (rows // cluster_m, columns // cluster_n, *counts.shape[3:])
        if cute.arch.thread_idx()[0] == 0:
            scheduler = Persistent(raster, cutlass.Int32(k_tiles), self.cluster_mn, self.parts, band_rows=2)
            rank = cute.arch.block_idx()[0] + 3 * cluster_m * cute.arch.block_idx()[1]
            for turn in cutlass.range_constexpr(self.turns):
                done = scheduler.each(Mark(counts), turn, self.turns)
                if cute.arch.block_idx()[2] == 0:
                    carried[rank] = carried[rank] + done


@pytest.mark.parametrize(
    ("extents", "cluster_mn", "parts", "turns"),
    [
        ((5, 3, 4), (1, 1), 1, 1),
        ((4, 6, 5), (2, 1), 1, 1),
        ((2, 4, 7), (1, 2), 2, 1),
        ((3, 2, 2, 2, 3), (1, 1), 1, 2),
        ((1, 1, 9), (1, 1), 4, 1),
    ],
)
def test_all_work_is_given_once(extents, cluster_mn, parts, turns):
    counts = torch.zeros(extents, dtype=torch.int32)
    carried = torch.zeros(3 * cluster_mn[0] * cluster_mn[1], dtype=torch.int32)
    with cutepy.simulate(sanitize=True) as run:
        Schedule(cluster_mn, parts, turns)(counts, carried)
    assert (counts == 1).all()
    assert carried.sum() == counts.numel() // extents[2]
    assert not run.hazards


def test_a_worker_that_a_loop_would_carry_is_refused():
    class Careless:
        pass

    @cute.jit
    def ask():
        Persistent((1, 1), cutlass.Int32(1)).each(Careless())

    with cutepy.simulate(), refuses(TypeError):
        ask()


@dataclass(frozen=True)
class Note:
    """Note where each tile is, in the order in which they are given."""

    order: cute.Tensor

    def first_state(self, k):
        return cutlass.Int32(0)

    @cute.jit
    def on_tile(self, work, state):
        for place, value in enumerate((work.row, work.column, *work.batch)):
            self.order[work.index, place] = value
        return state + 1


class Longest:
    def __init__(self, grows):
        self.grows = grows

    @cute.jit
    def __call__(
        self,
        order: cute.Tensor,
        rows: cutlass.Int32,
        heads: cutlass.Int32,
        batches: cutlass.Int32,
        at_once: cutlass.Int32,
    ):
        self.kernel(order, rows, heads, batches, at_once).launch(grid=(3, 1, 1), block=(32, 1, 1))

    @cute.kernel
    def kernel(
        self,
        order: cute.Tensor,
        rows: cutlass.Int32,
        heads: cutlass.Int32,
        batches: cutlass.Int32,
        at_once: cutlass.Int32,
    ):
        if cute.arch.thread_idx()[0] == 0:
            raster = (rows, cutlass.Int32(1), heads, batches)
            LongestFirst(raster, cutlass.Int32(1), at_once=at_once, grows=self.grows).each(Note(order))


@pytest.mark.parametrize("grows", [True, False])
@pytest.mark.parametrize(
    ("rows", "heads", "batches", "at_once"), [(4, 3, 2, 4), (3, 2, 2, 1), (2, 5, 1, 8), (5, 1, 3, 3)]
)
def test_tiles_come_in_sections_of_products_the_longest_rows_first(rows, heads, batches, at_once, grows):
    """Within a section all products' tiles of one row follow each other; the last section has what is left."""
    products = [(head, batch) for head in range(heads) for batch in range(batches)]
    wanted = []
    for first in range(0, len(products), at_once):
        for row in sorted(range(rows), reverse=grows):
            wanted += [[row, 0, *product] for product in products[first : first + at_once]]
    order = torch.full((len(wanted), 4), -1, dtype=torch.int32)
    with cutepy.simulate():
        Longest(grows)(order, *map(cutlass.Int32, (rows, heads, batches, at_once)))
    assert order.tolist() == wanted
