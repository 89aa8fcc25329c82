"""Parts of a stage: pages of fewer rows than a tile are loaded into their rows of it."""

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

import cutlass  # noqa: E402
import cutlass.cute as cute  # noqa: E402

import cutepy  # noqa: E402
from cutepy.device import rules, smem, tma  # noqa: E402
from cutepy.device.pipeline import TmaRing, publish_barriers  # noqa: E402
from cutepy.layouts import sm90  # noqa: E402

ROWS, COLUMNS = 64, 128


class Gather:
    """Copy the pages of a table, ROWS of them together in a stage, to the rows of a matrix.

    `mode` is the one of the pages' rows; the parts' numbers are known while the loads are traced, or not.
    """

    def __init__(self, page: int, mode: int, *, known: bool = True, named: bool = True):
        self.page, self.mode, self.known, self.named = page, mode, known, named
        self.tile, self.part = ((ROWS, COLUMNS), (page, COLUMNS)) if mode == 0 else ((COLUMNS, ROWS), (COLUMNS, page))
        self.plan = sm90.SmemPlan.of(
            sX=sm90.StagedTile(self.tile, 2, 16, 1 - mode), barriers=sm90.SmemArray(4, bits=64)
        )

    @cute.jit
    def __call__(self, pages: cute.Tensor, y: cute.Tensor, table: cute.Tensor):
        sX = self.plan["sX"].content
        of_part = sm90.StagedTile(self.part, 1, 16, 1 - self.mode)
        load, mX = tma.make_load(pages, cutepy.dsl.to_cute(of_part.layout), self.part, 1)
        store, mY = tma.make_store(y, cutepy.dsl.to_cute(sX.layout), sX.tile)
        self.kernel(load, mX, store, mY, table).launch(grid=(1, 1, 1), block=(32, 1, 1))

    @cute.kernel
    def kernel(self, load, mX: cute.Tensor, store, mY: cute.Tensor, table: cute.Tensor):
        shared, count = smem.share(self.plan, sX=cutlass.Float16), ROWS // self.page
        ring = TmaRing(shared["barriers"], 2, ROWS * COLUMNS * 2, 1)
        with cute.arch.elect_one():
            ring.initialise()
        publish_barriers()
        loads = tma.make_tiles(load, mX, shared["sX"], self.part).loads()
        to = tma.make_tiles(store, mY, shared["sX"], self.tile)
        filled, read = ring.producer_state(), ring.consumer_state()
        for tile in cutlass.range(cute.size(table) // count, unroll=1):
            full = ring.acquire(filled)
            if cutlass.const_expr(not self.named):
                loads.load((0, 0, table[tile]), filled.index, full)
            elif cutlass.const_expr(self.known):
                for part in cutlass.range_constexpr(count):
                    loads.load((0, 0, table[tile * count + part]), filled.index, full, part=part)
            else:
                for part in cutlass.range(count, unroll=1):
                    loads.load((0, 0, table[tile * count + part]), filled.index, full, part=part)
            filled.advance()
            ring.wait(read)
            subtiles = to.subtiles((tile, 0) if self.mode == 0 else (0, tile))
            cute.copy(subtiles.copy, subtiles.tSs[(None, read.index)], subtiles.place(0))
            cute.arch.cp_async_bulk_commit_group()
            cute.arch.cp_async_bulk_wait_group(0, read=True)
            cute.arch.sync_warp()
            ring.release(read)
            read.advance()
        ring.drain(filled)


def gathered(gather: Gather, table: list[int]):
    """Return what is copied, and what should be."""
    pages = torch.randn(9, gather.page, COLUMNS).half()
    y = torch.zeros(len(table) * gather.page, COLUMNS).half()
    turned = (lambda t: t) if gather.mode == 0 else lambda t: t.mT
    with cutepy.simulate(sanitize=True) as run:
        gather(turned(pages).permute(1, 2, 0), turned(y), torch.tensor(table).int())
    assert not run.hazards
    return y, pages[table].flatten(0, 1)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(("page", "mode"), [(8, 0), (32, 0), (16, 1), (64, 1)])
def test_pages_come_to_their_rows(page, mode, known):
    found, wanted = gathered(Gather(page, mode, known=known), [3, 8, 0, 1, 2, 2, 7, 5] * (3 * 64 // page // 8 or 1) * 2)
    assert torch.equal(found, wanted)


def test_other_parts_are_refused():
    with refuses(ValueError):
        rules.parts_of_stage((4, 128), (64, 128), contiguous=1)
    with refuses(TypeError):
        gathered(Gather(16, 0, named=False), [0, 1, 2, 3])
    with refuses(ValueError):
        rules.parts_of_stage((64, 32), (64, 128), contiguous=1)
    with refuses(ValueError):
        rules.check_tile_or_part((48, 64), (128, 64), contiguous=1)
    with refuses(IndexError):
        rules.place_of_part(8, (8, 1))
