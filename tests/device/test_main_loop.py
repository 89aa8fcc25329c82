"""The main loop whose operands stay in shared memory: exact sums however it is staged; and what it refuses."""

from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

import cutlass  # noqa: E402
import cutlass.cute as cute  # noqa: E402
from cutlass.cute.nvgpu import warpgroup  # noqa: E402

import cutepy  # noqa: E402
from cutepy.device import roles, rules, schedulers, smem, tma  # noqa: E402
from cutepy.device.epilogue import TileStore, make_tile_store  # noqa: E402
from cutepy.device.pipeline import TmaRing, publish_barriers  # noqa: E402
from cutepy.dsl import to_cute  # noqa: E402
from cutepy.dsl.atoms import to_tiled_mma  # noqa: E402
from cutepy.layouts import sm90  # noqa: E402
from cutepy.sim.sanitize.reports.collection import HazardError  # noqa: E402
from tests.device.products import (  # noqa: E402
    BF16,
    E4M3,
    E5M2,
    F16,
    OfHalfB,
    Producer,
    Product,
    check,
    check_on_gpu,
    check_refused,
    problem,
)

DEEP = pytest.mark.deep


@pytest.mark.parametrize(
    ("tile", "warpgroups", "stages"),
    [((64, 32, 64), 1, 3), ((128, 16, 48), 2, 2), ((128, 24, 32), 1, 4), pytest.param((192, 64, 64), 3, 2, marks=DEEP)],
    ids=str,
)
@pytest.mark.parametrize("k", [344, 16])
def test_sums_are_exact_whatever_the_stages_and_warpgroups(tile, warpgroups, stages, k):
    check(Product(tile, (BF16, BF16), warpgroups, stages), k=k)


@pytest.mark.parametrize(
    ("tile", "warpgroups", "modes"),
    [
        ((64, 64, 64), (1, 2), (1, 1)),
        ((64, 128, 32), (1, 2), (1, 0)),
        pytest.param((64, 512, 32), (1, 2), (1, 0), marks=DEEP),
        pytest.param((64, 144, 32), (1, 3), (0, 1), marks=DEEP),
    ],
    ids=str,
)
def test_warpgroups_may_lie_along_n(tile, warpgroups, modes):
    check(Product(tile, (BF16, BF16), warpgroups, modes=modes), n=200)


@dataclass(frozen=True)
class StoresColumns:
    """The consumers, along N: each warpgroup stores its own columns by TMA, as those of an MMA of one warpgroup."""

    loop: Any
    d: tma.TmaTiles
    out: TileStore
    consumer: cutlass.Int32

    def first_state(self, k):
        return self.loop.ring.consumer_state()

    @cute.jit
    def on_tile(self, work, state):
        state = self.loop.multiply(state, work.k.count)
        places = self.d.subtiles((work.row, work.column * 2 + self.consumer))
        subtiles = self.out.subtiles(self.loop.tCrC, places)
        for index in cutlass.range_constexpr(places.count):
            self.out.store(subtiles[None, None, None, index], index % 2, places, index)
        return state


class ColumnsStored(Product):
    """Product of two warpgroups along N, stored by TMA."""

    def __init__(self, tile):
        super().__init__(tile, (BF16, BF16), (1, 2), stages=2)
        contents = {region.name: region.content for region in self.plan}
        self.plan = sm90.SmemPlan.of(**contents, sD=sm90.StagedTile((64, 32), 4, bits=32))

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, d: cute.Tensor, scales: cute.Tensor | None):
        sA, sB, sD = (self.plan[name].content for name in ("sA", "sB", "sD"))
        copies, tensors = zip(
            tma.make_load(a, to_cute(sA.layout), sA.tile, 1),
            tma.make_load(b, to_cute(sB.layout), sB.tile, 1),
            tma.make_store(d, to_cute(sD.layout), sD.tile),
            strict=True,
        )
        raster = cute.ceil_div(d.shape[0], self.tile[0]), cute.ceil_div(d.shape[1], self.tile[1])
        own = to_tiled_mma(rules.wgmma_tiling(BF16, BF16, self.tile[1] // 2, 1))
        self.store(copies, tensors, self.make_tiled_mma(), own, raster).launch(grid=(2, 1, 1), block=(384, 1, 1))

    @cute.kernel
    def store(self, copies: tuple, tensors: tuple, tiled_mma: cute.TiledMma, own: cute.TiledMma, raster: tuple):
        tile_m, tile_n, tile_k = self.tile
        shared = smem.share(self.plan, sA=self.types[0], sB=self.types[1], sD=cutlass.Float32)
        stage_bytes = sum(self.plan[name].content.stage_bytes for name in ("sA", "sB"))
        ring = TmaRing(shared["barriers"], 2, stage_bytes, 8)
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        if warp == 0:
            with cute.arch.elect_one():
                ring.initialise()
        publish_barriers()
        a = tma.make_tiles(copies[0], tensors[0], shared["sA"], (tile_m, tile_k))
        b = tma.make_tiles(copies[1], tensors[1], shared["sB"], (tile_n, tile_k))
        d = tma.make_tiles(copies[2], tensors[2], shared["sD"], (tile_m, tile_n // 2))
        scheduler = schedulers.Persistent(raster, cute.size(a.tiles, mode=[3]))
        if warp < 4:
            if warp == 0:
                ring.drain(scheduler.each(Producer(ring, a.loads(), b.loads())))
        else:
            tidx = roles.warpgroup_thread(128, 256)
            consumer = cute.arch.make_warp_uniform(tidx // 128)
            own_d = d.stage_slice(consumer, 2)
            out = make_tile_store(own, own_d.staged, 1, tidx % 128, 128, 1 + consumer)
            loop = self.make_loop(ring, tiled_mma, a.staged, b.staged, tidx)
            scheduler.each(StoresColumns(loop, own_d, out, consumer))
            out.finish()


@pytest.mark.parametrize("tile_n", [128, pytest.param(512, marks=DEEP)])
def test_each_warpgroup_along_n_stores_its_columns(tile_n):
    check(ColumnsStored((64, tile_n, 32)), n=600)


@pytest.mark.parametrize(
    ("dtypes", "tile_k"),
    [((F16, F16), 64), ((E4M3, E5M2), 64), (("int8", "uint8"), 64), (("float32", "float32"), 32)],
    ids=str,
)
def test_sums_of_all_types_are_exact(dtypes, tile_k):
    check(Product((64, 32, tile_k), dtypes))


@pytest.mark.parametrize("modes", [(0, 1), (1, 0), (0, 0)])
def test_operands_may_be_contiguous_along_m_and_n(modes):
    check(Product((64, 64, 32), modes=modes))


@pytest.mark.parametrize(("tile_n", "staged_n"), [(48, 64), (80, 128)])
def test_columns_that_a_stage_has_beyond_those_multiplied_are_left_alone(tile_n, staged_n):
    check(Product((64, tile_n, 32), modes=(1, 0), staged_n=staged_n), n=200)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("dtypes", "modes", "staged_n"),
    [
        ((BF16, BF16), (1, 1), None),
        ((F16, F16), (0, 0), None),
        ((BF16, BF16), (1, 0), 128),
        ((E4M3, E4M3), (1, 1), None),
        (("int8", "int8"), (1, 1), None),
        (("float32", "float32"), (1, 1), None),
    ],
)
@pytest.mark.parametrize("warpgroups", [1, 2])
def test_a_gpu_has_the_same_sums(dtypes, modes, staged_n, warpgroups):
    tile = (64 * warpgroups, 80 if staged_n else 64, 32)
    check_on_gpu(Product(tile, dtypes, warpgroups, 4, modes, staged_n))


def test_a_stage_that_is_released_while_mmas_read_it_is_told(monkeypatch):
    kernel = Product((64, 32, 64), stages=2)
    wait_group = warpgroup.wait_group
    monkeypatch.setattr(warpgroup, "wait_group", lambda count: wait_group(2 * count))
    with pytest.raises(HazardError) as caught, cutepy.simulate(sanitize=True):
        kernel(*problem(kernel, 64, 32, 336)[:-1])
    assert "unordered-write" in {hazard.kind for hazard in caught.value.hazards}


class FewerStages(Product):
    """The loop is given all stages but the last."""

    def make_loop(self, ring, tiled_mma, sA, sB, tidx):
        few = [cute.local_tile(each, (*each.shape[:2], self.stages - 1), (0, 0, 0)) for each in (sA, sB)]
        return super().make_loop(ring, tiled_mma, *few, tidx)


class ProductOfHalfB(OfHalfB, Product):
    pass


@pytest.mark.parametrize(
    "make",
    [
        lambda: Product((64, 32, 64), stages=1),
        lambda: Product((96, 32, 64)),
        lambda: Product((64, 32, 64), mma_modes=(1, 0)),
        lambda: Product((64, 32, 64), mma_modes=(0, 1)),
        lambda: Product((64, 32, 64), staged_n=48),
        lambda: Product((128, 256, 64), stages=2),
        lambda: ProductOfHalfB((64, 32, 64)),
        lambda: FewerStages((64, 32, 64)),
        lambda: Product((64, 144, 32), warpgroups=(1, 2), modes=(1, 0), staged_n=192),
        lambda: Product((64, 768, 32), warpgroups=(1, 3), stages=2),
    ],
)
def test_what_can_not_be_is_refused_while_it_is_traced(make):
    check_refused(make)
