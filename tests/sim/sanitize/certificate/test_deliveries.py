"""Bytes of copies by several lanes, or to several CTAs: each counts by the lane that issued it, where it is brought."""

import pytest

from tests.sim.sanitize.certificate.programs import examined, run_cluster

START = """mov.u32 %r1, smem; mov.u32 %r2, %tid.x; ld.param.u64 %rd1, [p0]; mov.u32 %r4, %cluster_ctarank;
setp.eq.u32 %p1, %r2, 0; setp.lt.u32 %p2, %r2, 2; setp.eq.u32 %p3, %r4, 0;
"""
"""p1: thread 0; p2: the first two threads; p3: the first CTA of the cluster."""
SHOW = "fence.mbarrier_init.release.cluster; barrier.cluster.arrive; barrier.cluster.wait;\n"
END = "END: barrier.cluster.arrive; barrier.cluster.wait;\n"
WAIT = "{label}: mbarrier.try_wait.parity{acquire}.shared::cta.b64 %p7, [{at}], {phase}; @!%p7 bra {label};\n"
LOAD = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [{to}], [%rd1], {size}, [{at}];\n"


def wait(label, at, phase, acquire=""):
    return WAIT.format(label=label, at=at, phase=phase, acquire=acquire and ".acquire.cluster")


def hazards_of(body, **extents):
    certificate, hazards, error = examined(START + body, **extents)
    assert error is None
    assert bool(certificate.reasons) == bool(hazards)
    return hazards


def to_peer(told):
    """Write that the second CTA copies to the first one in two phases, of which it may be told."""
    tell = "mapa.shared::cluster.u32 %r7, %r1, 1; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r7+8];"
    copy = LOAD.format(to="%r6+{}", size=16, at="%r6")
    expect = "mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 16;\n"
    return (
        "@%p1 mbarrier.init.shared.b64 [%r1], 1; @%p1 mbarrier.init.shared.b64 [%r1+8], 1;\n" + SHOW
        + "mapa.shared::cluster.u32 %r6, %r1, 0; @!%p1 bra END; @!%p3 bra SEND;\n"
        + expect + wait("W0", "%r1", 0) + (tell if told else "") + expect + wait("W1", "%r1", 1)
        + "bra END;\nSEND:\n" + copy.format(256) + (wait("W2", "%r1+8", 0, acquire=True) if told else "")
        + copy.format(512) + END
    )  # fmt: skip


def test_who_copies_to_a_peer_alone_must_know_that_the_peers_phase_is_over():
    assert hazards_of(to_peer(told=True), grid=2, cluster=2) == ()
    (found,) = hazards_of(to_peer(told=False), grid=2, cluster=2)
    assert (found.kind, found.after.cta, found.after.lane) == ("early-arrival", (1, 0, 0), 0)


def each_its_own(waits):
    """Write that two lanes copy at once, each to an mbarrier of its own, after they have waited at some."""
    count = "@%p2 mbarrier.arrive.expect_tx.shared.b64 _, [%r5], 16;\n@%p2 " + LOAD.format(to="%r6", size=16, at="%r5")
    return (
        "mad.lo.u32 %r5, %r2, 8, %r1; mad.lo.u32 %r6, %r2, 16, %r1; add.u32 %r6, %r6, 256;\n"
        "@%p2 mbarrier.init.shared.b64 [%r5], 1;\n" + SHOW + "@!%p2 bra END;\n"
        + count + waits + count.replace("[%r6]", "[%r6+64]") + wait("LAST", "%r5", 1) + END
    )  # fmt: skip


@pytest.mark.parametrize("extents", [{}, {"grid": 2}, {"grid": 2, "cluster": 2}], ids=str)
def test_lanes_that_copy_at_once_know_each_of_its_own_mbarrier(extents):
    assert hazards_of(each_its_own(wait("W", "%r5", 0)), **extents) == ()
    found = hazards_of(each_its_own(wait("W", "%r1", 0)), **extents)  # both wait at the first lane's
    assert {one.after.lane for one in found if one.kind == "early-arrival"} == {1}


def crosswise(place):
    """Write that lane l of CTA r stores into CTA l ^ r, again once it has heard of a CTA at its mbarrier for that."""
    send = "@%p2 st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r7+{}], %r2, [%r6];\n"
    expect = "@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 8;\n"
    tell = (  # of a CTA's own phase, to the lane of a peer that stores into this CTA
        "xor.b32 %r8, %r4, {peer}; mapa.shared::cluster.u32 %r9, %r1, {peer}; mad.lo.u32 %r9, %r8, 8, %r9;\n"
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r9+8];\n"
    )
    first, last = wait("W0", "%r1", 0, acquire=True), wait("W1", "%r1", 1, acquire=True)
    inits = "".join(f"@%p1 mbarrier.init.shared.b64 [%r1+{at}], 1;\n" for at in (0, 8, 16))
    return (
        inits + SHOW + "@!%p2 bra END; xor.b32 %r5, %r2, %r4; mapa.shared::cluster.u32 %r6, %r1, %r5;\n"
        + f"mad.lo.u32 %r7, %r4, 4, %r6; xor.b32 %r10, %r2, {place}; mad.lo.u32 %r10, %r10, 8, %r1;\n"
        + expect + send.format(256) + "@!%p1 bra HEAR;\n" + first + tell.format(peer=0) + tell.format(peer=1)
        + "HEAR:\n" + wait("H", "%r10+8", 0, acquire=True) + expect + send.format(512)
        + "@!%p1 bra END;\n" + last + END
    )  # fmt: skip


def test_lanes_that_store_into_several_ctas_at_once_know_each_of_its_own_destination():
    extents = {"grid": 2, "cluster": 2}
    assert hazards_of(crosswise(0), **extents) == ()
    assert {one.kind for one in hazards_of(crosswise(1), **extents)} == {"early-arrival"}


def announced_apart(sure, late, copies):
    """Write that a warp's first thread announces bytes as it arrives and the next warp more, before its own copy."""
    return (
        "@%p1 mbarrier.init.shared.b64 [%r1], 1;\n" + SHOW
        + "mad.lo.u32 %r6, %r2, 16, %r1; setp.eq.u32 %p4, %r2, 32; setp.lt.u32 %p5, %r2, 32;\n@!%p4 bra FIRST;\n"
        + f"mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], {late};\n"
        + LOAD.format(to="%r1+1024", size=32, at="%r1") + wait("W0", "%r1", 0) + "bra END;\n"
        + "FIRST: @!%p5 bra END; @!%p2 bra END;\n"
        + f"@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], {sure};\n" + copies + wait("W1", "%r1", 0) + END
    )  # fmt: skip


def test_copies_of_lanes_leave_bytes_pending_that_were_announced_in_time():
    copies = "@%p2 " + LOAD.format(to="%r6+256", size=16, at="%r1")
    assert hazards_of(announced_apart(48, 16, copies), block=64) == ()
    found = hazards_of(announced_apart(32, 32, copies), block=64)
    assert {one.kind for one in found} == {"premature-completion"}


def test_a_copy_to_several_ctas_leaves_bytes_pending_that_were_announced_in_time():
    first = [("arrive_expect", 0, 32), ("multicast", 0, 16, "a"), ("wait", 0, 0)]
    other = [("arrive_expect", 1, 16), ("expect", 0, 16), ("copy", 0, 32, "b"), ("wait", 1, 0)]
    certificate, hazards, error = run_cluster([first, other], [1, 1])
    assert (error, hazards, certificate.reasons) == (None, (), ())


@pytest.mark.parametrize("lanes", [1, 2, 32])
def test_each_lanes_copy_is_an_operation(lanes):
    copy = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r5], [%rd1], 16, [%r1];\n"
    certificate, hazards, error = examined(
        START + "shl.b32 %r5, %r2, 4; add.u32 %r5, %r5, %r1; add.u32 %r5, %r5, 64;\n"
        f"@%p1 mbarrier.init.shared.b64 [%r1], 1; setp.lt.u32 %p4, %r2, {lanes};\n" + SHOW
        + f"@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], {16 * lanes};\n@%p4 {copy}" + wait("W0", "%r1", 0)
    )  # fmt: skip
    assert (error, list(hazards), certificate.reasons) == (None, [], ())
    assert certificate.operations == 5 + lanes
