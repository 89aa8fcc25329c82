"""Announcements that no arrival waits for: which phases they are safe in, by bytes or by looking at all orders."""

import pytest

from cutepy.sim.ptx.model import Instruction
from cutepy.sim.sanitize.certificate.phase_completion import MOST
from cutepy.sim.sanitize.certificate.premises import announces
from tests.sim.sanitize.certificate.programs import examined, run

WAIT = ("wait", 0, 0)
SAFE = {
    "what is sure outweighs what may come before": [
        [("arrive_expect", 0, 32), ("copy", 0, 16, "a"), WAIT],
        [("expect", 0, 16), ("copy", 0, 32, "b"), WAIT],
    ],
    "no order comes to nothing before the end": [
        [("arrive_expect", 0, 16), WAIT],
        [("expect", 0, 16), ("copy", 0, 48, "a"), WAIT],
        [("expect", 0, 32), ("copy", 0, 16, "b"), WAIT],
    ],
    "more operations than all orders are looked at of": [
        [("expect", 0, 16), ("copy", 0, 16, "a"), ("arrive", 0), WAIT],
        [*[("arrive", 0)] * 12, WAIT],
    ],
    "as many bytes as an mbarrier counts": [[("arrive_expect", 0, MOST), ("complete", 0, MOST), WAIT]],
    "a phase that lacks an arrival": [[("expect", 0, 16), ("complete", 0, 16)] * 7],
}
UNSAFE = {
    "an arrival may come first, and bytes are left": [[("expect", 0, 16)], [("arrive", 0)]],
    "one of two may be all that comes": [
        [("arrive_expect", 0, 16), WAIT],
        [("expect", 0, 16), ("copy", 0, 32, "a"), WAIT],
        [("expect", 0, 16), ("copy", 0, 16, "b"), WAIT],
    ],
}


@pytest.mark.parametrize("name", SAFE)
def test_what_is_safe_is_certified(name):
    certificate, hazards, error = run(SAFE[name], [13 if "more operations" in name else 1])
    assert (error, hazards, certificate.reasons) == (None, (), ())


@pytest.mark.parametrize("name", UNSAFE)
def test_what_is_not_safe_is_told(name):
    certificate, hazards, error = run(UNSAFE[name], [1])
    assert error is not None or not certificate.is_certified
    assert {"premature-completion", "early-arrival"} & {hazard.kind for hazard in hazards}


TO_EACH = """mov.u32 %r1, smem; mov.u32 %r2, %tid.x; setp.eq.u32 %p1, %r2, 0; setp.lt.u32 %p2, %r2, 2;
@%p1 mbarrier.init.shared.b64 [%r1], 2; fence.mbarrier_init.release.cluster;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
@%p1 EXPECT
@%p2 mapa.shared::cluster.u32 %r5, %r1, %r2; @%p2 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5];
W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p5, [%r1], 0; @!%p5 bra W;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"""
"""Of each CTA one lane arrives at each CTA's mbarrier, in one instruction."""
BYTES = """mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 16;
@%p1 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], 16;"""


MEET = "bar.warp.sync -1;"


@pytest.mark.parametrize("expect", ["mov.u32 %r9, 0;", BYTES + MEET], ids=["arrivals", "bytes"])
def test_lanes_that_arrive_at_several_ctas_at_once(expect):
    certificate, hazards, error = examined(TO_EACH.replace("EXPECT", expect), block=32, grid=2, cluster=2)
    assert (error, hazards, certificate.reasons) == (None, (), ())


def test_a_lane_that_announces_and_another_that_arrives_must_meet():
    _, hazards, _ = examined(TO_EACH.replace("EXPECT", BYTES), block=32, grid=2, cluster=2)
    assert {hazard.kind for hazard in hazards} == {"premature-completion"}


CROSSWISE = """mov.u32 %r1, smem; mov.u32 %r2, %tid.x; ld.param.u64 %rd1, [p0]; mov.u32 %r4, %cluster_ctarank;
setp.eq.u32 %p1, %r2, 0; setp.lt.u32 %p2, %r2, 2; setp.eq.u32 %p3, %r2, 32; setp.eq.u32 %p4, %r2, 64;
@%p1 mbarrier.init.shared.b64 [%r1], 2; fence.mbarrier_init.release.cluster;
barrier.cluster.arrive; barrier.cluster.wait;
xor.b32 %r5, %r2, %r4; and.b32 %r5, %r5, 1; mapa.shared::cluster.u32 %r6, %r1, %r5;
@%p2 mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%r6], 16;
@%p3 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 16;
@%p4 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1+256], [%rd1], 32, [%r1];
@%p4 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1+512], [%rd1], 16, [%r1];
W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p5, [%r1], 0; @!%p5 bra W;
barrier.cluster.arrive; barrier.cluster.wait;"""
"""Lane l of CTA r announces 16 bytes at CTA l ^ r as it arrives there; the next warp announces 16 more."""


def test_lanes_that_announce_at_several_ctas_at_once_announce_as_much_as_they_say():
    """The copy of 32 bytes may be all that comes before the last announcement."""
    _, hazards, error = examined(CROSSWISE, block=96, grid=2, cluster=2)
    assert error is None
    assert {hazard.kind for hazard in hazards} == {"premature-completion"}


def sends(place, phase):
    """Write that lane 0 of the first CTA copies to both CTAs of its cluster, and each waits for its bytes."""
    copy = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
    return f"""mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 16;
    @%p3 {copy} [%r1+{place}], [%rd1], 16, [%r1], %rs1;
    W{phase}: mbarrier.try_wait.parity.shared.b64 %p7, [%r1], {phase}; @!%p7 bra W{phase};
    """


TOLD = """@%p3 bra HEAR;
mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5+8]; bra ON;
HEAR: mbarrier.try_wait.parity.acquire.cluster.shared.b64 %p7, [%r1+8], 0; @!%p7 bra HEAR;
ON:"""


@pytest.mark.parametrize(("told", "kinds"), [("", {"early-arrival"}), (TOLD, set())], ids=["not told", "told"])
def test_who_copies_to_a_peer_must_know_that_the_peers_phase_is_over(told, kinds):
    body = f"""mov.u32 %r1, smem; mov.u32 %r2, %tid.x; ld.param.u64 %rd1, [p0]; mov.u32 %r4, %cluster_ctarank;
    setp.eq.u32 %p2, %r2, 0; setp.eq.u32 %p3, %r4, 0; mapa.shared::cluster.u32 %r5, %r1, 0; mov.u16 %rs1, 3;
    @%p2 mbarrier.init.shared.b64 [%r1], 1; @%p2 mbarrier.init.shared.b64 [%r1+8], 1;
    fence.mbarrier_init.release.cluster; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    @!%p2 bra END;
    {sends(256, 0)} {told} {sends(512, 1)}
    END: barrier.cluster.arrive; barrier.cluster.wait;"""
    _, hazards, error = examined(body, block=32, grid=2, cluster=2)
    assert error is None
    assert {hazard.kind for hazard in hazards} == kinds


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [
        ("mbarrier.expect_tx.relaxed.cta.shared::cta.b64", True),
        ("mbarrier.complete_tx.relaxed.cta.shared::cta.b64", True),
        ("mbarrier.arrive.noComplete.shared.b64", True),
        ("cp.async.mbarrier.arrive.shared.b64", True),
        ("cp.async.mbarrier.arrive.noinc.shared.b64", False),
        ("mbarrier.arrive.expect_tx.shared.b64", False),
        ("ld.shared.u32", False),
    ],
)
def test_which_instructions_announce_apart_from_arrivals(opcode, expected):
    assert announces((Instruction(0, opcode, ()),)) == expected
