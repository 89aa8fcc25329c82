"""A product by main loops, for their tests: its producer and consumers, its problems, and how it is checked."""

from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
import torch

import cutepy
from cutepy.device import main_loop, mma, schedulers, smem, tma
from cutepy.device.fragment import AccumulatorTile
from cutepy.device.pipeline import TmaRing, publish_barriers
from cutepy.dsl import from_cute, to_cute
from cutepy.dsl.element_types import element_type, multiplied_type
from cutepy.layouts import sm90
from cutepy.runtime.dtypes import DTYPES
from tests.messages import refuses

BF16, F16, E4M3, E5M2 = "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"


@dataclass(frozen=True)
class Producer:
    """The producer: it keeps the ring full of A and B."""

    ring: TmaRing
    a: tma.TmaLoads
    b: tma.TmaLoads

    def first_state(self, k):
        return self.ring.producer_state()

    @cute.jit
    def on_tile(self, work, state):
        for index in cutlass.range(work.k.count, unroll=1):
            full = self.ring.acquire(state)
            self.a.load((work.row, work.k[index]), state.index, full)
            self.b.load((work.column, work.k[index]), state.index, full)
            state.advance()
        return state


@dataclass(frozen=True)
class Consumer:
    """The consumers: they write their sums as they are."""

    loop: Any
    places: AccumulatorTile
    d: cute.Tensor
    scales: cute.Tensor | None

    def first_state(self, k):
        return self.loop.ring.consumer_state()

    def multiply(self, work, state):
        return self.loop.multiply(state, work.k.count)

    @cute.jit
    def on_tile(self, work, state):
        state = self.multiply(work, state)
        (tile_m, tile_n), d = self.places.coordinates.tile_mn, self.d
        down = work.row * tile_m + self.places.of_thread(0)
        along = work.column * tile_n + self.places.of_thread(1)
        for register, (row, column) in enumerate(self.places.coordinates.registers):
            if down + row < cute.size(d, mode=[0]) and along + column < cute.size(d, mode=[1]):
                d[down + row, along + column] = self.loop.tCrC[register]
        return state


class Product:
    """D = A B^T, in fp32 or s32; CTAs take every second tile. A stage may have more columns than are multiplied.

    Warpgroups are along M, or along M and N.
    """

    consumers = Consumer
    in_registers = False

    def __init__(self, tile, dtypes=(BF16, BF16), warpgroups=1, stages=3, modes=(1, 1), staged_n=None, mma_modes=None):
        self.tile, self.dtypes, self.stages, self.modes = tile, dtypes, stages, modes
        self.along = (warpgroups, 1) if isinstance(warpgroups, int) else warpgroups
        self.warpgroups = self.along[0] * self.along[1]
        self.staged_n, self.mma_modes, self.multiplied = staged_n or tile[1], mma_modes or modes, dtypes
        tile_m, _, tile_k = tile
        bits = [DTYPES[dtype].bits for dtype in dtypes]
        self.plan = sm90.SmemPlan.of(
            sA=sm90.StagedTile((tile_m, tile_k), stages, bits[0], modes[0]),
            sB=sm90.StagedTile((self.staged_n, tile_k), stages, bits[1], modes[1]),
            barriers=sm90.SmemArray(2 * stages, bits=64),
        )
        self.types = [multiplied_type(dtype) for dtype in dtypes]

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, d: cute.Tensor, scales: cute.Tensor | None):
        sA, sB = self.plan["sA"].content, self.plan["sB"].content
        tma_a, mA = tma.make_load(a, to_cute(sA.layout), sA.tile, 1, self.types[0])
        tma_b, mB = tma.make_load(b, to_cute(sB.layout), sB.tile, 1, self.types[1])
        raster = cute.ceil_div(d.shape[0], self.tile[0]), cute.ceil_div(d.shape[1], self.tile[1])
        self.kernel((tma_a, tma_b), (mA, mB), self.make_tiled_mma(), raster, d, scales).launch(
            grid=(2, 1, 1), block=(128 * (1 + self.warpgroups), 1, 1)
        )

    def make_tiled_mma(self):
        return mma.make_tiled_mma(
            *map(element_type, self.multiplied),
            a_contiguous_mode=self.mma_modes[0],
            b_contiguous_mode=self.mma_modes[1],
            tile_n=self.tile[1] // self.along[1],
            warpgroups=self.along,
            a_in_registers=self.in_registers,
        )

    @cute.kernel
    def kernel(
        self,
        copies: tuple,
        tensors: tuple,
        tiled_mma: cute.TiledMma,
        raster: tuple,
        d: cute.Tensor,
        scales: cute.Tensor | None,
    ):
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
                ring.drain(scheduler.each(Producer(ring, a.loads(), b.loads())))
        else:
            tidx = cute.arch.thread_idx()[0] - 128
            loop = self.make_loop(ring, tiled_mma, a.staged, b.staged, tidx)
            coordinates = sm90.AccumulatorCoordinates(from_cute(tiled_mma), (tile_m, tile_n))
            places = AccumulatorTile(coordinates, (64 * self.along[0], tile_n), tidx)
            scheduler.each(self.consumers(loop, places, d, scales))

    def make_loop(self, *arguments):
        return main_loop.make_main_loop(*arguments)


class OfHalfB:
    """Mixed into a product: B is taken for fp16, whatever the MMAs multiply."""

    def make_loop(self, ring, tiled_mma, sA, sB, tidx):
        staged = cute.make_tensor(cute.recast_ptr(sB.iterator, dtype=cutlass.Float16), sB.layout)
        return super().make_loop(ring, tiled_mma, sA, staged, tidx)


def _stored(extent, k, dtype, mode):
    """Make whole numbers, contiguous along a mode."""
    shape = (extent, k) if mode else (k, extent)
    made = torch.randint(0 if dtype == "uint8" else -3, 4, shape).to(getattr(torch, dtype))
    return made if mode else made.mT


def problem(kernel, m, n, k, scaled=False):
    """Give A, B, D with 77s, scales of rows, and what D must be: every order of sums is exact.

    A and B are whole numbers, and scales, if there are any, powers of two, as many as whole tiles have rows.
    """
    torch.manual_seed(m + n + k)
    a, b = (_stored(x, k, dtype, mode) for x, dtype, mode in zip((m, n), kernel.dtypes, kernel.modes, strict=True))
    rows = -(-m // kernel.tile[0]) * kernel.tile[0]
    scales = 2.0 ** torch.randint(-2, 3, (rows,)) if scaled else None
    wide = a.double() if scales is None else a.double() * scales[:m, None]
    sums = torch.int32 if kernel.dtypes[1] in ("int8", "uint8") else torch.float32
    return a, b, torch.full((m, n), 77).to(sums), scales, (wide @ b.double().mT).to(sums)


def check(kernel, m=200, n=104, k=208, scaled=False):
    """Run a product in the simulator: its sums are exact, and the sanitizer finds nothing."""
    *given, expected = problem(kernel, m, n, k, scaled)
    with cutepy.simulate(sanitize=True) as run:
        kernel(*given)
    assert torch.equal(given[2], expected)
    assert not run.hazards, run.report()


def check_on_gpu(kernel, scaled=False):
    """Launch a product 20 times on a GPU: its sums are exact each time."""
    *given, expected = problem(kernel, 1000, 200, 4112, scaled)
    held = [None if each is None else each.cuda() for each in given]
    compiled = cutepy.compile(kernel, *held)
    for _ in range(20):
        held[2].fill_(77)
        compiled(*held)
        assert torch.equal(held[2].cpu(), expected)


def check_refused(make):
    """Trace a product, which is refused."""
    a, b, d = torch.zeros(128, 128).bfloat16(), torch.zeros(128, 128).bfloat16(), torch.zeros(128, 128)
    with cutepy.simulate(), refuses((ValueError, TypeError)):
        make()(a, b, d, None)
