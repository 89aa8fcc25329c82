"""Stores of several lanes of a warp to one place in one instruction: which one stays is open, and must not steer."""

import numpy as np
import pytest

from cutepy.sim import Run
from tests.messages import pins
from tests.sim.opcode_runner import launch

BEGIN = """.shared .align 16 .b8 there[512]; mov.u32 %r1, %tid.x; mov.u32 %r9, there; and.b32 %r3, %r1, 1;
ld.param.u64 %rd2, [p0]; mul.wide.u32 %rd1, %r1, 4; add.u64 %rd1, %rd1, %rd2; mul.lo.u32 %r4, %r1, 4;
add.u32 %r4, %r4, %r9; mov.u32 %r6, 7;
"""
READ = "bar.sync 0; ld.shared.u32 %r5, [%r9];\n"
TURN = "setp.ge.u32 %p2, %r5, 16; @%p2 bra OVER; st.global.u32 [%rd1], %r5; OVER:\n"
CHANCE = {
    "shared memory": "st.shared.u32 [%r9], %r1;" + READ + TURN,
    "a generic address": "mov.u64 %rd3, there; cvta.shared.u64 %rd3, %rd3; st.u32 [%rd3], %r3;" + READ + TURN,
    "one element of a vector": "st.shared.v2.u32 [%r9], {%r6, %r1};" + READ + TURN,
    "global memory": "st.global.u32 [%rd2], %r1; bar.warp.sync -1; ld.global.u32 %r5, [%rd2];" + TURN,
    "an asynchronous copy": "cp.async.ca.shared.global [%r9], [%rd1], 4; cp.async.wait_all;" + READ + TURN,
}
FINE = {
    "lanes that store the same": "st.shared.u32 [%r9], %r6;" + READ + TURN,
    "a vector of the same": "st.shared.v2.u32 [%r9], {%r6, %r6};" + READ + TURN,
    "one lane": "setp.eq.u32 %p1, %r1, 0; @%p1 st.shared.u32 [%r9], %r1;" + READ + TURN,
    "places of their own": "st.shared.u32 [%r4], %r1;" + READ + TURN,
    "what is a result": "st.shared.u32 [%r9], %r1;" + READ + "st.global.u32 [%rd1], %r5;",
}


def certificate_of(body):
    run = Run((), None, sanitize=True)
    launch(BEGIN + body, np.zeros(32, np.uint32), run=run)
    assert not run.hazards
    (certificate,) = run.certificates
    return certificate


@pytest.mark.parametrize("name", CHANCE)
def test_what_lanes_leave_by_chance_must_not_steer(name):
    certificate = certificate_of(CHANCE[name])
    pins("\n".join(certificate.reasons))


@pytest.mark.parametrize("name", FINE)
def test_what_lanes_leave_alike_may_steer(name):
    assert certificate_of(FINE[name]).is_certified
