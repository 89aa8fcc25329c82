"""The dynamic scheduler alone: every tile is somebody's work, once, in any schedule, and its counter serves again."""

import re
from dataclasses import dataclass

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

import cutlass  # noqa: E402
import cutlass.cute as cute  # noqa: E402

import cutepy  # noqa: E402
from cutepy.device import rules  # noqa: E402
from cutepy.device.dynamic import Dynamic, Tickets  # noqa: E402
from cutepy.device.pipeline import publish_barriers  # noqa: E402
from cutepy.device.schedulers import Persistent  # noqa: E402
from cutepy.dsl.traced_names import SmemAllocator  # noqa: E402

CLUSTERS = 3
READERS = 2
"""Warps that get work; the one before them deals it out."""


@dataclass(frozen=True)
class Mark:
    """Count how often a warp is given each tile of the output and of K, and note which are first and have a next."""

    counts: cute.Tensor
    places: cute.Tensor

    def first_state(self, k):
        return cutlass.Int32(0)

    @cute.jit
    def on_tile(self, work, state):
        said = cutlass.Int32(work.is_first) + 2 * cutlass.Int32(work.has_next)
        if cute.arch.lane_idx() == 0:
            for index in cutlass.range(work.k.count, unroll=1):
                place = (work.row, work.column, work.k[index], *work.batch)
                self.counts[place] = self.counts[place] + 1
            if cute.arch.block_idx_in_cluster() == 0:
                self.places[work.index] = said
        return state + 1


class Schedule:
    """CTAs of a warp that deals and two that work, on all tiles each or in turns; or of two, one of which deals too."""

    def __init__(self, cluster_mn=(1, 1), parts=1, turns=1, slots=1, readers=None, works=False):
        self.cluster_mn, self.parts, self.turns = cluster_mn, parts, turns
        self.slots, self.works = slots, works
        self.readers = readers or READERS - works

    @cute.jit
    def __call__(self, counts: cute.Tensor, places: cute.Tensor, carried: cute.Tensor, counter: cute.Tensor):
        cluster_m, cluster_n = self.cluster_mn
        self.kernel(counts, places, carried, counter).launch(
            grid=(CLUSTERS * cluster_m, cluster_n, self.parts),
            block=(32 * (READERS + (not self.works)), 1, 1),
            cluster=None if self.works and cluster_m == 1 else (cluster_m, cluster_n, self.parts),
        )

    @cute.kernel
    def kernel(self, counts: cute.Tensor, places: cute.Tensor, carried: cute.Tensor, counter: cute.Tensor):
        cluster_m, cluster_n = self.cluster_mn
        allocator = SmemAllocator()
        slots = allocator.allocate_array(cutlass.Int32, self.slots)
        barriers = allocator.allocate_array(cutlass.Int64, 2 * self.slots)
        ctas = cluster_m * cluster_n * self.parts
        tickets = Tickets(counter.iterator, slots, barriers, self.slots, self.readers, ctas)
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        if warp == 0:
            with cute.arch.elect_one():
                tickets.initialise()
        publish_barriers((cluster_m, cluster_n, self.parts))
        rows, columns, k_tiles = (cute.size(counts, mode=[mode]) for mode in range(1, 4))
        raster = (rows // cluster_m, columns // cluster_n, *counts.shape[4:])
        product = Persistent(raster, cutlass.Int32(k_tiles), self.cluster_mn, self.parts, band_rows=2)
        scheduler = Dynamic(product, tickets)
        if cutlass.const_expr(self.works):
            marks = Mark(counts[(warp, *(None,) * (cute.rank(counts) - 1))], places[None, warp])
            if warp == 0:
                note(carried, warp, 1, scheduler.deal_to_each(marks))
            else:
                note(carried, warp, 1, scheduler.each(marks))
        elif warp == 0:
            scheduler.deal()
        else:
            own, turn = (warp - 1, 0) if self.turns == 1 else (0, warp - 1)
            marks = Mark(counts[(own, *(None,) * (cute.rank(counts) - 1))], places[None, own])
            note(carried, warp - 1, ctas, scheduler.each(marks, turn, self.turns))


@cute.jit
def note(carried: cute.Tensor, worker, ctas: cutlass.Constexpr, done):
    """Store what a warp carried to the end; traced."""
    if cute.arch.lane_idx() == 0:
        rank = cute.arch.cluster_idx()[0] * ctas + cute.arch.block_idx_in_cluster()
        carried[worker, rank] = done


def dynamic(name, tensor):
    """Return the spec of a tensor of any extents."""
    return cutepy.TensorSpec("int32", tuple(f"{name}{mode}" for mode in range(tensor.ndim)))


def run_schedule(extents, policies=(None,), sanitize=False, **options):
    """Compile once, and check what each warp was given, under each policy, with one counter; give the last run."""
    schedule, function = Schedule(**options), None
    ctas = schedule.cluster_mn[0] * schedule.cluster_mn[1] * schedule.parts
    counter = torch.zeros(1, dtype=torch.int32)
    for policy in policies:
        warps = READERS // schedule.turns
        counts = torch.zeros((warps, *extents), dtype=torch.int32)
        rows, columns, _, *batch = extents
        tiles = rows * columns * torch.Size(batch).numel() // (schedule.cluster_mn[0] * schedule.cluster_mn[1])
        places = torch.full((tiles, warps), -1, dtype=torch.int32)
        carried = torch.zeros((READERS, CLUSTERS * ctas), dtype=torch.int32)
        function = function or cutepy.compile(schedule, *map(dynamic, "npct", (counts, places, carried, counter)))
        with cutepy.simulate(policy=policy, sanitize=sanitize) as run:
            function(counts, places, carried, counter)
        assert (counts == 1).all()
        assert carried.sum() == warps * tiles * ctas
        firsts, following = places % 2 == 1, places >= 2
        assert (places >= 0).all()
        assert firsts[:CLUSTERS].all()
        assert not firsts[CLUSTERS:].any(), "the first tile of a cluster is its own index"
        assert (following.sum(0) == max(tiles - CLUSTERS, 0)).all(), "each other tile comes after one"
        assert not counter.any(), "the counter is as it was"
        assert not run.hazards, run.report()
    return run


EXTENTS = {
    "plain": ((5, 3, 4), {}),
    "one tile": ((1, 1, 3), {}),
    "fewer tiles than CTAs": ((2, 1, 3), {"slots": 2}),
    "as many": ((3, 1, 1), {}),
    "in turns": ((5, 3, 2), {"turns": 2, "slots": 2}),
    "in turns, with one slot": ((5, 2, 2), {"turns": 2}),
    "in turns, fewer tiles than CTAs": ((2, 1, 2), {"turns": 2, "slots": 2}),
    "a batch": ((3, 2, 2, 2, 3), {"slots": 3}),
    "clusters": ((4, 6, 2), {"cluster_mn": (2, 1)}),
    "clusters that share K": ((2, 8, 5), {"cluster_mn": (1, 2), "parts": 2, "slots": 2}),
    "clusters, fewer tiles than these": ((2, 1, 2), {"cluster_mn": (2, 1)}),
    "a dealer that works": ((5, 3, 2), {"works": True}),
    "a dealer that works, fewer tiles than CTAs": ((2, 1, 2, 1), {"works": True, "slots": 2}),
}


@pytest.mark.parametrize(("extents", "options"), EXTENTS.values(), ids=EXTENTS)
def test_all_work_is_given_once_and_the_counter_serves_again(extents, options):
    run_schedule(extents, policies=(None, None), sanitize=True, **options)


@pytest.mark.parametrize("name", ["plain", "in turns", "clusters that share K", "a dealer that works"])
def test_so_it_is_in_every_schedule(name):
    extents, options = EXTENTS[name]
    run_schedule(extents, policies=("late", "youngest", "random:1", "schedule:1", "schedule:2"), **options)


def test_who_is_free_sooner_takes_more():
    taken = set()
    extents = (1, 6, 3, 2), (18, 1), (2, 3), (1,)
    function = cutepy.compile(Schedule(turns=2, slots=2), *map(dynamic, "npct", map(torch.empty, extents)))
    for policy in (None, "schedule:1", "schedule:2"):
        counts, places, carried, counter = (torch.zeros(shape, dtype=torch.int32) for shape in extents)
        with cutepy.simulate(policy=policy):
            function(counts, places, carried, counter)
        taken.add(tuple(carried.sum(0).tolist()))
    assert len(taken) > 1


def test_what_steers_it_is_said_and_nothing_else():
    run = run_schedule((5, 3, 2), sanitize=True)
    (certificate,) = run.certificates
    assert not certificate.is_certified
    *reasons, more = map(str, certificate.reasons)
    assert all(reason.startswith("the result of an atomic") for reason in reasons), reasons
    assert re.fullmatch(r"and \d+ more|the result of an atomic.*", more)


def test_a_reader_too_many_is_waited_for_in_vain():
    with pytest.raises(cutepy.sim.errors.DeadlockError):
        run_schedule((5, 3, 2), readers=READERS + 1)


def test_a_reader_too_few_is_told():
    with refuses(cutepy.sim.errors.SimulationError):
        run_schedule((5, 3, 2), readers=READERS - 1)


@pytest.mark.parametrize(
    "arguments",
    [(0, 2, 1), (1, 0, 1), (1, 2, 17)],
)
def test_rings_of_tickets_that_cannot_be(arguments):
    with refuses(ValueError):
        rules.check_tickets(*arguments)


def test_a_dealer_that_works_has_no_cluster():
    with refuses(ValueError):
        run_schedule((4, 6, 2), cluster_mn=(2, 1), works=True)
