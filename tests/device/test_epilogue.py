"""Subtiles of accumulators reach global memory through a tile store, or are refused while the kernel is traced."""

import inspect
import math
from types import SimpleNamespace

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

import cutlass  # noqa: E402
import cutlass.cute as cute  # noqa: E402

import cutepy  # noqa: E402
from cutepy.device import epilogue, mma, smem, tma  # noqa: E402
from cutepy.dsl.traced_names import SmemAllocator  # noqa: E402

DTYPES = {cutlass.Float32: torch.float32, cutlass.Float16: torch.float16}


class Store:
    """Store a tile of accumulators whose values are their places in the tile, row by row."""

    def __init__(self, tile, subtile, stages=2, warpgroups=1, dtype=cutlass.Float32, contiguous_mode=1, threads=None):
        self.tile, self.subtile, self.stages, self.warpgroups = tile, subtile, stages, warpgroups
        self.dtype, self.mode = dtype, contiguous_mode
        self.launched = 128 * (warpgroups if isinstance(warpgroups, int) else math.prod(warpgroups))
        self.threads = threads or self.launched

    @cute.jit
    def __call__(self, d: cute.Tensor):
        tiled_mma = mma.make_tiled_mma(
            cutlass.Float16,
            cutlass.Float16,
            a_contiguous_mode=1,
            b_contiguous_mode=1,
            tile_n=self.tile[1],
            warpgroups=self.warpgroups,
        )
        layout = smem.staged_layout(self.dtype, self.subtile, self.mode, self.stages)
        store, mD = tma.make_store(d, layout, self.subtile)
        self.kernel(tiled_mma, layout, store, mD).launch(grid=(1, 1, 1), block=(self.launched, 1, 1))

    @cute.kernel
    def kernel(self, tiled_mma: cute.TiledMma, layout: cute.ComposedLayout, store: cute.CopyAtom, mD: cute.Tensor):
        sD = smem.allocate(SmemAllocator(), self.dtype, layout)
        tidx = cute.arch.thread_idx()[0]
        places = tiled_mma.get_slice(tidx).partition_C(cute.make_identity_tensor(self.tile))
        tCrC = cute.make_rmem_tensor(tiled_mma.partition_shape_C(self.tile), cutlass.Float32)
        for i in cutlass.range_constexpr(cute.size(tCrC)):
            tCrC[i] = cutlass.Float32(places[i][0] * self.tile[1] + places[i][1])
        out = epilogue.make_tile_store(tiled_mma, sD, self.mode, tidx, self.threads)
        places = tma.make_tiles(store, mD, sD, self.tile).subtiles((0, 0))
        subtiles = out.subtiles(tCrC, places)
        for index in cutlass.range(cute.size(subtiles, mode=[3]), unroll_full=True):
            stage = index % self.stages
            out.store(subtiles[None, None, None, index], stage, places, index)
        out.finish()


def stored(tile, subtile, **options):
    """Simulate a store, each byte of which is sent once, and return what it wrote and what it should have."""
    store = Store(tile, subtile, **options)
    d = torch.zeros(tile, dtype=DTYPES[store.dtype])
    d = d if store.mode == 1 else torch.zeros(tile[::-1], dtype=d.dtype).t()
    with cutepy.simulate() as run:
        store(d)
    assert run.stats["tma_bytes"] == d.nbytes
    return d, torch.arange(tile[0] * tile[1]).reshape(tile).to(d.dtype)


WAYS = [
    ((64, 32), (64, 16), 1, 2),
    ((64, 32), (64, 32), 1, 3),
    ((128, 16), (64, 16), 1, 2),
    ((128, 16), (128, 16), 2, 2),
    ((64, 24), (64, 24), 1, 2),
    ((64, 24), (64, 8), 1, 2),
]


@pytest.mark.parametrize(
    ("tile", "subtile", "warpgroups", "stages", "dtype", "contiguous_mode"),
    [  # Each pair of a way, a dtype and a mode, and all together in `make test-deep`.
        pytest.param(*way, dtype, mode, marks=[pytest.mark.deep] * ((a + b + mode) % 2))
        for a, way in enumerate(WAYS)
        for b, dtype in enumerate(DTYPES)
        for mode in (0, 1)
    ],
)
def test_what_is_stored_is_in_its_place(tile, subtile, warpgroups, stages, dtype, contiguous_mode):
    got, expected = stored(
        tile, subtile, warpgroups=warpgroups, stages=stages, dtype=dtype, contiguous_mode=contiguous_mode
    )
    assert torch.equal(got, expected)


@pytest.mark.parametrize(
    ("tile", "subtile", "options"),
    [
        ((128, 32), (128, 16), {}),
        ((64, 32), (32, 16), {}),
        ((128, 32), (64, 16), {"warpgroups": 2}),
        ((64, 24), (64, 12), {}),
        ((64, 48), (64, 32), {}),
        ((128, 24), (64, 16), {}),
        ((64, 32), (64, 16), {"stages": 1}),
        ((64, 32), (64, 16), {"threads": 256}),
        ((64, 32), (64, 32), {"warpgroups": (1, 2)}),
    ],
)
def test_what_it_can_not_store_is_refused(tile, subtile, options):
    with refuses(ValueError):
        stored(tile, subtile, **options)


@pytest.mark.parametrize("count", [3, 4])
def test_more_subtiles_than_stages_are_not_written_at_once(count):
    out, places = SimpleNamespace(stage=SimpleNamespace(stages=2)), SimpleNamespace(count=count)
    with refuses(IndexError):
        inspect.unwrap(epilogue.TileStore.write_all)(out, None, places)


@cute.jit
def traced(make: cutlass.Constexpr):
    make()


@pytest.mark.parametrize(
    ("types", "modes"),
    [
        ((cutlass.Float8E4M3FN,) * 2, (0, 1)),
        ((cutlass.Float8E4M3FN,) * 2, (1, 0)),
        ((cutlass.Float16, cutlass.BFloat16), (1, 1)),
        ((cutlass.Float16,) * 2, (1, 2)),
    ],
)
def test_operands_that_no_wgmma_takes_are_refused(types, modes):
    def make():
        mma.make_tiled_mma(*types, a_contiguous_mode=modes[0], b_contiguous_mode=modes[1], tile_n=64, warpgroups=1)

    with cutepy.simulate(), refuses(ValueError):
        traced(make)
