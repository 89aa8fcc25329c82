"""Reports of kernels whose workers a scheduler calls name the worker's line, and not the call of the scheduler."""

import re
from dataclasses import dataclass
from pathlib import Path

import cutlass
import cutlass.cute as cute
import pytest
import torch
from cutlass.cute.nvgpu import cpasync

import cutepy
from cutepy.device import schedulers
from cutepy.device.pipeline import MixedRing, publish_barriers
from cutepy.dsl.traced_names import SmemAllocator
from cutepy.sim.ptx.model import SourceLine

pytestmark = pytest.mark.dsl
STAGES, TILES = 2, 6


@cute.jit
def give_back(ring, state):
    ring.release(state)
    state.advance()
    return state


@dataclass(frozen=True)
class Fills:
    ring: MixedRing
    stage: cute.Tensor
    x: cute.Tensor
    mistake: str

    def first_state(self, k):
        return self.ring.producer_state()

    @cute.jit
    def on_tile(self, work, state):
        lane = cute.arch.lane_idx()
        full = self.ring.acquire(state)
        copy = cute.make_copy_atom(cpasync.CopyG2SOp(), cutlass.Float32, num_bits_per_copy=32)
        place = cute.make_layout(1)
        source = cute.make_tensor(self.x.iterator + work.row * 32 + lane, place)
        cute.copy(copy, source, cute.make_tensor(self.stage.iterator + state.index * 32 + lane, place))  # fill
        self.ring.commit(full)
        state.advance()
        return state


@dataclass(frozen=True)
class Reads:
    ring: MixedRing
    stage: cute.Tensor
    y: cute.Tensor
    mistake: str

    def first_state(self, k):
        return self.ring.consumer_state()

    @cute.jit
    def on_tile(self, work, state):
        lane = cute.arch.lane_idx()
        if cutlass.const_expr(self.mistake != "no wait"):
            self.ring.wait(state)
        if cutlass.const_expr(self.mistake == "early release"):
            give_back(self.ring, state.clone())
        self.y[work.row, lane] = self.stage[0, 31 - lane, state.index]  # read
        cute.arch.sync_warp()
        if cutlass.const_expr(self.mistake == "other stage"):
            state.advance()
            self.ring.release(state)  # other
        elif cutlass.const_expr(self.mistake in ("", "no wait")):
            state = give_back(self.ring, state)  # right
        else:
            state.advance()
        return state


@cute.kernel
def passes_tiles(x: cute.Tensor, y: cute.Tensor, mistake: cutlass.Constexpr):
    allocator = SmemAllocator()
    stage = allocator.allocate_tensor(cutlass.Float32, cute.make_layout((1, 32, STAGES)), byte_alignment=128)
    ring = MixedRing(allocator.allocate_array(cutlass.Int64, 2 * STAGES), STAGES, 0, 1, threads=32, fenced=False)
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    if warp == 0:
        with cute.arch.elect_one():
            ring.initialise()
    publish_barriers()
    scheduler = schedulers.Persistent((cutlass.Int32(TILES), cutlass.Int32(1)), 1)
    if warp == 0:
        scheduler.each(Fills(ring, stage, x, mistake))
    else:
        scheduler.each(Reads(ring, stage, y, mistake))


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, mistake: cutlass.Constexpr):
    passes_tiles(x, y, mistake).launch(grid=(1, 1, 1), block=(64, 1, 1))


def simulated(mistake):
    x, y = torch.rand(TILES, 32), torch.zeros(TILES, 32)
    with cutepy.simulate(sanitize=True) as run:
        launch(x, y, mistake)
    assert torch.equal(y, x.flip(1))
    return run


def found(mistake):
    with pytest.raises(cutepy.sim.HazardError) as caught:
        simulated(mistake)
    return caught.value.hazards


def text_of(line):
    return Path(line.file).read_text().splitlines()[line.line - 1].strip()


def text_at(side):
    return text_of(side.chain[0])


def test_without_a_mistake_there_is_none():
    assert not simulated("").hazards


@pytest.mark.parametrize("mistake", ["no wait", "early release"])
def test_a_race_is_at_the_lines_of_both_workers(mistake):
    races = [hazard for hazard in found(mistake) if hazard.kind.startswith("unordered")]
    assert races
    lines = {text_at(side).rpartition("# ")[2] for hazard in races for side in hazard.sides}
    assert lines == {"fill", "read"}
    for side in (side for hazard in races for side in hazard.sides):
        assert [Path(line.file).name for line in side.chain] == [Path(__file__).name] * 2


def test_a_deadlock_is_at_the_worker_s_wait_and_through_a_helper():
    (hang,) = (hazard for hazard in found("no release") if hazard.kind == "deadlock")
    assert text_at(hang.after) == "full = self.ring.acquire(state)"
    assert [text_at(wait.sides[0]) for wait in hang.waits] == [
        "full = self.ring.acquire(state)",
        "self.ring.wait(state)",
    ]


def test_the_line_of_a_helper_comes_with_the_line_that_calls_it():
    (hazard,) = (hazard for hazard in found("early release") if "stands before the read" in hazard.missing)
    lines = re.findall(rf"{__file__}:(\d+)", hazard.missing)
    assert [text_of(SourceLine(__file__, int(line))) for line in lines] == [
        "ring.release(state)",
        "give_back(self.ring, state.clone())",
    ]
