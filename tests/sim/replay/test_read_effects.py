"""Reads of shared memory that nothing has written: whether anything comes of them."""

import numpy as np
import pytest

from cutepy.sim import Run
from cutepy.sim.machine.shared_memory import Words, leftover
from tests.sim.opcode_runner import launch

READ = """mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [p0]; mul.wide.u32 %rd3, %r1, 4; add.u64 %rd1, %rd1, %rd3;
mov.u32 %r0, smem; shl.b32 %r2, %r1, 2; add.u32 %r2, %r2, %r0; setp.lt.u32 %p1, %r1, 16;
@%p1 st.shared.u32 [%r2], %r1; ld.shared.f32 %f1, [%r2]; cvt.u64.u32 %rd4, %r1;
"""
ROWS = READ + "add.f32 %f1, %f1, %f1; @%p1 st.global.f32 [%rd1], %f1;\n"
"""Half of the lanes read what they wrote, the others what nobody did, and these store nothing."""


def found(body, policy=None, block=32, **options):
    """Return the kinds of hazards and of advisories."""
    run = Run((), policy, sanitize=True, **options)
    launch(body, np.zeros(64, np.uint32), run=run, smem_bytes=512, block=block)
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
    monkeypatch.setattr("cutepy.sim.replay.read_effects._TIMEOUT_S", 1.0)
    assert found(READ + use + "\n") == (["uninitialised-read"], [])


NEXT = "bar.sync 0; ld.shared.{0} %{1}6, [%r2]; ld.shared.{0} %{1}7, [%r2+4];\n"
HALVES = "bar.sync 0; ld.shared.u16 %rs1, [%r2]; ld.shared.u16 %rs2, [%r2+2]; "
WARPS = "bar.sync 0; and.b32 %r3, %r1, 32; shl.b32 %r3, %r3, 2; add.u32 %r3, %r3, %r0; ld.shared.u32 %r6, [%r3];\n"
STORES = "st.global.u32 [%rd1], %r8;"
ONE_IF = "selp.u32 %r8, 1, 0, %p3; " + STORES
VARIES = {
    "a difference": NEXT.format("u32", "r") + "sub.u32 %r8, %r6, %r7; " + STORES,
    "a difference of floats": NEXT.format("f32", "f") + "sub.f32 %f8, %f6, %f7; st.global.f32 [%rd1], %f8;",
    "which is larger": NEXT.format("s32", "r") + "setp.lt.s32 %p3, %r6, %r7; " + ONE_IF,
    "which float is larger": NEXT.format("f32", "f") + "setp.lt.f32 %p3, %f6, %f7; " + ONE_IF,
    "whether they are equal": NEXT.format("u32", "r") + "setp.eq.u32 %p3, %r6, %r7; " + ONE_IF,
    "halves of a word": HALVES + "sub.u16 %rs1, %rs1, %rs2; cvt.u32.u16 %r8, %rs1; " + STORES,
    "bytes of a word": HALVES.replace("u16", "u8").replace("+2", "+1") + "setp.lt.u16 %p3, %rs1, %rs2; " + ONE_IF,
    "a barrier's number": WARPS + "and.b32 %r6, %r6, 0x10000; shr.u32 %r6, %r6, 16; add.u32 %r6, %r6, 1; "
    "bar.sync %r6, 64; " + STORES,
    "whether a barrier orders them": "bar.sync 0; ld.shared.u32 %r6, [%r0]; ld.shared.u32 %r7, [%r0+128]; "
    "setp.ne.u32 %p3, %r6, %r7; setp.ge.u32 %p4, %r1, 32; @!%p4 st.shared.u32 [%r2+256], %r1; @%p3 bra ON; bar.sync 1; "
    "ON: mov.u32 %r8, 0; @%p4 ld.shared.u32 %r8, [%r2+128]; and.b32 %r8, %r8, 0; " + STORES,
}
"""Bodies with one result for all values of the words."""


@pytest.mark.parametrize(
    "name", [*[*VARIES][::2], *(pytest.param(name, marks=pytest.mark.integration) for name in [*VARIES][1::2])]
)
def test_what_depends_on_words_that_differ_is_a_hazard(name):
    body = READ.partition("@%p1 st")[0] + VARIES[name] + "\n"
    hazards, advisories = found(body, block=64)
    assert (set(hazards), advisories) == ({"uninitialised-read"}, [])


FIRST = "setp.eq.u32 %p2, %r1, 0; mov.u32 %r8, 0; mov.u32 %r9, 0; mov.u32 %r7, %ctaid.x; "
OWN = {
    "a flag": "@%p2 ld.shared.u32 %r8, [%r0]; setp.eq.u32 %p3, %r8, 4711; selp.u32 %r9, 1, 2, %p3; bar.sync 0; "
    "@%p2 st.shared.u32 [%r0], 4711; @%p2 st.global.u32 [%rd1], %r9;",
    "a count": "@%p2 atom.shared.add.u32 %r8, [%r0], 1; setp.eq.u32 %p3, %r8, 1; @%p3 st.global.u32 [%rd1], 1;",
}
"""Bodies that need a value as the CTA before leaves it, and no usual value."""


@pytest.mark.parametrize("name", OWN)
def test_what_depends_on_what_a_cta_before_has_left_is_a_hazard(name):
    body = READ.partition("@%p1 st")[0] + FIRST + OWN[name] + "\n"
    assert found(body) == (["uninitialised-read"], [])


def test_words_are_numbers_of_both_signs_that_differ():
    for words in (Words(1), Words(1, is_complement=True), Words()):
        for kind in ("i4", "f4", "i2", "f2", "i1"):
            held = leftover(1 << 12, words).view(kind)
            held = held[np.isfinite(held)]
            assert len(held) > 0.8 * (1 << 12) / np.dtype(kind).itemsize
            for sign in (held < 0, held > 0):
                assert 0.2 < sign.mean() < 0.8
            assert (held[1:] != held[:-1]).mean() > 0.5
    assert np.array_equal(leftover(9, Words(1)), leftover(12, Words(1))[:9])
    cta = leftover(4 << 18, Words(1)).reshape(4, -1)
    assert (cta[1:] != cta[:-1]).mean() > 0.9


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
