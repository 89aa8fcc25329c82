"""Schedulers of groups alone: every tile of every group is somebody's work, once, whatever the groups' extents are."""

from dataclasses import dataclass
from functools import cache

import pytest
from hypothesis import given, settings, strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

import cutlass  # noqa: E402
import cutlass.cute as cute  # noqa: E402

import cutepy  # noqa: E402
from cutepy.device.grouped import GroupedK, GroupedRows, Groups  # noqa: E402
from cutepy.device.schedulers import Persistent  # noqa: E402

TILE = 16


@dataclass(frozen=True)
class Mark:
    """Count how often each tile (group, row, column, k) is given, check where groups are, and carry the last index."""

    counts: cute.Tensor
    places: cute.Tensor
    turns: cute.Tensor

    def first_state(self, k):
        return cutlass.Int32(0)

    @cute.jit
    def on_tile(self, work, state):
        if cute.arch.lane_idx() == 0:
            group, start, length = work.batch
            for index in cutlass.range(work.k.count, unroll=1):
                place = (group, work.row, work.column, work.k[index])
                self.counts[place] = self.counts[place] + 1
            self.places[group, work.row, work.column, 0] = start
            self.places[group, work.row, work.column, 1] = length
            if work.is_first:
                self.turns[cute.arch.block_idx()[0], 0] = 1
            if not work.has_next:
                self.turns[cute.arch.block_idx()[0], 1] += 1
        return state + 1


class Schedule:
    """Deal out on `clusters` clusters; `mode` 0 or 1 groups rows or columns, 2 groups K."""

    def __init__(self, mode, padded, clusters, cluster_mn=(1, 1), turns=1):
        self.mode, self.padded, self.clusters, self.cluster_mn, self.turns = mode, padded, clusters, cluster_mn, turns

    @cute.jit
    def __call__(
        self, ends: cute.Tensor, rows: cutlass.Int32, counts: cute.Tensor, places: cute.Tensor, given: cute.Tensor
    ):
        cluster_m, cluster_n = self.cluster_mn
        self.kernel(ends, rows, counts, places, given).launch(
            grid=(self.clusters * cluster_m, cluster_n, 1), block=(32, 1, 1), cluster=(cluster_m, cluster_n, 1)
        )

    @cute.kernel
    def kernel(
        self, ends: cute.Tensor, rows: cutlass.Int32, counts: cute.Tensor, places: cute.Tensor, given: cute.Tensor
    ):
        groups = Groups(ends, rows, self.padded)
        extents = [cute.size(counts, mode=[mode]) for mode in (1, 2, 3)]
        if cutlass.const_expr(self.mode == 2):
            raster = (extents[0], extents[1], cute.size(counts, mode=[0]))
            scheduler = GroupedK(groups, TILE, Persistent(raster, cutlass.Int32(1), band_rows=2))
        else:
            product = Persistent((1, 1), cutlass.Int32(extents[2]), self.cluster_mn, band_rows=2)
            across = extents[1 - self.mode] // self.cluster_mn[1 - self.mode]
            scheduler = GroupedRows(groups, self.mode, TILE, across, product)
        for turn in cutlass.range_constexpr(self.turns):
            scheduler.each(Mark(counts, places, given), turn, self.turns)


def expected_of(ends, rows, padded):
    """Starts and lengths, as the scheduler is to see them."""
    starts = [0] * len(ends) if padded else [0, *ends[:-1]]
    starts = [min(max(start, 0), rows) for start in starts]
    return [(start, max(min(end, rows) - start, 0)) for start, end in zip(starts, ends, strict=True)]


@cache
def compiled(*schedule):
    """Compile a schedule for any number of groups and any extents."""
    specs = [cutepy.TensorSpec("int32", shape) for shape in (("g",), (*"grck",), (*"grc", 2), ("t", 2))]
    return cutepy.compile(Schedule(*schedule), specs[0], 1, *specs[1:])


def check(mode, padded, ends, rows, clusters, cluster_mn=(1, 1), turns=1):
    places = expected_of(ends, rows, padded)
    most = [3 * cluster_mn[0], 2 * cluster_mn[1], 2]
    extent = max(-(-length // TILE) for _, length in places)
    most[mode] = max(extent + cluster_mn[mode] - 1 if mode < 2 else extent, 1)
    counts = torch.zeros(len(ends), *most, dtype=torch.int32)
    expected = torch.zeros_like(counts)
    for g, (_, length) in enumerate(places):
        tiles = -(-length // TILE)
        if mode < 2:
            tiles = -(-tiles // cluster_mn[mode]) * cluster_mn[mode]
        else:
            tiles = max(tiles, 1)
        expected[g].narrow(mode, 0, tiles).fill_(1)
    found = torch.full((*counts.shape[:3], 2), -1, dtype=torch.int32)
    given_turns = torch.zeros(clusters * cluster_mn[0], 2, dtype=torch.int32)
    with cutepy.simulate(sanitize=cluster_mn == (1, 1)) as run:
        function = compiled(mode, padded, clusters, cluster_mn, turns)
        function(torch.tensor(ends).int(), rows, counts, found, given_turns)
    assert torch.equal(counts, expected)
    for seen, count, place in zip(found, expected, places, strict=True):
        assert (seen[count[..., 0] == 1] == torch.tensor(place)).all()
    assert torch.equal(given_turns[:, 0] > 0, given_turns[:, 1] > 0), "who has a first tile has one last tile"
    assert given_turns[:, 1].max() <= cluster_mn[1]
    assert not run.hazards


@pytest.mark.parametrize("mode", [0, 1, 2])
@settings(max_examples=6)
@given(data=st.data())
def test_all_work_of_all_groups_is_given_once(mode, data):
    lengths = data.draw(st.lists(st.integers(0, 70) | st.just(0), min_size=1, max_size=70))
    ends = torch.tensor(lengths).cumsum(0).tolist()
    check(mode, False, ends, ends[-1], clusters=data.draw(st.sampled_from([1, 3, 40])))


@pytest.mark.parametrize("mode", [0, 2])
def test_padded_groups_begin_at_their_own_first_row(mode):
    check(mode, True, [5, 0, 33, 48, 1], 48, clusters=4)


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("ends", [[20, 60, 90], [30, 10, 40], [-5, 7, 40], [0, 0, 0], [100, 100, 40]])
def test_ends_that_make_no_sense_lead_to_no_row_that_there_is_not(mode, ends):
    check(mode, False, ends, 40, clusters=2)


@pytest.mark.parametrize(("mode", "cluster_mn"), [(0, (2, 1)), (0, (1, 2)), (1, (2, 1)), (1, (1, 2))])
def test_ctas_of_a_cluster_work_on_one_group(mode, cluster_mn):
    check(mode, False, [3, 40, 40, 99], 99, clusters=3, cluster_mn=cluster_mn)


@pytest.mark.parametrize("ends", [[3, 40, 40, 99], [*range(5, 400, 6)]], ids=len)
def test_consumers_take_turns_over_all_groups(ends):
    check(0, False, ends, ends[-1], clusters=2, turns=2)
