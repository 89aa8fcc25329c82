"""Events of barriers: the lanes and the amounts that observers are given."""

from types import SimpleNamespace

import numpy as np
import pytest

from cutepy.sim import (
    ClusterArrive,
    ClusterWait,
    Fence,
    GroupCommit,
    GroupWait,
    MbarrierArrive,
    MbarrierAt,
    MbarrierCompleteTx,
    MbarrierExpectTx,
    MbarrierInit,
    MbarrierWait,
    NamedBarrier,
    NamedBarrierArrive,
    NamedBarrierJoin,
    NamedBarrierSync,
    Observer,
    SetRegisters,
    WarpSync,
)
from cutepy.sim.machine.activity import Traffic
from cutepy.sim.machine.address_patterns import AddressPattern, LocatedPattern
from cutepy.sim.machine.events import part_of
from tests.sim.kernels.launching import launch


class Told(Observer):
    def __init__(self):
        self.events = []

    def on_barrier(self, event):
        self.events.append((type(event), event.barrier, event.threads.describe(), event.amounts))


@pytest.mark.parametrize("split", [False, True])
def test_the_lanes_at_each_barrier_are_told(split):
    """Warps that call one instruction with other barriers; each of them names its own."""
    told = Told()
    body = f"mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, {5 if split else 6}; barrier.sync %r2, {32 if split else 64};"
    launch(body, block=(64, 1, 1), observers=[told])
    both = [
        (NamedBarrierSync, NamedBarrier(0), "threads 0-31", ()),
        (NamedBarrierSync, NamedBarrier(1), "threads 32-63", ()),
    ]
    assert sorted(told.events, key=lambda event: event[1].number) == (
        both if split else [(NamedBarrierSync, NamedBarrier(0), "threads 0-63", ())]
    )


def test_amounts_of_an_mbarrier_are_told():
    told = Told()
    body = """mov.u32 %r0, smem; mov.u32 %r1, %tid.x; mad.lo.u32 %r2, %r1, 8, %r0; mbarrier.init.shared.b64 [%r2], 1;
    setp.eq.u32 %p0, %r1, 1; @%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r0], 16;"""
    launch(body, block=(2, 1, 1), smem=64, observers=[told])
    assert told.events == [
        (MbarrierInit, MbarrierAt(0), "thread 0", (1,)),
        (MbarrierInit, MbarrierAt(8), "thread 1", (1,)),
        (MbarrierExpectTx, MbarrierAt(0), "thread 1", (16,)),
        (MbarrierArrive, MbarrierAt(0), "thread 1", (1,)),
    ]


def test_lanes_that_arrive_at_mbarriers_of_their_own_count_once_each():
    told = Told()
    body = """mov.u32 %r0, smem; mov.u32 %r1, %tid.x; mad.lo.u32 %r2, %r1, 8, %r0;
    mbarrier.init.shared.b64 [%r2], 2; mbarrier.arrive.shared.b64 _, [%r2]; mbarrier.arrive.shared.b64 _, [%r2], 1;"""
    launch(body, block=(3, 1, 1), smem=64, observers=[told])
    arrivals = [(barrier, lane, count) for kind, barrier, lane, count in told.events if kind is MbarrierArrive]
    assert arrivals == 2 * [(MbarrierAt(8 * n), f"thread {n}", (1,)) for n in range(3)]


class Seen(Observer):
    def __init__(self):
        self.events = []

    def on_barrier(self, event):
        self.events.append(event)

    on_begin = on_barrier


def test_the_class_and_the_fields_of_an_event_say_what_was_done():
    seen = Seen()
    body = """mov.u32 %r0, smem; mbarrier.init.shared.b64 [%r0], 1; fence.proxy.async;
    mbarrier.arrive.shared.b64 _, [%r0]; mbarrier.try_wait.parity.shared.b64 %p0, [%r0], 0;
    cp.async.commit_group; cp.async.wait_group 2; cp.async.wait_all;
    cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 1;
    bar.warp.sync 1; barrier.sync 3, 32; barrier.arrive 4, 64;
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; setmaxnreg.dec.sync.aligned.u32 40;"""
    launch(body, block=(1, 1, 1), smem=64, observers=[seen])
    assert [(type(event), str(event.barrier)) for event in seen.events] == [
        (MbarrierInit, "mbarrier 0x0"),
        (Fence, "fence.proxy.async"),
        (MbarrierArrive, "mbarrier 0x0"),
        (MbarrierWait, "mbarrier 0x0"),
        (GroupCommit, "cp.async group"),
        (GroupWait, "cp.async group 2"),
        (GroupWait, "cp.async"),
        (GroupCommit, "bulk_group"),
        (GroupWait, "bulk_group 1 read"),
        (WarpSync, "bar.warp"),
        (NamedBarrierJoin, "bar 3"),
        (NamedBarrierSync, "bar 3"),
        (NamedBarrierArrive, "bar 4"),
        (ClusterArrive, "barrier.cluster"),
        (ClusterWait, "barrier.cluster"),
        (SetRegisters, "registers"),
    ]
    of = {type(event): event for event in reversed(seen.events)}
    assert of[MbarrierInit].arrivals == (1,)
    assert of[MbarrierArrive].counted.tolist() == [[0]]
    assert (of[MbarrierWait].counted.item(), of[MbarrierWait].tried.item()) == (0, 0)
    assert (of[GroupWait].remaining, of[GroupWait].reads_only) == (2, False)
    assert of[NamedBarrierSync].generation.item() == 0
    assert of[SetRegisters].count == 40


def test_the_bytes_of_a_copy_are_part_of_it_and_what_threads_do_is_part_of_nothing():
    seen, source = Seen(), np.zeros(4, np.uint32)
    body = """mov.u32 %r0, smem; mbarrier.init.shared.b64 [%r0], 1; barrier.sync 1, 32;
    mbarrier.arrive.expect_tx.shared.b64 _, [%r0], 16;
    cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r0+16], [%rd0], 16, [%r0];"""
    launch(body, [source], block=(1, 1, 1), smem=64, observers=[seen])
    kinds = {type(event): getattr(part_of(event), "kind", None) for event in seen.events}
    assert kinds[MbarrierCompleteTx] == "bulk_load"
    assert kinds[MbarrierExpectTx] is kinds[MbarrierArrive] is kinds[NamedBarrierSync] is None


@pytest.mark.parametrize("ctas", [1, 2, 3])
@pytest.mark.parametrize("rows", [1, "all"])
@pytest.mark.parametrize("size", [1, 4, 16])
@pytest.mark.parametrize("stride", [0, 1, 3, 8])
def test_sectors_of_a_pattern_are_those_of_its_addresses(ctas, rows, size, stride):
    """Counted by distances, by addresses, and from the definition: the sectors of 32 bytes that each warp touches."""
    rows = ctas if rows == "all" else rows
    lanes = np.arange(64)
    offsets = np.array([(lanes * stride + 5 * row) * size for row in range(rows)], np.int64)
    low = 64 * 7 + size
    group = SimpleNamespace(ctas=SimpleNamespace(count=ctas), threads=SimpleNamespace(full=True, warps=[0, 1]))
    located = LocatedPattern(AddressPattern(offsets), low)
    counted, known = {}, {}
    Traffic(known).access_pattern("store", group, located, size)
    Traffic(counted).access("store", group, located.addresses(), size)
    assert known == counted
    warps = [(offsets[n % rows, first : first + 32] + low).tolist() for n in range(ctas) for first in (0, 32)]
    assert known["l2_store_sectors"] == sum(len({at // 32 for at in warp}) for warp in warps)
    assert known["l2_store_bytes"] == sum(len(set(warp)) for warp in warps) * size
