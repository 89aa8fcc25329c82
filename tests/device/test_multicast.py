"""Tiles that the CTAs of a cluster share by multicast: each loads a part, and all have the whole tile."""

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
cutlass = pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

import cutlass.cute as cute  # noqa: E402

import cutepy  # noqa: E402
from cutepy.device import smem, tma  # noqa: E402
from cutepy.device.pipeline import TmaRing, publish_barriers  # noqa: E402
from cutepy.layouts import sm90  # noqa: E402

TYPES = {8: torch.int8, 16: torch.float16}


class Shared:
    """Load a tile for all CTAs of a cluster, and store each CTA's below one another."""

    def __init__(self, tile: sm90.StagedTile, peers: int):
        self.plan = sm90.SmemPlan.of(sX=tile, barriers=sm90.SmemArray(2, bits=64))
        self.tile, self.cluster = tile.tile, (1, peers, 1)

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        layout = cutepy.dsl.to_cute(self.plan["sX"].layout)
        load, mX = tma.make_load(x, layout, self.tile, self.cluster[1])
        store, mY = tma.make_store(y, layout, self.tile)
        self.kernel(load, mX, store, mY, x.element_type).launch(
            grid=self.cluster, block=(32, 1, 1), cluster=self.cluster
        )

    @cute.kernel
    def kernel(
        self, load: cute.CopyAtom, mX: cute.Tensor, store: cute.CopyAtom, mY: cute.Tensor, dtype: cutlass.Constexpr
    ):
        shared = smem.share(self.plan, sX=dtype)
        ring = TmaRing(shared["barriers"], 1, self.plan["sX"].content.stage_bytes, 1, self.cluster[:2])
        with cute.arch.elect_one():
            ring.initialise()
        publish_barriers(self.cluster)
        loads = tma.make_tiles(load, mX, shared["sX"], self.tile).loads(ring, 1)
        filled = ring.producer_state()
        loads.load((0, 0), 0, ring.acquire(filled))
        ring.wait(ring.consumer_state())
        _, rank, _ = cute.arch.block_idx()
        below = tma.make_tiles(store, mY, shared["sX"], self.tile).subtiles((rank, 0))
        cute.copy(below.copy, below.tSs[(None, 0)], below.place(0))
        cute.arch.cp_async_bulk_commit_group()
        cute.arch.cp_async_bulk_wait_group(0, read=True)
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()


@pytest.mark.parametrize(
    ("tile", "mode", "bits", "peers"),
    [
        ((128, 64), 1, 16, 2),
        ((24, 64), 1, 16, 4),  # six lines of 128 bytes
        ((24, 64), 1, 8, 4),
        ((16, 16), 1, 16, 4),
        ((96, 64), 0, 16, 4),  # in parts of K
        ((96, 24), 0, 16, 3),
    ],
)
def test_what_may_be_shared_is_whole(tile, mode, bits, peers):
    staged, (rows, columns) = sm90.StagedTile(tile, 1, bits, mode), tile
    x = torch.randint(-9, 9, tile).to(TYPES[bits])
    y = torch.zeros(peers * rows, columns, dtype=x.dtype)
    x, y = (each if mode == 1 else each.t().contiguous().t() for each in (x, y))
    with cutepy.simulate(sanitize=True):
        Shared(staged, peers)(x, y)
    assert torch.equal(y.reshape(peers, *tile), x.expand(peers, *tile))


@pytest.mark.parametrize(
    ("tile", "mode", "peers"), [((128, 64), 1, 3), ((24, 16), 1, 4), ((8, 32), 1, 8), ((192, 64), 0, 3)]
)
def test_parts_where_tma_cannot_write_are_refused(tile, mode, peers):
    x = torch.zeros(tile if mode == 1 else tile[::-1]).half()
    x = x if mode == 1 else x.t()
    with cutepy.simulate(), refuses(ValueError):
        Shared(sm90.StagedTile(tile, 1, 16, mode), peers)(x, x)
