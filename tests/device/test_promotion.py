"""The main loop that promotes sums every 128 of K: scales of each kind where they belong, in any tile and stage."""

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

from dataclasses import dataclass  # noqa: E402

import cutlass  # noqa: E402
import cutlass.cute as cute  # noqa: E402

import cutepy  # noqa: E402
from cutepy.device import promotion, rules, schedulers, smem, tma  # noqa: E402
from cutepy.device.block_scales import ScaleLoads, stage_scales  # noqa: E402
from cutepy.device.pipeline import MixedRing, publish_barriers  # noqa: E402
from cutepy.dsl import to_cute  # noqa: E402
from cutepy.dsl.atoms import to_tiled_mma  # noqa: E402
from cutepy.layouts import sm90  # noqa: E402

E4M3 = "float8_e4m3fn"


@dataclass(frozen=True)
class Producer:
    """The producer: it keeps the ring full, by TMA and by the threads of one warp."""

    ring: MixedRing
    a: tma.TmaLoads
    b: tma.TmaLoads
    scales: tuple
    tile: tuple[int, int, int]

    def first_state(self, k):
        return self.ring.producer_state()

    @cute.jit
    def on_tile(self, work, state):
        for index in cutlass.range(work.k.count, unroll=1):
            full = self.ring.acquire(state)
            self.ring.announce(full)
            self.a.load((work.row, work.k[index]), state.index, full)
            self.b.load((work.column, work.k[index]), state.index, full)
            for loads, first in zip(self.scales, (work.row * self.tile[0], work.column * self.tile[1]), strict=True):
                if cutlass.const_expr(loads is not None):
                    loads.load(first, (), work.k[index] * (self.tile[2] // 128), state.index)
            self.ring.commit(full)
            state.advance()
        return state


@dataclass(frozen=True)
class Consumer:
    """The consumers: they write their sums as they are."""

    loop: promotion.PromotedLoop
    d: cute.Tensor

    def first_state(self, k):
        return self.loop.ring.consumer_state()

    @cute.jit
    def on_tile(self, work, state):
        (tile_m, tile_n), tCrC, d = self.loop.tile_mn, self.loop.tCrC, self.d
        loop = self.loop.at(work, (work.row * tile_m, work.column * tile_n))
        state = loop.multiply(state, work.k.count)
        down, along = loop.block.of_thread(0), loop.block.of_thread(1)
        blocks = cute.size(tCrC, mode=[1])
        for block in cutlass.range_constexpr(blocks):
            for register, (row, column) in enumerate(loop.block.registers):
                i = work.row * tile_m + block * (tile_m // blocks) + down + row
                j = work.column * tile_n + along + column
                if i < cute.size(d, mode=[0]) and j < cute.size(d, mode=[1]):
                    d[i, j] = tCrC[(register, block, 0)]
        return state


class Promoted:
    """D = (A scaled) (B scaled)^T in fp32, by CTAs that each take every second tile."""

    def __init__(self, tile, warpgroups, buffers=1, rows=(1, 128), stages=3):
        self.tile, self.warpgroups, self.buffers, self.rows, self.stages = tile, warpgroups, buffers, rows, stages
        tile_m, tile_n, tile_k = tile
        self.plan = sm90.SmemPlan.of(
            sA=sm90.StagedTile((tile_m, tile_k), stages, 8),
            sB=sm90.StagedTile((tile_n, tile_k), stages, 8),
            sScaleA=sm90.SmemArray(tile_m * (tile_k // 128) * stages, bits=32),
            sScaleB=sm90.SmemArray(tile_n * (tile_k // 128) * stages, bits=32),
            barriers=sm90.SmemArray(2 * stages, bits=64),
        )
        self.tiling = rules.wgmma_tiling(E4M3, E4M3, tile_n, warpgroups)

    @cute.jit
    def __call__(
        self, a: cute.Tensor, b: cute.Tensor, d: cute.Tensor, of_a: cute.Tensor | None, of_b: cute.Tensor | None
    ):
        sA, sB = self.plan["sA"].content, self.plan["sB"].content
        tma_a, mA = tma.make_load(a, to_cute(sA.layout), sA.tile, 1)
        tma_b, mB = tma.make_load(b, to_cute(sB.layout), sB.tile, 1)
        raster = cute.ceil_div(d.shape[0], self.tile[0]), cute.ceil_div(d.shape[1], self.tile[1])
        self.kernel((tma_a, tma_b), (mA, mB), to_tiled_mma(self.tiling), raster, d, of_a, of_b).launch(
            grid=(2, 1, 1), block=(128 * (1 + self.warpgroups), 1, 1)
        )

    @cute.kernel
    def kernel(
        self,
        copies: tuple,
        tensors: tuple,
        tiled_mma: cute.TiledMma,
        raster: tuple,
        d: cute.Tensor,
        of_a: cute.Tensor | None,
        of_b: cute.Tensor | None,
    ):
        tile_m, tile_n, tile_k = self.tile
        shared = smem.share(
            self.plan,
            sA=cutlass.Float8E4M3FN,
            sB=cutlass.Float8E4M3FN,
            sScaleA=cutlass.Float32,
            sScaleB=cutlass.Float32,
        )
        stage_bytes, consumer_warps = (tile_m + tile_n) * tile_k, 4 * self.warpgroups
        ring = MixedRing(shared["barriers"], self.stages, stage_bytes, consumer_warps, threads=32, fenced=False)
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        if warp == 0:
            with cute.arch.elect_one():
                ring.initialise()
        publish_barriers()
        a = tma.make_tiles(copies[0], tensors[0], shared["sA"], (tile_m, tile_k))
        b = tma.make_tiles(copies[1], tensors[1], shared["sB"], (tile_n, tile_k))
        scheduler = schedulers.Persistent(raster, cute.size(a.tiles, mode=[3]))
        rows = 0 if of_a is None else self.rows[0], 0 if of_b is None else self.rows[1]
        places = map(rules.staged_scales, (tile_m, tile_n), rows)
        staged = tuple(
            stage_scales(shared[name], rules.ScaleStage(count, tile_k // 128, False), self.stages) if count else None
            for name, count in zip(("sScaleA", "sScaleB"), places, strict=True)
        )
        tidx, _, _ = cute.arch.thread_idx()
        if warp < 4:
            if warp == 0:
                scales = tuple(
                    None if into is None else ScaleLoads(tensor, into, per, 32, tidx)
                    for tensor, into, per in zip((of_a, of_b), staged, rows, strict=True)
                )
                ring.drain(scheduler.each(Producer(ring, a.loads(), b.loads(), scales, self.tile)))
        else:
            loop = promotion.make_promoted_loop(
                ring, tiled_mma, a.staged, b.staged, tidx - 128, *staged, self.rows, self.buffers
            )
            scheduler.each(Consumer(loop, d))


def problem(m, n, k, rows):
    """Make whole numbers, and powers of two as scales, so that every order of sums is exact."""
    torch.manual_seed(m + n + k)
    a, b = (torch.randint(-3, 4, (extent, k)).to(torch.float8_e4m3fn) for extent in (m, n))
    scales, wide = [], []
    for tensor, by in ((a, rows[0]), (b, rows[1])):
        if by is None:
            scales.append(None)
            wide.append(tensor.double())
            continue
        places, blocks = -(-tensor.shape[0] // by), -(-k // 128)
        scale = (2.0 ** torch.randint(-2, 3, (places, blocks + 3)))[:, :blocks]
        full = scale.repeat_interleave(by, 0)[: tensor.shape[0]].repeat_interleave(128, 1)[:, :k]
        scales.append(scale)
        wide.append(tensor.double() * full)
    return a, b, tuple(scales), (wide[0] @ wide[1].mT).float()


DEEP = pytest.mark.deep
TILES = [
    ((128, 16, 128), 1, 2),  # two blocks of rows take turns
    ((64, 16, 256), 1, 2),  # two blocks of K do
    ((128, 96, 128), 2, 1),  # columns of two blocks of scales in some tiles
    pytest.param((64, 32, 128), 1, 1, marks=DEEP),
    pytest.param((256, 32, 256), 2, 1, marks=DEEP),
]
KINDS = [(1, 1), *(pytest.param(rows, marks=DEEP) for rows in ((128, 1), (128, 128), (None, 128), (1, None)))]


@pytest.mark.parametrize(("tile", "warpgroups", "buffers"), TILES, ids=str)
def test_sums_are_scaled_every_128_of_k(tile, warpgroups, buffers):
    check(tile, warpgroups, buffers, (1, 128), 200, 208, 656)


@pytest.mark.parametrize("rows", [*KINDS, (None, None)], ids=str)
def test_all_kinds_of_scales(rows):
    check((128, 96, 128), 2, 1, rows, 136, 208, 272)


@pytest.mark.parametrize("k", [16, *(pytest.param(k, marks=DEEP) for k in (128, 256, 400))])
def test_few_blocks_of_k(k):
    check((64, 16, 256), 1, 2, (1, 128), 64, 16, k)


@pytest.mark.parametrize(
    "tiling",
    [
        rules.wgmma_tiling(E4M3, "float8_e5m2", 16, 1),
        rules.wgmma_tiling("bfloat16", "bfloat16", 16, 1),
    ],
)
def test_stages_of_another_type_than_the_mmas_are_refused(tiling):
    kernel = Promoted((64, 16, 128), 1)
    kernel.tiling = tiling
    a, b, scales, _ = problem(64, 16, 128, (1, 128))
    with cutepy.simulate(), refuses(TypeError):
        kernel(a, b, torch.zeros(64, 16), *scales)


def test_warpgroups_along_n_are_refused():
    kernel = Promoted((64, 32, 128), 2)
    kernel.tiling = rules.wgmma_tiling(E4M3, E4M3, 16, (1, 2))
    a, b, scales, _ = problem(64, 32, 128, (1, 128))
    with cutepy.simulate(), refuses(ValueError):
        kernel(a, b, torch.zeros(64, 32), *scales)


def check(tile, warpgroups, buffers, rows, m, n, k):
    a, b, scales, expected = problem(m, n, k, rows)
    d = torch.full((m, n), float("nan"))
    with cutepy.simulate(sanitize=True) as run:
        Promoted(tile, warpgroups, buffers, tuple(each or 1 for each in rows))(a, b, d, *scales)
    assert torch.equal(d, expected)
    assert not run.hazards
