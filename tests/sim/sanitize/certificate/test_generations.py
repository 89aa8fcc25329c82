"""Generations of named and cluster barriers: who arrives and ends, who runs ahead, and of which CTA."""

import numpy as np
import pytest

from cutepy.sim import DeadlockError, Run
from tests.messages import pins, refuses
from tests.sim.opcode_runner import launch

START = """mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, 5; mov.u32 %r3, %cluster_ctarank; setp.eq.u32 %p1, %r2, 0;
setp.eq.u32 %p2, %r3, 0; setp.eq.u32 %p3, %r1, 0; mov.u32 %r4, smem; ld.param.u64 %rd1, [p0];
"""
"""p1: the first warp; p2: the first CTA of the cluster; p3: thread 0; r4: shared memory."""
ARRIVE, WAIT = "barrier.cluster.arrive;\n", "barrier.cluster.wait;\n"
RUN_AHEAD = """@%p1 bra FIRST; bar.sync 1, 64; bar.sync 1, 64; bra END; FIRST: bar.arrive 1, 64; bar.arrive 1, 64;
END:
"""
MEET = "bar.sync 1, 64; bar.sync 1, 64;\n"


def run_of(body, cluster=2):
    run = Run((), None, sanitize=True)
    out = np.zeros(64, np.uint32)
    launch(START + body, out, grid=cluster, cluster=cluster, block=64, smem_bytes=1024, run=run)
    return run


@pytest.mark.parametrize("aligned", ["", ".aligned"])
@pytest.mark.parametrize("cluster", [1, 2])
def test_who_arrives_at_the_barrier_of_a_cluster_waits_before_it_ends(aligned, cluster):
    def reasons(body):
        run = run_of(body.replace(";", aligned + ";"), cluster)
        assert run.hazards == ()
        return run.certificates[0].reasons

    assert reasons(ARRIVE + WAIT) == reasons(ARRIVE + WAIT + ARRIVE + WAIT) == ()
    for body in (ARRIVE, ARRIVE + WAIT + ARRIVE):
        (reason,) = reasons(body)
        pins(reason)


def test_one_of_two_ctas_does_not_wait():
    (reason,) = run_of(ARRIVE + "@%p2 bra END;\n" + WAIT + "END:\n").certificates[0].reasons
    pins(reason)
    (reason,) = run_of(ARRIVE + "@!%p2 bra END;\n" + WAIT + "END:\n").certificates[0].reasons
    pins(reason)


@pytest.mark.parametrize(("first", "rank"), [("@%p2 bra MEET;\n", 1), ("@!%p2 bra MEET;\n", 0)])
def test_named_barriers_of_the_ctas_of_a_cluster_are_apart(first, rank):
    assert run_of(MEET).certificates[0].is_certified
    run = Run((), None, sanitize=True)
    body = first + RUN_AHEAD.replace("END:", "bra END; MEET: " + MEET + "END:")
    with pytest.raises(DeadlockError):
        launch(START + body, np.zeros(64, np.uint32), grid=2, cluster=2, block=64, smem_bytes=1024, run=run)
    ahead = [hazard for hazard in run.hazards if hazard.kind == "mixed-generation"]
    assert [hazard.after.cta for hazard in ahead] == [(rank, 0, 0)]


TOLD = """@!%p3 bra ON; mbarrier.init.shared.b64 [%r4], 32; mbarrier.init.shared.b64 [%r4+8], 32; ON: bar.sync 0;
bar.arrive 1, 64; @!%p1 bra OTHER;
mbarrier.arrive.shared.b64 _, [%r4]; W0: mbarrier.try_wait.parity.shared.b64 %p5, [%r4+8], 0; @!%p5 bra W0;
{} bar.arrive 1, 64; bra END;
OTHER: mbarrier.arrive.shared.b64 _, [%r4+8]; W1: mbarrier.try_wait.parity.shared.b64 %p5, [%r4], 0; @!%p5 bra W1;
bar.sync 1, 64;
END:
"""


def test_lanes_of_a_warp_come_to_a_named_barrier_as_one():
    """Each warp hears that the other one has arrived, and its lanes do not hear of each other."""
    assert [run_of(TOLD.format(""), cluster).certificates[0].is_certified for cluster in (1, 2)] == [True, True]
    without = TOLD.format("").replace("W0: mbarrier.try_wait.parity.shared.b64 %p5, [%r4+8], 0; @!%p5 bra W0;\n", "")
    (found,) = run_of(without, 1).hazards
    assert (found.kind, found.after.warp, found.after.lane) == ("mixed-generation", 0, 0)  # its first lane


STUCK = """@%p3 mbarrier.init.shared.b64 [%r4], {count}; bar.sync 0; @!%p1 bra OTHER;
LOOP: mbarrier.try_wait.parity.shared.b64 %p5, [%r4], 0; @%p5 bra END; bar.sync 1, 64;
SPIN: ld.volatile.global.u32 %r5, [%rd1]; setp.eq.u32 %p6, %r5, 0; @%p6 bra SPIN; bra LOOP;
OTHER: bar.sync 1, 64; mbarrier.arrive.shared.b64 _, [%r4];
END:
"""


def test_who_spins_on_a_flag_after_a_try_that_failed_is_not_known_to_hang_in_every_schedule():
    with refuses(DeadlockError):
        run_of(STUCK.format(count=32), 1)


SEND = """@%p3 mbarrier.init.shared.b64 [%r4], 1; @%p3 mbarrier.arrive.expect_tx.shared.b64 _, [%r4], 4;
fence.mbarrier_init.release.cluster; barrier.cluster.arrive; barrier.cluster.wait;
mapa.shared::cluster.u32 %r6, %r4, {to}; add.u32 %r7, %r6, 64;
@%p3 st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r7], %r1, [%r6];
W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p5, [%r4], 0; @!%p5 bra W;
barrier.cluster.arrive; barrier.cluster.wait;
"""


@pytest.mark.parametrize(("to", "assumed"), [("%r3", True), ("%r8", False)], ids=["itself", "the peer"])
def test_a_cta_that_stores_asynchronously_into_its_own_memory_rests_on_an_assumption(to, assumed):
    (certificate,) = run_of("xor.b32 %r8, %r3, 1;\n" + SEND.format(to=to)).certificates
    assert certificate.is_certified
    assert any("st.async" in what for what in certificate.assumptions) == assumed
