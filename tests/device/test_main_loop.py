"""The main loop whose operands stay in shared memory: exact sums however it is staged; and what it refuses."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

from dataclasses import dataclass  # noqa: E402

import cutlass  # noqa: E402
import cutlass.cute as cute  # noqa: E402
from cutlass.cute.nvgpu import warpgroup  # noqa: E402

import cutepy  # noqa: E402
from cutepy.device import main_loop, mma, schedulers, smem, tma  # noqa: E402
from cutepy.device.fragment import AccumulatorTile  # noqa: E402
from cutepy.device.pipeline import TmaRing, publish_barriers  # noqa: E402
from cutepy.dsl import from_cute, to_cute  # noqa: E402
from cutepy.dsl.element_types import element_type, multiplied_type  # noqa: E402
from cutepy.layouts import sm90  # noqa: E402
from cutepy.runtime.dtypes import DTYPES  # noqa: E402
from cutepy.sim.sanitize.reports.collection import HazardError  # noqa: E402
from tests.device.loads import Loads  # noqa: E402

BF16, F16, E4M3, E5M2 = "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"
DEEP = pytest.mark.deep


@dataclass(frozen=True)
class Multiplies:
    """The consumers: they write their sums as they are."""

    loop: main_loop.MainLoop
    places: AccumulatorTile
    d: cute.Tensor

    def first_state(self, k):
        return self.loop.ring.consumer_state()

    @cute.jit
    def on_tile(self, work, state):
        state = self.loop.multiply(state, work.k.count)
        (tile_m, tile_n), d = self.places.coordinates.tile_mn, self.d
        down = work.row * tile_m + self.places.of_thread(0)
        along = work.column * tile_n + self.places.of_thread(1)
        for register, (row, column) in enumerate(self.places.coordinates.registers):
            if down + row < cute.size(d, mode=[0]) and along + column < cute.size(d, mode=[1]):
                d[down + row, along + column] = self.loop.tCrC[register]
        return state


class Product:
    """D = A B^T, in fp32 or s32; CTAs take every second tile. A stage may have more columns than are multiplied."""

    def __init__(self, tile, dtypes=(BF16, BF16), warpgroups=1, stages=3, modes=(1, 1), staged_n=None, mma_modes=None):
        self.tile, self.dtypes, self.warpgroups, self.stages, self.modes = tile, dtypes, warpgroups, stages, modes
        self.staged_n, self.mma_modes = staged_n or tile[1], mma_modes or modes
        tile_m, _, tile_k = tile
        bits = [DTYPES[dtype].bits for dtype in dtypes]
        self.plan = sm90.SmemPlan.of(
            sA=sm90.StagedTile((tile_m, tile_k), stages, bits[0], modes[0]),
            sB=sm90.StagedTile((self.staged_n, tile_k), stages, bits[1], modes[1]),
            barriers=sm90.SmemArray(2 * stages, bits=64),
        )
        self.types = [multiplied_type(dtype) for dtype in dtypes]

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, d: cute.Tensor):
        sA, sB = self.plan["sA"].content, self.plan["sB"].content
        tma_a, mA = tma.make_load(a, to_cute(sA.layout), sA.tile, 1, self.types[0])
        tma_b, mB = tma.make_load(b, to_cute(sB.layout), sB.tile, 1, self.types[1])
        raster = cute.ceil_div(d.shape[0], self.tile[0]), cute.ceil_div(d.shape[1], self.tile[1])
        self.kernel((tma_a, tma_b), (mA, mB), self.make_tiled_mma(), raster, d).launch(
            grid=(2, 1, 1), block=(128 * (1 + self.warpgroups), 1, 1)
        )

    def make_tiled_mma(self):
        of_a, of_b = map(element_type, self.dtypes)
        modes = {"a_contiguous_mode": self.mma_modes[0], "b_contiguous_mode": self.mma_modes[1]}
        return mma.make_tiled_mma(of_a, of_b, **modes, tile_n=self.tile[1], warpgroups=self.warpgroups)

    @cute.kernel
    def kernel(self, copies: tuple, tensors: tuple, tiled_mma: cute.TiledMma, raster: tuple, d: cute.Tensor):
        tile_m, tile_n, tile_k = self.tile
        shared = smem.share(self.plan, sA=self.types[0], sB=self.types[1])
        stage_bytes = sum(self.plan[name].content.stage_bytes for name in ("sA", "sB"))
        ring = TmaRing(shared["barriers"], self.stages, stage_bytes, 4 * self.warpgroups)
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        if warp == 0:
            with cute.arch.elect_one():
                ring.initialise()
        publish_barriers()
        a = tma.make_tiles(copies[0], tensors[0], shared["sA"], (tile_m, tile_k))
        b = tma.make_tiles(copies[1], tensors[1], shared["sB"], (self.staged_n, tile_k), tile_n)
        scheduler = schedulers.Persistent(raster, cute.size(a.tiles, mode=[3]))
        if warp < 4:
            if warp == 0:
                ring.drain(scheduler.each(Loads(ring, a.loads(), b.loads())))
        else:
            tidx = cute.arch.thread_idx()[0] - 128
            loop = self.make_loop(ring, tiled_mma, a.staged, b.staged, tidx)
            coordinates = sm90.AccumulatorCoordinates(from_cute(tiled_mma), (tile_m, tile_n))
            places = AccumulatorTile(coordinates, (64 * self.warpgroups, tile_n), tidx)
            scheduler.each(Multiplies(loop, places, d))

    def make_loop(self, *arguments):
        return main_loop.make_main_loop(*arguments)


def stored(extent, k, dtype, mode):
    """Make whole numbers, with which every order of sums is exact, contiguous along a mode."""
    shape = (extent, k) if mode else (k, extent)
    made = torch.randint(0 if dtype == "uint8" else -3, 4, shape).to(getattr(torch, dtype))
    return made if mode else made.mT


def operands(kernel, m, n, k):
    torch.manual_seed(m + n + k)
    a, b = (stored(x, k, dtype, mode) for x, dtype, mode in zip((m, n), kernel.dtypes, kernel.modes, strict=True))
    sums = torch.int32 if kernel.dtypes[0] in ("int8", "uint8") else torch.float32
    return a, b, torch.full((m, n), 77).to(sums)


def check(kernel, m=200, n=104, k=208):
    a, b, d = operands(kernel, m, n, k)
    with cutepy.simulate(sanitize=True) as run:
        kernel(a, b, d)
    assert torch.equal(d, (a.double() @ b.double().mT).to(d.dtype))
    assert not run.hazards, run.report()


@pytest.mark.parametrize(
    ("tile", "warpgroups", "stages"),
    [((64, 32, 64), 1, 3), ((128, 16, 48), 2, 2), ((128, 24, 32), 1, 4), pytest.param((192, 64, 64), 3, 2, marks=DEEP)],
    ids=str,
)
@pytest.mark.parametrize("k", [344, 16])
def test_sums_are_exact_whatever_the_stages_and_warpgroups(tile, warpgroups, stages, k):
    check(Product(tile, (BF16, BF16), warpgroups, stages), k=k)


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
    kernel = Product(tile, dtypes, warpgroups, 4, modes, staged_n)
    a, b, d = operands(kernel, 1000, 200, 4112)
    held = [each.cuda() for each in (a, b, d)]
    compiled = cutepy.compile(kernel, *held)
    for _ in range(20):
        held[2].fill_(77)
        compiled(*held)
        assert torch.equal(held[2].cpu(), (a.double() @ b.double().mT).to(d.dtype))


def test_a_stage_that_is_released_while_mmas_read_it_is_told(monkeypatch):
    kernel = Product((64, 32, 64), stages=2)
    wait_group = warpgroup.wait_group
    monkeypatch.setattr(warpgroup, "wait_group", lambda count: wait_group(2 * count))
    with pytest.raises(HazardError, match="unordered-write: what TMA of on_tile loads"), cutepy.simulate(sanitize=True):
        kernel(*operands(kernel, 64, 32, 336))


class FewerStages(Product):
    """The loop is given all stages but the last."""

    def make_loop(self, ring, tiled_mma, sA, sB, tidx):
        few = [cute.local_tile(each, (*each.shape[:2], self.stages - 1), (0, 0, 0)) for each in (sA, sB)]
        return super().make_loop(ring, tiled_mma, *few, tidx)


class OfHalfB(Product):
    """B is taken for fp16, whatever the MMAs multiply."""

    def make_loop(self, ring, tiled_mma, sA, sB, tidx):
        staged = cute.make_tensor(cute.recast_ptr(sB.iterator, dtype=cutlass.Float16), sB.layout)
        return super().make_loop(ring, tiled_mma, sA, staged, tidx)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Product((64, 32, 64), stages=1), "at least 2 stages, .* got 1, which deadlocks"),
        (lambda: Product((96, 32, 64)), "the M of a stage must be a multiple of 64"),
        (lambda: Product((64, 32, 64), mma_modes=(1, 0)), "the MMAs read B MN-major, got stages whose .* K-major"),
        (lambda: Product((64, 32, 64), mma_modes=(0, 1)), "the MMAs read A MN-major, got stages whose .* K-major"),
        (lambda: Product((64, 32, 64), staged_n=48), "the N of a stage must be a multiple of 32"),
        (lambda: Product((128, 256, 64), stages=2), "256 registers a thread, .* exceed the 232"),
        (lambda: OfHalfB((64, 32, 64)), "stages of B must hold .*, BFloat16, got Float16"),
        (lambda: FewerStages((64, 32, 64)), "must have the 3 stages of their ring, got 2 and 2"),
    ],
)
def test_what_can_not_be_is_refused_while_it_is_traced(make, said):
    a, b, d = torch.zeros(128, 128).bfloat16(), torch.zeros(128, 128).bfloat16(), torch.zeros(128, 128)
    with cutepy.simulate(), pytest.raises((ValueError, TypeError), match=said):
        make()(a, b, d)
