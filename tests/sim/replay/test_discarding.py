"""Reads of shared memory that nothing has written: whether anything comes of them."""

import numpy as np
import pytest

from cutepy.sim import Run
from tests.sim.opcode_runner import launch

READ = """mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [p0]; mul.wide.u32 %rd3, %r1, 4; add.u64 %rd1, %rd1, %rd3;
mov.u32 %r0, smem; shl.b32 %r2, %r1, 2; add.u32 %r2, %r2, %r0; setp.lt.u32 %p1, %r1, 16;
@%p1 st.shared.u32 [%r2], %r1; ld.shared.f32 %f1, [%r2]; cvt.u64.u32 %rd4, %r1;
"""
ROWS = READ + "add.f32 %f1, %f1, %f1; @%p1 st.global.f32 [%rd1], %f1;\n"
"""Half of the lanes read what they wrote, the others what nobody did, and these store nothing."""


def found(body, policy=None, **options):
    """Return the kinds of hazards and of advisories."""
    run = Run((), policy, sanitize=True, **options)
    launch(body, np.zeros(64, np.uint32), run=run, smem_bytes=256)
    return [h.kind for h in run.hazards], [h.kind for h in run.hazards.advisories]


@pytest.mark.parametrize("options", [{}, {"replay": True}, {"schedules": 2}])
def test_what_is_not_stored_is_an_advisory(options):
    assert found(ROWS, **options) == ([], ["discarded-read"])


@pytest.mark.parametrize(
    "use",
    [
        "st.global.f32 [%rd1], %f1;",
        "max.f32 %f1, %f1, 0f00000000; st.global.f32 [%rd1], %f1;",
        "min.f32 %f1, %f1, 0f00000000; st.global.f32 [%rd1], %f1;",
        "mov.b32 %r5, %f1; setp.eq.u32 %p2, %r5, 0; @%p2 st.global.u32 [%rd1], %r1;",
        "shfl.sync.bfly.b32 %f2, %f1, 16, 31, 0xffffffff; @%p1 st.global.f32 [%rd1], %f2;",
        "setp.gt.f32 %p2, %f1, 0f47000000; LOOP: @%p2 bra LOOP; @%p1 st.global.u32 [%rd1], %r1;",
    ],
    ids=["store", "maximum", "minimum", "predicate", "shuffle", "end"],
)
def test_what_reaches_memory_or_whether_it_ends_is_a_hazard(use, monkeypatch):
    monkeypatch.setattr("cutepy.sim.replay.discarding._TIMEOUT_S", 1.0)
    assert found(READ + use + "\n") == (["uninitialised-read"], [])


def test_what_is_computed_in_place_can_be_judged_before_only():
    """After the launch the memory that it read is no more."""
    body = ROWS.replace("add.f32 %f1, %f1, %f1", "ld.global.f32 %f2, [%rd1]; add.f32 %f1, %f1, %f2")
    assert found(body) == (["uninitialised-read"], [])
    assert found(body, replay=True) == ([], ["discarded-read"])


@pytest.mark.parametrize("policy", [None, "late"])
def test_what_is_read_too_early_is_a_hazard_though_it_may_be_there(policy):
    """Under another schedule the copy is complete, and nothing that nobody wrote is read."""
    body = """ld.param.u64 %rd1, [p0]; mov.u32 %r0, smem; mov.u32 %r1, %tid.x; mad.lo.u32 %r2, %r1, 4, %r0;
    cvt.u64.u32 %rd3, %r1; shl.b64 %rd3, %rd3, 2; add.u64 %rd3, %rd1, %rd3;
    cp.async.ca.shared.global [%r2], [%rd3], 4; ld.shared.u32 %r3, [%r2]; cp.async.wait_all;
    st.global.u32 [%rd3+128], %r3;"""
    hazards, advisories = found(body, policy=policy)
    assert hazards
    assert not advisories


def test_a_hazard_of_an_earlier_launch_stays_one():
    run = Run((), None, sanitize=True)
    body = READ + "ld.param.u32 %r7, [p1]; setp.lt.u32 %p2, %r1, %r7; @%p2 st.global.f32 [%rd1], %f1;\n"
    for rows in (32, 16):
        launch(body, np.zeros(64, np.uint32), rows, run=run, smem_bytes=256)
    assert [h.kind for h in run.hazards] == ["uninitialised-read"]
    run = Run((), None, sanitize=True)
    for rows in (16, 32):
        launch(body, np.zeros(64, np.uint32), rows, run=run, smem_bytes=256)
    assert [h.kind for h in run.hazards] == ["uninitialised-read"]
    assert [h.kind for h in run.hazards.advisories] == ["discarded-read"]
