"""Arrivals and waits at barriers that show too little, or stand in the wrong place; each mistake beside its mend."""

import numpy as np
import pytest

from cutepy.sim import Run
from tests.messages import pins
from tests.sim.opcode_runner import launch

START = """mov.u32 %r1, smem; mov.u32 %r2, %tid.x; shr.u32 %r3, %r2, 5; ld.param.u64 %rd1, [p0];
setp.eq.u32 %p1, %r2, 0; setp.eq.u32 %p2, %r3, 0; mov.u32 %r9, 0; add.u32 %r4, %r1, 64;
@%p1 mbarrier.init.shared.b64 [%r1], 32; @%p1 st.shared.v4.u32 [%r4], {%r2, %r2, %r2, %r2};
fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta; bar.sync 0;
@%p2 bra FIRST;
"""
"""Warp 0 goes to FIRST, the other one on; r1: an mbarrier that 32 arrive at, r4: 16 bytes of data."""

FIRST = "bra END;\nFIRST:\n"
END = "END:\n"
WRITE = "@%p1 st.shared.u32 [%r4], 7;\n"
READ = "ld.shared.u32 %r9, [%r4];\n"
MEET = "bar.warp.sync 0xffffffff;\n"
ARRIVE = "mbarrier.arrive{how}.shared.b64 _, [%r1];\n"
WAIT = "WAIT: mbarrier.try_wait.parity{how}.shared.b64 %p4, [%r1], 0;\n@!%p4 bra WAIT;\n"
OVERWRITE = "st.shared.u32 [%r4], %r2;\n"
PROXY = "fence.proxy.async.shared::cta;\n"
FENCE = "fence.{order}.{scope};\n"


def found_of(there, here):
    """Run what both warps do, the first one second, and return the hazards."""
    run = Run((), None, sanitize=True)
    launch("".join((START, there, FIRST, here, END)), np.zeros(64, np.uint32), smem_bytes=1024, run=run, block=64)
    return run.hazards


def hand_over(arrive="", wait="", before="", after=""):
    """Hand a word from one warp to the other."""
    return found_of(WAIT.format(how=wait) + after + READ, WRITE + before + ARRIVE.format(how=arrive))


RELAXED = ".relaxed.cta"


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"arrive": ".release.cta", "wait": ".acquire.cta"},
        *(
            {"arrive": RELAXED, "before": FENCE.format(order=order, scope=scope)}
            for order, scope in (("acq_rel", "cta"), ("acq_rel", "cluster"), ("sc", "gpu"))
        ),
        {"wait": RELAXED, "after": FENCE.format(order="acq_rel", scope="cta")},
        {"wait": ".relaxed.cluster", "after": "membar.cta;\n"},
        {
            "arrive": RELAXED,
            "before": FENCE.format(order="acq_rel", scope="cta"),
            "wait": RELAXED,
            "after": FENCE.format(order="acq_rel", scope="cta"),
        },
    ],
    ids=str,
)
def test_what_synchronises_is_not_reported(how):
    assert hand_over(**how) == ()


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"arrive": RELAXED}, "the arrival at "),
        ({"arrive": RELAXED, "before": MEET}, "the arrival at "),
        ({"wait": RELAXED}, "the wait at "),
        ({"wait": RELAXED, "before": FENCE.format(order="acq_rel", scope="cta")}, "the wait at "),
        ({"arrive": RELAXED, "after": FENCE.format(order="acq_rel", scope="cta")}, "the arrival at "),
    ],
    ids=str,
)
def test_what_is_relaxed_is_told(how, said):
    (hazard,) = hand_over(**how)
    assert hazard.kind == "too-weak-semantics"
    assert said in hazard.missing
    pins(hazard.missing)


def test_a_fence_covers_what_came_before_it_only():
    fence = FENCE.format(order="acq_rel", scope="cta")
    (hazard,) = found_of(WAIT.format(how="") + READ, fence + WRITE + ARRIVE.format(how=RELAXED))
    assert hazard.kind == "too-weak-semantics"


def test_fences_of_some_lanes_leave_the_wait_to_the_others():
    fence = FENCE.format(order="acq_rel", scope="cta")
    some = f"and.b32 %r5, %r2, 1; setp.eq.u32 %p5, %r5, 0;\n@%p5 {fence}"
    assert hand_over(wait=RELAXED, after=f"{some}@!%p5 {fence}") == ()
    assert [hazard.kind for hazard in hand_over(wait=RELAXED, after=some)] == ["too-weak-semantics"]


def test_a_fence_of_one_thread_is_none_of_another():
    """Thread 0 has written, and the others execute the fence."""
    here = WRITE + "@!%p1 " + FENCE.format(order="acq_rel", scope="cta") + ARRIVE.format(how=RELAXED)
    assert [hazard.kind for hazard in found_of(WAIT.format(how="") + READ, here)] == ["too-weak-semantics"]
    here = WRITE + MEET + "@!%p1 " + FENCE.format(order="acq_rel", scope="cta") + ARRIVE.format(how=RELAXED)
    assert found_of(WAIT.format(how="") + READ, here) == ()


def test_a_relaxed_wait_for_a_copy_shows_it_after_a_fence():
    load = """mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 16;
cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r4], [%rd1], 16, [%r1];
"""
    here = f"@!%p1 bra MORE;\n{load}bra DONE;\nMORE: {ARRIVE.format(how='')}DONE:\n"
    wait = WAIT.format(how=RELAXED)
    (hazard,) = found_of(wait + READ, here)
    assert hazard.kind == "too-weak-semantics"
    pins(hazard.missing)
    assert found_of(wait + FENCE.format(order="acq_rel", scope="cta") + READ, here) == ()


@pytest.mark.parametrize("fence", ["", PROXY])
def test_an_arrival_before_the_read_that_it_should_hand_back_is_told(fence):
    arrive = ARRIVE.format(how="")
    wait = WAIT.format(how="")
    (hazard,) = found_of(wait + OVERWRITE, arrive + READ + fence)
    assert hazard.kind == "unordered-write"
    pins(hazard.missing)
    assert found_of(wait + OVERWRITE, READ + fence + arrive) == ()


def test_an_elected_arrival_before_the_read_is_told():
    arrive = MEET + "@%p1 mbarrier.arrive.shared.b64 _, [%r1], 32;\n"
    (hazard,) = found_of(WAIT.format(how="") + OVERWRITE, arrive + READ)
    pins(hazard.missing)
    assert found_of(WAIT.format(how="") + OVERWRITE, READ + arrive) == ()


@pytest.mark.parametrize("after", ["", ARRIVE.format(how="")])
def test_an_arrival_at_a_named_barrier_is_told_too_unless_there_is_another(after):
    (hazard,) = found_of("bar.sync 1, 64;\n" + OVERWRITE, "bar.arrive 1, 64;\n" + READ + after)
    pins(hazard.missing)


def test_an_arrival_of_another_round_is_not_blamed():
    """The writer lacks a wait for the second arrival, and none stands before the second read."""
    here = READ + ARRIVE.format(how="") + "OTHER: mbarrier.try_wait.parity.shared.b64 %p5, [%r1], 0; @!%p5 bra OTHER;\n"
    (hazard,) = found_of(WAIT.format(how="") + OVERWRITE, here + READ)
    assert "stands before" not in hazard.missing


CLUSTER = """mov.u32 %r1, smem; mov.u32 %r2, %tid.x; mov.u32 %r3, %cluster_ctarank; ld.param.u64 %rd1, [p0];
setp.eq.u32 %p1, %r2, 0; setp.eq.u32 %p2, %r3, 0; mov.u32 %r9, 0; add.u32 %r4, %r1, 64;
@%p1 mbarrier.init.shared.b64 [%r1], 1; @%p1 st.shared.v4.u32 [%r4], {%r2, %r2, %r2, %r2};
mapa.shared::cluster.u32 %r5, %r1, 0; mapa.shared::cluster.u32 %r6, %r4, 1; mapa.shared::cluster.u32 %r7, %r4, 0;
fence.mbarrier_init.release.cluster; barrier.cluster.arrive; barrier.cluster.wait;
@%p2 bra FIRST;
"""
"""CTA 0 goes to FIRST, the other on; r4: 16 bytes of data, r6: those of CTA 1, r7: of CTA 0; r5: CTA 0's mbarrier."""
TOGETHER = "barrier.cluster.arrive; barrier.cluster.wait;\n"
TELL = "@%p1 mbarrier.arrive{how}.shared::cluster.b64 _, [%r5];\n"
RELEASE = TELL.format(how=".release.cluster")
PEER = "@%p1 st.shared::cluster.u32 [%r7], 7;\n"
TAKE = "@%p1 ld.shared.u32 %r9, [%r4];\n"
PUT = "@%p1 st.shared::cluster.u32 [%r6], 7;\n"


def found_in_cluster(there, here):
    """Run what both CTAs do, the first one second, and return the hazards."""
    run = Run((), None, sanitize=True)
    body = "".join((CLUSTER, there, FIRST, here, END, TOGETHER))
    launch(body, np.zeros(64, np.uint32), smem_bytes=1024, run=run, grid=2, cluster=2, block=32)
    return run.hazards


def test_the_scope_of_an_arrival_at_another_cta_is_told():
    wait = WAIT.format(how="")
    (hazard,) = found_in_cluster(PEER + TELL.format(how=""), wait + TAKE)
    assert hazard.kind == "too-narrow-scope"
    pins(hazard.missing)
    assert hazard.missing.endswith("mbarrier.arrive.release.cluster")
    assert found_in_cluster(PEER + RELEASE, wait + TAKE) == ()


def test_a_relaxed_arrival_at_another_cta_releases_what_a_wide_fence_covers():
    wait, relaxed = WAIT.format(how=""), TELL.format(how=".relaxed.cluster")
    assert found_in_cluster(PEER + FENCE.format(order="acq_rel", scope="cluster") + relaxed, wait + TAKE) == ()
    (hazard,) = found_in_cluster(PEER + relaxed, wait + TAKE)
    assert hazard.kind == "too-weak-semantics"
    (hazard,) = found_in_cluster(PEER + FENCE.format(order="acq_rel", scope="cta") + relaxed, wait + TAKE)
    assert hazard.kind == "too-weak-semantics"
    pins(hazard.missing)


def test_global_memory_takes_wide_fences_on_both_sides():
    fill, take = "@%p1 st.global.u32 [%rd1], 7;\n", "@%p1 ld.global.u32 %r9, [%rd1];\n"
    wait, relaxed = WAIT.format(how=".relaxed.cluster"), TELL.format(how=".relaxed.cluster")
    wide, narrow = (FENCE.format(order="acq_rel", scope=scope) for scope in ("cluster", "cta"))
    assert found_in_cluster(fill + wide + relaxed, wait + wide + take) == ()
    (hazard,) = found_in_cluster(fill + wide + relaxed, wait + narrow + take)
    assert hazard.kind == "too-narrow-scope"
    (hazard,) = found_in_cluster(fill + narrow + relaxed, wait + wide + take)
    assert hazard.kind == "too-narrow-scope"


def test_what_another_cta_overwrites_is_handed_back_in_its_scope():
    """By a release of the cluster's scope, or with a proxy fence, which waits for reads: QuACK's way with st.async."""
    wait = WAIT.format(how="")
    (hazard,) = found_in_cluster(TAKE + TELL.format(how=""), wait + PUT)
    assert hazard.kind == "too-narrow-scope"
    pins(hazard.missing)
    for mended in (TAKE + RELEASE, TAKE + PROXY + TELL.format(how="")):
        assert found_in_cluster(mended, wait + PUT) == ()


def test_so_is_what_another_lane_has_read_and_what_was_written():
    wait, write = WAIT.format(how=""), "@%p1 st.shared.u32 [%r4], 8;\n"
    tell = MEET + TELL.format(how="")
    for touch, kind in ((READ, "ld read"), (write, "st write")):
        (hazard,) = found_in_cluster(touch + tell, wait + PUT)
        assert (hazard.kind, hazard.before.what) == ("too-narrow-scope", kind)
        pins(hazard.missing)
        assert found_in_cluster(touch + PROXY + tell, wait + PUT) == ()
    (hazard,) = found_in_cluster(PEER + PROXY + tell, wait + TAKE)
    assert hazard.kind == "too-narrow-scope", "a proxy fence shows nothing to threads of another CTA"


def test_a_fence_before_a_relaxed_arrival_at_the_clusters_barrier_releases():
    arrive, wait = "barrier.cluster.arrive.relaxed;\n", "barrier.cluster.wait;\n"
    fence = FENCE.format(order="acq_rel", scope="cluster")
    both = arrive + wait
    assert found_in_cluster(PEER + fence + both, both + TAKE) == ()
    (hazard,) = found_in_cluster(PEER + both, both + TAKE)
    assert hazard.kind == "too-weak-semantics"
    pins(hazard.missing)
    (hazard,) = found_in_cluster(PEER + FENCE.format(order="acq_rel", scope="cta") + both, both + TAKE)
    assert hazard.kind == "too-weak-semantics"


@pytest.mark.parametrize("space", ["shared", "global"])
@pytest.mark.parametrize("raised", ["red.relaxed.cta", "atom.relaxed.cta"])
def test_fences_beside_relaxed_atomics_synchronise(space, raised):
    """A counter beside the data."""
    flag = "[%rd1]" if space == "global" else "[%r4+8]"
    to = "%r8, " if raised.startswith("atom") else ""
    raise_it = f"@%p1 {raised}.{space}.add.u32 {to}{flag}, 1;\n"
    poll = f"AGAIN: ld.relaxed.cta.{space}.u32 %r8, {flag}; setp.eq.u32 %p5, %r8, 0; @%p5 bra AGAIN;\n"
    fence = FENCE.format(order="acq_rel", scope="cta")
    assert found_of(poll + fence + READ, WRITE + fence + raise_it) == ()
    for here, there, said in ((poll, fence + raise_it, "the flag is read at"), (poll + fence, raise_it, "raises is")):
        (hazard,) = found_of(here + READ, WRITE + there)
        assert hazard.kind == "too-weak-semantics"
        assert said in hazard.missing
