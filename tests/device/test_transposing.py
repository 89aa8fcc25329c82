"""Transposes of 8-bit tiles in shared memory: each byte at its place, in the order of K that accumulators have."""

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

import cutlass  # noqa: E402
import cutlass.cute as cute  # noqa: E402
from cuda.bindings.driver import CUstream  # noqa: E402

import cutepy  # noqa: E402
from cutepy.device import rules, smem, tma  # noqa: E402
from cutepy.device.pipeline import StoredRing, TmaRing, publish_barriers  # noqa: E402
from cutepy.device.transposing import make_transposes  # noqa: E402
from cutepy.dsl import to_cute  # noqa: E402
from cutepy.layouts import sm90  # noqa: E402


class Transposed:
    """Tiles (rows, K) one after another: warp 0 loads, `warps` transpose, and the last one reads what they wrote."""

    def __init__(self, tile, warps):
        self.tile, self.warps = tile, warps
        self.plan = sm90.SmemPlan.of(
            loaded=sm90.StagedTile(tile, 2, bits=8, contiguous_mode=0),
            staged=sm90.StagedTile(tile, 2, bits=8),
            loaded_barriers=sm90.SmemArray(4, bits=64),
            staged_barriers=sm90.SmemArray(4, bits=64),
        )

    @cute.jit
    def __call__(self, source: cute.Tensor, found: cute.Tensor, stream: CUstream):
        """Launch on bytes (rows, K) whose rows are contiguous, and as many, whose K is."""
        staged = self.plan["loaded"].content
        one = sm90.StagedTile(self.tile, 1, bits=8, contiguous_mode=0)
        copy, coordinates = tma.make_load(source, to_cute(one.layout), staged.tile, 1)
        self.kernel(copy, coordinates, found).launch(grid=(1, 1, 1), block=(32 * (self.warps + 2), 1, 1), stream=stream)

    @cute.kernel
    def kernel(self, copy: cute.CopyAtom, coordinates: cute.Tensor, found: cute.Tensor):
        """Part the warps."""
        shared = smem.share(self.plan, loaded=cutlass.Int8, staged=cutlass.Int8)
        loaded, staged = (self.plan[name].content for name in ("loaded", "staged"))
        full = TmaRing(shared["loaded_barriers"], 2, loaded.stage_bytes, self.warps)
        made = StoredRing(shared["staged_barriers"], 2, 0, 1, warps=self.warps)
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        if warp == 0:
            with cute.arch.elect_one():
                full.initialise()
                made.initialise()
        publish_barriers()
        loads = tma.make_tiles(copy, coordinates, shared["loaded"], self.tile).loads()
        transposes = make_transposes(shared["loaded"], loaded, shared["staged"], staged, warp - 1, self.warps)
        (rows, extent), tiles = self.tile, cute.size(found, mode=[1]) // self.tile[1]
        if warp == 0:
            state = full.producer_state()
            for tile in cutlass.range(tiles, unroll=1):
                loads.load((0, tile), state.index, full.acquire(state))
                state.advance()
            full.drain(state)
        elif warp <= self.warps:
            state, into = full.consumer_state(), made.producer_state()
            for _ in cutlass.range(tiles, unroll=1):
                full.wait(state)
                barrier = made.acquire(into)
                transposes.run(state.index, into.index)
                made.commit(barrier)
                full.release(state)
                state.advance()
                into.advance()
        else:
            state = made.consumer_state()
            for tile in cutlass.range(tiles, unroll=1):
                made.wait(state)
                for n in cutlass.range(cute.arch.lane_idx(), rows * extent, 32, unroll=1):
                    row, k = n // extent, n % extent
                    found[row, tile * extent + k] = shared["staged"][row, k, state.index]
                cute.arch.sync_warp()
                made.release(state)
                state.advance()


@pytest.mark.parametrize(
    ("tile", "warps"),
    [((64, 128), 3), ((80, 224), 3), ((16, 64), 1), pytest.param((256, 96), 4, marks=pytest.mark.deep)],
)
def test_bytes_are_at_the_places_of_accumulators(tile, warps):
    torch.manual_seed(0)
    source = torch.randint(-128, 128, (3 * tile[1], tile[0]), dtype=torch.int8).t()
    found = torch.zeros(tile[0], 3 * tile[1], dtype=torch.int8)
    with cutepy.simulate(sanitize=True, inspect=True) as run:
        cutepy.compile(Transposed(tile, warps), source, found)(source, found)
    assert not run.hazards
    assert not run.advisories
    assert not any(site.conflicts for site in run.conflicts())
    order = torch.tensor([sm90.operand_order(8, 3 * tile[1])(place) for place in range(3 * tile[1])])
    assert torch.equal(found, source[:, order])


def test_tiles_that_are_refused():
    for loaded, staged, warps in (
        (sm90.StagedTile((64, 48), 1, bits=8, contiguous_mode=0), sm90.StagedTile((64, 48), 1, bits=8), 1),
        (sm90.StagedTile((64, 64), 1, bits=8), sm90.StagedTile((64, 64), 1, bits=8), 1),
        (sm90.StagedTile((64, 64), 1, bits=8, contiguous_mode=0), sm90.StagedTile((64, 64), 1, bits=8), 0),
    ):
        with refuses(ValueError):
            rules.check_transposes(loaded, staged, warps)
    rules.check_stored_ring(2, 1, 8)
    with refuses(ValueError):
        rules.check_stored_ring(2, 0, 8)
