"""Two consumers do something in turns: each sees what the other has left, and nobody waits for ever."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

import cutlass  # noqa: E402
import cutlass.cute as cute  # noqa: E402

import cutepy  # noqa: E402
from cutepy.device import smem  # noqa: E402
from cutepy.device.turns import PingpongOrder  # noqa: E402
from cutepy.layouts import sm90  # noqa: E402
from cutepy.sim.sanitize.reports.collection import HazardError  # noqa: E402

THREADS = 64
PLAN = sm90.SmemPlan.of(cells=sm90.SmemArray(THREADS, 32, 16))


class Chain:
    """Y = ((x0 * 3 + x1) * 3 + x2) ..., of which two consumers compute every second step, by a cell that they share."""

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        self.kernel(x, y).launch(grid=(1, 1, 1), block=(2 * THREADS, 1, 1))

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor):
        cells = smem.as_vector(smem.share(PLAN, cells=cutlass.Int32)["cells"], PLAN["cells"])
        thread, steps = cute.arch.thread_idx()[0], cute.size(x, mode=[0])
        consumer, tidx = cute.arch.make_warp_uniform(thread // THREADS), thread % THREADS
        if consumer == 0:
            cells[tidx] = 0
        cute.arch.sync_threads()
        turns = PingpongOrder(1, consumer, THREADS)
        for step in cutlass.range(consumer, steps, 2, unroll=1):
            turns.wait(step == 0)
            # What another thread of the other consumer has left: the barrier is one of all, not of single threads.
            beside = (tidx + 1) % THREADS
            value = cells[beside] * 3 + x[step, tidx]
            cute.arch.barrier(barrier_id=3 + consumer, number_of_threads=THREADS)
            cells[tidx] = value
            if step + 1 == steps:
                y[tidx] = value
            turns.hand_over(step + 1 < steps)


def chain(steps, **how):
    x = torch.randint(-3, 4, (steps, THREADS)).int()
    expected = torch.zeros(THREADS, dtype=torch.int32)
    for row in x:
        expected = expected.roll(-1) * 3 + row
    y = torch.full((THREADS,), -77).int()
    with cutepy.simulate(sanitize=True, **how) as run:
        Chain()(x, y)
    return y, expected, run


@pytest.mark.parametrize(("steps", "policy"), [(1, None), (2, "late"), (3, None), (8, "random:1")])
def test_each_continues_what_the_other_has_left(steps, policy):
    y, expected, run = chain(steps, policy=policy)
    assert torch.equal(y, expected)
    assert not run.hazards, run.report()


@pytest.mark.parametrize(("broken", "kind"), [("wait", "unordered-write"), ("hand_over", "deadlock")])
def test_steps_that_are_left_out_are_told(monkeypatch, broken, kind):
    monkeypatch.setattr(PingpongOrder, broken, lambda *_: None)
    with pytest.raises(HazardError) as caught:
        chain(4)
    assert {hazard.kind for hazard in caught.value.hazards} == {kind}
