"""Tiles that threads load by cp.async: right and clean for any extents and pieces; what breaks is told."""

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

import cutlass  # noqa: E402
import cutlass.cute as cute  # noqa: E402

import cutepy  # noqa: E402
from cutepy.device import smem  # noqa: E402
from cutepy.device.pipeline import MixedRing, publish_barriers  # noqa: E402
from cutepy.device.thread_loads import ThreadLoads, ThreadTiles  # noqa: E402
from cutepy.dsl.element_types import element_type  # noqa: E402
from cutepy.layouts import sm90  # noqa: E402
from cutepy.runtime.dtypes import DTYPES  # noqa: E402
from cutepy.sim.sanitize.reports.collection import HazardError  # noqa: E402

STAGES, READERS = 2, 32


class Move:
    """Y = X, tile by tile: some threads load the tiles into a ring of stages, and a warp reads them out of it."""

    def __init__(self, dtype, tile, mode, piece_bytes, loaders=32):
        self.dtype, self.tile, self.mode, self.piece_bytes, self.loaders = dtype, tile, mode, piece_bytes, loaders
        staged = sm90.StagedTile(tile, STAGES, DTYPES[dtype].bits, mode)
        self.plan = sm90.SmemPlan.of(sX=staged, barriers=sm90.SmemArray(2 * STAGES, bits=64))

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        self.kernel(x, y).launch(grid=(1, 1, 1), block=(self.loaders + READERS, 1, 1))

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor):
        shared, tidx = smem.share(self.plan, sX=element_type(self.dtype)), cute.arch.thread_idx()[0]
        sX = shared["sX"]
        # Threads read what threads have copied, so that no fence for wgmma is needed.
        ring = MixedRing(shared["barriers"], STAGES, 0, READERS // 32, threads=self.loaders, fenced=False)
        if tidx == 0:
            ring.initialise()
        publish_barriers()
        tiles = ThreadTiles(x, sX, self.mode, self.piece_bytes)
        rows = cute.ceil_div(cute.size(x, mode=[0]), self.tile[0])
        if tidx < self.loaders:
            loads, state = tiles.loads(self.loaders, tidx), ring.producer_state()
            for index in cutlass.range(rows * tiles.columns, unroll=1):
                full = ring.acquire(state)
                loads.load((index // tiles.columns, index % tiles.columns), state.index)
                ring.commit(full)
                state.advance()
        else:
            state = ring.consumer_state()
            for index in cutlass.range(rows * tiles.columns, unroll=1):
                ring.wait(state)
                self.read(sX, y, (index // tiles.columns, index % tiles.columns), state.index, tidx - self.loaders)
                cute.arch.sync_warp()
                ring.release(state)
                state.advance()

    @cute.jit
    def read(self, sX, y, place, stage, lane):
        tile_m, tile_n = self.tile
        for index in cutlass.range(lane, tile_m * tile_n, READERS, unroll=1):
            row, column = index // tile_n, index % tile_n
            y[place[0] * tile_m + row, place[1] * tile_n + column] = sX[row, column, stage]


def moved(dtype, tile, mode, piece_bytes, extents, loaders=32):
    """Move a matrix whose rows, or columns, begin at multiples of a piece and of no more; give both, and the run."""
    kind = getattr(torch, dtype)
    other, along = extents if mode == 1 else extents[::-1]
    unit = piece_bytes // kind.itemsize
    pitch = (-(-along // unit) | 1) * unit
    held = torch.full((unit + other * pitch,), 9).to(kind)
    x = held[unit:].as_strided((other, along), (pitch, 1))
    x.copy_(torch.randint(-3, 4, (other, along)))
    x = x if mode == 1 else x.t()
    whole = [-(-extent // unit) * unit for extent, unit in zip(extents, tile, strict=True)]
    y = torch.full(whole, 7).to(kind)
    spec = cutepy.TensorSpec(
        dtype,
        ("m", "n"),
        strides=("pitch", 1) if mode == 1 else (1, "pitch"),
        divisibility={"pitch": unit, "mn"[mode]: unit},
        align=piece_bytes,
    )
    with cutepy.simulate(sanitize=True) as run:
        cutepy.compile(Move(dtype, tile, mode, piece_bytes, loaders), spec, cutepy.TensorSpec(dtype, ("p", "q")))(x, y)
    return x, y, run


@pytest.mark.parametrize(
    ("dtype", "tile", "extents", "loaders", "mode", "piece_bytes"),
    [
        ("float16", (32, 32), (72, 104), 32, 0, 4),
        ("float16", (32, 32), (40, 72), 32, 1, 16),
        ("bfloat16", (64, 64), (64, 64), 128, 0, 8),
        ("float32", (16, 16), (20, 12), 32, 0, 16),
        ("float32", (16, 16), (20, 12), 32, 1, 4),
        ("int8", (32, 32), (48, 80), 64, 1, 8),
    ],
)
def test_tiles_are_moved_and_what_lies_beyond_is_zero(dtype, tile, extents, loaders, mode, piece_bytes):
    x, y, run = moved(dtype, tile, mode, piece_bytes, extents, loaders)
    rows, columns = extents
    assert torch.equal(y[:rows, :columns], x)
    assert not y[rows:].any()
    assert not y[:, columns:].any()
    assert not run.hazards, run.report()


@pytest.mark.parametrize(
    ("broken", "kind"),
    [("wait", "unordered-read"), ("commit", "deadlock"), ("acquire", "unordered-write")],
)
def test_steps_that_are_left_out_are_told(monkeypatch, broken, kind):
    instead = {"acquire": lambda self, state: self.full + state.index}.get(broken, lambda *_: None)
    monkeypatch.setattr(MixedRing, broken, instead)
    with pytest.raises(HazardError) as caught:
        moved("float16", (32, 32), 1, 8, (32, 104))
    assert kind in {hazard.kind for hazard in caught.value.hazards}


@pytest.mark.parametrize(
    ("tile", "piece_bytes", "threads"),
    [
        ((32, 32), 2, 32),
        ((32, 32), 16, 2**10),
    ],
)
def test_tiles_that_threads_can_not_share_are_refused(tile, piece_bytes, threads):
    @cute.jit
    def make():
        staged = cute.make_rmem_tensor((*tile, 2), cutlass.Float16)
        ThreadLoads(staged, staged, 1, piece_bytes, threads, cutlass.Int32(0))

    with cutepy.simulate(), refuses(ValueError):
        make()
