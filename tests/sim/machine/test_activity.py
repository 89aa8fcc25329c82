"""What observers are told of barriers: who, and how much."""

import pytest

from cutepy.sim import Observer
from tests.sim.kernels.launching import launch


class Told(Observer):
    def __init__(self):
        self.events = []

    def on_barrier(self, event):
        self.events.append((event.operation, event.barrier, event.threads.describe(), event.amounts))


@pytest.mark.parametrize("split", [False, True])
def test_the_lanes_at_each_barrier_are_told(split):
    """Warps that call one instruction with other barriers; each of them names its own."""
    told = Told()
    body = f"mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, {5 if split else 6}; barrier.sync %r2, {32 if split else 64};"
    launch(body, block=(64, 1, 1), observers=[told])
    both = [("sync", "bar 0", "threads 0-31", ()), ("sync", "bar 1", "threads 32-63", ())]
    assert sorted(told.events) == (both if split else [("sync", "bar 0", "threads 0-63", ())])


def test_amounts_of_an_mbarrier_are_told():
    told = Told()
    body = """mov.u32 %r0, smem; mov.u32 %r1, %tid.x; mad.lo.u32 %r2, %r1, 8, %r0; mbarrier.init.shared.b64 [%r2], 1;
    setp.eq.u32 %p0, %r1, 1; @%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r0], 16;"""
    launch(body, block=(2, 1, 1), smem=64, observers=[told])
    assert told.events == [
        ("init", "mbarrier 0x0", "thread 0", (1,)),
        ("init", "mbarrier 0x8", "thread 1", (1,)),
        ("expect_tx", "mbarrier 0x0", "thread 1", (16,)),
        ("arrive", "mbarrier 0x0", "thread 1", (1,)),
    ]


def test_lanes_that_arrive_at_mbarriers_of_their_own_count_once_each():
    told = Told()
    body = """mov.u32 %r0, smem; mov.u32 %r1, %tid.x; mad.lo.u32 %r2, %r1, 8, %r0;
    mbarrier.init.shared.b64 [%r2], 2; mbarrier.arrive.shared.b64 _, [%r2]; mbarrier.arrive.shared.b64 _, [%r2], 1;"""
    launch(body, block=(3, 1, 1), smem=64, observers=[told])
    arrivals = [(barrier, lane, count) for operation, barrier, lane, count in told.events if operation == "arrive"]
    assert arrivals == 2 * [(f"mbarrier {8 * n:#x}", f"thread {n}", (1,)) for n in range(3)]
