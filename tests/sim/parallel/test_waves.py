"""Partition of grids into waves."""

from types import SimpleNamespace

import numpy as np
import pytest

from cutepy.sim.machine.cluster_queue import ClusterQueue
from cutepy.sim.machine.events import CompletionPolicy
from cutepy.sim.machine.lanes import cluster_order
from cutepy.sim.machine.launch import may_run_in_any_order
from cutepy.sim.parallel.waves import deal
from cutepy.sim.translate import Kernel

MODULE = """.version 8.7
.target sm_90a
.address_size 64
.extern .func (.param .b64 p) malloc(.param .b64 size);
.visible .entry other() {{ .reg .b32 %r<2>; .reg .b64 %rd<2>; {other} ret; }}
.func called() {{ .reg .b32 %r<2>; .reg .b64 %rd<2>; {called} ret; }}
.visible .entry kernel() {{ .reg .b32 %r<3>; .reg .b64 %rd<2>; .reg .f32 %f<4>; {body} ret; }}
"""


def launch(ctas, cluster=1, ptx="", cooperative=False, resident_ctas=132, called="", other="", block=(128, 1, 1)):
    grid, extents = (ctas, 1, 1), (cluster, 1, 1)
    return SimpleNamespace(
        grid=grid,
        block=block,
        cluster=extents,
        order=cluster_order(grid, extents),
        entry=Kernel(MODULE.format(body=ptx, called=called, other=other), "kernel"),
        cooperative=cooperative,
        resident_ctas=resident_ctas,
    )


@pytest.mark.parametrize(
    ("ctas", "cluster", "sizes"),
    [
        (1, 1, [1]),
        (47, 1, [47]),
        (48, 1, [24, 24]),
        (132, 1, [33] * 4),
        (132, 2, [34, 34, 34, 30]),
        (64, 16, [32, 32]),
    ],
)
def test_waves_are_of_about_equal_size_and_keep_clusters_together(ctas, cluster, sizes):
    waves = [*deal(launch(ctas, cluster))]
    assert [len(wave) for wave in waves] == sizes
    np.testing.assert_array_equal(np.concatenate(waves), np.arange(ctas))


MMA = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd0, %rd0, 1, 1, 1, 0, 0;"


@pytest.mark.parametrize(
    ("block", "ptx", "sizes"),
    [
        (256, "", [256, 256]),
        (32, "", [512]),
        (256, MMA, [32] * 16),
    ],
)
def test_a_launch_that_is_watched_has_few_waves_of_many_lanes(block, ptx, sizes):
    """Neither machine code nor processes wait for the end of one; tiles are many bytes."""
    watched = launch(512, block=(block, 1, 1), ptx=ptx)
    assert [len(wave) for wave in deal(watched, is_watched=True)] == sizes
    assert [len(wave) for wave in deal(watched)] == [32] * 16


WAITS = {"ptx": "red.global.add.u32 [%rd0], 1;"}


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        (WAITS, [132, 68]),
        (WAITS | {"cluster": 8}, [128, 72]),
        (WAITS | {"resident_ctas": 264}, [200]),
        (WAITS | {"resident_ctas": 150, "cluster": 4}, [148, 52]),
        ({"cooperative": True}, [200]),
        ({"cooperative": True, "cluster": 8}, [200]),
    ],
)
def test_ctas_that_may_wait_for_each_other_are_resident_together(options, sizes):
    """Of a cooperative launch, all: more than can be resident are refused before."""
    assert [len(wave) for wave in deal(launch(200, **options))] == sizes
    assert not may_run_in_any_order(launch(200, **options))


@pytest.mark.parametrize(
    ("ptx", "expected"),
    [
        ("{ .param .b64 p; call (p), malloc, (p); }", False),
        ("st.shared.u32 [%r0], %r1; ld.global.nc.u32 %r1, [%rd0];", True),
        ("prefetch.tensormap [%rd0];", True),
        ("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd0, {%r0, %r1}], [%r2];", True),
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd0], [%r0], 16;", False),
        ("tensormap.replace.tile.global_address.global.b1024.b64 [%rd0], %rd1;", False),
        ("fence.proxy.tensormap::generic.acquire.gpu [%rd0], 128;", False),
        ("mov.u64 %rd0, %globaltimer;", False),
        ("mov.u32 %r0, %clock;", False),
        ("atom.global.add.u32 %r0, [%rd0], 1;", False),
        ("red.release.gpu.add.u32 [%rd0], 1;", False),
        ("atom.shared.add.u32 %r0, [%r1], 1;", True),
        ("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r0], 1, [%r1];", True),
        ("ld.volatile.shared.u32 %r0, [%r1];", True),
        ("ld.volatile.global.u32 %r0, [%rd0];", False),
        ("ld.mmio.relaxed.sys.global.u32 %r0, [%rd0];", False),
    ],
)
def test_what_shows_the_order_of_ctas(ptx, expected):
    assert may_run_in_any_order(launch(1, ptx=ptx)) == expected


def test_what_other_kernels_of_the_module_do_shows_nothing():
    assert may_run_in_any_order(launch(1, other="atom.global.add.u32 %r0, [%rd0], 1;"))
    waits = "ld.acquire.gpu.global.u32 %r0, [%rd0];"
    assert may_run_in_any_order(launch(1, called=waits))
    assert not may_run_in_any_order(launch(1, ptx="call.uni called;", called=waits))


CANCEL = """.shared .align 16 .b8 s[32];
clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [s], [s+16];"""


@pytest.mark.parametrize(
    ("ctas", "cluster", "sizes"), [(1, 1, [1]), (5, 1, [3, 2]), (8, 4, [4, 4]), (100, 1, [34, 34, 32])]
)
def test_half_of_the_clusters_wait_where_others_may_take_them(ctas, cluster, sizes):
    asks = launch(ctas, cluster)
    ptx = MODULE.format(body=CANCEL, called="", other="").replace("8.7\n.target sm_90a", "8.8\n.target sm_100a")
    asks.entry = Kernel(ptx, "kernel")
    assert [len(wave) for wave in deal(asks)] == sizes
    assert not may_run_in_any_order(asks)


class Granting(CompletionPolicy):
    def grants(self, left, beyond):
        return True


def test_a_queue_gives_each_cluster_once():
    """As part of a wave that begins, or to who asks; an empty wave does not begin."""
    queue = ClusterQueue([np.arange(4), np.array([4, 5]), np.array([6, 7, 8, 9])], 2)
    assert (queue.beyond, queue.left) == (3, 3)
    waves = iter(queue)
    assert next(waves).tolist() == [0, 1, 2, 3]
    assert [queue.cancel(None), queue.cancel(None), queue.cancel(None)] == [4, 6, None]
    assert queue.left == 1
    assert [wave.tolist() for wave in waves] == [[8, 9]]
    assert queue.left == 0
    assert queue.cancel(Granting()) is None
    queue = ClusterQueue([np.arange(2), np.array([2, 3])], 2)
    queue.begin(0)
    assert [queue.cancel(Granting()), queue.cancel(Granting())] == [2, None]
