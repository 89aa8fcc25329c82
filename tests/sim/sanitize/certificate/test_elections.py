"""Elected lanes: certificates that rest on which lane `elect.sync` elects say so."""

import numpy as np
import pytest

from cutepy.sim import Run
from tests.sim.opcode_runner import launch

START = """mov.u32 %r1, smem; mov.u32 %r2, %tid.x; and.b32 %r3, %r2, 31; shr.u32 %r4, %r2, 5; ld.param.u64 %rd1, [p0];
setp.eq.u32 %p2, %r3, 0; setp.eq.u32 %p3, %r4, 0; setp.lt.u32 %p4, %r2, 32; setp.eq.u32 %p5, %r3, 7;
@%p3 mul.wide.u32 %rd2, %r3, 4; @%p3 add.u32 %r5, %r1, 256; @%p3 mad.lo.u32 %r5, %r3, 4, %r5;
@%p3 st.shared.u32 [%r5], %r3; fence.proxy.async.shared::cta; bar.sync 0;
@!%p3 bra END;
elect.sync _|%p1, -1;
"""
MEET = "bar.warp.sync -1;\n"
SEND = "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1+256], 128;\n"
CLOSE, READ = "cp.async.bulk.commit_group;\n", "cp.async.bulk.wait_group.read 0;\n"
DONE = "cp.async.bulk.wait_group 0;\n"
FILL = "st.shared.u32 [%r1+256], 5;\n"
FENCE = "fence.proxy.async.shared::cta;\n"


def elected(*lines):
    return "".join(f"@%p1 {line}" for line in lines)


def lane_0(*lines):
    return "".join(f"@%p2 {line}" for line in lines)


def certificate_of(*lines):
    run = Run((), None, sanitize=True)
    launch(START + "".join(lines) + "END:\n", np.zeros(64, np.uint32), block=64, smem_bytes=1024, run=run)
    assert [str(one) for one in run.hazards] == []
    (certificate,) = run.certificates
    assert certificate.reasons == ()
    return certificate


def rests_on_the_lane(*lines):
    return [one for one in certificate_of(*lines).assumptions if "elect.sync" in one]


ALONE = {
    "one lane does it all": (elected(SEND, CLOSE, READ, FILL, DONE),),
    "all lanes wait, then meet": (elected(SEND, CLOSE), DONE, MEET, lane_0(FILL)),
    "the lane waits, then all meet": (elected(SEND, CLOSE, DONE), MEET, lane_0(FILL)),
    "lane 0 writes, all meet, the lane sends": (lane_0(FILL, FENCE), MEET, elected(SEND, CLOSE, DONE)),
    "elected twice": (elected(SEND, CLOSE), "elect.sync _|%p1, -1;\n", elected(DONE)),
    "lane 0 does what is apart": (elected(SEND, CLOSE), lane_0("st.shared.u32 [%r1+512], 5;\n"), elected(DONE)),
    "a branch by the warp": ("@!%p3 bra END;\n@!%p4 bra END;\n@!%p1 bra END;\n", SEND, CLOSE, DONE),
    "a branch by the warp's number": ("setp.ge.u32 %p6, %r2, 32; @%p6 bra END;\n", elected(SEND, CLOSE, DONE)),
    "a branch by the last of the warp": ("setp.gt.u32 %p6, %r2, 31; @%p6 bra END;\n", elected(SEND, CLOSE, DONE)),
    "a branch by a bit of the warp's number": (
        "and.b32 %r9, %r2, 32; setp.ne.u32 %p6, %r9, 0; @%p6 bra END;\n",
        elected(SEND, CLOSE, DONE),
    ),
    "a branch by a quotient": (
        "div.u32 %r9, %r2, 32; setp.ne.u32 %p6, %r9, 0; @%p6 bra END;\n",
        elected(SEND, CLOSE, DONE),
    ),
}
MIXED = {
    "lane 0 waits": (elected(SEND, CLOSE), lane_0(DONE, FILL)),
    "lane 0 closes the group": (elected(SEND), lane_0(CLOSE, DONE)),
    "lane 0 writes what was waited for": (elected(SEND, CLOSE, DONE), lane_0(FILL)),
    "all lanes wait, and do not meet": (elected(SEND, CLOSE), DONE, lane_0(FILL)),
    "lane 0 writes": (lane_0(FILL, FENCE), elected(SEND, CLOSE, DONE)),
    "lane 0 reads what the elected lane writes": (
        elected("st.shared.u32 [%r1], 5;\n"),
        lane_0("ld.shared.u32 %r9, [%r1];\n", "st.global.u32 [%rd1], %r9;\n"),
    ),
    "the elected lane, if it is lane 0": ("@!%p1 bra END; @!%p2 bra END;\n", SEND, CLOSE, DONE),
    "lane 0, if it is elected": ("@!%p2 bra END; @!%p1 bra END;\n", SEND, CLOSE, DONE),
    "both in one predicate": ("and.pred %p6, %p1, %p2; @!%p6 bra END;\n", SEND, CLOSE, DONE),
    "its number": ("elect.sync %r9|%p1, -1; st.global.u32 [%rd1], %r9;\n",),
}


@pytest.mark.parametrize("name", ALONE)
def test_what_elected_lanes_do_by_themselves_rests_on_no_lane(name):
    assert rests_on_the_lane(*ALONE[name]) == []


@pytest.mark.parametrize("name", MIXED)
def test_a_certificate_that_rests_on_which_lane_is_elected_says_so(name):
    assert len(rests_on_the_lane(*MIXED[name])) == 1


BARRIER = """@%p2 mbarrier.init.shared.b64 [%r1], 1; fence.mbarrier_init.release.cluster; bar.warp.sync -1;
"""
WAIT = "W{0}: mbarrier.try_wait.parity.shared.b64 %p7, [%r1], {1}; @!%p7 bra W{0};\n"
ARRIVE = "mbarrier.arrive.shared.b64 _, [%r1];\n"


def only(predicate, *lines):
    return f"@!%p{predicate} bra O{predicate}{len(lines)};\n" + "".join(lines) + f"O{predicate}{len(lines)}:\n"


@pytest.mark.parametrize(
    ("lines", "rests"),
    [
        ((elected(ARRIVE), WAIT.format(1, 0), elected(FILL)), False),
        ((elected(ARRIVE), only(2, WAIT.format(1, 0)), MEET, elected(FILL)), True),
        ((lane_0(ARRIVE), only(2, WAIT.format(1, 0)), elected(FILL)), True),
        ((lane_0(ARRIVE), only(2, WAIT.format(1, 0)), MEET, elected(FILL)), False),
        ((elected(FILL), lane_0(ARRIVE)), True),
        ((elected(FILL), MEET, lane_0(ARRIVE)), False),
        ((lane_0(FENCE), elected(SEND, CLOSE, DONE)), True),
    ],
    ids=[
        "all wait",
        "lane 0 waits for it",
        "lane 0 waits",
        "and they meet",
        "lane 0 releases",
        "after they met",
        "fence",
    ],
)
def test_waits_releases_and_fences_by_lanes_that_are_chosen_otherwise(lines, rests):
    assert bool(rests_on_the_lane(BARRIER, *lines)) == rests
