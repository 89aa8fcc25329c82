"""Accumulators by coordinates: vectors along rows and columns, reductions over fragments, CTAs and clusters."""

import inspect

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

import cutlass  # noqa: E402
import cutlass.cute as cute  # noqa: E402

import cutepy  # noqa: E402
from cutepy.device import reduce, rules, smem  # noqa: E402
from cutepy.device.fragment import AccumulatorTile  # noqa: E402
from cutepy.device.pipeline import publish_barriers  # noqa: E402
from cutepy.device.turns import PingpongOrder  # noqa: E402
from cutepy.device.vectors import make_tile_vector  # noqa: E402
from cutepy.layouts import sm90  # noqa: E402

BESIDE = sm90.AccumulatorCoordinates(rules.wgmma_tiling("float16", "float16", 32, (1, 2)), (64, 64))
"""Accumulators of two warpgroups beside each other."""


class Subtiles:
    """Load a tile by coordinates, add a vector of rows and scale by one of columns, and reduce rows and columns."""

    def __init__(self, tile, epi_tile, warpgroups):
        tiling = rules.wgmma_tiling("float16", "float16", tile[1], warpgroups)
        self.coordinates, self.epi_tile = sm90.AccumulatorCoordinates(tiling, tile), epi_tile
        self.threads = tiling.thr_size

    @cute.jit
    def __call__(self, x: cute.Tensor, by_row: cute.Tensor, by_column: cute.Tensor, y: cute.Tensor, reduced: tuple):
        self.kernel(x, by_row, by_column, y, reduced).launch(grid=(1, 1, 1), block=(self.threads, 1, 1))

    @cute.kernel
    def kernel(self, x: cute.Tensor, by_row: cute.Tensor, by_column: cute.Tensor, y: cute.Tensor, reduced: tuple):
        most, totals = reduced
        tidx, _, _ = cute.arch.thread_idx()
        tile = AccumulatorTile(self.coordinates, self.epi_tile, tidx)
        rows, columns = make_tile_vector(by_row, tile, 0), make_tile_vector(by_column, tile, 1)
        rC = cute.make_rmem_tensor(len(tile.registers), cutlass.Float32)
        (tile_m, tile_n), (epi_m, epi_n) = self.coordinates.tile_mn, self.epi_tile
        for index in cutlass.range_constexpr(tile_m * tile_n // (epi_m * epi_n)):
            first_row, first_column = tile.origin(index)
            rows.load(first_row)
            columns.load(first_column)
            for register in cutlass.range_constexpr(cute.size(rC)):
                row, column = tile.coordinate(index, register)
                rC[register] = x[row, column]
            rows.add_to(rC)
            columns.scale(rC)
            for register in cutlass.range_constexpr(cute.size(rC)):
                row, column = tile.coordinate(index, register)
                y[row, column] = rC[register]
            largest = reduce.reduce_rows(rC, tile, reduce.maximum)
            for place, offset in enumerate(tile.distinct(0)):
                most[first_row + tile.of_thread(0) + offset, index % most.shape[1]] = largest[place]
            sums = reduce.reduce_warp_columns(rC, tile, reduce.add)
            for place, offset in enumerate(tile.distinct(1)):
                own_rows = (first_row + tile.of_thread(0)) // 16
                totals[own_rows, first_column + tile.of_thread(1) + offset] = sums[place]


@pytest.mark.parametrize(
    ("tile", "epi_tile", "warpgroups"), [((64, 32), (64, 16), 1), ((128, 32), (64, 32), 1), ((128, 32), (128, 16), 2)]
)
def test_vectors_and_rows_are_met_where_the_layout_says(tile, epi_tile, warpgroups):
    m, n = tile
    torch.manual_seed(1)
    x, by_row, by_column = (torch.randint(-9, 10, shape).float() for shape in (tile, (m,), (n,)))
    y, most, totals = torch.zeros(tile), torch.zeros(m, n // epi_tile[1]), torch.zeros(m // 16, n)
    with cutepy.simulate(sanitize=True) as run:
        Subtiles(tile, epi_tile, warpgroups)(x, by_row, by_column, y, (most, totals))
    expected = (x + by_row[:, None]) * by_column
    assert torch.equal(y, expected)
    assert torch.equal(most, expected.reshape(m, -1, epi_tile[1]).amax(2))
    assert torch.equal(totals, expected.reshape(-1, 16, n).sum(1)), "of the 16 rows of each warp"
    assert not run.hazards


@pytest.mark.parametrize("tile", [(64, 32), (128, 16), (64, 8)])
def test_lanes_that_share_rows_or_columns_are_those_of_the_layout(tile):
    warpgroups = tile[0] // 64
    coordinates = sm90.AccumulatorCoordinates(rules.wgmma_tiling("float16", "float16", tile[1], warpgroups), tile)
    places = AccumulatorTile(coordinates, tile, 0)
    for mode in (0, 1):
        held = [coordinates.of_thread(mode)(lane) for lane in range(32)]
        assert [places.is_first(mode, lane) for lane in range(32)] == [held.index(x) == n for n, x in enumerate(held)]
    lanes, run = places.sharing
    of_a_row = {
        (lane, column): coordinates.of_thread(1)(lane) + column for lane in range(lanes) for column in range(run)
    }
    assert sorted(of_a_row.values()) == list(range(lanes * run))
    rows = {coordinates.of_thread(0)(lane) + row for lane in range(32) for row, _ in places.registers}
    assert rows == set(range(rules.PARTIAL_ROWS))


class Sums:
    """Sum values over the threads of a CTA, or of a cluster, several times with the same slots."""

    def __init__(self, threads, ctas, operation=reduce.add, barrier=1, slots=None, as_pointers=False, turns=None):
        self.threads, self.ctas, self.operation, self.barrier = threads, ctas, operation, barrier
        self.as_pointers, self.turns = as_pointers, turns
        own = rules.reduction_slots(threads // 32 * ctas)
        self.plan = sm90.SmemPlan.of(warps=sm90.SmemArray(slots or own * (1 if turns is None else 2), 32, 16))

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        launch = {"grid": (self.ctas, 1, 1), "block": (self.threads, 1, 1), "cluster": (self.ctas, 1, 1)}
        self.kernel(x, y).launch(**launch)

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor):
        shared = smem.share(self.plan, warps=cutlass.Float32)
        tidx, _, _ = cute.arch.thread_idx()
        cta, _, _ = cute.arch.block_idx()
        publish_barriers((self.ctas, 1, 1))
        slots = shared["warps"] if self.as_pointers else smem.as_vector(shared["warps"], self.plan["warps"])
        for row in cutlass.range_constexpr(3):
            value = x[row, cta * self.threads + tidx]
            turn = None if self.turns is None else self.turns[row]
            if cutlass.const_expr(self.ctas > 1):
                value = reduce.cluster_reduce(value, slots, tidx, self.threads, self.ctas, self.operation, turn)
            else:
                value = reduce.block_reduce(value, slots, tidx, self.threads, self.barrier, self.operation, turn)
            y[row, cta * self.threads + tidx] = value


@pytest.mark.filterwarnings("ignore::cutepy.sim.AdvisoryWarning")  # slots of warps that are not there are read
@pytest.mark.parametrize("turns", [None, (0, 1, 0)])
@pytest.mark.parametrize(("threads", "ctas"), [(32, 1), (96, 1), (64, 2), (256, 4), (512, 8)])
def test_a_value_is_summed_over_ctas_and_clusters(threads, ctas, turns):
    x = torch.arange(3.0 * threads * ctas).reshape(3, -1)
    y = torch.zeros_like(x)
    with cutepy.simulate(sanitize=True) as run:
        Sums(threads, ctas, turns=turns)(x, y)
    torch.testing.assert_close(y, x.sum(1, keepdim=True).expand_as(y))
    assert not run.hazards


@pytest.mark.parametrize(("threads", "ctas"), [(64, 1), (64, 2)])
def test_a_turn_that_is_taken_twice_is_a_race(threads, ctas):
    x = torch.zeros(3, threads * ctas)
    with pytest.raises(cutepy.sim.HazardError) as found, cutepy.simulate(sanitize=True):
        Sums(threads, ctas, turns=(0, 0, 0))(x, torch.zeros_like(x))
    assert {each.kind for each in found.value.hazards} == {"unordered-write"}


@pytest.mark.parametrize(("threads", "ctas"), [(64, 1), (32, 2)])
def test_a_nan_is_the_largest_of_a_cta_and_a_cluster(threads, ctas):
    x = torch.randn(3, threads * ctas)
    x[0, 5] = torch.nan
    y = torch.zeros_like(x)
    with cutepy.simulate(sanitize=True):
        Sums(threads, ctas, operation=reduce.maximum)(x, y)
    assert torch.equal(y.isnan(), x.amax(1, keepdim=True).isnan().expand_as(y))
    assert torch.equal(y[1], x[1].amax().expand_as(y[1]))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"ctas": 1, "barrier": 16}, ValueError),
        ({"ctas": 1, "barrier": 0}, ValueError),
        ({"slots": 2}, ValueError),
        ({"slots": 4, "turns": (0, 1, 0)}, ValueError),
        ({"threads": 96}, ValueError),
        ({"as_pointers": True}, TypeError),
    ],
)
def test_what_a_reduction_can_not_have_is_refused_while_it_is_traced(options, error):
    options = {"threads": 64, "ctas": 2} | options
    x = torch.zeros(3, options["threads"] * options["ctas"])
    with cutepy.simulate(), refuses(error):
        Sums(**options)(x, x)


@pytest.mark.parametrize("consumers", [2, 3])
def test_all_registers_that_threads_are_launched_with_are_dealt_out(consumers):
    budget = rules.register_budget(consumers)
    launched = 65536 // (128 * (1 + consumers)) // 8 * 8
    assert budget.producer + consumers * budget.consumer == (1 + consumers) * launched


@pytest.mark.parametrize(
    "made",
    [
        lambda: rules.check_reduction(48),
        lambda: rules.named_barriers(store=2, turns=14),
        lambda: rules.named_barriers(store=-1),
        lambda: rules.check_barrier(16),
        lambda: PingpongOrder(15, 0, 128),
        lambda: PingpongOrder(1, 0, 100),
        lambda: PingpongOrder(1, 0, 1024),
        lambda: rules.check_scattered(3),
        lambda: rules.check_scattered(64),
        lambda: rules.wgmma_tiling("float16", "float99", 128, 1),
        lambda: rules.wgmma_tiling("float16", "float16", 128, 0),
        lambda: rules.register_budget(4),
        lambda: rules.check_accumulators((256, 256), 2),
        lambda: rules.check_multicast(128, 128, 3),
        lambda: rules.check_multicast(24, 32, 4),
        lambda: rules.check_schedule((4, 4), 2, 8),
        lambda: rules.check_schedule((1, 1), 1, 0),
        lambda: rules.check_ring_stages(4, 3, 4),
        lambda: rules.check_whole_columns(64, 32, 2),
        lambda: AccumulatorTile(BESIDE, (64, 32), 0),
        lambda: rules.check_stages((64, 64), (64, 32), (64, 64, 16)),
        lambda: rules.check_stages((96, 64), (64, 64), (64, 64, 16)),
    ],
)
def test_what_no_kernel_could_run_is_refused_by_name(made):
    with refuses(ValueError):
        made()


def test_warpgroups_beside_each_other_have_columns_of_every_subtile():
    assert AccumulatorTile(BESIDE, (64, 64), 0).warpgroups == (1, 2)


@pytest.mark.parametrize(("threads", "ctas"), [(32, 32), (32, 64), (128, 32), (64, 0), (48, 2), (64, 3)])
def test_values_of_no_cluster_are_not_reduced(threads, ctas):
    """There are 16 CTAs at most, of whole warps, and a power of 2 of warps; outside of a trace nothing else is done."""
    with refuses(ValueError):
        inspect.unwrap(reduce.cluster_reduce)(1.0, None, 0, threads, ctas, max)
