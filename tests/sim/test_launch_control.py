"""Cluster launch control: persistent kernels that take the work of clusters that have not begun."""

from __future__ import annotations

import numpy as np
import pytest

from cutepy.sim import BarrierError, CompletionPolicy, MemoryAccessError, Observer, Run, ScheduleError, SimulationError
from cutepy.sim.machine.policies import policy_named
from tests.messages import refuses
from tests.sim.opcode_runner import launch

TARGET = "sm_100a"

# Each CTA counts the tiles that it is given at data[tile], and writes who it was at data[tile + TILES].
START = """mov.u32 %r1, %tid.x; mov.u32 %r2, smem; ld.param.u64 %rd1, [p0]; setp.eq.u32 %p1, %r1, 0;
mov.u32 %r10, %ctaid.x; mov.u32 %r11, %ctaid.y; mov.u32 %r12, %ctaid.z; mov.u32 %r3, %nctaid.x; mov.u32 %r4, %nctaid.y;
mov.u32 %r5, %nctaid.z; mul.lo.u32 %r6, %r3, %r4; mul.lo.u32 %r6, %r6, %r5; mov.u32 %r7, 0;
mov.u32 %r8, %cluster_ctarank;
mad.lo.u32 %r13, %r12, %r4, %r11; mad.lo.u32 %r9, %r13, %r3, %r10; add.u32 %r20, %r2, 16;
@%p1 mbarrier.init.shared.b64 [%r20], 1; fence.mbarrier_init.release.cluster;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
"""
WORK = """mad.lo.u32 %r13, %r12, %r4, %r11; mad.lo.u32 %r13, %r13, %r3, %r10; mul.wide.u32 %rd2, %r13, 4;
add.u64 %rd2, %rd1, %rd2; mul.wide.u32 %rd3, %r6, 4; add.u64 %rd3, %rd2, %rd3;
@%p1 ld.global.u32 %r14, [%rd2]; @%p1 add.u32 %r14, %r14, 1; @%p1 st.global.u32 [%rd2], %r14;
"""
NAME = "@%p1 st.global.u32 [%rd3], %r9;"
ASK = "@%p2 clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes{all}.b128 [%r2], [%r20];"
TAKE = """WAIT: mbarrier.try_wait.parity.shared.b64 %p3, [%r20], %r7; @!%p3 bra WAIT;
.reg .b128 %q0; ld.shared.v2.b64 {%rd4, %rd5}, [%r2]; mov.b128 %q0, {%rd4, %rd5};
clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p4, %q0;
clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%r10, %r11, %r12, _}, %q0;
xor.b32 %r7, %r7, 1;
"""


def persistent(rank="", all_="", name=NAME, end="@%p4 bra AGAIN;"):
    return f"""{START}
AGAIN:
{WORK} {name}
@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r20], 16;
setp.eq.and.u32 %p2, %r8, 0, %p1;
{ASK.format(all=all_)}
{TAKE}
{rank}
bar.sync 0; fence.proxy.async.shared::cta;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
{end}
"""


class Requests(Observer):
    def __init__(self):
        self.found = []

    def on_cancel(self, request):
        self.found.append((request.ctas.describe(), request.first_cta, request.left))


class Always(CompletionPolicy):
    def __init__(self, grants):
        self._grants = grants

    def grants(self, left, beyond):
        return self._grants


def run(body, grid, policy=None, cluster=1, observers=(), **more):
    tiles = int(np.prod(grid))
    data = np.zeros(2 * tiles, np.uint32)
    seen = Run(observers, policy, **more)
    made = launch(body, data, grid=grid, cluster=cluster, block=64, smem_bytes=64, target=TARGET, run=seen)
    return data[:tiles], data[tiles:], made.stats, seen


@pytest.mark.parametrize("grid", [(1, 1, 1), (2, 1, 1), (5, 1, 1), (3, 2, 2), (100, 1, 1)])
@pytest.mark.parametrize("policy", [None, "late", "random:3", "youngest", "schedule:1", "schedule:2"])
def test_each_tile_is_done_once(grid, policy):
    """By the CTA that has its place, or by one that was granted it; the kernel sees grants and refusals."""
    if policy and policy.startswith("schedule") and grid[0] > 5:
        pytest.skip("schedules of many CTAs take long")
    done, by, stats, _ = run(persistent(), grid, policy and policy_named(policy))
    tiles = int(np.prod(grid))
    assert done.tolist() == [1] * tiles
    others = int((by != np.arange(tiles)).sum())
    assert stats["cancelled_clusters"] == others
    begun = tiles - others
    assert stats["cancel_requests"] == others + begun  # each CTA that begins asks until it is refused
    if policy in (None, "late", "youngest"):
        first = {1: 1, 2: 1, 5: 3, 12: 6, 100: 34}[tiles]
        assert others == (tiles - first + 1) // 2  # half of those beyond the first wave


def test_a_kernel_that_is_granted_all_and_one_that_is_granted_nothing():
    done, by, stats, _ = run(persistent(), (8, 1, 1), Always(True))
    assert done.tolist() == [1] * 8
    assert by.tolist()[4:] != [4, 5, 6, 7]
    assert (stats["cancelled_clusters"], stats["cancel_requests"]) == (4, 8)
    done, by, stats, _ = run(persistent(), (8, 1, 1), Always(False))
    assert by.tolist() == [*range(8)]
    assert (stats["cancelled_clusters"], stats["cancel_requests"]) == (0, 8)


def test_random_policies_grant_and_refuse():
    for name, tiles in (("random", 6), ("schedule", 3)):
        policies = [policy_named(f"{name}:{seed}") for seed in range(12)]
        found = {run(persistent(), (tiles, 1, 1), policy)[2]["cancelled_clusters"] for policy in policies}
        assert len(found) > 1


def test_observers_see_requests():
    seen = Requests()
    run(persistent(), (4, 1, 1), observers=[seen])
    assert seen.found == [
        ("CTA (0, 0, 0)", (2, 0, 0), 1),
        ("CTA (1, 0, 0)", None, 1),
        ("CTA (0, 0, 0)", None, 1),
        ("CTA (3, 0, 0)", None, 0),
    ]


RANK = "add.u32 %r10, %r10, %r8;"
ALL = ".multicast::cluster::all"


@pytest.mark.parametrize("policy", [None, "late", "random:1", "schedule:3"])
def test_clusters_get_the_answer_at_the_same_places(policy):
    """The first CTA of a pair asks for both, each takes the place of its rank."""
    done, by, stats, _ = run(persistent(RANK, ALL), (12, 1, 1), policy and policy_named(policy), cluster=2)
    assert done.tolist() == [1] * 12
    assert 2 * stats["cancelled_clusters"] == int((by != np.arange(12)).sum())
    assert (by % 2).tolist() == [0, 1] * 6


def test_a_refusal_has_coordinates_of_no_cta():
    found = np.zeros(4, np.uint32)
    body = f"""mov.u32 %r2, smem; add.u32 %r20, %r2, 16; mov.u32 %r7, 0; ld.param.u64 %rd1, [p0];
    setp.eq.u32 %p2, %r7, 0; mbarrier.init.shared.b64 [%r20], 1; mbarrier.arrive.expect_tx.shared.b64 _, [%r20], 16;
    {ASK.format(all="")}
    {TAKE}
    clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r13, %q0;
    clusterlaunchcontrol.query_cancel.get_first_ctaid::y.b32.b128 %r14, %q0;
    clusterlaunchcontrol.query_cancel.get_first_ctaid::z.b32.b128 %r15, %q0; selp.u32 %r16, 1, 0, %p4;
    st.global.u32 [%rd1], %r13; st.global.u32 [%rd1+4], %r14; st.global.u32 [%rd1+8], %r15;
    st.global.u32 [%rd1+12], %r16;"""
    launch(body, found, block=1, smem_bytes=64, target=TARGET)
    assert found.tolist() == [0xFFFFFFFF] * 3 + [0]


def test_to_ask_after_a_refusal_is_undefined():
    """Once the thread has waited for it: who asks twice before has seen no answer."""
    again = "mov.u32 %r10, 0; mov.u32 %r11, 0; mov.u32 %r12, 0; bra.uni AGAIN;"
    with refuses(SimulationError):
        run(persistent(end=again), (1, 1, 1))
    ask = f"@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r20], 32; {ASK.format(all='').replace('%p2', '%p1')}\n"
    second = ask.partition(";")[2].replace("[%r2]", "[%r2+32]")
    wait = "WAIT: mbarrier.try_wait.parity.shared.b64 %p3, [%r20], 0; @!%p3 bra WAIT;"
    *_, stats, _ = run(f"{START}\n{ask}\n{second}\n{wait}", (1, 1, 1))
    assert stats["cancel_requests"] == 2


@pytest.mark.parametrize(
    "wrong",
    ["add.u32 %r2, %r2, 8;", "add.u32 %r20, %r2, 32;", "mapa.shared::cluster.u32 %r20, %r20, 1;"],
    ids=["alignment", "mbarrier", "peer"],
)
def test_mistakes(wrong):
    """The answer's place is no multiple of 16, no mbarrier is there, or it is one of another CTA."""
    ask = f"setp.eq.and.u32 %p2, %r8, 0, %p1; {wrong}\n{ASK.format(all='')}"
    with refuses((MemoryAccessError, BarrierError)):
        run(f"{START}\n{ask}", (2, 1, 1), cluster=2)


@pytest.mark.parametrize("cluster", [1, 2])
def test_a_right_kernel_has_no_hazards(cluster):
    rank, every = (RANK, ALL) if cluster == 2 else ("", "")
    *_, seen = run(persistent(rank, every), (8, 1, 1), cluster=cluster, sanitize=True)
    assert [str(hazard) for hazard in seen.hazards] == []
    (certificate,) = seen.certificates
    assert "launch control decides" in str(certificate)


def test_an_answer_that_nobody_waits_for_is_a_race():
    body = persistent().replace("WAIT: mbarrier.try_wait.parity.shared.b64 %p3, [%r20], %r7; @!%p3 bra WAIT;", "")
    *_, seen = run(body, (2, 1, 1), sanitize=True)
    assert "what launch control answers at kernel.py" in str(seen.hazards)


def test_an_answer_over_one_that_is_read_is_a_race():
    """Without the barrier behind the reads the next answer may come before they are done."""
    body = persistent().replace("bar.sync 0; fence.proxy.async.shared::cta;\n", "")
    body = body.replace("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n@%p4", "@%p4")
    *_, seen = run(body, (4, 1, 1), sanitize=True)
    assert "launch control" in str(seen.hazards)


def test_schedules_are_replayed():
    *_, seen = run(persistent(name=""), (3, 1, 1), schedules=6)
    seen.check_schedules()
    with pytest.raises(ScheduleError):
        run(persistent(), (3, 1, 1), schedules=6)[-1].check_schedules()


def test_processes_do_not_part_what_asks():
    done, *_ = run(persistent(), (200, 1, 1), processes=2)
    assert done.tolist() == [1] * 200
