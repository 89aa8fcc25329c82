"""Global memory between the CTAs of a cluster: the scopes of arrivals and waits at mbarriers say who sees it."""

import numpy as np
import pytest

from cutepy.sim import Run
from tests.sim.opcode_runner import launch

START = """mov.u32 %r1, smem; mov.u32 %r2, %tid.x; mov.u32 %r3, %cluster_ctarank; ld.param.u64 %rd1, [p0];
setp.eq.u32 %p1, %r2, 0; setp.eq.u32 %p2, %r3, 0; setp.eq.u32 %p3, %r2, 32; add.u32 %r4, %r1, 8; mov.u32 %r9, 0;
@%p1 mbarrier.init.shared.b64 [%r1], 1; @%p1 mbarrier.init.shared.b64 [%r4], 1;
mapa.shared::cluster.u32 %r5, %r1, 0; mapa.shared::cluster.u32 %r6, %r1, 1;
fence.mbarrier_init.release.cluster; barrier.cluster.arrive.relaxed; barrier.cluster.wait;
@%p2 bra HERE;
"""
"""r1, r4: mbarriers; r5: the first one of CTA 0, r6: that of CTA 1; p1: thread 0, p3: thread 32."""

FILL = "@%p1 st.global.u32 [%rd1], 7;\n"
ARRIVE = "@%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5];\n"
SEND = FILL + ARRIVE
HERE = "bra END;\nHERE:\n"
WAIT = "WAIT: mbarrier.try_wait.parity.shared.b64 %p4, [%r1], 0; @!%p4 bra WAIT;\n"
ACQUIRE = WAIT.replace("parity", "parity.acquire.cluster")
TAKE = "@%p1 ld.global.u32 %r9, [%rd1];\n"
OTHER = "@%p3 ld.global.u32 %r9, [%rd1];\n"
MEET = "barrier.cluster.arrive; barrier.cluster.wait;\n"
BARRIER = "bar.sync 0;\n"
ONE = "@!%p1 bra ON;\n{}ON:\n"
END = "END: " + MEET
PASS_ON = ONE.format(ACQUIRE + "mbarrier.arrive.shared.b64 _, [%r4];\n") + WAIT.replace("WAIT", "NEXT").replace(
    "[%r1]", "[%r4]"
)
STORE = """@!%p1 bra ON;
cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r7], 16;
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
ON:
"""
READY = "add.u32 %r7, %r1, 128; @%p1 st.shared.v4.u32 [%r7], {%r2, %r2, %r2, %r2}; fence.proxy.async;\n"
COMPLETE = """add.u32 %r7, %r5, 128;
@%p3 st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r7], %r2, [%r5];
"""
EXPECT = "@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 4;\n"


def hazards_of(there, here, grid=2):
    """Run a kernel in a cluster of two, and return the kinds of what the sanitizer finds."""
    run = Run((), None, sanitize=True)
    body = "".join((START, there, HERE, here, END))
    launch(body, np.zeros(64, np.uint32), smem_bytes=2048, run=run, grid=grid, cluster=2, block=64)
    return [hazard.kind for hazard in run.hazards]


@pytest.mark.parametrize(
    ("there", "here"),
    [
        (SEND, ACQUIRE + TAKE),
        (FILL + BARRIER + ARRIVE.replace("p1", "p3"), ACQUIRE + TAKE),
        (SEND, ONE.format(ACQUIRE) + BARRIER + OTHER),
        (SEND, PASS_ON + OTHER),
        (FILL + MEET, MEET + TAKE),
        (SEND + MEET, WAIT + MEET + TAKE),
        ("@%p1 ld.global.u32 %r9, [%rd1];\n" + ARRIVE, WAIT + "@%p1 st.global.u32 [%rd1], 7;\n"),
        (READY + STORE + ARRIVE, ACQUIRE + TAKE),
        ("", "@%p1 st.global.u32 [%rd1], 7; @%p1 mbarrier.arrive.shared.b64 _, [%r1];\n" + WAIT + OTHER),
    ],
    ids=[
        "a wait of the cluster's scope",
        "what a thread has learned",
        "one waits for others",
        "one tells others at an mbarrier",
        "a barrier of the cluster",
        "a barrier of the cluster after a narrow wait",
        "a read that is over",
        "a bulk store",
        "within a CTA",
    ],
)
def test_what_is_right_is_not_reported(there, here):
    assert hazards_of(there, here) == []


@pytest.mark.parametrize(
    ("there", "here", "kind"),
    [
        (SEND, WAIT + TAKE, "too-narrow-scope"),
        (SEND, ONE.format(WAIT) + BARRIER + OTHER, "too-narrow-scope"),
        (SEND, WAIT + "@%p1 st.global.u32 [%rd1], 8;\n", "too-narrow-scope"),
        (SEND.replace(".release.cluster", ""), ACQUIRE + TAKE, "too-narrow-scope"),
        (SEND.replace("release", "relaxed"), ACQUIRE + TAKE, "unordered-read"),
        (SEND, WAIT.replace("parity", "parity.relaxed.cluster") + TAKE, "unordered-read"),
        (READY + STORE + ARRIVE, WAIT + TAKE, "too-narrow-scope"),
        (FILL + BARRIER + COMPLETE, EXPECT + WAIT + TAKE, "too-narrow-scope"),
        (FILL.replace("p1", "p3") + COMPLETE, EXPECT + ACQUIRE + TAKE, "unordered-read"),
    ],
    ids=[
        "a wait of the own CTA's scope",
        "others after such a wait",
        "a write after such a wait",
        "an arrival of the own CTA's scope",
        "a relaxed arrival",
        "a relaxed wait",
        "a bulk store",
        "what the issuer of a copy knew",
        "an issue is no release",
    ],
)
def test_what_is_wrong_is_found(there, here, kind):
    assert hazards_of(there, here) == [kind]


def test_what_another_cluster_has_released_is_not_seen_through_a_narrow_wait():
    there = """mov.u32 %r8, %clusterid.x; setp.eq.u32 %p5, %r8, 0; @!%p5 bra TAKE;
@%p1 st.global.u32 [%rd1], 7; @%p1 st.release.gpu.global.u32 [%rd1+128], 1; bra SENT;
TAKE: ld.acquire.gpu.global.u32 %r8, [%rd1+128]; setp.eq.u32 %p5, %r8, 0; @%p5 bra TAKE;
SENT: @%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5];
"""
    second = "mov.u32 %r8, %clusterid.x; setp.eq.u32 %p5, %r8, 0; @%p5 bra END;\n"
    assert hazards_of(there, second + ACQUIRE + TAKE, grid=4) == []
    assert hazards_of(there, second + WAIT + TAKE, grid=4) == ["too-narrow-scope"]


READERS = """mov.u32 %r1, smem; mov.u32 %r2, %tid.x; mov.u32 %r3, %cluster_ctarank; setp.eq.u32 %p1, %r2, 0;
setp.eq.u32 %p2, %r3, 0; setp.eq.u32 %p3, %r3, {teller}; and.pred %p3, %p3, %p1; mapa.shared::cluster.u32 %r5, %r1, 0;
@%p1 mbarrier.init.shared.b64 [%r1], 1; @%p1 st.shared.u32 [%r1+128], 1;
fence.mbarrier_init.release.cluster; barrier.cluster.arrive; barrier.cluster.wait;
@%p2 bra HERE;
@%p1 ld.shared::cluster.u32 %r9, [%r5+128];
@%p3 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5];
bra END;
HERE:
WAIT: mbarrier.try_wait.parity.acquire.cluster.shared.b64 %p4, [%r1], 0; @!%p4 bra WAIT;
@%p1 st.shared.u32 [%r1+128], 2;
END: barrier.cluster.arrive; barrier.cluster.wait;
"""


@pytest.mark.parametrize("teller", [1, 2])
def test_of_two_ctas_that_read_a_peer_s_memory_both_must_have_told_it(teller):
    run = Run((), None, sanitize=True)
    launch(READERS.format(teller=teller), smem_bytes=1024, run=run, grid=3, cluster=3)
    assert [hazard.kind for hazard in run.hazards] == ["unordered-write"]
