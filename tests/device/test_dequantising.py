"""Dequantisation in shared memory: each row's elements in place of its 8-bit floats and scales."""

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
from cutepy.device.dequantising import make_dequantisation, stages_to_load  # noqa: E402
from cutepy.device.pipeline import RewrittenRing, publish_barriers  # noqa: E402
from cutepy.dsl import to_cute  # noqa: E402
from cutepy.layouts import sm90  # noqa: E402
from cutepy.sim.sanitize.reports.collection import HazardError  # noqa: E402


class Dequantised:
    """Tiles one below another: warp 0 loads, `warps` dequantise, and the last one reads what they wrote."""

    def __init__(self, tile, warps):
        self.tile, self.warps = tile, warps
        self.plan = sm90.SmemPlan.of(staged=sm90.StagedTile(tile, 2, bits=16), barriers=sm90.SmemArray(6, bits=64))

    @cute.jit
    def __call__(self, source: cute.Tensor, found: cute.Tensor, stream: CUstream):
        """Launch on bytes (rows, columns + 128), those of a row's scales behind its values, and as many elements."""
        rows, columns = self.tile
        copies = [
            tma.make_load(source, to_cute(sm90.StagedTile((rows, width), 1, bits=8).layout), (rows, width), 1)
            for width in (columns, 128)
        ]
        self.kernel(*zip(*copies, strict=True), found).launch(
            grid=(1, 1, 1), block=(32 * (self.warps + 2), 1, 1), stream=stream
        )

    @cute.kernel
    def kernel(self, copies: tuple, tensors: tuple, found: cute.Tensor):
        """Part the warps."""
        shared = smem.share(self.plan, staged=found.element_type)
        staged, (rows, columns) = self.plan["staged"].content, self.tile
        ring = RewrittenRing(shared["barriers"], 2, rows * (columns + 128), 1, warps=self.warps)
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        if warp == 0:
            with cute.arch.elect_one():
                ring.initialise()
        publish_barriers()
        values, lines = (
            tma.make_tiles(copies[n], tensors[n], into, (rows, width)).loads()
            for n, (into, width) in enumerate(
                zip(stages_to_load(shared["staged"], staged), (columns, 128), strict=True)
            )
        )
        dequantisation = make_dequantisation(shared["staged"], staged, warp - 1, self.warps)
        tiles, blocks = cute.size(found, mode=[0]) // rows, columns // 128
        if warp == 0:
            state = ring.producer_state()
            for tile in cutlass.range(tiles, unroll=1):
                full = ring.acquire(state)
                values.load((tile, 0), state.index, full)
                lines.load((tile, blocks), state.index, full)
                state.advance()
            ring.drain(state)
        elif warp <= self.warps:
            state = ring.consumer_state()
            for tile in cutlass.range(tiles, unroll=1):
                ring.wait_loaded(state)
                dequantisation.run(state.index, blocks * (tile % 2))
                ring.commit(state)
                state.advance()
        else:
            state = ring.consumer_state()
            for tile in cutlass.range(tiles, unroll=1):
                ring.wait(state)
                for n in cutlass.range(cute.arch.lane_idx(), rows * columns, 32, unroll=1):
                    row, column = n // columns, n % columns
                    found[tile * rows + row, column] = shared["staged"][row, column, state.index]
                cute.arch.fence_proxy("async.shared", space="cta")  # TMA overwrites what has been read
                cute.arch.sync_warp()
                ring.release(state)
                state.advance()


@pytest.mark.parametrize(
    ("tile", "warps", "dtype"),
    [
        ((64, 256), 3, torch.bfloat16),
        ((16, 128), 1, torch.float16),
        pytest.param((24, 512), 4, torch.bfloat16, marks=pytest.mark.deep),
    ],
)
def test_elements_are_in_place_of_their_bytes(tile, warps, dtype):
    torch.manual_seed(0)
    (rows, columns), tiles = tile, 3
    values = torch.randint(0, 256, (tiles * rows, columns), dtype=torch.uint8)
    values[:4] = torch.arange(256, dtype=torch.uint8).repeat(-(-columns * 4 // 256))[: 4 * columns].view(4, columns)
    scales = torch.rand(tiles * rows, 32) * 3
    source = torch.cat((values, scales.view(torch.uint8)), 1)
    found = torch.zeros(tiles * rows, columns, dtype=dtype)
    with cutepy.simulate(sanitize=True, inspect=True) as run:
        cutepy.compile(Dequantised(tile, warps), source, found)(source, found)
    assert not run.hazards
    assert not run.advisories
    assert not any(site.conflicts for site in run.conflicts())
    blocks = columns // 128
    own = torch.stack([scales[n, n // rows % 2 * blocks :][:blocks] for n in range(tiles * rows)])
    want = values.view(torch.float8_e4m3fn).float() * own.repeat_interleave(128, 1)
    assert torch.equal(found.nan_to_num(nan=-1.0), want.to(dtype).nan_to_num(nan=-1.0))


def test_a_reader_that_waits_for_tma_alone_is_told(monkeypatch):
    monkeypatch.setattr(RewrittenRing, "wait", RewrittenRing.wait_loaded)
    source, found = torch.zeros(48, 256, dtype=torch.uint8), torch.zeros(48, 128, dtype=torch.bfloat16)
    with pytest.raises(HazardError) as caught, cutepy.simulate(sanitize=True):
        cutepy.compile(Dequantised((16, 128), 1), source, found)(source, found)
    assert {"unordered-write", "unordered-read"} & {hazard.kind for hazard in caught.value.hazards}


def test_tiles_that_are_refused():
    for staged, warps in (
        (sm90.StagedTile((64, 256), 1, bits=8), 1),
        (sm90.StagedTile((64, 256), 1, bits=16, contiguous_mode=0), 1),
        (sm90.StagedTile((64, 256), 1, bits=16, swizzle="SW64"), 1),
        (sm90.StagedTile((64, 192), 1, bits=16), 1),
        (sm90.StagedTile((64, 256), 1, bits=16), 0),
    ):
        with refuses(ValueError):
            rules.quantised_tile(staged, warps)
