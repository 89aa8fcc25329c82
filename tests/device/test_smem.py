"""Regions of a plan in a kernel's shared memory: overlays lie where the plan says, and may be used in turns only."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

import cutlass  # noqa: E402
import cutlass.cute as cute  # noqa: E402

import cutepy  # noqa: E402
from cutepy.device import smem  # noqa: E402
from cutepy.layouts import sm90  # noqa: E402
from cutepy.sim.sanitize.reports.collection import HazardError  # noqa: E402

THREADS = 64


class Turned:
    """Y = X backwards, then rounded to half precision and forwards again, through two regions of one memory."""

    def __init__(self, is_staged, waits=True):
        self.waits = waits
        tile, array = sm90.StagedTile((8, 64), 1, bits=16), sm90.SmemArray(THREADS, bits=16, alignment_bytes=128)
        self.plan = sm90.SmemPlan.of(
            first=sm90.SmemArray(512, bits=32, alignment_bytes=1024),
            second=tile if is_staged else array,
            overlays={"second": "first"},
        )
        self.is_staged = is_staged

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        self.kernel(x, y).launch(grid=(1, 1, 1), block=(THREADS, 1, 1))

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor):
        shared = smem.share(self.plan, first=cutlass.Float32, second=cutlass.Float16)
        thread = cute.arch.thread_idx()[0]
        first, second = smem.as_vector(shared["first"], self.plan["first"]), shared["second"]
        if cutlass.const_expr(not self.is_staged):
            second = smem.as_vector(second, self.plan["second"])
        first[thread] = x[thread]
        cute.arch.sync_threads()
        y[0, thread] = first[THREADS - 1 - thread]
        if cutlass.const_expr(self.waits):
            cute.arch.sync_threads()
        place = (0, thread, 0) if cutlass.const_expr(self.is_staged) else thread
        second[place] = x[thread].to(cutlass.Float16)
        cute.arch.sync_threads()
        place = (0, thread ^ 1, 0) if cutlass.const_expr(self.is_staged) else thread ^ 1
        y[1, thread] = second[place].to(cutlass.Float32)


@pytest.mark.parametrize("is_staged", [False, True])
def test_overlays_are_right_in_turns_and_told_otherwise(is_staged):
    x, y = torch.arange(THREADS, dtype=torch.float32), torch.zeros(2, THREADS)
    kernel = Turned(is_staged)
    with cutepy.simulate(sanitize=True):
        kernel(x, y)
    assert torch.equal(y, torch.stack((x.flip(0), x[torch.arange(THREADS) ^ 1])))
    assert kernel.plan.size_bytes == 2048
    with pytest.raises(HazardError) as told, cutepy.simulate(sanitize=True):
        Turned(is_staged, waits=False)(x, y)
    assert {hazard.kind for hazard in told.value.hazards} == {"unordered-write"}
    assert {hazard.buffer for hazard in told.value.hazards} == {"first or second"}
